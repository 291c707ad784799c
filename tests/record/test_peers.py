"""Our records read by kafka-python's record classes, a second implementation of the formats, and the reverse."""

from __future__ import annotations

import kafka.record
import pytest

from pykclient.record import Compression, CompressionType, MemoryRecords, MemoryRecordsBuilder, Record
from tests.record.strategies import CODECS

FORMATS = [(2, codec) for codec in CODECS]
FORMATS += [(1, codec) for codec in ("gzip", "snappy", "lz4")]
FORMATS += [(0, codec) for codec in ("gzip", "snappy")]  # for lz4 in v0, kafka-python needs another package

RECORDS = [
    Record(
        number,
        1_700_000_000_000 + number * 40,
        None if number % 3 else b"key-%d" % number,
        None if number % 7 == 3 else b"value %d " % number * (number % 50),
        (("trace", b"%d" % number), ("none", b"")) if number % 5 == 0 else (),
    )
    for number in range(1000)
]


def records_of(magic: int) -> list[Record]:
    if magic == 2:
        return RECORDS
    return [record._replace(headers=(), timestamp=record.timestamp if magic else -1) for record in RECORDS]


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_batches_of_kafka_python_are_read(magic: int, codec: str) -> None:
    records = records_of(magic)
    builder = kafka.record.MemoryRecordsBuilder(magic, CompressionType.for_name(codec).id, 1 << 20)
    for record in records:
        timestamp = record.timestamp if magic else None
        assert builder.append(timestamp, record.key, record.value, list(record.headers)) is not None
    builder.close()
    (batch,) = MemoryRecords(builder.buffer()).batches()
    batch.ensure_valid()
    assert batch.compression_type.name == codec
    assert batch.records() == records


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_kafka_python_reads_our_batches(magic: int, codec: str) -> None:
    records = records_of(magic)
    builder = MemoryRecordsBuilder(magic=magic, compression=Compression.of(codec))
    for record in records:
        builder.append(*record[1:])
    batch = kafka.record.MemoryRecords(bytes(builder.build())).next_batch()
    assert batch.validate_crc()
    read = [
        (each.offset, each.timestamp, each.key, each.value, tuple(each.headers) if magic == 2 else ()) for each in batch
    ]
    expected = [tuple(record._replace(timestamp=record.timestamp if magic else None)) for record in records]  # type: ignore[arg-type]
    assert [tuple(each) for each in read] == expected
