"""A segment of a log (Java: LogSegment, OffsetIndex, TimeIndex, TransactionIndex)."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator

from pykclient.record.memory_records import AnyRecordBatch, MemoryRecords
from pykclient.record.record_batch import MAX_INT32, NO_TIMESTAMP, Buffer
from pykclient.testing.log.file_records import FileRecords
from pykclient.testing.log.log_types import AbortedTxn, TimestampAndOffset


class LogSegment:
    """Batches from ``base_offset`` on, with their indexes.

    The indexes have an entry for every batch, so searches need no scan: last offsets and end positions for reading, the
    largest timestamp so far for searching by time. Times are milliseconds since the epoch. Thread: loop.
    """

    __slots__ = (
        "_ends",
        "_largest_timestamps",
        "_last_offsets",
        "_records",
        "base_offset",
        "created_ms",
        "first_batch_timestamp",
        "last_modified_ms",
        "txn_index",
    )

    def __init__(self, base_offset: int, now_ms: int) -> None:
        self.base_offset = base_offset
        self.created_ms = now_ms
        self.last_modified_ms = now_ms
        #: The largest timestamp of the first batch; rolling by time counts from it.
        self.first_batch_timestamp = NO_TIMESTAMP
        self.txn_index: list[AbortedTxn] = []
        self._records = FileRecords()
        self._last_offsets = array("q")
        self._ends = array("q")
        self._largest_timestamps = array("q")

    # --- writing -----------------------------------------------------------------------------------------------------

    def append(self, data: Buffer, last_offset: int, max_timestamp: int) -> None:
        """Append a copy of one batch. The caller ensures that offsets increase."""
        largest = self._largest_timestamps
        if not largest:
            self.first_batch_timestamp = max_timestamp
        elif largest[-1] > max_timestamp:
            max_timestamp = largest[-1]
        self._records.append(data)
        self._last_offsets.append(last_offset)
        self._ends.append(self._records.size)
        largest.append(max_timestamp)

    def truncate_to(self, offset: int) -> int:
        """Remove all batches that contain ``offset`` or a later one; return their size in bytes."""
        before = self._records.size
        count = bisect_left(self._last_offsets, offset)
        del self._last_offsets[count:]
        del self._ends[count:]
        del self._largest_timestamps[count:]
        self._records.truncate_to(self._ends[-1] if count else 0)
        if not count:
            self.first_batch_timestamp = NO_TIMESTAMP
        self.txn_index = [txn for txn in self.txn_index if txn.last_offset < offset]
        return before - self._records.size

    # --- what there is -----------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return self._records.size

    @property
    def next_offset(self) -> int:
        """The offset after the last batch."""
        return self._last_offsets[-1] + 1 if self._last_offsets else self.base_offset

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp, or -1 if there is none (Java: maxTimestampSoFar)."""
        return self._largest_timestamps[-1] if self._largest_timestamps else NO_TIMESTAMP

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp or, if records have no timestamps, the time of the last append."""
        return self.max_timestamp if self.max_timestamp >= 0 else self.last_modified_ms

    def should_roll(self, max_segment_bytes: int, max_segment_ms: int, batches: RollParams) -> bool:
        """Return whether ``batches`` must start a new segment.

        They must if this one is full or too old, or if its base offset is too far below.
        """
        size = self._records.size
        if size > max_segment_bytes - batches.size or batches.last_offset - self.base_offset > MAX_INT32:
            return True
        return size > 0 and self._time_waited_for_roll(batches) > max_segment_ms

    def _time_waited_for_roll(self, batches: RollParams) -> int:
        if self.first_batch_timestamp >= 0:
            return batches.max_timestamp - self.first_batch_timestamp
        return batches.now_ms - self.created_ms

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(self, start_offset: int, max_length: int, bound_offset: int, min_one_message: bool) -> SegmentRead | None:
        """Return batches from the one with ``start_offset`` on, up to ``max_length`` bytes, all below ``bound_offset``.

        With ``min_one_message`` the first batch is returned even if it is larger; otherwise only its first
        ``max_length`` bytes. Return None if all offsets in this segment are smaller.
        """
        last_offsets, ends = self._last_offsets, self._ends
        first = bisect_left(last_offsets, start_offset)
        if first == len(last_offsets):
            return None
        position = ends[first - 1] if first else 0
        bound = bisect_left(last_offsets, bound_offset, first)
        if first == bound:
            return SegmentRead([], 0, start_offset, False)
        first_size = ends[first] - position
        if first_size > max_length and not min_one_message:
            return SegmentRead(self._records.read(position, max_length), max_length, start_offset, True)
        # Up to the last batch that ends within the length.
        last = bisect_left(ends, position + max(max_length, first_size) + 1, first, bound) - 1
        size = ends[last] - position
        return SegmentRead(self._records.read(position, size), size, last_offsets[last] + 1, False)

    def batches(self, from_offset: int = 0, first: int | None = None) -> Iterator[AnyRecordBatch]:
        """Yield the batches with ``from_offset`` or later offsets, or the batches from index ``first`` on."""
        index = bisect_left(self._last_offsets, from_offset) if first is None else first
        position = self._ends[index - 1] if index else 0
        for end in self._ends[index:]:
            (view,) = self._records.read(position, end - position)
            position = end
            batch = MemoryRecords(view).first_batch()
            assert batch is not None
            yield batch

    def find_offset_by_timestamp(self, timestamp: int, starting_offset: int) -> TimestampAndOffset | None:
        """Return the first record from ``starting_offset`` on whose timestamp is ``timestamp`` or later."""
        first = max(bisect_left(self._largest_timestamps, timestamp), bisect_left(self._last_offsets, starting_offset))
        for batch in self.batches(first=first):
            if batch.max_timestamp >= timestamp:
                for record in batch:
                    if record.timestamp >= timestamp and record.offset >= starting_offset:
                        return TimestampAndOffset(record.timestamp, record.offset, _epoch_of(batch))
        return None

    def offset_of_max_timestamp(self) -> TimestampAndOffset | None:
        """Return the first record with the segment's largest timestamp."""
        largest = self.max_timestamp
        for batch in self.batches(first=bisect_left(self._largest_timestamps, largest)):
            if batch.max_timestamp == largest:
                for record in batch:
                    if record.timestamp == largest:
                        return TimestampAndOffset(largest, record.offset, _epoch_of(batch))
        return None

    def __repr__(self) -> str:
        return f"LogSegment({self.base_offset}..{self.next_offset}, {self.size} bytes)"


class RollParams:
    """The properties of batches to append that matter for rolling. Thread: loop."""

    __slots__ = ("last_offset", "max_timestamp", "now_ms", "size")

    def __init__(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> None:
        self.size = size
        self.last_offset = last_offset
        self.max_timestamp = max_timestamp
        self.now_ms = now_ms


class SegmentRead:
    """The result of reading one segment. Thread: loop."""

    __slots__ = ("first_entry_incomplete", "next_offset", "records", "size")

    def __init__(self, records: list[memoryview], size: int, next_offset: int, first_entry_incomplete: bool) -> None:
        self.records = records
        self.size = size
        self.next_offset = next_offset
        self.first_entry_incomplete = first_entry_incomplete


def _epoch_of(batch: AnyRecordBatch) -> int | None:
    return batch.partition_leader_epoch if batch.partition_leader_epoch >= 0 else None
