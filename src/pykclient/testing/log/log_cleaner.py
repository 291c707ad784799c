"""Compaction, which keeps the last record of each key (Java: LogCleaner, LogCleanerManager, MemoryRecords.filterTo)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pykclient.record.compression import Compression
from pykclient.record.control_record import ControlRecordType
from pykclient.record.memory_records import AnyRecordBatch
from pykclient.record.memory_records_builder import MemoryRecordsBuilder, write_empty_header
from pykclient.record.record_batch import MAGIC_VALUE_V2, MAX_INT32, NO_TIMESTAMP, Buffer, Record
from pykclient.testing.log.log_segment import LogSegment
from pykclient.testing.log.log_types import AbortedTxn
from pykclient.testing.log.unified_log import UnifiedLog
from pykclient.types import CREATE_TIME, LOG_APPEND_TIME


class LogToClean(NamedTuple):
    """A candidate for compaction: the log has not been compacted from ``first_dirty_offset`` on.

    ``needs_compaction_now`` is True if a record has waited for ``max.compaction.lag.ms``, however few records there
    are.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    needs_compaction_now: bool

    @property
    def cleanable_ratio(self) -> float:
        """The share of bytes that are not compacted yet."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0


def log_to_clean(log: UnifiedLog, now_ms: int) -> LogToClean:
    """Return the part of a log that may be compacted.

    The active segment is excluded, and so are records that are unstable, not replicated, or too new.
    """
    config = log.config
    inactive = log.segments[:-1]
    first_dirty = max(log.cleaner_checkpoint, log.log_start_offset)
    dirty = [segment for segment in inactive if segment.next_offset > first_dirty]
    bound = min(log.last_stable_offset, log.segments[-1].base_offset)
    if config.compaction_lag_ms > 0:
        for segment in dirty:
            if segment.largest_timestamp > now_ms - config.compaction_lag_ms:
                bound = min(bound, segment.base_offset)
                break
    # Only whole segments are compacted.
    cleanable = [segment for segment in inactive if _end_of(segment, log) <= bound]
    first_uncleanable = _end_of(cleanable[-1], log) if cleanable else log.segments[0].base_offset
    firsts = [segment.first_batch_timestamp for segment in dirty if segment.first_batch_timestamp > 0]
    overdue = bool(firsts) and min(firsts) < now_ms - config.max_compaction_lag_ms
    return LogToClean(
        min(first_dirty, first_uncleanable),
        first_uncleanable,
        sum(segment.size for segment in cleanable if segment.next_offset <= first_dirty),
        sum(segment.size for segment in cleanable if segment.next_offset > first_dirty),
        overdue and bool(cleanable),
    )


def clean(log: UnifiedLog, now_ms: int) -> int:
    """Compact a log now; return the number of freed bytes.

    The active segment is not compacted (``UnifiedLog.roll`` starts another).
    """
    to_clean = log_to_clean(log, now_ms)
    before = log.size
    if to_clean.first_uncleanable_offset > log.segments[0].base_offset:
        log.cleaner_checkpoint = Cleaner(log, now_ms).clean(to_clean)
    return before - log.size


def _end_of(segment: LogSegment, log: UnifiedLog) -> int:
    """Return the base offset of the next segment."""
    return log.segments[log.segments.index(segment) + 1].base_offset


class Cleaner:
    """One compaction of one log.

    Tombstones, and markers of transactions without records, are kept for ``delete.retention.ms`` after the first
    compaction that sees them (KIP-534). Thread: loop.
    """

    def __init__(self, log: UnifiedLog, now_ms: int) -> None:
        self._log = log
        self._config = log.config
        self._now_ms = now_ms
        self._bound = 0
        self._offset_map: dict[bytes, int] = {}
        # The last batch of each producer stays, at least its header, so that its sequence number survives a restart.
        self._last_offsets = {
            producer_id: (entry.batches[-1].last_offset if entry.batches else None, entry.producer_epoch)
            for producer_id, entry in log.producer_state.producers.items()
        }

    def clean(self, to_clean: LogToClean) -> int:
        """Compact all segments below ``first_uncleanable_offset``.

        Return the offset up to which the log is compacted.
        """
        self._bound = to_clean.first_uncleanable_offset
        self._build_offset_map(to_clean.first_dirty_offset)
        segments = [segment for segment in self._log.segments if segment.base_offset < self._bound]
        transactions = CleanedTransactionMetadata(self._log.collect_aborted_txns(0, self._bound))
        for first, group in enumerate(self._group_by_size(segments)):
            cleaned = LogSegment(group[0].base_offset, self._now_ms)
            for segment in group:
                self._clean_into(segment, cleaned, transactions)
            cleaned.last_modified_ms = group[-1].last_modified_ms
            cleaned.txn_index = transactions.take_cleaned()
            self._log.replace_segments(first, len(group), cleaned)
        return self._bound

    def _build_offset_map(self, first_dirty_offset: int) -> None:
        transactions = CleanedTransactionMetadata(self._log.collect_aborted_txns(first_dirty_offset, self._bound))
        offsets = self._offset_map
        for batch in self._log.batches(first_dirty_offset, self._bound):
            if batch.is_control_batch:
                transactions.on_control_batch(batch)
            elif not transactions.on_batch(batch):
                for record in batch:
                    if record.key is not None:
                        offsets[record.key] = record.offset

    def _group_by_size(self, segments: Sequence[LogSegment]) -> list[list[LogSegment]]:
        """Group segments that together fit into one."""
        groups: list[list[LogSegment]] = []
        size = 0
        for segment in segments:
            size += segment.size
            fits = groups and size <= self._config.segment_size
            if fits and segment.next_offset - 1 - groups[-1][0].base_offset <= MAX_INT32:
                groups[-1].append(segment)
            else:
                groups.append([segment])
                size = segment.size
        return groups

    def _clean_into(self, source: LogSegment, target: LogSegment, transactions: CleanedTransactionMetadata) -> None:
        legacy_horizon_ms = source.last_modified_ms + self._config.delete_retention_ms
        for batch in source.batches():
            if batch.is_control_batch:
                obsolete = transactions.on_control_batch(batch)
                horizon_ms = batch.delete_horizon_ms
                discard = obsolete and horizon_ms is not None and horizon_ms <= self._now_ms
            else:
                obsolete = discard = transactions.on_batch(batch)
            retain_empty = batch.next_offset == self._bound or (batch.has_producer_id and self._is_last_of(batch))
            if discard and not retain_empty:
                continue
            retained, all_retained = self._filter(batch, discard, legacy_horizon_ms)
            data: Buffer
            if retained:
                has_tombstones = not batch.is_control_batch and any(record.value is None for record in retained)
                needs_horizon = has_tombstones or (obsolete and batch.is_control_batch)
                if all_retained and not (needs_horizon and batch.delete_horizon_ms is None):
                    data = batch.buffer
                else:
                    data = self._rebuild(batch, retained, needs_horizon)
                last_offset = batch.last_offset if batch.magic >= MAGIC_VALUE_V2 else retained[-1].offset
            elif retain_empty and batch.magic >= MAGIC_VALUE_V2:
                data = _empty(batch)
                last_offset = batch.last_offset
            else:
                continue
            target.append(data, last_offset, batch.max_timestamp)

    def _is_last_of(self, batch: AnyRecordBatch) -> bool:
        """Return whether this is the last batch of its producer, or the only marker known of it."""
        if batch.producer_id not in self._last_offsets:
            return False
        last_offset, epoch = self._last_offsets[batch.producer_id]
        if last_offset is not None:
            return batch.last_offset == last_offset
        return batch.is_control_batch and batch.producer_epoch == epoch

    def _filter(self, batch: AnyRecordBatch, discard: bool, legacy_horizon_ms: int) -> tuple[list[Record], bool]:
        """Return the records to keep, and whether the batch can stay unchanged."""
        if discard:
            return [], False
        records = list(batch)
        if batch.is_control_batch:
            return records, True
        horizon_ms = batch.delete_horizon_ms
        if batch.magic < MAGIC_VALUE_V2:
            horizon_ms = legacy_horizon_ms
        keep_tombstones = horizon_ms is None or self._now_ms < horizon_ms
        latest, bound = self._offset_map, self._bound
        retained = [
            record
            for record in records
            if record.offset >= bound
            or (
                record.key is not None
                and record.offset >= latest.get(record.key, -1)
                and (record.value is not None or keep_tombstones)
            )
        ]
        return retained, len(retained) == len(records) and batch.magic >= MAGIC_VALUE_V2

    def _rebuild(self, batch: AnyRecordBatch, retained: list[Record], needs_horizon: bool) -> memoryview:
        """Return the batch with only the retained records, at their offsets.

        The batch keeps its first and last offset.
        """
        horizon_ms = batch.delete_horizon_ms
        if horizon_ms is None:
            horizon_ms = self._now_ms + self._config.delete_retention_ms if needs_horizon else NO_TIMESTAMP
        is_current = batch.magic >= MAGIC_VALUE_V2
        is_append_time = batch.timestamp_type == LOG_APPEND_TIME
        builder = MemoryRecordsBuilder(
            compression=Compression.of(batch.compression_type),
            timestamp_type=LOG_APPEND_TIME if is_append_time else CREATE_TIME,
            base_offset=batch.base_offset if is_current else retained[0].offset,
            log_append_time=batch.max_timestamp if is_append_time else NO_TIMESTAMP,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            is_transactional=batch.is_transactional,
            is_control_batch=batch.is_control_batch,
            partition_leader_epoch=batch.partition_leader_epoch,
            delete_horizon_ms=horizon_ms,
        )
        for record in retained:
            if batch.is_control_batch:
                assert record.value is not None
                builder.append_control_record(record.timestamp, ControlRecordType.parse(record.key), record.value)
            else:
                builder.append_with_offset(record.offset, record.timestamp, record.key, record.value, record.headers)
        if is_current:
            builder.override_last_offset(batch.last_offset)
        return builder.build()


def _empty(batch: AnyRecordBatch) -> bytearray:
    """Return the batch without its records."""
    return write_empty_header(
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.base_offset,
        batch.last_offset,
        batch.partition_leader_epoch,
        batch.timestamp_type,
        batch.max_timestamp,
        batch.is_transactional,
        batch.is_control_batch,
    )


class CleanedTransactionMetadata:
    """Tracks which batches belong to aborted transactions, while reading batch after batch. Thread: loop."""

    def __init__(self, aborted: Sequence[AbortedTxn]) -> None:
        # The next one to begin is last.
        self._aborted = sorted(aborted, key=lambda txn: txn.first_offset, reverse=True)
        self._ongoing_aborted: dict[int, tuple[AbortedTxn, bool]] = {}
        self._committed: set[int] = set()
        self._cleaned: list[AbortedTxn] = []

    def take_cleaned(self) -> list[AbortedTxn]:
        """Return the aborted transactions that still have batches, since the last call."""
        cleaned, self._cleaned = self._cleaned, []
        return cleaned

    def on_batch(self, batch: AnyRecordBatch) -> bool:
        """Return whether the batch belongs to an aborted transaction."""
        self._begin_up_to(batch.last_offset)
        if not batch.is_transactional:
            return False
        found = self._ongoing_aborted.get(batch.producer_id)
        if found is None:
            self._committed.add(batch.producer_id)
            return False
        self._ongoing_aborted[batch.producer_id] = (found[0], True)
        return True

    def on_control_batch(self, batch: AnyRecordBatch) -> bool:
        """Return whether the marker can be removed because its transaction has no batches left."""
        self._begin_up_to(batch.last_offset)
        record = batch.first_record()
        if record is None:
            return True
        control_type = ControlRecordType.parse(record.key)
        if control_type is ControlRecordType.COMMIT:
            has_batches = batch.producer_id in self._committed
            self._committed.discard(batch.producer_id)
            return not has_batches
        if control_type is ControlRecordType.ABORT:
            txn, has_batches = self._ongoing_aborted.pop(batch.producer_id, (None, False))
            if txn is not None and has_batches:
                self._cleaned.append(txn)
                return False
            return True
        return False

    def _begin_up_to(self, offset: int) -> None:
        while self._aborted and self._aborted[-1].first_offset <= offset:
            txn = self._aborted.pop()
            self._ongoing_aborted.setdefault(txn.producer_id, (txn, False))
