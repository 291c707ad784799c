"""What a batch is: built, compressed, checked, read; all formats that Kafka has had."""

from __future__ import annotations

from .compression import DEFAULT_MAX_DECOMPRESSED_BYTES, NO_COMPRESSION, Compression
from .compression_ratio_estimator import CompressionRatioEstimator
from .compression_type import CompressionType
from .control_record import ControlRecordType, EndTransactionMarker
from .default_record_batch import DefaultRecordBatch
from .legacy_record_batch import LegacyRecordBatch
from .memory_records import MemoryRecords
from .memory_records_builder import MemoryRecordsBuilder
from .record_batch import (
    CURRENT_MAGIC_VALUE,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Cursor,
    CursorOwner,
    Record,
    RecordBatch,
    decrement_sequence,
    estimate_size_in_bytes_upper_bound,
    increment_sequence,
    record_batch_overhead,
)

__all__ = [
    "CURRENT_MAGIC_VALUE",
    "DEFAULT_MAX_DECOMPRESSED_BYTES",
    "NO_COMPRESSION",
    "NO_PARTITION_LEADER_EPOCH",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "Compression",
    "CompressionRatioEstimator",
    "CompressionType",
    "ControlRecordType",
    "Cursor",
    "CursorOwner",
    "DefaultRecordBatch",
    "EndTransactionMarker",
    "LegacyRecordBatch",
    "MemoryRecords",
    "MemoryRecordsBuilder",
    "Record",
    "RecordBatch",
    "decrement_sequence",
    "estimate_size_in_bytes_upper_bound",
    "increment_sequence",
    "record_batch_overhead",
]
