"""The primitive types, read and written."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, strategies as st

from pykclient.errors import LocalProtocolError, RemoteProtocolError
from pykclient.protocol.wire import ZERO_UUID, Reader, Writer

flexible_or_not = pytest.mark.parametrize("flexible", [False, True])


def bytes_of(write: Callable[[Writer], None]) -> bytes:
    writer = Writer()
    write(writer)
    return writer.getvalue()


@given(value=st.integers(0, 0xFFFFFFFF))
def test_uvarint_round_trips(value: int) -> None:
    data = bytes_of(lambda w: w.uvarint(value))
    reader = Reader(data)
    assert reader.uvarint() == value
    assert reader.remaining == 0
    assert len(data) == max(1, -(-value.bit_length() // 7))


@given(value=st.integers(-(1 << 31), (1 << 31) - 1))
def test_varint_round_trips(value: int) -> None:
    assert Reader(bytes_of(lambda w: w.varint(value))).varint() == value


@given(value=st.integers(-(1 << 63), (1 << 63) - 1))
def test_varlong_round_trips(value: int) -> None:
    assert Reader(bytes_of(lambda w: w.varlong(value))).varlong() == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (2147483647, "feffffff0f"),
        (-2147483648, "ffffffff0f"),
    ],
)
def test_varints_are_zigzag(value: int, expected: str) -> None:
    assert bytes_of(lambda w: w.varint(value)).hex() == expected


@pytest.mark.parametrize("data", ["ffffffff1f", "ffffffffff01", "808080808000"])
def test_a_varint_that_is_too_long_is_refused(data: str) -> None:
    with pytest.raises(RemoteProtocolError, match="too long"):
        Reader(bytes.fromhex(data)).uvarint()


def test_a_varlong_that_is_too_long_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="too long"):
        Reader(b"\xff" * 9 + b"\x02").varlong()
    with pytest.raises(RemoteProtocolError, match="too long"):
        Reader(b"\xff" * 20).varlong()


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff\xff\xff"])
def test_a_truncated_varint_is_refused(data: bytes) -> None:
    for read in (Reader.uvarint, Reader.varint, Reader.varlong):
        with pytest.raises(RemoteProtocolError, match="truncated"):
            read(Reader(data))


@pytest.mark.parametrize(
    ("name", "low", "high", "code"),
    [
        ("int8", -128, 127, "b"),
        ("int16", -32768, 32767, "h"),
        ("uint16", 0, 65535, "H"),
        ("int32", -(1 << 31), (1 << 31) - 1, "i"),
        ("uint32", 0, (1 << 32) - 1, "I"),
        ("int64", -(1 << 63), (1 << 63) - 1, "q"),
    ],
)
def test_integers_round_trip_within_their_range(name: str, low: int, high: int, code: str) -> None:
    for value in (low, high, 0, 1):
        data = bytes_of(lambda w, value=value: getattr(w, name)(value))  # type: ignore[misc]
        assert data == struct.pack(f">{code}", value)
        assert getattr(Reader(data), name)() == value
        with pytest.raises(RemoteProtocolError, match="truncated"):
            getattr(Reader(data[:-1]), name)()
    for wrong in (low - 1, high + 1, "1", None):
        with pytest.raises(LocalProtocolError):
            getattr(Writer(), name)(wrong)


def test_booleans_are_true_above_zero() -> None:
    assert [Reader(bytes([byte])).boolean() for byte in (0, 1, 2, 255)] == [False, True, True, True]
    assert bytes_of(lambda w: w.boolean(True)) == b"\1"


@given(value=st.floats(allow_nan=False))
def test_float64_round_trips(value: float) -> None:
    assert Reader(bytes_of(lambda w: w.float64(value))).float64() == value


@given(value=st.uuids())
def test_uuid_round_trips(value: UUID) -> None:
    data = bytes_of(lambda w: w.uuid(value))
    assert data == value.bytes
    assert Reader(data).uuid() == value


def test_the_zero_uuid_is_one_object() -> None:
    assert Reader(bytes(16)).uuid() is ZERO_UUID


@flexible_or_not
@given(value=st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=300))
def test_strings_round_trip(flexible: bool, value: str | None) -> None:
    data = bytes_of(lambda w: w.nullable_string(value, flexible))
    for buffer in (data, bytearray(data), memoryview(data)):
        reader = Reader(buffer)
        assert reader.nullable_string(flexible) == value
        assert reader.remaining == 0
        if value is None:
            with pytest.raises(RemoteProtocolError, match="null"):
                Reader(buffer).string(flexible)
        else:
            assert Reader(buffer).string(flexible) == value


@flexible_or_not
def test_strings_are_limited_to_32767_bytes(flexible: bool) -> None:
    longest = "x" * 32767
    assert Reader(bytes_of(lambda w: w.string(longest, flexible))).string(flexible) == longest
    with pytest.raises(LocalProtocolError, match="too long"):
        Writer().string(longest + "x", flexible)


def test_a_string_with_an_impossible_length_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="length"):
        Reader(b"\xff\xfe" + b"x" * 100).string(False)
    with pytest.raises(RemoteProtocolError, match="length"):
        Reader(b"\x81\x80\x02" + b"x" * 40000).string(True)


@flexible_or_not
def test_a_string_that_is_not_utf8_is_refused(flexible: bool) -> None:
    data = bytes_of(lambda w: w.string("abc", flexible)).replace(b"b", b"\xff")
    with pytest.raises(RemoteProtocolError, match="UTF-8"):
        Reader(data).string(flexible)


@pytest.mark.parametrize("value", ["\ud800", None, 5])
def test_non_strings_are_refused(value: Any) -> None:
    with pytest.raises(LocalProtocolError):
        Writer().string(value, True)


@flexible_or_not
@given(value=st.none() | st.binary(max_size=300))
def test_bytes_round_trip(flexible: bool, value: bytes | None) -> None:
    data = bytes_of(lambda w: w.nullable_bytes(value, flexible))
    read = Reader(memoryview(bytearray(data))).nullable_bytes(flexible)
    assert read == value
    assert value is None or type(read) is bytes
    if value is None:
        with pytest.raises(RemoteProtocolError, match="null"):
            Reader(data).bytes_(flexible)
    else:
        assert Reader(data).bytes_(flexible) == value


def test_bytes_with_an_impossible_length_are_refused() -> None:
    for read in (Reader.nullable_bytes, Reader.nullable_records):
        with pytest.raises(RemoteProtocolError, match="length"):
            read(Reader(b"\xff\xff\xff\xfe" + bytes(100)), False)
        with pytest.raises(RemoteProtocolError, match="truncated"):
            read(Reader(b"\x7f\xff\xff\xff" + bytes(100)), False)


def test_non_bytes_are_refused() -> None:
    value: Any = "text"
    with pytest.raises(LocalProtocolError):
        Writer().bytes_(value, True)


@flexible_or_not
def test_large_records_are_separate_buffers(flexible: bool) -> None:
    first, second = bytearray(b"a" * 2000), b"b" * 3000
    writer = Writer()
    writer.int32(0)
    writer.records(memoryview(first), flexible)
    writer.records([second, b"small"], flexible)
    writer.nullable_records(None, flexible)
    writer.patch_int32(0, writer.size)
    buffers = writer.buffers()
    assert any(isinstance(buffer, memoryview) and buffer.obj is first for buffer in buffers)
    assert any(buffer is second for buffer in buffers)
    reader = Reader(writer.getvalue())
    assert reader.int32() == writer.size == sum(map(len, buffers))
    assert reader.records(flexible) == first
    assert reader.records(flexible) == second + b"small"
    assert reader.nullable_records(flexible) is None
    assert reader.remaining == 0


@flexible_or_not
def test_null_records_are_refused(flexible: bool) -> None:
    with pytest.raises(RemoteProtocolError, match="null"):
        Reader(bytes_of(lambda w: w.nullable_records(None, flexible))).records(flexible)


@flexible_or_not
@given(values=st.none() | st.lists(st.integers(-(1 << 31), (1 << 31) - 1)))
def test_int32_arrays_round_trip(flexible: bool, values: list[int] | None) -> None:
    data = bytes_of(lambda w: w.nullable_int32_array(values, flexible))
    assert Reader(data).nullable_int32_array(flexible) == values
    if values is None:
        with pytest.raises(RemoteProtocolError, match="null"):
            Reader(data).int32_array(flexible)
    else:
        assert Reader(data).int32_array(flexible) == values
        with pytest.raises(RemoteProtocolError):
            Reader(data[:-1]).int32_array(flexible)


def test_invalid_int32_array_elements_are_refused() -> None:
    for values in ([1 << 31], ["a"]):
        with pytest.raises(LocalProtocolError):
            Writer().int32_array(values, True)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data", "flexible"), [("7fffffff", False), ("fffffffe", False), ("ffffffff0f", True), ("03", True)]
)
def test_impossible_array_length_is_refused_before_allocation(data: str, flexible: bool) -> None:
    with pytest.raises(RemoteProtocolError, match="cannot be in"):
        Reader(bytes.fromhex(data) + b"\0").nullable_array_length(flexible)


@given(tags=st.dictionaries(st.integers(0, 0xFFFFFFFF), st.binary(max_size=200), max_size=5))
def test_tags_are_written_in_ascending_order(tags: dict[int, bytes]) -> None:
    data = bytes_of(lambda w: w.tags(tags))
    read = Reader(data).tags()
    assert (read or {}) == tags
    assert list(read or {}) == sorted(tags)


@pytest.mark.parametrize("data", ["01", "0105", "010502", "01050261", "ffffffff0f"])
def test_a_truncated_tag_section_is_refused(data: str) -> None:
    with pytest.raises(RemoteProtocolError):
        Reader(bytes.fromhex(data)).tags()


def test_reader_can_start_at_any_position() -> None:
    reader = Reader(b"....\0\7", 4)
    assert reader.remaining == 2
    assert reader.int16() == 7
    with pytest.raises(RemoteProtocolError, match="1 more bytes are needed at byte 6, it has 6"):
        reader.int8()
