"""Batches converted for readers of older formats."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from pykclient.errors import UnsupportedCompressionTypeError
from pykclient.record import (
    Compression,
    CompressionType,
    ControlRecordType,
    MemoryRecords,
    MemoryRecordsBuilder,
    Record,
)
from pykclient.record.record_batch import Buffer
from pykclient.testing.handlers.records import down_convert
from pykclient.types import LOG_APPEND_TIME
from tests.record.conversion_oracle import ask_java, content
from tests.record.oracle import all_specs, control_spec
from tests.record.strategies import v2_batches


def batch_of(records: list[Record], codec: str = "none", magic: int = 2) -> bytes:
    builder = MemoryRecordsBuilder(magic=magic, compression=Compression.of(codec), base_offset=records[0].offset)
    for record in records:
        builder.append_with_offset(*record)
    return bytes(builder.build())


def some_records(first: int, count: int, headers: tuple[tuple[str, bytes | None], ...] = ()) -> list[Record]:
    return [Record(first + i, 1000 + i, b"k%d" % i, b"v" * i, headers) for i in range(count)]


def read(buffers: list[Buffer]) -> list[Record]:
    return list(MemoryRecords(b"".join(buffers)).records())


@settings(deadline=None)
@given(batch=v2_batches(), to_magic=st.sampled_from((0, 1)))
def test_down_conversion_keeps_all_fields_of_old_format(batch: tuple[list[Record], bytes], to_magic: int) -> None:
    records, data = batch
    if next(MemoryRecords(data).batches()).compression_type is CompressionType.ZSTD:
        with pytest.raises(UnsupportedCompressionTypeError, match="fetch version 10"):
            down_convert([data], to_magic, 0)
        return
    converted = down_convert([data], to_magic, 0)
    assert {batch.magic for batch in MemoryRecords(b"".join(converted)).batches()} == {to_magic}
    kept = [record._replace(headers=(), timestamp=record.timestamp if to_magic else -1) for record in records]
    assert read(converted) == kept


def test_down_conversion_keeps_log_append_time() -> None:
    builder = MemoryRecordsBuilder(timestamp_type=LOG_APPEND_TIME, log_append_time=77)
    builder.append(5, b"k", b"v")
    (batch,) = MemoryRecords(down_convert([builder.build()], 1, 0)[0]).batches()
    assert (batch.timestamp_type, batch.max_timestamp) == (LOG_APPEND_TIME, 77)


def test_down_conversion_keeps_old_batches_and_drops_control_batches() -> None:
    old = batch_of(some_records(0, 3), magic=1, codec="gzip")
    marker = bytes(control_spec(ControlRecordType.COMMIT).builder().build())
    new = batch_of(some_records(60, 2))
    converted = down_convert([old + marker, new], 1, 0)
    assert bytes(converted[0]) == old
    assert [record.offset for record in read(converted)] == [0, 1, 2, 60, 61]
    assert down_convert([marker], 1, 0) == []
    assert down_convert([old, marker, new], 2, 0) == [old, marker, new]


def test_down_conversion_drops_uncompressed_messages_before_first_offset() -> None:
    plain, packed = batch_of(some_records(10, 5)), batch_of(some_records(10, 5), "lz4")
    assert [record.offset for record in read(down_convert([plain], 1, 13))] == [13, 14]
    assert [record.offset for record in read(down_convert([packed], 1, 13))] == [10, 11, 12, 13, 14]
    assert down_convert([plain], 1, 15) == []


def test_down_conversion_stops_at_response_size() -> None:
    batches = [batch_of(some_records(10 * i, 10)) for i in range(4)]
    one = len(down_convert(batches[:1], 1, 0)[0])
    for room, expected in ((1, 1), (one, 1), (2 * one, 2), (3 * one - 1, 2), (4 * one, 4)):
        assert len(down_convert(batches, 1, 0, room)) == expected


@pytest.mark.java
def test_down_conversion_equals_javas() -> None:
    buffers = [bytes(spec.builder().build()) for spec in all_specs() if sum(map(len, spec.lines())) < 5_000]
    cases = [
        (buffer, to_magic, first)
        for buffer in buffers
        for to_magic in (0, 1)
        for batch in MemoryRecords(buffer).batches()
        for first in (batch.base_offset, batch.last_offset, batch.last_offset + 1)
    ]
    answers = ask_java([f"down {to_magic} {first} {buffer.hex()}" for buffer, to_magic, first in cases])
    for (buffer, to_magic, first), answer in zip(cases, answers, strict=True):
        try:
            ours: object = content(down_convert([buffer], to_magic, first))
        except UnsupportedCompressionTypeError:
            ours = "UnsupportedCompressionTypeException"
        assert ours == (content([bytes.fromhex(answer)]) if not answer.startswith("U") else answer)
