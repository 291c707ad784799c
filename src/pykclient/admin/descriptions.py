"""Typed results of the admin client."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from pykclient.admin.values import ConfigSourceType, ConfigType, GroupState, GroupType
from pykclient.errors import KafkaError
from pykclient.types import Node, TopicPartition


class ConfigSynonym(NamedTuple):
    """A place that a configuration value can come from. The first one of a list is in effect."""

    name: str
    value: str | None
    source: ConfigSourceType


class ConfigEntry(NamedTuple):
    """A configuration key, its value, and where the value comes from. A secret's value is None."""

    name: str
    value: str | None
    source: ConfigSourceType
    is_read_only: bool = False
    is_sensitive: bool = False
    type: ConfigType = ConfigType.UNKNOWN
    documentation: str | None = None
    synonyms: tuple[ConfigSynonym, ...] = ()

    @property
    def is_default(self) -> bool:
        """True if the value is Kafka's default."""
        return self.source is ConfigSourceType.DEFAULT_CONFIG


class CreatedTopic(NamedTuple):
    """A topic that was created, or with ``validate_only`` would have been.

    ``topic_id`` is None if the broker has no topic ids, or nothing was created. The numbers are -1, and ``configs`` is
    empty, if the broker does not tell: it is too old, or the principal may not describe configurations.
    """

    name: str
    topic_id: UUID | None
    num_partitions: int
    replication_factor: int
    configs: dict[str, ConfigEntry]


class TopicDescription(NamedTuple):
    """A topic as the cluster describes it. ``topic_id`` is None if the broker has no topic ids."""

    name: str
    topic_id: UUID | None
    is_internal: bool
    partitions: list[PartitionDescription]
    authorized_operations: list[str] | None


class PartitionDescription(NamedTuple):
    """A partition of a topic. ``leader`` is None while there is none.

    ``elr`` has the eligible leader replicas: they have left the in-sync replicas, but have all committed records
    (KIP-966). ``last_known_elr`` has those of which one may be elected if there is no other. Both are None if the
    broker does not tell: before Kafka 3.8, and for a topic that was given by id.
    """

    partition: int
    leader: Node | None
    leader_epoch: int
    replicas: tuple[Node, ...]
    in_sync_replicas: tuple[Node, ...]
    offline_replicas: tuple[Node, ...]
    elr: tuple[Node, ...] | None = None
    last_known_elr: tuple[Node, ...] | None = None


class TopicListing(NamedTuple):
    """A topic in the list of all topics."""

    name: str
    topic_id: UUID | None
    is_internal: bool


class ClusterDescription(NamedTuple):
    """The brokers of the cluster, and the one that it names as controller.

    For a client that is connected to controllers: the controllers, and the active one.
    """

    cluster_id: str | None
    controller: Node | None
    nodes: tuple[Node, ...]
    authorized_operations: list[str] | None


class BrokerVersionData(NamedTuple):
    """The first and last version of each API that a broker supports, by the key of the API."""

    broker_id: int
    api_versions: dict[int, tuple[int, int]]


class LogDirDescription(NamedTuple):
    """A log directory of a broker. Sizes are in bytes, -1 if unknown. ``error`` is why it cannot be used, or None.

    A cordoned directory gets no new replicas (KIP-1066).
    """

    total_bytes: int
    usable_bytes: int
    replicas: dict[TopicPartition, ReplicaInfo]
    error: KafkaError | None
    is_cordoned: bool = False


class ReplicaInfo(NamedTuple):
    """A replica in a log directory. ``is_future`` is True while it is moved there."""

    size_bytes: int
    offset_lag: int
    is_future: bool


class ReplicaLogDirInfo(NamedTuple):
    """The log directory of a replica, and the one that it is moved to. They are None if there is none.

    An offset lag is the number of records that the replica there is behind, -1 if unknown.
    """

    current_replica_log_dir: str | None = None
    current_replica_offset_lag: int = -1
    future_replica_log_dir: str | None = None
    future_replica_offset_lag: int = -1


class QuorumReplica(NamedTuple):
    """A voter or observer of the quorum of controllers. Times are in milliseconds since the epoch, -1 if unknown."""

    replica_id: int
    directory_id: UUID | None
    log_end_offset: int
    last_fetch_timestamp_ms: int
    last_caught_up_timestamp_ms: int


class QuorumInfo(NamedTuple):
    """The quorum of controllers. ``endpoints`` maps the ids of nodes to their ``(listener, host, port)``."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    endpoints: dict[int, tuple[tuple[str, str, int], ...]]


class FeatureMetadata(NamedTuple):
    """The levels of features, as pairs of the lowest and the highest. ``finalized_epoch`` is None if unknown."""

    supported: dict[str, tuple[int, int]]
    finalized: dict[str, tuple[int, int]]
    finalized_epoch: int | None


class ListedOffset(NamedTuple):
    """An offset in a partition. ``timestamp`` is its record's in ms, or -1 if no record was looked up."""

    offset: int
    timestamp: int
    leader_epoch: int | None


class PartitionReassignment(NamedTuple):
    """The replicas of a partition that is being moved, with those being added and removed."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


class GroupListing(NamedTuple):
    """A group in a listing. Brokers before Kafka 3.8 do not report its type, those before 2.6 not its state."""

    group_id: str
    protocol_type: str
    state: GroupState
    type: GroupType


class MemberDescription(NamedTuple):
    """A member of a group.

    ``target_assignment`` (what the member moves to) and ``epoch`` are None in groups of the classic protocol.
    ``is_upgraded`` tells in a group of the consumer protocol if the member uses it too; it is None if the broker does
    not say, and in other groups. ``assignment`` is empty for members of streams groups, which have tasks.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    rack: str | None
    subscribed_topics: tuple[str, ...]
    assignment: frozenset[TopicPartition]
    target_assignment: frozenset[TopicPartition] | None
    epoch: int | None
    is_upgraded: bool | None = None


class GroupDescription(NamedTuple):
    """A group. ``assignor`` is the strategy that its members agree on. Epochs are None in the classic protocol.

    ``coordinator`` is the broker that has described the group.
    """

    group_id: str
    type: GroupType
    state: GroupState
    protocol_type: str
    assignor: str
    members: tuple[MemberDescription, ...]
    authorized_operations: list[str] | None
    group_epoch: int | None
    assignment_epoch: int | None
    coordinator: Node | None = None


class ShareGroupOffset(NamedTuple):
    """The start offset of a share group in a partition.

    All fields are None if the group has not begun to read it. ``leader_epoch`` and ``lag`` are None if the broker does
    not know them.
    """

    start_offset: int | None
    leader_epoch: int | None
    lag: int | None
