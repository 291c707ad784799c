"""CRC-32C from the crc32c package, without the package's other imports.

Its ``__init__`` imports argparse and mmap for its command line, and reads its version with importlib.metadata. That
would be most of the time that ``import pykclient.record`` takes. The extension module alone takes a third of a
millisecond, so it is loaded directly. If a later version keeps it elsewhere, the package is imported as usual.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import cast

from pykclient.record.record_batch import Buffer


def _load() -> Callable[..., int]:
    package = find_spec("crc32c")
    if package is not None:
        spec = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
        if spec is not None and spec.loader is not None:
            extension = module_from_spec(spec)
            spec.loader.exec_module(extension)
            if hasattr(extension, "crc32c"):
                return cast("Callable[..., int]", extension.crc32c)
    from crc32c import crc32c

    return crc32c


# For 32 KiB and more it would release the GIL. The computation takes microseconds, while getting the GIL back from a
# CPU-bound thread takes up to 5 ms.
crc32c: Callable[[Buffer], int] = partial(_load(), gil_release_mode=0)
