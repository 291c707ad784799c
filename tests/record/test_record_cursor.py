from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pykclient.errors import CorruptRecordError, IllegalStateError, RecordDeserializationError
from pykclient.record import (
    Compression,
    Cursor,
    CursorOwner,
    DefaultRecordBatch,
    MemoryRecords,
    MemoryRecordsBuilder,
    Record,
)
from pykclient.record.legacy_record_batch import RecordIteratorCursor
from pykclient.record.memory_records import AnyRecordBatch
from pykclient.types import CREATE_TIME, LOG_APPEND_TIME, ConsumerRecord, Headers, TopicPartition
from tests.record.strategies import CODECS, build, legacy_batches, v2_batches

OWNER = CursorOwner("orders", 3)

#: Formats and codecs with more than one record per batch.
SHARED = [(2, codec) for codec in CODECS] + [(1, "gzip"), (0, "snappy")]


def batch_of(count: int, magic: int = 2, codec: str = "none", **config: Any) -> AnyRecordBatch:
    records = [Record(100 + i, 1000 + i, b"%d" % i, b"v%d" % i) for i in range(count)]
    data = build(records, magic=magic, compression=Compression.of(codec), **config)
    (batch,) = MemoryRecords(data).batches()
    return batch


def read_all(cursor: Cursor, step: int) -> list[ConsumerRecord[Any, Any]]:
    result = []
    while not cursor.exhausted:
        records = cursor.next_records(step)
        assert len(records) <= step
        result += records
    assert cursor.next_records(step) == []
    return result


def as_consumed(record: Record, timestamp_type: int, leader_epoch: int | None = None) -> ConsumerRecord[Any, Any]:
    key, value = record.key, record.value
    return ConsumerRecord(
        "orders",
        3,
        leader_epoch,
        record.offset,
        record.timestamp,
        timestamp_type,
        key,
        value,
        record.headers,
        None,
        -1 if key is None else len(key),
        -1 if value is None else len(value),
    )


@given(v2_batches() | legacy_batches(), st.integers(1, 40), st.integers(0, 40))
def test_cursor_yields_same_records_as_batch(batch: tuple[list[Record], bytes], step: int, skipped: int) -> None:
    records, data = batch
    from_offset = records[0].offset + skipped
    consumed = []
    for each in MemoryRecords(data).batches():
        cursor = each.cursor(OWNER, from_offset)
        consumed += read_all(cursor, step)
        timestamp_type = each.timestamp_type
    assert consumed == [as_consumed(each, timestamp_type) for each in records if each.offset >= from_offset]


def test_cursor_counts_offsets_records_and_bytes() -> None:
    batch = batch_of(10, codec="lz4", partition_leader_epoch=7)
    cursor = batch.cursor(OWNER, 103)
    assert (cursor.next_offset, cursor.records_read, cursor.bytes_read, cursor.exhausted) == (103, 0, 0, False)
    first = cursor.next_records(4)
    assert [record.offset for record in first] == [103, 104, 105, 106]
    assert first[0].leader_epoch == 7
    assert (cursor.next_offset, cursor.records_read, cursor.exhausted) == (107, 4, False)
    assert cursor.next_records(0) == []
    assert [record.offset for record in cursor.next_records(100)] == [107, 108, 109]
    assert (cursor.next_offset, cursor.records_read, cursor.exhausted) == (110, 7, True)
    sizes = [MemoryRecordsBuilder().append(1000, record.key, record.value) for record in batch.records()[3:]]
    assert cursor.bytes_read == sum(sizes)


def test_cursor_started_after_last_record_is_exhausted() -> None:
    cursor = batch_of(5).cursor(OWNER, 1000)
    assert cursor.next_records(10) == []
    assert cursor.exhausted
    assert (cursor.next_offset, cursor.records_read, cursor.bytes_read) == (1000, 0, 0)


@pytest.mark.parametrize("timestamp_type", [CREATE_TIME, LOG_APPEND_TIME])
def test_records_have_timestamp_type_of_batch(timestamp_type: int) -> None:
    batch = batch_of(2, timestamp_type=timestamp_type, log_append_time=5555)
    records = batch.cursor(OWNER).next_records(5)
    assert [record.timestamp_type for record in records] == [timestamp_type] * 2
    assert [record.timestamp for record in records] == ([5555] * 2 if timestamp_type else [1000, 1001])


# --- deserializers


class Number:
    """A deserializer of ints that fails on chosen data."""

    def __init__(self) -> None:
        self.fails_on: bytes | None = None
        self.seen: list[tuple[str, Headers, bytes]] = []

    def __call__(self, topic: str, headers: Headers, data: bytes) -> int:
        self.seen.append((topic, headers, data))
        if data == self.fails_on:
            raise IndexError("no such number")
        return int(data.removeprefix(b"v"))


def test_deserializers_get_topic_headers_and_bytes() -> None:
    builder = MemoryRecordsBuilder()
    builder.append(0, b"1", None, [("h", b"x")])
    builder.append(0, None, b"v22")
    (batch,) = MemoryRecords(builder.build()).batches()
    keys, values = Number(), Number()
    records = batch.cursor(CursorOwner("t", 0, keys, values)).next_records(5)
    assert [(record.key, record.value) for record in records] == [(1, None), (None, 22)]
    assert [(record.serialized_key_size, record.serialized_value_size) for record in records] == [(1, -1), (-1, 3)]
    assert keys.seen == [("t", (("h", b"x"),), b"1")]
    assert values.seen == [("t", (), b"v22")]


@pytest.mark.parametrize(("magic", "codec"), SHARED)
@pytest.mark.parametrize("part", ["key", "value"])
def test_undeserializable_record_raises_without_being_skipped(part: str, magic: int, codec: str) -> None:
    batch = batch_of(6, magic, codec)
    number = Number()
    number.fails_on = b"3" if part == "key" else b"v3"
    owner = CursorOwner("orders", 3, number if part == "key" else None, number if part == "value" else None)
    cursor = batch.cursor(owner)
    assert [record.offset for record in cursor.next_records(10)] == [100, 101, 102]
    for _ in range(2):
        with pytest.raises(RecordDeserializationError, match=r"offset 103 of orders-3 .*no such number") as info:
            cursor.next_records(10)
    error = info.value
    assert (error.topic_partition, error.offset, error.part) == (TopicPartition("orders", 3), 103, part)
    assert (error.record.key, error.record.value, error.record.offset) == (b"3", b"v3", 103)
    assert isinstance(error.__cause__, IndexError)
    assert pickle.loads(pickle.dumps(error)).record == error.record
    assert (cursor.next_offset, cursor.records_read, cursor.exhausted) == (103, 3, False)
    # Another cursor can continue after the record, and so can this one once the deserializer succeeds.
    assert [record.offset for record in batch.cursor(owner, 104).next_records(10)] == [104, 105]
    number.fails_on = None
    assert [record.offset for record in cursor.next_records(10)] == [103, 104, 105]
    assert cursor.exhausted


# --- corruption


def test_records_before_corrupt_one_are_returned_first() -> None:
    data = bytearray(build([Record(i, 0, b"k", b"vvvv") for i in range(5)]))
    at = data.rindex(b"k") - 1
    assert data[at] == 2
    data[at] = 4  # extends the last key into its value
    (batch,) = MemoryRecords(data).batches()
    cursor = batch.cursor(OWNER)
    assert [record.offset for record in cursor.next_records(10)] == [0, 1, 2, 3]
    for _ in range(2):
        with pytest.raises(CorruptRecordError):
            cursor.next_records(10)
    assert cursor.next_offset == 4
    with pytest.raises(CorruptRecordError):
        batch.records()
    assert batch.first_record() == Record(0, 0, b"k", b"vvvv")


def test_old_records_before_corrupt_one_are_returned_first() -> None:
    builder = MemoryRecordsBuilder(magic=1, compression=Compression.of("none"))
    for _ in range(3):
        builder.append(0, b"key", b"value")
    inner = bytearray(builder.build())
    inner[-1] ^= 1
    wrapper = MemoryRecordsBuilder(magic=1, compression=Compression.of("gzip"))
    wrapper.append(0, None, None)
    wrapper._records[:] = inner
    wrapper._position = len(inner)
    wrapper._last_offset = 2
    (batch,) = MemoryRecords(wrapper.build()).batches()
    batch.ensure_valid()
    cursor = batch.cursor(OWNER)
    assert [record.offset for record in cursor.next_records(10)] == [0, 1]
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match="has CRC"):
            cursor.next_records(10)
    assert not cursor.exhausted


@pytest.mark.parametrize("change", [1, -1])
def test_wrong_record_count_is_refused(change: int) -> None:
    data = bytearray(build([Record(i, 0, b"k", b"v") for i in range(5)]))
    data[57:61] = (5 + change).to_bytes(4, "big")
    (batch,) = MemoryRecords(data).batches()
    with pytest.raises(CorruptRecordError):
        batch.records()
    cursor = batch.cursor(OWNER)
    # As in Java, an error at the end of the batch is raised for the last record that the header counts.
    assert len(cursor.next_records(10)) == (5 if change > 0 else 3)
    with pytest.raises(CorruptRecordError, match="ends inside a record" if change > 0 else "bytes are left"):
        cursor.next_records(10)


def test_negative_record_count_is_refused() -> None:
    data = bytearray(build([Record(0, 0, b"k", b"v")]))
    data[57:61] = b"\xff\xff\xff\xff"
    (batch,) = MemoryRecords(data).batches()
    assert isinstance(batch, DefaultRecordBatch)
    for call in (batch.records, lambda: batch.cursor(OWNER), lambda: list(batch)):
        with pytest.raises(CorruptRecordError, match="cannot have -1 records"):
            call()


class InterruptedOffset(int):
    """An offset with which the first addition is interrupted by a signal handler that raises an error of Kafka."""

    is_interrupted = False

    def __add__(self, other: int) -> int:
        if not self.is_interrupted:
            self.is_interrupted = True
            raise IllegalStateError("raised by a signal handler")
        return int(self) + other


def test_a_record_is_returned_once_if_a_signal_handler_raises_after_it() -> None:
    records = [Record(InterruptedOffset(7), 0, None, b"a", ()), Record(8, 0, None, b"b", ())]
    cursor = RecordIteratorCursor(iter(records), OWNER, 7, CREATE_TIME)
    assert [record.value for record in read_all(cursor, 10)] == [b"a", b"b"]
