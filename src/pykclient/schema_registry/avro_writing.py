"""Rows of Arrow columns as Avro records, without an object per value. The compiled form has the same functions.

``avro_parts`` makes a tree of parts from columns and a schema: a part has the buffers of a column, and says how its
values are written.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pykclient.implementation import use_compiled

#: How a part's values are written. A constant has no column; INTEGER is a varint; TEXT has a length, REST has none.
CONSTANT, BIT, INTEGER, FIXED, TEXT, REST, DECIMAL, RECORD, LIST, TAGGED = range(10)

#: Why a value does not fit.
NULL, SEVERAL, TOO_LARGE, DAMAGED = range(4)

_NOTHING: Final = memoryview(b"")
_INTS: Final = {4: struct.Struct("=i"), 8: struct.Struct("=q")}


@dataclass(eq=False, slots=True)
class Part:
    """A column to be written, or a part of one: its buffers and its form. Thread: any, as nothing writes to it.

    Row ``i`` is at ``first + i`` in the buffers. ``offsets`` are of int32 or int64.
    """

    kind: int
    length: int = 0
    first: int = 0
    #: The bytes of a number or a fixed value; of a DECIMAL, those in Avro, or 0 if it has a length there.
    width: int = 0
    #: One bit per value; None if none is null.
    validity: memoryview | None = None
    offsets: memoryview | None = None
    data: memoryview = _NOTHING
    children: Sequence[Part] = ()
    #: The bytes for null; None if null does not fit.
    null: bytes | None = None
    #: The bytes before each value: the number of a union's branch. Of a constant, all bytes.
    written: bytes = b""
    #: For messages: the field, and both types.
    where: str = ""
    source: str = ""
    target: str = ""


class UnfitError(Exception):
    """A value does not fit the schema. ``row`` counts the rows that were given."""

    def __init__(self, part: Part, reason: int, row: int = -1) -> None:
        super().__init__(reason)
        self.part = part
        self.reason = reason
        self.row = row


def encode(root: Part, rows: int, prefix: bytes) -> tuple[Any, Any]:
    """Return the bytes of all rows, each with the prefix before it, and int64 offsets, one more than rows.

    A row of a root that is null has no bytes.

    Raises:
        UnfitError: a value does not fit.
    """
    out = bytearray()
    offsets = array("q", (0,))
    for row in range(rows):
        if _is_valid(root, row):
            out += prefix
            try:
                _write(root, row, out)
            except UnfitError as error:
                error.row = row
                raise
        offsets.append(len(out))
    return out, offsets


def _is_valid(part: Part, row: int) -> bool:
    if part.validity is None:
        return True
    bit = part.first + row
    return bool(part.validity[bit >> 3] >> (bit & 7) & 1)


def _write(part: Part, row: int, out: bytearray) -> None:
    if not _is_valid(part, row):
        if part.null is None:
            raise UnfitError(part, NULL)
        out += part.null
        return
    kind, place = part.kind, part.first + row
    if kind == TAGGED:
        _write_tagged(part, row, out)
        return
    out += part.written
    if kind == BIT:
        out.append(part.data[place >> 3] >> (place & 7) & 1)
    elif kind == INTEGER:
        _append_long(out, _INTS[part.width].unpack_from(part.data, part.width * place)[0])
    elif kind == FIXED:
        out += part.data[part.width * place : part.width * (place + 1)]
    elif kind in (TEXT, REST):
        start, end = _range(part, place, len(part.data))
        if kind == TEXT:
            _append_long(out, end - start)
        out += part.data[start:end]
    elif kind == DECIMAL:
        _write_decimal(part, place, out)
    elif kind == RECORD:
        for child in part.children:
            _write(child, row, out)
    elif kind == LIST:
        start, end = _range(part, place, part.children[0].length)
        if end > start:
            _append_long(out, end - start)
            for item in range(start, end):
                _write(part.children[0], item, out)
        out.append(0)


def _range(part: Part, place: int, most: int) -> tuple[int, int]:
    assert part.offsets is not None
    start, end = part.offsets[place], part.offsets[place + 1]
    if not 0 <= start <= end <= most:
        raise UnfitError(part, DAMAGED)
    return start, end


def _write_tagged(part: Part, row: int, out: bytearray) -> None:
    """Write the one child that is not null."""
    chosen = [child for child in part.children if _is_valid(child, row)]
    if len(chosen) > 1:
        raise UnfitError(part, SEVERAL)
    if chosen:
        _write(chosen[0], row, out)
    elif part.null is None:
        raise UnfitError(part, NULL)
    else:
        out += part.null


def _write_decimal(part: Part, place: int, out: bytearray) -> None:
    number = int.from_bytes(part.data[16 * place : 16 * (place + 1)], "little", signed=True)
    # As many as fastavro writes, which are one more than needed for -128, -32768 and so on.
    size = (abs(number).bit_length() + 8) // 8
    if part.width:
        try:
            out += number.to_bytes(part.width, "big", signed=True)
        except OverflowError:
            raise UnfitError(part, TOO_LARGE) from None
    else:
        _append_long(out, size)
        out += number.to_bytes(size, "big", signed=True)


def _append_long(out: bytearray, number: int) -> None:
    number = number << 1 ^ number >> 63
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


use_compiled(__name__)
