"""The cluster as the client knows it, for programs for aiokafka that read ``producer.client``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pykclient.network.metadata import Metadata
    from pykclient.types import Node


class ClusterView:
    """A view of the brokers and topics in the current metadata. Thread: the loop's."""

    __slots__ = ("_metadata",)

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    def brokers(self) -> set[Node]:
        """Return the brokers; none before ``start``."""
        cluster = self._metadata.fetch()
        return set() if cluster.is_bootstrap_configured else set(cluster.nodes)

    def broker_metadata(self, broker_id: int) -> Node | None:
        """Return a broker's address, or None if there is no such broker."""
        return next((node for node in self.brokers() if node.id == broker_id), None)

    def topics(self) -> set[str]:
        """Return the topics that the client uses."""
        return set(self._metadata.fetch().topics)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return a topic's partition numbers, or None if the client does not use the topic."""
        cluster = self._metadata.fetch()
        if cluster.partition_count_for_topic(topic) is None:
            return None
        return {info.partition for info in cluster.partitions_for_topic(topic)}

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partitions of a topic that have a leader, or None if the client does not use the topic."""
        cluster = self._metadata.fetch()
        if cluster.partition_count_for_topic(topic) is None:
            return None
        return {info.partition for info in cluster.available_partitions_for_topic(topic)}

    def __repr__(self) -> str:
        return f"<ClusterView of {len(self.brokers())} brokers and {len(self.topics())} topics>"


class ClientView:
    """The part of aiokafka's client that programs use for metadata and health checks.

    Instrumentations also read the two private attributes, for the attributes of their spans. Thread: the loop's.
    """

    __slots__ = ("_bootstrap_servers", "_client_id", "_update", "cluster")

    def __init__(self, metadata: Metadata, config: Mapping[str, Any], update: Callable[[], Awaitable[bool]]) -> None:
        self.cluster = ClusterView(metadata)
        self._bootstrap_servers: list[str] = config["bootstrap.servers"]
        self._client_id: str = config["client.id"]
        self._update = update

    async def force_metadata_update(self) -> bool:
        """Request the metadata of the cluster and of the topics in use; return True once it is there.

        Returns False if no broker has answered within ``max.block.ms``.
        """
        return await self._update()


class ProducerClientView(ClientView):
    """A ClientView that can also request topics before records are sent to them. Thread: the loop's."""

    __slots__ = ("_add",)

    def __init__(
        self,
        metadata: Metadata,
        config: Mapping[str, Any],
        update: Callable[[], Awaitable[bool]],
        add: Callable[[str], object],
    ) -> None:
        super().__init__(metadata, config, update)
        self._add = add

    def add_topic(self, topic: str) -> None:
        """Include a topic in metadata updates, as if a record had been sent to it.

        Await ``force_metadata_update`` to see the topic in ``cluster``.

        Raises:
            IllegalArgumentError: ``topic`` is not a ``str``.
            InvalidTopicError: no topic can have this name.
        """
        self._add(topic)
