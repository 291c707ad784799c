"""SerializingProducer and DeserializingConsumer."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, Generic, NamedTuple, TypeVar

from pykclient.confluent.consumer import Consumer
from pykclient.confluent.error import (
    ConsumeError,
    KeyDeserializationError,
    KeySerializationError,
    ValueDeserializationError,
    ValueSerializationError,
)
from pykclient.confluent.message import Message
from pykclient.confluent.producer import Producer
from pykclient.serde import MessageField, SerializationContext

K = TypeVar("K")
V = TypeVar("V")

_logger = logging.getLogger(__name__)

#: The time limit of the request for the cluster id, in seconds.
CLUSTER_ID_S = 60.0


class Serdes(NamedTuple):
    """The serializers or deserializers of one client, those that it has built, and the rest of its configuration."""

    key: Any
    value: Any
    built: list[Any]
    conf: dict[str, Any]


def serdes_of(conf: dict[str, Any], kind: str) -> Serdes:
    """Take ``key.<kind>``, ``value.<kind>`` and their builders out of a configuration, and run the builders.

    A property that any builder has consumed is not in the rest.

    Raises:
        ValueError: a builder is given beside what it would build, or returns something else.
    """
    built: list[Any] = []
    steps = serde_steps(conf, kind, built)
    try:
        result = next(steps)
        while True:
            result = steps.send(result)
    except StopIteration as end:
        found: Serdes = end.value
        return found
    except BaseException:
        close_serdes(built)
        raise


def serde_steps(conf: dict[str, Any], kind: str, built: list[Any]) -> Generator[Any, Any, Serdes]:
    """Do the work of ``serdes_of``: yield what each builder returns, take it back, and add to ``built``.

    The caller awaits the results that are awaitable, and closes ``built`` after an error.
    """
    rest = dict(conf)
    chosen: list[tuple[str, bool, Any, Any]] = []
    for field, is_key in (("key", True), ("value", False)):
        name = f"{field}.{kind}"
        made, builder = rest.pop(name, None), rest.pop(f"{name}.builder", None)
        if made is not None and builder is not None:
            raise ValueError(f"Cannot configure both {name} and {name}.builder; use one or the other")
        chosen.append((name, is_key, made, builder))
    found: list[Any] = []
    given = dict(rest)
    for name, is_key, made, builder in chosen:
        if builder is None:
            found.append(made)
            continue
        serde, left = _result_of(f"{name}.builder", (yield builder.build(dict(given), is_key)))
        found.append(serde)
        built.append(serde)
        rest = {key: value for key, value in left.items() if key in rest}
    return Serdes(found[0], found[1], built, rest)


def _result_of(name: str, result: Any) -> tuple[Any, dict[str, Any]]:
    try:
        made, left = result
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} must return a (serde, configuration) tuple from build(), got {type(result).__name__}"
        ) from None
    if not isinstance(left, dict):
        raise ValueError(  # noqa: TRY004 - confluent-kafka's
            f"{name} returned {type(left).__name__} as the leftover configuration from build(), expected a dict"
        )
    return made, left


def close_serdes(serdes: list[Any]) -> None:
    """Close all, and raise the first error then."""
    errors: list[tuple[Any, Exception]] = []
    for serde in serdes:
        close = getattr(serde, "close", None)
        if callable(close):
            try:
                close()
            except Exception as error:  # noqa: BLE001 - raised once all are closed
                errors.append((serde, error))
    raise_first(errors)


def raise_first(errors: list[tuple[Any, Exception]]) -> None:
    """Raise the first of the errors of closing serdes, and log the others."""
    for serde, error in errors[1:]:
        _logger.warning("Failed to close %r", serde, exc_info=error)
    if errors:
        raise errors[0][1]


class SharedClusterId:
    """Asks for the cluster's id; concurrent calls share one request."""

    def __init__(self, cluster_id: Callable[..., str], timeout: float = CLUSTER_ID_S) -> None:
        self._cluster_id = cluster_id
        self._timeout = timeout
        self._lock = threading.Lock()  # guards: _asked
        self._asked: Future[str] | None = None

    def __call__(self) -> str:
        """Return the id.

        Raises:
            KafkaException: no broker responded in time.
        """
        with self._lock:
            asked, mine = self._asked, Future[str]()
            if asked is None:
                self._asked = mine
        if asked is not None:
            return asked.result()
        try:
            found = self._cluster_id(timeout=self._timeout)
        except BaseException as error:
            self._asked = None
            mine.set_exception(error)
            raise
        self._asked = None
        mine.set_result(found)
        return found


def _offer_cluster_id(client: Any, serdes: Serdes) -> None:
    resolver = SharedClusterId(client.cluster_id)
    for serde in (serdes.key, serdes.value):
        offer = getattr(serde, "set_cluster_id_resolver", None)
        if callable(offer):
            offer(resolver)


class SerializingProducer(Producer, Generic[K, V]):
    """A producer whose ``produce`` serializes keys and values.

    The configuration has ``key.serializer`` and ``value.serializer``, which are called with the object and a
    SerializationContext, or ``key.serializer.builder`` and ``value.serializer.builder``.
    """

    def __init__(self, conf: dict[str, Any]) -> None:
        serdes = serdes_of(conf, "serializer")
        self._built = serdes.built
        self._key_serializer, self._value_serializer = serdes.key, serdes.value
        try:
            super().__init__(serdes.conf)
            _offer_cluster_id(self, serdes)
        except BaseException:
            close_serdes(self._built)
            raise

    def produce(  # type: ignore[override]
        self,
        topic: str,
        key: K | None = None,
        value: V | None = None,
        partition: int = -1,
        on_delivery: Callable[..., object] | None = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        """Serialize the key, then the value, and queue the message.

        Raises:
            KeySerializationError: the key's serializer failed.
            ValueSerializationError: the value's serializer failed.
            BufferError: the queue is full.
            KafkaException: the message cannot be queued.
            TypeError: an argument has the wrong type.
            RuntimeError: the producer is closed.
        """
        self.ensure_open()
        if not isinstance(topic, str):
            raise TypeError(f"topic must be a str, not {type(topic).__name__}")
        key_bytes: Any = key
        value_bytes: Any = value
        context = SerializationContext(topic, MessageField.KEY, headers)
        if self._key_serializer is not None:
            try:
                key_bytes = self._key_serializer(key, context)
            except Exception as error:
                raise KeySerializationError(error) from error
        context.field = MessageField.VALUE
        if self._value_serializer is not None:
            try:
                value_bytes = self._value_serializer(value, context)
            except Exception as error:
                raise ValueSerializationError(error) from error
        super().produce(
            topic,
            value_bytes,
            key_bytes,
            headers=headers,
            partition=partition,
            timestamp=timestamp,
            on_delivery=on_delivery,
        )

    def close(self) -> bool:
        """Close the producer, then the serializers that it has built."""
        result = super().close()
        built, self._built = self._built, []
        close_serdes(built)
        return result


class DeserializingConsumer(Consumer, Generic[K, V]):
    """A consumer whose ``poll`` deserializes keys and values.

    The configuration has ``key.deserializer`` and ``value.deserializer``, which are called with the bytes and a
    SerializationContext, or ``key.deserializer.builder`` and ``value.deserializer.builder``.
    """

    def __init__(self, conf: dict[str, Any]) -> None:
        serdes = serdes_of(conf, "deserializer")
        self._built = serdes.built
        self._key_deserializer, self._value_deserializer = serdes.key, serdes.value
        try:
            super().__init__(serdes.conf)
            _offer_cluster_id(self, serdes)
        except BaseException:
            close_serdes(self._built)
            raise

    def poll(self, timeout: float = -1) -> Message[K, V] | None:  # type: ignore[override]
        """Return a message with its key and value deserialized, or None.

        Raises:
            ConsumeError: the message is an error.
            KeyDeserializationError: the key's deserializer failed.
            ValueDeserializationError: the value's deserializer failed.
            RuntimeError: the consumer is closed.
        """
        message: Message[Any, Any] | None = super().poll(timeout)
        if message is None:
            return None
        error = message.error()
        if error is not None:
            raise ConsumeError(error, kafka_message=message)
        context = SerializationContext(message.topic() or "", MessageField.KEY, message.headers())
        key, value = message.key(), message.value()
        if self._key_deserializer is not None:
            try:
                key = self._key_deserializer(key, context)
            except Exception as raised:
                raise KeyDeserializationError(raised, message) from raised
        context.field = MessageField.VALUE
        if self._value_deserializer is not None:
            try:
                value = self._value_deserializer(value, context)
            except Exception as raised:
                raise ValueDeserializationError(raised, message) from raised
        message.set_key(key)
        message.set_value(value)
        return message

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message[K, V]]:  # type: ignore[override]
        """Raise NotImplementedError: use ``poll``."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the consumer, then the deserializers that it has built."""
        super().close()
        built, self._built = self._built, []
        close_serdes(built)
