"""The metrics of consumers with ``group.protocol=consumer``: their requests, polls and events (KIP-1068).

Java: AsyncConsumerMetrics. Java's consumer has a background thread that polls the network, and queues of events between
it and the application's thread. Here the thread that holds the I/O lease polls, and "background events" are the steps
that wait for the application's thread: calls of the rebalance listener, of commit callbacks and of interceptors. There
are no application events: calls of the application reach the request managers at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pykclient.metrics.stats import Avg, Max

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pykclient.clock import Clock
    from pykclient.metrics.metrics import Metrics
    from pykclient.metrics.sensor import Sensor

_GROUP: Final = "consumer-metrics"


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
        """Record that a request was sent which had waited for ``waited_ms``."""
        self._unsent.record(waited_ms, now_ms)

    def measured(self, steps: Generator[Any, Any, None]) -> Generator[Any, Any, None]:
        """Return an event that records how long it waits from now on, and how long it takes."""
        return self._run(steps, self._clock.now_ms())

    def _run(self, steps: Generator[Any, Any, None], added_ms: int) -> Generator[Any, Any, None]:
        begun_ms = self._clock.now_ms()
        self._event_queue.record(begun_ms - added_ms, begun_ms)
        try:
            yield from steps
        finally:
            now_ms = self._clock.now_ms()
            self._event_processing.record(now_ms - begun_ms, now_ms)
