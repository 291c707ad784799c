"""The consumer for asyncio."""

from __future__ import annotations

import asyncio
import warnings
from asyncio import _get_running_loop  # the first returns None where the second raises
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, overload

from pykclient import topic_names
from pykclient.aio import aiokafka_arguments
from pykclient.aio.aio_consumer_base import AIOConsumerBase
from pykclient.aio.aiokafka_arguments import consumer_config
from pykclient.aio.client_view import ClientView, PrivatePart
from pykclient.aio.errors import ConsumerStoppedError, GroupIdMissingError
from pykclient.aio.loop_driver import LoopEnvironment, LoopWaits
from pykclient.aio.structs import OffsetAndTimestamp
from pykclient.aio.threadless_consumer import ThreadlessConsumer
from pykclient.caused_errors import load_of
from pykclient.clock import FOREVER_MS, Timer
from pykclient.consumer import consumer_arguments
from pykclient.consumer.explanation import explain_consumer
from pykclient.consumer.fetch_collector import AnyFetch, Fetch
from pykclient.consumer.iteration import NotLoadedError
from pykclient.consumer.kafka_consumer import INTERNAL_TOPICS
from pykclient.consumer.subscription_state import SubscriptionState
from pykclient.consumer.values import READ_COMMITTED, READ_UNCOMMITTED, AutoOffsetResetStrategy, FetchConfig
from pykclient.errors import IllegalStateError, KafkaError, KafkaTimeoutError, RecordDeserializationError
from pykclient.log_context import LogContext
from pykclient.pacing import one_iteration
from pykclient.types import ConsumerGroupMetadata, ConsumerRecord, K, OffsetAndMetadata, TopicPartition, V

if TYPE_CHECKING:
    from typing import Self, Unpack

    import pyarrow as pa

    from pykclient.config.client_settings import AIOConsumerSettings
    from pykclient.consumer.application_driver import Steps
    from pykclient.consumer.iteration import ColumnDecoder
    from pykclient.serialization import BindableDeserializer, DeserializerOf
    from pykclient.types import MadeK, MadeV

F = TypeVar("F", bound=AnyFetch)
T = TypeVar("T")
#: A task that keeps reading lets the loop run after this time, in seconds.
_LONGEST_RUN_S: Final = 0.005
#: ``getmany`` without a limit returns what is buffered, but not more records than this. It takes them in portions,
#: and none after ``_LONGEST_RUN_S``.
_MANY_RECORDS: Final = 20_000
_PORTION: Final = 2_000
#: A loop takes this many records at a time. The number is adapted until they last about ``_LOOP_PORTION_S``.
_LEAST_LOOP_PORTION, _MOST_LOOP_PORTION = 16, 2_048
_LOOP_PORTION_S: Final = 0.002
_ALL_RECORDS: Final = 1 << 31
#: The default of ``getmany_arrow(max_bytes)``: larger batches would hold the loop up.
_ARROW_BYTES: Final = 8 << 20


class AIOKafkaConsumer(AIOConsumerBase[ThreadlessConsumer], Generic[K, V], unpaced={"getone", "getmany"}):
    """A Kafka consumer for asyncio that reads records, alone or as a member of a group.

        async with AIOKafkaConsumer("orders", bootstrap_servers="localhost:9092", group_id="billing") as consumer:
            async for record in consumer:
                ...

    It runs on the event loop's own thread: there is no other thread, and no call in a thread pool. Settings are
    KafkaConsumer's, as keyword arguments or as a leading mapping; aiokafka's own names work too. A consumer belongs to
    the loop in which it was started, and to the process. Settings and arguments that end in ``_ms`` are in
    milliseconds. Methods that wait for the cluster take at most ``default.api.timeout.ms``, and then raise
    KafkaTimeoutError with the reason.

    Several tasks may read from one consumer; each record goes to one of them. Any call may be cancelled: no record is
    lost, and the consumer stays usable.

    Thread: the loop's.
    """

    # The deserializers of a schema registry for asyncio are called for awaitables, so their type is that of for_field.
    @overload
    def __init__(
        self: AIOKafkaConsumer[MadeK, MadeV],
        *topics: str,
        loop: asyncio.AbstractEventLoop | None = None,
        key_deserializer: BindableDeserializer[MadeK],
        value_deserializer: BindableDeserializer[MadeV],
        **settings: Unpack[AIOConsumerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: AIOKafkaConsumer[MadeK, MadeV],
        *topics: str,
        loop: asyncio.AbstractEventLoop | None = None,
        key_deserializer: DeserializerOf[MadeK] | None = None,
        value_deserializer: BindableDeserializer[MadeV],
        **settings: Unpack[AIOConsumerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: AIOKafkaConsumer[MadeK, MadeV],
        *topics: str,
        loop: asyncio.AbstractEventLoop | None = None,
        key_deserializer: DeserializerOf[MadeK] | None = None,
        value_deserializer: DeserializerOf[MadeV] | None = None,
        **settings: Unpack[AIOConsumerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self,
        config: Mapping[str, Any] | str | None = None,
        /,
        *topics: str,
        loop: asyncio.AbstractEventLoop | None = None,
        key_deserializer: Any = None,
        value_deserializer: Any = None,
        **settings: Unpack[AIOConsumerSettings],
    ) -> None: ...

    def __init__(self, *topics: Any, loop: asyncio.AbstractEventLoop | None = None, **settings: Any) -> None:
        """Take the settings, and the topics to subscribe to. Nothing connects before ``start``.

        ``loop`` is deprecated, as in aiokafka: the consumer uses the loop that runs ``start``.

        Raises:
            ConfigError: a setting is unknown, invalid or not supported yet.
            IllegalArgumentError: a positional argument is neither a mapping of settings nor a topic.
            InvalidTopicError: no topic can have one of these names.
        """
        if loop is not None:
            warnings.warn("the `loop` parameter is deprecated: leave it out", DeprecationWarning, stacklevel=2)
        config, names = consumer_arguments.settings_and_topics(topics, settings)
        super().__init__(consumer_config(config, settings), loop)
        self._limit: int | None = self._config["max.poll.records"] if self._config.is_set("max.poll.records") else None
        self._isolation_level = FetchConfig.from_config(self._config).isolation_level
        self._own_subscriptions = self._new_subscriptions()
        if names:
            self._own_subscriptions.subscribe(names)
        #: The records that the current loop goes over; they are the first chunk of the undelivered ones.
        self._records: Iterator[ConsumerRecord[K, V]] = iter(())
        self._portion = _LEAST_LOOP_PORTION
        self._portion_since_s = 0.0

    def _new_subscriptions(self) -> SubscriptionState:
        strategy = AutoOffsetResetStrategy.from_string(self._config["auto.offset.reset"])
        subscriptions = SubscriptionState(LogContext(), strategy)
        subscriptions.missing.are_kept = True
        return subscriptions

    @property
    def _subscriptions(self) -> SubscriptionState:
        consumer = self._ending_here() if self._ending else None
        return self._own_subscriptions if consumer is None else consumer.components.subscriptions

    # --- starting --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect to the cluster and, with a subscription, join the group and wait for partitions.

        A consumer without a group assigns itself all partitions of its topics. Also waits until the starting positions
        are known, for ``default.api.timeout.ms`` at most, so that records written afterwards are read with any
        ``auto_offset_reset``. Partitions without a leader are not waited for.

        Raises:
            KafkaConnectionError: no bootstrap server can be reached. The call can be repeated.
            KafkaTimeoutError: no server has answered in time, or the group has not completed a rebalance within
                ``max.poll.interval.ms``. The call can be repeated.
            ConfigError: the DNS knows none of the bootstrap servers.
            AuthenticationError: the cluster refused the credentials.
            AuthorizationError: the consumer may not use the group, or read a topic.
            IllegalStateError: the consumer has been started before, or this is not the loop that it was given.
            io.UnsupportedOperation: the system has neither epoll nor kqueue.
        """
        await self._start()

    def _new_consumer(
        self, environment: LoopEnvironment, loop: asyncio.AbstractEventLoop, waits: LoopWaits
    ) -> ThreadlessConsumer:
        return ThreadlessConsumer(self._config, environment, self._subscriptions, loop, waits)

    async def _join(self, consumer: ThreadlessConsumer) -> None:
        version = 0
        if self._subscriptions.is_auto_assigned:
            await self._await_assignment(consumer)
        elif self._subscriptions.num_assigned_partitions():
            metadata = consumer.components.metadata
            cluster = metadata.fetch()
            if any(cluster.leader_for(tp) is None for tp in self._subscriptions.without_position):
                # The brokers may create a topic now, so a leader that the first metadata lacks may be known soon.
                version = metadata.request_update_for_new_topics()
        await consumer.wait_for(lambda: consumer.has_starting_positions(version), self._timeout_ms)

    def _forget_start(self) -> None:
        self._own_subscriptions = self._own_subscriptions.renewed()

    async def _await_assignment(self, consumer: ThreadlessConsumer) -> None:
        timeout_ms = self._timeout_ms
        metadata = consumer.components.metadata
        if self._group_id is not None:  # the coordinator waits this long for other members
            timeout_ms += self._config["max.poll.interval.ms"]
        version = metadata.request_update_for_new_topics()

        def is_settled() -> bool:
            # Without a group, a topic that does not exist yet is read once it does.
            is_known = self._group_id is None and metadata.update_version > version
            return is_known or consumer.is_settled

        settled = await consumer.wait_for(is_settled, timeout_ms)
        consumer.raise_failure()
        if not settled:
            raise KafkaTimeoutError(f"no partitions were assigned within {timeout_ms} ms: {consumer.report()}")

    # --- subscription ----------------------------------------------------------------------------------------------

    def subscribe(self, topics: Any = (), pattern: Any = None, listener: Any = None) -> None:
        """Subscribe to ``topics``, or to all topics whose names begin with a match of ``pattern``.

        A subscription replaces the previous one. The group then shares the partitions; without a group the consumer
        reads all of them. New topics that match are found when metadata is refreshed (``metadata.max.age.ms``).
        ``listener`` is a ConsumerRebalanceListener, whose methods may be coroutines.

        Raises:
            ArgumentTypeError: neither or both are given, or one of them, or the listener, has the wrong type.
            IllegalArgumentError: the pattern is not valid.
            IllegalStateError: partitions are assigned by ``assign``, or there is a subscription of the other kind.
            InvalidTopicError: no topic can have one of these names.
        """
        names, wanted = aiokafka_arguments.topics_or_pattern(topics, pattern)
        listener = aiokafka_arguments.listener(listener)
        consumer = self._changeable()
        if consumer is None:
            if wanted is not None:
                self._subscriptions.subscribe_pattern(wanted, listener)
            else:
                self._subscriptions.subscribe(names, listener)
            return
        consumer.failure = None  # of the last subscription
        if listener is not None and listener is not self._subscriptions.rebalance_listener():
            consumer.rejoin_for_listener()
        if wanted is not None:
            consumer.subscribe(partial(consumer.consumer.subscribe_pattern, wanted, listener))
        else:
            consumer.subscribe(partial(consumer.consumer.subscribe, names, listener))
        consumer.driver.wake()

    def unsubscribe(self) -> None:
        """Leave the group and give up all partitions. With automatic commits the positions are committed first.

        If a rebalance or an asynchronous listener is in progress, this happens after it.

        Raises:
            IllegalStateError: called by a rebalance listener.
        """
        consumer = self._changeable()
        if consumer is None:
            self._subscriptions.unsubscribe()
            return
        self._submit(consumer, "unsubscribe", consumer.consumer.unsubscribe)

    def assign(self, partitions: Any) -> None:
        """Read exactly these partitions, without group management. Replaces an earlier assignment.

        With a ``group_id``, offsets can still be committed. No partitions means ``unsubscribe``.

        Raises:
            IllegalStateError: the consumer is subscribed to topics, or a rebalance listener makes this call.
            IllegalArgumentError: ``partitions`` is not a collection of TopicPartition.
        """
        wanted = topic_names.partitions(partitions)
        consumer = self._changeable()
        if consumer is None:
            if wanted:
                self._subscriptions.assign_from_user(wanted)
            else:
                self._subscriptions.unsubscribe()
        elif wanted:
            self._submit(consumer, "assign", partial(consumer.consumer.assign, wanted))
        else:
            self._submit(consumer, "unsubscribe", consumer.consumer.unsubscribe)

    def _submit(self, consumer: ThreadlessConsumer, method: str, operation: Callable[[], Steps[None]]) -> None:
        consumer.refuse_in_callback(method, asyncio.current_task())
        consumer.failure = None  # of the last subscription
        consumer.components.are_records_at_hand = False
        consumer.change(operation())
        consumer.driver.wake()

    def subscription(self) -> frozenset[str]:
        """Return the topics subscribed to."""
        return self._subscriptions.subscription()

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that ``assign`` or the group has assigned."""
        return self._subscriptions.assigned_partitions()

    # --- records ---------------------------------------------------------------------------------------------------

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord[K, V]:
        """Return the next record (from ``partitions`` if given). Waits until there is one.

        Raises:
            ConsumerStoppedError: the consumer is stopped, or was stopped during the call.
            Exception: the errors of ``getmany``.
        """
        if not partitions and _get_running_loop() is self._loop:
            for record in self._records:
                return record
        return await self._getone(partitions)

    async def _getone(self, partitions: tuple[Any, ...]) -> ConsumerRecord[K, V]:
        """Return the next record, which ``_records`` does not have."""
        if self._pace.is_due():
            await one_iteration()
        try:
            if "next_record" in self._replaced:
                record: ConsumerRecord[K, V] = await self._replaced["next_record"](partitions)
                return record
            return await self._next_record(partitions)
        except Exception as error:
            await self._pace.rest(error)
            raise

    async def _next_record(self, partitions: tuple[Any, ...]) -> ConsumerRecord[K, V]:
        consumer = self._usable()
        if partitions:
            wanted = frozenset(aiokafka_arguments.partitions(partitions))
            fetch = await self._await_record(consumer, partial(self._collect, consumer, 1, wanted), wanted)
            ((record,),) = fetch.records.values()
            return record
        self._adapt_portion(self._now_s())
        while True:
            records = consumer.consumer.next_records()
            if records is None:
                take = partial(self._collect_for_loop, consumer)
                consumer.consumer.keep_for_loop(await self._await_record(consumer, take, None))
            else:
                self._records = records
                self._portion_since_s = self._now_s()
                for record in records:
                    return record

    def _collect_for_loop(self, consumer: ThreadlessConsumer) -> Fetch:
        """Collect the next records for a loop; or those that wait for one already, because another task was faster.

        All of those, so that they keep their order when they are kept again.
        """
        has_waiting = consumer.consumer.has_waiting_records
        return self._collect(consumer, _ALL_RECORDS if has_waiting else self._portion, None)

    async def _await_record(
        self, consumer: ThreadlessConsumer, take: Callable[[], Fetch], wanted: frozenset[TopicPartition] | None
    ) -> Fetch:
        """Return ``take()`` once it has records."""
        while True:
            fetch = await self._await_fetch(consumer, take, wanted, FOREVER_MS)
            if fetch is not None:
                return fetch
            if consumer.ending is not None:
                raise ConsumerStoppedError(consumer.ending)

    def _adapt_portion(self, now_s: float) -> None:
        """Choose how many records a loop takes at a time, as it lets the event loop run only between them."""
        took_s = now_s - self._portion_since_s
        if took_s > 2 * _LOOP_PORTION_S:
            self._portion = max(_LEAST_LOOP_PORTION, self._portion // 2)
        elif took_s < _LOOP_PORTION_S / 2:
            self._portion = min(_MOST_LOOP_PORTION, self._portion * 2)

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[K, V]]]:
        """Return records by partition as soon as there are some, or an empty dict after ``timeout_ms`` milliseconds.

        Returns what is buffered, at most ``max_records`` records (default: ``max_poll_records``, or as many as can be
        decoded without holding up the loop), and only of ``partitions`` if any are given. A call shows that the records
        of earlier calls have been processed, so that they may be committed automatically.

        The result is also empty if the consumer is stopped during the call.

        Raises:
            ConsumerStoppedError: the consumer is stopped.
            IllegalStateError: a rebalance listener makes this call.
            IllegalArgumentError: an argument is invalid.
            RecordDeserializationError: a deserializer failed; ``seek`` past the record to continue.
            NoOffsetForPartitionError: a partition that is asked for has no position, and ``auto.offset.reset`` is
                ``none``.
            OffsetOutOfRangeError: a position is outside the log of a partition that is asked for, and
                ``auto.offset.reset`` is ``none``.
            AuthorizationError: the consumer may not read a topic or use the group.
            FencedInstanceIdError: another member has taken over this ``group.instance.id``.
            KafkaError: the rebalance listener failed, or a record batch is unreadable.
        """
        try:
            if "fetched_records" in self._replaced:
                fetched_records = self._replaced["fetched_records"]
                fetched: dict[TopicPartition, list[ConsumerRecord[K, V]]]
                fetched = await fetched_records(partitions, timeout_ms / 1_000, max_records=max_records)
                return fetched
            return await self._fetched_records(partitions, timeout_ms, max_records)
        except Exception as error:
            await self._pace.rest(error)
            raise

    async def _fetched_records(
        self, partitions: Iterable[TopicPartition], timeout_ms: float, max_records: int | None
    ) -> dict[TopicPartition, list[ConsumerRecord[K, V]]]:
        consumer = self._usable()
        wanted = frozenset(aiokafka_arguments.partitions(partitions)) or None
        limit = aiokafka_arguments.max_records(max_records) or self._limit
        collect = self._collect_many if limit is None else self._collect
        take = partial(collect, consumer, limit or _MANY_RECORDS, wanted)
        fetch: Fetch | None = await self._await_fetch(
            consumer, take, wanted, consumer_arguments.milliseconds(timeout_ms)
        )
        return {} if fetch is None else fetch.records

    async def getmany_arrow(
        self,
        *,
        timeout_ms: float = 0,
        max_records: int | None = None,
        max_bytes: int | None = None,
        columns: Sequence[str] | None = None,
        binary_view: bool = False,
        until: Mapping[TopicPartition, int] | None = None,
        key: ColumnDecoder | None = None,
        value: ColumnDecoder | None = None,
    ) -> pa.RecordBatch:
        """Return records of all partitions as one pyarrow.RecordBatch: ``KafkaConsumer.poll_arrow`` for asyncio.

        The arguments are the same, except that ``max_bytes`` is 8 MiB by default. ``avro_columns`` and the like take an
        AsyncSchemaRegistryClient or a SchemaRegistryClient for ``key`` and ``value``; another thread waits for the
        registry, once for each schema.

        Raises:
            ImportError: pyarrow is not installed.
            IllegalStateError: the consumer has interceptors, which would not be called.
            RecordDeserializationError: ``key`` or ``value`` cannot decode a row. The next call returns the same rows.
            Exception: the errors of ``getmany``.
        """
        from pykclient.consumer.iteration import ArrowReader

        consumer = self._usable()
        limit = _ARROW_BYTES if max_bytes is None else max_bytes
        reader = ArrowReader(consumer.consumer, max_records, limit, columns, binary_view, until, key, value)
        fetch = await self._await_fetch(
            consumer, reader.take_buffered, None, consumer_arguments.milliseconds(timeout_ms)
        )
        while True:
            try:
                return reader.batch(fetch)
            except NotLoadedError as unloaded:  # without rows: the schema to read into
                await unloaded.load()

    def _collect(self, consumer: ThreadlessConsumer, limit: int, wanted: frozenset[TopicPartition] | None) -> Fetch:
        return consumer.consumer.intercept(consumer.consumer.collect(limit, wanted))

    def _collect_many(
        self, consumer: ThreadlessConsumer, limit: int, wanted: frozenset[TopicPartition] | None
    ) -> Fetch:
        """Collect up to ``limit`` records, as far as that does not hold up the loop."""
        end_s = self._now_s() + _LONGEST_RUN_S
        fetch = consumer.consumer.collect(_PORTION, wanted)
        count = 0
        while count < fetch.num_records < limit and not fetch.has_waited and self._now_s() < end_s:
            count = fetch.num_records
            consumer.consumer.collect_more(fetch, count + _PORTION, wanted)
        return consumer.consumer.intercept(fetch)

    async def _await_fetch(
        self,
        consumer: ThreadlessConsumer,
        take: Callable[[], F],
        wanted: frozenset[TopicPartition] | None,
        timeout_ms: int,
    ) -> F | None:
        """Return ``take()`` once it has records, or None after ``timeout_ms`` or when the consumer is stopped."""
        consumer.refuse_in_callback("getmany" if timeout_ms < FOREVER_MS else "getone", asyncio.current_task())
        timer = Timer(consumer.components.clock, timeout_ms)
        consumer.begin_call(wanted)
        try:
            if consumer.driver.is_overdue:
                await one_iteration()
            consumer.advance_call()
            while True:
                if consumer.ending is not None:
                    if self._closed:
                        return None
                    raise ConsumerStoppedError(consumer.ending)
                consumer.raise_failure()
                self._subscriptions.missing.raise_for(wanted)
                if not consumer.is_operating:
                    try:
                        fetch = take()
                    except NotLoadedError as unloaded:
                        await unloaded.load()
                        continue
                    except RecordDeserializationError as error:
                        load = load_of(error.__cause__)
                        if load is None:
                            raise
                        try:
                            await load()
                        except KafkaError as failure:
                            raise error.caused_by(failure) from failure
                        continue
                    fetch.returned = True  # nothing can come between this and the application
                    if fetch.num_records:
                        consumer.returned()
                        return fetch
                    consumer.consumer.finish()
                timer.update()
                if timer.expired:
                    return None
                await self._waits.until(lambda: consumer.is_ready(wanted), timer.remaining_ms)
        except KafkaError as error:
            await consumer.rest_if_repeated(error)
            raise
        finally:
            consumer.end_call(wanted)

    def __aiter__(self) -> Self:
        """Return the consumer: a loop goes over all records, and ends when the consumer is stopped.

        A record counts as consumed once the loop has received it. If you leave a loop, the next one continues there.

        Raises:
            ConsumerStoppedError: the consumer is stopped.
        """
        if self._closed:
            raise ConsumerStoppedError("the consumer is stopped")
        return self

    async def __anext__(self) -> ConsumerRecord[K, V]:
        """Return the next record, as ``getone`` does."""
        is_replaced = type(self).getone is not _GETONE  # by a subclass or an instrumentation
        if not is_replaced and _get_running_loop() is self._loop:
            for record in self._records:
                return record
        try:
            return await (self.getone() if is_replaced else self._getone(()))
        except ConsumerStoppedError:
            raise StopAsyncIteration from None

    # --- positions -------------------------------------------------------------------------------------------------

    async def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record for the application; look it up if it is unknown.

        Raises:
            IllegalStateError: the partition is not assigned to this consumer.
            KafkaTimeoutError: the position is not known in time.
            NoOffsetForPartitionError: there is no committed offset, and ``auto.offset.reset`` is ``none``.
        """
        consumer = self._usable()
        tp = self._assigned(partition)
        return await consumer.run_call(consumer.consumer.position(tp, self._timer(consumer)))

    def _assigned(self, partition: Any) -> TopicPartition:
        (tp,) = aiokafka_arguments.partitions((partition,))
        self._check_assigned((tp,))
        return tp

    def _check_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        for tp in partitions:
            self._subscriptions.check_assigned(tp)

    def _chosen(self, partitions: tuple[Any, ...]) -> list[TopicPartition]:
        """Return the given partitions, or all that are assigned.

        Raises:
            ArgumentTypeError: one is not a TopicPartition.
            IllegalStateError: none are assigned, or a given one is not.
        """
        chosen = aiokafka_arguments.partitions(partitions)
        self._check_assigned(chosen)
        if not chosen:
            chosen = self._subscriptions.assigned_partitions_list()
        if not chosen:
            raise IllegalStateError("No partitions are currently assigned")
        return chosen

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the position of ``partition``: the next record is the one at ``offset``, or the first after it.

        Raises:
            IllegalArgumentError: ``offset`` is not a whole number from 0 on.
            IllegalStateError: the partition is not assigned to this consumer.
        """
        consumer = self._usable()
        (tp,) = aiokafka_arguments.partitions((partition,))
        wanted = aiokafka_arguments.offset(offset)
        self._check_assigned((tp,))
        consumer.failure = None  # of the position so far
        consumer.components.fetches.supersede(tp, wanted)
        consumer.consumer.seek(tp, wanted)
        consumer.driver.wake()

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Seek to the first record of the given partitions (default: all assigned), and wait for the new positions.

        Returns False if they are not known within ``default.api.timeout.ms``, or are no longer assigned.

        Raises:
            IllegalStateError: no partitions are assigned, or a given one is not.
        """
        return await self._reset(partitions, AutoOffsetResetStrategy.EARLIEST)

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Seek to the end of the given partitions (default: all assigned), and wait for the new positions.

        Returns False if they are not known within ``default.api.timeout.ms``, or are no longer assigned.

        Raises:
            IllegalStateError: no partitions are assigned, or a given one is not.
        """
        return await self._reset(partitions, AutoOffsetResetStrategy.LATEST)

    async def _reset(self, partitions: tuple[Any, ...], strategy: AutoOffsetResetStrategy) -> bool:
        consumer = self._usable()
        chosen = self._chosen(partitions)
        consumer.failure = None  # of the positions so far
        consumer.consumer.reset(chosen, strategy)
        consumer.driver.wake()
        return await consumer.run_call(consumer.await_positions(chosen, self._timer(consumer)))

    async def seek_to_committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        """Seek to the committed offsets of the given partitions (default: all assigned), and return these.

        A partition without one keeps its position, and has None.

        Raises:
            GroupIdMissingError: the consumer has no ``group_id``.
            IllegalStateError: no partitions are assigned, or a given one is not.
        """
        consumer = self._usable()
        chosen = self._chosen(partitions)
        self._require_group()
        found = await consumer.run_call(consumer.consumer.committed(chosen, self._timer(consumer)))
        offsets = {tp: None if offset is None else offset.offset for tp, offset in found.items()}
        for tp, offset in offsets.items():
            if offset is not None and self._subscriptions.is_assigned(tp):
                self.seek(tp, offset)
        return offsets

    def pause(self, *partitions: TopicPartition) -> None:
        """Pause the given partitions: none of their records are returned until ``resume`` or a rebalance.

        Raises:
            IllegalStateError: a partition is not assigned to this consumer.
        """
        consumer = self._usable()
        chosen = aiokafka_arguments.partitions(partitions)
        self._check_assigned(chosen)
        consumer.consumer.pause(chosen)

    def resume(self, *partitions: TopicPartition) -> None:
        """Resume the given partitions after ``pause``.

        Raises:
            IllegalStateError: a partition is not assigned to this consumer.
        """
        consumer = self._usable()
        chosen = aiokafka_arguments.partitions(partitions)
        self._check_assigned(chosen)
        consumer.consumer.resume(chosen)
        consumer.driver.wake()

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return self._subscriptions.paused_partitions()

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the high watermark of ``partition`` as of the last fetch, or None before the first.

        Raises:
            IllegalStateError: the partition is not assigned to this consumer.
        """
        tp = self._assigned(partition)
        return self._subscriptions.partition_end_offset(tp, READ_UNCOMMITTED)

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Return the last stable offset of ``partition`` as of the last fetch: no transaction is open before it.

        Returns None before the first fetch, and -1 with ``isolation_level="read_uncommitted"``.

        Raises:
            IllegalStateError: the partition is not assigned to this consumer.
        """
        tp = self._assigned(partition)
        if self._isolation_level != READ_COMMITTED:
            return -1
        return self._subscriptions.partition_end_offset(tp, READ_COMMITTED)

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """Return the time of the last update of ``highwater`` (milliseconds since the epoch), None if never.

        Raises:
            IllegalStateError: the partition is not assigned to this consumer.
        """
        tp = self._assigned(partition)
        return self._subscriptions.last_fetch_ms(tp)

    # --- commits ---------------------------------------------------------------------------------------------------

    def _require_group(self) -> None:
        if self._group_id is None:
            raise GroupIdMissingError("Requires group_id, and this consumer has none")

    async def commit(self, offsets: Any = None) -> None:
        """Commit ``offsets`` (default: all positions), and wait for the response. Transient failures are retried.

        ``offsets`` maps partitions to the offset of the next record to read: a number, a pair of a number and a note,
        or an OffsetAndMetadata.

        Raises:
            GroupIdMissingError: the consumer has no ``group_id``.
            IllegalStateError: a partition is not assigned, or nothing is.
            IllegalArgumentError: ``offsets`` is not valid.
            CommitFailedError: the group has removed this member, and the partitions may belong to another one.
            RebalanceInProgressError: a rebalance is in progress; calls for records complete it.
            FencedInstanceIdError: another member has taken over this ``group.instance.id``.
            KafkaTimeoutError: the commit did not succeed in time.
            AuthorizationError: the consumer may not use the group, or read a topic.
        """
        consumer = self._usable()
        self._require_group()
        if self._subscriptions.has_no_subscription_or_user_assignment():
            raise IllegalStateError("Not subscribed to any topics")
        checked = None if offsets is None else aiokafka_arguments.offsets(offsets)
        if not self._subscriptions.num_assigned_partitions():
            if checked is None and consumer.is_in_callback(asyncio.current_task()):
                return  # listeners that commit are also called before the first assignment
            raise IllegalStateError("No partitions assigned")
        self._check_assigned(list(checked or ()))
        consumer.components.begin_commit(checked)
        await consumer.run_call(consumer.consumer.commit_sync(checked, self._timer(consumer)))
        consumer.components.end_commit()

    async def committed(self, partition: TopicPartition) -> int | None:
        """Return the offset that the group has committed for ``partition``, or None if there is none.

        Raises:
            GroupIdMissingError: the consumer has no ``group_id``.
            KafkaTimeoutError: the offset did not arrive in time.
            AuthorizationError: the consumer may not use the group, or read the topic.
        """
        consumer = self._usable()
        self._require_group()
        (tp,) = aiokafka_arguments.partitions((partition,))
        found: Mapping[TopicPartition, OffsetAndMetadata | None]
        found = await consumer.run_call(consumer.consumer.committed((tp,), self._timer(consumer)))
        committed = found[tp]
        return None if committed is None else committed.offset

    # --- cluster metadata and offsets ------------------------------------------------------------------------------

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first offset at or after each time (milliseconds since the epoch), or None if there is none.

        Raises:
            IllegalArgumentError: a time is not a number from 0 on.
            KafkaTimeoutError: not all offsets are known in time.
            TopicAuthorizationError: the consumer may not describe a topic.
        """
        consumer = self._usable()
        wanted = aiokafka_arguments.timestamps(timestamps)
        found = await consumer.run_call(consumer.consumer.offsets_for_times(wanted, self._timeout_ms))
        return {tp: place and OffsetAndTimestamp(place.offset, place.timestamp) for tp, place in found.items()}

    async def beginning_offsets(self, partitions: Any) -> dict[TopicPartition, int]:
        """Return the offset of the first record of each partition.

        Raises:
            KafkaTimeoutError: not all offsets are known in time.
            TopicAuthorizationError: the consumer may not describe a topic.
        """
        consumer = self._usable()
        wanted = topic_names.partitions(partitions)
        return await consumer.run_call(consumer.consumer.beginning_offsets(wanted, self._timeout_ms))

    async def end_offsets(self, partitions: Any) -> dict[TopicPartition, int]:
        """Return the offset after the last readable record of each partition.

        That is the high watermark, or with ``isolation_level="read_committed"`` the last stable offset.

        Raises:
            KafkaTimeoutError: not all offsets are known in time.
            TopicAuthorizationError: the consumer may not describe a topic.
        """
        consumer = self._usable()
        wanted = topic_names.partitions(partitions)
        return await consumer.run_call(consumer.consumer.end_offsets(wanted, self._timeout_ms))

    async def topics(self) -> set[str]:
        """Return the names of all topics that the consumer may describe.

        Internal topics are left out unless ``exclude_internal_topics`` is off.

        Raises:
            KafkaTimeoutError: no broker responded in time.
        """
        consumer = self._usable()
        found = await consumer.run_call(consumer.consumer.describe_topics(None, self._timeout_ms))
        return set(found) - (INTERNAL_TOPICS if self._config["exclude.internal.topics"] else frozenset())

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partition numbers of a topic that the consumer uses, or None if its metadata is not known."""
        return self.client.cluster.partitions_for_topic(topic_names.checked(topic))

    @property
    def client(self) -> ClientView:
        """The consumer's view of the cluster, under aiokafka's name. It can be used once the consumer is started."""
        return ClientView(
            self._replaced,
            config=lambda: self._config,
            metadata=lambda: self._usable().components.metadata,
            update=self._update_metadata,
        )

    # Instrumentations of aiokafka read and replace these private attributes.

    _client = client

    @property
    def _fetcher(self) -> PrivatePart:
        async def fetched_records(partitions: Any, timeout_s: float = 0, max_records: int | None = None) -> Any:
            return await self._fetched_records(partitions, timeout_s * 1_000, max_records)

        return PrivatePart(self._replaced, next_record=self._next_record, fetched_records=fetched_records)

    async def _update_metadata(self) -> bool:
        consumer = self._usable()
        return await consumer.run_call(consumer.consumer.bootstrap(self._timer(consumer)))

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return this consumer's membership in its group, as of the last completed rebalance."""
        return self._usable().consumer.group_metadata()

    # FastStream reads these private attributes of aiokafka's consumer for its log.

    @property
    def _coordinator(self) -> ConsumerGroupMetadata:
        return self.group_metadata()

    @property
    def _subscription(self) -> SimpleNamespace:
        return SimpleNamespace(topics=self.subscription())

    def explain(self) -> str:
        """Return a report of what the consumer is doing and waiting for, as ``KafkaConsumer.explain``.

        Thread: any.

        Raises:
            Exception: the errors of any call of a consumer that is not started, or closed.
        """
        return explain_consumer(repr(self), self._started().components)

    # --- stopping --------------------------------------------------------------------------------------------------

    async def stop(self, timeout: float | None = None) -> None:
        """Commit the positions if commits are automatic, leave the group, and close all connections.

        Waits at most ``timeout`` seconds (default: 30). If an exception is propagating, as in a ``finally`` block, the
        undelivered records are not committed. Further calls wait too. If a call is cancelled, the consumer closes in
        the background.

        Raises:
            KafkaError: closing a part failed, such as a deserializer. The consumer is closed all the same.
            IllegalArgumentError: ``timeout`` is negative, or not a number.
            IllegalStateError: this is another loop than that of ``start``, which is still open; or a rebalance listener
                makes this call.
        """
        await self._stop(timeout)

    def _end_reading(self, consumer: ThreadlessConsumer) -> None:
        self._records = iter(())
        consumer.consumer.hold_back_last()  # of an automatic commit
        consumer.components.are_records_at_hand = False

    def _release(self, consumer: ThreadlessConsumer) -> None:
        self._records = iter(())
        super()._release(consumer)


_GETONE: Final = AIOKafkaConsumer.getone
