"""Batches written by us and read by Java's MemoryRecords, and the reverse."""

from __future__ import annotations

from functools import lru_cache

import pytest

from pykclient.record import ControlRecordType, MemoryRecords, Record, estimate_size_in_bytes_upper_bound
from pykclient.types import NO_TIMESTAMP_TYPE
from tests.record.oracle import (
    TIMESTAMP_TYPE_TEXT,
    BatchSpec,
    all_specs,
    build_with_java,
    codec_of,
    compact_with_java,
    from_text,
    headers_text,
    read_with_java,
    to_text,
)

pytestmark = pytest.mark.java

SPECS = all_specs()


@lru_cache(maxsize=1)
def java_answers() -> list[list[str]]:
    return build_with_java(SPECS)


@lru_cache(maxsize=1)
def java_readings() -> list[list[str]]:
    return read_with_java([bytes(spec.builder().build()) for spec in SPECS])


def describe(batch_records: MemoryRecords) -> list[str]:
    """Return our description in the format of RecordsOracle.read."""
    lines = []
    for batch in batch_records.batches():
        batch.ensure_valid()
        fields = (
            batch.magic,
            batch.compression_type.name,
            TIMESTAMP_TYPE_TEXT[batch.timestamp_type],
            batch.base_offset,
            batch.last_offset,
            batch.max_timestamp,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.last_sequence,
            int(batch.is_transactional),
            int(batch.is_control_batch),
            batch.partition_leader_epoch,
            -1 if batch.delete_horizon_ms is None else batch.delete_horizon_ms,
            "null" if batch.count_or_none is None else batch.count_or_none,
            batch.size_in_bytes,
        )
        lines.append(" ".join(map(str, ("batch", *fields))))
        for record in batch.records():
            fields_of_record = (record.offset, record.timestamp, to_text(record.key), to_text(record.value))
            lines.append(" ".join(map(str, ("record", *fields_of_record, *headers_text(record)))))
            if batch.is_control_batch:
                lines.append(f"control {ControlRecordType.parse(record.key).name}")
    return lines


@pytest.mark.parametrize("index", range(len(SPECS)), ids=[repr(spec) for spec in SPECS])
class TestOracle:
    def test_batches_of_java_are_read(self, index: int) -> None:
        spec = SPECS[index]
        data = from_text(java_answers()[index][0])
        assert data
        (batch,) = MemoryRecords(data).batches()
        batch.ensure_valid()
        assert batch.records() == spec.expected()
        assert batch.magic == spec.magic
        assert batch.compression_type is codec_of(spec)
        assert batch.timestamp_type == (NO_TIMESTAMP_TYPE if spec.magic == 0 else spec.timestamp_type)
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == spec.producer
        assert batch.is_transactional == spec.is_transactional
        assert batch.is_control_batch == spec.is_control
        assert batch.partition_leader_epoch == spec.leader_epoch

    def test_java_reads_our_batches(self, index: int) -> None:
        spec = SPECS[index]
        ours = describe(MemoryRecords(spec.builder().build()))
        assert java_readings()[index] == ours
        assert sum(line.startswith("record ") for line in ours) == len(spec.records)

    def test_batch_sizes_and_bytes_equal_javas(self, index: int) -> None:
        spec = SPECS[index]
        answer = java_answers()[index]
        builder = spec.builder()
        assert builder.uncompressed_bytes_written == int(answer[1])
        data = bytes(builder.build())
        assert builder.info() == (int(answer[2]), int(answer[3]))
        bounds = [
            estimate_size_in_bytes_upper_bound(spec.magic, codec_of(spec), record.key, record.value, record.headers)
            for record in spec.records
        ]
        assert bounds == [int(text) for text in answer[4:]]
        if spec.codec == "none":
            assert to_text(data) == answer[0]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batch_compacted_by_java_is_read(codec: str) -> None:
    records = [Record(100 + i, 1000 + i, b"k%d" % i, None if i % 3 == 0 else b"v") for i in range(10)]
    spec = BatchSpec(records, base_offset=100, codec=codec, producer=(9, 0, 5))
    data = compact_with_java(bytes(spec.builder().build()), "odd")
    (batch,) = MemoryRecords(data).batches()
    batch.ensure_valid()
    assert batch.records() == records[1::2]
    assert (batch.base_offset, batch.next_offset, batch.count_or_none) == (100, 110, 5)
    assert batch.last_sequence == 14
    assert batch.delete_horizon_ms == 1_000_500


def test_batch_emptied_by_java_is_read() -> None:
    spec = BatchSpec([Record(100 + i, 1000 + i, b"k", b"v") for i in range(10)], base_offset=100, producer=(9, 0, 5))
    data = compact_with_java(bytes(spec.builder().build()), "none")
    (batch,) = MemoryRecords(data).batches()
    batch.ensure_valid()
    assert batch.records() == []
    assert (batch.base_offset, batch.next_offset, batch.count_or_none, batch.last_sequence) == (100, 110, 0, 14)


def test_mixed_formats_are_read_like_java() -> None:
    mixed = [spec for spec in SPECS if len(spec.records) < 20]
    data = b"".join(bytes(spec.builder().build()) for spec in mixed)
    (java,) = read_with_java([data])
    assert java == describe(MemoryRecords(data))
    assert list(MemoryRecords(data).records()) == [record for spec in mixed for record in spec.expected()]
