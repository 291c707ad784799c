"""Batches in format 2 (Java: DefaultRecordBatch).

A batch is a header of 61 bytes and the records, compressed together or not at all. The CRC-32C covers everything after
itself, so a broker can set the base offset and the leader epoch in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from pykclient.errors import CorruptRecordError, IllegalArgumentError
from pykclient.implementation import use_compiled
from pykclient.record.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, decompressed
from pykclient.record.compression_type import CompressionType
from pykclient.record.default_record import CommonFields, RecordCursor, bytes_remain, decode_records
from pykclient.record.record_batch import (
    CURRENT_MAGIC_VALUE,
    LOG_OVERHEAD,
    MAX_INT32,
    MAX_INT64,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    RECORD_BATCH_OVERHEAD,
    CursorOwner,
    Record,
    crc32c,
    increment_sequence,
)
from pykclient.types import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP_TYPE

#: base offset, length, leader epoch, magic, crc | attributes, last offset delta, base and max timestamp,
#: producer id, epoch, base sequence, count
_HEADER = Struct(">qiibIhiqqqhii")
_BEFORE_CRC = Struct(">qiibI")
_AFTER_CRC = Struct(">hiqqqhii")

_OFFSET_OF_CRC = 17
OFFSET_OF_ATTRIBUTES = 21
_OFFSET_OF_MAX_TIMESTAMP = 35

_STEP = 500

_COMPRESSION_MASK = 0x07
_TIMESTAMP_TYPE_FLAG = 0x08
_TRANSACTIONAL_FLAG = 0x10
_CONTROL_FLAG = 0x20
_DELETE_HORIZON_FLAG = 0x40


def compute_attributes(
    compression_type: CompressionType,
    timestamp_type: int,
    is_transactional: bool = False,
    is_control_batch: bool = False,
    has_delete_horizon: bool = False,
) -> int:
    """Return the attributes of a batch header.

    Raises:
        IllegalArgumentError: the timestamp type is not valid.
    """
    if timestamp_type == NO_TIMESTAMP_TYPE:
        raise IllegalArgumentError("a batch of format v2 needs a timestamp type")
    attributes = compression_type.id
    if timestamp_type == LOG_APPEND_TIME:
        attributes |= _TIMESTAMP_TYPE_FLAG
    if is_transactional:
        attributes |= _TRANSACTIONAL_FLAG
    if is_control_batch:
        attributes |= _CONTROL_FLAG
    if has_delete_horizon:
        attributes |= _DELETE_HORIZON_FLAG
    return attributes


def write_header(
    buffer: bytearray,
    size: int,
    *,
    base_offset: int,
    last_offset_delta: int,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    partition_leader_epoch: int,
    count: int,
) -> None:
    """Write the header of the batch in the first ``size`` bytes of ``buffer``."""
    _AFTER_CRC.pack_into(
        buffer,
        OFFSET_OF_ATTRIBUTES,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    checksum = crc32c(memoryview(buffer)[OFFSET_OF_ATTRIBUTES:size])
    _BEFORE_CRC.pack_into(
        buffer, 0, base_offset, size - LOG_OVERHEAD, partition_leader_epoch, CURRENT_MAGIC_VALUE, checksum
    )


def write_empty_header(
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    base_offset: int,
    last_offset: int,
    partition_leader_epoch: int,
    timestamp_type: int,
    timestamp: int,
    is_transactional: bool = False,
    is_control_batch: bool = False,
) -> bytearray:
    """Return a batch from which compaction has removed all records.

    It preserves the producer's last sequence number.
    """
    buffer = bytearray(RECORD_BATCH_OVERHEAD)
    write_header(
        buffer,
        RECORD_BATCH_OVERHEAD,
        base_offset=base_offset,
        last_offset_delta=last_offset - base_offset,
        attributes=compute_attributes(CompressionType.NONE, timestamp_type, is_transactional, is_control_batch),
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        partition_leader_epoch=partition_leader_epoch,
        count=0,
    )
    return buffer


class DefaultRecordBatch:
    """A batch in format 2, as a view of its bytes. It decodes the header once, and the records on request.

    ``buffer`` is exactly the batch. Timestamps are milliseconds since the epoch. Thread: any, as long as nothing writes
    to it.
    """

    __slots__ = (
        "_attributes",
        "_count",
        "_length",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "buffer",
        "checksum",
        "last_offset_delta",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
    )

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
        return LOG_APPEND_TIME if self._attributes & _TIMESTAMP_TYPE_FLAG else CREATE_TIME

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
        return self._attributes & _TRANSACTIONAL_FLAG != 0

    @property
    def is_control_batch(self) -> bool:
        return self._attributes & _CONTROL_FLAG != 0

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
        return self.base_timestamp if self._attributes & _DELETE_HORIZON_FLAG else None

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
        is_append_time = self._attributes & _TIMESTAMP_TYPE_FLAG
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
        return self.max_timestamp if self._attributes & _TIMESTAMP_TYPE_FLAG else None

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
        flag = _TIMESTAMP_TYPE_FLAG if timestamp_type == LOG_APPEND_TIME else 0
        self._attributes = self._attributes & ~_TIMESTAMP_TYPE_FLAG | flag
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


use_compiled(__name__)
