from __future__ import annotations

import logging

import pytest

from pykclient.clock import FOREVER_MS
from pykclient.testing.event_loop import EventLoop
from tests.support.mock_clock import MockClock


def test_due_calls_run_in_the_order_of_scheduling() -> None:
    clock = MockClock()
    loop = EventLoop(clock)
    seen: list[str] = []
    loop.call_later(10, seen.append, "second of ten")
    loop.call_later(5, seen.append, "five")
    loop.call_later(10, seen.append, "third of ten")
    loop.call_soon(seen.append, "soon")
    assert loop.run_due() == 5
    assert seen == ["soon"]
    clock.sleep_ms(10)
    assert loop.run_due() == FOREVER_MS
    assert seen == ["soon", "five", "second of ten", "third of ten"]


def test_calls_scheduled_by_a_callback_run_in_the_same_round() -> None:
    loop = EventLoop(MockClock())
    seen: list[int] = []

    def again(count: int) -> None:
        seen.append(count)
        if count:
            loop.call_soon(again, count - 1)

    loop.call_soon(again, 3)
    assert loop.run_due() == FOREVER_MS
    assert seen == [3, 2, 1, 0]


def test_endless_callbacks_do_not_block_run_due() -> None:
    loop = EventLoop(MockClock())

    def again() -> None:
        loop.call_soon(again)

    loop.call_soon(again)
    assert loop.run_due() == 0
    assert loop.steps == 1000
    assert loop.next_due_ms() == 0


def test_cancelled_timer_neither_runs_nor_delays() -> None:
    clock = MockClock()
    loop = EventLoop(clock)
    seen: list[str] = []
    timer = loop.call_later(5, seen.append, "cancelled")
    assert timer.active
    timer.cancel()
    assert not timer.active
    assert loop.run_due() == FOREVER_MS
    clock.sleep_ms(10)
    loop.run_due()
    assert seen == []


def test_cancelled_timers_do_not_accumulate() -> None:
    loop = EventLoop(MockClock())
    for _ in range(100_000):
        loop.call_later(30_000, print).cancel()
    assert len(loop._timers) <= 512


def test_failed_callback_is_kept_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    loop = EventLoop(MockClock())
    seen: list[str] = []

    def fail(text: str) -> None:
        raise ValueError(text)

    loop.call_soon(fail, "the first")
    loop.call_soon(fail, "the second")
    loop.call_soon(seen.append, "after them")
    with caplog.at_level(logging.CRITICAL):
        loop.run_due()
    assert seen == ["after them"]
    assert isinstance(loop.failure, ValueError)
    assert loop.failure.args == ("the first",)
