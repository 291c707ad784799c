"""Validation and completion of a producer's records by the leader (Java: LogValidator)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

from pykclient.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from pykclient.record.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, NO_COMPRESSION, Compression, CompressionType
from pykclient.record.default_record import RecordsSummary, summarize_records
from pykclient.record.memory_records import AnyRecordBatch, DefaultRecordBatch, MemoryRecords
from pykclient.record.memory_records_builder import MemoryRecordsBuilder
from pykclient.record.record_batch import (
    CURRENT_MAGIC_VALUE,
    MAGIC_VALUE_V1,
    MAGIC_VALUE_V2,
    MAX_INT64,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    Buffer,
    Record,
)
from pykclient.testing.log.log_types import AppendOrigin
from pykclient.types import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP_TYPE, TopicPartition

_MAX_ERRORS_SHOWN = 3


class RecordValidationError(KafkaError):
    """Some records of a batch were rejected, and so the whole batch.

    ``error`` is the error in the response; ``record_errors`` are the positions of the bad records in the batch and what
    is wrong with them (KIP-467).
    """

    def __init__(self, error: InvalidRecordError | InvalidTimestampError, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(str(error))
        self.error = error
        self.record_errors = record_errors


class ValidationResult(NamedTuple):
    """The records to append, with offsets, leader epoch and timestamps.

    ``records`` is a private copy. ``next_offset`` is the offset after the last record.
    """

    records: Buffer
    next_offset: int
    log_append_time_ms: int
    max_timestamp_ms: int
    message_size_maybe_changed: bool


@dataclass(slots=True)
class LogValidator:
    """Validates the records of one produce request for one partition, and assigns offsets.

    The validator checks and overwrites the header of a batch of format 2 if the batch can stay otherwise unchanged, and
    walks over its records once without decoding them. It decodes and rebuilds everything else: old formats, another
    codec, gaps between offsets. ``UnifiedLog.append`` verifies checksums, except those inside old compressed messages.

    ``now_ms`` is the broker's wall clock; ``source_compression`` is the codec of the received batches. Thread: loop.
    """

    records: Buffer
    topic_partition: TopicPartition
    now_ms: int
    _: KW_ONLY
    source_compression: CompressionType = CompressionType.NONE
    target_compression: Compression = NO_COMPRESSION
    compacted_topic: bool = False
    to_magic: int = CURRENT_MAGIC_VALUE
    timestamp_type: int = CREATE_TIME
    timestamp_before_max_ms: int = MAX_INT64
    timestamp_after_max_ms: int = MAX_INT64
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH
    origin: str = AppendOrigin.CLIENT
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES

    def validate_messages_and_assign_offsets(self, first_offset: int) -> ValidationResult:
        """Return the records with offsets from ``first_offset`` on.

        The input is not changed, as a client may send it again.

        Raises:
            RecordValidationError: single records are invalid.
            InvalidRecordError: the batch as a whole is invalid, or there is none or more than one.
            UnsupportedForMessageFormatError: a feature that the producer uses needs a newer format than the topic has.
            CorruptRecordError: the records cannot be decoded.
            UnsupportedCompressionTypeError: the codec's package is not installed, and the records must be rebuilt.
        """
        batch = self._first_batch()
        self._validate_batch(batch)
        if isinstance(batch, DefaultRecordBatch) and self.to_magic == MAGIC_VALUE_V2:
            target = self.target_compression.type
            if self.source_compression is target or (
                # Markers are compressed only if they arrived so.
                self.source_compression is CompressionType.NONE and batch.is_control_batch
            ):
                result = self._assign_in_place(DefaultRecordBatch(memoryview(bytearray(batch.buffer))), first_offset)
                if result is not None:
                    return result
        return self._build_anew(batch, first_offset)

    def _first_batch(self) -> AnyRecordBatch:
        batches = MemoryRecords(self.records).batches()
        first = next(batches, None)
        if first is None:
            raise InvalidRecordError(f"a produce request for {self.topic_partition} has no batch")
        alone = first.magic >= MAGIC_VALUE_V2 or self.source_compression is not CompressionType.NONE
        if alone and next(batches, None) is not None:
            raise InvalidRecordError(
                f"a produce request for {self.topic_partition} has more than one batch, and may have only one"
            )
        return first

    # --- a v2 batch that stays as it is

    def _assign_in_place(self, batch: DefaultRecordBatch, first_offset: int) -> ValidationResult | None:
        """Overwrite the header. Return None if the offsets require the records to be rebuilt."""
        count = batch.count
        summary = self._summarize(batch)
        if (self.compacted_topic and not summary.all_have_keys) or not self._timestamps_allowed(batch, summary[:2]):
            self._validate_records(batch, batch.stream(self.max_decompressed_bytes))
        if not summary.offsets_follow and not batch.is_control_batch:
            return None
        last_offset = first_offset + count - 1
        batch.set_last_offset(last_offset)
        batch.set_partition_leader_epoch(self.partition_leader_epoch)
        max_timestamp = self.now_ms if self.timestamp_type == LOG_APPEND_TIME else summary.max_timestamp
        batch.set_max_timestamp(self.timestamp_type, max_timestamp)
        return ValidationResult(batch.buffer, last_offset + 1, self.now_ms, max_timestamp, False)

    def _summarize(self, batch: DefaultRecordBatch) -> RecordsSummary:
        try:
            data = batch.record_data(self.max_decompressed_bytes)
        except UnsupportedCompressionTypeError:
            # Kafka has every codec; this process may lack a package. Clients should not notice, so trust the header.
            return RecordsSummary(batch.base_timestamp, batch.max_timestamp, all_have_keys=True, offsets_follow=True)
        return summarize_records(data, batch.count, batch.base_timestamp)

    def _timestamps_allowed(self, batch: AnyRecordBatch, bounds: tuple[int, int]) -> bool:
        """Return whether the timestamps of all records are allowed, within ``bounds``."""
        oldest, newest = bounds
        if self.timestamp_type == CREATE_TIME and oldest != NO_TIMESTAMP:
            now = self.now_ms
            return now - oldest <= self.timestamp_before_max_ms and newest - now <= self.timestamp_after_max_ms
        return batch.timestamp_type != LOG_APPEND_TIME

    # --- all else

    def _build_anew(self, first: AnyRecordBatch, first_offset: int) -> ValidationResult:
        """Decode the records and put them into one batch, or into messages of an old format."""
        builder = MemoryRecordsBuilder(
            magic=self.to_magic,
            compression=self.target_compression,
            timestamp_type=self.timestamp_type if self.to_magic >= MAGIC_VALUE_V1 else NO_TIMESTAMP_TYPE,
            base_offset=first_offset,
            log_append_time=self.now_ms,
            producer_id=first.producer_id,
            producer_epoch=first.producer_epoch,
            base_sequence=first.base_sequence,
            is_transactional=first.is_transactional,
            partition_leader_epoch=self.partition_leader_epoch,
        )
        offset = first_offset
        for batch in MemoryRecords(self.records).batches():
            if batch.magic != first.magic:
                raise InvalidRecordError(
                    f"messages for {self.topic_partition} are of different formats, v{first.magic} and v{batch.magic}"
                )
            for record in self._validate_records(batch, batch.stream(self.max_decompressed_bytes)):
                headers = record.headers if self.to_magic >= MAGIC_VALUE_V2 else ()
                builder.append_with_offset(offset, record.timestamp, record.key, record.value, headers)
                offset += 1
        records = builder.build()
        return ValidationResult(records, offset, self.now_ms, builder.info().max_timestamp, True)

    def _validate_batch(self, batch: AnyRecordBatch) -> None:
        """Check the fields of a batch's header."""
        where = self.topic_partition
        if self.origin == AppendOrigin.CLIENT:
            if isinstance(batch, DefaultRecordBatch):
                count = batch.count_or_none
                if batch.last_offset_delta < 0 or count != batch.last_offset_delta + 1 or count <= 0:
                    raise InvalidRecordError(
                        f"a batch for {where} says it has {count} records, and offsets "
                        f"{batch.base_offset} to {batch.last_offset}"
                    )
            if batch.is_control_batch:
                raise InvalidRecordError(f"clients may not write control records, as to {where}")
            if batch.has_producer_id and batch.base_sequence < 0:
                raise InvalidRecordError(
                    f"a batch of producer {batch.producer_id} for {where} has the sequence {batch.base_sequence}"
                )
        if self.to_magic < MAGIC_VALUE_V2:
            for wants, given in (
                ("transactional", batch.is_transactional),
                ("idempotent", batch.producer_id != NO_PRODUCER_ID),
            ):
                if given:
                    raise UnsupportedForMessageFormatError(
                        f"{wants} records need message format v2, {where} has v{self.to_magic}"
                    )

    # --- single records

    def _validate_records(self, batch: AnyRecordBatch, records: Iterable[Record]) -> Iterator[Record]:
        """Yield the records, after all of them have been validated."""
        accepted: list[Record] = []
        errors: list[tuple[int, str]] = []
        is_time = False
        for index, record in enumerate(records):
            if self.compacted_topic and record.key is None:
                errors.append((index, f"{self.topic_partition} is compacted and accepts no record without a key"))
            elif not self._timestamps_allowed(batch, (record.timestamp, record.timestamp)):
                is_time = True
                errors.append((index, self._why_not_this_time(record.timestamp)))
            else:
                accepted.append(record)
        if not errors:
            return iter(accepted)
        if is_time:
            raise RecordValidationError(
                InvalidTimestampError("One or more records have been rejected due to invalid timestamp"), errors
            )
        shown = "; ".join(f"record {index}: {message}" for index, message in errors[:_MAX_ERRORS_SHOWN])
        raise RecordValidationError(InvalidRecordError(f"{len(errors)} records were refused: {shown}"), errors)

    def _why_not_this_time(self, timestamp: int) -> str:
        if self.timestamp_type == LOG_APPEND_TIME or timestamp == NO_TIMESTAMP:
            return "a producer may not say that its timestamp is the broker's"
        oldest, newest = self.now_ms - self.timestamp_before_max_ms, self.now_ms + self.timestamp_after_max_ms
        return f"timestamp {timestamp} is out of range, which is {oldest} to {newest}"
