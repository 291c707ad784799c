"""What threads do, counted: CPU time says the same on a quiet machine, and anything at all on a busy one."""

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
    """Calls that threads made, of Python functions and of built-in ones, from the time on that each was started."""

    def __init__(self) -> None:
        self._made: Counter[int] = Counter()

    def note(self, frame: FrameType, event: str, argument: Any) -> None:
        """What ``sys.setprofile`` is given: it is called in the thread that makes a call."""
        if event in ("call", "c_call"):
            self._made[threading.get_ident()] += 1

    def of(self, thread: threading.Thread) -> int:
        """How many a running thread has made."""
        assert thread.ident is not None
        return self._made[thread.ident]

    def per_s(self, idle: Callable[[], object], *threads: threading.Thread) -> dict[str, float]:
        """How many calls the threads make in a second, by their names, while the caller runs ``idle``."""
        before = [self.of(thread) for thread in threads]
        start = time.monotonic()
        idle()
        lasted_s = time.monotonic() - start
        return {thread.name: (self.of(thread) - made) / lasted_s for thread, made in zip(threads, before, strict=True)}


@contextlib.contextmanager
def counted_calls() -> Iterator[Calls]:
    """Count in this thread, and in those that are started in the block."""
    calls = Calls()
    of_this, of_others = sys.getprofile(), threading.getprofile()
    threading.setprofile(calls.note)
    sys.setprofile(calls.note)
    try:
        yield calls
    finally:
        sys.setprofile(of_this)
        threading.setprofile(of_others)
