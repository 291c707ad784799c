"""Fetched records as lines of text, by both twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.errors import KafkaError
from pykclient.record import MemoryRecords, Record, columns
from pykclient.record.columns import ColumnCursor, Columns
from pykclient.record.default_record_batch import DefaultRecordBatch
from pykclient.record.lines import LineBuffer
from tests.record.column_state import state
from tests.record.strategies import build, legacy_batches, v2_batches
from tests.support.twins import both_forms

TWINS = dict(zip(("python", "c"), both_forms("pykclient.record.columns", "decode_rows"), strict=True))

texts = st.sampled_from([b"", b"\n", b"=", b"\r\n", b" -> ", b"null" * 40])
formats = st.builds(lambda *parts: lambda: LineBuffer(*parts), texts, st.none() | texts, texts)


def expected(records: list[Record], lines: LineBuffer) -> bytes:
    def text(data: bytes | None) -> bytes:
        return lines.null if data is None else data

    def key(record: Record) -> bytes:
        return b"" if lines.key_delimiter is None else text(record.key) + lines.key_delimiter

    return b"".join(key(record) + text(record.value) + lines.delimiter for record in records)


def read(batch: Any, twin: Any, lines: LineBuffer, step: int, max_bytes: int) -> list[Any]:
    """Return what a cursor adds to the lines, step by step, until the batch ends or has failed twice."""
    seen: list[Any] = []
    before, columns.decode_rows = columns.decode_rows, twin
    try:
        target = Columns((), max_bytes, lines=lines)
        cursor = ColumnCursor(batch, "orders", 3, 0, 1 << 28)
        failures = 0
        while not cursor.exhausted and failures < 2:
            try:
                added: Any = cursor.read_into(target, step)
            except KafkaError as error:
                failures += 1
                added = repr(error)
            seen.append((added, cursor.next_offset, state(target)))
            if target.is_full:
                lines.clear()
                target = Columns((), max_bytes, lines=lines)
        return seen
    finally:
        columns.decode_rows = before


@given(v2_batches() | legacy_batches(), formats, st.integers(1, 40), st.sampled_from(tuple(TWINS)))
def test_every_record_is_a_line(
    records_and_data: tuple[list[Record], bytes], new: Callable[[], LineBuffer], step: int, name: str
) -> None:
    records, data = records_and_data
    lines = new()
    lines.data += b"what was there before"
    for batch in MemoryRecords(data).batches():
        read(batch, TWINS[name], lines, step, 1 << 30)
    assert bytes(lines.text()) == expected(records, lines)


@given(v2_batches() | legacy_batches(), formats, st.integers(1, 40), st.integers(1, 2000))
def test_the_twins_do_the_same(
    records_and_data: tuple[list[Record], bytes], new: Callable[[], LineBuffer], step: int, max_bytes: int
) -> None:
    for batch in MemoryRecords(records_and_data[1]).batches():
        assert read(batch, TWINS["python"], new(), step, max_bytes) == read(batch, TWINS["c"], new(), step, max_bytes)


@given(st.binary(max_size=200), st.integers(0, 20), formats)
def test_the_twins_do_the_same_with_anything(records: bytes, count: int, new: Callable[[], LineBuffer]) -> None:
    header = bytearray(build([Record(0, 1, None, b"")])[:61])
    header[57:61] = count.to_bytes(4, "big")
    batch = DefaultRecordBatch(memoryview(bytes(header) + records))
    assert read(batch, TWINS["python"], new(), 5, 1 << 30) == read(batch, TWINS["c"], new(), 5, 1 << 30)


@pytest.mark.parametrize("name", TWINS)
def test_lines_grow_beyond_the_size_of_the_batch(name: str) -> None:
    lines = LineBuffer(b"<end>" * 50, b"<between>" * 50, b"<null>" * 50)
    records = [Record(offset, 1, None if offset % 3 else b"k", None if offset % 2 else b"v") for offset in range(500)]
    (batch,) = MemoryRecords(build(records)).batches()
    read(batch, TWINS[name], lines, 7, 1 << 30)
    assert bytes(lines.text()) == expected(records, lines)


@pytest.mark.parametrize("name", TWINS)
def test_memory_is_used_again(name: str) -> None:
    lines = LineBuffer(b"\n", None, b"")
    for _ in range(2):
        lines.clear()
        (batch,) = MemoryRecords(build([Record(0, 1, b"k", b"one"), Record(1, 1, None, b"two")])).batches()
        memory = lines.data
        read(batch, TWINS[name], lines, 10, 1 << 30)
        assert bytes(lines.text()) == b"one\ntwo\n"
        assert lines.data is memory
