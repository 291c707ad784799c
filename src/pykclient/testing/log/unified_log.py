"""The log of a partition, and its segments (Java: UnifiedLog, LocalLog, LogSegments)."""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from pykclient.clock import Clock
from pykclient.errors import (
    CorruptRecordError,
    IllegalArgumentError,
    IllegalStateError,
    InconsistentTopicIdError,
    InvalidRecordError,
    OffsetOutOfRangeError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
)
from pykclient.record.compression import NO_COMPRESSION, Compression
from pykclient.record.compression_type import CompressionType
from pykclient.record.memory_records import AnyRecordBatch, MemoryRecords
from pykclient.record.record_batch import MAGIC_VALUE_V2, MAX_INT32, Buffer
from pykclient.testing.log.broker_disk import PartitionDirectory
from pykclient.testing.log.log_config import LogConfig
from pykclient.testing.log.log_segment import LogSegment, RollParams
from pykclient.testing.log.log_types import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    AbortedTxn,
    AppendOrigin,
    FetchDataInfo,
    FetchIsolation,
    LogAppendInfo,
    OffsetAndEpoch,
    OffsetsOutOfOrderError,
    TimestampAndOffset,
    UnexpectedAppendOffsetError,
)
from pykclient.testing.log.log_validator import LogValidator
from pykclient.testing.log.producer_state_manager import (
    CompletedTxn,
    ProducerStateEntry,
    ProducerStateManager,
    VerificationState,
)
from pykclient.types import LOG_APPEND_TIME, TopicPartition


class LocalLog:
    """A sequence of segments, at least one. Appends go to the last, the active segment. Thread: loop."""

    __slots__ = ("_base_offsets", "_clock", "_directory", "log_end_offset", "segments", "size")

    def __init__(self, directory: PartitionDirectory, clock: Clock, log_start_offset: int) -> None:
        self._directory = directory
        self._clock = clock
        #: By base offset. The disk owns the list.
        self.segments = directory.segments
        if not self.segments:
            self.segments.append(LogSegment(log_start_offset, clock.wall_ms()))
        self._base_offsets = [segment.base_offset for segment in self.segments]
        self.log_end_offset = self.segments[-1].next_offset
        self.size = directory.size
        if self.log_end_offset < log_start_offset:
            # Records were deleted up to an offset that a truncation has since removed.
            self.truncate_fully_and_start_at(log_start_offset)

    @property
    def active_segment(self) -> LogSegment:
        return self.segments[-1]

    # --- writing -----------------------------------------------------------------------------------------------------

    def append(self, batches: Iterable[AnyRecordBatch], size: int, *, within_limit: bool = True) -> None:
        """Append copies of batches of ``size`` bytes in total. Their offsets must be beyond the end.

        ``within_limit`` says whether the cluster's memory limit applies.

        Raises:
            KafkaStorageError, PolicyViolationError: there is no room; nothing was appended.
        """
        self._directory.acquire(size, within_limit=within_limit)
        segment = self.segments[-1]
        segment.last_modified_ms = self._clock.wall_ms()
        for batch in batches:
            last_offset = batch.last_offset
            segment.append(batch.buffer, last_offset, batch.max_timestamp)
            self.log_end_offset = last_offset + 1
        self.size += size

    def roll(self, expected_next_offset: int = 0) -> LogSegment:
        """Start a new segment at the log's end, or at ``expected_next_offset`` if that is later.

        Raises:
            IllegalStateError: the active segment begins there or later, and is not empty.
        """
        base_offset = max(expected_next_offset, self.log_end_offset)
        active = self.segments[-1]
        if active.base_offset >= base_offset:
            if active.size or active.base_offset > base_offset:
                raise IllegalStateError(f"no segment can begin at {base_offset} in or before {active}")
            self.segments.pop()
            self._base_offsets.pop()
        segment = LogSegment(base_offset, self._clock.wall_ms())
        self.segments.append(segment)
        self._base_offsets.append(base_offset)
        self.log_end_offset = base_offset
        return segment

    def truncate_to(self, offset: int) -> list[LogSegment]:
        """Remove all records from ``offset`` on; return the segments that were removed entirely.

        ``offset`` must not be before the first segment.
        """
        keep = max(1, bisect_right(self._base_offsets, offset))
        gone = self.segments[keep:]
        self._remove(keep, len(self.segments))
        self._release(self.segments[-1].truncate_to(offset))
        self.log_end_offset = offset
        return gone

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all records; the next one gets ``offset``."""
        self._remove(0, len(self.segments))
        self.segments.append(LogSegment(offset, self._clock.wall_ms()))
        self._base_offsets.append(offset)
        self.log_end_offset = offset

    def remove_first_segments(self, count: int) -> None:
        """Remove the ``count`` oldest segments. At least one must remain."""
        self._remove(0, count)

    def replace_segments(self, first: int, count: int, replacement: Sequence[LogSegment]) -> None:
        """Replace ``count`` segments from index ``first`` on with compacted ones."""
        grown = sum(segment.size for segment in replacement)
        grown -= sum(segment.size for segment in self.segments[first : first + count])
        if grown > 0:
            self._directory.acquire(grown, within_limit=False)
        else:
            self._directory.release(-grown)
        self.size += grown
        self.segments[first : first + count] = replacement
        self._base_offsets[first : first + count] = [segment.base_offset for segment in replacement]

    def _remove(self, start: int, stop: int) -> None:
        self._release(sum(segment.size for segment in self.segments[start:stop]))
        del self.segments[start:stop]
        del self._base_offsets[start:stop]

    def _release(self, size: int) -> None:
        self._directory.release(size)
        self.size -= size

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(
        self, start_offset: int, max_length: int, min_one_message: bool, bound_offset: int, with_aborted: bool
    ) -> FetchDataInfo:
        """Return whole batches of one segment from ``start_offset`` on, all below ``bound_offset``.

        Raises:
            OffsetOutOfRangeError: ``start_offset`` is beyond the end, or before the first segment.
            KafkaStorageError: the disk is offline.
        """
        self._directory.check_readable()
        index = bisect_right(self._base_offsets, start_offset) - 1
        if start_offset > self.log_end_offset or index < 0:
            raise OffsetOutOfRangeError(
                f"offset {start_offset} of {self._directory.topic_partition} is not in the log, which has "
                f"{self._base_offsets[0]} to {self.log_end_offset}"
            )
        if start_offset < bound_offset:
            for segment in self.segments[index:]:
                found = segment.read(start_offset, max_length, bound_offset, min_one_message)
                if found is None:
                    # Compaction has removed the rest of this segment.
                    continue
                aborted = None
                if with_aborted:
                    aborted = self.collect_aborted_txns(start_offset, max(found.next_offset, start_offset))
                return FetchDataInfo(
                    start_offset,
                    found.records,
                    found.size,
                    next_offset=found.next_offset,
                    first_entry_incomplete=found.first_entry_incomplete,
                    aborted_transactions=aborted,
                )
        return FetchDataInfo(start_offset, aborted_transactions=[] if with_aborted else None)

    def collect_aborted_txns(self, fetch_offset: int, bound_offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions with records from ``fetch_offset`` on, below ``bound_offset``."""
        found: list[AbortedTxn] = []
        start = max(0, bisect_right(self._base_offsets, fetch_offset) - 1)
        for segment in self.segments[start:]:
            for txn in segment.txn_index:
                if txn.last_offset >= fetch_offset and txn.first_offset < bound_offset:
                    found.append(txn)
                if txn.last_stable_offset >= bound_offset:
                    return found
        return found

    def batches(self, from_offset: int, to_offset: int) -> Iterator[AnyRecordBatch]:
        """Yield the batches with offsets from ``from_offset`` on, below ``to_offset``."""
        start = max(0, bisect_right(self._base_offsets, from_offset) - 1)
        for segment in self.segments[start:]:
            for batch in segment.batches(from_offset):
                if batch.base_offset >= to_offset:
                    return
                yield batch


_DEFAULT_PRODUCER_ID_EXPIRATION_MS = 86_400_000


class UnifiedLog:
    """All records of a partition on one broker, from ``log_start_offset`` to ``log_end_offset``.

    Consumers see the records below ``high_watermark``, with read_committed those below ``last_stable_offset``. The
    stored bytes equal Kafka's. Leader epochs, segments and producer snapshots belong to the directory, so a reopened
    log continues where it was. Thread: loop.
    """

    __slots__ = (
        "_clock",
        "_directory",
        "_first_unstable_offset",
        "_last_append_time_ms",
        "_local",
        "config",
        "high_watermark",
        "leader_epoch_cache",
        "log_start_offset",
        "producer_state",
        "segment_jitter_ms",
        "topic_partition",
    )

    def __init__(
        self,
        directory: PartitionDirectory,
        config: LogConfig,
        clock: Clock,
        *,
        log_start_offset: int = 0,
        producer_id_expiration_ms: int = _DEFAULT_PRODUCER_ID_EXPIRATION_MS,
        segment_jitter_ms: int = 0,
        verifies_transactions: bool = False,
    ) -> None:
        """Open the directory's log from ``log_start_offset`` on, or start an empty one there.

        With ``verifies_transactions``, the first records of a transaction need a ``VerificationState``.
        """
        self.topic_partition: TopicPartition = directory.topic_partition
        self.config = config
        self.segment_jitter_ms = segment_jitter_ms
        self._directory = directory
        self._clock = clock
        self._local = LocalLog(directory, clock, log_start_offset)
        self._last_append_time_ms = 0
        self.log_start_offset = max(log_start_offset, self._local.segments[0].base_offset)
        self.high_watermark = self.log_start_offset
        self._first_unstable_offset: int | None = None
        self.leader_epoch_cache = directory.leader_epochs
        self.leader_epoch_cache.truncate_from_end(self.log_end_offset)
        self.leader_epoch_cache.truncate_from_start(self.log_start_offset)
        self.producer_state = ProducerStateManager(
            str(self.topic_partition),
            directory.producer_snapshots,
            producer_id_expiration_ms,
            verifies_transactions=verifies_transactions,
        )
        self.producer_state.remove_stray_snapshots(segment.base_offset for segment in self._local.segments)
        self._rebuild_producer_state(self.log_end_offset, reload=True)

    # --- offsets -----------------------------------------------------------------------------------------------------

    @property
    def topic_id(self) -> uuid.UUID | None:
        return self._directory.topic_id

    def assign_topic_id(self, topic_id: uuid.UUID) -> None:
        """Store the id of the log's topic.

        Raises:
            InconsistentTopicIdError: the log belongs to another topic, which had the same name.
        """
        if self._directory.topic_id is None:
            self._directory.topic_id = topic_id
        elif self._directory.topic_id != topic_id:
            raise InconsistentTopicIdError(
                f"the log of {self.topic_partition} belongs to topic {self._directory.topic_id}, not to {topic_id}"
            )

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self._local.log_end_offset

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return self._local.size

    @property
    def segments(self) -> list[LogSegment]:
        """The segments, the active one last. Callers must not change the list."""
        return self._local.segments

    @property
    def last_stable_offset(self) -> int:
        """The first offset of an undecided transaction, or the high watermark if there is none."""
        unstable = self._first_unstable_offset
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    def update_high_watermark(self, high_watermark: int) -> int:
        """Set the high watermark, limited to the log's bounds; return it."""
        self.high_watermark = min(max(high_watermark, self.log_start_offset), self.log_end_offset)
        self.producer_state.on_high_watermark_updated(self.high_watermark)
        self._update_first_unstable_offset()
        return self.high_watermark

    def maybe_increment_high_watermark(self, high_watermark: int) -> int | None:
        """Raise a leader's high watermark; return the previous one, or None if it is not lower.

        Raises:
            IllegalArgumentError: it would be beyond the end of the log.
        """
        if high_watermark > self.log_end_offset:
            raise IllegalArgumentError(
                f"the high watermark of {self.topic_partition} cannot be {high_watermark}, the log ends with "
                f"{self.log_end_offset}"
            )
        before = self.high_watermark
        if high_watermark <= before:
            return None
        self.update_high_watermark(high_watermark)
        return before

    def _update_first_unstable_offset(self) -> None:
        unstable = self.producer_state.first_unstable_offset
        self._first_unstable_offset = None if unstable is None else max(unstable, self.log_start_offset)

    # --- leader epochs -----------------------------------------------------------------------------------------------

    @property
    def latest_epoch(self) -> int | None:
        return self.leader_epoch_cache.latest_epoch

    def maybe_assign_epoch_start_offset(self, leader_epoch: int, start_offset: int) -> None:
        """Start a leader epoch before anything is written in it."""
        self.leader_epoch_cache.assign(leader_epoch, start_offset)

    def end_offset_for_epoch(self, leader_epoch: int) -> OffsetAndEpoch | None:
        """Return the end of the epoch, or of the largest one before it; None if neither is known."""
        found = self.leader_epoch_cache.end_offset_for(leader_epoch, self.log_end_offset)
        return None if found.offset < 0 else found

    # --- appending ---------------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: Buffer,
        leader_epoch: int,
        origin: str = AppendOrigin.CLIENT,
        verification: VerificationState | None = None,
        transaction_version: int = 0,
    ) -> LogAppendInfo:
        """Append records of a producer or a coordinator, with new offsets. ``records`` is copied and not changed.

        ``verification`` is the token of a transaction's first records, see ``start_transaction_verification``.
        ``transaction_version`` is the generation of transactions that a marker belongs to.

        Raises:
            RecordValidationError: single records are rejected.
            BrokerError: the append is rejected: corrupt, too large, out of sequence, fenced, no room ...
        """
        info, _ = self._analyze_and_validate_records(records, origin)
        if not info.valid_bytes:
            return info
        # Ignore the bytes after the last whole batch.
        records = memoryview(records)[: info.valid_bytes]
        config = self.config
        result = LogValidator(
            records,
            self.topic_partition,
            self._append_time_ms(),
            source_compression=info.source_compression,
            target_compression=self._target_compression(info.source_compression),
            compacted_topic=config.compact,
            to_magic=config.message_format_magic,
            timestamp_type=config.message_timestamp_type,
            timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            timestamp_after_max_ms=config.message_timestamp_after_max_ms,
            partition_leader_epoch=leader_epoch,
            origin=origin,
        ).validate_messages_and_assign_offsets(self.log_end_offset)
        info.first_offset = self.log_end_offset
        info.last_offset = result.next_offset - 1
        info.max_timestamp = result.max_timestamp_ms
        info.last_leader_epoch = leader_epoch
        if config.message_timestamp_type == LOG_APPEND_TIME:
            info.log_append_time = result.log_append_time_ms
        batches = list(MemoryRecords(result.records).batches())
        if result.message_size_maybe_changed:
            for batch in batches:
                self._check_size(batch.size_in_bytes)
        self._append(info, batches, len(result.records), origin, verification, transaction_version)
        return info

    def append_as_follower(self, records: Buffer, leader_epoch: int = MAX_INT32) -> LogAppendInfo:
        """Append records as the leader has stored them, up to the first batch with a later epoch than ``leader_epoch``.

        Raises:
            UnexpectedAppendOffsetError: the log already has these offsets.
            OffsetsOutOfOrderError: the offsets do not increase.
            BrokerError: the records are corrupt, or there is no room.
        """
        info, batches = self._analyze_and_validate_records(records, AppendOrigin.REPLICATION, leader_epoch)
        if not batches:
            return info
        if info.first_or_last_offset_of_first_batch < self.log_end_offset:
            first_offset = batches[0].base_offset
            raise UnexpectedAppendOffsetError(
                f"the leader of {self.topic_partition} sent offsets {first_offset} to {info.last_offset}, but the log "
                f"has {self.log_start_offset} to {self.log_end_offset} already",
                first_offset,
                info.last_offset,
            )
        self._append(info, batches, info.valid_bytes, AppendOrigin.REPLICATION)
        return info

    def _append_time_ms(self) -> int:
        """Return the broker's time for an append, which never goes back."""
        self._last_append_time_ms = max(self._last_append_time_ms, self._clock.wall_ms())
        return self._last_append_time_ms

    def _target_compression(self, source: CompressionType) -> Compression:
        config = self.config
        if config.compression_type == "producer":
            return NO_COMPRESSION if source is CompressionType.NONE else Compression.of(source)
        if config.compression_type == "uncompressed":
            return NO_COMPRESSION
        return Compression.of(config.compression_type, config.compression_level)

    def _analyze_and_validate_records(
        self, records: Buffer, origin: str, leader_epoch: int = MAX_INT32
    ) -> tuple[LogAppendInfo, list[AnyRecordBatch]]:
        """Return the facts that need no decoding, and the complete batches."""
        info = LogAppendInfo(self.log_start_offset)
        batches: list[AnyRecordBatch] = []
        is_replication = origin == AppendOrigin.REPLICATION
        for batch in MemoryRecords(records).batches():
            last_offset = batch.last_offset
            if batch.magic >= MAGIC_VALUE_V2:
                if is_replication and batch.partition_leader_epoch > leader_epoch:
                    break
                if origin == AppendOrigin.CLIENT and batch.base_offset != 0:
                    raise InvalidRecordError(
                        f"the offsets of a batch for {self.topic_partition} must begin with 0, not {batch.base_offset}"
                    )
                if not batches:
                    info.first_offset = batch.base_offset
            if not batches:
                info.last_offset_of_first_batch = last_offset
            elif is_replication and last_offset <= info.last_offset:
                raise OffsetsOutOfOrderError(
                    f"offset {last_offset} of {self.topic_partition} follows {info.last_offset}"
                )
            size = batch.size_in_bytes
            if not is_replication:
                self._check_size(size)
            if not batch.is_valid:
                raise CorruptRecordError(f"a batch for {self.topic_partition} is corrupt (stored CRC {batch.checksum})")
            if batch.is_compressed:
                info.source_compression = batch.compression_type
            info.last_offset = last_offset
            info.last_leader_epoch = batch.partition_leader_epoch if batch.partition_leader_epoch >= 0 else None
            info.max_timestamp = max(info.max_timestamp, batch.max_timestamp)
            info.valid_bytes += size
            batches.append(batch)
        return info, batches

    def _check_size(self, size: int) -> None:
        limit = self.config.max_message_size
        if size > limit:
            raise RecordTooLargeError(
                f"a batch of {size} bytes for {self.topic_partition} is larger than max.message.bytes, {limit}"
            )

    def _append(
        self,
        info: LogAppendInfo,
        batches: list[AnyRecordBatch],
        size: int,
        origin: str,
        verification: VerificationState | None = None,
        transaction_version: int = 0,
    ) -> None:
        """Append batches that have their offsets, unless the producer sent them before."""
        for batch in batches:
            if batch.magic >= MAGIC_VALUE_V2:
                self.leader_epoch_cache.assign(batch.partition_leader_epoch, batch.base_offset)
            else:
                # Records without epochs carry no information about them.
                self.leader_epoch_cache.clear()
        config = self.config
        if size > config.segment_size:
            raise RecordBatchTooLargeError(
                f"{size} bytes for {self.topic_partition} are more than a segment may have, {config.segment_size}"
            )
        self._maybe_roll(info, size)
        state = self.producer_state
        updates = state.prepare_update(batches, origin, verification, transaction_version)
        if updates.duplicate is not None:
            info.duplicate = True
            info.first_offset = updates.duplicate.first_offset
            info.last_offset = updates.duplicate.last_offset
            info.log_append_time = updates.duplicate.timestamp
            info.log_start_offset = self.log_start_offset
            return
        self._local.append(batches, size, within_limit=origin == AppendOrigin.CLIENT)
        state.update(updates)
        for completed in updates.completed_txns:
            self._index_aborted(completed)
            state.complete_txn(completed)
        state.map_end_offset = self.log_end_offset
        self._update_first_unstable_offset()

    def _index_aborted(self, completed: CompletedTxn) -> None:
        if completed.is_aborted:
            stable = self.producer_state.last_stable_offset(completed)
            self._local.active_segment.txn_index.append(
                AbortedTxn(completed.producer_id, completed.first_offset, completed.last_offset, stable)
            )

    def _maybe_roll(self, info: LogAppendInfo, size: int) -> None:
        config = self.config
        params = RollParams(size, info.last_offset, info.max_timestamp, self._clock.wall_ms())
        max_segment_ms = config.segment_ms - self.segment_jitter_ms
        if self._local.active_segment.should_roll(config.segment_size, max_segment_ms, params):
            self.roll(info.roll_offset())

    def roll(self, expected_next_offset: int = 0) -> LogSegment:
        """Start a new segment at the end of the log, or at ``expected_next_offset`` if that is later."""
        segment = self._local.roll(expected_next_offset)
        self.producer_state.map_end_offset = segment.base_offset
        self.producer_state.take_snapshot()
        return segment

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(
        self,
        start_offset: int,
        max_length: int,
        isolation: str = FetchIsolation.HIGH_WATERMARK,
        min_one_message: bool = True,
    ) -> FetchDataInfo:
        """Return whole batches from the one with ``start_offset`` on.

        They have at most ``max_length`` bytes in total, and end before the isolation's bound. With ``min_one_message``
        the first batch is returned even if it is larger; otherwise only its beginning.

        Raises:
            OffsetOutOfRangeError: the log does not have the offset.
            KafkaStorageError: the disk is offline.
        """
        if start_offset < self.log_start_offset:
            raise OffsetOutOfRangeError(
                f"offset {start_offset} of {self.topic_partition} is not in the log, which begins with "
                f"{self.log_start_offset}"
            )
        if isolation == FetchIsolation.LOG_END:
            bound = self._local.log_end_offset
        else:
            bound = self.high_watermark if isolation == FetchIsolation.HIGH_WATERMARK else self.last_stable_offset
        with_aborted = isolation == FetchIsolation.TXN_COMMITTED
        return self._local.read(start_offset, max_length, min_one_message, bound, with_aborted)

    def collect_aborted_txns(self, start_offset: int, bound_offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions with records from ``start_offset`` on, below ``bound_offset``."""
        return self._local.collect_aborted_txns(start_offset, bound_offset)

    def fetch_offset_by_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        """Return the first record whose timestamp (ms since the epoch) is ``timestamp`` or later, or None.

        Negative values mean the earliest (-2) or the latest offset (-1), or the record with the largest timestamp (-3).
        Without remote storage, the earliest local offset (-4) is the earliest one, and no offset is tiered (-5) or
        about to be (-6).
        """
        if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            entry = self.leader_epoch_cache.earliest_entry
            epoch = entry.epoch if entry is not None and entry.start_offset <= self.log_start_offset else None
            return TimestampAndOffset(-1, self.log_start_offset, epoch)
        if timestamp == LATEST_TIMESTAMP:
            return TimestampAndOffset(-1, self.log_end_offset, self.latest_epoch)
        if timestamp in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
            return TimestampAndOffset(-1, -1, -1)
        segments = self._local.segments
        if timestamp == MAX_TIMESTAMP:
            return max(segments, key=lambda segment: segment.max_timestamp).offset_of_max_timestamp()
        for segment in segments:
            if segment.size and segment.largest_timestamp >= timestamp:
                return segment.find_offset_by_timestamp(timestamp, self.log_start_offset)
        return None

    def legacy_fetch_offsets_before(self, timestamp: int, max_num_offsets: int) -> list[int]:
        """Return base offsets of segments older than ``timestamp``, latest first (ListOffsets v0)."""
        segments = self._local.segments
        times = [(max(segment.base_offset, self.log_start_offset), segment.last_modified_ms) for segment in segments]
        if segments[-1].size:
            times.append((self.log_end_offset, self._clock.wall_ms()))
        if timestamp == EARLIEST_TIMESTAMP:
            times = times[:1]
        elif timestamp != LATEST_TIMESTAMP:
            while times and times[-1][1] > timestamp:
                times.pop()
        return sorted((offset for offset, _ in times[::-1][:max_num_offsets]), reverse=True)

    # --- what goes ---------------------------------------------------------------------------------------------------

    def maybe_increment_log_start_offset(self, log_start_offset: int) -> bool:
        """Raise the log's start offset; return whether it changed.

        Raises:
            OffsetOutOfRangeError: it would be above the high watermark.
        """
        if log_start_offset > self.high_watermark:
            raise OffsetOutOfRangeError(
                f"{self.topic_partition} cannot begin with {log_start_offset}, its high watermark is "
                f"{self.high_watermark}"
            )
        if log_start_offset <= self.log_start_offset:
            return False
        self.log_start_offset = log_start_offset
        self.leader_epoch_cache.truncate_from_start(log_start_offset)
        self.producer_state.on_log_start_offset_incremented(log_start_offset)
        self._update_first_unstable_offset()
        return True

    def delete_old_segments(self) -> int:
        """Delete old segments; return their number.

        These are the segments below the log's start and, with cleanup.policy=delete, those beyond the retention.
        """
        deleted = self._delete_old_segments(self._begins_after)
        config = self.config
        if config.delete:
            if config.retention_size >= 0:
                surplus = [self.size - config.retention_size]
                deleted += self._delete_old_segments(partial(_is_surplus, surplus))
            if config.retention_ms >= 0:
                oldest = self._clock.wall_ms() - config.retention_ms
                deleted += self._delete_old_segments(lambda segment, _: segment.largest_timestamp < oldest)
        return deleted

    def _begins_after(self, _: LogSegment, following: LogSegment | None) -> bool:
        return following is not None and following.base_offset <= self.log_start_offset

    def _delete_old_segments(self, is_old: Callable[[LogSegment, LogSegment | None], bool]) -> int:
        """Delete segments from the oldest on while they are old and below the high watermark."""
        segments = self._local.segments
        count = 0
        for index, segment in enumerate(segments):
            following = segments[index + 1] if index + 1 < len(segments) else None
            bound = self.log_end_offset if following is None else following.base_offset
            if self.high_watermark < bound or (following is None and not segment.size):
                break
            if not is_old(segment, following):
                break
            count += 1
        if not count:
            return 0
        if count == len(segments):
            self.roll()
        self.maybe_increment_log_start_offset(segments[count].base_offset)
        for segment in segments[:count]:
            self.producer_state.delete_snapshot(segment.base_offset)
        self._local.remove_first_segments(count)
        return count

    def truncate_to(self, offset: int) -> bool:
        """Remove all records from ``offset`` on; return whether there were any.

        Raises:
            IllegalArgumentError: ``offset`` is negative.
        """
        if offset < 0:
            raise IllegalArgumentError(f"{self.topic_partition} cannot be truncated to offset {offset}")
        if offset >= self.log_end_offset:
            # An epoch may have started at the end, without any records.
            self.leader_epoch_cache.truncate_from_end(self.log_end_offset)
            return False
        if offset < self._local.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        for segment in self._local.truncate_to(offset):
            self.producer_state.delete_snapshot(segment.base_offset)
        self._directory.cleaner_checkpoint = self.cleaner_checkpoint
        self.leader_epoch_cache.truncate_from_end(offset)
        self.log_start_offset = min(offset, self.log_start_offset)
        self._rebuild_producer_state(offset)
        if self.high_watermark >= offset:
            self.update_high_watermark(offset)
        else:
            self._update_first_unstable_offset()
        return True

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Remove all records; the next one gets ``offset``."""
        self._local.truncate_fully_and_start_at(offset)
        self._directory.cleaner_checkpoint = 0
        self.leader_epoch_cache.clear()
        self.producer_state.truncate_fully_and_start_at(offset)
        self.log_start_offset = offset if log_start_offset is None else log_start_offset
        self.update_high_watermark(offset)

    @property
    def cleaner_checkpoint(self) -> int:
        """The offset up to which the log was compacted, lower if it was truncated since."""
        return min(self._directory.cleaner_checkpoint, self.log_end_offset)

    @cleaner_checkpoint.setter
    def cleaner_checkpoint(self, offset: int) -> None:
        self._directory.cleaner_checkpoint = offset

    def batches(self, from_offset: int, to_offset: int) -> Iterator[AnyRecordBatch]:
        """Yield the batches with offsets from ``from_offset`` on, below ``to_offset``, regardless of visibility."""
        return self._local.batches(from_offset, to_offset)

    def replace_segments(self, first: int, count: int, replacement: Sequence[LogSegment]) -> None:
        """Replace ``count`` segments from index ``first`` on with compacted ones."""
        for segment in self._local.segments[first + 1 : first + count]:
            self.producer_state.delete_snapshot(segment.base_offset)
        self._local.replace_segments(first, count, replacement)

    # --- producers ---------------------------------------------------------------------------------------------------

    @property
    def active_producers(self) -> list[ProducerStateEntry]:
        return list(self.producer_state.producers.values())

    def start_transaction_verification(
        self, producer_id: int, producer_epoch: int, sequence: int, *, bumps_epoch: bool = False
    ) -> VerificationState | None:
        """Return a token for the first records of a transaction, to be appended with it once the coordinator agrees.

        None if they need none, because the transaction is open here. With ``bumps_epoch``, each transaction has an
        epoch of its own.

        Raises:
            ConcurrentTransactionsError: the marker of the producer's last transaction has yet to arrive.
        """
        return self.producer_state.start_verification(
            producer_id, producer_epoch, sequence, self._clock.wall_ms(), bumps_epoch=bumps_epoch
        )

    def remove_expired_producers(self) -> None:
        self.producer_state.remove_expired_producers(self._clock.wall_ms())

    def _rebuild_producer_state(self, end_offset: int, *, reload: bool = False) -> None:
        """Restore the producers' state at ``end_offset``: from the last snapshot, then by replay."""
        state = self.producer_state
        was_empty = not reload and state.is_empty and state.map_end_offset >= end_offset
        state.truncate_and_reload(self.log_start_offset, end_offset, self._clock.wall_ms())
        if end_offset > state.map_end_offset and not was_empty:
            start = max(state.map_end_offset, self.log_start_offset)
            for batch in self._local.batches(start, end_offset):
                if batch.has_producer_id:
                    updates = state.prepare_update((batch,), AppendOrigin.REPLICATION)
                    state.update(updates)
                    for completed in updates.completed_txns:
                        state.complete_txn(completed)
        state.map_end_offset = end_offset
        state.take_snapshot()
        self._update_first_unstable_offset()

    def close(self) -> None:
        """Close the log cleanly, so that opening it again needs no replay."""
        self.producer_state.take_snapshot()

    def __repr__(self) -> str:
        return (
            f"UnifiedLog({self.topic_partition}, {self.log_start_offset}..{self.log_end_offset}, "
            f"high_watermark={self.high_watermark}, {len(self._local.segments)} segments, {self.size} bytes)"
        )


def _is_surplus(surplus: list[int], segment: LogSegment, _: LogSegment | None) -> bool:
    """Return whether the log is large enough without the segment; ``surplus`` holds the number of excess bytes."""
    if surplus[0] - segment.size < 0:
        return False
    surplus[0] -= segment.size
    return True
