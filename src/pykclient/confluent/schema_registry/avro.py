"""The serializers for Avro. As in confluent-kafka, ``auto.register.schemas`` is True unless it is set."""

from __future__ import annotations

from pykclient.schema_registry import avro
from pykclient.schema_registry.avro import (
    AsyncAvroDeserializer as AsyncAvroDeserializer,
    AvroDeserializer as AvroDeserializer,
)
from pykclient.schema_registry.serde import registering


class AvroSerializer(avro.AvroSerializer):
    """``pykclient.schema_registry.AvroSerializer`` that registers schemas by default."""

    _keys = registering(avro.AvroSerializer._keys)


class AsyncAvroSerializer(avro.AsyncAvroSerializer):
    """``pykclient.schema_registry.AsyncAvroSerializer`` that registers schemas by default."""

    _keys = registering(avro.AsyncAvroSerializer._keys)
