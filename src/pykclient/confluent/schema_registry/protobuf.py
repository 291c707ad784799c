"""The serializers for Protobuf."""

from __future__ import annotations

from pykclient.schema_registry.protobuf import (
    AsyncProtobufDeserializer as AsyncProtobufDeserializer,
    AsyncProtobufSerializer as AsyncProtobufSerializer,
    ProtobufDeserializer as ProtobufDeserializer,
    ProtobufSerializer as ProtobufSerializer,
    decimal_to_protobuf as decimal_to_protobuf,
    protobuf_to_decimal as protobuf_to_decimal,
)
