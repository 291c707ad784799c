"""Builds the compiled modules, all of ``src/pykclient/_speedups``; the rest is in pyproject.toml.

They are optional: where they cannot be compiled, the package is installed without them, and runs in Python alone.
"""

from __future__ import annotations

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

SOURCES = sorted(Path("src/pykclient/_speedups").glob("*.pyx"))
#: Where the translated C files go: the same for every Python.
TRANSLATED = "build/cython"


def extensions() -> list[Extension]:
    found = [Extension(f"pykclient._speedups.{path.stem}", [path.as_posix()], optional=True) for path in SOURCES]
    # pip builds in the source tree, so what is older than its source is translated again and the rest is kept.
    translated: list[Extension] = cythonize(
        found,
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
    return translated


setup(ext_modules=[] if os.environ.get("PYKCLIENT_BUILD") == "python" else extensions())
