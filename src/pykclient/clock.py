"""The source of time, waits by it, and calls that must not wait. Only this module uses the machine's clocks.

There are two clocks, which must never be compared: ``now_ms`` is monotonic and meaningless outside the process;
``wall_ms`` is the time of day, as in record timestamps.

A signal handler, or a ``__del__`` that the garbage collector runs, can interrupt a thread between two instructions
while that thread holds a lock. If it calls the client again, the call cannot wait for that lock, nor for another thread
that needs it: the interrupted code continues only after the call has returned.

So code that holds a lock also holds its thread's mark (``with HERE.mark, lock:``), and calls that take locks or wait
for other threads refuse to run on a thread that holds its mark. The mark is a lock that only its own thread takes. It
is implemented in C, so no exception can come between taking the mark and the block, or leave the mark taken. A thread
never holds its mark while it waits for something other than a lock, nor while it runs code of the application.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, Protocol

from pykclient.errors import IllegalStateError
from pykclient.system_time import monotonic_ms, wall_ms


class Signal(Protocol):
    """Lets one thread wait until another thread wakes it.

    Unlike with a condition there is no lock around the wait: a signal handler may interrupt the waiting thread
    anywhere, and ``set`` never blocks.
    """

    def wait(self, timeout_ms: int) -> bool:
        """Wait until the signal is set, for at most ``timeout_ms``, and clear it. Return False on timeout.

        Thread: the one that waits.
        """

    def set(self) -> None:
        """End the wait, or the next one if no thread is waiting. Thread: any."""


class Clock(Protocol):
    """A source of time, and a way to wait (Java: Time). Thread: any."""

    def now_ms(self) -> int:
        """Return monotonic milliseconds."""

    def wall_ms(self) -> int:
        """Return milliseconds since the epoch."""

    def sleep_ms(self, duration_ms: int) -> None:
        """Wait for ``duration_ms``."""

    def new_signal(self) -> Signal:
        """Return a signal that waits by this clock."""

    def new_condition(self, lock: Any = None) -> threading.Condition:
        """Return a condition to ``wait`` for with this clock, using ``lock`` or a new lock."""

    def wait(self, condition: threading.Condition, timeout_ms: int) -> bool:
        """Wait for a condition whose lock is held; return False after ``timeout_ms``."""


class LockSignal:
    """A Signal made of a lock, which is held while the signal is not set."""

    __slots__ = ("_unset",)

    def __init__(self) -> None:
        self._unset = threading.Lock()
        self._unset.acquire()

    def wait(self, timeout_ms: int) -> bool:
        return self._unset.acquire(timeout=min(max(timeout_ms, 0) / 1000, threading.TIMEOUT_MAX))

    def set(self) -> None:
        if self._unset.locked():
            with contextlib.suppress(RuntimeError):  # another thread has set the signal in between
                self._unset.release()


class SystemClock:
    """The machine's clocks. Thread: any."""

    now_ms = staticmethod(monotonic_ms)  # not through a method of its own, as each poll reads the time several times
    wall_ms = staticmethod(wall_ms)

    def sleep_ms(self, duration_ms: int) -> None:
        time.sleep(duration_ms / 1000)

    def new_signal(self) -> Signal:
        return LockSignal()

    def new_condition(self, lock: Any = None) -> threading.Condition:
        return threading.Condition(lock)

    def wait(self, condition: threading.Condition, timeout_ms: int) -> bool:
        return condition.wait(min(timeout_ms / 1000, threading.TIMEOUT_MAX))


SYSTEM_CLOCK = SystemClock()

#: The value for "no bound" in milliseconds (292 million years).
FOREVER_MS = (1 << 63) - 1


class Timer:
    """The deadline of one operation (Java: Timer).

    Its time changes only with ``update``, so a decision sees one instant.

    Thread: owner.
    """

    def __init__(self, clock: Clock, timeout_ms: int) -> None:
        self._clock = clock
        self.now_ms = self._start_ms = now_ms = clock.now_ms()
        self.timeout_ms = timeout_ms = timeout_ms if timeout_ms > 0 else 0
        deadline_ms = now_ms + timeout_ms
        self.deadline_ms = deadline_ms if deadline_ms < FOREVER_MS else FOREVER_MS

    def reset(self, timeout_ms: int) -> None:
        """Restart with ``timeout_ms`` from the last seen instant. Negative values count as 0."""
        self.timeout_ms = timeout_ms = timeout_ms if timeout_ms > 0 else 0
        self._start_ms = now_ms = self.now_ms
        deadline_ms = now_ms + timeout_ms
        self.deadline_ms = deadline_ms if deadline_ms < FOREVER_MS else FOREVER_MS

    def update(self, now_ms: int | None = None) -> None:
        """Set the current instant. Time never goes back."""
        if now_ms is None:
            now_ms = self._clock.now_ms()
        self.now_ms = max(self.now_ms, now_ms)

    @property
    def elapsed_ms(self) -> int:
        return self.now_ms - self._start_ms

    @property
    def remaining_ms(self) -> int:
        return max(0, self.deadline_ms - self.now_ms)

    @property
    def expired(self) -> bool:
        return self.now_ms >= self.deadline_ms

    @property
    def not_expired(self) -> bool:
        return self.now_ms < self.deadline_ms

    def sleep_ms(self, duration_ms: int) -> None:
        """Sleep for ``duration_ms`` or the remaining time, whichever is less; then update."""
        self._clock.sleep_ms(min(duration_ms, self.remaining_ms))
        self.update()


class _Here(threading.local):
    """The state of the current thread."""

    def __init__(self) -> None:
        self.mark = threading.RLock()


HERE = _Here()


def is_interrupting() -> bool:
    """Return True if the current call interrupts code of this thread that holds a lock."""
    owned: bool = HERE.mark._is_owned()  # type: ignore[attr-defined]
    return owned


def ensure_not_interrupting(call: str) -> None:
    """Check that ``call``, the name of a method, does not interrupt code of this thread that holds a lock.

    Raises:
        IllegalStateError: it does, and waiting would never end.
    """
    if HERE.mark._is_owned():  # type: ignore[attr-defined]
        raise interrupting(call)


def interrupting(call: str) -> IllegalStateError:
    """Return the error for ``call``, the name of a method, which interrupts code of this thread that holds a lock."""
    return IllegalStateError(
        f"{call} was called by a signal handler or a __del__ while this thread was inside another call to a client and "
        "held a lock, so it would wait for itself. Set a flag there, or raise an exception, and make the call outside"
    )
