"""Counts of the calls that threads make.

CPU time would be as good a measure on a quiet machine, but not on a busy one.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


class Calls:
    """The calls of Python and built-in functions that threads made since each was started."""

    def __init__(self) -> None:
        self._made: Counter[int] = Counter()

    def note(self, frame: FrameType, event: str, argument: Any) -> None:
        """Count a call.

        This is the function given to ``sys.setprofile``, which calls it in the thread that makes the call.
        """
        if event in ("call", "c_call"):
            self._made[threading.get_ident()] += 1

    def of(self, thread: threading.Thread) -> int:
        """Return the number of calls that a running thread has made."""
        assert thread.ident is not None
        return self._made[thread.ident]

    def per_s(self, idle: Callable[[], object], *threads: threading.Thread) -> dict[str, float]:
        """Return how many calls per second each thread makes, by thread name, while the caller runs ``idle``."""
        before = [self.of(thread) for thread in threads]
        start = time.monotonic()
        idle()
        lasted_s = time.monotonic() - start
        return {thread.name: (self.of(thread) - made) / lasted_s for thread, made in zip(threads, before, strict=True)}


@contextlib.contextmanager
def counted_calls() -> Iterator[Calls]:
    """Count the calls of this thread and of threads started in the block."""
    calls = Calls()
    of_this, of_others = sys.getprofile(), threading.getprofile()
    threading.setprofile(calls.note)
    sys.setprofile(calls.note)
    try:
        yield calls
    finally:
        sys.setprofile(of_this)
        threading.setprofile(of_others)
