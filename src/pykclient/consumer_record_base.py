"""The methods of ConsumerRecord, without its fields.

The fields are stored by ``consumer_record.ConsumerRecord`` or by its compiled form; both inherit from this class.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, overload

if TYPE_CHECKING:
    # With defaults (PEP 696), so that ``KafkaProducer(...)`` needs no annotation; typing has them since 3.13.
    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

Header = tuple[str, bytes | None]
Headers = Sequence[Header]


class FixedHeaders(tuple[Header, ...]):
    """The headers of an AIOKafkaConsumer's record, which remain a tuple, as aiokafka's."""

    __slots__ = ()


#: The most characters of a key or value that the text of a record shows.
_SHOWN_CHARACTERS = 60


class ConsumerRecordBase(Generic[K, V]):
    """A record read from Kafka.

    ``timestamp`` is in milliseconds since the epoch. ``timestamp_type`` is 0 if the producer set it, 1 if the broker
    did, and -1 if the record has none (the oldest message format). Sizes are in bytes, -1 for None. ``headers`` is a
    list of ``(name, value)`` tuples, where a value is bytes or None; AIOKafkaConsumer makes it a tuple.

    Records unpack, index and compare field by field like the named tuple of kafka-python, with ``_fields``,
    ``_asdict()``, ``_replace()`` and ``_make()``. Of its fields, ``checksum`` is always None, and
    ``serialized_header_size`` is computed from the headers; the arguments of these names are ignored.

    ``delivery_count`` tells how often a share group has delivered the record, this time included; it is None for other
    consumers. It is not one of the fields above.

    Programs that make records, such as tests, may leave out all but the topic and the partition: an epoch of None, -1
    and no headers mean unknown, as in Java. A program may give a record attributes of its own; they are not fields.

    ``repr`` shows the beginning of key and value.

    Thread: any, as long as no other thread changes the record.
    """

    topic: str
    partition: int
    leader_epoch: int | None
    offset: int
    timestamp: int
    timestamp_type: int
    key: K | None
    value: V | None
    serialized_key_size: int
    serialized_value_size: int
    delivery_count: int | None
    _headers: Headers  # decoded into a tuple that neighbouring records share; each makes its own list on first access
    if not TYPE_CHECKING:
        __slots__ = ()  # inheriting classes have them

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
        leader_epoch: int | None = None,
        offset: int = -1,
        timestamp: int = -1,
        timestamp_type: int = -1,
        key: K | None = None,
        value: V | None = None,
        headers: Headers = (),
        checksum: None = None,  # noqa: ARG002 - a field of kafka-python's
        serialized_key_size: int = -1,
        serialized_value_size: int = -1,
        serialized_header_size: int = -1,  # noqa: ARG002
        *,
        delivery_count: int | None = None,
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
        self.delivery_count = delivery_count

    @property
    def headers(self) -> Sequence[Header]:
        """The headers as a list of ``(name, value)`` tuples, which may be changed; a tuple with AIOKafkaConsumer."""
        headers = self._headers
        if type(headers) is not list and type(headers) is not FixedHeaders:
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
    def _make(cls, values: Iterable[Any]) -> Self:
        """Return a record of the values of all fields, in order."""
        return cls(*values)

    def _asdict(self) -> dict[str, Any]:
        """Return the fields as a dict."""
        return {name: getattr(self, name) for name in self._fields}

    def _replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed.

        Raises:
            ValueError: There is no field of that name.
        """
        if unknown := changes.keys() - set(self._fields):
            raise ValueError(f"a ConsumerRecord has no field {', '.join(sorted(unknown))}")
        headers = self._headers if type(self._headers) is FixedHeaders else list(self._headers)
        fields = {**self._asdict(), "headers": headers, **changes}
        return type(self)(**fields, delivery_count=self.delivery_count)

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
        if self.delivery_count is not None:
            fields += f", delivery_count={self.delivery_count}"
        return f"{type(self).__name__}({fields})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConsumerRecordBase) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset))


#: The names under which a record stores its fields.
RECORD_SLOTS = tuple(ConsumerRecordBase.__annotations__)


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
