"""AIOKafkaConsumer's methods, arguments and errors are aiokafka's."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import aiokafka
import aiokafka.abc
import aiokafka.errors
import pytest

import pykclient.aio
from pykclient import KafkaConsumer, KafkaProducer, errors
from pykclient.aio import (
    AIOKafkaConsumer,
    ConsumerRebalanceListener,
    TopicPartition,
    abc,
    consumer,
    errors as aio_errors,
)
from pykclient.errors import ConfigError, IllegalArgumentError, IllegalStateError, InvalidTopicError
from pykclient.testing import EmbeddedCluster
from tests.aio.loops import run

TP = TopicPartition("t", 0)

METHODS = sorted(
    name
    for name, value in vars(aiokafka.AIOKafkaConsumer).items()
    if callable(value) and (not name.startswith("_") or name in {"__aiter__", "__anext__", "__aenter__", "__aexit__"})
)


@pytest.mark.parametrize("name", METHODS)
def test_method_has_the_signature_of_aiokafka(name: str) -> None:
    theirs = getattr(aiokafka.AIOKafkaConsumer, name)
    ours = getattr(AIOKafkaConsumer, name)
    assert inspect.iscoroutinefunction(ours) == inspect.iscoroutinefunction(theirs)
    wanted = inspect.signature(theirs).parameters
    found = inspect.signature(ours).parameters
    if name == "__aexit__":
        assert len(found) == len(wanted)
        return
    for each in wanted.values():
        assert found[each.name].kind == each.kind
        assert found[each.name].default == each.default
    extra = [each for each in found.values() if each.name not in wanted]
    assert all(each.default is not inspect.Parameter.empty for each in extra)


def test_constructor_accepts_all_keywords_of_aiokafka() -> None:
    given = {
        name: parameter.default
        for name, parameter in inspect.signature(aiokafka.AIOKafkaConsumer).parameters.items()
        if name not in {"topics", "loop", "partition_assignment_strategy"}
    }
    made = AIOKafkaConsumer("t", **given)
    assert made.subscription() == {"t"}
    assert made.config["session.timeout.ms"] == 10_000
    assert made.config["client.id"] == f"aiokafka-{aiokafka.__version__}"


def test_ineffective_settings_are_accepted() -> None:
    AIOKafkaConsumer(consumer_timeout_ms=5, rebalance_timeout_ms=7_000)
    with pytest.warns(DeprecationWarning, match="api_version"):
        AIOKafkaConsumer(api_version="auto")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"max_poll_records": 0}, "`max_poll_records` should be positive Integer"),
        ({"max_poll_records": "5"}, "`max_poll_records` should be positive Integer"),
        ({"security_protocol": "NONE"}, "`security_protocol` should be SSL or PLAINTEXT"),
        ({"isolation_level": "wrong"}, "Incorrect isolation level wrong"),
        ({"no_such_setting": 1}, "no_such_setting"),
    ],
)
def test_unusable_settings_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)):
        AIOKafkaConsumer(**settings)


async def _none() -> None: ...


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda it: it.subscribe(), TypeError, "You should provide either `topics` or `pattern`"),
        (lambda it: it.subscribe(["t"], pattern="t"), TypeError, "You can't provide both `topics` and `pattern`"),
        (lambda it: it.subscribe("t"), TypeError, "Topics should be list of strings"),
        (lambda it: it.subscribe(["t"], listener=5), TypeError, "listener should be an instance of Consumer"),
        (lambda it: it.subscribe(pattern="("), ValueError, "the topic pattern '(' is not a valid regular expression"),
        (lambda it: it.subscribe(["a/b"]), InvalidTopicError, "a/b"),
        (lambda it: it.assign(5), ValueError, "partitions is 5; it must be a list of TopicPartition"),
    ],
)
def test_wrong_arguments_are_refused_before_start(
    call: Callable[[AIOKafkaConsumer], object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=re.escape(text)) as caught:
        call(AIOKafkaConsumer())
    assert isinstance(caught.value, errors.KafkaError)


@pytest.mark.parametrize(
    "call",
    [
        lambda it: it.getone(),
        lambda it: it.getmany(),
        lambda it: it.getmany_arrow(),
        anext,
        lambda it: it.commit(),
        lambda it: it.committed(TP),
        lambda it: it.position(TP),
        lambda it: it.seek_to_end(),
        lambda it: it.seek_to_committed(),
        lambda it: it.topics(),
        lambda it: it.beginning_offsets([TP]),
    ],
)
def test_asynchronous_calls_before_start_are_refused(call: Callable[[AIOKafkaConsumer], Any]) -> None:
    async def main() -> None:
        with pytest.raises(IllegalStateError, match="has not been started"):
            await call(AIOKafkaConsumer("t"))

    asyncio.run(main())


def test_only_subscription_calls_work_before_start() -> None:
    made = AIOKafkaConsumer()
    made.assign([TP])
    assert made.assignment() == {TP}
    assert made.paused() == set()
    refused: list[Callable[[], object]] = [
        lambda: made.seek(TP, 1),
        lambda: made.pause(TP),
        lambda: made.partitions_for_topic("t"),
    ]
    for call in refused:
        with pytest.raises(IllegalStateError, match="has not been started"):
            call()
    with pytest.raises(IllegalStateError, match="exclude each other"):
        made.subscribe(["t"])
    made.unsubscribe()
    made.subscribe(["t"])
    assert made.subscription() == {"t"}
    asyncio.run(made.stop())
    asyncio.run(made.stop())
    refused = [lambda: made.subscribe(["t"]), lambda: made.assign([TP]), made.unsubscribe]
    for call in refused:
        with pytest.raises(aio_errors.ConsumerStoppedError):
            call()


def test_modules_are_attributes_as_in_aiokafka() -> None:
    """In a process of its own, in which nothing else has imported them."""
    names = sorted(pykclient.aio._MODULES)
    code = f"from pykclient import aio; print([getattr(aio, name).__name__ for name in {names}])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == str([f"pykclient.aio.{name}" for name in names])
    assert not [name for name in names if not hasattr(aiokafka, name) and name not in {"admin", "helpers"}]


def test_classes_are_importable_from_aiokafka_paths() -> None:
    assert consumer.AIOKafkaConsumer is AIOKafkaConsumer
    assert abc.ConsumerRebalanceListener is ConsumerRebalanceListener
    assert set(vars(aiokafka.abc.ConsumerRebalanceListener)) & {"on_partitions_revoked", "on_partitions_assigned"} == {
        "on_partitions_revoked",
        "on_partitions_assigned",
    }
    for name in ("ConsumerStoppedError", "RecordTooLargeError", "NoOffsetForPartitionError", "CommitFailedError"):
        assert issubclass(getattr(aio_errors, name), Exception)
        assert hasattr(aiokafka.errors, name)
    stopped = pickle.loads(pickle.dumps(aio_errors.ConsumerStoppedError("stopped")))
    assert type(stopped) is aio_errors.ConsumerStoppedError
    assert issubclass(aio_errors.ArgumentTypeError, IllegalArgumentError)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("roundrobin", "RoundRobinPartitionAssignor"),
        ("range", "RangePartitionAssignor"),
        ("sticky.sticky_assignor", "StickyPartitionAssignor"),
    ],
)
def test_assignors_have_the_names_of_aiokafka(module: str, name: str) -> None:
    ours = getattr(importlib.import_module(f"pykclient.aio.coordinator.assignors.{module}"), name)
    theirs = getattr(importlib.import_module(f"aiokafka.coordinator.assignors.{module}"), name)
    assert ours.name == theirs.name
    made = AIOKafkaConsumer("t", group_id="g", partition_assignment_strategy=(ours,))
    assert made.config["partition.assignment.strategy"] == [ours]


def test_a_listener_needs_only_two_methods() -> None:
    lost: list[object] = []

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            lost.append(revoked)

        def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None: ...

    Listener().on_partitions_lost({TP})
    assert lost == [{TP}]


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_headers_of_a_record_are_a_tuple(compression: str | None) -> None:
    pairs = [("a", b"b"), ("a", None)]
    given: list[list[tuple[str, bytes | None]]] = [pairs, [], pairs, [("c", b"")]]

    async def main() -> None:
        with EmbeddedCluster() as cluster:
            cluster.create_topic("t", 1)
            servers = cluster.bootstrap_servers
            with KafkaProducer(bootstrap_servers=servers, compression_type=compression) as producer:
                for headers in given:
                    producer.send("t", b"x", headers=headers)
            ours: list[Any] = []
            async with AIOKafkaConsumer("t", bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
                ours += [await consumer.getone() for _ in range(2)]
                ours += (await consumer.getmany(timeout_ms=10_000))[TP]
            theirs: Any = aiokafka.AIOKafkaConsumer("t", bootstrap_servers=servers, auto_offset_reset="earliest")
            await theirs.start()
            try:
                expected = [(await theirs.getone()).headers for _ in given]
            finally:
                await theirs.stop()
            assert [record.headers for record in ours] == expected == [tuple(headers) for headers in given]
            for record in ours:
                assert isinstance(record.headers, tuple)
                assert hash(record.headers) == hash(tuple(record.headers))
                assert repr(record.headers) == repr(tuple(record.headers))
                copies = [pickle.loads(pickle.dumps(record)), record._replace(key=b"k")]
                assert all(isinstance(each.headers, tuple) for each in copies)
            with KafkaConsumer("t", bootstrap_servers=servers, auto_offset_reset="earliest") as blocking:
                assert next(blocking).headers == given[0]

    run(main())
