"""The producer that applications use (Java: KafkaProducer)."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, cast, overload

from pykclient.argument_values import check_callable, checked_flag, shown
from pykclient.clock import HERE, SystemClock, ensure_not_interrupting, interrupting, is_interrupting
from pykclient.config.producer_config import ProducerConfig
from pykclient.errors import (
    AuthenticationError,
    BrokerError,
    IllegalArgumentError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    UseAfterForkError,
)
from pykclient.metrics import Metrics, SubscribedMetrics
from pykclient.network.environment import Environment
from pykclient.network.kafka_client import enabled
from pykclient.pacing import SHORT_PAUSE_MS, RepeatedErrors
from pykclient.producer import open_producers, record_arguments
from pykclient.producer.future import (
    FutureRecordMetadata,
    OnDelivery,
    ProducerBatch,
    failed_future,
    milliseconds,
    run_listeners,
)
from pykclient.producer.interceptors import UNKNOWN_PARTITION, InterceptedDelivery, headers_of
from pykclient.producer.outbox import FULL
from pykclient.producer.partitioner.hashing import POSITIVE, murmur2, murmur2_cached
from pykclient.producer.producer_components import ProducerComponents
from pykclient.producer.record_arguments import ensure_valid_record_size, serialize
from pykclient.producer.send import RECORD_OVERHEAD, SendPath, SendState, TopicWait
from pykclient.producer.sender_thread import SenderDriver
from pykclient.producer.transactions.transactional_methods import TransactionalMethods
from pykclient.record.record_batch import MAX_INT32
from pykclient.serialization import BYTES
from pykclient.types import Header, Headers, K, ProducerRecord, TopicPartition, V

if TYPE_CHECKING:
    from typing import Unpack
    from uuid import UUID

    from pykclient.config.client_settings import ProducerSettings
    from pykclient.network.metadata import Cluster
    from pykclient.producer.batch_register import PartitionQueue, TopicInfo
    from pykclient.producer.columns import BatchFuture, ColumnSenderContext, Route
    from pykclient.serialization import SerializerOf
    from pykclient.types import MadeK, MadeV

THREAD_NAME_PREFIX = "kafka-producer-network-thread"

_CLOSED = "the producer is closed"
_FORKED = "this producer was made before fork(): its thread is in the parent process. Make one in the child"

#: The longest key, in bytes, whose partition is cached.
_CACHED_KEY_SIZE = 64

#: Time for the thread to end after a forced close. It takes longer only while a callback of the application blocks.
_FORCED_CLOSE_S = 0.5

#: Time that ``with`` waits for records when KeyboardInterrupt or SystemExit leaves its block.
_ENDING_TIMEOUT_S = 0.5

#: Types that need no serializer where none is configured. Other bytes-like objects take the slow path and are copied.
_PLAIN: frozenset[type] = frozenset((bytes, type(None)))


class KafkaProducer(TransactionalMethods, SubscribedMetrics, SendState[K, V]):
    """A client that sends records to Kafka in batches, from a background thread.

    ``config`` maps Kafka's dotted keys to values; keyword arguments are the same keys with underscores, and take
    precedence. ``close`` sends the remaining records, so use the producer in a ``with`` statement or call ``close``::

        with KafkaProducer(bootstrap_servers="localhost:9092", acks="all") as producer:
            future = producer.send("flights", key=b"UA", value=b"1545")
            print(future.get(timeout=10).offset)

    The arguments of ``flush``, ``close`` and of futures are in seconds, as in kafka-python. Settings that end in
    ``_ms`` are in milliseconds.

    A producer does not survive ``fork``: in the child every call raises UseAfterForkError. Create it after the fork.
    When the interpreter exits, open producers are closed within 0.8 s; records that are not sent by then are lost.

    Thread: any. One producer that all threads share is faster than one for each thread.
    """

    __slots__ = ("__dict__", "__weakref__")

    #: False for the producer inside of one that gives no warning.
    _warns_unclosed = True

    @overload
    def __init__(
        self: KafkaProducer[MadeK, MadeV],
        config: None = None,
        /,
        *,
        key_serializer: SerializerOf[MadeK] | None = None,
        value_serializer: SerializerOf[MadeV] | None = None,
        **kwargs: Unpack[ProducerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        /,
        *,
        key_serializer: Any = None,
        value_serializer: Any = None,
        **kwargs: Unpack[ProducerSettings],
    ) -> None: ...

    def __init__(self, config: Mapping[str, Any] | None = None, /, **kwargs: Any) -> None:
        settings = ProducerConfig(config, **kwargs)
        self._begin(settings, ProducerComponents(settings))

    @classmethod
    def in_environment(
        cls, environment: Environment, config: Mapping[str, Any] | None = None, /, **kwargs: Any
    ) -> KafkaProducer[K, V]:
        """Return a producer that uses the clock, random numbers, threads and connections of ``environment``."""
        settings = ProducerConfig(config, **kwargs)
        return cls.of_components(settings, ProducerComponents(settings, environment))

    @classmethod
    def of_components(cls, config: ProducerConfig, components: ProducerComponents) -> KafkaProducer[K, V]:
        """Return a producer made of existing parts, such as a client without connections."""
        producer = cls.__new__(cls)
        producer._begin(config, components)
        return producer

    def _begin(self, config: ProducerConfig, components: ProducerComponents) -> None:
        self._config = config
        self._components = components
        self._log = components.log_context.logger(__name__)
        #: The reason why calls are refused, or None. Every call reads it first.
        self._refusal: str | None = None
        self._close_lock = threading.Lock()  # guards: _closing, _closed
        self._closing = False
        self._closed = False
        # Attributes that each record needs: they save a lookup in ``parts``.
        self._clock = components.clock
        self._environment = components.environment
        self._metadata = components.metadata
        self._accumulator = components.accumulator
        self._sender = components.sender
        self._interceptors = components.interceptors
        self._partitioner = components.partitioner
        self._on_new_batch: Any = getattr(components.partitioner, "on_new_batch", None)
        self._ignore_keys: bool = config["partitioner.ignore.keys"]
        self._max_block_ms: int = config["max.block.ms"]
        self._max_record_size: int = min(config["max.request.size"], config["buffer.memory"])
        self._topic_wait = TopicWait(components, self._max_block_ms)
        self._repeated_sends = RepeatedErrors(SHORT_PAUSE_MS)  # short, as a program may try a whole backlog
        self._repeated_calls = RepeatedErrors(config["retry.backoff.ms"])
        self._id_manager = components.id_manager
        self._key_serializer = components.key_serializer
        self._value_serializer = components.value_serializer
        self._plain_key_types = _PLAIN if components.key_serializer is BYTES else frozenset()
        self._plain_value_types = _PLAIN if components.value_serializer is BYTES else frozenset()
        self._send_path = None
        interceptors = components.interceptors
        shares = interceptors is None or interceptors.share_records
        if shares and components.partitioner is None:
            self._send_path = SendPath(
                components.accumulator.outbox,
                None if isinstance(components.clock, SystemClock) else components.clock,
                components.key_serializer,
                components.value_serializer,
                plain_keys=components.key_serializer is BYTES,
                plain_values=components.value_serializer is BYTES,
                ignore_keys=self._ignore_keys,
                max_record_size=self._max_record_size,
                share=None if interceptors is None else interceptors.shared,
            )
            components.metadata.update_outbox(components.accumulator.outbox)
            if components.id_manager is not None:
                components.id_manager.update_outbox(components.accumulator.outbox)
        self._driver = driver = SenderDriver(
            components.sender,
            components.client,
            components.sender_thread,
            components.clock,
            components.log_context,
            components.may_lend,
        )
        self._io_thread = components.environment.new_thread(
            driver.run, f"{THREAD_NAME_PREFIX} | {components.client_id}"
        )
        open_producers.opened(self)
        self._io_thread.start()
        self._log.debug("The producer has started")

    # --- sending -----------------------------------------------------------------------------------------------

    def _send(
        self,
        topic: str | ProducerRecord[K, V],
        value: V | None,
        key: K | None,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: OnDelivery | None,
    ) -> FutureRecordMetadata:
        if self._refusal is not None:
            raise self._refused()
        record: ProducerRecord[K, V] | None = None
        if isinstance(topic, ProducerRecord):
            if any(given is not None for given in (value, key, headers, partition, timestamp_ms)):
                raise IllegalArgumentError(
                    "send(record) takes value, key, headers, partition and timestamp from the ProducerRecord; "
                    "beside it only on_delivery can be given"
                )
            record = topic
            headers = record.headers
        elif self._interceptors is not None:
            record = ProducerRecord(topic, value, key, () if headers is None else headers, partition, timestamp_ms)
            headers = record.headers
        # The arguments are checked before the first interceptor sees them; `_do_send` checks the returned record. The
        # compiled form may have called the interceptors.
        if self._interceptors is not None and record is not None and not isinstance(on_delivery, InterceptedDelivery):
            record, headers, on_delivery = self._interceptors.intercepted(record, on_delivery)
        if record is not None:
            topic, value, key, partition = record.topic, record.value, record.key, record.partition
            timestamp_ms = record.timestamp_ms
        future = self._do_send(cast(str, topic), value, key, headers, partition, timestamp_ms, on_delivery)
        return cast(FutureRecordMetadata, future)  # this thread may wait

    def _send_in_new_batch(
        self,
        topic: str,
        partition: int | None,
        record: tuple[int, bytes | None, bytes | None, Sequence[Header], OnDelivery | None],
        size_bytes: int,
        info: TopicInfo,
        cluster: Cluster,
        full: PartitionQueue | None = None,
    ) -> FutureRecordMetadata | None:
        """Append a record that needs a new batch. The compiled ``send`` has checked it and calls this.

        Return None if the thread must not wait for memory. ``size_bytes`` is an upper bound of the size of a batch with
        only this record. ``full`` is the queue whose last batch had no room for the record, if any; that batch is
        closed.
        """
        ensure_not_interrupting("send()")
        try:
            wake_for_full = full is not None and self._accumulator.waiting.changed(full, FULL)
            future, wake = self._accumulator.append_with_new_batch(
                topic, info, partition, cluster, ProducerBatch.try_append, record, size_bytes, self._max_block_ms
            )
            if wake or wake_for_full:
                self._wake_sender()
        except KafkaError as error:
            return self._failed(self._components.sender_thread.explain(error), topic, partition, record[3], record[4])
        except BaseException:  # raised by a signal handler, such as KeyboardInterrupt
            self._sender.wakeup()  # the record may be in a new batch that the sender was not woken for
            raise
        return future

    def _wake_for_new_batch(self) -> None:
        """Wake the sender for a batch that the compiled ``send`` has started."""
        try:
            self._wake_sender()
        except BaseException:  # raised by a signal handler, such as KeyboardInterrupt
            self._sender.wakeup()
            raise

    def _do_send(
        self,
        topic: str,
        value: V | None,
        key: K | None,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: OnDelivery | None,
        serialized: tuple[bytes | None, bytes | None] | None = None,
    ) -> FutureRecordMetadata | int | None:
        """Append a record; or only return the partition, if it is chosen, where this thread must not wait and would.

        The next call must name that partition, as partitioners are asked once for each record. ``serialized`` has the
        key and the value as bytes, if they have been serialized already.
        """
        if HERE.mark._is_owned():  # type: ignore[attr-defined]
            raise interrupting("send()")
        number = partition
        try:
            # All arguments are checked before the first of them is used.
            if type(topic) is not str:
                topic = record_arguments.checked_topic(topic)
            if partition is not None and (type(partition) is not int or not 0 <= partition <= MAX_INT32):
                number = partition = record_arguments.checked_partition(partition)
            checked_headers: Headers = () if headers is None else record_arguments.checked_headers(headers)
            if timestamp_ms is not None:
                timestamp_ms = record_arguments.checked_timestamp(timestamp_ms)
            if on_delivery is not None:
                check_callable(on_delivery, "on_delivery")
            max_block_ms = self._max_block_ms
            cluster = self._metadata.fetch()
            count = cluster.partition_count_for_topic(topic)
            if count is None or (partition is not None and not 0 <= partition < count):
                found = self._find_topic(topic, partition, max_block_ms)
                if found is None:
                    return None
                cluster, count, max_block_ms = found
            key_bytes: Any = key
            value_bytes: Any = value
            if serialized is not None:
                key_bytes, value_bytes = serialized
            elif type(key) not in self._plain_key_types or type(value) not in self._plain_value_types:
                # Serializers get the list that was passed to `send`, and may append to it.
                given = headers if type(headers) in {list, tuple} else checked_headers
                if type(key) not in self._plain_key_types:
                    key_bytes = self._serialize(self._key_serializer, "key", topic, given, key)
                if type(value) not in self._plain_value_types:
                    value_bytes = self._serialize(self._value_serializer, "value", topic, given, value)
                if given:
                    checked_headers = record_arguments.checked_headers(given)
            if partition is None:
                if self._partitioner is not None:
                    number = self._partition(topic, key, key_bytes, value, value_bytes, cluster, count)
                elif key_bytes is not None and not self._ignore_keys:
                    hashing = murmur2_cached if len(key_bytes) <= _CACHED_KEY_SIZE else murmur2
                    number = (hashing(key_bytes) & POSITIVE) % count
            size = RECORD_OVERHEAD
            if key_bytes is not None:
                size += len(key_bytes)
            if value_bytes is not None:
                size += len(value_bytes)
            if size > self._max_record_size or checked_headers:
                ensure_valid_record_size(
                    topic, key_bytes, value_bytes, checked_headers, self._components.compression, self._config
                )
            if timestamp_ms is None:
                timestamp_ms = self._clock.wall_ms()
            if self._id_manager is not None:
                self._id_manager.maybe_fail_with_error()
            record = (timestamp_ms, key_bytes, value_bytes, checked_headers, on_delivery, max_block_ms, cluster)
            may_choose_again = self._on_new_batch is not None and partition is None and number is not None
            future, wake, aborted = self._accumulator.append(topic, number, *record, may_choose_again)
            if aborted:
                self._on_new_batch(topic, cluster, number)
                number = self._partition(topic, key, key_bytes, value, value_bytes, cluster, count)
                future, wake_for_new, _ = self._accumulator.append(topic, number, *record)
                wake = wake or wake_for_new
            if wake:
                self._wake_sender()
        except KafkaError as error:
            error = self._components.sender_thread.explain(error)
            return self._failed(error, topic, number, headers_of(headers), on_delivery)
        except Exception as error:  # a partitioner of the application raised it; interceptors are still told
            self._note_failure(error, topic, number, headers_of(headers))
            raise
        except BaseException:  # raised by a signal handler, such as KeyboardInterrupt
            self._sender.wakeup()  # the record may be in a new batch that the sender was not woken for
            raise
        return number if future is None else future

    def _find_topic(self, topic: str, partition: int | None, max_block_ms: int) -> tuple[Cluster, int, int] | None:
        """Return what ``TopicWait.wait`` does; None if this thread must not wait and would have to."""
        return self._topic_wait.wait(topic, partition, max_block_ms)

    _serialize = staticmethod(serialize)

    def _partition(
        self,
        topic: str,
        key: object,
        key_bytes: bytes | None,
        value: object,
        value_bytes: bytes | None,
        cluster: Cluster,
        count: int,
    ) -> int | None:
        """Return the configured partitioner's choice, or None where it leaves the choice to the built-in partitioner.

        Raises:
            IllegalArgumentError: it chose something else than one of the topic's ``count`` partitions.
        """
        assert self._partitioner is not None
        chosen = self._partitioner.partition(topic, key, key_bytes, value, value_bytes, cluster)
        return None if chosen is None else record_arguments.checked_choice(chosen, self._partitioner, topic, count)

    def send_batch(
        self,
        topic: str,
        data: Any,
        *,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        timestamp: Any = None,
        partition: Any = None,
    ) -> BatchFuture:
        """Send many records, given as columns, at a fraction of the cost of calling ``send`` for each.

        ``data`` is a table: a pyarrow.RecordBatch or Table, or any object that exports an Arrow C stream or array
        (polars, DuckDB, pandas, ...). Or it is a single column with the values: an Arrow array, or a sequence of bytes
        and None. A stream is read piece by piece as memory for the records becomes free; an error of the stream is
        raised.

        ``value``, ``key``, ``headers``, ``timestamp`` and ``partition`` are names of columns of the table, or columns
        themselves with as many rows. ``value`` may be omitted if the table has one column, or a column named "value".
        Keys and values are of any binary or string type, and are sent as bytes; serializers are not called. ``value``
        and ``key`` may also be encoders of typed columns, such as ``pykclient.schema_registry.avro_encoder``. A row's
        headers are a list of structs of a name and bytes, or a map; or, for all rows, pairs as in ``send``. Timestamps
        are Arrow timestamps, integers in milliseconds, or one value for all rows; null means now. Partitions are
        integers, or one integer for all rows; where it is null, the partitioner chooses.

        Partitions, batches, order within a partition, idempotence, retries and timeouts are those of a ``send`` of each
        row. Waits for metadata up to ``max.block.ms``, and for memory until none becomes free for ``max.block.ms``. It
        waits before ``buffer.memory`` is used up: at most a few MB of rows are queued beyond those in flight.

        The returned future covers all rows and reports on each slice of them that succeeds or fails as one. Rows that
        are too large fail alone. An error that ``send`` would raise is raised here if no row has been sent yet;
        otherwise it becomes the error of all remaining rows.

        Raises:
            ImportError: ``data`` is Arrow data, and pyarrow is not installed.
            IllegalArgumentError: ``data`` or a column is of an unsupported type.
            IllegalStateError: the producer has interceptors, which would not be called; or it is closed.
            KafkaTimeoutError: no metadata arrived within ``max.block.ms``.
            BufferExhaustedError: no memory became free within ``max.block.ms``.
            SerializationError: an encoder cannot encode a row; of a table in memory, no row is sent then.
            KafkaError: the producer hit a fatal error, or was closed during the call.
        """
        from pykclient.producer.columns import BatchFuture, BatchInput, ColumnSender

        self._ensure_usable()
        ensure_not_interrupting("send_batch()")
        topic = record_arguments.checked_topic(topic)
        if self._interceptors is not None:
            raise IllegalStateError("interceptors do not see columns: use send(), or no interceptor.classes")
        sender = ColumnSender(topic, self._column_sender_context(topic))
        try:
            given = BatchInput(topic, data, value, key, headers, timestamp, partition)
            sender.send(given.parts(self._clock.wall_ms()))
        except KafkaError as error:
            self._components.producer_metrics.record_error()
            self._note_in_transaction(error)
            explained = self._components.sender_thread.explain(error)
            if explained is error:
                raise
            raise explained from explained.__cause__
        except BaseException:  # raised by a signal handler, such as KeyboardInterrupt
            self._sender.wakeup()  # rows may be in new batches that the sender was not woken for
            raise
        if sender.refused:
            self._components.producer_metrics.record_error(sum(len(refused.rows) for refused in sender.refused))
            self._note_in_transaction(sender.refused[0].error)
        return BatchFuture(topic, sender.num_rows, sender.sent, sender.refused, self._clock)

    def _column_sender_context(self, topic: str) -> ColumnSenderContext:
        from pykclient.producer.columns import ColumnSenderContext, Route

        def route(partition: int | None) -> Route:
            cluster = self._metadata.fetch()
            count = cluster.partition_count_for_topic(topic)
            if count is None or (partition is not None and partition >= count):
                found = self._find_topic(topic, partition, self._max_block_ms)
                if found is None:
                    raise self._topic_wait.missing(topic, partition)
                return Route(*found)
            return Route(cluster, count, self._max_block_ms)

        def choose(key: bytes | None, value: bytes | None, route: Route) -> int | None:
            return self._partition(topic, key, key, value, value, route.cluster, route.partition_count)

        def on_new_batch(route: Route, number: int) -> None:
            self._on_new_batch(topic, route.cluster, number)

        def ensure_usable() -> None:
            self._ensure_usable()
            if self._id_manager is not None:
                self._id_manager.maybe_fail_with_error()

        return ColumnSenderContext(
            self._accumulator,
            route,
            None if self._partitioner is None else choose,
            None if self._on_new_batch is None else on_new_batch,
            ensure_usable,
            self._wake_sender,
            self._max_record_size,
            self._config["buffer.memory"] // 4,
            self._ignore_keys,
        )

    def _wake_sender(self) -> None:
        """Have the sender stepped for a batch that it does not know of yet: on this thread, or on the sender's."""
        if self._driver.step_for_send():
            return
        was_expected = False
        try:
            was_expected = self._accumulator.waiting.expect_look()
        finally:  # also if Ctrl-C comes in between: nobody else would wake the sender
            self._driver.wakeup()
        # Release the GIL for a sender that was woken and waits for it: a busy thread would keep the GIL for 5 ms at a
        # time. A sender that was not woken before is still asleep; whoever waits for its record releases the GIL then.
        if was_expected:
            self._clock.sleep_ms(0)

    def _rest(self, duration_ms: int) -> None:
        """Wait before an error is raised; not on the sender's thread, and not with ``max.block.ms=0``."""
        if duration_ms and self._max_block_ms and not self._components.sender_thread.is_current:
            self._clock.sleep_ms(duration_ms)

    def _refuse(self, why: str) -> None:
        self._refusal = why
        self._send_path = None

    # --- failures ----------------------------------------------------------------------------------------------

    def _failed(
        self, error: KafkaError, topic: str, partition: int | None, headers: Headers, on_delivery: OnDelivery | None
    ) -> FutureRecordMetadata:
        """Report a record that did not reach a batch: return a failed future for brokers' errors, raise all others."""
        self._components.producer_metrics.record_error()
        self._note_in_transaction(error)
        topic_partition = self._note_failure(error, topic, partition, headers)
        self._rest(self._repeated_sends.pause_ms(error, self._clock.now_ms()))
        if not isinstance(error, (BrokerError, AuthenticationError)):
            raise error
        self._log.debug("A send failed: %r", error)
        if isinstance(on_delivery, InterceptedDelivery):
            on_delivery = on_delivery.on_delivery
        future = failed_future(topic_partition, error)
        if on_delivery is not None:
            run_listeners([(future, on_delivery, True)])
        return future

    def _note_in_transaction(self, error: Exception) -> None:
        """Note that a record of a transaction is missing, unless the caller only made a mistake."""
        if self._id_manager is not None and not isinstance(error, (IllegalStateError, IllegalArgumentError)):
            self._id_manager.send_failed(error)

    def _failed_to_serialize(
        self,
        error: Exception,
        topic: str,
        partition: int | None,
        headers: Headers | None,
        on_delivery: OnDelivery | None,
    ) -> FutureRecordMetadata:
        """Handle a serializer's error for the compiled ``send``, as ``_do_send`` does."""
        if isinstance(error, KafkaError):
            return self._failed(error, topic, partition, headers_of(headers), on_delivery)
        self._note_failure(error, topic, partition, headers_of(headers))
        raise error

    def _note_failure(self, error: Exception, topic: str, partition: int | None, headers: Headers) -> TopicPartition:
        topic_partition = TopicPartition(topic, UNKNOWN_PARTITION if partition is None else partition)
        if self._interceptors is not None:
            self._interceptors.on_send_error(topic_partition, error, headers)
        return topic_partition

    def _refused(self) -> KafkaError:
        """Return the error of a call that is refused."""
        self._rest(SHORT_PAUSE_MS)
        return self._refusal_error()

    def _refusal_error(self) -> KafkaError:
        if self._refusal is None:
            return IllegalStateError("the producer is in use")
        return UseAfterForkError(self._refusal) if self._refusal == _FORKED else IllegalStateError(self._refusal)

    def _ensure_usable(self) -> None:
        if self._refusal is not None:
            raise self._refused()

    # --- the rest of the surface -------------------------------------------------------------------------------

    @classmethod
    def max_usable_produce_magic(cls, api_version: tuple[int, ...]) -> int:
        """Return the newest message format, 0, 1 or 2, that brokers of a version support (kafka-python).

        This client always sends format 2, as it supports brokers from 2.1 on.

        Raises:
            IllegalArgumentError: ``api_version`` is not a tuple of integers.
        """
        if not isinstance(api_version, tuple) or not all(isinstance(number, int) for number in api_version):
            raise IllegalArgumentError(f"api_version is {shown(api_version)}; it must be a tuple as (2, 8)")
        if api_version >= (0, 11):
            return 2
        return 1 if api_version >= (0, 10, 0) else 0

    @property
    def config(self) -> ProducerConfig:
        """The settings in use, by their dotted keys."""
        return self._config

    def flush(self, timeout: float | None = None) -> None:
        """Send all batches now, and wait until all earlier records are done and their callbacks have run.

        A record is done once it is acknowledged or has failed. ``timeout`` is in seconds; None waits without a limit.

        Raises:
            KafkaTimeoutError: records are left after ``timeout`` seconds. The producer keeps sending them.
            IllegalArgumentError: ``timeout`` is negative, or not a number.
            KafkaError: a callback called this method, and would wait for itself.
        """
        self._ensure_usable()
        timeout_ms = milliseconds(timeout)
        if self._components.sender_thread.is_current:
            raise KafkaError("flush() was called by a callback or a signal handler: it would wait for itself")
        ensure_not_interrupting("flush()")
        start_ms = self._clock.now_ms()
        try:
            wake_sender = self._driver.wakeup_for_flush if timeout_ms else self._sender.wakeup
            if not self._accumulator.flush(timeout_ms, wake_sender):
                raise KafkaTimeoutError(f"records were still on their way after {timeout} s of flush()")
        finally:
            self._components.producer_metrics.record_flush(self._clock.now_ms() - start_ms)

    def partitions_for(self, topic: str) -> set[int]:
        """Return the partition numbers of ``topic``.

        Waits for the topic's metadata as ``send`` does.

        Raises:
            InvalidTopicError: no topic can have this name.
            IllegalArgumentError: ``topic`` is not a str.
            KafkaTimeoutError: no metadata arrived within ``max.block.ms``.
        """
        self._ensure_usable()
        ensure_not_interrupting("partitions_for()")
        cluster, _, _ = self._topic_wait.wait(record_arguments.checked_topic(topic), None, self._max_block_ms)
        return {info.partition for info in cluster.partitions_for_topic(topic)}

    def bootstrap_connected(self) -> bool:
        """Return whether any broker has answered since the producer was created."""
        self._ensure_usable()
        cluster = self._metadata.fetch()
        return bool(cluster.nodes) and not cluster.is_bootstrap_configured

    def _registry(self, call: str) -> Metrics:
        if self._refusal is not None:
            raise self._refusal_error()  # without a pause: exporters read the metrics of many clients
        ensure_not_interrupting(call)
        return self._components.metrics

    def client_instance_id(self, timeout: float | None = None) -> UUID | None:
        """Return the client instance id, by which brokers identify this client's metrics (KIP-714).

        Waits at most ``timeout`` seconds (default: ``max.block.ms``); 0 does not wait. Return None if there is no id
        by then, for example as the brokers have no receiver for metrics.

        Raises:
            IllegalStateError: telemetry is disabled (``enable.metrics.push=false``).
            IllegalArgumentError: ``timeout`` is negative, or not a number.
            KafkaError: a callback made this call, and would keep the answer from being read.
        """
        self._ensure_usable()
        timeout_ms = self._max_block_ms if timeout is None else milliseconds(timeout)
        telemetry = enabled(self._components.client.telemetry)
        ensure_not_interrupting("client_instance_id()")
        if timeout_ms and self._components.sender_thread.is_current and telemetry.client_instance_id is None:
            raise KafkaError("client_instance_id() was called by a callback: it would keep the answer from being read")
        signal = self._clock.new_signal()
        with telemetry.awaited(signal):
            self._sender.wakeup()
            if telemetry.client_instance_id is None:
                signal.wait(timeout_ms)
        return telemetry.client_instance_id

    def explain(self) -> str:
        """Return a report of what the producer is doing and waiting for.

        It names the batches that wait and why, those in flight, the memory in use, the transaction, the connections
        with their requests in flight, and the last warnings and errors. May be called from any thread, also after
        ``close``; ``pykclient.explain_on_signal`` prints it on a signal.

        Raises:
            IllegalStateError: called by a signal handler or destructor that interrupts another call of this thread.
            UseAfterForkError: this is a forked child process.
        """
        from pykclient.producer.explanation import explain_producer

        if self._refusal == _FORKED:
            raise self._refused()
        ensure_not_interrupting("explain()")
        return explain_producer(repr(self), self._components, self._config)

    def close(self, timeout: float | None = None, *, keep_transaction: bool = False) -> None:
        """Send the remaining records and release all resources.

        Waits up to ``timeout`` seconds, or without a limit if None. Records that are unacknowledged by then fail with
        KafkaError.

        An open transaction is aborted. With ``keep_transaction`` it stays open, with all acknowledged records, until
        ``Admin.end_transaction`` ends it by ``producer_id_and_epoch``, the next producer with its ``transactional.id``
        aborts it, or it times out. Call ``flush`` first, and check that no record has failed.

        Further calls do nothing. A call while another thread closes, or after an interrupted call (Ctrl-C), waits too,
        up to its own ``timeout``. In a callback it does not wait: remaining records fail at once, unless the producer
        is being closed already. If a callback blocks, ``close`` returns half a second after ``timeout``.

        Raises:
            IllegalStateError: a signal handler or a ``__del__`` called this method while its thread was inside another
                call that held a lock. The producer then accepts no more records and sends the remaining ones in the
                background. Call ``close`` again outside of the handler to wait for that.
            IllegalArgumentError: ``timeout`` is negative, or not a number.
        """
        timeout_ms = milliseconds(timeout)
        checked_flag(keep_transaction, "keep_transaction")
        if self._refusal == _FORKED:
            return
        from_callback = self._in_callback()
        if is_interrupting() or (self._components.sender_thread.is_current and not from_callback):
            self._refuse(_CLOSED)
            self._sender.abandon()
            raise interrupting("close()")
        with self._close_lock:
            first, self._closing = not self._closing, True
            if self._closed or (from_callback and not first):
                return
        self._refuse(_CLOSED)
        self._log.info("Closing the producer")
        if not from_callback and timeout_ms > 0:
            self._sender.initiate_close(keep_transaction=keep_transaction)
            self._io_thread.join(min(timeout_ms / 1000, threading.TIMEOUT_MAX))
        if self._io_thread.is_alive():
            if timeout_ms > 0:
                self._log.info("Closing now, although brokers have not acknowledged all records")
            self._sender.force_close()
            if not from_callback:
                self._io_thread.join(_FORCED_CLOSE_S)
                if self._io_thread.is_alive():
                    self._log.warning(
                        "The I/O thread has not ended %s s after it was told to: a callback is probably blocking it",
                        _FORCED_CLOSE_S,
                    )
        open_producers.closed(self)
        with self._close_lock:
            if self._closed:
                return
            self._closed = True
        self._components.close_plugins()
        self._log.debug("The producer has closed")

    def _in_callback(self) -> bool:
        return self._environment.get_ident() == self._io_thread.ident

    def refuse_after_fork(self) -> None:
        """Refuse all further calls.

        Called in a forked child, which has no sender thread and may have inherited held locks.
        """
        self._refuse(_FORKED)
        self._accumulator.fail_after_fork(UseAfterForkError(_FORKED))

    # --- scope -------------------------------------------------------------------------------------------------

    def __enter__(self) -> KafkaProducer[K, V]:
        self._ensure_usable()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close; within half a second when KeyboardInterrupt or SystemExit ends the program."""
        is_ending = error_type is not None and not issubclass(error_type, Exception)
        self.close(_ENDING_TIMEOUT_S if is_ending else None)

    def __del__(self) -> None:
        # No locks here: this runs on whichever thread drops the last reference, possibly while that thread holds a
        # lock.
        if getattr(self, "_refusal", _CLOSED) is None:
            if self._warns_unclosed:
                warnings.warn(f"{self!r} was never closed", ResourceWarning, source=self, stacklevel=2)
            self._sender.abandon()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} cannot be pickled, as its connections and its thread belong to this process: make it in the "
            "function that runs elsewhere (for tasks of Spark there is pykclient.spark.shared_producer)"
        )

    def __repr__(self) -> str:
        return f"<KafkaProducer {self._components.client_id}>"
