"""Bytes and values equal those of confluent-kafka's serializers, in both directions."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from hypothesis import HealthCheck, given, settings, strategies as st

from pykclient.schema_registry import (
    MessageField,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SerializationContext,
)
from pykclient.schema_registry.avro import AvroDeserializer, AvroSerializer
from pykclient.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from pykclient.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from pykclient.testing.schema_registry import EmbeddedSchemaRegistry
from tests.schema_registry.avro_strategies import Drawn, avro, record, wide

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import confluent_kafka.schema_registry as confluent
    import confluent_kafka.schema_registry.avro as confluent_avro
    import confluent_kafka.schema_registry.json_schema as confluent_json
    import confluent_kafka.schema_registry.protobuf as confluent_protobuf
    from confluent_kafka.serialization import MessageField as TheirField, SerializationContext as TheirContext

#: The profile decides how many are drawn: --hypothesis-profile thousand.
PEERS = settings(deadline=None, suppress_health_check=list(HealthCheck))
THEIRS = {"auto.register.schemas": True, "subject.name.strategy.type": "TOPIC"}
OURS = {"auto.register.schemas": True}


@pytest.fixture(scope="module")
def clients() -> Iterator[tuple[SchemaRegistryClient, Any]]:
    with EmbeddedSchemaRegistry() as registry, SchemaRegistryClient({"url": registry.url}) as client:
        client.set_compatibility(level="NONE")
        theirs = confluent.SchemaRegistryClient({"url": registry.url})
        yield client, theirs
        theirs.close()


@PEERS
@given(data=st.data(), drawn=st.one_of(avro(), record()))
def test_avro_bytes_equal_confluents(
    clients: tuple[SchemaRegistryClient, Any], data: st.DataObject, drawn: tuple[Any, st.SearchStrategy[Any]]
) -> None:
    ours, theirs = clients
    schema, values = drawn
    if isinstance(schema, list) or "bytes" in (schema, schema["type"] if isinstance(schema, dict) else None):
        # The peer takes a whole schema of bytes for one without logical types.
        schema = {"type": "array", "items": schema}
        values = st.lists(values, max_size=3)
    text = json.dumps(schema)
    value = data.draw(values)
    our_ctx = SerializationContext("t", MessageField.VALUE, [])
    their_ctx = TheirContext("t", TheirField.VALUE, [])
    made = AvroSerializer(ours, text, conf=OURS)(value, our_ctx)
    assert made == confluent_avro.AvroSerializer(theirs, text, conf=THEIRS)(value, their_ctx)
    assert made is not None
    expected = confluent_avro.AvroDeserializer(theirs, conf={"subject.name.strategy.type": "TOPIC"})(made, their_ctx)
    assert AvroDeserializer(ours)(made, our_ctx) == expected


@PEERS
@given(data=st.data(), drawn=wide())
def test_wide_avro_equals_confluents(
    clients: tuple[SchemaRegistryClient, Any], data: st.DataObject, drawn: Drawn
) -> None:
    ours, theirs = clients
    value = data.draw(drawn.values)
    rows = []
    for name, text in drawn.references.items():
        subject = f"{name}-{abs(hash(json.dumps(text)))}"
        ours.register_schema(subject, Schema(json.dumps(text)))
        rows.append((name, subject, ours.get_latest_version(subject).version))
    whole = json.dumps(drawn.schema)
    our_schema = Schema(whole, references=[SchemaReference(*row) for row in rows])
    their_schema = confluent.Schema(whole, "AVRO", [confluent.SchemaReference(*row) for row in rows])
    our_ctx = SerializationContext("t", MessageField.VALUE, [])
    their_ctx = TheirContext("t", TheirField.VALUE, [])
    made = AvroSerializer(ours, our_schema, conf=OURS)(value, our_ctx)
    assert made == confluent_avro.AvroSerializer(theirs, their_schema, conf=THEIRS)(value, their_ctx)
    assert made is not None
    if len(made) == 5:  # records without fields, which the peer does not read
        assert AvroDeserializer(ours)(made, our_ctx) is not None
        return
    conf = {"subject.name.strategy.type": "TOPIC"}
    for with_names in (False, True):
        expected = confluent_avro.AvroDeserializer(theirs, None, None, with_names, conf=conf)(made, their_ctx)
        assert AvroDeserializer(ours, None, None, with_names)(made, our_ctx) == expected


# --- JSON Schema ------------------------------------------------------------------------------------------------------


@st.composite
def json_type(draw: st.DrawFn, depth: int = 2) -> tuple[Any, st.SearchStrategy[Any]]:
    """Return a JSON Schema and a strategy for its values."""
    leaves: list[tuple[Any, st.SearchStrategy[Any]]] = [
        ({"type": "string", "maxLength": 9}, st.text(max_size=9)),
        ({"type": "integer", "minimum": -9}, st.integers(-9, 2**53)),
        ({"type": "number"}, st.floats(-1e15, 1e15)),
        ({"type": "boolean"}, st.booleans()),
        ({"type": "null"}, st.none()),
        ({"enum": ["a", 1, None]}, st.sampled_from(["a", 1, None])),
        ({"const": "c"}, st.just("c")),
        ({"$ref": "#/definitions/text"}, st.text(max_size=9)),
        ({}, st.none() | st.booleans() | st.text(max_size=3)),
    ]
    kind = draw(st.sampled_from(["leaf", "array", "object", "anyOf", "types"] if depth > 0 else ["leaf"]))
    if kind == "array":
        inner, values = draw(json_type(depth - 1))
        return {"type": "array", "items": inner, "maxItems": 3}, st.lists(values, max_size=3)
    if kind == "object":
        found: tuple[Any, st.SearchStrategy[Any]] = draw(json_object(depth - 1))
        return found
    if kind == "anyOf":
        first, of_first = draw(json_type(depth - 1))
        second, of_second = draw(json_type(depth - 1))
        return {"anyOf": [first, second]}, of_first | of_second
    if kind == "types":
        return {"type": ["null", "string"]}, st.none() | st.text(max_size=5)
    leaf: tuple[Any, st.SearchStrategy[Any]] = draw(st.sampled_from(leaves))
    return leaf


@st.composite
def json_object(draw: st.DrawFn, depth: int = 2) -> tuple[Any, st.SearchStrategy[Any]]:
    """Return a JSON Schema of an object and a strategy for its values."""
    names = draw(st.lists(st.text("abc\u00e9 ", min_size=1, max_size=3), max_size=4, unique=True))
    parts = {name: draw(json_type(depth)) for name in names}
    required = draw(st.lists(st.sampled_from(names), unique=True)) if names else []
    schema = {"type": "object", "properties": {name: part for name, (part, _) in parts.items()}, "required": required}
    given_ = {name: of for name, (_, of) in parts.items() if name in required}
    optional = {name: of for name, (_, of) in parts.items() if name not in required}
    return schema, st.fixed_dictionaries(given_, optional=optional)


@PEERS
@given(data=st.data(), drawn=json_object())
def test_drawn_json_equals_confluents(
    clients: tuple[SchemaRegistryClient, Any], data: st.DataObject, drawn: tuple[Any, st.SearchStrategy[Any]]
) -> None:
    ours, theirs = clients
    schema, values = drawn
    text = json.dumps({"title": "Drawn", "definitions": {"text": {"type": "string"}}, **schema})
    value = data.draw(values)
    our_ctx = SerializationContext("j", MessageField.VALUE, [])
    their_ctx = TheirContext("j", TheirField.VALUE, [])
    made = JSONSerializer(text, ours, conf=OURS)(value, our_ctx)
    assert made == confluent_json.JSONSerializer(text, theirs, conf=THEIRS)(value, their_ctx)
    conf = {"subject.name.strategy.type": "TOPIC"}
    expected = confluent_json.JSONDeserializer(None, schema_registry_client=theirs, conf=conf)(made, their_ctx)
    assert JSONDeserializer(None, schema_registry_client=ours)(made, our_ctx) == expected == value


# --- Protobuf ---------------------------------------------------------------------------------------------------------

_SCALARS: dict[int, st.SearchStrategy[Any]] = {
    **dict.fromkeys((3, 16, 18), st.integers(-(2**63), 2**63 - 1)),
    **dict.fromkeys((5, 15, 17), st.integers(-(2**31), 2**31 - 1)),
    **dict.fromkeys((4, 6), st.integers(0, 2**64 - 1)),
    **dict.fromkeys((7, 13), st.integers(0, 2**32 - 1)),
    1: st.floats(allow_nan=False),
    2: st.floats(width=32, allow_nan=False),
    8: st.booleans(),
    9: st.text(max_size=9),
    12: st.binary(max_size=9),
    14: st.sampled_from([0, 1, 5]),
}
_KNOWN_TYPES = (".google.protobuf.Timestamp", ".google.protobuf.StringValue", ".google.protobuf.Struct")
_KEYS = (9, 3, 13, 8)
_IMPORTS = ("google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto", "google/protobuf/struct.proto")


@st.composite
def files(draw: st.DrawFn) -> tuple[Any, Any]:
    """Return a file and one that it imports, with drawn messages."""
    other = descriptor_pb2.FileDescriptorProto(name="other.proto", package="o", syntax="proto3")
    other.message_type.add(name="Other").field.add(name="x", number=draw(st.integers(1, 99)), type=5, label=1)
    file = descriptor_pb2.FileDescriptorProto(
        name="drawn.proto", package=draw(st.sampled_from(["", "d", "d.e"])), syntax="proto3"
    )
    file.dependency.extend(["other.proto", *_IMPORTS])
    space = f".{file.package}" if file.package else ""
    kind = file.enum_type.add(name="Kind")
    for name, number in (("ZERO", 0), ("ONE", 1), ("FIVE", 5)):
        kind.value.add(name=name, number=number)
    count = draw(st.integers(1, 3))
    messages = [f"{space}.M{place}" for place in range(count)]
    for place in range(count):
        message = file.message_type.add(name=f"M{place}")
        inner = message.nested_type.add(name="Inner")
        inner.field.add(name="deep", number=1, type=9, label=1)
        types = [*messages, f"{messages[place]}.Inner", ".o.Other", *_KNOWN_TYPES]
        choice = None
        for number in draw(
            st.lists(st.integers(1, 3000).filter(lambda n: not 1900 < n < 2001), max_size=6, unique=True)
        ):
            field = message.field.add(name=f"f{number}", number=number, label=1)
            what = draw(st.sampled_from(["scalar", "scalar", "message", "repeated", "oneof", "optional", "map"]))
            field.type = 11 if what == "message" else draw(st.sampled_from(list(_SCALARS)))
            if what == "repeated":
                field.label = 3
                field.type = draw(st.sampled_from([field.type, 11]))
            if what == "oneof":
                choice = choice or message.oneof_decl.add(name="choice")
                field.oneof_index = 0
            if what == "map":
                entry = message.nested_type.add(name=f"F{number}Entry")
                entry.options.map_entry = True
                entry.field.add(name="key", number=1, type=draw(st.sampled_from(_KEYS)), label=1)
                of = entry.field.add(name="value", number=2, type=draw(st.sampled_from([*_SCALARS, 11])), label=1)
                _name_type(of, space, draw(st.sampled_from(types)))
                field.type, field.label, field.type_name = 11, 3, f"{messages[place]}.F{number}Entry"
            else:
                _name_type(field, space, draw(st.sampled_from(types)))
    return other, file


def _name_type(field: Any, space: str, message: str) -> None:
    if field.type == 11:
        field.type_name = message
    elif field.type == 14:
        field.type_name = f"{space}.Kind"


def _fill(draw: Any, message: Any, depth: int) -> Any:
    """Set some fields of a message to drawn values."""
    for field in message.DESCRIPTOR.fields:
        if not draw(st.booleans()):
            continue
        held = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            key, of = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
            name = draw(_SCALARS[key.type])
            if of.message_type is not None:
                _fill(draw, held[name], depth - 1)
            else:
                held[name] = draw(_SCALARS[of.type])
        elif field.message_type is not None:
            if depth > 0:
                _fill(draw, held.add() if hasattr(held, "add") else held, depth - 1)
        elif hasattr(held, "extend"):
            held.extend(draw(st.lists(_SCALARS[field.type], max_size=3)))
        else:
            setattr(message, field.name, draw(_SCALARS[field.type]))
    return message


@PEERS
@given(data=st.data(), drawn=files())
def test_drawn_protobuf_equals_confluents(data: st.DataObject, drawn: tuple[Any, Any]) -> None:
    pool = descriptor_pool.DescriptorPool()
    for module in (timestamp_pb2, wrappers_pb2, struct_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    for file in drawn:
        pool.Add(file)
    chosen = data.draw(st.sampled_from(list(drawn[1].message_type))).name
    full = f"{drawn[1].package}.{chosen}".lstrip(".")
    descriptor = pool.FindMessageTypeByName(full)
    if data.draw(st.booleans()):
        descriptor = descriptor.nested_types_by_name["Inner"]
    kind: Any = message_factory.GetMessageClass(descriptor)
    value = _fill(data.draw, kind(), 2)
    our_ctx = SerializationContext("p", MessageField.VALUE, [])
    their_ctx = TheirContext("p", TheirField.VALUE, [])
    with EmbeddedSchemaRegistry() as registry, SchemaRegistryClient({"url": registry.url}) as ours:
        theirs = confluent.SchemaRegistryClient({"url": registry.url})
        made = ProtobufSerializer(kind, ours, OURS)(value, our_ctx)
        assert made is not None
        # Map entries have no order of their own.
        their_made = confluent_protobuf.ProtobufSerializer(kind, theirs, conf=THEIRS)(value, their_ctx)
        assert (made[:5], len(made)) == (their_made[:5], len(their_made))
        conf = {"subject.name.strategy.type": "TOPIC"}
        assert confluent_protobuf.ProtobufDeserializer(kind, conf, theirs)(made, their_ctx) == value
        assert ProtobufDeserializer(kind, None, ours)(their_made, our_ctx) == value
        found = ProtobufDeserializer(None, None, ours)(their_made, our_ctx)
        assert found.DESCRIPTOR.full_name == kind.DESCRIPTOR.full_name
        assert kind.FromString(found.SerializeToString()) == value
        theirs.close()


def test_the_serializers_do_not_import_confluents() -> None:
    import subprocess

    code = "import sys, pykclient.schema_registry.avro; assert not any('confluent_kafka' in n for n in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
