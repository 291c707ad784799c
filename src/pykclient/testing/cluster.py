"""The brokers of a cluster, what they share, and the state of all, for tests to inspect and for reports of failures."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from pykclient.argument_values import shown
from pykclient.errors import IllegalArgumentError, IllegalStateError, for_code
from pykclient.log_context import LogContext
from pykclient.protocol.messages.update_metadata import UpdateMetadataRequest
from pykclient.testing import request_channel
from pykclient.testing.broker import Broker
from pykclient.testing.config import ClusterConfig
from pykclient.testing.coordination.coordination_service import CoordinationService
from pykclient.testing.delegation_tokens import DelegationTokens
from pykclient.testing.event_loop import EventLoop
from pykclient.testing.faults import Faults
from pykclient.testing.log.broker_disk import BrokerDisk
from pykclient.testing.log.log_segment import MemoryBudget
from pykclient.testing.memory_network import MemoryNetwork
from pykclient.testing.quotas import Quotas
from pykclient.testing.release_profiles import (
    GROUP_VERSION,
    SHARE_VERSION,
    TRANSACTION_VERSION,
    FinalizedFeatures,
    ReleaseProfile,
)
from pykclient.testing.server.kafka_apis import KafkaApis
from pykclient.testing.server.socket_server import MemoryServer
from pykclient.testing.standard_authorizer import AclStore
from pykclient.testing.telemetry import TelemetryReceiver
from pykclient.types import ConsumerRecord, Node, TopicPartition

#: The first broker's port in clusters without sockets.
_FIRST_PORT = 9092


class Gateway(Protocol):
    """A way to reach brokers: the memory network, and the sockets of clients outside it. Thread: loop."""

    def open(self, broker: Broker) -> None:
        """Let clients connect."""

    def close_broker(self, broker: Broker, *, reset: bool) -> None:
        """Close a broker's connections, and refuse new ones."""

    def resume(self, broker: Broker) -> None:
        """Handle the requests that arrived while a broker was paused."""


class Cluster:
    """Brokers by id, started and stopped one by one, and everything they share.

    The cluster uses no sockets and no threads. A ``gateway`` brings clients in from outside, and the loop's owner runs
    it. Thread: loop.
    """

    def __init__(
        self,
        config: ClusterConfig,
        loop: EventLoop,
        rng: random.Random,
        *,
        gateway: Gateway | None = None,
        ports: dict[int, int] | None = None,
    ) -> None:
        self.config = config
        self.loop = loop
        self.rng = rng
        self.log_context = LogContext("[Cluster] ")
        self._log = self.log_context.logger(__name__)
        self.faults = Faults(loop, rng)
        self.links = self.faults.links
        self.history = request_channel.History(loop, config.history_size)
        self.quotas = Quotas(config.broker_config, loop)
        self.profile = ReleaseProfile.of(config.release or ReleaseProfile.CURRENT)
        transaction_version = config.transaction_version
        if transaction_version is None:
            transaction_version = self.profile.transaction_version
        self.features = FinalizedFeatures(
            {GROUP_VERSION: 1, SHARE_VERSION: 1, TRANSACTION_VERSION: transaction_version}
        )
        #: Receives the metrics that clients push; None if nobody asks for them.
        self.telemetry: TelemetryReceiver | None = None
        self.budget = MemoryBudget(config.memory_limit_bytes)
        self.network = MemoryNetwork(loop, self.links)
        self.coordination = CoordinationService(loop)
        self.acls = AclStore(self.coordination, config)
        self.delegation_tokens = DelegationTokens(self.coordination, config.broker_config, loop, rng)
        server = MemoryServer(self.network)
        self._gateways: tuple[Gateway, ...] = (server,) if gateway is None else (server, gateway)
        self.nodes = {
            id: Node(
                id,
                config.advertised_host.format(id=id),
                (ports or {}).get(id, _FIRST_PORT + index),
                config.racks.get(id),
            )
            for index, id in enumerate(config.broker_ids)
        }
        self.disks = {id: BrokerDisk(self.budget, f"broker {id}") for id in self.nodes}
        self.brokers: dict[int, Broker] = {}

    # --- brokers -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all brokers. ``is_ready`` is True once they have registered with each other."""
        for id in self.nodes:
            self.start_broker(id)

    def start_broker(self, id: int) -> Broker:
        """Start a broker with the contents of its disk.

        Raises:
            IllegalStateError: it is running.
        """
        node = self._node(id)
        if id in self.brokers and self.brokers[id].alive:
            raise IllegalStateError(f"broker {id} runs already")
        broker = Broker(self, node, self.disks[id], self._new_apis)
        self.brokers[id] = broker
        broker.startup()
        return broker

    def _new_apis(self, broker: Broker) -> KafkaApis:
        return KafkaApis(broker, self.faults, self.history)

    def stop_broker(self, id: int) -> None:
        """Stop a broker cleanly. It hands over its leadership first, and is no longer ``alive`` afterwards."""
        self.broker(id).shutdown()

    def kill_broker(self, id: int) -> None:
        """Kill a broker in the middle of its work."""
        broker = self.broker(id)
        broker.kill()
        if broker.paused:
            self._let_through(broker)  # the next broker of this name must not find its connections blocked

    def pause_broker(self, id: int) -> None:
        """Pause a broker, as a long garbage collection or SIGSTOP does."""
        broker = self.broker(id)
        if not broker.paused:
            broker.pause()
            self.network.pause(broker.party)

    def resume_broker(self, id: int) -> None:
        broker = self.broker(id)
        if broker.paused:
            broker.resume()
            self._let_through(broker)

    def _let_through(self, broker: Broker) -> None:
        self.network.resume(broker.party)
        for gateway in self._gateways:
            gateway.resume(broker)

    def broker(self, id: int) -> Broker:
        """Return a running or paused broker.

        Raises:
            IllegalStateError: the broker is not running.
        """
        self._node(id)
        broker = self.brokers.get(id)
        if broker is None or not broker.alive:
            raise IllegalStateError(f"broker {id} does not run; restart({id}) starts it")
        return broker

    def _node(self, id: int) -> Node:
        node = self.nodes.get(id) if type(id) is int else None
        if node is None:
            raise IllegalArgumentError(f"there is no broker {shown(id)}, only {sorted(self.nodes)}")
        return node

    def alive_brokers(self) -> list[Broker]:
        return [broker for broker in self.brokers.values() if broker.alive]

    # --- for brokers -------------------------------------------------------------------------------------------------

    def open_listeners(self, broker: Broker) -> None:
        """Let other brokers and clients connect to a broker."""
        for gateway in self._gateways:
            gateway.open(broker)

    def close_listeners(self, broker: Broker, *, reset: bool) -> None:
        """Close a broker's connections; with ``reset``, as if its process had been killed."""
        for gateway in self._gateways:
            gateway.close_broker(broker, reset=reset)

    # --- state -------------------------------------------------------------------------------------------------------

    def active_controller(self) -> Broker | None:
        """Return the broker that considers itself the controller, or None."""
        for broker in self.brokers.values():
            if broker.alive and not broker.paused and broker.controller.is_active:
                return broker
        return None

    def is_ready(self) -> bool:
        """True if a controller is elected, and all running brokers know it and one another."""
        controller = self.active_controller()
        if controller is None:
            return False
        alive = {broker.id for broker in self.alive_brokers()}
        for broker in self.alive_brokers():
            snapshot = broker.metadata_cache.snapshot
            if snapshot.controller_id != controller.id or alive != set(snapshot.alive_brokers):
                return False
        return True

    def leader(self, topic_partition: TopicPartition) -> int | None:
        """Return the broker that considers itself the partition's leader; None during an election."""
        best: tuple[int, int] | None = None
        for broker in self.brokers.values():
            partition = broker.replica_manager.partition(topic_partition) if broker.alive else None
            if partition is not None and partition.is_leader:
                leader = partition.leader_epoch, broker.id
                if best is None or leader > best:
                    best = leader
        return None if best is None else best[1]

    def isr(self, topic_partition: TopicPartition) -> list[int]:
        """Return the in-sync replicas according to the leader; empty without a leader."""
        leader = self.leader(topic_partition)
        partition = None if leader is None else self.brokers[leader].replica_manager.partition(topic_partition)
        return [] if partition is None else sorted(partition.isr)

    def move_leader(self, topic_partition: TopicPartition, broker_id: int) -> bool:
        """Make an in-sync replica the leader; return False if the broker is not in sync, or no broker can change it.

        Raises:
            IllegalStateError: there is no controller.
        """
        self.broker(broker_id)
        controller = self.active_controller()
        if controller is None:
            raise IllegalStateError("the cluster has no controller to move a leader; wait until one is elected")
        return controller.coordination.connected and controller.controller.elector.move_leader(
            topic_partition, broker_id
        )

    def log_records(
        self, topic_partition: TopicPartition, broker_id: int | None = None, from_offset: int = 0
    ) -> list[ConsumerRecord[bytes, bytes]]:
        """Return all records in the log of the leader, or of the given broker, even if it is not running."""
        if broker_id is None:
            broker_id = self.leader(topic_partition)
            if broker_id is None:
                if not any(topic_partition in disk.directories for disk in self.disks.values()):
                    raise IllegalStateError(f"there is no log of {topic_partition} on any broker")
                raise IllegalStateError(f"{topic_partition} has no leader; name the broker whose log is to be read")
        directory = self.disk(broker_id).directories.get(topic_partition)
        if directory is None:
            raise IllegalStateError(f"broker {broker_id} has no replica of {topic_partition}")
        broker = self.brokers.get(broker_id)
        log = broker.log_manager.get_log(topic_partition) if broker is not None else None
        start_offset = from_offset if log is None else max(from_offset, log.log_start_offset)
        return [
            ConsumerRecord(
                topic_partition.topic,
                topic_partition.partition,
                batch.partition_leader_epoch if batch.magic >= 2 else None,
                record.offset,
                record.timestamp,
                batch.timestamp_type,
                record.key,
                record.value,
                record.headers,
                None,
                -1 if record.key is None else len(record.key),
                -1 if record.value is None else len(record.value),
            )
            for segment in directory.segments
            for batch in segment.batches()
            if not batch.is_control_batch
            for record in batch.records()
            if record.offset >= start_offset
        ]

    def disk(self, broker_id: int) -> BrokerDisk:
        self._node(broker_id)
        return self.disks[broker_id]

    def describe(self) -> str:
        """Describe the brokers and their states in one line."""
        controller = self.active_controller()
        parts = []
        for id in self.nodes:
            broker = self.brokers.get(id)
            state = "not started" if broker is None else "paused" if broker.paused else broker.state
            parts.append(
                f"broker {id} {state}{' (controller)' if controller is not None and controller.id == id else ''}"
            )
        return ", ".join(parts)

    def close(self) -> None:
        """Kill all brokers."""
        for broker in self.alive_brokers():
            broker.kill()


class PartitionState(NamedTuple):
    """The state of a partition on the controller. The offsets are its leader's, 0 without one."""

    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    log_start_offset: int
    log_end_offset: int


class GroupState(NamedTuple):
    """The state of a consumer group on its coordinator."""

    state: str
    generation: int
    members: int


class ClusterState(NamedTuple):
    """Brokers by id (each ``running``, ``paused`` or ``down``), topics except internal ones, and groups."""

    brokers: dict[int, str]
    controller: int | None
    partitions: dict[TopicPartition, PartitionState]
    groups: dict[str, GroupState]

    @classmethod
    def of(cls, cluster: Cluster) -> ClusterState:
        """Return the current state of a cluster. Thread: loop."""
        controller = cluster.active_controller()
        brokers = dict.fromkeys(cluster.nodes, "down")
        brokers |= {broker.id: "paused" if broker.paused else "running" for broker in cluster.alive_brokers()}
        witness = controller or next(iter(cluster.alive_brokers()), None)
        states = {} if witness is None else witness.metadata_cache.snapshot.partition_states
        partitions = {
            TopicPartition(topic, index): _partition_state(cluster, TopicPartition(topic, index), state)
            for topic, of_topic in sorted(states.items())
            if not topic.startswith("__")
            for index, state in sorted(of_topic.items())
        }
        groups = {
            group.group_id: GroupState(group.state.name, group.generation_id, len(group.members))
            for broker in cluster.alive_brokers()
            for group in broker.group_coordinator.groups.values()
        }
        return cls(brokers, None if controller is None else controller.id, partitions, dict(sorted(groups.items())))


def _partition_state(
    cluster: Cluster, topic_partition: TopicPartition, state: UpdateMetadataRequest.UpdateMetadataPartitionState
) -> PartitionState:
    leader = cluster.brokers.get(state.leader)
    partition = None if leader is None else leader.replica_manager.partition(topic_partition)
    log = None if partition is None else partition.log
    start, end = (0, 0) if log is None else (log.log_start_offset, log.log_end_offset)
    known = state.leader if state.leader >= 0 else None
    return PartitionState(known, tuple(state.replicas), tuple(state.isr), start, end)


#: The maximum numbers of lines for partitions and for requests.
_PARTITIONS = 20

_REQUESTS = 30


def failure_report(state: ClusterState, requests: list[request_channel.RequestRecord]) -> str:
    """Return the cluster's state and the requests of a test that has failed."""
    return "\n".join([*_state_lines(state), *_request_lines(requests)])


def request_line(record: request_channel.RequestRecord) -> str:
    """Return a line about a request, with its source and outcome."""
    who = record.client_id or record.party
    return f"{who} -> broker {record.broker_id}: {record.api} v{record.api_version}, {_fate(record)}"


def _fate(record: request_channel.RequestRecord) -> str:
    if record.fate == request_channel.ANSWERED and record.answered_ms is not None:
        errors = ", ".join(_error_name(code) for code in sorted(record.error_codes))
        return f"{errors or 'answered'} after {record.answered_ms - record.time_ms} ms"
    return _FATES[record.fate]


_FATES = {
    request_channel.RECEIVED: "no response yet",
    request_channel.SERVED: "served, needs no response",
    request_channel.ANSWERED: "answered",
    request_channel.HELD: "held back",
    request_channel.REQUEST_DROPPED: "dropped before it took effect",
    request_channel.RESPONSE_DROPPED: "response dropped",
    request_channel.DISCONNECTED: "connection closed without a response",
}


def _error_name(code: int) -> str:
    error = for_code(code)
    return str(code) if error is None else error.error_name


def _state_lines(state: ClusterState) -> Iterator[str]:
    for broker, what in state.brokers.items():
        yield f"broker {broker}: {what}{', controller' if broker == state.controller else ''}"
    if state.controller is None:
        yield "no controller"
    for number, (topic_partition, partition) in enumerate(state.partitions.items()):
        if number == _PARTITIONS:
            yield f"... {len(state.partitions) - number} partitions more"
            break
        leader = "no leader" if partition.leader is None else f"leader {partition.leader}"
        isr, replicas = (",".join(map(str, ids)) for ids in (partition.isr, partition.replicas))
        offsets = f"offsets {partition.log_start_offset} to {partition.log_end_offset}"
        yield f"{topic_partition}: {leader}, in sync {isr or 'none'} of {replicas}, {offsets}"
    for group, membership in state.groups.items():
        yield f"group {group}: {membership.state}, generation {membership.generation}, members: {membership.members}"


def _request_lines(requests: list[request_channel.RequestRecord]) -> Iterator[str]:
    if not requests:
        yield "no requests of clients"
        return
    shown = requests[-_REQUESTS:]
    yield f"requests of clients, the last {len(shown)} of {len(requests)}, with milliseconds since the first of these:"
    for record in shown:
        yield f"{record.time_ms - shown[0].time_ms:>7} {request_line(record)}"
