"""The metrics of a share consumer, with Java's names and groups; times in milliseconds.

Java: ShareFetchMetricsManager, ShareRebalanceMetricsManager, HeartbeatMetricsManager, KafkaShareConsumerMetrics.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pykclient.metrics import Avg, CumulativeCount, Max, Meter, Rate, WindowedCount

if TYPE_CHECKING:
    from pykclient.consumer.coordinator.membership import Membership
    from pykclient.metrics import Metrics
    from pykclient.types import TopicPartition

_PREFIX = "consumer-share"
_CONSUMER_GROUP = f"{_PREFIX}-metrics"
_COORDINATOR_GROUP = f"{_PREFIX}-coordinator-metrics"
_FETCH_GROUP = f"{_PREFIX}-fetch-manager-metrics"
_HOUR_MS = 3_600_000


class ShareFetchMetricsManager:
    """The sensors of fetches and acknowledgements. Thread: any."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

        def name(name: str, description: str):  # type: ignore[no-untyped-def]
            return metrics.metric_name(name, _FETCH_GROUP, description)

        self.throttle_time_sensor = metrics.sensor("fetch-throttle-time")
        self.throttle_time_sensor.add(
            name("fetch-throttle-time-avg", "Average time in ms that a broker throttled a fetch"), Avg()
        )
        self.throttle_time_sensor.add(
            name("fetch-throttle-time-max", "Longest time in ms that a broker throttled a fetch"), Max()
        )
        self._bytes = metrics.sensor("bytes-fetched")
        self._bytes.add(name("fetch-size-avg", "Average number of bytes consumed per fetch request"), Avg())
        self._bytes.add(name("fetch-size-max", "Largest number of bytes consumed per fetch request"), Max())
        self._bytes.add(
            Meter(
                name("bytes-consumed-rate", "Bytes consumed per second"), name("bytes-consumed-total", "Bytes consumed")
            )
        )
        self._records = metrics.sensor("records-fetched")
        self._records.add(name("records-per-request-avg", "Average number of records per fetch request"), Avg())
        self._records.add(name("records-per-request-max", "Largest number of records per fetch request"), Max())
        self._records.add(
            Meter(
                name("records-consumed-rate", "Records consumed per second"),
                name("records-consumed-total", "Records consumed"),
            )
        )
        self._sent = metrics.sensor("sent-acknowledgements")
        self._sent.add(
            Meter(
                name("acknowledgements-send-rate", "Acknowledged records sent to brokers per second"),
                name("acknowledgements-send-total", "Acknowledged records sent to brokers"),
            )
        )
        self._failed = metrics.sensor("failed-acknowledgements")
        self._failed.add(
            Meter(
                name("acknowledgements-error-rate", "Acknowledged records per second whose acknowledgement failed"),
                name("acknowledgements-error-total", "Acknowledged records whose acknowledgement failed"),
            )
        )
        self._latency = metrics.sensor("fetch-latency")
        self._latency.add(name("fetch-latency-avg", "Average time of a fetch request in ms"), Avg())
        self._latency.add(name("fetch-latency-max", "Longest time of a fetch request in ms"), Max())
        self._latency.add(
            Meter(
                name("fetch-rate", "Fetch requests per second"), name("fetch-total", "Fetch requests"), WindowedCount()
            )
        )

    def record_latency(self, node_id: str, latency_ms: int) -> None:
        self._latency.record(latency_ms)
        node_latency = self._metrics.get_sensor(f"node-{node_id}.latency")
        if node_latency is not None:
            node_latency.record(latency_ms)

    def record_response(self, size_bytes: int, count: int) -> None:
        """Record the total size in bytes and the record count of one response."""
        self._bytes.record(size_bytes)
        self._records.record(count)

    def record_sent(self, count: int) -> None:
        """Record that acknowledgements of ``count`` records are about to be sent."""
        self._sent.record(count)

    def record_failed(self, count: int) -> None:
        """Record that acknowledgements of ``count`` records failed."""
        self._failed.record(count)


class ShareFetchMetricsAggregator:
    """Adds up the data of one response until all of its partitions are read. Thread: application."""

    __slots__ = ("_count", "_manager", "_size_bytes", "_unrecorded")

    def __init__(self, manager: ShareFetchMetricsManager, partitions: Iterable[TopicPartition]) -> None:
        self._manager = manager
        self._unrecorded = set(partitions)
        self._size_bytes = self._count = 0

    def record(self, tp: TopicPartition, size_bytes: int, count: int) -> None:
        """Add the totals of one partition once it is drained."""
        self._size_bytes += size_bytes
        self._count += count
        self._unrecorded.discard(tp)
        if not self._unrecorded:
            self._manager.record_response(self._size_bytes, self._count)


class ShareCoordinatorMetrics:
    """The metrics of a membership in a share group. Thread: any."""

    __slots__ = ("_metrics", "heartbeat", "rebalance")

    def __init__(self, metrics: Metrics, membership: Membership) -> None:
        self._metrics = metrics
        self.heartbeat = metrics.sensor("heartbeat-latency")
        self.heartbeat.add(
            metrics.metric_name(
                "heartbeat-response-time-max", _COORDINATOR_GROUP, "The longest wait for an answer to a heartbeat"
            ),
            Max(),
        )
        self.heartbeat.add(
            Meter(
                metrics.metric_name("heartbeat-rate", _COORDINATOR_GROUP, "The number of heartbeats per second"),
                metrics.metric_name("heartbeat-total", _COORDINATOR_GROUP, "The total number of heartbeats"),
                WindowedCount(),
            )
        )
        self.rebalance = metrics.sensor("rebalance-latency")
        self.rebalance.add(
            metrics.metric_name("rebalance-total", _COORDINATOR_GROUP, "How many new assignments were applied"),
            CumulativeCount(),
        )
        self.rebalance.add(
            metrics.metric_name(
                "rebalance-rate-per-hour", _COORDINATOR_GROUP, "How many new assignments are applied in an hour"
            ),
            Rate(WindowedCount(), _HOUR_MS),
        )
        metrics.add_metric(
            metrics.metric_name(
                "last-heartbeat-seconds-ago", _COORDINATOR_GROUP, "Since the last heartbeat was sent; -1 before"
            ),
            lambda _config, now_ms: (
                -1 if membership.last_send_ms is None else (now_ms - membership.last_send_ms) // 1000
            ),
        )

    def name_member(self, member_id: str) -> None:
        """Set the member id in each push of metrics, including the last one, after leaving."""
        self._metrics.update_labels(group_member_id=member_id)


class KafkaShareConsumerMetrics:
    """Records how often and how long the application polls. Thread: application."""

    __slots__ = ("_between", "_idle", "_last_poll_ms", "_poll_start_ms", "_since_last_ms")

    def __init__(self, metrics: Metrics) -> None:
        self._last_poll_ms: int | None = None
        self._poll_start_ms = self._since_last_ms = 0
        metrics.add_metric(
            metrics.metric_name(
                "last-poll-seconds-ago", _CONSUMER_GROUP, "Seconds since the last call of poll(); -1 before the first"
            ),
            lambda _config, now_ms: -1 if self._last_poll_ms is None else (now_ms - self._last_poll_ms) // 1000,
        )
        self._between = metrics.sensor("time-between-poll")
        self._between.add(
            metrics.metric_name("time-between-poll-avg", _CONSUMER_GROUP, "Average time in ms between calls of poll()"),
            Avg(),
        )
        self._between.add(
            metrics.metric_name("time-between-poll-max", _CONSUMER_GROUP, "Longest time in ms between calls of poll()"),
            Max(),
        )
        self._idle = metrics.sensor("poll-idle-ratio-avg")
        self._idle.add(
            metrics.metric_name("poll-idle-ratio-avg", _CONSUMER_GROUP, "Average fraction of the time spent in poll()"),
            Avg(),
        )

    def record_poll_start(self, now_ms: int) -> None:
        self._poll_start_ms = now_ms
        self._since_last_ms = 0 if self._last_poll_ms is None else now_ms - self._last_poll_ms
        self._between.record(self._since_last_ms, now_ms)
        self._last_poll_ms = now_ms

    def record_poll_end(self, now_ms: int) -> None:
        inside_ms = now_ms - self._poll_start_ms
        whole_ms = inside_ms + self._since_last_ms
        if whole_ms:
            self._idle.record(inside_ms / whole_ms, now_ms)
