"""Where clients live in a simulation: actors for threads, the memory network for sockets, one seed for all chance."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from pykclient.testing.memory_network import MemoryNetwork, MemorySelector
from pykclient.testing.simulation.hub import Actor, Hub, SimulatedReentrantLock, SimulatedThread, VirtualClock

if TYPE_CHECKING:
    from pykclient.log_context import LogContext
    from pykclient.metrics import Metrics
    from pykclient.network.environment import ReentrantLock, Thread
    from pykclient.network.host_resolver import HostResolver
    from pykclient.network.kafka_channel import ChannelBuilder
    from pykclient.network.selector import SelectorConfig


class SimulatedEnvironment:
    """Implements pykclient.network.environment.Environment. Thread: owner of the simulation."""

    __slots__ = ("_hub", "_network", "_rng", "_selectors", "_threads", "clock", "host_resolver", "party")

    def __init__(self, hub: Hub, network: MemoryNetwork, party: str, rng: random.Random) -> None:
        self._hub = hub
        self._network = network
        self._rng = rng
        self._threads: list[SimulatedThread] = []
        self._selectors: list[MemorySelector] = []
        #: The clients' name in the links between parties.
        self.party = party
        self.clock: VirtualClock = hub.clock
        self.host_resolver: HostResolver = network.host_resolver

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

    def in_main_thread(self) -> bool:
        return False

    def new_selector(
        self,
        config: SelectorConfig,  # noqa: ARG002 - settings of sockets
        metrics: Metrics,  # noqa: ARG002
        log_context: LogContext,  # noqa: ARG002
        channel_builder: ChannelBuilder,  # noqa: ARG002
    ) -> MemorySelector:
        waiting = _Waiting(self._hub)
        selector = MemorySelector(self._network, self.party, on_news=waiting.end, wait=waiting.begin)
        self._selectors.append(selector)
        return selector

    def crash(self, *applications: Actor) -> None:
        """End what lives here as SIGKILL ends a process: connections first, then ``applications`` and clients' threads.

        What an actor does in ``finally`` on its way out is still done, but reaches nobody.
        """
        for selector in self._selectors:
            selector.reset()
        for actor in applications:
            self._hub.end(actor)
        for thread in self._threads:
            thread.end()


class _Waiting:
    """The actor that waits in a poll of one selector. Thread: owner of the simulation."""

    __slots__ = ("_actor", "_hub")

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._actor: Actor | None = None

    def begin(self, _selector: MemorySelector, timeout_ms: int) -> None:
        self._actor = actor = self._hub.current
        try:
            actor.park(timeout_ms)
        finally:
            self._actor = None

    def end(self) -> None:
        if self._actor is not None:
            self._actor.wake()
