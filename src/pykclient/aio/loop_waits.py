"""Coroutines that wait for what only a turn of the driver can bring: metadata, memory, results."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from math import ceil
from types import coroutine
from typing import TYPE_CHECKING, Final, TypeVar

from pykclient.producer.buffer_pool import MustWait

if TYPE_CHECKING:
    from pykclient.producer.buffer_pool import BufferPool

T = TypeVar("T")

#: The longest timer of a loop, in ms. A wait without a limit has none.
_LONGEST_TIMER_MS: Final = 1 << 40

#: Waits that may end at once in a row. The next one lets the loop run, so that no caller can freeze it by asking again.
_MOST_AT_ONCE: Final = 64


@coroutine
def one_iteration() -> Generator[None, None, None]:
    """Let the loop run its other callbacks once, those of the driver included."""
    yield


class _Timer:
    """A limit on the wait for a future: sets its result to False when it is due."""

    __slots__ = ("_handle",)

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout_ms: int, future: asyncio.Future[bool]) -> None:
        self._handle = None
        if timeout_ms < _LONGEST_TIMER_MS:
            self._handle = loop.call_later(max(0, timeout_ms) / 1000, _give_up, future)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()


def _give_up(future: asyncio.Future[bool]) -> None:
    if not future.done():
        future.set_result(False)


class LoopWaits:
    """The coroutines that wait for a condition. ``check`` is called after each turn. Thread: the loop's."""

    __slots__ = ("_at_once", "_loop", "waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._at_once = 0  # waits that ended at once since the last one that did not
        self.waiting: dict[asyncio.Future[bool], Callable[[], object]] = {}

    async def until(self, condition: Callable[[], object], timeout_ms: int) -> bool:
        """Wait until ``condition`` holds after a turn; return False if ``timeout_ms`` passes first.

        An exception that ``condition`` raises is raised here.
        """
        if condition():
            self._at_once += 1
            if self._at_once <= _MOST_AT_ONCE:
                return True
            await one_iteration()
            if condition():
                self._at_once = 0
                return True
        self._at_once = 0
        future: asyncio.Future[bool] = self._loop.create_future()
        self.waiting[future] = condition
        timer = _Timer(self._loop, timeout_ms, future)
        try:
            return await future
        finally:
            timer.cancel()
            self.waiting.pop(future, None)

    def check(self) -> None:
        """Wake the coroutines whose conditions hold."""
        for future, condition in [*self.waiting.items()]:
            if future.done():
                continue
            try:
                if condition():
                    future.set_result(True)
            except Exception as error:  # noqa: BLE001 - it is raised where the condition is waited for
                future.set_exception(error)


class _Place:
    """A coroutine's place in the line for memory."""

    __slots__ = ("future", "size")

    def __init__(self, size: int, future: asyncio.Future[bool]) -> None:
        self.size = size
        self.future = future


class MemoryLine:
    """The coroutines that wait for memory of a pool, first come, first served. Thread: the loop's."""

    __slots__ = ("_line", "_loop", "_pool", "is_empty")

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: BufferPool) -> None:
        self._loop = loop
        self._pool = pool
        self._line: deque[_Place] = deque()
        #: True if no coroutine waits. Each record and each turn of the driver asks for it.
        self.is_empty = True

    async def attempt(self, take: Callable[[], T], size: int, timeout_ms: int) -> T | None:
        """Call ``take`` whenever it is this caller's turn and enough memory is free, until it raises no ``MustWait``.

        ``size`` is the number of bytes that must be free for the first call. Return the result, or None after
        ``timeout_ms``. A caller that is cancelled has taken nothing.
        """
        place = _Place(size, self._loop.create_future())
        self._line.append(place)
        self.is_empty = False
        self._pool.waiting_elsewhere += 1  # batches with memory no longer linger
        deadline_s = self._loop.time() + timeout_ms / 1000
        try:
            self.check()
            while True:
                timer = _Timer(self._loop, ceil((deadline_s - self._loop.time()) * 1000), place.future)
                try:
                    if not await place.future:
                        return None
                finally:
                    timer.cancel()
                try:
                    return take()
                except MustWait as wait:
                    place.size = wait.size
                    place.future = self._loop.create_future()
        finally:
            self._line.remove(place)
            self.is_empty = not self._line
            self._pool.waiting_elsewhere -= 1
            self.check()

    def check(self) -> None:
        """Wake as many coroutines, from the first one on, as there is memory for."""
        if not self._line:
            return
        free = self._pool.available_memory
        for place in self._line:
            free -= place.size
            if free < 0:
                return
            if not place.future.done():
                place.future.set_result(True)

    def end(self, error: Exception) -> None:
        """Fail all waits: no memory will become free."""
        for place in self._line:
            if not place.future.done():
                place.future.set_exception(error)
