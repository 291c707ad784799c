"""Columns of any type against fields of any type: an encoder writes the very values, or raises."""

from __future__ import annotations

import datetime
import io
import json
import math
import re
import uuid
from array import array
from collections.abc import Iterator, Mapping
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from pykclient.errors import SerializationError
from pykclient.schema_registry import (
    MessageField,
    Schema,
    SchemaRegistryClient,
    SerializationContext,
    avro_columns,
    avro_encoder,
    json_columns,
    json_encoder,
    protobuf_columns,
    protobuf_encoder,
)
from pykclient.schema_registry.avro import AvroDeserializer
from pykclient.schema_registry.json_schema import JSONDeserializer
from pykclient.schema_registry.protobuf import ProtobufDeserializer
from pykclient.testing import EmbeddedSchemaRegistry
from tests.schema_registry.test_encoder import values_of_type
from tests.schema_registry.test_object_columns import EVERYTHING
from tests.support.examples import examples

MANY = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=examples(400))
CTX = SerializationContext("orders", MessageField.VALUE)

NUMBERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
LEAVES = [
    *(*NUMBERS, pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.null()),
    *(pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())),
    *(pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(4), pa.decimal128(6, 2), pa.decimal128(9, 0)),
    *(pa.date32(), pa.time32("ms"), pa.time64("us"), pa.duration("ms")),
    *(pa.timestamp(unit, zone) for unit in ("ms", "us", "ns") for zone in (None, "UTC")),
]
EXTENSIONS = [pa.uuid(), pa.bool8()]


def leaf_values(of: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_null(of):
        return st.none()
    if pa.types.is_duration(of):
        return st.integers(-(10**9), 10**9)
    if pa.types.is_dictionary(of):
        return st.sampled_from(["A", "NEW", "1", "x"])
    if pa.types.is_floating(of):
        return values_of_type(of) | st.sampled_from([math.nan, math.inf, 0.0, 3.0])
    if pa.types.is_string(of):
        return values_of_type(of) | st.sampled_from(["A", "NEW", "1", "[1]", "NaN", "1e999", '{"a": 9007199254740993}'])
    return values_of_type(of)


@st.composite
def columns(draw: st.DrawFn) -> pa.Array:
    """Return a column of one to four rows."""
    if draw(st.integers(0, 9)) == 0:
        extension = draw(st.sampled_from(EXTENSIONS))
        storage = draw(st.lists(st.none() | values_of_type(extension.storage_type), min_size=1, max_size=4))
        return pa.ExtensionArray.from_storage(extension, pa.array(storage, extension.storage_type))
    leaf = draw(st.sampled_from(LEAVES))
    of, rows = leaf, st.none() | leaf_values(leaf)
    form = draw(st.sampled_from(["leaf", "leaf", "list", "map", "struct"]))
    if form == "list":
        layout = draw(st.sampled_from([pa.list_, pa.large_list, pa.list_view]))
        of, rows = layout(leaf), st.none() | st.lists(rows, max_size=3)
    elif form == "map":
        keys = st.sampled_from(["a", "b", "c"])
        of, rows = pa.map_(pa.string(), leaf), st.none() | st.lists(st.tuples(keys, rows), max_size=3)
    elif form == "struct":
        names = draw(st.sampled_from([["x"], ["x", "name"], ["text", "inner"]]))
        of, rows = (
            pa.struct([(name, leaf) for name in names]),
            st.none() | st.fixed_dictionaries(dict.fromkeys(names, rows)),
        )
    made = pa.array(draw(st.lists(rows, min_size=1, max_size=4)), of)
    return made[draw(st.integers(0, len(made) - 1)) :]


def is_same(of: pa.DataType, value: Any, read: Any) -> bool:
    """Return whether a value that was read is that of the column. In JSON and Protobuf, what is null is not there."""
    if value is None:
        return read is None
    if pa.types.is_struct(of):
        return isinstance(read, Mapping) and all(
            is_same(part.type, value[part.name], read.get(part.name)) for part in of
        )
    if pa.types.is_map(of):
        pairs = read.items() if isinstance(read, Mapping) else read
        return len(pairs) == len(value) and all(
            any(key == name and is_same(of.item_type, item, found) for name, found in pairs) for key, item in value
        )
    if isinstance(value, list):
        return len(read) == len(value) and all(
            is_same(of.value_type, item, found) for item, found in zip(value, read, strict=True)
        )
    if isinstance(value, float) and math.isnan(value):
        return isinstance(read, float) and math.isnan(read)
    if isinstance(value, bool) or isinstance(read, bool):
        return value is read
    if isinstance(value, datetime.datetime) and value.tzinfo is None and isinstance(read, datetime.datetime):
        return value == read.replace(tzinfo=None)
    return bool(value == read) and isinstance(read, (str, bytes)) == isinstance(value, (str, bytes))


def encoded(encoder: Any, name: str, column: pa.Array) -> list[bytes | None] | None:
    """Return the rows; None if the encoder refuses the column, or one row of it, which its error names."""
    try:
        found = encoder.encode_rows(pa.record_batch({name: column}), "orders", "value", frozenset(), 70)
    except SerializationError as error:
        text = str(error)
        assert f"field '{name}" in text, text
        rows = re.findall(r"row (\d+)", text)
        assert all(70 <= int(row) < 70 + len(column) for row in rows), text
        return None
    return [found[row] for row in range(len(column))]


@pytest.fixture(scope="module")
def shared() -> Iterator[SchemaRegistryClient]:
    with EmbeddedSchemaRegistry() as registry, SchemaRegistryClient({"url": registry.url}) as client:
        client.set_compatibility(level="NONE")
        yield client


# --- JSON ------------------------------------------------------------------------------------------------------------

JSON_PARTS: dict[str, Any] = {
    "text": {"type": "string"},
    "whole": {"type": "integer"},
    "real": {"type": "number"},
    "flag": {"type": "boolean"},
    "nullable": {"oneOf": [{"type": "null"}, {"type": "integer"}]},
    "needed": {"type": "integer"},
    "any": {},
    "choice": {"enum": ["A", "NEW"]},
    "list": {"type": "array", "items": {"type": ["null", "integer"]}},
    "map": {"type": "object", "additionalProperties": {"type": "string"}},
    "object": {"type": "object", "properties": {"x": {"type": "number"}, "name": {"type": "string"}}},
}


@MANY
@given(column=columns(), name=st.sampled_from(sorted(JSON_PARTS)), validate=st.booleans())
def test_json_has_the_values_of_the_column_or_none(
    shared: SchemaRegistryClient, column: pa.Array, name: str, validate: bool
) -> None:
    required = ["needed"] if name == "needed" else []
    schema = json.dumps({"type": "object", "properties": {name: JSON_PARTS[name]}, "required": required})
    conf = {"auto.register.schemas": True, "validate": validate}
    rows = encoded(json_encoder(shared, Schema(schema, "JSON"), conf=conf), name, column)
    if rows is None:
        return
    reads: JSONDeserializer[Any] = JSONDeserializer(None, schema_registry_client=shared, conf={"validate": validate})
    decoded = json_columns(shared, Schema(schema, "JSON"), validate=validate).decode(pa.array(rows, pa.binary()))
    poison = dict(decoded.poison)
    for place, (value, row) in enumerate(zip(column.to_pylist(), rows, strict=True)):
        read = reads(row, CTX)[name] if value is not None or name == "needed" else reads(row, CTX).get(name)
        if name == "any" and value is not None:
            assert json.loads(value) == read
            assert b"NaN" not in (row or b"")
        else:
            assert is_same(column.type, value, read), (value, row)
        if place in poison:
            assert "64 bits" in poison[place]
        elif name != "any" and name != "real":
            assert is_same(column.type, value, decoded.array[place].as_py()[name])


# --- Protobuf --------------------------------------------------------------------------------------------------------


def of_message(field: Any, value: Any) -> Any:
    """Return the value of a field in the form of a column's."""
    if field.message_type is None:
        names = {} if field.enum_type is None else field.enum_type.values_by_number
        return names[value].name if value in names else str(value) if field.enum_type is not None else value
    name = field.message_type.full_name
    if name == "google.protobuf.Timestamp":
        return value.ToDatetime(datetime.UTC)
    if name == "google.protobuf.Duration":
        return value.ToTimedelta()
    if name == "google.protobuf.Int64Value":
        return value.value
    if name == "google.protobuf.Struct":
        return dict(value)
    return {part.name: of_message(part, getattr(value, part.name)) for part in field.message_type.fields}


def field_value(message: Any, name: str) -> Any:
    field = message.DESCRIPTOR.fields_by_name[name]
    held = getattr(message, name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return [(key, of_message(field.message_type.fields_by_name["value"], held[key])) for key in held]
    if field.is_repeated:
        return [of_message(field, item) for item in held]
    if field.has_presence and not message.HasField(name):
        return None
    return of_message(field, held)


def is_default(value: Any) -> bool:
    return not value or value in ("NEW", b"")


@MANY
@given(column=columns(), name=st.sampled_from([field.name for field in EVERYTHING.DESCRIPTOR.fields]))
def test_messages_have_the_values_of_the_column_or_none(
    shared: SchemaRegistryClient, column: pa.Array, name: str
) -> None:
    rows = encoded(protobuf_encoder(shared, EVERYTHING, conf={"auto.register.schemas": True}), name, column)
    if rows is None:
        return
    reads: ProtobufDeserializer[Any] = ProtobufDeserializer(EVERYTHING, {}, shared)
    decoded = protobuf_columns(shared, EVERYTHING).decode(pa.array(rows, pa.binary()))
    assert not decoded.poison
    for value, row, got in zip(column.to_pylist(), rows, decoded.array.to_pylist(), strict=True):
        read = field_value(reads(row, CTX), name)
        if value is None:
            assert read is None or is_default(read)
            continue
        if name == "anything":
            assert json.loads(value) == read == json.loads(got[name])
            continue
        numbers = {"0": "NEW", "1": "PAID"}
        if name in ("state", "states"):  # also by numbers
            texts = [str(each) for each in (value if isinstance(value, list) else [value])]
            found = read if isinstance(read, list) else [read]
            assert [numbers.get(text, text) for text in texts] == found
            continue
        expected = value
        if pa.types.is_struct(column.type):
            expected = {part: "" if item is None and part == "name" else item for part, item in value.items()}
        if isinstance(value, list) and name == "parts":
            expected = [(key, {"name": item["name"] or ""}) for key, item in value]
        assert is_same(column.type, expected, read), (value, read)
        assert is_same(column.type, expected, got[name])


# --- Avro ------------------------------------------------------------------------------------------------------------


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


AVRO_TYPES: list[Any] = [
    *("boolean", "int", "long", "float", "double", "string", "bytes", "null", ["null", "int"], ["int", "string"]),
    *(logical("int", "date"), logical("int", "time-millis"), logical("long", "time-micros")),
    *(logical("long", f"{kind}-{unit}") for kind in ("timestamp", "local-timestamp") for unit in ("millis", "micros")),
    *(logical("bytes", "decimal", precision=7, scale=2), logical("string", "uuid")),
    {"type": "fixed", "name": "F", "size": 4},
    {"type": "enum", "name": "E", "symbols": ["A", "NEW"]},
    {"type": "array", "items": ["null", "int"]},
    {"type": "map", "values": "string"},
    {
        "type": "record",
        "name": "I",
        "fields": [
            {"name": "x", "type": ["null", "double"], "default": None},
            {"name": "name", "type": ["null", "string"], "default": None},
        ],
    },
]


@MANY
@given(column=columns(), of=st.sampled_from(AVRO_TYPES))
def test_avro_has_the_values_of_the_column_or_none(shared: SchemaRegistryClient, column: pa.Array, of: Any) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "f", "type": of}]}
    encoder = avro_encoder(shared, json.dumps(schema), conf={"auto.register.schemas": True})
    rows = encoded(encoder, "f", column)
    if rows is None:
        return
    reads: AvroDeserializer[Any] = AvroDeserializer(shared)
    decoded = avro_columns(shared).decode(pa.array(rows, pa.binary()))
    assert not decoded.poison
    back = decoded.array.field("f")
    if pa.types.is_integer(column.type) and "logicalType" in of:  # numbers of days, milliseconds and so on
        assert back.view(pa.int32() if of["type"] == "int" else pa.int64()).to_pylist() == column.to_pylist()
        return
    for value, row, got in zip(column.to_pylist(), rows, back.to_pylist(), strict=True):
        if isinstance(value, str) and of == logical("string", "uuid"):
            assert got == value  # text is written as it is, and readers of objects refuse what is no UUID
            continue
        read = reads(row, CTX)["f"]
        peer: Any = fastavro.schemaless_reader(io.BytesIO((row or b"")[5:]), schema, None)
        assert read == peer["f"] or read != read
        expected = value.bytes if isinstance(value, uuid.UUID) and of == "bytes" else value
        assert is_same(column.type, expected, read), (value, read)
        if isinstance(value, uuid.UUID) and isinstance(got, str):  # columns have it as text
            expected = str(value)
        if not isinstance(got, dict) or "int" not in got:  # a union has a column for each type
            assert is_same(column.type, expected, got)


# --- what Arrow has and Python has not -------------------------------------------------------------------------------

NOT_UTF8 = pa.Array.from_buffers(
    pa.string(), 2, [None, pa.py_buffer(array("i", [0, 1, 2]).tobytes()), pa.py_buffer(b"a\xff")]
)
LATE = pa.array([0, 1 << 62], pa.int64()).cast(pa.timestamp("us", "UTC"))
TWICE = pa.array([[("a", 1)], [("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64()))


@pytest.mark.parametrize(
    ("field", "column", "text"),
    [
        ("a_string", NOT_UTF8, "row 1, field 'a_string' is a text that is not UTF-8"),
        ("at", LATE, r"row 1, field 'at' is no value of Python's, .*; the column has timestamp\[us, tz=UTC\]"),
        ("counts", TWICE, "row 1, field 'counts' has a key twice, .*; the column has map<string, int64>"),
        ("numbers", pa.array([[1], [None]]), r"row 1, field 'numbers\[\]' is null, which the schema's int64 is not"),
        ("anything", pa.array(["{}", '{"a":NaN}']), "row 1, field 'anything' is no JSON"),
        (
            "anything",
            pa.array(["{}", '{"a":9007199254740993}']),
            "row 1, field 'anything' .* a number that they cannot",
        ),
    ],
)
def test_messages_refuse_what_would_be_lost(
    shared: SchemaRegistryClient, field: str, column: pa.Array, text: str
) -> None:
    encoder = protobuf_encoder(shared, EVERYTHING, conf={"auto.register.schemas": True})
    with pytest.raises(SerializationError, match=text):
        encoder.encode_rows(pa.record_batch({field: column}), "orders", "value", frozenset())


def test_messages_refuse_several_values_of_a_oneof(shared: SchemaRegistryClient) -> None:
    encoder = protobuf_encoder(shared, EVERYTHING, conf={"auto.register.schemas": True})
    batch = pa.record_batch({"text": ["a", "b"], "inner": [None, {"name": "c"}]})
    with pytest.raises(
        SerializationError, match=r"row 1, the value has several values for .* oneof choice of shop\.Ev"
    ):
        encoder.encode_rows(batch, "orders", "value", frozenset())


@pytest.mark.parametrize(
    ("field", "column", "text"),
    [
        ("text", NOT_UTF8, "row 1, field 'text' is a text that is not UTF-8, .*; the column has string"),
        ("any", pa.array(["1", "NaN"]), "row 1, field 'any' is no JSON"),
        (
            "any",
            pa.array(["1", "1e999"]),
            "row 1, field 'any' .* a number that they cannot have; the column has string",
        ),
    ],
)
def test_json_refuses_what_would_be_lost(shared: SchemaRegistryClient, field: str, column: pa.Array, text: str) -> None:
    schema = json.dumps({"type": "object", "properties": JSON_PARTS})
    encoder = json_encoder(shared, Schema(schema, "JSON"), conf={"auto.register.schemas": True})
    with pytest.raises(SerializationError, match=text):
        encoder.encode_rows(pa.record_batch({field: column}), "orders", "value", frozenset())


@pytest.mark.parametrize("of", ["string", ["null", "string"], {"type": "array", "items": "string"}])
def test_avro_refuses_texts_that_are_not_utf8(shared: SchemaRegistryClient, of: Any) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "f", "type": of}]}
    encoder = avro_encoder(shared, json.dumps(schema), conf={"auto.register.schemas": True})
    column = NOT_UTF8 if not isinstance(of, dict) else pa.ListArray.from_arrays([0, 1, 2], NOT_UTF8)
    with pytest.raises(SerializationError, match=r"row 1, field 'f.*: a value of the column's string does not fit"):
        encoder.encode_rows(pa.record_batch({"f": column}), "orders", "value", frozenset())
