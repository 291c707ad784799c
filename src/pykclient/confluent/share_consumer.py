"""The share consumer in confluent-kafka's shape (KIP-932)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pykclient import errors
from pykclient.config.consumer_config import NOT_IN_SHARE_GROUPS
from pykclient.confluent.client import FORKED, Client, built
from pykclient.confluent.configuration import CONSUMER, Configuration
from pykclient.confluent.constants import SHARE_ACKNOWLEDGE_TYPE_ACCEPT
from pykclient.confluent.events import deadline_of, remaining
from pykclient.confluent.kafka_error import (
    ConcurrentModificationException,
    IllegalStateException,
    KafkaError,
    KafkaException,
    error_of,
    exception_of,
    failure,
    polled_too_late,
)
from pykclient.confluent.message import Message, consumed, place_of
from pykclient.confluent.model import AcknowledgeType, Messages
from pykclient.confluent.topic_partition import TopicPartition
from pykclient.consumer.share.acknowledgements import AcknowledgeType as NativeType
from pykclient.consumer.share.kafka_share_consumer import KafkaShareConsumer
from pykclient.serde import MessageField, SerializationContext
from pykclient.system_time import monotonic_ms
from pykclient.types import ConsumerRecord

T = TypeVar("T")

_CLOSED = "Share consumer closed"
_BUSY = "ShareConsumer is not safe for multi-threaded access"


class ShareConsumer(Client):
    """A member of a share group, with confluent-kafka's methods.

    Create it with a dict of librdkafka's properties, ``group.id`` among them. Thread: one at a time.
    """

    _kind = "consumer"
    _inner: KafkaShareConsumer[Any, Any] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Create a share consumer.

        Raises:
            KafkaException: a property is unknown.
            TypeError: there is no dict, or a callback cannot be called.
            ValueError: there is no ``group.id``, there is an ``on_commit``, or a value cannot be used.
        """
        if self._inner is not None:
            raise RuntimeError("Share consumer already initialized")
        configuration = Configuration(CONSUMER, args, kwargs, is_share=True)
        if "on_commit" in configuration.callbacks:
            raise ValueError("on_commit is not supported: use set_acknowledgement_commit_callback")
        super().__init__(configuration)
        settings = {name: value for name, value in configuration.native().items() if name not in NOT_IN_SHARE_GROUPS}
        settings["share.acknowledgement.mode"] = configuration.text("share.acknowledgement.mode")
        settings["max.poll.records"] = configuration.number("max.poll.records")
        try:
            self._inner = built(KafkaShareConsumer[Any, Any], settings, "Failed to create share consumer: ")
        except KafkaException as error:
            if error.args[0].code() != KafkaError._INVALID_ARG:
                raise
            raise ValueError(error.args[0].str()) from error
        self._in_callback = False
        self._poll_interval_ms = configuration.number("max.poll.interval.ms")
        self._last_poll_ms = monotonic_ms()
        #: The records of the last poll, by topic, partition and offset.
        self._polled: dict[tuple[str, int, int], ConsumerRecord[Any, Any]] = {}
        #: Records that the inner consumer has returned and no poll has, because a callback or signal handler raised.
        self._fetched: dict[Any, list[ConsumerRecord[Any, Any]]] = {}
        self.begin_events()

    def subscribe(self, topics: list[str]) -> None:
        """Subscribe to topics, replacing any earlier subscription. An empty list unsubscribes.

        Raises:
            TypeError: ``topics`` is not a list of str.
            ValueError: a name is empty, or there twice.
            IllegalStateException: the consumer is closed.
        """
        inner = self.inner()
        if not isinstance(topics, list) or not all(isinstance(topic, str) for topic in topics):
            raise TypeError("expected list of topic unicode strings")
        if not topics:
            self.unsubscribe()
            return
        if not all(topics) or len(set(topics)) < len(topics):
            raise ValueError("Failed to set subscription: Local: Invalid argument or configuration")

        def subscribe() -> None:
            with inner._guard:  # whose own method refuses names that no topic can have
                inner._consumer.subscribe(topics)

        self._call(subscribe, "Failed to set subscription: ")
        self._last_poll_ms = monotonic_ms()

    def unsubscribe(self) -> None:
        """Leave the group.

        Raises:
            IllegalStateException: the consumer is closed.
        """
        self._call(self.inner().unsubscribe)
        self._fetched = {}

    def subscription(self) -> list[str]:
        """Return the topics subscribed to.

        Raises:
            IllegalStateException: the consumer is closed, or the callback for acknowledgements calls this.
        """
        inner = self.inner()
        if self._in_callback:
            raise IllegalStateException("subscription() cannot be called by the callback for acknowledgements")
        return sorted(self._call(inner.subscription) or ())

    def poll(self, timeout: float = -1) -> Messages:
        """Return messages as soon as there are some; none after ``timeout`` seconds.

        With implicit acknowledgement this accepts the messages of the last call.

        Raises:
            IllegalStateException: there is no subscription, or messages are not acknowledged.
            IllegalStateException: the consumer is closed.
            KafkaException: the last call was ``max.poll.interval.ms`` ago, so the consumer has left the group. The next
                call joins it again.
        """
        inner = self.inner()
        deadline = deadline_of(timeout)
        if not inner.subscription():
            raise IllegalStateException("Consumer is not subscribed to any topics")
        late_ms = monotonic_ms() - self._last_poll_ms - self._poll_interval_ms
        if late_ms > 0:
            self._last_poll_ms = monotonic_ms()
            raise KafkaException(polled_too_late(self._poll_interval_ms, late_ms))
        try:
            messages = self._polled_until(inner, deadline)
        finally:
            self._last_poll_ms = monotonic_ms()
        self._fetched = {}  # last: until here the next call returns them, and does not accept them
        return messages

    def _polled_until(self, inner: KafkaShareConsumer[Any, Any], deadline: float | None) -> Messages:
        while True:
            if self.looks:
                self.look()
            self.events.serve()
            left = remaining(deadline)
            try:
                if not self._fetched:
                    self._call(lambda left=left: self._fetch(inner, int(left * 1000)))  # type: ignore[misc]
            except KafkaException as error:
                return Messages([Message(error=error.args[0])])
            self._raise_callback_error()
            if self._fetched or left <= 0:
                found = [record for records in self._fetched.values() for record in records]
                self._polled = {(record.topic, record.partition, record.offset): record for record in found}
                return Messages._from_list([consumed(record) for record in found])

    def _fetch(self, inner: KafkaShareConsumer[Any, Any], timeout_ms: int) -> None:
        self._fetched = inner.poll(timeout_ms)

    def acknowledge(self, message: Message[Any, Any], ack_type: AcknowledgeType | int = AcknowledgeType.ACCEPT) -> None:
        """Decide about a message of the last poll.

        Raises:
            IllegalStateException: the acknowledgement is implicit, or the message is not one of the last poll.
            TypeError: this is no message.
            ValueError: the message has no topic or offset, or there is no such type.
            IllegalStateException: the consumer is closed.
        """
        self.ensure_open()
        if not isinstance(message, Message):
            raise TypeError("expected confluent_kafka.cimpl.Message")
        self.acknowledge_offset(*place_of(message), ack_type)

    def acknowledge_offset(
        self, topic: str, partition: int, offset: int, ack_type: AcknowledgeType | int = SHARE_ACKNOWLEDGE_TYPE_ACCEPT
    ) -> None:
        """Decide about the message at an offset; see ``acknowledge``.

        Raises:
            ValueError: no message has this place, or there is no such type.
        """
        inner = self.inner()
        if not isinstance(topic, str):
            raise TypeError(f"argument 1 must be str, not {type(topic).__name__}")
        for number in (partition, offset, ack_type):
            if not isinstance(number, int):
                raise TypeError(f"{type(number).__name__!r} object cannot be interpreted as an integer")
        if not topic or partition < 0 or offset < 0:
            raise ValueError("Failed to acknowledge: a message has a topic, a partition and an offset")
        try:
            kind = NativeType(AcknowledgeType(ack_type).value)
        except ValueError:
            raise ValueError(f"Failed to acknowledge: invalid type {ack_type}") from None
        record = self._polled.get((topic, partition, offset))
        prefix = "Failed to acknowledge: "
        if record is None:
            self._call(lambda: inner.acknowledge(topic, partition, offset, kind), prefix)
        else:
            self._call(lambda: inner.acknowledge(record, kind), prefix)

    def commit_sync(self, timeout: float = 60) -> dict[TopicPartition, KafkaException | None]:
        """Send the acknowledgements; return the error of each partition, or None.

        Raises:
            IllegalStateException: the consumer is closed.
        """
        inner = self.inner()
        deadline = deadline_of(timeout)
        limit = None if deadline is None else max(0, int(timeout * 1000))
        found = self._call(lambda: inner.commit_sync(limit), "Commit failed: ")
        self._raise_callback_error()
        return {
            TopicPartition(tip.topic, tip.partition): None if error is None else exception_of(error)
            for tip, error in found.items()
        }

    def commit_async(self) -> None:
        """Send the acknowledgements without waiting.

        Raises:
            IllegalStateException: the consumer is closed.
        """
        self._call(self.inner().commit_async, "Commit failed: ")

    def set_acknowledgement_commit_callback(
        self, callback: Callable[[dict[TopicPartition, set[int]], KafkaException | None], object] | None
    ) -> None:
        """Call ``callback(offsets, exception)`` inside later calls, when brokers have answered acknowledgements.

        Raises:
            TypeError: ``callback`` cannot be called.
            IllegalStateException: the consumer is closed.
        """
        inner = self.inner()
        if callback is None:
            self._call(lambda: inner.set_acknowledgement_commit_callback(None))
            return
        if not callable(callback):
            raise TypeError("callback must be callable or None")

        def tell(offsets: dict[Any, set[int]], error: errors.KafkaError | None) -> None:
            shown = {TopicPartition(tip.topic, tip.partition): set(places) for tip, places in offsets.items()}
            self._in_callback = True
            try:
                callback(shown, None if error is None else exception_of(error))
            except BaseException as raised:  # noqa: BLE001 - raised by the call that this runs in
                self._raised = raised
            finally:
                self._in_callback = False

        self._call(lambda: inner.set_acknowledgement_commit_callback(tell))

    def inner(self) -> KafkaShareConsumer[Any, Any]:
        """Return the consumer that does the work.

        Raises:
            IllegalStateException: the consumer is closed.
            KafkaException: it was made before ``fork()``.
        """
        if self._inner is None:
            raise IllegalStateException(_CLOSED)
        if self.is_forked:
            raise failure(KafkaError._STATE, FORKED)
        return self._inner

    def network_client(self) -> Any:
        return None if self._inner is None else self._inner._consumer.components.client.network

    def statistics(self) -> str:
        return "{}"

    def ensure_open(self) -> None:
        self.inner()

    def close(self) -> None:
        """Send the acknowledgements, leave the group, and release all resources. A second call does nothing.

        Raises:
            IllegalStateException: the callback for acknowledgements calls this. Nothing is closed.
            ConcurrentModificationException: another thread uses the consumer. Nothing is closed.
        """
        inner = self._inner
        if inner is None:
            return
        try:
            self._call(inner.close)
            self._error_cb = None  # as in Consumer.close
            self.events.serve()
        finally:
            if inner._guard.closed:  # not in a callback, or while another thread polls
                self._inner = None
                self.release()
        self._raise_callback_error()

    def _call(self, call: Callable[[], T], prefix: str = "") -> T:
        try:
            return call()
        except errors.ConcurrentModificationError as error:
            raise ConcurrentModificationException(_BUSY) from error
        except errors.IllegalStateError as error:
            raise IllegalStateException(f"{prefix}{error}") from error
        except errors.KafkaError as error:
            raise KafkaException(error_of(error, prefix=prefix)) from error


class DeserializingShareConsumer(ShareConsumer):
    """A share consumer whose ``poll`` deserializes keys and values.

    The configuration has ``key.deserializer`` and ``value.deserializer``, which are called with the bytes and a
    SerializationContext. A message that they refuse keeps its bytes and gets an ``error()``.
    """

    def __init__(self, conf: dict[str, Any]) -> None:
        rest = dict(conf)
        self._key_deserializer = rest.pop("key.deserializer", None)
        self._value_deserializer = rest.pop("value.deserializer", None)
        super().__init__(rest)

    def poll(self, timeout: float = -1) -> Messages:
        """Return messages with their keys and values deserialized; see ShareConsumer."""
        messages = super().poll(timeout)
        for message in messages:
            if message.error() is None:
                self._deserialize(message)
        return messages

    def _deserialize(self, message: Message[Any, Any]) -> None:
        topic = message.topic()
        if topic is None:
            raise TypeError("Message topic is None")
        context = SerializationContext(topic, MessageField.KEY, message.headers())
        key, value = message.key(), message.value()
        code = KafkaError._KEY_DESERIALIZATION
        try:
            if self._key_deserializer is not None:
                key = self._key_deserializer(key, context)
            code, context.field = KafkaError._VALUE_DESERIALIZATION, MessageField.VALUE
            if self._value_deserializer is not None:
                value = self._value_deserializer(value, context)
        except Exception as error:  # noqa: BLE001 - the message has it
            message.set_error(KafkaError(code, str(error)))
            return
        message.set_key(key)
        message.set_value(value)
