"""Errors on reading name topic, partition, offset, the schema's id, the field and its types, and never a value."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from collections.abc import Callable
from typing import Annotated, Any

import fastavro
import msgspec
import pyarrow as pa
import pydantic
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings, strategies as st

from pykclient import KafkaConsumer, KafkaProducer, TopicPartition
from pykclient.errors import RecordDeserializationError, SerializationError
from pykclient.schema_registry import MessageField, Schema, SchemaRegistryClient, SerializationContext, avro_columns
from pykclient.schema_registry.avro import AvroDeserializer, AvroSerializer
from pykclient.schema_registry.avro_types import damage, parse_avro
from pykclient.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from pykclient.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from pykclient.testing import EmbeddedCluster
from tests.schema_registry.avro_strategies import record
from tests.support.wait import eventually

VALUE = SerializationContext("orders", MessageField.VALUE)
REGISTER = {"auto.register.schemas": True}
PREFIX = b"\0\0\0\0\1"

PART = {
    "type": "record",
    "name": "Part",
    "fields": [
        {"name": "number", "type": "int"},
        {"name": "name", "type": "string"},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    ],
}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "parts", "type": {"type": "array", "items": PART}},
        {"name": "counts", "type": {"type": "map", "values": "boolean"}},
    ],
}
GOOD = b"\2\2\2x\2\2\0\0\2\2k\1\0"
#: Damaged bytes of an order, and what is said of them.
DAMAGED = {
    b"": "field 'parts': the bytes end inside of it; the schema has array of record Part",
    b"\2": "field 'parts[].number': the bytes end inside of it; the schema has int",
    b"\2\2\6x": "field 'parts[].name': the bytes end inside of it; the schema has string",
    b"\2\2\2\xff\0\0\0\0": "field 'parts[].name': the text is not UTF-8 at byte 0; the schema has string",
    b"\2\x80\x80\x80\x80\x20\2x\0\0\0\0": "field 'parts[].number': a number of more than 32 bits; the schema has int",
    b"\2\2\2x\6": "field 'parts[].day': there is no branch 3 of 2 in a union; the schema has [null, int (date)]",
    b"\2\2\2x\2\xfe\xff\xff\xff\x0f\0\0\0": "field 'parts[].day': the bytes are none of its values; the schema has "
    "int (date)",
    b"\2\2\2x\0\6\0\0": "field 'parts[].kind': there is no symbol 3 of 2; the schema has enum Kind",
    b"\0\2\2k\2\0": "field 'counts{}': 2 is no boolean; the schema has boolean",
    b"\2\2\1": "field 'parts[].name': a negative size: -1; the schema has string",
    GOOD + b"x": "1 bytes are left after the value",
}


def reading(read: Callable[[Any, Any], Any], data: bytes) -> str:
    with pytest.raises(SerializationError) as caught:
        read(PREFIX + data, VALUE)
    return str(caught.value)


@pytest.mark.parametrize("data", list(DAMAGED))
def test_damaged_avro_names_the_field_and_its_type(client: SchemaRegistryClient, data: bytes) -> None:
    client.register_schema("orders-value", Schema(json.dumps(ORDER)))
    assert AvroDeserializer(client)(PREFIX + GOOD, VALUE)["counts"] == {"k": True}
    place = "the value of a record of topic 'orders', schema id 1, subject 'orders-value': "
    if not any(text in DAMAGED[data] for text in ("no boolean", "32 bits")):  # which the codec takes as they are
        assert reading(AvroDeserializer(client), data) == place + DAMAGED[data]
    # A column says the same, and the rows around it are read.
    rows = pa.array([PREFIX + GOOD, PREFIX + data, PREFIX + GOOD])
    found = avro_columns(client, on_error="keep").decode(rows)
    if "none of its values" not in DAMAGED[data]:  # Arrow has more days than Python
        assert found.poison == [(1, f"schema id 1: {DAMAGED[data]}")]
    assert found.array[2].is_valid


def test_both_types_are_named_if_the_reader_has_another(client: SchemaRegistryClient) -> None:
    client.register_schema("orders-value", Schema(json.dumps(ORDER)))
    renamed = '"count", "aliases": ["number"], "type": "double"'
    wider = json.dumps(ORDER).replace('"number", "type": "int"', renamed)
    text = reading(AvroDeserializer(client, wider), b"\2")
    assert "field 'parts[].number': the bytes end inside of it; the schema has int, and the reader's has double" in text


@settings(deadline=None)
@given(st.data(), record())
def test_every_cut_of_a_drawn_record_names_a_field(data: st.DataObject, drawn: tuple[Any, Any]) -> None:
    schema, values = drawn
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), data.draw(values))
    tree = parse_avro(schema)
    whole = out.getvalue()
    assert damage(tree, None, whole) is None
    for size in range(len(whole)):
        text = damage(tree, tree, whole[:size])
        assert text is not None
        assert text.startswith("field '")
        assert "; the schema has " in text


@pytest.mark.parametrize(
    ("kind", "value", "place"),
    [
        ("int", 1 << 31, "a"),
        ("int", -(1 << 31) - 1, "a"),
        ({"type": "array", "items": "int"}, [1, 1 << 40], "a[]"),
        ({"type": "map", "items": "int", "values": "int"}, {"x": 1 << 40}, "a{}"),
        (["null", {"type": "array", "items": "int"}], [1 << 40], "a"),
        ({"type": "record", "name": "In", "fields": [{"name": "b", "type": "int"}]}, {"b": 1 << 40}, "a.b"),
        (["null", "R"], {"n": 1 << 40, "a": None}, "a"),
        (["null", "R"], {"n": 1, "a": {"n": 1 << 40, "a": None}}, "a"),
    ],
)
def test_int_of_more_than_32_bits_is_not_written(
    client: SchemaRegistryClient, kind: Any, value: Any, place: str
) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}, {"name": "a", "type": kind}]}
    write = AvroSerializer(client, json.dumps(schema), conf={"auto.register.schemas": True})
    with pytest.raises(SerializationError, match=re.escape(f"field '{place}")) as caught:
        write({"n": 1, "a": value}, VALUE)
    assert "out of range" in str(caught.value) or "none of" in str(caught.value)
    assert write({"n": (1 << 31) - 1, "a": value_in_range(value)}, VALUE)


def value_in_range(value: Any) -> Any:
    """Return the value with ints of 32 bits."""
    if isinstance(value, dict):
        return {name: value_in_range(item) for name, item in value.items()}
    if isinstance(value, list):
        return [value_in_range(item) for item in value]
    return 7 if isinstance(value, int) else value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            {"id": "\ud800"},
            "field 'id' is a str with half a surrogate pair, which the schema's string",
        ),
        ({"id": "x"}, "field 'raw' is missing, and defaults of the schema's bytes cannot be written"),
        (
            {"id": "x", "raw": b"", "day": "secret"},
            r"field 'day' is of type str, which is none of \[null, int \(date\)\]",
        ),
    ],
)
def test_avro_that_cannot_be_written_names_the_field(client: SchemaRegistryClient, value: Any, text: str) -> None:
    fields = [
        {"name": "id", "type": "string"},
        {"name": "raw", "type": "bytes", "default": "x"},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
    ]
    schema = json.dumps({"type": "record", "name": "Order", "fields": fields})
    with pytest.raises(SerializationError, match=f"topic 'orders', schema id 1.*{text}") as caught:
        AvroSerializer(client, schema, conf=REGISTER)(value, VALUE)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": {"b": [1, "\ud800"]}}, r"field 'a.b\[\]' is a str with half a surrogate pair"),
        ({"a": 1 << 70}, "field 'a' is an int of more than 64 bits"),
        ({"a": {1, 2}}, "field 'a' is of type set, which JSON has not"),
        ({"a": {1: 2}}, "field 'a' has a name of type int"),
    ],
)
def test_json_that_cannot_be_written_names_the_field(client: SchemaRegistryClient, value: Any, text: str) -> None:
    write = JSONSerializer('{"type": "object"}', client, conf={**REGISTER, "validate": False})
    with pytest.raises(SerializationError, match=f"topic 'orders', schema id 1, subject 'orders-value': {text}"):
        write(value, VALUE)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b'{"id": ', "the text is not JSON: Expecting value: line 1 column 8"),
        (b'{"id": "\xff"}', "the text is not UTF-8 at byte 8"),
        (b"[" * 100_000, "the JSON is nested too deeply"),
        (b'{"id": "x"}', "field 'id' is of type str, and the schema has type \"integer\""),
    ],
)
def test_damaged_json_names_the_place(client: SchemaRegistryClient, data: bytes, text: str) -> None:
    schema = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}})
    client.register_schema("orders-value", Schema(schema, "JSON"))
    place = "the value of a record of topic 'orders', schema id 1, subject 'orders-value': "
    found = reading(JSONDeserializer(None, schema_registry_client=client), data)
    assert found.startswith(place + text)


def messages() -> Any:
    pool = descriptor_pool.DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto(name="o.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Order").field.add(name="parts", number=1, type=11, label=3, type_name=".shop.Part")
    part = file.message_type.add(name="Part")
    part.field.add(name="name", number=1, type=9, label=1)
    part.field.add(name="size", number=2, type=1, label=1)
    part.field.add(name="count", number=3, type=3, label=1)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


MESSAGE = messages()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x0a\x09\x0a", "field 'parts': the bytes end inside of it; the schema has shop.Part"),
        (b"\x0a\x03\x0a\x05x", "field 'parts.name': the bytes end inside of it; the schema has string"),
        (b"\x0a\x03\x0a\x01\xff", "field 'parts.name': the text is not UTF-8 at byte 0; the schema has string"),
        (b"\x0a\x03\x11\x01\x01", "field 'parts.size': the bytes end inside of it; the schema has double"),
        (b"\x0a\x02\x18\x80", "field 'parts.count': the bytes end inside of it; the schema has int64"),
        (b"\x0a\x01\x80", "field 'parts': the bytes end inside of the number of a field"),
        (b"\x07", "the message: there is no field 0"),
    ],
)
@pytest.mark.parametrize("kind", [None, MESSAGE])
def test_damaged_protobuf_names_the_field_and_its_type(
    client: SchemaRegistryClient, data: bytes, text: str, kind: Any
) -> None:
    assert ProtobufSerializer(MESSAGE, client, REGISTER)(MESSAGE(), VALUE) == PREFIX + b"\0"
    found = reading(ProtobufDeserializer(kind, None, client), b"\0" + data)
    place = "the value of a record of topic 'orders', schema id 1, subject 'orders-value': "
    assert found == f"{place}{len(data)} bytes are no message of shop.Order: {text}"


@dataclasses.dataclass
class Plain:
    id: int

    def __post_init__(self) -> None:
        raise ValueError("a secret value")


class Checked(pydantic.BaseModel):
    id: int = pydantic.Field(gt=100)


class Struct(msgspec.Struct):
    id: Annotated[int, msgspec.Meta(gt=100)]


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (Checked, "field 'id': Input should be greater than 100"),
        (Struct, r"the model refuses the value: Expected `int` >= 101 - at `\$.id`"),
        (Plain, r"the model refuses the value \(ValueError\)"),
    ],
)
def test_value_that_a_model_refuses_is_one_error(client: SchemaRegistryClient, model: Any, text: str) -> None:
    schema = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}})
    data = JSONSerializer(schema, client, conf=REGISTER)({"id": 77}, VALUE)
    reader = JSONDeserializer(model, schema_registry_client=client, conf={"validate": False})
    place = "topic 'orders', schema id 1, subject 'orders-value': "
    with pytest.raises(SerializationError, match=place + text) as caught:
        reader(data, VALUE)
    assert "77" not in str(caught.value)
    assert "secret" not in str(caught.value)


FORMATS: dict[str, tuple[Any, bytes, str]] = {
    "Avro": (AvroDeserializer, b"\2", "field 'parts[].number'"),
    "JSON": (lambda client: JSONDeserializer(None, schema_registry_client=client), b"{", "the text is not JSON"),
    "Protobuf": (lambda client: ProtobufDeserializer(None, None, client), b"\0\x0a\x09\x0a", "field 'parts'"),
}


@pytest.mark.parametrize("name", list(FORMATS))
def test_error_of_a_consumer_names_the_record_and_the_deserializer(
    pykclient_cluster: EmbeddedCluster, client: SchemaRegistryClient, name: str
) -> None:
    make, data, text = FORMATS[name]
    if name == "Avro":
        client.register_schema("orders-value", Schema(json.dumps(ORDER)))
    elif name == "JSON":
        client.register_schema("orders-value", Schema('{"type": "object"}', "JSON"))
    else:
        ProtobufSerializer(MESSAGE, client, REGISTER)(MESSAGE(), VALUE)
    with KafkaProducer(bootstrap_servers=pykclient_cluster.bootstrap_servers) as producer:
        producer.send("orders", PREFIX + data, partition=0).get(30)
    with KafkaConsumer(
        bootstrap_servers=pykclient_cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        value_deserializer=make(client),
    ) as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        with pytest.raises(RecordDeserializationError) as caught:
            eventually(lambda: consumer.poll(1_000))
    found = str(caught.value)
    for part in ("orders-0", "offset 0", f"{name}Deserializer", "schema id 1", text):
        assert part in found
    assert "Bound" not in found
