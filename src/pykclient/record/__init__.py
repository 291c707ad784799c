"""Record batches of all formats that Kafka has had: building, compressing, validating and reading them.

- ``memory_records_builder``: building a batch
- ``memory_records``, ``legacy_record_batch``, ``record_batch``: reading batches
- ``default_record``: records of format 2, one batch or many records at a time
- ``columns``, ``row_columns``, ``arrow``, ``lines``: records as columns, Arrow arrays and lines of text
- ``compression``: codecs; ``control_record``: records that brokers write
"""

from __future__ import annotations

from pykclient.record.compression import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    NO_COMPRESSION,
    Compression,
    CompressionRatioEstimator,
    CompressionType,
)
from pykclient.record.control_record import ControlRecordType, EndTransactionMarker
from pykclient.record.legacy_record_batch import LegacyRecordBatch
from pykclient.record.memory_records import DefaultRecordBatch, MemoryRecords
from pykclient.record.memory_records_builder import MemoryRecordsBuilder
from pykclient.record.record_batch import (
    CURRENT_MAGIC_VALUE,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Cursor,
    CursorOwner,
    Record,
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
    "decrement_sequence",
    "estimate_size_in_bytes_upper_bound",
    "increment_sequence",
    "record_batch_overhead",
]
