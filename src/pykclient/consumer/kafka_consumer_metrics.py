"""The metrics of the consumer itself (Java: KafkaConsumerMetrics)."""

from __future__ import annotations

from pykclient.metrics.metrics import Metrics
from pykclient.metrics.stats import Avg, CumulativeSum, Max

_GROUP = "consumer-metrics"
_NS_PER_MS = 1_000_000


class KafkaConsumerMetrics:
    """Records how often and how long the application polls and commits. Thread: application."""

    __slots__ = ("_between", "_commit_sync", "_committed", "_idle", "_last_poll_ms", "_poll_start_ms", "_since_last_ms")

    def __init__(self, metrics: Metrics) -> None:
        self._last_poll_ms: int | None = None
        self._poll_start_ms = 0
        self._since_last_ms = 0
        metrics.add_metric(
            metrics.metric_name(
                "last-poll-seconds-ago", _GROUP, "Seconds since the last call of poll(); -1 before the first"
            ),
            lambda _config, now_ms: -1 if self._last_poll_ms is None else (now_ms - self._last_poll_ms) // 1000,
        )
        self._between = metrics.sensor("time-between-poll")
        self._between.add(
            metrics.metric_name("time-between-poll-avg", _GROUP, "Average time in ms between calls of poll()"),
            Avg(),
        )
        self._between.add(
            metrics.metric_name("time-between-poll-max", _GROUP, "Longest time in ms between calls of poll()"), Max()
        )
        self._idle = metrics.sensor("poll-idle-ratio-avg")
        self._idle.add(
            metrics.metric_name("poll-idle-ratio-avg", _GROUP, "Average fraction of the time spent in poll()"),
            Avg(),
        )
        self._commit_sync = metrics.sensor("commit-sync-time-ns-total")
        self._commit_sync.add(
            metrics.metric_name("commit-sync-time-ns-total", _GROUP, "Nanoseconds spent in synchronous commits"),
            CumulativeSum(),
        )
        self._committed = metrics.sensor("committed-time-ns-total")
        self._committed.add(
            metrics.metric_name("committed-time-ns-total", _GROUP, "Nanoseconds spent in committed()"), CumulativeSum()
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

    def record_commit_sync(self, duration_ms: int) -> None:
        self._commit_sync.record(duration_ms * _NS_PER_MS)

    def record_committed(self, duration_ms: int) -> None:
        self._committed.record(duration_ms * _NS_PER_MS)
