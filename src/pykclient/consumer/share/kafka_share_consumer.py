"""The public class of share consumers, with Java's semantics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from pykclient.config.consumer_config import ShareConsumerConfig
from pykclient.consumer import consumer_arguments
from pykclient.consumer.consumer_face import DEFAULT_CLOSE_TIMEOUT_MS, ConsumerFace
from pykclient.consumer.share.acknowledgements import AcknowledgeType, commit_callback
from pykclient.consumer.share.share_consumer import ShareConsumer, ShareConsumerComponents
from pykclient.errors import IllegalArgumentError, KafkaError
from pykclient.network.environment import SYSTEM_ENVIRONMENT
from pykclient.types import ConsumerRecord, K, TopicIdPartition, TopicPartition, V

if TYPE_CHECKING:
    from typing import Unpack

    import pyarrow as pa

    from pykclient.config.client_settings import ConsumerSettings
    from pykclient.consumer.iteration import ColumnDecoder
    from pykclient.serialization import DeserializerOf
    from pykclient.types import MadeK, MadeV


class KafkaShareConsumer(ConsumerFace[K, V]):
    """A member of a share group (KIP-932), which processes records like messages of a queue.

        with KafkaShareConsumer("orders", bootstrap_servers="localhost:9092", group_id="billing") as consumer:
            for record in consumer:
                ...

    All members of the group read the same partitions. The broker locks each record for the member that gets it, and
    delivers it again if the member releases it, or does not acknowledge it before the lock expires. After a number of
    deliveries (``group.share.delivery.count.limit`` of the brokers) it gives up. Records have no order: a released
    record comes after later ones.

    With ``share.acknowledgement.mode=implicit``, the default, the next ``poll`` or commit accepts the records of the
    last ``poll``. With ``explicit``, the application calls ``acknowledge`` for each record before the next ``poll``.
    ``close`` accepts nothing: call ``commit_sync`` before it.

    Create one with ``KafkaShareConsumer(*topics, **settings)`` or ``KafkaShareConsumer(settings, *topics)``. Settings
    have Kafka's names, with dots in a mapping or with underscores as keyword arguments. ``group.id`` is required.

    All network traffic happens inside these methods. The exceptions are heartbeats and acknowledgements that are on
    their way, which have their own thread. All times are in milliseconds.

    Once the consumer is closed, its methods raise IllegalStateError.

    Thread: one at a time; a second one gets ConcurrentModificationError. ``wakeup``, ``explain`` and ``metrics`` may be
    called from any thread. In a forked child process every call raises UseAfterForkError, except ``close``, which does
    nothing.
    """

    _config_class = ShareConsumerConfig
    _components_class = ShareConsumerComponents
    _consumer_class = ShareConsumer
    _consumer: ShareConsumer

    @overload
    def __init__(
        self: KafkaShareConsumer[MadeK, MadeV],
        *topics: str,
        key_deserializer: DeserializerOf[MadeK] | None = None,
        value_deserializer: DeserializerOf[MadeV] | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        /,
        *topics: str,
        key_deserializer: Any = None,
        value_deserializer: Any = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self,
        *topics: str,
        key_deserializer: Any = None,
        value_deserializer: Any = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...

    def __init__(self, *topics: Any, **settings: Any) -> None:
        """Create a consumer and subscribe it to ``topics``.

        Raises:
            ConfigError: a setting is wrong, or no bootstrap server's name can be resolved.
            InvalidGroupIdError: there is no ``group.id``.
            IllegalArgumentError: a positional argument is neither a mapping of settings nor a topic.
            InvalidTopicError: no topic can have one of these names.
        """
        self._create(topics, settings, SYSTEM_ENVIRONMENT)

    # --- subscription ------------------------------------------------------------------------------------------------

    def subscribe(self, topics: Collection[str]) -> None:
        """Subscribe to ``topics``. This replaces an earlier subscription; without topics, it is ``unsubscribe``.

        Raises:
            IllegalArgumentError: ``topics`` is not a collection of names.
            InvalidTopicError: no topic can have one of these names.
        """
        with self._guard:
            names = consumer_arguments.topics(() if topics is None else topics)
            if names:
                self._consumer.subscribe(names)
            else:
                self._run(self._consumer.unsubscribe())

    def unsubscribe(self) -> None:
        """Leave the group. Records of the last poll can still be acknowledged and committed."""
        with self._guard:
            self._guard.require_outermost()
            self._run(self._consumer.unsubscribe())

    # --- records -----------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: float = 0) -> dict[TopicPartition, list[ConsumerRecord[K, V]]]:
        """Return records by partition as soon as there are some, or an empty dict after ``timeout_ms`` milliseconds.

        Returns about ``max.poll.records`` records, or exactly up to that many with ``share.acquire.mode=record_limit``.
        The ``delivery_count`` of a record is 1 at its first delivery. Records whose locks were renewed are returned
        again. With implicit acknowledgement, this call accepts the records of the last one. It also runs the
        acknowledgement commit callback and does the work of group membership, so call it at least every
        ``max.poll.interval.ms`` milliseconds.

        Raises:
            IllegalStateError: there is no subscription, a callback makes this call, or, with explicit acknowledgement,
                records of the last poll are not acknowledged.
            WakeupError: ``wakeup`` was called.
            RecordDeserializationError: a deserializer failed. The record is released, unless you pass its topic,
                partition and offset to ``acknowledge`` with another type.
            CorruptRecordError: a batch is corrupt. Its records are rejected.
            AuthorizationError: the consumer may not read a topic or use the group.
            AuthenticationError: a broker refused the credentials.
            UnsupportedVersionError: the brokers do not serve share groups.
        """
        with self._guard:
            if timeout_ms is None:  # the types forbid it; in other methods None means the default timeout
                raise IllegalArgumentError("poll() takes a number of milliseconds, not None")
            self._guard.require_outermost()
            fetch = self._run(self._consumer.poll(self._timer(timeout_ms)))
            records: dict[TopicPartition, list[ConsumerRecord[K, V]]] = fetch.records
        # Last, because a signal handler may raise anywhere above. From here the records are certain to reach the
        # caller.
        fetch.returned = True
        return records

    def poll_arrow(
        self,
        timeout_ms: float = 0,
        *,
        columns: Sequence[str] | None = None,
        key: ColumnDecoder | None = None,
        value: ColumnDecoder | None = None,
    ) -> pa.RecordBatch:
        """Poll for records of all partitions and return them as one pyarrow.RecordBatch.

        The batch has no rows if no record arrives within ``timeout_ms`` milliseconds. In its effects and errors, this
        is a ``poll``; you can alternate the two. ``columns`` names the columns to build (default: all): those of
        ``KafkaConsumer.poll_arrow``, and delivery_count. Keys and values are the bytes that were sent. With explicit
        acknowledgement, pass the batch, or a selection of its rows, to ``acknowledge``.

        ``key`` and ``value`` decode these columns, such as ``pykclient.schema_registry.avro_columns(registry)``. If a
        row cannot be decoded, the error names it, and the next poll returns the same rows. Decode with
        ``on_error="keep"`` to reject single rows.

        Raises:
            ImportError: pyarrow is not installed.
            IllegalStateError: the consumer has deserializers, which would not be called.
            IllegalArgumentError: an argument is invalid.
            RecordDeserializationError: ``key`` or ``value`` cannot decode a row.
            KafkaError: any error of ``poll``.
        """
        with self._guard:
            self._guard.require_outermost()
            decoders = self._consumer.column_decoders(columns, key, value)
            fetch = self._run(self._consumer.poll(self._timer(timeout_ms)))
            batch = decoders.into(self._consumer.columns(fetch, decoders.built))
        fetch.returned = True  # last, as in poll()
        return batch

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        """Return an iterator over records that polls as needed and ends after ``consumer.timeout.ms`` without one.

        With implicit acknowledgement, a record is accepted by the poll or commit after the loop has received it, and
        records that are buffered behind it are not. If you abandon a loop, another loop or ``poll`` resumes where it
        stopped. The loop ends when ``close`` is called inside it.
        """
        return super().__iter__()

    def _loop(self) -> Iterator[ConsumerRecord[K, V]]:
        waiting = self._consumer.waiting
        while self._iterate():
            while waiting and not self._guard.closed:
                record = waiting[0]
                try:
                    waiting.popleft()
                    yield record
                except GeneratorExit:
                    raise
                except BaseException:  # of a signal handler, perhaps before the loop has received the record
                    if not waiting or waiting[0] is not record:
                        waiting.appendleft(record)
                    raise
            if self._guard.closed:
                return

    # --- acknowledgements --------------------------------------------------------------------------------------------

    @overload
    def acknowledge(self, record: ConsumerRecord[K, V], type: AcknowledgeType = AcknowledgeType.ACCEPT, /) -> None: ...

    @overload
    def acknowledge(
        self, rows: pa.RecordBatch | pa.Table, type: AcknowledgeType = AcknowledgeType.ACCEPT, /
    ) -> None: ...

    @overload
    def acknowledge(self, topic: str, partition: int, offset: int, type: AcknowledgeType, /) -> None: ...

    def acknowledge(self, *args: Any) -> None:
        """Acknowledge a record of the last poll: ``acknowledge(record)`` accepts it.

        ``acknowledge(record, type)`` may also release or reject it, or renew its lock. Until it is sent, with the next
        ``poll`` or commit, a later acknowledgement of the same record replaces the earlier one.
        ``acknowledge(rows)`` and ``acknowledge(rows, type)`` take rows of ``poll_arrow``, such as a selection of them,
        with the columns topic, partition and offset. All are acknowledged, or none if one cannot be.
        ``acknowledge(topic, partition, offset, type)`` is for a record for which the last poll has raised
        RecordDeserializationError.

        Raises:
            IllegalStateError: ``share.acknowledgement.mode`` is implicit, or the record is not one of the last poll.
            IllegalArgumentError: an argument is wrong.
        """
        with self._guard:
            self._consumer.acknowledge(args)

    def commit_sync(self, timeout_ms: float | None = None) -> dict[TopicIdPartition, KafkaError | None]:
        """Send the acknowledgements, and wait at most ``timeout_ms`` milliseconds for the answers.

        With implicit acknowledgement, first accept the records of the last poll. The default of ``timeout_ms`` is
        ``default.api.timeout.ms``. Return None for each partition whose acknowledgements succeeded, and an error for
        the others: their records are delivered again. InvalidRecordStateError means that locks have expired.

        Raises:
            WakeupError: ``wakeup`` was called. The acknowledgements go on, and the callback gets their outcome.
        """
        with self._guard:
            self._guard.require_outermost()
            return self._run(self._consumer.commit_sync(self._timer(timeout_ms)))

    def commit_async(self) -> None:
        """Send the acknowledgements without waiting. The acknowledgement commit callback gets the outcome.

        With implicit acknowledgement, first accept the records of the last poll.
        """
        with self._guard:
            self._guard.require_outermost()
            self._run(self._consumer.commit_async())

    def set_acknowledgement_commit_callback(
        self, callback: Callable[[dict[TopicIdPartition, set[int]], KafkaError | None], object] | None
    ) -> None:
        """Set the ``callback(offsets, error)`` to call when brokers answer acknowledgements; None removes it.

        ``offsets`` has the acknowledged offsets of one partition, and ``error`` is None on success. The callback runs
        inside ``poll``, commits and ``close``. It cannot call this consumer, except ``wakeup``. An error that it raises
        is logged. Without a callback, errors are logged.

        Raises:
            IllegalArgumentError: ``callback`` cannot be called.
        """
        with self._guard:
            self._consumer.set_callback(commit_callback(callback))

    def acquisition_lock_timeout_ms(self) -> int | None:
        """Return how long, in milliseconds, the broker locks the records of the last poll; None before the first."""
        with self._guard:
            return self._consumer.acquisition_lock_timeout_ms

    # --- metrics and closing -----------------------------------------------------------------------------------------

    def _explain(self) -> str:
        from pykclient.consumer.explanation import explain_share_consumer

        return explain_share_consumer(repr(self), self._consumer.components)

    def close(self, timeout_ms: float | None = None) -> None:
        """Send the acknowledgements that were made, leave the group, and close all connections.

        Waits at most ``timeout_ms`` milliseconds (default: 30,000). The locks of all other records are released, also
        of those that the last poll has returned and that would be accepted implicitly. A second call does nothing.

        Raises:
            KafkaError: closing failed. The consumer is closed all the same.
            IllegalStateError: called by a signal handler or destructor that interrupts another call of the same thread,
                or by a callback. Nothing is closed. Call ``wakeup()`` there, and ``close()`` after ``poll()`` has
                raised WakeupError.
            IllegalArgumentError: ``timeout_ms`` is negative.
        """
        bound_ms = DEFAULT_CLOSE_TIMEOUT_MS if timeout_ms is None else consumer_arguments.milliseconds(timeout_ms)
        if self._is_gone():
            return
        with self._guard:
            self._guard.require_outermost()
            failure = self._close(lambda: self._consumer.close(bound_ms), lambda: self._consumer.close(0))
        if failure is not None:
            raise failure

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        """Close the consumer. Takes at most half a second if the program is being ended, for example by Ctrl-C."""
        self.close(timeout_ms=self._exit(error_type)[1])
