"""Membership in a share group: the consumer fetches from the partitions that the coordinator assigns.

Java: ShareMembershipManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.consumer.coordinator.consumer_member_state import (
    FATAL,
    FENCED,
    RECONCILING,
    STALE,
    UNSUBSCRIBED,
    LocalAssignment,
)
from pykclient.consumer.coordinator.rebalance_listener_invoker import names
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.consumer.consumer_metadata import ConsumerMetadata
    from pykclient.consumer.coordinator.consumer_membership import ConsumerMembership
    from pykclient.consumer.share.share_metrics import ShareCoordinatorMetrics
    from pykclient.consumer.subscription_state import SubscriptionState
    from pykclient.log_context import LogContext


class ShareMembershipManager:
    """Takes a member from one assignment to the next.

    There is nothing to give up first: members of a share group own no partitions. Thread: application.
    """

    def __init__(
        self,
        log_context: LogContext,
        membership: ConsumerMembership,
        metadata: ConsumerMetadata,
        subscriptions: SubscriptionState,
        metrics: ShareCoordinatorMetrics,
    ) -> None:
        self._log = log_context.logger(__name__)
        self._membership = membership
        self._metadata = metadata
        self._subscriptions = subscriptions
        self._metrics = metrics
        self._names: dict[UUID, str] = {}  # of the assigned topics, also once the metadata has lost them
        #: The target, and the version of the metadata that did not name all of its topics.
        self._unresolved: tuple[LocalAssignment, int] | None = None

    @property
    def needs_application(self) -> bool:
        """True if the application must call ``advance``."""
        state = self._membership.state
        if state is not RECONCILING:
            return state is UNSUBSCRIBED or state is FENCED or state is STALE or state is FATAL
        return self._unresolved != (self._membership.target, self._metadata.update_version)

    def advance(self) -> None:
        """Join the group, or take over the assignment.

        Raises the error that ended the membership for good, with each call until the application unsubscribes.
        """
        membership = self._membership
        state = membership.state
        if state is UNSUBSCRIBED:
            self._log.info("Joining the share group as member %s", membership.member_id)
            self._metrics.name_member(membership.member_id)
            membership.begin_joining()
        elif state is FENCED or state is STALE:
            self._drop_assignment()
            self._log.info(
                "Joining the share group again as member %s: %s", membership.member_id, membership.lost_because
            )
            membership.begin_joining()
        elif state is FATAL:
            self._drop_assignment()
            if membership.failure is not None:
                raise membership.failure
        elif state is RECONCILING:
            self._reconcile()

    def _reconcile(self) -> None:
        """Fetch from the partitions of the target assignment whose topics have known names."""
        membership = self._membership
        incarnation, target, version = membership.incarnation, membership.target, self._metadata.update_version
        known = self._metadata.topic_names
        found = {topic_id: known.get(topic_id) or self._names.get(topic_id) for topic_id in target.partitions}
        self._names = {topic_id: name for topic_id, name in found.items() if name is not None}
        partitions = sorted(
            TopicPartition(name, number)
            for topic_id, name in self._names.items()
            for number in target.partitions[topic_id]
        )
        if partitions != sorted(self._subscriptions.assigned_partitions()):
            self._subscriptions.assign_from_subscribed(partitions)
            self._metrics.rebalance.record(1)
            self._log.info(
                "Assigned by the coordinator in epoch %d: %s", membership.generation.generation_id, names(partitions)
            )
        unknown = [str(topic_id) for topic_id, name in found.items() if name is None]
        if unknown:
            self._log.info("Waiting for metadata of assigned topics with the ids %s", ", ".join(sorted(unknown)))
            self._metadata.request_update(False)
            self._unresolved = (target, version)
            return
        self._unresolved = None
        membership.reconciled(incarnation, target)

    def _drop_assignment(self) -> None:
        self._names = {}
        self._unresolved = None
        self._subscriptions.assign_from_subscribed(())
