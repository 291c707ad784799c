"""Threads that share a consumer of confluent-kafka's shape."""

from __future__ import annotations

import queue
import signal
import sys
import threading
from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest

from pykclient.confluent import ConcurrentModificationException, Consumer, Producer, TopicPartition, turns
from pykclient.testing import EmbeddedCluster
from tests.support.wait import eventually

_PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as made:
        for topic in ("two", "threads", "committed"):
            made.create_topic(topic, 2)
        yield made


def _settings(cluster: EmbeddedCluster, **settings: Any) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap_servers, **settings}


def test_other_threads_call_a_consumer_that_polls(cluster: EmbeddedCluster) -> None:
    topic = "threads"
    first, second = (TopicPartition(topic, number) for number in range(2))
    consumer = Consumer(
        _settings(cluster, **{"group.id": topic, "auto.offset.reset": "earliest", "enable.auto.offset.store": False})
    )
    producer = Producer(_settings(cluster))
    read: list[tuple[int | None, int | None]] = []
    ended = threading.Event()

    def poll() -> None:
        while not ended.is_set():
            message = consumer.poll(-1)  # so that no call below could wait for its end
            assert message is not None
            read.append((message.partition(), message.offset()))

    def until(count: int) -> None:
        eventually(lambda: len(read) >= count, what=f"{count} messages")

    def produce(count: int) -> None:
        for number in range(count):
            producer.produce(topic, b"x", partition=number % 2)
        assert producer.flush(_PATIENCE_S) == 0

    consumer.subscribe([topic])
    polling = threading.Thread(target=poll)
    polling.start()
    try:
        produce(10)
        until(10)
        consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
        assert consumer.committed([first], _PATIENCE_S)[0].offset == 3
        consumer.store_offsets(offsets=[TopicPartition(topic, 1, 4)])
        consumer.commit(asynchronous=False)
        assert consumer.committed([second], _PATIENCE_S)[0].offset == 4
        assert consumer.get_watermark_offsets(first, _PATIENCE_S) == (0, 5)
        assert consumer.offsets_for_times([TopicPartition(topic, 0, 0)], _PATIENCE_S)[0].offset == 0
        consumer.pause([second])
        produce(10)
        until(15)
        consumer.resume([second])
        until(20)
        consumer.seek(TopicPartition(topic, 0, 9))
        until(21)
        assert sorted(read) == sorted([(number, offset) for number in (0, 1) for offset in range(10)] + [(0, 9)])
        ended.set()
        produce(2)
        polling.join(_PATIENCE_S)
        assert not polling.is_alive()
    finally:
        ended.set()
        consumer.close()
        producer.close()


def test_committing_threads_lose_no_message(cluster: EmbeddedCluster) -> None:
    topic = "committed"
    with Producer(_settings(cluster)) as producer:
        for number in range(2000):
            producer.produce(topic, str(number).encode(), partition=number % 2)
        assert producer.flush(_PATIENCE_S) == 0
    settings = {"group.id": topic, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(_settings(cluster, **settings))
    consumer.subscribe([topic])
    work: queue.SimpleQueue[Any] = queue.SimpleQueue()
    values: list[int] = []

    def process() -> None:
        while (message := work.get()) is not None:
            values.append(int(message.value()))
            if len(values) % 100 == 0:
                consumer.commit(message=message, asynchronous=False)
            elif len(values) % 10 == 0:
                consumer.commit(message=message)

    workers = [threading.Thread(target=process) for _ in range(3)]
    for worker in workers:
        worker.start()
    deadline = monotonic() + _PATIENCE_S
    for _ in range(2000):
        while (message := consumer.poll(1)) is None:
            assert monotonic() < deadline
        work.put(message)
    for _ in workers:
        work.put(None)
    for worker in workers:
        worker.join(_PATIENCE_S)
    consumer.close()
    assert sorted(values) == list(range(2000))


def test_call_waits_no_longer_than_the_patience_for_another_threads_callback(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "_PATIENCE_S", 0.05)
    refused: list[ConcurrentModificationException] = []

    def wait_for_the_other(consumer: Consumer, _: object) -> None:
        def commit() -> None:
            with pytest.raises(ConcurrentModificationException, match="callbacks waiting") as raised:
                consumer.commit(offsets=[TopicPartition("two", 0, 1)], asynchronous=False)
            refused.append(raised.value)

        other = threading.Thread(target=commit)
        other.start()
        other.join()

    with Consumer(_settings(cluster, **{"group.id": "turns"})) as consumer:
        consumer.subscribe(["two"], on_assign=wait_for_the_other)
        while not refused:
            consumer.poll(0.1)
        consumer.commit(offsets=[TopicPartition("two", 0, 1)], asynchronous=False)


@pytest.mark.skipif(sys.platform == "win32", reason="no signal of a thread")
def test_interrupt_while_a_thread_waits_for_its_turn_leaves_the_turn_free(cluster: EmbeddedCluster) -> None:
    with Consumer(_settings(cluster, **{"group.id": "turns"})) as consumer:
        in_turn, interrupted = threading.Event(), threading.Event()

        def hold() -> None:
            in_turn.set()
            interrupted.wait(_PATIENCE_S)

        holding = threading.Thread(target=consumer.turns.call, args=(hold,))
        holding.start()
        in_turn.wait(_PATIENCE_S)

        def interrupt() -> None:
            eventually(consumer.turns._next.locked, what="the main thread waits")
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        interrupting = threading.Thread(target=interrupt)
        interrupting.start()
        with pytest.raises(KeyboardInterrupt):
            consumer.committed([TopicPartition("two", 0)], timeout=_PATIENCE_S)
        interrupted.set()
        holding.join()
        interrupting.join()
        assert consumer.poll(0) is None
        others = threading.Thread(target=consumer.committed, args=([TopicPartition("two", 0)], _PATIENCE_S))
        others.start()
        others.join(_PATIENCE_S)
        assert not others.is_alive()
