"""The test suites of aiokafka and kafka-python, run on this package and an embedded cluster.

    python -m tests.interop.foreign_suites aiokafka DIRECTORY [ARGUMENT OF PYTEST ...]
    python -m tests.interop.foreign_suites kafka DIRECTORY [ARGUMENT OF PYTEST ...]

DIRECTORY is a checkout of the other project. Its tests run from a temporary copy, with ``pykclient.alias`` in place
of the package that they test. Modules that the package has only for itself are stand-ins: a test that uses one
is skipped. So are tests of what an embedded cluster cannot be here, such as a Kerberos server.
"""

from __future__ import annotations

import asyncio
import importlib.abc
import importlib.machinery
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from pykclient import alias

HERE = Path(__file__).parent

#: The tests that talk to a cluster, below the other project's directory of tests.
SUITES = {
    "aiokafka": (
        "tests",
        (
            "test_admin.py",
            "test_consumer.py",
            "test_pep492.py",
            "test_producer.py",
            "test_transactional_consumer.py",
            "test_transactional_producer.py",
        ),
    ),
    "kafka": (
        "test",
        (
            "integration/test_admin_integration.py",
            "integration/test_consumer_integration.py",
            "integration/test_producer_integration.py",
        ),
    ),
}

#: Takes the place of aiokafka's own conftest.py, which starts containers.
_AIOKAFKA_CONFTEST = """
import asyncio, gc
import pytest
from pykclient.testing import EmbeddedCluster

@pytest.fixture(scope="session")
def kafka_server():
    with EmbeddedCluster(
        brokers=1, num_partitions=2, auto_create_topics_enable=True, config={"group.min.session.timeout.ms": 6_000}
    ) as cluster:
        yield cluster

@pytest.fixture(scope="class")
def loop():
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    loop.close()
    gc.collect()
    asyncio.set_event_loop(None)

@pytest.fixture(scope="class")
def setup_test_class_serverless(request, loop):
    request.cls.loop = loop

@pytest.fixture(scope="class")
def setup_test_class(request, loop, kafka_server):
    host, _, port = kafka_server.bootstrap_servers.partition(":")
    request.cls.loop = loop
    request.cls.kafka_host, request.cls.kafka_port = host, int(port)
    request.cls.hosts = [kafka_server.bootstrap_servers]
    request.cls.kafka_version = "4.3.0"
"""

#: Is added to kafka-python's, whose brokers are processes.
_KAFKA_CONFTEST = """

class _Embedded:
    partitions, replicas, transport, node_id = 4, 1, "PLAINTEXT", 0

    def __init__(self, bootstrap_servers):
        self.bootstrap_servers = bootstrap_servers
        self.host, _, port = bootstrap_servers.partition(":")
        self.port = int(port)

    def _enrich_client_params(self, params, **defaults):
        return {**defaults, "bootstrap_servers": self.bootstrap_servers, **params}

@pytest.fixture(scope="module")
def kafka_broker_factory():
    return lambda **_: _Embedded(os.environ["BOOTSTRAP_SERVERS"])
"""


class _StandIn:
    """A name of a module that stands in for a private one: a test that uses it is skipped."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        import pytest

        if len(arguments) == 1 and callable(arguments[0]) and not keywords:  # a decorator
            return arguments[0]
        return pytest.skip(f"uses {self._name}")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _StandIn(f"{self._name}.{name}")

    def __mro_entries__(self, bases: tuple[type, ...]) -> tuple[type, ...]:
        return ()


class _StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules that the alias does not know."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in alias.PACKAGES or alias.target_of(fullname) is not None:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        module.__getattr__ = lambda name: _found(module.__name__, name)  # type: ignore[method-assign]


def _found(module: str, name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _StandIn(f"{module}.{name}")


#: Names of public modules that only tests use.
_MOVED = (("aiokafka.admin", "RecordsToDelete"), ("kafka.structs", "TopicPartitionReplica"))


def _add_names(package: str) -> None:
    """Give our modules the private names that the tests import without testing them."""
    if package == "aiokafka":
        helpers: Any = import_module("aiokafka.util")
        consumer: Any = import_module("aiokafka.consumer")
        helpers.create_task = lambda coroutine: asyncio.get_running_loop().create_task(coroutine)
        helpers.create_future = lambda: asyncio.get_running_loop().create_future()
        helpers.get_running_loop = asyncio.get_running_loop
        consumer.fetcher = import_module("aiokafka.consumer.fetcher")
    else:
        util: Any = import_module("kafka.util")
        util.TOPIC_MAX_LENGTH, util.TOPIC_LEGAL_CHARS = 249, re.compile("[a-zA-Z0-9._-]")
        util.ensure_valid_topic_name = lambda _: None
        codec: Any = import_module("kafka.codec")
        codec.has_gzip = codec.has_snappy = codec.has_lz4 = codec.has_zstd = lambda: True
    for module, name in _MOVED:
        if module.partition(".")[0] == package and not hasattr(import_module(module), name):
            setattr(import_module(module), name, _StandIn(f"{module}.{name}"))


if "FOREIGN_SUITE" in os.environ:  # pytest loads this module as a plugin, before the other project's conftest.py
    alias.install(os.environ["FOREIGN_SUITE"])
    sys.meta_path.insert(0, _StandIns())
    _add_names(os.environ["FOREIGN_SUITE"])


def _run(package: str, directory: Path, arguments: Sequence[str]) -> int:
    folder, files = SUITES[package]
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name)
        shutil.copytree(directory / folder, copy / folder)
        environment = {**os.environ, "FOREIGN_SUITE": package, "PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": "1"}
        if package == "aiokafka":
            (copy / folder / "conftest.py").write_text(_AIOKAFKA_CONFTEST)
        command = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", name, "-q", "-p", "no:cacheprovider"]
        command += ["-p", "foreign_suites", "--timeout", "120", "-rs", *arguments]
        if not any(argument.startswith(f"{folder}/") for argument in arguments):
            command += [f"{folder}/{file}" for file in files]
        if package == "aiokafka":
            return subprocess.run(command, cwd=copy, env=environment, check=False).returncode
        from pykclient.testing import EmbeddedCluster

        with EmbeddedCluster([0], num_partitions=4, auto_create_topics_enable=True) as cluster:
            environment |= {"BOOTSTRAP_SERVERS": cluster.bootstrap_servers, "KAFKA_VERSION": "4.3.0"}
            with (copy / folder / "integration" / "conftest.py").open("a") as conftest:
                conftest.write(_KAFKA_CONFTEST)
            return subprocess.run(command, cwd=copy, env=environment, check=False).returncode


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in SUITES:
        sys.exit(__doc__)
    sys.exit(_run(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
