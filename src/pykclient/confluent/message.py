"""Messages and partitions in confluent-kafka's shape."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Lock
from typing import Any, Generic, TypeVar

from pykclient.confluent.constants import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE
from pykclient.confluent.events import deadline_of, remaining
from pykclient.confluent.kafka_error import KafkaError, error_of, failure
from pykclient.consumer_record import ConsumerRecord
from pykclient.implementation import use_compiled
from pykclient.producer.future import FutureRecordMetadata, ProduceRequestResult
from pykclient.producer.outbox import SharedDelivery
from pykclient.producer.send import SendState as SendState  # the compiled form uses its compiled form
from pykclient.system_time import monotonic_ms

K = TypeVar("K")
V = TypeVar("V")

NO_OFFSET = -1001
NO_PARTITION = -1

PRODUCER_CLOSED = "Producer has been closed"
UNABLE_TO_PRODUCE = "Unable to produce message: "


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
        partition: int = NO_PARTITION,
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
        self._partition = partition if partition >= 0 else None
        self._offset = offset if offset >= 0 else None
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
        self._latency = latency if latency >= 0 else None
        self._leader_epoch = leader_epoch if leader_epoch >= 0 else None
        self._delivery_count = delivery_count if delivery_count > 0 else None

    def topic(self) -> str | None:
        """Return the name of the topic, or None."""
        return self._topic

    def partition(self) -> int | None:
        """Return the number of the partition, or None."""
        return self._partition

    def offset(self) -> int | None:
        """Return the offset, or None if there is none, as after a failed delivery."""
        return self._offset

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
        return self._latency

    def leader_epoch(self) -> int | None:
        """Return the epoch of the partition's leader, or None."""
        return self._leader_epoch

    def delivery_count(self) -> int | None:
        """Return how often a share group has delivered the message, from 1 on; None for other consumers."""
        return self._delivery_count

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
            NO_PARTITION if self._partition is None else self._partition,
            NO_OFFSET if self._offset is None else self._offset,
            self._key,
            self._value,
            self._headers,
            self._error,
            (self._timestamp_type, self._timestamp),
            -1.0 if self._latency is None else self._latency,
            -1 if self._leader_epoch is None else self._leader_epoch,
            -1 if self._delivery_count is None else self._delivery_count,
        )


#: The timestamp types of Kafka's records, with an index of -1 for "none", as librdkafka numbers them.
TIMESTAMP_TYPES = (TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE)


def consumed(record: ConsumerRecord[Any, Any]) -> Message[bytes, bytes]:
    """Return the message for a ConsumerRecord."""
    message: Message[bytes, bytes] = Message.__new__(Message)
    message._topic = record.topic
    message._partition = record.partition
    message._offset = record.offset
    message._key = record.key
    message._value = record.value
    message._headers = list(record.headers) or None
    message._error = None
    kind = message._timestamp_type = TIMESTAMP_TYPES[record.timestamp_type]
    message._timestamp = record.timestamp if kind else -1
    message._latency = None
    message._leader_epoch = record.leader_epoch
    message._delivery_count = record.delivery_count
    return message


def place_of(message: Message[Any, Any]) -> tuple[str, int, int]:
    """Return the topic, partition and offset, with an empty topic and negative numbers for what is missing."""
    partition, offset = message.partition(), message.offset()
    return (
        message.topic() or "",
        NO_PARTITION if partition is None else partition,
        NO_OFFSET if offset is None else offset,
    )


# --- consuming --------------------------------------------------------------------------------------------------------


class ConsumingState:
    """The part of a Consumer through which its messages pass. Thread: any."""

    _inner: Any = None
    #: Guards ``_at``: calls for messages that are at hand do not wait for their turn. The compiled form needs no lock.
    _hand: Lock
    #: Records of one partition that were fetched, and the place of the next one to hand out.
    _records: list[ConsumerRecord[Any, Any]]
    _at: int
    #: The times, in monotonic milliseconds, of the next work that is due, and of the last call for messages.
    _next_tend_ms: int
    _last_poll_ms: int
    _in_callback: bool

    def poll(self, timeout: float = -1) -> Message[bytes, bytes] | None:
        """Return a message; wait up to ``timeout`` seconds for one, without a limit if it is negative.

        Returns None if none arrives. A message with an ``error()`` is an error or an event. Callbacks run inside this
        call, and their exceptions are raised.

        Raises:
            RuntimeError: the consumer is closed.
            KafkaException: the consumer has failed permanently.
        """
        now_ms = monotonic_ms()
        if self._inner is None:  # closed, or never made
            return self._poll(timeout, now_ms)
        record = None
        try:
            with self._hand:
                if self._at < len(self._records) and now_ms < self._next_tend_ms and not self._in_callback:
                    self._last_poll_ms = now_ms
                    record = self._records[self._at]
                    self._at += 1
            if record is not None:
                message = consumed(record)
        except BaseException:
            # A signal handler has raised: the next call returns the message, unless another thread has gone on.
            with self._hand:
                if record is not None and self._at and self._records[self._at - 1] is record:
                    self._at -= 1
            raise
        return self._poll(timeout, now_ms) if record is None else message

    def _poll(self, timeout: float, now_ms: int) -> Message[bytes, bytes] | None:
        raise NotImplementedError

    def _hand_out_current(self, found: list[Message[bytes, bytes]], wanted: int) -> None:
        """Add the messages of the records at hand to ``found``, until it has ``wanted``."""
        with self._hand:
            records = self._records
            begin = self._at
            end = max(begin, min(len(records), begin + wanted - len(found)))
            messages = [consumed(records[number]) for number in range(begin, end)]
            found += messages  # without a call between this and the next line, as a signal handler may raise in calls
            self._at = end


# --- producing --------------------------------------------------------------------------------------------------------


class Delivery(SharedDelivery):
    """A message that is being sent.

    It is the ``on_delivery`` of its own record, and that of a batch's first record takes those of the others: so the
    sender does nothing for each of them, and passes them to their producer's reports together. The application gets a
    Message, which is made when it is told: the compiled form hides deliveries from the garbage collector, as there may
    be a hundred thousand.
    """

    __slots__ = (
        "callback",
        "error",
        "followers",
        "headers",
        "key",
        "latency_ms",
        "offset",
        "partition",
        "reports",
        "started_ms",
        "timestamp_ms",
        "topic",
        "value",
    )

    def __init__(
        self,
        reports: Reports,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: list[tuple[str, bytes | None]] | None,
        partition: int,
        timestamp_ms: int,
        callback: Callable[[KafkaError | None, Message[bytes, bytes]], object] | None,
    ) -> None:
        self.reports = reports
        self.topic = topic
        self.value = value
        self.key = key
        self.headers = headers
        self.partition = partition
        self.timestamp_ms = timestamp_ms
        self.callback = callback
        self.started_ms = monotonic_ms()
        self.latency_ms = -1
        self.offset = NO_OFFSET
        self.error: KafkaError | None = None
        #: The messages of the next records of the batch, if this is the one whose ``on_delivery`` the batch has.
        self.followers: list[Delivery] = []

    def message(self) -> Message[bytes, bytes]:
        """Return the message that the application is given."""
        place, timestamp = (self.topic, self.partition, self.offset), (TIMESTAMP_CREATE_TIME, self.timestamp_ms)
        return Message(*place, self.key, self.value, self.headers, self.error, timestamp, self.latency_ms / 1000)

    def __call__(self, error: Exception | None, metadata: Any) -> None:
        """Take the outcome of a record that is not in a batch. Thread: any."""
        if self.settle(error, metadata.partition, metadata.offset, metadata.timestamp, monotonic_ms()):
            self.reports.add([self])

    def takes(self, on_delivery: Any, timestamp_ms: int) -> bool:
        if type(on_delivery) is not type(self) or on_delivery.reports is not self.reports:
            return False
        on_delivery.timestamp_ms = timestamp_ms
        self.followers.append(on_delivery)
        return True

    def after(self, count: int) -> Delivery:
        first = self.followers[count - 1]
        first.followers = self.followers[count:]
        return first

    def take(self, future: FutureRecordMetadata) -> None:
        result, index = future.locate()
        if future.timestamp_ms >= 0:
            self.timestamp_ms = future.timestamp_ms
        deliveries, self.followers = [self, *self.followers], []
        # The followers from ``after`` on are in another batch.
        self.reports.add(deliveries[: max(1, result.record_count - index)], result, index)

    def settle(self, error: Exception | None, partition: int, offset: int, timestamp_ms: int, now_ms: int) -> bool:
        """Note the outcome; return False if there was one before."""
        if self.error is not None:
            return False
        self.partition = partition
        if error is None:
            self.offset = offset
            if timestamp_ms >= 0:
                self.timestamp_ms = timestamp_ms
            self.latency_ms = now_ms - self.started_ms
        else:
            self.error = self.reports.error_of(error)
        return True


class PurgedError(Exception):
    """The error of a message that ``purge`` has given up."""

    def __init__(self, code: int) -> None:
        super().__init__(KafkaError(code).str())
        self.code = code


def delivery_error(error: Exception) -> KafkaError:
    """Return the KafkaError of a message that was not delivered."""
    from pykclient.errors import BrokerError, KafkaTimeoutError

    if isinstance(error, PurgedError):
        return error_of(error, error.code)
    if isinstance(error, KafkaTimeoutError) and not isinstance(error, BrokerError):
        return error_of(error, KafkaError._MSG_TIMED_OUT)
    return error_of(error)


class Outcome:
    """The outcome of adjacent messages of a batch: those from ``at`` on still have to be reported. Thread: owner."""

    __slots__ = ("at", "deliveries", "first_index", "is_taken", "now_ms", "result")

    def __init__(self, deliveries: list[Delivery], result: ProduceRequestResult | None, first_index: int) -> None:
        self.deliveries = deliveries
        self.result = result
        self.first_index = first_index
        self.now_ms = monotonic_ms()
        self.at = 0
        #: True while a call reports these messages; other threads and callbacks leave them to it.
        self.is_taken = False


class Reports:
    """The messages of a producer that are not reported yet: their number and bytes, and those whose fate is known.

    As in librdkafka, the bytes of a message are those of its value. Thread: any.
    """

    def __init__(
        self,
        limit: int,
        limit_bytes: int,
        errors_only: bool,
        wake: Callable[[], object],
        error_of: Callable[[Exception], KafkaError],
    ) -> None:
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._errors_only = errors_only
        self._wake = wake
        self.error_of = error_of
        #: The messages of a batch each, in order.
        self._queue: deque[Outcome] = deque()
        self._unreported: set[Delivery] = set()
        self._unreported_bytes = 0
        self._lock = Lock()  # guards: _unreported, _unreported_bytes

    def admit(self, delivery: Delivery) -> bool:
        """Count a message; return False if there are too many messages or bytes."""
        size = 0 if delivery.value is None else len(delivery.value)
        with self._lock:
            if len(self._unreported) >= self._limit or self._unreported_bytes + size > self._limit_bytes:
                return False
            self._unreported_bytes += size
            self._unreported.add(delivery)  # last, as a signal handler may raise right after it
            return True

    def forget(self, delivery: Delivery) -> bool:
        """Do not count a message that is not sent after all, or is reported now; return False if it is not counted."""
        with self._lock:
            if delivery not in self._unreported:
                return False
            if delivery.value is not None:
                self._unreported_bytes -= len(delivery.value)
            self._unreported.remove(delivery)  # last, as in admit()
            return True

    def unreported(self) -> int:
        """Return the number of messages that were not reported yet."""
        return len(self._unreported)

    def unreported_bytes(self) -> int:
        """Return the bytes of the messages that were not reported yet."""
        return self._unreported_bytes

    def add(self, deliveries: list[Delivery], result: ProduceRequestResult | None = None, first_index: int = 0) -> None:
        """Add messages whose fate is known: the records of ``result`` from ``first_index`` on, if there is one."""
        self._queue.append(Outcome(deliveries, result, first_index))
        self._wake()

    def __len__(self) -> int:
        return len(self._queue)

    def serve(self) -> int:
        """Call back for the messages whose fate is known now; return their number.

        An exception of a callback ends this, and is raised. A callback may call this, too.
        """
        queue = self._queue
        served = 0
        for outcome in queue.copy():
            if outcome.is_taken:
                continue
            outcome.is_taken = True
            try:
                served += self._serve_batch(outcome)
            finally:
                outcome.is_taken = False
            with suppress(ValueError):  # another thread has removed it
                queue.remove(outcome)  # last: an exception at any place loses no report
        return served

    def _serve_batch(self, outcome: Outcome) -> int:
        deliveries, result = outcome.deliveries, outcome.result
        served, count = 0, len(deliveries)
        while outcome.at < count:
            delivery = deliveries[outcome.at]
            index = outcome.first_index + outcome.at
            if result is not None:
                delivery.settle(
                    None if result.error_for is None else result.error_for(index),
                    result.topic_partition.partition,
                    result.base_offset if result.base_offset < 0 else result.base_offset + index,
                    result.log_append_time_ms,
                    outcome.now_ms,
                )
            is_ours = self.forget(delivery)
            outcome.at = index - outcome.first_index + 1
            if is_ours:  # not reported before, and no other thread reports it now
                served += 1
                callback, delivery.callback = delivery.callback, None
                if callback is not None and not (self._errors_only and delivery.error is None):
                    callback(delivery.error, delivery.message())
        return served


class ProducingState:
    """The part of a Producer through which its messages pass. Thread: any."""

    #: The KafkaProducer; None once this one is closed.
    _inner: Any = None
    _reports: Reports
    _event_queue: deque[Callable[[], object]]
    #: The number of partitions of topics, as of the last second.
    _counts: dict[str, int]
    _partitioner: Callable[[bytes | None, int], int | None]
    #: The inner producer chooses the partitions of messages without a key.
    _keyless_stick: bool
    _default_callback: Callable[..., object] | None
    _max_size: int
    _next_tend_ms: int

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        callback: Callable[..., object] | None = None,
        on_delivery: Callable[..., object] | None = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        """Queue a message, without waiting for anything.

        ``callback``, or ``on_delivery``, is called as ``callback(error, message)`` by a later ``poll`` or ``flush``.
        ``timestamp`` is in milliseconds since the epoch; 0 means now. ``headers`` is a dict or a list of pairs.

        Raises:
            BufferError: the queue is full (``queue.buffering.max.messages`` or ``max.kbytes``): call ``poll`` first.
            KafkaException: the message is too large, or cannot be part of a transaction now.
            TypeError: an argument has the wrong type.
            RuntimeError: the producer is closed.
        """
        if type(topic) is not str:
            raise TypeError(f"argument 1 must be str, not {type(topic).__name__}")
        if type(value) is not bytes and value is not None:
            value = as_bytes(value)
        if type(key) is not bytes and key is not None:
            key = as_bytes(key)
        for number in (partition, timestamp):
            if not isinstance(number, int):
                raise TypeError(f"{type(number).__name__!r} object cannot be interpreted as an integer")
        if not -(2**31) <= partition < 2**31:
            raise OverflowError(f"signed integer is {'less than minimum' if partition < 0 else 'greater than maximum'}")
        if not -(2**63) <= timestamp < 2**63:
            raise OverflowError("Python int too large to convert to C long")
        pairs = None if headers is None else header_pairs(headers)
        if self._inner is None:
            raise RuntimeError(PRODUCER_CLOSED)
        size = (0 if value is None else len(value)) + (0 if key is None else len(key))
        if size > self._max_size:
            raise failure(KafkaError.MSG_SIZE_TOO_LARGE, f"{UNABLE_TO_PRODUCE}Broker: Message size too large")
        called = callback or on_delivery or self._default_callback
        delivery = Delivery(self._reports, topic, value, key, pairs, partition, timestamp, called)
        try:
            if not self._reports.admit(delivery):
                raise BufferError("Local: Queue full")
            partitions = self._counts.get(topic)
            if partitions is None:
                self._produce_to_unknown(delivery)
                return
            self._hand_over(delivery, partitions)
        except BaseException:
            self._refused_or_interrupted(delivery)
            raise

    def _hand_over(self, delivery: Delivery, partitions: int) -> None:
        """Send a message to a topic with this number of partitions."""
        inner, timestamp_ms = self._inner, delivery.timestamp_ms
        try:
            if inner is None:
                raise RuntimeError(PRODUCER_CLOSED)
            chosen: int | None = delivery.partition
            if delivery.partition == NO_PARTITION:
                keyless = delivery.key is None and self._keyless_stick
                chosen = None if keyless else self._partitioner(delivery.key, partitions)
            elif not 0 <= delivery.partition < partitions:
                raise failure(KafkaError._UNKNOWN_PARTITION, f"{UNABLE_TO_PRODUCE}Local: Unknown partition")
            timestamp = timestamp_ms if timestamp_ms > 0 else None
            inner.send(delivery.topic, delivery.value, delivery.key, delivery.headers, chosen, timestamp, delivery)
        except BaseException as error:  # noqa: BLE001 - raised again if it is not the cluster's
            self._not_sent(delivery, error)

    def _produce_to_unknown(self, delivery: Delivery) -> None:
        """Queue a message to a topic whose metadata is missing."""
        raise NotImplementedError

    def _not_sent(self, delivery: Delivery, error: BaseException) -> None:
        """Handle an error of ``_hand_over``, or raise it."""
        raise NotImplementedError

    def _refused_or_interrupted(self, delivery: Delivery) -> None:
        """Do not count a message whose ``produce`` raises, also if it has reached a batch."""
        raise NotImplementedError

    def poll(self, timeout: float = -1) -> int:
        """Call the callbacks of what has happened; wait up to ``timeout`` seconds if nothing has.

        A negative timeout waits without a limit. Returns the number of events. An exception of a callback is raised.

        Raises:
            RuntimeError: the producer is closed.
        """
        deadline = deadline_of(timeout)
        while True:
            if self._inner is None:
                raise RuntimeError(PRODUCER_CLOSED)
            served = self._serve()
            if served:
                return served
            left = remaining(deadline)
            if left <= 0:
                return 0
            self._wait(left)

    def _serve(self) -> int:
        """Do what is due, and call back for all reports and events that wait; return their number."""
        if self._event_queue or monotonic_ms() >= self._next_tend_ms:
            return self._tend() + self._reports.serve()
        return self._reports.serve()

    def _tend(self) -> int:
        """Perform periodic work, and serve the events; return their number."""
        raise NotImplementedError

    def _wait(self, timeout: float) -> None:
        """Wait for reports and events."""
        raise NotImplementedError


def as_bytes(value: Any) -> bytes:
    """Return the bytes of a key or value.

    Raises:
        TypeError: it has no bytes, or they may change.
    """
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, bytearray):
        raise TypeError("argument 2 must be read-only bytes-like object, not bytearray")
    try:
        return bytes(memoryview(value))
    except TypeError:
        raise TypeError(f"a bytes-like object is required, not {type(value).__name__!r}") from None


def header_pairs(headers: Any) -> list[tuple[str, bytes | None]]:
    """Return a dict or a list of headers as pairs of str and bytes.

    Raises:
        TypeError: they are neither, or a header is no pair of these types.
        UnicodeDecodeError: a name of bytes is not UTF-8.
    """
    if isinstance(headers, dict):
        pairs: Iterable[Any] = headers.items()
    elif isinstance(headers, list):
        pairs = headers
    else:
        raise TypeError(f"expected headers to be dict or list of (key, value) tuples, not {type(headers).__name__}")
    checked: list[tuple[str, bytes | None]] = []
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError("Headers are expected to be a list of (key, value) tuples")
        name, value = pair
        if isinstance(name, bytes):
            name = name.decode()
        elif not isinstance(name, str):
            raise TypeError(f"expected header key to be a unicode string, not {type(name).__name__}")
        if isinstance(value, str):
            value = value.encode()
        elif value is not None and not isinstance(value, bytes):
            raise TypeError(f"expected header value to be None, binary, or unicode string, not {type(value).__name__}")
        checked.append((name, value))
    return checked


use_compiled(__name__)
