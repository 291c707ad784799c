"""The exceptions of the clients that serialize and deserialize."""

from __future__ import annotations

from typing import Any

from pykclient.confluent.kafka_error import KafkaError as KafkaError, KafkaException as KafkaException
from pykclient.confluent.message import Message as Message
from pykclient.serde import SerializationError as SerializationError


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


class _DeserializationError(ConsumeError, SerializationError):
    _code: int

    def __init__(self, exception: Exception | None = None, kafka_message: Message[Any, Any] | None = None) -> None:
        text = str(exception)
        if kafka_message is not None:
            place = f"offset {kafka_message.offset()} of {kafka_message.topic()}-{kafka_message.partition()}"
            text = f"{text} (the record at {place})"
        super().__init__(KafkaError(self._code, text), exception, kafka_message)


class KeyDeserializationError(_DeserializationError):
    """A key that the deserializer refused."""

    _code = KafkaError._KEY_DESERIALIZATION


class ValueDeserializationError(_DeserializationError):
    """A value that the deserializer refused."""

    _code = KafkaError._VALUE_DESERIALIZATION


class ProduceError(_KafkaClientError):
    """A message that was not produced."""

    def __init__(self, kafka_error: KafkaError, exception: Exception | None = None) -> None:
        super().__init__(kafka_error, exception)


class _SerializationError(ProduceError, SerializationError):
    _code: int

    def __init__(self, exception: Exception | None = None) -> None:
        super().__init__(KafkaError(self._code, str(exception)), exception)


class KeySerializationError(_SerializationError):
    """A key that the serializer refused."""

    _code = KafkaError._KEY_SERIALIZATION


class ValueSerializationError(_SerializationError):
    """A value that the serializer refused."""

    _code = KafkaError._VALUE_SERIALIZATION
