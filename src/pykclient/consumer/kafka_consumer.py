"""The consumer's public class, with Java's semantics and kafka-python's names."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, overload

from pykclient import topic_names
from pykclient.argument_values import checked_flag
from pykclient.clock import FOREVER_MS, Timer
from pykclient.config.consumer_config import ConsumerConfig
from pykclient.consumer import consumer_arguments
from pykclient.consumer.consumer_components import ConsumerComponents
from pykclient.consumer.consumer_delegate import DEFAULT_REBALANCE_REASON, ConsumerDelegate
from pykclient.consumer.consumer_face import DEFAULT_CLOSE_TIMEOUT_MS, ConsumerFace, OffsetCommitFuture
from pykclient.consumer.iteration import ArrowReader, ColumnDecoder
from pykclient.consumer.values import AutoOffsetResetStrategy, GroupMembershipOperation, SubscriptionPattern
from pykclient.errors import IllegalArgumentError, IllegalStateError
from pykclient.network.environment import SYSTEM_ENVIRONMENT
from pykclient.types import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    K,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionInfo,
    TopicDescription,
    TopicPartition,
    V,
)

if TYPE_CHECKING:
    from typing import Unpack
    from uuid import UUID

    import pyarrow as pa

    from pykclient.config.client_settings import ConsumerSettings
    from pykclient.serialization import DeserializerOf
    from pykclient.types import MadeK, MadeV

#: Internal topics; ``topics()`` omits them unless ``exclude.internal.topics`` is off.
INTERNAL_TOPICS = frozenset(("__consumer_offsets", "__transaction_state", "__share_group_state"))


class KafkaConsumer(ConsumerFace[K, V]):
    """A Kafka consumer that reads records, alone or as a member of a group.

        with KafkaConsumer("orders", bootstrap_servers="localhost:9092", group_id="billing") as consumer:
            for record in consumer:
                ...

    Create one with ``KafkaConsumer(*topics, **settings)`` or ``KafkaConsumer(settings, *topics)``. Settings have
    Kafka's names, with dots in a mapping or with underscores as keyword arguments. The consumer subscribes to the given
    topics.

    All network traffic happens inside these methods. The exception is the heartbeats of a group member, which have
    their own thread. All times are in milliseconds. Methods that wait take ``timeout_ms``, by default
    ``default.api.timeout.ms``, and raise KafkaTimeoutError with the reason when it expires. ``poll`` and iteration
    raise the errors of the cluster and the group. The consumer remains usable after them unless the documentation of
    the error says otherwise.

    Once the consumer is closed, its methods raise IllegalStateError.

    Thread: one at a time; a second one gets ConcurrentModificationError. Any thread may call ``wakeup``, and methods
    that only read: ``assignment``, ``subscription``, ``paused``, ``highwater``, ``bootstrap_connected``,
    ``group_metadata``, ``metrics`` and ``explain``. In a forked child process every call raises UseAfterForkError,
    except ``close``, which does nothing.
    """

    _where_to_make_it = " (Spark reads topics with pykclient.spark.KafkaDataSource)"
    _config_class = ConsumerConfig
    _components_class = ConsumerComponents
    _consumer_class = ConsumerDelegate
    _consumer: ConsumerDelegate

    @overload
    def __init__(
        self: KafkaConsumer[MadeK, MadeV],
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
            IllegalArgumentError: a positional argument is neither a mapping of settings nor a topic.
            InvalidTopicError: no topic can have one of these names.
        """
        self._create(topics, settings, SYSTEM_ENVIRONMENT)

    # --- subscription ------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Collection[str] = (),
        pattern: str | re.Pattern[str] | SubscriptionPattern | None = None,
        listener: Any = None,
    ) -> None:
        """Subscribe to ``topics``, or to all topics that match ``pattern``, and share their partitions with the group.

        A subscription replaces the previous one; without topics and pattern, this is ``unsubscribe``. The pattern must
        match the whole name. New topics that match are found when metadata is refreshed (``metadata.max.age.ms``). A
        SubscriptionPattern is matched by the brokers instead, which needs ``group.protocol=consumer``.
        ``listener`` is a ConsumerRebalanceListener. Without a ``group.id`` the consumer reads all partitions and does
        not call the listener.

        Raises:
            IllegalArgumentError: both topics and a pattern are given, one of the arguments is invalid, or the brokers
                cannot match a pattern with this ``group.protocol``.
            InvalidGroupIdError: the brokers are to match a pattern, and the consumer has no ``group.id``.
            IllegalStateError: partitions are assigned by ``assign``, or there is a subscription of the other kind.
            InvalidTopicError: no topic can have one of these names.
        """
        with self._guard:
            names = consumer_arguments.topics(() if topics is None else topics)
            if names and pattern is not None:
                raise IllegalArgumentError("subscribe() takes topics or a pattern, not both")
            if isinstance(pattern, SubscriptionPattern):
                self._consumer.subscribe_broker_pattern(pattern, consumer_arguments.listener(listener))
            elif pattern is not None:
                self._consumer.subscribe_pattern(
                    consumer_arguments.pattern(pattern), consumer_arguments.listener(listener)
                )
            elif names:
                self._consumer.subscribe(names, consumer_arguments.listener(listener))
            else:
                self._run(self._consumer.unsubscribe())

    def unsubscribe(self) -> None:
        """Leave the group and give up all partitions. With automatic commits the positions are committed first.

        Raises:
            KafkaError: the rebalance listener failed. The consumer is unsubscribed all the same.
            IllegalStateError: called by a rebalance listener or a commit callback, as this would call the listener
                again.
        """
        with self._guard:
            self._guard.require_outermost()
            self._run(self._consumer.unsubscribe())
            self._consumer.release_column_memory()

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these partitions, without group management. Replaces an earlier assignment.

        With a ``group.id``, offsets can still be committed. No partitions means ``unsubscribe``.

        Raises:
            IllegalStateError: the consumer is subscribed to topics.
            IllegalArgumentError: ``partitions`` is not a collection of TopicPartition.
        """
        with self._guard:
            wanted = topic_names.partitions(partitions)
            if wanted:
                self._run(self._consumer.assign(wanted))
            else:
                self._run(self._consumer.unsubscribe())

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that ``assign`` or the group has assigned. Thread: any."""
        self._guard.check_open()
        return self._consumer.assigned_partitions()

    # --- records -----------------------------------------------------------------------------------------------------

    def poll(
        self, timeout_ms: float = 0, max_records: int | None = None, update_offsets: bool = True
    ) -> dict[TopicPartition, list[ConsumerRecord[K, V]]]:
        """Return records by partition as soon as there are some, or an empty dict after ``timeout_ms`` milliseconds.

        Returns at most ``max_records`` records (default: ``max.poll.records``). With ``update_offsets=False`` the
        positions do not move, so the next poll returns the same records again. This call also does the work of group
        membership, automatic commits and callbacks, so call it at least every ``max.poll.interval.ms`` milliseconds.

        Raises:
            WakeupError: ``wakeup`` was called.
            IllegalStateError: there is no subscription or assignment, or a callback of the consumer makes this call.
            RecordDeserializationError: a deserializer failed; ``seek`` past the record to continue.
            NoOffsetForPartitionError: a partition has no position, and ``auto.offset.reset`` is ``none``.
            OffsetOutOfRangeError: a position is outside the log, and ``auto.offset.reset`` is ``none``.
            LogTruncationError: records were lost after they were read, and ``auto.offset.reset`` is ``none``.
            AuthorizationError: the consumer may not read a topic or use the group.
            FencedInstanceIdError: another member has taken over this ``group.instance.id``.
            AuthenticationError: a broker refused the credentials.
            KafkaError: the rebalance listener failed, or a record batch is unreadable.
        """
        with self._guard as outer:
            if timeout_ms is None:  # the types forbid it; in other methods None means the default timeout
                raise IllegalArgumentError("poll() takes a number of milliseconds, not None")
            moves = update_offsets is True or checked_flag(update_offsets, "update_offsets")
            if outer is not None:
                self._guard.require_outermost()
            if max_records is not None:
                max_records = consumer_arguments.max_records(max_records)
            # Without the calls of _timer for nearly all values.
            if type(timeout_ms) is int and 0 <= timeout_ms < FOREVER_MS:
                timer = Timer(self._clock, timeout_ms)
            else:
                timer = self._timer(timeout_ms)
            fetch = self._run(self._consumer.poll(timer, max_records))
            records: dict[TopicPartition, list[ConsumerRecord[K, V]]] = fetch.records
            if not moves:
                self._consumer.take_back(fetch)
        # Last, because a signal handler may raise anywhere above. From here the records are certain to reach the
        # caller.
        fetch.returned = True
        return records

    def poll_arrow(
        self,
        timeout_ms: float = 0,
        max_records: int | None = None,
        max_bytes: int | None = None,
        columns: Sequence[str] | None = None,
        binary_view: bool = False,
        until: Mapping[TopicPartition, int] | None = None,
        key: ColumnDecoder | None = None,
        value: ColumnDecoder | None = None,
    ) -> pa.RecordBatch:
        """Poll for records of all partitions and return them as one pyarrow.RecordBatch.

        The batch has no rows if no record arrives within ``timeout_ms`` milliseconds. In its effect on positions,
        commits and the group, and in its errors, this is a ``poll``; you can alternate the two. It returns what is
        buffered: at most ``max_records`` rows (default: no limit) and at most ``max_bytes`` bytes of uncompressed
        records (default: ``fetch.max.bytes``). A first record that is larger is returned anyway. The records of a
        partition are in order.

        ``columns`` names the columns to build (default: all): topic (a dictionary), partition, offset, timestamp (ms,
        UTC; null if there is none), timestamp_type (0: created, 1: appended, -1: none), key, value, headers (a list of
        key and value), leader_epoch (null if unknown). Keys and values are the bytes that were sent; deserializers are
        not called. With ``binary_view`` they are views: of the received buffers, or of a copy if they were compressed.
        The buffers stay in memory while an array refers to them.

        ``until`` maps partitions to end offsets. Records from the end offset on are not returned, and a partition that
        has no records before it is paused. Its position is then at or after the end offset, even if no record has that
        offset. Little is fetched beyond end offsets: fetches have the estimated size of what is left.

        ``key`` and ``value`` decode these columns, such as ``pykclient.schema_registry.avro_columns(registry)``. If a
        row cannot be decoded, the error names it, and the next poll returns the same rows.

        Raises:
            ImportError: pyarrow is not installed.
            IllegalStateError: the consumer has interceptors, which would not be called.
            IllegalArgumentError: an argument is invalid.
            RecordDeserializationError: ``key`` or ``value`` cannot decode a row.
            KafkaError: any error of ``poll``.
        """
        reader = ArrowReader(self._consumer, max_records, max_bytes, columns, binary_view, until, key, value)
        with self._guard:
            self._guard.require_outermost()
            batch, fetch = self._run(reader.take(self._timer(timeout_ms)))
        fetch.returned = True  # last, as in poll()
        return batch

    def iter_arrow(
        self,
        max_records: int | None = None,
        max_bytes: int | None = None,
        columns: Sequence[str] | None = None,
        binary_view: bool = False,
        key: ColumnDecoder | None = None,
        value: ColumnDecoder | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Return an iterator over the batches of successive ``poll_arrow`` calls, with the same arguments.

        The iterator ends when no records arrive within ``consumer.timeout.ms``, or when ``close`` is called inside the
        loop. A whole batch counts as consumed once the loop has received it.

        Raises:
            ImportError: pyarrow is not installed.
            IllegalStateError: the consumer has interceptors, which would not be called.
            IllegalArgumentError: an argument is invalid.
        """
        reader = ArrowReader(self._consumer, max_records, max_bytes, columns, binary_view, None, key, value)
        return self._batches(reader)

    def _batches(self, reader: ArrowReader) -> Iterator[pa.RecordBatch]:
        while not self._guard.closed:
            timer = Timer(self._clock, self._loop_timeout_ms)
            with self._guard:
                self._guard.require_outermost()
                while True:
                    batch, fetch = self._run(reader.take(timer))
                    if batch.num_rows:
                        break
                    fetch.returned = True  # positions may have moved over aborted records only
                    timer.update()
                    if timer.expired:
                        return
            fetch.returned = True  # last, as in poll()
            yield batch

    def prefetch(self) -> None:
        """Send the fetch requests that are due, as ``poll`` does before it returns. Does not wait.

        Raises:
            AuthenticationError: a broker refused the credentials.
        """
        with self._guard:
            self._consumer.prefetch()

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        """Return an iterator over records that polls as needed and ends after ``consumer.timeout.ms`` without one.

        A record counts as consumed, also for commits, once the loop has received it. Records that are buffered behind
        it do not count. If you abandon a loop, another loop resumes where it stopped. The loop ends when ``close`` is
        called inside it.
        """
        return super().__iter__()

    def _loop(self) -> Iterator[ConsumerRecord[K, V]]:
        return chain.from_iterable(self._lists())

    def _lists(self) -> Iterator[Iterator[ConsumerRecord[K, V]]]:
        """Yield list iterators, so that advancing within a batch runs no Python code."""
        consumer = self._consumer
        while self._iterate():
            while not self._guard.closed:
                # While an asynchronous commit is in flight, callbacks run between records.
                singly = consumer.has_pending_async_commits()
                if singly:
                    with self._guard:
                        self._run(consumer.run_commit_callbacks())
                records = consumer.next_records(singly=singly)
                if records is None:
                    break
                yield records
            if self._guard.closed:
                return

    # --- positions ---------------------------------------------------------------------------------------------------

    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        """Return the offset of the next record that the application will get.

        If the position is not known yet, this looks it up and waits at most ``timeout_ms`` milliseconds (default:
        ``default.api.timeout.ms``).

        Raises:
            IllegalStateError: the partition is not assigned to this consumer.
            KafkaTimeoutError: the position is not known within ``timeout_ms``.
            NoOffsetForPartitionError: there is no committed offset, and ``auto.offset.reset`` is ``none``.
            WakeupError: ``wakeup`` was called.
        """
        with self._guard:
            tp = topic_names.partition(partition)
            return self._run(self._consumer.position(tp, self._timer(timeout_ms)))

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata, *, topic_id: UUID | None = None) -> None:
        """Set the position of ``partition``: the next poll returns records from ``offset`` on.

        The offset is not checked before that poll. It belongs to the topic with this ``topic_id`` (see
        ``describe_topics``), by default to the topic that currently has the name. If the topic is deleted and created
        again, the position is reset by ``auto.offset.reset``; with ``none``, polls raise NoOffsetForPartitionError.

        Raises:
            IllegalStateError: the partition is not assigned to this consumer.
            IllegalArgumentError: ``offset`` is negative, or an argument is invalid.
        """
        with self._guard:
            tp, place = topic_names.partition(partition), consumer_arguments.offset_and_metadata(offset)
            epoch = place.leader_epoch if place.leader_epoch >= 0 else None
            self._consumer.seek(tp, place.offset, epoch, consumer_arguments.topic_id(topic_id))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Seek to the first record of the given partitions (default: all assigned). Takes effect on the next poll.

        Raises:
            IllegalStateError: no partitions are assigned, or a given one is not.
        """
        self._reset(partitions, AutoOffsetResetStrategy.EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Seek to the end of the given partitions (default: all assigned). Takes effect on the next poll.

        Raises:
            IllegalStateError: no partitions are assigned, or a given one is not.
        """
        self._reset(partitions, AutoOffsetResetStrategy.LATEST)

    def _reset(self, partitions: tuple[Any, ...], strategy: AutoOffsetResetStrategy) -> None:
        with self._guard:
            chosen = consumer_arguments.partitions_of_call(partitions) or self._consumer.assignment()
            if not chosen:
                raise IllegalStateError(
                    "cannot seek, as no partitions are assigned: assign() them, or subscribe() and seek after a poll() "
                    "that has given this consumer partitions, or in on_partitions_assigned"
                )
            self._consumer.reset(chosen, strategy)

    def pause(self, *partitions: TopicPartition) -> None:
        """Pause the given partitions: polls return none of their records until ``resume`` or a rebalance.

        Raises:
            IllegalStateError: a partition is not assigned to this consumer.
        """
        with self._guard:
            self._consumer.pause(consumer_arguments.partitions_of_call(partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        """Resume the given partitions after ``pause``.

        Raises:
            IllegalStateError: a partition is not assigned to this consumer.
        """
        with self._guard:
            self._consumer.resume(consumer_arguments.partitions_of_call(partitions))

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions. Thread: any."""
        self._guard.check_open()
        return self._consumer.paused()

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the high watermark of ``partition`` as of the last fetch, or None before the first.

        The high watermark is the offset after the last record that all in-sync replicas have. Thread: any.
        """
        self._guard.check_open()
        return self._consumer.high_watermark(topic_names.partition(partition))

    def current_lag(self, partition: TopicPartition) -> int | None:
        """Return the number of records between the position and the end of ``partition``, or None if unknown.

        The end is that of the last fetch: the high watermark, or with ``read_committed`` the last stable offset. If the
        end is unknown, this call asks for it without waiting.
        """
        with self._guard:
            return self._consumer.current_lag(topic_names.partition(partition))

    # --- commits -----------------------------------------------------------------------------------------------------

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None, timeout_ms: float | None = None
    ) -> None:
        """Commit ``offsets`` (default: all positions) and wait at most ``timeout_ms`` milliseconds for the response.

        A committed offset is that of the next record to read. Transient failures are retried. When this returns, the
        callbacks of earlier ``commit_async`` calls have run.

        Raises:
            CommitFailedError: the group has removed this member, and the partitions may belong to another one.
            RebalanceInProgressError: a rebalance is in progress; ``poll`` completes it.
            FencedInstanceIdError: another member has taken over this ``group.instance.id``.
            InvalidGroupIdError: the consumer has no ``group.id``.
            UnknownTopicOrPartitionError: a topic was deleted; the error names the partitions.
            KafkaTimeoutError: the commit did not succeed within ``timeout_ms``.
            AuthorizationError: the consumer may not use the group, or read a topic.
            WakeupError: ``wakeup`` was called.
        """
        with self._guard:
            self._run(self._consumer.commit_sync(consumer_arguments.offsets(offsets), self._timer(timeout_ms)))

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        callback: Callable[[dict[TopicPartition, OffsetAndMetadata], Exception | None], object] | None = None,
    ) -> OffsetCommitFuture:
        """Commit ``offsets`` (default: all positions) without waiting and without retries.

        ``callback(offsets, error)`` runs inside a later ``poll``, step of a loop, commit or ``close``. Callbacks run in
        the order of the commits. ``error`` is None on success, and RetriableCommitFailedError if another attempt may
        succeed. Returns a future that completes in the same calls.

        Raises:
            InvalidGroupIdError: the consumer has no ``group.id``.
            IllegalArgumentError: an offset is negative or invalid, ``offsets`` is not a mapping, or ``callback`` cannot
                be called.
        """
        with self._guard:
            wanted, tell = consumer_arguments.offsets(offsets), consumer_arguments.callback(callback)
            return OffsetCommitFuture(self._run(self._consumer.commit_async(wanted, tell)))

    @overload
    def committed(
        self, partitions: TopicPartition, metadata: bool = False, timeout_ms: float | None = None
    ) -> int | OffsetAndMetadata | None: ...

    @overload
    def committed(
        self, partitions: Iterable[TopicPartition], metadata: bool = False, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]: ...

    def committed(
        self,
        partitions: TopicPartition | Iterable[TopicPartition],
        metadata: bool = False,
        timeout_ms: float | None = None,
    ) -> Any:
        """Return the offsets that the group has committed, waiting at most ``timeout_ms`` milliseconds.

        For one partition the result is its offset, or with ``metadata`` an OffsetAndMetadata. For several it is a dict
        of OffsetAndMetadata. A partition without a committed offset has None.

        Raises:
            InvalidGroupIdError: the consumer has no ``group.id``.
            KafkaTimeoutError: the offsets did not arrive within ``timeout_ms``.
            AuthorizationError: the consumer may not use the group, or read a topic.
            WakeupError: ``wakeup`` was called.
        """
        with self._guard:
            timer, with_metadata = self._timer(timeout_ms), checked_flag(metadata, "metadata")
            if not isinstance(partitions, TopicPartition):
                return self._run(self._consumer.committed(topic_names.partitions(partitions), timer))
            tp = topic_names.partition(partitions)
            found = self._run(self._consumer.committed((tp,), timer))[tp]
            return found if found is None or with_metadata else found.offset

    # --- cluster metadata and offsets --------------------------------------------------------------------------------

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first offset at or after each time (milliseconds since the epoch), or None if there is none.

        Waits at most ``timeout_ms`` milliseconds (default: ``default.api.timeout.ms``). Positions do not move.

        Raises:
            KafkaTimeoutError: not all offsets are known within ``timeout_ms``.
            TopicAuthorizationError: the consumer may not describe a topic.
            IllegalArgumentError: a time is not a number from 0 on.
        """
        with self._guard:
            wanted = consumer_arguments.timestamps(timestamps)
            return self._run(self._consumer.offsets_for_times(wanted, self._timer(timeout_ms).timeout_ms))

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset of the first record of each partition. Positions do not move.

        Waits at most ``timeout_ms`` milliseconds (default: ``default.api.timeout.ms``).

        Raises:
            KafkaTimeoutError: not all offsets are known within ``timeout_ms``.
            TopicAuthorizationError: the consumer may not describe a topic.
        """
        with self._guard:
            wanted = topic_names.partitions(partitions)
            return self._run(self._consumer.beginning_offsets(wanted, self._timer(timeout_ms).timeout_ms))

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last readable record of each partition. Positions do not move.

        That is the high watermark, or with ``isolation.level=read_committed`` the last stable offset. Waits at most
        ``timeout_ms`` milliseconds (default: ``default.api.timeout.ms``).

        Raises:
            KafkaTimeoutError: not all offsets are known within ``timeout_ms``.
            TopicAuthorizationError: the consumer may not describe a topic.
        """
        with self._guard:
            wanted = topic_names.partitions(partitions)
            return self._run(self._consumer.end_offsets(wanted, self._timer(timeout_ms).timeout_ms))

    def partitions_for(self, topic: str, timeout_ms: float | None = None) -> list[PartitionInfo]:
        """Return the partitions of ``topic`` with their leaders and replicas, or an empty list if it does not exist.

        Asks the cluster only if the topic is not in the metadata, and waits at most ``timeout_ms`` milliseconds
        (default: ``default.api.timeout.ms``). May create the topic if ``allow.auto.create.topics`` is on.

        Raises:
            InvalidTopicError: no topic can have this name.
            KafkaTimeoutError: no broker responded within ``timeout_ms``.
            TopicAuthorizationError: the consumer may not describe the topic.
        """
        with self._guard:
            topic_names.checked(topic)
            return self._run(self._consumer.partitions_for(topic, self._timer(timeout_ms).timeout_ms))

    def partitions_for_topic(self, topic: str, timeout_ms: float | None = None) -> set[int]:
        """Return the partition numbers of ``topic``, or an empty set if it does not exist.

        ``timeout_ms`` and the errors are those of ``partitions_for``.
        """
        return {info.partition for info in self.partitions_for(topic, timeout_ms)}

    def topics(self, timeout_ms: float | None = None) -> set[str]:
        """Return the names of all topics that the consumer may describe.

        Internal topics are left out unless ``exclude.internal.topics`` is off. ``timeout_ms`` and the errors are those
        of ``list_topics``.
        """
        return set(self.list_topics(timeout_ms)) - (
            INTERNAL_TOPICS if self.config["exclude.internal.topics"] else frozenset()
        )

    def list_topics(
        self, timeout_ms: float | None = None, *, topics: Collection[str] | None = None
    ) -> dict[str, list[PartitionInfo]]:
        """Return the partitions of the given topics that exist (default: all visible topics) by topic.

        Always asks the cluster, in one request that never creates a topic. Waits at most ``timeout_ms`` milliseconds
        (default: ``default.api.timeout.ms``).

        Raises:
            KafkaTimeoutError: no broker responded within ``timeout_ms``.
            TopicAuthorizationError: the consumer may not describe one of ``topics``.
        """
        return {name: found.partitions for name, found in self.describe_topics(timeout_ms, topics=topics).items()}

    def describe_topics(
        self, timeout_ms: float | None = None, *, topics: Collection[str] | None = None
    ) -> dict[str, TopicDescription]:
        """Return the given topics that exist (default: all visible topics), with ids and partitions, by name.

        Always asks the cluster, in one request that never creates a topic. Waits at most ``timeout_ms`` milliseconds
        (default: ``default.api.timeout.ms``).

        Raises:
            KafkaTimeoutError: no broker responded within ``timeout_ms``.
            TopicAuthorizationError: the consumer may not describe one of ``topics``.
        """
        with self._guard:
            names = None if topics is None else consumer_arguments.topics(topics)
            return self._run(self._consumer.describe_topics(names, self._timer(timeout_ms).timeout_ms))

    def bootstrap(self, timeout_ms: float | None = None, refresh: bool = False) -> bool:
        """Wait until the cluster's metadata is known. Return False if ``timeout_ms`` milliseconds pass first.

        With ``refresh``, wait for a new response even if metadata is known already.
        """
        with self._guard:
            if not checked_flag(refresh, "refresh") and self._consumer.is_bootstrapped:
                return True
            return self._run(self._consumer.bootstrap(self._timer(timeout_ms)))

    def bootstrap_connected(self) -> bool:
        """Return whether a broker has sent metadata of the cluster. Thread: any."""
        self._guard.check_open()
        return self._consumer.is_bootstrapped

    # --- group, metrics and closing ----------------------------------------------------------------------------------

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return this consumer's membership in its group, as of the last completed rebalance.

        ``state`` is the current state, one of ``MemberState``. Without a ``group.id``, ``group_id`` is None and the
        state stays ``MemberState.UNJOINED``. Thread: any.
        """
        self._guard.check_open()
        return self._consumer.group_metadata()

    def enforce_rebalance(self, reason: str | None = None) -> None:
        """Rebalance the group with the next poll (KIP-568). ``reason`` appears in the logs of the broker.

        Raises:
            InvalidGroupIdError: the consumer has no ``group.id``.
        """
        with self._guard:
            self._consumer.group().request_rejoin(consumer_arguments.reason(reason) or DEFAULT_REBALANCE_REASON)

    def _explain(self) -> str:
        from pykclient.consumer.explanation import explain_consumer

        return explain_consumer(repr(self), self._consumer.components)

    def close(
        self,
        autocommit: bool = True,
        timeout_ms: float | None = None,
        group_membership_operation: str = GroupMembershipOperation.DEFAULT,
    ) -> None:
        """Commit the positions if commits are automatic, leave the group, and close all connections.

        Waits at most ``timeout_ms`` milliseconds (default: 30,000). With ``autocommit=False`` nothing is committed. If
        an exception is propagating, as in a ``finally`` block, the records of the last poll, or the last record of a
        loop, are not committed either. ``group_membership_operation`` (KIP-1092) is "default" (static members stay in
        the group, others leave), "leave_group" or "remain_in_group". A second call does nothing.

        Raises:
            KafkaError: the rebalance listener failed. The consumer is closed all the same.
            IllegalStateError: called by a signal handler or destructor that interrupts another call of the same thread,
                or by a rebalance listener or commit callback. Nothing is closed. Call ``wakeup()`` there, and
                ``close()`` after ``poll()`` has raised WakeupError.
            IllegalArgumentError: an argument is invalid.
        """
        operation = consumer_arguments.group_membership_operation(group_membership_operation)
        commits = checked_flag(autocommit, "autocommit")
        bound_ms = DEFAULT_CLOSE_TIMEOUT_MS if timeout_ms is None else consumer_arguments.milliseconds(timeout_ms)
        if self._is_gone():
            return
        with self._guard:
            if self._guard.is_nested and self._consumer.is_closing:
                return  # called by the rebalance listener that close() is calling
            self._guard.require_outermost()
            # If an exception is propagating, the application may not have processed the last records.
            self._consumer.hold_back_last()
            # The consumer stays open until this is done, because the rebalance listener may use it.
            failure = self._close(
                lambda: self._consumer.close(bound_ms, operation, auto_commit=commits),
                lambda: self._consumer.close(0, operation, auto_commit=False),
            )
        if failure is not None:
            raise failure

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        """Close the consumer. After an exception, do not commit: the last records may not have been processed.

        Takes at most half a second if the program is being ended, for example by Ctrl-C. A generator that is closed
        because its caller leaves a loop exits the block normally.
        """
        is_error, timeout_ms = self._exit(error_type)
        self.close(autocommit=not is_error, timeout_ms=timeout_ms)
