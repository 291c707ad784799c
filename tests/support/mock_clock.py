"""A clock that moves only when a test moves it (Java: MockTime)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from pykclient.clock import LockSignal, Signal


class MockClock:
    """Implements pykclient.clock.Clock. A wait takes no real time: it advances the clock by the time waited.

    ``auto_tick_ms`` is added at each call of ``now_ms``. Listeners run whenever time advances, so a test can act in the
    middle of a wait. The two clocks (``now_ms`` and wall time) start far apart, so code that mixes them fails.
    """

    def __init__(self, now_ms: int = 1_000_000, wall_ms: int = 1_700_000_000_000, auto_tick_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._lock = threading.Lock()  # guards: _now_ms, _wall_ms
        self.auto_tick_ms = auto_tick_ms
        self.listeners: list[Callable[[], None]] = []

    def now_ms(self) -> int:
        if self.auto_tick_ms:
            self.advance(self.auto_tick_ms)
        return self._now_ms

    def wall_ms(self) -> int:
        if self.auto_tick_ms:
            self.advance(self.auto_tick_ms)
        return self._wall_ms

    def advance(self, duration_ms: int) -> None:
        """Advance the time."""
        with self._lock:
            self._now_ms += duration_ms
            self._wall_ms += duration_ms
        for listener in list(self.listeners):
            listener()

    def set_wall_ms(self, wall_ms: int) -> None:
        """Set only the time of day, as an administrator or NTP would."""
        with self._lock:
            self._wall_ms = wall_ms

    def sleep_ms(self, duration_ms: int) -> None:
        self.advance(duration_ms)

    def new_signal(self) -> Signal:
        return MockSignal(self)

    def new_condition(self, lock: Any = None) -> threading.Condition:
        return threading.Condition(lock)

    def wait(self, condition: threading.Condition, timeout_ms: int) -> bool:
        """Let other threads take the lock, then advance the time. Return False, as after a timeout."""
        condition.wait(0.001)
        self.advance(timeout_ms)
        return False


class MockSignal(LockSignal):
    """A signal whose waits advance the clock."""

    __slots__ = ("_clock",)

    def __init__(self, clock: MockClock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout_ms: int) -> bool:
        """Let other threads set the signal, then advance the time."""
        is_set = super().wait(1)
        if not is_set:
            self._clock.advance(timeout_ms)
        return is_set
