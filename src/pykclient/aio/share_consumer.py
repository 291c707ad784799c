"""The share consumer for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, overload

from pykclient import errors
from pykclient.aio.aio_consumer_base import AIOConsumerBase
from pykclient.aio.aiokafka_arguments import with_known_mechanism
from pykclient.aio.errors import ConsumerStoppedError
from pykclient.aio.loop_driver import LoopWaits
from pykclient.aio.threadless_consumer import ThreadlessShareConsumer
from pykclient.caused_errors import load_of
from pykclient.clock import FOREVER_MS, Timer
from pykclient.config.consumer_config import ShareConsumerConfig
from pykclient.consumer import consumer_arguments
from pykclient.consumer.explanation import explain_share_consumer
from pykclient.consumer.share.acknowledgements import AcknowledgeType, commit_callback
from pykclient.consumer.subscription_state import SubscriptionState
from pykclient.consumer.values import AutoOffsetResetStrategy
from pykclient.log_context import LogContext
from pykclient.pacing import one_iteration
from pykclient.types import ConsumerRecord, K, TopicIdPartition, TopicPartition, V

if TYPE_CHECKING:
    from typing import Self, Unpack

    import pyarrow as pa

    from pykclient.aio.loop_driver import LoopEnvironment
    from pykclient.config.client_settings import ConsumerSettings
    from pykclient.consumer.iteration import ColumnDecoder
    from pykclient.consumer.share.share_fetch import ShareFetch
    from pykclient.serialization import BindableDeserializer, DeserializerOf
    from pykclient.types import MadeK, MadeV

if TYPE_CHECKING:
    #: An acknowledgement commit callback. What it returns is awaited if that is possible.
    AcknowledgementCommitCallback = Callable[
        [dict[TopicIdPartition, set[int]], errors.KafkaError | None], Awaitable[Any] | Any
    ]
#: A task that keeps reading lets the loop run after this time, in seconds.
_LONGEST_RUN_S: Final = 0.005


class AIOKafkaShareConsumer(AIOConsumerBase[ThreadlessShareConsumer], Generic[K, V], unpaced={"getone"}):
    """A member of a share group (KIP-932) for asyncio: KafkaShareConsumer on the event loop's own thread.

        async with AIOKafkaShareConsumer("orders", bootstrap_servers="localhost:9092", group_id="billing") as consumer:
            async for record in consumer:
                ...

    The broker locks each record for the member that gets it, and delivers it again if the member releases it, or does
    not acknowledge it before the lock expires. With ``share_acknowledgement_mode="implicit"``, the default, the next
    call that reads records, or a commit, accepts the records of the last one. With ``"explicit"``, the application
    calls ``acknowledge`` for each record first. ``stop`` accepts nothing: call ``commit_sync`` before it.

    Settings are KafkaShareConsumer's, as keyword arguments or as a leading mapping. One task at a time reads; other
    tasks may acknowledge records and commit meanwhile. Any call may be cancelled: no record is lost, or accepted
    without having been received, and the consumer stays usable. A consumer belongs to the loop in which it was started.

    Thread: the loop's.
    """

    _config: ShareConsumerConfig

    # The deserializers of a schema registry for asyncio are called for awaitables, so their type is that of for_field.
    @overload
    def __init__(
        self: AIOKafkaShareConsumer[MadeK, MadeV],
        *topics: str,
        key_deserializer: BindableDeserializer[MadeK],
        value_deserializer: BindableDeserializer[MadeV],
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: AIOKafkaShareConsumer[MadeK, MadeV],
        *topics: str,
        key_deserializer: DeserializerOf[MadeK] | None = None,
        value_deserializer: BindableDeserializer[MadeV],
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: AIOKafkaShareConsumer[MadeK, MadeV],
        *topics: str,
        key_deserializer: DeserializerOf[MadeK] | None = None,
        value_deserializer: DeserializerOf[MadeV] | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self,
        config: Mapping[str, Any] | str | None = None,
        /,
        *topics: str,
        key_deserializer: Any = None,
        value_deserializer: Any = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...

    def __init__(self, *topics: Any, **settings: Any) -> None:
        """Take the settings, and the topics to subscribe to. Nothing connects before ``start``.

        Raises:
            ConfigError: a setting is unknown, invalid or not one of share consumers.
            InvalidGroupIdError: there is no ``group_id``.
            IllegalArgumentError: a positional argument is neither a mapping of settings nor a topic.
            InvalidTopicError: no topic can have one of these names.
        """
        config, names = consumer_arguments.settings_and_topics(topics, settings, type(self).__name__)
        made = config if isinstance(config, ShareConsumerConfig) else ShareConsumerConfig(config, **settings)
        if not (made["group.id"] or "").strip():
            raise errors.InvalidGroupIdError("a share consumer needs a group_id: the name of its share group")
        super().__init__(with_known_mechanism(made))
        self._subscriptions = SubscriptionState(LogContext(), AutoOffsetResetStrategy.NONE)
        if names:
            self._subscriptions.subscribe(set(names))
        self._callback: AcknowledgementCommitCallback | None = None
        self._rested_s = 0.0  # when a loop has let other tasks run

    # --- starting --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect to the cluster and, with a subscription, join the share group.

        Raises:
            KafkaConnectionError: no bootstrap server can be reached. The call can be repeated.
            KafkaTimeoutError: the cluster or the group's coordinator has not answered in time. The call can be
                repeated.
            ConfigError: the DNS knows none of the bootstrap servers.
            AuthenticationError: the cluster refused the credentials.
            AuthorizationError: the consumer may not use the group.
            UnsupportedVersionError: the brokers do not serve share groups.
            IllegalStateError: the consumer has been started before.
            io.UnsupportedOperation: the system has neither epoll nor kqueue.
        """
        await self._start()

    def _new_consumer(
        self,
        environment: LoopEnvironment,
        loop: asyncio.AbstractEventLoop,  # noqa: ARG002
        waits: LoopWaits,
    ) -> ThreadlessShareConsumer:
        consumer = ThreadlessShareConsumer(self._config, environment, self._subscriptions, waits)
        consumer.consumer.set_callback(self._callback)
        return consumer

    async def _join(self, consumer: ThreadlessShareConsumer) -> None:
        if self._subscriptions.has_no_subscription_or_user_assignment():
            return
        if not await consumer.run_call(consumer.consumer.join(self._timer(consumer))):
            raise errors.KafkaTimeoutError(
                f"the share group could not be joined within {self._timeout_ms} ms (default.api.timeout.ms): "
                f"{consumer.report()}"
            )

    def _forget_start(self) -> None:
        self._subscriptions = self._subscriptions.renewed()

    # --- subscription ----------------------------------------------------------------------------------------------

    def subscribe(self, topics: Collection[str]) -> None:
        """Subscribe to ``topics``. This replaces an earlier subscription. The next call for records joins the group.

        Raises:
            IllegalArgumentError: ``topics`` is not a collection of names, or is empty.
            InvalidTopicError: no topic can have one of these names.
        """
        names = consumer_arguments.topics(topics)
        if not names:
            raise errors.IllegalArgumentError(
                "subscribe() needs at least one topic: call unsubscribe() to leave the group"
            )
        consumer = self._changeable()
        if consumer is None:
            self._subscriptions.subscribe(set(names))
            return
        consumer.failure = None  # of the last subscription
        consumer.consumer.subscribe(names)
        consumer.driver.wake()

    async def unsubscribe(self) -> None:
        """Leave the group. Records of the last call can still be acknowledged and committed.

        Raises:
            ConcurrentModificationError: another task waits for records.
            IllegalStateError: an acknowledgement commit callback makes this call.
        """
        consumer = self._changeable()
        if consumer is None:
            self._subscriptions.unsubscribe()
            return
        with consumer.call("unsubscribe", is_sole=True):
            consumer.failure = None  # of this subscription
            await consumer.run_call(consumer.consumer.unsubscribe())

    def subscription(self) -> frozenset[str]:
        """Return the topics subscribed to."""
        return self._subscriptions.subscription()

    # --- records ---------------------------------------------------------------------------------------------------

    async def poll(self, timeout_ms: float = 0) -> dict[TopicPartition, list[ConsumerRecord[K, V]]]:
        """Return records by partition as soon as there are some, or an empty dict after ``timeout_ms`` milliseconds.

        Returns what ``KafkaShareConsumer.poll`` does: about ``max.poll.records`` records, whose ``delivery_count`` is 1
        at the first delivery. With implicit acknowledgement, this call accepts the records of the last one. Call it at
        least every ``max.poll.interval.ms`` milliseconds.

        Raises:
            ConsumerStoppedError: the consumer is stopped, or was stopped during the call.
            ConcurrentModificationError: another task waits for records.
            IllegalStateError: there is no subscription, an acknowledgement commit callback makes this call, or, with
                explicit acknowledgement, records of the last call are not acknowledged.
            RecordDeserializationError: a deserializer failed. The record is released, unless you pass its topic,
                partition and offset to ``acknowledge`` with another type.
            CorruptRecordError: a batch is corrupt. Its records are rejected.
            AuthorizationError: the consumer may not read a topic or use the group.
            AuthenticationError: a broker refused the credentials.
            UnsupportedVersionError: the brokers do not serve share groups.
        """
        return self._returned(await self._many("poll", timeout_ms))

    async def getmany(self, *, timeout_ms: float = 0) -> dict[TopicPartition, list[ConsumerRecord[K, V]]]:
        """Do the same as ``poll``, under the name of AIOKafkaConsumer's method."""
        return self._returned(await self._many("getmany", timeout_ms))

    @staticmethod
    def _returned(fetch: ShareFetch) -> dict[TopicPartition, list[ConsumerRecord[K, V]]]:
        fetch.returned = True  # nothing can come between this and the application
        return fetch.records

    async def _many(self, method: str, timeout_ms: float) -> ShareFetch:
        """Return what a poll returns. The caller marks it as returned."""
        consumer = self._usable()
        bound_ms = consumer_arguments.milliseconds(timeout_ms)
        with consumer.call(method, is_sole=True):
            if consumer.driver.is_overdue:
                await one_iteration()
            return await self._read(consumer, bound_ms)

    async def poll_arrow(
        self,
        timeout_ms: float = 0,
        *,
        columns: Sequence[str] | None = None,
        key: ColumnDecoder | None = None,
        value: ColumnDecoder | None = None,
    ) -> pa.RecordBatch:
        """Poll for records of all partitions and return them as one pyarrow.RecordBatch.

        The batch has no rows if no record arrives within ``timeout_ms`` milliseconds. In its effects and errors, this
        is a ``poll``. ``columns`` names the columns to build (default: all): those of ``KafkaConsumer.poll_arrow``, and
        delivery_count. With explicit acknowledgement, pass the batch, or a selection of its rows, to ``acknowledge``.
        ``key`` and ``value`` decode these columns, as for ``KafkaShareConsumer.poll_arrow``; another thread waits for
        the registry, once for each schema.

        Raises:
            ImportError: pyarrow is not installed.
            IllegalStateError: the consumer has deserializers, which would not be called.
            IllegalArgumentError: an argument is invalid.
            RecordDeserializationError: ``key`` or ``value`` cannot decode a row. The next poll returns the same rows.
            KafkaError: any error of ``poll``.
        """
        consumer = self._usable()
        decoders = consumer.consumer.column_decoders(columns, key, value)
        bound_ms = consumer_arguments.milliseconds(timeout_ms)
        with consumer.call("poll_arrow", is_sole=True):
            if consumer.driver.is_overdue:
                await one_iteration()
            fetch = await self._read(consumer, bound_ms)
            batch = consumer.consumer.columns(fetch, decoders.built)
            try:
                while (load := decoders.unloaded(batch)) is not None:
                    await load()
                    consumer.ensure_not_ending()
                batch = decoders.into(batch)
            except errors.KafkaError as error:
                await consumer.rest_if_repeated(error)
                raise
        fetch.returned = True  # nothing can come between this and the application
        return batch

    async def getone(self) -> ConsumerRecord[K, V]:
        """Return the next record. Waits until there is one.

        With implicit acknowledgement, a record is accepted when the records that were fetched with it have all been
        returned and the next call asks the brokers for more, or by a commit.

        Raises:
            Exception: the errors of ``poll``.
        """
        try:
            return await self._next_record()
        except Exception as error:
            await self._pace.rest(error)
            raise

    async def _next_record(self) -> ConsumerRecord[K, V]:
        consumer = self._usable()
        with consumer.call("getone", is_sole=True):
            now_s = self._now_s()
            if now_s - self._rested_s > _LONGEST_RUN_S:
                self._rested_s = now_s
                await one_iteration()
            while not consumer.consumer.has_waiting_records:
                consumer.consumer.keep_for_loop(await self._read(consumer, FOREVER_MS))
            return consumer.consumer.waiting.popleft()

    async def _read(self, consumer: ThreadlessShareConsumer, timeout_ms: int) -> ShareFetch:
        """Return what a poll returns. The caller marks it as returned."""
        timer = Timer(consumer.components.clock, timeout_ms)
        try:
            consumer.raise_failure()
            while True:
                try:
                    return await consumer.run(consumer.consumer.poll(timer))
                except errors.RecordDeserializationError as error:
                    load = load_of(error.__cause__)
                    if load is None:
                        raise
                    try:
                        await load()
                    except errors.KafkaError as failure:
                        consumer.consumer.load_failed(error.part, failure)
        except errors.KafkaError as error:
            await consumer.rest_if_repeated(error)
            raise

    def __aiter__(self) -> Self:
        """Return the consumer: a loop goes over all records, and ends when the consumer is stopped.

        A record can be accepted once the loop has received it. If you leave a loop, the next one continues there.

        Raises:
            ConsumerStoppedError: the consumer is stopped.
        """
        if self._closed:
            raise ConsumerStoppedError("the consumer is stopped")
        return self

    async def __anext__(self) -> ConsumerRecord[K, V]:
        """Return the next record, as ``getone`` does."""
        try:
            return await self.getone()
        except ConsumerStoppedError:
            raise StopAsyncIteration from None

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
        """Acknowledge a record of the last call: ``acknowledge(record)`` accepts it.

        ``acknowledge(record, type)`` may also release or reject it, or renew its lock. Nothing is sent before the next
        call for records or commit; until then, a later acknowledgement of the same record replaces the earlier one.
        ``acknowledge(rows)`` and ``acknowledge(rows, type)`` take rows of ``poll_arrow``, such as a selection of them,
        with the columns topic, partition and offset. All are acknowledged, or none if one cannot be.
        ``acknowledge(topic, partition, offset, type)`` is for a record for which the last call has raised
        RecordDeserializationError.

        Raises:
            IllegalStateError: ``share.acknowledgement.mode`` is implicit, or the record is not one of the last call.
            IllegalArgumentError: an argument is wrong.
        """
        self._usable().consumer.acknowledge(args)

    async def commit_sync(self, timeout_ms: float | None = None) -> dict[TopicIdPartition, errors.KafkaError | None]:
        """Send the acknowledgements, and wait at most ``timeout_ms`` milliseconds for the answers.

        With implicit acknowledgement, first accept the records of the last call. The default of ``timeout_ms`` is
        ``default.api.timeout.ms``. Return None for each partition whose acknowledgements succeeded, and an error for
        the others: their records are delivered again. If the call is cancelled, the acknowledgements go on, and the
        callback gets their outcome.

        Raises:
            ConsumerStoppedError: the consumer is stopped, or was stopped during the call.
            IllegalStateError: an acknowledgement commit callback makes this call.
        """
        consumer = self._usable()
        with consumer.call("commit_sync"):
            return await consumer.run_call(consumer.consumer.commit_sync(self._timer(consumer, timeout_ms)))

    async def commit_async(self) -> None:
        """Send the acknowledgements without waiting. The acknowledgement commit callback gets the outcome.

        With implicit acknowledgement, first accept the records of the last call.

        Raises:
            IllegalStateError: an acknowledgement commit callback makes this call.
        """
        consumer = self._usable()
        with consumer.call("commit_async"):
            await consumer.run_call(consumer.consumer.commit_async())

    def set_acknowledgement_commit_callback(self, callback: AcknowledgementCommitCallback | None) -> None:
        """Set the ``callback(offsets, error)`` to call when brokers answer acknowledgements; None removes it.

        ``offsets`` has the acknowledged offsets of one partition, and ``error`` is None on success. The callback may be
        a coroutine function. It runs inside calls for records, commits and ``stop``, which wait for it. It cannot call
        this consumer. An error that it raises is logged. Without a callback, errors are logged.

        Raises:
            IllegalArgumentError: ``callback`` cannot be called.
        """
        self._callback = commit_callback(callback)
        consumer = self._changeable()
        if consumer is not None:
            consumer.consumer.set_callback(callback)

    def acquisition_lock_timeout_ms(self) -> int | None:
        """Return how long, in milliseconds, the broker locks the records of the last call; None before the first."""
        return self._usable().consumer.acquisition_lock_timeout_ms

    # --- explaining and stopping -----------------------------------------------------------------------------------

    def explain(self) -> str:
        """Return a report of what the consumer is doing and waiting for, as ``KafkaConsumer.explain``.

        Thread: any.

        Raises:
            Exception: the errors of any call of a consumer that is not started, or closed.
        """
        return explain_share_consumer(repr(self), self._started().components)

    async def stop(self, timeout: float | None = None) -> None:
        """Send the acknowledgements that were made, leave the group, and close all connections.

        Waits at most ``timeout`` seconds (default: 30). The locks of all other records are released, also of those that
        would be accepted implicitly. Calls in progress end with ConsumerStoppedError. Further calls wait too. If a call
        is cancelled, the consumer closes in the background.

        Raises:
            KafkaError: closing failed. The consumer is closed all the same.
            IllegalArgumentError: ``timeout`` is negative, or not a number.
            IllegalStateError: this is another loop than that of ``start``, which is still open; or an acknowledgement
                commit callback makes this call.
        """
        await self._stop(timeout)

    def _end_reading(self, consumer: ThreadlessShareConsumer) -> None:
        """Do nothing: closing releases what is not acknowledged."""
