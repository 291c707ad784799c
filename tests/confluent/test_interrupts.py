"""Signal handlers that raise at any place of confluent-kafka's shape: nothing is lost, doubled, or waits for ever."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

import pykclient.confluent
from pykclient.clock import SYSTEM_CLOCK
from pykclient.confluent import Consumer, KafkaError, Message, Producer, ShareConsumer, TopicPartition
from pykclient.confluent.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from pykclient.confluent.events import Events
from pykclient.testing import EmbeddedCluster
from pykclient.types import TopicPartition as Native
from tests.support.interrupts import Interrupted, one_place_in, places

_PATIENCE_S = 30.0
_UNDER = str(Path(pykclient.confluent.__file__).parent)
#: The functions that store what the inner consumer's ``poll`` returns. CPython does not look for signals in between, as
#: Python code calls a Python function there, although the harness has a place for it.
_FETCHING = (" Consumer._fetch after CALL", " ShareConsumer._fetch after CALL")


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as made:
        yield made


# --- producer ---------------------------------------------------------------------------------------------------------


class Sending:
    """A producer of one topic, with the reports that it gave."""

    def __init__(self, cluster: EmbeddedCluster, topic: str, **settings: Any) -> None:
        self.cluster, self.topic = cluster, topic
        self.producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0, **settings})
        self.reported: Counter[bytes] = Counter()
        self.sent: set[bytes] = set()

    def report(self, error: KafkaError | None, message: Message[Any, Any]) -> None:
        assert error is None
        self.reported[message.value()] += 1

    def produce(self, *values: bytes) -> None:
        for value in values:
            self.producer.produce(self.topic, value, on_delivery=self.report)
            self.sent.add(value)

    def produce_and_poll(self) -> None:
        self.produce(b"a", b"b")
        self.producer.poll(1)

    def produce_and_flush(self) -> None:
        self.produce(b"a", b"b")
        self.producer.flush(_PATIENCE_S)

    def produce_and_close(self) -> None:
        self.produce(b"a", b"b")
        self.producer.close()

    def check(self) -> None:
        """Check that the producer works on and closes, and that each message was written and reported once."""
        if not self.producer._inner:
            return
        before = len(self.producer)
        assert before >= 0
        self.produce(b"after")
        assert self.producer.flush(_PATIENCE_S) == 0
        written = Counter(bytes(record.value or b"") for record in self.cluster.log(Native(self.topic, 0)))
        assert max(written.values()) == 1
        assert max(self.reported.values()) == 1
        assert self.sent <= written.keys()
        assert self.reported.keys() <= written.keys()
        assert len(self.producer) == 0
        assert self.producer.unreported_bytes() == 0
        self.producer.close()


PRODUCER_CALLS: list[Callable[[Sending], None]] = [
    Sending.produce_and_poll,
    Sending.produce_and_flush,
    Sending.produce_and_close,
]


@one_place_in(37)
@pytest.mark.parametrize("is_known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("call", PRODUCER_CALLS, ids=lambda call: call.__name__)
def test_interrupted_producer_writes_and_reports_each_message_once(
    cluster: EmbeddedCluster, call: Callable[[Sending], None], is_known: bool, every: int
) -> None:
    for place in places(under=_UNDER, every=every):
        topic = f"{call.__name__}-{is_known}-{every}-{place.number}"
        cluster.create_topic(topic)
        sending = Sending(cluster, topic)
        with place:
            if is_known:
                sending.produce(b"before")
                assert sending.producer.flush(_PATIENCE_S) == 0
            error = place.interrupt(lambda: call(sending))  # noqa: B023
            assert error is None or isinstance(error, Interrupted), repr(error)
            sending.check()
            sending.producer.close()


def test_interrupted_wait_for_events_does_not_block_the_thread_that_adds_one() -> None:
    for place in places():
        events = Events()
        with place:
            place.interrupt(lambda: events.wait(0.001))  # noqa: B023
            adding = threading.Thread(target=lambda: events.put(lambda: None), daemon=True)  # noqa: B023
            events._waiting.add(SYSTEM_CLOCK.new_signal())  # as if another thread waited
            adding.start()
            adding.join(_PATIENCE_S)
            assert not adding.is_alive()
            events.wait(0.001)
            assert events.serve() == 1


# --- consumer ---------------------------------------------------------------------------------------------------------

_COUNT = 6


class Reading:
    """A consumer of two partitions, and the messages that the application got."""

    def __init__(self, cluster: EmbeddedCluster, topic: str, group: str) -> None:
        self.topic = topic
        self._raw: list[Message[Any, Any] | None] = []
        self.got: list[tuple[int | None, bytes]] = []
        self.ends: set[int | None] = set()
        self.consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "auto.commit.interval.ms": 1,
            }
        )

    def look(self) -> None:
        """Note the messages that were returned; not inside of the calls, which may be interrupted anywhere."""
        for message in self._raw:
            error = None if message is None else message.error()
            if message is not None and error is None:
                self.got.append((message.partition(), message.value()))
            elif message is not None:
                assert error == KafkaError._PARTITION_EOF
                self.ends.add(message.partition())
        self._raw = []

    def poll(self) -> None:
        for _ in range(3):
            self._raw.append(self.consumer.poll(0.05))

    def consume(self) -> None:
        self._raw += self.consumer.consume(_COUNT - 2, 0.05)

    def consume_all(self) -> None:
        self._raw += self.consumer.consume(2 * _COUNT, 0.05)

    def pause(self) -> None:
        partition = [TopicPartition(self.topic, 0)]
        self.consumer.pause(partition)
        self.consumer.resume(partition)

    def commit(self) -> None:
        self.consumer.commit(asynchronous=False)

    def change(self) -> None:
        self.consumer.subscribe(["^" + self.topic])
        self._raw.append(self.consumer.poll(0))

    def close(self) -> None:
        self.consumer.close()

    def read_on(self) -> None:
        deadline = monotonic() + _PATIENCE_S
        while len(set(self.got)) < _COUNT or len(self.ends) < 2:
            assert monotonic() < deadline, (sorted(self.got), self.ends)
            self.consume()
            self.look()


CONSUMER_CALLS: list[Callable[[Reading], None]] = [
    Reading.poll,
    Reading.consume,
    Reading.consume_all,
    Reading.pause,
    Reading.commit,
    Reading.change,
    Reading.close,
]


@one_place_in(61)
@pytest.mark.parametrize("call", CONSUMER_CALLS, ids=lambda call: call.__name__)
def test_interrupted_consumer_returns_each_message_once_and_commits_no_other(
    cluster: EmbeddedCluster, call: Callable[[Reading], None], every: int
) -> None:
    topic = f"read-{call.__name__}-{every}"
    cluster.create_topic(topic, 2)
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for number in range(_COUNT):
            producer.produce(topic, b"%d" % number, partition=number % 2)
    for place in places(under=_UNDER, every=every):
        group = f"{topic}-{place.number}"
        reading = Reading(cluster, topic, group)
        reading.consumer.subscribe([topic])
        committing = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group})
        with place, committing:
            deadline = monotonic() + _PATIENCE_S
            while not reading.got:
                assert monotonic() < deadline
                reading._raw.append(reading.consumer.poll(1))
                reading.look()
            error = place.interrupt(lambda: call(reading))  # noqa: B023
            assert error is None or isinstance(error, Interrupted), repr(error)
            if place.name.endswith(_FETCHING):
                continue
            reading.look()
            if call is Reading.pause:
                reading.consumer.resume([TopicPartition(topic, 0)])
            if call is not Reading.close:
                reading.read_on()
            reading.consumer.close()
            # A new membership begins at committed offsets, and partitions that are paused are fetched again.
            is_whole = call not in {Reading.close, Reading.change, Reading.pause}
            assert len(reading.got) == len(set(reading.got)) or not is_whole, sorted(reading.got)
            parts = [TopicPartition(topic, number) for number in range(2)]
            for place_of_group in committing.committed(parts):
                count = sum(number == place_of_group.partition for number, _ in set(reading.got))
                assert place_of_group.offset <= count
                assert call is Reading.close or place_of_group.offset == count


# --- share consumer ---------------------------------------------------------------------------------------------------


@one_place_in(23)
def test_share_consumer_returns_each_message_although_polls_raise(cluster: EmbeddedCluster, every: int) -> None:
    topic = f"share-{every}"
    cluster.create_topic(topic)
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": topic}
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    reset = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    group = ConfigResource(ResourceType.GROUP, topic, incremental_configs=[reset])
    admin.incremental_alter_configs([group])[group].result(_PATIENCE_S)
    admin.close()
    got: list[bytes] = []
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer, ShareConsumer(settings) as consumer:
        consumer.subscribe([topic])

        def poll(timeout: float = 0.05) -> None:
            messages[:] = [consumer.poll(timeout)]

        def raise_in_callback(*_: object) -> None:
            raise LookupError("mine")

        def read(count: int) -> None:
            deadline = monotonic() + _PATIENCE_S
            while len(got) < count:
                assert monotonic() < deadline
                with suppress(LookupError):
                    poll()
                    got.extend(message.value() for message in messages[0])

        messages: list[Any] = []
        for place in places(under=_UNDER, every=every):
            consumer.set_acknowledgement_commit_callback(raise_in_callback)
            value = b"%d" % place.number
            producer.produce(topic, value)
            producer.flush()
            with place:
                error = place.interrupt(lambda: poll(1))
                if place.name.endswith(_FETCHING):
                    got.append(value)
                    continue
                if error is None:
                    got.extend(message.value() for message in messages[0])
                read((place.number - 1) // every + 1)
                assert got[-1] == value
    assert len(got) == len(set(got))
