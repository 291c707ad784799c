"""Installs the aliases that PYKCLIENT_ALIAS names at the start of a process that has this folder on PYTHONPATH.

``python -m pykclient.alias`` puts it there, so that the aliases hold for the processes that a program starts. Some of
these may be other Pythons: this module does nothing where there is no pykclient.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec


def _path_without_this_folder() -> list[str]:
    here = os.path.dirname(os.path.abspath(__file__))
    return [path for path in sys.path if os.path.abspath(path) != here]


def _install() -> None:
    if os.environ.get("PYKCLIENT_ALIAS") and find_spec("pykclient") is not None:
        from pykclient import alias

        alias.install(*alias.names_in_environment())


def _run_the_next_one() -> None:
    """Run the module of this name that is found without this folder."""
    found = PathFinder.find_spec("sitecustomize", sys.path)
    if found is not None and found.loader is not None:
        module = sys.modules["sitecustomize"] = module_from_spec(found)
        found.loader.exec_module(module)


sys.path[:] = _path_without_this_folder()  # the variable stays, for the processes that this one starts
try:
    _install()
finally:
    _run_the_next_one()
