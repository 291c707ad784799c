"""The clients' environment in a simulation: actors as threads, the memory network as sockets, seeded randomness."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from greenlet import GreenletExit

from pykclient.network.poller import READ
from pykclient.testing.memory_network import MemoryHostResolver, MemoryNetwork, MemorySelector
from pykclient.testing.simulation.hub import Actor, Hub, SimulatedReentrantLock, SimulatedThread, VirtualClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykclient.log_context import LogContext
    from pykclient.metrics import Metrics
    from pykclient.network.channel_builders import ChannelBuilder
    from pykclient.network.environment import ReentrantLock, Thread
    from pykclient.network.selector import SelectorConfig

_numbers = count(1_000_000)
#: A client that polls more often than this without time passing is in a busy loop.
MAX_POLLS_AT_ONE_INSTANT = 1_000


class SimulatedEnvironment:
    """Implements pykclient.network.environment.Environment.

    Thread: owner of the simulation.
    """

    __slots__ = ("_hub", "_network", "_rng", "_selectors", "_threads", "clock", "host_resolver", "killed_by", "party")

    def __init__(self, hub: Hub, network: MemoryNetwork, party: str, rng: random.Random) -> None:
        self._hub = hub
        self._network = network
        self._rng = rng
        self._threads: list[SimulatedThread] = []
        self._selectors: list[SimulatedSelector] = []
        #: The clients' name in the links between parties.
        self.party = party
        self.clock: VirtualClock = hub.clock
        #: The DNS of these clients alone; ``hang`` and ``fail`` do not affect other clients or the brokers.
        self.host_resolver = MemoryHostResolver()
        self.killed_by: tuple[type[BaseException], ...] = (GreenletExit,)

    def new_rng(self) -> random.Random:
        return random.Random(self._rng.getrandbits(64))

    def new_thread(self, run: Callable[[], object], name: str) -> Thread:
        thread = SimulatedThread(self._hub, run, name)
        self._threads.append(thread)
        return thread

    def new_reentrant_lock(self) -> ReentrantLock:
        return SimulatedReentrantLock(self._hub)

    def get_ident(self) -> int:
        return self._hub.current_ident

    def new_selector(
        self,
        config: SelectorConfig,  # noqa: ARG002 - settings of sockets
        metrics: Metrics,  # noqa: ARG002
        log_context: LogContext,  # noqa: ARG002
        channel_builder: ChannelBuilder,  # noqa: ARG002
    ) -> SimulatedSelector:
        selector = SimulatedSelector(self._hub, self._network, self.party)
        self._selectors.append(selector)
        return selector

    def new_event_loop(self) -> VirtualEventLoop:
        """Return an asyncio event loop on virtual time, for the clients of this environment. An actor runs it."""

        return VirtualEventLoop(self._hub, self._selectors)

    def crash(self, *applications: Actor) -> None:
        """Kill the clients, as SIGKILL kills a process.

        Connections end first, then ``applications``, then the clients' threads. The ``finally`` blocks of an actor
        still run, but they reach no broker.
        """
        for selector in self._selectors:
            selector.reset()
        for actor in applications:
            self._hub.end(actor)
        for thread in self._threads:
            thread.end()


class SimulatedSelector(MemorySelector):
    """The connections of one client, whose actor yields its turn while it polls.

    Thread: owner of the simulation.
    """

    def __init__(self, hub: Hub, network: MemoryNetwork, party: str) -> None:
        super().__init__(network, party, on_news=self._wake, wait=self._wait)
        self._hub = hub
        #: The actor to wake for news: the one that polls, or whose event loop watches this selector.
        self.waiting: Actor | None = None
        self._number = next(_numbers)
        self._last_poll_ms = -1
        self._polls = 0

    def poll(self, timeout_ms: int) -> None:
        now_ms = self._hub.clock.time_ms
        if now_ms != self._last_poll_ms:
            self._last_poll_ms = now_ms
            self._polls = 0
        self._polls += 1
        if self._polls > MAX_POLLS_AT_ONE_INSTANT:
            raise self._hub.fail(f"{self.party} polls its connections {self._polls} times without time passing")
        if timeout_ms <= 0:
            self._hub.offer_turn()  # as a system call releases the GIL
        MemorySelector.poll(self, timeout_ms)  # as super() does, without an object for it

    def _wait(self, _: MemorySelector, timeout_ms: int) -> None:
        self.waiting = actor = self._hub.current
        try:
            actor.park(timeout_ms)
        finally:
            self.waiting = None

    def fileno(self) -> int:
        """Return a number for a VirtualEventLoop; no descriptor of the system has it."""
        return self._number

    def _wake(self) -> None:
        if self.waiting is not None:
            self.waiting.wake()


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
