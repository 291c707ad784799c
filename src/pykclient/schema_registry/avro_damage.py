"""Where the bytes of an Avro record are damaged: the field, and the types that are expected there.

Decoders only say that a record cannot be read. This reads it a second time, for the message.
"""

from __future__ import annotations

import functools
import io
from typing import Any, Final

from pykclient.schema_registry.avro_types import AvroType, branch_for, field_of
from pykclient.schema_registry.rest import load
from pykclient.schema_registry.schemas import field_at

_DEEPEST: Final = 64
_SIZES: Final = {"float": 4, "double": 8}
_NUMBERS: Final = {"int": 32, "long": 64}


class _DamageError(Exception):
    pass


def damage(writer: AvroType, reader: AvroType | None, data: bytes) -> str | None:
    """Return which field is damaged, how, and its types in the writer's and the reader's schema; None if none is."""
    walk = _Walk(data)
    try:
        walk.value(writer, reader, "", 0)
    except _DamageError as error:
        return str(error)
    left = len(data) - walk.pos
    return f"{left} bytes are left after the value" if left else None


class _Walk:
    """Reads a record, and remembers the position."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.pos = 0

    def value(self, writer: AvroType, reader: AvroType | None, path: str, depth: int) -> None:
        """Read a value.

        Raises:
            _DamageError: it is damaged.
        """
        try:
            if depth > _DEEPEST:
                raise ValueError(f"values are nested more than {_DEEPEST} times")
            self._read(writer, reader, path, depth)
        except (IndexError, ValueError) as error:
            where = field_at(path)
            text = "the bytes end inside of it" if isinstance(error, IndexError) else str(error)
            types = f"the schema has {writer}"
            if reader is not None and str(reader) != str(writer):
                types += f", and the reader's has {reader}"
            raise _DamageError(f"{where}: {text}; {types}") from None

    def _read(self, writer: AvroType, reader: AvroType | None, path: str, depth: int) -> None:
        kind = writer.kind
        if reader is not None and reader.kind == "union" and kind != "union":
            number = branch_for(reader, writer)
            reader = reader.branches[number] if number >= 0 else None
        if kind == "record":
            wanted = (
                {}
                if reader is None
                else {
                    known.name: field.type for field in reader.fields if (known := field_of(writer, field)) is not None
                }
            )
            for field in writer.fields:
                self.value(
                    field.type, wanted.get(field.name), f"{path}.{field.name}" if path else field.name, depth + 1
                )
        elif kind == "union":
            number = self._long()
            if not 0 <= number < len(writer.branches):
                raise ValueError(f"there is no branch {number} of {len(writer.branches)} in a union")
            self.value(writer.branches[number], reader, path, depth + 1)
        elif kind in ("array", "map"):
            self._read_items(writer, None if reader is None else reader.items, path, depth)
        else:
            begin = self.pos
            self._read_leaf(writer)
            if writer.logical is not None and not _is_read(writer, self._data[begin : self.pos]):
                raise ValueError("the bytes are none of its values")

    def _read_items(self, writer: AvroType, reader: AvroType | None, path: str, depth: int) -> None:
        while count := self._long():
            if count < 0:
                count = -count
                self._long()  # the size of the block in bytes
            for _ in range(min(count, len(self._data) + 1)):  # values may have no bytes
                if writer.kind == "map":
                    _check_text(self._take(self._long()))
                self.value(writer.items, reader, f"{path}{'{}' if writer.kind == 'map' else '[]'}", depth + 1)

    def _read_leaf(self, writer: AvroType) -> None:
        kind = writer.kind
        if kind == "boolean":
            value = self._take(1)[0]
            if value > 1:
                raise ValueError(f"{value} is no boolean")
        elif kind in _NUMBERS:
            number, bits = self._long(), _NUMBERS[kind] - 1
            if not -(1 << bits) <= number < 1 << bits:
                raise ValueError(f"a number of more than {bits + 1} bits")
        elif kind in _SIZES:
            self._take(_SIZES[kind])
        elif kind in ("string", "bytes"):
            text = self._take(self._long())
            if kind == "string":
                _check_text(text)
        elif kind == "fixed":
            self._take(writer.size)
        elif kind == "enum":
            number = self._long()
            if not 0 <= number < len(writer.symbols):
                raise ValueError(f"there is no symbol {number} of {len(writer.symbols)}")

    def _long(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value >> 1 ^ -(value & 1)
            if shift > 63:
                raise ValueError("a number of more than 64 bits")

    def _take(self, size: int) -> bytes:
        if size < 0:
            raise ValueError(f"a negative size: {size}")
        if size > len(self._data) - self.pos:
            raise IndexError(size)
        self.pos += size
        return self._data[self.pos - size : self.pos]


def _check_text(data: bytes) -> None:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"the text is not UTF-8 at byte {error.start}") from None


def is_written(leaf: AvroType, value: Any) -> bool:
    """Return whether the codec accepts a value for a type without parts."""
    try:
        load("fastavro", "avro").schemaless_writer(io.BytesIO(), _alone(leaf), value)
    except Exception:  # noqa: BLE001 - whatever the codec raises for a value
        return False
    return True


def _is_read(leaf: AvroType, data: bytes) -> bool:
    try:
        load("fastavro", "avro").schemaless_reader(io.BytesIO(data), _alone(leaf), None)
    except Exception:  # noqa: BLE001 - whatever the codec raises for the bytes
        return False
    return True


def _alone(leaf: AvroType) -> Any:
    return _schema(leaf.kind, leaf.logical, leaf.precision, leaf.scale, leaf.size)


@functools.lru_cache(200)
def _schema(kind: str, logical: str | None, precision: int, scale: int, size: int) -> Any:
    more = {"precision": precision, "scale": scale} if precision else {}
    given = {"type": kind, "logicalType": logical or "", "name": "leaf", "size": size, **more}
    return load("fastavro", "avro").parse_schema(given)
