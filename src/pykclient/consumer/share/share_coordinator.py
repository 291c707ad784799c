"""A share consumer's side of its group: membership, heartbeats, and the application's calls.

Java: ShareMembershipManager, ShareHeartbeatRequestManager. The consumer fetches from the partitions that the
coordinator assigns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pykclient import errors
from pykclient.clock import Timer
from pykclient.consumer.application_driver import Round, Steps, Wait
from pykclient.consumer.coordinator.consumer_coordinator import HeartbeatThread
from pykclient.consumer.coordinator.consumer_membership import (
    FATAL,
    FENCED,
    RECONCILING,
    STALE,
    UNSUBSCRIBED,
    ConsumerHeartbeatRequestManager,
    ConsumerMembership,
    LocalAssignment,
    SentFields,
)
from pykclient.consumer.coordinator.coordinator_request_manager import CoordinatorRequestManager
from pykclient.consumer.coordinator.group_member import GROUP_SUFFIX, HeartbeatMetrics, names
from pykclient.consumer.values import GroupMembershipOperation
from pykclient.errors import UnsupportedVersionError
from pykclient.network.client_request import RequestBuilder
from pykclient.network.environment import SYSTEM_ENVIRONMENT, Environment
from pykclient.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    import random
    from uuid import UUID

    from pykclient.clock import Clock
    from pykclient.consumer.application_driver import NetworkClientDelegate, RequestFuture
    from pykclient.consumer.consumer_metadata import ConsumerMetadata
    from pykclient.consumer.coordinator.consumer_membership import Beat
    from pykclient.consumer.coordinator.membership import GroupRebalanceConfig, Membership
    from pykclient.consumer.subscription_state import SubscriptionState
    from pykclient.errors import KafkaError
    from pykclient.log_context import LogContext
    from pykclient.metrics import Metrics
    from pykclient.network.exponential_backoff import ExponentialBackoff


class ShareCoordinatorMetrics(HeartbeatMetrics):
    """The metrics of a membership in a share group. Thread: any."""

    def __init__(self, metrics: Metrics, membership: Membership) -> None:
        super().__init__(metrics, "consumer-share" + GROUP_SUFFIX, membership)
        self.rebalance = metrics.sensor("rebalance-latency")
        self._count_rebalances(
            self.rebalance,
            "rebalance",
            "How many new assignments were applied",
            "How many new assignments are applied in an hour",
        )


class ShareMembershipManager:
    """Reconciles a member's assignment with its target.

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


class ShareHeartbeatRequestManager(ConsumerHeartbeatRequestManager):
    """Sends heartbeats, and tracks the time since the application last polled.

    Members do not report which partitions they have, because several members have the same ones. Thread: the holder of
    the I/O lease.
    """

    request_name = "ShareGroupHeartbeat"

    def _builder(self, beat: Beat) -> RequestBuilder:
        """Return a request with the fields that have changed since the last one; with all, if the member joins."""
        if beat.is_joining:
            self._sent = SentFields()
        fields: dict[str, Any] = {}
        if not beat.is_leaving:
            subscription = self._subscriptions.subscription()
            if self._sent.subscription is None:
                fields["rack_id"] = self._config.rack_id
            if subscription != self._sent.subscription:
                fields["subscribed_topic_names"] = sorted(subscription)
                self._sent.subscription = subscription
        request = ShareGroupHeartbeatRequest(
            group_id=self._config.group_id, member_id=beat.member_id, member_epoch=beat.member_epoch, **fields
        )
        return RequestBuilder(request)

    def _lost_because(self, beat: Beat, error: errors.BrokerError) -> str:
        if isinstance(error, errors.UnknownMemberIdError):
            return (
                "the coordinator had removed it, most likely as it heard no heartbeat for the group's session timeout "
                "(share.session.timeout.ms; the process was paused, starved of CPU or of the GIL, or cut off)"
            )
        return super()._lost_because(beat, error)

    def _translated(self, error: errors.BrokerError) -> KafkaError:
        """Return an error that says what to do."""
        group_id = self._config.group_id
        if isinstance(error, errors.GroupMaxSizeReachedError):
            return errors.GroupMaxSizeReachedError(
                f"share group {group_id!r} has as many members as the brokers allow (group.share.max.size)"
            )
        if isinstance(error, errors.GroupIdNotFoundError):
            return errors.GroupIdNotFoundError(
                f"group {group_id!r} is not a share group: {error}. Choose another group.id, or delete that group"
            )
        if isinstance(error, UnsupportedVersionError):
            return UnsupportedVersionError(
                f"the brokers do not serve share groups: {error}. They need Kafka 4.1 or later with the feature "
                "share.version at 1 (kafka-features.sh upgrade --feature share.version=1)"
            )
        return error


class ShareCoordinator:
    """The membership, its managers, and the heartbeat thread.

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
        metadata: ConsumerMetadata,
        subscriptions: SubscriptionState,
        retry_backoff: ExponentialBackoff,
        rng: random.Random | None = None,
        environment: Environment = SYSTEM_ENVIRONMENT,
    ) -> None:
        self.config = config
        self._log = log_context.logger(__name__)
        self._client = client
        self._clock = clock
        self._subscriptions = subscriptions
        self.membership = ConsumerMembership(config, log_context, clock, retry_backoff, rng)
        self.lookup = CoordinatorRequestManager(
            config, log_context, client, self.membership, clock, retry_backoff, metadata
        )
        sensors = ShareCoordinatorMetrics(metrics, self.membership)
        self._heartbeats = ShareHeartbeatRequestManager(
            config, log_context, self.membership, self.lookup, subscriptions, sensors.heartbeat
        )
        self._member = ShareMembershipManager(log_context, self.membership, metadata, subscriptions, sensors)
        client.managers.add(self._heartbeats, self.lookup)
        self.heartbeat_thread = HeartbeatThread(
            config, log_context, client, self.membership, self.lookup, clock, environment
        )
        metadata.request_update(True)

    @property
    def needs_application(self) -> bool:
        """True if the application must call ``poll``."""
        return self._heartbeats.failure is not None or self._member.needs_application

    @property
    def is_member(self) -> bool:
        """True if the group coordinator has given this member an epoch."""
        return self.membership.generation_if_stable() is not None

    def poll(self, now_ms: int) -> None:
        """Join the group, or apply a new assignment, without waiting.

        Raises:
            TopicAuthorizationError: the consumer may not describe a topic of its subscription.
            KafkaError: the membership or the lookup of the coordinator has failed for good.
        """
        failure = self.heartbeat_thread.take_failure()
        if failure is not None:
            raise failure
        self._heartbeats.raise_failure()
        self.membership.poll_heartbeat(now_ms)
        if self.lookup.unknown:
            self.lookup.raise_fatal_error()
        if self._member.needs_application:
            self._member.advance()
        if self.membership.state.sends_heartbeats:
            self.heartbeat_thread.start()

    def leave_group(self, reason: str) -> Steps[RequestFuture[None] | None]:
        """Leave the group, unless there is nothing to leave. Return the future of the request, or None without one."""
        if self._subscriptions.is_auto_assigned:
            self._subscriptions.assign_from_subscribed(())
        with self._client.lease:
            future = self._heartbeats.leave(GroupMembershipOperation.DEFAULT, reason)
        if future is not None:
            yield Round(Timer(self._clock, 0), wakeup=False)
        return future

    def recover(self) -> None:
        """Leave the group if the application has unsubscribed and an exception interrupted that call."""
        if not self._subscriptions.is_auto_assigned:
            with self._client.lease:
                self._heartbeats.leave(GroupMembershipOperation.DEFAULT, "the consumer unsubscribed from all topics")

    def close(self, timer: Timer) -> Steps[None]:
        """End the heartbeats and leave the group, within the timer."""
        self.heartbeat_thread.close()
        left = yield from self.leave_group("the consumer is being closed")
        if left is not None and not (yield Wait(timer, lambda: left.is_done, wakeup=False)):
            self._log.warning("Closing before the group coordinator has confirmed that this member left")

    def abandon(self) -> bool:
        """Let the heartbeat thread of an unclosed consumer end by itself; return whether there is one."""
        return self.heartbeat_thread.abandon()
