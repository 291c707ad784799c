"""The test suites of other projects, run on this package and an embedded cluster.

    python -m tests.interop.foreign_suites SUITE DIRECTORY [--theirs] [ARGUMENT OF PYTEST ...]

DIRECTORY is a checkout of the other project; without arguments, the command lists the suites and what each needs to be
installed. ``--theirs`` runs a framework's tests with the client that it is written for, on the same cluster.

aiokafka's and kafka-python's tests run from a temporary copy, with ``pykclient.alias`` in place of the package that
they test. Modules that the package has only for itself are stand-ins: a test that uses one is skipped. So are tests of
what an embedded cluster cannot be here, such as a Kerberos server. Frameworks run in their checkout.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.abc
import importlib.machinery
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class _Framework:
    """Tests that run in the checkout of a project that uses Kafka clients."""

    #: The repository, and the packages that its tests need beside pykclient and pytest.
    repository: str
    packages: str
    #: The client that its tests use, below the alias.
    client: str
    tests: tuple[str, ...]
    folder: str = "."
    options: tuple[str, ...] = ()
    #: Variables that name the cluster; without one, the tests expect it at ``_PORT``.
    environment: tuple[tuple[str, str], ...] = ()
    #: Modules that stand-ins replace if they cannot be imported.
    stand_ins: tuple[str, ...] = ()
    #: Settings of the embedded brokers.
    brokers: tuple[tuple[str, Any], ...] = ()


#: Where tests without a setting for the address expect a broker.
_PORT = 9092
_SERVERS = ("BROKERS", "{address}")

_OPENTELEMETRY = "github.com/open-telemetry/opentelemetry-python-contrib"
_CONFLUENT = "github.com/confluentinc/confluent-kafka-python"
_REGISTRY = "authlib avro cachetools fastavro googleapis-common-protos httpx jsonschema orjson protobuf pytest-asyncio"
#: One of each of these needs containers or accounts.
_TRIVUP = ("trivup", "confluent_kafka.avro", "confluent_kafka.schema_registry")

FRAMEWORKS = {
    "faststream-aiokafka": _Framework(
        "github.com/ag2ai/faststream",
        "faststream[kafka,rabbit,nats,redis,cli] and its dependency group testing",
        "aiokafka",
        ("tests/brokers/kafka",),
    ),
    "faststream-confluent": _Framework(
        "github.com/ag2ai/faststream",
        "faststream[confluent,rabbit,nats,redis,cli] and its dependency group testing",
        "confluent_kafka",
        ("tests/brokers/confluent",),
    ),
    "opentelemetry-confluent": _Framework(
        _OPENTELEMETRY,
        "opentelemetry-instrumentation-confluent-kafka opentelemetry-test-utils confluent-kafka",
        "confluent_kafka",
        ("tests",),
        "instrumentation/opentelemetry-instrumentation-confluent-kafka",
    ),
    "opentelemetry-kafka": _Framework(
        _OPENTELEMETRY,
        "opentelemetry-instrumentation-kafka-python opentelemetry-test-utils kafka-python",
        "kafka",
        ("tests",),
        "instrumentation/opentelemetry-instrumentation-kafka-python",
    ),
    "opentelemetry-aiokafka": _Framework(
        _OPENTELEMETRY,
        "opentelemetry-instrumentation-aiokafka opentelemetry-test-utils aiokafka",
        "aiokafka",
        ("tests",),
        "instrumentation/opentelemetry-instrumentation-aiokafka",
    ),
    "confluent-integration": _Framework(
        _CONFLUENT,
        f"confluent-kafka {_REGISTRY}",
        "confluent_kafka",
        ("tests/integration/admin", "tests/integration/consumer", "tests/integration/producer"),
        options=("-o", "asyncio_mode=auto"),
        environment=(_SERVERS,),
        brokers=(
            ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
            ("allow.everyone.if.no.acl.found", True),
        ),
        stand_ins=_TRIVUP,
    ),
    "confluent-share": _Framework(
        _CONFLUENT,
        f"confluent-kafka {_REGISTRY}",
        "confluent_kafka",
        ("tests/integration/share_consumer",),
        options=("-o", "asyncio_mode=auto"),
        environment=(_SERVERS, ("SR_URL", "{registry}")),
        brokers=(("group.share.record.lock.duration.ms", 1_000),),
        stand_ins=_TRIVUP,
    ),
    "arroyo": _Framework(
        "github.com/getsentry/arroyo",
        "sentry-arroyo and its requirements-test.txt",
        "confluent_kafka",
        ("tests/backends", "tests/test_kip848_e2e.py", "tests/test_dlq.py"),
        environment=(("DEFAULT_BROKERS", "{address}"),),
    ),
    "quixstreams": _Framework(
        "github.com/quixio/quix-streams",
        "quixstreams and its tests/requirements.txt",
        "confluent_kafka",
        (
            "tests/test_quixstreams/test_internal_consumer",
            "tests/test_quixstreams/test_internal_producer.py",
            "tests/test_quixstreams/test_kafka",
            "tests/test_quixstreams/test_checkpointing.py",
        ),
        options=("-o", "log_cli=false"),
        environment=(("QUIX_KAFKA", "{address}"),),
    ),
    "kombu": _Framework(
        "github.com/celery/kombu",
        "kombu confluent-kafka and its requirements/test.txt",
        "confluent_kafka",
        ("t/integration/test_kafka.py",),
        options=("-E", "kafka"),
    ),
    "taskiq": _Framework(
        "github.com/taskiq-python/taskiq-aio-kafka",
        "taskiq-aio-kafka kafka-python and its dependency group dev",
        "aiokafka,kafka",
        ("tests",),
        environment=(("TEST_KAFKA_URL", "{address}"),),
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
    """Finds modules below these names that the alias does not know."""

    def __init__(self, names: tuple[str, ...] = tuple(alias.PACKAGES)) -> None:
        self._names = names

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if not f"{fullname}.".startswith(tuple(f"{name}." for name in self._names)):
            return None
        if fullname.partition(".")[0] in alias.PACKAGES and alias.target_of(fullname) is not None:
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


def pytest_sessionstart() -> None:
    """Give quixstreams' fixtures the cluster instead of a container."""
    helper: Any = sys.modules.get("tests.containerhelper")
    if "QUIX_KAFKA" in os.environ and helper is not None:
        address = os.environ["QUIX_KAFKA"]
        sys.modules["tests.conftest"].Network = contextlib.nullcontext  # type: ignore[attr-defined]
        helper.ContainerHelper.create_kafka_container = lambda _: (_StandIn("container"), address, address)
        helper.ContainerHelper.start_kafka_container = lambda _: None
        _StandIn.stop = lambda _: None  # type: ignore[attr-defined]


if os.environ.get("FOREIGN_STAND_INS"):
    sys.meta_path.insert(0, _StandIns(tuple(os.environ["FOREIGN_STAND_INS"].split(","))))


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


def _run_framework(suite: _Framework, directory: Path, arguments: Sequence[str]) -> int:
    given = [each for each in arguments if each != "--theirs"]
    theirs = len(given) < len(arguments)
    path = [str(HERE)] if theirs else [alias.STARTUP_FOLDER, str(HERE)]
    environment = {
        **os.environ,
        "FOREIGN_STAND_INS": ",".join(each for each in suite.stand_ins if not (theirs and "confluent" in each)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join(path),
        alias.ENVIRONMENT_VARIABLE: "" if theirs else suite.client,
    }
    command = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", "-p", "no:cacheprovider", "-p", "foreign_suites"]
    command += ["--timeout", "120", *suite.options, *given]
    if not any(argument.startswith(suite.tests) for argument in given):
        command += suite.tests
    from pykclient.testing import EmbeddedCluster, EmbeddedSchemaRegistry

    port = 0 if suite.environment else _PORT
    with EmbeddedCluster([0], port=port, config=dict(suite.brokers)) as cluster, EmbeddedSchemaRegistry() as registry:
        places = {"address": cluster.bootstrap_servers, "registry": registry.url}
        environment |= {name: value.format_map(places) for name, value in suite.environment}
        return subprocess.run(command, cwd=directory / suite.folder, env=environment, check=False).returncode


def _usage() -> str:
    rows = [f"  {name:24}{suite.repository}\n{'':26}{suite.packages}" for name, suite in FRAMEWORKS.items()]
    return f"{__doc__}\nSuites: {', '.join(SUITES)} and\n" + "\n".join(rows)


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in {*SUITES, *FRAMEWORKS}:
        sys.exit(_usage())
    if sys.argv[1] in FRAMEWORKS:
        sys.exit(_run_framework(FRAMEWORKS[sys.argv[1]], Path(sys.argv[2]), sys.argv[3:]))
    sys.exit(_run(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
