"""A share consumer's side of its group, for the application's calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.clock import Timer
from pykclient.consumer.application_events import Round, Steps, Wait
from pykclient.consumer.coordinator.consumer_membership import ConsumerMembership
from pykclient.consumer.coordinator.coordinator_request_manager import CoordinatorRequestManager
from pykclient.consumer.coordinator.heartbeat_thread import HeartbeatThreadOwner
from pykclient.consumer.coordinator.membership_operation import DEFAULT
from pykclient.consumer.share.share_heartbeat_request_manager import ShareHeartbeatRequestManager
from pykclient.consumer.share.share_membership_manager import ShareMembershipManager
from pykclient.consumer.share.share_metrics import ShareCoordinatorMetrics
from pykclient.network.environment import SYSTEM_ENVIRONMENT, Environment

if TYPE_CHECKING:
    import random

    from pykclient.clock import Clock
    from pykclient.consumer.consumer_metadata import ConsumerMetadata
    from pykclient.consumer.coordinator.group_rebalance_config import GroupRebalanceConfig
    from pykclient.consumer.network_client_delegate import NetworkClientDelegate
    from pykclient.consumer.request_future import RequestFuture
    from pykclient.consumer.subscription_state import SubscriptionState
    from pykclient.log_context import LogContext
    from pykclient.metrics.metrics import Metrics
    from pykclient.network.exponential_backoff import ExponentialBackoff


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
        self.heartbeat_thread = HeartbeatThreadOwner(
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
        if self._subscriptions.has_auto_assigned_partitions():
            self._subscriptions.assign_from_subscribed(())
        with self._client.lease:
            future = self._heartbeats.leave(DEFAULT, reason)
        if future is not None:
            yield Round(Timer(self._clock, 0), wakeup=False)
        return future

    def recover(self) -> None:
        """Leave the group if the application has unsubscribed: an exception may have ended the call before it did."""
        if not self._subscriptions.has_auto_assigned_partitions():
            with self._client.lease:
                self._heartbeats.leave(DEFAULT, "the consumer unsubscribed from all topics")

    def close(self, timer: Timer) -> Steps[None]:
        """End the heartbeats and leave the group, within the timer."""
        self.heartbeat_thread.close()
        left = yield from self.leave_group("the consumer is being closed")
        if left is not None and not (yield Wait(timer, lambda: left.is_done, wakeup=False)):
            self._log.warning("Closing before the group coordinator has confirmed that this member left")

    def abandon(self) -> bool:
        """Let the heartbeat thread end by itself, as nothing will close this; return whether there is one."""
        return self.heartbeat_thread.abandon()
