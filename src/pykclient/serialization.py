"""Keys and values to bytes and back (Java: common.serialization), in the bytes of Java's own serializers.

A client takes an object with these methods, its class, a plain callable, or the dotted name of one. Without any, bytes
pass through. ``None`` stays ``None`` with everything here: it is the null of Kafka, which deletes in a compacted topic.
A consumer never asks a deserializer about null; a producer does ask a serializer, whose answer may be bytes.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from pykclient.caused_errors import caused_by
from pykclient.errors import ConfigError, SerializationError
from pykclient.types import Headers

T = TypeVar("T")

Buffer = bytes | bytearray | memoryview


class Serializer(Generic[T]):
    """Turns objects into bytes. Called by whichever threads call ``send()``, possibly at the same time."""

    def serialize(self, topic: str, headers: Headers, data: T | None) -> Buffer | None:
        """Return the bytes of ``data``.

        An error that this raises reaches the caller of ``send()`` as a SerializationError that is also of the error's
        own class.
        """
        raise NotImplementedError

    def close(self) -> None:
        """The client is closing."""


class Deserializer(Generic[T]):
    """Turns bytes into objects. Called by the thread that polls."""

    def deserialize(self, topic: str, headers: Headers, data: bytes) -> T | None:
        """Return the object that ``data`` holds.

        An error that this raises reaches the caller of ``poll()`` as a RecordDeserializationError that is also of the
        error's own class.
        """
        raise NotImplementedError

    def close(self) -> None:
        """The client is closing."""


#: What a client takes for a serializer or deserializer whose type is to be known; dotted names are taken as well.
SerializerOf = Serializer[T] | type[Serializer[T]] | Callable[[T], Buffer | None]
DeserializerOf = Deserializer[T] | type[Deserializer[T]] | Callable[[bytes], T]


class CallableSerializer(Serializer[Any]):
    """A plain function from object to bytes, as kafka-python takes it."""

    def __init__(self, function: Callable[[Any], Buffer | None]) -> None:
        self.function = function

    def serialize(self, topic: str, headers: Headers, data: Any) -> Buffer | None:  # noqa: ARG002
        return self.function(data)


class CallableDeserializer(Deserializer[Any]):
    """A plain function from bytes to object, as kafka-python takes it."""

    def __init__(self, function: Callable[[bytes], Any]) -> None:
        self.function = function

    def deserialize(self, topic: str, headers: Headers, data: bytes) -> Any:  # noqa: ARG002
        return self.function(data)


class Serde(Serializer[T], Deserializer[T]):
    """Both directions for one type; subclasses write ``_encode`` and ``_decode``. Thread: any (no state)."""

    #: What is serialized, for the error's text.
    what = ""

    def serialize(self, topic: str, headers: Headers, data: T | None) -> Buffer | None:  # noqa: ARG002
        if data is None:
            return None
        try:
            return self._encode(data)
        except (TypeError, ValueError, OverflowError, AttributeError, struct.error) as error:
            text = f"{type(data).__name__} cannot be serialized as {self.what}: {error}"
            raise caused_by(SerializationError(text), error) from error

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> T | None:  # noqa: ARG002
        if data is None:
            return None
        try:
            return self._decode(data)
        except (TypeError, ValueError, struct.error) as error:
            # Chained, but without the cause's text: decoders like to quote the data.
            raise caused_by(SerializationError(f"{len(data)} bytes are not {self.what}"), error) from error

    def _encode(self, data: T) -> Buffer:
        raise NotImplementedError

    def _decode(self, data: bytes) -> T:
        raise NotImplementedError


class BytesSerde(Serde[Any]):
    """Bytes as they are. The default."""

    what = "bytes"

    def _encode(self, data: Any) -> Buffer:
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError("set a serializer")
        return data

    def _decode(self, data: bytes) -> Any:
        return data


class StringSerde(Serde[str]):
    """Text. Unlike Java's, which puts a question mark for what cannot be encoded or decoded, this one raises."""

    what = "text"

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding
        self.what = f"{encoding} text"

    def _encode(self, data: str) -> Buffer:
        return data.encode(self._encoding)

    def _decode(self, data: bytes) -> str:
        return str(data, self._encoding)


class DefaultSerializer(Serde[Any]):
    """Text, or bytes as they are; text when reading (kafka-python: DefaultSerializer)."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._text = StringSerde(encoding)
        self.what = self._text.what

    def _encode(self, data: Any) -> Buffer:
        return data if isinstance(data, (bytes, bytearray, memoryview)) else self._text._encode(data)

    def _decode(self, data: bytes) -> str:
        return self._text._decode(data)


class _NumberSerde(Serde[T]):
    """A number in its big-endian form."""

    _format: struct.Struct
    _types: tuple[type, ...]

    def _encode(self, data: T) -> Buffer:
        if not isinstance(data, self._types) or isinstance(data, bool):
            raise TypeError("not a number of this kind")
        return self._format.pack(data)

    def _decode(self, data: bytes) -> T:
        return cast(T, self._format.unpack(data)[0])


class ShortSerde(_NumberSerde[int]):
    """A 16-bit integer."""

    what, _format, _types = "a 16-bit integer", struct.Struct(">h"), (int,)


class IntegerSerde(_NumberSerde[int]):
    """A 32-bit integer."""

    what, _format, _types = "a 32-bit integer", struct.Struct(">i"), (int,)


class LongSerde(_NumberSerde[int]):
    """A 64-bit integer."""

    what, _format, _types = "a 64-bit integer", struct.Struct(">q"), (int,)


class FloatSerde(_NumberSerde[float]):
    """A 32-bit floating point number."""

    what, _format, _types = "a 32-bit float", struct.Struct(">f"), (float, int)


class DoubleSerde(_NumberSerde[float]):
    """A 64-bit floating point number, which is Python's float."""

    what, _format, _types = "a 64-bit float", struct.Struct(">d"), (float, int)


class BooleanSerde(Serde[bool]):
    """One byte, 1 or 0."""

    what = "a boolean"

    def _encode(self, data: bool) -> Buffer:
        if not isinstance(data, bool):
            raise TypeError("not True or False")
        return b"\x01" if data else b"\x00"

    def _decode(self, data: bytes) -> bool:
        if data not in {b"\x00", b"\x01"}:
            raise ValueError("not 1 or 0")
        return data == b"\x01"


class UUIDSerde(Serde[uuid.UUID]):
    """A UUID in its text form."""

    what = "a UUID"

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding

    def _encode(self, data: uuid.UUID) -> Buffer:
        if not isinstance(data, uuid.UUID):
            raise TypeError("not a uuid.UUID")
        return str(data).encode(self._encoding)

    def _decode(self, data: bytes) -> uuid.UUID:
        return uuid.UUID(str(data, self._encoding))


class VoidSerde(Serde[None]):
    """Nothing but null."""

    what = "null"

    def _encode(self, data: object) -> Buffer:  # noqa: ARG002
        raise TypeError("only None can be")

    def _decode(self, data: bytes) -> None:  # noqa: ARG002
        raise ValueError("only null can be")


class JsonSerde(Serde[Any]):
    """JSON in UTF-8."""

    what = "JSON"

    def _encode(self, data: Any) -> Buffer:
        import json

        return json.dumps(data).encode()

    def _decode(self, data: bytes) -> Any:
        import json

        return json.loads(data)


# Java's names, one for each direction.
BytesSerializer = BytesDeserializer = ByteArraySerializer = ByteArrayDeserializer = BytesSerde
StringSerializer = StringDeserializer = StringSerde
ShortSerializer = ShortDeserializer = ShortSerde
IntegerSerializer = IntegerDeserializer = IntegerSerde
LongSerializer = LongDeserializer = LongSerde
FloatSerializer = FloatDeserializer = FloatSerde
DoubleSerializer = DoubleDeserializer = DoubleSerde
BooleanSerializer = BooleanDeserializer = BooleanSerde
UUIDSerializer = UUIDDeserializer = UUIDSerde
VoidSerializer = VoidDeserializer = VoidSerde
JsonSerializer = JsonDeserializer = JsonSerde

#: What passes bytes through: the default in both directions. Clients may leave the call out when they find it.
BYTES = BytesSerde()


def definition_of(method: Callable[..., Any]) -> str:
    """Return the name of a serializer or deserializer, for errors; for a plain function also where it is defined.

    ``method`` is the function that a client calls.
    """
    owner = getattr(method, "__self__", None)
    if isinstance(owner, (CallableSerializer, CallableDeserializer)):
        method = owner.function
        owner = getattr(method, "__self__", None)
    code = getattr(method, "__code__", None)
    if owner is None and code is not None:
        return f"{method.__qualname__} ({code.co_filename}:{code.co_firstlineno})"
    if not hasattr(method, "__qualname__"):  # an object that is called like a function
        return type(method).__qualname__
    return type(owner).__qualname__ if isinstance(owner, (Serializer, Deserializer)) else method.__qualname__


def serializer_for(value: Any) -> Serializer[Any]:
    """The serializer that a configuration value stands for; ``BYTES`` for None.

    Raises ConfigError when it is neither a serializer, nor the class of one, nor callable.
    """
    return cast(Serializer[Any], _resolve(value, "serialize", CallableSerializer))


def deserializer_for(value: Any) -> Deserializer[Any]:
    """The deserializer that a configuration value stands for; ``BYTES`` for None.

    Raises ConfigError when it is neither a deserializer, nor the class of one, nor callable.
    """
    return cast(Deserializer[Any], _resolve(value, "deserialize", CallableDeserializer))


def _resolve(value: Any, method: str, wrapper: Callable[[Any], Any]) -> Any:
    if value is None:
        return BYTES
    if hasattr(value, method):
        return value() if isinstance(value, type) else value
    if callable(value):
        return wrapper(value)
    raise ConfigError(f"{value!r} has no method {method}() and is not callable")
