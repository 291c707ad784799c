"""Records every write and verifies the log: each record is there once, in order, and none is lost.

    with ProducerWorkload(cluster.bootstrap_servers, topic, partitions=3) as load:
        load.await_acknowledged(1000)      # at full speed
        ...                                # inject a fault
        load.await_acknowledged_more(1000)  # the producer continues
    assert load.failures == []
    verify(cluster.bootstrap_servers, load)

    with ConsumerWorkload(cluster.bootstrap_servers, topic, group_id=group) as reader:
        ...
        reader.await_all_of(load)

confluent-kafka reads the log back; it shares no code with the client under test.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Self

import confluent_kafka

from pykclient import KafkaConsumer, KafkaProducer
from pykclient.consumer.values import ConsumerRebalanceListener
from pykclient.errors import KafkaTimeoutError
from pykclient.producer.future import FutureRecordMetadata
from pykclient.types import RecordMetadata, TopicPartition
from tests.support.wait import eventually


class Acknowledged(NamedTuple):
    """A record that the producer reported as written, and its offset."""

    partition: int
    number: int
    offset: int


class ProducerWorkload:
    """Sends numbered records to every partition in turn, from a thread of its own, until the block ends.

    A record's value is ``partition:number`` and some padding; numbers rise by one for each partition. At most ``ahead``
    records are unacknowledged at a time, so the workload neither floods nor idles. Acknowledgements must arrive in the
    order of sending for each partition, unless not ``ordered``. Settings go to the producer.

    Leaving the block stops the sending and closes the producer, which sends the rest. Then ``acknowledged`` and
    ``failures`` are complete, and together they are all records that were sent.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        partitions: int = 1,
        *,
        ahead: int = 500,
        size: int = 200,
        ordered: bool = True,
        **settings: Any,
    ) -> None:
        self.topic = topic
        self.partitions = partitions
        self.acknowledged: list[Acknowledged] = []
        self.failures: list[tuple[int, int, Exception]] = []
        #: Callbacks that came out of order; must stay empty.
        self.disorder: list[str] = []
        self.sent = 0
        self._size = size
        self._ordered = ordered
        self._settings = {
            "linger_ms": 2,
            "batch_size": 4096,
            "retry_backoff_ms": 20,
            "reconnect_backoff_ms": 20,
            "reconnect_backoff_max_ms": 200,
            **settings,
        }
        self.producer: KafkaProducer[Any, Any] = KafkaProducer(bootstrap_servers=bootstrap_servers, **self._settings)
        self._slots = threading.Semaphore(ahead)
        self._stop = threading.Event()
        self._last = [-1] * partitions
        self._acknowledged_on = [0] * partitions
        self._pause_s = 0.0
        self._thread = threading.Thread(target=self._run, name="producer-workload", daemon=True)
        self._crash: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        self.stop()
        pool = self._pool() if error_type is None else None
        self.producer.close(60.0 if error_type is None else 0.0)
        if error_type is not None:
            return
        if self._crash is not None:
            raise self._crash
        assert pool == "full", pool
        assert len(self.acknowledged) + len(self.failures) == self.sent, "some records got no result"
        assert not self.disorder, self.disorder[:5]

    def stop(self) -> None:
        """Stop sending."""
        self._stop.set()
        self._slots.release()
        if self._thread.ident is not None:
            self._thread.join(70.0)
            assert not self._thread.is_alive(), "send() hangs"

    def _pool(self) -> str:
        """Return ``full`` once all records are done and all memory is returned, or what is missing after a while."""
        self.producer.flush(60.0)

        try:
            eventually(lambda: is_full(self.producer), 35.0)
        except AssertionError:
            return f"{missing_memory(self.producer)} bytes of buffer.memory did not come back"
        return "full"

    def _run(self) -> None:
        try:
            for number in range(10_000_000):
                for partition in range(self.partitions):
                    self._slots.acquire()
                    if self._stop.is_set():
                        return
                    self._send(partition, number)
                if self._pause_s:
                    self._stop.wait(self._pause_s)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test must hear of it
            self._crash = error

    def _send(self, partition: int, number: int) -> None:
        value = b"%d:%d:" % (partition, number)

        def on_delivery(error: Exception | None, metadata: RecordMetadata) -> None:
            self._slots.release()
            if self._ordered and number <= self._last[partition]:
                self.disorder.append(f"result {number} came after {self._last[partition]} on partition {partition}")
            self._last[partition] = number
            if error is not None:
                self.failures.append((partition, number, error))
            else:
                self.acknowledged.append(Acknowledged(partition, number, metadata.offset))
                self._acknowledged_on[partition] += 1

        self.producer.send(self.topic, value.ljust(self._size, b"."), partition=partition, on_delivery=on_delivery)
        self.sent += 1

    @contextlib.contextmanager
    def gently(self) -> Iterator[None]:
        """Slow down to 50 records per second and partition, for example while a broker starts."""
        self._pause_s = 0.02
        try:
            yield
        finally:
            self._pause_s = 0.0

    def await_acknowledged(self, count: int, timeout_s: float = 30.0) -> None:
        def enough() -> bool:
            assert self._crash is None, repr(self._crash)
            return len(self.acknowledged) >= count

        try:
            eventually(enough, timeout_s)
        except AssertionError as error:
            raise AssertionError(
                f"{len(self.acknowledged)} of {count} acknowledged after {timeout_s} s, "
                f"{len(self.failures)} failed ({self.failures[:1]}), {self.sent} sent; {error}"
            ) from None

    def await_acknowledged_more(self, count: int, timeout_s: float = 30.0) -> None:
        """Wait until ``count`` more records are acknowledged."""
        self.await_acknowledged(len(self.acknowledged) + count, timeout_s)

    def await_every_partition(self, count: int = 20, timeout_s: float = 30.0) -> None:
        """Wait until each partition has ``count`` more acknowledgements."""
        goals = [acknowledged + count for acknowledged in self._acknowledged_on]

        def enough() -> bool:
            return all(acknowledged >= goal for acknowledged, goal in zip(self._acknowledged_on, goals, strict=True))

        eventually(enough, timeout_s, f"{count} more acknowledgements on each partition")


def missing_memory(producer: KafkaProducer[Any, Any]) -> float:
    """Return the bytes of buffer.memory that are in use."""
    values = producer.metrics()["producer-metrics"]
    return float(values["buffer-total-bytes"] - values["buffer-available-bytes"])


def is_full(producer: KafkaProducer[Any, Any]) -> bool:
    """Return whether all memory is returned."""
    return missing_memory(producer) == 0


def delivered(producer: KafkaProducer[Any, Any], topic: str, value: bytes) -> RecordMetadata:
    """Send a record and return its metadata; retry if ``max.block.ms`` was too short on a busy machine."""
    taken: list[FutureRecordMetadata] = []

    def take() -> bool:
        with contextlib.suppress(KafkaTimeoutError):
            taken.append(producer.send(topic, value))
        return bool(taken)

    eventually(take, 30.0, f"{topic} takes a record", every_s=0)
    return taken[0].get(30)


class Written(NamedTuple):
    """A record in the log."""

    offset: int
    value: bytes


def read_back(bootstrap_servers: str, topic: str, partitions: int = 1) -> dict[int, list[Written]]:
    """Return the whole log, read with confluent-kafka."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "read-back",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "log_level": 0,
        }
    )
    log: dict[int, list[Written]] = {partition: [] for partition in range(partitions)}
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in log])
        ends: set[int] = set()
        silent = 0
        while len(ends) < partitions:
            messages = consumer.consume(10_000, 1.0)
            silent = 0 if messages else silent + 1
            assert silent < 30, f"{topic} cannot be read back: ends of {sorted(ends)} only"
            for message in messages:
                error = message.error()
                partition, offset, value = message.partition(), message.offset(), message.value()
                assert partition is not None
                if error is None:
                    assert offset is not None
                    assert value is not None
                    log[partition].append(Written(offset, value))
                elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    ends.add(partition)
                else:
                    raise AssertionError(error)
    finally:
        consumer.close()
    return log


def verify(bootstrap_servers: str, *loads: ProducerWorkload, exactly_once: bool = True) -> dict[int, list[Written]]:
    """Check that every acknowledged record is at its offset, once, and in the order of sending; return the log.

    With ``exactly_once``, no record is in the log twice, acknowledged or not. Each workload must have had its own
    topic.
    """
    log: dict[int, list[Written]] = {}
    for load in loads:
        log = read_back(bootstrap_servers, load.topic, load.partitions)
        for partition, records in log.items():
            mine = [record for record in load.acknowledged if record.partition == partition]
            check_partition(f"{load.topic}-{partition}", partition, records, mine, exactly_once=exactly_once)
    return log


def check_partition(
    name: str,
    partition: int,
    log: Sequence[Written],
    acknowledged: Sequence[Acknowledged],
    *,
    exactly_once: bool = True,
) -> None:
    """Verify one partition: compare ``log`` with what its producer was told."""
    at = {record.offset: _number(record.value, partition) for record in log}
    lost = [record for record in acknowledged if at.get(record.offset) != record.number]
    assert not lost, f"{name}: {len(lost)} of {len(acknowledged)} acknowledged records are not there: {lost[:5]}"
    assert len({record.number for record in acknowledged}) == len(acknowledged), f"{name}: acknowledged twice"
    if exactly_once:
        for before, after in itertools.pairwise(at.values()):
            assert after > before, f"{name}: {after} comes after {before}: {list(at.values())[:100]}"


def _number(value: bytes, partition: int) -> int:
    where, number, _ = value.split(b":", 2)
    assert int(where) == partition, f"a record for partition {int(where)} is in {partition}"
    return int(number)


class Session(NamedTuple):
    """The records that a member read from one partition between its assignment and its revocation."""

    partition: int
    offsets: list[int]


class ConsumerWorkload(ConsumerRebalanceListener):
    """A group member that polls in a thread of its own until the block ends.

    It checks each record: within one assignment of a partition, offsets must not repeat, and must follow each other
    without a gap if ``contiguous`` (the topic has no control records).
    """

    def __init__(self, bootstrap_servers: str, topic: str, *, on_poll: Any = None, **settings: Any) -> None:
        self.topic = topic
        self.sessions: list[Session] = []
        self.wrong: list[str] = []
        self.polls = 0
        self.cpu_s = 0.0
        self.assigned: set[TopicPartition] = set()
        self._current: dict[int, Session] = {}
        self._on_poll: Callable[[Any], None] | None = on_poll
        self._stop = threading.Event()
        self._crash: BaseException | None = None
        self.consumer: KafkaConsumer[Any, Any] = KafkaConsumer(
            bootstrap_servers=bootstrap_servers,
            **{
                "auto_offset_reset": "earliest",
                "session_timeout_ms": 6000,
                "heartbeat_interval_ms": 300,
                "auto_commit_interval_ms": 200,
                "retry_backoff_ms": 20,
                "reconnect_backoff_ms": 20,
                "reconnect_backoff_max_ms": 200,
                **settings,
            },
        )
        self._thread = threading.Thread(target=self._run, name=f"consumer-workload-{topic}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        self._stop.set()
        self._thread.join(60.0)
        assert not self._thread.is_alive(), "poll() hangs"
        self.consumer.close(timeout_ms=10_000)
        if error_type is None:
            self.check()

    def _run(self) -> None:
        try:
            self.consumer.subscribe([self.topic], listener=self)
            while not self._stop.is_set():
                for tp, records in self.consumer.poll(timeout_ms=100).items():
                    self._note(tp, [record.offset for record in records])
                    for record in records:
                        _number(record.value or b"", tp.partition)
                if self._on_poll is not None:
                    self._on_poll(self.consumer)
                self.polls += 1
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test must hear of it
            self._crash = error

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        for tp in assigned:
            self._current[tp.partition] = Session(tp.partition, [])
            self.sessions.append(self._current[tp.partition])
        self.assigned |= assigned

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        for tp in revoked:
            self._current.pop(tp.partition, None)
        self.assigned -= revoked

    def _note(self, tp: TopicPartition, offsets: list[int]) -> None:
        session = self._current.get(tp.partition)
        if session is None:
            self.wrong.append(f"records of {tp}, which is not assigned")
            return
        seen = session.offsets
        if seen and offsets[0] != seen[-1] + 1:
            self.wrong.append(f"{tp}: {offsets[0]} follows {seen[-1]}")
        if offsets != list(range(offsets[0], offsets[0] + len(offsets))):
            self.wrong.append(f"{tp}: a gap in {offsets[:20]}")
        seen.extend(offsets)

    def check(self) -> None:
        if self._crash is not None:
            raise self._crash
        assert not self.wrong, self.wrong[:5]

    def read(self) -> dict[int, set[int]]:
        """The offsets read, by partition."""
        read: dict[int, set[int]] = defaultdict(set)
        for session in list(self.sessions):
            read[session.partition].update(session.offsets[:])
        return read

    @property
    def count(self) -> int:
        return sum(len(session.offsets) for session in list(self.sessions))

    def await_more(self, count: int, timeout_s: float = 30.0) -> None:
        """Wait until ``count`` more records are read."""
        goal = self.count + count

        def enough() -> bool:
            self.check()
            return self.count >= goal

        try:
            eventually(enough, timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{self.count} of {goal} records read; assigned: {self.assigned}; {error}") from None

    def await_reached(self, log: dict[int, list[Written]], *others: ConsumerWorkload, timeout_s: float = 30.0) -> None:
        """Wait until this member and ``others`` together have read the whole log."""

        def missing() -> dict[int, set[int]]:
            readers = [reader.read() for reader in (self, *others)]
            left = {
                partition: {record.offset for record in records}.difference(
                    *(read.get(partition, ()) for read in readers)
                )
                for partition, records in log.items()
            }
            return {partition: offsets for partition, offsets in left.items() if offsets}

        def all_read() -> bool:
            for reader in (self, *others):
                reader.check()
            return not missing()

        try:
            eventually(all_read, timeout_s, every_s=0.1)
        except AssertionError as error:
            left = {partition: (len(offsets), min(offsets)) for partition, offsets in missing().items()}
            raise AssertionError(f"not read (partition: number, first): {left}; {error}") from None
