"""Which consumer a task gets, and what becomes of those that wait."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pytest

from pykclient import TopicPartition
from pykclient.errors import KafkaError
from pykclient.spark import consumer_pool
from pykclient.spark.consumer_pool import CAPACITY, IDLE_TIMEOUT_MS, MAX_WARM, ConsumerPool, PooledConsumer
from tests.support.mock_clock import MockClock

TP0, TP1 = TopicPartition("t", 0), TopicPartition("t", 1)
CONFIG: dict[str, object] = {"bootstrap.servers": "localhost:9092"}


class FakeConsumer:
    """Notes what is done to it."""

    def __init__(self, config: Mapping[str, object]) -> None:
        self.config = config
        self.calls: list[tuple[Any, ...]] = []
        self.closed = False

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.calls.append(("assign", *partitions))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.calls.append(("seek", partition, offset))

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
    """What was done to the consumer since the last time."""
    consumer: Any = pooled.consumer
    done: list[tuple[Any, ...]] = consumer.calls[:]
    consumer.calls.clear()
    return done


def is_closed(pooled: PooledConsumer) -> bool:
    consumer: Any = pooled.consumer
    return bool(consumer.closed)


def test_a_consumer_that_waits_cold_is_for_any_partitions(pool: ConsumerPool) -> None:
    first = pool.acquire(CONFIG, [TP0])
    assert first.consumer.config == CONFIG
    first.assign({TP0: 5})
    assert calls(first) == [("assign", TP0), ("seek", TP0, 5), ("resume", TP0)]
    assert pool.acquire(CONFIG, [TP0]) is not first  # which is in use
    pool.release(first)
    assert calls(first) == [("unsubscribe",)]
    assert pool.acquire(CONFIG, [TP1]) is first


def test_another_configuration_is_another_consumer(pool: ConsumerPool) -> None:
    first = pool.acquire(CONFIG, [TP0])
    pool.release(first)
    assert pool.acquire({**CONFIG, "isolation.level": "read_committed"}, [TP0]) is not first
    assert pool.acquire(dict(CONFIG), [TP0]) is first


def test_a_warm_one_is_for_its_partitions_and_is_not_disturbed_where_it_stands(pool: ConsumerPool) -> None:
    first = pool.acquire(CONFIG, [TP0, TP1])
    first.assign({TP0: 0, TP1: 0})
    first.positions = {TP0: 10, TP1: 20}
    calls(first)
    pool.release(first, warm=True)
    assert [name for name, *_ in calls(first)] == ["resume", "prefetch"]
    assert pool.acquire(CONFIG, [TP0]) is not first
    assert pool.acquire(CONFIG, [TP1, TP0]) is first
    first.assign({TP0: 10, TP1: 25})
    assert calls(first) == [("seek", TP1, 25), ("resume", TP0, TP1)]


def test_where_it_stands_is_unknown_after_it_was_left_in_the_middle(pool: ConsumerPool) -> None:
    first = pool.acquire(CONFIG, [TP0])
    first.assign({TP0: 0})
    first.positions = {}
    pool.release(first, warm=True)
    calls(first)
    pool.acquire(CONFIG, [TP0]).assign({TP0: 0})
    assert calls(first) == [("seek", TP0, 0), ("resume", TP0)]


def test_a_task_that_is_tried_again_gets_a_new_one(pool: ConsumerPool) -> None:
    warm, cold = pool.acquire(CONFIG, [TP0]), pool.acquire(CONFIG, [TP1])
    warm.assign({TP0: 0})
    pool.release(warm, warm=True)
    pool.release(cold)
    assert pool.acquire(CONFIG, [TP0], fresh=True) not in (warm, cold)
    assert is_closed(warm)
    assert not is_closed(cold)
    assert len(pool) == 1


def test_nobody_gets_one_that_was_discarded(pool: ConsumerPool) -> None:
    first = pool.acquire(CONFIG, [TP0])
    pool.discard(first)
    assert is_closed(first)
    assert pool.acquire(CONFIG, [TP0]) is not first


@pytest.mark.parametrize("warm", [False, True])
def test_one_that_fails_when_it_is_brought_back_is_closed(
    pool: ConsumerPool, warm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: FakeConsumer) -> None:
        raise KafkaError("not allowed any more")

    first = pool.acquire(CONFIG, [TP0])
    first.assign({TP0: 0})
    monkeypatch.setattr(FakeConsumer, "prefetch" if warm else "unsubscribe", fail)
    pool.release(first, warm=warm)
    assert is_closed(first)
    assert len(pool) == 0


def test_those_that_wait_for_long_are_closed(pool: ConsumerPool, clock: MockClock) -> None:
    first, second = pool.acquire(CONFIG, [TP0]), pool.acquire(CONFIG, [TP0])
    pool.release(first)
    clock.sleep_ms(IDLE_TIMEOUT_MS - 1)
    pool.release(second)
    assert not is_closed(first)
    clock.sleep_ms(1)
    assert pool.acquire(CONFIG, [TP0]) is second
    assert is_closed(first)


def test_only_so_many_wait(pool: ConsumerPool) -> None:
    taken = [pool.acquire(CONFIG, [TP0]) for _ in range(CAPACITY + 2)]
    for each in taken:
        pool.release(each)
    assert [is_closed(each) for each in taken] == [True] * 2 + [False] * CAPACITY
    pool.close()
    assert all(map(is_closed, taken))
    assert len(pool) == 0


def test_only_so_many_are_warm(pool: ConsumerPool) -> None:
    partitions = [TopicPartition("t", number) for number in range(MAX_WARM + 1)]
    taken = [pool.acquire(CONFIG, [tp]) for tp in partitions]
    for tp, each in zip(partitions, taken, strict=True):
        each.assign({tp: 0})
        pool.release(each, warm=True)
    assert [each.is_warm for each in taken] == [False] + [True] * MAX_WARM
    assert pool.acquire(CONFIG, [TopicPartition("u", 0)]) is taken[0]


def test_a_forked_process_has_a_pool_of_its_own() -> None:
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
