"""The metrics of group membership, with Java's names and groups; times in milliseconds.

Java: GroupCoordinatorMetrics, ConsumerCoordinatorMetrics, RebalanceCallbackMetricsManager.
"""

from __future__ import annotations

from collections.abc import Callable

from pykclient.consumer.coordinator.membership import Membership
from pykclient.metrics.metrics import Metrics
from pykclient.metrics.sensor import Sensor
from pykclient.metrics.stats import Avg, CumulativeCount, CumulativeSum, Max, Meter, Rate, WindowedCount

METRIC_PREFIX = "consumer"
GROUP_SUFFIX = "-coordinator-metrics"
_HOUR_MS = 3_600_000


class GroupCoordinatorMetrics:
    """The metrics of a membership by any protocol. Thread: any."""

    __slots__ = ("_metrics", "failed_rebalance", "heartbeat", "successful_rebalance")

    def __init__(self, metrics: Metrics, membership: Membership) -> None:
        group = METRIC_PREFIX + GROUP_SUFFIX
        self._metrics = metrics
        self.heartbeat = metrics.sensor("heartbeat-latency")
        self.heartbeat.add(
            metrics.metric_name("heartbeat-response-time-max", group, "The longest wait for an answer to a heartbeat"),
            Max(),
        )
        self.heartbeat.add(_meter(metrics, group, "heartbeat", "heartbeats"))

        rebalance = "for a rebalance until it succeeded, failed attempts included"
        self.successful_rebalance = _latency(metrics, group, "rebalance-latency", "rebalance-latency", rebalance)
        self.successful_rebalance.add(
            metrics.metric_name("rebalance-latency-total", group, "All time spent in rebalances that succeeded"),
            CumulativeSum(),
        )
        self.successful_rebalance.add(
            metrics.metric_name("rebalance-total", group, "How many rebalances succeeded"), CumulativeCount()
        )
        self.successful_rebalance.add(
            metrics.metric_name("rebalance-rate-per-hour", group, "How many rebalances succeed in an hour"),
            Rate(WindowedCount(), _HOUR_MS),
        )
        self.failed_rebalance = metrics.sensor("failed-rebalance")
        self.failed_rebalance.add(
            metrics.metric_name("failed-rebalance-total", group, "How many attempts to rebalance failed"),
            CumulativeCount(),
        )
        self.failed_rebalance.add(
            metrics.metric_name("failed-rebalance-rate-per-hour", group, "How many attempts fail in an hour"),
            Rate(WindowedCount(), _HOUR_MS),
        )
        metrics.add_metric(
            metrics.metric_name("last-rebalance-seconds-ago", group, "Since the last rebalance succeeded; -1 before"),
            lambda _config, now_ms: _seconds_since(membership.last_rebalance_end_ms, now_ms),
        )
        metrics.add_metric(
            metrics.metric_name("last-heartbeat-seconds-ago", group, "Since the last heartbeat was sent; -1 before"),
            lambda _config, now_ms: _seconds_since(membership.last_send_ms, now_ms),
        )

    def name_member(self, member_id: str) -> None:
        """Set the member id in each push of metrics, including the last one, after leaving."""
        self._metrics.update_labels(group_member_id=member_id)


class ClassicMemberMetrics(GroupCoordinatorMetrics):
    """The metrics of a membership by the classic protocol. Thread: any."""

    __slots__ = ("join", "sync")

    def __init__(self, metrics: Metrics, membership: Membership) -> None:
        super().__init__(metrics, membership)
        group = METRIC_PREFIX + GROUP_SUFFIX
        self.join = _latency(metrics, group, "join-latency", "join-time", "to join the group")
        self.join.add(_meter(metrics, group, "join", "group joins"))
        self.sync = _latency(metrics, group, "sync-latency", "sync-time", "to get the assignment")
        self.sync.add(_meter(metrics, group, "sync", "group syncs"))


class ConsumerCoordinatorMetrics:
    """The additional metrics of consumers. Thread: any."""

    __slots__ = ("commit",)

    def __init__(self, metrics: Metrics, num_assigned_partitions: Callable[[], int]) -> None:
        group = METRIC_PREFIX + GROUP_SUFFIX
        self.commit = _latency(metrics, group, "commit-latency", "commit-latency", "for a commit")
        self.commit.add(_meter(metrics, group, "commit", "commit calls"))
        metrics.add_metric(
            metrics.metric_name("assigned-partitions", group, "How many partitions are assigned to this consumer"),
            lambda _config, _now_ms: num_assigned_partitions(),
        )


class RebalanceCallbackMetrics:
    """The latencies of the application's rebalance listener. Thread: application."""

    __slots__ = ("assigned", "lost", "revoked")

    def __init__(self, metrics: Metrics) -> None:
        group = METRIC_PREFIX + GROUP_SUFFIX
        self.revoked = self._sensor(metrics, group, "revoked")
        self.assigned = self._sensor(metrics, group, "assigned")
        self.lost = self._sensor(metrics, group, "lost")

    @staticmethod
    def _sensor(metrics: Metrics, group: str, what: str) -> Sensor:
        name = f"partition-{what}-latency"
        return _latency(metrics, group, name, name, f"by on_partitions_{what} of the rebalance listener")


def _seconds_since(then_ms: int | None, now_ms: int) -> int:
    return -1 if then_ms is None else (now_ms - then_ms) // 1000


def _latency(metrics: Metrics, group: str, sensor_name: str, name: str, what: str) -> Sensor:
    """Return a sensor with an average and a maximum."""
    sensor = metrics.sensor(sensor_name)
    sensor.add(metrics.metric_name(f"{name}-avg", group, f"The average time taken {what}"), Avg())
    sensor.add(metrics.metric_name(f"{name}-max", group, f"The longest time taken {what}"), Max())
    return sensor


def _meter(metrics: Metrics, group: str, name: str, what: str) -> Meter:
    return Meter(
        metrics.metric_name(f"{name}-rate", group, f"The number of {what} per second"),
        metrics.metric_name(f"{name}-total", group, f"The total number of {what}"),
        WindowedCount(),
    )
