"""Serializers and deserializers in confluent-kafka's shape."""

from __future__ import annotations

from pykclient.serde import (
    Deserializer as Deserializer,
    DeserializerBuilder as DeserializerBuilder,
    DoubleDeserializer as DoubleDeserializer,
    DoubleSerializer as DoubleSerializer,
    IntegerDeserializer as IntegerDeserializer,
    IntegerSerializer as IntegerSerializer,
    MessageField as MessageField,
    SerializationContext as SerializationContext,
    SerializationError as SerializationError,
    Serializer as Serializer,
    SerializerBuilder as SerializerBuilder,
    StringDeserializer as StringDeserializer,
    StringSerializer as StringSerializer,
)

TYPE_CHECKING = False
if not TYPE_CHECKING:  # type checkers would import no name by a star
    __all__ = [name for name in dir() if name[0].isupper() and name != "TYPE_CHECKING"]
