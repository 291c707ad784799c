"""The road of a record from ``send`` to a batch, for the blocking producer and for that of asyncio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, cast

from pykclient import topic_names
from pykclient.argument_values import check_callable
from pykclient.clock import HERE, Clock, ensure_not_interrupting, interrupting
from pykclient.errors import (
    AuthenticationError,
    BrokerError,
    IllegalArgumentError,
    IllegalStateError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    UseAfterForkError,
)
from pykclient.implementation import use_compiled
from pykclient.network.metadata import Cluster
from pykclient.pacing import SHORT_PAUSE_MS, RepeatedErrors
from pykclient.producer import record_arguments
from pykclient.producer.future import FutureRecordMetadata, OnDelivery, failed_future, run_listeners
from pykclient.producer.interceptors import UNKNOWN_PARTITION, InterceptedDelivery, headers_of
from pykclient.producer.outbox import FULL, Outbox
from pykclient.producer.partitioner.hashing import POSITIVE, murmur2, murmur2_cached
from pykclient.producer.producer_batch import ProducerBatch
from pykclient.producer.record_arguments import ensure_valid_record_size, serialize
from pykclient.record.record_batch import MAX_INT32
from pykclient.serialization import Serializer
from pykclient.types import Header, Headers, K, ProducerRecord, TopicPartition, V

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

    from pykclient.config.producer_config import ProducerConfig
    from pykclient.producer.batch_register import PartitionQueue, TopicInfo
    from pykclient.producer.interceptors import ProducerInterceptors
    from pykclient.producer.partitioner import Partitioner
    from pykclient.producer.producer_components import ProducerComponents
    from pykclient.producer.producer_metadata import ProducerMetadata
    from pykclient.producer.record_accumulator import RecordAccumulator
    from pykclient.producer.sender import Sender
    from pykclient.producer.transactions.producer_id_manager import ProducerIdManager

#: Upper bound, in bytes, of what a batch of one record without headers adds to its key and value.
RECORD_OVERHEAD: Final = 128

#: The longest key, in bytes, whose partition is cached.
_CACHED_KEY_SIZE = 64

FORKED = "this producer was made before fork(): its thread is in the parent process. Make one in the child"


class TopicWait:
    """Waits for the metadata of topics (Java: KafkaProducer.waitOnMetadata). Thread: any."""

    __slots__ = ("_components", "_max_block_ms")

    def __init__(self, components: ProducerComponents, max_block_ms: int) -> None:
        """``max_block_ms`` is the configured limit, for the text of errors."""
        self._components = components
        self._max_block_ms = max_block_ms

    def wait(self, topic: str, partition: int | None, max_block_ms: int) -> tuple[Cluster, int, int]:
        """Wait until ``topic`` and ``partition`` are in the metadata.

        Return the cluster, the number of the topic's partitions, and the rest of ``max_block_ms``.

        Raises:
            InvalidTopicError: the name of the topic is not valid.
            KafkaTimeoutError: the metadata did not arrive in time.
        """
        clock, metadata = self._components.clock, self._components.metadata
        start_ms = clock.now_ms()
        waited_ms = 0
        topic_names.validate(topic)
        while (found := self.look(topic, partition, start_ms + waited_ms)) is None:
            version = self.request(topic, partition, waited_ms, max_block_ms)
            thread = self._components.sender_thread
            if thread.is_current:
                raise KafkaTimeoutError(
                    f"topic {topic!r} or its partition {partition} is not in the metadata yet, and a callback or a "
                    "__del__ needs it on the sender's thread, which cannot wait for metadata. The producer has "
                    "requested it: send again later, or from another thread"
                )
            try:
                metadata.await_update(version, max_block_ms - waited_ms)
            except KafkaTimeoutError:
                raise self.missing(topic, partition)  # noqa: B904 - the error has its own cause
            with HERE.mark:
                metadata.maybe_throw_exception_for_topic(topic)
            waited_ms = clock.now_ms() - start_ms
        self._components.producer_metrics.record_metadata_wait(waited_ms)
        return *found, max_block_ms - waited_ms

    # --- the steps of a wait, none of which blocks -----------------------------------------------------------------

    def look(self, topic: str, partition: int | None, now_ms: int) -> tuple[Cluster, int] | None:
        """Return the cluster and the number of the topic's partitions; None if they are not in the metadata yet.

        Raises:
            InvalidTopicError: brokers have refused the name.
        """
        metadata = self._components.metadata
        cluster = metadata.fetch()
        if topic in cluster.invalid_topics:
            raise InvalidTopicError(f"topic {topic!r} has a name that the cluster does not allow")
        with HERE.mark:
            metadata.add(topic, now_ms)
        count = cluster.partition_count_for_topic(topic)
        return None if count is None or (partition is not None and partition >= count) else (cluster, count)

    def request(self, topic: str, partition: int | None, waited_ms: int, max_block_ms: int) -> int:
        """Request the metadata of ``topic``; return the version that must be exceeded before the next ``look``.

        Raises:
            KafkaTimeoutError: no time is left.
            KafkaError: the sender's thread has failed.
        """
        if waited_ms >= max_block_ms:
            raise self.missing(topic, partition)
        with HERE.mark:
            version = self._components.metadata.request_update_for_topic(topic)
        self._components.sender.wakeup()
        self._components.sender_thread.ensure_alive()
        return version

    def missing(self, topic: str, partition: int | None) -> KafkaTimeoutError:
        """Return the error for a topic or partition that was not in the metadata within ``max.block.ms``."""
        metadata = self._components.metadata
        report = self._components.client.connection_report()
        count = metadata.fetch().partition_count_for_topic(topic)
        return metadata.missing(topic, partition, count, self._max_block_ms, report)


class SendPath:
    """The settings for the fast path of ``send``, read only by the compiled form. Thread: any.

    A producer with a partitioner of its own has none.
    """

    __slots__ = ()

    def __init__(
        self,
        outbox: Outbox,
        clock: Clock | None,
        key_serializer: Serializer[Any],
        value_serializer: Serializer[Any],
        *,
        plain_keys: bool,
        plain_values: bool,
        ignore_keys: bool,
        max_record_size: int,
        share: Callable[[Any, OnDelivery | None], tuple[Any, OnDelivery]] | None,
    ) -> None:
        """``max_record_size`` is in bytes.

        If ``clock`` is None, records get the machine's time. ``plain_keys`` and ``plain_values``: bytes and None need
        no serializer. ``share`` is what interceptors make of the headers and the ``on_delivery`` of a record.
        """


class SendState(Generic[K, V]):
    """``send`` of a producer, and the path of its common records. Thread: any."""

    __slots__ = ("_send_path",)
    #: None where the Python code has to handle all records.
    _send_path: SendPath | None

    def send(
        self,
        topic: str | ProducerRecord[K, V],
        value: V | None = None,
        key: K | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> FutureRecordMetadata:
        """Append a record to a batch, which the background thread sends soon after.

        ``topic`` may be a ProducerRecord, in place of all arguments but ``on_delivery``. ``headers`` are
        pairs of a name and bytes or None. If ``partition`` is None, the partitioner chooses. ``timestamp_ms`` is in
        milliseconds since the epoch; None means now. ``on_delivery(error, metadata)`` is called once the record is
        acknowledged or has failed; FutureRecordMetadata describes when, and on which thread.

        Blocks up to ``max.block.ms`` while the topic's metadata is missing or ``buffer.memory`` is used up.

        The returned future fails with the errors that a broker reports for this record or its topic, with those of a
        record that is too large, and with authentication errors. All others are raised.

        Raises:
            KafkaTimeoutError: no metadata arrived within ``max.block.ms``.
            BufferExhaustedError: no memory became free within ``max.block.ms``.
            SerializationError: a serializer failed.
            IllegalArgumentError: an argument has the wrong type or value.
            IllegalStateError: the producer is closed.
            KafkaError: the producer hit a fatal error, or was closed during the call.
        """
        return self._send(topic, value, key, headers, partition, timestamp_ms, on_delivery)

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
        """Send a record that is not a common one, or all of them."""
        raise NotImplementedError


class SendMethods(Generic[K, V]):
    """The steps of ``send`` until a record is in a batch. Thread: any."""

    __slots__ = ()
    _accumulator: RecordAccumulator
    _clock: Clock
    _components: ProducerComponents
    _config: ProducerConfig
    _id_manager: ProducerIdManager | None
    _ignore_keys: bool
    _interceptors: ProducerInterceptors | None
    _key_serializer: Serializer[Any]
    _log: logging.LoggerAdapter[logging.Logger]
    _max_block_ms: int
    _max_record_size: int
    _metadata: ProducerMetadata
    _on_new_batch: Any
    _partitioner: Partitioner | None
    _plain_key_types: frozenset[type]
    _plain_value_types: frozenset[type]
    #: The reason why calls are refused, or None. Every call reads it first.
    _refusal: str | None
    _repeated_sends: RepeatedErrors
    _sender: Sender
    _topic_wait: TopicWait
    _value_serializer: Serializer[Any]

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
    ) -> FutureRecordMetadata | None:
        """Append a record to a batch; return None, with nothing done, if this thread must not wait and would have to.

        ``serialized`` has the key and the value as bytes, if they have been serialized already.
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
        return future

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

    def _wake_sender(self) -> None:
        """Have the sender stepped for a batch that it does not know of yet."""
        raise NotImplementedError

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

    def _rest(self, duration_ms: int) -> None:
        """Wait before an error is raised, as the program may repeat the call without end."""
        raise NotImplementedError

    def _refused(self) -> KafkaError:
        """Return the error of a call that is refused."""
        self._rest(SHORT_PAUSE_MS)
        return self._refusal_error()

    def _refusal_error(self) -> KafkaError:
        if self._refusal is None:
            return IllegalStateError("the producer is in use")
        return UseAfterForkError(self._refusal) if self._refusal == FORKED else IllegalStateError(self._refusal)

    def _ensure_usable(self) -> None:
        if self._refusal is not None:
            raise self._refused()


use_compiled(__name__)
