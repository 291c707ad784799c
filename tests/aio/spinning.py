"""A watch over the loops inside the asyncio clients: one whose waits all return at once would freeze the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from pykclient.aio.loop_driver import LoopWaits
from pykclient.aio.threadless_consumer import StepsRunner
from pykclient.consumer.application_driver import Round, Wait

#: A task's waits that may return at once, one after the other.
MOST_AT_ONCE = 200

#: The method as it is without the watch.
until_unwatched = LoopWaits.until


class SpinningError(BaseException):
    """A loop goes on without progress. Not an Exception, as no handler of the loop may swallow it."""


def watch_for_spinning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise SpinningError in a task that waits ``MOST_AT_ONCE`` times in a row without being suspended by a wait."""
    counts: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()
    do, run = StepsRunner._do, StepsRunner.run

    def at_once() -> None:
        task = asyncio.current_task()
        if task is None:  # in a turn, which has bounds of its own
            return
        counts[task] = count = counts.get(task, 0) + 1
        if count > MOST_AT_ONCE:
            raise SpinningError(f"{count} waits in a row have returned at once in {task!r}")

    def suspended() -> None:
        task = asyncio.current_task()
        if task is not None:
            counts[task] = 0

    async def watched_until(self: LoopWaits, condition: Callable[[], object], timeout_ms: int) -> bool:
        if condition():
            at_once()
        else:
            suspended()
        return await until_unwatched(self, condition, timeout_ms)

    def watched_do(self: StepsRunner, asked: Any) -> Any:
        done = do(self, asked)
        if isinstance(asked, (Round, Wait)) and not isawaitable(done):
            at_once()
        return done

    async def watched_run(self: StepsRunner, steps: Any, awaited: Awaitable[Any] | None = None) -> Any:
        suspended()  # a call of the application, whose own loops are not ours to judge
        return await run(self, steps, awaited)

    monkeypatch.setattr(LoopWaits, "until", watched_until)
    monkeypatch.setattr(StepsRunner, "_do", watched_do)
    monkeypatch.setattr(StepsRunner, "run", watched_run)
