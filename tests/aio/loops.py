"""Running coroutines in the event loops that the asyncio clients support."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

#: The longest that a test's coroutine may take, in seconds: a bound for what would otherwise hang.
PATIENCE_S = 60


def _uvloop() -> Any:
    import uvloop

    return uvloop.new_event_loop()


#: Functions that return a new loop, by name.
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.SelectorEventLoop, "uvloop": _uvloop}


def run(main: Coroutine[Any, Any, T], loop: str = "asyncio") -> T:
    """Run a coroutine in a new loop, in at most ``PATIENCE_S``."""
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(asyncio.wait_for(main, PATIENCE_S))


async def until(condition: Callable[[], object]) -> None:
    """Let the loop run until a condition holds; ``run`` has the bound."""
    while not condition():
        await asyncio.sleep(0.001)


async def some_iterations(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
