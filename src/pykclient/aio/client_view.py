"""Parts of aiokafka's clients that programs and instrumentations use, such as ``producer.client``."""

from __future__ import annotations

from collections.abc import Callable
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


class PrivatePart:
    """A private part of a client under aiokafka's name, whose methods instrumentations call.

    Tests of instrumentations replace the methods, so that they need no cluster: a function that is set on a part goes
    into ``replaced``, and the client calls it instead of its own method. Thread: the loop's.
    """

    __slots__ = ("_methods", "_on_replaced", "_replaced")
    _methods: dict[str, Callable[..., Any]]
    _on_replaced: Callable[[], object] | None
    _replaced: dict[str, Callable[..., Any]]

    def __init__(
        self,
        replaced: dict[str, Callable[..., Any]],
        on_replaced: Callable[[], object] | None = None,
        **methods: Callable[..., Any],
    ) -> None:
        for name, value in (("_methods", methods), ("_on_replaced", on_replaced), ("_replaced", replaced)):
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in PrivatePart.__slots__:
            raise AttributeError(name)  # of a copy, which is not filled
        method = self._replaced.get(name) or self._methods.get(name)
        if method is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        return method

    def __setattr__(self, name: str, value: Callable[..., Any]) -> None:
        if hasattr(type(self), name):
            raise AttributeError(f"{name!r} of {type(self).__name__!r} cannot be replaced", name=name, obj=self)
        self._replaced[name] = value
        if self._on_replaced is not None:
            self._on_replaced()

    def __delattr__(self, name: str) -> None:
        if self._replaced.pop(name, None) is None:
            raise AttributeError(f"{name!r} is not replaced", name=name, obj=self)


class ClientView(PrivatePart):
    """The part of aiokafka's client that programs use for metadata and health checks.

    Instrumentations also read the two private attributes, for the attributes of their spans. Thread: the loop's.
    """

    __slots__ = ()

    @property
    def cluster(self) -> ClusterView:
        """The brokers and topics that the client knows.

        Raises:
            IllegalStateError: the client has not been started, or is closed.
        """
        return ClusterView(self._methods["metadata"]())

    @property
    def _bootstrap_servers(self) -> str | list[str]:
        """The servers that the program gave, or aiokafka's default."""
        given: str | list[str] = self._methods["config"]().originals.get("bootstrap.servers", "localhost")
        return given

    @property
    def _client_id(self) -> str:
        client_id: str = self._methods["config"]()["client.id"]
        return client_id

    async def force_metadata_update(self) -> bool:
        """Request the metadata of the cluster and of the topics in use; return True once it is there.

        Returns False if no broker has answered within ``max.block.ms``.
        """
        is_updated: bool = await self._methods["update"]()
        return is_updated


class ProducerClientView(ClientView):
    """A ClientView that can also request topics before records are sent to them. Thread: the loop's."""

    __slots__ = ()

    def add_topic(self, topic: str) -> None:
        """Include a topic in metadata updates, as if a record had been sent to it.

        Await ``force_metadata_update`` to see the topic in ``cluster``.

        Raises:
            IllegalArgumentError: ``topic`` is not a ``str``.
            InvalidTopicError: no topic can have this name.
        """
        self._methods["add"](topic)
