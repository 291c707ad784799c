"""A consumer without a thread, for use on an event loop's thread: its deciding side, which a LoopDriver drives."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from inspect import isawaitable
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from pykclient.aio.errors import ConsumerStoppedError
from pykclient.aio.steps_runner import StepsRunner
from pykclient.clock import FOREVER_MS, Timer
from pykclient.consumer.application_events import Round, Steps
from pykclient.consumer.classic_consumer import ClassicConsumer
from pykclient.consumer.consumer_components import ConsumerComponents, hold_back
from pykclient.consumer.coordinator.membership_operation import DEFAULT
from pykclient.errors import IllegalStateError, KafkaError

if TYPE_CHECKING:
    import asyncio

    from pykclient.aio.loop_environment import LoopEnvironment
    from pykclient.aio.loop_waits import LoopWaits
    from pykclient.config.consumer_config import ConsumerConfig
    from pykclient.consumer.coordinator.coordinated_consumer import Offsets
    from pykclient.consumer.subscription_state import SubscriptionState
    from pykclient.types import OffsetAndMetadata, TopicPartition

#: The result of steps that have been run to their end.
_DONE: Final = object()


class ThreadlessComponents(ConsumerComponents):
    """The components of a consumer that is driven between the calls of the application, too."""

    #: True while the application works on the records that it got last.
    are_records_at_hand = False
    #: What the application has committed since it got them. It has processed the records before that.
    committed_at_hand: Mapping[TopicPartition, OffsetAndMetadata] = MappingProxyType({})

    def processed(self) -> Offsets:
        """Return the offsets to commit automatically: without the records that the application works on."""
        offsets = self.consumed()
        if self.are_records_at_hand:
            at_hand = dict(self.undelivered.positions_at_hand())
            for tp, committed in self.committed_at_hand.items():
                if tp in at_hand and at_hand[tp].offset < committed.offset:
                    at_hand[tp] = at_hand[tp]._replace(offset=committed.offset, offset_epoch=None)
            hold_back(offsets, at_hand)
        return offsets

    def begin_commit(self, offsets: Offsets | None) -> None:
        """Note that the application commits ``offsets`` (None: its positions), and so has processed what is before."""
        self.committed_at_hand = self.consumed() if offsets is None else offsets

    def end_commit(self) -> None:
        """Note that the commit has succeeded: the application is done with its records, unless a loop goes on."""
        if self.undelivered.is_empty:
            self.are_records_at_hand = False


class ThreadlessConsumer(StepsRunner):
    """Decides for a consumer, in the turns of a LoopDriver and in the calls of the application.

    Heartbeats, fetches and lookups go on all the time. Whatever else a poll of a KafkaConsumer does, such as joining
    the group, happens while a call waits for records, and between calls only if the application has no records at
    hand. So no partition is revoked whose records are being worked on. The application's code is called in turns; if
    it is asynchronous, a task waits for it, and no other *operation* runs meanwhile: no rebalance, ``assign`` or
    ``unsubscribe``.

    Implements Decider. Thread: the loop's.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        environment: LoopEnvironment,
        subscriptions: SubscriptionState,
        loop: asyncio.AbstractEventLoop,
        waits: LoopWaits,
    ) -> None:
        self.components = ThreadlessComponents(config, environment, subscriptions=subscriptions)
        super().__init__(self.components.client, environment.clock, waits, config["retry.backoff.ms"])
        self.consumer = ClassicConsumer(self.components)
        #: The task that closes the consumer.
        self.closing: asyncio.Task[object] | None = None
        self.is_closed = False
        self._loop = loop
        self._log = self.components.log_context.logger(__name__)
        self._subscriptions = subscriptions
        self._max_poll_interval_ms: int = config["max.poll.interval.ms"]
        self._retry_backoff_ms: int = config["retry.backoff.ms"]
        #: Why calls for records must end; None while they need not.
        self.ending: str | None = None
        self._operations: deque[Steps[Any]] = deque()
        self._changes = 0  # operations in progress or waiting that replace the subscription
        self._task: asyncio.Task[None] | None = None  # runs the rest of an operation
        self._is_stepping = False  # in steps of an operation, and so in calls of the application's code
        self._calls: list[frozenset[TopicPartition] | None] = []  # the partitions that calls wait for; None: all
        self._last_call_ms = self._clock.now_ms()  # when the membership heard last of the application
        self._fetches = False  # once the application has asked for records

    # --- turns -----------------------------------------------------------------------------------------------------

    def step(self, now_ms: int) -> int:
        """Do everything that is due; return within how many ms to be called again."""
        if self.is_closed:
            return FOREVER_MS
        wait_ms = self.advance(now_ms)
        wait_ms = min(wait_ms, self._client.managers.poll(now_ms))
        try:
            self.components.metadata.maybe_throw_any_exception()
        except KafkaError as error:
            self.note_error(error)
        return wait_ms

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
                self.submit(consumer.update_assignment_metadata_if_needed(is_called=bool(self._calls)))
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

    def round_failed(self, error: Exception, now_ms: int) -> int:  # noqa: ARG002 - the driver's interface
        """Start again with new connections after an exception that may have struck anywhere; return a backoff in ms."""
        self._log.error("An unexpected error; connecting anew", exc_info=error)
        self.consumer.recover(in_middle=True)
        self.note_error(error)  # what operations wait for has been dropped
        return self._retry_backoff_ms

    def fail(self, error: BaseException) -> None:
        """Close because of an exception that ends the program, such as SystemExit of a listener."""
        self._log.error("Closing, as %r ends the program", error)
        self.ending = self.ending or f"the consumer has closed, because of {error!r}"
        self.interrupt(ConsumerStoppedError(self.ending))
        self.release()

    # --- calls for records -----------------------------------------------------------------------------------------

    def begin_call(self, partitions: frozenset[TopicPartition] | None) -> None:
        """Note that a call waits for records of ``partitions`` (None: all): it is done with those of earlier calls."""
        self.components.are_records_at_hand = False
        self._fetches = True
        self._calls.append(partitions)
        if partitions is not None or len(self._calls) > 1:
            self._choose_partitions()

    def advance_call(self) -> None:
        """Do what is due before a call looks for records, such as the next step of a rebalance."""
        self.advance(self._clock.now_ms())
        if self.is_operating or not self.is_settled:
            self.driver.wake()
        else:
            self.wake_if_due()

    def begin_wait(self) -> None:
        """Note that a call waits, but not for records."""
        self._calls.append(None)

    def end_wait(self) -> None:
        """Note that the call has ended."""
        self._calls.remove(None)

    def end_call(self, partitions: frozenset[TopicPartition] | None) -> None:
        """Note that the call has ended."""
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
        """Note that the application has records at hand, and have the next ones fetched."""
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

    # --- operations ------------------------------------------------------------------------------------------------

    @property
    def is_operating(self) -> bool:
        """True while an operation is in progress, which may be about to revoke partitions."""
        return self._task is not None or self._is_stepping

    def is_run_by(self, task: asyncio.Task[Any] | None) -> bool:
        """Return True if ``task`` runs the operation in progress, or closes the consumer, and so calls listeners."""
        return task is not None and task in (self._task, self.closing)

    def refuse_in_callback(self, method: str, task: asyncio.Task[Any] | None) -> None:
        """Raise IllegalStateError if a rebalance listener makes a call that would wait for its own rebalance."""
        if self._is_stepping or self.is_run_by(task):
            raise IllegalStateError(
                f"{method}() cannot be called by a rebalance listener, as the rebalance waits for the listener: "
                "call it after the rebalance"
            )

    def submit(self, steps: Steps[Any]) -> None:
        """Run an operation at once, or after the one in progress. From its first wait on, a task runs it.

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
        """Call ``subscribe``: now, or after the operations that replace the subscription before.

        At once would be too early for them: an ``unsubscribe`` that still commits would take the new subscription away.

        Raises:
            Exception: that of ``subscribe``, if it is called now. Later errors are failures.
        """
        if self._changes:
            self.change(_call(subscribe))
        else:
            subscribe()

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
        """Return True once all partitions have a position; False if the time is over, or one is no longer assigned.

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
            return await self.run(self.consumer.close(timeout_ms, DEFAULT, auto_commit=is_sound))
        finally:
            self.release()

    def release(self) -> None:
        """Close the connections at once, without leaving the group."""
        if not self.is_closed:
            self.ending = self.ending or "the consumer has closed"
            self.is_closed = True
            self._client.close()
            self.driver.wake()

    # --- questions ---------------------------------------------------------------------------------------------------

    def report(self) -> str:
        """Return why nothing happens, for the text of an error."""
        coordinator = self.components.coordinator
        reason = None if coordinator is None else coordinator.last_error
        return self._client.connection_report() or str(reason or "no answer came")

    def check_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Raise IllegalStateError if one of ``partitions`` is not assigned."""
        missing = [tp for tp in partitions if not self._subscriptions.is_assigned(tp)]
        if missing:
            raise IllegalStateError(f"Partitions {set(missing)} are not assigned")


def _call(function: Callable[[], None]) -> Steps[None]:
    """Return steps that call a function."""
    function()
    return
    yield
