"""The schedule of a cluster: callbacks and timers, without a thread or clock of its own."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

from pykclient.clock import FOREVER_MS, Clock
from pykclient.log_context import LogContext


def below(rng: random.Random, limit: int) -> int:
    """Return the same as ``rng.randrange(limit)`` for a ``limit`` of at least 1, in a third of the time."""
    bits = limit.bit_length()
    number = rng.getrandbits(bits)
    while number >= limit:
        number = rng.getrandbits(bits)
    return number


#: The maximum number of callbacks per call of ``run_due``, so that the loop's driver also checks its sockets.
_MAX_PER_ROUND = 1000

#: The number of timers from which it pays to look for cancelled ones.
_SWEEP_FROM = 256


class TimerHandle:
    """A callback due at ``when_ms``. Thread: loop."""

    __slots__ = ("_arguments", "_callback", "when_ms")

    def __init__(self, when_ms: int, callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self.when_ms = when_ms
        self._callback: Callable[..., object] | None = callback
        self._arguments = arguments

    @property
    def active(self) -> bool:
        """True until it is called or cancelled."""
        return self._callback is not None

    def cancel(self) -> None:
        """Cancel the callback. Do nothing if it was called already."""
        self._callback = None
        self._arguments = ()


class EventLoop:
    """Runs callbacks one after the other, in the order in which they become due.

    All code of the cluster runs here, so none of it needs a lock. The loop never waits: ``run_due`` runs what is due
    and returns the time until the next timer. In a real cluster a thread then waits for its sockets; in a simulation
    time jumps. An exception that leaves a callback is a bug in the cluster: it is logged and kept in ``failure`` for
    the application, and the loop continues.

    Thread: loop.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.failure: BaseException | None = None
        self._log = LogContext().logger(__name__)
        self._ready: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._timers: list[tuple[int, int, TimerHandle]] = []  # a heap by due time and number
        self._sweep_at = _SWEEP_FROM
        self._number = 0
        self.steps = 0

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    @property
    def wall_ms(self) -> int:
        return self.clock.wall_ms()

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Call ``callback`` after everything that is already due."""
        self._ready.append((callback, arguments))

    def call_later(self, delay_ms: int, callback: Callable[..., object], *arguments: Any) -> TimerHandle:
        """Call ``callback`` in ``delay_ms``. Callbacks due at the same instant run in the order of these calls."""
        self._number = number = self._number + 1
        when_ms = self.clock.now_ms()
        if delay_ms > 0:
            when_ms += delay_ms
        timer = TimerHandle(when_ms, callback, arguments)
        timers = self._timers
        heappush(timers, (when_ms, number, timer))
        if len(timers) > self._sweep_at:
            # Most timers are timeouts that are cancelled long before they are due.
            timers[:] = [entry for entry in timers if entry[2].active]
            heapify(timers)
            self._sweep_at = 2 * len(timers) + _SWEEP_FROM
        return timer

    def run_due(self) -> int:
        """Run the callbacks that are due; return the milliseconds until the next timer, or FOREVER_MS if there is none.

        The result is 0 if there is more to do: after a thousand callbacks the loop's driver gets its turn.
        """
        ready, timers = self._ready, self._timers
        now_ms = self.clock.now_ms()  # once: timers that become due meanwhile wait for the next call
        callback: Callable[..., object] | None
        for _ in range(_MAX_PER_ROUND):
            if timers and timers[0][0] <= now_ms:
                timer = heappop(timers)[2]
                callback = timer._callback
                if callback is None:
                    continue
                arguments = timer._arguments
                timer._callback = None  # it is not active any more
                timer._arguments = ()
            elif ready:
                callback, arguments = ready.popleft()
            else:
                return self.next_due_ms()
            self.steps += 1
            try:
                callback(*arguments)
            except Exception as error:  # noqa: BLE001 - one event of one broker must not end the whole cluster
                self._log.exception("An event of the cluster failed: %r", callback)
                if self.failure is None:
                    self.failure = error
        return 0

    def next_due_ms(self) -> int:
        """Return the milliseconds until the next callback is due."""
        if self._ready:
            return 0
        timers = self._timers
        while timers:
            when_ms, _, timer = timers[0]
            if timer._callback is not None:
                left_ms = when_ms - self.clock.now_ms()
                return left_ms if left_ms > 0 else 0
            heappop(timers)
        return FOREVER_MS
