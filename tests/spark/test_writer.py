"""The sink without Spark: columns, topics and partitions, and the errors of tasks."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from kafka.partitioner.default import murmur2
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pykclient import KafkaConsumer, TopicPartition
from pykclient.errors import IllegalArgumentError, KafkaError, TopicAuthorizationError
from pykclient.spark import producers, write_task
from pykclient.spark.options import WriteOptions
from pykclient.spark.producers import ProducerPool
from pykclient.spark.write_task import KafkaWriteTask, by_topic
from pykclient.spark.writer import KafkaStreamWriter, KafkaWriter, KafkaWriterCommitMessage, check_schema
from pykclient.testing import EmbeddedCluster
from tests.support.any_kafka import AnyKafka

STRING, BINARY, INT = StringType(), BinaryType(), IntegerType()
ROW_HEADERS = ArrayType(StructType([StructField("key", STRING), StructField("value", BINARY)]))
ARROW_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

#: Key, value and headers of a record.
Read = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]


@pytest.fixture(autouse=True)
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[ProducerPool]:
    """A pool whose producers are closed after the test."""
    own = ProducerPool()
    monkeypatch.setattr(producers, "_pool", own)
    yield own
    own.close()


def columns(**types: DataType) -> StructType:
    return StructType([StructField(name, type) for name, type in types.items()])


def options(servers: str = "localhost:1", **more: str) -> WriteOptions:
    given = {"kafka.bootstrap.servers": servers, **{name.replace("__", "."): value for name, value in more.items()}}
    return WriteOptions.parse(given, streaming=False)


def read(servers: str, topic: str, partitions: int, count: int) -> dict[int, list[Read]]:
    """Return the records of a topic by partition, after checking that there are ``count``."""
    found: dict[int, list[Read]] = {number: [] for number in range(partitions)}
    tps = [TopicPartition(topic, number) for number in found]
    with KafkaConsumer[bytes, bytes](
        bootstrap_servers=servers, group_id=None, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign(tps)
        ends = consumer.end_offsets(tps)
        assert sum(ends.values()) == count
        while sum(map(len, found.values())) < count:
            for records in consumer.poll(1000).values():
                for record in records:
                    headers = [(name, value) for name, value in record.headers]
                    found[record.partition].append((record.key, record.value, headers))
    return found


def rows(**columns: Any) -> pa.RecordBatch:
    return pa.record_batch(columns)


# --- columns ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schema",
    [
        columns(value=BINARY),
        columns(value=STRING, key=STRING),
        columns(key=BINARY, value=BINARY, partition=INT, headers=ROW_HEADERS, topic=LongType()),
        columns(value=BINARY, other=DoubleType(), timestamp=TimestampType()),
    ],
)
def test_writable_columns_are_accepted(schema: StructType) -> None:
    check_schema(schema, "orders")


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (columns(key=BINARY), "need a column 'value'; the rows have key"),
        (columns(Value=BINARY), "need a column 'value'; the rows have Value"),
        (columns(value=BINARY), "neither the option topic nor a column 'topic'"),
        (columns(value=LongType(), topic=STRING), "'value' is of type bigint and must be string or binary"),
        (columns(value=STRING, topic=STRING, key=NullType()), "'key' is of type void and must be string or binary"),
        (columns(value=STRING, topic=INT), "'topic' is of type int and must be string"),
        (columns(value=STRING, topic=STRING, partition=LongType()), "'partition' is of type bigint and must be int"),
        (
            columns(value=STRING, topic=STRING, headers=ArrayType(STRING)),
            "'headers' is of type array<string> and must be array<struct<key:string,value:binary>>",
        ),
        (
            columns(
                value=STRING,
                topic=STRING,
                headers=ArrayType(StructType([StructField("k", STRING), StructField("v", BINARY)])),
            ),
            "'headers' is of type array<struct<k:string,v:binary>>",
        ),
        (
            columns(
                value=STRING,
                topic=STRING,
                headers=ArrayType(StructType([StructField("key", STRING), StructField("value", STRING)])),
            ),
            "'headers' is of type array<struct<key:string,value:string>>",
        ),
        (
            StructType([StructField("value", STRING), StructField("value", STRING), StructField("topic", STRING)]),
            "several columns 'value'",
        ),
    ],
)
def test_unwritable_columns_are_refused(schema: StructType, says: str) -> None:
    with pytest.raises(IllegalArgumentError) as raised:
        check_schema(schema, None)
    assert says in str(raised.value)


def test_ignored_columns_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    of_the_source = columns(key=BINARY, value=BINARY, offset=LongType(), timestamp=TimestampType(), timestampType=INT)
    check_schema(of_the_source, "orders")
    assert caplog.messages == []
    check_schema(columns(value=BINARY, keys=BINARY), "orders")
    assert caplog.messages == ["Columns that are not written to Kafka: keys"]


def test_overwrite_of_a_topic_is_refused() -> None:
    with pytest.raises(IllegalArgumentError, match=r'cannot be overwritten; write with mode\("append"\)'):
        KafkaWriter(options(topic="orders"), columns(value=STRING), overwrite=True)
    given = {"kafka.bootstrap.servers": "localhost:1", "topic": "orders"}
    stream = WriteOptions.parse(given, streaming=True)
    KafkaStreamWriter(stream, columns(value=STRING), overwrite=True)  # as the mode complete asks for


def test_writers_pickle_and_hide_secrets() -> None:
    given = options(topic="orders", kafka__client__id="hush")  # any setting may be a secret
    for kind in (KafkaWriter, KafkaStreamWriter):
        writer = pickle.loads(pickle.dumps(kind(given, columns(value=STRING), False)))
        assert isinstance(writer, kind)
        assert "orders" in repr(writer)
        assert "hush" not in repr(writer)


def test_commit_and_abort_log_task_and_record_counts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    messages = [KafkaWriterCommitMessage(0, 0, 10), None, KafkaWriterCommitMessage(1, 2, 20)]
    batch = KafkaWriter(options(topic="orders"), columns(value=STRING), False)
    batch.commit(messages)
    batch.abort(messages)
    stream = KafkaStreamWriter(options(topic="orders"), columns(value=STRING), False)
    stream.commit(messages, 7)
    stream.abort(messages, 8)
    aborted = "was aborted. 2 of 3 tasks succeeded, with 30 records, and others may have written some"
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"] * 2
    assert caplog.messages[0] == "A write to Kafka is complete: 30 records by 2 tasks"
    assert caplog.messages[1].startswith(f"A write to Kafka {aborted}")
    assert caplog.messages[2] == "Micro-batch 7 to Kafka is complete: 30 records by 2 tasks"
    assert caplog.messages[3].startswith(f"Micro-batch 8 to Kafka {aborted}")


# --- what arrives ----------------------------------------------------------------------------------------------------


def write(servers: str, batches: Iterable[pa.RecordBatch], topic: str | None = None, **settings: Any) -> int:
    return KafkaWriteTask({"bootstrap.servers": servers, **settings}, topic).execute(batches)


def test_all_columns_are_written(any_kafka: AnyKafka, topic: str) -> None:
    any_kafka.create_topic(topic, partitions=3)
    batch = rows(
        key=pa.array([b"a", None, b"", b"d"]),
        value=pa.array([b"1", b"2", None, b""]),
        partition=pa.array([2, 0, 0, 1], pa.int32()),
        headers=pa.array(
            [[{"key": "h", "value": b"v"}, {"key": "h", "value": None}], None, [], [{"key": "ü", "value": b""}]],
            ARROW_HEADERS,
        ),
        timestamp=pa.array([1, 2, 3, 4], pa.timestamp("us", "UTC")),
        topic=pa.array([None] * 4, pa.string()),  # the option wins
    )
    assert write(any_kafka.bootstrap_servers, [batch, batch.slice(1, 2), batch.slice(0, 0)], topic) == 6
    assert read(any_kafka.bootstrap_servers, topic, 3, 6) == {
        0: [(None, b"2", []), (b"", None, []), (None, b"2", []), (b"", None, [])],
        1: [(b"d", b"", [("ü", b"")])],
        2: [(b"a", b"1", [("h", b"v"), ("h", None)])],
    }


def test_text_is_utf8_and_partitions_follow_keys(any_kafka: AnyKafka, topic: str) -> None:
    any_kafka.create_topic(topic, partitions=4)
    keys = [f"Schlüssel {number}" for number in range(100)]
    batch = rows(key=keys, value=["Wert"] * 100, partition=pa.nulls(100, pa.int32()))
    assert write(any_kafka.bootstrap_servers, [batch], topic) == 100
    found = read(any_kafka.bootstrap_servers, topic, 4, 100)
    expected: dict[int, list[Read]] = {number: [] for number in range(4)}
    for key in keys:
        expected[(murmur2(key.encode()) & 0x7FFFFFFF) % 4].append((key.encode(), b"Wert", []))
    assert found == expected


def test_each_row_goes_to_its_topic(any_kafka: AnyKafka, topic: str) -> None:
    names = [f"{topic}-{number}" for number in range(6)]
    for name in names:
        any_kafka.create_topic(name)
    topics = [names[(number * number) % 6] for number in range(500)]
    batch = rows(value=[b"%d" % number for number in range(500)], topic=topics)
    assert write(any_kafka.bootstrap_servers, [batch, batch.slice(0, 1)]) == 501
    for name in set(topics):
        expected = [b"%d" % number for number in range(500) if topics[number] == name] + [b"0"] * (name == topics[0])
        (found,) = read(any_kafka.bootstrap_servers, name, 1, len(expected)).values()
        assert [value for _, value, _ in found] == expected


@given(st.lists(st.sampled_from(["a", "b", "c", "ä"])), st.integers(0, 3), st.integers(0, 3))
def test_rows_are_grouped_by_topic(topics: list[str], skipped: int, dropped: int) -> None:
    """Even in a slice of a batch."""
    numbers = list(range(len(topics)))
    whole = rows(topic=pa.array(topics, pa.string()), value=pa.array(numbers, pa.int32()), other=pa.array(numbers))
    batch = whole.slice(skipped, max(0, len(topics) - skipped - dropped))
    if not batch.num_rows:
        return
    pairs = list(zip(batch["topic"].to_pylist(), batch["value"].to_pylist(), strict=True))
    found = {topic: rows["value"].to_pylist() for topic, rows in by_topic(batch)}
    assert found == {topic: [number for each, number in pairs if each == topic] for topic in dict(pairs)}


@pytest.mark.parametrize("indices", [pa.int8(), pa.int32(), pa.int64()])
def test_dictionary_topics_are_grouped(indices: pa.DataType) -> None:
    """With indices of any width, and with duplicate topics."""
    topics = pa.DictionaryArray.from_arrays(pa.array([2, 0, 1, 0] * 4, indices), ["a", "b", "a"])
    found = {topic: part["value"].to_pylist() for topic, part in by_topic(rows(topic=topics, value=[*range(16)]))}
    assert found == {"a": [row for row in range(16) if row % 4 != 2], "b": [2, 6, 10, 14]}


def test_view_topics_are_grouped() -> None:
    """Arrow has no ``take`` for them."""
    topics = pa.array(["a", "b", "a"], pa.string_view())
    batch = rows(
        topic=topics,
        key=pa.array(["1", None, "3"], pa.string_view()),
        value=pa.array([b"x", b"", None], pa.binary_view()),
    )
    found = {topic: part.to_pylist() for topic, part in by_topic(batch)}
    assert found == {
        "a": [{"key": "1", "value": b"x"}, {"key": "3", "value": None}],
        "b": [{"key": None, "value": b""}],
    }


def test_dictionaries_of_views_are_grouped() -> None:
    """As in polars' categories."""
    topics = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1], pa.uint32()), pa.array(["a", "b"], pa.string_view()))
    found = {topic: part["value"].to_pylist() for topic, part in by_topic(rows(topic=topics, value=[1, 2, 3]))}
    assert found == {"b": [1, 3], "a": [2]}


def test_null_topic_in_a_dictionary_is_refused() -> None:
    topics = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), ["a", None])
    with pytest.raises(IllegalArgumentError, match=r"row 1 .* has a null topic"):
        list(by_topic(rows(topic=topics, value=[b"1", b"2"])))


def test_task_without_rows_creates_no_producer(pool: ProducerPool) -> None:
    assert write("localhost:1", [], "orders") == 0
    assert write("localhost:1", [rows(value=pa.array([], pa.binary()))], "orders") == 0
    assert len(pool) == 0


class Context:
    """Stands in for Spark's context of the second attempt at partition 3."""

    @classmethod
    def get(cls) -> Context:
        return cls()

    def partitionId(self) -> int:
        return 3

    def attemptNumber(self) -> int:
        return 1


def test_messages_and_errors_name_the_task(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.taskcontext.TaskContext", Context)
    said = fails(cluster, [rows(value=[b"secret"], topic=[None])], None)
    assert said.startswith("Spark partition 3 (attempt 2) could not be written")
    given = options(cluster.bootstrap_servers, topic="orders")
    message = KafkaWriter(given, columns(value=BINARY), False).write(iter([rows(value=[b"x"] * 5)]))
    assert (message.partition_id, message.attempt, message.records) == (3, 1, 5)


@pytest.mark.parametrize("given", ["true", "false"])
def test_heap_is_frozen_if_configured(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[None] = []
    monkeypatch.setattr(write_task, "freeze_heap_once", lambda: calls.append(None))
    KafkaStreamWriter(options(topic="orders", gcFreeze=given), columns(value=STRING), False).write(iter([]))
    assert len(calls) == (given == "true")


def test_tasks_share_a_producer(pool: ProducerPool) -> None:
    with EmbeddedCluster() as cluster:
        cluster.create_topic("orders")
        for number in range(3):
            assert write(cluster.bootstrap_servers, [rows(value=[b"%d" % number])], "orders") == 1
        assert len(pool) == 1
        assert len(cluster.requests_of("InitProducerId")) == 1
        pool.close()


def test_broker_death_loses_no_rows(pool: ProducerPool) -> None:
    """Retries write each record once and in order."""
    with EmbeddedCluster(3, config={"min.insync.replicas": 1}) as cluster:
        cluster.create_topic("orders", partitions=3, replication_factor=3)

        def batches() -> Iterator[pa.RecordBatch]:
            for number in range(30):
                if number == 10:
                    cluster.kill(2)
                yield rows(
                    value=[b"%d" % (number * 100 + row) for row in range(100)],
                    partition=pa.array([row % 3 for row in range(100)], pa.int32()),
                )

        assert write(cluster.bootstrap_servers, batches(), "orders", **{"linger.ms": 0}) == 3000
        found = read(cluster.bootstrap_servers, "orders", 3, 3000)
        for number, records in found.items():
            expected = [value for value in range(3000) if value % 100 % 3 == number]
            assert [int(value or b"-1") for _, value, _ in records] == expected
        pool.close()


# --- what cannot be written ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def brokers() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(config={"auto.create.topics.enable": False}) as cluster:
        cluster.create_topic("orders", partitions=2)
        yield cluster


@pytest.fixture
def cluster(brokers: EmbeddedCluster) -> Iterator[EmbeddedCluster]:
    yield brokers
    brokers.faults.clear()


def fails(
    cluster: EmbeddedCluster,
    batches: Iterable[pa.RecordBatch],
    topic: str | None = "orders",
    settings: dict[str, Any] | None = None,
) -> str:
    """Return the error of the task that writes these rows. It must not contain their data."""
    with pytest.raises(KafkaError) as raised:
        write(cluster.bootstrap_servers, batches, topic, **(settings or {}))
    said = str(raised.value)
    assert "secret" not in said
    assert "\n" not in said
    return said


def test_null_topic_is_refused_with_its_row(cluster: EmbeddedCluster) -> None:
    first = rows(value=[b"secret"] * 5, topic=["orders"] * 5)
    second = rows(value=[b"secret"] * 5, topic=["orders", "orders", None, "orders", None])
    said = fails(cluster, [first, second], None)
    assert said.startswith("Spark partition 0 (attempt 1) could not be written to Kafka")
    assert "row 7 (counted from 0) has a null topic" in said
    assert "option topic" in said


def test_record_over_the_producer_limit_is_explained(cluster: EmbeddedCluster) -> None:
    batch = rows(value=[b"secret", b"secret" * 200_000, b"secret"])
    said = fails(cluster, [batch])
    assert said.startswith("1 of 3 records")
    assert "Spark partition 0 (attempt 1) were not written to Kafka" in said
    assert "12000" in said  # its size
    assert "1048576" in said  # the limit
    assert "kafka.max.request.size" in said
    assert "max.message.bytes" in said


def test_record_over_the_topic_limit_is_explained(any_kafka: AnyKafka, topic: str) -> None:
    any_kafka.create_topic(topic, config={"max.message.bytes": 10_000})
    with pytest.raises(KafkaError) as raised:
        write(any_kafka.bootstrap_servers, [rows(value=[b"secret" * 5_000])], topic)
    said = str(raised.value)
    assert said.startswith("1 of 1 records")
    assert "RecordTooLargeError" in said
    assert "max.message.bytes" in said
    assert "secret" not in said


def test_missing_permission_is_explained(cluster: EmbeddedCluster) -> None:
    cluster.faults.answer("Produce", TopicAuthorizationError, times=None)
    said = fails(cluster, [rows(value=[b"secret"] * 10)])
    assert said.startswith("10 of 10 records of Spark partition 0 (attempt 1) were not written to Kafka")
    assert "TopicAuthorizationError" in said
    assert "ACLs WRITE and DESCRIBE" in said


def test_unknown_topic_is_explained(cluster: EmbeddedCluster) -> None:
    said = fails(cluster, [rows(value=[b"secret"])], "nowhere", settings={"max.block.ms": 300})
    assert said.startswith("Spark partition 0 (attempt 1) could not be written to Kafka")
    assert "topic 'nowhere' not in metadata after 0.3 s" in said
    assert "check that the topic exists" in said


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"partition": pa.array([-1], pa.int32())}, "partition has -1, which is negative"),
        (
            {"partition": pa.array([2], pa.int32())},
            "partition 2 of topic 'orders' not in metadata after 0.3 s",
        ),
        ({"headers": pa.array([[{"key": None, "value": b"secret"}]], ARROW_HEADERS)}, "headers has a header without a"),
        ({"key": pa.array([1])}, "key is of type int64; it must be binary or string"),
    ],
)
def test_unwritable_rows_are_explained(cluster: EmbeddedCluster, more: dict[str, Any], says: str) -> None:
    assert says in fails(cluster, [rows(value=[b"secret"], **more)], settings={"max.block.ms": 300})


@pytest.mark.parametrize("names", [["key"], ["value"], ["value", "value", "topic"]])
def test_task_checks_the_columns_again(cluster: EmbeddedCluster, names: Sequence[str]) -> None:
    """``write_arrow`` does not know the schema earlier."""
    with pytest.raises(IllegalArgumentError, match="the rows have " + ", ".join(names)):
        write("localhost:1", [pa.record_batch([pa.array([b"x"])] * len(names), names=list(names))])


def test_first_error_ends_the_task(cluster: EmbeddedCluster, pool: ProducerPool) -> None:
    """The remaining rows are not read, and the producer is not used again."""
    cluster.faults.answer("Produce", TopicAuthorizationError, times=None)
    read_rows = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal read_rows
        while True:
            read_rows += 100
            yield rows(value=[bytes(1000)] * 100)

    fails(cluster, batches(), settings={"linger.ms": 0, "batch.size": 10_000})
    assert read_rows > 0
    assert len(pool) == 0


def test_error_in_the_rows_ends_the_task(cluster: EmbeddedCluster, pool: ProducerPool) -> None:
    """The preceding task in Spark failed: the block does not wait."""
    held = cluster.faults.hold("Produce")

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows(value=[b"1"])
        raise RuntimeError("the task before")

    with pytest.raises(RuntimeError, match="the task before"):
        write(cluster.bootstrap_servers, batches(), "orders")
    assert len(pool) == 0
    held.remove()
