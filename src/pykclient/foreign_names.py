"""Modules of other clients, made of tables: programs import classes from them that are defined elsewhere here."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType


def provide_modules(package: str, modules: Mapping[str, Mapping[str, object]]) -> None:
    """Let programs import ``modules`` below ``package``: the names of each, and what they stand for.

    ``package`` is the name of the module that calls this while it is imported. For the import system, it is a package
    from then on.
    """
    sys.modules[package].__path__ = []
    for name, contents in modules.items():
        for parent in (*_parents(name), name):
            _module(package, parent)
        vars(sys.modules[f"{package}.{name}"]).update(contents)


def _parents(name: str) -> list[str]:
    words = name.split(".")
    return [".".join(words[:count]) for count in range(1, len(words))]


def _module(package: str, name: str) -> None:
    full = f"{package}.{name}"
    if full not in sys.modules:
        module = ModuleType(full, f"Names of {package}, which are defined elsewhere.")
        module.__spec__ = ModuleSpec(full, None, is_package=True)
        module.__path__ = []
        sys.modules[full] = module
        parent, _, last = full.rpartition(".")
        setattr(sys.modules[parent], last, module)
