"""Records sent during faults are neither lost, duplicated nor reordered; another client reads them back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pykclient.producer.future import FutureRecordMetadata
from pykclient.producer.kafka_producer import KafkaProducer
from tests.producer.test_producer_on_kafka import read_all
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually

PARTITIONS = 3


class Stream:
    """A thread that sends numbered records to all partitions in turn until it is stopped."""

    def __init__(self, producer: KafkaProducer[Any, Any], topic: str) -> None:
        self.producer = producer
        self.topic = topic
        self.futures: list[FutureRecordMetadata] = []
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def _send(self) -> None:
        try:
            while not self._stopping.wait(0.0005):
                number = len(self.futures)
                self.futures.append(self.producer.send(self.topic, b"%d" % number, partition=number % PARTITIONS))
        except BaseException as error:
            self._failure = error
            raise

    def acknowledged(self) -> int:
        """Return how many of the records sent so far are acknowledged."""
        return sum(future.done() for future in list(self.futures))

    def await_retries(self) -> None:
        """Wait until more records are retried because a request exceeded request.timeout.ms."""
        before = self._retried()
        eventually(lambda: self._retried() > before, 60)

    def _retried(self) -> float:
        total: float = self.producer.metrics()["producer-metrics"]["record-retry-total"]
        return total

    def await_progress(self, records: int = 100) -> None:
        """Wait until ``records`` records sent from now on are acknowledged."""
        start = len(self.futures)
        eventually(lambda: len(self.futures) >= start + records, 60)
        for future in self.futures[start : start + records]:
            future.get(60)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(60)
        assert self._failure is None


@contextmanager
def streaming(bootstrap_servers: str, topic: str, **settings: Any) -> Iterator[Stream]:
    with KafkaProducer[Any, Any](bootstrap_servers=bootstrap_servers, **settings) as producer:
        stream = Stream(producer, topic)
        stream.await_progress()
        yield stream
        stream.await_progress()
        stream.stop()
        producer.flush(60)


def check(any_cluster: AnyKafka, stream: Stream) -> None:
    """Check that each record is in the log once, in the order of sending, at the offset that its future returned."""
    records = read_all(any_cluster.bootstrap_servers, stream.topic, len(stream.futures), 60)
    for partition in range(PARTITIONS):
        values = [record[3] for record in records if record[0] == partition]
        assert values == [b"%d" % number for number in range(partition, len(stream.futures), PARTITIONS)]
    told = {
        (f.get(0).partition, f.get(0).offset): number for number, f in enumerate(stream.futures) if f.get(0).offset >= 0
    }
    at = {record[:2]: int(record[3] or b"-1") for record in records}
    assert all(at[place] == number for place, number in told.items())


Fault = Callable[[AnyKafka, str, Stream], None]


def kill_the_leader(any_cluster: AnyKafka, topic: str, stream: Stream) -> None:
    leader = any_cluster.leader_of(topic, 0)
    any_cluster.brokers[leader].kill()
    any_cluster.await_leader(topic, 0, other_than=leader)


def stop_the_leader_and_start_it_again(any_cluster: AnyKafka, topic: str, stream: Stream) -> None:
    leader = any_cluster.leader_of(topic, 0)
    any_cluster.brokers[leader].stop()
    stream.await_progress()
    any_cluster.brokers[leader].start()


def move_the_leader(any_cluster: AnyKafka, topic: str, stream: Stream) -> None:
    for _ in range(2):
        leader = any_cluster.leader_of(topic, 0)
        other = next(id for id in any_cluster.brokers if id != leader)
        any_cluster.move_leader(topic, 0, other)
        stream.await_progress()


def pause_the_leader_past_the_request_timeout(any_cluster: AnyKafka, topic: str, stream: Stream) -> None:
    leader = any_cluster.leader_of(topic, 0)
    any_cluster.brokers[leader].pause()
    pending = stream.acknowledged()
    stream.await_retries()
    any_cluster.brokers[leader].resume()
    eventually(lambda: stream.acknowledged() > pending, 60)


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        kill_the_leader,
        stop_the_leader_and_start_it_again,
        move_the_leader,
        pause_the_leader_past_the_request_timeout,
    ],
)
def test_faults_lose_duplicate_or_reorder_no_record(any_cluster: AnyKafka, topic: str, fault: Fault) -> None:
    any_cluster.create_topic(topic, partitions=PARTITIONS, config={"min.insync.replicas": 1})
    with streaming(
        any_cluster.bootstrap_servers, topic, request_timeout_ms=2000, batch_size=1000, linger_ms=2
    ) as stream:
        fault(any_cluster, topic, stream)
    any_cluster.make_healthy()
    check(any_cluster, stream)


@pytest.mark.slow
def test_cut_responses_lose_or_duplicate_no_record(any_cluster: AnyKafka, topic: str) -> None:
    any_cluster.create_topic(topic, partitions=PARTITIONS)
    with (
        any_cluster.proxies() as proxies,
        streaming(
            any_cluster.proxied_bootstrap_servers, topic, batch_size=500, linger_ms=1, reconnect_backoff_ms=5
        ) as stream,
    ):
        for offset in range(0, 60, 3):
            for proxy in proxies.values():
                proxy.cut_after(offset, reset=offset % 2 == 0)
            stream.await_progress(20)
    assert sum(proxy.cuts for proxy in proxies.values()) > 20
    check(any_cluster, stream)


@pytest.mark.slow
def test_silent_network_loses_or_duplicates_no_record(any_cluster: AnyKafka, topic: str) -> None:
    any_cluster.create_topic(topic, partitions=PARTITIONS)
    with (
        any_cluster.proxies() as proxies,
        streaming(
            any_cluster.proxied_bootstrap_servers, topic, request_timeout_ms=1000, linger_ms=1, batch_size=1000
        ) as stream,
    ):
        for proxy in proxies.values():
            proxy.blackhole()
        stream.await_retries()
        for proxy in proxies.values():
            proxy.restore()
    check(any_cluster, stream)
