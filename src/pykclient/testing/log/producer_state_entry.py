"""A partition's state of one producer (Java: ProducerStateEntry, ProducerAppendInfo, BatchMetadata)."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from pykclient.errors import (
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


class VerificationState:
    """A question to the coordinator: does the producer's transaction have this partition?

    The object is its own token until the answer is used: an append must present the one that the partition has (Java:
    VerificationGuard, VerificationStateEntry; KIP-890). ``lowest_sequence`` is the first sequence number that the
    producer wants to write, ``timestamp_ms`` the wall-clock time. Thread: loop.
    """

    __slots__ = ("epoch", "lowest_sequence", "timestamp_ms")

    def __init__(self, timestamp_ms: int, epoch: int, sequence: int) -> None:
        self.timestamp_ms = timestamp_ms
        self.epoch = epoch
        self.lowest_sequence = sequence

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


class ProducerStateEntry:
    """The epoch, last batches and open transaction of a producer. Thread: loop."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
    )

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        coordinator_epoch: int = -1,
        last_timestamp: int = NO_TIMESTAMP,
        current_txn_first_offset: int | None = None,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.current_txn_first_offset = current_txn_first_offset
        self.batches: deque[BatchMetadata] = deque(maxlen=NUM_BATCHES_TO_RETAIN)

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
        for known in self.batches:
            if known.last_sequence == last and known.first_sequence == first:
                return known
        return None

    def __repr__(self) -> str:
        return (
            f"ProducerStateEntry(id={self.producer_id}, epoch={self.producer_epoch}, "
            f"coordinator_epoch={self.coordinator_epoch}, txn_first_offset={self.current_txn_first_offset}, "
            f"batches={list(self.batches)})"
        )


class ProducerAppendInfo:
    """The effect of one append on one producer. Nothing changes before the whole append is validated.

    Thread: loop.
    """

    __slots__ = (
        "_current",
        "_origin",
        "_partition",
        "_transaction_version",
        "_verification",
        "started_transactions",
        "updated_entry",
    )

    def __init__(
        self,
        partition: str,
        current: ProducerStateEntry,
        origin: str,
        verification: VerificationState | None = None,
        transaction_version: int = 0,
    ) -> None:
        """Prepare the check of an append.

        ``verification`` is the pending check of the producer's transaction, if there is one. ``transaction_version`` is
        the generation of transactions that a marker belongs to.
        """
        self._partition = partition
        self._current = current
        self._origin = origin
        self._verification = verification
        self._transaction_version = transaction_version
        self.updated_entry = current.without_batches()
        #: The first offsets of transactions that the append begins.
        self.started_transactions: list[int] = []

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
        if self._origin == AppendOrigin.CLIENT:
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
                f"producer {entry.producer_id} has a transaction open in {self._partition}, but its batch for offset "
                f"{first_offset} is not part of one"
            )

    def _check_producer_epoch(self, epoch: int, offset: int) -> None:
        entry = self.updated_entry
        # Followers accept whatever the leader has written.
        if epoch < entry.producer_epoch and self._origin != AppendOrigin.REPLICATION:
            raise InvalidProducerEpochError(
                f"epoch {epoch} of producer {entry.producer_id} at offset {offset} in {self._partition} is before "
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
            self._transaction_version >= _FIRST_VERSION_WITH_EPOCHS
            and self._origin != AppendOrigin.REPLICATION
            and epoch == entry.producer_epoch
            and entry.current_txn_first_offset is not None
            and epoch != _MAX_EPOCH
        ):
            raise InvalidProducerEpochError(
                f"the marker for producer {entry.producer_id} at offset {offset} in {self._partition} has the epoch of "
                f"its open transaction, {epoch}, so it is of an earlier one"
            )

    def _check_sequence(self, epoch: int, first_sequence: int, offset: int) -> None:
        updated, current = self.updated_entry, self._current
        verification = self._verification
        if verification is not None and first_sequence > verification.lowest_sequence:
            raise OutOfOrderSequenceError(
                f"producer {updated.producer_id} sends sequence {first_sequence} at offset {offset} in "
                f"{self._partition}, but {verification.lowest_sequence} comes first"
            )
        if epoch != updated.producer_epoch:
            if first_sequence != 0 and updated.producer_epoch != NO_PRODUCER_EPOCH:
                raise OutOfOrderSequenceError(
                    f"producer {updated.producer_id} begins epoch {epoch} with sequence {first_sequence} instead of 0 "
                    f"at offset {offset} in {self._partition} (epoch before: {updated.producer_epoch})"
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
                f"{self._partition}"
            )

    def _append_end_txn_marker(
        self, marker: EndTransactionMarker, epoch: int, offset: int, timestamp: int
    ) -> CompletedTxn | None:
        entry = self.updated_entry
        self._check_marker_epoch(epoch, offset)
        if entry.coordinator_epoch > marker.coordinator_epoch and self._origin != AppendOrigin.REPLICATION:
            raise TransactionCoordinatorFencedError(
                f"the marker for producer {entry.producer_id} at offset {offset} in {self._partition} is of "
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
