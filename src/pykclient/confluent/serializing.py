"""SerializingProducer and DeserializingConsumer."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, Generic, NamedTuple, TypeVar

from pykclient.confluent.client import Client
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


class _Converting(Client):
    """Base of the clients that convert, with the serdes that their configuration names."""

    _serde: str

    def __init__(self, conf: dict[str, Any]) -> None:
        self._serdes = serdes_of(conf, self._serde)
        try:
            super().__init__(self._serdes.conf)  # type: ignore[arg-type]  # of the client below
            offer_cluster_id(self._serdes, "set_cluster_id_resolver", SharedClusterId(self.cluster_id))
        except BaseException:
            close_serdes(self._serdes.built)
            raise

    def close(self) -> Any:
        """Close the client, then the serdes that it has built."""
        result = super().close()
        serdes, self._serdes = self._serdes, self._serdes._replace(built=[])
        close_serdes(serdes.built)
        return result


def offer_cluster_id(serdes: Serdes, name: str, resolver: Any) -> None:
    """Give what asks for the cluster's id to the serdes that have the method ``name``."""
    for serde in (serdes.key, serdes.value):
        offer = getattr(serde, name, None)
        if callable(offer):
            offer(resolver)


#: The fields that serdes convert, in order, and the errors for those that a serializer or deserializer refuses.
FIELDS = (MessageField.KEY, MessageField.VALUE)
REFUSED = (KeySerializationError, ValueSerializationError)
DAMAGED = (KeyDeserializationError, ValueDeserializationError)


def _converted(
    serdes: Serdes, refusals: tuple[Callable[..., Exception], ...], topic: str, headers: Any, pair: Any, *about: Any
) -> list[Any]:
    """Return the key and value in ``pair``, converted. ``refusals`` make the errors of these, also of ``about``."""
    context = SerializationContext(topic, MessageField.KEY, headers)
    found = []
    for field, serde, refusal, given in zip(FIELDS, serdes[:2], refusals, pair, strict=True):
        context.field = field
        try:
            found.append(given if serde is None else serde(given, context))
        except Exception as error:
            raise refusal(error, *about) from error
    return found


class SerializingProducer(_Converting, Producer, Generic[K, V]):
    """A producer whose ``produce`` serializes keys and values.

    The configuration has ``key.serializer`` and ``value.serializer``, which are called with the object and a
    SerializationContext, or ``key.serializer.builder`` and ``value.serializer.builder``.
    """

    _serde = "serializer"

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
        made_key, made_value = _converted(self._serdes, REFUSED, topic, headers, (key, value))
        super().produce(topic, made_value, made_key, partition, None, on_delivery, timestamp, headers)


class DeserializingConsumer(_Converting, Consumer, Generic[K, V]):
    """A consumer whose ``poll`` deserializes keys and values.

    The configuration has ``key.deserializer`` and ``value.deserializer``, which are called with the bytes and a
    SerializationContext, or ``key.deserializer.builder`` and ``value.deserializer.builder``.
    """

    _serde = "deserializer"

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
        pair = (message.key(), message.value())
        key, value = _converted(self._serdes, DAMAGED, message.topic() or "", message.headers(), pair, message)
        message.set_key(key)
        message.set_value(value)
        return message

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message[K, V]]:  # type: ignore[override]
        """Raise NotImplementedError: use ``poll``."""
        raise NotImplementedError
