"""The consumer as applications see it: Java's semantics, kafka-python's names."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, NoReturn, overload

from pykclient.clock import Timer
from pykclient.config.consumer_config import ConsumerConfig
from pykclient.consumer import arguments
from pykclient.consumer.arrow_reader import ArrowReader
from pykclient.consumer.auto_offset_reset_strategy import AutoOffsetResetStrategy
from pykclient.consumer.classic_consumer import DEFAULT_REBALANCE_REASON, ClassicConsumer
from pykclient.consumer.consumer_components import ConsumerComponents
from pykclient.consumer.coordinator.abstract_coordinator import DEFAULT
from pykclient.consumer.iteration import Iteration
from pykclient.consumer.offset_commit_future import OffsetCommitFuture
from pykclient.errors import IllegalArgumentError, IllegalStateError
from pykclient.network.environment import Environment
from pykclient.record.columns import ColumnMemory
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

#: How long close() takes at most, unless it is told otherwise.
DEFAULT_CLOSE_TIMEOUT_MS = 30_000

#: How long leaving ``with`` takes at most when it is left by KeyboardInterrupt or SystemExit.
ENDING_TIMEOUT_MS = 500

#: Kafka's own topics, which nobody means by a pattern.
INTERNAL_TOPICS = frozenset(("__consumer_offsets", "__transaction_state", "__share_group_state"))


class KafkaConsumer(Generic[K, V]):
    """Reads records, alone or as a member of a group.

        with KafkaConsumer("orders", bootstrap_servers="localhost:9092", group_id="billing") as consumer:
            for record in consumer:
                ...

    ``KafkaConsumer(*topics, **settings)`` or ``KafkaConsumer(settings, *topics)``: settings are Kafka's, with dots in a
    mapping or underscores as keywords. Topics given here are subscribed to.

    All network traffic happens inside of these methods, but for the heartbeats of a group member, which have a thread
    of their own. Times are milliseconds. Methods that wait take ``timeout_ms``, by default ``default.api.timeout.ms``,
    and raise KafkaTimeoutError with the reason when it is over. Errors of the cluster and of the group are raised by
    ``poll`` or iteration; the consumer can be used after them unless the documentation of the error says otherwise.

    Thread: one at a time; others get ConcurrentModificationError. ``wakeup`` may be called from anywhere. A copy in a
    forked child raises UseAfterForkError.
    """

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
        """Raises ConfigError for settings that are wrong, and when no bootstrap server's name can be resolved."""
        config, names = arguments.settings_and_topics(topics, settings)
        self.config = config if isinstance(config, ConsumerConfig) else ConsumerConfig(config, **settings)
        self._start(ConsumerComponents(self.config))
        if names:
            try:
                self.subscribe(names)
            except BaseException:  # nobody gets this object, so nobody else could close it
                self.close(autocommit=False, timeout_ms=0)
                raise

    @classmethod
    def in_environment(cls, environment: Environment, /, *topics: Any, **settings: Any) -> KafkaConsumer[Any, Any]:
        """A consumer whose time, random numbers, threads and connections are those of ``environment``."""
        config, names = arguments.settings_and_topics(topics, settings)
        made = config if isinstance(config, ConsumerConfig) else ConsumerConfig(config, **settings)
        consumer = cls._of(ConsumerComponents(made, environment))
        if names:
            consumer.subscribe(names)
        return consumer

    @classmethod
    def _of(cls, components: ConsumerComponents) -> KafkaConsumer[Any, Any]:
        """A consumer of given parts, for tests and for simulation."""
        consumer: KafkaConsumer[Any, Any] = cls.__new__(cls)
        consumer.config = components.config
        consumer._start(components)
        return consumer

    def _start(self, components: ConsumerComponents) -> None:
        self._components = components
        self._guard = components.guard
        self._clock = components.clock
        self._subscriptions = components.subscriptions
        self._default_timeout_ms: int = self.config["default.api.timeout.ms"]
        self._iterator: Iterator[ConsumerRecord[K, V]] | None = None
        self._last_of_next: ConsumerRecord[K, V] | None = None  # the record that next() returned last
        self._consumer = ClassicConsumer(components)
        self._iteration = Iteration(self._consumer, self.config["consumer.timeout.ms"])
        self._guard.recover = self._consumer.recover

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} cannot be pickled, as its connections belong to this process: make it in the function that runs "
            "elsewhere (Spark reads topics with pykclient.spark.KafkaDataSource)"
        )

    def __repr__(self) -> str:
        state = " closed" if self._guard.closed else ""
        return f"<KafkaConsumer client_id={self._components.client_id} group_id={self._components.group_id}{state}>"

    def _timer(self, timeout_ms: float | None) -> Timer:
        return Timer(
            self._clock, self._default_timeout_ms if timeout_ms is None else arguments.milliseconds(timeout_ms)
        )

    # --- subscription ------------------------------------------------------------------------------------------------

    def subscribe(
        self, topics: Collection[str] = (), pattern: str | re.Pattern[str] | None = None, listener: Any = None
    ) -> None:
        """Share the partitions of ``topics``, or of all topics that match ``pattern``, with the group's other members.

        Replaces an earlier subscription; without topics and pattern the same as ``unsubscribe``. A pattern must match
        the whole name, and new topics are found with the next refresh of metadata (``metadata.max.age.ms``).
        ``listener`` is a ConsumerRebalanceListener. Without ``group.id`` there is nobody to share with: the consumer
        reads all partitions, and the listener hears nothing. Raises IllegalStateError after ``assign`` or another kind
        of subscription.
        """
        with self._guard:
            names = arguments.topics(() if topics is None else topics)
            if names and pattern is not None:
                raise IllegalArgumentError("subscribe() takes topics or a pattern, not both")
            if pattern is not None:
                self._consumer.subscribe_pattern(arguments.pattern(pattern), arguments.listener(listener))
            elif names:
                self._consumer.subscribe(names, arguments.listener(listener))
            else:
                self._consumer.unsubscribe()

    def subscription(self) -> set[str] | None:
        """The topics subscribed to; None if there are none."""
        with self._guard:
            return set(self._subscriptions.subscription()) or None

    def unsubscribe(self) -> None:
        """Leave the group and give up all partitions; positions are committed, if that is automatic.

        Raises: what the rebalance listener raised, as KafkaError. IllegalStateError in a rebalance listener or commit
        callback, as it would call the listener again.
        """
        with self._guard:
            self._guard.require_outermost()
            self._consumer.unsubscribe()
            self._consumer.column_memory = ColumnMemory()  # it is large, and may not be needed again

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these partitions, without a group's help. Replaces an earlier assignment.

        With a ``group.id`` positions can still be committed. Raises IllegalStateError after ``subscribe``.
        """
        with self._guard:
            wanted = arguments.partitions(partitions)
            if wanted:
                self._consumer.assign(wanted)
            else:
                self._consumer.unsubscribe()

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read now, by ``assign`` or by the group."""
        with self._guard:
            return self._subscriptions.assigned_partitions()

    # --- records -----------------------------------------------------------------------------------------------------

    def poll(
        self, timeout_ms: float = 0, max_records: int | None = None, update_offsets: bool = True
    ) -> dict[TopicPartition, list[ConsumerRecord[K, V]]]:
        """Records by partition, as soon as there are some; none after ``timeout_ms``.

        At most ``max_records``, by default ``max.poll.records``. With ``update_offsets=False`` the positions stay in
        front of the records, so that the next poll returns them again. Group membership, automatic commits and
        callbacks are taken care of in here, so call it more often than every ``max.poll.interval.ms``.

        Raises WakeupError; what the rebalance listener raised; RecordDeserializationError and other errors about
        records, which ``seek`` can pass over; errors of authorization and of the group.
        """
        with self._guard:
            if timeout_ms is None:  # no type allows it; elsewhere it is the default timeout
                raise IllegalArgumentError("poll() takes a number of milliseconds, not None")
            self._guard.require_outermost()
            fetch = self._consumer.poll(self._timer(timeout_ms), arguments.max_records(max_records))
            records: dict[TopicPartition, list[ConsumerRecord[K, V]]] = fetch.records
            if not update_offsets:
                self._consumer.take_back(fetch)
        # Last, as a signal handler may raise anywhere above: from here the records certainly reach the caller.
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
    ) -> pa.RecordBatch:
        """The records of all partitions as one pyarrow.RecordBatch, without rows after ``timeout_ms``.

        For positions, commits, the group and errors it is a ``poll``, and the two may take turns. It takes what is at
        hand: at most ``max_records`` (by default as many as there are), and not more than ``max_bytes`` of records,
        uncompressed, by default ``fetch.max.bytes``, but for a first one that is larger. Records of a partition come
        in order.

        ``columns`` names those to build, by default all: topic (a dictionary), partition, offset, timestamp (ms, UTC;
        null where there is none), timestamp_type (0 when created, 1 when appended, -1 none), key, value, headers (a
        list of key and value), leader_epoch (null where it is unknown). Keys and values are the bytes that were sent:
        deserializers are not called. With ``binary_view`` they stay in the buffers that were received, or into which
        their batch was decompressed, as long as any array points there.
        ``until`` has offsets by partition: rows from there on are left for later, and a partition with nothing in front
        of it is paused. Its position is then not below that offset, whatever was between the last row and that.

        Raises ImportError without pyarrow, IllegalStateError for a consumer with interceptors, which would not be
        called, and all that ``poll`` raises.
        """
        reader = ArrowReader(self._consumer, max_records, max_bytes, columns, binary_view, until)
        with self._guard:
            self._guard.require_outermost()
            batch, fetch = reader.take(self._timer(timeout_ms))
        fetch.returned = True  # last, as in poll()
        return batch

    def iter_arrow(
        self,
        max_records: int | None = None,
        max_bytes: int | None = None,
        columns: Sequence[str] | None = None,
        binary_view: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """One ``poll_arrow`` after the other, as long as records come within ``consumer.timeout.ms``.

        A whole batch counts as consumed once the loop has got it. ``close`` ends the loop that it is called in.
        """
        return self._iteration.batches(ArrowReader(self._consumer, max_records, max_bytes, columns, binary_view))

    def prefetch(self) -> None:
        """Send the fetches that are due, as a poll does before it returns. Raises errors of authentication."""
        with self._guard:
            self._consumer.prefetch()

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        """Record after record, polling in between; ends when none came for ``consumer.timeout.ms``.

        A record counts as consumed once the loop has got it, those that wait behind it do not, also for commits. A
        loop that is left can be gone on with by another one. ``close`` ends the loop that it is called in.
        """
        return chain.from_iterable(self._iteration.lists())

    def __next__(self) -> ConsumerRecord[K, V]:
        """Return the next record, as the loop does.

        Raises: StopIteration when none came for ``consumer.timeout.ms``; a later call may find some.
        """
        if self._iterator is None:
            self._iterator = iter(self)
        try:
            # Not next(): a signal handler may run between a call and the use of its result.
            for record in self._iterator:
                self._last_of_next = record
                return record
        except BaseException:  # an iterator is spent after whatever it raised, the consumer is not
            self._iterator = None
            raise
        self._iterator = None
        raise StopIteration

    # --- positions ---------------------------------------------------------------------------------------------------

    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        """The offset of the next record that will be handed out. May look it up."""
        with self._guard:
            tp = arguments.partition(partition)
            if not self._subscriptions.is_assigned(tp):
                raise IllegalStateError(f"{tp} has no position: it is not assigned to this consumer")
            return self._consumer.position(tp, self._timer(timeout_ms))

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata, *, topic_id: UUID | None = None) -> None:
        """Set the position of ``partition``: the next poll returns records from ``offset`` on.

        The offset is not checked before that poll. It belongs to the topic with this ``topic_id`` (see
        ``describe_topics``), by default to the topic that currently has the name. If the topic is created again the
        position is reset by ``auto.offset.reset``, and with ``none`` polls raise NoOffsetForPartitionError.

        Raises:
            IllegalStateError: The partition is not assigned to this consumer.
            IllegalArgumentError: ``offset`` is negative.
        """
        with self._guard:
            tp = arguments.partition(partition)
            if isinstance(offset, OffsetAndMetadata):
                epoch = offset.leader_epoch if offset.leader_epoch >= 0 else None
                self._consumer.seek(tp, offset.offset, epoch, topic_id)
            else:
                self._consumer.seek(tp, arguments.offset(offset), None, topic_id)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Seek to the first record of the given partitions (default: all assigned). Takes effect on the next poll.

        Raises: IllegalStateError if no partitions are assigned.
        """
        self._reset(partitions, AutoOffsetResetStrategy.EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Seek to the end of the given partitions (default: all assigned). Takes effect on the next poll.

        Raises: IllegalStateError if no partitions are assigned.
        """
        self._reset(partitions, AutoOffsetResetStrategy.LATEST)

    def _reset(self, partitions: tuple[Any, ...], strategy: AutoOffsetResetStrategy) -> None:
        with self._guard:
            chosen = arguments.partitions_of_call(partitions) or self._subscriptions.assigned_partitions_list()
            if not chosen:
                raise IllegalStateError(
                    "no partitions are assigned to seek in: assign() them, or subscribe() and seek after a poll() that "
                    "has given this consumer partitions, or in on_partitions_assigned"
                )
            self._consumer.reset(chosen, strategy)

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these until ``resume``. A rebalance forgets it."""
        with self._guard:
            self._consumer.pause(arguments.partitions_of_call(partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        """Take back ``pause``."""
        with self._guard:
            for tp in arguments.partitions_of_call(partitions):
                self._subscriptions.resume(tp)

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        with self._guard:
            return self._subscriptions.paused_partitions()

    def highwater(self, partition: TopicPartition) -> int | None:
        """The offset behind the last replicated record, as the last fetch told; None before the first."""
        with self._guard:
            return self._subscriptions.partition_end_offset(arguments.partition(partition), 0)

    def current_lag(self, partition: TopicPartition) -> int | None:
        """Records between the position and the end that may be read, as last heard; None while that is unknown."""
        with self._guard:
            tp = arguments.partition(partition)
            lag = self._components.offset_fetcher.current_lag(tp)
            waiting = self._components.handout.next_positions().get(tp)
            position = self._subscriptions.position_or_none(tp)
            if lag is None or waiting is None or position is None:
                return lag
            return lag + position.offset - waiting.offset

    # --- commits -----------------------------------------------------------------------------------------------------

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None, timeout_ms: float | None = None
    ) -> None:
        """Commit ``offsets``, or all positions, and wait until that is done. Retries what may pass.

        An offset is that of the next record to read. Callbacks of earlier ``commit_async`` have run on return. Raises
        CommitFailedError when the group has gone on without this member, RebalanceInProgressError when ``poll`` should
        complete a rebalance first, FencedInstanceIdError, WakeupError, errors of authorization.
        """
        with self._guard:
            self._consumer.commit_sync(arguments.offsets(offsets), self._timer(timeout_ms))

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        callback: Callable[[dict[TopicPartition, OffsetAndMetadata], Exception | None], object] | None = None,
    ) -> OffsetCommitFuture:
        """Commit ``offsets``, or all positions, without waiting and without retries.

        ``callback(offsets, error)`` runs inside a later ``poll``, commit or ``close``, in the order of the commits;
        ``error`` is None on success and RetriableCommitFailedError where another try may help.
        """
        with self._guard:
            return OffsetCommitFuture(self._consumer.commit_async(arguments.offsets(offsets), callback))

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
        """What the group has committed.

        For one partition its offset, or with ``metadata`` an OffsetAndMetadata; for several a dict of
        OffsetAndMetadata. None where nothing was committed.
        """
        with self._guard:
            timer = self._timer(timeout_ms)
            if not isinstance(partitions, TopicPartition):
                return self._consumer.committed(arguments.partitions(partitions), timer)
            arguments.partition(partitions)
            found = self._consumer.committed((partitions,), timer)[partitions]
            return found if found is None or metadata else found.offset

    # --- questions to the cluster ------------------------------------------------------------------------------------

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time (milliseconds since the epoch); None where there is none."""
        with self._guard:
            wanted = arguments.timestamps(timestamps)
            return self._components.offset_fetcher.offsets_for_times(wanted, self._timer(timeout_ms))

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset of the first record of each partition. Positions stay."""
        with self._guard:
            wanted = arguments.partitions(partitions)
            return self._components.offset_fetcher.beginning_offsets(wanted, self._timer(timeout_ms))

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset behind the last record of each partition that may be read. Positions stay."""
        with self._guard:
            wanted = arguments.partitions(partitions)
            return self._components.offset_fetcher.end_offsets(wanted, self._timer(timeout_ms))

    def partitions_for(self, topic: str, timeout_ms: float | None = None) -> list[PartitionInfo]:
        """Return where the partitions of ``topic`` live; an empty list if there is no such topic.

        Raises:
            InvalidTopicError: no topic can have this name.
            KafkaTimeoutError: no broker answered within ``timeout_ms``.
        """
        with self._guard:
            arguments.topic(topic)
            known = self._components.metadata.fetch().partitions_for_topic(topic)
            if known:
                return list(known)
            fetcher, allow = (
                self._components.topic_metadata_fetcher,
                self._components.metadata.allow_auto_topic_creation,
            )
            return fetcher.get_topic_metadata(topic, allow, self._timer(timeout_ms)) or []

    def partitions_for_topic(self, topic: str, timeout_ms: float | None = None) -> set[int]:
        """The numbers of the partitions of ``topic``; none when there is no such topic."""
        return {info.partition for info in self.partitions_for(topic, timeout_ms)}

    def topics(self, timeout_ms: float | None = None) -> set[str]:
        """All topics that may be seen, without Kafka's own unless ``exclude.internal.topics`` is off."""
        return set(self.list_topics(timeout_ms)) - (
            INTERNAL_TOPICS if self.config["exclude.internal.topics"] else frozenset()
        )

    def list_topics(
        self, timeout_ms: float | None = None, *, topics: Collection[str] | None = None
    ) -> dict[str, list[PartitionInfo]]:
        """Return the partitions of those of ``topics`` that exist, by default of all visible topics, by topic.

        Always asks the cluster, in one request that never creates a topic. Waits at most ``timeout_ms`` (default:
        ``default.api.timeout.ms``).

        Raises:
            KafkaTimeoutError: No broker answered in time.
            TopicAuthorizationError: One of ``topics`` must not be described.
        """
        return {name: found.partitions for name, found in self.describe_topics(timeout_ms, topics=topics).items()}

    def describe_topics(
        self, timeout_ms: float | None = None, *, topics: Collection[str] | None = None
    ) -> dict[str, TopicDescription]:
        """Return those of ``topics`` that exist, by default all visible topics, with ids and partitions, by name.

        Always asks the cluster, in one request that never creates a topic. Waits at most ``timeout_ms`` (default:
        ``default.api.timeout.ms``).

        Raises:
            KafkaTimeoutError: No broker answered in time.
            TopicAuthorizationError: One of ``topics`` must not be described.
        """
        with self._guard:
            names = None if topics is None else arguments.topics(topics)
            return self._components.topic_metadata_fetcher.describe_topics(names, self._timer(timeout_ms))

    def bootstrap(self, timeout_ms: float | None = None, refresh: bool = False) -> bool:
        """Wait until the cluster is known; with ``refresh`` until it was asked again. False when time ran out."""
        with self._guard:
            if self._bootstrapped() and not refresh:
                return True
            timer = self._timer(timeout_ms)
            # To begin again from the bootstrap servers is an update, too.
            while self._components.client.await_metadata_update(timer):
                if self._bootstrapped():
                    return True
            return False

    def bootstrap_connected(self) -> bool:
        """Whether a broker has told about the cluster."""
        with self._guard:
            return self._bootstrapped()

    def _bootstrapped(self) -> bool:
        return not self._components.metadata.fetch().is_bootstrap_configured

    # --- the rest ----------------------------------------------------------------------------------------------------

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return this consumer's membership in its group, as of the last completed rebalance.

        ``state`` is the current state, one of ``MemberState``. Without a ``group.id``, ``group_id`` is None and the
        state stays ``MemberState.UNJOINED``.
        """
        with self._guard:
            if self._components.group_id is None:
                return ConsumerGroupMetadata()
            group = self._consumer.group()
            return group.group_metadata._replace(state=group.membership.state.reported)

    def enforce_rebalance(self, reason: str | None = None) -> None:
        """Have the group share out its partitions anew, with the next poll (KIP-568)."""
        with self._guard:
            self._consumer.group().request_rejoin(reason or DEFAULT_REBALANCE_REASON)

    def metrics(self, raw: bool = False) -> dict[Any, Any]:
        """All metrics: values by group and name, or with ``raw`` the metric objects by their full name."""
        self._guard.check_process()
        self._guard.check_not_interrupting()
        metrics = self._components.metrics
        return metrics.metrics if raw else metrics.by_group()

    def wakeup(self) -> None:
        """Make the call under way in another thread, or else the next one that waits, raise WakeupError.

        May be called from any thread and from signal handlers.
        """
        self._guard.check_process()
        self._components.client.wakeup()

    def close(
        self,
        autocommit: bool = True,
        timeout_ms: float | None = None,
        group_membership_operation: str = DEFAULT,
    ) -> None:
        """Commit the positions if that is automatic, leave the group, and close all connections.

        Takes at most ``timeout_ms``, by default 30 s. ``group_membership_operation`` is "default" (static members stay,
        others leave), "leave_group" or "remain_in_group" (KIP-1092). A second call does nothing.

        Raises: what the rebalance listener raised, as KafkaError, after all is closed. IllegalStateError, with nothing
        done, in a signal handler or destructor that interrupts another call of the same thread, and in a rebalance
        listener or commit callback: call ``wakeup()`` there, and ``close()`` when ``poll()`` has raised WakeupError.
        """
        operation = arguments.group_membership_operation(group_membership_operation)
        bound_ms = DEFAULT_CLOSE_TIMEOUT_MS if timeout_ms is None else arguments.milliseconds(timeout_ms)
        if self._guard.forked:
            self._guard.closed = True  # the parent's connections and membership are none of the child's business
        if self._guard.closed:
            return
        with self._guard:
            if self._guard.is_nested and self._consumer.is_closing:
                return  # by the rebalance listener, which close() calls
            self._guard.require_outermost()
            if self._last_of_next is not None and sys.exc_info()[0] not in (None, GeneratorExit):
                # An exception is under way. It may have struck when next() had returned and nobody had the record yet.
                self._components.handout.hold_back(self._last_of_next)
            # Open until it is done: the rebalance listener may use the consumer.
            try:
                failure = self._consumer.close(bound_ms, operation, auto_commit=autocommit)
            except BaseException:
                # Ctrl-C, or a signal handler that raises. Whoever ends the wait like this does not want to wait for the
                # next step instead. If that happens again, another call does the rest.
                self._consumer.recover(in_middle=True)
                self._consumer.close(0, operation, auto_commit=False)
                self._guard.closed = True
                raise
            self._iterator = None
            self._guard.closed = True
        if failure is not None:
            raise failure

    def __enter__(self) -> KafkaConsumer[K, V]:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        """Close; after an exception without a commit, as the records at hand may not have been processed.

        Takes half a second at most when the program is being ended, as by Ctrl-C. A generator that is closed, because
        its caller breaks off a loop, leaves the block normally.
        """
        is_error = error_type is not None and not issubclass(error_type, GeneratorExit)
        is_ending = is_error and error_type is not None and not issubclass(error_type, Exception)
        self.close(autocommit=not is_error, timeout_ms=ENDING_TIMEOUT_MS if is_ending else None)

    def __del__(self) -> None:
        consumer = getattr(self, "_consumer", None)
        if consumer is None or self._guard.closed or self._guard.forked:
            return
        try:
            consumer.abandon()
        finally:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)
