"""Membership by the consumer group protocol (KIP-848): the application reconciles what the coordinator assigns.

Java: AbstractMembershipManager, ConsumerMembershipManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pykclient.consumer.application_driver import NOTHING, PollResult
from pykclient.consumer.coordinator.consumer_membership import (
    FATAL,
    FENCED,
    JOINING,
    RECONCILING,
    STALE,
    UNSUBSCRIBED,
    ConsumerHeartbeatRequestManager,
    LocalAssignment,
)
from pykclient.consumer.coordinator.group_member import GroupCoordinatorMetrics, GroupMember, moved, names
from pykclient.consumer.coordinator.membership import raise_first
from pykclient.types import ConsumerGroupMetadata, TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.consumer.application_driver import RequestFuture, Steps
    from pykclient.consumer.coordinator.commit_request_manager import CommitBeforeRevoke, CommitRequestManager
    from pykclient.consumer.coordinator.consumer_membership import ConsumerMembership
    from pykclient.consumer.coordinator.group_member import MemberContext


class _Reconciliation:
    """The way from the owned partitions to a target assignment. Thread: application."""

    def __init__(
        self,
        incarnation: int,
        assignment: LocalAssignment,
        partitions: list[TopicPartition],
        owned: set[TopicPartition],
    ) -> None:
        self.incarnation = incarnation
        self.assignment = assignment
        self.partitions = partitions
        self.revoked = sorted(owned.difference(partitions))
        self.added = [tp for tp in partitions if tp not in owned]
        self.commit: CommitBeforeRevoke | None = None  # None: there is nothing to commit
        self.is_revoked = self.is_assigned = False  # steps that are not taken again after an interruption
        self.failures: list[Exception | None] = []

    @property
    def is_ready(self) -> bool:
        """True if the application can give up and take over partitions, because nothing is left to commit."""
        return self.commit is None or self.commit.is_done


class _Unresolved(NamedTuple):
    """A target assignment, and the version of the metadata that could not name all of its topics."""

    target: LocalAssignment
    version: int
    retry_ms: int  # the earliest time to look again


class ConsumerMembershipManager(GroupMember):
    """Reconciles a member's assignment with its target.

    The heartbeat thread sends heartbeats and stores the target assignment; only the application's poll gives up and
    takes over partitions. Partitions that do not move are read all the time. Thread: application.
    """

    membership: ConsumerMembership
    heartbeats: ConsumerHeartbeatRequestManager

    def __init__(self, context: MemberContext, membership: ConsumerMembership, commits: CommitRequestManager) -> None:
        super().__init__(context)
        self._commits = commits
        self.membership = membership
        self._sensors = GroupCoordinatorMetrics(context.metrics, membership)
        self.heartbeats = ConsumerHeartbeatRequestManager(
            context.config,
            context.log_context,
            membership,
            context.lookup,
            context.consumer.subscriptions,
            self._sensors.heartbeat,
            context.client,
        )
        self.managers = (self, self.heartbeats)
        self._reconciliation: _Reconciliation | None = None
        self._unresolved: _Unresolved | None = None
        self._why = ""  # the next rebalance happens, for the log
        self._names: dict[UUID, str] = {}  # of the owned topics, also once the metadata has lost them

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        """This member's place in the group, with the member epoch as generation.

        Once the member is fenced, this is its last place: brokers then refuse its offsets in a transaction.
        """
        generation = self.membership.last_generation
        return ConsumerGroupMetadata(
            self._config.group_id, generation.generation_id, generation.member_id, self._config.group_instance_id
        )

    def metadata_updated(self) -> None:
        """Match a pattern with metadata that arrived since the last call."""
        self._pattern.metadata_updated()

    # --- each poll ---------------------------------------------------------------------------------------------------

    @property
    def needs_coordinator(self) -> bool:
        """False while the application must give up partitions, which others may own already."""
        return self.membership.state is UNSUBSCRIBED or not self.needs_application

    @property
    def is_rebalancing(self) -> bool:
        """True while this member joins, or the application must reconcile or give up partitions."""
        if not self._subscriptions.is_auto_assigned:
            return False
        return self.membership.state is JOINING or self.needs_application

    @property
    def needs_application(self) -> bool:
        """True if the application must call ``advance``."""
        if self.heartbeats.failure is not None:
            return True
        state = self.membership.state
        if state is not RECONCILING:
            return state is UNSUBSCRIBED or state is FENCED or state is STALE or state is FATAL
        current = self._reconciliation
        if current is not None:
            return current.is_ready or current.incarnation != self.membership.incarnation
        unresolved = self._unresolved
        if unresolved is None or unresolved.target is not self.membership.target:
            return True
        return self._metadata.update_version != unresolved.version and self._clock.now_ms() >= unresolved.retry_ms

    def advance(self, now_ms: int) -> None:
        """Join the group, or queue the steps that give up and take over partitions.

        Raises the error that ended the membership for good, with each call until the application unsubscribes.

        Raises:
            TopicAuthorizationError: the consumer may not describe a topic of its subscription.
        """
        self.heartbeats.raise_failure()
        membership = self.membership
        state = membership.state
        if state is UNSUBSCRIBED:
            self._why = "this member is new"
            self._log.info("Joining the group as member %s", membership.member_id)
            self._sensors.name_member(membership.member_id)
            membership.begin_joining()
        elif state is FENCED or state is STALE or state is FATAL:
            if self._subscriptions.assigned_partitions() or state is not FATAL:
                self.events.add(self._release())
            elif membership.failure is not None:
                raise membership.failure
        elif state is RECONCILING:
            current = self._reconciliation
            if current is None or current.incarnation != membership.incarnation:
                self._begin(now_ms)
            current = self._reconciliation
            if current is not None and current.is_ready and not self.events:
                self.events.add(self._reconcile(current))

    # --- reconciliation ----------------------------------------------------------------------------------------------

    def _begin(self, now_ms: int) -> None:
        """Begin to reconcile the part of the target whose topics have known names."""
        membership = self.membership
        incarnation, target = membership.incarnation, membership.target
        if self._subscriptions.broker_pattern() is not None and self._subscriptions.set_assigned_topic_ids(
            target.partitions
        ):
            self._metadata.request_update_for_new_topics()
        version = self._metadata.update_version
        resolved = self._resolve(target)
        self._unresolved = None
        if len(resolved) < len(target.partitions):
            unknown = [str(topic_id) for topic_id in target.partitions if topic_id not in resolved]
            self._log.info("Waiting for metadata of assigned topics with the ids %s", ", ".join(sorted(unknown)))
            self._metadata.request_update(False)
            self._unresolved = _Unresolved(target, version, now_ms + self._config.retry_backoff_ms)
            kept = {topic_id: target.partitions[topic_id] for topic_id in resolved}
            if kept == membership.owned.partitions:
                return  # nothing to do until the names are known
            target = LocalAssignment(target.number, kept)
        partitions = sorted(
            TopicPartition(name, number)
            for topic_id, name in resolved.items()
            for number in target.partitions[topic_id]
        )
        owned = self._subscriptions.assigned_partitions()
        current = self._reconciliation = _Reconciliation(incarnation, target, partitions, owned)
        self._names = dict(resolved)
        self._log.info(
            "Assigned by the coordinator in epoch %d: %d partitions; new: %s; to give back: %s",
            membership.generation.generation_id,
            len(partitions),
            names(current.added),
            names(current.revoked),
        )
        if current.revoked:
            self._subscriptions.mark_pending_revocation(current.revoked)
            current.commit = self._commits.commit_before_revoke(now_ms)

    def _resolve(self, target: LocalAssignment) -> dict[UUID, str]:
        """Return the names of the target's topics, as far as they are known."""
        known = self._metadata.topic_names
        resolved = {}
        for topic_id in target.partitions:
            name = known.get(topic_id) or self._names.get(topic_id)
            if name is not None:
                resolved[topic_id] = name
        return resolved

    def poll(self, now_ms: int) -> PollResult:
        """Commit before partitions are revoked, or look for the names of topics."""
        current = self._reconciliation
        if current is None or current.commit is None:
            unresolved = self._unresolved
            if unresolved is None or unresolved.version == self._metadata.update_version:
                return NOTHING
            # After that time only a poll of the application goes on, and this must not end other waits.
            return PollResult(unresolved.retry_ms - now_ms) if now_ms < unresolved.retry_ms else NOTHING
        commit = current.commit
        wait_ms = commit.poll(now_ms)
        if commit.is_done:
            current.commit = None
        return PollResult(wait_ms)

    def reset(self) -> None:
        """Do nothing: a commit in flight fails, and is retried."""

    def _reconcile(self, current: _Reconciliation) -> Steps[None]:
        """Give up and take over partitions. If this is interrupted, the next poll resumes there."""
        if not current.is_revoked:
            if current.revoked:
                current.failures.append((yield from self._listeners.invoke("revoked", current.revoked)))
            current.is_revoked = True
        subscriptions = self._subscriptions
        if not self.membership.is_current(current.incarnation) and subscriptions.is_auto_assigned:
            # The membership has ended during the callback. What it has given up is not lost as well.
            subscriptions.assign_from_subscribed(subscriptions.assigned_partitions().difference(current.revoked))
        if not self._is_relevant(current):
            return
        if not current.is_assigned:
            subscriptions.assign_from_subscribed_awaiting_callback(current.partitions, current.added)
            current.is_assigned = True
        current.failures.append((yield from self._listeners.invoke("assigned", current.added)))
        if not self._is_relevant(current):
            return
        subscriptions.enable_partitions_awaiting_callback(current.added)
        self._commits.reschedule_auto_commit()
        self._reconciliation = None
        why = self.membership.lost_because or self._why
        self._why = "the coordinator changed the assignment"
        duration_ms = self.membership.reconciled(current.incarnation, current.assignment)
        if duration_ms is not None:
            self._sensors.successful_rebalance.record(duration_ms)
            self._log.info(
                "Rebalanced in %d ms to %s: gained %s, gave back %s, has %d partitions. Why: %s",
                duration_ms,
                self.membership.generation,
                moved(current.added),
                moved(current.revoked),
                len(current.partitions),
                why,
            )
        raise_first(current.failures)

    def _is_relevant(self, current: _Reconciliation) -> bool:
        """Return False if the membership has ended meanwhile, and drop the reconciliation then."""
        if self.membership.is_current(current.incarnation) and self._reconciliation is current:
            return True
        self._log.info("The membership has ended during the rebalance")
        if self._reconciliation is current:
            self._reconciliation = None
        raise_first(current.failures)
        return False

    # --- the end of a membership -------------------------------------------------------------------------------------

    def _release(self) -> Steps[None]:
        """Lose all partitions, which others may own already; then join again, unless that would not help."""
        if self.membership.lost_in_rebalance:
            self._sensors.failed_rebalance.record()
        failure = yield from self._lose()
        self._drop_reconciliation()
        state = self.membership.state
        if state is FENCED or state is STALE:
            self._log.info(
                "Joining the group again as member %s: %s", self.membership.member_id, self.membership.lost_because
            )
            self.membership.begin_joining()
        raise_first([failure])

    def _lose(self) -> Steps[Exception | None]:
        owned = self._subscriptions.assigned_partitions()
        failure: Exception | None = None
        if owned:
            failure = yield from self._listeners.invoke("lost", owned)
            self._subscriptions.assign_from_subscribed(())
        return failure

    def _drop_reconciliation(self) -> None:
        self._reconciliation = self._unresolved = None
        self._names = {}

    def stop(self) -> None:
        """End the rebalance, as the application leaves the group."""
        self.events.clear()
        self._drop_reconciliation()

    def revoke_all(self) -> Steps[None]:
        """Give up all partitions, as this member is about to leave.

        Raises:
            KafkaError: the listener raised; this is complete nevertheless.
        """
        if not self._subscriptions.is_auto_assigned:
            return
        owned = self._subscriptions.assigned_partitions()
        failure: Exception | None
        if self.membership.prepare_leaving() and owned:
            failure = yield from self._listeners.invoke("revoked", owned)
            self._subscriptions.assign_from_subscribed(())
        else:
            failure = yield from self._lose()
        raise_first([failure])

    def leave(
        self,
        operation: str,
        reason: str,
        *,
        is_closing: bool = False,  # noqa: ARG002 - GroupMember's signature: there is one connection to the coordinator
    ) -> RequestFuture[None] | None:
        """End the membership; notify the coordinator if this is a member and ``operation`` allows it.

        Return the future of the request, or None without one. Thread: the holder of the I/O lease.
        """
        return self.heartbeats.leave(operation, reason)
