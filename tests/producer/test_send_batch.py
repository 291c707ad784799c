"""Records sent in columns: their contents and partitions on arrival, and the results of rows that fail."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import confluent_kafka
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from pykclient import KafkaConsumer, KafkaProducer, TopicPartition
from pykclient.errors import (
    BufferExhaustedError,
    IllegalArgumentError,
    IllegalStateError,
    KafkaTimeoutError,
    RecordTooLargeError,
)
from pykclient.network.metadata import Cluster
from pykclient.producer.columns import BatchFuture, BatchInput, ColumnSender, ColumnSenderContext, Route
from pykclient.producer.future import ProduceRequestResult, RowsInBatch
from pykclient.producer.interceptors import ProducerInterceptor
from pykclient.record import Record
from pykclient.types import RecordMetadata
from tests.producer.harness import TOPIC
from tests.producer.test_kafka_producer import Make, make
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually

__all__ = ["make"]

Open = Callable[..., KafkaProducer[Any, Any]]


@pytest.fixture
def producer_of(any_kafka: AnyKafka) -> Iterator[Open]:
    """A factory of producers that are closed after the test."""
    made: list[KafkaProducer[Any, Any]] = []

    def open_one(**settings: Any) -> KafkaProducer[Any, Any]:
        producer: KafkaProducer[Any, Any] = KafkaProducer(bootstrap_servers=any_kafka.bootstrap_servers, **settings)
        made.append(producer)
        return producer

    yield open_one
    for producer in made:
        producer.close(0)


def read(cluster: AnyKafka, topic: str, partitions: int, count: int) -> dict[int, list[Any]]:
    """Read with confluent-kafka; return (key, value, headers) by partition."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "reader", "check.crcs": True}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(partitions)])
    found: dict[int, list[Any]] = {number: [] for number in range(partitions)}

    def enough() -> bool:
        for message in consumer.consume(1000, 0.2):
            assert message.error() is None
            number = message.partition()
            assert number is not None
            assert message.offset() == len(found[number])
            found[number].append((message.key(), message.value(), message.headers()))
        return sum(map(len, found.values())) >= count

    try:
        eventually(enough, 20, f"{count} records", every_s=0)
    finally:
        consumer.close()
    return found


def rows_by_offset(future: BatchFuture) -> dict[int, list[int]]:
    """Return each partition's row numbers in the order of their offsets."""
    placed = sorted(
        (each.partition, each.base_offset + index, row)
        for each in future.slices
        for index, row in enumerate(each.rows)
        if each.error is None
    )
    by_partition: dict[int, list[int]] = {}
    for partition, _, row in placed:
        by_partition.setdefault(partition, []).append(row)
    return by_partition


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_table_rows_arrive_as_sent(any_kafka: AnyKafka, topic: str, producer_of: Open, codec: str) -> None:
    any_kafka.create_topic(topic, partitions=3)
    count = 5000
    pairs = [[("n", b"%d" % i), ("none", None)] if i % 3 == 0 else None for i in range(count)]
    keys = [None if i % 5 == 0 else f"key {i % 100}" for i in range(count)]
    values = [None if i % 7 == 0 else b"value %d" % i for i in range(count)]
    table = pa.table(
        {
            "key": pa.array(keys, pa.string_view()),
            "value": pa.array(values, pa.large_binary()),
            "headers": pa.array(pairs, pa.map_(pa.string(), pa.binary())),
        }
    )
    producer = producer_of(compression_type=codec, linger_ms=5)
    future = producer.send_batch(topic, table, key="key", headers="headers")
    metadata = future.get(30)
    assert (metadata.num_rows, future.succeeded(), future.errors) == (count, True, [])
    found = read(any_kafka, topic, 3, count)
    placed = rows_by_offset(future)
    for partition, rows in placed.items():
        assert found[partition] == [
            (None if keys[row] is None else str(keys[row]).encode(), values[row], pairs[row]) for row in rows
        ]
        keyed = [row for row in rows if keys[row] is not None]
        assert keyed == sorted(keyed)  # partitions keep the order of rows
    # `send` chooses the same partition.
    for row in range(1, 100, 7):
        if keys[row] is not None:
            sent = producer.send(topic, b"", str(keys[row]).encode()).get(10)
            assert row in placed[sent.partition]
    offsets = future.offsets()
    assert offsets.null_count == 0
    for partition, rows in placed.items():
        assert [offsets[row].as_py() for row in rows] == list(range(len(found[partition])))
        assert metadata.base_offsets[TopicPartition(topic, partition)] == 0


class Stream:
    """An object that has only Arrow's stream interface."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._data.__arrow_c_stream__(requested_schema)


class Array:
    """An object that has only Arrow's array interface."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self._data.__arrow_c_array__(requested_schema)


VALUES = [b"a", None, b"c"]
TABLE = pa.table({"value": VALUES, "number": [1, 2, 3]})


@pytest.mark.parametrize(
    "data",
    [
        TABLE,
        TABLE.to_batches()[0],
        pa.Table.from_batches([TABLE.to_batches()[0].slice(0, 1), TABLE.to_batches()[0].slice(1)]),
        TABLE.to_reader(),
        Stream(TABLE),
        Array(TABLE.to_batches()[0]),
        Stream(pa.chunked_array([VALUES[:1], VALUES[1:]], pa.binary())),
        Array(pa.array(VALUES)),
        pa.array(VALUES),
        pa.chunked_array([VALUES[:2], VALUES[2:]], pa.binary()),
        pa.table({"x": VALUES}),
        TABLE.to_struct_array(),
        VALUES,
        tuple(VALUES),
        [bytearray(b"a"), None, memoryview(b"c")],
    ],
    ids=lambda data: type(data).__name__,
)
def test_all_kinds_of_columns_are_sent(make: Make, data: Any) -> None:
    producer, brokers = make()
    future = producer.send_batch(TOPIC, data, partition=1, timestamp=[5, None, 7], headers=[("h", b"1")])
    assert future.get(10).num_rows == 3
    assert [(partition, record.value, record.headers) for partition, record in brokers.received] == [
        (1, value, (("h", b"1"),)) for value in VALUES
    ]
    times = [record.timestamp for _, record in brokers.received]
    assert (times[0], times[2], times[1] > 1_600_000_000_000) == (5, 7, True)


def test_columns_may_be_passed_beside_data(make: Make) -> None:
    producer, brokers = make()
    table = pa.Table.from_batches(
        [TABLE.to_batches()[0].slice(0, 2), TABLE.to_batches()[0].slice(2)]  # chunked differently from the columns
    )
    future = producer.send_batch(
        TOPIC,
        table,
        key=pa.chunked_array([["x"], ["y", None]]),
        headers=[None, [("a", b"1")], []],
        timestamp=pa.array([1000, 2000, 3000], pa.timestamp("us")),
        partition=[1, None, 1],
    )
    future.get(10)
    by_value = {record.value: (partition, record) for partition, record in brokers.received}
    assert by_value[b"a"] == (1, Record(0, 1, b"x", b"a"))
    assert by_value[None][1][1:] == (2, b"y", None, (("a", b"1"),))
    assert (by_value[b"c"][0], by_value[b"c"][1][1:]) == (1, (3, None, b"c", ()))
    assert by_value[None][0] == producer.send(TOPIC, None, b"y").get(10).partition


@pytest.mark.parametrize(
    ("data", "arguments", "says"),
    [
        (b"bytes", {}, "sequence of bytes"),
        ({"value": []}, {}, "sequence of bytes"),
        ([1], {}, "row 0 is int"),
        (TABLE, {"value": "number"}, "int64"),
        (TABLE, {"key": "keys"}, "no column 'keys'"),
        (pa.table({"a": VALUES, "b": VALUES}), {}, "say which column"),
        ([b"a"], {"key": "value"}, "names a column"),
        ([b"a"], {"value": "value"}, "value"),
        ([b"a"], {"key": [b"a", b"b"]}, "2 rows"),
        (TABLE, {"key": [b"a", b"b"]}, "2 rows"),
        (TABLE, {"key": [b"a"] * 4}, "4 rows"),
        (Stream(TABLE), {"key": [b"a"] * 4}, "4 rows"),
        (pa.Table.from_batches([TABLE.to_batches()[0]] * 2), {"partition": [0, 1, 0, 1, 0, -1]}, "row 2"),
        (TABLE, {"key": b"abc"}, "key is bytes"),
        ([b"a"], {"timestamp": -1}, "negative"),
        ([b"a"], {"timestamp": [-1]}, "row 0"),
        ([b"a"], {"timestamp": pa.array([-1])}, "negative"),
        ([b"a"], {"timestamp": [1.5]}, "row 0"),
        ([b"a"], {"partition": -1}, "negative"),
        ([b"a"], {"partition": [-1]}, "row 0"),
        ([b"a"], {"headers": [("a", "text")]}, "header"),
        ([b"a"], {"headers": [5]}, "headers"),
    ],
)
def test_send_batch_refuses_wrong_arguments_and_sends_nothing(
    make: Make, data: Any, arguments: dict[str, Any], says: str
) -> None:
    producer, brokers = make()
    with pytest.raises(IllegalArgumentError, match=says):
        producer.send_batch(TOPIC, data, **arguments)
    producer.flush(10)
    assert brokers.received == []


def test_empty_data_gives_completed_future(make: Make) -> None:
    producer, _ = make()
    empty: list[Any] = [[], TABLE.slice(0, 0), TABLE.schema.empty_table(), pa.array([], pa.binary())]
    for data in empty:
        future = producer.send_batch(TOPIC, data)
        assert future.done()
        assert (future.get(0).num_rows, future.slices, len(future.offsets())) == (0, [], 0)


class Doubling(ProducerInterceptor):
    """An interceptor that would not be called."""


def test_send_batch_is_refused_with_interceptors_or_after_close(make: Make) -> None:
    producer, _ = make(interceptor_classes=[Doubling()])
    with pytest.raises(IllegalStateError, match="interceptors"):
        producer.send_batch(TOPIC, [b"a"])
    producer, _ = make()
    producer.close(1)
    with pytest.raises(IllegalStateError, match="closed"):
        producer.send_batch(TOPIC, [b"a"])


def test_rows_that_are_too_large_fail_alone(make: Make) -> None:
    producer, brokers = make(max_request_size=10_000)
    values = [b"a", bytes(10_000), b"c", bytes(9_000)]
    for keys in (None, ["x"] * 4):
        brokers.received.clear()
        future = producer.send_batch(TOPIC, values, key=None if keys is None else pa.array(keys))
        with pytest.raises(RecordTooLargeError, match="row 1"):
            future.get(10)
        (failed,) = future.errors
        assert list(failed.rows) == [1]
        assert sorted(len(record.value or b"") for _, record in brokers.received) == [1, 1, 9000]
        assert [offset is None for offset in future.offsets().to_pylist()] == [False, True, False, False]


def test_unknown_partition_fails_whole_call(make: Make) -> None:
    producer, brokers = make(max_block_ms=50)
    with pytest.raises(KafkaTimeoutError, match="partition 99"):
        producer.send_batch(TOPIC, [b"a", b"b"], partition=[0, 99])
    assert brokers.received == []


def test_full_buffer_fails_the_rows_that_do_not_fit(make: Make) -> None:
    """Rows already in a batch are sent; the others get the error that `send` would raise."""
    producer, brokers = make(buffer_memory=8192, batch_size=1024, max_block_ms=100)
    brokers.answering = False
    future = producer.send_batch(TOPIC, [bytes(200)] * 1000, partition=1)
    errors = future.errors
    assert {type(each.error) for each in errors} == {BufferExhaustedError}
    left = sum(len(each.rows) for each in errors)
    assert 900 < left < 1000
    assert not future.done()
    brokers.answering = True
    brokers.wakeup()
    assert future.wait(10)
    assert future.failed()
    assert len(brokers.received) == 1000 - left
    assert future.offsets().null_count == left
    # Each row has exactly one result.
    assert sorted(row for each in future.slices for row in each.rows) == list(range(1000))
    with pytest.raises(BufferExhaustedError):
        future.get(0)
    assert producer.send_batch(TOPIC, [bytes(200)] * 1000, partition=1).get(10).num_rows == 1000  # waits for memory


def test_each_slice_has_its_own_error(any_kafka: AnyKafka, topic: str, producer_of: Open) -> None:
    """The broker refuses one partition's batch and accepts the others."""
    any_kafka.create_topic(topic, partitions=2, config={"max.message.bytes": 1000})
    producer = producer_of(compression_type="none")
    values = [b"small", bytes(2000), b"small"]
    future = producer.send_batch(topic, values, partition=[0, 1, 0])
    with pytest.raises(RecordTooLargeError):
        future.get(20)
    (failed,) = future.errors
    assert (failed.partition, list(failed.rows)) == (1, [1])
    assert future.base_offsets == {TopicPartition(topic, 0): 0}
    assert future.offsets().to_pylist() == [0, None, 1]


def test_rows_of_a_split_batch_keep_their_offsets(any_kafka: AnyKafka, topic: str, producer_of: Open) -> None:
    """A batch too large for the broker is split, and each row's offset is still known."""
    any_kafka.create_topic(topic, config={"max.message.bytes": 4000})
    producer = producer_of(batch_size=16_384, linger_ms=100)
    values = [b"%d" % number + bytes(100) for number in range(500)]
    future = producer.send_batch(topic, values)
    assert future.get(20).base_offsets == {TopicPartition(topic, 0): 0}
    assert [value for _, value, _ in read(any_kafka, topic, 1, 500)[0]] == values
    assert future.offsets().to_pylist() == list(range(500))


def test_batch_future_calls_callbacks_and_can_be_awaited(make: Make) -> None:
    producer, brokers = make(batch_size=500)
    brokers.answering = False
    future = producer.send_batch(TOPIC, [bytes(100)] * 50)
    heard: list[Any] = []
    future.add_done_callback(lambda done: heard.append(done.succeeded()))
    future.add_callback(lambda metadata: heard.append(metadata.num_rows))
    future.add_errback(heard.append)
    assert heard == []
    with pytest.raises(KafkaTimeoutError, match="50 rows"):
        future.get(0.01)
    brokers.answering = True

    async def wait() -> int:
        return (await future).num_rows

    assert asyncio.run(wait()) == 50
    eventually(lambda: heard == [True, 50], 30)
    future.add_callback(lambda metadata: heard.append(metadata.topic))
    assert heard[2:] == [TOPIC]


@pytest.mark.parametrize("partitioner", ["RoundRobinPartitioner", "UniformStickyPartitioner", "consistent_random"])
def test_send_batch_uses_configured_partitioner(make: Make, partitioner: str) -> None:
    producer, brokers = make(partitioner_class=partitioner, batch_size=1000)
    keys = [None if number % 2 else b"%d" % (number % 10) for number in range(300)]
    future = producer.send_batch(TOPIC, [bytes(50)] * 300, key=keys)
    future.get(10)
    placed = {row: each.partition for each in future.slices for row in each.rows}
    assert len(brokers.received) == len(placed) == 300
    assert len(set(placed.values())) > 1
    if partitioner == "consistent_random":
        for row in range(0, 20, 2):
            assert producer.send(TOPIC, b"", keys[row]).get(10).partition == placed[row]


def test_batches_and_records_keep_their_order(any_kafka: AnyKafka, topic: str, producer_of: Open) -> None:
    any_kafka.create_topic(topic)
    producer = producer_of(linger_ms=20)
    expected: list[bytes] = []
    futures: list[Any] = []
    for round_ in range(20):
        one = b"one %d" % round_
        many = [b"many %d %d" % (round_, number) for number in range(100)]
        futures += [producer.send(topic, one), producer.send_batch(topic, many)]
        expected += [one, *many]
    producer.flush(20)
    for index, future in enumerate(futures):
        metadata = future.get(0)
        offset = metadata.offset if isinstance(metadata, RecordMetadata) else min(metadata.base_offsets.values())
        assert offset == index // 2 * 101 + index % 2
    assert [value for _, value, _ in read(any_kafka, topic, 1, len(expected))[0]] == expected


def test_poll_arrow_result_can_be_sent_as_batch(any_kafka: AnyKafka, topic: str, producer_of: Open) -> None:
    """A topic is copied partition by partition."""
    for name in (topic, f"{topic}-copy"):
        any_kafka.create_topic(name, partitions=2)
    producer = producer_of()
    producer.send_batch(topic, [b"%d" % number for number in range(1000)], key=[b"%d" % n for n in range(1000)]).get(10)
    with KafkaConsumer(
        bootstrap_servers=any_kafka.bootstrap_servers, auto_offset_reset="earliest", consumer_timeout_ms=30_000
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        copied = 0
        for batch in consumer.iter_arrow(binary_view=True):
            copied += batch.num_rows
            producer.send_batch(
                f"{topic}-copy", batch, key="key", headers="headers", timestamp="timestamp", partition="partition"
            ).get(10)
            if copied == 1000:
                break
    assert read(any_kafka, f"{topic}-copy", 2, 1000) == read(any_kafka, topic, 2, 1000)


rows = st.lists(
    st.tuples(st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=300), st.none() | st.integers(0, 1)),
    max_size=60,
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows, st.integers(1, 20), st.sampled_from((200, 1000, 16_384)), st.sampled_from(("none", "gzip")))
def test_the_same_as_one_by_one(
    make_once: Callable[..., Any], given_rows: Sequence[Any], chunk: int, batch_size: int, codec: str
) -> None:
    keys, values, partitions = ([row[part] for row in given_rows] for part in range(3))
    producer, brokers = make_once(batch_size=batch_size, compression_type=codec)
    table = pa.table(
        {
            "k": pa.array(keys, pa.binary()),
            "v": pa.array(values, pa.binary()),
            "p": pa.array(partitions, pa.int16()),
        }
    )
    batches = pa.Table.from_batches(table.to_batches(max_chunksize=chunk), table.schema)
    future = producer.send_batch(TOPIC, batches, value="v", key="k", partition="p", timestamp=7)
    future.get(10)
    by_columns = list(brokers.received)
    brokers.received.clear()
    placed = {row: each.partition for each in future.slices for row in each.rows}
    for row, (key, value, partition) in enumerate(given_rows):
        # Rows without key and partition may go to any partition, so use the one that `send_batch` chose.
        chosen = placed[row] if key is None and partition is None else partition
        producer.send(TOPIC, value, key, partition=chosen, timestamp_ms=7)
    producer.flush(10)

    def by_partition(received: Any) -> Any:
        return {number: [record[1:] for at, record in received if at == number] for number in range(2)}

    one_by_one = by_partition(brokers.received)
    for number, records in by_partition(by_columns).items():
        assert sorted(map(repr, records)) == sorted(map(repr, one_by_one[number]))
        keyed = [record for record in records if record[1] is not None]
        assert keyed == [record for record in one_by_one[number] if record[1] is not None] or None in partitions


@pytest.fixture
def make_once(make: Make) -> Callable[..., Any]:
    """A factory that reuses one producer per combination of settings."""
    made: dict[Any, Any] = {}

    def get(**settings: Any) -> Any:
        key = tuple(settings.items())
        if key not in made:
            made[key] = make(**settings)
        made[key][1].received.clear()
        return made[key]

    return get


def test_send_batch_works_without_pyarrow() -> None:
    """Plain sequences work without pyarrow."""
    program = """
import sys
sys.modules["pyarrow"] = None
from pykclient import KafkaConsumer, KafkaProducer, TopicPartition
from pykclient.testing import EmbeddedCluster
with EmbeddedCluster(brokers=1) as cluster:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        print(producer.send_batch("topic", [b"a", b"b"], key=[b"k", None]).get(10).num_rows)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "2"


# --- the size of batches --------------------------------------------------------------------------------------------


def batch_rows(future: BatchFuture) -> list[int]:
    """Return how many rows each batch took: rows in one batch have one base offset, and slices may continue it."""
    sizes: dict[tuple[int, int], int] = {}
    for each in future.slices:
        assert each.error is None
        sizes[each.partition, each.base_offset] = sizes.get((each.partition, each.base_offset), 0) + len(each.rows)
    return list(sizes.values())


VALUE_BYTES, ROW_BYTES = 1000, 1000 + 12


@pytest.mark.parametrize(
    ("options", "largest"),
    [
        ({}, (1 << 20) - 1024),
        ({"max_request_size": 100_000}, 100_000 - 1024),
        ({"buffer_memory": 1 << 20}, 1 << 16),
        ({"compression_type": "lz4"}, 16_384),
        ({"batch_size": 2_500_000, "max_request_size": 3_000_000}, 2_500_000),
    ],
    ids=["default", "request", "memory", "codec", "batch.size"],
)
def test_uncompressed_rows_fill_batches_up_to_request_size(
    any_kafka: AnyKafka, topic: str, producer_of: Open, options: dict[str, Any], largest: int
) -> None:
    """A batch of adjacent rows does not wait for more records, so it need not stop at batch.size."""
    any_kafka.create_topic(topic, config={"max.message.bytes": 4_000_000})
    rng = random.Random(1)
    values = [rng.randbytes(VALUE_BYTES) for _ in range(5000)]
    future = producer_of(linger_ms=50, **options).send_batch(topic, values)
    future.get(30)
    sizes = batch_rows(future)
    assert sum(sizes) == 5000
    assert largest * 0.9 < max(sizes) * ROW_BYTES <= largest * 1.01


def test_rows_respect_batch_size_after_broker_refused_larger_batch(
    any_kafka: AnyKafka, topic: str, producer_of: Open
) -> None:
    any_kafka.create_topic(topic, config={"max.message.bytes": 50_000})
    producer = producer_of(linger_ms=0)
    values = [b"%1000d" % number for number in range(3000)]
    first = producer.send_batch(topic, values)
    assert first.get(30).num_rows == 3000
    splits = producer.metrics()["producer-metrics"]["batch-split-total"]
    assert splits >= 1
    second = producer.send_batch(topic, values)
    assert second.get(30).num_rows == 3000
    assert max(batch_rows(second)) * ROW_BYTES <= 16_384
    assert producer.metrics()["producer-metrics"]["batch-split-total"] == splits
    assert [value for _, value, _ in read(any_kafka, topic, 1, 6000)[0]] == values * 2


def test_few_rows_take_little_memory(any_kafka: AnyKafka, topic: str, producer_of: Open) -> None:
    """One large row among small ones of other partitions does not make all batches large."""
    any_kafka.create_topic(topic, partitions=50)
    producer = producer_of(linger_ms=60_000, batch_size=4096)
    values = [b"x" * (100_000 if row == 0 else 10) for row in range(500)]
    producer.send_batch(topic, values, partition=[row % 50 for row in range(500)])
    used = (32 << 20) - producer.metrics()["producer-metrics"]["buffer-available-bytes"]
    assert used < 50 * 4096 + 110_000


class _FullMemory:
    """An accumulator whose memory is used up until its second caller has waited. It needs a new batch."""

    missing_bytes = 7

    def __init__(self) -> None:
        self.answers = [(False, True), (False, False), (True, False)]  # appended, aborted

    def append_rows(self, topic: str, partition: int | None, run: Any, *rest: Any) -> tuple[Any, bool, bool]:
        is_appended, is_aborted = self.answers.pop(0)
        if not is_appended:
            return None, False, is_aborted
        run.first = run.stop
        return RowsInBatch(ProduceRequestResult(TopicPartition(topic, partition or 0)), 0, 1), True, False


def test_partitioner_is_told_once_of_a_new_batch_that_waits_for_memory() -> None:
    told: list[int] = []
    route = Route(Cluster("id", [], []), 2, 0)
    context = ColumnSenderContext(
        cast("Any", _FullMemory()),
        lambda _partition: route,
        lambda _key, _value, _route: 1,
        lambda _route, number: told.append(number),
        lambda: None,
        lambda: None,
        1000,
        1000,
        False,
    )
    sender = ColumnSender("orders", context)
    steps = sender.steps(BatchInput("orders", [b"value"], None, None, None, None, None).parts(0))
    assert list(steps) == [7, 0]  # the bytes that are missing; the end of the window
    assert (told, sender.refused) == ([1], [])
