"""The common parts of all batch formats: constants, the record tuple, the batch interface, size estimates.

Java: RecordBatch, Record, Records and AbstractRecords.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple, Protocol

from pykclient.record.compression_type import CompressionType
from pykclient.record.varint import size_of_varint
from pykclient.types import Header, Headers

MAGIC_VALUE_V0 = 0
MAGIC_VALUE_V1 = 1
MAGIC_VALUE_V2 = 2
CURRENT_MAGIC_VALUE = MAGIC_VALUE_V2

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_PARTITION_LEADER_EPOCH = -1

#: The offset and size fields before every batch and every old message.
LOG_OVERHEAD = 12
#: The magic byte is at the same position in all formats.
MAGIC_OFFSET = 16
HEADER_SIZE_UP_TO_MAGIC = 17

RECORD_BATCH_OVERHEAD = 61
RECORD_OVERHEAD_V0 = 14
RECORD_OVERHEAD_V1 = 22

#: The maximum size of length, attributes, timestamp delta and offset delta of a record in format 2.
MAX_RECORD_OVERHEAD = 21

MAX_INT32 = (1 << 31) - 1
MAX_INT64 = (1 << 63) - 1

Buffer = bytes | bytearray | memoryview

#: The start and end of bytes in the data of a batch; None for null.
Span = tuple[int, int] | None


class Record(NamedTuple):
    """A record of a batch: absolute offset, timestamp in milliseconds, and key and value as bytes or None."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


#: Called as ``deserializer(topic, headers, data)`` for data that is not None.
Deserializer = Callable[[str, Headers, bytes], Any]


class CursorOwner(NamedTuple):
    """The constant fields of a cursor's ConsumerRecords, and the deserializers. None as a deserializer means bytes."""

    topic: str
    partition: int
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None


class Cursor(Protocol):
    """A position in a batch that is read in steps; see ``RecordCursor``."""

    is_columnar: ClassVar[bool]
    next_offset: int
    bytes_read: int
    records_read: int
    exhausted: bool

    def next_records(self, max_records: int) -> list[Any]: ...


class HasCompressionType(Protocol):
    """A codec with its settings: a ``Compression``."""

    @property
    def type(self) -> CompressionType: ...


class RecordBatch(Protocol):
    """A decoded batch of any format (Java: RecordBatch). Fields that a format lacks have the NO_ constants."""

    @property
    def magic(self) -> int: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def size_in_bytes(self) -> int: ...
    @property
    def checksum(self) -> int: ...
    @property
    def is_valid(self) -> bool: ...
    @property
    def timestamp_type(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def compression_type(self) -> CompressionType: ...
    @property
    def is_compressed(self) -> bool: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def has_producer_id(self) -> bool: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...
    @property
    def last_sequence(self) -> int: ...
    @property
    def is_transactional(self) -> bool: ...
    @property
    def is_control_batch(self) -> bool: ...
    @property
    def delete_horizon_ms(self) -> int | None: ...
    @property
    def partition_leader_epoch(self) -> int: ...
    @property
    def count_or_none(self) -> int | None: ...
    @property
    def buffer(self) -> memoryview: ...
    def ensure_valid(self) -> None: ...
    def ensure_offsets_valid(self) -> None: ...
    def records(self, max_decompressed_bytes: int = ...) -> list[Record]: ...
    def first_record(self) -> Record | None: ...
    def __iter__(self) -> Iterator[Record]: ...
    def cursor(self, owner: CursorOwner, from_offset: int = 0, max_decompressed_bytes: int = ...) -> Cursor: ...


def increment_sequence(sequence: int, increment: int) -> int:
    """Add to a sequence number. 0 follows 2^31 - 1."""
    return sequence + increment & MAX_INT32


def decrement_sequence(sequence: int, decrement: int) -> int:
    return sequence - decrement & MAX_INT32


def _size_of_nullable(data: Buffer | None) -> int:
    return 1 if data is None else size_of_varint(len(data)) + len(data)


def size_of_headers(headers: Headers) -> int:
    """Return the encoded size of a record's headers with their count."""
    size = size_of_varint(len(headers))
    for name, value in headers:
        name_size = len(name) if name.isascii() else len(name.encode())
        size += size_of_varint(name_size) + name_size + _size_of_nullable(value)
    return size


def record_size(
    offset_delta: int, timestamp_delta: int, key: Buffer | None, value: Buffer | None, headers: Headers = ()
) -> int:
    """Return the encoded size of a record in format 2 with its length (Java: DefaultRecord.sizeInBytes)."""
    body = (
        1
        + size_of_varint(offset_delta)
        + size_of_varint(timestamp_delta)
        + _size_of_nullable(key)
        + _size_of_nullable(value)
        + size_of_headers(headers)
    )
    return size_of_varint(body) + body


def legacy_record_overhead(magic: int) -> int:
    return RECORD_OVERHEAD_V0 if magic == MAGIC_VALUE_V0 else RECORD_OVERHEAD_V1


def legacy_record_size(magic: int, key: Buffer | None, value: Buffer | None) -> int:
    """Return the size of a message in format 0 or 1, without offset and size field (Java: LegacyRecord.recordSize)."""
    return legacy_record_overhead(magic) + (0 if key is None else len(key)) + (0 if value is None else len(value))


def record_batch_overhead(magic: int, compression_type: CompressionType) -> int:
    """Return the bytes of a batch before its records: 61 in format 2, the wrapper's if old and compressed, else 0."""
    if magic >= MAGIC_VALUE_V2:
        return RECORD_BATCH_OVERHEAD
    if compression_type is not CompressionType.NONE:
        return LOG_OVERHEAD + legacy_record_overhead(magic)
    return 0


def estimate_size_in_bytes_upper_bound(
    magic: int,
    compression: HasCompressionType | CompressionType,
    key: Buffer | None,
    value: Buffer | None,
    headers: Headers = (),
) -> int:
    """Return an upper bound of the size in bytes of a batch with only this record, without compression."""
    if magic >= MAGIC_VALUE_V2:
        size = RECORD_BATCH_OVERHEAD + MAX_RECORD_OVERHEAD + _size_of_nullable(key) + _size_of_nullable(value)
        return size + (size_of_headers(headers) if headers else 1)
    compression_type = compression if isinstance(compression, CompressionType) else compression.type
    return (
        LOG_OVERHEAD
        + legacy_record_size(magic, key, value)
        + (legacy_record_overhead(magic) if compression_type is not CompressionType.NONE else 0)
    )
