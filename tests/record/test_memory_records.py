from __future__ import annotations

import pytest

from pykclient.errors import CorruptRecordError, IllegalArgumentError
from pykclient.record import (
    Compression,
    DefaultRecordBatch,
    MemoryRecords,
    Record,
    decrement_sequence,
    increment_sequence,
)
from pykclient.record.memory_records_builder import write_empty_header
from pykclient.types import CREATE_TIME, LOG_APPEND_TIME
from tests.record.strategies import build

ONE = build([Record(7, 5, b"k", b"v")])
TWO = build([Record(8, 5, b"k", b"v"), Record(9, 6, None, None)], compression=Compression.of("lz4"))
OLD = build([Record(6, 5, b"k", b"v")], magic=1)


def test_batches_of_buffer_are_iterated() -> None:
    records = MemoryRecords(OLD + ONE + TWO)
    batches = list(records.batches())
    assert [batch.magic for batch in batches] == [1, 2, 2]
    assert [batch.base_offset for batch in batches] == [6, 7, 8]
    assert [batch.next_offset for batch in batches] == [7, 8, 10]
    assert [bytes(batch.buffer) for batch in batches] == [OLD, ONE, TWO]
    assert [record.offset for record in records.records()] == [6, 7, 8, 9]
    assert records.size_in_bytes == len(records) == records.valid_bytes == len(OLD + ONE + TWO)
    first = records.first_batch()
    assert first is not None
    assert first.base_offset == 6


def test_empty_records_have_no_batches() -> None:
    assert list(MemoryRecords.EMPTY.batches()) == []
    assert MemoryRecords.EMPTY.first_batch() is None


@pytest.mark.parametrize("cut", range(1, len(TWO)))
def test_truncated_batch_ends_iteration(cut: int) -> None:
    records = MemoryRecords((ONE + TWO)[:-cut])
    assert [batch.base_offset for batch in records.batches()] == [7]
    assert records.valid_bytes == len(ONE)


def test_batch_that_is_cut_off_after_its_magic_has_a_size() -> None:
    assert MemoryRecords(TWO[:17]).batch_size_at(0) == len(TWO)
    assert MemoryRecords(TWO[:16]).batch_size_at(0) is None


def test_corrupt_size_is_detected_once_it_is_complete() -> None:
    start = bytes(8) + (3).to_bytes(4, "big")  # an offset and a size
    assert list(MemoryRecords(start[:11]).batches()) == []
    with pytest.raises(CorruptRecordError, match="a batch of 3 bytes"):
        list(MemoryRecords(start).batches())


@pytest.mark.parametrize(
    ("size", "text"),
    [(-1, "smaller than the smallest"), (13, "smaller than the smallest"), (48, "smaller than its header of 61")],
)
def test_impossible_batch_sizes_are_refused(size: int, text: str) -> None:
    data = bytearray(ONE)
    data[8:12] = size.to_bytes(4, "big", signed=True)
    records = MemoryRecords(ONE + data).batches()
    next(records)
    with pytest.raises(CorruptRecordError, match=text):
        next(records)


def test_batch_over_size_limit_is_refused() -> None:
    with pytest.raises(CorruptRecordError, match="larger than the largest allowed, 30"):
        list(MemoryRecords(ONE).batches(max_batch_size=30))
    huge = bytearray(ONE)
    huge[8:12] = b"\x7f\xff\xff\xff"
    assert list(MemoryRecords(huge).batches()) == []


@pytest.mark.parametrize("magic", [3, 127, 255])
def test_unknown_formats_are_refused(magic: int) -> None:
    data = bytearray(ONE)
    data[16] = magic
    with pytest.raises(CorruptRecordError, match=f"unknown format {magic}"):
        list(MemoryRecords(data).batches())


def test_slices_are_taken_by_position_and_size() -> None:
    records = MemoryRecords(ONE + TWO)
    assert records.slice(len(ONE), 1 << 30) == MemoryRecords(TWO)
    assert records.slice(0, len(ONE)) == MemoryRecords(ONE)
    assert records.slice(len(ONE) + len(TWO), 5) == MemoryRecords.EMPTY
    for position, size in ((-1, 5), (0, -1), (1000, 1)):
        with pytest.raises(IllegalArgumentError):
            records.slice(position, size)


def test_batches_are_views_of_buffer() -> None:
    data = bytearray(ONE)
    (batch,) = MemoryRecords(data).batches()
    assert batch.buffer.obj is data


# --- one batch


@pytest.mark.parametrize("at", [*range(17, 61), len(TWO) - 1])
def test_crc_covers_every_byte_after_it(at: int) -> None:
    data = bytearray(TWO)
    data[at] ^= 0x40
    (batch,) = MemoryRecords(data).batches()
    assert not batch.is_valid
    with pytest.raises(CorruptRecordError, match="has CRC"):
        batch.ensure_valid()


@pytest.mark.parametrize("at", range(16, len(OLD)))
def test_crc_covers_every_byte_of_old_message(at: int) -> None:
    data = bytearray(OLD)
    data[at] ^= 0x04
    with pytest.raises(CorruptRecordError):  # noqa: PT012 - some make the batch itself unreadable
        for batch in MemoryRecords(data).batches():
            batch.ensure_valid()


@pytest.mark.parametrize("offset", [-1, (1 << 63) - 1, (1 << 63) - (1 << 31)])
def test_impossible_base_offsets_are_refused(offset: int) -> None:
    data = bytearray(TWO)
    data[:8] = offset.to_bytes(8, "big", signed=True)
    (batch,) = MemoryRecords(data).batches()
    assert batch.is_valid
    with pytest.raises(CorruptRecordError, match="cannot have offsets"):
        batch.ensure_valid()


def test_undefined_codec_is_refused() -> None:
    data = bytearray(ONE)
    data[22] |= 0x07
    (batch,) = MemoryRecords(data).batches()
    with pytest.raises(CorruptRecordError, match="id 7 is not defined"):
        batch.records()


def test_batch_without_records_is_read() -> None:
    data = write_empty_header(5, 1, 10, 100, 104, 3, CREATE_TIME, 77, is_transactional=True)
    (batch,) = MemoryRecords(data).batches()
    batch.ensure_valid()
    assert batch.records() == []
    assert batch.first_record() is None
    assert (batch.base_offset, batch.next_offset, batch.max_timestamp) == (100, 105, 77)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (5, 1, 10, 14)
    assert (batch.count_or_none, batch.partition_leader_epoch, batch.is_transactional) == (0, 3, True)


def test_broker_changes_header_fields_in_place() -> None:
    data = bytearray(TWO)
    (batch,) = MemoryRecords(data).batches()
    assert isinstance(batch, DefaultRecordBatch)
    batch.set_last_offset(501)
    batch.set_partition_leader_epoch(9)
    batch.set_max_timestamp(LOG_APPEND_TIME, 12345)
    for each in (batch, *MemoryRecords(data).batches()):
        each.ensure_valid()
        assert [(record.offset, record.timestamp) for record in each.records()] == [(500, 12345), (501, 12345)]
        assert (each.partition_leader_epoch, each.timestamp_type, each.max_timestamp) == (9, LOG_APPEND_TIME, 12345)
    batch.set_max_timestamp(CREATE_TIME, 6)
    batch.ensure_valid()
    assert [record.timestamp for record in batch.records()] == [5, 6]
    with pytest.raises(TypeError):
        DefaultRecordBatch(memoryview(TWO)).set_last_offset(5)


@pytest.mark.parametrize(
    ("sequence", "increment", "result"),
    [(0, 0, 0), (5, 3, 8), ((1 << 31) - 1, 1, 0), ((1 << 31) - 2, 5, 3), ((1 << 31) - 1, (1 << 31) - 1, (1 << 31) - 2)],
)
def test_sequence_numbers_wrap(sequence: int, increment: int, result: int) -> None:
    assert increment_sequence(sequence, increment) == result
    assert decrement_sequence(result, increment) == sequence
