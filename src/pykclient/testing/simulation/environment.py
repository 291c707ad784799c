"""The clients' environment in a simulation: actors as threads, the memory network as sockets, seeded randomness."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

from greenlet import GreenletExit

from pykclient.testing.memory_network import MemoryHostResolver, MemoryNetwork, MemorySelector
from pykclient.testing.simulation.hub import (
    Actor,
    Hub,
    SimulatedReentrantLock,
    SimulatedThread,
    VirtualClock,
)

if TYPE_CHECKING:
    from pykclient.log_context import LogContext
    from pykclient.metrics import Metrics
    from pykclient.network.channel_builders import ChannelBuilder
    from pykclient.network.environment import ReentrantLock, Thread
    from pykclient.network.selector import SelectorConfig
    from pykclient.testing.simulation.virtual_event_loop import VirtualEventLoop

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
        from pykclient.testing.simulation.virtual_event_loop import VirtualEventLoop

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
