"""The cost of imports, which every Spark worker pays. Each measurement runs in its own process."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

import pykclient

#: Modules that only some programs need; they are loaded on first use.
LATE = {
    "ssl",
    "asyncio",
    "backports",
    "concurrent",
    "cramjam",
    "lz4",
    "snappy",
    "zstandard",
    "gzip",
    "mmh3",
    "json",
    "dataclasses",
}
#: Modules that no import of ours may load.
NEVER = {"confluent_kafka", "kafka", "aiokafka", "pyspark", "pyarrow", "hypothesis", "pytest"}

#: Packages whose names load their modules on first use.
PACKAGES = sorted(
    f"pykclient.{path.parent.name}"
    for path in Path(pykclient.__file__).parent.glob("*/__init__.py")
    if "__getattr__" in path.read_text(encoding="utf-8")
)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment whose interpreters keep compiled modules, as installed packages do."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**environment, "PYTHONPYCACHEPREFIX": str(tmp_path_factory.mktemp("compiled"))}


def run(code: str, environment: dict[str, str]) -> str:
    """Return the last line that the code prints in a fresh interpreter."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environment)
    return done.stdout.splitlines()[-1]


def loaded_by(statement: str, environment: dict[str, str], after: str = "") -> set[str]:
    """Return the top-level modules that a statement loads in a bare interpreter after the statement ``after``."""
    code = f"""
import sys
{after}
before = set(sys.modules)
{statement}
print(*{{name.partition(".")[0] for name in set(sys.modules) - before}})
"""
    return set(run(code, environment).split())


class Cost(NamedTuple):
    """The cost of an import, as counts, because times depend on the load of the machine."""

    modules: int
    #: The size of the modules' compiled code, which must be read and unmarshalled.
    code_bytes: int
    #: Function calls during the import, including those of the import system.
    calls: int


def cost_of(statement: str, environment: dict[str, str]) -> Cost:
    """Return the cost of a statement without that of the standard library."""
    code = f"""
import collections.abc, logging, os, re, sys, threading, time, typing
calls = 0
def note(frame, event, argument):
    global calls
    calls += event in ("call", "c_call")
before = set(sys.modules)
sys.setprofile(note)
{statement}
sys.setprofile(None)
modules = set(sys.modules) - before
files = [spec.cached for name in modules if (spec := getattr(sys.modules[name], "__spec__", None)) and spec.cached]
print(len(modules), sum(os.path.getsize(file) for file in files if os.path.exists(file)), calls)
"""
    run(code, environment)  # compiles the modules
    return Cost(*map(int, run(code, environment).split()))


def test_importing_the_package_alone_loads_nothing(compiled: dict[str, str]) -> None:
    assert loaded_by("import pykclient", compiled) == {"pykclient", "__future__"}


@pytest.mark.parametrize("name", pykclient.__all__)
def test_public_names_load_only_what_they_need(name: str, compiled: dict[str, str]) -> None:
    # Since Python 3.14, logging needs dataclasses.
    assert not loaded_by(f"from pykclient import {name}", compiled, after="import logging") & (LATE | NEVER)


def test_importing_the_configuration_is_cheap(compiled: dict[str, str]) -> None:
    """Importing the configuration takes 4 ms on the reference machine, half of it for the error classes."""
    cost = cost_of("import pykclient.config.producer_config, pykclient.config.consumer_config", compiled)
    assert cost.modules <= 20, cost
    assert cost.code_bytes < 240_000, cost
    assert cost.calls < 8_000, cost


@pytest.mark.parametrize("name", ["KafkaProducer", "KafkaConsumer"])
def test_importing_a_client_is_cheap(name: str, compiled: dict[str, str]) -> None:
    """Importing a client takes 30 ms on the reference machine (confluent_kafka 67 ms, kafka-python 300 ms)."""
    cost = cost_of(f"from pykclient import {name}", compiled)
    assert cost.modules <= 160, cost
    assert cost.code_bytes < 2_200_000, cost
    assert cost.calls < 68_000, cost


def test_every_public_name_exists_and_is_listed() -> None:
    for name in pykclient.__all__:
        assert getattr(pykclient, name) is not None
        assert name in dir(pykclient)
    assert sorted(set(pykclient.__all__)) == sorted(pykclient.__all__)
    assert {*pykclient._HOME, *pykclient._MODULES, "__version__"} == set(pykclient.__all__)


@pytest.mark.parametrize("name", PACKAGES)
def test_every_name_that_a_package_lists_loads(name: str) -> None:
    package = importlib.import_module(name)
    missing = [each for each in package.__all__ if not hasattr(package, each)]
    assert not missing


def test_unknown_names_raise() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'NoSuchName'"):
        _ = pykclient.NoSuchName  # type: ignore[attr-defined]


def test_version_is_the_projects() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert pykclient.__version__ == project["version"]
