"""Compatibility of schemas: whether data of one can be read by another. For the registry of tests and the command line.

Avro follows the specification's schema resolution. The rules for JSON Schema and Protobuf are those of common changes;
a real registry knows more of them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, Final

from pykclient.schema_registry.avro_types import loaded, named_schemas, parse_avro, resolution_problems
from pykclient.schema_registry.rest import load
from pykclient.schema_registry.schemas import Schema

Resolve = Callable[[str, int], Schema]


def problems_between(reader: Schema, writer: Schema, resolve: Resolve) -> list[str]:
    """Return the reasons why ``reader`` cannot read data of ``writer``; an empty list if it can.

    ``resolve`` returns the schema of a subject and a version, for references.
    """
    if reader.schema_type == "AVRO":
        return resolution_problems(_avro(reader, resolve), _avro(writer, resolve))
    if reader.schema_type == "JSON":
        return list(_json_problems(json.loads(reader.schema_str or "{}"), json.loads(writer.schema_str or "{}"), "#"))
    return _protobuf_problems(reader, writer)


def _avro(schema: Schema, resolve: Resolve) -> Any:
    return parse_avro(loaded(schema.schema_str or ""), named_schemas(schema, resolve))


# --- JSON Schema -----------------------------------------------------------------------------------------------------


def _types(schema: Any) -> set[str]:
    found = schema.get("type") if isinstance(schema, dict) else None
    kinds = {found} if isinstance(found, str) else set(found or ())
    return kinds | {"integer"} if "number" in kinds else kinds


def _json_problems(reader: Any, writer: Any, path: str) -> list[str]:
    if reader is True or reader == {} or writer is False or reader == writer:
        return []
    if not isinstance(reader, dict) or not isinstance(writer, dict):
        return [f"{path}: the reader accepts nothing"] if reader is False else []
    found: list[str] = []
    read, written = _types(reader), _types(writer)
    if read and not (written and written <= read):
        found.append(f"{path}: the reader's type {_named(read)} does not accept the writer's {_named(written)}")
    if "enum" in reader and not ("enum" in writer and all(value in reader["enum"] for value in writer["enum"])):
        found.append(f"{path}: the reader's enum lacks values that the writer may write")
    for name, is_tighter in _BOUNDS.items():
        if name in reader and (name not in writer or is_tighter(reader[name], writer[name])):
            found.append(f"{path}: the reader's {name} is {reader[name]}, the writer's {writer.get(name, 'unlimited')}")
    properties, others = reader.get("properties", {}), writer.get("properties", {})
    found += [
        f"{path}/{name}: the reader requires this property, and the writer does not"
        for name in reader.get("required", ())
        if name not in writer.get("required", ()) and "default" not in properties.get(name, {})
    ]
    for name, schema in properties.items():
        if name in others:
            found += _json_problems(schema, others[name], f"{path}/{name}")
    if reader.get("additionalProperties") is False:
        found += [f"{path}/{name}: the reader does not allow it" for name in others if name not in properties]
        if writer.get("additionalProperties", True) is not False:
            found.append(f"{path}: the writer allows more properties, and the reader does not")
    if "items" in reader and "items" in writer:
        found += _json_problems(reader["items"], writer["items"], f"{path}[]")
    return found


_BOUNDS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "maximum": lambda reader, writer: reader < writer,
    "maxLength": lambda reader, writer: reader < writer,
    "maxItems": lambda reader, writer: reader < writer,
    "minimum": lambda reader, writer: reader > writer,
    "minLength": lambda reader, writer: reader > writer,
    "minItems": lambda reader, writer: reader > writer,
}


def _named(kinds: set[str]) -> str:
    return " or ".join(sorted(kinds)) or "any"


# --- Protobuf --------------------------------------------------------------------------------------------------------

#: Scalar types whose bytes are the same, by group.
_WIRE_GROUPS: Final = (
    frozenset(("TYPE_INT32", "TYPE_INT64", "TYPE_UINT32", "TYPE_UINT64", "TYPE_BOOL", "TYPE_ENUM")),
    frozenset(("TYPE_SINT32", "TYPE_SINT64")),
    frozenset(("TYPE_FIXED32", "TYPE_SFIXED32")),
    frozenset(("TYPE_FIXED64", "TYPE_SFIXED64")),
    frozenset(("TYPE_STRING", "TYPE_BYTES")),
)


def _protobuf_problems(reader: Schema, writer: Schema) -> list[str]:
    pb2 = load("google.protobuf.descriptor_pb2", "protobuf")

    def file(schema: Schema) -> Any:
        return pb2.FileDescriptorProto.FromString(base64.b64decode(schema.schema_str or ""))

    def name_of(field: Any) -> str:
        return str(pb2.FieldDescriptorProto.Type.Name(field.type))

    def check(reader: Any, writer: Any, path: str) -> list[str]:
        found: list[str] = []
        by_number = {field.number: field for field in reader.field}
        for field in writer.field:
            mine = by_number.get(field.number)
            if mine is None or (mine.type == field.type and mine.type_name == field.type_name):
                continue
            if not any(name_of(mine) in group and name_of(field) in group for group in _WIRE_GROUPS):
                found.append(
                    f"{path}.{mine.name}: field {field.number} is {name_of(mine)} {mine.type_name} for the reader, and "
                    f"{name_of(field)} {field.type_name} for the writer"
                )
        return found + check_all(reader.nested_type, writer.nested_type, path)

    def check_all(readers: Any, writers: Any, path: str) -> list[str]:
        found: list[str] = []
        by_name = {message.name: message for message in readers}
        for message in writers:
            inner = f"{path}.{message.name}" if path else message.name
            if message.name not in by_name:
                found.append(f"{inner}: the reader has no such message")
            else:
                found += check(by_name[message.name], message, inner)
        return found

    mine, other = file(reader), file(writer)
    if mine.package != other.package:
        return [f"the reader's package is {mine.package!r}, the writer's {other.package!r}"]
    return check_all(mine.message_type, other.message_type, "")
