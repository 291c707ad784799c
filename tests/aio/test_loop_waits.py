"""Coroutines that wait for a turn of the driver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from pykclient.aio.loop_driver import LoopClock, LoopWaits, MemoryLine
from pykclient.clock import FOREVER_MS
from pykclient.errors import IllegalStateError
from pykclient.producer.buffer_pool import BufferPool, Loan
from tests.aio.loops import run, some_iterations


class Memory:
    """A pool of 1,000 bytes, and the line for it."""

    def __init__(self) -> None:
        self.pool = BufferPool(1_000, 100, LoopClock(), on_wait=lambda: False)
        self.line = MemoryLine(asyncio.get_running_loop(), self.pool)
        self.order: list[str] = []

    def taker(self, name: str, size: int) -> Callable[[], Loan | None]:
        def take() -> Loan | None:
            loan = Loan()
            if self.pool.allocate(loan, size, 0) is None:
                return None
            self.order.append(name)
            return loan

        return take

    async def take(self, name: str, size: int, timeout_ms: int = FOREVER_MS) -> Loan | None:
        return await self.line.attempt(self.taker(name, size), size, timeout_ms)

    def give_back(self, loan: Loan) -> None:
        self.pool.deallocate(loan)
        self.line.check()


def test_conditions_are_checked_after_each_turn() -> None:
    async def main() -> None:
        waits = LoopWaits(asyncio.get_running_loop())
        news: list[int] = []
        waiting = [asyncio.ensure_future(waits.until(lambda: len(news) > 1, FOREVER_MS)) for _ in range(3)]
        await some_iterations()
        news.append(1)
        waits.check()
        await some_iterations()
        assert not any(task.done() for task in waiting)
        news.append(2)
        waits.check()
        assert await asyncio.gather(*waiting) == [True] * 3
        assert await waits.until(lambda: True, 0)

    run(main())


def test_wait_times_out_and_raises_errors() -> None:
    async def main() -> None:
        waits = LoopWaits(asyncio.get_running_loop())
        assert not await waits.until(lambda: False, 10)
        state: list[int] = []

        def fail() -> bool:
            if state:
                raise IllegalStateError("it broke")
            return False

        task = asyncio.ensure_future(waits.until(fail, FOREVER_MS))
        await some_iterations()
        state.append(1)
        waits.check()
        with pytest.raises(IllegalStateError, match="it broke"):
            await task

    run(main())


def test_memory_is_granted_in_order_of_arrival() -> None:
    async def main() -> None:
        memory = Memory()
        held = await memory.take("holder", 900)
        assert held is not None
        sizes = {"large": 800, "small": 50, "last": 100}
        tasks = [asyncio.ensure_future(memory.take(name, size)) for name, size in sizes.items()]
        await some_iterations()
        assert memory.pool.queued == 3
        assert memory.order == ["holder"]  # "small" would fit, but "large" came first
        memory.give_back(held)
        await asyncio.gather(*tasks)
        assert memory.order == ["holder", "large", "small", "last"]
        assert memory.line.is_empty
        assert memory.pool.queued == 0

    run(main())


@pytest.mark.parametrize("woken", [False, True])
def test_cancelled_waiter_leaves_the_queue_and_takes_nothing(woken: bool) -> None:
    async def main() -> None:
        memory = Memory()
        held = await memory.take("holder", 950)
        assert held is not None
        first = asyncio.ensure_future(memory.take("first", 900))
        second = asyncio.ensure_future(memory.take("second", 900))
        await some_iterations()
        if woken:  # it has been woken, and has not run yet
            memory.give_back(held)
        first.cancel()
        if not woken:
            await some_iterations()
            assert not second.done()
            memory.give_back(held)
        taken = await second
        assert first.cancelled()
        assert memory.order == ["holder", "second"]
        assert taken is not None
        memory.give_back(taken)
        assert memory.pool.available_memory == 1_000
        assert memory.pool.queued == 0

    run(main())


def test_memory_wait_times_out() -> None:
    async def main() -> None:
        memory = Memory()
        held = await memory.take("holder", 950)
        assert held is not None
        impatient = asyncio.ensure_future(memory.take("impatient", 900, 10))
        behind = asyncio.ensure_future(memory.take("behind", 20))
        assert await impatient is None
        assert await behind is not None
        assert memory.order == ["holder", "behind"]

    run(main())


def test_larger_request_keeps_its_place_in_the_queue() -> None:
    async def main() -> None:
        memory = Memory()
        holder = await memory.take("holder", 900)
        rest = await memory.take("rest", 100)
        assert holder is not None
        assert rest is not None
        first = asyncio.ensure_future(memory.line.attempt(memory.taker("first", 1_000), 100, FOREVER_MS))
        second = asyncio.ensure_future(memory.take("second", 50))
        await some_iterations()
        memory.give_back(rest)
        await some_iterations()
        assert memory.order == ["holder", "rest"]
        memory.give_back(holder)
        taken = await first
        assert taken is not None
        memory.give_back(taken)
        await second
        assert memory.order == ["holder", "rest", "first", "second"]

    run(main())


def test_closed_queue_fails_all_waiters() -> None:
    async def main() -> None:
        memory = Memory()
        await memory.take("holder", 950)
        waiting = [asyncio.ensure_future(memory.take(str(number), 500)) for number in range(3)]
        await some_iterations()
        memory.line.end(IllegalStateError("closed"))
        for task in waiting:
            with pytest.raises(IllegalStateError, match="closed"):
                await task
        assert memory.line.is_empty

    run(main())


def test_blocking_waits_on_the_loop_are_refused() -> None:
    clock = LoopClock()
    clock.sleep_ms(0)
    waits: list[Callable[[], object]] = [
        lambda: clock.sleep_ms(1),
        lambda: clock.new_signal().wait(1),
        lambda: clock.wait(clock.new_condition(), 1),
    ]
    for wait in waits:
        with pytest.raises(IllegalStateError, match="would block the event loop"):
            wait()
