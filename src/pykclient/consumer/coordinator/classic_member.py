"""A membership by the classic group protocol: its managers, put together (Java: ConsumerCoordinator)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.consumer.application_events import ApplicationEvents
from pykclient.consumer.coordinator.classic_membership_manager import ClassicMembershipManager
from pykclient.consumer.coordinator.consumer_group_protocol import ConsumerGroupProtocol
from pykclient.consumer.coordinator.coordinator_metrics import ClassicMemberMetrics
from pykclient.consumer.coordinator.heartbeat_request_manager import HeartbeatRequestManager
from pykclient.consumer.coordinator.leave_group_request_manager import LeaveGroupRequestManager
from pykclient.consumer.coordinator.usual_answer import UsualAnswer
from pykclient.errors import IllegalArgumentError

if TYPE_CHECKING:
    from pykclient.consumer.application_events import Steps
    from pykclient.consumer.coordinator.commit_request_manager import CommitRequestManager
    from pykclient.consumer.coordinator.group_membership import GroupMembership
    from pykclient.consumer.coordinator.member_context import MemberContext
    from pykclient.consumer.request_future import RequestFuture
    from pykclient.network.cluster import Cluster
    from pykclient.types import ConsumerGroupMetadata


class ClassicMember:
    """A member that joins by JoinGroup and SyncGroup. Implements GroupMember. Thread: application."""

    def __init__(self, context: MemberContext, membership: GroupMembership, commits: CommitRequestManager) -> None:
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
            config, log_context, membership, lookup, sensors.heartbeat, self.leaving, UsualAnswer(context.client)
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
        """Begin a rebalance, or queue the steps of the application that are next.

        Raises the error of an attempt that no retry will mend; the next call begins another one.
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
        """End the membership; send LeaveGroup, unless there is nothing to leave or ``operation`` says to stay.

        Return the future of the request, or None without one. Thread: the holder of the I/O lease.
        """
        return self.leaving.leave(operation, reason, is_closing=is_closing)
