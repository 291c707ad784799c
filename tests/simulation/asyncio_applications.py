"""Applications with the clients of asyncio, each on an event loop of its own.

Now and then a call is cancelled at one of its awaits. That loses nothing, and the client remains usable: a record whose
``send`` was cancelled is in no log, and a call for records that was cancelled has taken none.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Collection, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from greenlet import GreenletExit

from pykclient.aio import AIOKafkaConsumer, AIOKafkaProducer
from pykclient.errors import (
    BufferExhaustedError,
    FencedInstanceIdError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
    UnreleasedInstanceIdError,
)
from pykclient.testing.simulation.checks import InvariantError
from pykclient.types import TopicPartition
from tests.simulation.applications import (
    _MIXED_RECORDS,
    _PROBE_SIZE,
    _SLACK_MS,
    EXTRA,
    LATE_MS,
    POLL_MS,
    TOPIC,
    ConsumerApplication,
    Outcome,
    ProducerApplication,
    SentRecord,
)

if TYPE_CHECKING:
    from random import Random

    from pykclient.testing.simulation.simulation import SimulatedEnvironment
    from tests.simulation.world import World

T = TypeVar("T")

#: The share of calls that are cancelled, and after how many seconds. With 0, the call has begun and not got further.
_CANCELLED: Final = 0.15
_CANCELLED_AFTER_S: Final = (0, 0, 0.001, 0.01, 0.1)
_DEFAULT_MAX_BATCH_BYTES: Final = 1 << 20
_RETRY_S: Final = 0.01
#: The time in which a client that could not be started closes.
_CLOSING_S: Final = 2


class _LoopInbox:
    """The commands of other actors that a coroutine has yet to run."""

    def __init__(self) -> None:
        self._commands: list[Callable[[], object]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()

    def put(self, command: Callable[[], object]) -> None:
        self._commands.append(command)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._news.set)

    async def get(self) -> Callable[[], object]:
        self._loop = asyncio.get_running_loop()
        while not self._commands:
            self._news.clear()
            await self._news.wait()
        return self._commands.pop(0)

    def __bool__(self) -> bool:
        return bool(self._commands)


def _run(world: World, environment: SimulatedEnvironment, main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on an event loop of its own. Called by an actor, which may be killed meanwhile."""
    loop = environment.new_event_loop()
    is_killed = False

    def on_error(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if is_killed or isinstance(context.get("exception"), GreenletExit):
            return
        error = InvariantError(f"{environment.party}: {context['message']}: {context.get('exception')!r}")
        error.__cause__ = context.get("exception")
        world.violated(error)

    loop.set_exception_handler(on_error)
    try:
        loop.run_until_complete(main)
        left = asyncio.all_tasks(loop)
        if left:  # an attempt to start that was cancelled may be closing its connections still
            _, left = loop.run_until_complete(asyncio.wait(left, timeout=_CLOSING_S))
        if left:
            world.violated(InvariantError(f"{environment.party} leaves {len(left)} tasks behind"))
    except GreenletExit:
        is_killed = True
        while left := asyncio.all_tasks(loop):
            for task in left:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with contextlib.suppress(BaseException):
                    task.get_coro().close()
                asyncio.tasks._unregister_task(task)
        raise
    finally:
        loop.close()


class _Calls:
    """The calls of an application, some of which are cancelled."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._call: asyncio.Future[Any] | None = None

    async def attempt(self, call: Coroutine[Any, Any, T]) -> T:
        """Await a call, which may be cancelled.

        Raises:
            CancelledError: it was, at random or by ``cancel``.
        """
        self._call = task = asyncio.ensure_future(call)
        try:
            if self._rng.random() < _CANCELLED:
                await asyncio.wait({task}, timeout=self._rng.choice(_CANCELLED_AFTER_S))
                task.cancel()
            return await task
        finally:
            self._call = None

    def cancel(self) -> None:
        """Cancel the call that is in progress, if any."""
        if self._call is not None:
            self._call.cancel()


class AIOProducerApplication(ProducerApplication):
    """A process with an event loop and one AIOKafkaProducer."""

    def __init__(self, world: World, number: int, life: int, setup_timeout_ms: int = 300) -> None:
        super().__init__(world, number, life, setup_timeout_ms)
        self.inbox = _LoopInbox()  # type: ignore[assignment]
        self._rng = world.simulation.new_rng()
        self._calls = _Calls(self._rng)
        self._futures: dict[SentRecord, asyncio.Future[Any]] = {}
        self._client: AIOKafkaProducer
        self._begun_ms = world.clock.now_ms()

    def run(self) -> None:
        _run(self.world, self.environment, self._main())

    async def _main(self) -> None:
        await self._start()
        while not self.closed:
            found = (await self.inbox.get())()  # type: ignore[misc]
            if inspect.isawaitable(found):
                await found

    async def _start(self) -> None:
        self._client = AIOKafkaProducer.in_environment(self.environment, self.config())
        while True:
            try:
                await self._calls.attempt(self._client.start())
                return
            except (KafkaError, asyncio.CancelledError) as error:
                self.world.note("start failed", self.name, type(error).__name__)
                await asyncio.sleep(_RETRY_S)

    # --- commands ----------------------------------------------------------------------------------------------------

    def rest(self, duration_ms: int) -> Awaitable[None]:
        return asyncio.sleep(duration_ms / 1000)

    async def send(self, partition: int, size: int, count: int, topic: str = TOPIC) -> None:  # type: ignore[override]
        for _ in range(count):
            await self._send(partition, size, topic, self._calls.attempt)

    async def send_one(self, partition: int, size: int, topic: str = TOPIC) -> SentRecord | None:  # type: ignore[override]
        return await self._send(partition, size, topic, _await)

    async def _send(
        self, partition: int, size: int, topic: str, attempt: Callable[[Coroutine[Any, Any, None]], Awaitable[None]]
    ) -> SentRecord | None:
        world = self.world
        record = SentRecord(self.name, world.next_value(size))
        start_ms = world.clock.now_ms()
        try:
            await attempt(self._append(record, partition, topic))
        except (BufferExhaustedError, KafkaTimeoutError):
            took_ms = world.clock.now_ms() - start_ms
            self._ensure(
                took_ms >= world.settings.max_block_ms, f"send gave up before max.block.ms, after {took_ms} ms"
            )
            return None
        except RecordTooLargeError:
            return None
        except asyncio.CancelledError:
            if record not in self._futures:
                world.withdraw(record.value)
            return None
        finally:
            took_ms = world.clock.now_ms() - start_ms
            limit_ms = world.settings.max_block_ms + LATE_MS
            self._ensure(took_ms <= limit_ms, f"send blocked for {took_ms} ms, not {world.settings.max_block_ms}")
        if attempt is not _await and self._rng.random() < _CANCELLED / 3:
            self._futures[record].cancel()  # which does not stop the record
        return record

    async def _append(self, record: SentRecord, partition: int, topic: str) -> None:
        """Send a record, and keep it in the order in which records are appended: no await is between the two."""
        future = await self._client.send(
            topic,
            record.value,
            key=None if partition >= 0 else record.value[-2:],
            partition=partition if partition >= 0 else None,
        )
        self._keep(record, future, TopicPartition(topic, partition) if partition >= 0 else None)

    def _keep(self, record: SentRecord, future: asyncio.Future[Any], tp: TopicPartition | None) -> None:
        record.accepted_ms = self.world.clock.now_ms()
        record.tp = tp
        self.records.append(record)
        self._futures[record] = future
        future.add_done_callback(partial(self._on_done, record))

    def _on_done(self, record: SentRecord, future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            record.is_abandoned = True
            return
        error = future.exception()
        metadata = None if error is not None else future.result()
        if metadata is not None:  # as without acks
            record.tp = TopicPartition(metadata.topic, metadata.partition)
        assert error is None or isinstance(error, Exception)
        tp = record.tp or TopicPartition(TOPIC, -1)
        self._resolved(record, Outcome(error, tp, -1 if metadata is None else metadata.offset))

    async def send_batch(self, partition: int, size: int, count: int) -> Awaitable[Any] | None:  # type: ignore[override]
        if partition >= 0 and self._rng.random() < 0.5:
            return await self._send_built(partition, size, count)
        records = self._rows(size, count)
        try:
            future = await self._client.send_columns(
                TOPIC, [record.value for record in records], partition=partition if partition >= 0 else None
            )
        except KafkaTimeoutError:  # no metadata
            return None
        self._sent_rows(future, records, partition)
        return future

    async def _send_built(self, partition: int, size: int, count: int) -> Awaitable[Any] | None:
        """Send a batch that the application has built. Only its first record has a future."""
        batch = self._client.create_batch()
        records = []
        for record in self._rows(size, count):
            if batch.append(timestamp=self.world.clock.wall_ms(), key=None, value=record.value) is None:
                break
            records.append(record)
        try:
            await self._calls.attempt(self._append_batch(batch, records, partition))
        except (BufferExhaustedError, KafkaTimeoutError, RecordTooLargeError):
            return None
        except asyncio.CancelledError:
            if records[0] not in self._futures:
                for record in records:
                    self.world.withdraw(record.value)
            return None
        return self._futures[records[0]]

    async def _append_batch(self, batch: Any, records: list[SentRecord], partition: int) -> None:
        future = await self._client.send_batch(batch, TOPIC, partition=partition)
        tp = TopicPartition(TOPIC, partition)
        for record in records:
            if record is records[0]:
                self._keep(record, future, tp)
            else:
                record.tp, record.is_abandoned = tp, True
                self.records.append(record)

    async def flush(self, timeout_ms: int) -> None:  # type: ignore[override]
        earlier = list(self.records)
        start_ms = self.world.clock.now_ms()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._client.flush()
        except TimeoutError:
            self._ensure(self.world.clock.now_ms() - start_ms >= timeout_ms, "flush gave up early")
            return
        for record in earlier:
            is_done = record in self._futures and self._futures[record].done()
            self._ensure(is_done or record.is_settled, f"flush returned before {record}")

    async def close(self, timeout_ms: int) -> None:  # type: ignore[override]
        start_ms = self.world.clock.now_ms()
        while True:
            try:
                await self._calls.attempt(self._client.stop(timeout_ms / 1000))
                break
            except asyncio.CancelledError:
                timeout_ms = max(0, timeout_ms - (self.world.clock.now_ms() - start_ms))
        await asyncio.sleep(0)  # the callbacks of futures
        assert self._client._producer is not None
        self._closed(self._client._producer, start_ms, timeout_ms)

    def _silence(self) -> None:
        if hasattr(self, "_client"):
            self._client._closed = True

    def forget_futures(self) -> None:
        self._futures.clear()

    # --- probes ------------------------------------------------------------------------------------------------------

    async def probe(self, tp: TopicPartition) -> None:  # type: ignore[override]
        record = await self.send_one(tp.partition, _PROBE_SIZE, tp.topic)
        if record is not None:
            with contextlib.suppress(KafkaError):
                await self._futures[record]
        if record is not None and record.acknowledged:
            self.unprobed.discard(tp)
        else:
            self.inbox.put(lambda: self.probe(tp))

    async def probe_speed(self, tp: TopicPartition, extra_ms: int = 0) -> None:  # type: ignore[override]
        await self._check_speed_of("a record", partial(self._sent_to, tp), extra_ms)
        await self._check_speed_of("a batch", partial(self.send_batch, tp.partition, _PROBE_SIZE, 1), extra_ms)
        self.unprobed.discard(tp)

    async def probe_start(self, tp: TopicPartition, limit_ms: int) -> None:  # type: ignore[override]
        future = await self._sent_to(tp)
        self._ensure(future is not None, "a new producer got no metadata")
        if future is not None:
            with contextlib.suppress(KafkaError):
                await future
        took_ms = self.world.clock.now_ms() - self._begun_ms
        self._ensure(took_ms <= limit_ms, f"the first record of a producer took {took_ms} ms, not {limit_ms}")
        self.unprobed.discard(tp)

    async def _sent_to(self, tp: TopicPartition) -> Awaitable[Any] | None:
        record = await self.send_one(tp.partition, _PROBE_SIZE)
        return None if record is None else self._futures[record]

    async def _check_speed_of(
        self, what: str, send: Callable[[], Awaitable[Awaitable[Any] | None]], extra_ms: int
    ) -> None:
        settings, clock = self.world.settings, self.world.clock
        start_ms = clock.now_ms()
        future = await send()
        if future is None:
            return
        with contextlib.suppress(KafkaError):
            await future
        took_ms = clock.now_ms() - start_ms
        limit_ms = settings.linger_ms + 8 * (settings.link_delay_ms + settings.link_jitter_ms) + _SLACK_MS + extra_ms
        self._ensure(took_ms <= limit_ms, f"{what} took {took_ms} ms on a healthy cluster, not {limit_ms}")


async def _await(call: Awaitable[T]) -> T:
    return await call


class _Listener:
    """Tells a consumer's application of rebalances, some time after it is called itself."""

    def __init__(self, application: AIOConsumerApplication, rng: Random) -> None:
        self._application = application
        self._rng = rng

    async def _dawdle(self) -> None:
        delay_s = self._rng.choice((None, 0, 0.005))
        if delay_s is not None:
            await asyncio.sleep(delay_s)

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        if not self._application.is_ending_attempt:
            self._application.on_partitions_assigned(assigned)
        await self._dawdle()

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        # A rebalance begins with this call also if the membership ended and the consumer had no partitions to lose.
        was_member = not revoked or self._application.is_starting or self._application.is_member
        await self._dawdle()
        if self._application.is_ending_attempt:
            return
        if self._application.is_starting:
            # An attempt to start may have failed, which ends its membership. Then no consumer knows its generation.
            self._application.on_partitions_lost(revoked)
        else:
            self._application.gave_back(revoked, was_member)

    async def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        await self._dawdle()
        if not self._application.is_ending_attempt:
            self._application.on_partitions_lost(lost)


class AIOConsumerApplication(ConsumerApplication):
    """A process with an event loop and one AIOKafkaConsumer."""

    consumer: Any

    def __init__(self, world: World, number: int, life: int) -> None:
        super().__init__(world, number, life)
        self._calls = _Calls(self._rng)
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._commits: set[asyncio.Task[None]] = set()
        self.is_starting = False

    def run(self) -> None:
        _run(self.world, self.environment, self._main())

    async def _main(self) -> None:
        self._event_loop = asyncio.get_running_loop()
        while not self.closing:
            self._fenced = False
            self.is_starting = True
            await self._start()
            self.is_starting = False
            while not self._stopping:
                if not await self._run_command():
                    await self._read_some()
            await self._stop()
        self.closed = True

    async def _run_command(self) -> bool:
        command = self.inbox.get_nowait()
        if command is None:
            return False
        self._obeying = True
        found = command()
        if inspect.isawaitable(found):
            await found
        self._obeying = False
        return True

    async def _start(self) -> None:
        settings, partitions = self.world.settings, self.world.partitions
        config = {key: value for key, value in self.config().items() if key != "consumer.timeout.ms"}
        self.consumer = consumer = AIOKafkaConsumer.in_environment(self.environment, config)
        listener = _Listener(self, self._rng) if settings.groups else None
        if settings.pattern:
            consumer.subscribe(pattern=f"{TOPIC}.*", listener=listener)
        elif settings.groups:
            consumer.subscribe([TOPIC, EXTRA] if settings.extra else [TOPIC], listener=listener)
        else:
            consumer.assign([*partitions, *self.world.extra.partitions] if settings.extra else partitions)
        if not settings.groups:
            self.expected = dict.fromkeys(partitions, 0)
        while not self.closing:
            try:
                await self._calls.attempt(consumer.start())
                return
            except (KafkaError, asyncio.CancelledError) as error:
                self.world.note("start failed", self.name, type(error).__name__)
                self._give_up_all()
                await asyncio.sleep(_RETRY_S)
                with contextlib.suppress(IllegalStateError):  # it has not been started
                    await self._run_command()  # perhaps to leave
                self._obeying = False

    @property
    def is_ending_attempt(self) -> bool:
        """True in a call of the listener by an attempt to start that has failed, with which its partitions are gone."""
        return self.consumer._ending_here() is not None

    def _give_up_all(self) -> None:
        """Give up all partitions, as the consumer leaves the group without a call of the listener."""
        if owned := self.world.ownership.of(self.name):
            self.on_partitions_lost(owned)

    # --- reading -----------------------------------------------------------------------------------------------------

    async def _read_some(self) -> None:
        start_ms = self.world.clock.now_ms()
        reading = self.world.settings.reading
        if reading == "mixed":
            reading = self._rng.choice(tuple(_READERS))
        try:
            await _READERS[reading](self)
        except asyncio.CancelledError:
            self.world.note("poll cancelled", self.name)
        except KafkaError as error:
            self.errors += 1
            self.world.note("poll failed", self.name, type(error).__name__)
            self._fenced = isinstance(error, (FencedInstanceIdError, UnreleasedInstanceIdError))
            await asyncio.sleep(_RETRY_S)
            return
        if "loop" not in reading:
            self._in_time("a poll", start_ms)

    async def _get_many(self) -> None:
        found = await self._calls.attempt(self.consumer.getmany(timeout_ms=POLL_MS))
        for tp, records in found.items():
            for record in records:
                self._deliver(tp, record.offset, record.value)

    async def _get_many_arrow(self) -> None:
        most = _MIXED_RECORDS if self.world.settings.reading == "mixed" else None
        self._deliver_columns(
            await self._calls.attempt(self.consumer.getmany_arrow(timeout_ms=POLL_MS, max_records=most))
        )

    async def _iterate(self) -> None:
        """Loop over records and run commands in between; in mixed mode, leave the loop after a few records."""
        await self._take_each(self.consumer.__anext__)

    async def _get_each(self) -> None:
        """Take records one by one, of all partitions or of one."""
        assigned = sorted(self.consumer.assignment())
        chosen = [self._rng.choice(assigned)] if assigned and self._rng.random() < 0.5 else []
        await self._take_each(partial(self.consumer.getone, *chosen))

    async def _take_each(self, take: Callable[[], Awaitable[Any]]) -> None:
        got = 0
        while not self._stopping and not (self.world.settings.reading == "mixed" and got == _MIXED_RECORDS):
            start_ms = self.world.clock.now_ms()
            try:
                async with asyncio.timeout(POLL_MS / 1000):
                    record = await self._calls.attempt(take_one(take))
            except (TimeoutError, StopAsyncIteration):
                return
            finally:
                self._in_time("the next record of a loop", start_ms)
            got += 1
            self._deliver(TopicPartition(record.topic, record.partition), record.offset, record.value)
            await self._run_command()

    # --- commands ----------------------------------------------------------------------------------------------------

    async def commit(self, wait: bool) -> None:  # type: ignore[override]
        if not self.world.settings.groups:
            return
        committing = asyncio.ensure_future(self._commit())
        self._commits.add(committing)
        committing.add_done_callback(self._commits.discard)
        if wait:
            await committing

    async def _commit(self) -> None:
        try:
            await _Calls(self._rng).attempt(self.consumer.commit())
        except (KafkaError, asyncio.CancelledError) as error:
            self.world.note("commit failed", self.name, type(error).__name__)

    def busy(self, duration_ms: int) -> object:
        if self._rng.random() < 0.5:
            return asyncio.sleep(duration_ms / 1000)
        # Code that blocks the loop, and so the heartbeats. It runs outside of all tasks.
        assert self._event_loop is not None
        self._event_loop.call_soon(self.world.clock.sleep_ms, duration_ms)
        return asyncio.sleep(0)

    async def seek(self) -> None:  # type: ignore[override]
        for tp in sorted(self.consumer.assignment()):
            offset = 0
            if self.world.settings.groups and tp.topic == TOPIC:
                try:
                    offset = await self._calls.attempt(self.consumer.committed(tp)) or 0
                except (KafkaError, asyncio.CancelledError):
                    return
            if tp not in self.consumer.assignment():  # this lookup, or one before, may have run a rebalance
                continue
            self.consumer.seek(tp, offset)
            self.expected[tp] = offset

    def wakeup(self) -> None:
        """Cancel the call that is in progress. Called by another actor."""
        if self._event_loop is not None and not self._event_loop.is_closed():
            self._event_loop.call_soon_threadsafe(self._calls.cancel)

    async def _stop(self) -> None:
        for committing in list(self._commits):
            await committing
        start_ms = self.world.clock.now_ms()
        if self.consumer._consumer is not None:
            self.closed_as = self._known_member_id(self.consumer._consumer.components.coordinator)
        while True:
            try:
                await self._calls.attempt(self.consumer.stop())
                break
            except asyncio.CancelledError:
                self.world.note("stop cancelled", self.name)
            except KafkaError as error:
                self.world.note("close failed", self.name, type(error).__name__)
                break
        self._give_up_all()
        self._closed(start_ms)

    def _silence(self) -> None:
        if hasattr(self, "consumer"):
            self.consumer._closed = True


async def take_one(take: Callable[[], Awaitable[T]]) -> T:
    """Make and await a call. A task that is cancelled before it runs has not made the call, so nothing is left over."""
    return await take()


_READERS: dict[str, Callable[[AIOConsumerApplication], Awaitable[None]]] = {
    "poll": AIOConsumerApplication._get_many,
    "arrow": AIOConsumerApplication._get_many_arrow,
    "loop": AIOConsumerApplication._iterate,
    "arrow loop": AIOConsumerApplication._get_each,
}
