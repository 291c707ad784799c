"""The compiled reader and its pure Python twin agree on any bytes and calls."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.errors import RemoteProtocolError
from pykclient.protocol import wire
from pykclient.protocol.wire import PythonReader, Writer

compiled: Any = pytest.importorskip("pykclient._speedups.wire")


class CompiledReader(compiled.Reader):  # type: ignore[misc]
    """The compiled reader, whichever implementation this process runs. Thread: owner."""

    __slots__ = ()
    _twin = PythonReader
    _uuids = wire._uuids


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
def test_the_same_calls_read_the_same(data: bytes, calls: list[tuple[Any, ...]], kind: Any, pos: int) -> None:
    python, c = PythonReader(kind(data), pos), CompiledReader(kind(data), pos)
    assert c.end == python.end
    for call in calls:
        assert outcome(c, call) == outcome(python, call)


@given(values=st.lists(st.uuids(), max_size=5))
def test_ids_that_are_known(values: list[UUID]) -> None:
    writer = Writer()
    for value in values * 2:
        writer.uuid(value)
    for reader in (PythonReader(writer.getvalue()), CompiledReader(writer.getvalue())):
        assert [reader.uuid() for _ in values * 2] == values * 2


def test_ids_are_forgotten_before_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_MOST_UUIDS", 3)
    monkeypatch.setattr(wire, "_uuids", {})
    for number in range(20):
        assert PythonReader(number.to_bytes(16, "big")).uuid() == UUID(int=number)
        assert len(wire._uuids) <= 3


def test_a_view_of_the_records_outlives_the_reader() -> None:
    buffer = bytearray(b"\0\0\0\x03abc")
    reader = CompiledReader(buffer)
    view = reader.records(False)
    del reader
    assert bytes(view) == b"abc"
    with pytest.raises(BufferError):
        buffer.clear()
    view.release()
    buffer.clear()


@pytest.mark.parametrize("pos", [-5, -1, 100])
def test_a_position_outside(pos: int) -> None:
    reader = CompiledReader(b"abcdefgh", 0)
    reader.pos = pos
    with pytest.raises((RemoteProtocolError, IndexError)):
        assert not [(reader.int64(), reader.uvarint()) for _ in range(20)]
