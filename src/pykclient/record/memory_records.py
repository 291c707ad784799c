"""Reading batches of format 2, and batches of any format one after the other (Java: DefaultRecordBatch, MemoryRecords).

A batch of format 2 is a header of 61 bytes and the records, compressed together or not at all. The CRC-32C covers
everything after itself, so a broker can set the base offset and the leader epoch in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import ClassVar

from pykclient.errors import CorruptRecordError, IllegalArgumentError
from pykclient.record.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, CompressionType, decompressed
from pykclient.record.default_record import CommonFields, RecordCursor, bytes_remain, decode_records
from pykclient.record.legacy_record_batch import LegacyRecordBatch
from pykclient.record.record_batch import (
    CURRENT_MAGIC_VALUE,
    HEADER_SIZE_UP_TO_MAGIC,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MAX_INT32,
    MAX_INT64,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    RECORD_BATCH_OVERHEAD,
    RECORD_OVERHEAD_V0,
    Buffer,
    CursorOwner,
    Record,
    crc32c,
    increment_sequence,
)
from pykclient.types import CREATE_TIME, LOG_APPEND_TIME

#: base offset, length, leader epoch, magic, crc | attributes, last offset delta, base and max timestamp,
#: producer id, epoch, base sequence, count
_HEADER = Struct(">qiibIhiqqqhii")

_OFFSET_OF_CRC = 17
OFFSET_OF_ATTRIBUTES = 21
_OFFSET_OF_MAX_TIMESTAMP = 35

_STEP = 500

_COMPRESSION_MASK = 0x07
TIMESTAMP_TYPE_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40


class DefaultRecordBatch:
    """A batch in format 2, as a view of its bytes. It decodes the header once, and the records on request.

    ``buffer`` is exactly the batch. Timestamps are milliseconds since the epoch. Thread: any, as long as nothing writes
    to it.
    """

    base_offset: int
    partition_leader_epoch: int
    magic: int
    checksum: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    _length: int
    _attributes: int
    _count: int

    def __init__(self, buffer: memoryview) -> None:
        """Decode the header.

        Raises:
            CorruptRecordError: the bytes are too few for a header.
        """
        if len(buffer) < RECORD_BATCH_OVERHEAD:
            raise CorruptRecordError(
                f"a batch of {len(buffer)} bytes is smaller than its header of {RECORD_BATCH_OVERHEAD}"
            )
        self.buffer = buffer
        (
            self.base_offset,
            self._length,
            self.partition_leader_epoch,
            self.magic,
            self.checksum,
            self._attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self._count,
        ) = _HEADER.unpack_from(buffer)

    @property
    def size_in_bytes(self) -> int:
        return LOG_OVERHEAD + self._length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the batch. After compaction it may be more than the last record's plus one."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def count_or_none(self) -> int | None:
        return self._count

    @property
    def timestamp_type(self) -> int:
        return LOG_APPEND_TIME if self._attributes & TIMESTAMP_TYPE_FLAG else CREATE_TIME

    @property
    def compression_type(self) -> CompressionType:
        """The codec of the batch.

        Raises:
            CorruptRecordError: no version of Kafka defines its id.
        """
        return CompressionType.for_id(self._attributes & _COMPRESSION_MASK)

    @property
    def is_compressed(self) -> bool:
        return self._attributes & _COMPRESSION_MASK != 0

    @property
    def is_transactional(self) -> bool:
        return self._attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control_batch(self) -> bool:
        return self._attributes & CONTROL_FLAG != 0

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time when a compacted batch's tombstones may be removed (KIP-534); stored as the base timestamp."""
        return self.base_timestamp if self._attributes & DELETE_HORIZON_FLAG else None

    @property
    def is_valid(self) -> bool:
        return self.checksum == crc32c(self.buffer[OFFSET_OF_ATTRIBUTES:])

    def ensure_valid(self) -> None:
        """Check the CRC and the offsets.

        Raises:
            CorruptRecordError: the stored CRC does not match the bytes, or the offsets are invalid.
        """
        computed = crc32c(self.buffer[OFFSET_OF_ATTRIBUTES:])
        if computed != self.checksum:
            raise CorruptRecordError(
                f"the batch at offset {self.base_offset} has CRC {self.checksum:#010x} but its bytes {computed:#010x}"
            )
        if not 0 <= self.base_offset < MAX_INT64 - MAX_INT32 or self.last_offset_delta < 0:
            self.ensure_offsets_valid()

    def ensure_offsets_valid(self) -> None:
        """Check the offsets in the header. The CRC does not cover the base offset.

        Raises:
            CorruptRecordError: they are negative, or so close to 2^63 that the next fetch request could not have the
                offset after them.
        """
        if not 0 <= self.base_offset < MAX_INT64 - MAX_INT32 or self.last_offset_delta < 0:
            raise CorruptRecordError(f"a batch cannot have offsets {self.base_offset} to {self.last_offset}")

    def record_data(self, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> bytes:
        """Return the bytes of the records, decompressed.

        Raises:
            CorruptRecordError: they cannot be decompressed, or are more than ``max_decompressed_bytes``.
            UnsupportedCompressionTypeError: the codec's package is not installed.
        """
        data = self.buffer[RECORD_BATCH_OVERHEAD:]
        return decompressed(self._attributes & _COMPRESSION_MASK, data, max_decompressed_bytes)

    def record_view(self, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> bytes | memoryview:
        """Return the bytes of the records, without copying them if they are not compressed.

        Raises as ``record_data``.
        """
        if self._attributes & _COMPRESSION_MASK:
            return self.record_data(max_decompressed_bytes)
        return self.buffer[RECORD_BATCH_OVERHEAD:]

    @property
    def count(self) -> int:
        """The number of records.

        Raises:
            CorruptRecordError: it is negative.
        """
        if self._count < 0:
            raise CorruptRecordError(f"a batch cannot have {self._count} records")
        return self._count

    @property
    def common_fields(self) -> CommonFields:
        """The parts of the header that the records share."""
        epoch = self.partition_leader_epoch
        is_append_time = self._attributes & TIMESTAMP_TYPE_FLAG
        return (
            self.base_offset,
            self.base_timestamp,
            self.max_timestamp if is_append_time else None,
            LOG_APPEND_TIME if is_append_time else CREATE_TIME,
            None if epoch == NO_PARTITION_LEADER_EPOCH else epoch,
        )

    @property
    def log_append_time(self) -> int | None:
        """The timestamp that replaces every record's, or None."""
        return self.max_timestamp if self._attributes & TIMESTAMP_TYPE_FLAG else None

    def records(self, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> list[Record]:
        """Decode all records, including control records. This does not check the CRC; call ``ensure_valid`` first.

        Raises:
            CorruptRecordError: they cannot be decoded.
            UnsupportedCompressionTypeError: the codec's package is not installed.
        """
        return list(self.stream(max_decompressed_bytes, self.count))

    def stream(
        self, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES, step: int = _STEP
    ) -> Iterator[Record]:
        """Yield the records, decoding ``step`` of them at a time.

        This needs memory for the bytes, but not for all records, of which a byte of compressed data can contain
        thousands.

        Raises:
            CorruptRecordError, UnsupportedCompressionTypeError: as ``records``, when the bad record is reached.
        """
        remaining = self.count
        if not remaining:
            return
        data = self.record_data(max_decompressed_bytes)
        log_append_time = self.log_append_time
        pos = 0
        while remaining:
            records, pos = decode_records(data, pos, min(step, remaining), self.base_offset, self.base_timestamp)
            remaining -= len(records)
            if not remaining and pos != len(data):
                raise bytes_remain(len(data) - pos, self._count)
            if log_append_time is None:
                yield from records
            else:
                yield from (record._replace(timestamp=log_append_time) for record in records)

    def __iter__(self) -> Iterator[Record]:
        return self.stream()

    def first_record(self) -> Record | None:
        """Return the first record without decoding the others, which is all that a control batch has.

        Raises:
            CorruptRecordError, UnsupportedCompressionTypeError: as ``records``.
        """
        return next(self.stream(step=1), None)

    def cursor(
        self,
        owner: CursorOwner,
        from_offset: int = 0,
        max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    ) -> RecordCursor:
        """Return a cursor that reads the batch in steps, as ConsumerRecords, from ``from_offset`` on.

        Not for control batches.
        """
        return RecordCursor(self, owner, from_offset, max_decompressed_bytes)

    def set_last_offset(self, offset: int) -> None:
        """Set the offsets of the batch so that it ends at ``offset``. For brokers; the bytes must be writable."""
        self.base_offset = offset - self.last_offset_delta
        self.buffer[:8] = self.base_offset.to_bytes(8, "big", signed=True)

    def set_partition_leader_epoch(self, epoch: int) -> None:
        """Set the leader epoch. For brokers; the bytes must be writable."""
        self.partition_leader_epoch = epoch
        self.buffer[12:16] = epoch.to_bytes(4, "big", signed=True)

    def set_max_timestamp(self, timestamp_type: int, max_timestamp: int) -> None:
        """Set the timestamp of all records (with LOG_APPEND_TIME). For brokers; the bytes must be writable."""
        if timestamp_type == self.timestamp_type and max_timestamp == self.max_timestamp:
            return
        flag = TIMESTAMP_TYPE_FLAG if timestamp_type == LOG_APPEND_TIME else 0
        self._attributes = self._attributes & ~TIMESTAMP_TYPE_FLAG | flag
        self.max_timestamp = max_timestamp
        self.buffer[OFFSET_OF_ATTRIBUTES : OFFSET_OF_ATTRIBUTES + 2] = self._attributes.to_bytes(2, "big", signed=True)
        self.buffer[_OFFSET_OF_MAX_TIMESTAMP : _OFFSET_OF_MAX_TIMESTAMP + 8] = max_timestamp.to_bytes(
            8, "big", signed=True
        )
        self.checksum = crc32c(self.buffer[OFFSET_OF_ATTRIBUTES:])
        self.buffer[_OFFSET_OF_CRC : _OFFSET_OF_CRC + 4] = self.checksum.to_bytes(4, "big")

    def __repr__(self) -> str:
        return (
            f"DefaultRecordBatch(magic={self.magic}, offsets={self.base_offset}..{self.last_offset}, "
            f"count={self._count}, sequence={self.base_sequence}..{self.last_sequence}, "
            f"producer={self.producer_id}/{self.producer_epoch}, leader_epoch={self.partition_leader_epoch}, "
            f"transactional={self.is_transactional}, control={self.is_control_batch}, "
            f"compression={self._attributes & _COMPRESSION_MASK}, size={self.size_in_bytes})"
        )


_SIZE = Struct(">i")
_OFFSET_OF_SIZE = 8

AnyRecordBatch = DefaultRecordBatch | LegacyRecordBatch


class MemoryRecords:
    """A sequence of batches. ``buffer`` is a view of their bytes, which are not copied.

    Thread: any, as long as nothing writes to it.
    """

    __slots__ = ("buffer",)

    EMPTY: ClassVar[MemoryRecords]

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = memoryview(buffer)

    @property
    def size_in_bytes(self) -> int:
        return len(self.buffer)

    def __len__(self) -> int:
        return len(self.buffer)

    def batches(self, max_batch_size: int = MAX_INT32) -> Iterator[AnyRecordBatch]:
        """Yield the batches in order, as views.

        The last one is omitted if it is cut off, as brokers do in full responses.

        Raises:
            CorruptRecordError: a size is below the minimum or over ``max_batch_size``, or a format is unknown.
        """
        position = 0
        while (batch := self.batch_at(position, max_batch_size)) is not None:
            position += len(batch.buffer)
            yield batch

    def batch_at(self, position: int, max_batch_size: int = MAX_INT32) -> AnyRecordBatch | None:
        """Return the batch that begins at ``position``; None at the end, or if it is cut off.

        Raises:
            CorruptRecordError: as ``batches``.
        """
        buffer = self.buffer
        remaining = len(buffer) - position
        if remaining >= RECORD_BATCH_OVERHEAD and buffer[position + MAGIC_OFFSET] == CURRENT_MAGIC_VALUE:
            # As below for nearly all batches, without the call.
            whole: int = _SIZE.unpack_from(buffer, position + _OFFSET_OF_SIZE)[0] + LOG_OVERHEAD
            if RECORD_BATCH_OVERHEAD <= whole <= remaining and whole - LOG_OVERHEAD <= max_batch_size:
                return DefaultRecordBatch(buffer[position : position + whole])
        size = self.batch_size_at(position, max_batch_size)
        if size is None or size > remaining:
            return None
        batch = buffer[position : position + size]
        return (DefaultRecordBatch if batch[MAGIC_OFFSET] >= CURRENT_MAGIC_VALUE else LegacyRecordBatch)(batch)

    def batch_size_at(self, position: int, max_batch_size: int = MAX_INT32) -> int | None:
        """Return the declared size of the batch at ``position``; None if its header is cut off.

        The size includes the offset and size fields.

        Raises:
            CorruptRecordError: as ``batches``.
        """
        buffer = self.buffer
        remaining = len(buffer) - position
        if remaining < LOG_OVERHEAD:
            return None
        size: int = _SIZE.unpack_from(buffer, position + _OFFSET_OF_SIZE)[0]
        if size < RECORD_OVERHEAD_V0:
            raise CorruptRecordError(f"a batch of {size} bytes is smaller than the smallest, {RECORD_OVERHEAD_V0}")
        if size > max_batch_size:
            raise CorruptRecordError(f"a batch of {size} bytes is larger than the largest allowed, {max_batch_size}")
        if remaining < HEADER_SIZE_UP_TO_MAGIC:
            return None
        magic = buffer[position + MAGIC_OFFSET]
        if magic > CURRENT_MAGIC_VALUE:
            raise CorruptRecordError(f"a batch of unknown format {magic}")
        return size + LOG_OVERHEAD

    @property
    def valid_bytes(self) -> int:
        """The total size of the complete batches."""
        return sum(batch.size_in_bytes for batch in self.batches())

    def first_batch(self) -> AnyRecordBatch | None:
        return next(self.batches(), None)

    def records(self, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
        """Yield the records of all batches."""
        for batch in self.batches():
            yield from batch.stream(max_decompressed_bytes)

    def slice(self, position: int, size: int) -> MemoryRecords:
        """Return a view of at most ``size`` bytes from ``position`` on.

        Raises:
            IllegalArgumentError: a number is negative, or the position is beyond the end.
        """
        if position < 0 or size < 0 or position > len(self.buffer):
            raise IllegalArgumentError(f"no {size} bytes at {position} in records of {len(self.buffer)} bytes")
        return MemoryRecords(self.buffer[position : position + size])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemoryRecords) and self.buffer == other.buffer

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"MemoryRecords({len(self.buffer)} bytes)"


MemoryRecords.EMPTY = MemoryRecords(b"")
