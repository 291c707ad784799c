"""The compiled reader and writer and their pure Python twins agree on any bytes and calls."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, strategies as st

from pykclient.errors import LocalProtocolError, RemoteProtocolError
from pykclient.implementation import python_form
from pykclient.protocol import wire
from pykclient.protocol.wire import Reader, Writer
from tests.support.twins import compiled_form

PythonReader, PythonWriter = python_form(Reader), python_form(Writer)
compiled = compiled_form("pykclient.protocol.wire")

FIXED = ("boolean", "int8", "int16", "uint16", "int32", "uint32", "int64", "float64", "uuid")
OTHERS = ("uvarint", "varint", "varlong", "tags", "tag")
WITH_LENGTH = (
    "nullable_string",
    "string",
    "nullable_bytes",
    "bytes_",
    "nullable_records",
    "records",
    "nullable_array_length",
    "array_length",
    "nullable_int32_array",
    "int32_array",
)

calls = st.one_of(
    st.tuples(st.sampled_from(FIXED + OTHERS)),
    st.tuples(st.sampled_from(WITH_LENGTH), st.booleans()),
    st.tuples(st.just("unpack"), st.sampled_from([struct.Struct(">iq"), struct.Struct(">hbB"), struct.Struct(">d")])),
    st.tuples(st.just("raw"), st.integers(0, 40)),
    st.tuples(st.just("end_tag"), st.integers(0, 3), st.integers(0, 40)),
)
# Realistic lengths: small ones in each of the four encodings, before the data that they count.
lengths = st.one_of(
    st.integers(-2, 20).map(lambda length: struct.pack(">i", length)),
    st.integers(-2, 20).map(lambda length: struct.pack(">h", length)),
    st.integers(0, 20).map(lambda length: bytes([length])),
    st.sampled_from([b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x1f", b"\x80\x00", b"\x81\x01", bytes(16)]),
)
data = st.lists(st.one_of(lengths, st.binary(max_size=20), st.text(max_size=6).map(str.encode)), max_size=10).map(
    b"".join
)


def outcome(reader: Any, call: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the result or error of a call, and the reader's position after it."""
    try:
        value = getattr(reader, call[0])(*call[1:])
    except RemoteProtocolError as error:
        return type(error), str(error), reader.pos, reader.remaining
    if isinstance(value, memoryview):
        return memoryview, bytes(value), value.readonly, reader.pos, reader.remaining
    return type(value), repr(value), reader.pos, reader.remaining


@given(
    data=data,
    calls=st.lists(calls, max_size=12),
    kind=st.sampled_from([bytes, bytearray, memoryview]),
    pos=st.integers(0, 9),
)
def test_python_and_c_readers_read_alike(data: bytes, calls: list[tuple[Any, ...]], kind: Any, pos: int) -> None:
    python, c = PythonReader(kind(data), pos), compiled.Reader(kind(data), pos)
    assert c.end == python.end
    for call in calls:
        assert outcome(c, call) == outcome(python, call)


@given(values=st.lists(st.uuids(), max_size=5))
def test_repeated_uuids_are_read_from_cache(values: list[UUID]) -> None:
    writer = Writer()
    for value in values * 2:
        writer.uuid(value)
    for reader in (PythonReader(writer.getvalue()), compiled.Reader(writer.getvalue())):
        assert [reader.uuid() for _ in values * 2] == values * 2


def test_uuid_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_MOST_UUIDS", 3)
    monkeypatch.setattr(wire, "_uuids", {})
    for number in range(20):
        assert PythonReader(number.to_bytes(16, "big")).uuid() == UUID(int=number)
        assert len(wire._uuids) <= 3


def test_records_view_outlives_reader() -> None:
    buffer = bytearray(b"\0\0\0\x03abc")
    reader = compiled.Reader(buffer)
    view = reader.records(False)
    del reader
    assert bytes(view) == b"abc"
    with pytest.raises(BufferError):
        buffer.clear()
    view.release()
    buffer.clear()


@pytest.mark.parametrize("pos", [-5, -1, 100])
def test_reading_outside_of_buffer_raises(pos: int) -> None:
    reader = compiled.Reader(b"abcdefgh", 0)
    reader.pos = pos
    with pytest.raises((RemoteProtocolError, IndexError)):
        assert not [(reader.int64(), reader.uvarint()) for _ in range(20)]


#: Values at and beyond the limits of every type, and values of other types.
numbers = st.one_of(
    st.sampled_from(
        [
            sign * (1 << bits) + step
            for bits in (7, 8, 15, 16, 31, 32, 63, 64, 70)
            for sign in (1, -1)
            for step in (-1, 0, 1)
        ]
    ),
    st.integers(-300, 300),
    st.booleans(),
    st.sampled_from([None, "1", 1.5]),
)
texts = st.one_of(
    st.text(max_size=9), st.sampled_from([None, b"bytes", 7, "\ud800", "x" * 32767, "x" * 32768, "é" * 16384])
)
views: st.SearchStrategy[Any] = st.binary(max_size=9).map(memoryview)
blobs = st.one_of(
    st.binary(max_size=9),
    st.binary(max_size=9).map(bytearray),
    views,
    st.sampled_from([b"r" * 1023, b"r" * 1024, bytearray(5000), memoryview(bytes(2000))]),
)
writes = st.one_of(
    st.tuples(
        st.sampled_from(["int8", "int16", "uint16", "int32", "uint32", "int64", "uvarint", "varint", "varlong"]),
        numbers,
    ),
    st.tuples(st.just("boolean"), st.sampled_from([True, False, 0, 2, "yes"])),
    st.tuples(st.just("float64"), st.one_of(st.floats(allow_nan=False), st.just("1.5"))),
    st.tuples(st.just("uuid"), st.uuids()),
    st.tuples(st.just("pack"), st.just(struct.Struct(">ih")), numbers, numbers),
    st.tuples(st.just("array_length"), st.one_of(st.integers(-1, 300), st.just((1 << 31) - 1)), st.booleans()),
    st.tuples(st.just("array_length"), st.sampled_from([-2, 1 << 31, (1 << 32) - 1, 1 << 32]), st.just(True)),
    st.tuples(st.sampled_from(["string", "nullable_string"]), texts, st.booleans()),
    st.tuples(
        st.sampled_from(["bytes_", "nullable_bytes"]), st.one_of(blobs, st.sampled_from([7, "a"])), st.booleans()
    ),
    st.tuples(st.sampled_from(["records", "nullable_records"]), blobs | st.lists(blobs, max_size=3), st.booleans()),
    st.tuples(
        st.sampled_from(["nullable_bytes", "nullable_records", "nullable_int32_array"]), st.none(), st.booleans()
    ),
    st.tuples(st.sampled_from(["int32_array", "nullable_int32_array"]), st.lists(numbers, max_size=3), st.booleans()),
    st.tuples(st.just("tags"), st.one_of(st.none(), st.dictionaries(st.integers(0, 200), st.binary(max_size=5)))),
    st.tuples(st.just("patch_int32"), st.integers(0, 8), numbers),
)


def written(writer: Any, call: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the error of a call, if it raised one, and the bytes that the writer has after it."""
    error = None
    try:
        getattr(writer, call[0])(*call[1:])
    except (LocalProtocolError, struct.error, TypeError, AttributeError) as raised:
        error = type(raised), str(raised)
    return error, writer.size, [bytes(buffer) for buffer in writer.buffers()], writer.getvalue()


@given(calls=st.lists(writes, max_size=12))
def test_python_and_c_writers_write_alike(calls: list[tuple[Any, ...]]) -> None:
    python, c = PythonWriter(), compiled.Writer()
    for call in calls:
        assert written(c, call) == written(python, call)


def test_neither_writer_copies_large_records() -> None:
    large = bytearray(5000)
    for writer in (PythonWriter(), compiled.Writer()):
        writer.records(large, True)
        assert any(buffer is large for buffer in writer.buffers())
