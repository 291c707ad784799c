"""An immutable view of the cluster (Java: Cluster, ClusterResource)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence, Set as AbstractSet
from typing import TYPE_CHECKING, NamedTuple

from pykclient.types import Node, PartitionInfo, TopicPartition

if TYPE_CHECKING:
    from pykclient.log_context import PrefixLogger

#: "No topic id", as on the wire (equal to protocol.message.ZERO_UUID).
ZERO_UUID = uuid.UUID(int=0)

_NO_PARTITIONS: tuple[PartitionInfo, ...] = ()


class ClusterResource(NamedTuple):
    """The id of the cluster; None if it is unknown, or the brokers are too old to have one."""

    cluster_id: str | None


class Cluster:
    """Nodes, topics and partitions as of one metadata response. Immutable: it is replaced as a whole.

    Nodes are in the order received; callers randomize where necessary. Thread: any.
    """

    __slots__ = (
        "_available_partitions_by_topic",
        "_nodes_by_id",
        "_partitions",
        "_partitions_by_topic",
        "_topic_ids",
        "_topic_names",
        "cluster_resource",
        "controller",
        "internal_topics",
        "invalid_topics",
        "is_bootstrap_configured",
        "nodes",
        "unauthorized_topics",
    )

    def __init__(
        self,
        cluster_id: str | None,
        nodes: Iterable[Node],
        partitions: Iterable[PartitionInfo] = (),
        unauthorized_topics: AbstractSet[str] = frozenset(),
        invalid_topics: AbstractSet[str] = frozenset(),
        internal_topics: AbstractSet[str] = frozenset(),
        controller: Node | None = None,
        topic_ids: Mapping[str, uuid.UUID] | None = None,
        *,
        is_bootstrap_configured: bool = False,
    ) -> None:
        self.cluster_resource = ClusterResource(cluster_id)
        self.nodes = tuple(nodes)
        self.unauthorized_topics = frozenset(unauthorized_topics)
        self.invalid_topics = frozenset(invalid_topics)
        self.internal_topics = frozenset(internal_topics)
        self.controller = controller
        self.is_bootstrap_configured = is_bootstrap_configured
        self._topic_ids = dict(topic_ids or {})
        self._topic_names = {topic_id: name for name, topic_id in self._topic_ids.items()}
        self._nodes_by_id = {node.id: node for node in self.nodes}

        by_partition: dict[TopicPartition, PartitionInfo] = {}
        by_topic: dict[str, list[PartitionInfo]] = {}
        for info in partitions:
            by_partition[TopicPartition(info.topic, info.partition)] = info
            by_topic.setdefault(info.topic, []).append(info)
        self._partitions = by_partition
        self._partitions_by_topic = {topic: tuple(infos) for topic, infos in by_topic.items()}
        self._available_partitions_by_topic = {
            topic: tuple(info for info in infos if info.leader is not None)
            for topic, infos in self._partitions_by_topic.items()
        }

    @classmethod
    def empty(cls) -> Cluster:
        """Return an unknown cluster."""
        return cls(None, ())

    @classmethod
    def bootstrap(cls, addresses: Sequence[tuple[str, int]]) -> Cluster:
        """Return a cluster with the configured addresses as nodes -1, -2, ..., whose real ids are not known yet."""
        nodes = [Node(-1 - index, host, port) for index, (host, port) in enumerate(addresses)]
        return cls(None, nodes, is_bootstrap_configured=True)

    @property
    def topics(self) -> AbstractSet[str]:
        return self._partitions_by_topic.keys()

    @property
    def topic_ids(self) -> Iterable[uuid.UUID]:
        return self._topic_ids.values()

    def node_by_id(self, node_id: int) -> Node | None:
        return self._nodes_by_id.get(node_id)

    def node_if_online(self, partition: TopicPartition, node_id: int) -> Node | None:
        """Return the node if it is known, and an online replica of ``partition``."""
        node = self._nodes_by_id.get(node_id)
        info = self._partitions.get(partition)
        if node is None or info is None or node in info.offline_replicas or node not in info.replicas:
            return None
        return node

    def leader_for(self, partition: TopicPartition) -> Node | None:
        """Return the leader, or None if the partition or its leader is unknown."""
        info = self._partitions.get(partition)
        return None if info is None else info.leader

    def partition(self, partition: TopicPartition) -> PartitionInfo | None:
        return self._partitions.get(partition)

    def partitions_for_topic(self, topic: str) -> tuple[PartitionInfo, ...]:
        """Return all partitions of ``topic`` in the broker's order; none for an unknown topic."""
        return self._partitions_by_topic.get(topic, _NO_PARTITIONS)

    def partition_count_for_topic(self, topic: str) -> int | None:
        """Return the number of partitions of ``topic``, or None for an unknown topic."""
        infos = self._partitions_by_topic.get(topic)
        return None if infos is None else len(infos)

    def available_partitions_for_topic(self, topic: str) -> tuple[PartitionInfo, ...]:
        """Return the partitions of ``topic`` that have a leader."""
        return self._available_partitions_by_topic.get(topic, _NO_PARTITIONS)

    def topic_id(self, topic: str) -> uuid.UUID:
        """Return the topic's id (KIP-516), or the zero id if it is unknown."""
        return self._topic_ids.get(topic, ZERO_UUID)

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        return self._topic_names.get(topic_id)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Cluster):
            return NotImplemented
        return (
            self.cluster_resource == other.cluster_resource
            and self.is_bootstrap_configured == other.is_bootstrap_configured
            and self.nodes == other.nodes
            and self._partitions == other._partitions
            and self._topic_ids == other._topic_ids
            and self.unauthorized_topics == other.unauthorized_topics
            and self.invalid_topics == other.invalid_topics
            and self.internal_topics == other.internal_topics
            and self.controller == other.controller
        )

    def __hash__(self) -> int:
        return hash((self.cluster_resource, self.nodes, frozenset(self._partitions)))

    def __repr__(self) -> str:
        return (
            f"Cluster(id={self.cluster_resource.cluster_id}, nodes={list(self.nodes)}, "
            f"topics={len(self._partitions_by_topic)}, partitions={len(self._partitions)}, "
            f"controller={self.controller})"
        )


class ClusterResourceListeners:
    """Listeners for the cluster's id (Java: ClusterResourceListener).

    They are objects with a method ``on_update(cluster_resource)``: serializers, interceptors, reporters. Thread: any.
    """

    __slots__ = ("_failed", "_listeners")

    def __init__(self, candidates: Iterable[object] = ()) -> None:
        self._listeners: list[Callable[[ClusterResource], None]] = []
        self._failed: set[int] = set()  # the list indices of listeners whose failure was logged
        for candidate in candidates:
            self.maybe_add(candidate)

    def maybe_add(self, candidate: object) -> None:
        """Add ``candidate`` if it has the method."""
        on_update = getattr(candidate, "on_update", None)
        if callable(on_update):
            self._listeners.append(on_update)

    def on_update(self, resource: ClusterResource, log: PrefixLogger) -> None:
        """Notify all listeners. The first failure of each is logged in ``log``.

        This must not raise: it runs in the middle of a client's poll, which has received responses whose callbacks have
        not run yet.
        """
        for index, listener in enumerate(self._listeners):
            try:
                listener(resource)
            except Exception:  # application code, which must not make the poll fail
                if index not in self._failed:
                    self._failed.add(index)
                    name = type(getattr(listener, "__self__", listener)).__name__
                    log.exception("%s.on_update failed; the next failures of this listener are not logged", name)
