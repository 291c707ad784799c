"""The client's view of the cluster, and the schedule of metadata requests (Java: Cluster, Metadata)."""

from __future__ import annotations

import logging
import random
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence, Set as AbstractSet
from typing import TYPE_CHECKING, ClassVar, NamedTuple, cast

from pykclient import errors
from pykclient.errors import (
    IllegalStateError,
    InvalidMetadataError,
    InvalidTopicError,
    KafkaError,
    UnsupportedVersionError,
)
from pykclient.explanation import counted, shown_duration
from pykclient.network.client_request import RequestBuilder
from pykclient.network.exponential_backoff import ExponentialBackoff
from pykclient.network.failures import shown_address, topics_denied
from pykclient.protocol.messages.metadata import MetadataRequest
from pykclient.protocol.wire import ZERO_UUID
from pykclient.types import Node, PartitionInfo, TopicPartition

if TYPE_CHECKING:
    from pykclient.log_context import LogContext, PrefixLogger
    from pykclient.protocol.message import Request, Response
    from pykclient.protocol.messages.metadata import MetadataResponse


_NO_PARTITIONS: tuple[PartitionInfo, ...] = ()


class ClusterResource(NamedTuple):
    """The id of the cluster; None if it is unknown, or the brokers are too old to have one."""

    cluster_id: str | None


class Cluster:
    """Nodes, topics and partitions as of one metadata response. Immutable: it is replaced as a whole.

    Nodes are in the order received; callers randomize where necessary. Thread: any.
    """

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
        #: The ids of topics by their names (KIP-516), and the names by the ids.
        self.topic_ids: Mapping[str, uuid.UUID] = dict(topic_ids or {})
        self.topic_names: Mapping[uuid.UUID, str] = {topic_id: name for name, topic_id in self.topic_ids.items()}
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

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Cluster):
            return NotImplemented
        return (
            self.cluster_resource == other.cluster_resource
            and self.is_bootstrap_configured == other.is_bootstrap_configured
            and self.nodes == other.nodes
            and self._partitions == other._partitions
            and self.topic_ids == other.topic_ids
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


_Topic = MetadataRequest.MetadataRequestTopic


class MetadataRequestBuilder(RequestBuilder):
    """Asks for all topics (None), some by name, or some by id (KIP-516, v12 on). Thread: owner."""

    __slots__ = ("request",)

    def __init__(
        self, request: MetadataRequest, min_version: int | None = None, max_version: int | None = None
    ) -> None:
        super().__init__(request, min_version, max_version)
        self.request = request

    @classmethod
    def all_topics(cls) -> MetadataRequestBuilder:
        # This never creates topics; true is what versions before 4 mean by leaving the field out.
        return cls(MetadataRequest(topics=None, allow_auto_topic_creation=True))

    @classmethod
    def for_topic_names(cls, names: Iterable[str], allow_auto_topic_creation: bool) -> MetadataRequestBuilder:
        topics = [_Topic(name=name) for name in names]
        return cls(MetadataRequest(topics=topics, allow_auto_topic_creation=allow_auto_topic_creation))

    @classmethod
    def for_topic_ids(cls, topic_ids: Iterable[uuid.UUID]) -> MetadataRequestBuilder:
        topics = [_Topic(topic_id=topic_id, name=None) for topic_id in topic_ids]
        return cls(MetadataRequest(topics=topics, allow_auto_topic_creation=False))

    @property
    def topics(self) -> list[str]:
        """The names asked for; empty when all are."""
        return [topic.name for topic in self.request.topics or () if topic.name is not None]

    def build(self, version: int) -> Request:
        if version < 1:
            raise UnsupportedVersionError(
                "metadata requests older than version 1 are not supported (brokers before 0.10)"
            )
        if not self.request.allow_auto_topic_creation and version < 4:
            raise UnsupportedVersionError(
                f"metadata request version {version} cannot switch off the creation of topics (needs version 4)"
            )
        if version < 12 and any(topic.name is None for topic in self.request.topics or ()):
            raise UnsupportedVersionError(
                f"metadata request version {version} cannot ask by topic id (needs version 12)"
            )
        return self.request


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


def to_partition_info(metadata: PartitionMetadata, nodes: Mapping[int, Node]) -> PartitionInfo:
    """Return the partition with nodes. A replica on an unlisted broker gets an empty host."""

    def find(ids: Sequence[int]) -> tuple[Node, ...]:
        return tuple(nodes.get(node_id) or Node(node_id, "", -1) for node_id in ids)

    (topic, partition), _, leader_id, _, replicas, in_sync, offline = metadata
    leader = None if leader_id is None else nodes.get(leader_id)
    return PartitionInfo(topic, partition, leader, find(replicas), find(in_sync), find(offline))


class MetadataSnapshot:
    """A cluster, and its partitions as received. Immutable, so it is read without a lock. Thread: any."""

    def __init__(self, cluster: Cluster, partitions: Mapping[TopicPartition, PartitionMetadata]) -> None:
        self.cluster = cluster
        self._partitions = partitions

    @classmethod
    def of(
        cls,
        cluster_id: str | None,
        nodes: Mapping[int, Node],
        partitions: Iterable[PartitionMetadata],
        unauthorized_topics: AbstractSet[str] = frozenset(),
        invalid_topics: AbstractSet[str] = frozenset(),
        internal_topics: AbstractSet[str] = frozenset(),
        controller: Node | None = None,
        topic_ids: Mapping[str, uuid.UUID] | None = None,
    ) -> MetadataSnapshot:
        """Return the snapshot of these nodes and partitions. The other parameters are those of ``Cluster``."""
        received = {metadata.topic_partition: metadata for metadata in partitions}
        infos = [to_partition_info(metadata, nodes) for metadata in received.values()]
        topics = unauthorized_topics, invalid_topics, internal_topics
        return cls(Cluster(cluster_id, nodes.values(), infos, *topics, controller, topic_ids), received)

    def partition_metadata(self, partition: TopicPartition) -> PartitionMetadata | None:
        return self._partitions.get(partition)

    def leader_epoch_for(self, partition: TopicPartition) -> int | None:
        """Return the partition's leader epoch, or None if it is unknown."""
        metadata = self._partitions.get(partition)
        return None if metadata is None else metadata.leader_epoch

    def merge_with(self, newer: MetadataSnapshot, retain_topic: Callable[[str, bool], bool]) -> MetadataSnapshot:
        """Return ``newer`` with the topics of this snapshot for which ``retain_topic(name, is_internal)`` is true.

        Partitions of ``newer`` replace older ones. A topic with such partitions loses its old id, too.
        """
        old, new = self.cluster, newer.cluster
        verdicts: dict[str, bool] = {}

        def retained(topic: str) -> bool:
            verdict = verdicts.get(topic)
            if verdict is None:
                verdict = verdicts[topic] = retain_topic(topic, topic in old.internal_topics)
            return verdict

        def fill(base: AbstractSet[str], of_old: AbstractSet[str]) -> frozenset[str]:
            return frozenset(base).union(topic for topic in of_old if retained(topic))

        partitions = {tp: metadata for tp, metadata in self._partitions.items() if retained(tp.topic)}
        topic_ids = {
            topic: topic_id for topic, topic_id in old.topic_ids.items() if topic not in new.topics and retained(topic)
        }
        return MetadataSnapshot.of(
            new.cluster_resource.cluster_id,
            {node.id: node for node in new.nodes},
            {**partitions, **newer._partitions}.values(),
            fill(new.unauthorized_topics, old.unauthorized_topics),
            fill(new.invalid_topics, old.invalid_topics),
            fill(new.internal_topics, old.internal_topics),
            new.controller,
            topic_ids | {topic: topic_id for topic, topic_id in new.topic_ids.items() if topic in new.topics},
        )

    def __repr__(self) -> str:
        return (
            f"MetadataSnapshot(cluster_id={self.cluster.cluster_resource.cluster_id!r}, "
            f"nodes={list(self.cluster.nodes)}, partitions={len(self._partitions)}, "
            f"controller={self.cluster.controller})"
        )


#: A lower epoch is accepted if at least this many responses in a row contain one,
_RESPONSES = 3

#: for this long, or for metadata.max.age.ms if that is less.
_BELIEVED_AFTER_MS = 60_000

#: A warning is logged after responses have contained a lower epoch for this long.
_WARNED_AFTER_MS = 5_000

#: An age above this means that no metadata was ever received.
_NEVER_MS = 1 << 61

#: A log line (level, text, arguments), kept until the lock is released.
Note = tuple[int, str, tuple[object, ...]]


class _LowerEpoch:
    """Consecutive responses with a lower leader epoch of a partition than the known one. Thread: owner."""

    __slots__ = ("responses", "since_ms", "warned")

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        self.responses = 0
        self.warned = False


class LowerEpochs:
    """Decides when lower leader epochs have lasted for so long that the known epoch must be wrong.

    Usually the broker that responded lags behind, and the next response is right. But the known epoch may be that of a
    deleted topic that was created again, in a cluster without topic ids, or if the epoch came from a commit or a seek.
    Then no response is ever right, and the partition would never have a leader again (as in Java). A broker that is cut
    off from its cluster also reports old epochs, hence the long time; with topic ids it is told apart.

    Thread: any, under the lock of Metadata.
    """

    def __init__(self, metadata_expire_ms: int) -> None:
        self._believed_after_ms = min(metadata_expire_ms, _BELIEVED_AFTER_MS)
        self._by_partition: dict[TopicPartition, _LowerEpoch] = {}

    def forget(self, partition: TopicPartition) -> None:
        """Start over, because a response contained the known epoch or a newer one."""
        self._by_partition.pop(partition, None)

    def believes(
        self,
        partition: TopicPartition,
        epoch: int,
        known: int,
        now_ms: int,
        notes: list[Note],
        *,
        is_behind: bool,
    ) -> bool:
        """Return True if ``epoch``, which a response contained and which is below ``known``, is to be accepted.

        ``is_behind``: another response had a higher epoch for the same topic id, so this one is certainly old. The
        method appends log lines to ``notes``.
        """
        lower = self._by_partition.setdefault(partition, _LowerEpoch(now_ms))
        lower.responses += 1
        for_ms = now_ms - lower.since_ms
        if not is_behind and lower.responses >= _RESPONSES and for_ms >= self._believed_after_ms:
            text = (
                "Metadata has had leader epoch %d of %s for %d ms, although epoch %d was seen before: the topic was "
                "probably deleted and created again, or a commit or seek() had a wrong epoch. So epoch %d counts from "
                "now on"
            )
            notes.append((logging.WARNING, text, (epoch, partition, for_ms, known, epoch)))
            return True
        if not lower.warned and for_ms >= _WARNED_AFTER_MS:
            lower.warned = True
            text = "Metadata keeps having leader epoch %d of %s, although epoch %d was seen before. "
            if is_behind:
                text += "Brokers are cut off from the cluster. The known leader is kept until this ends"
                notes.append((logging.WARNING, text, (epoch, partition, known)))
            else:
                text += (
                    "Either brokers are cut off from the cluster, or the topic was deleted and created again, or a "
                    "commit or seek() had a wrong epoch. The known leader is kept until this ends, or until it has "
                    "lasted for %d ms"
                )
                notes.append((logging.WARNING, text, (epoch, partition, known, self._believed_after_ms)))
        else:
            notes.append((logging.DEBUG, "Ignoring leader epoch %d of %s, %d is known", (epoch, partition, known)))
        return False


_INVALID_TOPIC = errors.InvalidTopicError.code

_TOPIC_AUTHORIZATION_FAILED = errors.TopicAuthorizationError.code

#: Earlier than any time of a clock, even one that starts at 0.
_LONG_AGO_MS = -(1 << 62)


class LeaderAndEpoch(NamedTuple):
    """A partition's leader and leader epoch according to metadata. Either may be unknown without the other."""

    leader: Node | None
    epoch: int | None


class LeaderIdAndEpoch(NamedTuple):
    """A leader that a produce or fetch response hinted at (KIP-951)."""

    leader_id: int | None
    epoch: int | None


NO_LEADER_OR_EPOCH = LeaderAndEpoch(None, None)


class MetadataRequestAndVersion(NamedTuple):
    """A metadata request to send, and the arguments to pass to ``Metadata.update`` with its response."""

    request_builder: RequestBuilder
    request_version: int
    is_partial_update: bool


class Metadata:
    """The latest known state of the cluster, and when to refresh it.

    A full update asks for all topics of interest, a partial update for new topics only. Subclasses choose the topics by
    overriding ``retain_topic``, ``new_metadata_request_builder`` and ``new_metadata_request_builder_for_new_topics``.
    These methods run under the lock. The lock is reentrant, so that a subclass can extend ``update`` and build a
    ``Condition`` on the lock.

    Listeners run and log lines are written after the lock is released. Thread: any.
    """

    #: The operation on topics that the client needs, for messages. It implies the one that brokers check for metadata.
    needed_operation: ClassVar[str] = "DESCRIBE"

    def __init__(
        self,
        refresh_backoff_ms: int,
        refresh_backoff_max_ms: int,
        metadata_expire_ms: int,
        log_context: LogContext,
        cluster_resource_listeners: ClusterResourceListeners | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._log = log_context.logger(__name__)
        self._lock = threading.RLock()  # guards: all below, but readers of _snapshot, which is replaced whole
        self._refresh_backoff = ExponentialBackoff(refresh_backoff_ms, refresh_backoff_max_ms, rng)
        self.metadata_expire_ms = metadata_expire_ms
        self._listeners = cluster_resource_listeners or ClusterResourceListeners()
        #: A number that each response increments.
        self.update_version = 0
        self._request_version = 0  # incremented by each new topic
        self._last_refresh_ms = _LONG_AGO_MS
        self._last_successful_refresh_ms = _LONG_AGO_MS
        self._attempts = 0
        self._equivalent_response_count = 0
        self._need_full_update = False
        self._need_partial_update = False
        #: No request is due before this time; far in the past if that is not known. The network client reads it without
        #: the lock in each poll. A thread that changes it also wakes that client, which reads it again.
        self.quiet_until_ms = _LONG_AGO_MS
        self._fatal_error: KafkaError | None = None
        self._invalid_topics: frozenset[str] = frozenset()
        self._unauthorized_topics: frozenset[str] = frozenset()
        self._last_seen_leader_epochs: dict[TopicPartition, int] = {}
        # The topics that these epochs belong to. A rebootstrap empties the snapshot, and then the old epochs of a
        # broker that is cut off would look like those of a new topic.
        self._topic_ids_of_epochs: dict[str, uuid.UUID] = {}
        # The last accepted epoch that a response had for the present topic id. The known epoch may be higher, and then
        # that of an older topic: commits and seeks name no topic id.
        self._confirmed_epochs: dict[TopicPartition, int] = {}
        self._lower_epochs = LowerEpochs(metadata_expire_ms)
        self.bootstrap_addresses: Sequence[tuple[str, int]] = ()  # replaced whole
        self._known_cluster_id: str | None = None  # kept when a rebootstrap forgets the cluster
        self._is_closed = False
        self._snapshot = MetadataSnapshot(Cluster.empty(), {})

    # --- reading ---------------------------------------------------------------------------------------------------

    def fetch(self) -> Cluster:
        """Return the latest known state of the cluster. Never blocks."""
        return self._snapshot.cluster

    def fetch_metadata_snapshot(self) -> MetadataSnapshot:
        return self._snapshot

    @property
    def topic_ids(self) -> Mapping[str, uuid.UUID]:
        return self._snapshot.cluster.topic_ids

    @property
    def topic_names(self) -> Mapping[uuid.UUID, str]:
        return self._snapshot.cluster.topic_names

    @property
    def last_successful_update(self) -> int:
        """The ``now_ms`` of the last successful full update; far in the past before the first one."""
        with self._lock:
            return self._last_successful_refresh_ms

    def explain(self, now_ms: int) -> str:
        """Return a line about the age and content of the metadata."""
        cluster, age_ms = self._snapshot.cluster, now_ms - self.last_successful_update
        wanted = "; an update is requested" if self.update_requested else ""
        if cluster.is_bootstrap_configured or age_ms > _NEVER_MS:
            servers = ", ".join(shown_address(host, port) for host, port in self.bootstrap_addresses)
            return f"none received; the bootstrap servers are {servers or 'unknown'}{wanted}"
        leaderless = sum(
            partition.leader is None for topic in cluster.topics for partition in cluster.partitions_for_topic(topic)
        )
        return (
            f"{counted(len(cluster.nodes), 'broker')}, {counted(len(cluster.topics), 'topic')}, "
            f"{counted(leaderless, 'partition')} without a leader, {shown_duration(age_ms)} old{wanted}"
        )

    @property
    def update_requested(self) -> bool:
        with self._lock:
            return self._need_full_update or self._need_partial_update

    @property
    def is_closed(self) -> bool:
        with self._lock:
            return self._is_closed

    def last_seen_leader_epoch(self, partition: TopicPartition) -> int | None:
        return self._last_seen_leader_epochs.get(partition)

    def partition_metadata_if_current(self, partition: TopicPartition) -> PartitionMetadata | None:
        """Return the partition's metadata, or None if it is unknown or a newer leader epoch has been seen elsewhere."""
        with self._lock:
            epoch = self._last_seen_leader_epochs.get(partition)
            metadata = self._snapshot.partition_metadata(partition)
            if metadata is None or epoch is None or metadata.leader_epoch == epoch:
                return metadata
            return None

    def current_leader(self, partition: TopicPartition) -> LeaderAndEpoch:
        """Return the leader if the metadata is current; otherwise only the leader epoch that was seen last."""
        with self._lock:
            metadata = self.partition_metadata_if_current(partition)
            if metadata is None:
                return LeaderAndEpoch(None, self._last_seen_leader_epochs.get(partition))
            leader = None if metadata.leader_id is None else self.fetch().node_by_id(metadata.leader_id)
            return LeaderAndEpoch(leader, metadata.leader_epoch)

    def why_leader_is_unknown(self, partition: TopicPartition) -> str | None:
        """Return why ``current_leader`` names no leader, although metadata has one; None otherwise."""
        with self._lock:
            metadata = self._snapshot.partition_metadata(partition)
            known = self._last_seen_leader_epochs.get(partition)
        if metadata is None or known is None or metadata.leader_epoch == known:
            return None
        return (
            f"metadata has leader epoch {metadata.leader_epoch}, but a commit, a seek() or a broker had epoch {known}. "
            "The leader is unknown until metadata has that epoch, or has not had it for a minute or "
            "metadata.max.age.ms, whichever is less"
        )

    # --- when to ask -----------------------------------------------------------------------------------------------

    def time_to_allow_update(self, now_ms: int) -> int:
        """Return how many milliseconds remain until the backoff allows another request.

        The backoff applies after failed requests. It also applies after responses with nothing new, while errors
        elsewhere keep reporting stale metadata.
        """
        with self._lock:
            if self._last_successful_refresh_ms + self.metadata_expire_ms <= now_ms:
                self._equivalent_response_count = 0  # a refresh because of age does not mean that responses are stale
            if self._last_refresh_ms + self._refresh_backoff.max_ms <= now_ms:
                return 0
            backoff_ms = self._refresh_backoff.backoff(max(self._attempts - 1, 0))
            after_failures_ms = max(self._last_refresh_ms + backoff_ms - now_ms, 0)
            backoff_ms = 0
            if self._equivalent_response_count > 0:
                backoff_ms = self._refresh_backoff.backoff(self._equivalent_response_count - 1)
            return max(after_failures_ms, self._last_refresh_ms + backoff_ms - now_ms, 0)

    def time_to_next_update(self, now_ms: int) -> int:
        """Return how many milliseconds remain until the next request is due.

        A requested update is due at once, else the age of the metadata decides. No request is due before its backoff.
        """
        with self._lock:
            expires_ms = 0
            if not (self._need_full_update or self._need_partial_update):
                expires_ms = max(self._last_successful_refresh_ms + self.metadata_expire_ms - now_ms, 0)
                if expires_ms > self._refresh_backoff.max_ms:
                    self.quiet_until_ms = now_ms + expires_ms - self._refresh_backoff.max_ms
                    return expires_ms
            return max(expires_ms, self.time_to_allow_update(now_ms))

    def request_update(self, reset_equivalent_response_backoff: bool) -> int:
        """Request a full update. Return the current version, which the update will exceed.

        Set ``reset_equivalent_response_backoff`` if the reason is not stale metadata, so that the request need not back
        off.
        """
        with self._lock:
            self._require_full_update()
            if reset_equivalent_response_backoff:
                self._equivalent_response_count = 0
            return self.update_version

    def _require_full_update(self) -> None:
        self._need_full_update = True
        self.quiet_until_ms = _LONG_AGO_MS

    def request_update_for_new_topics(self) -> int:
        """Request a partial update, for new topics, without backoff.

        Return the current version, which the update will exceed.
        """
        with self._lock:
            self._last_refresh_ms = _LONG_AGO_MS
            self._need_partial_update = True
            self.quiet_until_ms = _LONG_AGO_MS
            self._equivalent_response_count = 0
            self._request_version += 1
            return self.update_version

    def new_metadata_request_and_version(self, now_ms: int) -> MetadataRequestAndVersion:
        """Return the request that is due now.

        It is partial if no full update is due and the subclass can name the new topics.
        """
        with self._lock:
            request: RequestBuilder | None = None
            if not self._need_full_update and self._last_successful_refresh_ms + self.metadata_expire_ms > now_ms:
                request = self.new_metadata_request_builder_for_new_topics()
            if request is not None:
                return MetadataRequestAndVersion(request, self._request_version, True)
            return MetadataRequestAndVersion(self.new_metadata_request_builder(), self._request_version, False)

    # --- for subclasses --------------------------------------------------------------------------------------------

    def new_metadata_request_builder(self) -> RequestBuilder:
        """Return a request for all topics of interest."""
        return MetadataRequestBuilder.all_topics()

    def read_response(self, response: Response) -> MetadataResponse:
        """Return the metadata in the response to a request of this object. Subclasses may ask by another API.

        Raises:
            KafkaError: the response is an error.
        """
        return cast("MetadataResponse", response)

    def new_metadata_request_builder_for_new_topics(self) -> MetadataRequestBuilder | None:
        """Return a request for the topics of interest that are not known yet, or None if that is not supported."""
        return None

    def retain_topic(self, topic: str, is_internal: bool, now_ms: int) -> bool:  # noqa: ARG002 - for subclasses
        """Return True if the metadata of ``topic`` in a response is kept."""
        return True

    def retain_topic_id(self, topic: str, topic_id: uuid.UUID | None, is_internal: bool, now_ms: int) -> bool:  # noqa: ARG002
        """Return ``retain_topic``; subclasses that select topics by id override it."""
        return self.retain_topic(topic, is_internal, now_ms)

    def _replace_snapshot(self, snapshot: MetadataSnapshot) -> None:
        """Make ``snapshot`` the latest metadata. The caller holds the lock."""
        self._snapshot = snapshot

    # --- hearing ---------------------------------------------------------------------------------------------------

    def bootstrap(self, addresses: Sequence[tuple[str, int]]) -> None:
        """Start from the configured ``(host, port)`` pairs. Their nodes get negative ids."""
        with self._lock:
            self._require_full_update()
            self.update_version += 1
            self._replace_snapshot(MetadataSnapshot(Cluster.bootstrap(addresses), {}))
            self.bootstrap_addresses = tuple(addresses)

    def rebootstrap(self) -> None:
        """Forget the cluster and start from the configured addresses again (KIP-899)."""
        servers = ", ".join(shown_address(host, port) for host, port in self.bootstrap_addresses)
        # INFO only once per outage, because rebootstraps may follow one another.
        level = logging.DEBUG if self._snapshot.cluster.is_bootstrap_configured else logging.INFO
        self._log.log(level, "Starting again from the bootstrap servers: %s", servers)
        self.bootstrap(self.bootstrap_addresses)

    def update_last_seen_epoch_if_newer(self, partition: TopicPartition, leader_epoch: int) -> bool:
        """Record a leader epoch seen in a response.

        Return True, and request a full update, if the epoch is newer than the known one. Return False if it is not, or
        if no epoch is known.

        Raises:
            IllegalArgumentError: the epoch is negative.
        """
        if leader_epoch < 0:
            raise errors.IllegalArgumentError(f"a leader epoch cannot be negative, but is {leader_epoch}")
        with self._lock:
            known = self._last_seen_leader_epochs.get(partition)
            if known is None or leader_epoch <= known:
                return False
            self._last_seen_leader_epochs[partition] = leader_epoch
            self._require_full_update()
            return True

    def update_with_current_request_version(
        self, response: MetadataResponse, is_partial_update: bool, now_ms: int
    ) -> None:
        """Apply a response that belongs to no request of this object, as ``update`` does."""
        self.update(self._request_version, response, is_partial_update, now_ms)

    def update(self, request_version: int, response: MetadataResponse, is_partial_update: bool, now_ms: int) -> None:
        """Apply a response.

        ``request_version`` is the version of the request. If topics were added since, another partial update is due.

        Raises:
            IllegalStateError: the metadata is closed.
        """
        notes: list[Note] = []
        with self._lock:
            if self._is_closed:
                raise IllegalStateError("metadata was updated after it was closed")
            self._need_partial_update = request_version < self._request_version
            self.quiet_until_ms = _LONG_AGO_MS
            self._last_refresh_ms = now_ms
            self._attempts = 0
            self.update_version += 1
            if not is_partial_update:
                self._need_full_update = False
                self._last_successful_refresh_ms = now_ms
            # Reset to 0 below if the response differs from the known metadata.
            self._equivalent_response_count += 1
            snapshot = self._handle_metadata_response(response, is_partial_update, now_ms, notes)
            self._replace_snapshot(snapshot)
            cluster = snapshot.cluster
            cluster_id = cluster.cluster_resource.cluster_id
            new_cluster = cluster_id != self._known_cluster_id
            self._known_cluster_id = cluster_id
            self._invalid_topics = cluster.invalid_topics
            self._unauthorized_topics = cluster.unauthorized_topics
            verdicts: dict[str, bool] = {}
            for partition in list(self._last_seen_leader_epochs):
                topic = partition.topic
                if topic not in verdicts:
                    verdicts[topic] = self.retain_topic(topic, False, now_ms)
                if not verdicts[topic]:
                    del self._last_seen_leader_epochs[partition]
                    self._topic_ids_of_epochs.pop(topic, None)
                    self._confirmed_epochs.pop(partition, None)
                    self._lower_epochs.forget(partition)
            version = self.update_version
        if new_cluster:
            notes.append((logging.INFO, "Cluster ID: %s", (cluster_id,)))
        notes.append((logging.DEBUG, "Updated cluster metadata to version %d: %r", (version, snapshot)))
        self._listeners.on_update(cluster.cluster_resource, self._log)
        self._write_log(notes)

    def update_partition_leadership(
        self, partition_leaders: Mapping[TopicPartition, LeaderIdAndEpoch], leader_nodes: Iterable[Node]
    ) -> set[TopicPartition]:
        """Apply the leaders that a produce or fetch response hinted at (KIP-951). Return the partitions that changed.

        A hint counts only if its epoch is newer than the known one and both its broker and its partition are known.
        """
        with self._lock:
            snapshot, cluster = self._snapshot, self._snapshot.cluster
            nodes = {node.id: node for node in (*cluster.nodes, *leader_nodes)}
            changed: list[PartitionMetadata] = []
            for partition, (leader_id, epoch) in partition_leaders.items():
                known_epoch = self.current_leader(partition).epoch
                metadata = snapshot.partition_metadata(partition)
                if leader_id is None or epoch is None or leader_id not in nodes or metadata is None:
                    continue
                if known_epoch is not None and epoch <= known_epoch:
                    continue
                changed.append(metadata._replace(leader_id=leader_id, leader_epoch=epoch))
                self._last_seen_leader_epochs[partition] = epoch
            if not changed:
                return set()
            newer = MetadataSnapshot.of(
                cluster.cluster_resource.cluster_id,
                nodes,
                changed,
                controller=cluster.controller,
                topic_ids=cluster.topic_ids,
            )
            snapshot = snapshot.merge_with(newer, lambda _topic, _is_internal: True)
            self._replace_snapshot(snapshot)
        self._listeners.on_update(cluster.cluster_resource, self._log)
        self._log.debug("Leaders changed by hints in a response: %s", changed)
        return {metadata.topic_partition for metadata in changed}

    def _handle_metadata_response(
        self, response: MetadataResponse, is_partial_update: bool, now_ms: int, notes: list[Note]
    ) -> MetadataSnapshot:
        """Return the snapshot that results from the present one and ``response``."""
        seen: set[str] = set()
        internal: set[str] = set()
        unauthorized: set[str] = set()
        invalid: set[str] = set()
        partitions: list[PartitionMetadata] = []
        topic_ids: dict[str, uuid.UUID] = {}
        for topic in response.topics:
            name = topic.name
            if name is None:  # requested by an id that the cluster does not know
                self._note_stale_metadata(topic.topic_id, topic.error_code, notes)
                continue
            seen.add(name)
            topic_id: uuid.UUID | None = topic.topic_id
            old_topic_id: uuid.UUID | None = None
            if topic_id is not None and topic_id != ZERO_UUID:
                topic_ids[name] = topic_id
                old_topic_id = self._topic_ids_of_epochs.get(name)
            else:
                topic_id = None
            if not self.retain_topic_id(name, topic_id, topic.is_internal, now_ms):
                continue
            if topic.is_internal:
                internal.add(name)
            if topic.error_code:
                if topic.error_code == _INVALID_TOPIC:
                    invalid.add(name)
                elif topic.error_code == _TOPIC_AUTHORIZATION_FAILED:
                    unauthorized.add(name)
                self._note_stale_metadata(name, topic.error_code, notes)
                continue
            for partition in topic.partitions:
                metadata = PartitionMetadata(
                    TopicPartition(name, partition.partition_index),
                    partition.error_code,
                    partition.leader_id if partition.leader_id >= 0 else None,
                    partition.leader_epoch if partition.leader_epoch >= 0 else None,
                    partition.replica_nodes,
                    partition.isr_nodes,
                    partition.offline_replicas,
                )
                # Partitions with an error, too, so that new epochs are not missed.
                latest = self._update_latest_metadata(metadata, topic_id, old_topic_id, now_ms, notes)
                if latest is not None:
                    partitions.append(latest)
                if partition.error_code:
                    self._note_stale_metadata(metadata.topic_partition, partition.error_code, notes)
            if topic_id is not None:
                self._topic_ids_of_epochs[name] = topic_id

        nodes = {
            broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack) for broker in response.brokers
        }
        controller = nodes.get(response.controller_id)
        snapshot = MetadataSnapshot.of(
            response.cluster_id, nodes, partitions, unauthorized, invalid, internal, controller, topic_ids
        )
        if not is_partial_update:
            return snapshot
        return self._snapshot.merge_with(
            snapshot,
            lambda topic, is_internal: topic not in seen and self.retain_topic(topic, is_internal, now_ms),
        )

    def _note_stale_metadata(self, what: object, error_code: int, notes: list[Note]) -> None:
        """Request a full update if the error is one that fresh metadata resolves."""
        error = errors.for_code(error_code)
        if isinstance(error, InvalidMetadataError):
            self._require_full_update()
            notes.append((logging.DEBUG, "Asking for metadata again: %s has %s", (what, type(error).__name__)))

    def _update_latest_metadata(
        self,
        metadata: PartitionMetadata,
        topic_id: uuid.UUID | None,
        old_topic_id: uuid.UUID | None,
        now_ms: int,
        notes: list[Note],
    ) -> PartitionMetadata | None:
        """Return the newer of ``metadata`` and the known metadata, by leader epoch.

        A new topic id starts new epochs. Under the same id, epochs only rise: a broker that reports a lower one than
        brokers have before is behind, however long that lasts.
        """
        partition, epoch = metadata.topic_partition, metadata.leader_epoch
        epochs = self._last_seen_leader_epochs
        if epoch is None:  # an old broker, or an error without a leader
            epochs.pop(partition, None)
            self._confirmed_epochs.pop(partition, None)
            self._equivalent_response_count = 0
            return metadata
        known = epochs.get(partition)
        if known is not None and (topic_id is None or topic_id == old_topic_id):
            is_behind = topic_id is not None and epoch < self._confirmed_epochs.get(partition, epoch)
            if epoch < known and not self._lower_epochs.believes(
                partition, epoch, known, now_ms, notes, is_behind=is_behind
            ):
                self._require_full_update()  # backs off while responses contain nothing new
                return self._snapshot.partition_metadata(partition)
            if epoch == known:
                self._confirm(partition, epoch, topic_id)
                return metadata
        elif known is not None:
            # The topic was deleted and created again, unless the epochs so far came without an id; then the new epoch
            # counts all the same.
            level = logging.DEBUG if old_topic_id is None else logging.INFO
            notes.append((level, "The topic of %s has a new id: %s, was %s", (partition, topic_id, old_topic_id)))
        epochs[partition] = epoch
        self._confirm(partition, epoch, topic_id)
        self._equivalent_response_count = 0
        return metadata

    def _confirm(self, partition: TopicPartition, epoch: int, topic_id: uuid.UUID | None) -> None:
        self._lower_epochs.forget(partition)
        if topic_id is not None:
            self._confirmed_epochs[partition] = epoch

    def _write_log(self, notes: list[Note]) -> None:
        for level, message, args in notes:
            self._log.log(level, message, *args)

    # --- failures --------------------------------------------------------------------------------------------------

    def failed_update(self, now_ms: int) -> None:
        """Record a failed request, so that the next one backs off."""
        with self._lock:
            self._last_refresh_ms = now_ms
            self._attempts += 1
            self._equivalent_response_count = 0

    def fatal_error(self, error: KafkaError) -> None:
        """Record an error that makes further requests pointless, such as an authentication failure."""
        with self._lock:
            self._fatal_error = error

    def maybe_throw_any_exception(self) -> None:
        """Raise the fatal error, or else the one that names unauthorized or invalid topics, and forget both.

        The consumer uses this.

        Raises:
            KafkaError: the fatal error.
            TopicAuthorizationError: the client may not access some topics.
            InvalidTopicError: some topic names are invalid.
        """
        if self._fatal_error is None and not self._unauthorized_topics and not self._invalid_topics:
            return  # without the lock, because each poll calls this; the next poll sees an error that arrives just now
        self._throw_error_of(None)

    def maybe_throw_fatal_exception(self) -> None:
        """Raise the fatal error, if any, and forget it. The producer uses this while it waits.

        Raises:
            KafkaError: the fatal error.
        """
        with self._lock:
            error, self._fatal_error = self._fatal_error, None
        if error is not None:
            raise error

    def maybe_throw_exception_for_topic(self, topic: str) -> None:
        """Raise the fatal error, or else the error of ``topic``, and forget all errors.

        Raises:
            KafkaError: the fatal error.
            TopicAuthorizationError: the client may not access the topic.
            InvalidTopicError: the name of the topic is invalid.
        """
        self._throw_error_of(frozenset((topic,)))

    def _throw_error_of(self, topics: frozenset[str] | None) -> None:
        """Raise the fatal error, or else that of ``topics`` (None: all). A client recovers by dropping these."""
        with self._lock:
            error, self._fatal_error = self._fatal_error, None
            unauthorized, invalid = self._unauthorized_topics, self._invalid_topics
            if topics is not None:
                unauthorized, invalid = unauthorized & topics, invalid & topics
            self._invalid_topics = self._unauthorized_topics = frozenset()
        if error is not None:
            raise error
        if unauthorized:
            raise topics_denied(self._log.principal, unauthorized, self.needed_operation)
        if invalid:
            raise InvalidTopicError(f"invalid topic names: {', '.join(sorted(invalid))}")

    def close(self) -> None:
        """Refuse further updates."""
        with self._lock:
            self._is_closed = True
