"""The records of a share partition that are being delivered, with their states as tables.

Java: InFlightBatch, InFlightState, SharePartition.cachedState.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from operator import attrgetter
from typing import Any, Final, NamedTuple
from uuid import UUID

from pykclient.errors import IllegalStateError
from pykclient.testing.coordination.znodes import uuid_to_string
from pykclient.testing.event_loop import TimerHandle


class RecordState(IntEnum):
    """The state of a record's delivery. The numbers are those of the state topic."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


#: Only an available record can be acquired, and only an acquired one acknowledged. Available records are archived when
#: they are deleted from the log.
RECORD_TRANSITIONS: Final[dict[RecordState, frozenset[RecordState]]] = {
    RecordState.AVAILABLE: frozenset((RecordState.ACQUIRED, RecordState.ARCHIVED)),
    RecordState.ACQUIRED: frozenset((RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)),
    RecordState.ACKNOWLEDGED: frozenset(),
    RecordState.ARCHIVED: frozenset(),
}

#: The states in which a record's delivery is complete.
TERMINAL: Final = frozenset((RecordState.ACKNOWLEDGED, RecordState.ARCHIVED))


def move_record(state: RecordState, to: RecordState) -> RecordState:
    """Return ``to``.

    Raises:
        IllegalStateError: the table does not have this transition.
    """
    if to not in RECORD_TRANSITIONS[state]:
        raise IllegalStateError(f"a record cannot go from {state.name} to {to.name}")
    return to


class SharePartitionState(Enum):
    """The state of a share partition on the leader of its partition."""

    #: Nothing is known about it.
    EMPTY = "empty"
    #: The leader has asked the share coordinator for its state.
    INITIALIZING = "initializing"
    #: Records can be acquired and acknowledged.
    ACTIVE = "active"
    #: Its state could not be read. The next fetch creates another one.
    FAILED = "failed"
    #: Another broker leads the partition now, or the state was deleted.
    FENCED = "fenced"

    def __str__(self) -> str:
        return self.name


SHARE_PARTITION_TRANSITIONS: Final[dict[SharePartitionState, frozenset[SharePartitionState]]] = {
    SharePartitionState.EMPTY: frozenset((SharePartitionState.INITIALIZING, SharePartitionState.FENCED)),
    SharePartitionState.INITIALIZING: frozenset(
        (SharePartitionState.ACTIVE, SharePartitionState.FAILED, SharePartitionState.FENCED)
    ),
    SharePartitionState.ACTIVE: frozenset((SharePartitionState.FENCED,)),
    SharePartitionState.FAILED: frozenset((SharePartitionState.FENCED,)),
    SharePartitionState.FENCED: frozenset(),
}


#: The start offset of a share partition that the group has not begun to read.
UNINITIALIZED_START_OFFSET: Final = -1

#: The epoch in requests whose sender does not know it.
NO_EPOCH: Final = -1


class SharePartitionKey(NamedTuple):
    """A partition as one share group reads it."""

    group_id: str
    topic_id: UUID
    partition: int

    @property
    def coordinator_key(self) -> str:
        """The key by which FindCoordinator finds the share coordinator."""
        return f"{self.group_id}:{uuid_to_string(self.topic_id)}:{self.partition}"


class StateBatch(NamedTuple):
    """Offsets with the same state of delivery, as the share coordinator stores them (Java: PersisterStateBatch)."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


def state_batches_of(message: Any) -> list[StateBatch]:
    """Return the batches of a record or response."""
    return [
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in message.state_batches
    ]


class ShareState(NamedTuple):
    """The state of a share partition in the share coordinator (Java: ShareGroupOffset)."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    create_timestamp_ms: int
    write_timestamp_ms: int
    batches: Sequence[StateBatch] = ()


#: The owner of records that nobody has acquired.
NO_MEMBER = ""


@dataclass(slots=True, eq=False)
class AcquisitionLock:
    """The acquisition lock of records acquired together: one timer for all offsets.

    ``holders`` counts the in-flight states that the lock protects. The timer is cancelled when the last of them lets
    go. Thread: loop.
    """

    timer: TimerHandle | None = None
    holders: int = 0
    expired: bool = False

    def release(self) -> None:
        """Remove one holder."""
        self.holders -= 1
        if not self.holders and self.timer is not None:
            self.timer.cancel()


@dataclass(slots=True, eq=False)
class InFlightState:
    """The delivery of one record, or of all records of a batch.

    ``pending`` is the state to take when the share coordinator has written it; until then nothing else may happen to
    the record. Thread: loop.
    """

    state: RecordState
    delivery_count: int
    member_id: str = NO_MEMBER
    lock: AcquisitionLock | None = None
    pending: RecordState | None = None

    @property
    def is_available(self) -> bool:
        """True if a member can acquire the record."""
        return self.state is RecordState.AVAILABLE

    @property
    def is_complete(self) -> bool:
        """True if the record will not be delivered again, and this has been written."""
        return self.state in TERMINAL

    @property
    def is_completing(self) -> bool:
        """True if the record will not be delivered again, even if this is not written yet."""
        return self.state in TERMINAL or self.pending in TERMINAL

    def acquire(self, member_id: str, lock: AcquisitionLock) -> None:
        """Deliver the record to a member."""
        self.state = move_record(self.state, RecordState.ACQUIRED)
        self.delivery_count += 1
        self.member_id = member_id
        self.hold(lock)

    def hold(self, lock: AcquisitionLock) -> None:
        """Replace the lock of the record."""
        self.let_go()
        lock.holders += 1
        self.lock = lock

    def let_go(self) -> None:
        """Give the lock back."""
        if self.lock is not None:
            self.lock.release()
            self.lock = None

    def begin(self, state: RecordState, max_delivery_count: int) -> RecordState:
        """Begin a transition of an acquired record; return the state that must be written.

        A record that was delivered ``max_delivery_count`` times is archived instead of released.
        """
        if state is RecordState.AVAILABLE and self.delivery_count >= max_delivery_count:
            state = RecordState.ARCHIVED
        self.pending = state
        return state

    def commit(self) -> None:
        """Complete the transition, which is written now."""
        assert self.pending is not None
        self.state = move_record(self.state, self.pending)
        self.pending = None
        self.member_id = NO_MEMBER
        self.let_go()

    def roll_back(self, max_delivery_count: int) -> None:
        """Undo the transition, which could not be written. The record stays acquired unless its lock has expired."""
        self.pending = None
        if self.lock is not None and self.lock.expired:
            self.release(max_delivery_count)

    def release(self, max_delivery_count: int) -> RecordState:
        """Release the record from its member at once; return the new state."""
        self.begin(RecordState.AVAILABLE, max_delivery_count)
        self.commit()
        return self.state

    def archive(self) -> None:
        """Complete the delivery of a record that can no longer be read."""
        self.pending = RecordState.ARCHIVED
        self.commit()

    def copy(self) -> InFlightState:
        """Return an equal state, which holds the same lock."""
        new = InFlightState(self.state, self.delivery_count, self.member_id)
        if self.lock is not None:
            new.hold(self.lock)
        return new


@dataclass(slots=True, eq=False, repr=False)
class InFlightBatch:
    """The records of a range of offsets, with one ``state``, or one each in ``offsets``. Thread: loop."""

    first_offset: int
    last_offset: int
    state: InFlightState | None
    offsets: dict[int, InFlightState] | None = None

    def __len__(self) -> int:
        return self.last_offset - self.first_offset + 1

    def split(self) -> dict[int, InFlightState]:
        """Track each offset on its own from now on; return the states. The batch has no pending transition."""
        if self.offsets is None:
            assert self.state is not None
            self.offsets = {offset: self.state.copy() for offset in range(self.first_offset, self.last_offset + 1)}
            self.state.let_go()
            self.state = None
        return self.offsets

    def parts(self) -> Iterator[tuple[int, int, InFlightState]]:
        """Yield the first offset, the last offset and the state of each part that has one."""
        if self.offsets is None:
            assert self.state is not None
            yield self.first_offset, self.last_offset, self.state
        else:
            for offset, state in self.offsets.items():
                yield offset, offset, state

    def is_within(self, first_offset: int, last_offset: int) -> bool:
        """Return whether all offsets are in this range."""
        return self.first_offset >= first_offset and self.last_offset <= last_offset

    def __repr__(self) -> str:
        state = "per offset" if self.state is None else self.state.state.name
        return f"<in flight {self.first_offset} to {self.last_offset}, {state}>"


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
        """Record that all available records before ``next_offset`` were acquired."""
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
        """Archive available records before the start, which can no longer be read."""
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
