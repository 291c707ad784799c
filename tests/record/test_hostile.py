"""Any bytes give records or CorruptRecordError, no other error, and never use much memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from pykclient.errors import CorruptRecordError
from pykclient.record import Compression, CursorOwner, MemoryRecords, MemoryRecordsBuilder, Record
from pykclient.record.memory_records import OFFSET_OF_ATTRIBUTES
from pykclient.record.memory_records_builder import compute_attributes, write_header
from pykclient.record.record_batch import RECORD_BATCH_OVERHEAD, crc32c, encode_varint
from pykclient.types import CREATE_TIME
from tests.record.strategies import CODECS, build, legacy_batches, v2_batches
from tests.support.examples import examples

OWNER = CursorOwner("t", 0)
LIMIT = 1 << 20


def read_everything(data: bytes | bytearray, is_crc_checked: bool) -> int:
    """Read by every method and return the number of records."""
    count = 0
    for batch in MemoryRecords(data).batches():
        repr(batch)
        if is_crc_checked:
            batch.ensure_valid()
        with suppress(CorruptRecordError):
            batch.first_record()
        cursor_records = 0
        try:
            cursor = batch.cursor(OWNER, 0, LIMIT)
            while not cursor.exhausted:
                cursor_records += len(cursor.next_records(7))
        finally:
            records = batch.records(LIMIT)
        # Consumers do not get records at negative offsets.
        assert cursor_records == sum(record.offset >= 0 for record in records) or not is_ordered(records)
        count += len(records)
    return count


def is_ordered(records: list[Record]) -> bool:
    return all(one.offset < other.offset for one, other in pairwise(records))


def with_crc(data: bytearray) -> bytearray:
    """Return a deliberately broken v2 batch with a CRC that matches."""
    data[17:21] = crc32c(bytes(data[OFFSET_OF_ATTRIBUTES:])).to_bytes(4, "big")
    return data


def batch_around(record_data: bytes, count: int, codec: str = "none") -> bytes:
    payload = Compression.of(codec).compress(record_data)
    buffer = bytearray(RECORD_BATCH_OVERHEAD) + payload
    write_header(
        buffer,
        len(buffer),
        base_offset=0,
        last_offset_delta=max(count - 1, 0),
        attributes=compute_attributes(Compression.of(codec).type, CREATE_TIME),
        base_timestamp=0,
        max_timestamp=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        partition_leader_epoch=-1,
        count=count,
    )
    return bytes(buffer)


@settings(max_examples=examples(300))
@given(v2_batches() | legacy_batches(), st.data())
def test_mutated_batches_are_read_or_refused(batch: tuple[list[Record], bytes], data: st.DataObject) -> None:
    mutated = bytearray(batch[1])
    for _ in range(data.draw(st.integers(1, 4), "changes")):
        at = data.draw(st.integers(0, len(mutated) - 1), "at")
        match data.draw(st.sampled_from(("byte", "cut", "insert", "extreme")), "change"):
            case "byte":
                mutated[at] = data.draw(st.integers(0, 255), "byte")
            case "cut":
                del mutated[at : at + data.draw(st.integers(1, 5), "bytes")]
            case "insert":
                mutated[at:at] = data.draw(st.binary(min_size=1, max_size=8), "inserted")
            case _:
                mutated[at : at + 4] = data.draw(st.sampled_from((b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\0\0\0")))
        if not mutated:
            return
    is_crc_checked = data.draw(st.booleans(), "checked")
    if data.draw(st.booleans(), "crc made right") and len(mutated) >= 61:
        with_crc(mutated)
    with suppress(CorruptRecordError):
        read_everything(mutated, is_crc_checked)


@given(st.binary(max_size=300), st.integers(-1, 1 << 31 - 1), st.sampled_from(CODECS))
def test_garbage_records_are_read_or_refused(garbage: bytes, count: int, codec: str) -> None:
    with suppress(CorruptRecordError):
        read_everything(batch_around(garbage, count, codec), True)


@given(st.binary(max_size=300))
def test_garbage_batches_are_read_or_refused(garbage: bytes) -> None:
    with suppress(CorruptRecordError):
        read_everything(garbage, False)


#: The fields of a record, to which the length is added.
RECORDS: dict[str, bytes] = {
    "key longer than the record": b"\0\0\0" + encode_varint(1000) + b"k" + b"\1" + b"\0",
    "huge key": b"\0\0\0" + encode_varint((1 << 31) - 1) + b"k\1\0",
    "huge value": b"\0\0\0\1" + encode_varint((1 << 31) - 1) + b"v\0",
    "billions of headers": b"\0\0\0\1\1" + encode_varint((1 << 31) - 1) + b"\2h\1",
    "negative headers": b"\0\0\0\1\1" + encode_varint(-1),
    "negative header name": b"\0\0\0\1\1" + b"\2" + encode_varint(-1) + b"\1",
    "huge header name": b"\0\0\0\1\1" + b"\2" + encode_varint((1 << 31) - 1) + b"h\1",
    "huge header value": b"\0\0\0\1\1" + b"\2" + b"\2h" + encode_varint((1 << 31) - 1),
    "bytes after the headers": b"\0\0\0\1\1\0\0",
    "timestamp without end": b"\0" + b"\xff" * 11 + b"\0\1\1\0",
    "offset without end": b"\0\0" + b"\xff" * 6 + b"\1\1\0",
    "only attributes": b"\0",
    "nothing": b"",
}


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_impossible_records_are_refused(name: str, codec: str) -> None:
    body = RECORDS[name]
    good = MemoryRecordsBuilder()
    good.append(0, b"k", b"v")
    record = encode_varint(len(body)) + body
    # A good record that follows must not be read as a part of the broken one.
    for data, count in ((record, 1), (record + bytes(good.build()[61:]), 2)):
        (batch,) = MemoryRecords(batch_around(data, count, codec)).batches()
        batch.ensure_valid()
        for read in (batch.records, batch.__iter__().__next__, partial(batch.cursor(OWNER).next_records, 5)):
            with pytest.raises(CorruptRecordError):
                read()


@pytest.mark.parametrize("length", [-1, 0, 1, 1000, (1 << 31) - 1, -(1 << 31)])
def test_impossible_record_lengths_are_refused(length: int) -> None:
    (batch,) = MemoryRecords(batch_around(encode_varint(length) + b"\0\0\0\1\1\0", 1)).batches()
    with pytest.raises(CorruptRecordError):
        batch.records()
    with pytest.raises(CorruptRecordError):
        batch.cursor(OWNER).next_records(1)


def test_header_names_that_are_not_utf_8_are_read() -> None:
    body = b"\0\0\0\1\1" + b"\2" + b"\4\xff\xfe" + b"\1"
    (batch,) = MemoryRecords(batch_around(encode_varint(len(body)) + body, 1)).batches()
    assert batch.records()[0].headers == (("\ufffd\ufffd", None),)


def peak_bytes(work: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", CODECS[1:])
def test_decompression_bomb_does_not_fill_memory(codec: str) -> None:
    data = batch_around(encode_varint(20_000_000) + bytes(20_000_000), 1, codec)
    (batch,) = MemoryRecords(data).batches()
    batch.ensure_valid()

    def explode() -> None:
        for read in (lambda: batch.records(LIMIT), lambda: batch.cursor(OWNER, 0, LIMIT).next_records(1)):
            with pytest.raises(CorruptRecordError):
                read()

    assert peak_bytes(explode) < 8 * LIMIT + 2 * len(data)


def test_false_record_count_does_not_fill_memory() -> None:
    (batch,) = MemoryRecords(batch_around(b"", (1 << 31) - 1)).batches()

    def read() -> None:
        with pytest.raises(CorruptRecordError):
            batch.records()

    assert peak_bytes(read) < 100_000


@pytest.mark.parametrize("magic", [1, 2])
def test_tiny_records_do_not_fill_memory(magic: int) -> None:
    count = 30_000
    if magic == 2:
        data = batch_around(b"\x0c\0\0\0\1\1\0" * count, count, "gzip")
    else:
        data = build([Record(i, 5, None, None) for i in range(count)], magic=1, compression=Compression.of("gzip"))
    (batch,) = MemoryRecords(data).batches()
    cursor = batch.cursor(OWNER)

    def read() -> None:
        assert batch.first_record() is not None
        assert sum(1 for _ in batch) == count
        assert len(cursor.next_records(10)) == (1 if magic == 2 else 10)

    # The bytes of the records plus a few hundred records at a time; a list of all would take ten times as much.
    assert peak_bytes(read) < (34 if magic == 1 else 7) * count * 4 + 100_000


def test_impossible_old_messages_are_refused() -> None:
    wrapper = build([Record(0, 5, b"k", b"v")], magic=1, compression=Compression.of("gzip"))
    for inner, text in (
        (b"", "no messages inside"),
        (bytes(8) + (5).to_bytes(4, "big") + bytes(20), "smaller than the smallest"),
        (wrapper, "has a compressed message inside"),
        (build([Record(9, 5, b"k", b"v")], magic=1), "has a message 9 inside"),
        (build([Record(0, 5, b"k", b"v")]), "of format 2 where v0 or v1 should be"),
    ):
        builder = MemoryRecordsBuilder(magic=1, compression=Compression.of("gzip"), base_offset=5)
        builder.append(0, None, None)
        builder._records[:] = inner
        builder._position = len(inner)
        (batch,) = MemoryRecords(builder.build()).batches()
        batch.ensure_valid()
        with pytest.raises(CorruptRecordError, match=text):
            batch.records()


def test_truncated_inner_message_ends_batch() -> None:
    builder = MemoryRecordsBuilder(magic=0, compression=Compression.of("gzip"))
    for number in range(3):
        builder.append(0, None, b"%d" % number)
    builder._position -= 1  # cuts off the last byte; the memory may be an earlier batch's, and longer
    (batch,) = MemoryRecords(builder.build()).batches()
    assert [record.value for record in batch.records()] == [b"0", b"1"]


def test_wrapper_at_offset_0_has_relative_offsets() -> None:
    """A wrapper at offset 0 has relative inner offsets only, as some versions of librdkafka wrote it."""
    builder = MemoryRecordsBuilder(magic=1, compression=Compression.of("gzip"))
    for number in range(3):
        builder.append(0, None, b"%d" % number)
    builder.override_last_offset(0)
    (batch,) = MemoryRecords(builder.build()).batches()
    assert [record.offset for record in batch.records()] == [0, 1, 2]
