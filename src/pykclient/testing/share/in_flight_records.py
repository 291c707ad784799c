"""The batches of a share partition that are in flight (Java: SharePartition.cachedState)."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from operator import attrgetter

from pykclient.testing.share.in_flight_batch import InFlightBatch, InFlightState
from pykclient.testing.share.share_states import RecordState
from pykclient.testing.share.share_types import StateBatch

_first_offset = attrgetter("first_offset")

_NO_GAP = -1


class InFlightRecords:
    """The in-flight batches, and the offsets from which and up to which records are in flight.

    ``end_offset`` is the last offset in flight or, if there is none, the next one to read. After a share partition was
    loaded, offsets may be missing between its batches: records that were acquired but not acknowledged. They count as
    available, from ``gap_start_offset`` on, until the partition was read beyond the last loaded batch.

    Thread: loop.
    """

    __slots__ = ("_gap_end_offset", "_gap_start_offset", "batches", "end_offset", "start_offset")

    def __init__(self) -> None:
        self.batches: list[InFlightBatch] = []
        self.start_offset = 0
        self.end_offset = 0
        self._gap_start_offset = _NO_GAP
        self._gap_end_offset = _NO_GAP

    def load(self, start_offset: int, batches: list[StateBatch]) -> None:
        """Begin with the state that the share coordinator has."""
        self.start_offset = self.end_offset = start_offset
        next_offset = start_offset
        for first, last, state, delivery_count in batches:
            if self._gap_start_offset == _NO_GAP and first > next_offset:
                self._gap_start_offset = next_offset
            next_offset = last + 1
            self.add(InFlightBatch(first, last, InFlightState(RecordState(state), delivery_count)))
        if self.batches:
            self.end_offset = self._gap_end_offset = self.batches[-1].last_offset
            self.advance()

    # --- finding batches

    def floor(self, offset: int) -> InFlightBatch | None:
        """Return the last batch that begins at or before an offset."""
        index = bisect_right(self.batches, offset, key=_first_offset)
        return self.batches[index - 1] if index else None

    def between(self, first_offset: int, last_offset: int) -> list[InFlightBatch]:
        """Return the batches that begin in this range."""
        start = bisect_right(self.batches, first_offset - 1, key=_first_offset)
        return self.batches[start : bisect_right(self.batches, last_offset, key=_first_offset)]

    def overlapping(self, first_offset: int, last_offset: int) -> list[InFlightBatch]:
        """Return the batches with offsets in this range."""
        floor = self.floor(first_offset)
        if floor is not None and floor.last_offset >= first_offset:
            first_offset = floor.first_offset
        return self.between(first_offset, last_offset)

    def parts(self) -> Iterator[tuple[int, int, InFlightState]]:
        """Yield the first offset, the last offset and the state of all parts."""
        for batch in self.batches:
            yield from batch.parts()

    def add(self, batch: InFlightBatch) -> None:
        """Add a batch that overlaps with no other."""
        insort(self.batches, batch, key=_first_offset)

    # --- counting

    @property
    def count(self) -> int:
        """The number of offsets in flight."""
        return self.end_offset - self.start_offset + 1 if self.batches else 0

    @property
    def delivery_complete_count(self) -> int:
        """The number of offsets in flight that will not be delivered again."""
        start = self.start_offset
        return sum(
            last - max(first, start) + 1 for first, last, state in self.parts() if last >= start and state.is_completing
        )

    # --- gaps

    @property
    def has_gaps(self) -> bool:
        """True if missing offsets between batches are available."""
        return self._gap_start_offset != _NO_GAP and self._gap_end_offset == self.end_offset

    def read_up_to(self, next_offset: int) -> None:
        """Note that records before ``next_offset`` were acquired as far as they were available."""
        if self._gap_start_offset != _NO_GAP:
            if self._gap_end_offset == self.end_offset and next_offset <= self._gap_end_offset:
                self._gap_start_offset = next_offset
            else:
                self._gap_start_offset = _NO_GAP

    # --- the range

    def next_fetch_offset(self) -> int:
        """Return the first available offset, or the one after all that are in flight."""
        if not self.batches or self.start_offset > self.batches[-1].last_offset:
            return self.end_offset
        gap_start = self._gap_start_offset if self.has_gaps else None
        for batch in self.batches:
            if gap_start is not None:
                if batch.first_offset > gap_start:
                    return gap_start
                gap_start = max(batch.last_offset + 1, gap_start)
            for first, _, state in batch.parts():
                if state.is_available:
                    return first
        return self.end_offset + 1

    def archive(self, first_offset: int, last_offset: int, state: RecordState) -> bool:
        """Archive the records of a range that are in ``state``; return whether there were any."""
        archived = False
        for batch in self.overlapping(first_offset, last_offset):
            if batch.state is not None and not batch.is_within(first_offset, last_offset):
                if batch.state.state is not state or batch.state.pending is not None:
                    continue
                batch.split()
            for first, last, part in batch.parts():
                if first >= first_offset and last <= last_offset and part.state is state and part.pending is None:
                    part.archive()
                    archived = True
        return archived

    def move_start(self, log_start_offset: int) -> None:
        """Skip the records before the start of the log, which were deleted. Acquired ones are archived later."""
        if log_start_offset <= self.start_offset:
            return
        self.start_offset = log_start_offset
        self.end_offset = max(self.end_offset, log_start_offset)
        if not self.batches:
            self.end_offset = log_start_offset
        self.archive_deleted()

    def archive_deleted(self) -> None:
        """Archive available records before the start, which nobody can read any more."""
        if self.batches and self.batches[0].first_offset < self.start_offset:
            self.archive(self.batches[0].first_offset, self.start_offset - 1, RecordState.AVAILABLE)

    def advance(self) -> bool:
        """Remove the first batches if their delivery is complete; return whether the start has moved."""
        self.archive_deleted()
        complete = self._last_complete_offset()
        if complete is None:
            return False
        if complete == self.batches[-1].last_offset:
            self.start_offset = self.end_offset = complete + 1
            self.batches.clear()
            return True
        index = bisect_right(self.batches, complete, key=_first_offset) - 1
        if complete == self.batches[index].last_offset:
            self.start_offset = max(self.start_offset, self.batches[index + 1].first_offset)
            if self.has_gaps:
                self.start_offset = min(self.start_offset, self._gap_start_offset)
            index += 1
        else:
            self.start_offset = max(self.start_offset, complete + 1)
        del self.batches[:index]
        return True

    def _last_complete_offset(self) -> int | None:
        """Return the last offset up to which delivery is complete, None if it is not at the first one."""
        complete = None
        for batch in self.batches:
            if self.has_gaps and batch.last_offset >= self._gap_start_offset:
                break
            for _, last, state in batch.parts():
                if not state.is_complete:
                    return complete
                complete = last
        return complete
