"""The producer's metrics, with Java's names (Java: SenderMetricsRegistry, KafkaProducerMetrics).

Those of the sender are in produce_requests.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from pykclient.clock import Clock
from pykclient.metrics import Avg, CumulativeSum, Max, Meter

if TYPE_CHECKING:
    from pykclient.metrics import Metrics, Sensor

T = TypeVar("T")

GROUP = "producer-metrics"
TOPIC_GROUP = "producer-topic-metrics"

_NS_PER_MS = 1_000_000


class Registry:
    """Creates the sensors of a group. ``before_read`` is called before one of their metrics is read."""

    def __init__(self, metrics: Metrics, before_read: Callable[[int], None]) -> None:
        self._metrics = metrics
        self._before_read = before_read

    def sensor(self, name: str) -> Sensor:
        return self._metrics.sensor(name, before_read=self._before_read)

    def avg_max(self, sensor_name: str, name: str, what: str) -> Sensor:
        sensor = self.sensor(sensor_name)
        sensor.add(self._metrics.metric_name(f"{name}-avg", GROUP, f"The average {what}"), Avg())
        sensor.add(self._metrics.metric_name(f"{name}-max", GROUP, f"The largest {what}"), Max())
        return sensor

    def meter(self, sensor_name: str, name: str, what: str) -> Sensor:
        sensor = self.sensor(sensor_name)
        sensor.add(self._meter(name, GROUP, what))
        return sensor

    def topic_meter(self, topic: str, sensor_name: str, name: str, what: str) -> Sensor:
        sensor = self.sensor(f"topic.{topic}.{sensor_name}")
        sensor.add(self._meter(name, TOPIC_GROUP, f"{what} for this topic", {"topic": topic}))
        return sensor

    def _meter(self, name: str, group: str, what: str, tags: Mapping[str, str] | None = None) -> Meter:
        metric_name = self._metrics.metric_name
        return Meter(
            metric_name(f"{name}-rate", group, f"{what} per second", tags),
            metric_name(f"{name}-total", group, f"{what} in total", tags),
        )


class KafkaProducerMetrics:
    """Metrics of the application's waits. Thread: any."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._flush = self._latency("flush", "flush()")
        self._metadata_wait = self._latency("metadata-wait", "waiting for metadata")
        self._transactional: dict[str, Sensor] = {}
        #: Sends that raised or failed before their record reached a batch; the sender counts the others.
        self.errors = metrics.sensor("errors")

    def _latency(self, name: str, where: str) -> Sensor:
        sensor = self._metrics.sensor(f"{name}-time-ns-total")
        sensor.add(
            self._metrics.metric_name(f"{name}-time-ns-total", GROUP, f"Nanoseconds spent in {where}"), CumulativeSum()
        )
        return sensor

    def measure_transactions(self, names: Mapping[str, str]) -> None:
        """Measure the transactional calls: ``names`` maps each call to its name in the metrics."""
        self._transactional = {call: self._latency(f"txn-{name}", call) for call, name in names.items()}

    def record_transactional(self, call: str, duration_ms: int, now_ms: int) -> None:
        """Record the duration of a transactional call that has ended."""
        self._transactional[call].record(duration_ms * _NS_PER_MS, now_ms)

    def record_flush(self, duration_ms: int) -> None:
        self._flush.record(duration_ms * _NS_PER_MS, self._clock.now_ms())

    def record_metadata_wait(self, duration_ms: int) -> None:
        self._metadata_wait.record(duration_ms * _NS_PER_MS, self._clock.now_ms())

    def record_error(self, count: int = 1) -> None:
        self.errors.record(count, self._clock.now_ms())
