"""The segments of a log (Java: LocalLog, LogSegments)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from pykclient.clock import Clock
from pykclient.errors import IllegalStateError, OffsetOutOfRangeError
from pykclient.record.memory_records import AnyRecordBatch
from pykclient.testing.log.broker_disk import PartitionDirectory
from pykclient.testing.log.log_segment import LogSegment
from pykclient.testing.log.log_types import AbortedTxn, FetchDataInfo


class LocalLog:
    """A sequence of segments, at least one. Appends go to the last, the active segment. Thread: loop."""

    __slots__ = ("_base_offsets", "_clock", "_directory", "log_end_offset", "segments", "size")

    def __init__(self, directory: PartitionDirectory, clock: Clock, log_start_offset: int) -> None:
        self._directory = directory
        self._clock = clock
        #: By base offset. The disk owns the list.
        self.segments = directory.segments
        if not self.segments:
            self.segments.append(LogSegment(log_start_offset, clock.wall_ms()))
        self._base_offsets = [segment.base_offset for segment in self.segments]
        self.log_end_offset = self.segments[-1].next_offset
        self.size = directory.size
        if self.log_end_offset < log_start_offset:
            # Records were deleted up to an offset that a truncation has since removed.
            self.truncate_fully_and_start_at(log_start_offset)

    @property
    def active_segment(self) -> LogSegment:
        return self.segments[-1]

    # --- writing -----------------------------------------------------------------------------------------------------

    def append(self, batches: Iterable[AnyRecordBatch], size: int, *, within_limit: bool = True) -> None:
        """Append copies of batches of ``size`` bytes in total. Their offsets must be beyond the end.

        ``within_limit`` says whether the cluster's memory limit applies.

        Raises:
            KafkaStorageError, PolicyViolationError: there is no room; nothing was appended.
        """
        self._directory.acquire(size, within_limit=within_limit)
        segment = self.segments[-1]
        segment.last_modified_ms = self._clock.wall_ms()
        for batch in batches:
            last_offset = batch.last_offset
            segment.append(batch.buffer, last_offset, batch.max_timestamp)
            self.log_end_offset = last_offset + 1
        self.size += size

    def roll(self, expected_next_offset: int = 0) -> LogSegment:
        """Start a new segment at the log's end, or at ``expected_next_offset`` if that is later.

        Raises:
            IllegalStateError: the active segment begins there or later, and is not empty.
        """
        base_offset = max(expected_next_offset, self.log_end_offset)
        active = self.segments[-1]
        if active.base_offset >= base_offset:
            if active.size or active.base_offset > base_offset:
                raise IllegalStateError(f"no segment can begin at {base_offset} in or before {active}")
            self.segments.pop()
            self._base_offsets.pop()
        segment = LogSegment(base_offset, self._clock.wall_ms())
        self.segments.append(segment)
        self._base_offsets.append(base_offset)
        self.log_end_offset = base_offset
        return segment

    def truncate_to(self, offset: int) -> list[LogSegment]:
        """Remove all records from ``offset`` on; return the segments that were removed entirely.

        ``offset`` must not be before the first segment.
        """
        keep = max(1, bisect_right(self._base_offsets, offset))
        gone = self.segments[keep:]
        self._remove(keep, len(self.segments))
        self._release(self.segments[-1].truncate_to(offset))
        self.log_end_offset = offset
        return gone

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all records; the next one gets ``offset``."""
        self._remove(0, len(self.segments))
        self.segments.append(LogSegment(offset, self._clock.wall_ms()))
        self._base_offsets.append(offset)
        self.log_end_offset = offset

    def remove_first_segments(self, count: int) -> None:
        """Remove the ``count`` oldest segments. At least one must remain."""
        self._remove(0, count)

    def replace_segments(self, first: int, count: int, replacement: Sequence[LogSegment]) -> None:
        """Replace ``count`` segments from index ``first`` on with compacted ones."""
        grown = sum(segment.size for segment in replacement)
        grown -= sum(segment.size for segment in self.segments[first : first + count])
        if grown > 0:
            self._directory.acquire(grown, within_limit=False)
        else:
            self._directory.release(-grown)
        self.size += grown
        self.segments[first : first + count] = replacement
        self._base_offsets[first : first + count] = [segment.base_offset for segment in replacement]

    def _remove(self, start: int, stop: int) -> None:
        self._release(sum(segment.size for segment in self.segments[start:stop]))
        del self.segments[start:stop]
        del self._base_offsets[start:stop]

    def _release(self, size: int) -> None:
        self._directory.release(size)
        self.size -= size

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(
        self, start_offset: int, max_length: int, min_one_message: bool, bound_offset: int, with_aborted: bool
    ) -> FetchDataInfo:
        """Return whole batches of one segment from ``start_offset`` on, all below ``bound_offset``.

        Raises:
            OffsetOutOfRangeError: ``start_offset`` is beyond the end, or before the first segment.
            KafkaStorageError: the disk is offline.
        """
        self._directory.check_readable()
        index = bisect_right(self._base_offsets, start_offset) - 1
        if start_offset > self.log_end_offset or index < 0:
            raise OffsetOutOfRangeError(
                f"offset {start_offset} of {self._directory.topic_partition} is not in the log, which has "
                f"{self._base_offsets[0]} to {self.log_end_offset}"
            )
        if start_offset < bound_offset:
            for segment in self.segments[index:]:
                found = segment.read(start_offset, max_length, bound_offset, min_one_message)
                if found is None:
                    # Compaction has removed the rest of this segment.
                    continue
                aborted = None
                if with_aborted:
                    aborted = self.collect_aborted_txns(start_offset, max(found.next_offset, start_offset))
                return FetchDataInfo(
                    start_offset,
                    found.records,
                    found.size,
                    next_offset=found.next_offset,
                    first_entry_incomplete=found.first_entry_incomplete,
                    aborted_transactions=aborted,
                )
        return FetchDataInfo(start_offset, aborted_transactions=[] if with_aborted else None)

    def collect_aborted_txns(self, fetch_offset: int, bound_offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions with records from ``fetch_offset`` on, below ``bound_offset``."""
        found: list[AbortedTxn] = []
        start = max(0, bisect_right(self._base_offsets, fetch_offset) - 1)
        for segment in self.segments[start:]:
            for txn in segment.txn_index:
                if txn.last_offset >= fetch_offset and txn.first_offset < bound_offset:
                    found.append(txn)
                if txn.last_stable_offset >= bound_offset:
                    return found
        return found

    def batches(self, from_offset: int, to_offset: int) -> Iterator[AnyRecordBatch]:
        """Yield the batches with offsets from ``from_offset`` on, below ``to_offset``."""
        start = max(0, bisect_right(self._base_offsets, from_offset) - 1)
        for segment in self.segments[start:]:
            for batch in segment.batches(from_offset):
                if batch.base_offset >= to_offset:
                    return
                yield batch
