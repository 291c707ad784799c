"""The serializers for Protobuf. As in confluent-kafka, ``auto.register.schemas`` is True unless it is set."""

from __future__ import annotations

from pykclient.schema_registry import protobuf
from pykclient.schema_registry.protobuf import (
    AsyncProtobufDeserializer as AsyncProtobufDeserializer,
    ProtobufDeserializer as ProtobufDeserializer,
    decimal_to_protobuf as decimal_to_protobuf,
    protobuf_to_decimal as protobuf_to_decimal,
)
from pykclient.schema_registry.serde import registering


class ProtobufSerializer(protobuf.ProtobufSerializer):
    """``pykclient.schema_registry.ProtobufSerializer`` that registers schemas by default."""

    _keys = registering(protobuf.ProtobufSerializer._keys)


class AsyncProtobufSerializer(protobuf.AsyncProtobufSerializer):
    """``pykclient.schema_registry.AsyncProtobufSerializer`` that registers schemas by default."""

    _keys = registering(protobuf.AsyncProtobufSerializer._keys)
