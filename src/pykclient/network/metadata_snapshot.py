"""The contents of a metadata response, as an immutable value (Java: MetadataSnapshot)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from pykclient.network.cluster import Cluster, ClusterResource
from pykclient.types import Node, PartitionInfo, TopicPartition


class PartitionMetadata(NamedTuple):
    """A partition with broker ids, as received (Java: MetadataResponse.PartitionMetadata)."""

    topic_partition: TopicPartition
    error_code: int
    leader_id: int | None
    leader_epoch: int | None
    replica_ids: Sequence[int] = ()
    in_sync_replica_ids: Sequence[int] = ()
    offline_replica_ids: Sequence[int] = ()

    @property
    def topic(self) -> str:
        return self.topic_partition.topic

    @property
    def partition(self) -> int:
        return self.topic_partition.partition

    def without_leader_epoch(self) -> PartitionMetadata:
        return self if self.leader_epoch is None else self._replace(leader_epoch=None)


def to_partition_info(metadata: PartitionMetadata, nodes: Mapping[int, Node]) -> PartitionInfo:
    """Return the partition with nodes. A replica on an unlisted broker gets an empty host."""

    def find(ids: Sequence[int]) -> tuple[Node, ...]:
        return tuple(nodes.get(node_id) or Node(node_id, "", -1) for node_id in ids)

    (topic, partition), _, leader_id, _, replicas, in_sync, offline = metadata
    leader = None if leader_id is None else nodes.get(leader_id)
    return PartitionInfo(topic, partition, leader, find(replicas), find(in_sync), find(offline))


class MetadataSnapshot:
    """Nodes, partitions and topic ids at one moment; ``cluster`` is the view of them for users.

    Immutable, so it is read without a lock. Thread: any.
    """

    __slots__ = (
        "_partitions",
        "cluster",
        "cluster_id",
        "controller",
        "internal_topics",
        "invalid_topics",
        "nodes",
        "topic_ids",
        "topic_names",
        "unauthorized_topics",
    )

    def __init__(
        self,
        cluster_id: str | None,
        nodes: Mapping[int, Node],
        partitions: Iterable[PartitionMetadata] = (),
        unauthorized_topics: AbstractSet[str] = frozenset(),
        invalid_topics: AbstractSet[str] = frozenset(),
        internal_topics: AbstractSet[str] = frozenset(),
        controller: Node | None = None,
        topic_ids: Mapping[str, uuid.UUID] | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        self.cluster_id = cluster_id
        self.nodes = nodes
        self.unauthorized_topics = unauthorized_topics
        self.invalid_topics = invalid_topics
        self.internal_topics = internal_topics
        self.controller = controller
        self.topic_ids: Mapping[str, uuid.UUID] = topic_ids or {}
        self.topic_names: Mapping[uuid.UUID, str] = {topic_id: name for name, topic_id in self.topic_ids.items()}
        self._partitions = {metadata.topic_partition: metadata for metadata in partitions}
        self.cluster = cluster or Cluster(
            cluster_id,
            nodes.values(),
            [to_partition_info(metadata, nodes) for metadata in self._partitions.values()],
            unauthorized_topics,
            invalid_topics,
            internal_topics,
            controller,
            self.topic_ids,
        )

    @classmethod
    def empty(cls) -> MetadataSnapshot:
        return cls(None, {}, cluster=Cluster.empty())

    @classmethod
    def bootstrap(cls, addresses: Sequence[tuple[str, int]]) -> MetadataSnapshot:
        """Return a snapshot with only the configured addresses, under negative ids."""
        cluster = Cluster.bootstrap(addresses)
        return cls(None, {node.id: node for node in cluster.nodes}, cluster=cluster)

    @property
    def cluster_resource(self) -> ClusterResource:
        return self.cluster.cluster_resource

    def partition_metadata(self, partition: TopicPartition) -> PartitionMetadata | None:
        return self._partitions.get(partition)

    def node_by_id(self, node_id: int) -> Node | None:
        return self.nodes.get(node_id)

    def leader_epoch_for(self, partition: TopicPartition) -> int | None:
        """Return the partition's leader epoch, or None if it is unknown."""
        metadata = self._partitions.get(partition)
        return None if metadata is None else metadata.leader_epoch

    def merge_with(
        self,
        cluster_id: str | None,
        nodes: Mapping[int, Node],
        add_partitions: Iterable[PartitionMetadata],
        add_unauthorized_topics: AbstractSet[str],
        add_invalid_topics: AbstractSet[str],
        add_internal_topics: AbstractSet[str],
        controller: Node | None,
        add_topic_ids: Mapping[str, uuid.UUID],
        retain_topic: Callable[[str, bool], bool],
    ) -> MetadataSnapshot:
        """Return this snapshot updated with newer data.

        ``nodes`` replace all nodes. Existing topics are kept if ``retain_topic(name, is_internal)`` is true. A topic
        without an id in the update loses its old id.
        """
        verdicts: dict[str, bool] = {}

        def retained(topic: str) -> bool:
            verdict = verdicts.get(topic)
            if verdict is None:
                verdict = verdicts[topic] = retain_topic(topic, topic in self.internal_topics)
            return verdict

        topic_ids = {topic: topic_id for topic, topic_id in self.topic_ids.items() if retained(topic)}
        partitions = {tp: metadata for tp, metadata in self._partitions.items() if retained(tp.topic)}
        for metadata in add_partitions:
            topic = metadata.topic_partition.topic
            partitions[metadata.topic_partition] = metadata
            topic_id = add_topic_ids.get(topic)
            if topic_id is not None:
                topic_ids[topic] = topic_id
            else:
                topic_ids.pop(topic, None)

        def fill(base: AbstractSet[str], old: AbstractSet[str]) -> frozenset[str]:
            return frozenset(base).union(topic for topic in old if retained(topic))

        return MetadataSnapshot(
            cluster_id,
            nodes,
            partitions.values(),
            fill(add_unauthorized_topics, self.unauthorized_topics),
            fill(add_invalid_topics, self.invalid_topics),
            fill(add_internal_topics, self.internal_topics),
            controller,
            topic_ids,
        )

    def __repr__(self) -> str:
        return (
            f"MetadataSnapshot(cluster_id={self.cluster_id!r}, nodes={list(self.nodes.values())}, "
            f"partitions={len(self._partitions)}, controller={self.controller})"
        )
