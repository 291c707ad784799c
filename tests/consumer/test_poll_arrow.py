"""Records in columns from ``poll_arrow``, whose positions, commits and groups equal those of ``poll``."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest

from pykclient import KafkaConsumer, TopicPartition
from pykclient.consumer.values import ConsumerInterceptor
from pykclient.errors import IllegalArgumentError, IllegalStateError, KafkaError
from pykclient.network.client_request import InFlightRequest
from pykclient.record import arrow
from tests.kafka.cluster import KafkaCluster
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually

Make = Callable[..., KafkaConsumer[Any, Any]]


@pytest.fixture
def make(any_kafka: AnyKafka) -> Iterator[Make]:
    """A factory of consumers that are closed after the test."""
    made: list[KafkaConsumer[Any, Any]] = []

    def make_one(*topics: str, **settings: Any) -> KafkaConsumer[Any, Any]:
        consumer: KafkaConsumer[Any, Any] = KafkaConsumer(
            *topics,
            bootstrap_servers=any_kafka.bootstrap_servers,
            **{"auto_offset_reset": "earliest", "fetch_max_wait_ms": 100, **settings},
        )
        made.append(consumer)
        return consumer

    yield make_one
    for consumer in made:
        consumer.close(timeout_ms=10_000)


def produce(
    cluster: AnyKafka, topic: str, count: int, partitions: int = 1, value: bytes = b"value %d", **settings: Any
) -> None:
    """Produce records: number ``i`` has value ``value i``, every second has a key, every third two headers."""
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 20, **settings})
    for number in range(count):
        producer.produce(
            topic,
            value % number,
            b"key %d" % number if number % 2 else None,
            partition=number % partitions,
            timestamp=1_600_000_000_000 + number,
            headers=[("a", b"1"), ("b", None)] if number % 3 == 0 else None,
        )
    assert producer.flush(30) == 0


def take(consumer: KafkaConsumer[Any, Any], count: int, **arguments: Any) -> pa.Table:
    """Poll until ``count`` records have been returned."""
    batches: list[pa.RecordBatch] = []

    def enough() -> bool:
        batch = consumer.poll_arrow(200, **arguments)
        batch.validate(full=True)
        batches.append(batch)
        return sum(int(each.num_rows) for each in batches) >= count

    eventually(enough, 30, f"{count} records", every_s=0)
    return pa.Table.from_batches(batches).unify_dictionaries()


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4"])
@pytest.mark.parametrize("binary_view", [False, True])
def test_table_has_all_columns(any_kafka: AnyKafka, topic: str, make: Make, codec: str, binary_view: bool) -> None:
    any_kafka.create_topic(topic, partitions=2)
    settings: dict[str, Any] = {"compression.type": codec}
    produce(any_kafka, topic, 600, 2, **settings)
    consumer = make()
    consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
    table = take(consumer, 600, binary_view=binary_view)
    assert table.schema == arrow.schema(views=binary_view)
    by_partition = [[row for row in table.to_pylist() if row["partition"] == number] for number in (0, 1)]
    for number, rows in enumerate(by_partition):
        numbers = range(number, 600, 2)
        assert [row["offset"] for row in rows] == list(range(300))
        assert [row["value"] for row in rows] == [b"value %d" % i for i in numbers]
        assert [row["key"] for row in rows] == [b"key %d" % i if i % 2 else None for i in numbers]
        assert [row["timestamp"] for row in rows[:2]] == [
            datetime.fromtimestamp(1_600_000_000 + i / 1000, UTC) for i in numbers[:2]
        ]
        with_headers = [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]
        assert [row["headers"] for row in rows] == [[] if i % 3 else with_headers for i in numbers]
        assert {(row["topic"], row["timestamp_type"], row["leader_epoch"]) for row in rows} == {(topic, 0, 0)}
        assert consumer.position(TopicPartition(topic, number)) == 300


def test_columns_and_limits_can_be_chosen(any_kafka: AnyKafka, topic: str, make: Make) -> None:
    any_kafka.create_topic(topic)
    produce(any_kafka, topic, 100)
    tp = TopicPartition(topic, 0)
    consumer = make()
    consumer.assign([tp])
    first = take(consumer, 1, columns=["offset", "value"], max_records=10)
    assert first.schema.names == ["offset", "value"]
    assert (first.num_rows, consumer.position(tp)) == (10, 10)
    second = consumer.poll_arrow(1000, max_bytes=100)
    assert 0 < second.num_rows < 10
    assert consumer.poll_arrow(1000, max_bytes=1).num_rows == 1
    assert consumer.position(tp) == 10 + second.num_rows + 1
    consumer.seek(tp, 95)
    assert take(consumer, 5)["offset"].to_pylist() == [95, 96, 97, 98, 99]
    assert consumer.poll_arrow(50).num_rows == 0


def test_poll_and_poll_arrow_take_turns(any_kafka: AnyKafka, topic: str, make: Make) -> None:
    any_kafka.create_topic(topic)
    produce(any_kafka, topic, 200)  # only a few batches, so both methods stop in the middle of one
    consumer = make(consumer_timeout_ms=1000)
    consumer.assign([TopicPartition(topic, 0)])
    values: list[bytes | None] = []
    while len(values) < 150:
        values += [record.value for some in consumer.poll(200, max_records=7).values() for record in some]
        values += consumer.poll_arrow(200, max_records=11, columns=["value"])["value"].to_pylist()
    for record in consumer:
        values.append(record.value)
        if len(values) % 10 == 0:
            break  # records fetched but not returned are read again
    while len(values) < 200:
        values += consumer.poll_arrow(200)["value"].to_pylist()
    assert values == [b"value %d" % number for number in range(200)]


def test_iter_arrow_yields_limited_batches(any_kafka: AnyKafka, topic: str, make: Make) -> None:
    any_kafka.create_topic(topic)
    produce(any_kafka, topic, 100)
    consumer = make(consumer_timeout_ms=500)
    consumer.assign([TopicPartition(topic, 0)])
    sizes: list[int] = []

    def all_came() -> bool:  # the loop ends if no record arrives in half a second, as may happen under load
        sizes.extend(batch.num_rows for batch in consumer.iter_arrow(max_records=30))
        return sum(sizes) == 100

    eventually(all_came, 30)
    assert max(sizes) <= 30
    consumer.seek_to_beginning()
    for batch in consumer.iter_arrow(max_records=1):
        assert batch["offset"].to_pylist() == [0]
        consumer.close()


def test_paused_partitions_wait(any_kafka: AnyKafka, topic: str, make: Make) -> None:
    any_kafka.create_topic(topic, partitions=2)
    produce(any_kafka, topic, 20, 2)
    tp0, tp1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
    consumer = make()
    consumer.assign([tp0, tp1])
    consumer.pause(tp0)
    assert set(take(consumer, 10)["partition"].to_pylist()) == {1}
    assert consumer.poll_arrow(200).num_rows == 0
    consumer.resume(tp0)
    assert set(take(consumer, 10)["partition"].to_pylist()) == {0}


def test_committed_columns_are_not_read_again_after_a_rebalance(
    any_kafka: AnyKafka, topic: str, group_id: str, make: Make
) -> None:
    any_kafka.create_topic(topic, partitions=2)
    produce(any_kafka, topic, 100, 2)
    settings = {"group_id": group_id, "enable_auto_commit": False, "heartbeat_interval_ms": 100}
    first = make(topic, **settings)
    seen = take(first, 60, max_records=10).select(["partition", "offset"]).to_pylist()
    first.commit()
    second = make(topic, **settings)
    own: list[dict[str, Any]] = []

    def shared() -> bool:
        seen.extend(first.poll_arrow(50, columns=["partition", "offset"]).to_pylist())
        own.extend(second.poll_arrow(50, columns=["partition", "offset"]).to_pylist())
        return len(first.assignment()) == len(second.assignment()) == 1

    eventually(shared, 30, "a share for both", every_s=0)
    # The second member started at the first one's committed offset, so both read the records after that.
    committed = {tp.partition: first.committed(tp) or 0 for tp in first.assignment() | second.assignment()}
    assert all(row["offset"] >= committed[row["partition"]] for row in own)
    both = {(row["partition"], row["offset"]) for row in [*seen, *own]}

    def all_there() -> bool:
        for consumer in (first, second):
            for row in consumer.poll_arrow(50, columns=["partition", "offset"]).to_pylist():
                both.add((row["partition"], row["offset"]))
        return len(both) == 100

    eventually(all_there, 30, "all records", every_s=0)


def test_positions_after_columns_are_committed_automatically(
    any_kafka: AnyKafka, topic: str, group_id: str, make: Make
) -> None:
    any_kafka.create_topic(topic)
    produce(any_kafka, topic, 100)
    consumer = make(topic, group_id=group_id)
    rows = take(consumer, 40, max_records=40).num_rows
    consumer.close()
    assert make(group_id=group_id).committed(TopicPartition(topic, 0)) == rows


def no_memory_for_rows(columns: Any, make_batch: Callable[[Any], Any] = arrow.record_batch) -> Any:
    if columns.rows:
        raise MemoryError
    return make_batch(columns)


def test_records_survive_memory_errors_of_arrays(
    any_kafka: AnyKafka, topic: str, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    any_kafka.create_topic(topic)
    produce(any_kafka, topic, 10)
    consumer = make()
    consumer.assign([TopicPartition(topic, 0)])

    with monkeypatch.context() as patch:
        patch.setattr(arrow, "record_batch", no_memory_for_rows)
        with pytest.raises(MemoryError):
            take(consumer, 10)
    assert take(consumer, 10)["offset"].to_pylist() == list(range(10))


def test_last_records_before_an_end_survive_memory_errors(
    any_kafka: AnyKafka, topic: str, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    any_kafka.create_topic(topic)
    produce(any_kafka, topic, 10)
    until = {TopicPartition(topic, 0): 5}
    consumer = make()
    consumer.assign(list(until))

    with monkeypatch.context() as patch:
        patch.setattr(arrow, "record_batch", no_memory_for_rows)
        with pytest.raises(MemoryError):
            take(consumer, 5, until=until)
    assert take(consumer, 5, until=until)["offset"].to_pylist() == list(range(5))


def test_views_are_of_what_was_received_and_outlive_the_consumer(
    any_kafka: AnyKafka, topic: str, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    any_kafka.create_topic(topic)
    long = b"a value that is not within its view %d"
    produce(any_kafka, topic, 20_000, value=long)
    frames: list[tuple[int, int]] = []
    real = InFlightRequest.parse

    def parse(in_flight: Any, frame: Any) -> Any:
        buffer = pa.py_buffer(frame)
        frames.append((buffer.address, buffer.address + buffer.size))
        return real(in_flight, frame)

    monkeypatch.setattr(InFlightRequest, "parse", parse)
    consumer = make()
    consumer.assign([TopicPartition(topic, 0)])
    batches: list[pa.RecordBatch] = []
    while sum(batch.num_rows for batch in batches) < 20_000:
        if (batch := consumer.poll_arrow(1000, columns=["value"], binary_view=True)).num_rows:
            batches.append(batch)
            _, _, *buffers = batch["value"].buffers()
            assert buffers
            for buffer in buffers:
                end = buffer.address + buffer.size
                # The next response may already have arrived.
                assert any(first <= buffer.address and end <= last for first, last in frames[-2:])
    consumer.close()
    values = pa.chunked_array([batch["value"] for batch in batches])
    values.validate(full=True)
    assert values.to_pylist() == [long % number for number in range(20_000)]


@pytest.mark.parametrize("binary_view", [False, True])
def test_batches_that_are_kept_do_not_change(any_kafka: AnyKafka, topic: str, make: Make, binary_view: bool) -> None:
    any_kafka.create_topic(topic)
    produce(any_kafka, topic, 6_000)
    consumer = make(max_partition_fetch_bytes=70_000)
    consumer.assign([TopicPartition(topic, 0)])
    every: list[pa.RecordBatch] = []
    for _ in range(3):  # some results are kept, the memory of the others is reused
        consumer.seek_to_beginning()
        kept: list[pa.RecordBatch] = []
        while sum(batch.num_rows for batch in kept) < 6_000:
            kept.append(consumer.poll_arrow(1000, max_records=700, binary_view=binary_view))
        every += kept
    values = [value for batch in every for value in batch["value"].to_pylist()]
    assert values == [b"value %d" % number for number in range(6_000)] * 3
    assert [offset for batch in every for offset in batch["offset"].to_pylist()] == list(range(6_000)) * 3


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_columns_end_before_a_given_offset(any_kafka: AnyKafka, topic: str, make: Make, codec: str) -> None:
    any_kafka.create_topic(topic, partitions=2)
    settings: dict[str, Any] = {"compression.type": codec}
    produce(any_kafka, topic, 600, 2, **settings)
    tp0, tp1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
    consumer = make()
    consumer.assign([tp0, tp1])
    seen: dict[int, list[int]] = {0: [], 1: []}
    for end in (0, 1, 123, 299, 300):
        until = {tp0: end, tp1: 300 - end if end > 150 else 0}
        expected = {0: until[tp0], 1: max(until[tp1], len(seen[1]))}

        def there(until: dict[TopicPartition, int] = until, expected: dict[int, int] = expected) -> bool:
            for row in consumer.poll_arrow(50, columns=["partition", "offset"], until=until).to_pylist():
                seen[row["partition"]].append(row["offset"])
            return consumer.paused() == {tp0, tp1}

        eventually(there, 30, f"all up to {until}", every_s=0)
        assert {number: len(offsets) for number, offsets in seen.items()} == expected
        assert consumer.poll_arrow(20, until=until).num_rows == 0
        assert (consumer.position(tp0), consumer.position(tp1)) == (expected[0], expected[1])
        consumer.resume(tp0, tp1)
    assert seen[0] == list(range(300))
    rest = take(consumer, 300 - len(seen[1]))
    assert seen[1] + rest["offset"].to_pylist() == list(range(300))


@pytest.mark.kafka
@pytest.mark.timeout(180)
def test_an_end_that_no_record_is_before(kafka: KafkaCluster, topic: str) -> None:
    kafka.create_topic(topic)
    servers = kafka.bootstrap_servers
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": topic, "linger.ms": 20})
    producer.init_transactions(30)
    for number in range(3):  # offsets 0 to 9 and a marker, 11 to 20 and a marker, ...
        producer.begin_transaction()
        for _ in range(10):
            producer.produce(topic, b"%d" % number)
        producer.flush(30)  # an abort drops unsent records
        (producer.abort_transaction if number == 1 else producer.commit_transaction)(30)
    tp = TopicPartition(topic, 0)
    with KafkaConsumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.assign([tp])
        for end, rows in ((11, 10), (15, 0), (22, 0), (33, 10)):
            count = 0

            def at_end(end: int = end) -> bool:
                nonlocal count
                count += consumer.poll_arrow(50, until={tp: end}).num_rows
                return consumer.position(tp) >= end

            eventually(at_end, 30, f"the position at {end}", every_s=0)
            assert count == rows
            consumer.resume(tp)


def test_prefetch_does_not_wait(any_kafka: AnyKafka, topic: str, make: Make) -> None:
    any_kafka.create_topic(topic)
    produce(any_kafka, topic, 10)
    tp = TopicPartition(topic, 0)
    consumer = make(fetch_max_wait_ms=20_000)
    consumer.assign([tp])
    assert take(consumer, 10, until={tp: 10}).num_rows == 10
    consumer.resume(tp)
    assert not consumer._consumer.components.client.has_pending_requests()
    consumer.prefetch()
    # The broker holds this fetch for longer than the test runs.
    assert consumer._consumer.components.client.has_pending_requests()
    consumer.prefetch()
    produce(any_kafka, topic, 5)
    assert take(consumer, 5)["offset"].to_pylist() == [10, 11, 12, 13, 14]


class Listening(ConsumerInterceptor):
    """An interceptor that would not be called."""


def test_poll_arrow_refuses_wrong_arguments_and_states(any_kafka: AnyKafka, topic: str, make: Make) -> None:
    any_kafka.create_topic(topic)
    consumer = make()
    with pytest.raises(IllegalStateError, match="nothing to poll"):
        consumer.poll_arrow()
    consumer.assign([TopicPartition(topic, 0)])
    wrong: list[dict[str, Any]] = [{"columns": ["values"]}, {"columns": "value"}, {"max_bytes": 0}, {"max_records": 0}]
    wrong += [{"max_bytes": "5"}, {"max_bytes": True}, {"max_bytes": 0.5}]
    for until in ({topic: 1}, {TopicPartition(topic, 0): "1"}):
        with pytest.raises(IllegalArgumentError):
            consumer.poll_arrow(0, until=until)  # type: ignore[arg-type]
    for arguments in wrong:
        with pytest.raises(IllegalArgumentError):
            consumer.poll_arrow(0, **arguments)
        with pytest.raises(IllegalArgumentError):
            consumer.iter_arrow(**arguments)
    with pytest.raises(IllegalStateError, match="interceptors"):
        make(interceptor_classes=[Listening()]).poll_arrow()
    consumer.close()
    with pytest.raises(KafkaError):
        consumer.poll_arrow()


def test_poll_arrow_without_pyarrow_explains_the_error() -> None:
    program = """
import sys
sys.modules["pyarrow"] = None
from pykclient import KafkaConsumer
consumer = KafkaConsumer(bootstrap_servers="127.0.0.1:1")
try:
    consumer.poll_arrow()
except ImportError as error:
    print(error)
consumer.close()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert "pip install 'pykclient[arrow]'" in done.stdout
