"""Fetched records as lines of text, by both twins."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pykclient.errors import KafkaError
from pykclient.record import MemoryRecords, Record
from pykclient.record.columns import Columns
from pykclient.record.lines import BASE64, HEX, JSON, PLAIN, LineBuffer, Piece, delimited, json_object
from pykclient.record.memory_records import DefaultRecordBatch
from tests.record.column_state import state
from tests.record.strategies import build, legacy_batches, v2_batches
from tests.support.twins import both_forms

TWINS = dict(zip(("python", "c"), both_forms("pykclient.record.columns", "ColumnCursor"), strict=True))

texts = st.sampled_from([b"", b"\n", b"=", b"\r\n", b" -> ", b"null" * 40])
pieces = st.lists(
    st.builds(lambda text: Piece(text=text), texts)
    | st.builds(Piece, st.sampled_from("poKS"), st.just(PLAIN), st.just(b""))
    | st.builds(Piece, st.sampled_from("tT"), st.sampled_from((PLAIN, JSON)), st.just(b""))
    | st.builds(Piece, st.sampled_from("ks"), st.sampled_from((PLAIN, HEX, BASE64, JSON)), texts)
    | st.builds(Piece, st.just("h"), st.sampled_from((PLAIN, JSON)), texts),
    max_size=8,
)
formats = (
    pieces
    | st.builds(delimited, texts, st.none() | texts, texts, st.sampled_from((PLAIN, HEX, BASE64)))
    | st.builds(json_object, texts)
)


def json_line(record: Record) -> bytes:
    """Return the JSON of a record of orders-3, as the standard library writes it."""

    def member(name: str, data: bytes | None) -> dict[str, str | None]:
        try:
            return {name: None if data is None else data.decode()}
        except UnicodeDecodeError:
            return {f"{name}_base64": base64.b64encode(data or b"").decode()}

    fields = {
        "topic": "orders",
        "partition": 3,
        "offset": record.offset,
        "timestamp": None if record.timestamp < 0 else record.timestamp,
        **member("key", record.key),
        **member("value", record.value),
        "headers": [{"key": name, **member("value", data)} for name, data in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def plain_line(record: Record) -> bytes:
    """Return a line with all fields of a record of orders-3."""

    def size(data: bytes | None) -> int:
        return -1 if data is None else len(data)

    def text(data: bytes | None) -> bytes:
        return b"NULL" if data is None else data

    headers = b",".join(name.encode() + b"=" + text(data) for name, data in record.headers)
    numbers = b"%d %d %d %d" % (record.offset, record.timestamp, size(record.key), size(record.value))
    return b"orders 3 " + b" ".join((numbers, text(record.key), text(record.value), headers)) + b"\n"


PLAIN_LINE = [
    piece
    for field in "tpoTKSksh"
    for piece in (Piece(field, PLAIN, b"NULL"), Piece(text=b"\n" if field == "h" else b" "))
]


def read(batch: Any, twin: Any, lines: LineBuffer, step: int, max_bytes: int) -> list[Any]:
    """Return what a cursor adds to the lines, step by step, until the batch ends or has failed twice."""
    seen: list[Any] = []
    target = Columns((), max_bytes, lines=lines)
    cursor = twin(batch, "orders", 3, 0, 1 << 28)
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


def text_of(data: bytes, name: str, lines: LineBuffer, step: int) -> bytes:
    lines.data += b"what was there before"
    for batch in MemoryRecords(data).batches():
        read(batch, TWINS[name], lines, step, 1 << 30)
    return bytes(lines.text())


@given(v2_batches() | legacy_batches(), st.integers(1, 40), st.sampled_from(tuple(TWINS)))
def test_each_record_becomes_one_line(records_and_data: tuple[list[Record], bytes], step: int, name: str) -> None:
    records, data = records_and_data
    assert text_of(data, name, LineBuffer(json_object(b"\n")), step) == b"".join(map(json_line, records))
    assert text_of(data, name, LineBuffer(PLAIN_LINE), step) == b"".join(map(plain_line, records))


#: What is special in JSON or in UTF-8, with what is next to it.
SPECIAL = [
    *(
        bytes([byte])
        for byte in (0, 8, 9, 10, 12, 13, 0x1F, 0x20, 0x21, 0x22, 0x23, 0x5B, 0x5C, 0x5D, 0x7E, 0x7F, 0x80)
    ),
    *(b"\xc1\xbf", b"\xc2\x80", b"\xdf\xbf", b"\xe0\x9f\xbf", b"\xe0\xa0\x80", b"\xed\x9f\xbf", b"\xed\xa0\x80"),
    *(b"\xef\xbf\xbf", b"\xf0\x8f\xbf\xbf", b"\xf0\x90\x80\x80", b"\xf4\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xff"),
    *(b"\xe2\x82", b"\xf0\x9f\x98", b"sixteen letters."),
]
hostile = st.lists(st.sampled_from(SPECIAL) | st.binary(max_size=3), max_size=20).map(b"".join)
times = st.sampled_from((-(1 << 63), -2, -1, 0, 9, 10, (1 << 63) - 1)) | st.integers(-(1 << 63), (1 << 63) - 1)
hostile_records = st.builds(
    lambda offset, time, key, value, headers: Record(offset, time, key, value, tuple(headers)),
    st.integers(0, 1 << 62),
    times,
    st.none() | hostile,
    st.none() | hostile,
    st.lists(
        st.tuples(st.sampled_from(["", "a", '"', "\\", "\n", "\x7f", "\u00e9", "\U0001f600"]), st.none() | hostile)
    ),
)


def batch_of(record: Record) -> bytes:
    """Return a batch with the record, which may have a timestamp that no producer sends."""
    data = bytearray(build([record._replace(timestamp=0)]))
    data[27:35] = record.timestamp.to_bytes(8, "big", signed=True)
    return bytes(data)


@given(hostile_records, st.sampled_from(tuple(TWINS)))
def test_hostile_records_are_written_like_json_module(record: Record, name: str) -> None:
    data = batch_of(record)
    assert text_of(data, name, LineBuffer(json_object(b"\n")), 1) == json_line(record)
    assert text_of(data, name, LineBuffer(PLAIN_LINE), 1) == plain_line(record)


@given(hostile_records, formats)
def test_twins_write_any_format_alike(record: Record, format: list[Piece]) -> None:
    data = batch_of(record)
    assert text_of(data, "c", LineBuffer(format), 1) == text_of(data, "python", LineBuffer(format), 1)


@pytest.mark.parametrize("name", TWINS)
def test_invalid_utf8_in_header_names_is_replaced_like_java(name: str) -> None:
    data = bytearray(build([Record(offset, 1, None, b"", (("name", b"v"),)) for offset in range(3)]))
    place = data.index(b"name", data.index(b"name") + 1)
    data[place : place + 4] = b"a\xffb\xc3"
    expected = ["name", "a\ufffdb\ufffd", "name"]
    assert (
        text_of(bytes(data), name, LineBuffer([Piece("h"), Piece(text=b"\n")]), 9)
        == "".join(f"{header}=v\n" for header in expected).encode()
    )


@given(v2_batches() | legacy_batches(), formats, st.integers(1, 40), st.integers(1, 2000))
def test_twins_write_lines_of_batches_alike(
    records_and_data: tuple[list[Record], bytes], format: list[Piece], step: int, max_bytes: int
) -> None:
    for batch in MemoryRecords(records_and_data[1]).batches():
        python, c = (read(batch, TWINS[name], LineBuffer(format), step, max_bytes) for name in ("python", "c"))
        assert python == c


@given(st.binary(max_size=200), st.integers(0, 20), formats)
def test_twins_write_lines_of_random_bytes_alike(records: bytes, count: int, format: list[Piece]) -> None:
    header = bytearray(build([Record(0, 1, None, b"")])[:61])
    header[57:61] = count.to_bytes(4, "big")
    batch = DefaultRecordBatch(memoryview(bytes(header) + records))
    python, c = (read(batch, TWINS[name], LineBuffer(format), 5, 1 << 30) for name in ("python", "c"))
    assert python == c


@pytest.mark.parametrize("name", TWINS)
def test_lines_may_grow_beyond_size_of_batch(name: str) -> None:
    records = [Record(offset, 1, None if offset % 3 else b"k", None if offset % 2 else b"v") for offset in range(500)]
    text = text_of(build(records), name, LineBuffer(delimited(b"<end>" * 50, b"<between>" * 50, b"<null>" * 50)), 7)
    parts = [part for part in text.split(b"<end>" * 50) if part]
    assert len(parts) == len(records)
    assert parts[:2] == [b"k" + b"<between>" * 50 + b"v", b"<null>" * 50 + b"<between>" * 50 + b"<null>" * 50]


@pytest.mark.parametrize("name", TWINS)
def test_memory_is_used_again(name: str) -> None:
    lines = LineBuffer(delimited(b"\n", None, b""))
    for _ in range(2):
        lines.clear()
        (batch,) = MemoryRecords(build([Record(0, 1, b"k", b"one"), Record(1, 1, None, b"two")])).batches()
        memory = lines.data
        read(batch, TWINS[name], lines, 10, 1 << 30)
        assert bytes(lines.text()) == b"one\ntwo\n"
        assert lines.data is memory
