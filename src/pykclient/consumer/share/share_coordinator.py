"""A share consumer's side of its group, for the application's calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pykclient.clock import Timer
from pykclient.consumer.application_events import Round, Steps, Wait
from pykclient.consumer.coordinator.consumer_membership import ConsumerMembership
from pykclient.consumer.coordinator.coordinator_request_manager import CoordinatorRequestManager
from pykclient.consumer.coordinator.heartbeat_thread import HeartbeatThread
from pykclient.consumer.coordinator.leave_group_request_manager import DEFAULT
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

#: How long closing waits for the heartbeat thread, which never blocks.
_THREAD_JOIN_S = 5.0


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
        self._log_context = log_context
        self._log = log_context.logger(__name__)
        self._client = client
        self._clock = clock
        self._environment = environment
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
        self._heartbeat_thread: HeartbeatThread | None = None
        #: Tests replace it with a thread that they step themselves.
        self.new_heartbeat_thread: Callable[..., HeartbeatThread] = HeartbeatThread
        metadata.request_update(True)

    @property
    def needs_application(self) -> bool:
        """True if the application must call ``poll``."""
        return self._member.needs_application

    @property
    def is_member(self) -> bool:
        """True if the group coordinator has given this member an epoch."""
        return self.membership.generation_if_stable() is not None

    def poll(self, now_ms: int) -> None:
        """Join the group, or apply a new assignment, without waiting.

        Raises:
            KafkaError: the membership or the lookup of the coordinator has failed for good.
        """
        thread = self._heartbeat_thread
        if thread is not None and thread.failure is not None:
            self._heartbeat_thread = None
            raise thread.failure
        self.membership.poll_heartbeat(now_ms)
        if self.lookup.unknown:
            self.lookup.raise_fatal_error()
        if self._member.needs_application:
            self._member.advance()
        if self._heartbeat_thread is None and self.membership.state.sends_heartbeats:
            self._start_heartbeat_thread()

    def _start_heartbeat_thread(self) -> None:
        self._heartbeat_thread = self.new_heartbeat_thread(
            self.config,
            self._log_context,
            self._client,
            self.membership,
            self.lookup,
            self._clock,
            environment=self._environment,
        )
        self._heartbeat_thread.start()

    def leave_group(self, reason: str) -> Steps[RequestFuture[None] | None]:
        """Leave the group, unless there is nothing to leave. Return the future of the request, or None without one."""
        if self._subscriptions.has_auto_assigned_partitions():
            self._subscriptions.assign_from_subscribed(())
        with self._client.lease:
            future = self._heartbeats.leave(DEFAULT, reason)
        if future is not None:
            yield Round(Timer(self._clock, 0), wakeup=False)
        return future

    def close(self, timer: Timer) -> Steps[None]:
        """End the heartbeats and leave the group, within the timer."""
        self._close_heartbeat_thread()
        left = yield from self.leave_group("the consumer is being closed")
        if left is not None and not (yield Wait(timer, lambda: left.is_done, wakeup=False)):
            self._log.warning("Closing before the group coordinator has confirmed that this member left")

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
