"""Many threads on one producer or one consumer, for a second each.

Missing locks show here, above all without the GIL (`python3.14t`). This module therefore imports nothing that would
enable the GIL again.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykclient import KafkaConsumer, KafkaProducer, TopicPartition
from pykclient.errors import ConcurrentModificationError, KafkaError
from pykclient.testing import EmbeddedCluster
from pykclient.types import RecordMetadata

PARTITIONS = 6
THREADS = 6
ROWS = 50
SECONDS = 1.0

#: By value: partition and offset.
Places = dict[bytes, tuple[int, int]]

NewProducer = Callable[..., KafkaProducer[Any, Any]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as cluster:
        yield cluster


@pytest.fixture
def new_producer(cluster: EmbeddedCluster) -> Iterator[NewProducer]:
    """A function that makes producers with small batches and little memory, so that threads contend for every lock."""
    made: list[KafkaProducer[Any, Any]] = []

    def make(**settings: Any) -> KafkaProducer[Any, Any]:
        small: dict[str, Any] = {"batch_size": 1000, "buffer_memory": 40_000, "linger_ms": 1}
        made.append(KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **{**small, **settings}))
        return made[-1]

    yield make
    for producer in made:
        producer.close(0)


@pytest.fixture(autouse=True)
def hasty_switches() -> Iterator[None]:
    """Switch threads a thousand times as often as usual (with the GIL)."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(before)


def run_all(*works: Callable[[], object]) -> None:
    """Run each in its own thread, all started at the same time; raise the first error."""
    errors: list[BaseException] = []
    start = threading.Barrier(len(works))

    def run(work: Callable[[], object]) -> None:
        try:
            start.wait(10)
            work()
        except BaseException as error:  # noqa: BLE001 - raised below, by the test's thread
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


def read(cluster: EmbeddedCluster, topic: str) -> Places:
    """Return the partition and offset of every record, by its value."""
    found: Places = {}
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        deadline = time.monotonic() + 60
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            assert time.monotonic() < deadline, "records are missing"
            for records in consumer.poll(200).values():
                for record in records:
                    assert record.value is not None
                    assert record.value not in found, "twice"
                    found[record.value] = (record.partition, record.offset)
    return found


class Sender:
    """One thread's records, each with a unique value, and their results from the producer. Thread: owner, io."""

    def __init__(self, producer: KafkaProducer[Any, Any], topic: str, name: int) -> None:
        self._producer = producer
        self._topic = topic
        self._name = name
        self._random = random.Random(name)
        self._next = 0
        self.futures: list[tuple[bytes, Any]] = []
        self.rows: list[tuple[list[bytes], Any]] = []
        self.called: list[tuple[bytes, RecordMetadata | None, Exception | None]] = []
        self.refusal = ""

    def value(self) -> bytes:
        self._next += 1
        return b"%d %d" % (self._name, self._next)

    def send(self) -> None:
        """Send one record, or several rows, by one of the available methods."""
        kind = self._random.randrange(20)
        if kind == 0:
            values = [self.value() for _ in range(ROWS)]
            keys = None if self._random.randrange(2) else [b"%d" % (row % 7) for row in range(ROWS)]
            self.rows.append((values, self._producer.send_batch(self._topic, values, key=keys)))
            return
        value = self.value()
        arguments: dict[str, Any] = {}
        if kind < 8:
            arguments["key"] = b"%d" % self._random.randrange(40)
        elif kind < 10:
            arguments["partition"] = self._random.randrange(PARTITIONS)
        if kind % 3 == 0:
            arguments["headers"] = [("name", b"value"), ("none", None)]
        if kind % 2:

            def called(error: Exception | None, metadata: RecordMetadata | None) -> None:
                self.called.append((value, metadata, error))

            arguments["on_delivery"] = called
        self.futures.append((value, self._producer.send(self._topic, value, **arguments)))

    def send_until_closed(self) -> None:
        try:
            while True:
                self.send()
        except KafkaError as error:
            self.refusal = str(error)

    def outcome(self) -> tuple[Places, set[bytes]]:
        """Return the places of acknowledged records, and the values of failed ones."""
        sent: Places = {}
        failed: set[bytes] = set()
        for value, future in self.futures:
            assert future.done()
            if future.failed():
                failed.add(value)
            else:
                metadata = future.get(0)
                sent[value] = (metadata.partition, metadata.offset)
        for values, future in self.rows:
            assert future.done()
            for each in future.slices:
                for index, row in enumerate(each.rows):
                    if each.error is None:
                        sent[values[row]] = (each.partition, each.base_offset + index)
                    else:
                        failed.add(values[row])
        assert len(sent) + len(failed) == len(self.futures) + sum(len(values) for values, _ in self.rows)
        return sent, failed


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_many_threads_share_a_producer(cluster: EmbeddedCluster, new_producer: NewProducer, codec: str) -> None:
    """Each record is written once, at the offset that its future reports, and in the order of its thread."""
    topic = f"many-{codec}"
    cluster.create_topic(topic, partitions=PARTITIONS)
    producer = new_producer(compression_type=codec)
    senders = [Sender(producer, topic, name) for name in range(THREADS)]
    deadline = time.monotonic() + SECONDS

    def until_deadline(work: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            while time.monotonic() < deadline:
                work()

        return run

    run_all(
        *(until_deadline(sender.send) for sender in senders),
        until_deadline(lambda: producer.flush(20)),
        until_deadline(producer.metrics),
        until_deadline(lambda: producer.partitions_for(topic)),
    )
    producer.close()
    written = read(cluster, topic)
    said: Places = {}
    for sender in senders:
        sent, failed = sender.outcome()
        assert not failed
        said |= sent
        assert len({value for value, _, _ in sender.called}) == len(sender.called)
        for value, metadata, error in sender.called:
            assert error is None
            assert metadata is not None
            assert said[value] == (metadata.partition, metadata.offset)
        # Each partition has one thread's records in the order in which the thread sent them.
        by_partition: dict[int, list[tuple[int, int]]] = {}
        for value, future in sender.futures:
            metadata = future.get(0)
            by_partition.setdefault(metadata.partition, []).append((metadata.offset, int(value.split()[1])))
        for placed in by_partition.values():
            assert placed == sorted(placed)
    assert written == said


def test_headers_may_change_during_send(cluster: EmbeddedCluster, new_producer: NewProducer) -> None:
    """Headers may change between being measured and being written, while the sender waits for the queue's lock."""
    cluster.create_topic("changing", partitions=1)
    producer = new_producer(linger_ms=10_000, batch_size=100_000, buffer_memory=1_000_000)
    producer.send("changing", b"first")
    queue = producer._components.accumulator._topics["changing"].queues[0]
    headers = [("name", b"value")]
    begun = threading.Event()

    def send() -> None:
        begun.set()
        producer.send("changing", b"second", headers=headers)

    with queue.lock:
        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        begun.wait(10)
        time.sleep(0.1)  # until the thread waits for the lock; if too short, the test passes untested
        headers.append(("another", bytes(90_000)))
    thread.join(10)
    producer.close()
    with KafkaConsumer(
        "changing", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        found = [next(consumer).headers for _ in range(2)]
    assert found in ([[], headers[:1]], [[], headers])


def test_close_under_load_resolves_each_record(cluster: EmbeddedCluster, new_producer: NewProducer) -> None:
    """Every accepted record is written or failed, a failed record is not in the log, and no thread hangs."""
    topic = "closed"
    cluster.create_topic(topic, partitions=PARTITIONS)
    for round_, timeout_s in enumerate((None, 0, 0.05, None, 0)):
        producer = new_producer()
        senders = [Sender(producer, topic, 100 * round_ + name) for name in range(1, THREADS)]

        def close(producer: KafkaProducer[Any, Any] = producer, timeout_s: float | None = timeout_s) -> None:
            time.sleep(0.15)
            producer.close(timeout_s)

        run_all(close, *(sender.send_until_closed for sender in senders))
        written = read(cluster, topic)
        for sender in senders:
            assert "closed" in sender.refusal
            sent, failed = sender.outcome()
            assert {value: written.get(value) for value in sent} == sent
            if timeout_s is None:  # failed: rows of a `send_batch` that close() interrupted
                assert len(failed) < ROWS
                assert not failed & written.keys()


def test_consumer_refuses_a_second_thread(cluster: EmbeddedCluster) -> None:
    """A second thread gets an error; the first thread's call is not affected."""
    topic = "guarded"
    count = 4000
    cluster.create_topic(topic, partitions=PARTITIONS)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=5) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
    consumer: KafkaConsumer[Any, Any] = KafkaConsumer(
        topic,
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        group_id="guarded",
        max_poll_records=7,
    )
    found: list[int] = []
    seen = threading.Lock()
    refused: list[int] = []
    deadline = time.monotonic() + 60

    def is_done() -> bool:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
        return len(found) >= count

    def poll() -> None:
        while not is_done():
            try:
                records = consumer.poll(20)
            except ConcurrentModificationError:
                refused.append(1)
                time.sleep(0.0002)  # gives the CPU to the other threads
                continue
            with seen:
                found.extend(int(record.value or b"") for each in records.values() for record in each)

    def look() -> None:
        while not is_done():
            try:
                consumer.assignment()
                consumer.metrics()
                consumer.commit_async()
            except ConcurrentModificationError:
                refused.append(1)
                time.sleep(0.0002)

    run_all(poll, poll, poll, look)
    assert sorted(found) == list(range(count))
    assert refused
    consumer.close()
