"""The producers of a partition and their open transactions (Java: ProducerStateManager, ProducerAppendInfo)."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pykclient.errors import (
    ConcurrentTransactionsError,
    IllegalStateError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from pykclient.record.control_record import ControlRecordType, EndTransactionMarker
from pykclient.record.memory_records import AnyRecordBatch
from pykclient.record.record_batch import (
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    decrement_sequence,
    increment_sequence,
)
from pykclient.testing.log.log_types import AppendOrigin

#: This is why a producer may have five requests in flight and no more.
NUM_BATCHES_TO_RETAIN: Final = 5

#: Where a producer's epochs end.
_MAX_EPOCH: Final = (1 << 15) - 1

#: The generation of transactions in which each has its own producer epoch (KIP-890).
_FIRST_VERSION_WITH_EPOCHS: Final = 2


@dataclass(slots=True, eq=False)
class VerificationState:
    """A request to the coordinator: does the producer's transaction have this partition?

    The object is its own token until the answer is used: an append must present the one that the partition has (Java:
    VerificationGuard, VerificationStateEntry; KIP-890). ``lowest_sequence`` is the first sequence number that the
    producer wants to write, ``timestamp_ms`` the wall-clock time. Thread: loop.
    """

    timestamp_ms: int
    epoch: int
    lowest_sequence: int

    def update(self, epoch: int, sequence: int) -> None:
        """Add another batch that waits for the answer."""
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


class BatchMetadata(NamedTuple):
    """A batch that was appended."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return decrement_sequence(self.last_sequence, self.offset_delta)

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class CompletedTxn(NamedTuple):
    """A transaction that ended with the marker at ``last_offset``."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


@dataclass(slots=True, eq=False)
class ProducerStateEntry:
    """The epoch, last batches and open transaction of a producer. Thread: loop."""

    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = -1
    last_timestamp: int = NO_TIMESTAMP
    current_txn_first_offset: int | None = None
    batches: deque[BatchMetadata] = field(default_factory=lambda: deque(maxlen=NUM_BATCHES_TO_RETAIN))

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def without_batches(self) -> ProducerStateEntry:
        """Return a copy without batches, which collects those of an append."""
        return ProducerStateEntry(
            self.producer_id,
            self.producer_epoch,
            self.coordinator_epoch,
            self.last_timestamp,
            self.current_txn_first_offset,
        )

    def snapshot(self) -> ProducerStateEntry:
        """Return a copy for the disk, which has only the last batch."""
        copy = self.without_batches()
        if self.batches:
            copy.batches.append(self.batches[-1])
        return copy

    def add_batch(self, producer_epoch: int, batch: BatchMetadata) -> None:
        self.maybe_update_producer_epoch(producer_epoch)
        self.batches.append(batch)
        self.last_timestamp = batch.timestamp

    def maybe_update_producer_epoch(self, producer_epoch: int) -> None:
        """Store a new epoch, in which sequence numbers start again."""
        if self.producer_epoch != producer_epoch:
            self.batches.clear()
            self.producer_epoch = producer_epoch

    def update(self, later: ProducerStateEntry) -> None:
        """Take over the result of an append."""
        self.maybe_update_producer_epoch(later.producer_epoch)
        self.batches.extend(later.batches)
        self.coordinator_epoch = later.coordinator_epoch
        self.current_txn_first_offset = later.current_txn_first_offset
        self.last_timestamp = later.last_timestamp

    def find_duplicate_batch(self, batch: AnyRecordBatch) -> BatchMetadata | None:
        """Return the remembered batch with the same sequence numbers, if ``batch`` was appended before."""
        if batch.producer_epoch != self.producer_epoch:
            return None
        first, last = batch.base_sequence, batch.last_sequence
        return next((it for it in self.batches if it.last_sequence == last and it.first_sequence == first), None)


@dataclass(slots=True)
class ProducerAppendInfo:
    """The effect of one append on one producer. Nothing changes before the whole append is validated.

    ``verification`` is the pending check of the producer's transaction, if there is one. ``transaction_version`` is
    the generation of transactions that a marker belongs to. Thread: loop.
    """

    partition: str
    current: ProducerStateEntry
    origin: str
    verification: VerificationState | None
    transaction_version: int
    #: The producer after the append, with the batches of the append only.
    updated_entry: ProducerStateEntry
    #: The first offsets of transactions that the append begins.
    started_transactions: list[int] = field(default_factory=list)

    def append(self, batch: AnyRecordBatch) -> CompletedTxn | None:
        """Check a batch with its offsets and record its effects; return the transaction that it ends, if any.

        Raises:
            InvalidProducerEpochError: the epoch is older than one seen before.
            OutOfOrderSequenceError: records before it are missing.
            InvalidTxnStateError: it does not belong to the producer's open transaction.
            TransactionCoordinatorFencedError: the marker is from a former coordinator.
        """
        if not batch.is_control_batch:
            self._append_data_batch(batch)
            return None
        record = batch.first_record()
        if record is None:
            # The transaction's records are gone, and compaction has removed the marker.
            return None
        marker = EndTransactionMarker.deserialize(record)
        return self._append_end_txn_marker(marker, batch.producer_epoch, batch.base_offset, record.timestamp)

    def _append_data_batch(self, batch: AnyRecordBatch) -> None:
        epoch, first_offset, last_offset = batch.producer_epoch, batch.base_offset, batch.last_offset
        self._check_producer_epoch(epoch, first_offset)
        if self.origin == AppendOrigin.CLIENT:
            self._check_sequence(epoch, batch.base_sequence, first_offset)
        entry = self.updated_entry
        entry.add_batch(
            epoch, BatchMetadata(batch.last_sequence, last_offset, last_offset - first_offset, batch.max_timestamp)
        )
        if batch.is_transactional:
            if entry.current_txn_first_offset is None:
                entry.current_txn_first_offset = first_offset
                self.started_transactions.append(first_offset)
        elif entry.current_txn_first_offset is not None:
            raise InvalidTxnStateError(
                f"producer {entry.producer_id} has a transaction open in {self.partition}, but its batch for offset "
                f"{first_offset} is not part of one"
            )

    def _check_producer_epoch(self, epoch: int, offset: int) -> None:
        entry = self.updated_entry
        # Followers accept whatever the leader has written.
        if epoch < entry.producer_epoch and self.origin != AppendOrigin.REPLICATION:
            raise InvalidProducerEpochError(
                f"epoch {epoch} of producer {entry.producer_id} at offset {offset} in {self.partition} is before "
                f"{entry.producer_epoch}, the last one seen"
            )

    def _check_marker_epoch(self, epoch: int, offset: int) -> None:
        """Check that a marker is not of an earlier transaction.

        Since transactions have their own epochs, a marker has a higher one than the records it ends. The same epoch is
        a repeated marker, or there are no higher ones.
        """
        entry = self.updated_entry
        self._check_producer_epoch(epoch, offset)
        if (
            self.transaction_version >= _FIRST_VERSION_WITH_EPOCHS
            and self.origin != AppendOrigin.REPLICATION
            and epoch == entry.producer_epoch
            and entry.current_txn_first_offset is not None
            and epoch != _MAX_EPOCH
        ):
            raise InvalidProducerEpochError(
                f"the marker for producer {entry.producer_id} at offset {offset} in {self.partition} has the epoch of "
                f"its open transaction, {epoch}, so it is of an earlier one"
            )

    def _check_sequence(self, epoch: int, first_sequence: int, offset: int) -> None:
        updated, current = self.updated_entry, self.current
        verification = self.verification
        if verification is not None and first_sequence > verification.lowest_sequence:
            raise OutOfOrderSequenceError(
                f"producer {updated.producer_id} sends sequence {first_sequence} at offset {offset} in "
                f"{self.partition}, but {verification.lowest_sequence} comes first"
            )
        if epoch != updated.producer_epoch:
            if first_sequence != 0 and updated.producer_epoch != NO_PRODUCER_EPOCH:
                raise OutOfOrderSequenceError(
                    f"producer {updated.producer_id} begins epoch {epoch} with sequence {first_sequence} instead of 0 "
                    f"at offset {offset} in {self.partition} (epoch before: {updated.producer_epoch})"
                )
            return
        if current.producer_epoch == NO_PRODUCER_EPOCH:
            # The producer is unknown, perhaps because its records were deleted: accept any sequence number (KIP-360).
            return
        if updated.batches:
            last = updated.last_sequence
        else:
            last = current.last_sequence if epoch == current.producer_epoch else NO_SEQUENCE
        expected = 0 if last == NO_SEQUENCE else increment_sequence(last, 1)
        if first_sequence != expected:
            raise OutOfOrderSequenceError(
                f"producer {updated.producer_id} sends sequence {first_sequence} after {last} at offset {offset} in "
                f"{self.partition}"
            )

    def _append_end_txn_marker(
        self, marker: EndTransactionMarker, epoch: int, offset: int, timestamp: int
    ) -> CompletedTxn | None:
        entry = self.updated_entry
        self._check_marker_epoch(epoch, offset)
        if entry.coordinator_epoch > marker.coordinator_epoch and self.origin != AppendOrigin.REPLICATION:
            raise TransactionCoordinatorFencedError(
                f"the marker for producer {entry.producer_id} at offset {offset} in {self.partition} is of "
                f"coordinator epoch {marker.coordinator_epoch}, before {entry.coordinator_epoch}"
            )
        first_offset = entry.current_txn_first_offset
        entry.maybe_update_producer_epoch(epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.current_txn_first_offset = None
        entry.last_timestamp = timestamp
        if first_offset is None:
            return None
        is_aborted = marker.control_type is ControlRecordType.ABORT
        return CompletedTxn(entry.producer_id, first_offset, offset, is_aborted)


#: The state of the producers at an offset, as stored on the disk.
Snapshots = dict[int, list[ProducerStateEntry]]


@dataclass(slots=True)
class ProducerUpdates:
    """The effect of an append on all its producers, before it takes place. Thread: loop."""

    by_producer: dict[int, ProducerAppendInfo] = field(default_factory=dict)
    completed_txns: list[CompletedTxn] = field(default_factory=list)
    #: The position of the append in the log, if it was appended before.
    duplicate: BatchMetadata | None = None


@dataclass(eq=False, repr=False)
class ProducerStateManager:
    """The producers of a partition by id, up to the log's end.

    ``snapshots`` are stored on the disk by offset; later changes are replayed from the log. The last stable offset is
    the first offset of the oldest transaction that is open, or whose marker is not yet below the high watermark.
    It begins empty; ``truncate_and_reload`` fills it. Thread: loop.
    """

    _partition: str
    _snapshots: Snapshots
    _producer_id_expiration_ms: int
    #: True if a coordinator must agree before the first records of a transaction are appended.
    verifies_transactions: bool = False
    _verifications: dict[int, VerificationState] = field(default_factory=dict)
    producers: dict[int, ProducerStateEntry] = field(default_factory=dict)
    # Transactions by first offset: the open ones, sorted, and the ends of those above the high watermark.
    _ongoing: list[tuple[int, int]] = field(default_factory=list)
    _unreplicated: dict[int, int] = field(default_factory=dict)
    map_end_offset: int = 0
    _last_snapshot_offset: int = 0
    #: The end offset of the loaded snapshot. Of batches before it, only the last one of each producer is known.
    loaded_offset: int = 0

    # --- appends -----------------------------------------------------------------------------------------------------

    def prepare_update(
        self,
        batches: Iterable[AnyRecordBatch],
        origin: str,
        verification: VerificationState | None = None,
        transaction_version: int = 0,
    ) -> ProducerUpdates:
        """Check an append's batches, which have their offsets. The check ends at a batch that was appended before.

        ``verification`` is what ``start_verification`` returned for the batch, if the coordinator agreed.
        ``transaction_version`` is the generation of transactions that a marker belongs to.

        Raises:
            InvalidTxnStateError: the batch is part of a transaction that does not have the partition.
            BrokerError: see ``ProducerAppendInfo.append``.
        """
        updates = ProducerUpdates()
        by_producer = updates.by_producer
        for batch in batches:
            if not batch.has_producer_id:
                continue
            producer_id = batch.producer_id
            current = self.producers.get(producer_id)
            if origin == AppendOrigin.CLIENT and current is not None:
                updates.duplicate = current.find_duplicate_batch(batch)
                if updates.duplicate is not None:
                    return updates
            if batch.is_transactional and origin != AppendOrigin.REPLICATION and not batch.is_control_batch:
                self._check_verification(producer_id, batch.producer_epoch, verification)
            info = by_producer.get(producer_id)
            if info is None:
                before = current or ProducerStateEntry(producer_id)
                info = ProducerAppendInfo(
                    self._partition,
                    before,
                    origin,
                    self._verifications.get(producer_id),
                    transaction_version,
                    before.without_batches(),
                )
                by_producer[producer_id] = info
            completed = info.append(batch)
            if completed is not None:
                updates.completed_txns.append(completed)
        return updates

    def update(self, updates: ProducerUpdates) -> None:
        """Take over the prepared updates, once they are in the log. ``complete_txn`` must follow."""
        for producer_id, info in updates.by_producer.items():
            # The transaction is open now, or over.
            self._verifications.pop(producer_id, None)
            known = self.producers.get(producer_id)
            if known is None:
                self.producers[producer_id] = info.updated_entry
            else:
                known.update(info.updated_entry)
            for first_offset in info.started_transactions:
                insort(self._ongoing, (first_offset, producer_id))

    # --- verification ------------------------------------------------------------------------------------------------

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Return whether the producer has a transaction open here in this epoch."""
        entry = self.producers.get(producer_id)
        return (
            entry is not None and entry.current_txn_first_offset is not None and entry.producer_epoch == producer_epoch
        )

    def start_verification(
        self, producer_id: int, producer_epoch: int, sequence: int, now_ms: int, *, bumps_epoch: bool = False
    ) -> VerificationState | None:
        """Return a token for the first records of a transaction, or None if they need none.

        The coordinator must agree before they are appended. ``now_ms`` is the wall-clock time. With ``bumps_epoch``,
        each transaction has an epoch of its own.

        Raises:
            ConcurrentTransactionsError: the marker of the producer's last transaction has yet to arrive. It would end
                the token (KAFKA-18575).
        """
        if not self.verifies_transactions or self.has_ongoing_transaction(producer_id, producer_epoch):
            return None
        entry = self.producers.get(producer_id)
        if (
            bumps_epoch
            and entry is not None
            and entry.current_txn_first_offset is not None
            and entry.producer_epoch < producer_epoch
        ):
            raise ConcurrentTransactionsError
        state = self._verifications.get(producer_id)
        if state is None:
            state = self._verifications[producer_id] = VerificationState(now_ms, producer_epoch, sequence)
        else:
            state.update(producer_epoch, sequence)
        return state

    def _check_verification(
        self, producer_id: int, producer_epoch: int, verification: VerificationState | None
    ) -> None:
        if not self.verifies_transactions or self.has_ongoing_transaction(producer_id, producer_epoch):
            return
        if verification is None or self._verifications.get(producer_id) is not verification:
            raise InvalidTxnStateError(
                f"the records of producer {producer_id} for {self._partition} are not part of an ongoing transaction"
            )

    def complete_txn(self, completed: CompletedTxn) -> None:
        """End a transaction. It counts as open until its marker is replicated."""
        key = (completed.first_offset, completed.producer_id)
        index = bisect_left(self._ongoing, key)
        if index == len(self._ongoing) or self._ongoing[index] != key:
            raise IllegalStateError(f"{completed} has ended in {self._partition} without having begun")
        del self._ongoing[index]
        self._unreplicated[completed.first_offset] = completed.last_offset

    def last_stable_offset(self, completed: CompletedTxn) -> int:
        """Return the last stable offset after ``completed`` ends."""
        for first_offset, producer_id in self._ongoing:
            if producer_id != completed.producer_id:
                return first_offset
        return completed.last_offset + 1

    def remove_expired_producers(self, now_ms: int) -> None:
        """Forget producers without an open transaction that have not written for ``producer.id.expiration.ms``."""
        for producer_id in [id for id, entry in self.producers.items() if self._is_expired(entry, now_ms)]:
            del self.producers[producer_id]
        oldest_ms = now_ms - self._producer_id_expiration_ms
        for producer_id in [id for id, state in self._verifications.items() if state.timestamp_ms <= oldest_ms]:
            del self._verifications[producer_id]

    def _is_expired(self, entry: ProducerStateEntry, now_ms: int) -> bool:
        idle_ms = now_ms - entry.last_timestamp
        return entry.current_txn_first_offset is None and idle_ms >= self._producer_id_expiration_ms

    # --- stability ---------------------------------------------------------------------------------------------------

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest transaction that is open or not replicated yet."""
        ongoing = self._ongoing[0][0] if self._ongoing else None
        if not self._unreplicated:
            return ongoing
        unreplicated = min(self._unreplicated)
        return unreplicated if ongoing is None else min(ongoing, unreplicated)

    def on_log_start_offset_incremented(self, log_start_offset: int) -> None:
        self.remove_replicated(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)

    def remove_replicated(self, offset: int) -> None:
        """Forget ended transactions whose markers are below ``offset``, and so replicated or deleted."""
        if self._unreplicated:
            self._unreplicated = {first: last for first, last in self._unreplicated.items() if last >= offset}

    # --- the disk ----------------------------------------------------------------------------------------------------

    def take_snapshot(self) -> None:
        """Store the producers' current state, unless it is already stored."""
        if self.map_end_offset > self._last_snapshot_offset:
            self._snapshots[self.map_end_offset] = [entry.snapshot() for entry in self.producers.values()]
            self._last_snapshot_offset = self.map_end_offset

    def delete_snapshot(self, offset: int) -> None:
        """Delete the snapshot of a segment that was removed."""
        self._snapshots.pop(offset, None)

    def remove_stray_snapshots(self, segment_base_offsets: Iterable[int]) -> None:
        """Delete snapshots at offsets where no segment begins, except the last one.

        Earlier starts and truncations leave them.
        """
        wanted = {*segment_base_offsets, max(self._snapshots, default=0)}
        for offset in [offset for offset in self._snapshots if offset not in wanted]:
            del self._snapshots[offset]

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Restore the last snapshot inside the log. ``map_end_offset`` is then where replaying must start."""
        for offset in [o for o in self._snapshots if o > log_end_offset or o <= log_start_offset]:
            del self._snapshots[offset]
        if log_end_offset == self.map_end_offset:
            self.on_log_start_offset_incremented(log_start_offset)
            return
        self._clear()
        latest = max(self._snapshots, default=None)
        if latest is not None:
            for kept in self._snapshots[latest]:
                if not self._is_expired(kept, now_ms):
                    self._load(kept.snapshot())
        self.loaded_offset = latest or 0
        self._last_snapshot_offset = self.map_end_offset = log_start_offset if latest is None else latest

    def _load(self, entry: ProducerStateEntry) -> None:
        self.producers[entry.producer_id] = entry
        if entry.current_txn_first_offset is not None:
            insort(self._ongoing, (entry.current_txn_first_offset, entry.producer_id))

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self._clear()
        self._snapshots.clear()
        self._last_snapshot_offset = self.loaded_offset = 0
        self.map_end_offset = offset

    def _clear(self) -> None:
        self.producers.clear()
        self._ongoing.clear()
        self._unreplicated.clear()

    @property
    def is_empty(self) -> bool:
        return not self.producers and not self._unreplicated
