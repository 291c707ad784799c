"""Time, handed in: the only module that reads the machine's clocks.

Two clocks that are never compared: ``now_ms`` runs evenly and has no meaning outside the process; ``wall_ms`` is the
time of day that record timestamps carry.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Protocol


class Clock(Protocol):
    """Where time comes from, and how to wait for it to pass (Java: Time). Thread: any."""

    def now_ms(self) -> int:
        """Monotonic milliseconds."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""

    def sleep_ms(self, duration_ms: int) -> None:
        """Let ``duration_ms`` pass."""

    def new_condition(self, lock: Any = None) -> threading.Condition:
        """A condition to ``wait`` for with this clock, on ``lock`` or on a lock of its own."""

    def wait(self, condition: threading.Condition, timeout_ms: int) -> bool:
        """Wait on a held condition for at most ``timeout_ms``; False when the time ran out."""


class SystemClock:
    """The machine's clocks. Thread: any."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep_ms(self, duration_ms: int) -> None:
        time.sleep(duration_ms / 1000)

    def new_condition(self, lock: Any = None) -> threading.Condition:
        return threading.Condition(lock)

    def wait(self, condition: threading.Condition, timeout_ms: int) -> bool:
        return condition.wait(min(timeout_ms / 1000, threading.TIMEOUT_MAX))


SYSTEM_CLOCK = SystemClock()

#: Stands for "no bound" wherever a bound in milliseconds is kept (292 million years).
FOREVER_MS = (1 << 63) - 1


class Timer:
    """A bound on one operation (Java: Timer). Time moves only with ``update``, so a decision sees one instant.

    Thread: owner.
    """

    __slots__ = ("_clock", "_deadline_ms", "_start_ms", "now_ms", "timeout_ms")

    def __init__(self, clock: Clock, timeout_ms: int) -> None:
        self._clock = clock
        self.now_ms = clock.now_ms()
        self.reset(timeout_ms)

    def reset(self, timeout_ms: int) -> None:
        """Start again from the instant last seen, with ``timeout_ms`` from there (negative counts as 0)."""
        self.timeout_ms = timeout_ms = timeout_ms if timeout_ms > 0 else 0
        self._start_ms = now_ms = self.now_ms
        deadline_ms = now_ms + timeout_ms
        self._deadline_ms = deadline_ms if deadline_ms < FOREVER_MS else FOREVER_MS

    def update(self, now_ms: int | None = None) -> None:
        """See the present instant; time never goes back."""
        if now_ms is None:
            now_ms = self._clock.now_ms()
        self.now_ms = max(self.now_ms, now_ms)

    def update_and_reset(self, timeout_ms: int) -> None:
        self.update()
        self.reset(timeout_ms)

    @property
    def elapsed_ms(self) -> int:
        return self.now_ms - self._start_ms

    @property
    def remaining_ms(self) -> int:
        return max(0, self._deadline_ms - self.now_ms)

    @property
    def expired(self) -> bool:
        return self.now_ms >= self._deadline_ms

    @property
    def not_expired(self) -> bool:
        return self.now_ms < self._deadline_ms

    def sleep_ms(self, duration_ms: int) -> None:
        """Sleep for ``duration_ms`` or what remains, whichever is less, then update."""
        self._clock.sleep_ms(min(duration_ms, self.remaining_ms))
        self.update()
