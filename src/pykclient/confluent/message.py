"""Messages and partitions in confluent-kafka's shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from pykclient.confluent.constants import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE
from pykclient.confluent.kafka_error import KafkaError, error_of
from pykclient.system_time import monotonic_ms

K = TypeVar("K")
V = TypeVar("V")

NO_OFFSET = -1001
_NO_PARTITION = -1


class Message(Generic[K, V]):
    """A consumed or produced message, or an error: check ``error()`` before you use the rest.

    Programs make one for tests only.
    """

    __slots__ = (
        "_delivery_count",
        "_error",
        "_headers",
        "_key",
        "_latency",
        "_leader_epoch",
        "_offset",
        "_partition",
        "_timestamp",
        "_timestamp_type",
        "_topic",
        "_value",
    )

    def __init__(
        self,
        topic: str | None = None,
        partition: int = _NO_PARTITION,
        offset: int = NO_OFFSET,
        key: Any = None,
        value: Any = None,
        headers: Any = None,
        error: KafkaError | None = None,
        timestamp: tuple[int, int] | None = None,
        latency: float = -1.0,
        leader_epoch: int = -1,
        delivery_count: int = -1,
    ) -> None:
        self._topic = topic
        self._partition = _NO_PARTITION if partition < 0 else partition
        self._offset = NO_OFFSET if offset < 0 else offset
        self._key = key
        self._value = value
        self._headers = headers
        self._error = error
        if timestamp is None:
            self._timestamp_type, self._timestamp = TIMESTAMP_NOT_AVAILABLE, 0
        elif isinstance(timestamp, tuple) and len(timestamp) == 2:
            self._timestamp_type, self._timestamp = timestamp
        else:
            raise TypeError("timestamp must be a tuple of (int, int)")
        if not -0x8000 <= delivery_count <= 0x7FFF:
            raise OverflowError("delivery_count is outside the range of 16 bits")
        self._latency = -1.0 if latency < 0 else latency
        self._leader_epoch = max(-1, leader_epoch)
        self._delivery_count = -1 if delivery_count <= 0 else delivery_count

    def topic(self) -> str | None:
        """Return the name of the topic, or None."""
        return self._topic

    def partition(self) -> int | None:
        """Return the number of the partition, or None."""
        return None if self._partition < 0 else self._partition

    def offset(self) -> int | None:
        """Return the offset, or None if there is none, as after a failed delivery."""
        return None if self._offset < 0 else self._offset

    def key(self) -> Any:
        """Return the key, or None."""
        return self._key

    def value(self) -> Any:
        """Return the value, or None."""
        return self._value

    def deserialized_key(self) -> K | None:
        """Return the key; the same object as ``key()``."""
        key: K | None = self._key
        return key

    def deserialized_value(self) -> V | None:
        """Return the value; the same object as ``value()``."""
        value: V | None = self._value
        return value

    def headers(self) -> Any:
        """Return the headers as a list of pairs, or None if there are none."""
        return self._headers

    def error(self) -> KafkaError | None:
        """Return the error if this is one, otherwise None."""
        return self._error

    def timestamp(self) -> tuple[int, int]:
        """Return the type, one of ``TIMESTAMP_*``, and the time in milliseconds since the epoch."""
        return self._timestamp_type, self._timestamp

    def latency(self) -> float | None:
        """Return the seconds from ``produce`` to the acknowledgement, or None."""
        return None if self._latency < 0 else self._latency

    def leader_epoch(self) -> int | None:
        """Return the epoch of the partition's leader, or None."""
        return None if self._leader_epoch < 0 else self._leader_epoch

    def delivery_count(self) -> int | None:
        """Return how often a share group has delivered the message, from 1 on; None for other consumers."""
        return None if self._delivery_count <= 0 else self._delivery_count

    def set_headers(self, headers: Any) -> None:
        """Replace the headers."""
        self._headers = headers

    def set_key(self, key: Any) -> None:
        """Replace the key."""
        self._key = key

    def set_value(self, value: Any) -> None:
        """Replace the value."""
        self._value = value

    def set_topic(self, topic: Any) -> None:
        """Replace the topic."""
        self._topic = topic

    def set_error(self, error: KafkaError | None) -> None:
        """Replace the error."""
        self._error = error

    def __len__(self) -> int:
        return 0 if self._value is None else len(self._value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return self._compared() == other._compared()

    __hash__ = object.__hash__

    def _compared(self) -> tuple[Any, ...]:
        return (
            self._topic,
            self._partition,
            self._offset,
            self._key,
            self._value,
            self._headers,
            self._error,
            self._timestamp,
            self._leader_epoch,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Message, (
            self._topic,
            self._partition,
            self._offset,
            self._key,
            self._value,
            self._headers,
            self._error,
            (self._timestamp_type, self._timestamp),
            self._latency,
            self._leader_epoch,
            self._delivery_count,
        )


#: The timestamp types of Kafka's records, with an index of -1 for "none", as librdkafka numbers them.
_TIMESTAMP_TYPES = (TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE)


def consumed(record: Any) -> Message[bytes, bytes]:
    """Return the message for a ConsumerRecord."""
    message: Message[bytes, bytes] = Message.__new__(Message)
    message._topic = record.topic
    message._partition = record.partition
    message._offset = record.offset
    message._key = record.key
    message._value = record.value
    message._headers = list(record.headers) or None
    message._error = None
    kind = message._timestamp_type = _TIMESTAMP_TYPES[record.timestamp_type]
    message._timestamp = record.timestamp if kind else -1
    message._latency = -1.0
    epoch = record.leader_epoch
    message._leader_epoch = -1 if epoch is None else epoch
    message._delivery_count = -1
    return message


class Delivery(Message[bytes, bytes]):
    """A message on its way to the cluster.

    It is the ``on_delivery`` of its own record, and passes itself to ``done`` once its fate is known.
    """

    __slots__ = ("callback", "done", "started_ms")
    callback: Callable[[KafkaError | None, Message[bytes, bytes]], object] | None
    done: Callable[[Delivery], object]
    started_ms: int

    def __call__(self, error: Exception | None, metadata: Any) -> None:
        """Take the outcome. Thread: the sender's."""
        if self._error is not None:  # purged
            return
        self._partition = metadata.partition
        if error is None:
            self._offset = metadata.offset if metadata.offset >= 0 else NO_OFFSET
            timestamp = metadata.timestamp
            if timestamp is not None and timestamp >= 0:
                self._timestamp = timestamp
            self._latency = (monotonic_ms() - self.started_ms) / 1000
        else:
            self._error = delivery_error(error)
        self.done(self)


def delivery_error(error: Exception) -> KafkaError:
    """Return the KafkaError of a message that was not delivered."""
    from pykclient.errors import BrokerError, KafkaTimeoutError

    if isinstance(error, KafkaTimeoutError) and not isinstance(error, BrokerError):
        return error_of(error, KafkaError._MSG_TIMED_OUT)
    return error_of(error)
