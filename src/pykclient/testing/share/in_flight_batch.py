"""The records of a share partition that are being delivered (Java: InFlightBatch, InFlightState)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pykclient.testing.share.share_states import TERMINAL, RecordState, move_record

if TYPE_CHECKING:
    from pykclient.testing.event_loop import TimerHandle

#: The owner of records that nobody has acquired.
NO_MEMBER = ""


class AcquisitionLock:
    """The time for which a member has acquired records: one timer for all offsets that were acquired together.

    ``holders`` counts the in-flight states that the lock protects. The timer is cancelled when the last of them lets
    go. Thread: loop.
    """

    __slots__ = ("expired", "holders", "timer")

    def __init__(self) -> None:
        self.timer: TimerHandle | None = None
        self.holders = 0
        self.expired = False

    def release(self) -> None:
        """Remove one holder."""
        self.holders -= 1
        if not self.holders and self.timer is not None:
            self.timer.cancel()


class InFlightState:
    """The delivery of one record, or of all records of a batch.

    ``pending`` is the state to take when the share coordinator has written it; until then nothing else may happen to
    the record. Thread: loop.
    """

    __slots__ = ("delivery_count", "lock", "member_id", "pending", "state")

    def __init__(self, state: RecordState, delivery_count: int, member_id: str = NO_MEMBER) -> None:
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = member_id
        self.lock: AcquisitionLock | None = None
        self.pending: RecordState | None = None

    @property
    def is_available(self) -> bool:
        """True if a member can acquire the record."""
        return self.state is RecordState.AVAILABLE

    @property
    def is_complete(self) -> bool:
        """True if the record will not be delivered again, and this is written."""
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
        """Protect the record with a lock, in place of the one before."""
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
        """Take the record from its member at once; return the new state."""
        self.begin(RecordState.AVAILABLE, max_delivery_count)
        self.commit()
        return self.state

    def archive(self) -> None:
        """Complete the delivery, as the record cannot be read any more."""
        self.pending = RecordState.ARCHIVED
        self.commit()

    def copy(self) -> InFlightState:
        """Return an equal state, which holds the same lock."""
        new = InFlightState(self.state, self.delivery_count, self.member_id)
        if self.lock is not None:
            new.hold(self.lock)
        return new


class InFlightBatch:
    """The records of a range of offsets, with one ``state``, or one each in ``offsets``. Thread: loop."""

    __slots__ = ("first_offset", "last_offset", "offsets", "state")

    def __init__(self, first_offset: int, last_offset: int, state: InFlightState) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.state: InFlightState | None = state
        self.offsets: dict[int, InFlightState] | None = None

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
