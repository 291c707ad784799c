"""CRC-32C from the crc32c package, without what else that imports.

Its ``__init__`` imports what its command line needs (argparse, mmap) and reads its version with importlib.metadata:
most of the time that ``import pykclient.record`` would take. The extension module alone takes a third of a millisecond,
so it is loaded by itself; should a later version keep it elsewhere, the package is imported as usual.
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


# For 32 KiB and more it would let go of the interpreter's lock. It is done in microseconds, and whoever lets go of the
# lock beside a busy thread waits for it for up to 5 ms.
crc32c: Callable[[Buffer], int] = partial(_load(), gil_release_mode=0)
