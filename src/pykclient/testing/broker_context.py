"""The base of a broker: its identity, settings, state (Java: BrokerState) and share of the loop."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from pykclient.errors import check_move
from pykclient.log_context import LogContext
from pykclient.network.cluster_connection_states import ApiVersions, BackoffConfig
from pykclient.network.metadata_updater import MetadataUpdater
from pykclient.network.network_client import NetworkClient, NetworkClientConfig
from pykclient.testing.config import BrokerConfig
from pykclient.testing.event_loop import EventLoop, TimerHandle
from pykclient.testing.memory_network import MemoryNetwork, MemorySelector
from pykclient.testing.release_profiles import FinalizedFeatures, ReleaseProfile
from pykclient.types import Node

NOT_RUNNING: Final = "NOT_RUNNING"
STARTING: Final = "STARTING"
RUNNING: Final = "RUNNING"
PENDING_CONTROLLED_SHUTDOWN: Final = "PENDING_CONTROLLED_SHUTDOWN"
SHUTTING_DOWN: Final = "SHUTTING_DOWN"
STOPPED: Final = "STOPPED"

_MOVES: Final = {
    NOT_RUNNING: (STARTING,),
    STARTING: (RUNNING, SHUTTING_DOWN, STOPPED),
    RUNNING: (PENDING_CONTROLLED_SHUTDOWN, SHUTTING_DOWN, STOPPED),
    PENDING_CONTROLLED_SHUTDOWN: (SHUTTING_DOWN, STOPPED),
    SHUTTING_DOWN: (STOPPED,),
    STOPPED: (),
}

#: The backoff of connections to other brokers.
_BACKOFF: Final = BackoffConfig(50, 1_000, 10_000, 30_000)


class BrokerContext:
    """A broker without its parts. Each part gets it, and the other parts that it uses.

    All parts schedule their work through ``call_soon`` and ``call_later``: a paused broker does nothing until it is
    resumed, as after SIGSTOP, and a killed one leaves no work behind. Thread: loop.
    """

    def __init__(
        self,
        node: Node,
        config: BrokerConfig,
        loop: EventLoop,
        network: MemoryNetwork,
        rng: random.Random,
        *,
        profile: ReleaseProfile,
        features: FinalizedFeatures,
    ) -> None:
        self.id = node.id
        self.node = node
        self.config = config
        self.loop = loop
        self.rng = rng
        self.profile = profile
        self.features = features
        #: The epoch of the registration with the controller.
        self.epoch = -1
        self.state = NOT_RUNNING
        #: True from the start until the broker has stopped or died.
        self.alive = False
        self.paused = False
        self.log_context = LogContext(f"[Broker id={node.id}] ")
        self._network = network
        self._held: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._clients: list[NetworkClient] = []
        self._periodic: dict[Callable[[], object], TimerHandle] = {}

    @property
    def party(self) -> str:
        """The broker's name as a party of links."""
        return f"broker-{self.id}"

    def move(self, state: str) -> None:
        """Enter another state.

        Raises:
            IllegalStateError: the table does not have this transition.
        """
        check_move("a broker", _MOVES, self.state, state)
        self.state = state
        self.alive = state != STOPPED

    # --- its share of the loop ---------------------------------------------------------------------------------------

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Schedule a callback on the loop while the broker lives. If it is paused, the callback runs later."""
        self.loop.call_soon(self._call, callback, arguments)

    def call_later(self, delay_ms: int, callback: Callable[..., object], *arguments: Any) -> TimerHandle:
        """Schedule a delayed callback on the loop while the broker lives. If it is paused, the callback runs later."""
        return self.loop.call_later(delay_ms, self._call, callback, arguments)

    def every(self, interval_ms: int, work: Callable[[], object]) -> None:
        """Call ``work`` at an interval while the broker lives."""

        def run() -> None:
            self.every(interval_ms, work)
            work()

        self._periodic[work] = self.call_later(interval_ms, run)

    def _call(self, callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        if self.paused:
            self._held.append((callback, arguments))
        elif self.alive:
            callback(*arguments)

    def pause(self) -> None:
        """Stop working. Connections stay open, but nothing is read from them."""
        self.paused = True

    def resume(self) -> None:
        """Continue after a pause, first with everything that has become due."""
        self.paused = False
        while self._held:
            callback, arguments = self._held.popleft()
            self.loop.call_soon(self._call, callback, arguments)

    # --- reaching other brokers --------------------------------------------------------------------------------------

    def new_network_client(self, purpose: str) -> tuple[NetworkClient, MemorySelector]:
        """Return a client for requests to other brokers. The caller drives it; it is closed with the broker."""
        selector = MemorySelector(self._network, self.party)
        client = NetworkClient(
            NetworkClientConfig(
                client_id=f"broker-{self.id}-{purpose}",
                max_in_flight_requests_per_connection=1,
                request_timeout_ms=self.config["request.timeout.ms"],
                backoff=_BACKOFF,
                discover_broker_versions=False,
                host_resolver=self._network.host_resolver,
                rng=self.rng,
            ),
            selector,
            MetadataUpdater(),
            ApiVersions(),
            self.loop.clock,
            self.log_context,
        )
        self._clients.append(client)
        return client, selector

    def close_network_client(self, client: NetworkClient) -> None:
        """Close a client before the broker stops."""
        self._clients.remove(client)
        client.close()

    def stop(self) -> None:
        """Close the connections to other brokers, and drop periodic work and the work that was held during a pause."""
        for client in self._clients:
            client.close()
        self._clients.clear()
        for timer in self._periodic.values():
            timer.cancel()
        self._periodic.clear()
        self._held.clear()
        self.move(STOPPED)
