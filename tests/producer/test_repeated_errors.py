"""No call of a producer, or of any closed client, raises the same error thousands of times a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykclient import KafkaAdminClient, KafkaConsumer, KafkaProducer, KafkaShareConsumer
from pykclient.errors import IllegalStateError, InvalidProducerEpochError, KafkaError, ProducerFencedError
from pykclient.testing import EmbeddedCluster

BACKOFF_MS = 50
DURATION_S = 0.3


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as made:
        made.create_topic("t")
        yield made


def raises_of(call: Callable[[], object], error: type[KafkaError]) -> int:
    """Return how often ``call``, repeated for ``DURATION_S``, raises this error; it raises no other."""
    count, end_s = 0, time.monotonic() + DURATION_S
    while time.monotonic() < end_s:
        with pytest.raises(error):
            call()
        count += 1
    return count


def fenced(cluster: EmbeddedCluster, name: str, **settings: Any) -> KafkaProducer[bytes, bytes]:
    settings = {"bootstrap_servers": cluster.bootstrap_servers, "transactional_id": name, **settings}
    producer = KafkaProducer[bytes, bytes](retry_backoff_ms=BACKOFF_MS, **settings)
    producer.init_transactions()
    producer.begin_transaction()
    with KafkaProducer[bytes, bytes](**settings) as newer:
        newer.init_transactions()
    with pytest.raises(InvalidProducerEpochError):
        producer.send("t", b"x").get(10)
    with pytest.raises(ProducerFencedError):
        producer.abort_transaction()
    return producer


def test_transactional_calls_of_a_fenced_producer_wait_for_the_backoff(cluster: EmbeddedCluster) -> None:
    with fenced(cluster, "calls") as producer:

        def transaction() -> None:
            with producer.transaction():
                raise AssertionError("the transaction has begun")

        calls = [producer.begin_transaction, producer.commit_transaction, producer.abort_transaction, transaction]
        for call in calls:
            assert raises_of(call, ProducerFencedError) <= 2 * DURATION_S * 1_000 / BACKOFF_MS


def test_sends_of_a_fenced_producer_take_a_millisecond(cluster: EmbeddedCluster) -> None:
    with fenced(cluster, "sends") as producer:
        assert raises_of(lambda: producer.send("t", b"x").get(10), ProducerFencedError) <= 2 * DURATION_S * 1_000


def test_producer_that_must_not_block_raises_at_once(cluster: EmbeddedCluster) -> None:
    with fenced(cluster, "unblocked") as producer:
        producer._max_block_ms = 0
        slept: list[int] = []
        producer._clock = _Sleepless(slept)  # type: ignore[assignment]
        for _ in range(3):
            with pytest.raises(ProducerFencedError):
                producer.send("t", b"x").get(10)
        assert slept == []


class _Sleepless:
    """A clock that stands still, and notes how long it is asked to sleep."""

    def __init__(self, slept: list[int]) -> None:
        self.sleep_ms = slept.append
        self._now_ms = time.monotonic_ns() // 1_000_000

    def now_ms(self) -> int:
        return self._now_ms

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


def test_first_error_is_raised_at_once(cluster: EmbeddedCluster) -> None:
    with fenced(cluster, "first") as producer:
        slept: list[int] = []
        producer._clock = _Sleepless(slept)  # type: ignore[assignment]
        with pytest.raises(ProducerFencedError):
            producer.send("t", b"x").get(10)
        assert slept == []
        with pytest.raises(ProducerFencedError):
            producer.send("t", b"x").get(10)
        assert slept == [1]


CLOSED: dict[str, tuple[Callable[[str], Any], Callable[[Any], object]]] = {
    "producer": (lambda servers: KafkaProducer(bootstrap_servers=servers), lambda it: it.send("t", b"x")),
    "producer, flush": (lambda servers: KafkaProducer(bootstrap_servers=servers), lambda it: it.flush()),
    "consumer": (lambda servers: KafkaConsumer(bootstrap_servers=servers), lambda it: it.poll(0)),
    "share consumer": (
        lambda servers: KafkaShareConsumer(bootstrap_servers=servers, group_id="g"),
        lambda it: it.poll(0),
    ),
    "admin": (lambda servers: KafkaAdminClient(bootstrap_servers=servers), lambda it: it.list_topics()),
}


@pytest.mark.parametrize("name", CLOSED)
def test_calls_of_a_closed_client_take_a_millisecond(cluster: EmbeddedCluster, name: str) -> None:
    make, call = CLOSED[name]
    client = make(cluster.bootstrap_servers)
    client.close()
    assert raises_of(lambda: call(client), IllegalStateError) <= 2 * DURATION_S * 1_000
