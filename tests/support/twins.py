"""The compiled implementation and its pure Python twin, side by side in one process."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from types import ModuleType

#: The modules imported anew for each implementation: all of ours that may keep references to the package's classes.
_PREFIXES = ("pykclient", "tests.support.mock_", "tests.producer.harness")


def _is_ours(name: str) -> bool:
    return name.startswith(_PREFIXES)


@cache
def load(implementation: str, names: Sequence[str]) -> dict[str, ModuleType]:
    """Return the modules ``names`` of a copy of the package that runs in ``implementation`` (``c`` or ``python``).

    The copies share nothing: a class of one is not a class of the other. Compare results by names and values.
    """
    before = {name: module for name, module in sys.modules.items() if _is_ours(name)}
    forced = os.environ.get("PYKCLIENT_IMPL")
    for name in before:
        del sys.modules[name]
    os.environ["PYKCLIENT_IMPL"] = implementation
    try:
        return {name: import_module(name) for name in names}
    finally:
        if forced is None:
            del os.environ["PYKCLIENT_IMPL"]
        else:
            os.environ["PYKCLIENT_IMPL"] = forced
        for name in [name for name in sys.modules if _is_ours(name)]:
            del sys.modules[name]
        sys.modules.update(before)
