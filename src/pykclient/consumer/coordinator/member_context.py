"""The components that a membership of either group protocol is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pykclient.clock import Clock
    from pykclient.consumer.coordinator.coordinated_consumer import CoordinatedConsumer
    from pykclient.consumer.coordinator.coordinator_request_manager import CoordinatorRequestManager
    from pykclient.consumer.coordinator.group_rebalance_config import GroupRebalanceConfig
    from pykclient.consumer.coordinator.rebalance_listener_invoker import RebalanceListenerInvoker
    from pykclient.consumer.network_client_delegate import NetworkClientDelegate
    from pykclient.log_context import LogContext
    from pykclient.metrics.metrics import Metrics
    from pykclient.network.exponential_backoff import ExponentialBackoff


class MemberContext(NamedTuple):
    """The components that a membership of either group protocol is made of."""

    config: GroupRebalanceConfig
    log_context: LogContext
    client: NetworkClientDelegate
    lookup: CoordinatorRequestManager
    clock: Clock
    retry_backoff: ExponentialBackoff
    consumer: CoordinatedConsumer
    metrics: Metrics
    listeners: RebalanceListenerInvoker
