"""A message in format 0 or 1 as a batch of itself, or of the messages it wraps (Java: AbstractLegacyRecordBatch)."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from pykclient.errors import CorruptRecordError
from pykclient.record.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, default_compression
from pykclient.record.compression_type import CompressionType
from pykclient.record.legacy_record import LegacyRecord, last_inner_offset, read_messages
from pykclient.record.record_batch import (
    LOG_OVERHEAD,
    MAGIC_VALUE_V1,
    MAX_INT64,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    CursorOwner,
    Record,
)
from pykclient.record.record_cursor import RecordIteratorCursor
from pykclient.types import LOG_APPEND_TIME

_OFFSET = Struct(">q")


class LegacyRecordBatch:
    """An outer message.

    ``buffer`` is exactly the message, with offset and size. Thread: any, as long as nothing writes to it.
    """

    __slots__ = ("_message", "buffer", "last_offset")

    def __init__(self, buffer: memoryview) -> None:
        """Decode the outer message.

        Raises:
            CorruptRecordError: the sizes do not fit.
        """
        self.buffer = buffer
        self.last_offset: int = _OFFSET.unpack_from(buffer)[0]
        self._message = LegacyRecord(self.last_offset, buffer[LOG_OVERHEAD:])

    @property
    def magic(self) -> int:
        return self._message.magic

    @property
    def size_in_bytes(self) -> int:
        return LOG_OVERHEAD + self._message.size_in_bytes

    @property
    def checksum(self) -> int:
        return self._message.checksum

    @property
    def timestamp_type(self) -> int:
        return self._message.timestamp_type

    @property
    def max_timestamp(self) -> int:
        return self._message.timestamp

    @property
    def compression_type(self) -> CompressionType:
        return self._message.compression_type

    @property
    def is_compressed(self) -> bool:
        return self.compression_type is not CompressionType.NONE

    @property
    def base_offset(self) -> int:
        """The first record's offset. To find it, a wrapper must be decompressed."""
        first = self.first_record() if self.is_compressed else None
        return self.last_offset if first is None else first.offset

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1

    @property
    def count_or_none(self) -> int | None:
        return None

    @property
    def producer_id(self) -> int:
        return NO_PRODUCER_ID

    @property
    def has_producer_id(self) -> bool:
        return False

    @property
    def producer_epoch(self) -> int:
        return NO_PRODUCER_EPOCH

    @property
    def base_sequence(self) -> int:
        return NO_SEQUENCE

    @property
    def last_sequence(self) -> int:
        return NO_SEQUENCE

    @property
    def is_transactional(self) -> bool:
        return False

    @property
    def is_control_batch(self) -> bool:
        return False

    @property
    def delete_horizon_ms(self) -> int | None:
        return None

    @property
    def partition_leader_epoch(self) -> int:
        return NO_PARTITION_LEADER_EPOCH

    @property
    def is_valid(self) -> bool:
        return self._message.is_valid

    def ensure_valid(self) -> None:
        """Check the CRC and the offset.

        Raises:
            CorruptRecordError: the stored CRC does not match the bytes, or the offset is invalid.
        """
        self._message.ensure_valid()
        self.ensure_offsets_valid()

    def ensure_offsets_valid(self) -> None:
        """Check the offset in the header, which the CRC does not cover.

        Raises:
            CorruptRecordError: it is negative, or there is no offset after it.
        """
        if not 0 <= self.last_offset < MAX_INT64:
            raise CorruptRecordError(f"a message cannot have offset {self.last_offset}")

    def records(self, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> list[Record]:
        """Decode the record, or the records inside it, with absolute offsets.

        Raises:
            CorruptRecordError: they cannot be decoded, or an inner CRC is wrong. The outer one is not checked: call
                ``ensure_valid`` first.
            UnsupportedCompressionTypeError: the codec's package is not installed.
        """
        return list(self.stream(max_decompressed_bytes))

    def stream(self, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
        """Yield the records one by one.

        Raises:
            CorruptRecordError, UnsupportedCompressionTypeError: as ``records``, when the bad record is reached.
        """
        outer = self._message
        if not self.is_compressed:
            yield Record(outer.offset, outer.timestamp, outer.key, outer.value)
            return
        if self.compression_type is CompressionType.ZSTD:
            raise CorruptRecordError(f"a message of format v{outer.magic} cannot be compressed with zstd")
        if outer.value is None:
            raise CorruptRecordError("a compressed message has no value")
        compression = default_compression(self.compression_type)
        data = compression.decompress(outer.value, outer.magic, max_decompressed_bytes)
        shift = self._shift_of_inner_offsets(last_inner_offset(data))
        log_append_time = outer.timestamp if outer.timestamp_type == LOG_APPEND_TIME else None
        for message in read_messages(data):
            if message.compression_type is not CompressionType.NONE:
                raise CorruptRecordError("a compressed message has a compressed message inside")
            message.ensure_valid()
            timestamp = message.timestamp
            if log_append_time is not None and message.magic == MAGIC_VALUE_V1:
                timestamp = log_append_time
            offset = message.offset + shift
            if offset >= MAX_INT64:
                raise CorruptRecordError(f"a compressed message has a message with offset {offset} inside")
            yield Record(offset, timestamp, message.key, message.value)

    def _shift_of_inner_offsets(self, last: int | None) -> int:
        """Return the amount to add to inner offsets.

        Format 0 wraps absolute offsets; format 1 relative ones, in a wrapper with the last one's absolute offset
        (KIP-31).
        """
        if last is None:
            raise CorruptRecordError("a compressed message has no messages inside")
        # Some versions of librdkafka send 0 in the wrapper; then only the inner offsets are known.
        if self.magic != MAGIC_VALUE_V1 or self.last_offset == 0:
            return 0
        if self.last_offset < last:
            raise CorruptRecordError(f"a wrapper at offset {self.last_offset} has a message {last} inside")
        return self.last_offset - last

    def __iter__(self) -> Iterator[Record]:
        return self.stream()

    def first_record(self) -> Record | None:
        """Return the first record.

        Raises:
            CorruptRecordError, UnsupportedCompressionTypeError: as ``records``.
        """
        return next(self.stream(), None)

    def cursor(
        self,
        owner: CursorOwner,
        from_offset: int = 0,
        max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    ) -> RecordIteratorCursor:
        """Return a cursor that reads the batch in steps, as ConsumerRecords, from ``from_offset`` on."""
        return RecordIteratorCursor(self.stream(max_decompressed_bytes), owner, from_offset, self.timestamp_type)

    def __repr__(self) -> str:
        return f"LegacyRecordBatch(magic={self.magic}, offset={self.last_offset}, size={self.size_in_bytes})"
