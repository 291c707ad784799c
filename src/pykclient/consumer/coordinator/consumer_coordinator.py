"""A consumer's side of its group, for the application's calls (Java: ConsumerCoordinator).

``group.protocol`` chooses the membership; the modules of the other protocol are not loaded. A thread keeps the member
in its group while the application is busy (Java: AbstractCoordinator.HeartbeatThread).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from pykclient.clock import FOREVER_MS, Clock, Timer
from pykclient.consumer.application_driver import (
    ApplicationEvents,
    NetworkClientDelegate,
    RequestFuture,
    Round,
    Steps,
    Wait,
    metadata_update,
    result_of,
)
from pykclient.consumer.coordinator.commit_request_manager import (
    CommitRequestManager,
    CommittedOffsets,
    CommittedOffsetsRequestManager,
    OffsetCommitCallback,
    shown,
)
from pykclient.consumer.coordinator.coordinator_request_manager import CoordinatorRequestManager
from pykclient.consumer.coordinator.group_member import (
    CoordinatedConsumer,
    MemberContext,
    Offsets,
    RebalanceListenerInvoker,
    commit_sensor,
)
from pykclient.consumer.coordinator.membership import CONSUMER, GroupRebalanceConfig
from pykclient.consumer.values import GroupMembershipOperation
from pykclient.errors import DisconnectError, KafkaError, KafkaTimeoutError, WakeupError
from pykclient.log_context import LogContext
from pykclient.metrics import Metrics
from pykclient.network.environment import SYSTEM_ENVIRONMENT, Environment, Thread
from pykclient.network.exponential_backoff import ExponentialBackoff
from pykclient.types import ConsumerGroupMetadata, TopicPartition

if TYPE_CHECKING:
    from pykclient.consumer.consumer_metrics import AsyncConsumerMetrics
    from pykclient.consumer.coordinator.group_member import GroupMember
    from pykclient.consumer.coordinator.membership import Membership


def new_member(
    config: GroupRebalanceConfig,
    log_context: LogContext,
    clock: Clock,
    retry_backoff: ExponentialBackoff,
    rng: random.Random | None,
) -> tuple[Membership, Callable[[MemberContext, CommitRequestManager], GroupMember]]:
    """Return the state of a membership that has not begun, and a function that creates its member."""
    if config.group_protocol == CONSUMER:
        from pykclient.consumer.coordinator.consumer_membership import ConsumerMembership
        from pykclient.consumer.coordinator.consumer_rebalance import ConsumerMembershipManager

        membership = ConsumerMembership(config, log_context, clock, retry_backoff, rng)
        return membership, lambda context, commits: ConsumerMembershipManager(context, membership, commits)
    from pykclient.consumer.coordinator.classic_membership import ClassicMembership
    from pykclient.consumer.coordinator.classic_rebalance import ClassicMembershipManager

    classic = ClassicMembership(config, log_context, clock, retry_backoff)
    return classic, lambda context, commits: ClassicMembershipManager(context, classic, commits)


HEARTBEAT_THREAD_PREFIX = "kafka-coordinator-heartbeat-thread"
#: Signals end a wait; this bound is for the thread of a consumer that was garbage-collected without being closed.
_MAX_REST_MS = 5000
#: The bound of the wait for the thread, which never blocks, when the consumer is closed.
_JOIN_S = 5.0


class HeartbeatThread:
    """Drives the background managers while the application does not poll, from when the consumer joins its group on.

    It sleeps until one of them is due. It never waits for the network or for the I/O lease: if the application holds
    that, the application's poll drives the managers. It runs no application code. It is a daemon, so it does not delay
    the exit of the interpreter. Thread: application, except for ``run``.
    """

    def __init__(
        self,
        config: GroupRebalanceConfig,
        log_context: LogContext,
        client: NetworkClientDelegate,
        membership: Membership,
        coordinator: CoordinatorRequestManager,
        clock: Clock,
        environment: Environment,
    ) -> None:
        #: Tests replace it with a thread that does not run.
        self.new_thread: Callable[[Callable[[], object], str], Thread] = environment.new_thread
        self._thread: Thread | None = None
        self._config = config
        self._log = log_context.logger(__name__)
        self._client = client
        self._membership = membership
        self._coordinator = coordinator
        self._clock = clock
        self._closed = False
        self._abandoned = False
        self._failure: Exception | None = None

    @property
    def is_started(self) -> bool:
        """True from ``start`` until the thread is closed or its failure is taken."""
        return self._thread is not None

    def start(self) -> None:
        """Start the thread unless it runs, or is closed."""
        if self._thread is None and not self._closed:
            # Set first: a signal handler may raise while the thread starts.
            thread = self._thread = self.new_thread(self.run, f"{HEARTBEAT_THREAD_PREFIX} | {self._config.group_id}")
            try:
                thread.start()
            except RuntimeError:  # the system refuses another thread; the next poll tries again
                self._thread = None
                raise

    def take_failure(self) -> Exception | None:
        """Return and clear the exception that ended the thread; ``start`` then starts another one."""
        failure = self._failure
        if failure is not None:
            self._thread = self._failure = None
        return failure

    def close(self) -> None:
        """End the thread, and wait until it has ended."""
        self._closed = True
        thread, self._thread = self._thread, None
        if thread is not None:
            self._membership.signal()
            if thread.is_alive():
                thread.join(_JOIN_S)

    def abandon(self) -> bool:
        """Let the thread end at its next wakeup; return whether there is one. Takes no lock, for use in ``__del__``.

        The thread then closes the connections, as nothing else will.
        """
        if self._thread is None:
            return False
        self._abandoned = self._closed = True
        return True

    def run(self) -> None:
        self._log.debug("Heartbeat thread started")
        try:
            while not self._closed:
                seen = self._membership.signals
                wait_ms = self.run_once()
                if wait_ms > 0 and not self._closed:
                    self._membership.wait_for_signal(seen, wait_ms)
        except Exception as error:  # noqa: BLE001 - the end of a thread
            self._log.exception("The heartbeat thread failed")
            self._failure = error
        if self._abandoned:
            self._client.close()
        self._log.debug("Heartbeat thread has ended")

    def run_once(self) -> int:
        """Poll the managers, unless the application does; return the milliseconds until the next call."""
        membership = self._membership
        wait_ms = self._client.poll_background()
        if not membership.state.sends_heartbeats:
            wait_ms = _MAX_REST_MS if wait_ms is None else wait_ms
        elif wait_ms is None:
            # The application may leave its poll just before something is due. Otherwise the poll does it in time, so
            # that there is nothing to do here.
            wait_ms = self._config.retry_backoff_ms + membership.time_to_next_event(self._clock.now_ms())
        elif membership.heartbeat_in_flight or self._coordinator.unknown:
            # This thread must receive the response, because the application may not poll.
            wait_ms = min(wait_ms, self._config.retry_backoff_ms)
        return min(wait_ms, _MAX_REST_MS)


class ConsumerCoordinator:
    """The group membership of a consumer: its managers, its heartbeat thread, and the application's calls.

    Thread: application. State shared with the heartbeat thread is in ``membership`` and in managers that run in the
    background.
    """

    def __init__(
        self,
        config: GroupRebalanceConfig,
        log_context: LogContext,
        client: NetworkClientDelegate,
        metrics: Metrics,
        clock: Clock,
        consumer: CoordinatedConsumer,
        rng: random.Random | None = None,
        environment: Environment = SYSTEM_ENVIRONMENT,
    ) -> None:
        self.config = config
        self.log_context = log_context
        self.client = client
        self.clock = clock
        self._log = log_context.logger(__name__)
        self._metadata = consumer.metadata
        self._subscriptions = consumer.subscriptions
        self.events = ApplicationEvents()
        backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng)
        self.membership, create_member = new_member(config, log_context, clock, backoff, rng)
        self.listeners = RebalanceListenerInvoker(log_context, self._subscriptions, clock, metrics)
        self.lookup = lookup = CoordinatorRequestManager(
            config, log_context, client, self.membership, clock, backoff, consumer.metadata
        )
        context = MemberContext(
            config, log_context, client, self.membership, lookup, clock, backoff, consumer, metrics, self.listeners
        )
        self._commits = CommitRequestManager(
            context, self.events, commit_sensor(metrics, self._subscriptions.num_assigned_partitions)
        )
        self._committed = CommittedOffsetsRequestManager(context)
        self.member = create_member(context, self._commits)
        # A manager comes before those that it needs, which then act in the same round.
        first, *others = self.member.managers
        client.managers.add(first, self._commits, self._committed, *others, lookup)
        self.heartbeat_thread = HeartbeatThread(
            config, log_context, client, self.membership, lookup, clock, environment
        )
        # The subscription and the metadata that the last poll has seen.
        self._seen_request_id = self._seen_version = -1
        self._is_member = False
        self._metadata.request_update(True)

    def measure_events(self, metrics: AsyncConsumerMetrics) -> None:
        """Record the times of events for the application."""
        self.events.metrics = self.member.events.metrics = metrics

    def event_count(self) -> int:
        """Return the number of events that wait for the application."""
        return len(self.events) + len(self.member.events)

    # --- the coordinator -------------------------------------------------------------------------------------------

    def ensure_coordinator_ready(self, timer: Timer) -> Steps[bool]:
        """Find the coordinator if it is unknown; return False if the timer expires first.

        With a timer of 0 this never waits: it sends a lookup if the backoff allows one, and processes the response once
        it has arrived. Raises errors that are not retriable.
        """
        if not self.lookup.is_settled:
            self.lookup.look_up()
            yield Wait(timer, lambda: self.lookup.is_settled)
        if self.lookup.unknown:
            self.lookup.raise_fatal_error()
            return False
        return True

    # --- each poll -------------------------------------------------------------------------------------------------

    def poll(self, timer: Timer, *, is_called: bool = True, call_ms: int = 0) -> Steps[bool]:
        """Stay a member of the group, commit automatically and run callbacks.

        Return False if the timer expires before a rebalance is complete; with a timer of 0 this never waits. Raises
        errors that are not retriable, and KafkaError if the rebalance listener raised. ``is_called`` is False if this
        does not show that the application is alive, as it happens between its calls. What is due in the middle of the
        application's call, which lasts ``call_ms`` at most, may be done early.
        """
        if self._subscriptions.request_id != self._seen_request_id:
            self._subscription_changed()
        is_member = self._is_member
        if is_member:
            self._poll_heartbeat(timer.now_ms, call_ms, is_called=is_called)
        version = self._metadata.update_version
        if version != self._seen_version:
            self.member.metadata_updated()
            self._seen_version = version
        commits = self._commits
        if commits.pending or commits.is_fenced or self.events.queue:
            yield from self.run_commit_callbacks()
        if is_member:
            is_steady = self.heartbeat_thread.is_started and self.lookup.check_and_get() is not None
            if (not is_steady or self.member.is_rebalancing) and not (yield from self._poll_group(timer)):
                return False
        else:
            # With manual assignment, the coordinator is only looked up when needed. If no node is ready, a fetch cannot
            # block either, and the caller would spin.
            if self._metadata.update_requested and not self.client.has_ready_nodes(timer.now_ms):
                yield from metadata_update(self._metadata, timer)
            yield self._round()
        if commits.auto_commit_enabled and commits.maybe_auto_commit_async(timer.now_ms, call_ms):
            yield self._round()
        return True

    def _subscription_changed(self) -> None:
        request_id = self._subscriptions.request_id
        self._is_member = self._subscriptions.is_auto_assigned
        if self._is_member:
            self.member.check_subscription()
        self._seen_request_id = request_id

    def auto_commit_between_calls(self, now_ms: int) -> bool:
        """Commit automatically if that is due, in a consumer that an event loop drives between the application's calls.

        Return False, and do nothing, while a rebalance is due.
        """
        if self.rejoin_needed_or_pending():
            return False
        self._commits.maybe_auto_commit_async(now_ms)
        return True

    def _round(self) -> Round:
        """Return a round that sends and receives without waiting and without WakeupError."""
        return Round(Timer(self.clock, 0), wakeup=False)

    def _poll_group(self, timer: Timer) -> Steps[bool]:
        member = self.member
        if member.needs_coordinator and self.lookup.unknown:
            is_ready = yield from self.ensure_coordinator_ready(timer)
            if not is_ready:
                return False
        while member.is_rebalancing:
            self.heartbeat_thread.start()
            timer.update()
            member.advance(timer.now_ms)
            yield from member.events.steps()
            if not (member.needs_application or (yield Wait(timer, lambda: member.needs_application))):
                return False
        if self.membership.state.sends_heartbeats:
            self.heartbeat_thread.start()
        return True

    def rejoin_needed_or_pending(self) -> bool:
        """Return whether this member must join, or complete a join in progress."""
        return self.member.is_rebalancing

    def request_rejoin(self, short_reason: str, full_reason: str | None = None) -> None:
        """Rebalance the group in the next poll, if the protocol lets members decide."""
        self.membership.request_rejoin(short_reason, full_reason)

    def time_to_next_poll(self) -> int:
        """Return the milliseconds that a wait for records may take before ``poll`` must be called again.

        During a rebalance, and while a member does not know its coordinator, nothing is committed automatically. So an
        overdue commit does not end the wait: the poll would spin.
        """
        if not self._commits.auto_commit_enabled:
            return FOREVER_MS
        wait_ms = self._commits.time_to_next_auto_commit()
        if wait_ms > 0:
            return wait_ms
        is_member = self._subscriptions.is_auto_assigned
        return FOREVER_MS if is_member and (self.rejoin_needed_or_pending() or self.lookup.unknown) else 0

    # --- heartbeats ------------------------------------------------------------------------------------------------

    def _poll_heartbeat(self, now_ms: int, call_ms: int, *, is_called: bool) -> None:
        """Record that the application is alive, unless this happens between its calls.

        Raises the error that ended the heartbeats; joining starts them again.
        """
        if not self.heartbeat_thread.is_started:
            return
        failure = self.heartbeat_thread.take_failure()
        if failure is not None:
            self.member.heartbeat_thread_failed(failure)
            raise failure
        self.member.raise_failure()
        if is_called and self.membership.poll_heartbeat(now_ms, call_ms):
            self.member.heartbeats.check_soon()

    # --- leaving ---------------------------------------------------------------------------------------------------

    def revoke_all(self) -> Steps[None]:
        """Give up all partitions, as this member is about to leave. Raises the listener's error as KafkaError."""
        self.listeners.is_leaving = True
        try:
            yield from self.member.revoke_all()
        finally:
            self.listeners.is_leaving = False

    def leave_group(
        self, operation: str, reason: str, *, is_closing: bool = False
    ) -> Steps[RequestFuture[None] | None]:
        """Leave the group, if this is a member and ``operation`` allows it.

        The membership ends in any case. Return the future of the request, or None without one.
        """
        self.member.stop()
        with self.client.lease:
            future = self.member.leave(operation, reason, is_closing=is_closing)
        if future is not None:
            yield self._round()
        return future

    # --- offsets -----------------------------------------------------------------------------------------------------

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return this member's place in the group, as of the last completed join."""
        return self.member.group_metadata

    @property
    def last_error(self) -> Exception | None:
        """The error of the last offset fetch or coordinator lookup."""
        return self._committed.last_error or self.lookup.last_error

    def commit_sync(self, offsets: Offsets, timer: Timer) -> Steps[None]:
        """Commit, and wait until it is done. Callbacks of earlier asynchronous commits have run when this returns.

        Raises:
            KafkaTimeoutError: the timer has expired first.
            WakeupError: ``wakeup`` was called.
            KafkaError: the commit failed, and no retry will help.
        """
        yield from self.run_commit_callbacks()
        self._committed.forget()
        future = self._commits.commit_sync(offsets, timer.remaining_ms)
        try:
            while not future.is_done or self.events:
                yield Wait(Timer(self.clock, FOREVER_MS), lambda: future.is_done or bool(self.events))
                yield from self._run_events()  # earlier commits are reported first
        finally:
            if not future.is_done:
                future.give_up(WakeupError("the call that waited for the commit has ended"))
        if future.failed:
            raise future.exception

    def commit_async(
        self, offsets: Offsets, callback: OffsetCommitCallback | None = None
    ) -> Steps[RequestFuture[None]]:
        """Commit without waiting. Callbacks of earlier commits run first."""
        yield from self._run_events()
        self._committed.forget()
        future = self._commits.commit_async(offsets, callback)
        # Give it a chance to be sent: the application may not poll for a while.
        yield self._round()
        return future

    @property
    def has_pending_async_commits(self) -> bool:
        """True while an asynchronous commit is in flight, or its callback has not run yet."""
        return self._commits.awaits_answers or bool(self.events)

    def run_commit_callbacks(self) -> Steps[None]:
        """Run the callbacks of asynchronous commits that were answered.

        While records are buffered, ``poll`` does not wait for the network, so this reads the responses itself.

        Raises:
            FencedInstanceIdError: a commit was fenced.
        """
        if self._commits.awaits_answers:
            yield self._round()
        yield from self._run_events()

    def _run_events(self) -> Steps[None]:
        self._commits.raise_if_fenced()
        yield from self.events.steps()

    def auto_commit_now(self) -> Steps[None]:
        """Commit automatically now, as partitions are about to be given up."""
        if self._commits.auto_commit_enabled:
            yield from self._run_events()
            self._commits.auto_commit_async()
            yield self._round()

    def committed(self, partitions: Collection[TopicPartition], timer: Timer) -> Steps[CommittedOffsets]:
        """Return the group's committed offsets.

        Raises:
            KafkaTimeoutError: the timer has expired first.
            WakeupError: ``wakeup`` was called.
            KafkaError: they cannot be looked up, and no retry will help.
        """
        return (yield from result_of(self._committed.fetch(partitions, timer.remaining_ms), self.clock))

    def start_new_partitions(self) -> bool:
        """Start new partitions at their committed offsets; return False while these are unknown."""
        return self._committed.start_new_partitions()

    # --- closing ---------------------------------------------------------------------------------------------------

    def close(
        self, timer: Timer, operation: str = GroupMembershipOperation.DEFAULT, *, auto_commit: bool = True
    ) -> Steps[None]:
        """Leave the group within the timer, after a last automatic commit if ``auto_commit`` is set."""
        self.member.stop()  # the polls below must not join the group
        try:
            if auto_commit and self._commits.auto_commit_enabled:
                yield from self._auto_commit_last(timer)
            yield Wait(timer, lambda: not self._commits.awaits_coordinator)
        except (KeyboardInterrupt, SystemExit):
            timer.reset(0)  # still send LeaveGroup, but do not wait for the response
            raise
        finally:
            self.heartbeat_thread.close()
            try:
                yield from self.revoke_all()
            finally:
                yield from self._leave_and_wait(timer, operation)
        yield from self._run_events()

    def _leave_and_wait(self, timer: Timer, operation: str) -> Steps[None]:
        """Leave the group, and wait for the coordinator to answer all requests."""
        waits_for_others = self.member.waits_for_others
        left = yield from self.leave_group(operation, "the consumer is being closed", is_closing=True)
        if not waits_for_others:
            node = self.lookup.check_and_get()
            answered = node is None or (yield Wait(timer, lambda: not self.client.has_pending_requests(node)))
        elif left is None:
            answered = True  # JoinGroup's response is not needed any more
        else:
            answered = yield Wait(timer, lambda: left.is_done)
            answered = answered and not (left.failed and isinstance(left.exception, DisconnectError))
        if not answered:
            self._log.warning("Closing before the group coordinator has answered all requests")

    def _auto_commit_last(self, timer: Timer) -> Steps[None]:
        """Commit the consumed offsets, and wait. Raises nothing but a callback's WakeupError."""
        offsets = self._commits.consumed()
        try:
            yield from self.commit_sync(offsets, timer)
        except WakeupError:
            raise
        except KafkaTimeoutError as error:
            why = error.__cause__ or "no answer"
            if offsets:  # otherwise, it is an earlier commit that has no answer
                self._log.warning("Not committed in the time there was: %s (%s)", shown(offsets), why)
        except KafkaError as error:
            self._log.warning("The last automatic commit of %s failed: %s", shown(offsets), error)

    def abandon(self) -> bool:
        """Let the heartbeat thread of an unclosed consumer end by itself; return whether there is one."""
        return self.heartbeat_thread.abandon()
