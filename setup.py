"""Builds the compiled modules, each ``_module.pyx`` beside its ``module.py``; the rest is in pyproject.toml.

They are optional: where they cannot be compiled, the package is installed without them, and runs in Python alone.
``PYKCLIENT_BUILD=python`` leaves them out, ``PYKCLIENT_BUILD=c`` fails where they cannot be compiled.
``PYKCLIENT_BUILD_WITHOUT="aio record/_lines"`` leaves out these folders and modules, where time matters more.
All cores translate and compile. ``CFLAGS`` replaces the optimization and debug settings chosen here.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError

WANTED = os.environ.get("PYKCLIENT_BUILD", "")
if WANTED not in {"", "python", "c"}:
    raise SystemExit(f"PYKCLIENT_BUILD={WANTED!r} is unknown; set it to 'python' or 'c', or leave it unset")

SOURCE = Path("src")

#: Where the translated C files go: the same for every Python.
TRANSLATED = "build/cython"

#: The modules that run for each record of a producer or consumer. The others gain nothing by more than -O1.
HOT = {
    "_avro_decoder",
    "_avro_writing",
    "_awaited_records",
    "_columns",
    "_default_record",
    "_memory_records_builder",
    "_message",
    "_outbox",
    "_send",
}
#: Without debug information, which would be four fifths of an installation.
COMPILE_FLAGS = ["-O1", "-g0"]
HOT_FLAGS = ["-O2", "-g0"]
#: Without the names of local symbols, which only debuggers use.
LINK_FLAGS = ["-Wl,-x"] if sys.platform == "darwin" else ["-Wl,-s"]


def extensions() -> list[Extension]:
    left_out = [SOURCE / "pykclient" / name for name in os.environ.get("PYKCLIENT_BUILD_WITHOUT", "").split()]
    for path in left_out:
        if not any(path.glob("*.pyx")) and not path.with_suffix(".pyx").exists():
            raise SystemExit(f"PYKCLIENT_BUILD_WITHOUT names {path}, which has no compiled module")
    found = []
    for path in sorted(SOURCE.rglob("*.pyx")):
        module = path.with_suffix("")
        if not any(other in (module, *module.parents) for other in left_out):
            name = ".".join(module.relative_to(SOURCE).parts)
            found.append(Extension(name, [path.as_posix()], optional=WANTED != "c"))
    return found


def cores() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class BuildExt(build_ext):
    """Translates and compiles in parallel."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or cores()

    def build_extensions(self) -> None:
        self.announce(f"Translating and compiling {len(self.extensions)} modules on {self.parallel} cores", level=2)
        translated = cythonize(
            [Extension(extension.name, extension.sources) for extension in self.extensions],
            build_dir=TRANSLATED,
            nthreads=self.parallel if self.parallel > 1 else 0,
            force=self.force,
            quiet=not self.verbose,
            show_all_warnings=True,
            compiler_directives={
                "language_level": 3,
                "boundscheck": False,
                "wraparound": False,
                "cdivision": True,
                "binding": True,
                "embedsignature": True,
                "freethreading_compatible": True,
                "auto_pickle": False,  # it would be a quarter of the code of modules with classes
            },
        )
        compile_flags, link_flags = self.known_flags()
        for extension, c_extension in zip(self.extensions, translated, strict=True):
            extension.sources = c_extension.sources
            is_hot = extension.name.rpartition(".")[2] in HOT
            extension.extra_compile_args = HOT_FLAGS if is_hot and compile_flags else compile_flags
            extension.extra_link_args = link_flags
        super().build_extensions()

    def known_flags(self) -> tuple[list[str], list[str]]:
        """Return the compiler's and the linker's flags, or none if they do not know them or the environment has CFLAGS.

        Microsoft's compiler optimizes, and keeps debug information apart, by default.
        """
        if self.compiler.compiler_type == "msvc" or "CFLAGS" in os.environ:
            return [], []
        with tempfile.TemporaryDirectory() as name:
            probe = Path(name, "probe.c")
            probe.write_text("int probe(void) { return 0; }\n")
            try:
                objects = self.compiler.compile([str(probe)], output_dir=name, extra_postargs=COMPILE_FLAGS)
                self.compiler.link_shared_object(objects, str(Path(name, "probe.so")), extra_postargs=LINK_FLAGS)
            except (CompileError, LinkError):
                return [], []
        return COMPILE_FLAGS, LINK_FLAGS


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


if __name__ == "__main__":  # the processes that translate may import this module
    setup(
        ext_modules=[] if WANTED == "python" else extensions(),
        cmdclass={"bdist_wheel": Wheel, "build_ext": BuildExt},
    )
