"""Wheels, built as for a release: with compiled modules, and where there is no compiler. Used from outside of the
source tree, as users have them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BUILT_FROM = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "src")
NOT_COPIED = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so", "*.pyd", "*.c")

#: Records through an embedded cluster: broker, producer and consumer of the wheel.
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
        timeout=110,
        check=False,
    )
    assert not done.returncode, done.stdout
    return done.stdout


def build_wheel(directory: Path, **environment: str) -> Path:
    """The wheel, from a copy of the sources."""
    sources = directory / "sources"
    for name in BUILT_FROM:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, sources / name, ignore=NOT_COPIED)
        else:
            sources.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, sources / name)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    # The tools are those of this environment, so that nothing is downloaded; code that is not optimized is made fast.
    said = run(
        [*pip, "--no-build-isolation", "--no-deps", "--wheel-dir", str(directory), "."],
        sources,
        **{"CFLAGS": "-O0 -g0", **environment},
    )
    (wheel,) = directory.glob("*.whl")
    assert "Traceback" not in said
    return wheel


def install(wheel: Path, directory: Path) -> str:
    """Where it is installed, alone: what it depends on is this environment's."""
    site = directory / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, "--no-deps", "--no-index", "--target", str(site), str(wheel)], directory)
    return str(site)


def modules(wheel: Path) -> set[str]:
    """What a wheel has beside Python's own files."""
    names = zipfile.ZipFile(wheel).namelist()
    return {name for name in names if not name.endswith(".py") and ".dist-info/" not in name}


@pytest.mark.slow
def test_a_wheel_with_compiled_modules(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path, PYKCLIENT_BUILD="c")
    compiled = {path.stem for path in (ROOT / "src/pykclient/_speedups").glob("*.pyx")}
    packed = {Path(name).name.split(".")[0] for name in modules(wheel) if name.endswith((".so", ".pyd"))}
    assert packed == compiled
    assert {Path(name).suffix for name in modules(wheel)} <= {".so", ".pyd", ".pyi", ".typed"}
    site = install(wheel, tmp_path)
    name, origin = run([sys.executable, "-c", SMOKE], tmp_path, PYTHONPATH=site).split()
    assert name == "c"
    assert origin.startswith(site)

    # Some tests of the project, on the wheel instead of the source tree.
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=NOT_COPIED)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    check = f"import pykclient; assert pykclient.__file__.startswith({site!r})"
    run([sys.executable, "-c", check], tmp_path, PYTHONPATH=site)
    chosen = ("record/test_twins.py", "record/test_record_cursor.py", "record/test_memory_records_builder.py")
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    said = run([*pytest_, *(f"tests/{name}" for name in chosen)], tmp_path, PYTHONPATH=site, PYKCLIENT_IMPL="c")
    assert " passed" in said


@pytest.mark.slow
def test_a_wheel_where_there_is_no_compiler(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path, CC="false", CXX="false")
    assert not [name for name in modules(wheel) if name.endswith((".so", ".pyd", ".c", ".pyx"))]
    site = install(wheel, tmp_path)
    name, origin = run([sys.executable, "-c", SMOKE], tmp_path, PYTHONPATH=site).split()
    assert name == "python"
    assert origin.startswith(site)
