"""The state of a cluster, for tests to inspect, and the report of a failed test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from pykclient.errors import for_code
from pykclient.testing.request_channel import (
    ANSWERED,
    DISCONNECTED,
    HELD,
    RECEIVED,
    REQUEST_DROPPED,
    RESPONSE_DROPPED,
    SERVED,
    RequestRecord,
)
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.protocol.messages.update_metadata import UpdateMetadataRequest
    from pykclient.testing.cluster import Cluster


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


def failure_report(state: ClusterState, requests: list[RequestRecord]) -> str:
    """Return the cluster's state and the requests of a test that has failed."""
    return "\n".join([*_state_lines(state), *_request_lines(requests)])


def request_line(record: RequestRecord) -> str:
    """Return a line about a request, with its source and outcome."""
    who = record.client_id or record.party
    return f"{who} -> broker {record.broker_id}: {record.api} v{record.api_version}, {_fate(record)}"


def _fate(record: RequestRecord) -> str:
    if record.fate == ANSWERED and record.answered_ms is not None:
        errors = ", ".join(_error_name(code) for code in sorted(record.error_codes))
        return f"{errors or 'answered'} after {record.answered_ms - record.time_ms} ms"
    return _FATES[record.fate]


_FATES = {
    RECEIVED: "no response yet",
    SERVED: "served, needs no response",
    ANSWERED: "answered",
    HELD: "held back",
    REQUEST_DROPPED: "dropped before it took effect",
    RESPONSE_DROPPED: "response dropped",
    DISCONNECTED: "connection closed without a response",
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


def _request_lines(requests: list[RequestRecord]) -> Iterator[str]:
    if not requests:
        yield "no requests of clients"
        return
    shown = requests[-_REQUESTS:]
    yield f"requests of clients, the last {len(shown)} of {len(requests)}, with milliseconds since the first of these:"
    for record in shown:
        yield f"{record.time_ms - shown[0].time_ms:>7} {request_line(record)}"
