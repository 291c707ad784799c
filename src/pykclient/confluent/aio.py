"""confluent-kafka's clients for asyncio: AIOProducer, AIOConsumer, and those that convert keys and values.

The producer needs no thread of its own: the sender wakes the event loop, which serves all reports that have arrived.
The consumer's calls block, so they run in an executor, one at a time. While a callback of the application runs on the
event loop, the thread that waits for it makes the calls that the callback awaits.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from functools import partial, wraps
from inspect import isawaitable
from types import TracebackType
from typing import Any, Concatenate, Generic, NoReturn, ParamSpec, Self, TypeVar

from pykclient.confluent.consumer import Consumer
from pykclient.confluent.error import ConsumeError
from pykclient.confluent.events import deadline_of, monotonic, remaining
from pykclient.confluent.kafka_error import KafkaError, KafkaException
from pykclient.confluent.message import PRODUCER_CLOSED, UNABLE_TO_PRODUCE, Message
from pykclient.confluent.producer import Producer
from pykclient.confluent.serializing import (
    CLUSTER_ID_S,
    DAMAGED,
    FIELDS,
    REFUSED,
    Serdes,
    offer_cluster_id,
    raise_first,
    serde_steps,
)
from pykclient.pacing import Pace, PacedCoroutines
from pykclient.serde import MessageField, SerializationContext

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
P = ParamSpec("P")

__all__ = ["AIOConsumer", "AIOProducer", "AsyncDeserializingConsumer", "AsyncSerializingProducer"]

#: The callbacks of a configuration that may be coroutine functions.
_CALLBACKS = ("error_cb", "throttle_cb", "stats_cb", "on_commit")
#: The interval at which a producer's timers are looked at if it has any.
_TICK_S = 0.1
#: The longest call of an executor's thread, after which it notices that its caller was cancelled.
_SLICE_S = 0.2
#: How often a thread that waits for a callback checks that the event loop still runs.
_LOOP_CHECK_S = 1.0


def _forwarded(
    client: str, method: Callable[Concatenate[Any, P], T]
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return a coroutine method that calls ``method`` of the attribute ``client``; its signature is the method's."""
    name = method.__name__

    @wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = await self._call(getattr(getattr(self, client), name), *args, **kwargs)
        return result

    return call


class _AIOClient(PacedCoroutines):
    """Base of the clients for asyncio."""

    async def close(self) -> None:
        """Release all resources."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


def _with_callbacks(conf: dict[str, Any], wrapped: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a configuration in whose callbacks, which may be coroutine functions, are those that ``wrapped`` makes."""
    callbacks = {name: wrapped(conf[name]) for name in _CALLBACKS if callable(conf.get(name))}
    return {**conf, **callbacks}


class _NotBlockingProducer(Producer):
    """A producer whose ``produce`` does not wait for memory, as it runs on the event loop."""

    _block_ms = 0


class AIOProducer(_AIOClient, unpaced={"produce"}):
    """A producer for asyncio: ``produce`` returns a future of the delivered message.

    Create it on the event loop, with a dict of librdkafka's properties. The callbacks in it may be coroutine functions.
    ``produce`` lets other tasks run after each ``batch_size`` messages. Messages go to the producer's own batches at
    once, so ``buffer_timeout`` has no effect. Thread: that of the event loop.
    """

    def __init__(
        self,
        producer_conf: dict[str, Any],
        max_workers: int = 4,
        executor: Executor | None = None,
        batch_size: int = 1000,
        buffer_timeout: float = 1.0,  # noqa: ARG002
    ) -> None:
        """Create a producer.

        Raises:
            KafkaException: a property is unknown, or has a wrong value.
            RuntimeError: no event loop runs.
        """
        self._loop = asyncio.get_running_loop()
        conf = _with_callbacks(producer_conf, lambda callback: partial(self._start_callback, callback))
        # Every delivery resolves a future, so every delivery must be reported.
        conf.pop("delivery.report.only.error", None)
        self._producer = _NotBlockingProducer(conf)
        self._owns_executor = executor is None
        self.executor = executor or ThreadPoolExecutor(max_workers, "pykclient aio producer")
        self._batch_size = batch_size
        self._pace = Pace()
        self._is_closed = False
        self._closing: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._raised: BaseException | None = None
        self._in_a_row = 0
        #: Events that were served and that no ``poll`` has counted, and the signal that there are some.
        self._served = 0
        self._arrived = asyncio.Event()
        self._scheduled = False
        self._ticker: asyncio.TimerHandle | None = None
        self._producer.events.listener = self._wake
        self._tick()

    def __len__(self) -> int:
        return 0 if self._is_closed else len(self._producer)

    def __bool__(self) -> bool:
        return True

    # --- reports ---------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Let the event loop serve reports and events. Thread: any."""
        if not self._scheduled:
            self._scheduled = True
            with suppress(RuntimeError):  # the event loop is closed, so nobody waits for them
                self._loop.call_soon_threadsafe(self._serve)

    def _serve(self) -> None:
        self._scheduled = False
        try:
            served = self._producer.poll(0)
        except RuntimeError:  # it was closed since
            return
        if served:
            self._served += served
            self._arrived.set()

    def _tick(self) -> None:
        if self._producer.looks and not self._is_closed:
            self._serve()
            self._ticker = self._loop.call_later(_TICK_S, self._tick)

    def _start_callback(self, callback: Callable[..., Any], *args: Any) -> None:
        result = callback(*args)
        if isawaitable(result):
            self._start(self._completed(result))

    async def _completed(self, result: Awaitable[object]) -> None:
        try:
            await result
        except Exception as error:  # noqa: BLE001 - raised by the next call of the application
            self._raised = self._raised or error
            self._arrived.set()

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _raise_callback_error(self) -> None:
        error, self._raised = self._raised, None
        if error is not None:
            raise error

    async def _arrival(self, limit_s: float) -> None:
        """Wait for reports or events, up to ``limit_s`` seconds."""
        self._arrived.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._arrived.wait()

    # --- producing -------------------------------------------------------------------------------------------------

    async def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        timestamp: int = 0,
        headers: Any = None,
    ) -> asyncio.Future[Message[bytes, bytes]]:
        """Queue a message; return a future of the delivered message.

        While the queue is full, this waits for room. The future raises KafkaException if the message is not delivered.

        Raises:
            TypeError: an argument has the wrong type.
            RuntimeError: the producer is closed.
        """
        if self._is_closed:
            await self._refuse()
        future: asyncio.Future[Message[bytes, bytes]] = self._loop.create_future()
        deadline = monotonic() + self._producer.message_timeout_ms / 1000
        report = partial(_resolve, future)
        while True:
            try:
                self._producer.produce(topic, value, key, partition, report, timestamp=timestamp, headers=headers)
                break
            except KafkaException as error:
                future.set_exception(error)
                return future
            except BufferError:
                if not len(self._producer) or monotonic() >= deadline:
                    reason = KafkaError(KafkaError._QUEUE_FULL, f"{UNABLE_TO_PRODUCE}Local: Queue full")
                    future.set_exception(KafkaException(reason))
                    return future
                self._serve()
                await self._arrival(_SLICE_S)
                if self._is_closed:
                    raise RuntimeError(PRODUCER_CLOSED) from None
        self._in_a_row += 1
        if self._in_a_row >= self._batch_size:
            self._in_a_row = 0
            self._serve()
            await asyncio.sleep(0)
        return future

    async def _refuse(self) -> NoReturn:
        error = RuntimeError(PRODUCER_CLOSED)
        await self._pace.rest(error)
        raise error

    async def poll(self, timeout: float = 0) -> int:
        """Return the number of reports and events that were served since the last call.

        Wait up to ``timeout`` seconds if there are none, without a limit if it is negative. They are served without
        this call, too. An exception of a callback is raised.

        Raises:
            RuntimeError: the producer is closed.
        """
        deadline = deadline_of(timeout)
        while True:
            if self._is_closed:
                raise RuntimeError(PRODUCER_CLOSED)
            self._serve()
            self._raise_callback_error()
            if self._served:
                served, self._served = self._served, 0
                return served
            left = remaining(deadline)
            if left <= 0:
                return 0
            await self._arrival(left)

    async def flush(self, timeout: float = -1) -> int:
        """Send everything, and wait up to ``timeout`` seconds until all futures are done.

        Returns the number of messages that are left. An exception of a callback is raised.

        Raises:
            RuntimeError: the producer is closed.
        """
        if self._is_closed:
            raise RuntimeError(PRODUCER_CLOSED)
        left = await self._flush(deadline_of(timeout))
        self._raise_callback_error()
        return left

    async def _flush(self, deadline: float | None) -> int:
        while True:
            self._serve()
            left_s = remaining(deadline)
            if not len(self._producer) or left_s <= 0:
                return len(self._producer)
            if self._producer.has_backlog():
                await self._arrival(min(left_s, 0.01))
            else:
                await self._call(self._producer.send_all, min(left_s, _SLICE_S))

    async def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Give up messages; their futures raise KafkaException. See ``Producer.purge``.

        Raises:
            RuntimeError: the producer is closed.
        """
        await self._call(self._producer.purge, in_queue, in_flight, blocking)
        self._serve()

    async def close(self) -> None:
        """Send everything, and release all resources; a second call waits for the first one.

        If this is cancelled, the messages that are left are given up. Their futures raise KafkaException.
        """
        if self._closing is None:
            flushed = self._flush(None)
            self._is_closed = True
            self._closing = self._start(self._close(flushed))
        try:
            await asyncio.shield(self._closing)
        except asyncio.CancelledError:
            if not self._closing.done():
                self._producer.purge()
                self._serve()
            raise
        self._raise_callback_error()

    async def _close(self, flushed: Coroutine[Any, Any, int]) -> None:
        try:
            await flushed
        finally:
            if self._ticker is not None:
                self._ticker.cancel()
            await self._call(self._producer.close)
            self._producer.events.listener = None
            if self._owns_executor:
                await self._loop.run_in_executor(None, self.executor.shutdown, True)

    # --- transactions ----------------------------------------------------------------------------------------------

    init_transactions = _forwarded("_producer", Producer.init_transactions)

    async def begin_transaction(self) -> None:
        """Flush, and begin a transaction."""
        await self.flush()
        await self._call(self._producer.begin_transaction)

    send_offsets_to_transaction = _forwarded("_producer", Producer.send_offsets_to_transaction)

    async def commit_transaction(self, timeout: float = -1) -> None:
        """Flush, and commit the transaction."""
        await self.flush()
        await self._call(self._producer.commit_transaction, timeout)

    async def abort_transaction(self, timeout: float = -1) -> None:
        """Flush, and abort the transaction."""
        await self.flush()
        await self._call(self._producer.abort_transaction, timeout)

    # --- the cluster -----------------------------------------------------------------------------------------------

    list_topics = _forwarded("_producer", Producer.list_topics)
    cluster_id = _forwarded("_producer", Producer.cluster_id)
    set_sasl_credentials = _forwarded("_producer", Producer.set_sasl_credentials)

    async def _call(self, blocking_task: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Return the result of a call that blocks, made in the executor."""
        return await self._loop.run_in_executor(self.executor, partial(blocking_task, *args, **kwargs))


def _resolve(
    future: asyncio.Future[Message[bytes, bytes]], error: KafkaError | None, message: Message[bytes, bytes]
) -> None:
    if future.done():  # cancelled
        return
    if error is None:
        future.set_result(message)
    else:
        future.set_exception(KafkaException(error))


# --- consumer --------------------------------------------------------------------------------------------------------


class _Mailbox:
    """The calls that a callback awaits, for the thread that waits for the callback."""

    def __init__(self, loop: asyncio.AbstractEventLoop, consumer: Consumer) -> None:
        self._loop = loop
        self.consumer = consumer
        self.is_open = True
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()

    def put(self, call: Callable[[], T]) -> Future[T]:
        """Add a call; return its result. Thread: that of the event loop."""
        future: Future[T] = Future()
        self._calls.put((call, future))
        return future

    def close(self, _: object) -> None:
        """Take no more calls: the callback has returned. Thread: that of the event loop."""
        self.is_open = False
        self._calls.put(None)

    def serve(self) -> None:
        """Make the calls until the mailbox is closed. Thread: the one that waits.

        Raises:
            RuntimeError: the event loop was closed.
        """
        while True:
            try:
                item = self._calls.get(timeout=_LOOP_CHECK_S)
            except queue.Empty:
                if self._loop.is_closed():
                    raise RuntimeError("The event loop was closed while a callback ran") from None
                continue
            if item is None:
                return
            call, future = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - raised where the call is awaited
                future.set_exception(error)


_mailbox: ContextVar[_Mailbox | None] = ContextVar("pykclient_confluent_mailbox", default=None)


class AIOConsumer(_AIOClient):
    """A consumer for asyncio: each method of Consumer as a coroutine.

    Create it on the event loop, with a dict of librdkafka's properties. The callbacks in it and those of ``subscribe``
    may be coroutine functions. A callback may await methods of this consumer. Other tasks wait until the call that has
    run the callback is complete. Thread: that of the event loop.
    """

    def __init__(self, consumer_conf: dict[str, Any], max_workers: int = 100, executor: Executor | None = None) -> None:
        """Create a consumer.

        Raises:
            KafkaException: a property is unknown, or has a wrong value.
            ValueError: there is no ``group.id``, or ``max_workers`` is less than 1.
            RuntimeError: no event loop runs.
        """
        if executor is None and max_workers < 1:
            raise ValueError("max_workers must be at least 1")
        self._loop = asyncio.get_running_loop()
        self._consumer = Consumer(_with_callbacks(consumer_conf, self._wrapped))
        self._owns_executor = executor is None
        self.executor = executor or ThreadPoolExecutor(max_workers, "pykclient aio consumer")
        self._pace = Pace()
        self._closed = False
        self._lock = asyncio.Lock()  # held by the call that the executor makes
        self._abandoned: set[asyncio.Task[None]] = set()

    # --- calls -----------------------------------------------------------------------------------------------------

    def _wrapped(self, callback: Callable[..., Any], gets_consumer: bool = False) -> Callable[..., Any]:
        """Return a function for the executor's thread that runs ``callback`` on the event loop, and waits for it."""

        def call(*args: Any) -> Any:
            if gets_consumer:
                args = (self, *args[1:])
            mailbox = _Mailbox(self._loop, self._consumer)

            async def run() -> Any:
                _mailbox.set(mailbox)
                result = callback(*args)
                return await result if isawaitable(result) else result

            running = asyncio.run_coroutine_threadsafe(run(), self._loop)
            running.add_done_callback(mailbox.close)
            mailbox.serve()
            return running.result()

        return call

    async def _call(self, blocking_task: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Return the result of a call that blocks, made in the executor after those that came before."""
        return await self._run(partial(blocking_task, *args, **kwargs))

    async def _run(self, call: Callable[[], T], abandon: Callable[[], None] | None = None) -> T:
        """Make a call. If this is cancelled, call ``abandon``, then wait for its end in the background."""
        if self._closed:
            raise RuntimeError("Consumer closed")
        mailbox = _mailbox.get()
        if mailbox is not None and mailbox.is_open and mailbox.consumer is self._consumer:
            return await asyncio.wrap_future(mailbox.put(call))
        await self._lock.acquire()
        try:
            made = self._loop.run_in_executor(self.executor, call)
        except BaseException:
            self._lock.release()
            raise
        try:
            result = await asyncio.shield(made)
        except asyncio.CancelledError:
            if abandon is not None:
                abandon()
            task = self._loop.create_task(self._abandon(made))
            self._abandoned.add(task)
            task.add_done_callback(self._abandoned.discard)
            raise
        except BaseException:
            self._lock.release()
            raise
        self._lock.release()
        return result

    async def _abandon(self, made: asyncio.Future[Any]) -> None:
        """Wait for a call whose caller was cancelled; messages that it has taken go back to the consumer."""
        try:
            with suppress(Exception):  # nobody waits for the error
                result = await made
                messages = result if isinstance(result, list) else [result]
                taken = [each for each in messages if isinstance(each, Message) and each.error() is None]
                if taken and not self._closed:
                    await self._loop.run_in_executor(self.executor, self._consumer.give_back, taken)
        finally:
            self._lock.release()

    # --- messages --------------------------------------------------------------------------------------------------

    async def poll(self, timeout: float = -1) -> Any:
        """Return a message, or None if none arrives in ``timeout`` seconds. See ``Consumer.poll``.

        For many messages, ``consume`` takes less time.
        """
        waiting = _Waiting(self._consumer.poll, timeout)
        return await self._run(waiting, waiting.stop)

    async def consume(self, num_messages: int = 1, timeout: float = -1) -> Any:
        """Return up to ``num_messages`` messages. See ``Consumer.consume``."""
        waiting = _Waiting(partial(self._consumer.consume, num_messages), timeout)
        return await self._run(waiting, waiting.stop)

    # --- the methods of Consumer -----------------------------------------------------------------------------------

    async def subscribe(
        self,
        topics: list[str],
        on_assign: Callable[..., Any] | None = None,
        on_revoke: Callable[..., Any] | None = None,
        on_lost: Callable[..., Any] | None = None,
    ) -> None:
        """Subscribe to topics. The callbacks get this consumer and the partitions. See ``Consumer.subscribe``."""
        callbacks = {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost}
        wrapped = {
            name: self._wrapped(callback, gets_consumer=True) if callable(callback) else callback
            for name, callback in callbacks.items()
        }
        await self._call(self._consumer.subscribe, topics, **wrapped)

    unsubscribe = _forwarded("_consumer", Consumer.unsubscribe)
    assign = _forwarded("_consumer", Consumer.assign)
    unassign = _forwarded("_consumer", Consumer.unassign)
    incremental_assign = _forwarded("_consumer", Consumer.incremental_assign)
    incremental_unassign = _forwarded("_consumer", Consumer.incremental_unassign)
    assignment = _forwarded("_consumer", Consumer.assignment)
    commit = _forwarded("_consumer", Consumer.commit)  # type: ignore[arg-type]  # **kwargs might have a self
    committed = _forwarded("_consumer", Consumer.committed)
    store_offsets = _forwarded("_consumer", Consumer.store_offsets)
    position = _forwarded("_consumer", Consumer.position)
    seek = _forwarded("_consumer", Consumer.seek)
    pause = _forwarded("_consumer", Consumer.pause)
    resume = _forwarded("_consumer", Consumer.resume)
    get_watermark_offsets = _forwarded("_consumer", Consumer.get_watermark_offsets)
    offsets_for_times = _forwarded("_consumer", Consumer.offsets_for_times)
    consumer_group_metadata = _forwarded("_consumer", Consumer.consumer_group_metadata)
    list_topics = _forwarded("_consumer", Consumer.list_topics)
    cluster_id = _forwarded("_consumer", Consumer.cluster_id)
    set_sasl_credentials = _forwarded("_consumer", Consumer.set_sasl_credentials)

    async def close(self) -> None:
        """Leave the group, and release all resources. A second call does nothing.

        Calls that wait for their turn raise RuntimeError.

        Raises:
            KafkaException: a rebalance callback calls this, not inside of another ``close``. Nothing is closed.
        """
        if self._closed:
            return
        await self._call(self._close)
        if self._owns_executor and self._closed:
            mailbox = _mailbox.get()
            # The thread that waits for a callback cannot end before the callback does.
            waits = mailbox is None or not mailbox.is_open or mailbox.consumer is not self._consumer
            await self._loop.run_in_executor(None, self.executor.shutdown, waits)

    def _close(self) -> None:
        try:
            self._consumer.close()
        finally:
            self._closed = self._consumer.is_closed()  # not if a callback calls this


class _Waiting:
    """A call that waits for messages, in slices, so that it can be stopped."""

    def __init__(self, call: Callable[[float], Any], timeout: float) -> None:
        self._call = call
        self._deadline = deadline_of(timeout)
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True

    def __call__(self) -> Any:
        while True:
            left = remaining(self._deadline)
            found = self._call(left)
            nothing = found is None or found == []
            if not nothing or left <= 0 or self._stopped:
                return found


# --- clients that convert --------------------------------------------------------------------------------------------


class _SharedClusterId:
    """Asks for the cluster's id; concurrent calls share one request, and a cancelled one leaves it to the others."""

    def __init__(self, cluster_id: Callable[..., Coroutine[Any, Any, str]]) -> None:
        self._cluster_id = cluster_id
        self._asked: asyncio.Task[str] | None = None

    async def __call__(self) -> str:
        """Return the id.

        Raises:
            KafkaException: no broker responded in time.
        """
        if self._asked is None or self._asked.done():
            self._asked = asyncio.get_running_loop().create_task(self._cluster_id(timeout=CLUSTER_ID_S))
        return await asyncio.shield(self._asked)


async def _awaited(result: Any) -> Any:
    return await result if isawaitable(result) else result


async def _serdes_of(conf: dict[str, Any], kind: str) -> Serdes:
    """Return what ``serdes_of`` returns; builders may be coroutine functions."""
    built: list[Any] = []
    steps = serde_steps(conf, kind, built)
    try:
        result = next(steps)
        while True:
            result = steps.send(await _awaited(result))
    except StopIteration as end:
        found: Serdes = end.value
        return found
    except BaseException:
        await _close_serdes(built)
        raise


async def _close_serdes(serdes: list[Any]) -> None:
    """Close all, by ``aclose`` or ``close``, and raise the first error then."""
    errors: list[tuple[Any, Exception]] = []
    for serde in serdes:
        close = getattr(serde, "aclose", None) or getattr(serde, "close", None)
        if callable(close):
            try:
                await _awaited(close())
            except Exception as error:  # noqa: BLE001 - raised once all are closed
                errors.append((serde, error))
    raise_first(errors)


class _Converting:
    """Base of the clients that convert, with the serdes that their configuration names."""

    _serde: str
    _serdes: Serdes
    cluster_id: Callable[..., Coroutine[Any, Any, str]]

    def __init__(self, conf: dict[str, Any], **kwargs: Any) -> None:
        self._conf, self._kwargs = conf, kwargs

    def __await__(self) -> Generator[Any, None, Self]:
        return self._opened().__await__()

    async def _opened(self) -> Self:
        self._serdes = serdes = await _serdes_of(self._conf, self._serde)
        try:
            super().__init__(serdes.conf, **self._kwargs)  # type: ignore[call-arg]  # of the client below
        except BaseException:
            with suppress(Exception):  # the first error is raised
                await _close_serdes(serdes.built)
            raise
        offer_cluster_id(serdes, "set_async_cluster_id_resolver", _SharedClusterId(self.cluster_id))
        return self

    async def close(self) -> None:
        """Close the client, then the serdes that it has built."""
        await super().close()  # type: ignore[misc]  # of the client below
        serdes, self._serdes = self._serdes, self._serdes._replace(built=[])
        await _close_serdes(serdes.built)


async def _converted(
    serdes: Serdes, refusals: tuple[Callable[..., Exception], ...], topic: str, headers: Any, pair: Any, *about: Any
) -> list[Any]:
    """Return the key and value in ``pair``, converted. ``refusals`` make the errors of these, also of ``about``."""
    context = SerializationContext(topic, MessageField.KEY, headers)
    found = []
    for field, serde, refusal, given in zip(FIELDS, serdes[:2], refusals, pair, strict=True):
        context.field = field
        try:
            found.append(given if serde is None else await _awaited(serde(given, context)))
        except Exception as error:
            raise refusal(error, *about) from error
    return found


class AsyncSerializingProducer(_Converting, AIOProducer, Generic[K, V], unpaced={"produce"}):
    """An AIOProducer whose ``produce`` serializes keys and values. Create it with ``await``.

    The configuration has ``key.serializer`` and ``value.serializer``, or their builders; each of them may be a
    coroutine function. A serializer that is no coroutine function runs on the event loop.
    """

    _serde = "serializer"

    async def produce(  # type: ignore[override]
        self,
        topic: str,
        key: K | None = None,
        value: V | None = None,
        partition: int = -1,
        timestamp: int = 0,
        headers: Any = None,
    ) -> asyncio.Future[Message[bytes, bytes]]:
        """Serialize the key, then the value, and queue the message; return a future of the delivered message.

        Raises:
            KeySerializationError: the key's serializer failed.
            ValueSerializationError: the value's serializer failed.
            TypeError: an argument has the wrong type.
            RuntimeError: the producer is closed.
        """
        if self._is_closed:
            await self._refuse()
        if not isinstance(topic, str):
            raise TypeError(f"topic must be a str, not {type(topic).__name__}")
        made_key, made_value = await _converted(self._serdes, REFUSED, topic, headers, (key, value))
        return await super().produce(topic, made_value, made_key, partition, timestamp, headers)


class AsyncDeserializingConsumer(_Converting, AIOConsumer, Generic[K, V]):
    """An AIOConsumer that deserializes keys and values. Create it with ``await``.

    The configuration has ``key.deserializer`` and ``value.deserializer``, or their builders; each of them may be a
    coroutine function. A deserializer that is no coroutine function runs on the event loop.
    """

    _serde = "deserializer"

    async def poll(self, timeout: float = -1) -> Message[K, V] | None:
        """Return a message with its key and value deserialized, or None.

        Raises:
            ConsumeError: the message is an error.
            KeyDeserializationError: the key's deserializer failed.
            ValueDeserializationError: the value's deserializer failed.
            RuntimeError: the consumer is closed.
        """
        message = await super().poll(timeout)
        if message is None:
            return None
        if message.error() is not None:
            raise ConsumeError(message.error(), kafka_message=message)
        return await self._deserialized(message)

    async def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message[K, V]]:
        """Return messages with their keys and values deserialized; those that are errors are returned as they are.

        Raises:
            KeyDeserializationError: the key's deserializer failed.
            ValueDeserializationError: the value's deserializer failed.
            RuntimeError: the consumer is closed.
        """
        messages = await super().consume(num_messages, timeout)
        return [each if each.error() is not None else await self._deserialized(each) for each in messages]

    async def _deserialized(self, message: Message[Any, Any]) -> Message[K, V]:
        pair = (message.key(), message.value())
        key, value = await _converted(self._serdes, DAMAGED, message.topic() or "", message.headers(), pair, message)
        message.set_key(key)
        message.set_value(value)
        return message
