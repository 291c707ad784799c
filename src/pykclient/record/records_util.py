"""Conversion of batches to older formats, for readers that know only these (Java: RecordsUtil)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pykclient.errors import UnsupportedCompressionTypeError
from pykclient.record.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, default_compression
from pykclient.record.compression_type import CompressionType
from pykclient.record.memory_records import AnyRecordBatch, MemoryRecords
from pykclient.record.memory_records_builder import MemoryRecordsBuilder
from pykclient.record.record_batch import MAGIC_VALUE_V2, MAX_INT32, NO_TIMESTAMP, Buffer
from pykclient.types import LOG_APPEND_TIME


class ConvertedRecords(NamedTuple):
    """Converted batches in order, and the number of their converted records."""

    records: list[Buffer]
    num_records_converted: int


def down_convert(
    records: Iterable[Buffer],
    to_magic: int,
    first_offset: int,
    max_bytes: int = MAX_INT32,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> ConvertedRecords:
    """Convert ``records``, buffers of whole batches, to format ``to_magic`` or older.

    Offsets are kept; headers are lost.

    Batches that are old enough are passed through unchanged. Control batches are omitted, because old formats have
    none. As uncompressed messages of old formats are independent, those below ``first_offset`` are omitted, which some
    old clients rely on. The conversion ends before the batch with which the total would exceed ``max_bytes``; the first
    one is always converted.

    Raises:
        UnsupportedCompressionTypeError: a batch is compressed with zstd, or the codec's package is not installed.
        CorruptRecordError: a batch cannot be decoded.
    """
    converted: list[Buffer] = []
    num_records = size = 0
    for buffer in records:
        for batch in MemoryRecords(buffer).batches():
            if to_magic < MAGIC_VALUE_V2:
                if batch.is_control_batch:
                    continue
                if batch.compression_type is CompressionType.ZSTD:
                    raise UnsupportedCompressionTypeError(
                        f"a batch at offset {batch.base_offset} is compressed with zstd, which format v{to_magic} "
                        "does not have; readers need fetch version 10 or newer"
                    )
            if batch.magic <= to_magic:
                data: Buffer = batch.buffer
                count = 0
            else:
                data, count = _convert(batch, to_magic, first_offset, max_decompressed_bytes)
            if converted and size + len(data) > max_bytes:
                return ConvertedRecords(converted, num_records)
            if len(data):
                converted.append(data)
                size += len(data)
                num_records += count
    return ConvertedRecords(converted, num_records)


def _convert(
    batch: AnyRecordBatch, to_magic: int, first_offset: int, max_decompressed_bytes: int
) -> tuple[Buffer, int]:
    """Return the batch in an older format and the number of its records; nothing if no record is requested."""
    compression = default_compression(batch.compression_type)
    builder: MemoryRecordsBuilder | None = None
    for offset, timestamp, key, value, _ in batch.stream(max_decompressed_bytes):
        if offset < first_offset and not batch.is_compressed:
            continue
        if builder is None:
            builder = MemoryRecordsBuilder(
                magic=to_magic,
                compression=compression,
                timestamp_type=batch.timestamp_type,
                base_offset=offset,
                log_append_time=batch.max_timestamp if batch.timestamp_type == LOG_APPEND_TIME else NO_TIMESTAMP,
            )
        builder.append_with_offset(offset, timestamp, key, value)
    return (b"", 0) if builder is None else (builder.build(), builder.num_records)
