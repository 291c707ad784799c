"""Serialized appends to a slow disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker


class DiskQueue:
    """Runs the writes to a broker's disk in order: immediately, or each ``disk.write_delay_ms`` after the previous one.

    Writes of a killed broker that were not due yet are lost, as on a real disk. Thread: loop.
    """

    __slots__ = ("_broker", "_waiting")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()

    def submit(self, write: Callable[..., object], *arguments: Any) -> None:
        """Call ``write`` after everything submitted before."""
        if not self._waiting and not self._broker.disk.write_delay_ms:
            write(*arguments)
            return
        self._waiting.append((write, arguments))
        if len(self._waiting) == 1:
            self._broker.call_later(self._broker.disk.write_delay_ms, self._next)

    @property
    def idle(self) -> bool:
        """True if everything is written."""
        return not self._waiting

    def clear(self) -> None:
        self._waiting.clear()

    def _next(self) -> None:
        if not self._waiting:
            return
        write, arguments = self._waiting[0]
        try:
            write(*arguments)
        finally:
            if self._waiting:
                self._waiting.popleft()
            if self._waiting:
                self._broker.call_later(self._broker.disk.write_delay_ms, self._next)
