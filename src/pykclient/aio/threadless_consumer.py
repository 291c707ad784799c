"""Consumers and share consumers without threads: the event loop runs the steps of their calls."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from inspect import isawaitable
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pykclient.aio.errors import ConsumerStoppedError
from pykclient.clock import FOREVER_MS, Timer
from pykclient.consumer.application_driver import ApplicationCall, Asked, Round, Steps, Transmit
from pykclient.consumer.consumer_components import CommonComponents, ConsumerComponents, hold_back
from pykclient.consumer.consumer_delegate import ConsumerDelegate
from pykclient.consumer.share.share_consumer import ShareConsumer, ShareConsumerComponents
from pykclient.consumer.values import GroupMembershipOperation
from pykclient.consumer_record_base import FixedHeaders
from pykclient.errors import ConcurrentModificationError, IllegalStateError, KafkaError
from pykclient.pacing import RepeatedErrors, one_iteration

if TYPE_CHECKING:
    from pykclient.aio.loop_driver import LoopDriver, LoopEnvironment, LoopWaits
    from pykclient.config.consumer_config import ConsumerConfig, ShareConsumerConfig
    from pykclient.consumer.coordinator.group_member import Offsets
    from pykclient.consumer.subscription_state import SubscriptionState
    from pykclient.types import OffsetAndMetadata, TopicPartition

T = TypeVar("T")


class StepsRunner:
    """The decision logic of any consumer, and the steps of its calls as coroutines.

    Waits end after a turn of the driver, and the application's coroutines are awaited. Implements Decider.

    Thread: the loop's.
    """

    components: ConsumerComponents | ShareConsumerComponents
    consumer: ConsumerDelegate | ShareConsumer

    def __init__(self, components: CommonComponents, waits: LoopWaits) -> None:
        #: Set before the first turn.
        self.driver: LoopDriver
        #: The error that the next call for records raises. Until then no rebalance and no lookup of positions begins.
        self.failure: Exception | None = None
        #: The task that closes the consumer.
        self.closing: asyncio.Task[object] | None = None
        self.is_closed = False
        #: Why calls that wait must end; None while they need not.
        self.ending: str | None = None
        self._client = components.client
        self._clock = components.clock
        self._metadata = components.metadata
        self._log = components.log_context.logger(__name__)
        self._waits = waits
        self._retry_backoff_ms: int = components.config["retry.backoff.ms"]
        self._is_advancing = False  # in a turn, or just before one
        self._num_waiting = 0  # operations
        self._repeated = RepeatedErrors(self._retry_backoff_ms)
        self._interruption: Exception | None = None  # for them to raise

    # --- for subclasses --------------------------------------------------------------------------------------------

    @abstractmethod
    def is_run_by(self, task: asyncio.Task[Any] | None) -> bool:
        """Return True if ``task`` runs an application callback that closing would run or wait for."""

    @abstractmethod
    def refuse_in_callback(self, method: str, task: asyncio.Task[Any] | None) -> None:
        """Raise IllegalStateError if a callback makes a call that would wait for that callback."""

    @abstractmethod
    def stop(self, reason: str) -> None:
        """End waiting calls with an error whose text is ``reason``."""

    @abstractmethod
    async def close(self, timeout_ms: int, *, is_sound: bool) -> KafkaError | None:
        """Leave the group, and close the connections, within ``timeout_ms``; return the first error.

        ``is_sound`` is False if the consumer could not be started.
        """

    # --- turns -----------------------------------------------------------------------------------------------------

    def step(self, now_ms: int) -> int:
        """Do everything that is due; return within how many ms to be called again."""
        if self.is_closed:
            return FOREVER_MS
        wait_ms = self.advance(now_ms)
        wait_ms = min(wait_ms, self._client.managers.poll(now_ms))
        try:
            self._metadata.maybe_throw_any_exception()
        except KafkaError as error:
            self.note_error(error)
        return wait_ms

    def advance(self, now_ms: int) -> int:  # noqa: ARG002 - for subclasses
        """Do what comes before the requests of a turn; return when to do so again, in ms."""
        return FOREVER_MS

    def round_failed(self, error: Exception, now_ms: int) -> int:  # noqa: ARG002 - the driver's interface
        """Start again with new connections after an unexpected exception; return a backoff in ms."""
        self._log.error("An unexpected error; connecting anew", exc_info=error)
        self.consumer.recover(in_middle=True)
        self.note_error(error)  # what operations wait for has been dropped
        return self._retry_backoff_ms

    def fail(self, error: BaseException) -> None:
        """Close after an exception that ends the program, such as SystemExit from a listener."""
        self._log.error("Closing, as %r ends the program", error)
        self.ending = self.ending or f"the consumer has closed, because of {error!r}"
        self.interrupt(ConsumerStoppedError(self.ending))
        self.release()

    def release(self) -> None:
        """Close the connections at once, without leaving the group."""
        if not self.is_closed:
            self.ending = self.ending or "the consumer has closed"
            self.is_closed = True
            self._client.close()
            self.driver.wake()

    # --- calls -----------------------------------------------------------------------------------------------------

    def note_error(self, error: Exception) -> None:
        """Make waiting operations, or else the next call for records, raise an error."""
        if not self.interrupt(error):
            self.failure = self.failure or error

    def interrupt(self, error: Exception) -> bool:
        """Make waiting operations raise an error; return whether there are any."""
        if self._num_waiting:
            self._interruption = error
        return self._num_waiting > 0

    def raise_failure(self) -> None:
        """Raise an error that occurred since the last call, and clear it."""
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    def wake_if_due(self) -> None:
        """Schedule a turn if there is something to send."""
        if self._clock.now_ms() >= self._client.managers.due_ms:
            self.driver.wake()

    async def run_call(self, steps: Steps[T]) -> T:
        """Run the steps of an application's call. Wait first if the last call just raised the same error."""
        try:
            return await self.run(steps)
        except KafkaError as error:
            await self.rest_if_repeated(error)
            raise

    async def rest_if_repeated(self, error: KafkaError) -> None:
        """Wait for ``retry.backoff.ms`` if the last call has just raised the same error."""
        pause_ms = self._repeated.pause_ms(error, self._clock.now_ms())
        if pause_ms > 0:
            await self._waits.until(lambda: False, pause_ms)

    async def run(self, steps: Steps[T], awaited: Awaitable[Any] | None = None) -> T:
        """Do what ``steps`` ask for, and return their result. Raises what they raise.

        If the task is cancelled, CancelledError is raised in the steps. ``awaited`` is what they wait for already.
        """
        value: Any = awaited
        error: BaseException | None = None
        while True:
            try:
                if isawaitable(value):
                    value = await value
            except asyncio.CancelledError as raised:
                error = raised if _is_cancelled() else _awaited_something_cancelled(raised)
            except BaseException as raised:  # noqa: BLE001 - the steps handle it, or raise it again
                error = raised
            try:
                if error is None:
                    asked = steps.send(value)
                else:
                    thrown, error = error, None
                    asked = steps.throw(thrown)
            except StopIteration as end:
                result: T = end.value
                return result
            try:
                value = self._do(asked)
            except Exception as raised:  # noqa: BLE001 - as above
                value, error = None, raised
            else:
                # Steps may ask again and again for what never takes time, for example without a retry backoff.
                if self.driver.is_overdue and not isawaitable(value):
                    value = _after_an_iteration(value)

    def _do(self, asked: Asked) -> Any:
        """Do what steps ask for; return an awaitable if that takes time."""
        if isinstance(asked, ApplicationCall):
            return asked.function()
        if isinstance(asked, Transmit):
            return self.wake_if_due()
        if not self._is_advancing:  # otherwise a turn does this
            self._client.managers.poll(self._clock.now_ms())  # now, as steps look for what is not answered yet
            self.driver.wake()
        timer = asked.timer
        timer.update()
        if isinstance(asked, Round):
            if timer.expired or (asked.is_done is not None and asked.is_done()):
                return None
            turns = self.driver.turns
            return self._wait(lambda: self.driver.turns != turns, timer)
        if asked.is_done() or timer.expired:
            return asked.is_done()
        return self._wait(asked.is_done, timer)

    async def _wait(self, is_done: Callable[[], bool], timer: Timer) -> bool:
        """Wait until ``is_done()`` or until the timer expires; return ``is_done()``.

        Raises:
            Exception: an error for the application has come up, such as one of the metadata.
        """
        self._num_waiting += 1
        try:
            await self._waits.until(lambda: self._interruption is not None or is_done(), timer.remaining_ms)
            error = self._interruption
        finally:
            self._num_waiting -= 1
            if not self._num_waiting:
                self._interruption = None
        timer.update()
        if error is not None and not is_done():
            raise error
        return is_done()


async def _after_an_iteration(value: T) -> T:
    """Let the loop run, and return ``value``."""
    await one_iteration()
    return value


def _is_cancelled() -> bool:
    """Return whether the present task is to be cancelled, and not only something that it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _awaited_something_cancelled(raised: asyncio.CancelledError) -> KafkaError:
    """Return an error in its place: the steps would end in the middle, and the next turn would begin them again."""
    error = KafkaError(
        "a rebalance listener or callback awaited something that was cancelled, such as a task that it has cancelled "
        "itself: catch asyncio.CancelledError there"
    )
    error.__cause__ = raised
    return error


#: The result of steps that have been run to their end.
_DONE: Final = object()


class ThreadlessComponents(ConsumerComponents):
    """The components of a consumer that is driven between the calls of the application, too."""

    headers_type = FixedHeaders
    #: True while the application works on the records that it got last.
    are_records_at_hand = False
    #: What the application has committed since it got them. It has processed the records before that.
    committed_at_hand: Mapping[TopicPartition, OffsetAndMetadata] = MappingProxyType({})

    def auto_commit_offsets(self) -> Offsets:
        """Return the offsets to commit automatically, which exclude records still being processed."""
        offsets = self.consumed()
        if self.are_records_at_hand:
            at_hand = dict(self.undelivered.positions_at_hand())
            for tp, committed in self.committed_at_hand.items():
                if tp in at_hand and at_hand[tp].offset < committed.offset:
                    at_hand[tp] = at_hand[tp]._replace(offset=committed.offset, offset_epoch=None)
            hold_back(offsets, at_hand)
        return offsets

    def begin_commit(self, offsets: Offsets | None) -> None:
        """Record that the application commits ``offsets`` (None: positions), so earlier records are processed."""
        self.committed_at_hand = self.consumed() if offsets is None else offsets

    def end_commit(self) -> None:
        """Record that a commit succeeded. No records are at hand then, unless a loop has undelivered ones."""
        if self.undelivered.is_empty:
            self.are_records_at_hand = False


class ThreadlessConsumer(StepsRunner):
    """The decision logic of a consumer; runs in the LoopDriver's turns and in the application's calls.

    Heartbeats, fetches and lookups go on all the time. Whatever else a poll of a KafkaConsumer does, such as joining
    the group, happens while a call waits for records, and between calls only if the application has no records at
    hand. So no partition is revoked whose records are being worked on. The application's code is called in turns; if
    it is asynchronous, a task waits for it, and no other *operation* runs meanwhile: no rebalance, ``assign`` or
    ``unsubscribe``.

    Implements Decider. Thread: the loop's.
    """

    components: ThreadlessComponents
    consumer: ConsumerDelegate

    def __init__(
        self,
        config: ConsumerConfig,
        environment: LoopEnvironment,
        subscriptions: SubscriptionState,
        loop: asyncio.AbstractEventLoop,
        waits: LoopWaits,
    ) -> None:
        self.components = ThreadlessComponents(config, environment, subscriptions=subscriptions)
        super().__init__(self.components, waits)
        self.consumer = ConsumerDelegate(self.components)
        if self.components.coordinator is not None:
            self.components.coordinator.listeners.follows_rebalances = True
        self._loop = loop
        self._subscriptions = subscriptions
        self._max_poll_interval_ms: int = config["max.poll.interval.ms"]
        self._operations: deque[Steps[Any]] = deque()
        self._changes = 0  # operations in progress or waiting that replace the subscription
        self._task: asyncio.Task[None] | None = None  # runs the rest of an operation
        self._is_stepping = False  # in steps of an operation, and so in calls of the application's code
        self._calls: list[frozenset[TopicPartition] | None] = []  # the partitions that calls wait for; None: all
        self._last_call_ms = self._clock.now_ms()  # when the membership heard last of the application
        self._fetches = False  # once the application has asked for records

    # --- turns -----------------------------------------------------------------------------------------------------

    def advance(self, now_ms: int) -> int:
        """Do what a poll of a KafkaConsumer does before it looks for records; return when to do so again, in ms."""
        if self.ending is not None or self.failure is not None or self.is_operating:
            return FOREVER_MS
        if self._subscriptions.has_no_subscription_or_user_assignment():
            return FOREVER_MS
        consumer = self.consumer
        self._is_advancing = True
        try:
            if self._may_rebalance(now_ms):
                self.submit(consumer.update_assignment_metadata_if_needed(now_ms, is_called=bool(self._calls)))
                if self._task is not None:
                    consumer.give_back()  # a loop of another task must get no more records before the listener is done
                    return FOREVER_MS
            else:
                consumer.update_between_calls()
            consumer.rewind_invalid_waiting()  # a loop's, of partitions that were revoked
            if self._fetches:
                consumer.create_fetch_requests()
        except KafkaError as error:
            self.failure = error
            return FOREVER_MS
        finally:
            self._is_advancing = False
        return consumer.time_to_next_poll()

    def _may_rebalance(self, now_ms: int) -> bool:
        if self._calls:
            self._last_call_ms = now_ms
            return True
        if self.components.are_records_at_hand:
            return False
        # A member that has left, as the application is gone, does not join again before the next call.
        return now_ms - self._last_call_ms < self._max_poll_interval_ms

    # --- calls for records -----------------------------------------------------------------------------------------

    def begin_call(self, partitions: frozenset[TopicPartition] | None) -> None:
        """Record that a call waits for records of ``partitions`` (None: all). Those of earlier calls are processed."""
        self.components.are_records_at_hand = False
        self._fetches = True
        self._calls.append(partitions)
        if partitions is not None or len(self._calls) > 1:
            self._choose_partitions()

    def advance_call(self) -> None:
        """Perform the work that comes before looking for records, such as the next step of a rebalance."""
        self.advance(self._clock.now_ms())
        if self.is_operating or not self.is_settled:
            self.driver.wake()
        else:
            self.wake_if_due()

    async def wait_for(self, condition: Callable[[], object], timeout_ms: int) -> bool:
        """Wait, as a call for records does, until ``condition`` holds; return False if ``timeout_ms`` passes first."""
        self._calls.append(None)
        try:
            self.driver.wake()
            return await self._waits.until(condition, timeout_ms)
        finally:
            self._calls.remove(None)

    def end_call(self, partitions: frozenset[TopicPartition] | None) -> None:
        """Record that the call has ended."""
        self._calls.remove(partitions)
        if partitions is not None or self._calls:
            self._choose_partitions()

    def _choose_partitions(self) -> None:
        """Fetch only what calls wait for. Buffered records of other partitions would hold up their node's fetches."""
        wanted: frozenset[TopicPartition] | None = frozenset()
        for partitions in self._calls:
            wanted = None if wanted is None or partitions is None else wanted | partitions
        self._subscriptions.read_only(wanted or None)

    def returned(self) -> None:
        """Record that the application has undelivered records, and fetch the next ones."""
        self.components.are_records_at_hand = True
        self.components.committed_at_hand = {}
        try:
            self.consumer.create_fetch_requests()
        except KafkaError as error:
            # For example a failed authentication with another broker. A call without records will raise it.
            self._log.debug("No more fetches for now, as records are returned first: %s", error)
        self.wake_if_due()

    def is_ready(self, partitions: frozenset[TopicPartition] | None) -> bool:
        """Return True if a call for records has something to return or to raise."""
        if self.failure is not None or self.ending is not None or self._subscriptions.missing.among(partitions):
            return True
        return not self.is_operating and self.consumer.has_available_fetches(partitions)

    @property
    def is_settled(self) -> bool:
        """True if the subscription has led to an assignment, or cannot."""
        if self.failure is not None or self.ending is not None:
            return True
        coordinator = self.components.coordinator
        if coordinator is None:
            return bool(self._subscriptions.num_assigned_partitions())
        return not (self.is_operating or coordinator.rejoin_needed_or_pending())

    def has_starting_positions(self, version: int) -> bool:
        """Return True if no position is being looked up or about to be, or if a call must raise an error.

        A partition that has no leader in metadata later than ``version`` may lack one for long, and one without an
        offset raises when it is asked for.
        """
        if self.failure is not None or self.ending is not None:
            return True
        if self.components.metadata.update_version <= version:
            return False
        coordinator = self.components.coordinator
        if self.is_operating or (coordinator is not None and coordinator.rejoin_needed_or_pending()):
            return False
        missing = self._subscriptions.missing.among(None)
        cluster = self.components.metadata.fetch()
        return all(tp in missing or cluster.leader_for(tp) is None for tp in self._subscriptions.without_position)

    # --- operations ------------------------------------------------------------------------------------------------

    @property
    def is_operating(self) -> bool:
        """True while an operation is in progress, which may be about to revoke partitions."""
        return self._task is not None or self._is_stepping

    def is_run_by(self, task: asyncio.Task[Any] | None) -> bool:
        """Return True if ``task`` runs the operation in progress or closes the consumer, and so calls listeners."""
        return task is not None and task in (self._task, self.closing)

    def is_in_callback(self, task: asyncio.Task[Any] | None) -> bool:
        """Return True if a rebalance listener makes the present call."""
        return self._is_stepping or self.is_run_by(task)

    def refuse_in_callback(self, method: str, task: asyncio.Task[Any] | None) -> None:
        """Raise IllegalStateError if a rebalance listener makes a call that would wait for its own rebalance."""
        if self.is_in_callback(task):
            raise IllegalStateError(
                f"{method}() cannot be called by a rebalance listener, as the rebalance waits for the listener: "
                "call it after the rebalance"
            )

    def submit(self, steps: Steps[Any]) -> None:
        """Run an operation at once, or after the one in progress. A task takes over at its first wait.

        Raises:
            Exception: that of the operation, if it has failed before its first wait. Later errors are failures.
        """
        self._operations.append(steps)
        if not self.is_operating:
            self._run_operations()

    def change(self, steps: Steps[None]) -> None:
        """Run an operation that replaces the subscription, as ``submit`` does.

        Raises:
            Exception: that of ``submit``.
        """
        self._changes += 1
        self.submit(self._changing(steps))

    def subscribe(self, subscribe: Callable[[], None]) -> None:
        """Call ``subscribe`` now, or after earlier operations that replace the subscription.

        At once would be too early for them: an ``unsubscribe`` that still commits would take the new subscription away.

        Raises:
            Exception: that of ``subscribe``, if it is called now. Later errors are failures.
        """
        if self._changes:
            self.change(_call(subscribe))
        else:
            subscribe()

    def rejoin_for_listener(self) -> None:
        """Rebalance a member, so that a new listener is called with its partitions, as in aiokafka."""
        coordinator = self.components.coordinator
        if coordinator is not None and self._subscriptions.num_assigned_partitions():
            coordinator.request_rejoin("a new rebalance listener")

    def _changing(self, steps: Steps[None]) -> Steps[None]:
        try:
            yield from steps
        finally:
            self._changes -= 1

    def _run_operations(self) -> None:
        while self._operations and self._task is None:
            steps = self._operations.popleft()
            awaited = self._run_at_once(steps)
            if awaited is not _DONE:
                self._task = self._loop.create_task(self._run_rest(steps, awaited))
                self._task.add_done_callback(self._operation_ended)

    def _operation_ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        self.consumer.rewind_invalid_waiting()
        if task.cancelled():
            if self.ending is None:  # otherwise ``close`` has cancelled it
                # The next turn would begin the operation again, and its listener would do the same.
                self._note_failure(KafkaError("a rebalance listener or callback cancelled the task that it runs in"))
        elif (error := task.exception()) is not None:
            self._note_failure(error)
        try:
            self._run_operations()
        except Exception as error:  # noqa: BLE001 - the next call raises it
            self._note_failure(error)
        self.driver.wake()

    def _note_failure(self, error: BaseException) -> None:
        if self.failure is None and isinstance(error, Exception):
            self.failure = error

    def _run_at_once(self, steps: Steps[Any]) -> object:
        """Run steps up to their first wait; return what they wait for, or _DONE."""
        value: Any = None
        error: Exception | None = None
        self._is_stepping = True
        try:
            while True:
                try:
                    asked = steps.send(value) if error is None else steps.throw(error)
                except StopIteration:
                    return _DONE
                error = None
                try:
                    value = self._do(asked)
                except Exception as raised:  # noqa: BLE001 - the steps handle it, or raise it again
                    error = raised
                else:
                    if isawaitable(value):
                        return value
        finally:
            self._is_stepping = False

    async def _run_rest(self, steps: Steps[Any], awaited: Any) -> None:
        await self.run(steps, awaited)

    def await_positions(self, partitions: Collection[TopicPartition], timer: Timer) -> Steps[bool]:
        """Return True once all partitions have a position; False on timeout or if one is no longer assigned.

        Positions are looked up here, because a turn leaves that to the operation in progress, if there is one: a
        rebalance whose listener waits for this.
        """
        state = self._subscriptions

        def is_over() -> bool:
            return all(state.has_valid_position(tp) or not state.is_assigned(tp) for tp in partitions)

        while not is_over() and not timer.expired:
            self.raise_failure()
            state.missing.raise_for(partitions)
            self.consumer.update_fetch_positions(initialize=False)
            yield Round(self.consumer.backoff(timer), is_over)
            timer.update()
        return all(state.has_valid_position(tp) for tp in partitions)

    # --- closing ---------------------------------------------------------------------------------------------------

    def stop(self, reason: str) -> None:
        """Let waiting calls end, and begin no more rebalances. ``reason`` is the text of their error."""
        self.ending = self.ending or reason
        self.driver.wake()

    async def close(self, timeout_ms: int, *, is_sound: bool) -> KafkaError | None:
        """Leave the group, and close the connections, within ``timeout_ms``; return the first error.

        With automatic commits the positions are committed first, unless ``is_sound`` is False, as the consumer could
        not be started.
        """
        if self.is_closed:  # by ``fail``: no answer will come
            timeout_ms = 0
        self._operations.clear()
        if not await self._waits.until(lambda: self._task is None, timeout_ms) and self._task is not None:
            self._task.cancel()
            await self._waits.until(lambda: self._task is None, self._retry_backoff_ms)
        try:
            return await self.run(
                self.consumer.close(timeout_ms, GroupMembershipOperation.DEFAULT, auto_commit=is_sound)
            )
        finally:
            self.release()

    # --- queries -----------------------------------------------------------------------------------------------------

    def report(self) -> str:
        """Return the reason why nothing happens, for an error message."""
        coordinator = self.components.coordinator
        reason = None if coordinator is None else coordinator.last_error
        return self._client.connection_report() or str(reason or "no answer came")


def _call(function: Callable[[], None]) -> Steps[None]:
    """Return steps that call a function."""
    function()
    return
    yield


class ThreadlessShareConsumer(StepsRunner):
    """The decision logic of a share consumer; runs in the LoopDriver's turns and in the application's calls.

    Heartbeats and acknowledgements go on all the time. The member joins the group, takes over assignments and fetches
    only in calls for records, because fetched records are locked. Implements Decider. Thread: the loop's.
    """

    components: ShareConsumerComponents
    consumer: ShareConsumer

    def __init__(
        self,
        config: ShareConsumerConfig,
        environment: LoopEnvironment,
        subscriptions: SubscriptionState,
        waits: LoopWaits,
    ) -> None:
        self.components = components = ShareConsumerComponents(config, environment, subscriptions=subscriptions)
        super().__init__(components, waits)
        self.consumer = ShareConsumer(components)
        #: The call in progress that reads records or changes the membership.
        self.sole_call: str | None = None
        #: The tasks of all calls in progress.
        self.callers: list[asyncio.Task[Any] | None] = []

    # --- calls -----------------------------------------------------------------------------------------------------

    @contextmanager
    def call(self, method: str, *, is_sole: bool = False) -> Iterator[None]:
        """Surround a call; calls with ``is_sole`` must not overlap. Afterwards send what the call has left.

        Raises:
            IllegalStateError: an acknowledgement commit callback makes the call.
            ConcurrentModificationError: sole calls overlap.
        """
        task = asyncio.current_task()
        self.refuse_in_callback(method, task)
        if is_sole:
            if self.sole_call is not None:
                raise ConcurrentModificationError(
                    f"{method}() was called during {self.sole_call}() of another task: only one task at a time can "
                    "read from a share consumer, as each call accepts the records of the last one. Create a consumer "
                    "for each task, or have one task read and others process the records"
                )
            self.sole_call = method
        self.callers.append(task)
        try:
            yield
        finally:
            self.callers.remove(task)
            if is_sole:
                self.sole_call = None
            if self.callers or self.ending is not None or self._clock.now_ms() >= self._client.managers.due_ms:
                self.driver.wake()  # coroutines wait for the end of the call, too

    def _do(self, asked: Asked) -> Any:
        if not isinstance(asked, (ApplicationCall, Transmit)):
            self.ensure_not_ending()
        return super()._do(asked)

    def ensure_not_ending(self) -> None:
        """Raise ConsumerStoppedError if the call in progress must end, as the consumer was stopped meanwhile."""
        if self.ending is not None and asyncio.current_task() is not self.closing:
            raise ConsumerStoppedError(self.ending)

    def is_run_by(self, task: asyncio.Task[Any] | None) -> bool:
        """Return True if ``task`` closes the consumer."""
        return task is not None and task is self.closing

    def refuse_in_callback(self, method: str, task: asyncio.Task[Any] | None) -> None:
        """Raise IllegalStateError if an acknowledgement commit callback makes a call."""
        if task is not None and (task in self.callers or task is self.closing):
            raise IllegalStateError(
                f"{method}() cannot be called by an acknowledgement commit callback, as another call waits for the "
                "callback: call it when that call has returned"
            )

    # --- closing ---------------------------------------------------------------------------------------------------

    def stop(self, reason: str) -> None:
        """End waiting calls with an error whose text is ``reason``."""
        self.ending = self.ending or reason
        self.interrupt(ConsumerStoppedError(self.ending))
        self.driver.wake()

    async def close(self, timeout_ms: int, *, is_sound: bool) -> KafkaError | None:  # noqa: ARG002 - as any consumer
        """Send acknowledgements, leave the group, and close, within ``timeout_ms``; return the first error."""
        if self.is_closed:  # by ``fail``: no answer will come
            timeout_ms = 0
        await self._waits.until(lambda: not self.callers, timeout_ms)
        try:
            return await self.run(self.consumer.close(timeout_ms))
        finally:
            self.release()

    def report(self) -> str:
        """Return the reason why nothing happens, for an error message."""
        return self._client.connection_report() or "no answer came"
