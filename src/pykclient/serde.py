"""Serializers and deserializers in confluent-kafka's shape: callables that take the object and a context.

``pykclient.confluent.serialization`` exports these names, and the clients of ``pykclient.schema_registry`` build on
them. The serializers of ``pykclient.serialization`` are Java's shape instead.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from pykclient.serialization import MessageField as MessageField, SerializationContext as SerializationContext


class KafkaException(Exception):  # noqa: N818 - confluent-kafka's name
    """The root of the errors that confluent-kafka's interface raises; ``args[0]`` is mostly a KafkaError."""


class SerializationError(KafkaException):
    """An object that its serializer refuses, or bytes that are not what its deserializer reads."""


class Serializer:
    """Base class of serializers: ``serializer(obj, ctx)`` returns bytes, or None for None."""

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> bytes | None:
        """Return the bytes of ``obj``.

        Raises:
            SerializationError: this serializer cannot encode ``obj``.
        """
        raise NotImplementedError

    def set_cluster_id_resolver(self, resolver: Callable[[], Any]) -> None:
        """Take a function that returns the id of the client's cluster.

        The client calls this once, after its construction. The function may block until a broker answers, so call it
        only when the id is needed. This class ignores it.
        """

    def close(self) -> None:
        """Release resources that it has created; clients close the serializers that they have built."""


class Deserializer:
    """Base class of deserializers: ``deserializer(data, ctx)`` returns an object, or None for None."""

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> Any:
        """Return the object that ``value`` encodes.

        Raises:
            SerializationError: the bytes are malformed.
        """
        raise NotImplementedError

    def set_cluster_id_resolver(self, resolver: Callable[[], Any]) -> None:
        """Take a function that returns the id of the client's cluster; see Serializer."""

    def close(self) -> None:
        """Release resources that it has created; clients close the deserializers that they have built."""


class SerializerBuilder:
    """Base class of objects that make a serializer out of a client's configuration."""

    def build(self, conf: dict[str, Any], is_key: bool) -> tuple[Serializer, dict[str, Any]]:
        """Return a serializer, and the keys of ``conf`` that are left for the client.

        ``is_key`` is True for keys, False for values.
        """
        raise NotImplementedError


class DeserializerBuilder:
    """Base class of objects that make a deserializer out of a client's configuration."""

    def build(self, conf: dict[str, Any], is_key: bool) -> tuple[Deserializer, dict[str, Any]]:
        """Return a deserializer, and the keys of ``conf`` that are left for the client.

        ``is_key`` is True for keys, False for values.
        """
        raise NotImplementedError


class _PackedSerializer(Serializer):
    """Numbers of one binary format."""

    _format: struct.Struct

    def __call__(self, obj: float | None, ctx: SerializationContext | None = None) -> bytes | None:  # noqa: ARG002
        """Return the bytes of ``obj``, big-endian; None for None."""
        if obj is None:
            return None
        try:
            return self._format.pack(obj)
        except struct.error as error:
            raise SerializationError(str(error)) from error


class _PackedDeserializer(Deserializer):
    """Numbers of one binary format."""

    _format: struct.Struct

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> Any:  # noqa: ARG002
        """Return the number; None for None."""
        if value is None:
            return None
        try:
            return self._format.unpack(value)[0]
        except struct.error as error:
            raise SerializationError(str(error)) from error


class DoubleSerializer(_PackedSerializer):
    """Turns floats into 8 bytes (IEEE 754, big-endian), as Java's DoubleSerializer does."""

    _format = struct.Struct(">d")


class DoubleDeserializer(_PackedDeserializer):
    """Turns 8 bytes into a float, as Java's DoubleDeserializer does."""

    _format = struct.Struct(">d")


class IntegerSerializer(_PackedSerializer):
    """Turns integers into 4 bytes (signed, big-endian), as Java's IntegerSerializer does."""

    _format = struct.Struct(">i")


class IntegerDeserializer(_PackedDeserializer):
    """Turns 4 bytes into an integer, as Java's IntegerDeserializer does."""

    _format = struct.Struct(">i")


class StringSerializer(Serializer):
    """Turns str into bytes of the encoding ``codec``."""

    def __init__(self, codec: str = "utf_8") -> None:
        self.codec = codec

    def __call__(self, obj: str | None, ctx: SerializationContext | None = None) -> bytes | None:  # noqa: ARG002
        """Return the encoded text; None for None."""
        if obj is None:
            return None
        try:
            return obj.encode(self.codec)
        except UnicodeError as error:
            raise SerializationError(str(error)) from error


class StringDeserializer(Deserializer):
    """Turns bytes of the encoding ``codec`` into str."""

    def __init__(self, codec: str = "utf_8") -> None:
        self.codec = codec

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> str | None:  # noqa: ARG002
        """Return the decoded text; None for None."""
        if value is None:
            return None
        try:
            return value.decode(self.codec)
        except UnicodeError as error:
            raise SerializationError(str(error)) from error
