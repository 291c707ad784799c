"""Requests that wait for an event or a timeout (Java: DelayedOperationPurgatory)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.event_loop import TimerHandle


@dataclass(eq=False)
class DelayedOperation:
    """An operation that is completed exactly once: when ``try_complete`` succeeds, or after ``delay_ms``.

    Subclasses define the condition and the completion. Thread: loop.
    """

    delay_ms: int
    deadline_ms: int = field(default=0, init=False)
    completed: bool = field(default=False, init=False)
    keys: tuple[Hashable, ...] = field(default=(), init=False)

    def force_complete(self) -> bool:
        """Complete the operation unconditionally; return False if it was completed before."""
        if self.completed:
            return False
        self.completed = True
        self.on_complete()
        return True

    def try_complete(self, key: Hashable | None) -> bool:
        """Complete the operation if its condition holds. ``key`` has changed; None means anything."""
        raise NotImplementedError

    def on_complete(self) -> None:
        """Carry out the completion. Called once."""
        raise NotImplementedError

    def on_expiration(self) -> None:
        """Handle the timeout, before ``on_complete``."""


class DelayedOperationPurgatory:
    """Waiting operations, indexed by the keys they watch.

    Operations with the same delay expire in the order of their arrival, so one queue per delay and a single timer
    suffice. The purgatory removes operations that it completes from all keys and queues. It removes operations
    completed elsewhere when it next checks one of their keys, or when they expire. Thread: loop.
    """

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._watchers: dict[Hashable, dict[DelayedOperation, None]] = {}
        self._by_delay: dict[int, OrderedDict[DelayedOperation, None]] = {}
        self._timer: TimerHandle | None = None
        self._timer_ms = 0

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> bool:
        """Complete the operation now if possible, otherwise when one of ``keys`` changes or it times out."""
        if operation.try_complete(None):
            return True
        operation.keys = keys = tuple(keys)
        watchers = self._watchers
        for key in keys:
            watched = watchers.get(key)
            if watched is None:
                watchers[key] = {operation: None}
            else:
                watched[operation] = None
        self._expire_later(operation)
        return False

    def check_and_complete(self, key: Hashable) -> int:
        """Check the operations that watch ``key``; return the number of those completed."""
        watched = self._watchers.get(key)
        if not watched:
            return 0
        completed = 0
        for operation in list(watched):
            if operation.completed:
                self._forget(operation)
            elif operation.try_complete(key):
                completed += 1
                self._forget(operation)
        return completed

    def is_watched(self, key: Hashable) -> bool:
        """Return whether any operation watches ``key``."""
        return key in self._watchers

    @property
    def waiting(self) -> int:
        """The number of waiting operations."""
        return sum(map(len, self._by_delay.values()))

    def shutdown(self) -> None:
        """Discard all operations without completing them."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._watchers.clear()
        self._by_delay.clear()

    def _forget(self, operation: DelayedOperation) -> None:
        watchers = self._watchers
        for key in operation.keys:
            watched = watchers.get(key)
            if watched is not None:
                watched.pop(operation, None)
                if not watched:
                    del watchers[key]
        queue = self._by_delay.get(operation.delay_ms)
        if queue is not None:
            queue.pop(operation, None)
            if not queue:
                del self._by_delay[operation.delay_ms]

    # --- time ------------------------------------------------------------------------------------------------------

    def _expire_later(self, operation: DelayedOperation) -> None:
        delay_ms = operation.delay_ms
        operation.deadline_ms = deadline_ms = self._broker.loop.now_ms + delay_ms
        queue = self._by_delay.get(delay_ms)
        if queue is None:
            queue = self._by_delay[delay_ms] = OrderedDict()
        queue[operation] = None
        if self._timer is None or deadline_ms < self._timer_ms:
            self._arm(deadline_ms)

    def _arm(self, deadline_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        self._timer = self._broker.call_later(deadline_ms - self._broker.loop.now_ms, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now_ms = self._broker.loop.now_ms
        for queue in list(self._by_delay.values()):
            while queue and (operation := next(iter(queue))).deadline_ms <= now_ms:
                self._forget(operation)
                if not operation.completed:
                    operation.on_expiration()
                    operation.force_complete()
        deadlines = [next(iter(queue)).deadline_ms for queue in self._by_delay.values()]
        if deadlines and (self._timer is None or min(deadlines) < self._timer_ms):
            self._arm(min(deadlines))
