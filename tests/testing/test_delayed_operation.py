"""Operations that wait for keys and for timeouts."""

from __future__ import annotations

from collections.abc import Hashable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pykclient.testing.delayed_operation import DelayedOperation, DelayedOperationPurgatory
from pykclient.testing.event_loop import EventLoop
from tests.support.mock_clock import MockClock


class Operation(DelayedOperation):
    def __init__(self, delay_ms: int, log: list[str], name: str = "") -> None:
        super().__init__(delay_ms)
        self.log = log
        self.name = name
        self.ready = False
        self.asked: list[Hashable | None] = []

    def try_complete(self, key: Hashable | None) -> bool:
        self.asked.append(key)
        return self.ready and self.force_complete()

    def on_expiration(self) -> None:
        self.log.append(f"{self.name} expired")

    def on_complete(self) -> None:
        self.log.append(f"{self.name} completed")


class World:
    def __init__(self) -> None:
        self.clock = MockClock()
        self.loop = EventLoop(self.clock)
        broker: Any = SimpleNamespace(loop=self.loop, call_later=self.loop.call_later)
        self.purgatory = DelayedOperationPurgatory(cast(Any, broker))
        self.log: list[str] = []

    def add(self, delay_ms: int, *keys: Hashable, name: str = "") -> Operation:
        operation = Operation(delay_ms, self.log, name)
        self.purgatory.try_complete_else_watch(operation, keys)
        return operation

    def advance(self, duration_ms: int) -> None:
        for _ in range(duration_ms):
            self.clock.advance(1)
            self.loop.run_due()


@pytest.fixture
def world() -> World:
    return World()


def test_operation_that_can_complete_does_not_wait(world: World) -> None:
    operation = Operation(10, world.log, "a")
    operation.ready = True
    assert world.purgatory.try_complete_else_watch(operation, ["k"])
    assert not world.purgatory.is_watched("k")
    assert world.log == ["a completed"]


def test_key_completes_its_waiting_operations(world: World) -> None:
    first, second = world.add(10, "k", "l", name="a"), world.add(10, "l", name="b")
    first.ready = second.ready = True
    assert world.purgatory.check_and_complete("k") == 1
    assert first.asked == [None, "k"]
    assert second.asked == [None]
    assert world.purgatory.waiting == 1
    assert world.purgatory.check_and_complete("l") == 1
    assert not world.purgatory.is_watched("l")
    world.advance(50)
    assert world.log == ["a completed", "b completed"]


def test_operations_expire_in_order(world: World) -> None:
    world.add(30, "k", name="late")
    world.add(10, "k", name="early")
    world.advance(5)
    world.add(10, "k", name="later")
    world.advance(5)
    assert world.log == ["early expired", "early completed"]
    world.advance(5)
    assert world.log[2:] == ["later expired", "later completed"]
    world.advance(15)
    assert world.log[4:] == ["late expired", "late completed"]
    assert world.purgatory.waiting == 0


def test_many_operations_need_one_timer(world: World) -> None:
    for _ in range(1_000):
        operation = world.add(30_000, "k")
        operation.ready = True
        world.purgatory.check_and_complete("k")
        world.clock.advance(1)
    assert world.loop.next_due_ms() == 29_000
    assert len(world.loop._timers) == 1


def test_shutdown_completes_nothing_later(world: World) -> None:
    world.add(10, "k", name="a")
    world.purgatory.shutdown()
    world.advance(20)
    assert world.log == []


def test_operation_completes_once(world: World) -> None:
    operation = world.add(10, "k", name="a")
    assert operation.force_complete()
    assert not operation.force_complete()
    world.advance(20)
    assert world.log == ["a completed"]
