"""A sequence of batches in memory, in any mixture of formats (Java: MemoryRecords and ByteBufferLogInputStream)."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import ClassVar

from pykclient.errors import CorruptRecordError, IllegalArgumentError
from pykclient.record.compression import DEFAULT_MAX_DECOMPRESSED_BYTES
from pykclient.record.default_record_batch import DefaultRecordBatch
from pykclient.record.legacy_record_batch import LegacyRecordBatch
from pykclient.record.record_batch import (
    CURRENT_MAGIC_VALUE,
    HEADER_SIZE_UP_TO_MAGIC,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MAX_INT32,
    RECORD_BATCH_OVERHEAD,
    RECORD_OVERHEAD_V0,
    Buffer,
    Record,
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
