"""The serializers for Avro."""

from __future__ import annotations

from pykclient.schema_registry.avro import (
    AsyncAvroDeserializer as AsyncAvroDeserializer,
    AsyncAvroSerializer as AsyncAvroSerializer,
    AvroDeserializer as AvroDeserializer,
    AvroSerializer as AvroSerializer,
)
