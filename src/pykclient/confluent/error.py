"""The exceptions of the clients that serialize and deserialize."""

from __future__ import annotations

from typing import Any

from pykclient.confluent.kafka_error import KafkaError, KafkaException
from pykclient.confluent.message import Message
from pykclient.serde import SerializationError

__all__ = [
    "ConsumeError",
    "KafkaError",
    "KafkaException",
    "KeyDeserializationError",
    "KeySerializationError",
    "Message",
    "ProduceError",
    "SerializationError",
    "ValueDeserializationError",
    "ValueSerializationError",
]


class _KafkaClientError(KafkaException):
    """An error with the exception that caused it and the message it is about."""

    def __init__(
        self,
        kafka_error: KafkaError,
        exception: Exception | None = None,
        kafka_message: Message[Any, Any] | None = None,
    ) -> None:
        super().__init__(kafka_error)
        self.exception = exception
        self.kafka_message: Any = kafka_message

    @property
    def code(self) -> int:
        """The code of the KafkaError."""
        return int(self.args[0].code())

    @property
    def name(self) -> str:
        """The name of the KafkaError."""
        return str(self.args[0].name())


class ConsumeError(_KafkaClientError):
    """A message that was not consumed; ``kafka_message`` is the message as it arrived."""


def _shown(exception: Exception | None, message: Message[Any, Any] | None) -> str:
    """Return an error's text with the place of the record."""
    if message is None:
        return str(exception)
    return f"{exception} (the record at offset {message.offset()} of {message.topic()}-{message.partition()})"


class KeyDeserializationError(ConsumeError, SerializationError):
    """A key that the deserializer refused."""

    def __init__(self, exception: Exception | None = None, kafka_message: Message[Any, Any] | None = None) -> None:
        error = KafkaError(KafkaError._KEY_DESERIALIZATION, _shown(exception, kafka_message))
        super().__init__(error, exception, kafka_message)


class ValueDeserializationError(ConsumeError, SerializationError):
    """A value that the deserializer refused."""

    def __init__(self, exception: Exception | None = None, kafka_message: Message[Any, Any] | None = None) -> None:
        error = KafkaError(KafkaError._VALUE_DESERIALIZATION, _shown(exception, kafka_message))
        super().__init__(error, exception, kafka_message)


class ProduceError(_KafkaClientError):
    """A message that was not produced."""

    def __init__(self, kafka_error: KafkaError, exception: Exception | None = None) -> None:
        super().__init__(kafka_error, exception)


class KeySerializationError(ProduceError, SerializationError):
    """A key that the serializer refused."""

    def __init__(self, exception: Exception | None = None) -> None:
        super().__init__(KafkaError(KafkaError._KEY_SERIALIZATION, str(exception)), exception)


class ValueSerializationError(ProduceError, SerializationError):
    """A value that the serializer refused."""

    def __init__(self, exception: Exception | None = None) -> None:
        super().__init__(KafkaError(KafkaError._VALUE_SERIALIZATION, str(exception)), exception)
