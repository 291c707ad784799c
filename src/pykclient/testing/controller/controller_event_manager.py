"""The controller's event queue (Java: ControllerEventManager)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from pykclient.errors import ControllerMovedError

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker


class ControllerEvent:
    """An event.

    ``process`` handles it; ``preempt`` is called instead if the broker's session ends first. Thread: loop.
    """

    __slots__ = ("name", "preempt", "process")

    def __init__(self, name: str, process: Callable[[], None], preempt: Callable[[], None] | None = None) -> None:
        self.name = name
        self.process = process
        self.preempt = preempt

    def __repr__(self) -> str:
        return f"ControllerEvent({self.name})"


class ControllerEventManager:
    """A queue of events; each turn of the loop processes one.

    While the broker has no contact with the coordination service, no event is processed; Java's thread would block in
    its next call. Contact cannot be lost during an event, so either all of its calls reach the service or none does.

    Thread: loop.
    """

    def __init__(self, broker: Broker, on_controller_moved: Callable[[], None]) -> None:
        self._broker = broker
        self._on_controller_moved = on_controller_moved
        self._log = broker.log_context.logger(__name__)
        self._queue: deque[ControllerEvent] = deque()
        self._scheduled = False
        self._closed = False

    def put(self, event: ControllerEvent) -> None:
        if not self._closed:
            self._queue.append(event)
            self.resume()

    def preempt_all(self) -> None:
        """Discard all waiting events, and call their ``preempt``."""
        preempted, self._queue = self._queue, deque()
        for queued in preempted:
            if queued.preempt is not None:
                queued.preempt()

    def close(self) -> None:
        self._closed = True
        self._queue.clear()

    def resume(self) -> None:
        """Process events again: there is a new one, or the service is reachable again."""
        if self._queue and not self._scheduled and not self._closed:
            self._scheduled = True
            self._broker.call_soon(self._process_next)

    def _process_next(self) -> None:
        self._scheduled = False
        if not self._queue or self._closed or not self._broker.coordination.connected:
            return
        event = self._queue.popleft()
        self._log.debug("Processing %s", event.name)
        try:
            event.process()
        except ControllerMovedError as error:
            self._log.info("Not the controller any more, as %s shows: %s", event.name, error)
            self._on_controller_moved()
        finally:
            self.resume()
