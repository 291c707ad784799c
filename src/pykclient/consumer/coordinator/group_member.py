"""A group's member as its coordinator sees it, by either group protocol, its metrics, and what it is made of.

Java: GroupCoordinatorMetrics, ConsumerCoordinatorMetrics, RebalanceCallbackMetricsManager, and
ConsumerRebalanceListenerInvoker for calls of the application's rebalance listener.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pykclient.clock import Clock
from pykclient.consumer.application_driver import ApplicationCall, ApplicationEvents, PollResult, Steps
from pykclient.consumer.consumer_metadata import PatternSubscription
from pykclient.consumer.coordinator.membership import Membership
from pykclient.consumer.subscription_state import SubscriptionState
from pykclient.errors import KafkaError, WakeupError
from pykclient.log_context import LogContext
from pykclient.metrics import (
    Avg,
    CumulativeCount,
    CumulativeSum,
    Max,
    Meter,
    MetricName,
    Metrics,
    Rate,
    Sensor,
    WindowedCount,
)
from pykclient.network.client_request import UsualResponse
from pykclient.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from pykclient.consumer.application_driver import (
        NetworkClientDelegate,
        RequestFuture,
        RequestManager,
    )
    from pykclient.consumer.consumer_metadata import ConsumerMetadata
    from pykclient.consumer.coordinator.coordinator_request_manager import CoordinatorRequestManager
    from pykclient.consumer.coordinator.membership import GroupRebalanceConfig
    from pykclient.consumer.partition_assignors import ConsumerPartitionAssignor
    from pykclient.consumer.values import ConsumerInterceptors
    from pykclient.network.exponential_backoff import ExponentialBackoff
    from pykclient.network.metadata import Cluster
    from pykclient.types import ConsumerGroupMetadata


METRIC_PREFIX = "consumer"
GROUP_SUFFIX = "-coordinator-metrics"
_GROUP = METRIC_PREFIX + GROUP_SUFFIX
_HOUR_MS = 3_600_000


class HeartbeatMetrics:
    """The metrics of a membership in any group. Thread: any."""

    def __init__(self, metrics: Metrics, group: str, membership: Membership) -> None:
        self._metrics = metrics
        self._group = group
        self.heartbeat = metrics.sensor("heartbeat-latency")
        self.heartbeat.add(
            self._name("heartbeat-response-time-max", "The longest wait for an answer to a heartbeat"), Max()
        )
        self.heartbeat.add(_meter(metrics, group, "heartbeat", "heartbeats"))
        metrics.add_metric(
            self._name("last-heartbeat-seconds-ago", "Since the last heartbeat was sent; -1 before"),
            lambda _config, now_ms: _seconds_since(membership.last_send_ms, now_ms),
        )

    def _name(self, name: str, description: str) -> MetricName:
        return self._metrics.metric_name(name, self._group, description)

    def _count_rebalances(self, sensor: Sensor, name: str, total: str, per_hour: str) -> None:
        """Add the number of rebalances, in total and within an hour."""
        sensor.add(self._name(f"{name}-total", total), CumulativeCount())
        sensor.add(self._name(f"{name}-rate-per-hour", per_hour), Rate(WindowedCount(), _HOUR_MS))

    def name_member(self, member_id: str) -> None:
        """Set the member id in each push of metrics, including the last one, after leaving."""
        self._metrics.update_labels(group_member_id=member_id)


class GroupCoordinatorMetrics(HeartbeatMetrics):
    """The metrics of a membership in a consumer group, by any protocol. Thread: any."""

    def __init__(self, metrics: Metrics, membership: Membership) -> None:
        super().__init__(metrics, _GROUP, membership)
        rebalance = "for a rebalance until it succeeded, failed attempts included"
        self.successful_rebalance = _latency(metrics, "rebalance-latency", rebalance)
        self.successful_rebalance.add(
            self._name("rebalance-latency-total", "All time spent in rebalances that succeeded"), CumulativeSum()
        )
        self._count_rebalances(
            self.successful_rebalance,
            "rebalance",
            "How many rebalances succeeded",
            "How many rebalances succeed in an hour",
        )
        self.failed_rebalance = metrics.sensor("failed-rebalance")
        self._count_rebalances(
            self.failed_rebalance,
            "failed-rebalance",
            "How many attempts to rebalance failed",
            "How many attempts fail in an hour",
        )
        metrics.add_metric(
            self._name("last-rebalance-seconds-ago", "Since the last rebalance succeeded; -1 before"),
            lambda _config, now_ms: _seconds_since(membership.last_rebalance_end_ms, now_ms),
        )


class ClassicMemberMetrics(GroupCoordinatorMetrics):
    """The metrics of a membership by the classic protocol. Thread: any."""

    def __init__(self, metrics: Metrics, membership: Membership) -> None:
        super().__init__(metrics, membership)
        self.join = _latency(metrics, "join-time", "to join the group", "join-latency")
        self.join.add(_meter(metrics, _GROUP, "join", "group joins"))
        self.sync = _latency(metrics, "sync-time", "to get the assignment", "sync-latency")
        self.sync.add(_meter(metrics, _GROUP, "sync", "group syncs"))


def commit_sensor(metrics: Metrics, num_assigned_partitions: Callable[[], int]) -> Sensor:
    """Return the sensor of commits, and add the other metric of a consumer in a group: its number of partitions."""
    sensor = _latency(metrics, "commit-latency", "for a commit")
    sensor.add(_meter(metrics, _GROUP, "commit", "commit calls"))
    metrics.add_metric(
        metrics.metric_name("assigned-partitions", _GROUP, "How many partitions are assigned to this consumer"),
        lambda _config, _now_ms: num_assigned_partitions(),
    )
    return sensor


def _seconds_since(then_ms: int | None, now_ms: int) -> int:
    return -1 if then_ms is None else (now_ms - then_ms) // 1000


def _latency(metrics: Metrics, name: str, what: str, sensor_name: str | None = None) -> Sensor:
    """Return a sensor with an average and a maximum."""
    sensor = metrics.sensor(sensor_name or name)
    sensor.add(metrics.metric_name(f"{name}-avg", _GROUP, f"The average time taken {what}"), Avg())
    sensor.add(metrics.metric_name(f"{name}-max", _GROUP, f"The longest time taken {what}"), Max())
    return sensor


def _meter(metrics: Metrics, group: str, name: str, what: str) -> Meter:
    return Meter(
        metrics.metric_name(f"{name}-rate", group, f"The number of {what} per second"),
        metrics.metric_name(f"{name}-total", group, f"The total number of {what}"),
        WindowedCount(),
    )


class HeartbeatManager:
    """The part of sending heartbeats that all group protocols share. Thread: the holder of the I/O lease.

    Without a ``client``, every response is parsed.
    """

    runs_in_background = True
    pending = True

    def __init__(
        self,
        config: GroupRebalanceConfig,
        log_context: LogContext,
        lookup: CoordinatorRequestManager,
        latency: Sensor,
        client: NetworkClientDelegate | None,
    ) -> None:
        self._config = config
        self._log = log_context.logger(type(self).__module__)
        self._coordinator = lookup
        self._latency = latency
        self._client = client
        self._usual = UsualResponse()
        # No timer ends before this time, unless there is a signal.
        self._next_event_ms = 0
        self._seen_signals = -1
        self._rest = PollResult()  # the result until that time
        #: An error for the application's next poll.
        self.failure: KafkaError | None = None

    def check_soon(self) -> None:
        """Make the next poll check the membership, because a heartbeat is due earlier. Thread: application."""
        self._next_event_ms = 0

    def _lateness(self, last_poll_ms: int, now_ms: int) -> str:
        """Return why a member leaves whose application has not polled for ``max.poll.interval.ms``."""
        return (
            f"poll() was not called for {(now_ms - last_poll_ms) / 1000:.1f} s, longer than max.poll.interval.ms="
            f"{self._config.rebalance_timeout_ms}, so it left the group"
        )

    def _warn_of_lateness(self, cause: str) -> None:
        self._log.warning(
            "%s. Processing what a poll returns takes too long: raise max.poll.interval.ms, or lower max.poll.records "
            "(now %d)",
            cause,
            self._config.max_poll_records,
        )

    def _may_wait(self, until_ms: int, now_ms: int) -> bool:
        """Return whether the application may wait for records on, after a response that changes nothing."""
        return now_ms < until_ms and self._client is not None and self._client.awaits_records


Offsets = dict[TopicPartition, OffsetAndMetadata]


class CoordinatedConsumer(NamedTuple):
    """The components of a consumer that its coordinator uses.

    ``auto_commit_offsets`` returns the positions to commit automatically: those after the records returned to the
    application, which may be before the fetcher's positions. Without ``auto_commit_interval_ms``, nothing is committed
    automatically. Thread: application.
    """

    metadata: ConsumerMetadata
    subscriptions: SubscriptionState
    assignors: Sequence[ConsumerPartitionAssignor]
    interceptors: ConsumerInterceptors
    auto_commit_offsets: Callable[[], Offsets]
    auto_commit_interval_ms: int | None = None


class RebalanceListenerInvoker:
    """Calls the rebalance listener, and measures how long that takes. Thread: application."""

    def __init__(
        self, log_context: LogContext, subscriptions: SubscriptionState, clock: Clock, metrics: Metrics
    ) -> None:
        self._log = log_context.logger(__name__)
        self._subscriptions = subscriptions
        self._clock = clock
        self._latencies = {
            what: _latency(metrics, f"partition-{what}-latency", f"by on_partitions_{what} of the rebalance listener")
            for what in ("revoked", "assigned", "lost")
        }
        #: True if listeners are called in each rebalance of an eager assignor, even if the member has no partitions to
        #: revoke, as before the first or after its membership ended; and not when the member leaves. As in aiokafka.
        self.follows_rebalances = False
        #: True while the member gives up its partitions because it is about to leave.
        self.is_leaving = False

    def invoke(self, what: str, partitions: Collection[TopicPartition]) -> Steps[Exception | None]:
        """Tell the listener that partitions are ``assigned``, ``revoked`` or ``lost``.

        Return its exception, so that the rebalance can continue first; WakeupError is raised.
        """
        self._log.info("Partitions %s: %s", what, names(partitions))
        if what != "assigned" and (paused := self._subscriptions.paused_partitions().intersection(partitions)):
            self._log.info("No longer paused, also if they are assigned again: %s", names(paused))
        method = f"on_partitions_{what}"
        listener: Any = self._subscriptions.rebalance_listener()
        if listener is None or (self.is_leaving and self.follows_rebalances):
            return None
        callback: Callable[[set[TopicPartition]], object] | None = getattr(listener, method, None)
        if callback is None:
            if what != "lost":
                return None
            callback = listener.on_partitions_revoked
        start_ms = self._clock.now_ms()
        try:
            yield ApplicationCall(partial(callback, set(partitions)))
        except WakeupError:
            raise
        except Exception as error:  # noqa: BLE001 - the application's code; poll() raises it
            self._log.exception("%s.%s failed for %s", type(listener).__name__, method, names(partitions))
            return error
        self._latencies[what].record(self._clock.now_ms() - start_ms)
        return None


def names(partitions: Collection[TopicPartition]) -> str:
    """Format partitions for the log."""
    return ", ".join(map(str, sorted(partitions))) or "none"


#: So many partitions are named in a line of the log about a rebalance.
_NAMED = 10


def moved(partitions: Collection[TopicPartition]) -> str:
    """Return the number of partitions that a rebalance has moved, and the names of the first ones."""
    if not partitions:
        return "none"
    left = len(partitions) - _NAMED
    shown = ", ".join(map(str, sorted(partitions)[:_NAMED]))
    return f"{len(partitions)} ({shown}{f' and {left} more' if left > 0 else ''})"


class MemberContext(NamedTuple):
    """The components that the managers of a member share."""

    config: GroupRebalanceConfig
    log_context: LogContext
    client: NetworkClientDelegate
    membership: Membership
    lookup: CoordinatorRequestManager
    clock: Clock
    retry_backoff: ExponentialBackoff
    consumer: CoordinatedConsumer
    metrics: Metrics
    listeners: RebalanceListenerInvoker


class MemberManager:
    """A part of a member, mostly a request manager, with the components that the parts share. Thread: application."""

    runs_in_background = False

    def __init__(self, context: MemberContext) -> None:
        self._config = context.config
        self._log = context.log_context.logger(type(self).__module__)
        self._client = context.client
        self._coordinator = context.lookup
        self._clock = context.clock
        self._retry_backoff = context.retry_backoff
        self._consumer = context.consumer
        self._metadata = context.consumer.metadata
        self._subscriptions = context.consumer.subscriptions


class GroupMember(MemberManager, ABC):
    """A consumer's membership, driven by its ConsumerCoordinator. Thread: application."""

    pending = True
    #: The state that is shared with the heartbeat thread.
    membership: Membership
    heartbeats: HeartbeatManager
    #: The managers that send the requests of the protocol.
    managers: Sequence[RequestManager]

    def __init__(self, context: MemberContext) -> None:
        super().__init__(context)
        self._listeners = context.listeners
        self._pattern = PatternSubscription(self._metadata, self._subscriptions)
        #: The application's steps of the current rebalance.
        self.events = ApplicationEvents()

    @property
    @abstractmethod
    def group_metadata(self) -> ConsumerGroupMetadata:
        """This member's place in the group."""

    def check_subscription(self) -> None:
        """Raise IllegalStateError if the configuration does not allow subscriptions."""

    def check_broker_pattern(self) -> None:
        """Raise IllegalArgumentError if this protocol does not support patterns matched by brokers."""

    @abstractmethod
    def metadata_updated(self) -> None:
        """Process metadata that arrived since the last call."""

    def update_pattern_subscription(self, cluster: Cluster) -> None:
        """Subscribe to the topics that match the pattern now."""
        self._pattern.match(cluster)

    # --- each poll ---------------------------------------------------------------------------------------------------

    def raise_failure(self) -> None:
        """Raise an error that ended the heartbeats, once."""

    def heartbeat_thread_failed(self, failure: Exception) -> None:
        """Record that heartbeats have stopped because of a bug."""

    @property
    def needs_coordinator(self) -> bool:
        """True if a rebalance cannot go on without the coordinator."""
        return True

    @property
    @abstractmethod
    def is_rebalancing(self) -> bool:
        """True if the application must call ``advance``, or wait until it must."""

    @property
    @abstractmethod
    def needs_application(self) -> bool:
        """True if the application must call ``advance``."""

    @abstractmethod
    def advance(self, now_ms: int) -> None:
        """Begin a rebalance, or queue the next steps of the application.

        Raises the error of an attempt that no retry will fix.
        """

    # --- leaving -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def stop(self) -> None:
        """End the rebalance, as the application leaves the group."""

    @abstractmethod
    def revoke_all(self) -> Steps[None]:
        """Give up all partitions, as this member is about to leave."""

    @property
    def waits_for_others(self) -> bool:
        """True while the coordinator's own connection may be held up for minutes."""
        return False

    @abstractmethod
    def leave(self, operation: str, reason: str, *, is_closing: bool = False) -> RequestFuture[None] | None:
        """End the membership; notify the coordinator if this is a member and ``operation`` allows it.

        Return the future of the request, or None without one. Thread: the holder of the I/O lease.
        """
