"""Signal handlers that raise at any place of confluent-kafka's shape: nothing is lost, doubled, or waits for ever."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pykclient.confluent
from pykclient.clock import SYSTEM_CLOCK
from pykclient.confluent import KafkaError, Message, Producer
from pykclient.confluent.events import Events
from pykclient.testing import EmbeddedCluster
from pykclient.types import TopicPartition as Native
from tests.support.interrupts import Interrupted, one_place_in, places

_PATIENCE_S = 30.0
_UNDER = str(Path(pykclient.confluent.__file__).parent)


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
    for place in places(under=threading.__file__):
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
