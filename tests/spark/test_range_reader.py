"""Ranges of offsets as tasks read them, on the embedded cluster and on real Kafka, without Spark."""

from __future__ import annotations

import gc
import logging
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import confluent_kafka
import pyarrow as pa
import pytest

from pykclient import KafkaProducer, TopicPartition
from pykclient.consumer.kafka_consumer import KafkaConsumer
from pykclient.errors import IllegalStateError, KafkaTimeoutError, LogTruncationError
from pykclient.spark import range_reader
from pykclient.spark.consumer_pool import ConsumerPool
from pykclient.spark.filters import Bounds
from pykclient.spark.range_reader import MAX_ROWS, ReadTask, read_ranges
from pykclient.spark.ranges import OffsetRange
from pykclient.spark.schema import COLUMNS, arrow_schema
from pykclient.testing import EmbeddedCluster
from tests.kafka.cluster import KafkaCluster
from tests.spark.topics import delete_records, numbers, produce
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually


@pytest.fixture
def pool() -> Iterator[ConsumerPool]:
    made = ConsumerPool()
    yield made
    made.close()


def new_task(kafka: AnyKafka, **arguments: Any) -> ReadTask:
    config = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "auto.offset.reset": "none",
        "enable.auto.commit": False,
        "allow.auto.create.topics": False,
        **arguments.pop("config", {}),
    }
    return ReadTask(config, **{"columns": tuple(COLUMNS), "freeze_heap": False, "poll_timeout_ms": 30_000, **arguments})


def rows(batches: Iterator[pa.RecordBatch]) -> list[tuple[int, int, str]]:
    """Return partition, offset and value of each row."""
    found = []
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema == arrow_schema(tuple(COLUMNS))
        values = (value.decode() for value in batch["value"].to_pylist())
        found += list(zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), values, strict=True))
    return found


def offsets(batches: Iterator[pa.RecordBatch]) -> list[int]:
    """Return the offsets of rows that have no other column."""
    return [offset for batch in batches for offset in batch["offset"].to_pylist()]


def expected(*ranges: tuple[int, int, int]) -> list[tuple[int, int, str]]:
    """Return the rows of partitions whose records are numbered."""
    return [(partition, offset, str(offset)) for partition, start, end in ranges for offset in range(start, end)]


def of(topic: str, *ranges: tuple[int, int, int]) -> list[OffsetRange]:
    return [OffsetRange(TopicPartition(topic, partition), start, end) for partition, start, end in ranges]


def filled(kafka: AnyKafka, topic: str, count: int, partitions: int = 1, **arguments: Any) -> None:
    """Create a topic of numbered records, in batches of 50, so that small fetches do not return all of them."""
    kafka.create_topic(topic, partitions, **arguments)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "batch.num.messages": 50, "enable.idempotence": True}
    )
    for partition in range(partitions):
        for number in range(count):
            producer.produce(topic, str(number).encode(), partition=partition)
    assert producer.flush(30) == 0


# --- rows


@pytest.mark.parametrize("fetch_bytes", [600, 8 << 20])
def test_ranges_of_partitions_are_read(any_kafka: AnyKafka, topic: str, pool: ConsumerPool, fetch_bytes: int) -> None:
    filled(any_kafka, topic, 500, 3)
    task = new_task(any_kafka, config={"max.partition.fetch.bytes": fetch_bytes})
    wanted = ((0, 10, 480), (1, 0, 500), (2, 499, 500), (2, 7, 7))
    found = rows(read_ranges(task, of(topic, *wanted), pool=pool))
    assert sorted(found) == expected(*wanted)
    for partition in range(3):  # in order
        offsets = [offset for number, offset, _ in found if number == partition]
        assert offsets == sorted(offsets)


def test_two_ranges_of_one_partition_are_read(any_kafka: AnyKafka, topic: str, pool: ConsumerPool) -> None:
    filled(any_kafka, topic, 50)
    wanted = ((0, 30, 40), (0, 5, 20), (0, 40, 50))
    assert rows(read_ranges(new_task(any_kafka), of(topic, *wanted), pool=pool)) == expected(*wanted)
    assert list(read_ranges(new_task(any_kafka), [], pool=pool)) == []


def test_batches_have_at_most_max_rows(any_kafka: AnyKafka, topic: str, pool: ConsumerPool) -> None:
    count = 2 * MAX_ROWS + 5000
    filled(any_kafka, topic, count)
    task = new_task(any_kafka, columns=("offset",), config={"max.partition.fetch.bytes": 8 << 20})
    sizes = [batch.num_rows for batch in read_ranges(task, of(topic, (0, 0, count)), pool=pool)]
    assert sum(sizes) == count
    assert max(sizes) == MAX_ROWS


def test_reader_does_not_wait_after_the_last_record(any_kafka: AnyKafka, topic: str, pool: ConsumerPool) -> None:
    filled(any_kafka, topic, 20, 2)
    # A broker would hold a fetch at the end of the log for longer than the test may take.
    waits = {"fetch.max.wait.ms": 600_000, "request.timeout.ms": 700_000, "connections.max.idle.ms": 800_000}
    task = new_task(any_kafka, config=waits)
    assert len(rows(read_ranges(task, of(topic, (0, 0, 20), (1, 0, 20)), pool=pool))) == 40


@pytest.mark.kafka
@pytest.mark.timeout(180)
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_empty_offsets_are_skipped(kafka: KafkaCluster, topic: str, pool: ConsumerPool, isolation: str) -> None:
    kafka.create_topic(topic)
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    for number in range(3):  # offsets 0 to 9 and a marker at 10, and so on
        producer.begin_transaction()
        for offset in range(11 * number, 11 * number + 10):
            producer.produce(topic, str(offset).encode())
        producer.flush(30)
        (producer.abort_transaction if number == 1 else producer.commit_transaction)(30)
    parts = [(0, 0, 10), (0, 22, 32)] if isolation == "read_committed" else [(0, 0, 10), (0, 11, 21), (0, 22, 32)]
    task = new_task(kafka, config={"isolation.level": isolation})
    everything = expected(*parts)
    for start in range(33):
        for end in {start + 1, start + 7, 33} & set(range(34)):
            within = [row for row in everything if start <= row[1] < end]
            assert rows(read_ranges(task, of(topic, (0, start, end)), pool=pool)) == within


def test_rows_outside_the_bounds_are_left_out(any_kafka: AnyKafka, topic: str, pool: ConsumerPool) -> None:
    any_kafka.create_topic(topic)
    producer = confluent_kafka.Producer({"bootstrap.servers": any_kafka.bootstrap_servers})
    for number in range(100):  # not in order of time
        producer.produce(topic, str(number).encode(), timestamp=1_000_000 + number * 37 % 100)
    assert producer.flush(30) == 0
    for first, last in ((20, 40), (None, 40), (20, None), (None, None), (200, None)):
        low, high = (None if bound is None else 1_000_000 + bound for bound in (first, last))
        task = new_task(any_kafka, columns=("offset",), bounds=Bounds(first_timestamp_ms=low, last_timestamp_ms=high))
        task = pickle.loads(pickle.dumps(task))
        found = [each for b in read_ranges(task, of(topic, (0, 0, 100)), pool=pool) for each in b["offset"].to_pylist()]
        times = {number: number * 37 % 100 for number in range(100)}
        assert found == [n for n, time in times.items() if (first or 0) <= time <= (99 if last is None else last)]


# --- the worker's consumers


def test_stream_continues_with_prefetched_records(
    any_kafka: AnyKafka, topic: str, pool: ConsumerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(any_kafka, topic, 600, 2)
    made: list[object] = []
    sought: list[object] = []
    real_init, real_seek = KafkaConsumer.__init__, KafkaConsumer.seek

    def init(self: Any, *topics: Any, **settings: Any) -> None:
        made.append(self)
        real_init(self, *topics, **settings)

    def seek(self: Any, *arguments: Any, **keywords: Any) -> None:
        sought.append(arguments)
        real_seek(self, *arguments, **keywords)

    monkeypatch.setattr(KafkaConsumer, "__init__", init)
    monkeypatch.setattr(KafkaConsumer, "seek", seek)
    task = new_task(any_kafka)
    for start in range(0, 600, 100):
        wanted = ((0, start, start + 100), (1, start, start + 100))
        assert sorted(rows(read_ranges(task, of(topic, *wanted), run="run", pool=pool))) == expected(*wanted)
        assert len(pool) == 1
    assert len(made) == 1
    assert len(sought) == 2  # at the beginning
    # A fetch is waiting for records that are appended now.
    produce(any_kafka, topic, {0: numbers(600, 50), 1: numbers(600, 50)})
    wanted = ((0, 600, 650), (1, 600, 620))
    assert sorted(rows(read_ranges(task, of(topic, *wanted), run="run", pool=pool))) == expected(*wanted)
    assert (len(made), len(sought)) == (1, 2)
    again = ((0, 0, 50), (1, 600, 650))
    assert sorted(rows(read_ranges(task, of(topic, *again), run="run", pool=pool))) == expected(*again)
    assert (len(made), len(sought)) == (1, 4)


def test_stream_skips_records_that_another_worker_read(
    any_kafka: AnyKafka, topic: str, pool: ConsumerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If they were fetched together with the range. Later records are fetched without them."""
    filled(any_kafka, topic, 1000)
    sought: list[int] = []
    real_seek = KafkaConsumer.seek

    def seek(self: Any, tp: TopicPartition, offset: int, **keywords: Any) -> None:
        sought.append(offset)
        real_seek(self, tp, offset, **keywords)

    monkeypatch.setattr(KafkaConsumer, "seek", seek)
    task = new_task(any_kafka)
    for start in (0, 300, 800):
        wanted = (0, start, start + 100)
        assert rows(read_ranges(task, of(topic, wanted), run="run", pool=pool)) == expected(wanted)
    assert sought == [0]
    assert rows(read_ranges(task, of(topic, (0, 900, 1000)), run="run", pool=pool)) == expected((0, 900, 1000))
    produce(any_kafka, topic, {0: numbers(1000, 50)})
    assert rows(read_ranges(task, of(topic, (0, 1020, 1050)), run="run", pool=pool)) == expected((0, 1020, 1050))
    assert sought == [0, 1020]


@pytest.mark.parametrize("is_there_before", [False, True])
@pytest.mark.parametrize("size_before", [100_000, 10])
def test_large_records_that_another_worker_read_are_not_fetched(
    any_kafka: AnyKafka, topic: str, pool: ConsumerPool, size_before: int, is_there_before: bool
) -> None:
    """Earlier records may have been as large, or their size may show only when they arrive."""
    any_kafka.create_topic(topic)
    produce(any_kafka, topic, {0: ["x" * size_before] * 20})
    large = {0: ["x" * 100_000] * 200}
    if is_there_before:
        produce(any_kafka, topic, large)
    task = new_task(any_kafka, columns=("offset",), config={"max.partition.fetch.bytes": 200_000})
    assert offsets(read_ranges(task, of(topic, (0, 0, 20)), run="run", pool=pool)) == list(range(20))
    (pooled,) = pool._idle
    before = pooled.bytes_and_records_read()[0]
    if not is_there_before:
        produce(any_kafka, topic, large)
    assert offsets(read_ranges(task, of(topic, (0, 215, 220)), run="run", pool=pool)) == list(range(215, 220))
    assert pool._idle == [pooled]
    # The wanted and the skipped records, each to the end of their responses. The topic has 20 MB.
    assert pooled.bytes_and_records_read()[0] - before < 4_000_000


def test_deletion_of_earlier_ranges_is_tolerated(any_kafka: AnyKafka, topic: str, pool: ConsumerPool) -> None:
    filled(any_kafka, topic, 1000)
    task = new_task(any_kafka, config={"max.partition.fetch.bytes": 500})
    assert rows(read_ranges(task, of(topic, (0, 0, 100)), run="run", pool=pool)) == expected((0, 0, 100))
    delete_records(any_kafka, topic, 0, before=800)
    assert rows(read_ranges(task, of(topic, (0, 900, 1000)), run="run", pool=pool)) == expected((0, 900, 1000))


def test_catching_up_stream_fetches_only_its_range(any_kafka: AnyKafka, topic: str) -> None:
    """Two workers get the partitions of each micro-batch in turn. A proxy counts bytes and connections."""
    partitions, per_batch, batches, size = 4, 500, 6, 1000
    any_kafka.create_topic(topic, partitions)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": any_kafka.bootstrap_servers, "batch.num.messages": 10, "enable.idempotence": True}
    )
    for number in range(per_batch * batches * 2):
        for partition in range(partitions):
            producer.produce(topic, f"{number:06}".encode() * (size // 6), partition=partition)
    assert producer.flush(30) == 0
    config = {"bootstrap.servers": any_kafka.proxied_bootstrap_servers, "max.partition.fetch.bytes": 8 << 20}
    task = new_task(any_kafka, columns=("offset",), config=config)
    pools = [ConsumerPool(), ConsumerPool()]
    counts: list[tuple[int, int]] = []
    with any_kafka.proxies() as proxies:
        try:
            for batch in range(batches):
                start = batch * per_batch
                for worker, pool in enumerate(pools):
                    mine = [(number, start, start + per_batch) for number in range(4) if (number + batch) % 2 == worker]
                    found = offsets(read_ranges(task, of(topic, *mine), "run", pool, ahead=False))
                    assert sorted(found) == sorted(offset for _, first, end in mine for offset in range(first, end))
                passed = list(proxies.values())
                counts.append((sum(each.response_bytes for each in passed), sum(each.accepted for each in passed)))
        finally:
            for pool in pools:
                pool.close()
    (first_bytes, first_connections), (last_bytes, last_connections) = counts[0], counts[-1]
    needed = partitions * per_batch * (batches - 1) * size
    assert needed <= last_bytes - first_bytes <= 1.1 * needed  # the first micro-batch learns the sizes of batches
    assert first_connections == last_connections


def test_batch_leaves_only_connections(any_kafka: AnyKafka, topic: str, pool: ConsumerPool) -> None:
    filled(any_kafka, topic, 100, 2)
    for partition in (0, 1, 0):
        assert len(rows(read_ranges(new_task(any_kafka), of(topic, (partition, 0, 50)), pool=pool))) == 50
        assert len(pool) == 1
    pooled = pool.acquire(new_task(any_kafka).consumer_config, {TopicPartition(topic, 0): None})
    assert pooled.consumer.assignment() == set()
    pool.release(pooled)


@pytest.mark.parametrize("run", [None, "run"])
def test_spark_may_stop_reading_early(any_kafka: AnyKafka, topic: str, pool: ConsumerPool, run: str | None) -> None:
    """A consumer is kept for the same run only, as its fetches are in flight."""
    filled(any_kafka, topic, 15_000)
    task = new_task(any_kafka)
    batches = read_ranges(task, of(topic, (0, 0, 15_000)), run, pool)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert len(pool) == (run is not None)
    assert rows(read_ranges(task, of(topic, (0, 0, 15_000)), run, pool)) == expected((0, 0, 15_000))
    assert len(pool) == 1


# --- topics that are created again


def id_of(kafka: AnyKafka, topic: str) -> UUID:
    """Return the topic's id."""
    with KafkaConsumer({"bootstrap.servers": kafka.bootstrap_servers}) as consumer:
        found = consumer.describe_topics(topics=[topic])[topic].topic_id
    assert found is not None
    return found


def create_again(kafka: AnyKafka, topic: str, values: list[str]) -> UUID:
    """Delete the topic and create one with its name; return its id."""
    kafka.delete_topic(topic)
    kafka.create_topic(topic)
    produce(kafka, topic, {0: values})
    return id_of(kafka, topic)


def with_id(ranges: list[OffsetRange], topic_id: UUID) -> list[OffsetRange]:
    return [each._replace(topic_id=topic_id) for each in ranges]


NEW = [f"new {number}" for number in range(300)]


@pytest.mark.parametrize("has_ids", [True, False])
@pytest.mark.parametrize("run", ["a restarted query", None])
def test_records_prefetched_by_an_earlier_run_are_not_used(
    any_kafka: AnyKafka, topic: str, pool: ConsumerPool, run: str | None, has_ids: bool
) -> None:
    """A stopped query leaves a consumer that has fetched past its last range. A batch has no run."""
    filled(any_kafka, topic, 300)
    task = new_task(any_kafka)
    assert rows(read_ranges(task, of(topic, (0, 0, 100)), "the stopped query", pool)) == expected((0, 0, 100))
    new_id = create_again(any_kafka, topic, NEW)
    wanted = of(topic, (0, 100, 300))
    found = rows(read_ranges(task, with_id(wanted, new_id) if has_ids else wanted, run, pool))
    assert found == [(0, offset, NEW[offset]) for offset in range(100, 300)]


def test_records_fetched_from_a_deleted_topic_are_not_used(any_kafka: AnyKafka, topic: str, pool: ConsumerPool) -> None:
    """Even by the same run, which continues with the new topic if failOnDataLoss is false."""
    filled(any_kafka, topic, 300)
    task, old_id = new_task(any_kafka), id_of(any_kafka, topic)
    first = with_id(of(topic, (0, 0, 100)), old_id)
    assert rows(read_ranges(task, first, "run", pool)) == expected((0, 0, 100))
    second = with_id(of(topic, (0, 100, 300)), create_again(any_kafka, topic, NEW))
    found = rows(read_ranges(task, second, "run", pool))
    assert found == [(0, offset, NEW[offset]) for offset in range(100, 300)]


@pytest.mark.parametrize("is_known", [False, True], ids=["new consumer", "consumer that has read the old topic"])
def test_range_of_a_recreated_topic_is_lost(
    any_kafka: AnyKafka,
    topic: str,
    pool: ConsumerPool,
    is_known: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No row of the new topic is returned, and none of the old one that was fetched after it was deleted."""
    filled(any_kafka, topic, 300)
    old_id = id_of(any_kafka, topic)
    task = new_task(any_kafka)
    if is_known:
        assert rows(read_ranges(task, of(topic, (0, 0, 300)), pool=pool)) == expected((0, 0, 300))
    new_id = create_again(any_kafka, topic, NEW)
    lost = with_id(of(topic, (0, 100, 300)), old_id)
    with pytest.raises(
        IllegalStateError,
        match=rf"^Records are lost: {topic}-0 cannot be read from offset 100 up to 300, as the topic was deleted and "
        rf"created again \(.*{old_id} and is {new_id} now.* load again",
    ):
        list(read_ranges(task, lost, pool=pool))
    with caplog.at_level(logging.WARNING, "pykclient"):
        assert rows(read_ranges(new_task(any_kafka, fail_on_data_loss=False), lost, pool=pool)) == []
    assert "all of them are skipped, as failOnDataLoss is false" in caplog.text
    kept = with_id(of(topic, (0, 0, 300)), new_id)
    assert rows(read_ranges(task, kept, pool=pool)) == [(0, offset, NEW[offset]) for offset in range(300)]


class Context:
    """Stands in for Spark's TaskContext."""

    attempt = 0

    @classmethod
    def get(cls) -> Any:
        return cls()

    def partitionId(self) -> int:
        return 0

    def attemptNumber(self) -> int:
        return self.attempt


def test_another_attempt_gets_a_new_consumer(
    any_kafka: AnyKafka, topic: str, pool: ConsumerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark import taskcontext

    monkeypatch.setattr(taskcontext, "TaskContext", Context)
    filled(any_kafka, topic, 10)
    task = new_task(any_kafka)

    def idle() -> object:
        assert len(rows(read_ranges(task, of(topic, (0, 0, 10)), run="run", pool=pool))) == 10
        (pooled,) = pool._idle
        return pooled

    first = idle()
    assert idle() is first
    monkeypatch.setattr(Context, "attempt", 1)
    assert idle() is not first


def test_the_heap_is_frozen_once() -> None:
    program = """
import gc, sys
from pykclient.spark.worker import freeze_heap_once
assert "pyspark" not in sys.modules
freeze_heap_once()
count = gc.get_freeze_count()
kept = [[] for _ in range(1000)]
freeze_heap_once()
print(count > 1000, gc.get_freeze_count() == count)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["True", "True"]


def test_heap_is_frozen_only_if_requested(monkeypatch: pytest.MonkeyPatch, pool: ConsumerPool) -> None:
    calls: list[str] = []
    monkeypatch.setattr(range_reader, "freeze_heap_once", lambda: calls.append("freeze"))
    for freeze_heap in (False, True):
        assert list(read_ranges(ReadTask({}, ("value",), freeze_heap=freeze_heap), [], pool=pool)) == []
    assert calls == ["freeze"]
    assert gc.isenabled()


def test_secrets_are_not_shown() -> None:
    task = ReadTask({"sasl.jaas.config": "hush", "bootstrap.servers": "b"}, ("value",))
    assert "hush" not in f"{task!r} {task}"


@pytest.mark.parametrize("release", ["2.7", "2.8"])
def test_ranges_are_read_by_name_without_topic_ids(release: str, topic: str, pool: ConsumerPool) -> None:
    """Kafka 2.7 has none, and 2.8 does not fetch by them. Then ranges are read by the names of their topics."""
    with EmbeddedCluster(brokers=1, release=release) as cluster:
        cluster.create_topic(topic)
        servers = cluster.bootstrap_servers
        with KafkaProducer(bootstrap_servers=servers) as producer:
            for number in range(20):
                producer.send(topic, str(number).encode())
        with KafkaConsumer(bootstrap_servers=servers) as consumer:
            topic_id = consumer.describe_topics(topics=[topic])[topic].topic_id
        assert (topic_id is None) == (release == "2.7")
        task = ReadTask({"bootstrap.servers": servers, "auto.offset.reset": "none"}, tuple(COLUMNS), 30_000)
        for run in (None, "run", "run"):
            wanted = [each._replace(topic_id=topic_id) for each in of(topic, (0, 5, 20))]
            assert rows(read_ranges(task, wanted, run, pool)) == expected((0, 5, 20))


# --- what can go wrong


def test_aged_out_records_are_reported_as_loss(
    any_kafka: AnyKafka, topic: str, pool: ConsumerPool, caplog: pytest.LogCaptureFixture
) -> None:
    filled(any_kafka, topic, 100)
    delete_records(any_kafka, topic, 0, before=40)
    with pytest.raises(
        IllegalStateError, match=rf"{topic}-0 cannot be read from offset 10 up to 60.*from 40 up to 100.* load again"
    ):
        list(read_ranges(new_task(any_kafka), of(topic, (0, 10, 60)), pool=pool))
    with pytest.raises(IllegalStateError, match=r"from 40 up to 100\. They were deleted by retention"):
        list(read_ranges(new_task(any_kafka), of(topic, (0, 10, 60)), "a stream", pool))
    assert len(pool) == 0
    going_on = new_task(any_kafka, fail_on_data_loss=False)
    with caplog.at_level(logging.WARNING, "pykclient"):
        assert rows(read_ranges(going_on, of(topic, (0, 10, 60)), pool=pool)) == expected((0, 40, 60))
    assert "reading continues at offset 40, as failOnDataLoss is false" in caplog.text
    with caplog.at_level(logging.WARNING, "pykclient"):
        assert rows(read_ranges(going_on, of(topic, (0, 10, 30)), pool=pool)) == []
        assert rows(read_ranges(going_on, of(topic, (0, 200, 230)), pool=pool)) == []
    assert caplog.text.count("all of them are skipped") == 2


def test_stream_continues_after_skipped_offsets(any_kafka: AnyKafka, topic: str, pool: ConsumerPool) -> None:
    """The log does not have the planned offsets yet, and then has them and more."""
    filled(any_kafka, topic, 5)
    task = new_task(any_kafka, fail_on_data_loss=False)
    assert rows(read_ranges(task, of(topic, (0, 10, 30)), run="run", pool=pool)) == []
    produce(any_kafka, topic, {0: numbers(5, 45)})
    assert rows(read_ranges(task, of(topic, (0, 30, 50)), run="run", pool=pool)) == expected((0, 30, 50))


def test_records_aged_out_during_the_read_are_reported(any_kafka: AnyKafka, topic: str, pool: ConsumerPool) -> None:
    filled(any_kafka, topic, 3000)
    settings = {"max.partition.fetch.bytes": 2000}
    for fail in (True, False):
        task = new_task(any_kafka, config=settings, fail_on_data_loss=fail)
        start = 0 if fail else 2900
        batches = read_ranges(task, of(topic, (0, start, 3000)), pool=pool)
        first = rows(iter([next(batches)]))
        assert first[0][1] == start
        delete_records(any_kafka, topic, 0, before=2900 if fail else 2990)
        if fail:
            with pytest.raises(IllegalStateError, match="Records are lost"):
                list(batches)
        else:
            # Records that were fetched before may be returned without a gap. The rest begins with the log.
            offsets = [row[1] for row in first + rows(batches)]
            assert offsets == sorted(set(offsets))
            assert offsets[-10:] == list(range(2990, 3000))


def test_late_loss_report_delivers_no_earlier_records(
    any_kafka: AnyKafka, topic: str, pool: ConsumerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The response to a request for one range may arrive when the consumer reads another."""
    filled(any_kafka, topic, 50)
    told = [LogTruncationError("late", None, {TopicPartition(topic, 0): 5})]
    poll_arrow = KafkaConsumer.poll_arrow

    def poll(*args: Any, **kwargs: Any) -> pa.RecordBatch:
        if told:
            raise told.pop()
        return poll_arrow(*args, **kwargs)

    monkeypatch.setattr(KafkaConsumer, "poll_arrow", poll)
    task = new_task(any_kafka, fail_on_data_loss=False)
    assert rows(read_ranges(task, of(topic, (0, 20, 40)), pool=pool)) == expected((0, 20, 40))
    assert not told


def test_end_beyond_the_log_is_reported_as_loss(any_kafka: AnyKafka, topic: str, pool: ConsumerPool) -> None:
    filled(any_kafka, topic, 20)
    task = new_task(any_kafka, poll_timeout_ms=1000)
    with pytest.raises(IllegalStateError, match=r"from offset 20 up to 30.*from 0 up to 20"):
        list(read_ranges(task, of(topic, (0, 0, 30)), pool=pool))
    going_on = new_task(any_kafka, poll_timeout_ms=1000, fail_on_data_loss=False)
    assert rows(read_ranges(going_on, of(topic, (0, 0, 30)), pool=pool)) == expected((0, 0, 20))


@pytest.mark.kafka
@pytest.mark.timeout(180)
@pytest.mark.parametrize("timeout_ms", [1000, 1], ids=["", "no fetch is answered in time"])
def test_open_transaction_is_not_lost(kafka: KafkaCluster, topic: str, pool: ConsumerPool, timeout_ms: int) -> None:
    kafka.create_topic(topic)
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"0")
    producer.flush(30)
    settings = {"isolation.level": "read_committed"}
    task = new_task(kafka, config=settings, poll_timeout_ms=timeout_ms, fail_on_data_loss=False)
    with pytest.raises(
        KafkaTimeoutError, match=rf"from offset 0 up to 1: no records arrived for {timeout_ms} ms.*still open"
    ):
        list(read_ranges(task, of(topic, (0, 0, 1)), pool=pool))
    producer.abort_transaction(30)


def test_deleted_topic_is_reported_as_loss(any_kafka: AnyKafka, topic: str, pool: ConsumerPool) -> None:
    filled(any_kafka, topic, 20, 2)
    any_kafka.delete_topic(topic)
    wanted = of(topic, (0, 0, 20), (1, 0, 20))
    with pytest.raises(IllegalStateError, match=rf"{topic}-0 cannot be read.*does not exist"):
        list(read_ranges(new_task(any_kafka, poll_timeout_ms=500), wanted, pool=pool))
    going_on = new_task(any_kafka, poll_timeout_ms=500, fail_on_data_loss=False)
    assert list(read_ranges(going_on, wanted, pool=pool)) == []


def test_timeout_error_shows_progress(any_cluster: AnyKafka, topic: str, pool: ConsumerPool) -> None:
    filled(any_cluster, topic, 20)
    task = new_task(any_cluster, poll_timeout_ms=1000, config={"reconnect.backoff.max.ms": 100})
    leader = any_cluster.leader_of(topic, 0)
    assert len(rows(read_ranges(task, of(topic, (0, 0, 10)), pool=pool))) == 10
    for broker in any_cluster.brokers.values():
        broker.pause()
    with pytest.raises(
        KafkaTimeoutError, match=rf"{topic}-0 cannot be read .* up to 20: no records arrived for 1000 ms"
    ):
        list(read_ranges(task, of(topic, (0, 10, 20)), pool=pool))
    assert leader in any_cluster.brokers
    assert len(pool) == 0


def test_killed_broker_costs_only_retries(any_cluster: AnyKafka, topic: str, pool: ConsumerPool) -> None:
    filled(any_cluster, topic, 4000, config={"min.insync.replicas": 1})
    task = new_task(any_cluster, poll_timeout_ms=60_000, config={"max.partition.fetch.bytes": 4000})
    batches = read_ranges(task, of(topic, (0, 0, 4000)), pool=pool)
    found = rows(iter([next(batches)]))
    assert len(found) < 2000
    leader = any_cluster.leader_of(topic, 0)
    any_cluster.brokers[leader].kill()
    found += rows(batches)
    assert found == expected((0, 0, 4000))
    eventually(lambda: any_cluster.leader_of(topic, 0) not in (-1, leader), 30, "another leader")
