"""The producer for asyncio."""

from __future__ import annotations

import asyncio
import warnings
from asyncio import (
    _get_running_loop,  # the first returns None where the second raises
    get_running_loop,  # the first returns None where the second raises
)
from collections.abc import Awaitable, Callable, Mapping, Sized
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NoReturn, TypeVar, cast, overload

from pykclient import topic_names
from pykclient.aio.aiokafka_arguments import producer_config
from pykclient.aio.awaited_records import AwaitedSends, RecordFuture, attach
from pykclient.aio.batch_builder import BatchBuilder
from pykclient.aio.client_view import PrivatePart, ProducerClientView
from pykclient.aio.errors import MissingTopicError, ProducerClosed
from pykclient.aio.loop_driver import (
    LoopDriver,
    LoopEnvironment,
    LoopWaits,
    MemoryLine,
    Resumption,
    await_bootstrap,
    look_up_bootstrap_servers,
)
from pykclient.aio.structs import RecordMetadata
from pykclient.aio.threadless_producer import ThreadlessProducer, TransactionalCoroutines, await_result
from pykclient.argument_values import checked_flag, shown
from pykclient.clock import FOREVER_MS
from pykclient.errors import (
    BufferExhaustedError,
    IllegalArgumentError,
    IllegalStateError,
    KafkaError,
    UnknownTopicOrPartitionError,
    UseAfterForkError,
)
from pykclient.metrics import Metrics, SubscribedMetrics
from pykclient.network.environment import SYSTEM_ENVIRONMENT, Environment
from pykclient.network.kafka_client import enabled
from pykclient.pacing import SHORT_PAUSE_MS, Pace, one_iteration
from pykclient.producer import record_arguments
from pykclient.producer.future import FutureRecordMetadata, milliseconds
from pykclient.producer.interceptors import InterceptedDelivery, headers_of
from pykclient.producer.record_arguments import call_serializer, checked_serialized, serialization_failed
from pykclient.producer.transactions.transactional_methods import NO_TRANSACTIONS
from pykclient.serialization import BYTES, Serializer
from pykclient.types import Headers, K, ProducerRecord, TopicPartition, V

if TYPE_CHECKING:
    from typing import Self, Unpack
    from uuid import UUID

    from pykclient.config.client_settings import AIOProducerSettings
    from pykclient.config.producer_config import ProducerConfig
    from pykclient.producer.columns import BatchFuture, ColumnSender, Part
    from pykclient.serialization import AsyncSerializerOf, SerializerOf
    from pykclient.types import MadeK, MadeV

#: aiokafka's value of ``acks`` for its default, which frameworks pass on. Here the default is all.
_missing = "all"

T = TypeVar("T")
_get_ident = SYSTEM_ENVIRONMENT.get_ident
#: The size of a key and a value in metadata that does not show it.
NO_SIZE: Final = -1
#: Time that ``async with`` waits for records when KeyboardInterrupt or SystemExit leaves its block, in seconds.
_ENDING_TIMEOUT_S: Final = 0.5


class AIOKafkaProducer(TransactionalCoroutines, SubscribedMetrics, Generic[K, V], unpaced={"send", "send_and_wait"}):
    """A client that sends records to Kafka in batches, for asyncio.

    It runs on the event loop's own thread: there is no other thread, and no call in a thread pool. ``config`` and the
    keyword arguments are KafkaProducer's; aiokafka's own names, such as ``max_batch_size``, work too. ``stop`` sends
    the remaining records, so use the producer in an ``async with`` statement, or call ``start`` and ``stop``::

        async with AIOKafkaProducer(bootstrap_servers="localhost:9092") as producer:
            metadata = await producer.send_and_wait("flights", b"1545", key=b"UA")
            print(metadata.offset)

    With a ``transactional_id``, ``start`` also does what ``KafkaProducer.init_transactions`` does, and records are sent
    inside of ``async with producer.transaction()``.

    A producer belongs to the loop in which it was started, and to the process. Settings that end in ``_ms`` are in
    milliseconds.

    Any call may be cancelled. If ``send`` is cancelled, the record is not sent; cancelling the future that it returned,
    or ``send_and_wait`` while it waits for the broker, does not stop the record.

    Thread: the loop's.
    """

    #: Defaults of the attributes that the destructor reads, should the constructor raise.
    _producer: ThreadlessProducer | None = None
    _closed: bool = True

    @overload
    def __init__(
        self: AIOKafkaProducer[MadeK, MadeV],
        config: None = None,
        /,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        key_serializer: SerializerOf[MadeK] | AsyncSerializerOf[MadeK] | None = None,
        value_serializer: SerializerOf[MadeV] | AsyncSerializerOf[MadeV] | None = None,
        **settings: Unpack[AIOProducerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        /,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        key_serializer: Any = None,
        value_serializer: Any = None,
        **settings: Unpack[AIOProducerSettings],
    ) -> None: ...

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        /,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        **settings: Any,
    ) -> None:
        """Take the settings. Nothing connects before ``start``.

        ``loop`` is deprecated, as in aiokafka: the producer uses the loop that runs ``start``.

        Raises:
            ConfigError: a setting is unknown, invalid or not supported yet.
        """
        if loop is not None:
            warnings.warn("the `loop` parameter is deprecated: leave it out", DeprecationWarning, stacklevel=2)
        self._config = producer_config(config, settings)
        self._given_loop = loop
        self._pace = Pace(self._config["retry.backoff.ms"])
        self._environment: Environment = SYSTEM_ENVIRONMENT
        self._has_acks = self._config["acks"] != "0"
        self._is_starting = False
        self._closed = False
        self._replaced: dict[str, Callable[..., Any]] = {}
        #: The serializers as the program gave them, under aiokafka's names; instrumentations call them.
        self._key_serializer, self._value_serializer = self._config["key.serializer"], self._config["value.serializer"]
        # From ``start`` on:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: int
        self._is_running: Callable[[], bool]  # True while the loop runs
        self._create_future: Callable[[], RecordFuture]
        self._driver: LoopDriver
        self._waits: LoopWaits
        self._memory: MemoryLine
        self._incomplete: Sized  # the batches without a result
        self._serializers: tuple[Serializer[Any], Serializer[Any]]  # of keys and of values
        #: Appends a common record, if the compiled module is there; otherwise returns None, and has done nothing.
        self._send_at_once: Callable[..., RecordFuture | None] = _send_nothing
        #: True if records need more than to be appended: there are serializers, interceptors or a partitioner, each of
        #: which is called once for each record; or the end has come.
        self._has_plugins = True

    @classmethod
    def in_environment(
        cls, environment: Environment, config: Mapping[str, Any] | None = None, /, **settings: Any
    ) -> AIOKafkaProducer[Any, Any]:
        """Return a producer that uses the clock, random numbers and connections of ``environment``."""
        producer: AIOKafkaProducer[Any, Any] = cls(config, **settings)
        producer._environment = environment
        return producer

    # --- starting --------------------------------------------------------------------------------------------------

    async def start(self, *, keep_prepared_txn: bool = False) -> None:
        """Connect to the cluster.

        With ``keep_prepared_txn``, a transaction that an earlier producer with this ``transactional_id`` has left open
        is not aborted: it is prepared now, and ``complete_transaction`` must follow. See
        ``KafkaProducer.init_transactions``.

        Host names are looked up by the system's resolver, on a thread of the resolver's own; numeric addresses need
        none.

        Raises:
            KafkaConnectionError: no bootstrap server can be reached. The call can be repeated.
            KafkaTimeoutError: none has answered within ``max.block.ms``. The call can be repeated.
            ConfigError: the DNS knows none of the bootstrap servers.
            AuthenticationError: the cluster refused the credentials.
            IllegalArgumentError: ``keep_prepared_txn`` is not a truth value.
            IllegalStateError: the producer has been started before, or this is not the loop that it was given.
            io.UnsupportedOperation: the system has neither epoll nor kqueue.
            UnsupportedVersionError: the brokers do not allow two-phase commit, or cannot keep a prepared transaction.
        """
        loop = get_running_loop()
        keep_prepared_txn = checked_flag(keep_prepared_txn, "keep_prepared_txn")
        if self._closed:
            raise ProducerClosed("the producer is closed, and cannot be started again: create another one")
        if self._given_loop is not None and self._given_loop is not loop:
            raise IllegalStateError("Please create objects with the same loop as running with: leave `loop` out")
        if keep_prepared_txn and self._config["transactional.id"] is None:
            raise IllegalStateError(NO_TRANSACTIONS)
        if self._producer is not None or self._is_starting:
            raise IllegalStateError("the producer has been started already")
        self._is_starting = True
        try:
            hosts = await look_up_bootstrap_servers(loop, self._config, self._environment)
            await self._connect(loop, LoopEnvironment(hosts, self._environment), keep_prepared_txn)
        finally:
            self._is_starting = False

    async def _connect(
        self, loop: asyncio.AbstractEventLoop, environment: LoopEnvironment, keep_prepared_txn: bool
    ) -> None:
        producer = ThreadlessProducer(self._config, environment)
        parts = producer.components
        waits = LoopWaits(loop)
        memory = MemoryLine(loop, parts.buffer_pool)

        def on_turn() -> None:  # refers to no more than it needs, so that the producer can be collected
            if waits.waiting:
                waits.check()
            if not memory.is_empty:
                memory.check()

        driver = environment.driver(loop, parts.sender, parts.client, on_turn)
        driver.closed.add_done_callback(lambda _: parts.close_plugins())
        try:
            if "start" in self._replaced:
                await self._replaced["start"]()
            else:
                driver.start()
            producer.wake_driver = driver.wake
            if "bootstrap" in self._replaced:
                await self._replaced["bootstrap"]()
            else:
                await await_bootstrap(
                    parts.metadata, parts.client, parts.clock, waits, producer.max_block_ms, "max.block.ms"
                )
            if (manager := parts.transactions) is not None:
                result = manager.begin_init(keep_prepared_txn)
                await await_result(manager, result, driver, waits, parts, producer.max_block_ms)
            if self._closed:
                raise ProducerClosed("the producer was stopped while it started")
        except BaseException:
            producer.force_close()
            driver.close_at_once()
            raise
        environment.forget_hosts()
        self._loop, self._driver, self._waits, self._memory = loop, driver, waits, memory
        self._thread, self._is_running = _get_ident(), loop.is_running
        self._create_future = _future_factory(loop)
        self._serializers = parts.key_serializer, parts.value_serializer
        is_plain = parts.key_serializer is parts.value_serializer is BYTES
        plugins = parts.interceptors, parts.partitioner, self._replaced.get("add_message")
        self._has_plugins = has_plugins = not is_plain or any(plugin is not None for plugin in plugins)
        if not has_plugins:
            sends = AwaitedSends(producer, loop, self._create_future, self._has_acks, memory, driver.resumed)
            self._send_at_once = sends.send
        self._incomplete = parts.accumulator.register.incomplete
        self._producer = producer

    def _usable(self) -> ThreadlessProducer:
        """Return the producer, if it can be used here.

        Raises:
            ProducerClosed: it is closed.
            IllegalStateError: it has not been started, or belongs to another loop.
            UseAfterForkError: it belongs to the parent process.
        """
        producer = self._started()
        if _get_running_loop() is not self._loop:
            raise IllegalStateError("this producer was started in another event loop: create one in each loop")
        return producer

    def _started(self) -> ThreadlessProducer:
        """Return the producer for calls that any thread may make; raise what ``_usable`` does but for another loop."""
        producer = self._producer
        if self._closed:
            raise ProducerClosed("the producer is closed")
        if producer is None:
            raise IllegalStateError("the producer has not been started: await start(), or use `async with`")
        if (refusal := producer.refusal) is not None:
            raise refusal
        return producer

    # --- sending ---------------------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> RecordFuture:
        """Append a record to a batch, which is sent soon after; return a future for its metadata.

        Waits, at most ``max.block.ms`` in all, for the topic's metadata, for asynchronous serializers and while
        ``buffer.memory`` is used up. It does not wait for the broker: the future does. ``headers`` are pairs of a name
        and bytes or None. If ``partition`` is None, the partitioner chooses. ``timestamp_ms`` is in milliseconds since
        the epoch; None means now.

        The future has a RecordMetadata, or the error that the record failed with. With ``acks=0`` it has None,
        which its type leaves out.

        Raises:
            KafkaTimeoutError: no metadata arrived within ``max.block.ms``; MissingTopicError if there is no such topic.
            BufferExhaustedError: no memory became free within ``max.block.ms``.
            SerializationError: a serializer failed.
            RecordTooLargeError: the record is larger than ``max.request.size``.
            BrokerError: the topic cannot be written to.
            IllegalArgumentError: an argument has the wrong type or value.
            ProducerClosed: the producer is closed, or was closed during the call.
            KafkaError: the producer hit a fatal error.
        """
        try:
            future = self._send_at_once(topic, value, key, partition, timestamp_ms, headers, False)
            if future is None and not self._is_late():
                future = self._send_now(topic, value, key, partition, timestamp_ms, headers, None)
            if future is not None:
                return future
            return await self._send(topic, value, key, partition, timestamp_ms, headers)
        except Exception as error:
            await self._pace.rest(error, SHORT_PAUSE_MS)  # only, as a program may try a whole backlog
            raise

    async def send_and_wait(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> RecordMetadata:
        """Send a record as ``send`` does, and wait until it is acknowledged.

        Returns None with ``acks=0``, as brokers then do not answer. The annotation leaves this out, as in aiokafka:
        otherwise every program would have to rule out a None that no other value of ``acks`` allows.

        Raises:
            Exception: those of ``send``, and the error that the record failed with.
        """
        if type(self).send is not _SEND:  # a subclass or an instrumentation replaced it, as it may in aiokafka
            return await (await self.send(topic, value, key, partition, timestamp_ms, headers))
        future = None
        try:
            # asyncio's own question for the running loop costs a system call before Python 3.12.
            if self._producer is not None and _get_ident() == self._thread and self._is_running():
                driver = self._driver
                driver.is_held = True
                try:
                    future = self._send_at_once(topic, value, key, partition, timestamp_ms, headers, True)
                    if future is None:
                        resumed = driver.resumed
                        future = self._send_now(topic, value, key, partition, timestamp_ms, headers, resumed)
                finally:
                    # With more batches, this record may go together with others.
                    driver.go_on(at_once=future is not None and len(self._incomplete) == 1)
            if future is None:
                future = await self._send(topic, value, key, partition, timestamp_ms, headers)
                if len(self._incomplete) == 1:
                    self._driver.turn_if_woken()
            return await future
        except Exception as error:
            await self._pace.rest(error, SHORT_PAUSE_MS)  # only, as a program may try a whole backlog
            raise

    def _is_late(self) -> bool:
        """Return True if the loop has not run the driver for long: the caller may send in an endless loop."""
        return self._loop is not None and self._driver.is_overdue

    def _send_now(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers | None,
        resumed: list[Resumption] | None,
    ) -> RecordFuture | None:
        """Append a record, as ``_send`` does; return None, and have done nothing, if that may have to wait."""
        producer = self._producer
        if self._has_plugins or producer is None or not self._memory.is_empty:
            return None
        if _get_running_loop() is not self._loop:
            return None
        appended = producer.append(topic, value, key, headers, partition, timestamp_ms)
        if not isinstance(appended, FutureRecordMetadata):
            return None
        future = self._create_future()
        attach(appended, future, self._has_acks, resumed)
        return future

    async def _send(
        self, topic: str, value: Any, key: Any, partition: int | None, timestamp_ms: int | None, headers: Headers | None
    ) -> RecordFuture:
        """Send any record: call interceptors and serializers, and wait for metadata and memory."""
        producer = self._usable()
        if self._is_late():
            await one_iteration()
        on_delivery = None
        # All arguments are checked before the first of them is used.
        topic, headers, partition, timestamp_ms = record_arguments.checked_fields(
            topic, headers, partition, timestamp_ms, None
        )
        interceptors = producer.interceptors
        if interceptors is not None and interceptors.share_records:
            shared, on_delivery = interceptors.shared(headers, None)
            headers = record_arguments.checked_headers(shared)
        elif interceptors is not None:
            record = interceptors.on_send(ProducerRecord(topic, value, key, headers, partition, timestamp_ms))
            topic, headers, partition, timestamp_ms = record_arguments.checked_fields(
                record.topic, record.headers, record.partition, record.timestamp_ms, None
            )
            value, key = record.value, record.key
            on_delivery = InterceptedDelivery(interceptors, tuple(headers), None)
        clock = producer.components.clock
        deadline_ms = clock.now_ms() + producer.max_block_ms
        try:
            if "_wait_on_metadata" in self._replaced:
                await self._replaced["_wait_on_metadata"](topic)
            else:
                await self._await_topic(producer, topic, partition, deadline_ms)
            key_serializer, value_serializer = self._serializers
            key_bytes = await self._serialized(key_serializer, "key", topic, headers, key)
            value_bytes = await self._serialized(value_serializer, "value", topic, headers, value)
        except Exception as error:
            producer.failed(error, topic, partition, headers_of(headers))
            raise
        serialized = key_bytes, value_bytes
        if "add_message" in self._replaced:
            partition = self._partition(topic, partition, key, value, key_bytes, value_bytes)
            timeout_ms = self._config["request.timeout.ms"] if self._config.is_set("request.timeout.ms") else 40_000
            added: RecordFuture = await self._replaced["add_message"](  # with the arguments that aiokafka passes
                TopicPartition(topic, cast("int", partition)),
                *serialized,
                timeout_ms / 1_000,
                timestamp_ms=timestamp_ms,
                headers=headers,
            )
            return added

        def take() -> FutureRecordMetadata | Literal[False] | None:
            """Append the record; return None if memory is missing, False if the topic is, since the last look."""
            nonlocal partition
            appended = producer.append(topic, value, key, headers, partition, timestamp_ms, on_delivery, serialized)
            if isinstance(appended, FutureRecordMetadata):
                return appended
            if appended is not None:
                partition = appended
            return None if producer.knows(topic, partition) else False

        appended: FutureRecordMetadata | Literal[False]
        while True:
            self._usable()  # it may have been closed meanwhile
            try:
                appended = await self._with_memory(producer, take, deadline_ms)
            except BufferExhaustedError as error:
                producer.failed(error, topic, partition, headers_of(headers))
                raise
            if appended:
                break
            await self._await_topic(producer, topic, partition, deadline_ms)
        # No await from here on: a record that was appended has a future that is returned.
        future: RecordFuture = self._create_future()
        attach(appended, future, self._has_acks)
        return future

    async def _serialized(
        self, serializer: Serializer[Any], what: str, topic: str, headers: Headers, data: Any
    ) -> bytes | None:
        """Return the bytes of a key or a value. A serializer may be asynchronous: what it returns is awaited."""
        if serializer is BYTES and (data is None or type(data) is bytes):
            return data
        try:
            serialized = call_serializer(serializer, topic, headers, data)
            if not (serialized is None or type(serialized) is bytes) and isinstance(serialized, Awaitable):
                serialized = await serialized
        except Exception as error:
            failure = serialization_failed(serializer, what, topic, data, error)
            if failure is error:
                raise
            raise failure from error
        return checked_serialized(serializer, what, topic, serialized)

    async def _await_topic(
        self, producer: ThreadlessProducer, topic: str, partition: int | None, deadline_ms: int
    ) -> None:
        """Wait until the metadata has the topic, and the partition if one is given.

        Raises:
            KafkaTimeoutError: it has not at ``deadline_ms``. If the brokers do not know the topic, the error is a
                MissingTopicError.
        """
        if producer.knows(topic, partition):
            return
        parts, topic_wait, max_block_ms = producer.components, producer.topic_wait, producer.max_block_ms
        metadata, clock = parts.metadata, parts.clock
        start_ms = deadline_ms - max_block_ms
        topic_names.validate(topic)
        while topic_wait.look(topic, partition, now_ms := clock.now_ms()) is None:
            if now_ms >= deadline_ms:
                error = topic_wait.missing(topic, partition)
                if isinstance(error.__cause__, UnknownTopicOrPartitionError):
                    raise MissingTopicError(*error.args) from error.__cause__
                raise error
            version = topic_wait.request(topic, partition, now_ms - start_ms, max_block_ms)
            await self._waits.until(partial(_has_news, metadata, version), deadline_ms - now_ms)
            if self._closed:
                raise ProducerClosed("the producer was closed while it waited for metadata")
            metadata.maybe_throw_exception_for_topic(topic)
        parts.producer_metrics.record_metadata_wait(clock.now_ms() - start_ms)

    async def _with_memory(self, producer: ThreadlessProducer, take: Callable[[], T | None], deadline_ms: int) -> T:
        """Return the result of ``take``, called again whenever memory for it may be free.

        Raises:
            BufferExhaustedError: it was not at ``deadline_ms``.
        """
        size = 0
        if self._memory.is_empty:
            taken = take()
            if taken is not None:
                return taken
            size = producer.components.buffer_pool.missing_bytes
        clock = producer.components.clock
        start_ms = clock.now_ms()
        try:
            taken = await self._memory.attempt(take, size, deadline_ms - start_ms)
        finally:
            producer.components.buffer_pool.record_wait(clock.now_ms() - start_ms)
        if taken is None:
            raise producer.components.buffer_pool.exhausted(size, 0, producer.max_block_ms)
        return taken

    # --- batches ---------------------------------------------------------------------------------------------------

    def create_batch(self) -> BatchBuilder[K, V]:
        """Return an empty batch to fill and to pass to ``send_batch``. It holds up to ``batch.size`` bytes."""
        producer = self._usable()
        parts = producer.components
        return BatchBuilder(self._config["batch.size"], parts.key_serializer, parts.value_serializer)

    async def send_batch(self, batch: BatchBuilder[K, V], topic: str, *, partition: int | None) -> RecordFuture:
        """Send the records of ``batch`` together, and close it; return a future for the metadata of the first record.

        Without a partition, the partitioner chooses one, as for a record without a key.

        Waits for metadata and memory as ``send`` does.

        Raises:
            Exception: those of ``send``.
        """
        producer = self._usable()
        topic = record_arguments.checked_topic(topic)
        if partition is not None:
            partition = record_arguments.checked_partition(partition)
        if not isinstance(batch, BatchBuilder):
            raise IllegalArgumentError(f"batch is {shown(batch)}; create_batch() makes one")
        deadline_ms = producer.components.clock.now_ms() + producer.max_block_ms
        await self._await_topic(producer, topic, partition, deadline_ms)
        self._usable()
        if partition is None:
            partition = producer.partition_of_batch(topic)
        run = batch.rows()
        future: RecordFuture = self._create_future()
        if run is None:  # nothing to send, as in aiokafka
            future.set_result(cast("RecordMetadata", None))
            return future

        taken = await self._with_memory(producer, partial(producer.append_run, topic, partition, run), deadline_ms)
        first = FutureRecordMetadata(taken.result, taken.place, run.rows.timestamp_ms, NO_SIZE, NO_SIZE)
        attach(first, future, self._has_acks)
        return future

    async def send_columns(
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
        """Send many records, given as columns: ``KafkaProducer.send_batch`` for asyncio, with the same arguments.

        Returns once all rows are in batches. The future covers all rows; await it, or ask it. If the call is cancelled,
        the rows that are in batches are sent.

        Raises:
            Exception: those of ``KafkaProducer.send_batch``.
        """
        from pykclient.producer.columns import BatchFuture, BatchInput, ColumnSender

        producer = self._usable()
        topic = record_arguments.checked_topic(topic)
        if producer.interceptors is not None:
            raise IllegalStateError("interceptors do not see columns: use send(), or no interceptor.classes")
        clock, metrics = producer.components.clock, producer.components.producer_metrics
        given = BatchInput(topic, data, value, key, headers, timestamp, partition)
        await self._await_topic(producer, topic, None, clock.now_ms() + producer.max_block_ms)
        in_thread = partial(asyncio.get_running_loop().run_in_executor, None) if given.has_encoder else None
        parts = given.parts(clock.wall_ms()) if in_thread is None else await in_thread(given.parts, clock.wall_ms())
        if isinstance(parts, list):  # otherwise it is a stream, which is read later
            in_thread = None
            highest = max(
                (part.highest_partition for part in parts if part.highest_partition is not None), default=None
            )
            await self._await_topic(producer, topic, highest, clock.now_ms() + producer.max_block_ms)
        sender = ColumnSender(topic, producer.column_sender_context(topic))
        left = iter(parts)
        try:
            # An encoder may ask a registry, which must not block the event loop.
            while part := next(left, None) if in_thread is None else await in_thread(next, left, None):
                await self._send_part(producer, sender, part)
        except KafkaError as error:
            metrics.record_error()
            producer.note_failure(error)
            raise
        finally:
            self._driver.wake()  # rows may be in batches that the driver was not woken for
        if sender.refused:
            producer.note_failure(sender.refused[0].error)
            metrics.record_error(sum(len(refused.rows) for refused in sender.refused))
        return BatchFuture(topic, sender.num_rows, sender.sent, sender.refused, clock)

    async def _send_part(self, producer: ThreadlessProducer, sender: ColumnSender, part: Part) -> None:
        steps = sender.steps((part,))
        exhausted = None
        try:
            while True:
                try:
                    size = next(steps) if exhausted is None else steps.throw(exhausted)
                except StopIteration:
                    return
                exhausted = None
                if not size:
                    await one_iteration()
                elif await self._memory.attempt(bool, size, producer.max_block_ms) is None:
                    exhausted = producer.components.buffer_pool.exhausted(size, 0, producer.max_block_ms)
        finally:
            steps.close()

    # --- the rest of the surface -----------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Send all batches now, and wait until all earlier records are acknowledged or have failed."""
        producer = self._usable()
        accumulator = producer.components.accumulator
        token = accumulator.begin_flush()
        try:
            results = accumulator.incomplete_results()
            self._driver.wake()

            def all_are_done() -> bool:
                while results:
                    result = results[-1]
                    if not result.completed:
                        return False
                    results.pop()
                    results.extend(part for _, part in result.parts or ())
                return True

            await self._waits.until(all_are_done, FOREVER_MS)
        finally:
            accumulator.end_flush(token)

    async def client_instance_id(self, timeout: float | None = None) -> UUID | None:
        """Return the client instance id, by which brokers identify this client's metrics (KIP-714).

        Waits at most ``timeout`` seconds (default: ``max.block.ms``); 0 does not wait. Return None if there is no id
        by then, for example as the brokers have no receiver for metrics.

        Raises:
            IllegalStateError: telemetry is disabled (``enable.metrics.push=false``).
            IllegalArgumentError: ``timeout`` is negative, or not a number.
        """
        producer = self._usable()
        timeout_ms = producer.max_block_ms if timeout is None else milliseconds(timeout)
        telemetry = enabled(producer.components.client.telemetry)
        with telemetry.awaited(producer.components.clock.new_signal()):
            self._driver.wake()
            await self._waits.until(lambda: telemetry.client_instance_id is not None, timeout_ms)
        return telemetry.client_instance_id

    async def partitions_for(self, topic: str) -> set[int]:
        """Return the partition numbers of ``topic``. Waits for its metadata as ``send`` does.

        Raises:
            Exception: those of ``send``.
        """
        producer = self._usable()
        topic = record_arguments.checked_topic(topic)
        deadline_ms = producer.components.clock.now_ms() + producer.max_block_ms
        await self._await_topic(producer, topic, None, deadline_ms)
        return producer.partitions_for(topic)

    @property
    def client(self) -> ProducerClientView:
        """The producer's view of the cluster, under aiokafka's name. It can be used once the producer is started."""

        def add(topic: str) -> None:
            topic_names.validate(topic)
            metadata = self._usable().components.metadata
            metadata.add(record_arguments.checked_topic(topic), self._environment.clock.now_ms())

        return ProducerClientView(
            self._replaced,
            add=add,
            config=lambda: self._config,
            metadata=lambda: self._usable().components.metadata,
            update=self._update_metadata,
            _wait_on_metadata=self.partitions_for,
        )

    # Instrumentations of aiokafka read and replace these private attributes.

    @property
    def _message_accumulator(self) -> PrivatePart:
        return PrivatePart(self._replaced, self._end_sending)

    @property
    def _sender(self) -> PrivatePart:
        return PrivatePart(self._replaced)

    def _partition(
        self,
        topic: str,
        partition: int | None,
        key: object,  # noqa: ARG002
        value: object,  # noqa: ARG002
        serialized_key: bytes | None,
        serialized_value: bytes | None,  # noqa: ARG002
    ) -> int | None:
        """Return the partition of a record, None if its batch or a partitioner of the application will choose."""
        return self._usable().partition_of_key(topic, serialized_key) if partition is None else partition

    async def _update_metadata(self) -> bool:
        producer = self._usable()
        metadata = producer.components.metadata
        version = metadata.request_update(False)
        self._driver.wake()
        await self._waits.until(partial(_has_news, metadata, version), producer.max_block_ms)
        return metadata.update_version > version

    def bootstrap_connected(self) -> bool:
        """Return True if any broker has answered since ``start``."""
        return self._usable().bootstrap_connected()

    @property
    def config(self) -> ProducerConfig:
        """The settings in use, by their dotted keys."""
        return self._config

    def _registry(self, call: str) -> Metrics:
        return self._started()._registry(call)

    def explain(self) -> str:
        """Return a report of what the producer is doing and waiting for, as ``KafkaProducer.explain``.

        Thread: any.

        Raises:
            Exception: the errors of any call of a producer that is not started, or closed.
        """
        return self._started().explain()

    # --- stopping --------------------------------------------------------------------------------------------------

    async def stop(self, timeout: float | None = None, *, keep_transaction: bool = False) -> None:
        """Send the remaining records and release all resources.

        Waits up to ``timeout`` seconds, or without a limit if None: each record has its ``delivery.timeout.ms``.
        Records that are unacknowledged by then fail with KafkaError. Further calls wait too. If a call is cancelled,
        the producer closes in the background.

        An open transaction is aborted, or with ``keep_transaction`` left open (``KafkaProducer.close``).

        Raises:
            IllegalArgumentError: ``timeout`` is negative, or not a number.
            IllegalStateError: this is another loop than that of ``start``, which is still open.
        """
        timeout_ms = milliseconds(timeout)
        checked_flag(keep_transaction, "keep_transaction")
        producer = self._producer
        if producer is None or isinstance(producer.refusal, UseAfterForkError):
            self._closed = True
            return
        assert self._loop is not None
        if get_running_loop() is not self._loop:
            if not self._loop.is_closed():
                raise IllegalStateError("this producer was started in another event loop: stop it there")
            self._release(producer)
            return
        if not self._closed:
            self._closed = True
            self._end_sending()
            self._memory.end(ProducerClosed("the producer was closed while a send was waiting for buffer.memory"))
            producer.initiate_close(keep_transaction=keep_transaction)
        driver = self._driver
        if "start" in self._replaced or not await self._waits.until(driver.closed.done, timeout_ms):
            producer.force_close()
            driver.close_at_once()

    def _end_sending(self) -> None:
        """Let ``_send`` refuse all records."""
        self._send_at_once = _send_nothing
        self._has_plugins = True

    def _release(self, producer: ThreadlessProducer) -> None:
        """Let go of connections after the loop was closed: nothing can be sent any more."""
        self._closed = True
        self._end_sending()
        producer.force_close()
        self._driver.close_at_once()
        producer.components.close_plugins()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop; within half a second when KeyboardInterrupt or SystemExit ends the program."""
        is_ending = error_type is not None and issubclass(error_type, (KeyboardInterrupt, SystemExit))
        await self.stop(_ENDING_TIMEOUT_S if is_ending else None)

    def __del__(self) -> None:
        producer, loop = self._producer, getattr(self, "_loop", None)
        if producer is None or self._closed or loop is None:
            return
        if isinstance(producer.refusal, UseAfterForkError):
            return
        message = f"Unclosed AIOKafkaProducer {self!r}: await stop(), or use `async with`"
        warnings.warn(message, ResourceWarning, source=self, stacklevel=2)
        if loop.is_closed():
            self._release(producer)
        else:
            loop.call_exception_handler({"producer": self, "message": message})
            producer.abandon()  # the loop keeps the driver, which sends what is left

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be pickled, as its connections belong to this process and its event loop")

    def __repr__(self) -> str:
        client_id = self._config["client.id"] if self._producer is None else self._producer.components.client_id
        return f"<AIOKafkaProducer {client_id}>"


_SEND: Final = AIOKafkaProducer.send


def _send_nothing(*_: object) -> None:
    """Leave the record to the path in Python."""


def _future_factory(loop: asyncio.AbstractEventLoop) -> Callable[[], RecordFuture]:
    """Return what ``loop.create_future`` does, without its Python code where that only creates a Future."""
    if getattr(type(loop), "create_future", None) is asyncio.BaseEventLoop.create_future:
        return partial(asyncio.Future, loop=loop)
    return loop.create_future


def _has_news(metadata: Any, version: int) -> bool:
    """Return True if the metadata is newer than ``version``, or no newer will come.

    Raises:
        KafkaError: the metadata has a fatal error.
    """
    metadata.maybe_throw_fatal_exception()
    return bool(metadata.update_version > version or metadata.is_closed)
