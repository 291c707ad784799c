"""A snapshot of a cluster's state, for reports and observers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

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
