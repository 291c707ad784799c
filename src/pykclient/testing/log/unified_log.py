"""The log of a partition (Java: UnifiedLog, LocalLog, LogSegments)."""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterator

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
from pykclient.record.compression import NO_COMPRESSION, Compression, CompressionType
from pykclient.record.memory_records import AnyRecordBatch, MemoryRecords
from pykclient.record.record_batch import MAGIC_VALUE_V2, MAX_INT32, Buffer
from pykclient.testing.log.broker_disk import PartitionDirectory
from pykclient.testing.log.log_config import LogConfig
from pykclient.testing.log.log_segment import LogSegment
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

_DEFAULT_PRODUCER_ID_EXPIRATION_MS = 86_400_000


class UnifiedLog:
    """All records of a partition on one broker, from ``log_start_offset`` to ``log_end_offset``.

    Consumers see the records below ``high_watermark``, with read_committed those below ``last_stable_offset``. The
    stored bytes equal Kafka's. Leader epochs, segments and producer snapshots belong to the directory, so a reopened
    log continues where it was. There is at least one segment; appends go to the last, the active one. Thread: loop.
    """

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
        #: By base offset. The disk owns the list; callers must not change it.
        self.segments = directory.segments
        if not self.segments:
            self.segments.append(LogSegment(log_start_offset, clock.wall_ms()))
        self._base_offsets = [segment.base_offset for segment in self.segments]
        #: The offset of the next record.
        self.log_end_offset = self.segments[-1].next_offset
        #: Bytes of all batches.
        self.size = directory.size
        if self.log_end_offset < log_start_offset:
            # Records were deleted up to an offset that a truncation has since removed.
            self._replace_all_segments(log_start_offset)
        self._last_append_time_ms = 0
        self.log_start_offset = max(log_start_offset, self.segments[0].base_offset)
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
        self.producer_state.remove_stray_snapshots(self._base_offsets)
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
    def last_stable_offset(self) -> int:
        """The first offset of an undecided transaction, or the high watermark if there is none."""
        unstable = self._first_unstable_offset
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    def end_offset(self, isolation: str) -> int:
        """Return the end of what a read with this isolation gets."""
        if isolation == FetchIsolation.LOG_END:
            return self.log_end_offset
        return self.high_watermark if isolation == FetchIsolation.HIGH_WATERMARK else self.last_stable_offset

    def update_high_watermark(self, high_watermark: int) -> int:
        """Set the high watermark, limited to the log's bounds; return it."""
        self.high_watermark = min(max(high_watermark, self.log_start_offset), self.log_end_offset)
        self.producer_state.remove_replicated(self.high_watermark)
        self._update_first_unstable_offset()
        return self.high_watermark

    def _update_first_unstable_offset(self) -> None:
        unstable = self.producer_state.first_unstable_offset
        self._first_unstable_offset = None if unstable is None else max(unstable, self.log_start_offset)

    # --- leader epochs -----------------------------------------------------------------------------------------------

    @property
    def latest_epoch(self) -> int | None:
        return self.leader_epoch_cache.latest_epoch

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
        self._directory.acquire(size, within_limit=origin == AppendOrigin.CLIENT)
        segment = self.segments[-1]
        segment.last_modified_ms = self._clock.wall_ms()
        for batch in batches:
            last_offset = batch.last_offset
            segment.append(batch.buffer, last_offset, batch.max_timestamp)
            self.log_end_offset = last_offset + 1
        self.size += size
        state.update(updates)
        for completed in updates.completed_txns:
            self._index_aborted(completed)
            state.complete_txn(completed)
        state.map_end_offset = self.log_end_offset
        self._update_first_unstable_offset()

    def _index_aborted(self, completed: CompletedTxn) -> None:
        if completed.is_aborted:
            stable = self.producer_state.last_stable_offset(completed)
            self.segments[-1].txn_index.append(
                AbortedTxn(completed.producer_id, completed.first_offset, completed.last_offset, stable)
            )

    def _maybe_roll(self, info: LogAppendInfo, size: int) -> None:
        config, active = self.config, self.segments[-1]
        is_full = active.size > config.segment_size - size or info.last_offset - active.base_offset > MAX_INT32
        max_segment_ms = config.segment_ms - self.segment_jitter_ms
        if is_full or (active.size and active.age_ms(info.max_timestamp, self._clock.wall_ms()) > max_segment_ms):
            self.roll(info.roll_offset())

    def roll(self, expected_next_offset: int = 0) -> LogSegment:
        """Start a new segment at the end of the log, or at ``expected_next_offset`` if that is later.

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
        segment = self._add_segment(base_offset)
        self.producer_state.map_end_offset = base_offset
        self.producer_state.take_snapshot()
        return segment

    def _add_segment(self, base_offset: int) -> LogSegment:
        segment = LogSegment(base_offset, self._clock.wall_ms())
        self.segments.append(segment)
        self._base_offsets.append(base_offset)
        self.log_end_offset = base_offset
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
        self._directory.disk.check_readable()
        index = bisect_right(self._base_offsets, start_offset) - 1
        if not self.log_start_offset <= start_offset <= self.log_end_offset or index < 0:
            raise OffsetOutOfRangeError(
                f"offset {start_offset} of {self.topic_partition} is not in the log, which has "
                f"{self.log_start_offset} to {self.log_end_offset}"
            )
        bound = self.end_offset(isolation)
        with_aborted = isolation == FetchIsolation.TXN_COMMITTED
        if start_offset < bound:
            for segment in self.segments[index:]:
                found = segment.read(start_offset, max_length, bound, min_one_message)
                if found is None:
                    # Compaction has removed the rest of this segment.
                    continue
                if with_aborted:
                    aborted = self.collect_aborted_txns(start_offset, max(found.next_offset, start_offset))
                    return found._replace(aborted_transactions=aborted)
                return found
        return FetchDataInfo(start_offset, start_offset, aborted_transactions=[] if with_aborted else None)

    def _segments_from(self, offset: int) -> list[LogSegment]:
        """Return the segments from the one that may have ``offset`` on."""
        return self.segments[max(0, bisect_right(self._base_offsets, offset) - 1) :]

    def collect_aborted_txns(self, start_offset: int, bound_offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions with records from ``start_offset`` on, below ``bound_offset``."""
        found: list[AbortedTxn] = []
        for segment in self._segments_from(start_offset):
            for txn in segment.txn_index:
                if txn.last_offset >= start_offset and txn.first_offset < bound_offset:
                    found.append(txn)
                if txn.last_stable_offset >= bound_offset:
                    return found
        return found

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
        if timestamp == MAX_TIMESTAMP:
            return max(self.segments, key=lambda segment: segment.max_timestamp).offset_of_max_timestamp()
        for segment in self.segments:
            if segment.size and segment.largest_timestamp >= timestamp:
                return segment.find_offset_by_timestamp(timestamp, self.log_start_offset)
        return None

    def legacy_fetch_offsets_before(self, timestamp: int, max_num_offsets: int) -> list[int]:
        """Return base offsets of segments older than ``timestamp``, latest first (ListOffsets v0)."""
        segments = self.segments
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
                deleted += self._delete_old_segments(self._surplus(self.size - config.retention_size))
            if config.retention_ms >= 0:
                oldest = self._clock.wall_ms() - config.retention_ms
                deleted += self._delete_old_segments(lambda segment, _: segment.largest_timestamp < oldest)
        return deleted

    @staticmethod
    def _surplus(size: int) -> Callable[[LogSegment, LogSegment | None], bool]:
        """Return a test for the oldest segments: whether ``size`` bytes include the next one as a whole."""

        def is_surplus(segment: LogSegment, _: LogSegment | None) -> bool:
            nonlocal size
            size -= segment.size
            return size >= 0

        return is_surplus

    def _begins_after(self, _: LogSegment, following: LogSegment | None) -> bool:
        return following is not None and following.base_offset <= self.log_start_offset

    def _delete_old_segments(self, is_old: Callable[[LogSegment, LogSegment | None], bool]) -> int:
        """Delete segments from the oldest on while they are old and below the high watermark."""
        segments = self.segments
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
        self._remove_segments(0, count)
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
        if offset < self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        keep = max(1, bisect_right(self._base_offsets, offset))
        for base_offset in self._base_offsets[keep:]:
            self.producer_state.delete_snapshot(base_offset)
        self._remove_segments(keep, len(self.segments))
        self._change_size(-self.segments[-1].truncate_to(offset))
        self.log_end_offset = offset
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
        self._replace_all_segments(offset)
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
        for segment in self._segments_from(from_offset):
            for batch in segment.batches(from_offset):
                if batch.base_offset >= to_offset:
                    return
                yield batch

    # --- segments ----------------------------------------------------------------------------------------------------

    def replace_segments(self, first: int, count: int, replacement: LogSegment) -> None:
        """Replace ``count`` segments from index ``first`` on with a compacted one."""
        replaced = self.segments[first : first + count]
        for segment in replaced[1:]:
            self.producer_state.delete_snapshot(segment.base_offset)
        self._change_size(replacement.size - sum(segment.size for segment in replaced))
        self.segments[first : first + count] = [replacement]
        self._base_offsets[first : first + count] = [replacement.base_offset]

    def _replace_all_segments(self, offset: int) -> None:
        """Remove all records; the next one gets ``offset``."""
        self._remove_segments(0, len(self.segments))
        self._add_segment(offset)

    def _remove_segments(self, start: int, stop: int) -> None:
        self._change_size(-sum(segment.size for segment in self.segments[start:stop]))
        del self.segments[start:stop]
        del self._base_offsets[start:stop]

    def _change_size(self, by: int) -> None:
        if by > 0:
            self._directory.acquire(by, within_limit=False)
        else:
            self._directory.release(-by)
        self.size += by

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
            for batch in self.batches(start, end_offset):
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
            f"high_watermark={self.high_watermark}, {len(self.segments)} segments, {self.size} bytes)"
        )
