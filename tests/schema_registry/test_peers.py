"""Bytes and values equal those of confluent-kafka's serializers, in both directions."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from pykclient.schema_registry import MessageField, SchemaRegistryClient, SerializationContext
from pykclient.schema_registry.avro import AvroDeserializer, AvroSerializer
from pykclient.testing.schema_registry import EmbeddedSchemaRegistry
from tests.schema_registry.avro_strategies import avro, record

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import confluent_kafka.schema_registry as confluent
    import confluent_kafka.schema_registry.avro as confluent_avro
    from confluent_kafka.serialization import MessageField as TheirField, SerializationContext as TheirContext

PEERS = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=150)
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


def test_the_serializers_do_not_import_confluents() -> None:
    import subprocess

    code = "import sys, pykclient.schema_registry.avro; assert not any('confluent_kafka' in n for n in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
