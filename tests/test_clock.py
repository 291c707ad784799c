from __future__ import annotations

import threading

import pytest

from pykclient.clock import FOREVER_MS, SYSTEM_CLOCK, Timer
from tests.support.mock_clock import MockClock


@pytest.fixture
def clock() -> MockClock:
    return MockClock(now_ms=1_000)


def test_a_timer_sees_time_only_when_updated(clock: MockClock) -> None:
    timer = Timer(clock, 100)
    clock.advance(99)
    assert (timer.elapsed_ms, timer.remaining_ms) == (0, 100)
    timer.update()
    assert (timer.elapsed_ms, timer.remaining_ms, timer.expired) == (99, 1, False)
    timer.update(clock.now_ms() + 1)
    assert (timer.remaining_ms, timer.expired, timer.not_expired) == (0, True, False)


def test_monotonic_time_never_decreases(clock: MockClock) -> None:
    timer = Timer(clock, 100)
    timer.update(clock.now_ms() + 50)
    timer.update(clock.now_ms())
    assert timer.elapsed_ms == 50


def test_reset_starts_from_the_last_update(clock: MockClock) -> None:
    timer = Timer(clock, 100)
    clock.advance(30)
    timer.reset(10)
    assert timer.remaining_ms == 10
    assert timer.elapsed_ms == 0


def test_negative_timeouts_expire_and_unbounded_never(clock: MockClock) -> None:
    assert Timer(clock, -5).expired
    forever = Timer(clock, FOREVER_MS)
    clock.advance(10**15)
    forever.update()
    assert forever.not_expired


def test_sleep_ends_with_the_timer(clock: MockClock) -> None:
    timer = Timer(clock, 100)
    timer.sleep_ms(30)
    assert clock.now_ms() == 1_030
    timer.sleep_ms(1_000)
    assert clock.now_ms() == 1_100
    assert timer.expired


def test_system_clock_advances() -> None:
    before = SYSTEM_CLOCK.now_ms()
    SYSTEM_CLOCK.sleep_ms(2)
    assert SYSTEM_CLOCK.now_ms() >= before + 1
    assert SYSTEM_CLOCK.wall_ms() > 1_700_000_000_000


def test_wait_is_bounded_and_can_be_notified() -> None:
    condition = threading.Condition()
    with condition:
        assert SYSTEM_CLOCK.wait(condition, 1) is False

    woken: list[bool] = []

    def waiter() -> None:
        with condition:
            ready.set()
            woken.append(SYSTEM_CLOCK.wait(condition, 10_000))

    ready = threading.Event()
    thread = threading.Thread(target=waiter)
    thread.start()
    assert ready.wait(10)
    with condition:
        condition.notify()
    thread.join(10)
    assert woken == [True]
