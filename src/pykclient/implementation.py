"""The choice between the compiled implementation and pure Python.

Both behave the same. ``PYKCLIENT_IMPL=python`` or ``c`` in the environment forces one. By default the compiled one is
used if it was built. Hot modules bind their functions at import, so the choice is made once per process.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import logging

T = TypeVar("T")

_VARIABLE = "PYKCLIENT_IMPL"
_PYTHON, _C = "python", "c"

#: The compiled module that tells whether there are any. It imports nothing that needs this module.
_PROBE = "pykclient._consumer_record"

#: Without --no-cache-dir pip reuses a wheel that it built and cached before a compiler was installed.
_HOW_TO_BUILD = (
    "reinstall pykclient where a C compiler and Python's headers are (pip install --force-reinstall --no-cache-dir "
    f"--no-deps --no-binary pykclient pykclient, in a clone pip install --editable .), or unset {_VARIABLE}"
)


def _choose() -> tuple[str, str]:
    """Return the implementation's name, and the reason."""
    wanted = os.environ.get(_VARIABLE, "")
    if wanted not in {"", _PYTHON, _C}:
        raise ImportError(f"{_VARIABLE}={wanted!r} is unknown; set it to {_PYTHON!r} or {_C!r}, or leave it unset")
    if wanted == _PYTHON:
        return _PYTHON, f"{_VARIABLE} says so"
    try:
        import_module(_PROBE)
    except ImportError as error:
        if wanted == _C:
            raise ImportError(
                f"{_VARIABLE}={_C}, but the compiled modules cannot be imported ({error}); {_HOW_TO_BUILD}"
            ) from error
        return _PYTHON, f"the compiled modules cannot be imported ({error}); {_HOW_TO_BUILD}"
    return _C, f"{_VARIABLE} says so" if wanted else "it was built"


#: ``NAME`` is ``c`` or ``python``; ``REASON`` is a text with the reason.
NAME, REASON = _choose()


#: The Python form of each class or function that was replaced by its compiled form.
_python_forms: dict[Any, Any] = {}


def use_compiled(name: str) -> None:
    """Replace functions and classes of the module ``name`` by their compiled forms, if those are in use.

    The compiled form of ``package/module.py`` is built from ``package/_module.pyx`` (PEP 399). All names that it shares
    with the module are replaced. The module calls this in its last line, because the compiled form imports constants
    and Python forms from it, or right before the classes that inherit from a replaced one.

    Raises:
        ImportError: the compiled form is missing, and ``c`` was forced; or it was imported before the module.
    """
    if NAME != _C:
        return
    package, _, last = name.rpartition(".")
    compiled_name = f"{package}._{last}"
    if compiled_name in sys.modules and compiled_name not in _used:
        raise ImportError(f"import {name} before {compiled_name}, which is not complete without it")
    _used.add(compiled_name)  # first: if a signal handler raises below, the import of the module is repeated
    try:
        found = import_module(compiled_name)
    except ImportError as error:
        # Each module may be compiled or missing on its own. Another name: an import inside of it fails.
        if os.environ.get(_VARIABLE) or error.name != compiled_name:
            raise
        return
    module = vars(sys.modules[name])
    for shared in module.keys() & vars(found).keys():
        python, chosen = module[shared], getattr(found, shared)
        if shared.startswith("__") or chosen is python:
            continue
        module[shared] = chosen
        _python_forms[chosen] = python


#: The compiled modules that their Python modules have asked for.
_used: set[str] = {_PROBE}


def python_form(chosen: T) -> T:
    """Return the Python form of a class or function that may have been replaced. For tests."""
    form: T = _python_forms.get(chosen, chosen)
    return form


_is_told = False


def tell(logger: logging.Logger | logging.LoggerAdapter[logging.Logger]) -> None:
    """Log once per process which implementation runs: at WARNING if the compiled one is missing, else at DEBUG.

    The first client calls this, because logging is rarely configured when the package is imported.
    """
    global _is_told  # noqa: PLW0603
    if _is_told:
        return
    _is_told = True
    if NAME == _PYTHON and os.environ.get(_VARIABLE) != _PYTHON:
        logger.warning("Running in pure Python, which is several times slower than the compiled core: %s", REASON)
    else:
        logger.debug("Running the implementation in %s: %s", "C" if NAME == _C else "Python", REASON)
