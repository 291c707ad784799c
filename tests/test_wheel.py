"""Wheels built as for a release, with and without a compiler, and used outside of the source tree."""

from __future__ import annotations

import os
import runpy
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BUILT_FROM = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "src")
#: Modules that Cython has already translated are reused.
TRANSLATED = "build/cython"
NOT_COPIED = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so", "*.pyd")
#: The settings with which cibuildwheel builds and tests.
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]

#: A program that sends records through an embedded cluster with the broker, producer and consumer of the wheel.
SMOKE = """
import pykclient
from pykclient import KafkaConsumer, KafkaProducer, implementation
from pykclient.testing import EmbeddedCluster

with EmbeddedCluster() as cluster:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(1000):
            producer.send("numbers", b"%d" % number, key=b"key", headers=[("name", None)])
    with KafkaConsumer(
        "numbers", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", consumer_timeout_ms=20_000
    ) as consumer:
        values = [next(consumer).value for _ in range(1000)]
assert values == [b"%d" % number for number in range(1000)]
print(implementation.NAME, pykclient.__file__)
"""


def run(command: list[str], directory: Path, **environment: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYKCLIENT_", "PYTEST_"))}
    done = subprocess.run(
        command,
        cwd=directory,
        env={**inherited, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
        check=False,
    )
    assert not done.returncode, done.stdout
    return done.stdout


def copy(names: Iterable[str], target: Path) -> None:
    """Copy those of the project's files and folders ``names`` that exist."""
    target.mkdir(exist_ok=True)
    for name in names:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, ignore=NOT_COPIED)
        elif (ROOT / name).exists():
            shutil.copy(ROOT / name, target / name)


def copy_sources(directory: Path) -> Path:
    copy((*BUILT_FROM, TRANSLATED), directory / "sources")
    return directory / "sources"


def build_wheel(directory: Path, **environment: str) -> Path:
    """Build the wheel from a copy of the sources and return its path."""
    sources = copy_sources(directory)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    # Build with the tools of this environment, to avoid downloads, and without optimization, to save time.
    said = run(
        [*pip, "--no-build-isolation", "--no-deps", "--wheel-dir", str(directory), "."],
        sources,
        **{"CFLAGS": "-O0 -g0", **environment},
    )
    (wheel,) = directory.glob("*.whl")
    assert "Traceback" not in said
    return wheel


def install(wheel: Path, directory: Path) -> str:
    """Install the wheel without its dependencies, which this environment has, and return the folder."""
    site = directory / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, "--no-deps", "--no-index", "--target", str(site), str(wheel)], directory)
    return str(site)


def modules(wheel: Path) -> set[str]:
    """Return the files of a wheel that are not Python files."""
    names = zipfile.ZipFile(wheel).namelist()
    return {name for name in names if not name.endswith(".py") and ".dist-info/" not in name}


#: The modules that the test of `make test` compiles: each may be missing on its own, and few take less time.
COMPILED = {"pykclient/_consumer_record", "pykclient/_system_time", "pykclient/network/_frames"}


def smoke(wheel: Path, directory: Path) -> str:
    """Run SMOKE on a wheel with compiled modules, and return the folder where that is installed."""
    site = install(wheel, directory)
    name, origin = run([sys.executable, "-c", SMOKE], directory, PYTHONPATH=site).split()
    assert name == "c"
    assert origin.startswith(site)
    return site


def compiled_modules(wheel: Path) -> set[str]:
    return {name.partition(".")[0] for name in modules(wheel) if name.endswith((".so", ".pyd"))}


def compilable() -> set[str]:
    return {path.relative_to(ROOT / "src").with_suffix("").as_posix() for path in (ROOT / "src").rglob("*.pyx")}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_wheel_has_compiled_modules_and_stubs(tmp_path: Path) -> None:
    left_out = " ".join(name.removeprefix("pykclient/") for name in sorted(compilable() - COMPILED))
    wheel = build_wheel(tmp_path, **SETTINGS["environment"], PYKCLIENT_BUILD_WITHOUT=left_out)
    assert compiled_modules(wheel) == COMPILED
    assert {Path(name).suffix for name in modules(wheel)} <= {".so", ".pyd", ".pyi", ".typed"}
    smoke(wheel, tmp_path)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_release_wheel_passes_its_tests(tmp_path: Path) -> None:
    """As cibuildwheel builds and tests it: tests of the project run on the wheel instead of the source tree."""
    wheel = build_wheel(tmp_path, **SETTINGS["environment"])
    assert compiled_modules(wheel) == compilable()
    site = smoke(wheel, tmp_path)
    tested = tmp_path / "tested"
    copy(SETTINGS["test-sources"], tested)
    environment = {"PYTHONPATH": site, **SETTINGS["test-environment"]}
    check = f"import pykclient; assert pykclient.__file__.startswith({site!r})"
    run([sys.executable, "-c", check], tested, **environment)
    python, *command = shlex.split(SETTINGS["test-command"])
    assert python == "python"
    said = run([sys.executable, *command, "-p", "no:cacheprovider"], tested, **environment)
    assert " passed" in said
    assert not {"failed", "error", "skipped"} & set(said.splitlines()[-1].split())


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_wheel_without_a_compiler_is_pure_python(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path, CC="false", CXX="false")
    assert wheel.name.endswith("-py3-none-any.whl"), "or pip would take it for a compiled one"
    assert not [name for name in modules(wheel) if name.endswith((".so", ".pyd", ".c", ".pyx"))]
    assert "pyspark_pykclient.py" in zipfile.ZipFile(wheel).namelist(), "where Spark looks for data sources"
    site = install(wheel, tmp_path)
    *warning, said = run([sys.executable, "-c", SMOKE], tmp_path, PYTHONPATH=site).splitlines()
    assert len(warning) == 1, "that it runs without compiled code is said once"
    name, origin = said.split()
    assert name == "python"
    assert origin.startswith(site)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_source_distribution_is_reproducible(tmp_path: Path) -> None:
    """A source distribution has Cython's input and not its output, and another build of it is the same."""
    normalize = runpy.run_path(str(ROOT / "tools" / "dist.py"))["normalize"]
    archives: list[Path] = []
    for number in range(2):
        directory = tmp_path / str(number)
        directory.mkdir()
        code = f"import setuptools.build_meta; setuptools.build_meta.build_sdist({str(directory)!r})"
        run([sys.executable, "-c", code], copy_sources(directory))
        archives += directory.glob("*.tar.gz")
        normalize(archives[-1], 1_700_000_000)
    archive, again = archives
    assert archive.read_bytes() == again.read_bytes()
    with tarfile.open(archive) as opened:
        packed = {name.partition("/")[2] for name in opened.getnames()}
    compiled = {path.relative_to(ROOT).as_posix() for path in (ROOT / "src").rglob("*.p[xy][xdi]")}
    assert compiled
    assert compiled <= packed
    assert {"pyproject.toml", "setup.py", "src/pykclient/py.typed", "README.md", "LICENSE"} <= packed
    assert "src/pyspark_pykclient.py" in packed
    assert not [name for name in packed if name.endswith((".c", ".so", ".pyd")) or name.startswith("tests")]
