"""A run of batches in memory, of any mixture of formats (Java: MemoryRecords and ByteBufferLogInputStream)."""

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
    RECORD_OVERHEAD_V0,
    Buffer,
    Record,
)

_SIZE = Struct(">i")
_OFFSET_OF_SIZE = 8

AnyRecordBatch = DefaultRecordBatch | LegacyRecordBatch


class MemoryRecords:
    """Batches one after the other. ``buffer`` is a view of their bytes, which are not copied.

    Thread: any, as long as nobody writes.
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
        """The batches in order, as views. A broker cuts the last one off where its answer is full: it is the end.

        Raises:
            CorruptRecordError: a size below the smallest possible or over ``max_batch_size``, or an unknown format.
        """
        position = 0
        while (batch := self.batch_at(position, max_batch_size)) is not None:
            position += len(batch.buffer)
            yield batch

    def batch_at(self, position: int, max_batch_size: int = MAX_INT32) -> AnyRecordBatch | None:
        """The batch that begins at ``position``; None at the end, or where it is cut off.

        Raises:
            CorruptRecordError: as ``batches``.
        """
        size = self._batch_size_at(position, max_batch_size)
        if size is None or size > len(self.buffer) - position:
            return None
        batch = self.buffer[position : position + size]
        return (DefaultRecordBatch if batch[MAGIC_OFFSET] >= CURRENT_MAGIC_VALUE else LegacyRecordBatch)(batch)

    def _batch_size_at(self, position: int, max_batch_size: int) -> int | None:
        """The size that the batch at ``position`` declares, with its offset and size fields; None when cut off."""
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

    def first_batch_size(self) -> int | None:
        """The size in bytes that the first batch declares, even if it is cut off; None without enough of a header.

        Raises:
            CorruptRecordError: as ``batches``.
        """
        return self._batch_size_at(0, MAX_INT32) if len(self.buffer) >= HEADER_SIZE_UP_TO_MAGIC else None

    @property
    def valid_bytes(self) -> int:
        """The bytes of the complete batches."""
        return sum(batch.size_in_bytes for batch in self.batches())

    def first_batch(self) -> AnyRecordBatch | None:
        return next(self.batches(), None)

    def last_batch(self) -> AnyRecordBatch | None:
        last = None
        for last in self.batches():  # noqa: B007
            pass
        return last

    def has_matching_magic(self, magic: int) -> bool:
        return all(batch.magic == magic for batch in self.batches())

    def records(self, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
        """The records of all batches."""
        for batch in self.batches():
            yield from batch.stream(max_decompressed_bytes)

    def slice(self, position: int, size: int) -> MemoryRecords:
        """A view of at most ``size`` bytes from ``position`` on.

        Raises:
            IllegalArgumentError: a negative number, or a position after the end.
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
