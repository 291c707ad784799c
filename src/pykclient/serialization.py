"""Serializers and deserializers (Java: common.serialization); the bytes are those of Java's own serializers.

A client accepts an object with these methods, its class, a plain callable, or the dotted name of one. Without a
serializer, bytes pass through. All serializers here turn ``None`` into ``None``, which is Kafka's null and deletes the
key in a compacted topic. A consumer never calls a deserializer for null. A producer does call a serializer for
``None``, and a serializer of your own may return bytes for it.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar, cast

from pykclient.argument_values import shown
from pykclient.caused_errors import caused_by
from pykclient.errors import ConfigError, SerializationError
from pykclient.types import Headers

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Buffer = bytes | bytearray | memoryview


class MessageField(StrEnum):
    """The part of a record that is serialized (confluent-kafka: MessageField)."""

    NONE = "none"
    KEY = "key"
    VALUE = "value"


class SerializationContext:
    """The topic and field of a key or value (confluent-kafka: SerializationContext).

    ``headers`` are the record's: a list of pairs, or a dict, to which a serializer may add; None if unknown.
    """

    __slots__ = ("field", "headers", "topic")

    def __init__(self, topic: str, field: MessageField, headers: Any = None) -> None:
        self.topic = topic
        self.field = field
        self.headers = headers


class Serializer(Generic[T]):
    """Turns objects into bytes.

    Threads that call ``send()`` call it, possibly several at the same time.
    """

    def serialize(self, topic: str, headers: Headers, data: T | None) -> Buffer | None:
        """Return the bytes of ``data``.

        If this raises, the caller of ``send()`` gets a SerializationError that is also an instance of the original
        error's class.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Release resources; the client calls this when it closes."""


class Deserializer(Generic[T]):
    """Turns bytes into objects. The thread that polls calls it."""

    def deserialize(self, topic: str, headers: Headers, data: bytes) -> T | None:
        """Return the object encoded in ``data``.

        If this raises, the caller of ``poll()`` gets a RecordDeserializationError that is also an instance of the
        original error's class.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Release resources; the client calls this when it closes."""


#: Serializers and deserializers that clients accept with a known type. Clients accept dotted names, too.
SerializerOf = Serializer[T] | type[Serializer[T]] | Callable[[T], Buffer | None]
AsyncSerializerOf = Callable[[T], Awaitable[Buffer | None]]
DeserializerOf = Deserializer[T] | type[Deserializer[T]] | Callable[[bytes], T]


class _Reader(Protocol[T_co]):
    def deserialize(self, topic: str, headers: Headers, data: bytes) -> T_co | None: ...


class BindableDeserializer(Protocol[T_co]):
    """A deserializer of ``pykclient.schema_registry``, of which clients make one for their keys or values."""

    def for_field(self, field: MessageField) -> _Reader[T_co]:
        """Return the deserializer of a client's keys or values."""


class CallableSerializer(Serializer[Any]):
    """A serializer made of a plain function from object to bytes, as in kafka-python."""

    def __init__(self, function: Callable[[Any], Buffer | None]) -> None:
        self.function = function

    def serialize(self, topic: str, headers: Headers, data: Any) -> Buffer | None:  # noqa: ARG002
        return self.function(data)


class CallableDeserializer(Deserializer[Any]):
    """A deserializer made of a plain function from bytes to object, as in kafka-python."""

    def __init__(self, function: Callable[[bytes], Any]) -> None:
        self.function = function

    def deserialize(self, topic: str, headers: Headers, data: bytes) -> Any:  # noqa: ARG002
        return self.function(data)


class Serde(Serializer[T], Deserializer[T]):
    """Serializer and deserializer of one type; subclasses implement ``_encode`` and ``_decode``.

    Thread: any (no state).
    """

    #: The name of the type in error messages.
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
            # The message leaves out the cause's text, because decoders often quote the data. The cause is chained.
            raise caused_by(SerializationError(f"{len(data)} bytes are not {self.what}"), error) from error

    def _encode(self, data: T) -> Buffer:
        raise NotImplementedError

    def _decode(self, data: bytes) -> T:
        raise NotImplementedError


class BytesSerde(Serde[Any]):
    """Bytes, unchanged. The default."""

    what = "bytes"

    def _encode(self, data: Any) -> Buffer:
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError("set a serializer")
        return data

    def _decode(self, data: bytes) -> Any:
        return data


class StringSerde(Serde[str]):
    """Text.

    Raises where Java's serializer would replace characters that cannot be encoded or decoded by a question mark.
    """

    what = "text"

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding
        self.what = f"{encoding} text"

    def _encode(self, data: str) -> Buffer:
        return data.encode(self._encoding)

    def _decode(self, data: bytes) -> str:
        return str(data, self._encoding)


class DefaultSerializer(Serde[Any]):
    """Serializes text, or bytes unchanged; deserializes to text (kafka-python: DefaultSerializer)."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._text = StringSerde(encoding)
        self.what = self._text.what

    def _encode(self, data: Any) -> Buffer:
        return data if isinstance(data, (bytes, bytearray, memoryview)) else self._text._encode(data)

    def _decode(self, data: bytes) -> str:
        return self._text._decode(data)


class _NumberSerde(Serde[T]):
    """A number in big-endian form."""

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


class ListSerde(Serde[list[T | None]]):
    """A list of values, which may be None (KIP-466).

        KafkaProducer(value_serializer=ListSerde(IntegerSerde()))

    Numbers and UUIDs are stored without their sizes. ``inner`` is the serde of the values.
    """

    what = "a list"

    _SIZE = struct.Struct(">i")
    _CONSTANT_SIZE, _VARIABLE_SIZE = b"\x00", b"\x01"
    _NULL = -1

    def __init__(self, inner: Serde[T]) -> None:
        self._inner = inner
        self.what = f"a list, each {inner.what},"
        #: The size of each value, if all have the same.
        self._constant: int | None = None
        if isinstance(inner, _NumberSerde):
            self._constant = inner._format.size
        elif isinstance(inner, UUIDSerde):
            self._constant = len(inner._encode(uuid.UUID(int=0)))

    def serialize(self, topic: str, headers: Headers, data: list[T | None] | None) -> Buffer | None:
        if data is None:
            return None
        if not isinstance(data, (list, tuple)):
            raise SerializationError(f"{type(data).__name__} cannot be serialized as {self.what}: not a list")
        size = self._SIZE.pack
        values = [self._inner.serialize(topic, headers, value) for value in data]
        if self._constant is None:
            parts: list[Any] = [self._VARIABLE_SIZE, size(len(values))]
            for value in values:
                parts += (size(self._NULL),) if value is None else (size(len(value)), value)
        else:
            nulls = [size(place) for place, value in enumerate(values) if value is None]
            parts = [self._CONSTANT_SIZE, size(len(nulls)), *nulls, size(len(values))]
            parts += [value for value in values if value is not None]
        return b"".join(parts)

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> list[T | None] | None:
        if data is None:
            return None
        try:
            parts = self._parts(data)
        except (ValueError, struct.error) as error:
            raise caused_by(SerializationError(f"{len(data)} bytes are not {self.what}"), error) from error
        return [None if part is None else self._inner.deserialize(topic, headers, part) for part in parts]

    def close(self) -> None:
        self._inner.close()

    def _parts(self, data: bytes) -> list[bytes | None]:
        """Return the bytes of each value, or None.

        Raises:
            ValueError, struct.error: the bytes are not a list's, or not one of such values.
        """
        place = 1

        def number() -> int:
            nonlocal place
            (found,) = self._SIZE.unpack_from(data, place)
            place += self._SIZE.size
            return int(found)

        def part(size: int) -> bytes:
            nonlocal place
            place += size
            if size < 0 or place > len(data):
                raise ValueError("a value is cut off")
            return data[place - size : place]

        def count() -> int:
            found = number()
            if not 0 <= found <= len(data):
                raise ValueError("more values than bytes")
            return found

        is_constant = self._constant is not None
        if data[:1] != (self._CONSTANT_SIZE if is_constant else self._VARIABLE_SIZE):
            raise ValueError("of another kind of values")
        found: list[bytes | None]
        if self._constant is None:
            found = [None if (size := number()) == self._NULL else part(size) for _ in range(count())]
        else:
            constant = self._constant
            nulls = {number() for _ in range(count())}
            # Nulls take no bytes of their own, but each is in the list of nulls.
            found = [None if row in nulls else part(constant) for row in range(count())]
        if place != len(data):
            raise ValueError("bytes remain")
        return found


class VoidSerde(Serde[None]):
    """Null only."""

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
ListSerializer = ListDeserializer = ListSerde
VoidSerializer = VoidDeserializer = VoidSerde
JsonSerializer = JsonDeserializer = JsonSerde

#: The default in both directions, which passes bytes through. Clients may skip the call when they find it.
BYTES = BytesSerde()


def definition_of(method: Callable[..., Any]) -> str:
    """Return the name of a serializer or deserializer for error messages.

    For a plain function, the name includes the place of its definition. ``method`` is the function that a client calls.
    """
    owner = getattr(method, "__self__", None)
    if isinstance(owner, (CallableSerializer, CallableDeserializer)):
        method = owner.function
        owner = getattr(method, "__self__", None)
    definition = getattr(owner, "definition", None)
    if isinstance(definition, str):  # what binds a serializer to keys or values
        return definition
    code = getattr(method, "__code__", None)
    if owner is None and code is not None:
        return f"{method.__qualname__} ({code.co_filename}:{code.co_firstlineno})"
    if not hasattr(method, "__qualname__"):  # a callable object
        return type(method).__qualname__
    return type(owner).__qualname__ if isinstance(owner, (Serializer, Deserializer)) else method.__qualname__


def serializer_for(value: Any, key: str = "serializer") -> Serializer[Any]:
    """Return the serializer for a configuration value; ``BYTES`` for None.

    Raises:
        ConfigError: the value is neither a serializer, nor the class of one, nor callable.
    """
    return cast(Serializer[Any], _resolve(value, key, "serialize", CallableSerializer))


def deserializer_for(value: Any, key: str = "deserializer") -> Deserializer[Any]:
    """Return the deserializer for a configuration value; ``BYTES`` for None.

    Raises:
        ConfigError: the value is neither a deserializer, nor the class of one, nor callable.
    """
    return cast(Deserializer[Any], _resolve(value, key, "deserialize", CallableDeserializer))


def _resolve(value: Any, key: str, method: str, wrapper: Callable[[Any], Any]) -> Any:
    if value is None:
        return BYTES
    if hasattr(value, "for_field") and not isinstance(value, type):  # Java: configure(configs, isKey)
        return value.for_field(MessageField.KEY if key.replace("_", ".").startswith("key.") else MessageField.VALUE)
    if hasattr(value, method):
        return value() if isinstance(value, type) else value
    if callable(value):
        return wrapper(value)
    raise ConfigError(f"{key}: {shown(value)} has no method {method}() and is not callable", key=key)
