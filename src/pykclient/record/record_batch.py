"""What all formats of batches share: constants, the record tuple, the batch interface, size estimates.

Java: RecordBatch, Record, Records and AbstractRecords.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from pykclient.record.compression import Compression
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

#: Offset and size stand before every batch and every old message.
LOG_OVERHEAD = 12
#: The magic byte is at the same place in all formats.
MAGIC_OFFSET = 16
HEADER_SIZE_UP_TO_MAGIC = 17

RECORD_BATCH_OVERHEAD = 61
RECORD_OVERHEAD_V0 = 14
RECORD_OVERHEAD_V1 = 22

#: Length, attributes, timestamp delta and offset delta of a v2 record at their largest.
MAX_RECORD_OVERHEAD = 21

MAX_INT32 = (1 << 31) - 1
MAX_INT64 = (1 << 63) - 1

Buffer = bytes | bytearray | memoryview


class Record(NamedTuple):
    """One record of a batch as it lies in the log: absolute offset, timestamp in ms, bytes or None."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


#: Called as ``deserializer(topic, headers, data)`` for data that is not None.
Deserializer = Callable[[str, Headers, bytes], Any]


class CursorOwner(NamedTuple):
    """What a cursor puts into each ConsumerRecord, and how it makes keys and values. A deserializer of None: bytes."""

    topic: str
    partition: int
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None


class Cursor(Protocol):
    """A place in a batch that is read in steps; see ``RecordCursor``."""

    next_offset: int
    bytes_read: int
    records_read: int
    exhausted: bool

    def next_records(self, max_records: int) -> list[Any]: ...


class RecordBatch(Protocol):
    """A batch of any format, read (Java: RecordBatch). Fields that a format lacks hold the NO_ constants."""

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
    def records(self, max_decompressed_bytes: int = ...) -> list[Record]: ...
    def first_record(self) -> Record | None: ...
    def __iter__(self) -> Iterator[Record]: ...
    def cursor(self, owner: CursorOwner, from_offset: int = 0, max_decompressed_bytes: int = ...) -> Cursor: ...


def increment_sequence(sequence: int, increment: int) -> int:
    """Sequence numbers go on from 0 after 2^31 - 1."""
    return sequence + increment & MAX_INT32


def decrement_sequence(sequence: int, decrement: int) -> int:
    return sequence - decrement & MAX_INT32


def _size_of_nullable(data: Buffer | None) -> int:
    return 1 if data is None else size_of_varint(len(data)) + len(data)


def size_of_headers(headers: Headers) -> int:
    """The bytes of a record's headers with their count."""
    size = size_of_varint(len(headers))
    for name, value in headers:
        name_size = len(name) if name.isascii() else len(name.encode())
        size += size_of_varint(name_size) + name_size + _size_of_nullable(value)
    return size


def record_size(
    offset_delta: int, timestamp_delta: int, key: Buffer | None, value: Buffer | None, headers: Headers = ()
) -> int:
    """The bytes of a v2 record with its length (Java: DefaultRecord.sizeInBytes)."""
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
    """The bytes of a v0 or v1 message without offset and size (Java: LegacyRecord.recordSize)."""
    return legacy_record_overhead(magic) + (0 if key is None else len(key)) + (0 if value is None else len(value))


def record_batch_overhead(magic: int, compression_type: CompressionType) -> int:
    """Bytes of a batch before its records: 61 in v2, the wrapper message's for compressed old ones, else 0."""
    if magic >= MAGIC_VALUE_V2:
        return RECORD_BATCH_OVERHEAD
    if compression_type is not CompressionType.NONE:
        return LOG_OVERHEAD + legacy_record_overhead(magic)
    return 0


def estimate_size_in_bytes_upper_bound(
    magic: int,
    compression: Compression | CompressionType,
    key: Buffer | None,
    value: Buffer | None,
    headers: Headers = (),
) -> int:
    """An upper bound in bytes for a batch of this one record, compression left out of account."""
    if magic >= MAGIC_VALUE_V2:
        size = RECORD_BATCH_OVERHEAD + MAX_RECORD_OVERHEAD + _size_of_nullable(key) + _size_of_nullable(value)
        return size + (size_of_headers(headers) if headers else 1)
    compression_type = compression if isinstance(compression, CompressionType) else compression.type
    return (
        LOG_OVERHEAD
        + legacy_record_size(magic, key, value)
        + (legacy_record_overhead(magic) if compression_type is not CompressionType.NONE else 0)
    )
