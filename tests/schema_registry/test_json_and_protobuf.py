"""JSON Schema and Protobuf: bytes equal confluent-kafka's, in both directions, and damaged records raise."""

from __future__ import annotations

import asyncio
import dataclasses
import decimal
import importlib
import json
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from hypothesis import HealthCheck, given, settings, strategies as st

from pykclient.errors import SerializationError
from pykclient.schema_registry import (
    MessageField,
    Rule,
    RuleKind,
    RuleMode,
    RuleSet,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SerializationContext,
)
from pykclient.schema_registry.json_schema import AsyncJSONDeserializer, JSONDeserializer, JSONSerializer
from pykclient.schema_registry.protobuf import (
    ProtobufDeserializer,
    ProtobufSerializer,
    decimal_to_protobuf,
    protobuf_to_decimal,
)
from pykclient.testing.schema_registry import EmbeddedSchemaRegistry

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import confluent_kafka.schema_registry as confluent
    import confluent_kafka.schema_registry.json_schema as confluent_json
    import confluent_kafka.schema_registry.protobuf as confluent_protobuf
    from confluent_kafka.serialization import MessageField as TheirField, SerializationContext as TheirContext

PEERS = settings(deadline=None, suppress_health_check=list(HealthCheck))
VALUE = SerializationContext("orders", MessageField.VALUE)
REGISTER = {"auto.register.schemas": True}
THEIRS = {"auto.register.schemas": True, "subject.name.strategy.type": "TOPIC"}

ORDER = json.dumps(
    {
        "title": "Order",
        "type": "object",
        "properties": {"id": {"type": "integer"}, "part": {"$ref": "part.json"}},
        "required": ["id"],
    }
)
PART = json.dumps({"title": "Part", "type": "object", "properties": {"name": {"type": "string"}}})


@pytest.fixture(scope="module")
def clients() -> Iterator[tuple[SchemaRegistryClient, Any]]:
    with EmbeddedSchemaRegistry() as registry, SchemaRegistryClient({"url": registry.url}) as client:
        client.set_compatibility(level="NONE")
        theirs = confluent.SchemaRegistryClient({"url": registry.url})
        yield client, theirs
        theirs.close()


# --- JSON ------------------------------------------------------------------------------------------------------------


def order(client: SchemaRegistryClient) -> Schema:
    client.register_schema("part", Schema(PART, "JSON"))
    return Schema(ORDER, "JSON", [SchemaReference("part.json", "part", 1)])


def test_json_round_trip_with_references(client: SchemaRegistryClient) -> None:
    data = JSONSerializer(order(client), client, conf=REGISTER)({"id": 7, "part": {"name": "x"}}, VALUE)
    assert data == b'\0\0\0\0\2{"id":7,"part":{"name":"x"}}'
    assert JSONDeserializer(None, schema_registry_client=client)(data, VALUE) == {"id": 7, "part": {"name": "x"}}
    assert JSONDeserializer(PART)(data, VALUE)["id"] == 7


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"id": "secret"}, "field 'id' is of type str, and the schema has type \"integer\""),
        ({}, "the value lacks the required properties id"),
        ({"id": 1, "part": {"name": 5}}, "field 'part.name' is of type int"),
    ],
)
def test_json_that_is_not_valid_names_the_field_and_both_types(
    client: SchemaRegistryClient, value: Any, text: str
) -> None:
    schema = order(client)
    with pytest.raises(SerializationError, match=f"schema id 2.*{text}") as caught:
        JSONSerializer(schema, client, conf=REGISTER)(value, VALUE)
    assert "secret" not in str(caught.value)
    data = JSONSerializer(schema, client, conf={**REGISTER, "validate": False})(value, VALUE)
    with pytest.raises(SerializationError, match=text):
        JSONDeserializer(None, schema_registry_client=client)(data, VALUE)
    with pytest.raises(SerializationError, match="schema id 2, subject 'orders-value': the text is not JSON"):
        JSONDeserializer(None, schema_registry_client=client)(b"\0\0\0\0\2{", VALUE)


@PEERS
@given(
    value=st.dictionaries(
        st.text(max_size=5),
        st.recursive(
            st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=9),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
            max_leaves=8,
        ),
        max_size=5,
    )
)
def test_json_bytes_equal_confluents(clients: tuple[SchemaRegistryClient, Any], value: Any) -> None:
    ours, theirs = clients
    schema = json.dumps({"title": "Any", "type": "object"})
    made = JSONSerializer(schema, ours, conf=REGISTER)(value, VALUE)
    ctx = TheirContext("orders", TheirField.VALUE, [])
    assert made == confluent_json.JSONSerializer(schema, theirs, conf=THEIRS)(value, ctx)
    conf = {"subject.name.strategy.type": "TOPIC"}
    expected = confluent_json.JSONDeserializer(None, schema_registry_client=theirs, conf=conf)(made, ctx)
    assert JSONDeserializer(None, schema_registry_client=ours)(made, VALUE) == expected


@dataclasses.dataclass
class Item:
    name: str
    counts: list[int]
    next: Item | None = None


def test_models_are_written_and_read_as_json(client: SchemaRegistryClient) -> None:
    item = Item("a", [1], Item("b", []))
    data = JSONSerializer(Item, client, conf=REGISTER)(item, VALUE)
    assert JSONDeserializer(Item, schema_registry_client=client)(data, VALUE) == item


@pytest.mark.parametrize("kind", ["allOf", "anyOf"])
def test_rules_change_fields_of_all_schemas_that_fit_once(client: SchemaRegistryClient, kind: str) -> None:
    tagged = {"type": "string", "confluent:tags": ["PII"]}
    parts = [{"properties": {"a": tagged}}, {"properties": {"b": {"$ref": "#/definitions/b"}, "a": tagged}}]
    text = {
        "type": "object",
        "definitions": {"b": {"properties": {"c": tagged}}},
        "properties": {"in": {kind: parts, "properties": {"d": tagged, "e": {"type": "string"}}}},
    }
    rule = Rule("r", None, RuleKind.TRANSFORM, RuleMode.WRITE, "CEL_FIELD", ["PII"], None, "value + '!'")
    schema = Schema(json.dumps(text), "JSON", rule_set=RuleSet(domain_rules=[rule]))
    value = {"in": {"a": "1", "b": {"c": "2"}, "d": "3", "e": "4"}}
    data = JSONSerializer(schema, client, conf=REGISTER)(value, VALUE)
    assert data is not None
    assert json.loads(data[5:]) == {"in": {"a": "1!", "b": {"c": "2!"}, "d": "3!", "e": "4"}}


def test_asynchronous_deserializers_need_no_client(client: SchemaRegistryClient) -> None:
    data = JSONSerializer(PART, client, conf=REGISTER)({"name": "x"}, VALUE)
    found = asyncio.run(AsyncJSONDeserializer(PART)(data, VALUE))
    assert found == {"name": "x"}


# --- Protobuf --------------------------------------------------------------------------------------------------------


def _field(name: str, number: int, kind: str, type_name: str = "", repeated: bool = False, oneof: bool = False) -> Any:
    made = descriptor_pb2.FieldDescriptorProto(name=name, number=number, type_name=type_name or None)
    made.type = descriptor_pb2.FieldDescriptorProto.Type.Value(f"TYPE_{kind}")
    made.label = made.LABEL_REPEATED if repeated else made.LABEL_OPTIONAL
    if oneof:
        made.oneof_index = 0
    return made


def _messages() -> dict[str, Any]:
    """Return classes of two files: the second imports the first and a well-known type, and nests messages."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    part = descriptor_pb2.FileDescriptorProto(name="shop/part.proto", package="shop", syntax="proto3")
    part.message_type.add(name="Part").field.append(_field("name", 1, "STRING"))
    pool.Add(part)
    file = descriptor_pb2.FileDescriptorProto(
        name="shop/order.proto",
        package="shop",
        syntax="proto3",
        dependency=["shop/part.proto", "google/protobuf/timestamp.proto"],
    )
    file.message_type.add(name="First").field.append(_field("id", 1, "INT64"))
    message = file.message_type.add(name="Order")
    message.oneof_decl.add(name="what")
    message.field.extend(
        [
            _field("id", 1, "INT64"),
            _field("parts", 2, "MESSAGE", ".shop.Part", repeated=True),
            _field("at", 3, "MESSAGE", ".google.protobuf.Timestamp"),
            _field("text", 4, "STRING", oneof=True),
            _field("number", 5, "SINT32", oneof=True),
            _field("counts", 6, "MESSAGE", ".shop.Order.CountsEntry", repeated=True),
            _field("self", 7, "MESSAGE", ".shop.Order"),
        ]
    )
    entry = message.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.extend([_field("key", 1, "STRING"), _field("value", 2, "INT64")])
    message.nested_type.add(name="Inner").field.append(_field("flag", 1, "BOOL"))
    pool.Add(file)
    made: dict[str, Any] = message_factory.GetMessageClassesForFiles(["shop/part.proto", "shop/order.proto"], pool)
    return made


MESSAGES = _messages()
ORDERS = MESSAGES["shop.Order"]


def test_protobuf_indexes_of_first_other_and_nested_messages(client: SchemaRegistryClient) -> None:
    inner = message_factory.GetMessageClass(ORDERS.DESCRIPTOR.nested_types_by_name["Inner"])
    for kind, indexes in ((MESSAGES["shop.First"], b"\0"), (ORDERS, b"\2\2"), (inner, b"\4\2\2")):
        data = ProtobufSerializer(kind, client, conf=REGISTER)(kind(), VALUE)
        assert data is not None
        assert data[5:] == indexes
        assert ProtobufDeserializer(kind, None, client)(data, VALUE) == kind()
    assert client.get_subjects() == ["orders-value", "shop/part.proto"]


def test_records_with_the_unsigned_indexes_of_old_writers_are_read_and_written(client: SchemaRegistryClient) -> None:
    old = {"use.deprecated.format": True}
    data = ProtobufSerializer(ORDERS, client, {**REGISTER, **old})(ORDERS(id=7), VALUE)
    plain = ProtobufSerializer(ORDERS, client, REGISTER)(ORDERS(id=7), VALUE)
    assert data is not None
    assert plain is not None
    assert (data[5:7], plain[5:7]) == (b"\1\1", b"\2\2")
    for reader in (ORDERS, None):
        found = ProtobufDeserializer(reader, old, client)(data, VALUE)
        assert (found.DESCRIPTOR.full_name, found.id) == ("shop.Order", 7)


def test_protobuf_classes_are_made_from_the_registry(client: SchemaRegistryClient) -> None:
    value = ORDERS(id=7, parts=[MESSAGES["shop.Part"](name="x")], text="t", counts={"a": 1})
    value.at.seconds = 5
    data = ProtobufSerializer(ORDERS, client, conf=REGISTER)(value, VALUE)
    found = ProtobufDeserializer(None, None, client)(data, VALUE)
    assert (found.DESCRIPTOR.full_name, found.parts[0].name, found.counts["a"]) == ("shop.Order", "x", 1)
    assert found.SerializeToString(deterministic=True) == value.SerializeToString(deterministic=True)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\0\0\0\0\2", "the bytes end inside of the message's indexes"),
        (b"\0\0\0\0\2\2\2\xff", "2 bytes are no message of shop.Order|1 bytes are no message of shop.Order"),
        (b"\0\0\0\0\2\2\x40", "message index 32 out of range"),
    ],
)
def test_damaged_protobuf_raises(client: SchemaRegistryClient, data: bytes, text: str) -> None:
    ProtobufSerializer(ORDERS, client, conf=REGISTER)(ORDERS(), VALUE)
    with pytest.raises(SerializationError, match=text):
        ProtobufDeserializer(ORDERS, None, client)(data, VALUE)


def test_other_message_is_refused(client: SchemaRegistryClient) -> None:
    with pytest.raises(ValueError, match="message must be of type"):
        ProtobufSerializer(ORDERS, client, conf=REGISTER)(MESSAGES["shop.Part"](), VALUE)


@PEERS
@given(
    number=st.integers(-(2**63), 2**63 - 1),
    names=st.lists(st.text(max_size=5), max_size=3),
    text=st.none() | st.text(max_size=9) | st.integers(-(2**31), 2**31 - 1),
    key=st.text(max_size=5),
)
def test_protobuf_bytes_equal_confluents(
    clients: tuple[SchemaRegistryClient, Any], number: int, names: list[str], text: Any, key: str
) -> None:
    ours, theirs = clients
    value = ORDERS(id=number, parts=[MESSAGES["shop.Part"](name=name) for name in names], counts={key: number})
    if isinstance(text, str):
        value.text = text
    elif text is not None:
        value.number = text
    ctx = SerializationContext("protos", MessageField.VALUE)
    their_ctx = TheirContext("protos", TheirField.VALUE, [])
    made = ProtobufSerializer(ORDERS, ours, conf=REGISTER)(value, ctx)
    assert made == confluent_protobuf.ProtobufSerializer(ORDERS, theirs, conf=THEIRS)(value, their_ctx)
    conf = {"subject.name.strategy.type": "TOPIC"}
    assert confluent_protobuf.ProtobufDeserializer(ORDERS, conf, theirs)(made, their_ctx) == value
    assert ProtobufDeserializer(ORDERS, None, ours)(made, ctx) == value


def tagged_message() -> type[Any]:
    """Return the class of a message whose fields have Confluent's tags."""
    meta_pb2 = importlib.import_module("confluent_kafka.schema_registry.confluent.meta_pb2")
    file = descriptor_pb2.FileDescriptorProto(name="tagged.proto", package="shop", syntax="proto3")
    file.dependency.extend(["confluent/meta.proto", "confluent/types/decimal.proto"])
    message = file.message_type.add(name="Tagged")
    for number, (name, kind) in enumerate((("note", 9), ("open", 9), ("sum", 11), ("notes", 9), ("raw", 12)), 1):
        field = message.field.add(name=name, number=number, type=kind, label=3 if name == "notes" else 1)
        if name != "open":
            field.options.Extensions[meta_pb2.field_meta].tags.append("PII")
    message.field[2].type_name = ".confluent.type.Decimal"
    pool = descriptor_pool.Default()
    importlib.import_module("confluent_kafka.schema_registry.confluent.types.decimal_pb2")
    try:
        found = pool.FindMessageTypeByName("shop.Tagged")
    except KeyError:
        pool.Add(file)
        found = pool.FindMessageTypeByName("shop.Tagged")
    kind_of: type[Any] = message_factory.GetMessageClass(found)
    return kind_of


def test_protobuf_with_confluents_own_files_is_read_from_the_registry(client: SchemaRegistryClient) -> None:
    kind = tagged_message()
    message = kind(note="a")
    message.sum.CopyFrom(
        type(message.sum).FromString(decimal_to_protobuf(decimal.Decimal("-1.25"), 2).SerializeToString())
    )
    data = ProtobufSerializer(kind, client, REGISTER)(message, VALUE)
    assert client.get_subjects() == ["orders-value"]
    for reader in (kind, None):
        found = ProtobufDeserializer(reader, schema_registry_client=client)(data, VALUE)
        assert (found.note, protobuf_to_decimal(found.sum)) == ("a", decimal.Decimal("-1.25"))


def test_rules_check_and_change_fields_of_protobuf(client: SchemaRegistryClient) -> None:
    kind = tagged_message()
    own = ProtobufSerializer(kind, client)._own_schema(None)
    assert own is not None
    rules = RuleSet(
        domain_rules=[
            Rule("check", None, RuleKind.CONDITION, RuleMode.WRITE, "CEL", None, None, "message.raw == b'r'"),
            Rule(
                "mask",
                *(None, RuleKind.TRANSFORM, RuleMode.WRITE, "CEL_FIELD", ["PII"], None),
                "typeName == 'STRING'; value + '!'",
            ),
        ]
    )
    client.register_schema("orders-value", Schema(own.schema_str, "PROTOBUF", rule_set=rules))
    serializer = ProtobufSerializer(kind, client, {"use.latest.version": True})
    data = serializer(kind(note="a", open="b", notes=["c", "d"], raw=b"r"), VALUE)
    found = ProtobufDeserializer(kind, schema_registry_client=client)(data, VALUE)
    assert found == kind(note="a!", open="b", notes=["c!", "d!"], raw=b"r")
    with pytest.raises(SerializationError, match="'check' of 'orders-value' failed"):
        serializer(kind(note="a", raw=b"x"), VALUE)


@given(value=st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**20), max_value=10**20))
def test_decimals_equal_confluents(value: decimal.Decimal) -> None:
    made = decimal_to_protobuf(value, 3)
    theirs = confluent_protobuf.decimal_to_protobuf(value, 3)
    assert (made.value, made.scale) == (theirs.value, theirs.scale)
    assert protobuf_to_decimal(made) == confluent_protobuf.protobuf_to_decimal(theirs) == value
    if value % 1:
        with pytest.raises(ValueError, match="Scale"):
            decimal_to_protobuf(value, 0)
