"""The values that applications use: partitions, records, offsets. They are plain, picklable, and without behaviour.

Dictionary keys are tuples, because tuples hash in C. Values created per record are hand-written slotted classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, overload

if TYPE_CHECKING:
    from uuid import UUID

    # With defaults (PEP 696), so that ``KafkaProducer(...)`` needs no annotation; typing has them since 3.13.
    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
    # The types of keys and values of a client that is created with serializers; bytes without any.
    MadeK = TypeVar("MadeK", default=bytes)
    MadeV = TypeVar("MadeV", default=bytes)
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


#: The most characters of a key or value that the text of a record shows.
_SHOWN_CHARACTERS = 60


class ConsumerRecord(Generic[K, V]):
    """A record read from Kafka.

    ``timestamp`` is in milliseconds since the epoch. ``timestamp_type`` is 0 if the producer set it, 1 if the broker
    did, and -1 if the record has none (the oldest message format). Sizes are in bytes, -1 for None. ``headers`` is a
    list of ``(name, value)`` tuples, where a value is bytes or None.

    Records unpack, index and compare field by field like the named tuple of kafka-python, with ``_fields``,
    ``_asdict()``, ``_replace()`` and ``_make()``. Of its fields, ``checksum`` is always None, and
    ``serialized_header_size`` is computed from the headers; the arguments of these names are ignored.

    ``repr`` shows the beginning of key and value.

    Thread: any, as long as no other thread changes the record.
    """

    # Headers are decoded into a tuple that neighbouring records share. Each record creates its own list on first
    # access.
    __slots__ = (
        "_headers",
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

    __match_args__ = (
        "topic",
        "partition",
        "leader_epoch",
        "offset",
        "timestamp",
        "timestamp_type",
        "key",
        "value",
        "headers",
        "checksum",
        "serialized_key_size",
        "serialized_value_size",
        "serialized_header_size",
    )
    #: The names of the fields, in the order in which a record unpacks.
    _fields = __match_args__

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
        checksum: None = None,  # noqa: ARG002 - a field of kafka-python's
        serialized_key_size: int = -1,
        serialized_value_size: int = -1,
        serialized_header_size: int = -1,  # noqa: ARG002
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.offset = offset
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self._headers = headers
        self.serialized_key_size = serialized_key_size
        self.serialized_value_size = serialized_value_size

    @property
    def headers(self) -> list[Header]:
        """The headers as a list of ``(name, value)`` tuples, which may be changed."""
        headers = self._headers
        if type(headers) is not list:
            headers = self._headers = list(headers)
        return headers

    @headers.setter
    def headers(self, headers: Headers) -> None:
        self._headers = headers

    @property
    def checksum(self) -> None:
        """Always None: checksums belong to batches."""
        return

    @property
    def serialized_header_size(self) -> int:
        """The bytes of all header names and values together; -1 without headers."""
        if not self._headers:
            return -1
        return sum(len(name.encode()) + len(value or b"") for name, value in self._headers)

    @classmethod
    def _make(cls, values: Iterable[Any]) -> ConsumerRecord[K, V]:
        """Return a record of the values of all fields, in order."""
        return cls(*values)

    def _asdict(self) -> dict[str, Any]:
        """Return the fields as a dict."""
        return {name: getattr(self, name) for name in self._fields}

    def _replace(self, **changes: Any) -> ConsumerRecord[K, V]:
        """Return a copy with some fields changed.

        Raises:
            ValueError: There is no field of that name.
        """
        if unknown := changes.keys() - set(self._fields):
            raise ValueError(f"a ConsumerRecord has no field {', '.join(sorted(unknown))}")
        return type(self)(**{**self._asdict(), "headers": list(self._headers), **changes})

    def __iter__(self) -> Iterator[Any]:
        return iter([getattr(self, name) for name in self._fields])

    def __len__(self) -> int:
        return len(self._fields)

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Any, ...]: ...

    def __getitem__(self, index: int | slice) -> Any:
        return tuple(self)[index]

    def __repr__(self) -> str:
        fields = ", ".join(
            f"{name}={_shown(value) if name in {'key', 'value'} else repr(value)}"
            for name, value in self._asdict().items()
            if name != "checksum"
        )
        return f"{type(self).__name__}({fields})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConsumerRecord) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset))


def _shown(value: object) -> str:
    """Return the text of a key or value, shortened."""
    if value is None:
        return "None"
    if isinstance(value, (str, bytes)):
        shown = repr(value[:_SHOWN_CHARACTERS])
        unit = "bytes" if isinstance(value, bytes) else "characters"
        return shown if len(value) <= _SHOWN_CHARACTERS else f"{shown}... ({len(value)} {unit})"
    import reprlib  # limits the text of containers before it is created

    shown = reprlib.repr(value)
    return shown if len(shown) <= _SHOWN_CHARACTERS else f"{shown[:_SHOWN_CHARACTERS]}..."
