"""State that the application and the heartbeat thread share, whose changes end the wait of that thread."""

from __future__ import annotations

import threading

from pykclient.clock import Clock


class SignalledState:
    """A lock, and a counter of the changes under it that the heartbeat thread must see. Thread: any."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # guards: what the subclass names, and the counter
        self._condition = clock.new_condition(self._lock)
        #: A counter that rises with every change that the heartbeat thread must see. A single read needs no lock.
        self.signals = 0

    def signal(self) -> None:
        """Make the heartbeat thread check again."""
        with self._lock:
            self._signal()

    def _signal(self) -> None:
        self.signals += 1
        self._condition.notify_all()

    def wait_for_signal(self, seen: int, timeout_ms: int) -> None:
        """Wait until ``signals`` is not ``seen``, or for ``timeout_ms``.

        The caller reads ``seen`` before it decides to wait, so that it cannot miss a signal in between.
        """
        with self._lock:
            if self.signals == seen:
                self._clock.wait(self._condition, timeout_ms)
