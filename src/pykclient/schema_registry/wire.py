"""Where a record says which schema it was written with.

==========  =====================================================================================================
prefix      a byte 0 and the schema's id in four bytes, or a byte 1 and its GUID in sixteen, before the data
header      the same bytes in a header ``__key_schema_id`` or ``__value_schema_id``, and nothing before the data
Apicurio    a byte 0 and the id in eight bytes, or a header ``apicurio.value.globalId`` or ``.contentId``
AWS Glue    a byte 3, a byte for the compression (0: none, 5: zlib), and the version's UUID
==========  =====================================================================================================

Protobuf's data follow a list of indexes, which says which message of the file it is. No registry has an id of 0, so
four zero bytes after the byte 0 are the beginning of an id of eight bytes.
"""

from __future__ import annotations

import io
import struct
import uuid
import zlib
from collections.abc import Sequence
from typing import Any, Final

from pykclient.errors import SerializationError
from pykclient.record.record_batch import encode_uvarint, encode_varint
from pykclient.serialization import MessageField, SerializationContext

KEY_SCHEMA_ID: Final = "__key_schema_id"
VALUE_SCHEMA_ID: Final = "__value_schema_id"
MAGIC_BYTE_V0: Final = 0
MAGIC_BYTE_V1: Final = 1
_GLUE: Final = 3
_GLUE_ZLIB: Final = 5
_GLUE_SIZE: Final = 18
_PREFIX: Final = struct.Struct(">bI")
_LONG: Final = struct.Struct(">q")
_MOST_INDEXES: Final = 1000
#: The largest size of a value of Glue after decompression.
_MOST_BYTES: Final = 1 << 28


class SchemaId:
    """The id of a schema as a record has it, and Protobuf's indexes of the message (confluent-kafka: SchemaId)."""

    __slots__ = ("guid", "id", "is_global", "is_glue", "message_indexes", "schema_type", "zigzag")

    def __init__(
        self,
        schema_type: str,
        schema_id: int | None = None,
        guid: str | None = None,
        message_indexes: Sequence[int] | None = None,
    ) -> None:
        self.schema_type = schema_type
        self.id = schema_id
        self.guid = None if guid is None else uuid.UUID(guid)
        self.message_indexes = None if message_indexes is None else list(message_indexes)
        #: True if ``guid`` is that of a version in AWS Glue.
        self.is_glue = False
        #: True if ``id`` is the global id of a version in Apicurio's registry.
        self.is_global = False
        #: False if the indexes are unsigned numbers, as old versions of confluent-kafka wrote them.
        self.zigzag = True

    def __str__(self) -> str:
        if self.is_global:
            return f"global id {self.id}"
        return f"id {self.id}" if self.id is not None else f"GUID {self.guid}"

    def from_bytes(self, payload: io.BytesIO) -> io.BytesIO:
        """Read the id from ``payload``, and leave it at the data.

        Raises:
            SerializationError: the bytes do not begin with an id.
        """
        data = payload.getvalue()
        payload.seek(self.read(data, payload.tell()))
        return payload

    def read(self, data: bytes, pos: int = 0) -> int:
        """Read the id in ``data`` at ``pos``, and return the position after it.

        Raises:
            SerializationError: there is none.
        """
        left = len(data) - pos
        magic = data[pos] if left > 0 else -1
        if magic == MAGIC_BYTE_V0 and left >= 5:
            self.id = int.from_bytes(data[pos + 1 : pos + 5])
            pos += 5
            if self.id == 0 and left >= 9:  # Apicurio's
                self.id = int.from_bytes(data[pos : pos + 4])
                pos += 4
        elif magic == MAGIC_BYTE_V1 and left >= 17:
            self.guid = uuid.UUID(bytes=data[pos + 1 : pos + 17])
            pos += 17
        elif magic == _GLUE and left >= _GLUE_SIZE:
            self.guid = uuid.UUID(bytes=data[pos + 2 : pos + _GLUE_SIZE])
            self.is_glue = True
            return pos + _GLUE_SIZE
        elif magic in (MAGIC_BYTE_V0, MAGIC_BYTE_V1, _GLUE):
            raise SerializationError(f"{left} bytes are too short for the id of a schema and data")
        elif magic < 0:
            raise SerializationError("0 bytes are too short for the id of a schema and data")
        else:
            raise SerializationError(
                f"Invalid magic byte {magic}: the record was not written with a schema registry's serializer"
            )
        if self.schema_type == "PROTOBUF":
            self.message_indexes, pos = read_indexes(data, pos, self.zigzag)
        return pos

    def id_to_bytes(self) -> bytes:
        """Return the prefix with the id."""
        if self.id is None:
            raise SerializationError("Schema ID is not set")
        return _PREFIX.pack(MAGIC_BYTE_V0, self.id) + self._indexes()

    def guid_to_bytes(self) -> bytes:
        """Return the prefix with the GUID."""
        if self.guid is None:
            raise SerializationError("Schema GUID is not set")
        return bytes((MAGIC_BYTE_V1,)) + self.guid.bytes + self._indexes()

    def _indexes(self) -> bytes:
        return b"" if self.message_indexes is None else write_indexes(self.message_indexes, self.zigzag)


def write_indexes(indexes: Sequence[int], zigzag: bool = True) -> bytes:
    """Return the number of indexes and each of them as varints; for the first message, one byte 0."""
    if list(indexes) == [0]:
        return b"\x00"
    return b"".join((encode_varint if zigzag else encode_uvarint)(number) for number in (len(indexes), *indexes))


def read_indexes(data: bytes, pos: int, zigzag: bool = True) -> tuple[list[int], int]:
    """Return the indexes of a message at ``pos``, and the position after them.

    Raises:
        SerializationError: the bytes end, or there are too many indexes.
    """
    count, pos = _read_index(data, pos, zigzag)
    if count == 0:
        return [0], pos
    if not 0 < count <= _MOST_INDEXES:
        raise SerializationError("Invalid msgidx array length")
    found = []
    for _ in range(count):
        index, pos = _read_index(data, pos, zigzag)
        found.append(index)
    return found, pos


def _read_index(data: bytes, pos: int, zigzag: bool) -> tuple[int, int]:
    value, pos = read_varint(data, pos)
    return (value >> 1 ^ -(value & 1) if zigzag else value), pos


def read_varint(data: bytes, pos: int) -> tuple[int, int]:
    """Return the unsigned number at ``pos``, and the position after it.

    Raises:
        SerializationError: the bytes end, or it has more than 64 bits.
    """
    value = shift = 0
    while True:
        if pos >= len(data) or shift > 63:
            raise SerializationError("the bytes end inside of the message's indexes")
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, pos


def _header(ctx: SerializationContext | None, key_name: str, value_name: str) -> bytes | None:
    if ctx is None or not ctx.headers:
        return None
    name = key_name if ctx.field == MessageField.KEY else value_name
    if isinstance(ctx.headers, dict):
        return ctx.headers.get(name)
    found: bytes | None = next((row[1] for row in ctx.headers if row[0] == name), None)
    return found


def prefix_schema_id_serializer(payload: bytes, ctx: SerializationContext | None, schema_id: SchemaId) -> bytes:  # noqa: ARG001
    """Return the data with the schema's id before it."""
    return schema_id.id_to_bytes() + payload


def prefix_schema_guid_serializer(payload: bytes, ctx: SerializationContext | None, schema_id: SchemaId) -> bytes:  # noqa: ARG001
    """Return the data with the schema's GUID before it."""
    return schema_id.guid_to_bytes() + payload


def header_schema_id_serializer(payload: bytes, ctx: SerializationContext | None, schema_id: SchemaId) -> bytes:
    """Add the schema's GUID to the record's headers, and return the data as they are.

    Raises:
        SerializationError: there are no headers to add to: pass ``headers=[]`` to ``send``.
    """
    if ctx is None:
        raise SerializationError("SerializationContext is required for header_schema_id_serializer")
    headers = ctx.headers
    if headers is None:
        raise SerializationError("Missing headers: the schema's id goes there")
    name = KEY_SCHEMA_ID if ctx.field == MessageField.KEY else VALUE_SCHEMA_ID
    if isinstance(headers, dict):
        headers[name] = schema_id.guid_to_bytes()
    elif isinstance(headers, list):
        headers.append((name, schema_id.guid_to_bytes()))
    else:
        raise SerializationError(
            f"the schema's id goes into the headers, and a {type(headers).__name__} cannot take it: send() needs "
            "headers=[]"
        )
    return payload


def prefix_schema_id_deserializer(payload: bytes, ctx: SerializationContext | None, schema_id: SchemaId) -> io.BytesIO:  # noqa: ARG001
    """Read the schema's id before the data, and return the data."""
    return schema_id.from_bytes(io.BytesIO(payload))


def dual_schema_id_deserializer(payload: bytes, ctx: SerializationContext | None, schema_id: SchemaId) -> io.BytesIO:
    """Read the schema's id from the headers, or else before the data, and return the data."""
    return io.BytesIO(read_dual(payload, ctx, schema_id))


def read_dual(data: bytes, ctx: SerializationContext | None, schema_id: SchemaId) -> bytes:
    """Read the schema's id into ``schema_id`` from wherever it is, and return the data without it.

    Raises:
        SerializationError: there is no id, or Glue's compression cannot be undone.
    """
    if ctx is not None and ctx.headers:
        header = _header(ctx, KEY_SCHEMA_ID, VALUE_SCHEMA_ID)
        if header is not None:
            schema_id.read(header)
            return data
        for what in ("globalId", "contentId"):
            number = _header(ctx, f"apicurio.key.{what}", f"apicurio.value.{what}")
            if number is not None and len(number) == _LONG.size:
                (schema_id.id,) = _LONG.unpack(number)
                schema_id.is_global = what == "globalId"
                return data
    pos = schema_id.read(data)
    if schema_id.is_glue and data[1]:
        return _decompressed(data, pos)
    return data[pos:]


def _decompressed(data: bytes, pos: int) -> bytes:
    if data[1] != _GLUE_ZLIB:
        raise SerializationError(f"the compression {data[1]} of AWS Glue is unknown")
    machine = zlib.decompressobj()
    try:
        found = machine.decompress(data[pos:], _MOST_BYTES)
    except zlib.error as error:
        raise SerializationError(f"the data cannot be decompressed: {error}") from error
    if not machine.eof:
        raise SerializationError("the data are cut off, or too large after decompression")
    return found


def decoded_by(deserializer: Any, data: bytes, ctx: SerializationContext | None, schema_id: SchemaId) -> bytes:
    """Return what is left of the data once ``deserializer`` has read the schema's id."""
    if deserializer is dual_schema_id_deserializer:
        return read_dual(data, ctx, schema_id)
    rest = deserializer(data, ctx, schema_id)
    return rest.read() if isinstance(rest, io.BytesIO) else bytes(rest)
