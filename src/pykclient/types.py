"""The values that applications use: partitions, records, offsets. They are plain, picklable, and without behaviour.

Dictionary keys are tuples, because tuples hash in C. Values created per record are hand-written slotted classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, NamedTuple

from pykclient.consumer_record import ConsumerRecord as ConsumerRecord
from pykclient.consumer_record_base import Header as Header, Headers as Headers, K as K, V as V

if TYPE_CHECKING:
    from uuid import UUID

    # With defaults (PEP 696); typing has them since 3.13.
    from typing_extensions import TypeVar

    # The types of keys and values of a client that is created with serializers; bytes without any.
    MadeK = TypeVar("MadeK", default=bytes)
    MadeV = TypeVar("MadeV", default=bytes)

NO_TIMESTAMP_TYPE = -1
CREATE_TIME = 0
LOG_APPEND_TIME = 1

UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    """A partition with its topic's id, as a topic created again has the same name and another id."""

    topic_id: UUID
    topic_partition: TopicPartition

    @property
    def topic(self) -> str:
        """The name of the topic."""
        return self.topic_partition.topic

    @property
    def partition(self) -> int:
        """The number of the partition."""
        return self.topic_partition.partition

    def __str__(self) -> str:
        return f"{self.topic_id}:{self.topic_partition}"


class Node:
    """A broker's address. ``id_string`` names its connection; bootstrap nodes have negative ids."""

    __slots__ = ("host", "id", "id_string", "is_fenced", "port", "rack")

    def __init__(self, id: int, host: str, port: int, rack: str | None = None, is_fenced: bool = False) -> None:
        self.id = id
        self.id_string = str(id)
        self.host = host
        self.port = port
        self.rack = rack
        self.is_fenced = is_fenced

    def _key(self) -> tuple[int, str, int, str | None, bool]:
        return self.id, self.host, self.port, self.rack, self.is_fenced

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"Node({self.id}, {self.host!r}, {self.port}, rack={self.rack!r})"

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (id {self.id})" if self.id >= 0 else f"{self.host}:{self.port}"


class PartitionInfo(NamedTuple):
    """The replicas and the leader of a partition."""

    topic: str
    partition: int
    leader: Node | None
    replicas: tuple[Node, ...]
    in_sync_replicas: tuple[Node, ...]
    offline_replicas: tuple[Node, ...] = ()


class TopicDescription(NamedTuple):
    """A topic as the cluster describes it.

    ``topic_id`` distinguishes it from an earlier or later topic with the same name. None if the broker does not know
    topic ids (before Kafka 2.8).
    """

    name: str
    topic_id: UUID | None
    is_internal: bool
    partitions: list[PartitionInfo]


class OffsetAndMetadata(NamedTuple):
    """A committed position: the offset of the next record to read, a note, and the leader epoch or -1 (KIP-320)."""

    offset: int
    metadata: str = ""
    leader_epoch: int = UNKNOWN_EPOCH


class OffsetAndTimestamp(NamedTuple):
    """A result of ``offsets_for_times``: the first record at or after a time (milliseconds since the epoch)."""

    offset: int
    timestamp: int
    leader_epoch: int = UNKNOWN_EPOCH


class MemberState:
    """The values of ``ConsumerGroupMetadata.state``, as in kafka-python."""

    UNJOINED: Final = "<unjoined>"
    REBALANCING: Final = "<rebalancing>"
    STABLE: Final = "<stable>"


class ConsumerGroupMetadata(NamedTuple):
    """A consumer's membership in its group.

    Transactions need the first four fields (KIP-447). ``group_id`` is None for a consumer without a group. ``state`` is
    one of MemberState.
    """

    group_id: str | None = None
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    state: str = MemberState.UNJOINED


class RecordMetadata(NamedTuple):
    """The position of an acknowledged record, with the fields of kafka-python's class in its order.

    ``offset`` is -1 with ``acks=0``. ``timestamp`` is in milliseconds since the epoch. Sizes are in bytes, -1 for None.
    ``checksum`` is always None, and ``serialized_header_size`` always -1: batches of format 2 have no checksum per
    record, and the producer does not count header bytes.
    """

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int
    checksum: None
    serialized_key_size: int
    serialized_value_size: int
    serialized_header_size: int = -1

    @property
    def has_offset(self) -> bool:
        """True if the broker reported an offset, which it does not with ``acks=0``."""
        return self.offset != UNKNOWN_OFFSET


class ProducerRecord(Generic[K, V]):
    """A record to send. ``timestamp_ms`` None means now; ``partition`` None lets the partitioner choose."""

    __slots__ = ("headers", "key", "partition", "timestamp_ms", "topic", "value")

    def __init__(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        self.topic = topic
        self.value = value
        self.key = key
        self.headers = headers
        self.partition = partition
        self.timestamp_ms = timestamp_ms

    def __repr__(self) -> str:
        return f"ProducerRecord(topic={self.topic!r}, partition={self.partition}, timestamp_ms={self.timestamp_ms})"
