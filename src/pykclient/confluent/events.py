"""Events that wait for the application, and the wait for them.

librdkafka calls the application only inside ``poll``, ``flush`` and ``consume``. So whatever happens on other threads
becomes an event, and these calls serve the events.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sized
from math import ceil

from pykclient.clock import SYSTEM_CLOCK, Signal
from pykclient.system_time import monotonic_ms

#: Longest wait, so that a signal's handler runs in time and timers are checked.
_SLICE_S = 0.2
#: What an event returns that does not end a wait for events.
UNCOUNTED = object()


def monotonic() -> float:
    """Return the time in seconds, from an arbitrary start."""
    return monotonic_ms() / 1000


def remaining(deadline: float | None) -> float:
    """Return the seconds to ``deadline``, at most one slice; None stands for no deadline."""
    return _SLICE_S if deadline is None else max(0.0, min(_SLICE_S, deadline - monotonic()))


def deadline_of(timeout: float) -> float | None:
    """Return the end of a timeout in seconds; None if it is negative, which means forever.

    Raises:
        TypeError: ``timeout`` is not a number.
    """
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        if timeout is None or isinstance(timeout, str):
            raise TypeError(f"must be real number, not {type(timeout).__name__}")
        timeout = float(timeout)
    return None if timeout < 0 else monotonic() + timeout


class Events:
    """A queue of events: calls without arguments, in order.

    ``put`` may be called on any thread. Threads that wait are woken by the first event, and ``listener`` is called.
    """

    def __init__(self) -> None:
        self.queue: deque[Callable[[], object]] = deque()
        #: A signal for each thread that waits. A signal handler that raises may break a threading.Event for ever.
        self._waiting: set[Signal] = set()
        self.listener: Callable[[], object] | None = None

    def put(self, event: Callable[[], object]) -> None:
        """Add an event."""
        self.queue.append(event)
        self.wake()

    def wake(self) -> None:
        """Wake the threads that wait."""
        if self._waiting:
            for signal in self._waiting.copy():
                signal.set()
        listener = self.listener
        if listener is not None:
            listener()

    def __len__(self) -> int:
        return len(self.queue)

    def serve(self) -> int:
        """Run the events that wait now; return their number, without those that return UNCOUNTED.

        An exception of an event ends this, and is raised.
        """
        waiting = self.queue
        served = 0
        for _ in range(len(waiting)):
            try:
                event = waiting.popleft()
            except IndexError:  # another thread serves them, too
                break
            if event() is not UNCOUNTED:
                served += 1
        return served

    def wait(self, timeout: float, others: Sized = ()) -> None:
        """Wait until there is an event, or something in ``others``, or ``timeout`` seconds have passed.

        Call ``wake`` after adding to ``others``.
        """
        signal = SYSTEM_CLOCK.new_signal()
        try:
            self._waiting.add(signal)
            if not self.queue and not len(others):
                signal.wait(ceil(timeout * 1000))
        finally:
            self._waiting.discard(signal)
