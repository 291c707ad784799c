"""A partition as a share group reads it, on the partition's leader (Java: SharePartition)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.errors import (
    BrokerError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedLeaderEpochError,
    FencedStateEpochError,
    GroupIdNotFoundError,
    InvalidRecordStateError,
    InvalidRequestError,
    NotCoordinatorError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)
from pykclient.testing.log.log_types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from pykclient.testing.share.group_config import EARLIEST, LATEST
from pykclient.testing.share.in_flight_batch import AcquisitionLock, InFlightBatch, InFlightState
from pykclient.testing.share.in_flight_records import InFlightRecords
from pykclient.testing.share.record_acquirer import RecordAcquirer
from pykclient.testing.share.share_states import (
    RecordState,
    SharePartitionState,
    move_share_partition,
)
from pykclient.testing.share.share_types import (
    SharePartitionKey,
    ShareState,
    ShareUpdate,
    StateBatch,
)

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.replica.partition import Partition
    from pykclient.testing.share.group_config import GroupConfig
    from pykclient.types import TopicPartition

_GAP: Final = 0
_RENEW: Final = 4

#: The state that each type of acknowledgement leads to. RENEW leads to none.
_STATES: Final = {
    _GAP: RecordState.ARCHIVED,
    1: RecordState.ACKNOWLEDGED,
    2: RecordState.AVAILABLE,
    3: RecordState.ARCHIVED,
}
#: The types of acknowledgements in requests: gap, accept, release, reject and renew.
ACKNOWLEDGE_TYPES: Final = frozenset((*_STATES, _RENEW))

#: The response error for each error of the share coordinator.
_STATE_ERRORS: Final[dict[int, type[BrokerError]]] = {
    NotCoordinatorError.code: CoordinatorNotAvailableError,
    CoordinatorNotAvailableError.code: CoordinatorNotAvailableError,
    CoordinatorLoadInProgressError.code: CoordinatorNotAvailableError,
    GroupIdNotFoundError.code: GroupIdNotFoundError,
    UnknownTopicOrPartitionError.code: UnknownTopicOrPartitionError,
    FencedLeaderEpochError.code: NotLeaderOrFollowerError,
    FencedStateEpochError.code: NotLeaderOrFollowerError,
}

#: Called with None, or with the error of the operation.
Callback = Callable[[BrokerError | None], None]


class AcknowledgementBatch(NamedTuple):
    """Acknowledgements of a range of offsets: one type for all, or one for each (Java: ShareAcknowledgementBatch)."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


class _Update(NamedTuple):
    """A transition that has begun, and what must be written before it takes effect."""

    state: InFlightState
    batch: StateBatch


class SharePartition:
    """The delivery of a partition's records to the members of a share group.

    Members acquire records and acknowledge them one by one. Each acknowledgement is first written by the share
    coordinator, and answered and applied afterwards; until then the records stay acquired. An acquired record that its
    member does not acknowledge in time becomes available again, as often as the delivery count allows.

    ``on_change`` is called when records may have become available. Thread: loop.
    """

    def __init__(
        self,
        broker: Broker,
        key: SharePartitionKey,
        topic_partition: TopicPartition,
        leader_epoch: int,
        on_change: Callable[[], None],
    ) -> None:
        self._broker = broker
        self._log = broker.log_context.logger(__name__)
        self.key = key
        self.topic_partition = topic_partition
        self.leader_epoch = leader_epoch
        self.state = SharePartitionState.EMPTY
        self._state_epoch = 0
        self._on_change = on_change
        self.records = InFlightRecords()
        self._acquirer = RecordAcquirer(self.records, self._new_lock)

    @property
    def is_active(self) -> bool:
        """True if records can be acquired and acknowledged."""
        return self.state is SharePartitionState.ACTIVE

    @property
    def _config(self) -> GroupConfig:
        return self._broker.group_configs.get(self.key.group_id)

    # --- begin and end

    def initialize(self, then: Callback) -> None:
        """Read the state from the share coordinator."""
        self.state = move_share_partition(self.state, SharePartitionState.INITIALIZING)
        self._broker.share_persister.read_state(self.key, self.leader_epoch, partial(self._on_state, then))

    def _on_state(self, then: Callback, error_code: int, message: str, state: ShareState | None) -> None:
        if self.state is not SharePartitionState.INITIALIZING:
            then(NotLeaderOrFollowerError(f"the share partition {self.topic_partition} was fenced"))
            return
        error: BrokerError | None = None
        if state is None:
            error = _error_of(error_code, message)
        else:
            try:
                start_offset = self._initial_offset() if state.start_offset < 0 else state.start_offset
            except BrokerError as failure:
                error = failure
        if error is not None or state is None:
            self._log.info("Share partition %s: could not read its state: %s", self.key, error)
            self.state = move_share_partition(self.state, SharePartitionState.FAILED)
            then(error)
            return
        self._state_epoch = state.state_epoch
        self.records.load(start_offset, list(state.batches))
        self.state = move_share_partition(self.state, SharePartitionState.ACTIVE)
        then(None)

    def _initial_offset(self) -> int:
        """Return where a group begins to read that has no state yet, according to ``share.auto.offset.reset``."""
        partition: Partition = self._broker.replica_manager.get_partition_or_raise(self.topic_partition)
        reset = self._config.auto_offset_reset
        if reset == EARLIEST:
            timestamp = EARLIEST_TIMESTAMP
        elif reset == LATEST:
            timestamp = LATEST_TIMESTAMP
        else:
            timestamp = self._broker.loop.wall_ms - self._config.reset_duration_ms
        found = partition.fetch_offset_for_timestamp(timestamp, 0, self.leader_epoch, fetch_only_from_leader=True)
        if found is None:
            raise OffsetNotAvailableError(f"{self.topic_partition} has no record since {timestamp}")
        return found.offset

    def mark_fenced(self) -> None:
        """End the delivery here: another broker leads the partition, or the group's state was deleted."""
        if self.state is not SharePartitionState.FENCED:
            self.state = move_share_partition(self.state, SharePartitionState.FENCED)
            for _, _, state in self.records.parts():
                state.let_go()

    # --- acquiring

    def next_fetch_offset(self) -> int:
        """Return the offset from which to read for the next member."""
        return self.records.next_fetch_offset()

    def can_acquire_records(self) -> bool:
        """Return whether a record is available, or there is room for more records in flight."""
        records = self.records
        return (
            records.next_fetch_offset() != records.end_offset + 1
            or records.count < self._config.partition_max_record_locks
        )

    def acquirer(self) -> RecordAcquirer:
        """Return the object that acquires records, set up with the group's limits of the moment."""
        self._acquirer.set_limits(self._config.partition_max_record_locks, self._config.delivery_count_limit)
        return self._acquirer

    def move_start(self, log_start_offset: int) -> None:
        """Skip the records that were deleted from the log."""
        self.records.move_start(log_start_offset)

    # --- locks

    def _new_lock(self, first_offset: int, last_offset: int) -> AcquisitionLock:
        lock = AcquisitionLock()
        lock.timer = self._broker.call_later(
            self._config.record_lock_duration_ms, self._on_lock_timeout, lock, first_offset, last_offset
        )
        return lock

    def _on_lock_timeout(self, lock: AcquisitionLock, first_offset: int, last_offset: int) -> None:
        """Take back the records that their member has not acknowledged in time."""
        lock.expired = True
        written = []
        limit = self._config.delivery_count_limit
        for batch in self.records.overlapping(first_offset, last_offset):
            for first, last, state in batch.parts():
                # A pending acknowledgement decides; if it fails, it releases the record.
                if state.lock is lock and state.pending is None:
                    new = state.release(limit)
                    written.append(StateBatch(first, last, new, state.delivery_count))
        if not written:
            return
        self._log.info("Share partition %s: the lock of offsets %d to %d expired", self.key, first_offset, last_offset)
        self.records.archive_deleted()
        # What is not written here is written with the next acknowledgement or, by another leader, found as a gap.
        self._write(written, lambda _: self._settle())
        self._on_change()

    # --- acknowledging

    def acknowledge(self, member_id: str, batches: Iterable[AcknowledgementBatch], then: Callback) -> None:
        """Apply a member's acknowledgements, all or none of them, when they are written.

        ``then`` gets InvalidRecordStateError if the member does not hold one of the records, InvalidRequestError if
        there is no such record or type, or the error of the share coordinator.
        """
        updates: list[_Update] = []
        try:
            for batch in batches:
                if not ACKNOWLEDGE_TYPES.issuperset(batch.types):
                    raise InvalidRequestError(f"Invalid acknowledge type: {list(batch.types)}")
                if batch.last_offset >= self.records.start_offset:
                    for in_flight in self._acknowledged_batches(batch):
                        self._acknowledge(member_id, batch, in_flight, updates)
        except BrokerError as error:
            self._roll_back(updates)
            then(error)
            return
        self._write_updates(updates, then)

    def _acknowledged_batches(self, batch: AcknowledgementBatch) -> list[InFlightBatch]:
        records = self.records
        floor = records.floor(batch.first_offset)
        if floor is None:
            if batch.first_offset < records.start_offset <= batch.last_offset:
                floor = records.floor(records.start_offset)
            if floor is None:
                raise InvalidRecordStateError(
                    "Batch record not found. The request batch offsets are not found in the cache."
                )
        found = records.between(floor.first_offset, batch.last_offset)
        if found[-1].last_offset < batch.first_offset:
            raise InvalidRequestError("Batch record not found. The first offset in request is past acquired records.")
        if found[-1].last_offset < batch.last_offset:
            raise InvalidRequestError("Batch record not found. The last offset in request is past acquired records.")
        return [each for each in found if each.last_offset >= records.start_offset]

    def _acknowledge(
        self, member_id: str, batch: AcknowledgementBatch, in_flight: InFlightBatch, updates: list[_Update]
    ) -> None:
        start_offset = self.records.start_offset
        whole = (
            in_flight.is_within(batch.first_offset, batch.last_offset)
            and len(batch.types) == 1
            and not in_flight.first_offset < start_offset <= in_flight.last_offset
        )
        if in_flight.state is not None:
            _check_owner(in_flight.state, member_id, "batch")
            if not whole:
                in_flight.split()
        first_wanted = max(batch.first_offset, start_offset)
        for first, last, state in in_flight.parts():
            if last < first_wanted or first > batch.last_offset:
                continue
            if in_flight.state is None:
                _check_owner(state, member_id, "offset")
            type = batch.types[0] if len(batch.types) == 1 else batch.types[first - batch.first_offset]
            if type == _RENEW:
                self._renew(first, last, state)
            else:
                new = state.begin(_STATES[type], self._config.delivery_count_limit)
                updates.append(_Update(state, StateBatch(first, last, new, state.delivery_count)))

    def _renew(self, first_offset: int, last_offset: int, state: InFlightState) -> None:
        if not self._config.renew_acknowledge_enable:
            raise InvalidRecordStateError("Renewing acquisition locks is not enabled for the group.")
        state.hold(self._new_lock(first_offset, last_offset))

    def release_acquired_records(self, member_id: str, then: Callback) -> None:
        """Make all records available again that a member holds."""
        updates = []
        start_offset = self.records.start_offset
        for batch in self.records.batches:
            if (
                batch.state is not None
                and batch.state.member_id == member_id
                and batch.state.pending is None
                and batch.first_offset < start_offset <= batch.last_offset
            ):
                batch.split()
            for first, last, state in batch.parts():
                if state.member_id == member_id and state.state is RecordState.ACQUIRED and state.pending is None:
                    wanted = RecordState.ARCHIVED if last < start_offset else RecordState.AVAILABLE
                    new = state.begin(wanted, self._config.delivery_count_limit)
                    updates.append(_Update(state, StateBatch(first, last, new, state.delivery_count)))
        self._write_updates(updates, then)

    # --- writing

    def _write_updates(self, updates: list[_Update], then: Callback) -> None:
        if not updates:
            then(None)
            return

        def written(error: BrokerError | None) -> None:
            if self.state is SharePartitionState.FENCED:
                then(error or NotLeaderOrFollowerError(f"the share partition {self.topic_partition} was fenced"))
                return
            if error is not None:
                self._roll_back(updates)
                then(error)
                return
            for update in updates:
                update.state.commit()
            self._settle()
            then(None)

        self._write([update.batch for update in updates], written)

    def _roll_back(self, updates: Iterable[_Update]) -> None:
        limit = self._config.delivery_count_limit
        for update in updates:
            update.state.roll_back(limit)
        self._settle()

    def _settle(self) -> None:
        """Move the start over records whose delivery is complete, and tell that records may be available."""
        self.records.advance()
        self._on_change()

    def _write(self, batches: Sequence[StateBatch], then: Callback) -> None:
        update = ShareUpdate(
            self._state_epoch,
            self.leader_epoch,
            self.records.start_offset,
            self.records.delivery_complete_count,
            batches,
        )

        def answered(error_code: int, message: str) -> None:
            then(_error_of(error_code, message) if error_code else None)

        self._broker.share_persister.write_state(self.key, update, answered)

    def __repr__(self) -> str:
        return f"<share partition {self.key.group_id}, {self.topic_partition}, {self.state.value}>"


def _check_owner(state: InFlightState, member_id: str, what: str) -> None:
    """Check that a member may acknowledge a ``what``: a batch or an offset.

    Raises:
        InvalidRecordStateError: the records are not acquired, by another member, or just being acknowledged.
    """
    if state.state is not RecordState.ACQUIRED:
        raise InvalidRecordStateError(f"The {what} cannot be acknowledged. The {what} is not acquired.")
    if state.pending is not None:
        raise InvalidRecordStateError(f"The {what} cannot be acknowledged. Another acknowledgement is being written.")
    if state.member_id != member_id:
        raise InvalidRecordStateError(f"Member is not the owner of the {what}.")


def _error_of(error_code: int, message: str) -> BrokerError:
    """Return the error of the share coordinator as a consumer knows it."""
    return _STATE_ERRORS.get(error_code, UnknownServerError)(message)
