"""The producers of a partition and their open transactions (Java: ProducerStateManager)."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

from pykclient.errors import ConcurrentTransactionsError, IllegalStateError, InvalidTxnStateError
from pykclient.record.memory_records import AnyRecordBatch
from pykclient.testing.log.log_types import AppendOrigin
from pykclient.testing.log.producer_state_entry import (
    BatchMetadata,
    CompletedTxn,
    ProducerAppendInfo,
    ProducerStateEntry,
    VerificationState,
)

#: The state of the producers at an offset, as stored on the disk.
Snapshots = dict[int, list[ProducerStateEntry]]


class ProducerUpdates:
    """The effect of an append on all its producers, before it takes place. Thread: loop."""

    __slots__ = ("by_producer", "completed_txns", "duplicate")

    def __init__(self) -> None:
        self.by_producer: dict[int, ProducerAppendInfo] = {}
        self.completed_txns: list[CompletedTxn] = []
        #: The position of the append in the log, if it was appended before.
        self.duplicate: BatchMetadata | None = None


class ProducerStateManager:
    """The producers of a partition by id, up to the log's end.

    ``snapshots`` are stored on the disk by offset; later changes are replayed from the log. The last stable offset is
    the first offset of the oldest transaction that is open, or whose marker is not yet below the high watermark.
    Thread: loop.
    """

    __slots__ = (
        "_last_snapshot_offset",
        "_ongoing",
        "_partition",
        "_producer_id_expiration_ms",
        "_snapshots",
        "_unreplicated",
        "_verifications",
        "loaded_offset",
        "map_end_offset",
        "producers",
        "verifies_transactions",
    )

    def __init__(
        self,
        partition: str,
        snapshots: Snapshots,
        producer_id_expiration_ms: int,
        *,
        verifies_transactions: bool = False,
    ) -> None:
        """Start empty; ``truncate_and_reload`` fills it.

        With ``verifies_transactions``, the first records of a transaction need a ``VerificationState``.
        """
        self._partition = partition
        #: True if a coordinator must agree before the first records of a transaction are appended.
        self.verifies_transactions = verifies_transactions
        self._verifications: dict[int, VerificationState] = {}
        self._snapshots = snapshots
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self.producers: dict[int, ProducerStateEntry] = {}
        # Transactions by first offset: the open ones, sorted, and the ends of those above the high watermark.
        self._ongoing: list[tuple[int, int]] = []
        self._unreplicated: dict[int, int] = {}
        self.map_end_offset = 0
        self._last_snapshot_offset = 0
        #: The end offset of the loaded snapshot. Of batches before it, only the last one of each producer is known.
        self.loaded_offset = 0

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
                info = ProducerAppendInfo(
                    self._partition,
                    current or ProducerStateEntry(producer_id),
                    origin,
                    self._verifications.get(producer_id),
                    transaction_version,
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

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        self._remove_unreplicated(high_watermark)

    def on_log_start_offset_incremented(self, log_start_offset: int) -> None:
        self._remove_unreplicated(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)

    def _remove_unreplicated(self, offset: int) -> None:
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
