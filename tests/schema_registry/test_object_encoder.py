"""Typed columns written as JSON and Protobuf: what the column decoders make of them is what was written."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from pykclient import KafkaConsumer, KafkaProducer, TopicPartition
from pykclient.errors import ConfigError, IllegalArgumentError, SerializationError
from pykclient.schema_registry import (
    AsyncSchemaRegistryClient,
    MessageField,
    Schema,
    SchemaRegistryClient,
    SerializationContext,
    json_columns,
    json_encoder,
    protobuf_columns,
    protobuf_encoder,
)
from pykclient.schema_registry.json_schema import JSONSerializer
from pykclient.schema_registry.rules import RuleError
from pykclient.schema_registry.schemas import Rule, RuleKind, RuleMode, RuleSet
from pykclient.schema_registry.wire import header_schema_id_serializer
from pykclient.testing import EmbeddedCluster, EmbeddedSchemaRegistry
from tests.aio.loops import run
from tests.schema_registry.test_columns_of_clients import asked_by

LATEST = {"use.latest.version": True}
CTX = SerializationContext("orders", MessageField.VALUE)

OBJECT = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": "number"},
        "paid": {"type": "boolean"},
        "city": {"type": "string"},
        "note": {"type": ["null", "string"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        "any": {},
        "inner": {"$ref": "#/$defs/inner"},
        "either": {"oneOf": [{"type": "null"}, {"type": "integer"}]},
    },
    "required": ["id", "note"],
    "$defs": {"inner": {"type": "object", "properties": {"x": {"type": "number"}}}},
}
PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/wrappers.proto";
message First { int32 a = 1; }
message Order {
  enum Kind { NONE = 0; NEW = 1; }
  message Inner { string x = 1; repeated Inner more = 2; }
  int64 id = 1;
  uint32 count = 2;
  double price = 3;
  float weight = 4;
  bool paid = 5;
  string city = 6;
  bytes raw = 7;
  Kind kind = 8;
  optional int32 maybe = 9;
  oneof choice { string left = 10; int64 right = 11; }
  repeated int32 numbers = 12;
  map<string, int64> counts = 13;
  map<string, Leaf> leaves = 14;
  google.protobuf.Timestamp at = 15;
  google.protobuf.Duration took = 16;
  google.protobuf.Struct any = 17;
  google.protobuf.Int64Value wrapped = 18;
  repeated Leaf items = 19;
  repeated google.protobuf.Struct anys = 20;
  map<string, google.protobuf.Struct> named = 21;
  map<int32, Leaf> numbered = 22;
  repeated google.protobuf.Timestamp times = 23;
}
message Leaf { sint32 y = 1; }
"""

ROWS: list[dict[str, Any]] = [
    {
        "id": 7,
        "price": 1.5,
        "paid": True,
        "city": "Köln",
        "note": "n",
        "tags": ["a", "b"],
        "counts": [("k", 2)],
        "any": '{"a":[1]}',
        "inner": {"x": 0.5},
        "either": 3,
    },
    dict.fromkeys(OBJECT["properties"], None) | {"id": 8},
]
MESSAGES: list[dict[str, Any]] = [
    {
        "id": 7,
        "count": 4_000_000_000,
        "price": 1.5,
        "weight": 0.5,
        "paid": True,
        "city": "Köln",
        "raw": b"\xff",
        "kind": "NEW",
        "maybe": 0,
        "left": None,
        "right": 5,
        "numbers": [1, -2],
        "counts": [("k", 2)],
        "leaves": [("l", {"y": -1})],
        "at": datetime.datetime(2024, 1, 2, 3, 4, 5, 678, datetime.UTC),
        "took": datetime.timedelta(seconds=1, microseconds=5),
        "any": '{"a":[1.0]}',
        "wrapped": 9,
        "items": [{"y": 3}, {"y": 0}],
        "anys": ['{"a":1.0}', "{}"],
        "named": [("s", '{"b":null}')],
        "numbered": [(-1, {"y": 4})],
        "times": [datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC)],
    }
]


def encoded(encoder: Any, batch: pa.RecordBatch, first_row: int = 0) -> list[bytes | None]:
    column = encoder.encode_rows(batch, "orders", "value", frozenset(), first_row)
    return [column[row] for row in range(batch.num_rows)]


@pytest.fixture
def json_schema(client: SchemaRegistryClient) -> int:
    return client.register_schema("orders-value", Schema(json.dumps(OBJECT), "JSON"))


@pytest.fixture
def proto(client: SchemaRegistryClient) -> int:
    return client.register_schema("orders-value", Schema(PROTO, "PROTOBUF"))


def test_json_columns_decode_what_was_encoded(client: SchemaRegistryClient, json_schema: int) -> None:
    types = json_columns(client, json.dumps(OBJECT)).arrow_type()
    batch = pa.RecordBatch.from_struct_array(pa.array(ROWS, types))
    for conf in (LATEST, {"use.schema.id": json_schema}):
        rows = encoded(json_encoder(client, conf=conf), batch)
        assert rows[1] == b"\0" + json_schema.to_bytes(4, "big") + b'{"id":8,"note":null}'
        assert json_columns(client).decode(pa.array(rows, pa.binary())).array.to_pylist() == ROWS
    values = [{"id": 8, "note": None}]
    serializer = JSONSerializer(json.dumps(OBJECT), client)
    assert [serializer(value, CTX) for value in values] == rows[1:]


def test_protobuf_columns_decode_what_was_encoded(client: SchemaRegistryClient, proto: int) -> None:
    reading = protobuf_columns(client, client.get_schema(proto, None, "serialized"), message="Order")
    batch = pa.RecordBatch.from_struct_array(pa.array(MESSAGES, reading.arrow_type()))
    for conf in (LATEST, {"use.schema.id": proto}):
        (row,) = encoded(protobuf_encoder(client, conf=conf, message="Order"), batch)
        assert reading.decode(pa.array([row], pa.binary())).array.to_pylist() == MESSAGES
    nothing = pa.RecordBatch.from_pylist([dict.fromkeys(MESSAGES[0])], batch.schema)
    (row,) = encoded(protobuf_encoder(client, conf=LATEST, message="Order"), nothing)
    assert row == b"\0" + proto.to_bytes(4, "big") + b"\2\2"


def test_single_column_is_written_with_tombstones(client: SchemaRegistryClient, json_schema: int) -> None:
    batch = pa.record_batch({"order": pa.array([{"id": 1, "note": "x"}, None]), "other": pa.array([1, 2])})
    found = encoded(json_encoder(client, columns="order", conf=LATEST), batch)
    assert found == [b"\0" + json_schema.to_bytes(4, "big") + b'{"id":1,"note":"x"}', None]


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ({"id": pa.array(["x"])}, r"field 'id': the column has string, and the schema integer"),
        ({"price": pa.array([b"x"])}, r"field 'price': the column has binary, and the schema number"),
        ({"tags": pa.array([1])}, r"field 'tags': the column has int64, and the schema array"),
        ({"inner": pa.array([{"z": 1}])}, r"field 'inner.z': the schema has no such property"),
        ({"counts": pa.array(["x"])}, r"field 'counts': the column has string, and the schema object"),
        ({"any": pa.array([1])}, r"field 'any': the column has int64, and the schema any value"),
        ({"any": pa.array(["{"])}, r"row 40, field 'any' is no JSON, which .*; the column has string"),
        ({"price": pa.array([float("nan")])}, r"row 40, field 'price' is nan, .* number is not; .* has double"),
        (
            {"id": pa.array([None], pa.int64())},
            r"row 40: .*NoneType, and the schema has type \"integer\".*; the column",
        ),
        ({"none": pa.array([1])}, r"field 'none': the schema has no such property"),
    ],
)
def test_json_that_does_not_fit_names_topic_row_field_and_both_types(
    client: SchemaRegistryClient, json_schema: int, column: dict[str, Any], text: str
) -> None:
    good = {"id": pa.array([1]), "note": pa.array(["n"])}
    with pytest.raises(SerializationError, match=text) as caught:
        encoded(json_encoder(client, conf=LATEST), pa.record_batch({**good, **column}), 40)
    assert f"schema id {json_schema} for topic 'orders'" in str(caught.value)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ({"id": pa.array(["x"])}, r"field 'id': the column has string, and the schema int64"),
        ({"id": pa.array([1.5])}, r"field 'id': the column has double, and the schema int64"),
        ({"weight": pa.array([1.5])}, r"field 'weight': the column has double, and the schema float"),
        ({"count": pa.array([-1])}, r"row 40, field 'count' does not fit the schema's uint32; .* has int64"),
        ({"numbers": pa.array([[1 << 40]])}, r"row 40, field 'numbers' does not fit the schema's int32"),
        ({"numbers": pa.array([[None]], pa.list_(pa.int32()))}, r"row 40, field 'numbers\[\]' is null"),
        ({"numbers": pa.array([1])}, r"field 'numbers': the column has int64, and the schema repeated int32"),
        ({"kind": pa.array(["ODD"])}, r"row 40, field 'kind' is no name of .* Order.Kind; the column has string"),
        ({"at": pa.array([1])}, r"field 'at': the column has int64, and the schema google.protobuf.Timestamp"),
        ({"any": pa.array(["{"])}, r"row 40, field 'any' is no JSON"),
        ({"any": pa.array(["[1]"])}, r"row 40, field 'any' does not fit the schema's google.protobuf.Struct"),
        ({"anys": pa.array([["{}", "[1]"]])}, r"row 40, field 'anys' does not fit the schema's google.protobuf.Struct"),
        (
            {"named": pa.array([[("s", "[1]")]], pa.map_(pa.string(), pa.string()))},
            r"row 40, field 'named' does not fit the schema's google.protobuf.Struct; the column has map<string",
        ),
        (
            {"numbered": pa.array([[(1 << 40, {"y": 1})]], pa.map_(pa.int64(), pa.struct([("y", pa.int32())])))},
            r"row 40, field 'numbered\{key\}' does not fit the schema's int32; the column has map<int64",
        ),
        ({"items": pa.array([[{"z": 1}]])}, r"field 'items\[\].z': the message Leaf has no such field"),
        ({"none": pa.array([1])}, r"field 'none': the message Order has no such field"),
    ],
)
def test_messages_that_do_not_fit_name_topic_row_field_and_both_types(
    client: SchemaRegistryClient, proto: int, column: dict[str, Any], text: str
) -> None:
    with pytest.raises(SerializationError, match=text) as caught:
        encoded(protobuf_encoder(client, conf=LATEST, message="Order"), pa.record_batch(column), 40)
    assert f"schema id {proto} for topic 'orders'" in str(caught.value)


@pytest.mark.parametrize("encoder", [json_encoder, protobuf_encoder])
def test_wrong_arguments_are_refused(client: SchemaRegistryClient, encoder: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match="a header is only for send"):
        encoder(client, conf={"schema.id.serializer": header_schema_id_serializer})
    with pytest.raises(IllegalArgumentError, match="at least one column"):
        encoder(client, columns=[])
    batch = pa.record_batch({"id": [1]})
    with pytest.raises(SerializationError, match=r"use.latest.version or use.schema.id"):
        encoded(encoder(client), batch)


def test_single_column_that_is_no_message_of_its_type_names_row_and_both_types(client: SchemaRegistryClient) -> None:
    from google.protobuf.struct_pb2 import Struct

    encoder = protobuf_encoder(client, Struct, columns="any", conf={"auto.register.schemas": True})
    with pytest.raises(
        SerializationError, match=r"row 41, field 'any' does not fit .* google.protobuf.Struct; .* string"
    ):
        encoded(encoder, pa.record_batch({"any": ["{}", "[1]"]}), 40)


@pytest.mark.parametrize("encoder", [json_encoder, protobuf_encoder])
@pytest.mark.parametrize(
    "conf",
    [{"no.such.setting": 1}, {"use.latest.version": "yes"}, {"reference.subject.name.strategy": 1}],
    ids=lambda conf: next(iter(conf)),
)
def test_wrong_settings_are_refused_when_the_encoder_is_made(
    client: SchemaRegistryClient, encoder: Callable[..., Any], conf: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=next(iter(conf))):
        encoder(client, conf=conf)


def test_encoders_take_a_registrys_client_for_asyncio(
    registry: EmbeddedSchemaRegistry, client: SchemaRegistryClient, json_schema: int
) -> None:
    number = client.register_schema("orders-key", Schema(PROTO, "PROTOBUF"))
    batch = pa.record_batch({"id": [1], "note": ["n"]})

    async def main() -> None:
        async with AsyncSchemaRegistryClient({"url": registry.url}) as asked:
            (row,) = encoded(json_encoder(asked, conf=LATEST), batch)
            assert row == b"\0" + json_schema.to_bytes(4, "big") + b'{"id":1,"note":"n"}'
            keys = protobuf_encoder(asked, columns=["id"], conf=LATEST, message="Order")
            column = keys.encode_rows(batch, "orders", "key", frozenset())
            assert column[0] == b"\0" + number.to_bytes(4, "big") + b"\2\2\x08\1"

    run(main())


@pytest.mark.parametrize("encoder", [json_encoder, protobuf_encoder])
def test_batch_asks_for_its_schema_once_although_the_cache_keeps_none(
    registry: EmbeddedSchemaRegistry, encoder: Callable[..., Any]
) -> None:
    with SchemaRegistryClient({"url": registry.url, "cache.latest.ttl.sec": 0}) as client:
        if encoder is json_encoder:
            text = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}})
            number = client.register_schema("orders-value", Schema(text, "JSON"))
        else:
            number = client.register_schema("orders-value", Schema(PROTO, "PROTOBUF"))
        made = (
            encoder(client, conf=LATEST) if encoder is json_encoder else encoder(client, conf=LATEST, message="Order")
        )
        batch = pa.record_batch({"id": [1, 2, 3]})
        encoded(made, batch)
        begun = asked_by(client)
        rows = encoded(made, batch)
        assert [row and int.from_bytes(row[1:5], "big") for row in rows] == [number] * 3
        assert len(begun) == 1


@pytest.mark.parametrize("view", [pa.list_view, pa.large_list_view])
def test_lists_of_every_layout_are_written(client: SchemaRegistryClient, view: Any) -> None:
    batch = pa.record_batch({"numbers": pa.array([[1, 2], []], view(pa.int64()))})
    schema = {"type": "object", "properties": {"numbers": {"type": "array", "items": {"type": "integer"}}}}
    conf = {"auto.register.schemas": True}
    rows = encoded(json_encoder(client, json.dumps(schema), conf=conf), batch)
    assert [row and row[5:] for row in rows] == [b'{"numbers":[1,2]}', b'{"numbers":[]}']
    client.register_schema("texts-value", Schema(PROTO, "PROTOBUF"))
    encoder = protobuf_encoder(client, conf=LATEST, message="Order")
    column = encoder.encode_rows(batch, "texts", "value", frozenset())
    assert [(column[row] or b"")[7:] for row in range(2)] == [b"\x62\2\1\2", b""]
    assert encoder.resolve(batch.schema, "texts", "value").id is not None


def test_a_message_that_the_schema_lacks_is_refused(client: SchemaRegistryClient, proto: int) -> None:
    assert proto
    with pytest.raises(IllegalArgumentError, match="no message Nothing"):
        encoded(protobuf_encoder(client, conf=LATEST, message="Nothing"), pa.record_batch({"id": [1]}))


def test_rules_for_writing_are_executed(client: SchemaRegistryClient) -> None:
    rule = Rule(name="check", kind=RuleKind.CONDITION, mode=RuleMode.WRITE, type="UNKNOWN", expr="x")
    schema = Schema(json.dumps(OBJECT), "JSON", rule_set=RuleSet(domain_rules=[rule]))
    client.register_schema("orders-value", schema)
    with pytest.raises((RuleError, SerializationError), match="UNKNOWN"):
        encoded(json_encoder(client, conf=LATEST), pa.record_batch({"id": [1], "note": ["n"]}))


def test_send_batch_writes_json_and_protobuf(pykclient_cluster: EmbeddedCluster, client: SchemaRegistryClient) -> None:
    client.register_schema("orders-value", Schema(json.dumps(OBJECT), "JSON"))
    client.register_schema("orders-key", Schema('syntax = "proto3"; message K { int64 k = 1; }', "PROTOBUF"))
    table = pa.table({"id": [1, 2], "note": ["a", None], "k": [3, 4], "partition": [0, 0]})
    key = protobuf_encoder(client, columns=["k"], conf=LATEST)
    value = json_encoder(client, columns=["id", "note"], conf=LATEST)
    with KafkaProducer(bootstrap_servers=pykclient_cluster.bootstrap_servers) as producer:
        producer.send_batch("orders", table, value=value, key=key, partition="partition").get(30)
    with KafkaConsumer(bootstrap_servers=pykclient_cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        batch = consumer.poll_arrow(
            30_000, key=protobuf_columns(client), value=json_columns(client, columns=["id", "note"])
        )
    assert batch.column("key").to_pylist() == [{"k": 3}, {"k": 4}]
    assert batch.column("value").to_pylist() == [{"id": 1, "note": "a"}, {"id": 2, "note": None}]
