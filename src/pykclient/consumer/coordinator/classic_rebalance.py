"""Membership by the classic group protocol: JoinGroup and SyncGroup, which lead to an assignment.

Java: AbstractCoordinator and ConsumerCoordinator; the other protocol's ConsumerMembershipManager has such a state
machine. KIP-394 (member ids), KIP-559 (protocol names), KIP-800 (reasons), KIP-814 (a returning static leader does not
assign).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pykclient import errors
from pykclient.clock import FOREVER_MS
from pykclient.consumer.application_driver import ApplicationEvents
from pykclient.consumer.coordinator import group_requests
from pykclient.consumer.coordinator.classic_assignment import ConsumerGroupProtocol
from pykclient.consumer.coordinator.classic_membership import HeartbeatRequestManager, LeaveGroupRequestManager
from pykclient.consumer.coordinator.coordinator_request_manager import handled
from pykclient.consumer.coordinator.group_member import ClassicMemberMetrics, moved
from pykclient.consumer.coordinator.membership import (
    ASSIGNING,
    COMMITTING,
    DISTRIBUTING,
    ELECTED,
    JOINED,
    JOINING,
    PREPARING,
    READY,
    REFRESHING,
    RESTING,
    STABLE,
    SYNCING,
    Generation,
    RebalanceStep,
    fenced_error,
    step,
)
from pykclient.consumer.request_manager import NOTHING, PollResult, UnsentRequest
from pykclient.errors import (
    DisconnectError,
    IllegalArgumentError,
    KafkaError,
    KafkaTimeoutError,
    MemberIdRequiredError,
    RetriableError,
)
from pykclient.network.failures import group_denied

if TYPE_CHECKING:
    from pykclient.clock import Clock
    from pykclient.consumer.application_driver import NetworkClientDelegate, Steps
    from pykclient.consumer.coordinator.classic_membership import ClassicMembership
    from pykclient.consumer.coordinator.commit_request_manager import CommitBeforeRevoke, CommitRequestManager
    from pykclient.consumer.coordinator.coordinator_request_manager import CoordinatorRequestManager
    from pykclient.consumer.coordinator.group_member import MemberContext
    from pykclient.consumer.coordinator.membership import GroupRebalanceConfig
    from pykclient.consumer.request_manager import RequestFuture
    from pykclient.log_context import LogContext
    from pykclient.network.exponential_backoff import ExponentialBackoff
    from pykclient.network.metadata import Cluster, Metadata
    from pykclient.protocol.messages.join_group import JoinGroupResponse
    from pykclient.protocol.messages.sync_group import SyncGroupResponse
    from pykclient.types import ConsumerGroupMetadata, TopicPartition


if TYPE_CHECKING:
    Members = Sequence[JoinGroupResponse.JoinGroupResponseMember]
#: The coordinator answers JoinGroup within the rebalance timeout; this is added for the network.
JOIN_GROUP_TIMEOUT_LAPSE_MS = 5000
#: A rebalance that failed with one of these errors is restarted at once.
_REJOIN_AT_ONCE = (
    errors.UnknownMemberIdError,
    errors.IllegalGenerationError,
    errors.RebalanceInProgressError,
    MemberIdRequiredError,
)


class _Rebalance(NamedTuple):
    """A rebalance as its log line tells of it: its beginning, its reason, and the partitions owned before it."""

    began_ms: int
    reason: str
    owned: frozenset[TopicPartition]


class UnjoinedGroupError(RetriableError):
    """The member left the group while JoinGroup was in flight."""


class GroupProtocol(Protocol):
    """The part of a rebalance that depends on the kind of group member, such as a consumer. Thread: application."""

    @property
    def protocol_type(self) -> str:
        """The protocol type, equal for all members of a group."""

    @property
    def owned(self) -> Collection[TopicPartition]:
        """The partitions that this member owns."""

    @property
    def needs_fresh_metadata(self) -> bool:
        """True if the subscription is a pattern, which is matched before joining."""

    def metadata_updated(self) -> None:
        """Process metadata that arrived since the last call."""

    def suspend(self) -> None:
        """Return no more records of partitions that are about to be revoked."""

    def revoke(self, generation: Generation) -> Steps[None]:
        """Give up partitions before joining again, after ``generation``."""

    def offers(self) -> Steps[Sequence[tuple[str, bytes]]]:
        """Return the offered protocols (assignors) with their metadata, the preferred one first."""

    def elect(self, protocol_name: str, members: Members, skip_assignment: bool) -> None:
        """Begin to assign, as the leader, by watching the topics of all members."""

    def distribute(self) -> Steps[Mapping[str, bytes]]:
        """Return each member's assignment, as the leader."""

    @property
    def awaits_topics(self) -> bool:
        """True if the leader must have fresh metadata before it sends the assignment."""

    def distributed(self) -> None:
        """Continue to assign with the metadata that ``awaits_topics`` waited for."""

    def assigned(self, generation: Generation, assignment: bytes) -> Steps[None]:
        """Apply the assignment. If this raises, the next poll of the application runs it again."""


class ClassicMembershipManager:
    """Runs rebalances of the classic protocol, in the steps of ``membership``.

    Only ``advance`` begins a rebalance, so that it begins inside of ``poll()`` of the application, before that looks
    for records. Thread: application.
    """

    runs_in_background = False
    pending = True

    def __init__(
        self,
        config: GroupRebalanceConfig,
        log_context: LogContext,
        client: NetworkClientDelegate,
        membership: ClassicMembership,
        coordinator: CoordinatorRequestManager,
        commits: CommitRequestManager,
        metadata: Metadata,
        clock: Clock,
        retry_backoff: ExponentialBackoff,
        sensors: ClassicMemberMetrics,
        protocol: GroupProtocol,
        events: ApplicationEvents,
        joined_after_leaving: Callable[[str], None],
    ) -> None:
        self._config = config
        self._log = log_context.logger(__name__)
        self._client = client
        self._membership = membership
        self._coordinator = coordinator
        self._commits = commits
        self._metadata = metadata
        self._clock = clock
        self._retry_backoff = retry_backoff
        self._sensors = sensors
        self._protocol = protocol
        self._events = events
        self._joined_after_leaving = joined_after_leaving
        self._step = RESTING
        self._failure: Exception | None = None  # for the application
        self._fresh_after: int | None = None  # the version of the metadata that a newer one is awaited for
        self._deadline_ms = FOREVER_MS  # of ELECTED and JOINED
        self._commit: CommitBeforeRevoke | None = None
        self._must_revoke = False
        self._offered: Sequence[tuple[str, bytes]] = ()
        self._failures = 0
        self._next_join_ms = clock.now_ms()
        self._generation: Generation | None = None  # of the rebalance in progress
        self._rebalance: _Rebalance | None = None  # the one in progress, with all its attempts
        self._is_leader = False
        self._assignments: Mapping[str, bytes] = {}  # by the leader
        self._assignment = b""  # of this member

    # --- for the application's poll ----------------------------------------------------------------------------------

    @property
    def is_joining(self) -> bool:
        """True while JoinGroup or SyncGroup is in flight, which the coordinator may hold back for minutes."""
        return self._step is JOINING or self._step is SYNCING

    @property
    def is_join_in_flight(self) -> bool:
        """True while JoinGroup is in flight."""
        return self._step is JOINING

    @property
    def is_pending(self) -> bool:
        """True between the beginning and the end of a rebalance."""
        return self._step is not RESTING

    @property
    def needs_application(self) -> bool:
        """True if the application must call ``advance``."""
        if self._step is REFRESHING:
            return self._has_fresh_metadata()
        return self._step.needs_application or self._failure is not None

    def advance(self, now_ms: int) -> None:
        """Begin a rebalance, or queue the next steps of the application.

        Raises the error of an attempt that no retry will fix; the next call begins another one.
        """
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if self._step is RESTING and self._protocol.needs_fresh_metadata:
            # Members see a new topic at different times, and each would rebalance the group. Checking the metadata
            # first makes one rebalance enough. It must have been matched once before joining anyway.
            if self._metadata.time_to_allow_update(now_ms) == 0:
                self._metadata.request_update(True)
            self._await_fresh_metadata(now_ms)
            self._move(REFRESHING)
        if self._step is RESTING or (self._step is REFRESHING and self._has_fresh_metadata()):
            self._protocol.metadata_updated()
            self._begin(now_ms)
        if self._step.needs_application and not self._events:
            # Also again, if an exception has interrupted them.
            if self._step is PREPARING:
                self._events.add(self._prepare())
            elif self._step is DISTRIBUTING:
                self._events.add(self._distribute())
            elif self._step is ASSIGNING:
                self._events.add(self._assign())

    def _begin(self, now_ms: int) -> None:
        if self._rebalance is None:
            reason = self._membership.rejoin_reason or "this member is new"
            self._rebalance = _Rebalance(now_ms, reason, frozenset(self._protocol.owned))
        # Taken first, so that an application callback that raises is not called again by the next poll().
        self._must_revoke = self._must_revoke or self._membership.take_join_prepare()
        self._commit = self._commits.commit_before_revoke(now_ms) if self._must_revoke else None
        if self._commit is not None:
            self._protocol.suspend()
        self._move(PREPARING if self._commit is None else COMMITTING)

    def stop(self) -> None:
        """End the rebalance, as the application leaves the group."""
        self._events.clear()
        self._failure = self._rebalance = None
        self._must_revoke = False
        if not self.is_joining:  # then the response ends it
            self._move(RESTING)

    def _move(self, to: RebalanceStep) -> None:
        self._step = step(self._step, to)

    # --- the application's steps -------------------------------------------------------------------------------------

    def _prepare(self) -> Steps[None]:
        must_revoke, self._must_revoke = self._must_revoke, False
        try:
            if must_revoke:
                yield from self._protocol.revoke(self._membership.generation)
            self._offered = yield from self._protocol.offers()
        except Exception:
            self._move(RESTING)
            raise
        self._move(READY)

    def _distribute(self) -> Steps[None]:
        try:
            self._assignments = yield from self._protocol.distribute()
        except Exception as error:
            self._attempt_failed(error)
            self._failure = None  # raised here
            raise
        if self._protocol.awaits_topics:
            self._await_fresh_metadata(self._clock.now_ms())
        self._move(JOINED)

    def _assign(self) -> Steps[None]:
        generation, state = self._membership.snapshot()
        if generation.is_reset or state is not STABLE:
            # The heartbeat has shown that the membership ended after SyncGroup was answered.
            self._move(RESTING)
            reason = f"{generation} ended in {state} during the rebalance"
            self._membership.reset_and_rejoin(reason, reset_member_id=True)
            return
        yield from self._protocol.assigned(generation, self._assignment)
        # Only now, so that the next poll completes an application callback that was woken up.
        self._failures = 0
        self._membership.need_join_prepare()
        self._move(RESTING)
        self._log_rebalance(generation)

    def _log_rebalance(self, generation: Generation) -> None:
        """Log who rebalanced, why, for how long, and what has moved."""
        done, self._rebalance = self._rebalance, None
        if done is None:
            return
        owned = frozenset(self._protocol.owned)
        self._log.info(
            "Rebalanced in %d ms to %s%s: gained %s, gave back %s, has %d partitions. Why: %s",
            self._clock.now_ms() - done.began_ms,
            generation,
            " as leader" if self._is_leader else "",
            moved(owned - done.owned),
            moved(done.owned - owned),
            len(owned),
            done.reason,
        )

    # --- metadata ----------------------------------------------------------------------------------------------------

    def _await_fresh_metadata(self, now_ms: int) -> None:
        """Wait for an update if one is due."""
        self._fresh_after = None
        if self._metadata.update_requested or self._metadata.time_to_next_update(now_ms) == 0:
            self._fresh_after = self._metadata.request_update(False)

    def _has_fresh_metadata(self) -> bool:
        return self._fresh_after is None or self._metadata.update_version > self._fresh_after

    # --- requests ----------------------------------------------------------------------------------------------------

    def poll(self, now_ms: int) -> PollResult:
        """Return the request that is due."""
        current = self._step
        commit = self._commit
        if current is COMMITTING and commit is not None:
            wait_ms = commit.poll(now_ms)
            if commit.is_done:
                self._commit = None
                self._move(PREPARING)
            return PollResult(wait_ms)
        if current is READY:
            return self._join(now_ms)
        if current is ELECTED or current is JOINED:
            return self._await_metadata_of_group(now_ms)
        return NOTHING

    def reset(self) -> None:
        """Fail the request in flight."""
        if self.is_joining:
            self._coordinator.mark_unknown("the connection was closed", is_disconnected=True)
            self._attempt_failed(DisconnectError("an exception interrupted the call that was using the connection"))

    def _join(self, now_ms: int) -> PollResult:
        if self._membership.needs_join_prepare:
            self._move(RESTING)  # the membership has ended since, and the application must give up its partitions
            return PollResult(0)
        if now_ms < self._next_join_ms:
            return PollResult(self._next_join_ms - now_ms)
        node = self._coordinator.check_and_get()
        if node is None:
            self._coordinator.look_up()
            self._failure = self._coordinator.take_fatal_error()
            return NOTHING
        config = self._config
        sent, reason = self._membership.begin_rebalance()
        self._log.info("Joining the group%s", f": {reason}" if reason else "")
        builder = group_requests.join_group(config, sent, self._protocol.protocol_type, self._offered, reason)
        # The coordinator holds the response until all members have joined, or the rebalance timeout has passed.
        timeout_ms = max(
            self._client.default_request_timeout_ms, config.rebalance_timeout_ms + JOIN_GROUP_TIMEOUT_LAPSE_MS
        )
        request = UnsentRequest(builder, node, min(timeout_ms, 2**31 - 1))
        joined: RequestFuture[JoinGroupResponse] = handled(
            self._coordinator, request.future, partial(self._handle_join, sent), self._sensors.join.record
        )
        joined.add_listener(self._joined, self._attempt_failed)
        self._move(JOINING)
        return PollResult(requests=(request,))

    def _await_metadata_of_group(self, now_ms: int) -> PollResult:
        if not self._has_fresh_metadata():
            if now_ms < self._deadline_ms:
                return PollResult(self._deadline_ms - now_ms)
            timeout_ms = self._config.rebalance_timeout_ms
            self._attempt_failed(
                KafkaTimeoutError(
                    f"as leader of group {self._config.group_id!r}, no metadata of its topics within {timeout_ms} ms: "
                    f"{self._client.connection_report() or 'no broker answered'}"
                )
            )
            return PollResult(0)
        if self._step is ELECTED:
            self._fresh_after = None
            self._move(DISTRIBUTING)
            return PollResult(0)
        return self._sync()

    def _sync(self) -> PollResult:
        sent = self._generation
        node = self._coordinator.check_and_get()
        if node is None or sent is None:
            self._attempt_failed(errors.CoordinatorNotAvailableError("the group coordinator is not known"))
            return PollResult(0)
        if self._is_leader:
            self._protocol.distributed()
        builder = group_requests.sync_group(self._config, sent, self._protocol.protocol_type, self._assignments)
        request = UnsentRequest(builder, node)
        synced: RequestFuture[bytes] = handled(
            self._coordinator, request.future, partial(self._handle_sync, sent), self._sensors.sync.record
        )
        synced.add_listener(self._synced, self._attempt_failed)
        self._move(SYNCING)
        return PollResult(requests=(request,))

    def _attempt_failed(self, error: Exception) -> None:
        """Begin again, after a backoff where that may help; other errors are the application's."""
        self._move(RESTING)
        self._sensors.failed_rebalance.record()
        name = type(error).__name__
        if not isinstance(error, MemberIdRequiredError):  # which has already requested it
            self._membership.request_rejoin(f"rebalance failed due to {name}", f"the rebalance failed: {name}: {error}")
        if isinstance(error, _REJOIN_AT_ONCE):
            return
        if not isinstance(error, RetriableError):
            self._failure = error
            return
        self._next_join_ms = self._clock.now_ms() + self._retry_backoff.backoff(self._failures)
        self._failures += 1

    # --- JoinGroup ---------------------------------------------------------------------------------------------------

    def _handle_join(
        self, sent: Generation, response: JoinGroupResponse, future: RequestFuture[JoinGroupResponse]
    ) -> None:
        error = errors.for_code(response.error_code)
        if error is not None:
            future.raise_error(self._join_failed(error, response, sent))
            return
        if self._other_protocol_type(response.protocol_type):
            future.raise_error(self._inconsistent(f"is of type {response.protocol_type!r}"))
            return
        generation = Generation(response.generation_id, response.member_id, response.protocol_name)
        if not self._membership.joined(generation):
            self._joined_after_leaving(response.member_id)
            future.raise_error(UnjoinedGroupError("the group was left before the answer to JoinGroup came"))
            return
        is_leader = response.leader == response.member_id
        self._log.info("Joined %s%s", generation, " as leader" if is_leader else "")
        self._sensors.name_member(response.member_id)
        self._generation = generation
        if is_leader:
            self._protocol.elect(response.protocol_name or "", response.members, response.skip_assignment)
        future.complete(response)

    def _joined(self, response: JoinGroupResponse) -> None:
        self._assignments = {}
        self._fresh_after = None
        now_ms = self._clock.now_ms()
        self._deadline_ms = now_ms + self._config.rebalance_timeout_ms
        self._is_leader = response.leader == response.member_id
        if self._is_leader:
            self._await_fresh_metadata(now_ms)
            self._move(ELECTED)
        else:
            self._move(JOINED)

    def _join_failed(self, error: errors.BrokerError, response: JoinGroupResponse, sent: Generation) -> KafkaError:
        """Apply an error of the broker to the membership, and return the error of the attempt."""
        log = self._log
        if isinstance(error, errors.MemberIdRequiredError):
            log.debug("The coordinator gave the member id %s to join with", response.member_id)
            self._membership.member_id_assigned(response.member_id)
        elif isinstance(error, errors.UnknownMemberIdError):
            reason = "JoinGroup: the coordinator does not know the member id"
            self._membership.reset_if_unchanged(sent, reason, reset_member_id=True, lost_because=reason)
        elif isinstance(error, (errors.CoordinatorNotAvailableError, errors.NotCoordinatorError)):
            self._coordinator.mark_unknown(f"JoinGroup: {error}")
        elif isinstance(error, errors.CoordinatorLoadInProgressError):
            log.info("The group coordinator is still loading the group")
        elif isinstance(error, errors.RebalanceInProgressError):
            log.info("The coordinator could not complete the rebalance (REBALANCE_IN_PROGRESS); joining again")
        elif isinstance(error, errors.FencedInstanceIdError):
            error = fenced_error(self._config)
            log.error("JoinGroup failed and is not retried: %s", error)
        elif isinstance(error, errors.GroupMaxSizeReachedError):
            error = errors.GroupMaxSizeReachedError(
                f"group {self._config.group_id!r} has as many members as the brokers allow (group.max.size)"
            )
        elif isinstance(error, errors.GroupAuthorizationError):
            error = group_denied(self._log.principal, self._config.group_id)
        elif isinstance(error, errors.InconsistentGroupProtocolError):
            error = self._inconsistent("has members that share no assignor with it")
            log.error("JoinGroup failed and is not retried: %s", error)
        elif isinstance(error, errors.InvalidSessionTimeoutError):
            error = errors.InvalidSessionTimeoutError(
                f"the brokers do not allow session.timeout.ms={self._config.session_timeout_ms}: they have limits "
                f"for it (group.min.session.timeout.ms, group.max.session.timeout.ms)"
            )
        elif not isinstance(error, (errors.InvalidGroupIdError, errors.UnsupportedVersionError, RetriableError)):
            return _unexpected("JoinGroup", error)
        return error

    # --- SyncGroup ---------------------------------------------------------------------------------------------------

    def _handle_sync(self, sent: Generation, response: SyncGroupResponse, future: RequestFuture[bytes]) -> None:
        error = errors.for_code(response.error_code)
        if error is not None:
            future.raise_error(self._sync_failed(error, sent))
            return
        if self._other_protocol_type(response.protocol_type):
            future.raise_error(self._inconsistent(f"is of type {response.protocol_type!r}"))
            return
        if response.protocol_name is not None and response.protocol_name != sent.protocol_name:
            future.raise_error(self._inconsistent(f"uses {response.protocol_name!r}, not {sent.protocol_name!r}"))
            return
        complete, duration_ms = self._membership.synced(sent)
        if not complete:
            # A heartbeat has meanwhile shown that the membership has ended. ILLEGAL_GENERATION makes the member start
            # again at once.
            self._log.info("%s ended before the response to SyncGroup arrived; joining again", sent)
            future.raise_error(errors.IllegalGenerationError("the membership ended during the rebalance"))
            return
        self._log.debug("The group is stable at %s", sent)
        self._sensors.successful_rebalance.record(duration_ms)
        future.complete(response.assignment)

    def _synced(self, assignment: bytes) -> None:
        self._assignment = assignment
        self._move(ASSIGNING)

    def _sync_failed(self, error: errors.BrokerError, sent: Generation) -> KafkaError:
        """Apply an error of the broker to the membership, and return the error of the attempt."""
        if isinstance(error, errors.GroupAuthorizationError):
            return group_denied(self._log.principal, self._config.group_id)
        if isinstance(error, errors.RebalanceInProgressError):
            self._log.info("Another rebalance started before the response to SyncGroup arrived")
        elif isinstance(error, errors.FencedInstanceIdError):
            error = fenced_error(self._config)
            self._log.error("SyncGroup failed and is not retried: %s", error)
        elif isinstance(error, (errors.UnknownMemberIdError, errors.IllegalGenerationError)):
            # After ILLEGAL_GENERATION the coordinator may still know the member id.
            reset_member_id = isinstance(error, errors.UnknownMemberIdError)
            reason = f"SyncGroup: {error}"
            self._membership.reset_if_unchanged(sent, reason, reset_member_id=reset_member_id, lost_because=reason)
        elif isinstance(error, (errors.CoordinatorNotAvailableError, errors.NotCoordinatorError)):
            self._coordinator.mark_unknown(f"SyncGroup: {error}")
        elif isinstance(error, RetriableError):
            # Java's application gets these. A new coordinator answers so while it loads the group.
            self._log.info("SyncGroup failed, joining again: %s", error)
        else:
            return _unexpected("SyncGroup", error)
        return error

    def _other_protocol_type(self, protocol_type: str | None) -> bool:
        return protocol_type is not None and protocol_type != self._protocol.protocol_type

    def _inconsistent(self, what: str) -> errors.InconsistentGroupProtocolError:
        ours = self._protocol.protocol_type
        names = ", ".join(name for name, _ in self._offered)
        return errors.InconsistentGroupProtocolError(
            f"group {self._config.group_id!r} {what}; this member is of type {ours!r} and offers {names or 'nothing'} "
            f"(partition.assignment.strategy)"
        )


def _unexpected(api: str, error: errors.BrokerError) -> errors.KafkaError:
    wrapped = errors.KafkaError(f"unexpected error in the answer to {api}: {error}")
    wrapped.__cause__ = error
    return wrapped


class ClassicMember:
    """A member that joins by JoinGroup and SyncGroup. Implements GroupMember. Thread: application."""

    def __init__(self, context: MemberContext, membership: ClassicMembership, commits: CommitRequestManager) -> None:
        config, log_context, lookup, clock = context.config, context.log_context, context.lookup, context.clock
        self.membership = membership
        self._subscriptions = context.consumer.subscriptions
        self.events = ApplicationEvents()
        sensors = ClassicMemberMetrics(context.metrics, membership)
        self.protocol = ConsumerGroupProtocol(
            config, log_context, membership, commits, context.consumer, context.listeners
        )
        self.leaving = LeaveGroupRequestManager(
            config,
            log_context,
            membership,
            lookup,
            clock,
            context.retry_backoff,
            lambda: self.rebalance.is_joining,
            lambda: self.rebalance.is_join_in_flight,
        )
        self.rebalance = ClassicMembershipManager(
            config,
            log_context,
            context.client,
            membership,
            lookup,
            commits,
            context.consumer.metadata,
            clock,
            context.retry_backoff,
            sensors,
            self.protocol,
            self.events,
            self.leaving.joined_after_leaving,
        )
        self.heartbeats = HeartbeatRequestManager(
            config, log_context, membership, lookup, sensors.heartbeat, self.leaving, context.client
        )
        self.managers = (self.rebalance, self.heartbeats, self.leaving)

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        """This member's place in the group, as of the last completed join."""
        return self.protocol.group_metadata

    def check_subscription(self) -> None:
        """Raise IllegalStateError if there are no assignors."""
        self.protocol.check_assignors()

    def check_broker_pattern(self) -> None:
        """Raise IllegalArgumentError: with this protocol, members match patterns."""
        raise IllegalArgumentError(
            "the brokers match patterns only with group.protocol=consumer; set that, or subscribe to re.compile(...), "
            "which the client matches"
        )

    def metadata_updated(self) -> None:
        """Process metadata that arrived since the last call."""
        self.protocol.metadata_updated()

    def update_pattern_subscription(self, cluster: Cluster) -> None:
        """Subscribe to the topics that match the pattern now."""
        self.protocol.update_pattern_subscription(cluster)

    # --- each poll ---------------------------------------------------------------------------------------------------

    def raise_failure(self) -> None:
        """Raise the error that ended the membership, once; joining starts the heartbeats again."""
        failure, self.heartbeats.failure = self.heartbeats.failure, None
        if failure is not None:
            self.heartbeat_thread_failed(failure)
            raise failure

    def polled(self, now_ms: int, call_ms: int) -> None:
        """Record that the application is alive, in a call that waits for ``call_ms`` at most."""
        if self.membership.poll_heartbeat(now_ms, call_ms):
            self.heartbeats.check_soon()

    def heartbeat_thread_failed(self, failure: Exception) -> None:
        """Join again, as the coordinator may have removed this member meanwhile."""
        self.membership.request_rejoin_if_necessary("heartbeats failed", f"heartbeats failed: {failure}")

    @property
    def needs_coordinator(self) -> bool:
        """True, because every rebalance begins with JoinGroup."""
        return True

    @property
    def is_rebalancing(self) -> bool:
        """True if this member must join, or complete a join in progress."""
        if not self._subscriptions.is_auto_assigned:
            return False
        return self.rebalance.is_pending or self.protocol.rejoin_needed()

    @property
    def needs_application(self) -> bool:
        """True if the application must call ``advance``."""
        return self.rebalance.needs_application

    def advance(self, now_ms: int) -> None:
        """Begin a rebalance, or queue the next steps of the application.

        Raises the error of an attempt that no retry will fix; the next call begins another one.
        """
        self.rebalance.advance(now_ms)

    def request_rejoin(self, short_reason: str, full_reason: str | None = None) -> None:
        """Join again in the next poll."""
        self.membership.request_rejoin(short_reason, full_reason)

    # --- leaving -----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End the rebalance, as the application leaves the group."""
        self.rebalance.stop()

    def revoke_all(self) -> Steps[None]:
        """Give up all partitions, as this member is about to leave."""
        return self.protocol.revoke_all()

    @property
    def waits_for_others(self) -> bool:
        """True while the coordinator's own connection may be held up for minutes."""
        return self.leaving.waits_for_others

    def leave(self, operation: str, reason: str, *, is_closing: bool = False) -> RequestFuture[None] | None:
        """End the membership; send LeaveGroup if this is a member and ``operation`` allows it.

        Return the future of the request, or None without one. Thread: the holder of the I/O lease.
        """
        return self.leaving.leave(operation, reason, is_closing=is_closing)
