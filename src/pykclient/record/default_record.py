"""Encoding and decoding of records in format 2 (Java: DefaultRecord).

A record consists of its length, attributes (0), timestamp delta, offset delta, key, value, and headers. All numbers are
zigzag varints; the length -1 is null.

The decoding loops, here and in ``record_cursor``, inline varints of one and two bytes. They index `bytes`, for which
the records of a batch are copied once; that costs a hundredth of what indexing a memoryview would. Nothing is checked
before it is read: reading stays inside ``data`` whatever the numbers are, and a record that does not end exactly where
its length says is corrupt.
"""

from __future__ import annotations

from typing import NamedTuple

from pykclient.errors import CorruptRecordError, IllegalArgumentError
from pykclient.implementation import use_compiled
from pykclient.record.record_batch import NO_TIMESTAMP, VARINTS, Record, read_varint, rest_of_varint, rest_of_varlong
from pykclient.types import Header, Headers


def encode_headers(headers: Headers) -> bytes:
    """Encode the headers of a record: their number, then names and values.

    Raises:
        IllegalArgumentError: a name is not a string.
    """
    varints = VARINTS
    parts = [varints[len(headers)]]
    for name, value in headers:
        if not isinstance(name, str):
            raise IllegalArgumentError(f"a header's name must be a string, not {type(name).__name__}")
        encoded = name.encode()
        parts += (varints[len(encoded)], encoded)
        if value is None:
            parts.append(b"\x01")
        else:
            parts += (varints[len(value)], value)
    return b"".join(parts)


def read_headers(data: bytes, pos: int, end: int) -> tuple[tuple[Header, ...], int]:
    """Decode the headers that start at ``pos`` with their count; return them and the position after them.

    Raises:
        CorruptRecordError: they do not end before ``end``.
        IndexError: the data ends inside them.
    """
    count, pos = read_varint(data, pos)
    # A header has at least two bytes.
    if not 0 <= count <= (end - pos) // 2:
        raise CorruptRecordError(f"a record with {end - pos} bytes left cannot have {count} headers")
    headers: list[Header] = []
    for _ in range(count):
        size, pos = read_varint(data, pos)
        if not 0 <= size <= end - pos:
            raise CorruptRecordError(f"a header's name of {size} bytes in a record with {end - pos} bytes left")
        try:
            name = data[pos : pos + size].decode()
        except UnicodeDecodeError:
            # As in Java, a name that is not UTF-8 does not make the record unreadable.
            name = data[pos : pos + size].decode(errors="replace")
        size, pos = read_varint(data, pos + size)
        if size < 0:
            headers.append((name, None))
            continue
        if size > end - pos:
            raise CorruptRecordError(f"a header's value of {size} bytes in a record with {end - pos} bytes left")
        headers.append((name, data[pos : pos + size]))
        pos += size
    return tuple(headers), pos


def size_mismatch(excess: int) -> CorruptRecordError:
    return CorruptRecordError(f"a record's fields do not fill its length: they end {excess} bytes after it")


def ended_early() -> CorruptRecordError:
    return CorruptRecordError("a batch ends inside a record, or before the last")


def bytes_remain(remaining: int, count: int) -> CorruptRecordError:
    return CorruptRecordError(f"{remaining} bytes are left after the {count} records of a batch")


def decode_records(
    data: bytes, pos: int, count: int, base_offset: int, base_timestamp: int
) -> tuple[list[Record], int]:
    """Decode ``count`` records from ``pos`` on; return them and the position after them.

    Raises:
        CorruptRecordError: they cannot be decoded.
    """
    records: list[Record] = []
    append = records.append
    new_tuple = tuple.__new__
    try:
        for _ in range(count):
            zigzag = data[pos]
            pos += 1
            if zigzag > 0x7F:
                zigzag += (data[pos] << 7) - 0x80
                pos += 1
                if zigzag > 0x3FFF:
                    zigzag, pos = rest_of_varint(data, pos, zigzag)
            end = pos + (zigzag >> 1)
            odd = zigzag & 1
            # A byte of attributes, none of which are defined, precedes the timestamp.
            zigzag = data[pos + 1]
            pos += 2
            if zigzag > 0x7F:
                zigzag += (data[pos] << 7) - 0x80
                pos += 1
                if zigzag > 0x3FFF:
                    zigzag, pos = rest_of_varlong(data, pos, zigzag)
            timestamp = base_timestamp + (zigzag >> 1 ^ -(zigzag & 1))
            zigzag = data[pos]
            pos += 1
            if zigzag > 0x7F:
                zigzag += (data[pos] << 7) - 0x80
                pos += 1
                if zigzag > 0x3FFF:
                    zigzag, pos = rest_of_varint(data, pos, zigzag)
            offset = base_offset + (zigzag >> 1 ^ -(zigzag & 1))
            zigzag = data[pos]
            pos += 1
            if zigzag > 0x7F:
                zigzag += (data[pos] << 7) - 0x80
                pos += 1
                if zigzag > 0x3FFF:
                    zigzag, pos = rest_of_varint(data, pos, zigzag)
            if zigzag & 1:
                key = None
            else:
                start = pos
                pos += zigzag >> 1
                key = data[start:pos]
            zigzag = data[pos]
            pos += 1
            if zigzag > 0x7F:
                zigzag += (data[pos] << 7) - 0x80
                pos += 1
                if zigzag > 0x3FFF:
                    zigzag, pos = rest_of_varint(data, pos, zigzag)
            if zigzag & 1:
                value = None
            else:
                start = pos
                pos += zigzag >> 1
                value = data[start:pos]
            if data[pos]:
                headers, pos = read_headers(data, pos, end)
            else:
                headers = ()
                pos += 1
            if pos != end or odd:
                raise size_mismatch(pos - end)
            append(new_tuple(Record, (offset, timestamp, key, value, headers)))
    except IndexError:
        raise ended_early() from None
    return records, pos


class RecordsSummary(NamedTuple):
    """The properties of a batch's records that a broker checks.

    Records without a timestamp do not count for the two timestamps, which are -1 if no record has one.
    """

    min_timestamp: int
    max_timestamp: int
    all_have_keys: bool
    offsets_follow: bool
    """True if the offset deltas are 0, 1, 2 and so on."""


def summarize_records(data: bytes, count: int, base_timestamp: int) -> RecordsSummary:
    """Check that ``data`` is exactly ``count`` records, in half the time of decoding them.

    Raises:
        CorruptRecordError: it is not.
    """
    min_timestamp = max_timestamp = NO_TIMESTAMP
    all_have_keys = offsets_follow = True
    previous = -1
    expected = 0
    pos = 0
    try:
        for _ in range(count):
            zigzag = data[pos]
            pos += 1
            if zigzag > 0x7F:
                zigzag += (data[pos] << 7) - 0x80
                pos += 1
                if zigzag > 0x3FFF:
                    zigzag, pos = rest_of_varint(data, pos, zigzag)
            end = pos + (zigzag >> 1)
            odd = zigzag & 1
            zigzag = data[pos + 1]
            pos += 2
            if zigzag > 0x7F:
                zigzag += (data[pos] << 7) - 0x80
                pos += 1
                if zigzag > 0x3FFF:
                    zigzag, pos = rest_of_varlong(data, pos, zigzag)
            if zigzag != previous:  # adjacent records often have the same millisecond
                previous = zigzag
                timestamp = base_timestamp + (zigzag >> 1 ^ -(zigzag & 1))
                if timestamp > max_timestamp:  # noqa: PLR1730 - max() is a call
                    max_timestamp = timestamp
                if timestamp != NO_TIMESTAMP and (min_timestamp == NO_TIMESTAMP or timestamp < min_timestamp):
                    min_timestamp = timestamp
            zigzag = data[pos]
            pos += 1
            if zigzag > 0x7F:
                zigzag += (data[pos] << 7) - 0x80
                pos += 1
                if zigzag > 0x3FFF:
                    zigzag, pos = rest_of_varint(data, pos, zigzag)
            if zigzag != expected:
                offsets_follow = False
            expected += 2
            zigzag = data[pos]
            pos += 1
            if zigzag > 0x7F:
                zigzag += (data[pos] << 7) - 0x80
                pos += 1
                if zigzag > 0x3FFF:
                    zigzag, pos = rest_of_varint(data, pos, zigzag)
            if zigzag & 1:
                all_have_keys = False
            else:
                pos += zigzag >> 1
            zigzag = data[pos]
            pos += 1
            if zigzag > 0x7F:
                zigzag += (data[pos] << 7) - 0x80
                pos += 1
                if zigzag > 0x3FFF:
                    zigzag, pos = rest_of_varint(data, pos, zigzag)
            if not zigzag & 1:
                pos += zigzag >> 1
            if data[pos]:
                _, pos = read_headers(data, pos, end)
            else:
                pos += 1
            if pos != end or odd:
                raise size_mismatch(pos - end)
    except IndexError:
        raise ended_early() from None
    if pos != len(data):
        raise bytes_remain(len(data) - pos, count)
    return RecordsSummary(min_timestamp, max_timestamp, all_have_keys, offsets_follow)


use_compiled(__name__)
