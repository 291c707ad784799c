"""Batches read into columns by both twins: the same records as one by one, and the same errors for hostile bytes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from pykclient.errors import CorruptRecordError, IllegalArgumentError, KafkaError
from pykclient.record import Compression, MemoryRecords, Record, arrow, columns
from pykclient.record.columns import (
    COLUMN_NAMES,
    ColumnMemory,
    Columns,
    ViewBuffers,
)
from pykclient.record.memory_records import DefaultRecordBatch
from tests.record.column_state import state
from tests.record.strategies import CODECS, build, legacy_batches, v2_batches
from tests.support.twins import both_forms

TWINS = dict(zip(("python", "c"), both_forms("pykclient.record.columns", "ColumnCursor"), strict=True))


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "ColumnCursor", TWINS[request.param])


def cursor_of(batch: Any, from_offset: int = 0) -> columns.ColumnCursor:
    return columns.ColumnCursor(batch, "orders", 3, from_offset, 1 << 28)


def rows_of(batch: pa.RecordBatch) -> list[Record]:
    batch.validate(full=True)
    return [
        Record(
            row["offset"],
            -1 if row["timestamp"] is None else row["timestamp"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for row in batch.set_column(
            batch.schema.get_field_index("timestamp"), "timestamp", batch["timestamp"].cast(pa.int64())
        ).to_pylist()
    ]


def read(batch: Any, twin: Any, from_offset: int, step: int, max_bytes: int, names: Any, views: bool) -> list[Any]:
    """Return the results of a cursor on the batch, step by step, until it ends or has failed twice."""
    seen: list[Any] = []
    target = Columns(names, max_bytes, views)
    cursor = twin(batch, "orders", 3, from_offset, 1 << 28)
    failures = 0
    while not cursor.exhausted and failures < 2:
        try:
            added: Any = cursor.read_into(target, step)
        except KafkaError as error:
            failures += 1
            added = repr(error)
        seen.append((added, cursor.next_offset, cursor.bytes_read, cursor.records_read, state(target)))
        if target.is_full:
            target = Columns(names, max_bytes, views)
    return seen


batches = v2_batches() | legacy_batches()
choices = st.none() | st.lists(st.sampled_from(COLUMN_NAMES), min_size=1, unique=True)


@given(batches, st.integers(1, 40), st.booleans(), st.sampled_from(tuple(TWINS)))
def test_columns_equal_records_read_one_by_one(
    records_and_data: tuple[list[Record], bytes], step: int, views: bool, name: str
) -> None:
    records, data = records_and_data
    target = Columns(views=views)
    for batch in MemoryRecords(data).batches():
        cursor = TWINS[name](batch, "orders", 3, 0, 1 << 28)
        while not cursor.exhausted:
            assert cursor.read_into(target, step) <= step
    result = arrow.record_batch(target)
    assert rows_of(result) == records
    assert result.schema == arrow.schema(views=views)
    assert set(result["topic"].to_pylist()) == {"orders"}
    assert set(result["partition"].to_pylist()) == {3}


@given(batches, st.integers(1, 40), st.integers(0, 1 << 41), st.integers(1, 2000), choices, st.booleans())
def test_twins_fill_columns_alike(
    records_and_data: tuple[list[Record], bytes], step: int, start: int, max_bytes: int, names: Any, views: bool
) -> None:
    for batch in MemoryRecords(records_and_data[1]).batches():
        arguments = (start, step, max_bytes, names, views)
        assert read(batch, TWINS["python"], *arguments) == read(batch, TWINS["c"], *arguments)


@given(v2_batches(), st.data(), choices, st.booleans())
def test_twins_read_damaged_batches_alike(
    records_and_data: tuple[list[Record], bytes], data: st.DataObject, names: Any, views: bool
) -> None:
    hostile = bytearray(records_and_data[1])
    for _ in range(data.draw(st.integers(1, 4))):
        # The header is mutated too (counts, base offset, base timestamp), but the batch stays uncompressed.
        place = data.draw(st.integers(23, len(hostile) - 1))
        hostile[place] = data.draw(st.integers(0, 255))
    hostile[21:23] = bytes((0, data.draw(st.sampled_from((0, 8)))))
    hostile = hostile[: data.draw(st.integers(61, len(hostile)))]
    results = []
    for twin in TWINS.values():
        try:
            results.append(read(DefaultRecordBatch(memoryview(hostile)), twin, 0, 7, 1 << 30, names, views))
        except CorruptRecordError as error:
            results.append([repr(error)])
    assert results[0] == results[1]


@given(st.binary(max_size=200), st.integers(0, 20), st.booleans())
def test_twins_read_random_bytes_alike(records: bytes, count: int, views: bool) -> None:
    header = bytearray(build([Record(0, 1, None, b"")])[:61])
    header[57:61] = count.to_bytes(4, "big")
    batch = DefaultRecordBatch(memoryview(bytes(header) + records))
    arguments = (0, 5, 1 << 30, None, views)
    assert read(batch, TWINS["python"], *arguments) == read(batch, TWINS["c"], *arguments)


def batch_of(count: int, **config: Any) -> Any:
    records = [
        Record(100 + i, 1000 + i, b"%d" % i, b"a value of the record %d" % i, (("h", None),)) for i in range(count)
    ]
    (batch,) = MemoryRecords(build(records, **config)).batches()
    return batch


@pytest.mark.usefixtures("twin")
class TestBothTwins:
    def test_rows_and_bytes_are_bounded(self) -> None:
        batch = batch_of(100)
        target = Columns(max_bytes=200)
        cursor = cursor_of(batch)
        assert cursor.read_into(target, 3) == 3
        assert not target.is_full
        assert cursor.read_into(target, 100) > 0
        assert target.is_full
        assert target.size_bytes <= 200
        assert cursor.read_into(target, 100) == 0
        assert not cursor.exhausted

    def test_a_first_record_over_the_bound_is_read(self) -> None:
        target = Columns(max_bytes=1)
        assert cursor_of(batch_of(3)).read_into(target, 100) == 1

    def test_reading_starts_at_given_offset(self) -> None:
        target = Columns(["offset"])
        assert cursor_of(batch_of(10), 107).read_into(target, 100) == 3
        assert arrow.record_batch(target)["offset"].to_pylist() == [107, 108, 109]

    def test_unwanted_columns_are_not_built(self) -> None:
        target = Columns(["value", "partition"])
        cursor_of(batch_of(2)).read_into(target, 100)
        assert (target.keys, target.headers, target.offsets, target.timestamps) == (None, None, None, None)
        result = arrow.record_batch(target)
        assert result.schema.names == ["value", "partition"]
        assert result["value"].to_pylist() == [b"a value of the record 0", b"a value of the record 1"]

    def test_views_point_into_what_was_received(self) -> None:
        batch = batch_of(3)
        target = Columns(["key", "value"], views=True)
        cursor_of(batch).read_into(target, 100)
        assert isinstance(target.values, ViewBuffers)
        assert isinstance(target.keys, ViewBuffers)
        (source,) = target.values.sources
        assert isinstance(source, memoryview)
        assert source.obj is batch.buffer.obj
        assert target.keys.sources == []  # short values are stored in their views

    @pytest.mark.parametrize("codec", CODECS)
    def test_decompressed_values_are_copied_into_one_buffer_for_views(self, codec: str) -> None:
        target = Columns(["value"], views=True)
        cursor = cursor_of(batch_of(50, compression=Compression.of(codec)))
        while not cursor.exhausted:
            cursor.read_into(target, 7)
        assert isinstance(target.values, ViewBuffers)
        assert len(target.values.sources) == 1
        assert (target.values.sources[0] is target.values.data) == (codec != "none")
        values = arrow.record_batch(target)["value"]
        assert values.to_pylist() == [b"a value of the record %d" % i for i in range(50)]

    def test_views_of_plain_and_compressed_batches_stand_in_one_column(self) -> None:
        target = Columns(["value"], views=True)
        codecs = ("none", "gzip", "gzip", "none", "gzip")
        for codec in codecs:
            cursor_of(batch_of(2, compression=Compression.of(codec))).read_into(target, 100)
        assert isinstance(target.values, ViewBuffers)
        assert [source is target.values.data for source in target.values.sources] == [False, True, False]
        values = arrow.record_batch(target)["value"]
        values.validate(full=True)
        assert values.to_pylist() == [b"a value of the record %d" % i for _ in codecs for i in range(2)]

    def test_columns_hold_many_batches_and_partitions(self) -> None:
        target = Columns()
        for partition, count in ((0, 2), (1, 3), (1, 1)):
            batch = batch_of(count, partition_leader_epoch=7 if partition else -1)
            columns.ColumnCursor(batch, "t", partition, 0, 99).read_into(target, 100)
        result = arrow.record_batch(target)
        result.validate(full=True)
        assert result["partition"].to_pylist() == [0, 0, 1, 1, 1, 1]
        assert result["leader_epoch"].to_pylist() == [None, None, 7, 7, 7, 7]
        assert result["offset"].to_pylist() == [100, 101, 100, 101, 102, 100]
        assert [(run.partition, run.rows) for run in target.runs] == [(0, 2), (1, 4)]

    def test_records_before_corrupt_one_are_read_first(self) -> None:
        data = bytearray(build([Record(i, 1, b"k", b"v") for i in range(10)]))
        data[-1] = 0x7F  # the last record's header count
        batch = DefaultRecordBatch(memoryview(data))
        target = Columns()
        cursor = cursor_of(batch)
        assert cursor.read_into(target, 100) == 9
        for _ in range(2):
            with pytest.raises(CorruptRecordError):
                cursor.read_into(target, 100)
        assert target.rows == 9

    def test_false_record_count_allocates_no_memory(self) -> None:
        data = bytearray(build([Record(0, 1, b"k", b"v")]))
        data[57:61] = (2**31 - 1).to_bytes(4, "big")
        target = Columns()
        cursor = cursor_of(DefaultRecordBatch(memoryview(data)))
        assert cursor.read_into(target, 2**31 - 1) == 1
        with pytest.raises(CorruptRecordError):
            cursor.read_into(target, 2**31 - 1)

    def test_invalid_utf8_in_header_names_is_replaced(self) -> None:
        data = build([Record(0, 1, None, b"v", (("name", b"x"),))]).replace(b"name", b"n\xffm\xc3")
        target = Columns(["headers"])
        cursor_of(DefaultRecordBatch(memoryview(data))).read_into(target, 1)
        assert arrow.record_batch(target)["headers"].to_pylist() == [[{"key": "n�m�", "value": b"x"}]]


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("views", [False, True])
def test_memory_is_reused_once_no_view_is_left(views: bool) -> None:
    memory = ColumnMemory()

    def read_one(batch: Any) -> tuple[Columns, pa.RecordBatch]:
        target = Columns(views=views, memory=memory)
        cursor_of(batch).read_into(target, 100)
        return target, arrow.record_batch(target)

    first, one = read_one(batch_of(100))
    second, two = read_one(batch_of(90))
    assert first.offsets is not second.offsets
    kept = one.slice(3, 2)
    del one
    third, three = read_one(batch_of(80))
    assert third.offsets is not first.offsets
    assert rows_of(kept) == rows_of(three)[3:5] == rows_of(two)[3:5]
    buffers = {id(second.offsets), id(second.timestamps), id(third.offsets), id(third.timestamps)}
    del kept, two, three
    # Fewer and different rows. The buffers still have data of the earlier rows, which must not show.
    records = [Record(i, -1, None if i % 3 else b"key", None if i % 2 else b"a value") for i in range(20)]
    (batch,) = MemoryRecords(build(records)).batches()
    fourth, four = read_one(batch)
    assert id(fourth.offsets) in buffers
    assert rows_of(four) == records


def test_header_buffers_are_returned() -> None:
    memory = ColumnMemory()
    columns = Columns(["headers"], memory=memory)
    column = columns.headers
    assert column is not None
    column.extend(0, [[(f"name {row}", b"value")] for row in range(1000)])
    own = [column.offsets, column.names.offsets, column.values.offsets]
    columns.give_back()
    again = Columns(["headers"], memory=memory).headers
    assert again is not None
    assert again.offsets is own[0]
    assert again.names.offsets is own[1]
    assert again.values.offsets is own[2]


def test_few_rows_do_not_keep_much_memory() -> None:
    memory = ColumnMemory()
    large = Columns(["value"], memory=memory)
    cursor_of(batch_of(10_000)).read_into(large, 10_000)
    arrow.record_batch(large)
    small = Columns(["value"], memory=memory)
    cursor_of(batch_of(1)).read_into(small, 1)
    batch = arrow.record_batch(small)
    assert small.values is not None
    assert len(large.values.data) > 100_000  # type: ignore[union-attr]
    assert sum(buffer.size for buffer in batch["value"].buffers() if buffer is not None) < 1000


def test_empty_columns_make_empty_record_batch() -> None:
    result = arrow.record_batch(Columns())
    assert result.num_rows == 0
    assert result.schema == arrow.schema()
    assert arrow.record_batch(Columns(views=True)).schema == arrow.schema(views=True)


@pytest.mark.parametrize("names", [[], ["value", "value"], ["values"]])
def test_unknown_columns_are_refused(names: list[str]) -> None:
    with pytest.raises(IllegalArgumentError, match="columns"):
        Columns(names)


@pytest.mark.parametrize(("number", "wrapped"), [(2**63 - 1, 2**63 - 1), (2**63, -(2**63)), (-1, -1), (2**64 + 5, 5)])
def test_sums_wrap_like_javas_long(number: int, wrapped: int) -> None:
    assert columns._wrapped(number) == wrapped
