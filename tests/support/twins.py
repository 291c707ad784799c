"""The compiled implementation and its pure Python twin, side by side in one process."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pykclient.implementation import NAME, python_form

#: The modules imported anew for each implementation: all of ours that may keep references to the package's classes.
_PREFIXES = ("pykclient", "tests.support.mock_", "tests.producer.harness")


ROOT = Path(__file__).resolve().parents[2]


def compiled_modules() -> set[str]:
    """Return the paths in the package of all compiled modules, such as ``record/_lines``."""
    package = ROOT / "src" / "pykclient"
    return {path.relative_to(package).with_suffix("").as_posix() for path in package.rglob("*.pyx")}


def not_compiled_for_demo() -> list[str]:
    """Return the folders and modules that ``make demo`` does not compile."""
    (names,) = re.findall(r"^NOT_IN_DEMO := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    return str(names).split()


def _is_ours(name: str) -> bool:
    return name.startswith(_PREFIXES)


@cache
def load(implementation: str, names: Sequence[str]) -> dict[str, ModuleType]:
    """Return the modules ``names`` of the package, running in ``implementation`` (``c`` or ``python``).

    If this process runs the other one, the modules are those of a copy of the package. The two share nothing: a class
    of one is not a class of the other. Compare results by names and values.
    """
    if implementation == NAME:
        return {name: import_module(name) for name in names}
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


def compiled_form(name: str) -> Any:
    """Return the compiled form of the module ``name``, also in a process that runs pure Python.

    The Python form of what it replaces there is ``implementation.python_form``. Without a build, skip the test.
    """
    import_module(name)  # first: the compiled form takes constants and Python forms from it
    package, _, last = name.rpartition(".")
    return pytest.importorskip(f"{package}._{last}")


def both_forms(module: str, name: str) -> tuple[Any, Any]:
    """Return the Python and the compiled form of a function or class of ``module``. Without a build, skip the test."""
    compiled = getattr(compiled_form(module), name)
    return python_form(getattr(import_module(module), name)), compiled
