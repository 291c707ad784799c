"""The producer in confluent-kafka's shape."""

from __future__ import annotations

import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from itertools import count
from types import TracebackType
from typing import Any, Self

from pykclient import errors, topic_names
from pykclient.confluent.client import NO_LIMIT_MS, Client, built
from pykclient.confluent.configuration import PRODUCER, Configuration
from pykclient.confluent.constants import TIMESTAMP_CREATE_TIME
from pykclient.confluent.events import deadline_of, monotonic, remaining
from pykclient.confluent.group_metadata import group_metadata_of
from pykclient.confluent.kafka_error import KafkaError, KafkaException, code_of, error_of, failure
from pykclient.confluent.message import NO_OFFSET, Delivery
from pykclient.confluent.partitioners import PARTITIONERS
from pykclient.confluent.topic_partition import TopicPartition
from pykclient.producer.kafka_producer import KafkaProducer
from pykclient.system_time import monotonic_ms, wall_ms
from pykclient.types import OffsetAndMetadata
from pykclient.types import TopicPartition as NativeTopicPartition

_CLOSED = "Producer has been closed"
_UNABLE = "Unable to produce message: "

#: The longest wait of ``send`` for metadata or memory. Topics whose metadata is missing for longer have a backlog.
_BLOCK_MS = 100
#: The pause between two questions about the topics of the backlog.
_PAUSE_S = 0.02
#: How often the numbers of partitions are looked up anew.
_COUNTS_S = 1.0
#: Reports that are served before their number is deducted from the length of the queue.
_REPORTS = 64


class Producer(Client):
    """A producer with confluent-kafka's methods: ``produce`` returns at once, ``poll`` and ``flush`` call back.

    Create it with a dict of librdkafka's properties. Properties and defaults are librdkafka's; see
    docs/from-confluent.md. Thread: any.
    """

    _kind = "producer"
    _inner: KafkaProducer[Any, Any] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Create a producer.

        Raises:
            KafkaException: a property is unknown, or has a wrong value.
            TypeError: there is no dict, or a callback cannot be called.
        """
        configuration = Configuration(PRODUCER, args, kwargs)
        super().__init__(configuration)
        settings = configuration.native()
        if "oauth_cb" in configuration.callbacks:
            settings["sasl.oauth.token.provider"] = configuration.callbacks["oauth_cb"]
            settings["sasl.oauthbearer.config"] = configuration.text("sasl.oauthbearer.config")
        settings["max.block.ms"] = _BLOCK_MS
        self._inner = built(KafkaProducer[Any, Any], settings, "Failed to create producer: ")
        self._lock = threading.Lock()  # guards: _served, and the backlog
        self._next: Callable[[], int] = count(1).__next__
        self._counted = 0
        self._served = 0
        self._reports: deque[Delivery] = deque()
        self._default_callback = configuration.callbacks.get("on_delivery")
        self._errors_only = configuration.flag("delivery.report.only.error")
        self._limit = configuration.number("queue.buffering.max.messages") or 2**62
        self._max_size = configuration.number("message.max.bytes")
        self._timeout_ms = configuration.number("message.timeout.ms") or NO_LIMIT_MS
        self._partition = PARTITIONERS[configuration.text("partitioner")]
        self._initializing = False
        self._transactional = bool(configuration.text("transactional.id"))
        #: The number of partitions of topics, as of the last second.
        self._counts: dict[str, int] = {}
        self._next_counts = 0.0
        #: Messages of topics without metadata, in order; the thread that resolves them.
        self._backlog: dict[str, deque[Delivery]] = {}
        self._resolver: threading.Thread | None = None

    # --- producing -------------------------------------------------------------------------------------------------

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
            BufferError: the queue is full (``queue.buffering.max.messages``): call ``poll`` and try again.
            KafkaException: the message is too large, or cannot be part of a transaction now.
            TypeError: an argument has the wrong type.
            RuntimeError: the producer is closed.
        """
        if type(topic) is not str:
            raise TypeError(f"argument 1 must be str, not {type(topic).__name__}")
        if type(value) is not bytes and value is not None:
            value = _as_bytes(value)
        if type(key) is not bytes and key is not None:
            key = _as_bytes(key)
        pairs = None if headers is None else _header_pairs(headers)
        inner = self._inner
        if inner is None:
            raise RuntimeError(_CLOSED)
        size = (0 if value is None else len(value)) + (0 if key is None else len(key))
        if size > self._max_size:
            raise failure(KafkaError.MSG_SIZE_TOO_LARGE, f"{_UNABLE}Broker: Message size too large")
        number = self._next()
        self._counted = number
        if number - self._served > self._limit:
            self._forget()
            raise BufferError("Local: Queue full")
        delivery = Delivery.__new__(Delivery)
        delivery._topic = topic
        delivery._key = key
        delivery._value = value
        delivery._headers = pairs
        delivery._error = None
        delivery._offset = NO_OFFSET
        delivery._partition = partition
        delivery._timestamp_type = TIMESTAMP_CREATE_TIME
        delivery._timestamp = timestamp
        delivery._latency = -1.0
        delivery._leader_epoch = -1
        delivery._delivery_count = -1
        delivery.callback = callback or on_delivery or self._default_callback
        delivery.done = self._done
        delivery.started_ms = monotonic_ms()
        partitions = self._counts.get(topic)
        if partitions is None:
            self._produce_to_unknown(delivery)
        else:
            self._send(inner, delivery, partitions)

    def _send(self, inner: KafkaProducer[Any, Any], delivery: Delivery, partitions: int) -> None:
        """Hand a message over to the inner producer."""
        partition: int | None = delivery._partition
        if partition is not None and partition < 0:
            partition = self._partition(delivery._key, partitions)
        elif partition is not None and partition >= partitions:
            self._forget()
            raise failure(KafkaError._UNKNOWN_PARTITION, f"{_UNABLE}Local: Unknown partition")
        timestamp = delivery._timestamp
        try:
            inner.send(
                delivery._topic,  # type: ignore[arg-type]
                delivery._value,
                delivery._key,
                delivery._headers,
                partition,
                timestamp if timestamp > 0 else None,
                delivery,
            )
        except errors.KafkaError as error:
            self._not_sent(delivery, error)
        except BaseException:
            self._forget()
            raise

    def _not_sent(self, delivery: Delivery, error: errors.KafkaError) -> None:
        """Handle an error of ``send``, by the backlog if the topic's metadata is missing."""
        if isinstance(error, errors.BufferExhaustedError):
            self._forget()
            raise BufferError("Local: Queue full") from error  # noqa: TRY004 - confluent-kafka's
        if isinstance(error, errors.KafkaTimeoutError):
            self._counts.pop(delivery._topic or "", None)
            self._produce_to_unknown(delivery)
            return
        self._forget()
        if self._inner is None:
            raise RuntimeError(_CLOSED) from error
        raise _transaction_failure(error, _UNABLE) from error

    def _produce_to_unknown(self, delivery: Delivery) -> None:
        """Send the message if its topic is known by now; otherwise add it to the backlog."""
        topic = delivery._topic or ""
        try:
            topic_names.validate(topic)
        except errors.InvalidTopicError as error:
            self._forget()
            raise failure(KafkaError._INVALID_ARG, f"{_UNABLE}Local: Invalid argument or configuration") from error
        with self._lock:
            inner = self._inner
            if inner is None:
                raise RuntimeError(_CLOSED)
            waiting = self._backlog.get(topic)
            partitions = self._counts.get(topic)
            if partitions is None:
                if waiting is None:
                    waiting = self._backlog[topic] = deque()
                waiting.append(delivery)
                if self._resolver is None:
                    self._resolver = threading.Thread(target=self._resolve, name=f"{self.name} metadata", daemon=True)
                    self._resolver.start()
                return
        self._send(inner, delivery, partitions)

    def _resolve(self) -> None:
        """Ask for the metadata of the topics of the backlog until there is none. Thread: the resolver's."""
        while True:
            with self._lock:
                topics = list(self._backlog)
                inner = self._inner
                if not topics or inner is None:
                    self._resolver = None
                    return
            for topic in topics:
                self._resolve_topic(inner, topic)
            threading.Event().wait(_PAUSE_S)

    def _resolve_topic(self, inner: KafkaProducer[Any, Any], topic: str) -> None:
        failed: list[tuple[Delivery, KafkaError]] = []
        partitions = 0
        fatal: KafkaError | None = None
        try:
            partitions = len(inner.partitions_for(topic))
        except errors.KafkaTimeoutError:
            pass
        except errors.KafkaError as error:
            fatal = error_of(error)
        with self._lock:
            waiting = self._backlog[topic]
            if partitions:
                while waiting:
                    delivery = waiting.popleft()
                    try:
                        self._send_resolved(inner, delivery, partitions)
                    except (errors.KafkaError, KafkaException, BufferError) as error:
                        failed.append((delivery, _error_in(error)))
                self._counts[topic] = partitions
            else:
                expired_ms = monotonic_ms() - self._timeout_ms
                while waiting and (fatal is not None or waiting[0].started_ms <= expired_ms):
                    delivery = waiting.popleft()
                    failed.append((delivery, fatal or KafkaError(KafkaError._MSG_TIMED_OUT)))
            if not waiting:
                del self._backlog[topic]
        for delivery, reason in failed:
            delivery._error = reason
            self._done(delivery)

    def _send_resolved(self, inner: KafkaProducer[Any, Any], delivery: Delivery, partitions: int) -> None:
        partition: int | None = delivery._partition
        if partition is not None and partition < 0:
            partition = self._partition(delivery._key, partitions)
        elif partition is not None and partition >= partitions:
            raise failure(KafkaError._UNKNOWN_PARTITION)
        timestamp_ms = delivery._timestamp
        if timestamp_ms <= 0:
            timestamp_ms = wall_ms() - (monotonic_ms() - delivery.started_ms)
        inner.send(
            delivery._topic,  # type: ignore[arg-type]
            delivery._value,
            delivery._key,
            delivery._headers,
            partition,
            timestamp_ms,
            delivery,
        )

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = -1,
        callback: Callable[..., object] | None = None,
        on_delivery: Callable[..., object] | None = None,
    ) -> int:
        """Queue many messages to one topic; return how many were queued.

        A message is a dict with "value", "key", "partition" and "callback". One that cannot be queued gets its
        KafkaError as "_error".

        Raises:
            TypeError: ``messages`` is not a list of dicts, or a value has the wrong type.
            NotImplementedError: a message has a timestamp.
            RuntimeError: the producer is closed.
        """
        if self._inner is None:
            raise RuntimeError(_CLOSED)
        if not isinstance(topic, str):
            raise TypeError(f"argument 1 must be str, not {type(topic).__name__}")
        if not isinstance(partition, int):
            raise TypeError(f"{type(partition).__name__!r} object cannot be interpreted as an integer")
        if not isinstance(messages, list):
            raise TypeError("messages must be a list")
        for index, message in enumerate(messages):
            _check_batched(index, message)
        queued = 0
        for message in messages:
            given = message.get("partition")
            try:
                self.produce(
                    topic,
                    message.get("value"),
                    message.get("key"),
                    partition if given is None else given,
                    message.get("callback") or callback or on_delivery,
                )
                queued += 1
            except BufferError:
                message["_error"] = KafkaError(KafkaError._QUEUE_FULL)
            except KafkaException as error:
                message["_error"] = error.args[0]
        return queued

    # --- reports ---------------------------------------------------------------------------------------------------

    def _done(self, delivery: Delivery) -> None:
        """Queue the report of a message. Thread: the sender's, or the resolver's."""
        self._reports.append(delivery)
        self.events.wake()

    def _forget(self, number: int = 1) -> None:
        with self._lock:
            self._served += number

    def _serve(self) -> int:
        """Call back for all reports and events that wait; return their number."""
        served = self.events.serve() if len(self.events) else 0
        reports = self._reports
        left = len(reports)
        errors_only = self._errors_only
        while left > 0:
            done = 0
            try:
                for _ in range(min(left, _REPORTS)):
                    try:
                        delivery = reports.popleft()
                    except IndexError:  # another thread serves them, too
                        left = 0
                        break
                    done += 1
                    callback = delivery.callback
                    if callback is not None and not (errors_only and delivery._error is None):
                        callback(delivery._error, delivery)
            finally:
                self._forget(done)
                served += done
            left -= done
        return served

    def _tend(self) -> None:
        """Do what is due from time to time."""
        now = monotonic()
        if now >= self._next_counts:
            self._next_counts = now + _COUNTS_S
            inner = self._inner
            if inner is not None:
                for topic in list(self._counts):
                    try:
                        self._counts[topic] = len(inner.partitions_for(topic))
                    except errors.KafkaError:
                        self._counts.pop(topic, None)
        if self._looks:
            self.look()

    def poll(self, timeout: float = -1) -> int:
        """Call the callbacks of what has happened; wait up to ``timeout`` seconds if nothing has.

        A negative timeout waits without a limit. Returns the number of events. An exception of a callback is raised.

        Raises:
            RuntimeError: the producer is closed.
        """
        deadline = deadline_of(timeout)
        if self._inner is None:
            raise RuntimeError(_CLOSED)
        while True:
            self._tend()
            served = self._serve()
            if served:
                return served
            left = remaining(deadline)
            if left <= 0 or self._inner is None:
                return 0
            self.events.wait(left, self._reports)

    def flush(self, timeout: float = -1) -> int:
        """Send everything, and wait up to ``timeout`` seconds until all reports are served.

        Returns the number of messages that are left.

        Raises:
            RuntimeError: the producer is closed.
        """
        deadline = deadline_of(timeout)
        inner = self._inner
        if inner is None:
            raise RuntimeError(_CLOSED)
        while True:
            self._tend()
            self._serve()
            if not len(self):
                return 0
            left = remaining(deadline)
            if self._backlog or self._reports:
                self.events.wait(min(left, 0.01), self._reports)
            else:
                try:
                    inner.flush(left)
                except errors.KafkaTimeoutError:
                    pass
                except errors.IllegalStateError as error:
                    raise RuntimeError(_CLOSED) from error
            if left <= 0:
                self._serve()
                return len(self)

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:  # noqa: ARG002
        """Give up messages; their reports have the error ``_PURGE_QUEUE``.

        Messages whose topic is not known yet are never sent. Messages that are in a batch already may still arrive.

        Raises:
            RuntimeError: the producer is closed.
        """
        if self._inner is None:
            raise RuntimeError(_CLOSED)
        if not in_queue:
            return
        with self._lock:
            dropped = [delivery for waiting in self._backlog.values() for delivery in waiting]
            for waiting in self._backlog.values():
                waiting.clear()
        for delivery in dropped:
            delivery._error = KafkaError(KafkaError._PURGE_QUEUE)
            self._done(delivery)

    def __len__(self) -> int:
        return 0 if self._inner is None else max(0, self._counted - self._served)

    def __bool__(self) -> bool:
        return True

    # --- transactions ----------------------------------------------------------------------------------------------

    def init_transactions(self, timeout: float = -1) -> None:
        """Get the producer's id, and abort what an earlier producer of this ``transactional.id`` has left open.

        Raises:
            KafkaException: ``args[0]`` tells by ``retriable()``, ``fatal()`` and ``txn_requires_abort()`` what to do.
            RuntimeError: the producer is closed.
        """
        self._initializing = False
        try:
            self._transactional_call(lambda inner, limit: inner.init_transactions(limit), timeout)
        except KafkaException as error:
            self._initializing = error.args[0] == KafkaError._TIMED_OUT
            raise

    def begin_transaction(self) -> None:
        """Begin a transaction.

        Raises:
            KafkaException: see ``init_transactions``.
            RuntimeError: the producer is closed.
        """
        self._transactional_call(lambda inner, _: inner.begin_transaction(), -1)

    def commit_transaction(self, timeout: float = -1) -> None:
        """Send the remaining messages, and commit the transaction.

        Raises:
            KafkaException: see ``init_transactions``.
            RuntimeError: the producer is closed.
        """
        deadline = deadline_of(timeout)
        while self._backlog and remaining(deadline) > 0:
            self.events.wait(0.01, self._reports)
        self._transactional_call(lambda inner, limit: inner.commit_transaction(limit), timeout)

    def abort_transaction(self, timeout: float = -1) -> None:
        """Abort the transaction.

        Raises:
            KafkaException: see ``init_transactions``.
            RuntimeError: the producer is closed.
        """
        self.purge()
        self._transactional_call(lambda inner, limit: inner.abort_transaction(limit), timeout)

    def send_offsets_to_transaction(
        self, positions: list[TopicPartition], group_metadata: Any, timeout: float = -1
    ) -> None:
        """Commit the offsets of a consumer group with the transaction.

        ``group_metadata`` is the result of ``Consumer.consumer_group_metadata()``.

        Raises:
            KafkaException: see ``init_transactions``.
            RuntimeError: the producer is closed.
        """
        offsets = {
            NativeTopicPartition(each.topic, each.partition): OffsetAndMetadata(each.offset, each.metadata or "")
            for each in positions
            if each.offset >= 0
        }
        group = group_metadata_of(group_metadata)
        self._transactional_call(lambda inner, limit: inner.send_offsets_to_transaction(offsets, group, limit), timeout)

    def _transactional_call(self, call: Callable[[KafkaProducer[Any, Any], float], object], timeout: float) -> None:
        deadline = deadline_of(timeout)
        inner = self._inner
        if inner is None:
            raise RuntimeError(_CLOSED)
        if not self._transactional:
            raise failure(
                KafkaError._NOT_CONFIGURED, "The Transactional API requires transactional.id to be configured"
            )
        if self._initializing:
            raise failure(
                KafkaError._CONFLICT,
                "init_transactions() has not completed: call it again until it succeeds",
                retriable=True,
            )
        limit = NO_LIMIT_MS / 1000 if deadline is None else max(0.0, deadline - monotonic())
        try:
            call(inner, limit)
        except errors.KafkaError as error:
            raise _transaction_failure(error) from error

    # --- the cluster and the end -----------------------------------------------------------------------------------

    def inner(self) -> KafkaProducer[Any, Any]:
        """Return the producer that does the work.

        Raises:
            RuntimeError: the producer is closed.
        """
        if self._inner is None:
            raise RuntimeError(_CLOSED)
        return self._inner

    def network_client(self) -> Any:
        inner = self._inner
        return None if inner is None else inner._components.client

    def statistics(self) -> str:
        from pykclient.confluent.statistics import of_producer

        return of_producer(self)

    def ensure_open(self) -> None:
        if self._inner is None:
            raise RuntimeError(_CLOSED)

    def close(self) -> bool:
        """Flush, and release all resources; return True. A second call does nothing."""
        inner = self._inner
        if inner is None:
            return True
        try:
            self.flush()
        finally:
            with self._lock:
                self._inner = None
            inner.close()
            self.release()
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        self.close()
        return None

    def __del__(self) -> None:
        inner = getattr(self, "_inner", None)
        if inner is not None:
            self._inner = None
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                inner.__del__()


def _as_bytes(value: Any) -> bytes:
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


def _header_pairs(headers: Any) -> list[tuple[str, bytes | None]]:
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
        if not isinstance(name, str):
            raise TypeError(f"expected header key to be a unicode string, not {type(name).__name__}")
        if isinstance(value, str):
            value = value.encode()
        elif value is not None and not isinstance(value, bytes):
            raise TypeError(f"expected header value to be None, binary, or unicode string, not {type(value).__name__}")
        checked.append((name, value))
    return checked


def _check_batched(index: int, message: Any) -> None:
    if not isinstance(message, dict):
        raise TypeError(f"Message at index {index} must be a dict")
    for field in ("value", "key"):
        given = message.get(field)
        if given is not None and not isinstance(given, bytes | str):
            raise TypeError(f"Message {field} at index {index} must be bytes or str")
    if message.get("partition") is not None and not isinstance(message["partition"], int):
        raise TypeError(f"Message partition at index {index} must be int")
    if message.get("timestamp") is not None:
        raise NotImplementedError("Message timestamps are not currently supported in batch mode")
    if message.get("headers") is not None:
        try:
            _header_pairs(message["headers"])
        except TypeError as error:
            raise ValueError(f"Invalid headers at index {index}") from error


def _error_in(error: Exception) -> KafkaError:
    if isinstance(error, KafkaException) and isinstance(error.args[0], KafkaError):
        return error.args[0]
    if isinstance(error, BufferError):
        return KafkaError(KafkaError._QUEUE_FULL)
    return error_of(error)


def _transaction_failure(error: Exception, prefix: str = "") -> KafkaException:
    """Return the exception for an error of a transactional call, which tells what the application must do."""
    code = code_of(error)
    if isinstance(error, errors.ProducerFencedError | errors.InvalidProducerEpochError):
        return KafkaException(KafkaError(KafkaError._FENCED, f"{prefix}{error}", fatal=True))
    if isinstance(error, errors.TransactionAbortableError | errors.CommitFailedError):
        return KafkaException(KafkaError(code, f"{prefix}{error}", txn_requires_abort=True))
    if isinstance(error, errors.KafkaTimeoutError):
        return KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{prefix}{error}", retriable=True))
    return KafkaException(error_of(error, prefix=prefix))
