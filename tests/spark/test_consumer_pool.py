"""The consumers that tasks get, and the fate of idle ones."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from pykclient import KafkaProducer, TopicPartition
from pykclient.errors import KafkaError
from pykclient.spark import consumer_pool
from pykclient.spark.consumer_pool import CAPACITY, IDLE_TIMEOUT_MS, ConsumerPool, PooledConsumer
from pykclient.spark.worker import KEPT_BYTES, MAX_WARM
from tests.support.any_kafka import AnyKafka
from tests.support.mock_clock import MockClock

TP0, TP1 = TopicPartition("t", 0), TopicPartition("t", 1)
ID = UUID(int=1)
CONFIG: dict[str, object] = {"bootstrap.servers": "localhost:9092"}


class FakeConsumer:
    """Records the calls of its methods."""

    def __init__(self, config: Mapping[str, object]) -> None:
        self.config = config
        self.calls: list[tuple[Any, ...]] = []
        self.closed = False

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.calls.append(("assign", *partitions))

    def seek(self, partition: TopicPartition, offset: int, *, topic_id: UUID | None) -> None:
        self.calls.append(("seek", partition, offset, topic_id))

    def resume(self, *partitions: TopicPartition) -> None:
        self.calls.append(("resume", *partitions))

    def prefetch(self) -> None:
        self.calls.append(("prefetch",))

    def unsubscribe(self) -> None:
        self.calls.append(("unsubscribe",))

    def close(self, **_: object) -> None:
        assert not self.closed
        self.closed = True
        raise KafkaError("closing is not what anybody waits for")


@pytest.fixture
def clock() -> MockClock:
    return MockClock()


@pytest.fixture
def pool(clock: MockClock) -> ConsumerPool:
    return ConsumerPool(clock, FakeConsumer)  # type: ignore[arg-type]


def calls(pooled: PooledConsumer) -> list[tuple[Any, ...]]:
    """Return the calls since the last time."""
    consumer: Any = pooled.consumer
    done: list[tuple[Any, ...]] = consumer.calls[:]
    consumer.calls.clear()
    return done


def is_closed(pooled: PooledConsumer) -> bool:
    consumer: Any = pooled.consumer
    return bool(consumer.closed)


def test_idle_consumer_serves_any_partitions(pool: ConsumerPool) -> None:
    first = pool.acquire(CONFIG, {TP0: ID})
    assert first.consumer.config == CONFIG
    first.assign({TP0: ID}, {TP0: 5})
    assert calls(first) == [("assign", TP0), ("seek", TP0, 5, ID), ("resume", TP0)]
    assert pool.acquire(CONFIG, {TP0: ID}) is not first  # it is in use
    pool.release(first)
    assert calls(first) == [("unsubscribe",)]
    assert pool.acquire(CONFIG, {TP1: ID}) is first


def test_other_configuration_gets_another_consumer(pool: ConsumerPool) -> None:
    first = pool.acquire(CONFIG, {TP0: ID})
    pool.release(first)
    assert pool.acquire({**CONFIG, "isolation.level": "read_committed"}, {TP0: ID}) is not first
    assert pool.acquire(dict(CONFIG), {TP0: ID}) is first


def test_warm_consumer_serves_its_partitions_and_keeps_positions(pool: ConsumerPool) -> None:
    both = {TP0: ID, TP1: ID}
    first = pool.acquire(CONFIG, both, run="run")
    first.assign(both, {TP0: 0, TP1: 0})
    first.positions = {TP0: 10, TP1: 20}
    calls(first)
    pool.release(first, run="run")
    assert [name for name, *_ in calls(first)] == ["resume", "prefetch"]
    assert pool.acquire(CONFIG, {TP0: ID}, run="run") is not first
    assert pool.acquire(CONFIG, {TP1: ID, TP0: ID}, run="run") is first
    first.assign(both, {TP0: 10, TP1: 25})
    assert calls(first) == [("seek", TP1, 25, ID), ("resume", TP0, TP1)]


@pytest.mark.parametrize("run", ["a later run", None])
def test_warm_consumer_serves_only_its_run(pool: ConsumerPool, run: str | None) -> None:
    """The topic may have been created again since, so that other records are at these offsets. A batch has no run."""
    first = pool.acquire(CONFIG, {TP0: None}, run="run")
    first.assign({TP0: None}, {TP0: 0})
    pool.release(first, run="run")
    assert pool.acquire(CONFIG, {TP0: None}, run=run) is not first
    assert pool.acquire(CONFIG, {TP0: None}, run="run") is first


def test_warm_consumer_of_a_recreated_topic_is_closed(pool: ConsumerPool) -> None:
    first = pool.acquire(CONFIG, {TP0: ID}, run="run")
    first.assign({TP0: ID}, {TP0: 0})
    pool.release(first, run="run")
    assert pool.acquire(CONFIG, {TP0: UUID(int=2)}, run="run") is not first
    assert is_closed(first)
    assert len(pool) == 0


def test_positions_do_not_apply_to_another_topic(pool: ConsumerPool) -> None:
    first = pool.acquire(CONFIG, {TP0: ID, TP1: ID})
    first.assign({TP0: ID, TP1: ID}, {TP0: 4, TP1: 5})
    calls(first)
    first.assign({TP0: ID, TP1: UUID(int=2)}, {TP0: 4, TP1: 5})
    assert calls(first) == [("assign", TP0, TP1), ("seek", TP1, 5, UUID(int=2)), ("resume", TP0, TP1)]


def test_positions_are_unknown_after_an_interrupted_task(pool: ConsumerPool) -> None:
    first = pool.acquire(CONFIG, {TP0: ID}, run="run")
    first.assign({TP0: ID}, {TP0: 0})
    first.positions = {}
    pool.release(first, run="run")
    calls(first)
    pool.acquire(CONFIG, {TP0: ID}, run="run").assign({TP0: ID}, {TP0: 0})
    assert calls(first) == [("seek", TP0, 0, ID), ("resume", TP0)]


def test_a_repeated_task_gets_a_new_consumer(pool: ConsumerPool) -> None:
    warm, cold = pool.acquire(CONFIG, {TP0: ID}, run="run"), pool.acquire(CONFIG, {TP1: ID})
    warm.assign({TP0: ID}, {TP0: 0})
    pool.release(warm, run="run")
    pool.release(cold)
    assert pool.acquire(CONFIG, {TP0: ID}, run="run", fresh=True) not in (warm, cold)
    assert is_closed(warm)
    assert not is_closed(cold)
    assert len(pool) == 1


def test_discarded_consumer_is_not_reused(pool: ConsumerPool) -> None:
    first = pool.acquire(CONFIG, {TP0: ID})
    pool.discard(first)
    assert is_closed(first)
    assert pool.acquire(CONFIG, {TP0: ID}) is not first


@pytest.mark.parametrize("warm", [False, True])
def test_consumer_that_fails_on_return_is_closed(
    pool: ConsumerPool, warm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: FakeConsumer) -> None:
        raise KafkaError("not allowed any more")

    first = pool.acquire(CONFIG, {TP0: ID})
    first.assign({TP0: ID}, {TP0: 0})
    monkeypatch.setattr(FakeConsumer, "prefetch" if warm else "unsubscribe", fail)
    pool.release(first, run="run" if warm else None)
    assert is_closed(first)
    assert len(pool) == 0


def test_idle_consumers_are_closed_after_a_while(pool: ConsumerPool, clock: MockClock) -> None:
    first, second = pool.acquire(CONFIG, {TP0: ID}), pool.acquire(CONFIG, {TP0: ID})
    pool.release(first)
    clock.sleep_ms(IDLE_TIMEOUT_MS - 1)
    pool.release(second)
    assert not is_closed(first)
    clock.sleep_ms(1)
    assert pool.acquire(CONFIG, {TP0: ID}) is second
    assert is_closed(first)


def test_number_of_idle_consumers_is_limited(pool: ConsumerPool) -> None:
    taken = [pool.acquire(CONFIG, {TP0: ID}) for _ in range(CAPACITY + 2)]
    for each in taken:
        pool.release(each)
    assert [is_closed(each) for each in taken] == [True] * 2 + [False] * CAPACITY
    pool.close()
    assert all(map(is_closed, taken))
    assert len(pool) == 0


def test_number_of_warm_consumers_is_limited(pool: ConsumerPool) -> None:
    """The oldest are closed: the next task to read these partitions could get the responses to their fetches."""
    partitions = [TopicPartition("t", number) for number in range(MAX_WARM + 1)]
    config = {**CONFIG, "fetch.max.bytes": KEPT_BYTES // MAX_WARM}
    taken = [pool.acquire(config, {tp: ID}, run="run") for tp in partitions]
    for tp, each in zip(partitions, taken, strict=True):
        each.assign({tp: ID}, {tp: 0})
        pool.release(each, run="run")
    assert [is_closed(each) for each in taken] == [True] + [False] * MAX_WARM
    assert len(pool) == MAX_WARM


def test_kept_responses_are_bounded(pool: ConsumerPool) -> None:
    """With larger responses fewer consumers are warm, and with too large ones only connections are kept."""
    for part, kept in ((4, 4), (1, 1)):
        config = {**CONFIG, "fetch.max.bytes": str(KEPT_BYTES // part)}
        taken = [pool.acquire(config, {TP0: ID}, run=f"run {number}") for number in range(6)]
        for number, each in enumerate(taken):
            each.assign({TP0: ID}, {TP0: 0})
            pool.release(each, run=f"run {number}")
        assert [is_closed(each) for each in taken] == [True] * (6 - kept) + [False] * kept
        pool.close()
    large = pool.acquire({**CONFIG, "fetch.max.bytes": KEPT_BYTES + 1}, {TP0: ID}, run="run")
    large.assign({TP0: ID}, {TP0: 0})
    pool.release(large, run="run")
    assert (len(pool), large.is_warm, is_closed(large)) == (1, False, False)


def test_forked_process_has_its_own_pool() -> None:
    pool = consumer_pool.pool()
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        os.write(write_end, b"own" if consumer_pool.pool() is not pool else b"the parent's")
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        assert pipe.read() == b"own"
    os.waitpid(child, 0)
    assert consumer_pool.pool() is pool


# --- memory ----------------------------------------------------------------------------------------------------------


def test_a_worker_keeps_no_more_than_it_may(any_kafka: AnyKafka, topic: str) -> None:
    """Each of its streams has fetched as much as it can beyond the few rows that it has read."""
    partitions = 4
    any_kafka.create_topic(topic, partitions=partitions)
    value = os.urandom(100_000)
    with KafkaProducer[Any, Any](bootstrap_servers=any_kafka.bootstrap_servers, batch_size=200_000) as producer:
        for number in range(partitions * 100):
            producer.send(topic, value, partition=number % partitions)
    script = [sys.executable, "-m", "tests.spark.kept_responses", any_kafka.bootstrap_servers, topic, str(partitions)]
    result = subprocess.run([*script, str(MAX_WARM + 4)], capture_output=True, text=True, check=True, timeout=120)
    warm, kept_bytes = map(int, result.stdout.split())
    assert warm == MAX_WARM
    assert KEPT_BYTES / 4 < kept_bytes < KEPT_BYTES * 1.1
