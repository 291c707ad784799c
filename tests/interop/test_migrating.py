"""docs/migrating.md is true: each row of its tables has a check here, and each check has a row."""

from __future__ import annotations

import importlib
import re
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kafka as kafka_python
import kafka.record.legacy_records as legacy
import pytest

import pykclient
from pykclient import KafkaConsumer, KafkaProducer, TopicPartition
from pykclient.config.consumer_config import ConsumerConfig
from pykclient.config.producer_config import ProducerConfig
from pykclient.errors import (
    ConfigError,
    IllegalStateError,
    InvalidGroupIdError,
    InvalidTopicError,
    KafkaTimeoutError,
    RecordDeserializationError,
    SerializationError,
)
from pykclient.record import CursorOwner, MemoryRecords
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually

PAGE = (Path(__file__).parents[2] / "docs" / "migrating.md").read_text()


def table(title: str) -> list[list[str]]:
    """Return the rows of the first table under a title."""
    section = PAGE.split(title, 1)[1]
    lines = [line for line in section.split("\n#", 1)[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


class Both:
    """Both clients on one broker, and a topic."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self.topic = topic
        self.servers = bootstrap_servers
        self.theirs = kafka_python.KafkaProducer(bootstrap_servers=bootstrap_servers)
        self.ours: KafkaProducer[Any, Any] = KafkaProducer(bootstrap_servers=bootstrap_servers)

    def close(self) -> None:
        self.theirs.close()
        self.ours.close()

    def consumers(self, **settings: Any) -> list[Any]:
        settings |= {"bootstrap_servers": self.servers, "consumer_timeout_ms": 10_000}
        return [kafka_python.KafkaConsumer(**settings), KafkaConsumer(**settings)]


@pytest.fixture
def both(any_kafka: AnyKafka, topic: str) -> Iterator[Both]:
    any_kafka.create_topic(topic, 2)
    clients = Both(any_kafka.bootstrap_servers, topic)
    yield clients
    clients.close()


CHECKS: dict[str, Callable[[Both], None]] = {}


def row(title: str) -> Callable[[Callable[[Both], None]], Callable[[Both], None]]:
    def register(check: Callable[[Both], None]) -> Callable[[Both], None]:
        CHECKS[title] = check
        return check

    return register


def refused(kind: type[BaseException] | tuple[type[BaseException], ...], call: Callable[[], object]) -> BaseException:
    with pytest.raises(kind) as caught:
        call()
    return caught.value


@row("a header whose value is None")
def _(both: Both) -> None:
    refused((TypeError, AssertionError, ValueError), lambda: both.theirs.send(both.topic, b"v", headers=[("h", None)]))
    assert both.ours.send(both.topic, b"v", headers=[("h", None)]).get(10).has_offset


@row("a record with neither key nor value")
def _(both: Both) -> None:
    refused((ValueError, AssertionError), lambda: both.theirs.send(both.topic))
    assert both.ours.send(both.topic).get(10).has_offset


@row("records without a key")
def _(both: Both) -> None:
    with KafkaProducer[Any, Any](bootstrap_servers=both.servers, linger_ms=60_000) as ours:
        futures = [ours.send(both.topic, b"v") for _ in range(50)]
        ours.flush()
    assert len({future.get(0).partition for future in futures}) == 1
    assert len({future.get(10).partition for future in [both.theirs.send(both.topic, b"v") for _ in range(50)]}) == 2


@row("`send` is faster than the brokers")
def _(both: Both) -> None:
    assert "buffer_memory" not in kafka_python.KafkaProducer.DEFAULT_CONFIG
    assert both.ours.config["buffer.memory"] == 32 << 20


def fail(_data: Any) -> bytes:
    raise LookupError("no")


@row("a serializer or deserializer that raises")
def _(both: Both) -> None:
    theirs = kafka_python.KafkaProducer(bootstrap_servers=both.servers, value_serializer=WithFailure())
    refused(LookupError, lambda: theirs.send(both.topic, b"v"))
    theirs.close()
    with KafkaProducer[Any, Any](bootstrap_servers=both.servers, value_serializer=fail) as ours:
        error = refused(LookupError, lambda: ours.send(both.topic, b"v"))
    assert isinstance(error, SerializationError)
    assert isinstance(error.__cause__, LookupError)
    both.ours.send(both.topic, b"v", partition=0).get(10)
    for consumer, module in zip(both.consumers(value_deserializer=fail), (kafka_python, pykclient), strict=True):
        consumer.assign([module.TopicPartition(both.topic, 0)])
        consumer.seek_to_beginning()
        error = refused(LookupError, lambda: next(consumer))  # noqa: B023
        assert isinstance(error, RecordDeserializationError) is (module is pykclient)
        consumer.close(autocommit=False)


class WithFailure(kafka_python.Serializer):  # type: ignore[misc]
    def serialize(self, topic: str, headers: Any, data: Any) -> bytes:
        return fail(data)


@row("a plain function as partitioner")
def _(both: Both) -> None:
    theirs = kafka_python.KafkaProducer(bootstrap_servers=both.servers, partitioner=lambda _k, _all, _up: 1)
    refused(AttributeError, lambda: theirs.send(both.topic, b"v", b"k"))
    theirs.close()
    with KafkaProducer[Any, Any](bootstrap_servers=both.servers, partitioner=lambda _k, _all, _up: 1) as ours:
        assert ours.send(both.topic, b"v", b"k").get(10).partition == 1


@row("deserializing null")
def _(both: Both) -> None:
    both.ours.send(both.topic, None, b"k", partition=0).get(10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        theirs, ours = both.consumers(value_deserializer=lambda data: f"asked for {data}")
        for consumer, module, value in ((theirs, kafka_python, "asked for None"), (ours, pykclient, None)):
            consumer.assign([module.TopicPartition(both.topic, 0)])
            consumer.seek_to_beginning()
            assert next(consumer).value == value
            consumer.close()


@row("`subscribe(pattern=...)`")
def _(both: Both) -> None:
    both.ours.send(both.topic, b"v").get(10)
    theirs, ours = both.consumers(auto_offset_reset="earliest")
    for consumer in (theirs, ours):
        consumer.subscribe(pattern=f"^{both.topic[:-1]}")
    assert next(theirs).topic == both.topic
    theirs.close()
    ours.poll(300)
    assert ours.assignment() == set()
    ours.subscribe(pattern=f"{both.topic[:-1]}.*")
    assert next(ours).topic == both.topic
    ours.close()


@row("`seek` or `pause` on an unassigned partition")
def _(both: Both) -> None:
    theirs, ours = both.consumers()
    refused((ValueError, AssertionError), lambda: theirs.seek(kafka_python.TopicPartition(both.topic, 0), 1))
    refused(KeyError, lambda: theirs.pause(kafka_python.TopicPartition(both.topic, 0)))
    refused(IllegalStateError, lambda: ours.seek(TopicPartition(both.topic, 0), 1))
    refused(IllegalStateError, lambda: ours.pause(TopicPartition(both.topic, 0)))
    theirs.close()
    ours.close()


@row("`poll` without a subscription or assignment")
def _(both: Both) -> None:
    theirs, ours = both.consumers()
    assert theirs.poll(10) == {}
    refused(IllegalStateError, lambda: ours.poll(10))
    theirs.close()
    ours.close()


@row("`subscribe([])`")
def _(both: Both) -> None:
    theirs, ours = both.consumers()
    for consumer in (theirs, ours):
        consumer.subscribe([both.topic])
    refused(ValueError, lambda: theirs.subscribe([]))
    ours.subscribe([])
    assert ours.subscription() is None
    theirs.close()
    ours.close()


@row("`partitions_for_topic` of a missing topic")
def _(both: Both) -> None:
    theirs, ours = both.consumers()
    careful = KafkaConsumer[Any, Any](bootstrap_servers=both.servers, allow_auto_create_topics=False)
    missing = f"{both.topic}-missing"
    assert not theirs.partitions_for_topic(missing)
    assert not careful.partitions_for_topic(missing)
    assert missing not in ours.topics()
    ours.partitions_for_topic(missing)
    eventually(lambda: missing in ours.topics())  # the broker responds before it has created the topic
    for consumer in (theirs, ours, careful):
        consumer.close()


@row("iterating over a closed consumer")
def _(both: Both) -> None:
    theirs, ours = both.consumers()
    theirs.close()
    ours.close()
    assert list(theirs) == []
    refused(IllegalStateError, lambda: list(ours))


@row("a commit without `group_id`")
def _(both: Both) -> None:
    theirs, ours = both.consumers()
    refused(kafka_python.errors.IllegalStateError, theirs.commit)
    refused(InvalidGroupIdError, ours.commit)
    theirs.close()
    ours.close()


@row("no broker is reachable")
def _(both: Both) -> None:
    # Its constructor waits that long for a broker. A failed one leaks a socket, so no test makes it fail.
    assert "bootstrap_timeout_ms" in kafka_python.KafkaConsumer.DEFAULT_CONFIG
    with KafkaConsumer[Any, Any](bootstrap_servers="127.0.0.1:1") as ours:
        refused(KafkaTimeoutError, lambda: ours.topics(timeout_ms=100))


@row("an empty `group_id`")
def _(both: Both) -> None:
    kafka_python.KafkaConsumer(bootstrap_servers=both.servers, group_id="").close()
    refused(ConfigError, lambda: KafkaConsumer(bootstrap_servers=both.servers, group_id=""))


@row("`enable_auto_commit=True` without `group_id`")
def _(both: Both) -> None:
    kafka_python.KafkaConsumer(bootstrap_servers=both.servers, enable_auto_commit=True).close()
    refused(ConfigError, lambda: KafkaConsumer(bootstrap_servers=both.servers, enable_auto_commit=True))
    assert ConsumerConfig({"bootstrap.servers": "a:1"})["enable.auto.commit"] is False


@row("`max_in_flight_requests_per_connection` above 5")
def _(both: Both) -> None:
    theirs = kafka_python.KafkaProducer(bootstrap_servers=both.servers, max_in_flight_requests_per_connection=6)
    assert theirs.config["enable_idempotence"] is False
    theirs.close()
    refused(ConfigError, lambda: ProducerConfig(max_in_flight_requests_per_connection=6))
    assert not ProducerConfig(max_in_flight_requests_per_connection=6, enable_idempotence=False)["enable.idempotence"]


@row('`client.config["acks"]`')
def _(both: Both) -> None:
    assert (both.theirs.config["acks"], both.ours.config["acks"]) == (-1, "-1")


@row('`client.config["api_version"]`')
def _(both: Both) -> None:
    assert both.theirs.config["api_version"] >= (2, 1)
    assert both.ours.config["api_version"] == (4, 3)


@row("`client.config` with a key that only kafka-python has")
def _(both: Both) -> None:
    assert None not in (both.theirs.config["selector"], both.theirs.config["kafka_client"])
    assert both.ours.config["ssl_check_hostname"] is both.theirs.config["ssl_check_hostname"] is True
    assert [both.ours.config[key] for key in ("selector", "kafka_client", "partitioner")] == [None, None, None]


@row("an unknown key")
def _(both: Both) -> None:
    refused(ValueError, lambda: kafka_python.KafkaProducer(bootstrap_servers=both.servers, linger=1))
    error = refused(ConfigError, lambda: KafkaProducer(bootstrap_servers=both.servers, linger=1))  # type: ignore[call-overload]
    assert "linger.ms" in str(error) or "linger_ms" in str(error)
    assert isinstance(error, ValueError)
    assert pykclient.errors.KafkaConfigurationError is ConfigError


@row("an invalid topic name")
def _(both: Both) -> None:
    refused(ValueError, lambda: both.theirs.send("no such name!", b"v"))
    future = both.ours.send("no such name!", b"v")
    assert isinstance(future.exception, InvalidTopicError)


@row("`ConsumerRecord`")
def _(both: Both) -> None:
    both.ours.send(both.topic, b"v", partition=0).get(10)
    theirs, ours = both.consumers()
    records: list[Any] = []
    for consumer, module in ((theirs, kafka_python), (ours, pykclient)):
        consumer.assign([module.TopicPartition(both.topic, 0)])
        consumer.seek_to_beginning()
        records.append(next(consumer))
        consumer.close()
    assert [isinstance(record, tuple) for record in records] == [True, False]
    assert records[1]._fields == records[0]._fields
    assert records[1][:3] == records[0][:3]
    records[1].value = "changed"


@row("`checksum` of a record in the oldest formats")
def _(both: Both) -> None:
    data = legacy.LegacyRecordBatchBuilder(1, 0, 1 << 20)
    data.append(0, 5, b"k", b"v")
    stored = bytes(data.build())
    (theirs,) = legacy.LegacyRecordBatch(memoryview(stored), 1)
    assert isinstance(theirs.checksum, int)
    (batch,) = MemoryRecords(stored).batches()
    (ours,) = batch.cursor(CursorOwner("t", 0), 0).next_records(1)
    assert ours.checksum is None


@row("`RecordMetadata.serialized_header_size`")
def _(both: Both) -> None:
    headers = [("name", b"value")]
    assert both.theirs.send(both.topic, b"v", headers=headers).get(10).serialized_header_size == 9
    assert both.ours.send(both.topic, b"v", headers=headers).get(10).serialized_header_size == -1


def assignor(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"pykclient.coordinator.assignors.{module}"), name)


@row("`partition_assignment_strategy`")
def _(both: Both) -> None:
    for name in (
        "range",
        "roundrobin",
        "sticky",
        "cooperative-sticky",
        "org.apache.kafka.clients.consumer.RangeAssignor",
        assignor("cooperative_sticky", "CooperativeStickyAssignor"),
        assignor("range", "RangePartitionAssignor"),
        assignor("roundrobin", "RoundRobinPartitionAssignor"),
        assignor("sticky.sticky_assignor", "StickyPartitionAssignor"),
    ):
        KafkaConsumer(bootstrap_servers=both.servers, group_id="g", partition_assignment_strategy=[name]).close()


@row("`transactional_id`")
def _(both: Both) -> None:
    with KafkaProducer[Any, Any](bootstrap_servers=both.servers, transactional_id="t") as producer:
        producer.init_transactions(timeout=20)
        refused(IllegalStateError, lambda: producer.send("t", b"outside"))
        with producer.transaction():
            producer.send("t", b"inside")


@row("`KafkaAdminClient`")
def _(both: Both) -> None:
    start_s = time.monotonic()
    pykclient.KafkaAdminClient(bootstrap_servers="127.0.0.1:1").close()
    assert time.monotonic() - start_s < 25  # kafka-python's would wait for 30 s


#: Rows checked by other modules' tests, with faults that do not fit here.
ELSEWHERE = {"a second thread in a consumer", "a client after `fork()`", "a client that is never closed"}


def test_migration_table_and_checks_have_the_same_rows() -> None:
    assert [what for what, *_ in table("### Intentional differences") if what not in ELSEWHERE] == list(CHECKS)


@pytest.mark.filterwarnings("ignore:.* does not implement:DeprecationWarning")  # of kafka-python
@pytest.mark.parametrize("title", CHECKS)
def test_intentional_difference_is_as_documented(both: Both, title: str) -> None:
    CHECKS[title](both)


#: Keys for which we choose the values: those of another name or shape, and those where the same value is written
#: differently.
SAME = {"acks", "retries", "bootstrap_servers", "consumer_timeout_ms", "sasl_mechanism", "sasl_kerberos_service_name"}
#: Rows of the table above, and objects that only kafka-python has.
NOT_COMPARED = {
    "api_version",
    "default_offset_commit_callback",
    "enable_auto_commit",
    "kafka_client",
    "partitioner",
    "selector",
}


def test_every_default_that_differs_is_listed() -> None:
    listed = {re.findall(r"`(\w+)`", key)[0] for key, *_ in table("### Defaults that differ")}
    differing = set()
    for theirs, config in (
        (kafka_python.KafkaProducer, ProducerConfig({"bootstrap.servers": "a:1"})),
        (kafka_python.KafkaConsumer, ConsumerConfig({"bootstrap.servers": "a:1"})),
    ):
        for key, value in theirs.DEFAULT_CONFIG.items():
            ours = config.get(key.replace("_", "."), ...)
            if ours is not ... and ours != value and not (value is None and ours in {"", "none", -1, None}):
                differing.add(key)
    assert differing - SAME - NOT_COMPARED == listed


def test_differing_defaults_have_the_values_of_the_table() -> None:
    rows = {re.findall(r"`(\w+)`", key)[0]: cells for key, *cells in table("### Defaults that differ")}
    assert len(rows) == 5
    theirs = {**kafka_python.KafkaProducer.DEFAULT_CONFIG, **kafka_python.KafkaConsumer.DEFAULT_CONFIG}
    theirs["linger_ms"] = kafka_python.KafkaProducer.DEFAULT_CONFIG["linger_ms"]
    ours = {**ConsumerConfig({}), **ProducerConfig({"bootstrap.servers": "a:1"})}
    for key, (other, own) in rows.items():
        if key == "client_id":  # in words
            continue
        value = theirs[key]
        named = ", ".join(each.name for each in value) if isinstance(value, (list, tuple)) else str(value)
        assert named == other, key
        mine = ours[key.replace("_", ".")]
        assert (", ".join(mine) if isinstance(mine, list) else str(mine)) == own, key


def test_socket_buffers_are_left_to_the_system_unlike_javas() -> None:
    listed = {key.strip("`"): ours for key, _, ours in table("## From Java's clients")}
    assert listed == dict.fromkeys(("receive.buffer.bytes", "send.buffer.bytes"), "-1: the operating system's")
    for config in (ProducerConfig({"bootstrap.servers": "a:1"}), ConsumerConfig({"bootstrap.servers": "a:1"})):
        assert {config[key] for key in listed} == {-1}


@pytest.mark.parametrize(("key", "advice"), [("queue.buffering.max.messages", "buffer.memory"),
                                             ("message.timeout.ms", "delivery.timeout.ms"),
                                             ("statistics.interval.ms", "metrics"),
                                             ("stats_cb", "metrics")])  # fmt: skip
def test_names_of_librdkafka_get_advice(key: str, advice: str) -> None:
    with pytest.raises(ConfigError, match=advice):
        ProducerConfig({"bootstrap.servers": "a:1", key: 1})
