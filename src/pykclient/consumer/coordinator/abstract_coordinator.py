"""A member's side of a group of any kind (Java: AbstractCoordinator)."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from pykclient import errors
from pykclient.clock import FOREVER_MS, Clock, Timer
from pykclient.consumer.application_driver import ApplicationDriver
from pykclient.consumer.consumer_metadata import ConsumerMetadata
from pykclient.consumer.consumer_network_client import ConsumerNetworkClient
from pykclient.consumer.coordinator.coordinator_metrics import GroupCoordinatorMetrics
from pykclient.consumer.coordinator.coordinator_request_manager import (
    CoordinatorRequestManager,
)
from pykclient.consumer.coordinator.group_joiner import GroupJoiner
from pykclient.consumer.coordinator.group_membership import GroupMembership
from pykclient.consumer.coordinator.group_rebalance_config import GroupRebalanceConfig
from pykclient.consumer.coordinator.group_requests import LeaveGroupBuilder
from pykclient.consumer.coordinator.heartbeat_request_manager import HeartbeatRequestManager
from pykclient.consumer.coordinator.heartbeat_thread import HeartbeatThread
from pykclient.consumer.coordinator.member_state import (
    COMPLETING_REBALANCE,
    PREPARING_REBALANCE,
    STABLE,
    UNJOINED,
    Generation,
    MemberState,
)
from pykclient.consumer.coordinator.response_handler import handled
from pykclient.consumer.request_future import RequestFuture
from pykclient.errors import DisconnectError, MemberIdRequiredError, RetriableError
from pykclient.log_context import LogContext
from pykclient.metrics.metrics import Metrics
from pykclient.network.client_request import ClientResponse
from pykclient.network.environment import SYSTEM_ENVIRONMENT, Environment
from pykclient.network.exponential_backoff import ExponentialBackoff
from pykclient.protocol.messages.join_group import JoinGroupResponse
from pykclient.protocol.messages.leave_group import LeaveGroupResponse
from pykclient.types import Node

METRIC_PREFIX = "consumer"

#: The effect of closing on the membership (KIP-1092). By default, dynamic members leave and static ones stay.
DEFAULT = "default"
LEAVE_GROUP = "leave_group"
REMAIN_IN_GROUP = "remain_in_group"

_BACKOFF_EXP_BASE = 2
_BACKOFF_JITTER = 0.2

#: How long closing waits for the heartbeat thread, which never blocks.
_THREAD_JOIN_S = 5.0

#: A rebalance that failed with one of these errors is restarted at once.
_REJOIN_AT_ONCE = (
    errors.UnknownMemberIdError,
    errors.IllegalGenerationError,
    errors.RebalanceInProgressError,
    MemberIdRequiredError,
)


class AbstractCoordinator(ABC):
    """Finds the coordinator, joins the group, stays a member through heartbeats, and leaves.

    Subclasses implement the protocol: the metadata to offer, assigning, and handling an assignment. These hooks run on
    the application thread, outside all locks.

    Thread: application, except for ``handle_poll_timeout_expiry``. State shared with the heartbeat thread is in
    ``membership``, ``finder`` and ``client``.
    """

    def __init__(
        self,
        config: GroupRebalanceConfig,
        log_context: LogContext,
        client: ConsumerNetworkClient,
        metrics: Metrics,
        clock: Clock,
        metadata: ConsumerMetadata,
        rng: random.Random | None = None,
        environment: Environment = SYSTEM_ENVIRONMENT,
    ) -> None:
        self.config = config
        self.log_context = log_context
        self.client = client
        self.driver = ApplicationDriver(client, metadata, clock)
        self.clock = clock
        self._log = log_context.logger(__name__)
        self.retry_backoff = ExponentialBackoff(
            config.retry_backoff_ms, _BACKOFF_EXP_BASE, config.retry_backoff_max_ms, _BACKOFF_JITTER, rng
        )
        self.membership = GroupMembership(config, log_context, clock, self.retry_backoff)
        self.finder = CoordinatorRequestManager(
            config, log_context, client, self.membership, clock, self.retry_backoff, metadata
        )
        self._sensors = GroupCoordinatorMetrics(metrics, METRIC_PREFIX, self.membership)
        self._joiner = GroupJoiner(config, log_context, client, self.membership, self.finder, self._sensors, self)
        self._join_future: RequestFuture[bytes] | None = None
        self._join_failures = 0
        self._join_not_before_ms = clock.now_ms()
        self.heartbeats = HeartbeatRequestManager(
            config, log_context, self.membership, self.finder, self._sensors.heartbeat, self.handle_poll_timeout_expiry
        )
        self._heartbeat_thread: HeartbeatThread | None = None
        #: Tests replace it with a thread that they step themselves.
        self.new_heartbeat_thread: Callable[..., HeartbeatThread] = HeartbeatThread
        self._environment = environment

    # --- for subclasses ----------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def protocol_type(self) -> str:
        """The kind of group, such as "consumer"."""

    @abstractmethod
    def metadata(self) -> Sequence[tuple[str, bytes]]:
        """Return the offered protocols with their metadata, the preferred one first."""

    @abstractmethod
    def on_join_prepare(self, timer: Timer, generation: Generation) -> bool:
        """Clean up after ``generation`` before joining again; return False if the timer expires first."""

    @abstractmethod
    def on_leader_elected(
        self, protocol_name: str, members: Sequence[JoinGroupResponse.JoinGroupResponseMember], skip_assignment: bool
    ) -> Mapping[str, bytes]:
        """Return each member's assignment, as the leader; nothing with ``skip_assignment``."""

    @abstractmethod
    def on_join_complete(self, generation: Generation, assignment: bytes) -> None:
        """Apply the assignment. If this raises, the next poll calls it again with the same arguments."""

    @abstractmethod
    def on_leave_prepare(self) -> None:
        """Clean up before the application leaves the group."""

    # --- the coordinator ---------------------------------------------------------------------------------------------

    @property
    def coordinator_unknown(self) -> bool:
        """True if there is no coordinator with a usable or pending connection."""
        return self.finder.unknown

    def check_and_get_coordinator(self) -> Node | None:
        """Return the coordinator, unless its connection is lost."""
        return self.finder.check_and_get()

    def ensure_coordinator_ready(self, timer: Timer, *, wakeup: bool = True) -> bool:
        """Find the coordinator if it is unknown; return False if the timer expires first.

        With a timer of 0 this never waits: it sends a lookup if the backoff allows one, and processes the response once
        it has arrived. Raises errors that are not retriable.
        """
        if not self.finder.is_settled:
            self.finder.look_up()
            self.driver.run_until(lambda: self.finder.is_settled, timer, wakeup=wakeup)
        if self.finder.unknown:
            self.finder.raise_fatal_error()
            return False
        return True

    def ensure_coordinator_ready_async(self) -> bool:
        """Try to find the coordinator, without waiting and without WakeupError."""
        return self.ensure_coordinator_ready(Timer(self.clock, 0), wakeup=False)

    # --- joining -----------------------------------------------------------------------------------------------------

    def rejoin_needed_or_pending(self) -> bool:
        """Return whether this member must join, or complete a join in progress."""
        return self.membership.rejoin_needed or self._join_future is not None

    def request_rejoin(self, short_reason: str, full_reason: str | None = None) -> None:
        """Join again in the next poll."""
        self.membership.request_rejoin(short_reason, full_reason)

    def ensure_active_group(self, timer: Timer) -> bool:
        """Become a member with an assignment; return False if the timer expires first.

        Raises errors that are not retriable.
        """
        # Even without a need to join: the connection may have been lost while heartbeats were sent.
        if not self.ensure_coordinator_ready(timer):
            return False
        if self._heartbeat_thread is None:
            self._heartbeat_thread = self.new_heartbeat_thread(
                self.config,
                self.log_context,
                self.client,
                self.membership,
                self.finder,
                self.clock,
                environment=self._environment,
            )
            self._heartbeat_thread.start()
        return self.join_group_if_needed(timer)

    def join_group_if_needed(self, timer: Timer) -> bool:
        """Do the same as ``ensure_active_group``, with a known coordinator and a running heartbeat thread."""
        while self.rejoin_needed_or_pending():
            if not self.ensure_coordinator_ready(timer):
                return False
            if not self._await_join_backoff(timer):
                return False
            # Taken first, so that an application callback that raises is not called again by the next poll().
            if self.membership.take_join_prepare() and not self.on_join_prepare(timer, self.membership.generation):
                self.membership.need_join_prepare()
                return False
            future = self._initiate_join_group()
            if not self.client.poll_future(future, timer):
                return False
            if future.succeeded:
                self._complete_join(future.value)
            elif not self._join_failed(future.exception, timer):
                return False
        return True

    def _initiate_join_group(self) -> RequestFuture[bytes]:
        # Kept, so that a poll that ends early (by timeout or wakeup) does not make the next one join a second time.
        if self._join_future is None:
            self._join_future = self._joiner.send_join_group_request()
            self._join_future.add_listener(None, lambda _: self._sensors.failed_rebalance.record())
        return self._join_future

    def _complete_join(self, assignment: bytes) -> None:
        generation, state = self.membership.snapshot()
        if generation.is_reset or state is not STABLE:
            # The heartbeat thread has learned that the membership ended after SyncGroup was answered.
            self._join_future = None
            self.membership.reset_and_rejoin(
                f"{generation} ended in {state} during the rebalance", reset_member_id=True
            )
            return
        self.on_join_complete(generation, assignment)
        # Only now, so that the next poll completes an application callback that was woken up.
        self._join_future = None
        self._join_failures = 0
        self.membership.need_join_prepare()

    def _join_failed(self, error: Exception, timer: Timer) -> bool:
        """Return whether to try again within the timer. Raises errors that are not retriable."""
        self._join_future = None
        name = type(error).__name__
        if not isinstance(error, MemberIdRequiredError):  # which has already requested it
            self.membership.request_rejoin(f"rebalance failed due to {name}", f"the rebalance failed: {name}: {error}")
        if isinstance(error, _REJOIN_AT_ONCE):
            return True
        if not isinstance(error, RetriableError):
            raise error
        self._join_not_before_ms = self.clock.now_ms() + self.retry_backoff.backoff(self._join_failures)
        self._join_failures += 1
        return self._await_join_backoff(timer)

    def backoff_ms(self, now_ms: int) -> int:
        """Return the milliseconds until the end of a backoff that keeps this member from joining.

        Without such a backoff return FOREVER_MS. Nothing that arrives from the network ends it, so a wait must not last
        longer.
        """
        wait_ms = self._join_not_before_ms - now_ms if self.rejoin_needed_or_pending() else 0
        return wait_ms if wait_ms > 0 else FOREVER_MS

    def _await_join_backoff(self, timer: Timer) -> bool:
        """Wait until the backoff allows joining (KIP-580); return False if the timer expires first."""
        if self._join_future is not None:
            return True
        timer.update()
        backoff_ms = self._join_not_before_ms - timer.now_ms
        if backoff_ms <= 0:
            return True
        timer.sleep_ms(backoff_ms)
        return timer.now_ms >= self._join_not_before_ms

    # --- staying -----------------------------------------------------------------------------------------------------

    def poll_heartbeat(self, now_ms: int) -> None:
        """Record that the application is alive.

        Raises the error that ended the heartbeats; joining starts them again.
        """
        thread = self._heartbeat_thread
        if thread is None:
            return
        failure = thread.failure or self.heartbeats.failure
        if failure is not None:
            if thread.failure is not None:
                self._heartbeat_thread = None
            self.heartbeats.failure = None
            self.membership.request_rejoin_if_necessary("heartbeats failed", f"heartbeats failed: {failure}")
            raise failure
        self.membership.poll_heartbeat(now_ms)

    def handle_poll_timeout_expiry(self, now_ms: int) -> None:
        """Leave the group because the application has not polled for too long. Thread: the holder of the I/O lease."""
        config = self.config
        idle_s = (now_ms - self.membership.heartbeat.last_poll_ms) / 1000
        cause = (
            f"poll() was not called for {idle_s:.1f} s, longer than max.poll.interval.ms="
            f"{config.rebalance_timeout_ms}, so it left the group"
        )
        self._log.warning(
            "%s. Processing what a poll returns takes too long: raise max.poll.interval.ms, or lower max.poll.records "
            "(now %d)",
            cause,
            config.max_poll_records,
        )
        request = self._leave_request(DEFAULT, "consumer poll timeout has expired")
        self._leave(request, cause, background=True)

    # --- leaving -----------------------------------------------------------------------------------------------------

    def maybe_leave_group(self, operation: str, reason: str) -> RequestFuture[None] | None:
        """Leave the group, unless there is nothing to leave or ``operation`` says to stay.

        The membership ends in any case.
        """
        return self._leave(self._leave_request(operation, reason), None, background=False)

    def _leave_request(self, operation: str, reason: str) -> LeaveGroupBuilder | None:
        """Return the LeaveGroup request to send, or None if there is nothing to leave or ``operation`` says to stay."""
        sent, state = self.membership.snapshot()
        stays = operation == REMAIN_IN_GROUP or (operation == DEFAULT and self.config.group_instance_id is not None)
        if self.finder.unknown or state is UNJOINED or not sent.has_member_id or stays:
            return None
        self._log.info("Leaving the group as member %s: %s", sent.member_id, reason)
        return LeaveGroupBuilder(self.config.group_id, sent.member_id, reason)

    def _leave(
        self, request: LeaveGroupBuilder | None, lost_because: str | None, *, background: bool
    ) -> RequestFuture[None] | None:
        """End the membership, and send ``request`` if there is one."""
        future = None
        if request is not None:
            future = self._send_leave(request, self._waits_for_others(self.membership.state), background=background)
        self.membership.reset_and_rejoin(
            "consumer pro-actively leaving the group", reset_member_id=True, lost_because=lost_because
        )
        if future is not None and not background:
            self.client.poll_no_wakeup()
        return future

    def _send_leave(self, request: LeaveGroupBuilder, joining: bool, *, background: bool) -> RequestFuture[None]:
        node, broker = self.finder.check_and_get(), self.finder.broker
        if node is None:
            return RequestFuture.failure(DisconnectError("the connection to the group coordinator is lost"))
        if not joining or broker is None:
            return handled(self.finder, self.client.send(node, request, background=background), self._handle_leave)
        # A broker answers the requests of a connection in order. On the coordinator's own connection this one would
        # wait behind JoinGroup, which waits for members that have not joined yet.
        response = self.client.send(broker, request, background=background)
        if background:  # the first connection stays open, and better late than not at all
            response = response.compose(
                lambda value, future: future.complete(value), partial(self._leave_after_joining, request)
            )
        return handled(None, response, self._handle_leave)

    def _leave_after_joining(
        self, request: LeaveGroupBuilder, error: Exception, future: RequestFuture[ClientResponse]
    ) -> None:
        """Send LeaveGroup over the coordinator's own connection, as the other one has failed."""
        node = self.finder.check_and_get()
        if node is None or not isinstance(error, DisconnectError):
            future.raise_error(error)
        else:
            self.client.send(node, request, background=True).chain(future)

    def _waits_for_others(self, state: MemberState) -> bool:
        """Return whether JoinGroup or SyncGroup is in flight, which the coordinator may hold for minutes."""
        return (state is PREPARING_REBALANCE or state is COMPLETING_REBALANCE) and self._is_joining

    @property
    def _is_joining(self) -> bool:
        return self._join_future is not None and not self._join_future.is_done

    def _handle_leave(self, response: LeaveGroupResponse, future: RequestFuture[None]) -> None:
        codes = [response.error_code, *(member.error_code for member in response.members)]
        error = errors.for_code(next((code for code in codes if code), 0))
        if error is None:
            self._log.debug("The coordinator confirmed that this member left the group")
            future.complete(None)
        else:
            self._log.error("LeaveGroup failed: %s", error)
            future.raise_error(error)

    def close(self, timer: Timer, operation: str = DEFAULT) -> None:
        """End the heartbeat thread, leave the group and wait for requests in flight, within the timer."""
        self._close_heartbeat_thread()
        try:
            self.on_leave_prepare()
        finally:
            joining = self._waits_for_others(self.membership.state)
            request = self._leave_request(operation, "the consumer is being closed")
            leaving = self._leave(request, None, background=False)
            if not joining:
                answered = self._await_pending_requests(timer)
            elif request is not None and leaving is not None:
                answered = self._await_leaving(request, leaving, timer)
            else:
                answered = True  # JoinGroup's response is not needed any more
            if not answered:
                self._log.warning("Closing before the group coordinator has answered all requests")

    def _await_pending_requests(self, timer: Timer) -> bool:
        node = self.finder.check_and_get()
        return node is None or self.client.await_pending_requests(node, timer)

    def _await_leaving(self, request: LeaveGroupBuilder, leaving: RequestFuture[None], timer: Timer) -> bool:
        """Wait until the coordinator has answered LeaveGroup; return False if it has not.

        LeaveGroup is in flight on another connection than JoinGroup. If only that one is lost, for example because an
        earlier request on it has timed out, LeaveGroup is sent again: the member would stay until its session expires.
        """
        failures = 0
        while self.client.poll_future(leaving, timer):
            if not (leaving.failed and isinstance(leaving.exception, DisconnectError)):
                return True
            if self.finder.unknown or timer.expired:
                return False
            timer.sleep_ms(self.retry_backoff.backoff(failures))
            failures += 1
            leaving = self._send_leave(request, self._is_joining, background=False)
        return False

    def _close_heartbeat_thread(self) -> None:
        thread, self._heartbeat_thread = self._heartbeat_thread, None
        if thread is None:
            return
        thread.close()
        if thread.is_alive():
            thread.join(_THREAD_JOIN_S)

    def abandon(self) -> bool:
        """Let the heartbeat thread end by itself, as nothing will close this; return whether there was one."""
        thread = self._heartbeat_thread
        if thread is None:
            return False
        thread.abandon()
        return True
