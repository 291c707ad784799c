"""The client and the serializers on a real registry, Apicurio's, and beside confluent-kafka's."""

from __future__ import annotations

import json
import struct
import warnings
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings, strategies as st

from pykclient.errors import SerializationError
from pykclient.schema_registry import (
    MessageField,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryError,
    SerializationContext,
    avro_columns,
    avro_encoder,
)
from pykclient.schema_registry.avro import AvroDeserializer, AvroSerializer
from pykclient.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from pykclient.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from tests.schema_registry.apicurio import Apicurio
from tests.schema_registry.avro_strategies import record
from tests.schema_registry.test_peers import PEERS

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import confluent_kafka.schema_registry as confluent
    import confluent_kafka.schema_registry.avro as confluent_avro
    import confluent_kafka.schema_registry.json_schema as confluent_json
    import confluent_kafka.schema_registry.protobuf as confluent_protobuf
    from confluent_kafka.serialization import MessageField as TheirField, SerializationContext as TheirContext

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

OURS = {"auto.register.schemas": True}
THEIRS = {"auto.register.schemas": True, "subject.name.strategy.type": "TOPIC"}
READING = {"subject.name.strategy.type": "TOPIC"}
ORDER: dict[str, Any] = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}


@pytest.fixture(scope="module")
def apicurio() -> Iterator[Apicurio]:
    with Apicurio() as found:
        yield found


@pytest.fixture(scope="module")
def client(apicurio: Apicurio) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": apicurio.url}) as found:
        yield found


@pytest.fixture(scope="module")
def theirs(apicurio: Apicurio) -> Iterator[Any]:
    found = confluent.SchemaRegistryClient({"url": apicurio.url})
    yield found
    found.close()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return f"t{abs(hash(request.node.nodeid)):x}"


def value_of(topic: str, headers: Any = None) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE, headers)


def test_schemas_are_registered_looked_up_and_deleted(client: SchemaRegistryClient, topic: str) -> None:
    subject = f"{topic}-value"
    schema = Schema(json.dumps({**ORDER, "name": topic}))
    number = client.register_schema(subject, schema)
    assert client.register_schema(f"{topic}-other", schema) == number
    assert client.lookup_schema(subject, schema).version == 1
    assert json.loads(client.get_schema(number).schema_str or "") == {**ORDER, "name": topic}
    assert sorted(client.get_subjects_by_schema_id(number)) == [f"{topic}-other", subject]
    assert client.get_latest_version(subject).schema_id == number
    assert client.delete_subject(subject) == [1]
    client.clear_caches()
    assert subject not in client.get_subjects()
    for ask, code in (
        (lambda: client.get_latest_version(subject), 40401),
        (lambda: client.get_version(f"{topic}-other", 9), 40402),
        (lambda: client.get_schema(9_999_999), 40403),
        (lambda: client.lookup_schema(f"{topic}-other", Schema('{"type":"bytes"}')), 40403),
    ):
        with pytest.raises(SchemaRegistryError) as caught:
            ask()
        assert (caught.value.http_status_code, caught.value.error_code) == (404, code)


def test_incompatible_and_invalid_schemas_are_refused_with_the_registrys_text(
    client: SchemaRegistryClient, topic: str
) -> None:
    subject = f"{topic}-value"
    client.register_schema(subject, Schema(json.dumps(ORDER)))
    client.set_compatibility(subject, "BACKWARD")
    assert client.get_compatibility(subject) == "BACKWARD"
    newer = {**ORDER, "fields": [*ORDER["fields"], {"name": "more", "type": "string"}]}
    assert not client.test_compatibility(subject, Schema(json.dumps(newer)))
    serializer = AvroSerializer(client, json.dumps(newer), conf=OURS)
    with pytest.raises(SchemaRegistryError, match=r"Incompatible artifact: .*more at /fields/1") as caught:
        serializer({"id": 1, "more": ""}, value_of(topic))
    assert caught.value.http_status_code == 409
    newer["fields"][1]["default"] = ""
    assert AvroSerializer(client, json.dumps(newer), conf=OURS)({"id": 1, "more": "x"}, value_of(topic)) is not None
    assert client.get_versions(subject) == [1, 2]
    with pytest.raises(SchemaRegistryError) as caught:
        client.register_schema(f"{topic}-no", Schema('{"type":"nope"}'))
    assert caught.value.http_status_code == 422


def test_global_ids_lead_to_their_schemas_and_not_to_contents_of_the_same_number(
    apicurio: Apicurio, client: SchemaRegistryClient, topic: str
) -> None:
    schema = Schema(json.dumps({**ORDER, "name": topic}))
    content_id = client.register_schema(f"{topic}-value", schema)
    client.register_schema(f"{topic}-again", schema)
    global_id = _global_id(apicurio, f"{topic}-again")
    assert global_id != content_id
    data = AvroSerializer(client, schema)({"id": 7}, value_of(topic))
    assert data is not None
    reader = AvroDeserializer(client)
    for name, number in (("globalId", global_id), ("contentId", content_id)):
        headers = [(f"apicurio.value.{name}", struct.pack(">q", number))]
        assert reader(data[5:], value_of(topic, headers)) == {"id": 7}
    with pytest.raises(SchemaRegistryError, match="No version has the global id 9999999"):
        reader(data[5:], value_of(topic, [("apicurio.value.globalId", struct.pack(">q", 9_999_999))]))
    with pytest.raises(SchemaRegistryError, match=r"schemas/ids/"):  # what is missing is the id of a content
        client.get_schema(global_id)
    assert reader(struct.pack(">bq", 0, content_id) + data[5:], value_of(topic)) == {"id": 7}


def _global_id(apicurio: Apicurio, subject: str) -> int:
    import urllib.request

    path = f"{apicurio.address}/apis/registry/v3/groups/default/artifacts/{subject}/versions/1"
    with urllib.request.urlopen(path, timeout=60) as answer:
        return int(json.load(answer)["globalId"])


def test_columns_are_written_and_read(client: SchemaRegistryClient, topic: str) -> None:
    batch = pa.record_batch({"id": [1, None], "city": ["Ulm", "Bonn"]})
    encoder = avro_encoder(client, conf=OURS, record_name=topic)
    rows = encoder.encode_rows(batch, topic, "value", frozenset())
    decoded = avro_columns(client).decode(pa.array([rows[0], rows[1]], pa.binary()))
    assert decoded.array.to_pylist() == batch.to_pylist()
    assert AvroDeserializer(client)(rows[1] or b"", value_of(topic)) == {"id": None, "city": "Bonn"}


def test_references_are_resolved_and_keep_a_version_from_being_deleted(
    client: SchemaRegistryClient, theirs: Any, topic: str
) -> None:
    inner = {**ORDER, "name": topic}
    client.register_schema(f"{topic}-inner", Schema(json.dumps(inner)))
    outer = {"type": "record", "name": f"{topic}o", "fields": [{"name": "order", "type": topic}]}
    schema = Schema(json.dumps(outer), "AVRO", [SchemaReference(topic, f"{topic}-inner", 1)])
    value = {"order": {"id": 3}}
    data = AvroSerializer(client, schema, conf=OURS)(value, value_of(topic))
    assert data is not None
    assert AvroDeserializer(client)(data, value_of(topic)) == value
    their_ctx = TheirContext(topic, TheirField.VALUE, [])
    assert confluent_avro.AvroDeserializer(theirs, conf=READING)(data, their_ctx) == value
    assert client.get_referenced_by(f"{topic}-inner", 1) == [int.from_bytes(data[1:5])]
    with pytest.raises(SchemaRegistryError, match="subjects referencing"):
        client.delete_version(f"{topic}-inner", 1)


@settings(PEERS, max_examples=25)
@given(data=st.data(), drawn=record())
def test_apicurio_and_confluent_avro_in_both_directions(
    client: SchemaRegistryClient, theirs: Any, data: st.DataObject, drawn: tuple[Any, st.SearchStrategy[Any]]
) -> None:
    schema, values = drawn
    text = json.dumps(schema)
    value = data.draw(values)
    topic = f"avro{abs(hash(text)):x}"
    their_ctx = TheirContext(topic, TheirField.VALUE, [])
    made = AvroSerializer(client, text, conf=OURS)(value, value_of(topic))
    assert made is not None
    assert made == confluent_avro.AvroSerializer(theirs, text, conf=THEIRS)(value, their_ctx)
    expected = confluent_avro.AvroDeserializer(theirs, conf=READING)(made, their_ctx)
    assert AvroDeserializer(client)(made, value_of(topic)) == expected


def test_apicurio_and_confluent_json_in_both_directions(client: SchemaRegistryClient, theirs: Any, topic: str) -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": topic,
        "type": "object",
        "properties": {"id": {"type": "integer"}, "city": {"type": "string"}},
        "required": ["id"],
    }
    text = json.dumps(schema)
    value = {"id": 1, "city": "Köln"}
    their_ctx = TheirContext(topic, TheirField.VALUE, [])
    made = JSONSerializer(text, client, conf=OURS)(value, value_of(topic))
    assert made is not None
    assert made == confluent_json.JSONSerializer(text, theirs, conf=THEIRS)(value, their_ctx)
    assert JSONDeserializer(text, schema_registry_client=client)(made, value_of(topic)) == value
    assert JSONDeserializer(None, schema_registry_client=client)(made, value_of(topic)) == value
    reader = confluent_json.JSONDeserializer(text, schema_registry_client=theirs, conf=READING)
    assert reader(made, their_ctx) == value
    with pytest.raises(SerializationError):
        JSONSerializer(text, client)({"city": "Ulm"}, value_of(topic))


def _message(topic: str) -> Any:
    file = descriptor_pb2.FileDescriptorProto(name=f"{topic}.proto", package=topic, syntax="proto3")
    for name in ("First", "Second"):
        message = file.message_type.add(name=name)
        message.field.add(name="id", number=1, type="TYPE_INT64", label="LABEL_OPTIONAL")
        message.field.add(name="tags", number=2, type="TYPE_STRING", label="LABEL_REPEATED")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{topic}.Second"))


def test_apicurio_and_confluent_protobuf_in_both_directions(
    apicurio: Apicurio, client: SchemaRegistryClient, theirs: Any, topic: str
) -> None:
    kind = _message(topic)
    value = kind(id=5, tags=["a", "b"])
    their_ctx = TheirContext(topic, TheirField.VALUE, [])
    made = ProtobufSerializer(kind, client, conf=OURS)(value, value_of(topic))
    assert made is not None
    theirs_made = confluent_protobuf.ProtobufSerializer(kind, theirs, conf={**THEIRS, "use.deprecated.format": False})
    assert made == theirs_made(value, their_ctx)
    assert ProtobufDeserializer(kind, schema_registry_client=client)(made, value_of(topic)) == value
    reader = confluent_protobuf.ProtobufDeserializer(
        kind, {"use.deprecated.format": False, **READING}, schema_registry_client=theirs
    )
    assert reader(made, their_ctx) == value
    fresh = confluent.SchemaRegistryClient({"url": apicurio.url})
    unread = confluent_protobuf.ProtobufDeserializer(
        kind, {"use.deprecated.format": False, **READING}, schema_registry_client=fresh
    )
    with SchemaRegistryClient({"url": apicurio.url, "max.retries": 0}) as other:
        # Apicurio has stored the schema as it was sent, and does not convert it.
        assert ProtobufDeserializer(kind, schema_registry_client=other)(made, value_of(topic)) == value
    with pytest.raises(Exception, match=r"Syntax error|50\d"):
        unread(made, their_ctx)
    fresh.close()
