"""A segment of a log with its indexes, its leader epochs, and the limit on memory.

Java: LogSegment, FileRecords, OffsetIndex, TimeIndex, TransactionIndex, LeaderEpochFileCache; KIP-101.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import Final, NamedTuple

from pykclient.errors import IllegalArgumentError, PolicyViolationError
from pykclient.record.memory_records import AnyRecordBatch, MemoryRecords
from pykclient.record.record_batch import NO_TIMESTAMP, Buffer
from pykclient.testing.log.log_types import AbortedTxn, FetchDataInfo, OffsetAndEpoch, TimestampAndOffset


class MemoryBudget:
    """The bytes of all replicas on all brokers, compared with ``memory_limit_bytes``.

    Only clients' writes are rejected beyond the limit. Followers must be able to copy what a leader has accepted, and
    groups must keep working, so the limit can be exceeded by the lag of the followers. Thread: loop.
    """

    __slots__ = ("_held_by", "held_bytes", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._held_by: dict[str, int] = {}

    def acquire(self, owner: str, size: int, *, within_limit: bool = True) -> None:
        """Add ``size`` bytes of a log.

        Raises:
            PolicyViolationError: ``within_limit`` is set and the limit would be exceeded; nothing was added.
        """
        held = self.held_bytes + size
        if within_limit and held > self.limit_bytes:
            raise PolicyViolationError(self._refusal(owner, size))
        self.held_bytes = held
        self._held_by[owner] = self._held_by.get(owner, 0) + size

    def release(self, owner: str, size: int) -> None:
        """Subtract ``size`` bytes of a log."""
        self.held_bytes -= size
        left = self._held_by[owner] - size
        if left:
            self._held_by[owner] = left
        else:
            del self._held_by[owner]

    def _refusal(self, owner: str, size: int) -> str:
        largest = sorted(self._held_by.items(), key=lambda item: -item[1])[:3]
        holders = ", ".join(f"{name} {held:,}" for name, held in largest) or "none"
        return (
            f"{size:,} bytes for {owner} would pass the cluster's memory limit: memory_limit_bytes is "
            f"{self.limit_bytes:,}, {self.held_bytes:,} bytes are held in {len(self._held_by)} logs (largest: "
            f"{holders}). Raise memory_limit_bytes, delete topics, or give them a retention.bytes with a smaller "
            "segment.bytes, or a retention.ms: what is over is deleted every log.retention.check.interval.ms"
        )


#: Pieces of memory start small, because most logs in tests are small, and double up to the largest size.
_FIRST_PIECE_BYTES = 4 * 1024

_LARGEST_PIECE_BYTES = 256 * 1024


class FileRecords:
    """Append-only bytes in pieces of memory, with views for readers.

    Bytes that were readable once are never overwritten: after a truncation the rest of the piece stays unused, because
    a response in flight may have a view of it. The data of one append is contiguous. Thread: loop.
    """

    __slots__ = ("_pieces", "_room", "_starts", "_used", "_views", "size")

    def __init__(self) -> None:
        self.size = 0
        self._pieces: list[bytearray] = []
        self._views: list[memoryview] = []
        # The position in the segment at which each piece begins.
        self._starts: list[int] = []
        self._used = 0
        self._room = 0

    def append(self, data: Buffer) -> None:
        """Append a copy of ``data``."""
        size = len(data)
        if size > self._room:
            self._add_piece(size)
        used = self._used
        self._pieces[-1][used : used + size] = data
        self._used = used + size
        self._room -= size
        self.size += size

    def _add_piece(self, size: int) -> None:
        doubled = 2 * len(self._pieces[-1]) if self._pieces else _FIRST_PIECE_BYTES
        piece = bytearray(max(size, min(doubled, _LARGEST_PIECE_BYTES)))
        self._pieces.append(piece)
        self._views.append(memoryview(piece).toreadonly())
        self._starts.append(self.size)
        self._used = 0
        self._room = len(piece)

    def read(self, position: int, size: int) -> list[memoryview]:
        """Return views of ``size`` bytes from ``position`` on. All of them must exist."""
        starts, views = self._starts, self._views
        found: list[memoryview] = []
        end = position + size
        index = bisect_right(starts, position) - 1
        while position < end:
            start = starts[index]
            stop = min(end, starts[index + 1]) if index + 1 < len(starts) else end
            found.append(views[index][position - start : stop - start])
            position = stop
            index += 1
        return found

    def truncate_to(self, size: int) -> None:
        """Truncate to ``size`` bytes."""
        while self._starts and self._starts[-1] >= size:
            self._starts.pop()
            self._pieces.pop()
            self._views.pop()
        self.size = size
        self._room = 0


UNDEFINED_EPOCH: Final = -1

UNDEFINED_EPOCH_OFFSET: Final = -1


class EpochEntry(NamedTuple):
    """A leader epoch and the offset of its first record."""

    epoch: int
    start_offset: int


_epoch, _start_offset = attrgetter("epoch"), attrgetter("start_offset")


class LeaderEpochFileCache:
    """Leader epochs and the offsets at which they began, both strictly increasing.

    Every change is written to the disk, so the cache outlives its broker. Thread: loop.
    """

    def __init__(self) -> None:
        self.entries: list[EpochEntry] = []

    # --- changes -----------------------------------------------------------------------------------------------------

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Let ``epoch`` begin at ``start_offset``; return whether the entry is new.

        Entries with a later epoch or a later offset contradict it. They belong to an abandoned history and are removed.

        Raises:
            IllegalArgumentError: a number is negative.
        """
        entries = self.entries
        latest = entries[-1] if entries else None
        if latest is not None and latest.epoch == epoch and latest.start_offset <= start_offset:
            return False
        if epoch < 0 or start_offset < 0:
            raise IllegalArgumentError(f"leader epoch {epoch} cannot begin at offset {start_offset}")
        keep = min(bisect_left(entries, epoch, key=_epoch), bisect_left(entries, start_offset, key=_start_offset))
        entries[keep:] = [EpochEntry(epoch, start_offset)]
        return True

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove the epochs that began at ``end_offset`` or later."""
        if end_offset >= 0:
            del self.entries[bisect_left(self.entries, end_offset, key=_start_offset) :]

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove the epochs that ended before ``start_offset``. The epoch that contains it now begins there."""
        gone = bisect_right(self.entries, start_offset, key=_start_offset)
        if gone:
            self.entries[:gone] = [self.entries[gone - 1]._replace(start_offset=start_offset)]

    def clear(self) -> None:
        self.entries.clear()

    # --- queries -----------------------------------------------------------------------------------------------------

    @property
    def latest_epoch(self) -> int | None:
        return self.entries[-1].epoch if self.entries else None

    @property
    def earliest_entry(self) -> EpochEntry | None:
        return self.entries[0] if self.entries else None

    def end_offset_for(self, requested_epoch: int, log_end_offset: int) -> OffsetAndEpoch:
        """Return the largest known epoch not above the requested one, and its end offset.

        The latest epoch ends at the end of the log. If the requested epoch is older than all known ones, return it with
        the start offset of the first known epoch. Both are -1 if the epoch is undefined or newer than all known ones.
        """
        entries, latest = self.entries, self.latest_epoch
        if requested_epoch == UNDEFINED_EPOCH or latest is None or requested_epoch > latest:
            return OffsetAndEpoch(UNDEFINED_EPOCH_OFFSET, UNDEFINED_EPOCH)
        if requested_epoch == latest:
            return OffsetAndEpoch(log_end_offset, requested_epoch)
        higher = bisect_right(entries, requested_epoch, key=_epoch)
        epoch = entries[higher - 1].epoch if higher else requested_epoch
        return OffsetAndEpoch(entries[higher].start_offset, epoch)

    def __repr__(self) -> str:
        return f"LeaderEpochFileCache({[tuple(entry) for entry in self.entries]})"


class LogSegment:
    """Batches from ``base_offset`` on, with their indexes.

    The indexes have an entry for every batch, so searches need no scan: last offsets and end positions for reading, the
    largest timestamp so far for searching by time. Times are milliseconds since the epoch. Thread: loop.
    """

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

    def age_ms(self, max_timestamp: int, now_ms: int) -> int:
        """Return the age by the timestamps of the first batch and of one to append or, without them, by the clock."""
        if self.first_batch_timestamp >= 0:
            return max_timestamp - self.first_batch_timestamp
        return now_ms - self.created_ms

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(
        self, start_offset: int, max_length: int, bound_offset: int, min_one_message: bool
    ) -> FetchDataInfo | None:
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
            return FetchDataInfo(start_offset, start_offset)
        first_size = ends[first] - position
        if first_size > max_length and not min_one_message:
            beginning = self._records.read(position, max_length)
            return FetchDataInfo(start_offset, start_offset, beginning, max_length, first_entry_incomplete=True)
        # Up to the last batch that ends within the length.
        last = bisect_left(ends, position + max(max_length, first_size) + 1, first, bound) - 1
        size = ends[last] - position
        return FetchDataInfo(start_offset, last_offsets[last] + 1, self._records.read(position, size), size)

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


def _epoch_of(batch: AnyRecordBatch) -> int | None:
    return batch.partition_leader_epoch if batch.partition_leader_epoch >= 0 else None
