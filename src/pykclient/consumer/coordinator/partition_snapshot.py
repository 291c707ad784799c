"""The metadata behind an assignment, to detect changes (Java: ConsumerCoordinator.MetadataSnapshot)."""

from __future__ import annotations

from collections.abc import Iterable

from pykclient.network.cluster import Cluster


class PartitionSnapshot:
    """The partitions of some topics, with the racks of their replicas if this consumer has a rack. Thread: any."""

    __slots__ = ("_partitions", "version")

    def __init__(self, rack_id: str | None, topics: Iterable[str], cluster: Cluster, version: int) -> None:
        self.version = version
        self._partitions: dict[str, tuple[frozenset[str | None], ...]] = {}
        for topic in topics:
            infos = cluster.partitions_for_topic(topic)
            if infos:
                self._partitions[topic] = tuple(
                    frozenset(node.rack for node in info.replicas) if rack_id else frozenset()
                    for info in sorted(infos, key=lambda info: info.partition)
                )

    def matches(self, other: PartitionSnapshot) -> bool:
        """Return whether nothing that matters for an assignment has changed."""
        return self.version == other.version or self._partitions == other._partitions

    def __str__(self) -> str:
        counts = ", ".join(f"{topic}: {len(partitions)}" for topic, partitions in sorted(self._partitions.items()))
        return f"version {self.version} of metadata (partitions of {counts or 'no topic'})"
