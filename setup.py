"""Builds the compiled modules, each ``_module.pyx`` beside its ``module.py``; the rest is in pyproject.toml.

They are optional: where they cannot be compiled, the package is installed without them, and runs in Python alone.
``PYKCLIENT_BUILD=python`` leaves them out, ``PYKCLIENT_BUILD=c`` fails where they cannot be compiled.
"""

from __future__ import annotations

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel

WANTED = os.environ.get("PYKCLIENT_BUILD", "")
if WANTED not in {"", "python", "c"}:
    raise SystemExit(f"PYKCLIENT_BUILD={WANTED!r} is unknown; set it to 'python' or 'c', or leave it unset")

SOURCE = Path("src")

#: Where the translated C files go: the same for every Python.
TRANSLATED = "build/cython"


def extensions() -> list[Extension]:
    """All modules, translated to C where the last translation is older than its source."""
    translated: list[Extension] = cythonize(
        [
            Extension(".".join(path.relative_to(SOURCE).with_suffix("").parts), [path.as_posix()])
            for path in sorted(SOURCE.rglob("*.pyx"))
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


class Wheel(bdist_wheel):
    """A wheel that says what is in it: for any system if nothing could be compiled.

    Otherwise an installer that finds both, such as in pip's cache, takes one without compiled modules for one with.
    """

    def run(self) -> None:
        self.run_command("build")
        compiled = self.get_finalized_command("build_ext").get_outputs() if self.distribution.ext_modules else []
        if not any(Path(name).exists() for name in compiled):
            self.distribution.ext_modules = []
            self.root_is_pure = True
        super().run()


setup(ext_modules=[] if WANTED == "python" else extensions(), cmdclass={"bdist_wheel": Wheel})
