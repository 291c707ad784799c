"""A broker: its components, and the order in which they start and stop (Java: KafkaServer)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol

from pykclient.errors import NotControllerError
from pykclient.network.client_request import ClientResponse, RequestBuilder
from pykclient.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from pykclient.testing import broker_context
from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.config import ClusterConfig
from pykclient.testing.controller.kafka_controller import KafkaController
from pykclient.testing.coordination.coordination_client import CoordinationClient
from pykclient.testing.coordination.coordination_service import CoordinationService
from pykclient.testing.delegation_tokens import DelegationTokens
from pykclient.testing.event_loop import EventLoop
from pykclient.testing.group.group_coordinator import GroupCoordinator
from pykclient.testing.group.share_group_manager import PartitionMetadataClient
from pykclient.testing.inter_broker_requests import (
    AutoTopicCreationManager,
    NodeToControllerChannelManager,
    ProducerIdManager,
)
from pykclient.testing.log.broker_disk import BrokerDisk
from pykclient.testing.log.log_manager import LogManager
from pykclient.testing.memory_network import LinkPolicy, MemoryNetwork
from pykclient.testing.metadata_cache import MetadataCache
from pykclient.testing.quotas import Quotas
from pykclient.testing.release_profiles import FinalizedFeatures, ReleaseProfile
from pykclient.testing.replica.replica_manager import ReplicaManager
from pykclient.testing.request_channel import History, RequestChannel, RequestHandler
from pykclient.testing.share.group_config import GroupConfigManager
from pykclient.testing.share.persister import Persister
from pykclient.testing.share.share_coordinator import ShareCoordinator
from pykclient.testing.share.share_partition_manager import SharePartitionManager
from pykclient.testing.standard_authorizer import AclCache, AclStore, AuthHelper
from pykclient.testing.telemetry import TelemetryReceiver
from pykclient.testing.transaction.add_partitions_to_txn_manager import AddPartitionsToTxnManager
from pykclient.testing.transaction.transaction_coordinator import TransactionCoordinator
from pykclient.topic_names import GROUP_METADATA_TOPIC_NAME, SHARE_GROUP_STATE_TOPIC_NAME, TRANSACTION_STATE_TOPIC_NAME
from pykclient.types import Node


class ControlledShutdown:
    """Repeats the request until the broker leads nothing, up to a limit; then the broker stops anyway. Thread: loop."""

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


class ClusterServices(Protocol):
    """The services that the brokers of a cluster share. Thread: loop."""

    config: ClusterConfig
    loop: EventLoop
    rng: random.Random
    profile: ReleaseProfile
    features: FinalizedFeatures
    network: MemoryNetwork
    links: LinkPolicy
    coordination: CoordinationService
    acls: AclStore
    delegation_tokens: DelegationTokens
    history: History
    quotas: Quotas
    telemetry: TelemetryReceiver | None

    def open_listeners(self, broker: Broker) -> None:
        """Let other brokers and clients connect to a broker."""

    def close_listeners(self, broker: Broker, *, reset: bool) -> None:
        """Close a broker's connections; with ``reset``, as if its process had been killed."""


class Broker(BrokerContext):
    """A broker from one start to the next stop. Only its ``disk`` outlives it.

    ``new_handler`` makes the part that handles requests, which uses all others. Thread: loop.
    """

    def __init__(
        self, cluster: ClusterServices, node: Node, disk: BrokerDisk, new_handler: Callable[[Broker], RequestHandler]
    ) -> None:
        super().__init__(
            node,
            cluster.config.broker_config,
            cluster.loop,
            cluster.network,
            cluster.rng,
            profile=cluster.profile,
            features=cluster.features,
        )
        self.cluster = cluster
        self.disk = disk
        self.quotas = cluster.quotas
        self._log = self.log_context.logger(__name__)
        self.coordination = coordination = CoordinationClient(self, cluster.coordination, cluster.links)
        self._acl_cache = AclCache(coordination, cluster.config)
        self.auth: AuthHelper = self._acl_cache.auth
        self.log_manager = log_manager = LogManager(self, disk, coordination)
        self.metadata_cache = metadata_cache = MetadataCache(self)
        self.node_to_controller = controller = NodeToControllerChannelManager(self, metadata_cache)
        self.replica_manager = replica_manager = ReplicaManager(self, disk, metadata_cache, log_manager, controller)
        self.group_configs = group_configs = GroupConfigManager(self.config, coordination)
        self.controller = KafkaController(self, coordination, metadata_cache, log_manager, group_configs)
        self.auto_topic_creation = AutoTopicCreationManager(self, metadata_cache, controller)
        self.transaction_coordinator = TransactionCoordinator(
            self, replica_manager, metadata_cache, ProducerIdManager(self, controller)
        )
        self.add_partitions_to_txn_manager = AddPartitionsToTxnManager(
            self, replica_manager, metadata_cache, self.transaction_coordinator
        )
        self.share_coordinator = ShareCoordinator(self, replica_manager, metadata_cache)
        persister = Persister(self, metadata_cache, self.auto_topic_creation, self.share_coordinator)
        self.share_partition_manager = SharePartitionManager(self, replica_manager, persister, group_configs)
        partition_metadata_client = PartitionMetadataClient(self, metadata_cache)
        self.group_coordinator = GroupCoordinator(
            self,
            replica_manager,
            metadata_cache,
            group_configs,
            persister,
            partition_metadata_client,
            self.add_partitions_to_txn_manager,
        )
        replica_manager.coordinators[GROUP_METADATA_TOPIC_NAME] = self.group_coordinator
        replica_manager.coordinators[TRANSACTION_STATE_TOPIC_NAME] = self.transaction_coordinator
        replica_manager.coordinators[SHARE_GROUP_STATE_TOPIC_NAME] = self.share_coordinator
        replica_manager.on_resignation = self.share_partition_manager.on_resignation
        self.request_channel = RequestChannel(self, new_handler(self), cluster.history, cluster.quotas)
        # In the order of starting; they stop in reverse order.
        self._parts = (
            log_manager,
            controller,
            replica_manager,
            self.controller,
            self.group_coordinator,
            self.transaction_coordinator,
            self.add_partitions_to_txn_manager,
            self.share_coordinator,
            persister,
            self.share_partition_manager,
            partition_metadata_client,
        )

    def pause(self) -> None:
        super().pause()
        self.coordination.contact_lost("paused")

    def resume(self) -> None:
        self.paused = False
        self.coordination.contact_regained("paused")
        super().resume()

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

    def startup(self) -> None:
        """Read the logs, open the listeners, register, and take part in the controller election, in this order."""
        self.move(broker_context.STARTING)
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
        self.move(broker_context.RUNNING)
        self._log.info("Started at %s:%d, epoch %d", self.node.host, self.node.port, self.epoch)

    def shutdown(self) -> None:
        """Hand over leadership, then stop."""
        self.move(broker_context.PENDING_CONTROLLED_SHUTDOWN)
        if self.config["controlled.shutdown.enable"]:
            ControlledShutdown(self, self._shut_down).start()
        else:
            self._shut_down()

    def _shut_down(self) -> None:
        if self.alive:
            self.move(broker_context.SHUTTING_DOWN)
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
        self.stop()
