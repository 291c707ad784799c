"""A membership by the classic group protocol: its state, which two threads share, its heartbeats, and leaving.

Java: AbstractHeartbeatRequestManager, AbstractCoordinator.maybeLeaveGroup (KIP-1092), and the synchronized fields of
AbstractCoordinator. Here the state is separate from all I/O: each method is one step under the lock, so no thread ever
waits for the network while holding it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from pykclient import errors
from pykclient.clock import Clock
from pykclient.consumer.application_driver import NOTHING, PollResult, RequestFuture, UnsentRequest
from pykclient.consumer.coordinator import group_requests
from pykclient.consumer.coordinator.group_member import HeartbeatManager, MemberManager
from pykclient.consumer.coordinator.group_requests import LeaveGroupBuilder
from pykclient.consumer.coordinator.membership import (
    COMPLETING_REBALANCE,
    NO_GENERATION,
    PREPARING_REBALANCE,
    STABLE,
    UNJOINED,
    Generation,
    GroupRebalanceConfig,
    Membership,
    MemberState,
    move,
)
from pykclient.consumer.values import GroupMembershipOperation
from pykclient.log_context import LogContext
from pykclient.network.client_request import Shortcut
from pykclient.network.exponential_backoff import ExponentialBackoff

if TYPE_CHECKING:
    from pykclient.consumer.coordinator.group_member import MemberContext
    from pykclient.metrics import Sensor
    from pykclient.network.client_request import ClientRequest, ClientResponse
    from pykclient.types import Node


#: The results of ``next_action``.
REST = "rest"
BEAT = "beat"
SESSION_EXPIRED = "session expired"
POLL_EXPIRED = "poll expired"


class ClassicMembership(Membership):
    """State, generation, the need to rejoin, and the times of heartbeats, session and polls. Thread: any."""

    def __init__(
        self, config: GroupRebalanceConfig, log_context: LogContext, clock: Clock, retry_backoff: ExponentialBackoff
    ) -> None:
        if config.heartbeat_interval_ms >= config.session_timeout_ms:
            raise errors.ConfigError(
                f"heartbeat.interval.ms={config.heartbeat_interval_ms} must be lower than "
                f"session.timeout.ms={config.session_timeout_ms}; a third of it is usual"
            )
        super().__init__(config, log_context.logger(__name__), clock, retry_backoff)
        self.state: MemberState = UNJOINED
        self.rejoin_needed = True
        self.rejoin_reason = ""
        #: True if the application must prepare for a join.
        self.needs_join_prepare = True
        self._interval_ms = config.heartbeat_interval_ms
        self._session_end_ms = self.last_poll_ms + config.session_timeout_ms

    def generation_if_stable(self) -> Generation | None:
        with self._lock:
            return self.generation if self.state is STABLE else None

    # --- the rebalance -----------------------------------------------------------------------------------------------

    def take_join_prepare(self) -> bool:
        """Return whether the application must prepare for a join. The next call returns False."""
        with self._lock:
            needed = self.needs_join_prepare
            self.needs_join_prepare = False
            return needed

    def begin_rebalance(self) -> tuple[Generation, str]:
        """Start a rebalance; return the generation and reason for JoinGroup."""
        with self._lock:
            self.state = move(self.state, PREPARING_REBALANCE)
            if self._rebalance_start_ms is None:
                self._rebalance_start_ms = self._clock.now_ms()
            return self.generation, self.rejoin_reason

    def joined(self, generation: Generation) -> bool:
        """Process the JoinGroup response. Return False if the application has left the group meanwhile."""
        with self._lock:
            if self.state is not PREPARING_REBALANCE:
                return False
            self.state = move(self.state, COMPLETING_REBALANCE)
            self.generation = generation
            now_ms = self._clock.now_ms()
            self.heartbeat_in_flight = False
            self._due_ms = now_ms + self._interval_ms
            self._session_end_ms = now_ms + self._config.session_timeout_ms
            self._poll_end_ms = now_ms + self._config.rebalance_timeout_ms
            self._signal()  # heartbeats are needed now
            return True

    def member_id_assigned(self, member_id: str) -> None:
        """Set the member id that the next JoinGroup must contain (KIP-394)."""
        with self._lock:
            self.generation = Generation(NO_GENERATION.generation_id, member_id, None)
        self.request_rejoin(f"need to re-join with the given member-id: {member_id}")

    def synced(self, sent: Generation) -> tuple[bool, int]:
        """Process the SyncGroup response. Return whether the rebalance is complete, and its duration in milliseconds.

        It is not complete if a heartbeat has ended the membership meanwhile.
        """
        with self._lock:
            if self.generation != sent or self.state is not COMPLETING_REBALANCE:
                return False, 0
            self.state = move(self.state, STABLE)
            self.rejoin_reason = ""
            self.rejoin_needed = False
            return True, self._rebalance_ended()

    def request_rejoin(self, short_reason: str, full_reason: str | None = None) -> None:
        """Join again in the next poll. The coordinator gets ``short_reason`` (KIP-800), the log the full one."""
        with self._lock:
            self.rejoin_reason = short_reason
            self.rejoin_needed = True
        self._log.info("Rejoining the group: %s", full_reason or short_reason)

    def request_rejoin_if_necessary(self, short_reason: str, full_reason: str) -> None:
        """Do the same as ``request_rejoin``, unless a rejoin is already needed."""
        if not self.rejoin_needed:
            self.request_rejoin(short_reason, full_reason)

    def request_rejoin_if_stable(self, short_reason: str) -> None:
        """Rejoin because the group rebalances, unless this member is already rebalancing."""
        with self._lock:
            if self.state is not STABLE:
                return
            self.rejoin_reason = short_reason
            self.rejoin_needed = True
        self._log.info("Rejoining the group: %s", short_reason)

    # --- the end of a membership -------------------------------------------------------------------------------------

    def reset_and_rejoin(self, reason: str, *, lost_because: str | None = None) -> None:
        """End the membership, and join again in the next poll."""
        with self._lock:
            self._reset(reason, NO_GENERATION.member_id, lost_because)
        self._log.info("Membership reset: %s", reason)

    def reset_if_unchanged(
        self, sent: Generation, error: errors.BrokerError, reason: str, *, lost_because: str | None = None
    ) -> bool:
        """Do the same as ``reset_and_rejoin`` if ``sent`` is still the generation, in which the broker refused it.

        A response to a request of an old generation is irrelevant.
        """
        return self._refused(sent, error, reason, lost_because or reason, is_irrelevant=True)

    def reset_unless_rebalancing_anew(self, sent: Generation, error: errors.BrokerError, reason: str) -> bool:
        """Do the same as ``reset_and_rejoin``, unless a rebalance has started since ``sent`` was the generation."""
        return self._refused(sent, error, reason, reason, is_irrelevant=False)

    def _refused(
        self, sent: Generation, error: errors.BrokerError, reason: str, lost_because: str, *, is_irrelevant: bool
    ) -> bool:
        # After ILLEGAL_GENERATION the coordinator may still know the member id. Keep it: a new member would have to
        # wait for its old id's session to expire.
        keeps_id = isinstance(error, errors.IllegalGenerationError)
        with self._lock:
            if self.generation != sent and (is_irrelevant or self.state is PREPARING_REBALANCE):
                return False
            self._reset(reason, self.generation.member_id if keeps_id else NO_GENERATION.member_id, lost_because)
        self._log.info("Membership reset%s: %s", ", keeping the member id" if keeps_id else "", reason)
        return True

    def _reset(self, reason: str, member_id: str, lost_because: str | None) -> None:
        self.state = move(self.state, UNJOINED)
        if lost_because is not None:
            self.lost_because = lost_because
            self.lost_generation = self.generation.generation_id
        self.generation = Generation(NO_GENERATION.generation_id, member_id, None)
        self.rejoin_reason = reason
        self.rejoin_needed = True
        self.needs_join_prepare = True

    # --- the heartbeat -----------------------------------------------------------------------------------------------

    def receive_heartbeat(self) -> None:
        """Record a response from the coordinator, which keeps the session alive."""
        with self._lock:
            self.heartbeat_in_flight = False
            self._failures = 0
            self._restart_session()

    def fail_heartbeat(self) -> None:
        """Record that the last heartbeat failed: the next one comes after a backoff instead of the interval."""
        with self._lock:
            self.heartbeat_in_flight = False
            self._due_ms = self._clock.now_ms() + self._retry_backoff.backoff(self._failures)
            self._failures += 1
            self._signal()

    def coordinator_found(self) -> None:
        """Restart the session, and send a due heartbeat, now that the coordinator is known."""
        with self._lock:
            self._restart_session()
            self._signal()

    def _restart_session(self) -> None:
        self._session_end_ms = self._clock.now_ms() + self._config.session_timeout_ms

    def _time_to_next_event(self, now_ms: int) -> int:
        return max(0, min(self._due_ms, self._session_end_ms, self._poll_end_ms) - now_ms)

    def next_action(self, now_ms: int) -> tuple[str, int]:
        """Return what must be done now, and the milliseconds until the next call if nothing is signalled before.

        A call that returns BEAT counts as sending a heartbeat.
        """
        with self._lock:
            if now_ms >= self._session_end_ms:
                self._restart_session()
                return SESSION_EXPIRED, 0
            if now_ms >= self._poll_end_ms:
                return POLL_EXPIRED, 0
            action = REST
            if now_ms >= self._due_ms:
                self._sent(now_ms)
                action = BEAT
            return action, self._time_to_next_event(now_ms)


#: LeaveGroup makes a coordinator answer JoinGroup of that member; this is for the way of the response. Brokers before
#: Kafka 2.2 did not.
_OVERTAKEN_JOIN_MS = 1000


class _Leaving:
    """A LeaveGroup request, from the call to its outcome. Thread: the holder of the I/O lease."""

    def __init__(
        self, builder: LeaveGroupBuilder, reason: str, *, was_joining: bool, waits_for_others: bool, is_closing: bool
    ) -> None:
        self.builder = builder
        self.reason = reason
        self.was_joining = was_joining
        self.future: RequestFuture[None] = RequestFuture()
        self.waits_for_others = waits_for_others  # the coordinator's own connection
        self.is_closing = is_closing
        self.in_flight = False
        self.is_confirmed = False  # and may have overtaken JoinGroup
        self.is_repeated = False  # as JoinGroup succeeded
        self.failures = 0
        self.next_ms = 0


class LeaveGroupRequestManager(MemberManager):
    """Ends memberships, and tells the coordinator.

    A broker answers the requests of a connection in order. While JoinGroup or SyncGroup waits there for members that
    have not joined yet, LeaveGroup goes over another connection, the one that fetches use. If only that one is lost,
    LeaveGroup is sent again: the member would stay until its session expires. So it would if LeaveGroup overtook
    JoinGroup, which adds a member to a group of the consumer protocol under any id: LeaveGroup is repeated if JoinGroup
    succeeds. Once this member has left, SyncGroup may never be answered, and all else would wait behind it, so its
    connection is dropped. ``is_joining`` returns whether JoinGroup or SyncGroup is in flight, ``is_join_in_flight``
    whether it is JoinGroup. Thread: the holder of the I/O lease.
    """

    runs_in_background = True

    def __init__(
        self,
        context: MemberContext,
        membership: ClassicMembership,
        is_joining: Callable[[], bool],
        is_join_in_flight: Callable[[], bool],
    ) -> None:
        super().__init__(context)
        self._membership = membership
        self._is_joining = is_joining
        self._is_join_in_flight = is_join_in_flight
        self.pending: _Leaving | None = None

    @property
    def waits_for_others(self) -> bool:
        """True while the coordinator's own connection may be held up for minutes."""
        state = self._membership.state
        return (state is PREPARING_REBALANCE or state is COMPLETING_REBALANCE) and self._is_joining()

    def leave(
        self, operation: str, reason: str, *, lost_because: str | None = None, is_closing: bool = False
    ) -> RequestFuture[None] | None:
        """End the membership; send LeaveGroup if this is a member and ``operation`` allows it.

        A member whose generation was refused (ILLEGAL_GENERATION) is still in the group: it leaves as well, unlike in
        Java, where its partitions would rest until its session expires. Return the future of the request, or None
        without one. With ``is_closing``, JoinGroup's connection will not stay open, so that LeaveGroup cannot wait
        behind that.
        """
        sent = self._membership.generation
        stays = operation == GroupMembershipOperation.REMAIN_IN_GROUP or (
            operation == GroupMembershipOperation.DEFAULT and self._config.group_instance_id is not None
        )
        leaving = None
        if sent.has_member_id and not (self._coordinator.unknown or stays):
            self._log.info("Leaving the group as member %s: %s", sent.member_id, reason)
            builder = LeaveGroupBuilder(self._config.group_id, sent.member_id, reason)
            leaving = _Leaving(
                builder,
                reason,
                was_joining=self._is_joining(),
                waits_for_others=self.waits_for_others,
                is_closing=is_closing,
            )
        self.pending = leaving
        self._membership.reset_and_rejoin("consumer pro-actively leaving the group", lost_because=lost_because)
        if leaving is None:
            if stays or not self._is_join_in_flight():
                self._drop_rebalance()
            return None
        return leaving.future

    def poll(self, now_ms: int) -> PollResult:
        """Return LeaveGroup if it is due."""
        leaving = self.pending
        if leaving is None:
            return NOTHING
        if leaving.in_flight:
            return PollResult(self._config.retry_backoff_ms)  # when the heartbeat thread looks for the response
        if leaving.is_confirmed:
            return self._await_join(leaving, now_ms)
        if now_ms < leaving.next_ms:
            return PollResult(leaving.next_ms - now_ms)
        node, broker = self._coordinator.check_and_get(), self._coordinator.broker
        if node is None:
            self._end(leaving, errors.DisconnectError("the connection to the group coordinator is lost"))
            return NOTHING
        if leaving.failures:
            leaving.waits_for_others = self._is_joining()
        if leaving.waits_for_others and broker is not None:
            return self._request(leaving, broker, is_own=False)
        return self._request(leaving, node, is_own=True)

    def joined_after_leaving(self, member_id: str) -> None:
        """Send LeaveGroup again if it may have been processed before JoinGroup, which has succeeded."""
        leaving = self.pending
        if leaving is not None and leaving.waits_for_others and (leaving.in_flight or leaving.is_confirmed):
            self._log.info("JoinGroup of member %s was answered after LeaveGroup was sent; leaving again", member_id)
            leaving.builder = LeaveGroupBuilder(self._config.group_id, member_id, leaving.reason)
            leaving.is_repeated = True
            leaving.is_confirmed = leaving.waits_for_others = False
            leaving.next_ms = 0

    def _await_join(self, leaving: _Leaving, now_ms: int) -> PollResult:
        if not self._is_join_in_flight():
            self._end(leaving, None)
        elif now_ms < leaving.next_ms:
            return PollResult(leaving.next_ms - now_ms)
        elif not leaving.is_closing:
            self._end(leaving, None)
            self._drop_rebalance(leaving)
        elif not leaving.future.is_done:
            leaving.future.settle(None)
        return NOTHING

    def reset(self) -> None:
        """Send LeaveGroup again, if it was in flight."""
        if self.pending is not None:
            self.pending.in_flight = False

    def _request(self, leaving: _Leaving, node: Node, *, is_own: bool) -> PollResult:
        request = UnsentRequest(leaving.builder, node)
        answered = partial(self._answered, leaving, leaving.builder)
        request.future.add_listener(answered, partial(self._failed, leaving, is_own))
        leaving.in_flight = True
        return PollResult(self._config.retry_backoff_ms, (request,))

    def _answered(self, leaving: _Leaving, builder: LeaveGroupBuilder, answer: ClientResponse) -> None:
        leaving.in_flight = False
        if builder is not leaving.builder:
            return  # it is to be sent again
        response = answer.response_body
        codes = [response.error_code, *(member.error_code for member in response.members)]
        error = errors.for_code(next((code for code in codes if code), 0))
        if leaving.is_repeated and isinstance(error, errors.UnknownMemberIdError):
            error = None  # it was not overtaken
        if error is None:
            self._log.debug("The coordinator confirmed that this member left the group")
            if leaving.waits_for_others and self.pending is leaving and self._is_join_in_flight():
                leaving.is_confirmed = True
                leaving.next_ms = self._clock.now_ms() + _OVERTAKEN_JOIN_MS
                return
        else:
            self._log.error("LeaveGroup failed: %s", error)
        self._end(leaving, error)
        self._drop_rebalance(leaving)

    def _drop_rebalance(self, leaving: _Leaving | None = None) -> None:
        """Drop the connection on which a request of the rebalance waits that this member has left."""
        if leaving is not None and (leaving.is_closing or not leaving.was_joining):
            return  # all connections are about to be closed, or what is in flight joins the group again
        if self._is_joining():
            self._coordinator.mark_unknown("its connection waits for a rebalance that this member has left")

    def _failed(self, leaving: _Leaving, is_own: bool, error: Exception) -> None:
        leaving.in_flight = False
        if is_own and isinstance(error, errors.DisconnectError):
            self._coordinator.mark_unknown(str(error), is_disconnected=True)
        if is_own or not isinstance(error, errors.DisconnectError) or self._coordinator.unknown:
            self._end(leaving, error)
        elif leaving.is_closing:
            leaving.next_ms = self._clock.now_ms() + self._retry_backoff.backoff(leaving.failures)
            leaving.failures += 1
        else:
            leaving.waits_for_others = False  # the first connection stays open, and better late than not at all

    def _end(self, leaving: _Leaving, error: Exception | None) -> None:
        if self.pending is leaving:
            self.pending = None
        if not leaving.future.is_done:
            leaving.future.settle(error)


class HeartbeatRequestManager(HeartbeatManager):
    """Sends heartbeats, and tracks the time since the coordinator answered and the application polled.

    When the application has not polled for ``max.poll.interval.ms``, the member leaves the group. Thread: the holder
    of the I/O lease.
    """

    def __init__(
        self,
        context: MemberContext,
        membership: ClassicMembership,
        latency: Sensor,
        leaving: LeaveGroupRequestManager,
    ) -> None:
        super().__init__(context.config, context.log_context, context.lookup, latency, context.client)
        self._membership = membership
        self._leaving = leaving
        self._refused_with: tuple[type[errors.BrokerError], ...] = ()  # the error of the last answer, if it was one

    def poll(self, now_ms: int) -> PollResult:
        """Return a heartbeat if one is due and the coordinator is known."""
        membership = self._membership
        if not membership.state.sends_heartbeats:
            return NOTHING
        signals = membership.signals
        if now_ms < self._next_event_ms and signals == self._seen_signals:
            self._rest.wait_ms = self._next_event_ms - now_ms
            return self._rest
        node = self._coordinator.check_and_get()
        if node is None:
            return NOTHING
        action, rest_ms = membership.next_action(now_ms)
        if action is SESSION_EXPIRED:
            self._coordinator.mark_unknown("no answer to heartbeats within session.timeout.ms")
            return NOTHING
        if action is POLL_EXPIRED:
            cause = self._lateness(membership.last_poll_ms, now_ms)
            self._warn_of_lateness(cause)
            reason = "consumer poll timeout has expired"
            self._leaving.leave(GroupMembershipOperation.DEFAULT, reason, lost_because=cause)
            return NOTHING
        self._next_event_ms = now_ms + rest_ms
        self._seen_signals = signals
        if action is REST:
            return PollResult(rest_ms)
        sent = membership.generation
        shortcut = Shortcut(self._usual, partial(self._is_handled, self._next_event_ms))
        request = UnsentRequest(group_requests.heartbeat(self._config, sent, shortcut), node)
        request.future.add_listener(partial(self._answered, sent), self._failed)
        return PollResult(rest_ms, (request,))

    def reset(self) -> None:
        """Send another heartbeat soon, instead of the one in flight."""
        if self._membership.heartbeat_in_flight:
            self._membership.fail_heartbeat()

    def _is_handled(self, until_ms: int, request: ClientRequest, now_ms: int) -> bool:
        """Handle the usual response, if it comes before ``until_ms``: until then the application may wait."""
        if not self._may_wait(until_ms, now_ms):
            return False
        self._latency.record(now_ms - request.created_ms, now_ms)
        self._membership.receive_heartbeat()
        return True

    def _answered(self, sent: Generation, response: ClientResponse) -> None:
        self._latency.record(response.request_latency_ms)
        error = errors.for_code(response.response_body.error_code)
        if error is not None:
            error = self._coordinator.judged("Heartbeat", error)
        membership = self._membership
        if isinstance(error, errors.RebalanceInProgressError):
            # Ignored if the heartbeat was sent before this member joined the rebalance. It keeps sending heartbeats
            # while the group rebalances: it has the rebalance timeout to join, but without heartbeats the session would
            # expire.
            membership.request_rejoin_if_stable("group is already rebalancing")
        elif isinstance(
            error, (errors.IllegalGenerationError, errors.UnknownMemberIdError, errors.FencedInstanceIdError)
        ):
            if self._membership_ended(sent, error):
                membership.fail_heartbeat()
                return
        elif error is not None:
            if not isinstance(error, (errors.RetriableError, *self._refused_with)):
                self._log.warning(
                    "The coordinator refuses heartbeats. If that lasts for session.timeout.ms=%d, this member loses "
                    "its partitions: %s",
                    self._config.session_timeout_ms,
                    error,
                )
            self._refused_with = (type(error),)
            membership.fail_heartbeat()
            return
        if error is None:
            self._usual.expect(response.response_body, response.api_version)
        self._refused_with = ()
        membership.receive_heartbeat()

    def _membership_ended(self, sent: Generation, error: errors.BrokerError) -> bool:
        """End the membership, and return True unless it has ended before."""
        reason = f"the coordinator answered a heartbeat with {error}"
        if not self._membership.reset_if_unchanged(sent, error, reason, lost_because=self._lost_because(error)):
            self._log.info("Ignoring a failed heartbeat of %s, which has ended: %s", sent, error)
            return False
        if isinstance(error, errors.FencedInstanceIdError):
            self._log.error("Fenced: %s", error)
            self.failure = error
        return True

    def _lost_because(self, error: errors.BrokerError) -> str:
        if isinstance(error, errors.UnknownMemberIdError):
            return (
                f"the coordinator had removed it, most likely as it heard no heartbeat for session.timeout.ms="
                f"{self._config.session_timeout_ms} (the process was paused, starved of CPU or of the GIL, or cut off)"
            )
        return str(error)

    def _failed(self, error: Exception) -> None:
        if isinstance(error, errors.DisconnectError):
            self._coordinator.mark_unknown(str(error), is_disconnected=True)
        self._membership.fail_heartbeat()
