"""The driver of an event loop, with parts that a test scripts."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator

import pytest

from pykclient.aio.loop_driver import LoopDriver
from pykclient.clock import FOREVER_MS, SYSTEM_CLOCK
from pykclient.network.client_request import ClientResponse
from tests.aio.loops import LOOPS, run, some_iterations, until
from tests.support.mock_clock import MockClock

IO_TURN = ["poll", "end", "step", "begin"]


class Parts:
    """A decider, a client and a selector in one, which log their calls. The descriptor is a socket's."""

    def __init__(self) -> None:
        self.near, self.far = socket.socketpair()
        self.near.setblocking(False)
        self.calls: list[str] = []
        self.is_closed = False
        self.step_wait_ms = FOREVER_MS
        self.bound_ms = FOREVER_MS
        self.on_step: Callable[[], object] = bool
        self.on_poll: Callable[[], object] = bool
        self.failure: BaseException | None = None
        self.turns = 0

    def close(self) -> None:
        self.near.close()
        self.far.close()

    def step(self, now_ms: int) -> int:
        assert now_ms > 0
        self.calls.append("step")
        self.on_step()
        return self.step_wait_ms

    def round_failed(self, error: Exception, now_ms: int) -> int:
        assert now_ms > 0
        self.calls.append(f"failed: {error}")
        return 20

    def fail(self, error: BaseException) -> None:
        self.failure = error
        self.is_closed = True

    def begin_poll(self, timeout_ms: int, now_ms: int) -> int:
        assert now_ms > 0
        self.calls.append("begin")
        return timeout_ms

    def end_poll(self, now_ms: int) -> list[ClientResponse]:
        assert now_ms > 0
        self.calls.append("end")
        return []

    def fileno(self) -> int:
        return self.near.fileno()

    def poll(self, timeout_ms: int) -> None:
        assert timeout_ms == 0
        self.calls.append("poll")
        self.on_poll()
        try:
            self.near.recv(100)
        except BlockingIOError:
            return

    def wait_bound_ms(self, now_ms: int) -> int:
        assert now_ms > 0
        return self.bound_ms

    def turn(self) -> None:
        self.turns += 1

    def driver(self) -> LoopDriver:
        return LoopDriver(asyncio.get_running_loop(), self, self, self, SYSTEM_CLOCK, self.turn)


@pytest.fixture
def parts() -> Iterator[Parts]:
    made = Parts()
    yield made
    made.close()


@pytest.mark.parametrize("loop", LOOPS)
def test_every_event_schedules_a_turn(parts: Parts, loop: str) -> None:
    async def main() -> None:
        driver = parts.driver()
        driver.start()
        await until(lambda: parts.turns == 1)
        assert parts.calls == ["step", "begin"]  # there was nothing to read
        parts.calls.clear()
        parts.far.send(b"data")
        await until(lambda: parts.turns == 2)
        assert parts.calls == IO_TURN
        driver.wake()
        driver.wake()
        await until(lambda: parts.turns == 3)
        await some_iterations()
        assert parts.turns == 3
        parts.step_wait_ms = 5
        driver.wake()
        await until(lambda: parts.turns >= 6)  # by the timer
        parts.step_wait_ms = FOREVER_MS
        await until(lambda: parts.calls[-4:] == IO_TURN)
        driver.release()

    run(main(), loop)


def test_first_turn_after_a_pause_reads_responses_first(parts: Parts) -> None:
    clock = MockClock()

    async def main() -> None:
        driver = LoopDriver(asyncio.get_running_loop(), parts, parts, parts, clock, parts.turn)
        driver.start()
        await some_iterations()
        for pause_ms, calls in ((99, IO_TURN[2:]), (100, IO_TURN)):
            parts.calls.clear()
            clock.advance(pause_ms)
            driver.wake()
            await some_iterations()
            assert parts.calls == calls
        driver.release()

    run(main())


def test_queued_turn_may_run_at_once(parts: Parts) -> None:
    async def main() -> None:
        driver = parts.driver()
        driver.start()
        driver.turn_if_woken()
        assert parts.turns == 1
        driver.turn_if_woken()
        await some_iterations()
        assert parts.turns == 1

        def send() -> None:  # as a callback of the application
            driver.wake()
            driver.turn_if_woken()

        parts.on_step = send
        driver.wake()
        driver.turn_if_woken()
        assert parts.turns == 2
        parts.on_step = bool
        await some_iterations()
        assert parts.turns == 3
        driver.release()

    run(main())


def test_turn_is_delayed_while_records_are_appended(parts: Parts) -> None:
    async def main() -> None:
        driver = parts.driver()
        driver.start()
        await some_iterations()
        assert parts.turns == 1
        driver.is_held = True
        driver.wake()
        driver.go_on(at_once=True)
        assert parts.turns == 2
        await some_iterations()
        assert parts.turns == 2  # nothing is queued in the loop any more
        driver.is_held = True
        driver.wake()
        driver.go_on(at_once=False)
        assert parts.turns == 2
        await some_iterations()
        assert parts.turns == 3
        driver.is_held = True
        driver.go_on(at_once=True)  # nothing has woken it
        await some_iterations()
        assert parts.turns == 3
        driver.wake()
        driver.is_held = True
        driver.go_on(at_once=True)  # woken before
        assert parts.turns == 4
        await some_iterations()
        assert parts.turns == 4
        driver.release()

    run(main())


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(("place", "at_once"), [("io", True), ("task", False), ("two", False), ("failed", False)])
def test_task_resumes_right_after_its_future_is_done(parts: Parts, loop: str, place: str, at_once: bool) -> None:
    """It does so if the turn is a callback of the loop, and no other task waits for it; else as asyncio has it."""
    drivers: list[LoopDriver] = []

    async def main() -> None:
        driver = parts.driver()
        drivers.append(driver)
        driver.start()
        await until(lambda: parts.turns == 1)
        running = asyncio.get_running_loop()
        futures = [running.create_future() for _ in range(2 if place == "two" else 1)]
        order: list[str] = []

        async def wait(future: asyncio.Future[None]) -> None:
            await future
            order.append("task")

        tasks = [asyncio.ensure_future(wait(future)) for future in futures]
        await asyncio.sleep(0)

        def settle() -> None:
            parts.on_poll = parts.on_step = bool
            running.call_soon(order.append, "next iteration")
            for future in futures:
                ((wakeup, context),) = future._callbacks
                future.remove_done_callback(wakeup)
                driver.resumed.append((future, wakeup, context))
                future.set_result(None)
            if place == "failed":
                raise SystemExit("from a plugin")

        if place == "task":
            parts.on_step = settle
            driver.wake()
            driver.turn_if_woken()
            assert order == []
        else:
            parts.on_poll = settle
            parts.far.send(b"data")
        await asyncio.gather(*tasks)
        assert order[0] == ("task" if at_once else "next iteration")
        assert order.count("task") == len(tasks)
        driver.release()

    if place == "failed":
        with pytest.raises(SystemExit):
            run(main(), loop)
    else:
        run(main(), loop)
    assert drivers[0].resumed == []


def test_driver_is_overdue_after_a_long_time_without_a_turn(parts: Parts) -> None:
    async def main() -> None:
        clock = MockClock()
        driver = LoopDriver(asyncio.get_running_loop(), parts, parts, parts, clock, parts.turn)
        driver.start()
        await some_iterations()
        assert parts.turns == 1
        clock.advance(5)
        assert not driver.is_overdue
        clock.advance(1)
        assert driver.is_overdue
        driver.wake()
        await some_iterations()
        assert not driver.is_overdue
        driver.release()

    run(main())


def test_selector_can_request_a_turn(parts: Parts) -> None:
    async def main() -> None:
        driver = parts.driver()
        parts.bound_ms = 3
        driver.start()
        await until(lambda: parts.turns >= 3)
        driver.release()

    run(main())


def test_endless_turns_leave_time_for_other_tasks(parts: Parts) -> None:
    async def main() -> None:
        driver = parts.driver()
        parts.step_wait_ms = 0  # always more to do
        driver.start()
        iterations = 0
        while parts.turns < 100:
            await asyncio.sleep(0)
            iterations += 1
        assert iterations >= 99
        assert parts.calls.count("step") <= 4 * parts.turns  # and turns are short
        driver.release()

    run(main())


def test_long_round_ends_its_turn(parts: Parts) -> None:
    async def main() -> None:
        driver = parts.driver()
        loop = asyncio.get_running_loop()
        parts.step_wait_ms = 0

        def compress() -> None:  # as a batch that takes long
            end_s = loop.time() + 0.006
            while loop.time() < end_s:
                continue

        parts.on_step = compress
        driver.start()
        await until(lambda: parts.turns >= 5)
        assert parts.calls.count("step") == parts.turns
        driver.release()

    run(main())


def test_wakeups_do_not_add_timers(parts: Parts) -> None:
    async def main() -> None:
        driver = parts.driver()
        parts.step_wait_ms = 50_000
        driver.start()
        await until(lambda: parts.turns == 1)
        scheduled = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
        before = len(scheduled)
        for _ in range(50):
            driver.wake()
            await some_iterations()
        assert parts.turns == 51
        assert len(scheduled) <= before + 1  # cancelled timers stay in there
        driver.release()

    run(main())


def test_failed_round_is_followed_by_a_backoff(parts: Parts) -> None:
    async def main() -> None:
        driver = parts.driver()

        def fail() -> None:
            raise OSError("no more descriptors")

        parts.on_poll = fail
        driver.start()
        await until(lambda: parts.turns == 1)
        parts.far.send(b"data")  # stays readable
        await until(lambda: "failed: no more descriptors" in parts.calls)
        turns = parts.turns
        await some_iterations(100)
        assert parts.turns <= turns + 1, "it spins"
        parts.on_poll = bool
        await until(lambda: parts.calls[-4:] == IO_TURN)
        parts.far.send(b"more")  # it is watched again
        turns = parts.turns
        await until(lambda: parts.turns > turns)
        driver.release()

    run(main())


def test_base_exception_ends_the_driver(parts: Parts) -> None:
    async def main() -> None:
        driver = parts.driver()

        def end() -> None:
            raise SystemExit("from a plugin")

        parts.on_step = end
        driver.start()
        await driver.closed

    with pytest.raises(SystemExit, match="from a plugin"):
        run(main())
    assert isinstance(parts.failure, SystemExit)
    assert parts.turns == 1


def test_driver_unregisters_from_the_loop_after_close(parts: Parts) -> None:
    async def main() -> None:
        driver = parts.driver()
        driver.start()
        await until(lambda: parts.turns == 1)

        def close() -> None:
            parts.is_closed = True

        parts.on_step = close
        driver.wake()
        await driver.closed
        assert not asyncio.get_running_loop().remove_reader(parts.near.fileno())
        calls = len(parts.calls)
        driver.wake()
        driver.close_at_once()
        parts.far.send(b"data")
        await some_iterations()
        assert len(parts.calls) == calls

    run(main())


def test_driver_can_be_closed_after_its_loop(parts: Parts) -> None:
    async def main() -> LoopDriver:
        driver = parts.driver()
        driver.start()
        await until(lambda: parts.turns == 1)
        return driver

    driver = run(main())

    def close() -> None:
        parts.is_closed = True

    parts.on_step = close
    driver.close_at_once()
    assert parts.turns == 2
