"""The values that applications hold: partitions, records, offsets. Plain, picklable, without behaviour.

What is used as a dictionary key is a tuple, as tuples hash in C; what is made once a record is a written slotted class.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

if TYPE_CHECKING:
    # With defaults (PEP 696), so that nobody has to annotate ``KafkaProducer(...)``; typing has them from 3.13 on.
    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

Header = tuple[str, bytes | None]
Headers = Sequence[Header]

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
        return hash(self._key())

    def __repr__(self) -> str:
        return f"Node({self.id}, {self.host!r}, {self.port}, rack={self.rack!r})"

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (id {self.id})" if self.id >= 0 else f"{self.host}:{self.port}"


class PartitionInfo(NamedTuple):
    """Where a partition lives."""

    topic: str
    partition: int
    leader: Node | None
    replicas: tuple[Node, ...]
    in_sync_replicas: tuple[Node, ...]
    offline_replicas: tuple[Node, ...] = ()


class OffsetAndMetadata(NamedTuple):
    """A committed position: the offset of the next record to read, a note, and the leader epoch or -1 (KIP-320)."""

    offset: int
    metadata: str = ""
    leader_epoch: int = UNKNOWN_EPOCH


class OffsetAndTimestamp(NamedTuple):
    """What ``offsets_for_times`` finds: the first record at or after a time (milliseconds since the epoch)."""

    offset: int
    timestamp: int
    leader_epoch: int = UNKNOWN_EPOCH


class ConsumerGroupMetadata(NamedTuple):
    """A member's place in its group, as transactions need it (KIP-447)."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class RecordMetadata(NamedTuple):
    """Where a record went. ``offset`` is -1 with ``acks=0``, ``timestamp`` in ms, sizes in bytes (-1 for None)."""

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int
    serialized_key_size: int
    serialized_value_size: int
    serialized_header_size: int = -1

    @property
    def has_offset(self) -> bool:
        return self.offset != UNKNOWN_OFFSET


class ProducerRecord(Generic[K, V]):
    """What to send. ``timestamp_ms`` None means now; ``partition`` None means that the partitioner chooses."""

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


class ConsumerRecord(Generic[K, V]):
    """A record as it was read.

    ``timestamp`` is milliseconds since the epoch, ``timestamp_type`` 0 for the producer's clock and 1 for the broker's
    (-1: none, in the oldest format). Sizes are in bytes, -1 for None. ``repr`` leaves key and value out, so that they
    do not reach a log by accident.
    """

    __slots__ = (
        "headers",
        "key",
        "leader_epoch",
        "offset",
        "partition",
        "serialized_key_size",
        "serialized_value_size",
        "timestamp",
        "timestamp_type",
        "topic",
        "value",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        leader_epoch: int | None,
        offset: int,
        timestamp: int,
        timestamp_type: int,
        key: K | None,
        value: V | None,
        headers: Headers,
        serialized_key_size: int,
        serialized_value_size: int,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.offset = offset
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self.headers = headers
        self.serialized_key_size = serialized_key_size
        self.serialized_value_size = serialized_value_size

    def __repr__(self) -> str:
        return (
            f"ConsumerRecord(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, "
            f"timestamp={self.timestamp}, key: {self.serialized_key_size} bytes, "
            f"value: {self.serialized_value_size} bytes)"
        )

    def _fields(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConsumerRecord) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset))
