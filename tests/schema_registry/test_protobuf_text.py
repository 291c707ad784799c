"""The embedded registry takes Protobuf schemas as text, as registries do."""

from __future__ import annotations

import base64
import importlib.util
import shutil
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from pykclient.schema_registry import (
    MessageField,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryError,
    SerializationContext,
)
from pykclient.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer, file_of

VALUE = SerializationContext("orders", MessageField.VALUE)
TEXT = """
syntax = "proto3";
package shop;
import "confluent/meta.proto";
import "google/protobuf/timestamp.proto";
// An order of the shop.
message Order {
  int64 order_id = 1;
  string city = 2 [(confluent.field_meta) = {tags: "PII"}];
  map<string, google.protobuf.Timestamp> times = 3;
  oneof paid { string card = 4; bool cash = 5; }
  enum State { NEW = 0; SENT = 1; }
  State state = 6;
}
"""
needs_compiler = pytest.mark.skipif(
    importlib.util.find_spec("grpc_tools") is None and shutil.which("protoc") is None,
    reason="Protobuf's compiler: grpcio-tools, or protoc",
)


def message_class(client: SchemaRegistryClient) -> Any:
    """Return a class as protoc makes it for Python: with another file name, and without JSON names."""
    text = client.get_latest_version("orders-value", "serialized").schema.schema_str
    made: Any = ProtobufDeserializer(None, None, client)._message_class(Schema(text, "PROTOBUF"), [0])
    file = descriptor_pb2.FileDescriptorProto.FromString(made.DESCRIPTOR.file.serialized_pb)
    file.name = "shop/order.proto"
    for field in file.message_type[0].field:
        field.ClearField("json_name")
    pool = descriptor_pool.DescriptorPool()
    for imported in made.DESCRIPTOR.file.dependencies:
        for inner in imported.dependencies:
            pool.AddSerializedFile(inner.serialized_pb)
        pool.AddSerializedFile(imported.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


@needs_compiler
def test_text_is_returned_as_it_was_sent_and_serialized_if_asked(client: SchemaRegistryClient) -> None:
    number = client.register_schema("orders-value", Schema(TEXT, "PROTOBUF"))
    client.clear_caches()
    assert client.get_schema(number).schema_str == TEXT
    assert client.get_latest_version("orders-value").schema.schema_str == TEXT
    assert client.lookup_schema("orders-value", Schema(TEXT, "PROTOBUF")).schema_id == number
    assert message_class(client).DESCRIPTOR.fields_by_name["city"].number == 2


@needs_compiler
def test_messages_are_written_and_read_by_a_schema_of_text(client: SchemaRegistryClient) -> None:
    client.register_schema("orders-value", Schema(TEXT, "PROTOBUF"))
    order = message_class(client)
    value = order(order_id=7, city="Ulm", card="x", state=1)
    value.times["now"].seconds = 5
    # The class is found to be of the registered version: nothing is registered.
    for conf in ({}, {"use.latest.version": True}, {"auto.register.schemas": True}):
        data = ProtobufSerializer(order, client, conf)(value, VALUE)
        assert ProtobufDeserializer(order, None, client)(data, VALUE) == value
        found: Any = ProtobufDeserializer(None, None, client)(data, VALUE)
        assert (found.order_id, found.city, found.times["now"].seconds) == (7, "Ulm", 5)
    assert client.get_versions("orders-value") == [1]


@needs_compiler
def test_imports_are_the_references(client: SchemaRegistryClient) -> None:
    client.register_schema("city", Schema('syntax = "proto3"; message City { string name = 1; }', "PROTOBUF"))
    text = 'syntax = "proto3"; import "city.proto"; message Order { City city = 1; }'
    with pytest.raises(SchemaRegistryError, match=r"Invalid schema: .*city\.proto"):
        client.register_schema("orders-value", Schema(text, "PROTOBUF"))
    reference = SchemaReference("city.proto", "city", 1)
    client.register_schema("orders-value", Schema(text, "PROTOBUF", [reference]))
    schema = client.get_latest_version("orders-value", "serialized").schema
    assert schema.references == [reference]
    made = ProtobufDeserializer(None, None, client)._message_class(schema, [0])
    assert made.DESCRIPTOR.fields_by_name["city"].message_type.full_name == "City"


@needs_compiler
def test_invalid_and_incompatible_texts_are_refused_with_the_reason(client: SchemaRegistryClient) -> None:
    with pytest.raises(
        SchemaRegistryError, match=r'Invalid schema: schema.proto:1:32: "Missing" is not defined'
    ) as caught:
        client.register_schema("orders-value", Schema('syntax = "proto3"; message A { Missing b = 1; }', "PROTOBUF"))
    assert (caught.value.http_status_code, caught.value.error_code) == (422, 42201)
    client.register_schema("orders-value", Schema(TEXT, "PROTOBUF"))
    other = TEXT.replace("int64 order_id", "string order_id")
    with pytest.raises(SchemaRegistryError, match="field 1 is TYPE_STRING  for the reader, and TYPE_INT64"):
        client.register_schema("orders-value", Schema(other, "PROTOBUF"))
    assert not client.test_compatibility("orders-value", Schema(other, "PROTOBUF"))
    assert client.test_compatibility("orders-value", Schema(TEXT.replace("city", "town"), "PROTOBUF"))


def test_text_without_a_compiler_is_refused_with_the_way_to_get_one(
    client: SchemaRegistryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(SchemaRegistryError, match="text of Protobuf needs its compiler: pip install grpcio-tools"):
        client.register_schema("orders-value", Schema(TEXT, "PROTOBUF"))


def test_file_that_is_imported_in_two_versions_is_read_once() -> None:
    def text_of(name: str, imports: list[str], field: str | None = None) -> str:
        made = descriptor_pb2.FileDescriptorProto(name=name, syntax="proto3", dependency=imports)
        if field is not None:
            made.message_type.add(name=field)
        return base64.b64encode(made.SerializeToString()).decode()

    common = {version: Schema(text_of("common.proto", [], f"Common{version}"), "PROTOBUF") for version in (1, 2)}
    middle = Schema(text_of("a.proto", ["common.proto"]), "PROTOBUF", [SchemaReference("common.proto", "common", 1)])
    outer = Schema(
        text_of("outer.proto", ["a.proto", "common.proto"], "Outer"),
        "PROTOBUF",
        [SchemaReference("a.proto", "a", 1), SchemaReference("common.proto", "common", 2)],
    )
    file = file_of(outer, lambda subject, version: middle if subject == "a" else common[version])
    assert list(file.message_types_by_name) == ["Outer"]
