"""A partition as a share group reads it, on the partition's leader (Java: SharePartition)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from pykclient import errors
from pykclient.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from pykclient.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from pykclient.record.memory_records import AnyRecordBatch
from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.log.log_types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, AbortedTxn
from pykclient.testing.replica.partition import Partition
from pykclient.testing.replica.replica_manager import ReplicaManager
from pykclient.testing.share.group_config import EARLIEST, LATEST, GroupConfig, GroupConfigManager
from pykclient.testing.share.in_flight_records import (
    NO_MEMBER,
    SHARE_PARTITION_TRANSITIONS,
    AcquisitionLock,
    InFlightBatch,
    InFlightRecords,
    InFlightState,
    RecordState,
    SharePartitionKey,
    SharePartitionState,
    ShareState,
    StateBatch,
)
from pykclient.testing.share.persister import Persister
from pykclient.types import TopicPartition

AcquiredRecords = ShareFetchResponse.AcquiredRecords


class AcquireRequest(NamedTuple):
    """A member's request for records of one partition.

    With ``record_limit``, ``max_records`` is a strict limit; otherwise batches of the log stay whole (KIP-1206).
    """

    member_id: str
    max_records: int
    batch_size: int
    record_limit: bool


@dataclass(slots=True)
class RecordAcquirer:
    """Acquires records that were read from the log, and remembers them as in flight.

    Records that were delivered often are given in smaller and smaller portions, and alone with their last delivery, so
    that one poison record does not use up the deliveries of others. Thread: loop.
    """

    records: InFlightRecords
    new_lock: Callable[[int, int], AcquisitionLock]
    max_in_flight: int
    max_deliveries: int

    @property
    def _throttle_from(self) -> int:
        return max(2, -(-self.max_deliveries // 2))

    def acquire(
        self, request: AcquireRequest, fetch_offset: int, batches: Sequence[AnyRecordBatch]
    ) -> list[AcquiredRecords]:
        """Acquire what a member gets of ``batches``, which were read from ``fetch_offset`` on."""
        records = self.records
        if request.max_records <= 0 or not batches or batches[-1].last_offset < records.start_offset:
            return []
        last_offset, left = self._limits(request, fetch_offset, batches[-1].last_offset)
        if left <= 0:
            return []
        first_offset = base_offset = batches[0].base_offset
        if fetch_offset < base_offset:
            # Compaction has removed records that were released.
            records.archive(fetch_offset, base_offset - 1, RecordState.AVAILABLE)
        floor = records.floor(base_offset)
        if floor is None:
            base_offset = max(base_offset, records.start_offset)
        elif floor.last_offset >= base_offset:
            base_offset = floor.first_offset
        found = records.between(min(first_offset, base_offset), last_offset)
        if not found:
            return self._acquire_new(request, batches, base_offset, last_offset, left)
        result, left = self._acquire_known(request, batches, found, (first_offset, base_offset, last_offset), left)
        if left > 0 and found[-1].last_offset < last_offset:
            result += self._acquire_new(request, batches, found[-1].last_offset + 1, last_offset, left)
        if result:
            records.read_up_to(result[-1].last_offset + 1)
        return result

    def _limits(self, request: AcquireRequest, fetch_offset: int, last_offset: int) -> tuple[int, int]:
        """Return the last offset and the number of records that can be acquired."""
        records = self.records
        left = min(request.max_records, self.max_in_flight - records.count)
        if left <= 0 and fetch_offset <= records.end_offset:
            # Only what was released between other records in flight.
            left = min(request.max_records, records.end_offset - fetch_offset + 1)
            last_offset = min(last_offset, records.end_offset)
        return last_offset, left

    def _acquire_known(
        self,
        request: AcquireRequest,
        batches: Sequence[AnyRecordBatch],
        found: Sequence[InFlightBatch],
        offsets: tuple[int, int, int],
        left: int,
    ) -> tuple[list[AcquiredRecords], int]:
        """Acquire what is available of batches in flight, and between them; return it and how many are left."""
        first_offset, gap_start, last_offset = offsets
        records = self.records
        result: list[AcquiredRecords] = []
        for batch in found:
            if left <= 0:
                break
            if records.has_gaps:
                if gap_start < batch.first_offset:
                    new = self._acquire_new(request, batches, gap_start, batch.first_offset - 1, left)
                    result += new
                    left -= _count(new)
                gap_start = batch.last_offset + 1
                if left <= 0:
                    break
            throttled = self._is_throttled(batch, first_offset, last_offset)
            if throttled and result:
                return result, 0
            is_whole = batch.is_within(first_offset, last_offset) and not throttled
            if batch.state is not None:
                if not batch.state.is_available:
                    continue
                if is_whole and not (request.record_limit and len(batch) > left):
                    lock = self.new_lock(batch.first_offset, batch.last_offset)
                    batch.state.acquire(request.member_id, lock)
                    result.append(_acquired(batch.first_offset, batch.last_offset, batch.state.delivery_count))
                    left -= len(batch)
                    continue
                batch.split()
            some = self._acquire_some(request, batch, first_offset, last_offset, left)
            result += some
            left -= _count(some)
            if throttled and some:
                return result, 0
        return result, left

    # --- records that were delivered before

    def _is_throttled(self, batch: InFlightBatch, first_offset: int, last_offset: int) -> bool:
        return any(
            state.delivery_count >= self._throttle_from and state.is_available
            for first, last, state in batch.parts()
            if batch.state is not None or first_offset <= first <= last_offset
        )

    def _acquire_some(
        self, request: AcquireRequest, batch: InFlightBatch, first_offset: int, last_offset: int, left: int
    ) -> list[AcquiredRecords]:
        """Acquire available records of a batch, one by one; join those with the same delivery count."""
        limit = left if request.record_limit else len(batch)
        is_limited = False
        taken: list[tuple[int, InFlightState]] = []
        for offset, _, state in batch.parts():
            if len(taken) >= limit or offset > last_offset:
                break
            if offset < first_offset or not state.is_available:
                continue
            is_last = self.max_deliveries > 2 and state.delivery_count == self.max_deliveries - 1
            if is_last and taken:
                break
            if state.delivery_count >= self._throttle_from and not is_limited:
                is_limited = True
                limit = min(limit, max(1, len(batch) >> state.delivery_count - self._throttle_from + 1))
            taken.append((offset, state))
            if is_last:
                break
        if not taken:
            return []
        lock = self.new_lock(taken[0][0], taken[-1][0])
        joined: list[AcquiredRecords] = []
        for offset, state in taken:
            state.acquire(request.member_id, lock)
            last = joined[-1] if joined else None
            if last is not None and last.last_offset + 1 == offset and last.delivery_count == state.delivery_count:
                last.last_offset = offset
            else:
                joined.append(_acquired(offset, offset, state.delivery_count))
        return joined

    # --- records that were not delivered before

    def _acquire_new(
        self,
        request: AcquireRequest,
        batches: Sequence[AnyRecordBatch],
        first_offset: int,
        last_offset: int,
        left: int,
    ) -> list[AcquiredRecords]:
        records = self.records
        if not records.batches:
            first_offset = max(first_offset, records.end_offset)
        last = last_offset
        if left < last - first_offset + 1:
            last = _end_of_batch(batches, first_offset + left - 1)
            if records.has_gaps:
                last = min(last, last_offset)
        acquired = self._add_batches(request, batches, first_offset, last, left)
        if records.batches[0].first_offset == first_offset:
            records.start_offset = first_offset
        records.end_offset = max(records.end_offset, last)
        records.read_up_to(acquired[-1].last_offset + 1)
        return acquired

    def _add_batches(
        self,
        request: AcquireRequest,
        batches: Sequence[AnyRecordBatch],
        first_offset: int,
        last_offset: int,
        left: int,
    ) -> list[AcquiredRecords]:
        count = last_offset - first_offset + 1
        if request.record_limit and count > left:
            # The rest of the log's batch becomes available.
            last_acquired = first_offset + left - 1
            batch = InFlightBatch(first_offset, last_offset, InFlightState(RecordState.AVAILABLE, 0, NO_MEMBER))
            lock = self.new_lock(first_offset, last_acquired)
            for offset, state in batch.split().items():
                if offset <= last_acquired:
                    state.acquire(request.member_id, lock)
            self.records.add(batch)
            return [_acquired(first_offset, last_acquired, 1)]
        starts = [first_offset]
        if not request.record_limit and count > request.batch_size:
            for log_batch in batches:
                if starts[-1] + request.batch_size <= log_batch.base_offset <= last_offset:
                    starts.append(log_batch.base_offset)
        acquired = []
        for start, end in zip(starts, [*(start - 1 for start in starts[1:]), last_offset], strict=True):
            state = InFlightState(RecordState.AVAILABLE, 0)
            state.acquire(request.member_id, self.new_lock(start, end))
            self.records.add(InFlightBatch(start, end, state))
            acquired.append(_acquired(start, end, 1))
        return acquired

    # --- transactions

    def archive_aborted(
        self, acquired: list[AcquiredRecords], batches: Sequence[AnyRecordBatch], aborted: Sequence[AbortedTxn]
    ) -> list[AcquiredRecords]:
        """Archive acquired records of aborted transactions; return the others."""
        for batch in _aborted_batches(batches, aborted):
            self.records.archive(batch.base_offset, batch.last_offset, RecordState.ACQUIRED)
            acquired = [
                part for records in acquired for part in _without(records, batch.base_offset, batch.last_offset)
            ]
        return acquired


def _acquired(first_offset: int, last_offset: int, delivery_count: int) -> AcquiredRecords:
    return AcquiredRecords(first_offset=first_offset, last_offset=last_offset, delivery_count=delivery_count)


def _count(acquired: Sequence[AcquiredRecords]) -> int:
    return sum(records.last_offset - records.first_offset + 1 for records in acquired)


def _end_of_batch(batches: Sequence[AnyRecordBatch], offset: int) -> int:
    """Return the last offset of the batch with this offset, or ``offset`` if no batch has it."""
    for batch in batches:
        if batch.base_offset <= offset <= batch.last_offset:
            return batch.last_offset
    return offset


def _aborted_batches(batches: Sequence[AnyRecordBatch], aborted: Sequence[AbortedTxn]) -> list[AnyRecordBatch]:
    """Return the batches of aborted transactions, without their markers."""
    waiting = sorted(aborted, key=lambda txn: txn.first_offset, reverse=True)
    producer_ids: set[int] = set()
    found = []
    for batch in batches:
        if batch.producer_id < 0:
            continue
        while waiting and waiting[-1].first_offset <= batch.last_offset:
            producer_ids.add(waiting.pop().producer_id)
        if batch.is_control_batch:
            producer_ids.discard(batch.producer_id)
        elif batch.is_transactional and batch.producer_id in producer_ids:
            found.append(batch)
    return found


def _without(records: AcquiredRecords, first_offset: int, last_offset: int) -> list[AcquiredRecords]:
    """Return the parts of ``records`` outside of a range."""
    if last_offset < records.first_offset or first_offset > records.last_offset:
        return [records]
    parts = []
    if records.first_offset < first_offset:
        parts.append(_acquired(records.first_offset, first_offset - 1, records.delivery_count))
    if records.last_offset > last_offset:
        parts.append(_acquired(last_offset + 1, records.last_offset, records.delivery_count))
    return parts


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
_STATE_ERRORS: Final[dict[int, type[errors.BrokerError]]] = {
    errors.NotCoordinatorError.code: errors.CoordinatorNotAvailableError,
    errors.CoordinatorNotAvailableError.code: errors.CoordinatorNotAvailableError,
    errors.CoordinatorLoadInProgressError.code: errors.CoordinatorNotAvailableError,
    errors.GroupIdNotFoundError.code: errors.GroupIdNotFoundError,
    errors.UnknownTopicOrPartitionError.code: errors.UnknownTopicOrPartitionError,
    errors.FencedLeaderEpochError.code: errors.NotLeaderOrFollowerError,
    errors.FencedStateEpochError.code: errors.NotLeaderOrFollowerError,
}

#: Called with None, or with the error of the operation.
Callback = Callable[[errors.BrokerError | None], None]


#: Acknowledgements of a range of offsets: one type for all, or one for each.
AcknowledgementBatch = ShareFetchRequest.AcknowledgementBatch | ShareAcknowledgeRequest.AcknowledgementBatch


class _Update(NamedTuple):
    """A transition that has begun, and what must be written before it takes effect."""

    state: InFlightState
    batch: StateBatch


@dataclass(eq=False, repr=False)
class SharePartition:
    """The delivery of a partition's records to the members of a share group.

    Members acquire records and acknowledge them one by one. Each acknowledgement is first written by the share
    coordinator, and answered and applied afterwards; until then the records stay acquired. An acquired record that its
    member does not acknowledge in time becomes available again, as often as the delivery count allows.

    ``on_change`` is called when records may have become available. Thread: loop.
    """

    _broker: BrokerContext
    _replica_manager: ReplicaManager
    _persister: Persister
    _group_configs: GroupConfigManager
    key: SharePartitionKey
    topic_partition: TopicPartition
    leader_epoch: int
    _on_change: Callable[[], None]
    state: SharePartitionState = SharePartitionState.EMPTY
    _state_epoch: int = 0
    records: InFlightRecords = field(default_factory=InFlightRecords)

    def __post_init__(self) -> None:
        self._log = self._broker.log_context.logger(__name__)

    @property
    def is_active(self) -> bool:
        """True if records can be acquired and acknowledged."""
        return self.state is SharePartitionState.ACTIVE

    @property
    def _config(self) -> GroupConfig:
        return self._group_configs.get(self.key.group_id)

    def _move(self, to: SharePartitionState) -> None:
        errors.check_move("a share partition", SHARE_PARTITION_TRANSITIONS, self.state, to)
        self.state = to

    # --- begin and end

    def initialize(self, then: Callback) -> None:
        """Read the state from the share coordinator."""
        self._move(SharePartitionState.INITIALIZING)
        self._persister.read_state(self.key, self.leader_epoch, partial(self._on_state, then))

    def _on_state(self, then: Callback, error_code: int, message: str, state: ShareState | None) -> None:
        if self.state is not SharePartitionState.INITIALIZING:
            then(errors.NotLeaderOrFollowerError(f"the share partition {self.topic_partition} was fenced"))
            return
        error: errors.BrokerError | None = None
        if state is None:
            error = _error_of(error_code, message)
        else:
            try:
                start_offset = self._initial_offset() if state.start_offset < 0 else state.start_offset
            except errors.BrokerError as failure:
                error = failure
        if error is not None or state is None:
            self._log.info("Share partition %s: could not read its state: %s", self.key, error)
            self._move(SharePartitionState.FAILED)
            then(error)
            return
        self._state_epoch = state.state_epoch
        self.records.load(start_offset, list(state.batches))
        self._move(SharePartitionState.ACTIVE)
        then(None)

    def _initial_offset(self) -> int:
        """Return where a group begins to read that has no state yet, according to ``share.auto.offset.reset``."""
        partition: Partition = self._replica_manager.get_partition_or_raise(self.topic_partition)
        reset = self._config.auto_offset_reset
        if reset == EARLIEST:
            timestamp = EARLIEST_TIMESTAMP
        elif reset == LATEST:
            timestamp = LATEST_TIMESTAMP
        else:
            timestamp = self._broker.loop.wall_ms - self._config.reset_duration_ms
        found = partition.fetch_offset_for_timestamp(timestamp, 0, self.leader_epoch, fetch_only_from_leader=True)
        if found is None:
            raise errors.OffsetNotAvailableError(f"{self.topic_partition} has no record since {timestamp}")
        return found.offset

    def mark_fenced(self) -> None:
        """End the delivery here: another broker leads the partition, or the group's state was deleted."""
        if self.state is not SharePartitionState.FENCED:
            self._move(SharePartitionState.FENCED)
            for _, _, state in self.records.parts():
                state.let_go()

    # --- acquiring

    def can_acquire_records(self) -> bool:
        """Return whether a record is available, or there is room for more records in flight."""
        records = self.records
        return (
            records.next_fetch_offset() != records.end_offset + 1
            or records.count < self._config.partition_max_record_locks
        )

    def acquirer(self) -> RecordAcquirer:
        """Return an object that acquires records, within the group's limits of the moment."""
        config = self._config
        return RecordAcquirer(
            self.records, self._new_lock, config.partition_max_record_locks, config.delivery_count_limit
        )

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
        there is no such record, or the error of the share coordinator.
        """
        updates: list[_Update] = []
        try:
            for batch in batches:
                if batch.last_offset >= self.records.start_offset:
                    for in_flight in self._acknowledged_batches(batch):
                        self._acknowledge(member_id, batch, in_flight, updates)
        except errors.BrokerError as error:
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
                raise errors.InvalidRecordStateError(
                    "Batch record not found. The request batch offsets are not found in the cache."
                )
        found = records.between(floor.first_offset, batch.last_offset)
        if found[-1].last_offset < batch.first_offset:
            raise errors.InvalidRequestError(
                "Batch record not found. The first offset in request is past acquired records."
            )
        if found[-1].last_offset < batch.last_offset:
            raise errors.InvalidRequestError(
                "Batch record not found. The last offset in request is past acquired records."
            )
        return [each for each in found if each.last_offset >= records.start_offset]

    def _acknowledge(
        self, member_id: str, batch: AcknowledgementBatch, in_flight: InFlightBatch, updates: list[_Update]
    ) -> None:
        start_offset = self.records.start_offset
        whole = (
            in_flight.is_within(batch.first_offset, batch.last_offset)
            and len(batch.acknowledge_types) == 1
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
            types = batch.acknowledge_types
            type = types[0] if len(types) == 1 else types[first - batch.first_offset]
            if type == _RENEW:
                self._renew(first, last, state)
            else:
                new = state.begin(_STATES[type], self._config.delivery_count_limit)
                updates.append(_Update(state, StateBatch(first, last, new, state.delivery_count)))

    def _renew(self, first_offset: int, last_offset: int, state: InFlightState) -> None:
        if not self._config.renew_acknowledge_enable:
            raise errors.InvalidRecordStateError("Renewing acquisition locks is not enabled for the group.")
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

        def written(error: errors.BrokerError | None) -> None:
            if self.state is SharePartitionState.FENCED:
                then(error or errors.NotLeaderOrFollowerError(f"the share partition {self.topic_partition} was fenced"))
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
        def answered(error_code: int, message: str) -> None:
            then(_error_of(error_code, message) if error_code else None)

        self._persister.write_state(
            self.key,
            batches,
            answered,
            state_epoch=self._state_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=self.records.start_offset,
            delivery_complete_count=self.records.delivery_complete_count,
        )

    def __repr__(self) -> str:
        return f"<share partition {self.key.group_id}, {self.topic_partition}, {self.state.value}>"


def _check_owner(state: InFlightState, member_id: str, what: str) -> None:
    """Check that a member may acknowledge a ``what``: a batch or an offset.

    Raises:
        InvalidRecordStateError: the records are not acquired, by another member, or just being acknowledged.
    """
    if state.state is not RecordState.ACQUIRED:
        raise errors.InvalidRecordStateError(f"The {what} cannot be acknowledged. The {what} is not acquired.")
    if state.pending is not None:
        raise errors.InvalidRecordStateError(
            f"The {what} cannot be acknowledged. Another acknowledgement is being written."
        )
    if state.member_id != member_id:
        raise errors.InvalidRecordStateError(f"Member is not the owner of the {what}.")


def _error_of(error_code: int, message: str) -> errors.BrokerError:
    """Return the error of the share coordinator as a consumer knows it."""
    return _STATE_ERRORS.get(error_code, errors.UnknownServerError)(message)
