"""Encoding and decoding of records in format 2 (Java: DefaultRecord).

A record consists of its length, attributes (0), timestamp delta, offset delta, key, value, and headers. All numbers are
zigzag varints; the length -1 is null.

``read_record`` is the only reader: of lists of records, of a consumer's records (``record_cursor``), of columns, and of
a broker's checks. It indexes `bytes`, for which the records of a batch are copied once; that costs a hundredth of what
indexing a memoryview would. Nothing is checked before it is read: reading stays inside ``data`` whatever the numbers
are, and a record that does not end exactly where its length says is corrupt.
"""

from __future__ import annotations

from typing import NamedTuple

from pykclient.errors import CorruptRecordError, IllegalArgumentError
from pykclient.implementation import use_compiled
from pykclient.record.record_batch import (
    NO_TIMESTAMP,
    VARINTS,
    Record,
    Span,
    read_varint,
    rest_of_varint,
    rest_of_varlong,
)
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


#: Timestamp delta, offset delta, key, value, headers, and the position after the record.
RecordFields = tuple[int, int, Span, Span, tuple[Header, ...], int]


def read_record(data: bytes, pos: int) -> RecordFields:
    """Read the record at ``pos``. Numbers of one byte are read without a call, which takes longer than all the rest.

    Raises:
        CorruptRecordError: the record cannot be decoded.
        IndexError: the data ends inside it.
    """
    zigzag = data[pos]
    pos += 1
    if zigzag > 0x7F:
        zigzag, pos = rest_of_varint(data, pos, zigzag)
    end = pos + (zigzag >> 1)
    is_negative = zigzag & 1
    zigzag = data[pos + 1]  # after the attributes, none of which are defined
    pos += 2
    if zigzag > 0x7F:
        zigzag, pos = rest_of_varlong(data, pos, zigzag)
    timestamp_delta = zigzag >> 1 ^ -(zigzag & 1)
    zigzag = data[pos]
    pos += 1
    if zigzag > 0x7F:
        zigzag, pos = rest_of_varint(data, pos, zigzag)
    offset_delta = zigzag >> 1 ^ -(zigzag & 1)
    key = value = None
    zigzag = data[pos]
    pos += 1
    if zigzag > 0x7F:
        zigzag, pos = rest_of_varint(data, pos, zigzag)
    if not zigzag & 1:
        start = pos
        pos += zigzag >> 1
        key = (start, pos)
    zigzag = data[pos]
    pos += 1
    if zigzag > 0x7F:
        zigzag, pos = rest_of_varint(data, pos, zigzag)
    if not zigzag & 1:
        start = pos
        pos += zigzag >> 1
        value = (start, pos)
    headers: tuple[Header, ...] = ()
    if data[pos]:
        headers, pos = read_headers(data, pos, end)
    else:
        pos += 1
    if pos != end or is_negative:
        raise size_mismatch(pos - end)
    return timestamp_delta, offset_delta, key, value, headers, pos


def decode_records(
    data: bytes, pos: int, count: int, base_offset: int, base_timestamp: int
) -> tuple[list[Record], int]:
    """Decode ``count`` records from ``pos`` on; return them and the position after them.

    Raises:
        CorruptRecordError: they cannot be decoded.
    """
    records: list[Record] = []
    append, new_tuple = records.append, tuple.__new__
    try:
        for _ in range(count):
            timestamp_delta, offset_delta, key_span, value_span, headers, pos = read_record(data, pos)
            key = None if key_span is None else data[key_span[0] : key_span[1]]
            value = None if value_span is None else data[value_span[0] : value_span[1]]
            append(
                new_tuple(Record, (base_offset + offset_delta, base_timestamp + timestamp_delta, key, value, headers))
            )
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
    """Check that ``data`` is exactly ``count`` records.

    Raises:
        CorruptRecordError: it is not.
    """
    min_timestamp = max_timestamp = NO_TIMESTAMP
    all_have_keys = offsets_follow = True
    pos = 0
    try:
        for expected in range(count):
            timestamp_delta, offset_delta, key, _, _, pos = read_record(data, pos)
            timestamp = base_timestamp + timestamp_delta
            max_timestamp = max(max_timestamp, timestamp)
            if timestamp != NO_TIMESTAMP and (min_timestamp == NO_TIMESTAMP or timestamp < min_timestamp):
                min_timestamp = timestamp
            all_have_keys = all_have_keys and key is not None
            offsets_follow = offsets_follow and offset_delta == expected
    except IndexError:
        raise ended_early() from None
    if pos != len(data):
        raise bytes_remain(len(data) - pos, count)
    return RecordsSummary(min_timestamp, max_timestamp, all_have_keys, offsets_follow)


use_compiled(__name__)
