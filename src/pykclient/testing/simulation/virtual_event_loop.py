"""An asyncio event loop on virtual time, run by one actor of a simulation."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pykclient.network.poller import READ

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykclient.testing.simulation.environment import SimulatedSelector
    from pykclient.testing.simulation.hub import Actor, Hub

#: The longest wait, after which the loop only looks again.
_LONGEST_WAIT_MS = 3_600_000


class _Key(NamedTuple):
    """A registered file object, with the fields of ``selectors.SelectorKey``."""

    fileobj: Any
    fd: int
    events: int
    data: Any


class _VirtualSelector:
    """Waits for the memory connections of clients instead of sockets, behind the interface of ``selectors``.

    Thread: owner of the simulation.
    """

    def __init__(self, hub: Hub, selectors_: Sequence[SimulatedSelector]) -> None:
        self._hub = hub
        self._selectors = selectors_
        self._keys: dict[int, _Key] = {}
        self._woken = False
        self._actor: Actor | None = None

    def register(self, fileobj: Any, events: int, data: Any = None) -> _Key:
        number = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        key = self._keys[number] = _Key(fileobj, number, events, data)
        return key

    def modify(self, fileobj: Any, events: int, data: Any = None) -> _Key:
        return self.register(fileobj, events, data)

    def close(self) -> None:
        self._keys.clear()

    def unregister(self, fileobj: Any) -> _Key:
        return self._keys.pop(fileobj if isinstance(fileobj, int) else fileobj.fileno())

    def get_map(self) -> Mapping[Any, _Key]:
        return self._keys

    def get_key(self, fileobj: Any) -> _Key:
        return self._keys[fileobj if isinstance(fileobj, int) else fileobj.fileno()]

    def select(self, timeout: float | None = None) -> list[tuple[_Key, int]]:
        """Return the clients with news. While there are none, other actors run and time passes."""
        ready = self._ready()
        if ready or self._woken or (timeout is not None and timeout <= 0):
            self._hub.offer_turn()  # as a system call releases the GIL
        else:
            timeout_ms = _LONGEST_WAIT_MS if timeout is None else min(math.ceil(timeout * 1000), _LONGEST_WAIT_MS)
            self._park(timeout_ms)
        self._woken = False
        return self._ready()

    def _park(self, timeout_ms: int) -> None:
        self._actor = actor = self._hub.current
        watched = [selector for selector in self._selectors if selector.fileno() in self._keys]
        for selector in watched:
            selector.waiting = actor
        try:
            actor.park(timeout_ms)
        finally:
            self._actor = None
            for selector in watched:
                selector.waiting = None

    def _ready(self) -> list[tuple[_Key, int]]:
        return [
            (self._keys[selector.fileno()], READ)
            for selector in self._selectors
            if selector.has_news and selector.fileno() in self._keys
        ]

    def wake(self) -> None:
        """End the current wait, or else the next one."""
        self._woken = True
        if self._actor is not None:
            self._actor.wake()


class VirtualEventLoop(asyncio.SelectorEventLoop):
    """The standard library's event loop, whose time is the simulation's. Thread: owner of the simulation."""

    def __init__(self, hub: Hub, selectors_: Sequence[SimulatedSelector]) -> None:
        self._hub = hub
        self._virtual_selector = _VirtualSelector(hub, selectors_)
        super().__init__(self._virtual_selector)  # type: ignore[arg-type] # it has all that the loop calls
        self._clock_resolution = 0.0005  # the clock has whole milliseconds

    def run_forever(self) -> None:
        """Run until ``stop`` is called. Actors may run a loop each."""
        actor = self._hub.current
        actor.event_loop = self
        try:
            super().run_forever()
        finally:
            actor.event_loop = None

    def time(self) -> float:
        return self._hub.clock.time_ms / 1000

    def _write_to_self(self) -> None:
        """Wake the loop: another actor calls ``call_soon_threadsafe``."""
        self._virtual_selector.wake()
