"""Shared fixtures: a real Kafka of one broker or three, Spark, and fresh topics.

Without Java, tests are left out and listed.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from tests.kafka import artifacts
from tests.kafka.cluster import KafkaCluster
from tests.kafka.secure_kafka import SecureKafka
from tests.support.any_kafka import EMBEDDED, REAL, AnyKafka, StartKafka
from tests.support.contracts import is_beyond_contracts
from tests.support.embedded_kafka import EmbeddedKafka
from tests.support.optional import OptionalPackages
from tests.support.order import longest_first, unit_of
from tests.support.quick import is_beyond_quick, is_directory_beyond_quick
from tests.support.unused import UnusedClusters

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# No deadline: tests must not fail because the machine is slow for a moment. The same examples are drawn in each run, so
# that only a change can fail; `make test-full` draws fresh ones, and more of them.
_PATIENT: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("pykclient", derandomize=True, database=None, max_examples=30, **_PATIENT)
settings.register_profile("fresh", derandomize=False, max_examples=100, print_blob=True, **_PATIENT)
settings.register_profile("thousand", settings.get_profile("fresh"), max_examples=1000)
settings.load_profile("pykclient")

# A shell starts background programs with SIGINT ignored, and nohup those that it starts with SIGHUP ignored; programs
# that the tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

_NEEDS_JAVA = ("java", "kafka", "spark")
_left_out = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only what needs no Java, Spark or peers, and is fast")
    parser.addoption("--contracts", action="store_true", help="leave out what make test-full adds")


def pytest_configure(config: pytest.Config) -> None:
    """Fail on CI before several processes start: an error in each of them would be hard to read."""
    distributes = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if os.environ.get("CI") and distributes and not config.option.markexpr and (why := artifacts.missing()):
        raise pytest.UsageError(f"many tests need Java and Maven, and CI runs every test: {why}")
    config.pluginmanager.register(OptionalPackages())
    config.pluginmanager.register(UnusedClusters())
    gc.disable()  # until all tests are collected: many objects, hardly any garbage


def pytest_sessionstart() -> None:
    """Keep literals of the project out of examples that are the same in each run.

    Hypothesis draws them too: with any literal that changes, the examples of all tests would.
    """
    if settings.default is not None and settings.default.derandomize:
        providers._get_local_constants = Constants


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out directories in which ``--quick`` runs no test."""
    return True if config.getoption("quick") and is_directory_beyond_quick(collection_path) else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark tests that use a broker or Spark, before `-m` chooses."""
    fixtures = set(getattr(item, "fixturenames", ()))
    if {"kafka", "kafka_cluster", "secure_kafka"} & fixtures:
        item.add_marker("kafka")
        item.add_marker(pytest.mark.timeout(180))
    if "spark" in fixtures:
        item.add_marker("spark")
        item.add_marker(pytest.mark.timeout(300))
    if item.get_closest_marker("exhaustive") and not item.get_closest_marker("timeout"):
        item.add_marker(pytest.mark.timeout(1800))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile`, run files that share a JVM in one process."""
    if config.getoption("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False  # files are sorted already
    from xdist.scheduler import LoadFileScheduling

    def scope(nodeid: str) -> str:
        return unit_of(nodeid.split("::", 1)[0], config.getoption("contracts"))

    scheduler: Any = LoadFileScheduling(config, log)
    scheduler._split_scope = scope
    return scheduler


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest files first for parallel processes; leave out what is for `make test-full` with ``--contracts``,
    and tests that need Java if it is missing.
    """
    if hasattr(config, "workerinput"):
        longest_first(items, config.getoption("contracts"))
    is_beyond = is_beyond_quick if config.getoption("quick") else is_beyond_contracts
    if config.getoption("quick") or config.getoption("contracts"):
        beyond = [item for item in items if is_beyond(item)]
        config.hook.pytest_deselected(items=beyond)
        items[:] = [item for item in items if item not in set(beyond)]
    wanting = [item for item in items if any(item.get_closest_marker(name) for name in _NEEDS_JAVA)]
    why = artifacts.missing() if wanting else None
    if why is None:
        return
    if os.environ.get("CI"):
        raise pytest.UsageError(f"{len(wanting)} tests need Java and Maven, and CI runs every test: {why}")
    config.stash[_left_out] = [item.nodeid for item in wanting]
    if hasattr(config, "workeroutput"):
        config.workeroutput["left_out"] = config.stash[_left_out]
    config.hook.pytest_deselected(items=wanting)
    items[:] = [item for item in items if item not in set(wanting)]


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Freeze tests and modules, which live to the end, so that the garbage collector need not scan them."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Note which tests a process left out; every process collects, and leaves out, the same tests."""
    if left_out := getattr(node, "workeroutput", {}).get("left_out"):  # missing if the process crashed
        node.config.stash[_left_out] = left_out


@pytest.hookimpl(wrapper=True)
def pytest_unconfigure(config: pytest.Config) -> Iterator[None]:
    """List the tests left out at the end of the run."""
    yield
    if hasattr(config, "workeroutput"):
        return
    if left_out := config.stash.get(_left_out, []):
        by_file: dict[str, int] = {}
        for name in left_out:
            file = name.split("::", 1)[0]
            by_file[file] = by_file.get(file, 0) + 1
        print(f"\nLEFT OUT: {len(left_out)} tests that need Java 17+ and Maven:")
        for file, count in by_file.items():
            print(f"  {file}: {count}")
        print(f"To run them: {artifacts.missing()}")


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaCluster]:
    """One broker for the whole session. Use topics and groups of your own; to stop brokers, use kafka_cluster."""
    with KafkaCluster(brokers=1) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def secure_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    """One broker with TLS and SASL listeners for the whole session. Use topics and groups of your own."""
    with SecureKafka(tmp_path_factory.mktemp("secure-kafka")) as running:
        yield running


@pytest.fixture(scope="session")
def _three_brokers() -> Iterator[KafkaCluster]:
    with KafkaCluster(brokers=3) as cluster:
        yield cluster


@pytest.fixture
def kafka_cluster(_three_brokers: KafkaCluster) -> KafkaCluster:
    """Three brokers shared by the session, healthy at the start of each test, which may kill and restart them."""
    _three_brokers.make_healthy()
    return _three_brokers


@pytest.fixture(scope="session", params=[EMBEDDED, REAL])
def any_kafka(request: pytest.FixtureRequest) -> Iterator[AnyKafka]:
    """One broker for the whole session. Each test runs twice: on the embedded broker and on a real one."""
    if request.param == "real":
        yield request.getfixturevalue("kafka")
        return
    with EmbeddedKafka(brokers=1) as cluster:
        yield cluster


@pytest.fixture(params=[EMBEDDED, REAL])
def any_cluster(request: pytest.FixtureRequest) -> Iterator[AnyKafka]:
    """Three brokers, healthy at the start of each test, which may kill and restart them.

    Embedded and real, as ``any_kafka``.
    """
    if request.param == "real":
        yield request.getfixturevalue("kafka_cluster")
        return
    with EmbeddedKafka(brokers=3) as cluster:
        yield cluster


@pytest.fixture(params=[EMBEDDED, REAL])
def start_kafka(request: pytest.FixtureRequest) -> StartKafka:
    """A function that starts a broker with the given settings, embedded or real."""
    kind = KafkaCluster if request.param == "real" else EmbeddedKafka
    return lambda settings: kind(1, settings)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark on two threads of one JVM, with its own Kafka source (format ``kafka``) and ours."""
    from tests.spark import session

    with pytest.MonkeyPatch.context() as patched:
        for name, value in session.environment().items():
            patched.setenv(name, value)
        running = session.start(tmp_path_factory.mktemp("spark"))
        yield running
        session.stop(running)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses. Brokers create the topic on first use, or call ``create_topic``."""
    test = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name).strip("-")[:80]
    return f"{test}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def group_id(topic: str) -> str:
    """A consumer group that no other test uses."""
    return f"group-{topic}"
