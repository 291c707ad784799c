"""Facts about records that brokers need without decoding them."""

from __future__ import annotations

import contextlib
from random import Random

from hypothesis import given, strategies as st

from pykclient.errors import CorruptRecordError
from pykclient.record import MemoryRecordsBuilder, Record
from pykclient.record.default_record import decode_records, summarize_records
from pykclient.record.record_batch import RECORD_BATCH_OVERHEAD
from tests.record.strategies import record_lists


def encoded(records: list[Record]) -> bytes:
    builder = MemoryRecordsBuilder(base_offset=records[0].offset)
    for record in records:
        builder.append_with_offset(*record)
    return bytes(builder.build())[RECORD_BATCH_OVERHEAD:]


@given(records=record_lists())
def test_summary_equals_that_of_decoded_records(records: list[Record]) -> None:
    summary = summarize_records(encoded(records), len(records), records[0].timestamp)
    timestamps = [record.timestamp for record in records if record.timestamp != -1] or [-1]
    assert summary == (
        min(timestamps),
        max(timestamps),
        all(record.key is not None for record in records),
        [record.offset - records[0].offset for record in records] == list(range(len(records))),
    )


def decodes(data: bytes, count: int) -> bool:
    with contextlib.suppress(CorruptRecordError):
        return decode_records(data, 0, count, 0, 5)[1] == len(data)
    return False


def has_summary(data: bytes, count: int) -> bool:
    with contextlib.suppress(CorruptRecordError):
        summarize_records(data, count, 5)
        return True
    return False


@given(records=record_lists(), seed=st.integers(0, 1 << 30), extra=st.integers(-1, 1))
def test_records_with_a_summary_can_be_decoded(records: list[Record], seed: int, extra: int) -> None:
    rng = Random(seed)
    data = bytearray(encoded(records))
    for _ in range(rng.randrange(4)):
        position = rng.randrange(len(data) + 1)
        data[position : position + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
    count = len(records) + extra
    assert has_summary(bytes(data), count) == decodes(bytes(data), count)
