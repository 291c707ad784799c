"""Calls that a program repeats without end: none may take a whole core, or hold up an event loop.

A program that only logs errors may call a closed client, or one that has failed permanently, again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Generator
from functools import wraps
from types import coroutine
from typing import Any, Final

from pykclient.errors import IllegalArgumentError, IllegalStateError, InvalidGroupIdError, KafkaError, WakeupError

#: A call of a closed client takes this long, in ms. So does a call that repeats an error of a record.
SHORT_PAUSE_MS: Final = 1
#: Coroutines that may end at once in a row. The next one lets the event loop run.
MOST_AT_ONCE: Final = 64
#: Errors that the calling program causes itself, call by call.
_CALLERS_ERRORS: Final = (IllegalArgumentError, IllegalStateError, InvalidGroupIdError, WakeupError)
#: Methods that must begin even if the task is cancelled, so they let the loop run afterwards.
_ENDS: Final = ("close", "stop")


class RepeatedErrors:
    """Detects calls that raise the same error repeatedly, so that a program that only logs it does not spin.

    For example, each poll raises the error that has ended a membership for good. ``pause_ms`` is for errors of the
    cluster, ``callers_pause_ms`` for all others, such as that of a wrong argument. Thread: any; a race only shortens
    a pause.
    """

    def __init__(self, pause_ms: int, callers_pause_ms: int = 0) -> None:
        self._pause_ms = pause_ms if pause_ms > 0 else 1
        self._callers_pause_ms = callers_pause_ms
        self._last: tuple[type[BaseException], str] | None = None
        self._next_ms = 0

    def pause_ms(self, error: BaseException, now_ms: int) -> int:
        """Return how long to wait before raising ``error``: 0, unless the last call just raised the same.

        Calls of several threads or tasks that fail alike wait at the same time, and not one after the other.
        """
        is_of_cluster = isinstance(error, KafkaError) and not isinstance(error, _CALLERS_ERRORS)
        longest_ms = self._pause_ms if is_of_cluster else self._callers_pause_ms
        if not longest_ms:
            return 0
        this = type(error), str(error)
        pause_ms = min(longest_ms, max(0, self._next_ms - now_ms)) if this == self._last else 0
        self._last = this
        self._next_ms = now_ms + pause_ms + longest_ms
        return pause_ms


@coroutine
def one_iteration() -> Generator[None, None, None]:
    """Yield to the event loop for one iteration, so that other callbacks run, including a driver's."""
    yield


class Pace:
    """Keeps calls that never wait from holding up the event loop, if a program makes them in a row.

    One call in ``MOST_AT_ONCE`` first lets the loop run. One that raises the same error as the call before it waits
    for ``pause_ms``, or for a millisecond if the program causes the error itself. Thread: the loop's.
    """

    def __init__(self, pause_ms: int = SHORT_PAUSE_MS) -> None:
        self._calls = 0
        self._repeated = RepeatedErrors(pause_ms, SHORT_PAUSE_MS)

    def is_due(self) -> bool:
        """Count a call. If this is True, the caller lets the loop run, before the call has done anything."""
        self._calls += 1
        if self._calls < MOST_AT_ONCE:
            return False
        self._calls = 0
        return True

    async def rest(self, error: Exception, most_ms: int | None = None) -> None:
        """Wait if the last call has just raised the same error, at most ``most_ms``; the caller then raises it."""
        import asyncio  # here for the same reason

        loop = asyncio._get_running_loop()
        if loop is None:  # a forked child is not in the loop that it goes on in
            return
        pause_ms = self._repeated.pause_ms(error, int(loop.time() * 1000))
        if pause_ms > 0:
            await asyncio.sleep((pause_ms if most_ms is None else min(pause_ms, most_ms)) / 1000)
        elif self.is_due():
            await one_iteration()


class PacedCoroutines:
    """Wraps the public coroutine methods of a client so that none can hold up the event loop. See ``Pace``.

    Methods in ``unpaced``, which programs call for each record, do the same themselves. Thread: the loop's.
    """

    _pace: Pace

    def __init_subclass__(cls, *, unpaced: Collection[str] = (), **kwargs: Any) -> None:
        from inspect import iscoroutinefunction  # here, as clients without a loop import this module too

        super().__init_subclass__(**kwargs)
        for name, method in [*vars(cls).items()]:
            if iscoroutinefunction(method) and not name.startswith("_") and name not in unpaced:
                setattr(cls, name, _paced(method, name in _ENDS))


def _paced(method: Callable[..., Coroutine[Any, Any, Any]], is_end: bool) -> Callable[..., Coroutine[Any, Any, Any]]:
    @wraps(method)
    async def paced(self: PacedCoroutines, *args: Any, **kwargs: Any) -> Any:
        pace = self._pace
        is_due = pace.is_due()
        if is_due and not is_end:
            await one_iteration()
        try:
            result = await method(self, *args, **kwargs)
        except Exception as error:
            await pace.rest(error)
            raise
        if is_due and is_end:
            await one_iteration()
        return result

    return paced
