"""Builds the compiled modules, all of ``src/pykclient/_speedups``; the rest is in pyproject.toml.

They are optional: where they cannot be compiled, the package is installed without them, and runs in Python alone.
``PYKCLIENT_BUILD=python`` leaves them out, ``PYKCLIENT_BUILD=c`` fails where they cannot be compiled.
"""

from __future__ import annotations

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

WANTED = os.environ.get("PYKCLIENT_BUILD", "")
if WANTED not in {"", "python", "c"}:
    raise SystemExit(f"PYKCLIENT_BUILD={WANTED!r} is unknown; set it to 'python' or 'c', or leave it unset")

#: Where the translated C files go: the same for every Python.
TRANSLATED = "build/cython"


def extensions() -> list[Extension]:
    """All modules, translated to C where the last translation is older than its source."""
    translated: list[Extension] = cythonize(
        [
            Extension(f"pykclient._speedups.{path.stem}", [path.as_posix()])
            for path in sorted(Path("src/pykclient/_speedups").glob("*.pyx"))
        ],
        build_dir=TRANSLATED,
        show_all_warnings=True,
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "binding": True,
            "embedsignature": True,
            "freethreading_compatible": True,
        },
    )
    for extension in translated:  # now, as cythonize() forgets it
        extension.optional = WANTED != "c"
    return translated


setup(ext_modules=[] if WANTED == "python" else extensions())
