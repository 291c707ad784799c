"""The request managers of one consumer (Java: RequestManagers)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pykclient.clock import FOREVER_MS
from pykclient.consumer.request_manager import NOTHING

if TYPE_CHECKING:
    from pykclient.consumer.request_manager import RequestManager, UnsentRequest


class RequestManagers:
    """Polls managers in the order in which they were added, and passes their requests to ``send``.

    ``send(request, is_background)`` queues a request. Thread: the holder of the I/O lease.
    """

    __slots__ = ("_all", "_background", "_send", "due_ms")

    def __init__(self, send: Callable[[UnsentRequest, bool], object]) -> None:
        self._send = send
        self._all: tuple[RequestManager, ...] = ()
        self._background: tuple[RequestManager, ...] = ()
        #: When a manager may have something to do.
        self.due_ms = 0

    def add(self, *managers: RequestManager) -> None:
        self._all += managers
        self._background += tuple(manager for manager in managers if manager.runs_in_background)

    def poll(self, now_ms: int, *, background: bool = False) -> int:
        """Queue the requests that are due, and return the milliseconds until a manager must be polled again.

        With ``background``, poll only the managers that run in the background.
        """
        wait_ms = FOREVER_MS
        for manager in self._background if background else self._all:
            if not manager.pending:
                continue
            result = manager.poll(now_ms)
            if result is not NOTHING:
                wait_ms = min(wait_ms, result.wait_ms)
                for request in result.requests:
                    self._send(request, manager.runs_in_background)
        if not background:
            self.due_ms = now_ms + wait_ms
        return wait_ms

    def poll_soon(self) -> None:
        """Make managers due, because the application has given one something to do."""
        #: When a manager may have something to do.
        self.due_ms = 0

    def reset(self) -> None:
        """Reset all managers."""
        for manager in self._all:
            manager.reset()
