"""A membership by the consumer group protocol (KIP-848): its state, which two threads share, and its heartbeats.

The states are a table (Java: MemberState).

Java: AbstractMembershipManager, ConsumerHeartbeatRequestManager. Here the state is separate from all I/O and from the
application's callbacks: each method is one step under the lock.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pykclient import errors, types
from pykclient.clock import FOREVER_MS
from pykclient.consumer.application_driver import NOTHING, PollResult, RequestFuture, UnsentRequest
from pykclient.consumer.coordinator.group_member import HeartbeatManager
from pykclient.consumer.coordinator.group_requests import StaticMemberBuilder
from pykclient.consumer.coordinator.membership import (
    NO_GENERATION,
    STABLE,
    Generation,
    Membership,
    MemberState,
)
from pykclient.consumer.values import GroupMembershipOperation
from pykclient.errors import DisconnectError, KafkaError, RetriableError, UnsupportedVersionError, check_move
from pykclient.network.client_request import Shortcut
from pykclient.network.failures import topics_denied
from pykclient.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

if TYPE_CHECKING:
    import random
    from uuid import UUID

    from pykclient.clock import Clock
    from pykclient.consumer.application_driver import NetworkClientDelegate
    from pykclient.consumer.coordinator.coordinator_request_manager import CoordinatorRequestManager
    from pykclient.consumer.coordinator.membership import GroupRebalanceConfig
    from pykclient.consumer.subscription_state import SubscriptionState
    from pykclient.consumer.values import SubscriptionPattern
    from pykclient.log_context import LogContext
    from pykclient.metrics import Sensor
    from pykclient.network.client_request import ClientRequest, ClientResponse, RequestBuilder
    from pykclient.network.exponential_backoff import ExponentialBackoff
    from pykclient.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
    from pykclient.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatResponse


#: Not part of a group, because the application has not subscribed.
UNSUBSCRIBED = MemberState("UNSUBSCRIBED", types.MemberState.UNJOINED, sends_heartbeats=False)
#: The member asks to join; it has no assignment yet.
JOINING = MemberState("JOINING", types.MemberState.REBALANCING, sends_heartbeats=True)
#: The application gives up and takes over partitions, until it has the target assignment.
RECONCILING = MemberState("RECONCILING", types.MemberState.REBALANCING, sends_heartbeats=True)
#: The next heartbeat reports the partitions that the member owns now.
ACKNOWLEDGING = MemberState("ACKNOWLEDGING", types.MemberState.REBALANCING, sends_heartbeats=True)
#: The application gives up its partitions, in order to leave.
PREPARE_LEAVING = MemberState("PREPARE_LEAVING", types.MemberState.UNJOINED, sends_heartbeats=True)
#: The next heartbeat says that the member leaves.
LEAVING = MemberState("LEAVING", types.MemberState.UNJOINED, sends_heartbeats=True)
#: The coordinator has removed the member. The application loses its partitions, and then the member joins again.
FENCED = MemberState("FENCED", types.MemberState.UNJOINED, sends_heartbeats=False)
#: The member has left, as the application did not poll for ``max.poll.interval.ms``. The next poll loses the
#: partitions, and then the member joins again.
STALE = MemberState("STALE", types.MemberState.UNJOINED, sends_heartbeats=False)
#: An error that no retry will fix has ended the membership. Each poll raises it until the application unsubscribes.
FATAL = MemberState("FATAL", types.MemberState.UNJOINED, sends_heartbeats=False)
TRANSITIONS: dict[MemberState, frozenset[MemberState]] = {
    UNSUBSCRIBED: frozenset((JOINING,)),
    JOINING: frozenset((RECONCILING, STABLE, PREPARE_LEAVING, FENCED, FATAL)),
    RECONCILING: frozenset((ACKNOWLEDGING, STABLE, PREPARE_LEAVING, FENCED, FATAL)),
    ACKNOWLEDGING: frozenset((RECONCILING, STABLE, PREPARE_LEAVING, FENCED, FATAL)),
    STABLE: frozenset((RECONCILING, PREPARE_LEAVING, FENCED, FATAL)),
    # Also to UNSUBSCRIBED: the coordinator has removed the member meanwhile, so there is nothing to leave.
    PREPARE_LEAVING: frozenset((LEAVING, UNSUBSCRIBED)),
    LEAVING: frozenset((UNSUBSCRIBED, STALE)),
    FENCED: frozenset((JOINING, UNSUBSCRIBED)),
    STALE: frozenset((JOINING, UNSUBSCRIBED)),
    FATAL: frozenset((UNSUBSCRIBED,)),
}


def move(state: MemberState, to: MemberState) -> MemberState:
    """Return ``to``.

    Raises:
        IllegalStateError: the table does not have this transition.
    """
    check_move("a member of a consumer group", TRANSITIONS, state, to)
    return to


class LocalAssignment(NamedTuple):
    """Partitions by topic id, with a number that distinguishes equal assignments.

    A member that loses a partition and gets it back between two heartbeats must report that, although it owns the same
    partitions as before (KAFKA-15839).
    """

    number: int
    partitions: Mapping[UUID, frozenset[int]]

    def next(self, partitions: Mapping[UUID, frozenset[int]]) -> LocalAssignment:
        """Return the next assignment, or this one if the partitions are the same."""
        if self.number != NO_ASSIGNMENT.number and self.partitions == partitions:
            return self
        return LocalAssignment(self.number + 1, partitions)

    def with_partitions_of(self, other: LocalAssignment) -> LocalAssignment:
        """Return this assignment with the partitions of ``other`` added to its own."""
        if all(numbers <= self.partitions.get(topic_id, frozenset()) for topic_id, numbers in other.partitions.items()):
            return self
        partitions = dict(self.partitions)
        for topic_id, numbers in other.partitions.items():
            partitions[topic_id] = partitions.get(topic_id, frozenset()) | numbers
        return LocalAssignment(self.number, partitions)


#: There is no assignment yet, not even an empty one.
NO_ASSIGNMENT = LocalAssignment(-1, {})


#: Brokers with v0 only have an early version of the protocol, in which they choose member ids.
_CLIENT_MADE_MEMBER_IDS = 1
#: The member epochs of heartbeats that do not come from a member.
JOIN_GROUP_EPOCH = 0
LEAVE_GROUP_EPOCH = -1
#: A static member leaves for a while: its partitions wait until the session expires.
LEAVE_GROUP_STATIC_EPOCH = -2


class Beat(NamedTuple):
    """A heartbeat to send. ``owned`` includes partitions that the application may take over meanwhile."""

    incarnation: int
    member_id: str
    member_epoch: int
    state: MemberState
    owned: LocalAssignment

    @property
    def is_joining(self) -> bool:
        """True if the heartbeat asks to join."""
        return self.state is JOINING

    @property
    def is_leaving(self) -> bool:
        """True if the heartbeat announces that the member leaves."""
        return self.member_epoch < JOIN_GROUP_EPOCH


class ConsumerMembership(Membership):
    """State, member epoch, target and current assignment, and the heartbeat's timers.

    Each time that the member joins or ends its membership, its ``incarnation`` rises: responses and steps of the
    application that belong to an earlier one are dropped. Thread: any.
    """

    def __init__(
        self,
        config: GroupRebalanceConfig,
        log_context: LogContext,
        clock: Clock,
        retry_backoff: ExponentialBackoff,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__(config, log_context.logger(__name__), clock, retry_backoff)
        #: Chosen once for the life of the consumer (KIP-1082).
        self.member_id = _new_member_id(rng)
        # The lock of Membership guards all below.
        self.state: MemberState = UNSUBSCRIBED
        #: A number that rises with each join and each end of a membership.
        self.incarnation = 0
        #: The epoch and id of the current membership, or of the previous one until the member has rejoined.
        #: NO_GENERATION before the first membership, and after the application has left the group. A member that was
        #: fenced must not offer NO_GENERATION for offsets in a transaction: brokers do not check those at all.
        self.last_generation = NO_GENERATION
        #: The assignment that the coordinator wants this member to have, and the one that the application has.
        self.target = self.owned = NO_ASSIGNMENT
        #: The error that led to FATAL.
        self.failure: KafkaError | None = None
        #: True if the last membership ended before the member had reached its target assignment.
        self.lost_in_rebalance = False
        self._leaves_for_good = False  # a static member that gives its instance id up
        self._is_late = False  # LEAVING because the application has not polled
        # _interval_ms is 0 until the coordinator names one; a heartbeat with _due_ms 0 is due at once.
        self._not_before_ms = 0  # the end of the backoff

    # --- queries; single reads need no lock --------------------------------------------------------------------------

    def generation_if_stable(self) -> Generation | None:
        """Return the member's epoch and id, with which it may commit at any time; None outside the group."""
        generation = self.generation
        return None if generation is NO_GENERATION else generation

    def generation_for_fetches(self) -> Generation | None:
        """Return the member's epoch and id, which the coordinator checks in lookups of committed offsets."""
        return self.generation_if_stable()

    def is_current(self, incarnation: int) -> bool:
        """Return whether the member is still reconciling in the membership ``incarnation``."""
        with self._lock:
            return self.incarnation == incarnation and self.state is RECONCILING

    # --- the application ---------------------------------------------------------------------------------------------

    def begin_joining(self) -> None:
        """Join the group, after the application has subscribed or has lost all partitions of the last membership."""
        with self._lock:
            self.state = move(self.state, JOINING)
            self._begin_incarnation()
            self._is_late = False
            self._leaves_for_good = False
            self._poll_end_ms = self._clock.now_ms() + self._config.rebalance_timeout_ms
            self._due_ms = 0
            self._signal()

    def reconciled(self, incarnation: int, owned: LocalAssignment) -> int | None:
        """Record that the application now has this assignment; the next heartbeat reports it.

        Return the duration of the rebalance in milliseconds, or None if the membership has ended meanwhile.
        """
        with self._lock:
            if self.incarnation != incarnation or self.state is not RECONCILING:
                return None
            self.owned = owned
            self.state = move(self.state, ACKNOWLEDGING)
            self._due_ms = 0
            self._signal()
            return self._rebalance_ended()

    def prepare_leaving(self) -> bool:
        """Begin to leave. Return False if this member is already outside the group, where it may own partitions
        only for lack of a poll.
        """
        with self._lock:
            if not self.state.sends_heartbeats or self.state is LEAVING:
                return False
            if self.state is not PREPARE_LEAVING:
                self.state = move(self.state, PREPARE_LEAVING)
            return True

    def leave(self, operation: str) -> bool:
        """End the membership. Return whether a heartbeat must tell the coordinator.

        Dynamic members that are to remain in the group do not tell it, and keep their partitions until the session
        expires.
        """
        with self._lock:
            self.last_generation = NO_GENERATION
            if self.state is UNSUBSCRIBED:
                return False
            if not self.state.sends_heartbeats:
                self.state = move(self.state, UNSUBSCRIBED)
                return False
            if self.state is not LEAVING:
                if self.state is not PREPARE_LEAVING:
                    self.state = move(self.state, PREPARE_LEAVING)
                self.state = move(self.state, LEAVING)
            self._begin_incarnation()
            self._is_late = False
            self._leaves_for_good = operation == GroupMembershipOperation.LEAVE_GROUP
            if operation == GroupMembershipOperation.REMAIN_IN_GROUP and self._config.group_instance_id is None:
                self.state = move(self.state, UNSUBSCRIBED)
                return False
            self._signal()
            return True

    def reset_unless_rebalancing_anew(self, sent: Generation, error: errors.BrokerError, reason: str) -> bool:  # noqa: ARG002 - the member id is for life
        """Fence this member, as the coordinator does not know it; return False if it has joined anew since ``sent``."""
        with self._lock:
            if self.generation != sent:
                return False
            self._end(FENCED, reason)
        self._log.info("Fenced: %s", reason)
        return True

    def request_rejoin(self, short_reason: str, full_reason: str | None = None) -> None:
        """Only log a warning: with this protocol the coordinator decides when to rebalance."""
        self._log.warning(
            "Not rebalancing on request (%s): with group.protocol=consumer the coordinator decides when to rebalance",
            full_reason or short_reason,
        )

    # --- the heartbeat -----------------------------------------------------------------------------------------------

    def _time_to_next_event(self, now_ms: int) -> int:
        if not self.state.sends_heartbeats:
            return FOREVER_MS
        # A member that is about to leave has nothing to do when the time to poll is over.
        left_ms = FOREVER_MS if self.state is PREPARE_LEAVING else max(0, self._poll_end_ms - now_ms)
        due_ms = max(self._due_ms, self._not_before_ms)
        if self.heartbeat_in_flight and due_ms <= now_ms:
            return left_ms  # the response ends the wait
        return min(left_ms, max(0, due_ms - now_ms))

    def is_late(self, now_ms: int, lost_because: str) -> bool:
        """Return whether the application has not polled for ``max.poll.interval.ms``, and begin to leave if so."""
        with self._lock:
            state = self.state
            if now_ms < self._poll_end_ms or state is PREPARE_LEAVING or state is LEAVING:
                return False
            if not state.sends_heartbeats:
                return False
            self.state = move(move(state, PREPARE_LEAVING), LEAVING)
            self._is_late = True
            self._note_loss(lost_because)
            self._begin_incarnation()
            return True

    def next_beat(self, now_ms: int, *, is_due: bool) -> tuple[Beat | None, int]:
        """Return the heartbeat to send now, or None, and the milliseconds until the next call.

        With ``is_due``, do not wait for the interval. A heartbeat that is returned counts as sent.
        """
        with self._lock:
            state = self.state
            if state is LEAVING:
                return self._last_beat(now_ms), FOREVER_MS
            if not state.sends_heartbeats:
                return None, FOREVER_MS
            if is_due:
                self._due_ms = 0
            wait_ms = self._time_to_next_event(now_ms)
            if self.heartbeat_in_flight or now_ms < max(self._due_ms, self._not_before_ms):
                return None, wait_ms
            # The coordinator does not wait for this member to give up partitions that a heartbeat does not have. The
            # application may take over its new partitions before the heartbeat arrives, so they count as owned. Java
            # leaves them out; for a while, two members may then have the same partition.
            claimed = self.owned.with_partitions_of(self.target)
            epoch = max(JOIN_GROUP_EPOCH, self.generation.generation_id)
            beat = Beat(self.incarnation, self.member_id, epoch, state, claimed)
            self._sent(now_ms)
            if state is ACKNOWLEDGING:
                self.state = move(state, STABLE if self._has_target() else RECONCILING)
                if self.state is RECONCILING:
                    self._rebalance_start_ms = now_ms
            return beat, self._time_to_next_event(now_ms)

    def _last_beat(self, now_ms: int) -> Beat:
        is_static = self._config.group_instance_id is not None and not self._leaves_for_good
        epoch = LEAVE_GROUP_STATIC_EPOCH if is_static else LEAVE_GROUP_EPOCH
        beat = Beat(self.incarnation, self.member_id, epoch, LEAVING, NO_ASSIGNMENT)
        self.state = move(LEAVING, STALE if self._is_late else UNSUBSCRIBED)
        self._sent(now_ms)
        self.heartbeat_in_flight = False
        return beat

    def skip_beat(self) -> bool:
        """Record that no coordinator is known. Return True if this ends the attempt to leave."""
        with self._lock:
            if self.state is not LEAVING:
                return False
            self.state = move(LEAVING, STALE if self._is_late else UNSUBSCRIBED)
            return True

    def answered(
        self, beat: Beat, epoch: int, interval_ms: int, assignment: Mapping[UUID, frozenset[int]] | None
    ) -> bool:
        """Process the coordinator's answer to a heartbeat; return False if it is for an earlier membership.

        ``assignment`` is the new target assignment; None if it has not changed.
        """
        with self._lock:
            if beat.incarnation != self.incarnation:
                return False
            self.heartbeat_in_flight = False
            self._failures = self._not_before_ms = 0
            self._interval_ms = interval_ms
            if self._due_ms:  # otherwise another one is due at once
                self._due_ms = (self.last_send_ms or 0) + interval_ms
            if self.state is not LEAVING and self.state.sends_heartbeats:
                self.generation = NO_GENERATION
                if epoch > JOIN_GROUP_EPOCH:
                    self.generation = self.last_generation = Generation(epoch, self.member_id, None)
                if assignment is not None and self.state is not PREPARE_LEAVING:
                    self._take_target(assignment)
            self._signal()
            return True

    def confirmed(self, beat: Beat, epoch: int, interval_ms: int) -> bool:
        """Process a heartbeat response without changes; return False, doing nothing, if it has any."""
        with self._lock:
            if beat.incarnation != self.incarnation or self.state is not STABLE or not self._due_ms:
                return False
            if (epoch, interval_ms) != (self.generation.generation_id, self._interval_ms):
                return False
            self.heartbeat_in_flight = False
            self._failures = self._not_before_ms = 0
            return True

    def _take_target(self, assignment: Mapping[UUID, frozenset[int]]) -> None:
        self.target = self.target.next(assignment)
        state = self.state
        if self._has_target():
            if state is RECONCILING or state is JOINING:
                self.state = move(state, STABLE)
                self._rebalance_start_ms = None
                self._due_ms = 0  # the last heartbeat may have had partitions that are not to be taken over any more
        elif state is not RECONCILING and state is not ACKNOWLEDGING:
            self.state = move(state, RECONCILING)
            self._rebalance_start_ms = self._clock.now_ms()

    def _has_target(self) -> bool:
        return self.owned == self.target

    def failed(self, beat: Beat, *, back_off: bool = True) -> None:
        """Send another heartbeat after a backoff, as the coordinator has not accepted this one."""
        with self._lock:
            if beat.incarnation != self.incarnation:
                return
            self.heartbeat_in_flight = False
            self._due_ms = 0
            if back_off:
                self._not_before_ms = self._clock.now_ms() + self._retry_backoff.backoff(self._failures)
                self._failures += 1
            self._signal()

    def interrupted(self) -> None:
        """Send another heartbeat soon, instead of the one in flight."""
        with self._lock:
            if self.heartbeat_in_flight:
                self.heartbeat_in_flight = False
                self._due_ms = 0
                self._not_before_ms = self._clock.now_ms() + self._retry_backoff.backoff(0)

    # --- the end of a membership -------------------------------------------------------------------------------------

    def fenced(self, beat: Beat, lost_because: str) -> bool:
        """End the membership, as the coordinator has removed this member; return False if it has ended before."""
        return self._ended(beat, FENCED, lost_because, None)

    def failed_for_good(self, beat: Beat, failure: KafkaError) -> bool:
        """End the membership because of an error that no retry will fix; return False if it has ended before."""
        return self._ended(beat, FATAL, str(failure), failure)

    def _ended(self, beat: Beat, state: MemberState, lost_because: str, failure: KafkaError | None) -> bool:
        with self._lock:
            if beat.incarnation != self.incarnation or not self.state.sends_heartbeats:
                return False
            self.failure = failure
            self._end(state, lost_because)
            return True

    def _end(self, state: MemberState, lost_because: str) -> None:
        # A member that is about to leave has nothing to leave any more.
        if self.state is LEAVING:
            self.state = move(LEAVING, STALE if self._is_late else UNSUBSCRIBED)
        else:
            self.state = move(self.state, UNSUBSCRIBED if self.state is PREPARE_LEAVING else state)
        self._note_loss(lost_because)
        self._begin_incarnation()
        self._signal()

    def _note_loss(self, lost_because: str) -> None:
        self.lost_because = lost_because
        self.lost_in_rebalance = self._rebalance_start_ms is not None
        if self.generation is not NO_GENERATION:  # else the application was late before
            self.lost_generation = self.generation.generation_id

    def _begin_incarnation(self) -> None:
        self.incarnation += 1
        self.generation = NO_GENERATION
        self.target = self.owned = NO_ASSIGNMENT
        self.heartbeat_in_flight = False
        self._failures = self._not_before_ms = 0
        self._rebalance_start_ms = None


def _new_member_id(rng: random.Random | None) -> str:
    """Return a random id as Kafka writes its UUIDs: 22 characters of URL-safe base64."""
    number = os.urandom(16) if rng is None else rng.randbytes(16)
    return base64.urlsafe_b64encode(number).rstrip(b"=").decode()


class SentFields:
    """The fields of the last heartbeat. The next one has only those that have changed since. Thread: lease holder."""

    def __init__(self) -> None:
        self.subscription: frozenset[str] | None = None
        self.owned: LocalAssignment | None = None
        self.pattern: SubscriptionPattern | None = None


class ConsumerHeartbeatRequestManager(HeartbeatManager):
    """Sends heartbeats, and tracks the time since the application last polled.

    A heartbeat is due at the interval that the coordinator names, and at once to join, to report partitions that the
    member has given up or taken over, to leave, and when the subscription has changed. Thread: the holder of the I/O
    lease.
    """

    #: The name of the request in logs.
    request_name = "ConsumerGroupHeartbeat"

    def __init__(
        self,
        config: GroupRebalanceConfig,
        log_context: LogContext,
        membership: ConsumerMembership,
        lookup: CoordinatorRequestManager,
        subscriptions: SubscriptionState,
        latency: Sensor,
        client: NetworkClientDelegate | None = None,
    ) -> None:
        super().__init__(config, log_context, lookup, latency, client)
        self._membership = membership
        self._subscriptions = subscriptions
        self._usual_epoch = self._usual_interval_ms = 0
        self._sent = SentFields()
        self._leaving: RequestFuture[None] | None = None

    def raise_failure(self) -> None:
        """Raise, once, a heartbeat's error that the application must handle.

        Raises:
            TopicAuthorizationError: the consumer may not describe a topic of its subscription. It remains a member,
                and heartbeats go on, so it recovers as soon as the ACL exists.
        """
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    def leave(self, operation: str, reason: str) -> RequestFuture[None] | None:
        """Leave the group with the next poll. Return a future of the answer, or None if nothing is sent."""
        self.failure = None
        if not self._membership.leave(operation) or self._coordinator.unknown:
            return None
        self._log.info("Leaving the group as member %s: %s", self._membership.member_id, reason)
        self._leaving = RequestFuture()
        return self._leaving

    def poll(self, now_ms: int) -> PollResult:
        """Return a heartbeat if one is due and the coordinator is known."""
        membership = self._membership
        state = membership.state
        if not state.sends_heartbeats:
            return NOTHING
        node = self._coordinator.check_and_get()
        if node is None:
            if membership.skip_beat():
                self._log.warning("Left the group without telling the coordinator, which is not known at the moment")
                self._end_leaving(errors.CoordinatorNotAvailableError("the group coordinator is not known"))
            return NOTHING
        subscriptions, sent = self._subscriptions, self._sent
        is_changed = subscriptions.subscription() != sent.subscription or subscriptions.broker_pattern() != sent.pattern
        signals = membership.signals
        if now_ms < self._next_event_ms and signals == self._seen_signals and not is_changed:
            self._rest.wait_ms = self._next_event_ms - now_ms
            return self._rest
        cause = self._lateness(membership.last_poll_ms, now_ms)
        if membership.is_late(now_ms, cause):
            self._warn_of_lateness(cause)
        beat, rest_ms = membership.next_beat(now_ms, is_due=is_changed)
        self._next_event_ms = now_ms + rest_ms
        self._seen_signals = signals
        if beat is None:
            return PollResult(rest_ms)
        request = UnsentRequest(self._builder(beat), node)
        request.future.add_listener(partial(self._answered, beat), partial(self._failed, beat))
        return PollResult(rest_ms, (request,))

    def reset(self) -> None:
        """Send another heartbeat soon, instead of the one in flight."""
        self._sent = SentFields()
        self._membership.interrupted()
        self._next_event_ms = 0

    def _builder(self, beat: Beat) -> RequestBuilder:
        """Return a request with the fields that have changed since the last one; with all, if the member joins."""
        config, sent = self._config, self._sent
        if beat.is_joining:
            self._sent = sent = SentFields()
        fields: dict[str, Any] = {}
        if not beat.is_leaving:
            subscription = self._subscriptions.subscription()
            if sent.subscription is None:
                fields["rebalance_timeout_ms"] = config.rebalance_timeout_ms
                fields["rack_id"] = config.rack_id
                fields["server_assignor"] = config.group_remote_assignor
            if subscription != sent.subscription:
                fields["subscribed_topic_names"] = sorted(subscription)
                sent.subscription = subscription
            pattern = self._subscriptions.broker_pattern()
            if pattern != sent.pattern:
                # An empty expression ends the subscription by pattern.
                fields["subscribed_topic_regex"] = "" if pattern is None else pattern.pattern
                sent.pattern = pattern
            if beat.owned != sent.owned:
                fields["topic_partitions"] = [
                    ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
                    for topic_id, numbers in beat.owned.partitions.items()
                ]
                sent.owned = beat.owned
        request = ConsumerGroupHeartbeatRequest(
            group_id=config.group_id,
            member_id=beat.member_id,
            member_epoch=beat.member_epoch,
            instance_id=config.group_instance_id,
            **fields,
        )
        shortcut = Shortcut(self._usual, partial(self._is_handled, beat, self._next_event_ms))
        builder = StaticMemberBuilder(request, config.group_instance_id, _CLIENT_MADE_MEMBER_IDS, shortcut)
        builder.oldest_allowed_version = _CLIENT_MADE_MEMBER_IDS
        return builder

    # --- answers -----------------------------------------------------------------------------------------------------

    def _is_handled(self, beat: Beat, until_ms: int, request: ClientRequest, now_ms: int) -> bool:
        """Handle the usual response, if it comes before ``until_ms``: until then the application may wait."""
        if self.failure is not None or beat.is_leaving or not self._may_wait(until_ms, now_ms):
            return False
        if not self._membership.confirmed(beat, self._usual_epoch, self._usual_interval_ms):
            return False
        self._latency.record(now_ms - request.created_ms, now_ms)
        return True

    def _answered(self, beat: Beat, response: ClientResponse) -> None:
        self._latency.record(response.request_latency_ms)
        body: ConsumerGroupHeartbeatResponse | ShareGroupHeartbeatResponse = response.response_body
        error = errors.for_code(body.error_code, body.error_message or None)
        if beat.is_leaving:
            self._left(error)
            return
        if error is not None:
            self._refused(beat, error)
            return
        self.failure = None
        assignment = None if body.assignment is None else _partitions(body.assignment)
        if assignment is None and self._client is not None and self._usual.expect(body, response.api_version):
            self._usual_epoch, self._usual_interval_ms = body.member_epoch, body.heartbeat_interval_ms
        self._membership.answered(beat, body.member_epoch, body.heartbeat_interval_ms, assignment)

    def _left(self, error: errors.BrokerError | None) -> None:
        if error is None:
            self._log.debug("The coordinator confirmed that this member left the group")
        elif isinstance(error, (errors.UnknownMemberIdError, errors.GroupIdNotFoundError)):
            self._log.debug("The coordinator had removed this member, or the group, before it left")
            error = None
        else:
            self._log.warning("Leaving the group failed: %s", error)
        self._end_leaving(error)

    def _end_leaving(self, error: KafkaError | None) -> None:
        leaving, self._leaving = self._leaving, None
        if leaving is None:
            return
        if error is None:
            leaving.complete(None)
        else:
            leaving.raise_error(error)

    def _failed(self, beat: Beat, error: Exception) -> None:
        """Handle a request that got no answer."""
        self._sent = SentFields()
        if isinstance(error, DisconnectError):
            self._coordinator.mark_unknown(str(error), is_disconnected=True)
        if beat.is_leaving:
            self._end_leaving(error if isinstance(error, KafkaError) else KafkaError(str(error)))
        elif isinstance(error, UnsupportedVersionError):
            self._fail_for_good(beat, error)
        else:
            self._membership.failed(beat)

    def _refused(self, beat: Beat, error: errors.BrokerError) -> None:
        self._sent = SentFields()
        error = self._coordinator.judged(self.request_name, error)
        if isinstance(error, (errors.NotCoordinatorError, errors.CoordinatorNotAvailableError)):
            self._membership.failed(beat, back_off=False)  # the lookup backs off
        elif isinstance(error, (errors.FencedMemberEpochError, errors.UnknownMemberIdError)) or (
            # To a member that joins, it says that the group is of another type.
            isinstance(error, errors.GroupIdNotFoundError) and beat.member_epoch > 0
        ):
            if self._membership.fenced(beat, self._lost_because(beat, error)):
                self._log.info(
                    "Fenced: the coordinator answered a heartbeat of member %s in epoch %d with %s; joining again",
                    beat.member_id,
                    beat.member_epoch,
                    error,
                )
        elif isinstance(error, errors.TopicAuthorizationError):
            # The coordinator does not say which topics.
            topics = self._subscriptions.subscription()
            self.failure = topics_denied(self._log.principal, topics, "DESCRIBE", "to subscribe to them in a group")
            self._membership.failed(beat)
        elif isinstance(error, RetriableError):
            self._log.debug("A heartbeat failed, and is sent again: %s", error)
            self._membership.failed(beat)
        else:
            self._fail_for_good(beat, self._translated(error))

    def _fail_for_good(self, beat: Beat, error: KafkaError) -> None:
        if self._membership.failed_for_good(beat, error):
            self._log.error("The membership has ended, and is not retried: %s", error)

    def _lost_because(self, beat: Beat, error: errors.BrokerError) -> str:
        if isinstance(error, errors.UnknownMemberIdError):
            return (
                "the coordinator had removed it, most likely as it heard no heartbeat for the group's session timeout "
                "(consumer.session.timeout.ms; the process was paused, starved of CPU or of the GIL, or cut off), or "
                "as it did not give up partitions within max.poll.interval.ms="
                f"{self._config.rebalance_timeout_ms}"
            )
        if isinstance(error, errors.GroupIdNotFoundError):
            return (
                f"the coordinator no longer knows group {self._config.group_id!r}: it was deleted, or the coordinator "
                "has lost the group's records"
            )
        return f"the coordinator knows it in another epoch than {beat.member_epoch}: {error}"

    def _translated(self, error: errors.BrokerError) -> KafkaError:
        """Return an error that says what to do."""
        config = self._config
        if isinstance(error, errors.UnreleasedInstanceIdError):
            return errors.UnreleasedInstanceIdError(
                f"group.instance.id={config.group_instance_id!r} of group {config.group_id!r} is in use by another "
                "member, or by one that crashed and whose session has not expired yet. Make sure that no other process "
                "uses it, and join again (unsubscribe() and subscribe(), or a new consumer) after the group's session "
                "timeout"
            )
        if isinstance(error, errors.UnsupportedAssignorError):
            return errors.UnsupportedAssignorError(
                f"the brokers do not have the assignor group.remote.assignor={config.group_remote_assignor!r}: {error}"
            )
        if isinstance(error, errors.InvalidRegularExpressionError):
            why = str(error).rstrip(".")
            return errors.InvalidRegularExpressionError(
                f"the brokers cannot match {self._subscriptions.broker_pattern()}: {why}. Its syntax is that of RE2/J"
            )
        if isinstance(error, errors.GroupMaxSizeReachedError):
            return errors.GroupMaxSizeReachedError(
                f"group {config.group_id!r} has as many members as the brokers allow (group.consumer.max.size)"
            )
        if isinstance(error, errors.UnsupportedVersionError):
            return UnsupportedVersionError(
                f"the brokers do not serve group.protocol=consumer: {error}. They need Kafka 4.0 or later with the "
                "feature group.version at 1; set group.protocol=classic until then"
            )
        return error


def _partitions(
    assignment: ConsumerGroupHeartbeatResponse.Assignment | ShareGroupHeartbeatResponse.Assignment,
) -> Mapping[UUID, frozenset[int]]:
    return {topic.topic_id: frozenset(topic.partitions) for topic in assignment.topic_partitions if topic.partitions}
