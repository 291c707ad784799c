"""The producer in confluent-kafka's shape."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from pykclient import errors, topic_names
from pykclient.clock import SYSTEM_CLOCK
from pykclient.confluent.client import NO_LIMIT_MS, Client, built
from pykclient.confluent.configuration import PRODUCER, Configuration
from pykclient.confluent.events import deadline_of, monotonic, remaining
from pykclient.confluent.kafka_error import KafkaError, KafkaException, code_of, error_of, failure
from pykclient.confluent.message import (
    NO_PARTITION,
    PRODUCER_CLOSED,
    UNABLE_TO_PRODUCE,
    Delivery,
    ProducingState,
    PurgedError,
    Reports,
    delivery_error,
    header_pairs,
)
from pykclient.confluent.partitioners import KEYLESS_STICK, PARTITIONERS
from pykclient.confluent.topic_partition import TopicPartition, group_metadata_of, wire_metadata
from pykclient.producer.kafka_producer import KafkaProducer
from pykclient.producer.sender import Purge
from pykclient.system_time import monotonic_ms, wall_ms
from pykclient.types import OffsetAndMetadata, TopicPartition as NativeTopicPartition

#: The longest wait of ``send`` for metadata or memory. Topics whose metadata is missing for longer have a backlog.
_BLOCK_MS = 100
#: The pause between two requests for the topics of the backlog.
_PAUSE_S = 0.02
#: How often the numbers of partitions are looked up anew, and how often timers and connections are looked at.
_COUNTS_MS = 1000
_LOOK_MS = 100
#: The longest wait of ``purge`` for the sender, which does the work.
_PURGE_MS = 30_000


class Producer(ProducingState, Client):
    """A producer with confluent-kafka's methods: ``produce`` returns at once, ``poll`` and ``flush`` call back.

    Create it with a dict of librdkafka's properties. Properties and defaults are librdkafka's; see
    docs/from-confluent.md. Thread: any.
    """

    _kind = "producer"
    _block_ms = _BLOCK_MS
    _inner: KafkaProducer[Any, Any] | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Create a producer.

        Raises:
            KafkaException: a property is unknown, or has a wrong value.
            TypeError: there is no dict, or a callback cannot be called.
        """
        configuration = Configuration(PRODUCER, args, kwargs)
        super().__init__(configuration)
        settings = configuration.native()
        settings["max.block.ms"] = self._block_ms
        self._inner = built(KafkaProducer[Any, Any], settings, "Failed to create producer: ")
        self._lock = threading.Lock()  # guards: the backlog
        self._reports = Reports(
            configuration.number("queue.buffering.max.messages") or 2**62,
            configuration.number("queue.buffering.max.kbytes") * 1024,
            configuration.flag("delivery.report.only.error"),
            self.events.wake,
            delivery_error,
        )
        self._event_queue = self.events.queue
        self._default_callback = configuration.callbacks.get("on_delivery")
        self._max_size = configuration.number("message.max.bytes")
        self.message_timeout_ms = configuration.number("message.timeout.ms") or NO_LIMIT_MS
        self._partitioner = PARTITIONERS[configuration.text("partitioner")]
        self._keyless_stick = configuration.text("partitioner") in KEYLESS_STICK
        self._initializing = False
        self.is_transactional = bool(configuration.text("transactional.id"))
        self._in_transaction = False
        self._counts = {}
        self._next_counts_ms = self._next_tend_ms = 0
        #: Messages of topics without metadata, in order; the thread that resolves them.
        self._backlog: dict[str, deque[Delivery]] = {}
        self._resolver: threading.Thread | None = None
        self._refused = ""  # the last authentication error, which is reported once
        #: The numbers of calls of ``produce`` that raised in their middle, and of those that flush() has waited for.
        self._doubts = self._flushed_doubts = 0
        self.begin_events()

    # --- producing -------------------------------------------------------------------------------------------------

    def _not_sent(self, delivery: Delivery, error: BaseException) -> None:
        """Handle an error of ``send``, by the backlog if the topic's metadata is missing."""
        try:
            if isinstance(error, errors.KafkaTimeoutError) and not isinstance(error, errors.BufferExhaustedError):
                self._counts.pop(delivery.topic, None)
                self._produce_to_unknown(delivery)
                return
            partitions = self._grown(delivery, error)
            if partitions:
                self._hand_over(delivery, partitions)
                return
        except BaseException:
            self._refused_or_interrupted(delivery)
            raise
        self._refused_or_interrupted(delivery)
        if isinstance(error, errors.BufferExhaustedError):
            raise BufferError("Local: Queue full") from error  # noqa: TRY004 - confluent-kafka's
        if not isinstance(error, errors.KafkaError):
            raise error
        if self._inner is None:
            raise RuntimeError(PRODUCER_CLOSED) from error
        raise _transaction_failure(error, UNABLE_TO_PRODUCE) from error

    def _refused_or_interrupted(self, delivery: Delivery) -> None:
        if self._reports.forget(delivery):
            self._doubts += 1  # a signal handler may have raised when the message was in a batch already

    def _grown(self, delivery: Delivery, error: BaseException) -> int:
        """Return the topic's number of partitions if it has grown, so that the partition exists; otherwise 0."""
        inner, topic = self._inner, delivery.topic
        if inner is None or not (isinstance(error, KafkaException) and error.args[0] == KafkaError._UNKNOWN_PARTITION):
            return 0
        self._counts[topic] = partitions = len(inner.partitions_for(topic))
        return partitions if 0 <= delivery.partition < partitions else 0

    def _produce_to_unknown(self, delivery: Delivery) -> None:
        """Send the message if its topic is known by now; otherwise add it to the backlog."""
        topic = delivery.topic
        refusal = self._refusal(topic)
        if refusal is not None:
            raise refusal
        if not topic_names.is_valid(topic):
            delivery.error = KafkaError(KafkaError.TOPIC_EXCEPTION)
            self._reports.add([delivery])
            return
        with self._lock:
            if self._inner is None:
                raise RuntimeError(PRODUCER_CLOSED)
            waiting = self._backlog.get(topic)
            partitions = self._counts.get(topic)
            if partitions is None:
                if waiting is None:
                    waiting = self._backlog[topic] = deque()
                waiting.append(delivery)
                self._ensure_resolver()
                return
        self._hand_over(delivery, partitions)

    def _ensure_resolver(self) -> None:
        """Start the resolver if it does not run. The caller holds the lock."""
        thread = self._resolver
        if thread is None or not thread.is_alive():  # if a signal handler has raised, it may not have been started
            self._resolver = threading.Thread(target=self._resolve, name=f"{self.name} metadata", daemon=True)
            self._resolver.start()

    def _refusal(self, topic: str) -> Exception | None:
        """Return the error of a topic that ``produce`` cannot take, or takes only in a transaction."""
        if self.is_transactional and not self._in_transaction:
            return failure(KafkaError._STATE, f"{UNABLE_TO_PRODUCE}Local: Erroneous state")
        try:
            topic.encode()
        except UnicodeEncodeError as error:
            return error
        return ValueError("embedded null character") if "\0" in topic else None

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
            self._refused = ""
        except errors.KafkaTimeoutError:
            pass  # no error of the messages: the topic may still be created, until their own time is up
        except errors.AuthenticationError as error:
            # As with librdkafka, messages wait for other credentials until their time is up.
            if self._refused != str(error):
                self._refused = str(error)
                self.report_error(error_of(error))
        except errors.KafkaError as error:
            fatal = error_of(error)
        with self._lock:
            waiting = self._backlog.get(topic, deque())
            if partitions:
                while waiting:
                    delivery = waiting.popleft()
                    try:
                        self._send_resolved(inner, delivery, partitions)
                    except (errors.KafkaError, KafkaException, BufferError) as error:
                        failed.append((delivery, _error_in(error)))
                self._counts[topic] = partitions
            else:
                expired_ms = monotonic_ms() - self.message_timeout_ms
                while waiting and (fatal is not None or waiting[0].started_ms <= expired_ms):
                    delivery = waiting.popleft()
                    failed.append((delivery, fatal or KafkaError(KafkaError._MSG_TIMED_OUT)))
            if not waiting:
                self._backlog.pop(topic, None)
        for delivery, reason in failed:
            delivery.error = reason
            self._reports.add([delivery])

    def _send_resolved(self, inner: KafkaProducer[Any, Any], delivery: Delivery, partitions: int) -> None:
        partition: int | None = delivery.partition
        if delivery.partition == NO_PARTITION:
            partition = self._partitioner(delivery.key, partitions)
        elif not 0 <= delivery.partition < partitions:
            raise failure(KafkaError._UNKNOWN_PARTITION)
        timestamp_ms = delivery.timestamp_ms
        if timestamp_ms <= 0:
            timestamp_ms = wall_ms() - (monotonic_ms() - delivery.started_ms)
        inner.send(delivery.topic, delivery.value, delivery.key, delivery.headers, partition, timestamp_ms, delivery)

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
        self.ensure_open()
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

    def _tend(self) -> int:
        now_ms = monotonic_ms()
        if now_ms >= self._next_tend_ms:
            self._next_tend_ms = now_ms + (_LOOK_MS if self.looks else _COUNTS_MS)
            if now_ms >= self._next_counts_ms:
                self._next_counts_ms = now_ms + _COUNTS_MS
                self._count_partitions()
                with self._lock:
                    if self._backlog:
                        self._ensure_resolver()
            if self.looks:
                self.look()
        return self.events.serve()

    def _count_partitions(self) -> None:
        inner = self._inner
        if inner is not None:
            for topic in list(self._counts):
                try:
                    self._counts[topic] = len(inner.partitions_for(topic))
                except errors.KafkaError:  # without a number, the next message asks for it
                    self._counts.pop(topic, None)

    def _wait(self, timeout: float) -> None:
        self.events.wait(timeout, self._reports)

    def flush(self, timeout: float = -1) -> int:
        """Send everything, and wait up to ``timeout`` seconds until all reports are served.

        Returns the number of messages that are left.

        Raises:
            RuntimeError: the producer is closed.
            KafkaException: the producer was made before ``fork()``.
        """
        deadline = deadline_of(timeout)
        self.ensure_open()
        while True:
            self._serve()
            doubts = self._doubts
            if not len(self) and not self._backlog and doubts == self._flushed_doubts:
                return 0
            left = remaining(deadline)
            if self._backlog or self._reports:
                self.events.wait(min(left, 0.01), self._reports)
            elif self.send_all(left):
                self._flushed_doubts = doubts
            if left <= 0:
                self._serve()
                return len(self)

    def unreported_bytes(self) -> int:
        """Return the bytes of the values of all messages that were not reported yet."""
        return self._reports.unreported_bytes()

    def has_backlog(self) -> bool:
        """Return whether messages wait for the metadata of their topic."""
        return bool(self._backlog)

    def send_all(self, timeout: float) -> bool:
        """Send the messages of all batches, and wait up to ``timeout`` seconds for their fate. Serve no reports.

        Returns False if messages are left.

        Raises:
            RuntimeError: the producer is closed.
        """
        try:
            self.inner().flush(timeout)
        except errors.KafkaTimeoutError:
            return False  # flush() returns the number of messages that are left instead of raising
        except errors.UseAfterForkError as error:
            raise KafkaException(error_of(error)) from error
        except errors.IllegalStateError as error:
            raise RuntimeError(PRODUCER_CLOSED) from error
        return True

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Give up messages: those that were not sent, and those that were sent and not acknowledged.

        Their reports have the errors ``_PURGE_QUEUE`` and ``_PURGE_INFLIGHT``. Messages in flight may still arrive.
        With ``blocking``, the errors of all of them are set when this returns.

        Raises:
            RuntimeError: the producer is closed.
        """
        inner = self.inner()
        if in_queue:
            self._purge_backlog()
        signal = SYSTEM_CLOCK.new_signal()
        inner._sender.purge(
            Purge(
                PurgedError(KafkaError._PURGE_QUEUE) if in_queue else None,
                PurgedError(KafkaError._PURGE_INFLIGHT) if in_flight else None,
                signal,
            )
        )
        if blocking:
            signal.wait(_PURGE_MS)  # a sender that is slower than that sets the errors later; purge() reports none

    def _purge_backlog(self) -> None:
        """Give up the messages whose topic is not known yet."""
        with self._lock:
            for waiting in self._backlog.values():
                while waiting:
                    delivery = waiting[0]
                    delivery.error = KafkaError(KafkaError._PURGE_QUEUE)
                    self._reports.add([delivery])
                    del waiting[0]  # last, as a signal handler may raise: then the report is added twice, and told once

    def __len__(self) -> int:
        return 0 if self._inner is None else self._reports.unreported()

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
        self._in_transaction = True

    def commit_transaction(self, timeout: float = -1) -> None:
        """Send the remaining messages, and commit the transaction.

        Raises:
            KafkaException: see ``init_transactions``.
            RuntimeError: the producer is closed.
        """
        deadline = deadline_of(timeout)
        while self._backlog:
            if remaining(deadline) <= 0:
                raise failure(
                    KafkaError._TIMED_OUT,
                    f"commit_transaction: messages still wait for metadata of their topics after {timeout} s: "
                    f"{', '.join(sorted(self._backlog))}",
                    retriable=True,
                )
            self.events.wait(0.01, self._reports)
        self._in_transaction = False
        left = -1 if deadline is None else max(0.0, deadline - monotonic())
        self._transactional_call(lambda inner, limit: inner.commit_transaction(limit), left)

    def abort_transaction(self, timeout: float = -1) -> None:
        """Abort the transaction.

        Raises:
            KafkaException: see ``init_transactions``.
            RuntimeError: the producer is closed.
        """
        self._in_transaction = False
        self._purge_backlog()
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
        offsets = {}
        for each in positions:
            if each.offset >= 0:
                native = NativeTopicPartition(each.topic, each.partition)
                offsets[native] = OffsetAndMetadata(each.offset, wire_metadata(each.metadata))
        group = group_metadata_of(group_metadata)
        self._transactional_call(lambda inner, limit: inner.send_offsets_to_transaction(offsets, group, limit), timeout)

    def _transactional_call(self, call: Callable[[KafkaProducer[Any, Any], float], object], timeout: float) -> None:
        deadline = deadline_of(timeout)
        inner = self.inner()
        if not self.is_transactional:
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
            raise RuntimeError(PRODUCER_CLOSED)
        return self._inner

    def network_client(self) -> Any:
        inner = self._inner
        return None if inner is None else inner._components.client

    def statistics(self) -> str:
        from pykclient.confluent.statistics import of_producer

        return of_producer(self)

    def ensure_open(self) -> None:
        self.inner()

    def close(self) -> bool:
        """Flush, and release all resources; return True. A second call does nothing."""
        inner = self._inner
        if inner is None:
            return True
        try:
            self.flush()
        except KafkaException as error:
            if not isinstance(error.__cause__, errors.UseAfterForkError):  # in a child there is nothing to flush
                raise
        finally:
            with self._lock:
                self._inner = None
            inner.close()
            self.release()
        return True


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
            header_pairs(message["headers"])
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
