"""A broker: its components, and the order in which they start and stop (Java: KafkaServer)."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from pykclient.errors import NotControllerError
from pykclient.log_context import LogContext
from pykclient.network.api_versions import ApiVersions
from pykclient.network.client_request import ClientResponse, RequestBuilder
from pykclient.network.cluster_connection_states import BackoffConfig
from pykclient.network.metadata_updater import ManualMetadataUpdater, MetadataUpdater
from pykclient.network.network_client import NetworkClient, NetworkClientConfig
from pykclient.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from pykclient.testing import broker_state
from pykclient.testing.auto_topic_creation_manager import AutoTopicCreationManager
from pykclient.testing.controller.kafka_controller import KafkaController
from pykclient.testing.coordination.coordination_client import CoordinationClient
from pykclient.testing.event_loop import TimerHandle
from pykclient.testing.group.group_coordinator import GroupCoordinator
from pykclient.testing.group.share_group_manager import PartitionMetadataClient
from pykclient.testing.inter_broker_requests import NodeToControllerChannelManager, ProducerIdManager
from pykclient.testing.log.log_manager import LogManager
from pykclient.testing.memory_network import MemorySelector
from pykclient.testing.metadata_cache import MetadataCache
from pykclient.testing.replica.replica_manager import ReplicaManager
from pykclient.testing.server.kafka_apis import KafkaApis
from pykclient.testing.server.standard_authorizer import AclCache, AuthHelper
from pykclient.testing.share.group_config import GroupConfigManager
from pykclient.testing.share.persister import Persister
from pykclient.testing.share.share_coordinator import ShareCoordinator
from pykclient.testing.share.share_partition_manager import SharePartitionManager
from pykclient.testing.transaction.add_partitions_to_txn_manager import AddPartitionsToTxnManager
from pykclient.testing.transaction.transaction_coordinator import TransactionCoordinator
from pykclient.topic_names import GROUP_METADATA_TOPIC_NAME, SHARE_GROUP_STATE_TOPIC_NAME, TRANSACTION_STATE_TOPIC_NAME
from pykclient.types import Node

if TYPE_CHECKING:
    from pykclient.testing.cluster import Cluster
    from pykclient.testing.config import BrokerConfig
    from pykclient.testing.log.broker_disk import BrokerDisk


class ControlledShutdown:
    """Repeats the request until the broker leads nothing, up to a limit; then the broker stops anyway. Thread: loop."""

    __slots__ = ("_broker", "_done", "_log", "_on_done", "_retries_left")

    def __init__(self, broker: Broker, on_done: Callable[[], None]) -> None:
        self._broker = broker
        self._on_done = on_done
        self._done = False
        self._retries_left: int = broker.config["controlled.shutdown.max.retries"]
        self._log = broker.log_context.logger(__name__)

    def start(self) -> None:
        """Send the request.

        Without any controller, as for the last broker, ``controller.socket.timeout.ms`` ends it.
        """
        broker = self._broker
        request = ControlledShutdownRequest(broker_id=broker.id, broker_epoch=broker.epoch)
        broker.node_to_controller.send_request(RequestBuilder(request), self._on_response, self._finish)

    def _on_response(self, response: ClientResponse) -> None:
        body = response.response_body
        if isinstance(body, ControlledShutdownResponse) and not body.error_code and not body.remaining_partitions:
            self._finish()
        elif self._retries_left:
            self._retries_left -= 1
            self._broker.call_later(self._broker.config["controlled.shutdown.retry.backoff.ms"], self.start)
        else:
            self._log.warning("Stopping although the controller could not move all leaders")
            self._finish()

    def _finish(self) -> None:
        if not self._done:
            self._done = True
            self._on_done()


#: The backoff of connections to other brokers.
_BACKOFF = BackoffConfig(50, 1_000, 10_000, 30_000)


class Coordinator(Protocol):
    """A coordinator whose state is in the partitions of an internal topic that its broker leads. Thread: loop."""

    def on_election(self, partition: int, epoch: int) -> None:
        """Take over a partition that its broker leads from ``epoch`` on."""

    def on_resignation(self, partition: int, epoch: int) -> None:
        """Give up a partition. ``epoch`` is negative if the partition was deleted."""


class Broker:
    """A broker from one start to the next stop. Only its ``disk`` outlives it.

    All components schedule their work through ``call_soon`` and ``call_later``: a paused broker does nothing until it
    is resumed, as after SIGSTOP, and a killed one leaves no work behind. Thread: loop.
    """

    def __init__(
        self, cluster: Cluster, node: Node, config: BrokerConfig, disk: BrokerDisk, rng: random.Random
    ) -> None:
        self.cluster = cluster
        self.loop = cluster.loop
        self.id = node.id
        self.node = node
        self.config = config
        self.disk = disk
        self.rng = rng
        self.cluster_id = cluster.config.cluster_id
        self.epoch = -1
        self.state = broker_state.NOT_RUNNING
        #: True from the start until the broker has stopped or died.
        self.alive = False
        self.paused = False
        self._held: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self.log_context = LogContext(f"[Broker id={node.id}] ")
        self._log = self.log_context.logger(__name__)
        self._clients: list[NetworkClient] = []
        self.faults = cluster.faults
        self.history = cluster.history
        self.quotas = cluster.quotas
        self.coordination = CoordinationClient(self)
        self._acl_cache: AclCache = AclCache(self)
        self.auth: AuthHelper = self._acl_cache.auth
        self.log_manager = LogManager(self)
        self.metadata_cache: MetadataCache = MetadataCache(self)
        self.node_to_controller = NodeToControllerChannelManager(self)
        self.replica_manager = ReplicaManager(self)
        self.controller = KafkaController(self)
        self.auto_topic_creation = AutoTopicCreationManager(self)
        self.producer_id_manager = ProducerIdManager(self)
        self.group_configs = GroupConfigManager(self)
        self.group_coordinator = GroupCoordinator(self)
        self.transaction_coordinator = TransactionCoordinator(self)
        self.add_partitions_to_txn_manager = AddPartitionsToTxnManager(self)
        self.share_coordinator = ShareCoordinator(self)
        self.share_persister = Persister(self)
        self.share_partition_manager = SharePartitionManager(self)
        self.partition_metadata_client = PartitionMetadataClient(self)
        #: The coordinators by the topics that they store their state in.
        self.coordinators: Mapping[str, Coordinator] = {
            GROUP_METADATA_TOPIC_NAME: self.group_coordinator,
            TRANSACTION_STATE_TOPIC_NAME: self.transaction_coordinator,
            SHARE_GROUP_STATE_TOPIC_NAME: self.share_coordinator,
        }
        self.apis: KafkaApis = KafkaApis(self)
        # In the order of starting; they stop in reverse order.
        self._parts = (
            self.log_manager,
            self.node_to_controller,
            self.replica_manager,
            self.controller,
            self.group_coordinator,
            self.transaction_coordinator,
            self.add_partitions_to_txn_manager,
            self.share_coordinator,
            self.share_persister,
            self.share_partition_manager,
            self.partition_metadata_client,
        )

    @property
    def party(self) -> str:
        """The broker's name as a party of links."""
        return f"broker-{self.id}"

    # --- its share of the loop -------------------------------------------------------------------------------------

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Schedule a callback on the loop while the broker lives. If it is paused, the callback runs later."""
        self.loop.call_soon(self._call, callback, arguments)

    def call_later(self, delay_ms: int, callback: Callable[..., object], *arguments: Any) -> TimerHandle:
        """Schedule a delayed callback on the loop while the broker lives. If it is paused, the callback runs later."""
        return self.loop.call_later(delay_ms, self._call, callback, arguments)

    def _call(self, callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        if self.paused:
            self._held.append((callback, arguments))
        elif self.alive:
            callback(*arguments)

    def pause(self) -> None:
        """Stop working. Connections stay open, but nothing is read from them."""
        self.paused = True
        self.coordination.contact_lost("paused")

    def resume(self) -> None:
        """Continue after a pause, first with everything that has become due."""
        self.paused = False
        self.coordination.contact_regained("paused")
        while self._held:
            callback, arguments = self._held.popleft()
            self.loop.call_soon(self._call, callback, arguments)

    def check_controller_is_reachable(self) -> None:
        """Check that the broker can change the cluster's metadata.

        Raises:
            NotControllerError: it has lost contact with the coordination service. Clients try another broker.
        """
        if not self.coordination.connected:
            raise NotControllerError("This broker cannot reach the controller.")

    def on_disconnect(self, connection_id: str) -> None:
        """Record that a connection to this broker is closed."""
        self.call_soon(self.share_partition_manager.on_disconnect, connection_id)

    # --- start and stop ----------------------------------------------------------------------------------------------

    def _move(self, state: str) -> None:
        self.state = broker_state.move(self.state, state)
        self.alive = state != broker_state.STOPPED

    def startup(self) -> None:
        """Read the logs, open the listeners, register, and take part in the controller election, in this order."""
        self._move(broker_state.STARTING)
        self.log_manager.startup()
        self.node_to_controller.startup()
        self.replica_manager.startup()
        self.cluster.open_listeners(self)
        self.coordination.startup()
        self._acl_cache.startup()
        self.controller.startup()
        self.group_coordinator.startup()
        self.transaction_coordinator.startup()
        self.share_coordinator.startup()
        self._move(broker_state.RUNNING)
        self._log.info("Started at %s:%d, epoch %d", self.node.host, self.node.port, self.epoch)

    def shutdown(self) -> None:
        """Hand over leadership, then stop."""
        self._move(broker_state.PENDING_CONTROLLED_SHUTDOWN)
        if self.config["controlled.shutdown.enable"]:
            ControlledShutdown(self, self._shut_down).start()
        else:
            self._shut_down()

    def _shut_down(self) -> None:
        if self.alive:
            self._move(broker_state.SHUTTING_DOWN)
            self._stop(reset=False)
            self.coordination.close()

    def kill(self) -> None:
        """Die at once, as from SIGKILL: connections are reset, and the session with the coordination service
        expires.
        """
        if self.alive:
            self._stop(reset=True)
            self.coordination.contact_lost("dead")

    def _stop(self, *, reset: bool) -> None:
        self.cluster.close_listeners(self, reset=reset)
        for part in reversed(self._parts):
            part.shutdown()
        for client in self._clients:
            client.close()
        self._clients.clear()
        self._held.clear()
        self._move(broker_state.STOPPED)

    # --- reaching other brokers --------------------------------------------------------------------------------------

    def new_network_client(
        self, purpose: str, metadata_updater: MetadataUpdater | None = None
    ) -> tuple[NetworkClient, MemorySelector]:
        """Return a client for requests to other brokers. The caller drives it; it is closed with the broker."""
        selector = MemorySelector(self.cluster.network, self.party)
        client = NetworkClient(
            NetworkClientConfig(
                client_id=f"broker-{self.id}-{purpose}",
                max_in_flight_requests_per_connection=1,
                request_timeout_ms=self.config["request.timeout.ms"],
                backoff=_BACKOFF,
                discover_broker_versions=False,
                host_resolver=self.cluster.network.host_resolver,
                rng=self.rng,
            ),
            selector,
            metadata_updater or ManualMetadataUpdater(),
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
