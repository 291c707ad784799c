"""The metrics of the consumer itself (Java: KafkaConsumerMetrics, AsyncConsumerMetrics).

With ``group.protocol=consumer``, these are also its requests, polls and events (KIP-1068).

Java: AsyncConsumerMetrics. Java's consumer has a background thread that polls the network, and queues of events between
it and the application's thread. Here the thread that holds the I/O lease polls, and "background events" are the steps
that wait for the application's thread: calls of the rebalance listener, of commit callbacks and of interceptors. There
are no application events: calls of the application reach the request managers at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pykclient.metrics import Avg, CumulativeSum, Max, Metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pykclient.clock import Clock
    from pykclient.metrics import Sensor

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


class AsyncConsumerMetrics:
    """Records how long requests and events wait. Times are in milliseconds. Thread: the holder of the I/O lease."""

    __slots__ = (
        "_between_polls",
        "_clock",
        "_event_processing",
        "_event_queue",
        "_last_poll_ms",
        "_metrics",
        "_unsent",
    )

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._last_poll_ms: int | None = None
        self._between_polls = self._times("time-between-network-thread-poll", "between polls of the network")
        self._unsent = self._times("unsent-requests-queue-time", "until a request was sent")
        self._event_queue = self._times("background-event-queue-time", "until the application's thread took an event")
        self._event_processing = self._times("background-event-queue-processing-time", "to process an event")

    def _times(self, name: str, what: str) -> Sensor:
        sensor = self._metrics.sensor(name)
        sensor.add(self._metrics.metric_name(f"{name}-avg", _GROUP, f"The average time taken {what}"), Avg())
        sensor.add(self._metrics.metric_name(f"{name}-max", _GROUP, f"The longest time taken {what}"), Max())
        return sensor

    def measure_queues(self, unsent_requests: Callable[[], int], events: Callable[[], int]) -> None:
        """Add the metrics of queue sizes, which call these functions."""
        self._measure("unsent-requests-queue-size", "requests that are not sent yet", unsent_requests)
        self._measure("background-event-queue-size", "events that wait for the application's thread", events)

    def _measure(self, name: str, what: str, size: Callable[[], int]) -> None:
        metric = self._metrics.metric_name(name, _GROUP, f"The current number of {what}")
        self._metrics.add_metric(metric, lambda _config, _now_ms: size())

    def record_poll(self, now_ms: int) -> None:
        """Record that the network is about to be polled."""
        if self._last_poll_ms is not None:
            self._between_polls.record(now_ms - self._last_poll_ms, now_ms)
        self._last_poll_ms = now_ms

    def record_sent(self, waited_ms: int, now_ms: int) -> None:
        """Record that a request was sent after it had waited for ``waited_ms``."""
        self._unsent.record(waited_ms, now_ms)

    def measured(self, steps: Generator[Any, Any, None]) -> Generator[Any, Any, None]:
        """Return an event that records its waiting time from now on, and its duration."""
        return self._run(steps, self._clock.now_ms())

    def _run(self, steps: Generator[Any, Any, None], added_ms: int) -> Generator[Any, Any, None]:
        begun_ms = self._clock.now_ms()
        self._event_queue.record(begun_ms - added_ms, begun_ms)
        try:
            yield from steps
        finally:
            now_ms = self._clock.now_ms()
            self._event_processing.record(now_ms - begun_ms, now_ms)
