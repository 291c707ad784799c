"""Avro records into columns, row by row, as the steps of ``avro_nodes`` say.

The buffers of columns are Arrow's: values, offsets, and a bit per value that is 0 for null. The compiled form has the
same classes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from pykclient.errors import SerializationError
from pykclient.implementation import use_compiled
from pykclient.schema_registry.avro_nodes import (
    ARRAY,
    BITS,
    BOOLEAN,
    BYTES,
    DECIMAL,
    DEEPEST,
    DEFAULT,
    DOUBLE,
    ENUM,
    FAIL,
    FIXED,
    FLOAT,
    FLOAT_TO_DOUBLE,
    LIST,
    LONG,
    LONG_TO_FLOAT,
    MAP,
    NULL,
    RECORD,
    STRUCT,
    TAGGED_UNION,
    TEXT,
    UNION,
    Step,
)

_INT32: Final = struct.Struct("<i")
#: A view: the size, and, without the first four bytes, the number of the buffer and the place in it.
_VIEW: Final = struct.Struct("<i4xii")
_MAX_INLINE: Final = 12
_MAX_INT32: Final = (1 << 31) - 1
#: The most values of an array that take no bytes.
MOST_EMPTY: Final = 1 << 16


class Column:
    """A column that grows. Thread: owner."""

    __slots__ = ("children", "data", "form", "length", "null_count", "offsets", "validity", "width")

    def __init__(self, form: int, width: int, children: Sequence[Column]) -> None:
        self.form = form
        self.width = width
        self.children = list(children)
        self.length = 0
        self.null_count = 0
        #: One bit per value; without meaning if there is no null.
        self.validity = bytearray()
        self.data = bytearray()
        #: int32; one more than values.
        self.offsets = bytearray(4)

    def buffers(self) -> tuple[int, int, bytearray | None, bytearray, bytearray]:
        """Return the number of values and of nulls, the validity (None: all are valid), the offsets and the data."""
        validity = self.validity if self.null_count else None
        return self.length, self.null_count, validity, self.offsets, self.data

    def end_value(self, is_valid: bool) -> None:
        """Count a value whose data have been added."""
        if not self.length & 7:
            self.validity.append(0xFF)
        if not is_valid:
            self.null_count += 1
            self.validity[self.length >> 3] &= ~(1 << (self.length & 7)) & 0xFF
        self.length += 1

    def add_null(self) -> None:
        """Add null."""
        if self.form == BITS:
            self.add_bit(0, is_valid=False)
            return
        if self.form == FIXED:
            self.data += bytes(self.width)
        elif self.form == STRUCT:
            for child in self.children:
                child.add_null()
        else:
            self.offsets += self.offsets[-4:]
        self.end_value(is_valid=False)

    def add_bit(self, bit: int, is_valid: bool = True) -> None:
        """Add a boolean."""
        if not self.length & 7:
            self.data.append(0)
        self.data[self.length >> 3] |= bit << (self.length & 7)
        self.end_value(is_valid)

    def truncate(self, length: int) -> None:
        """Remove all values from ``length`` on, including incomplete ones."""
        for place in range(length, self.length):
            if not self.validity[place >> 3] >> (place & 7) & 1:
                self.null_count -= 1
        self.length = min(self.length, length)
        bits = (length + 7) >> 3
        del self.validity[bits:]
        if length & 7:
            self.validity[-1] |= 0xFF << (length & 7) & 0xFF
        if self.form == BITS:
            del self.data[bits:]
            if length & 7:
                self.data[-1] &= (1 << (length & 7)) - 1
        elif self.form == FIXED:
            del self.data[length * self.width :]
        elif self.form in (BYTES, LIST):
            del self.offsets[4 * (length + 1) :]
            (end,) = _INT32.unpack_from(self.offsets, 4 * length)
            if self.form == BYTES:
                del self.data[end:]
            else:
                self.children[0].truncate(end)
        else:
            for child in self.children:
                child.truncate(length)


class Rows:
    """The rows of an array of bytes. Thread: owner."""

    __slots__ = ("_bits", "_buffers", "_first", "_offsets", "_views", "size")

    def __init__(
        self,
        size: int,
        bits: memoryview | None,
        first: int,
        offsets: memoryview | None,
        views: memoryview | None,
        buffers: Sequence[memoryview],
    ) -> None:
        """Refer to the buffers of an array.

        Args:
            bits: the array's validity, or None if no row is null. The bit of the first row is ``first``.
            offsets: int32, one more than rows: where rows begin in the only buffer. None if there are ``views``.
            views: 16 bytes a row, with its size, and its bytes if these are at most 12, or else the number of a buffer
                and the place in it.
        """
        self.size = size
        self._bits = bits
        self._first = first
        self._offsets = offsets
        self._views = views
        self._buffers = buffers

    def is_null(self, row: int) -> bool:
        """Return whether a row is null."""
        place = self._first + row
        return self._bits is not None and not self._bits[place >> 3] >> (place & 7) & 1

    def value(self, row: int) -> memoryview:
        """Return the bytes of a row, which is not null.

        Raises:
            SerializationError: the row is not inside of a buffer.
        """
        number = 0
        if self._views is None:
            assert self._offsets is not None
            begin, end = self._offsets[row : row + 2]
        else:
            size, number, begin = _VIEW.unpack_from(self._views, 16 * row)
            if 0 <= size <= _MAX_INLINE:
                return self._views[16 * row + 4 : 16 * row + 4 + size]
            end = begin + size
        if not (0 <= number < len(self._buffers) and 0 <= begin <= end <= len(self._buffers[number])):
            raise SerializationError("a row that is outside of its buffer")
        return self._buffers[number][begin:end]

    def next_other(self, row: int, prefix: bytes) -> int:
        """Return the next row after ``row`` that is null or does not begin with ``prefix``, or the end."""
        size = len(prefix)
        row += 1
        while row < self.size and not self.is_null(row) and self.value(row)[:size] == prefix:
            row += 1
        return row


class Decoder:
    """Reads the records of one writer into columns. Steps refer to ``columns`` by number. Thread: owner."""

    __slots__ = ("_columns", "_data", "_end", "_pos", "_root")

    def __init__(self, root: Step, columns: Sequence[Column]) -> None:
        self._root = root
        self._columns = columns
        self._data = memoryview(b"")
        self._pos = self._end = 0

    def decode(self, rows: Rows, row: int, prefix: bytes) -> tuple[int, str | None]:
        """Read the rows from ``row`` on that begin with ``prefix``. A row that is null is read as null.

        Returns:
            the next row that was not read, and why not if it begins with the prefix. Its values are taken back.
        """
        root = self._columns[self._root.column]
        size = len(prefix)
        while row < rows.size:
            if rows.is_null(row):
                root.add_null()
                row += 1
                continue
            value = rows.value(row)
            if value[:size] != prefix:
                return row, None
            self._data, self._pos, self._end = value, size, len(value)
            length = root.length
            try:
                self._read(self._root, 0)
                if self._pos != self._end:
                    raise SerializationError(f"{self._end - self._pos} bytes are left after the value")
            except IndexError:
                root.truncate(length)
                return row, "the bytes end inside of a value"
            except SerializationError as error:
                root.truncate(length)
                return row, str(error)
            row += 1
        return row, None

    def _read(self, step: Step, depth: int) -> None:
        column = None if step.column < 0 else self._columns[step.column]
        kind = step.kind
        if depth > DEEPEST:
            raise SerializationError(f"values are nested more than {DEEPEST} times")
        if kind == RECORD:
            for inner in step.steps:
                self._read(inner, depth + 1)
            if column is not None:
                column.end_value(is_valid=True)
        elif kind == UNION:
            branch = self._long()
            if not 0 <= branch < len(step.steps):
                raise SerializationError(f"there is no branch {branch} of {len(step.steps)} in a union")
            self._read(step.steps[branch], depth + 1)
        elif kind in (ARRAY, MAP):
            self._read_list(step, column, depth)
        elif kind == TAGGED_UNION:
            for inner in step.steps:
                self._read(inner, depth + 1)
            assert column is not None
            column.end_value(is_valid=True)
        elif kind == DEFAULT:
            held = self._data, self._pos, self._end
            self._data, self._pos, self._end = memoryview(step.data), 0, len(step.data)
            self._read(step.steps[0], depth + 1)
            self._data, self._pos, self._end = held
        elif kind == FAIL:
            raise SerializationError(step.text)
        elif kind == NULL:
            if column is not None:
                column.add_null()
        else:
            self._read_leaf(step, column)

    def _read_list(self, step: Step, column: Column | None, depth: int) -> None:
        empty = 0
        while True:
            count = self._long()
            if count == 0:
                break
            if count < 0:
                count = -count
                self._long()  # the size of the block in bytes
            if count > self._end - self._pos:
                empty += count
                if empty > MOST_EMPTY:
                    raise SerializationError(f"{count} values do not fit into {self._end - self._pos} bytes")
            for _ in range(count):
                self._read(step.steps[0], depth + 1)
        if column is not None:
            column.offsets += _INT32.pack(_checked(column.children[0].length))
            column.end_value(is_valid=True)

    def _read_leaf(self, step: Step, column: Column | None) -> None:
        kind = step.kind
        if kind == BOOLEAN:
            value = self._take(1)[0]
            if value > 1:
                raise SerializationError(f"{value} is no boolean")
            if column is not None:
                column.add_bit(value)
            return
        if kind in (LONG, LONG_TO_FLOAT, ENUM):
            data: bytes | memoryview = self._number(step, column)
        elif kind in (FLOAT, DOUBLE, FLOAT_TO_DOUBLE):
            data = self._take(8 if kind == DOUBLE else 4)
            if kind == FLOAT_TO_DOUBLE:
                data = struct.pack("<d", *struct.unpack("<f", data))
        else:
            data = self._take(self._size() if kind == TEXT or not step.size else step.size)
            if kind == TEXT and step.size:
                _check_text(data)
        if column is None:
            return
        if kind == DECIMAL:
            number = int.from_bytes(data, signed=True)
            if not -(1 << 127) <= number < 1 << 127:
                raise SerializationError("a decimal of more than 16 bytes")
            data = number.to_bytes(16, "little", signed=True)
        column.data += data
        if column.form == BYTES:
            column.offsets += _INT32.pack(_checked(len(column.data)))
        column.end_value(is_valid=True)

    def _number(self, step: Step, column: Column | None) -> bytes:
        value = self._long()
        if step.kind == ENUM:
            if not 0 <= value < len(step.mapping):
                raise SerializationError(f"there is no symbol {value} of {len(step.mapping)} in an enum")
            value = step.mapping[value]
            if value < 0:
                raise SerializationError(step.text)
        if column is None:
            return b""
        if step.kind == LONG_TO_FLOAT:
            return struct.pack("<f" if column.width == 4 else "<d", value)
        if column.width == 4 and not -(1 << 31) <= value <= _MAX_INT32:
            raise SerializationError("a number of more than 32 bits")
        return value.to_bytes(column.width, "little", signed=True)

    def _long(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift > 63:
                raise SerializationError("a number of more than 64 bits")
        value &= (1 << 64) - 1
        return value >> 1 ^ -(value & 1)

    def _size(self) -> int:
        size = self._long()
        if size < 0:
            raise SerializationError(f"a negative size: {size}")
        return size

    def _take(self, size: int) -> memoryview:
        if size > self._end - self._pos:
            raise IndexError(size)
        self._pos += size
        return self._data[self._pos - size : self._pos]


def _check_text(data: memoryview) -> None:
    try:
        str(data, "utf-8")
    except UnicodeDecodeError:
        raise SerializationError("a string that is not UTF-8") from None


def _checked(size: int) -> int:
    if size > _MAX_INT32:
        raise SerializationError("a column of more than 2 GiB: poll for fewer records (max_bytes)")
    return size


use_compiled(__name__)
