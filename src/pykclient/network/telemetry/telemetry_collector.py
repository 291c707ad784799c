"""The metrics of a client as points to push (Java: KafkaMetricsCollector, TelemetryMetricNamingConvention)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pykclient.network.telemetry.otlp import Point

if TYPE_CHECKING:
    from pykclient.log_context import LogContext
    from pykclient.metrics.kafka_metric import KafkaMetric
    from pykclient.metrics.metric_name import MetricName
    from pykclient.metrics.metrics import Metrics

_DOMAIN: Final = "org.apache.kafka"
#: The suffix of totals. All other metrics are gauges.
_SUM: Final = "-total"
#: A tag that is left out, as the brokers know it.
_CLIENT_ID: Final = "client-id"
#: Asks for all metrics.
_ALL: Final = ("*",)


def telemetry_name(name: MetricName) -> str:
    """Return the name of a metric in a push: ``org.apache.kafka.producer.record.send.total``."""
    group = name.group.removesuffix("-metrics").replace("-", ".")
    return f"{_DOMAIN}.{group}.{name.name.replace('-', '.')}"


class TelemetryCollector:
    """Reads the metrics that a subscription asks for, and keeps what deltas need. Thread: owner."""

    __slots__ = ("_created_ms", "_last", "_log", "_metrics")

    def __init__(self, metrics: Metrics, log_context: LogContext) -> None:
        self._log = log_context.logger(__name__)
        self._metrics = metrics
        self._created_ms = metrics.clock.wall_ms()
        self._last: dict[KafkaMetric, tuple[float, int]] = {}  # the last value pushed as a delta, and when

    @property
    def labels(self) -> dict[str, str]:
        """The attributes of the client that change while it runs."""
        return self._metrics.labels

    def reset(self) -> None:
        """Forget the last values, as the kind of sums has changed."""
        self._last = {}

    def collect(self, prefixes: Sequence[str], is_delta: bool) -> list[Point]:
        """Return the metrics whose names begin with one of ``prefixes``, and that have a number as their value."""
        now_ms = self._metrics.clock.wall_ms()
        points: list[Point] = []
        pushed = self._metrics.pushed
        self._last = {metric: last for metric, last in self._last.items() if pushed.get(metric.metric_name) is metric}
        for name, metric in pushed.items():
            full_name = telemetry_name(name)
            if tuple(prefixes) != _ALL and not full_name.startswith(tuple(prefixes)):
                continue
            try:
                value = metric.metric_value()
            except Exception:  # noqa: BLE001 - a gauge of the application; the others are pushed
                self._log.warning("The metric %s could not be read", full_name, exc_info=True)
                continue
            if not isinstance(value, int | float) or math.isnan(value):
                continue
            attributes = {tag.replace("-", "_"): text for tag, text in name.tags.items() if tag != _CLIENT_ID}
            if not name.name.endswith(_SUM):
                points.append(Point(full_name, attributes, float(value), now_ms))
            elif is_delta:
                before, since_ms = self._last.get(metric, (0.0, self._created_ms))
                self._last[metric] = float(value), now_ms
                points.append(Point(full_name, attributes, value - before, now_ms, since_ms, is_delta=True))
            else:
                points.append(Point(full_name, attributes, float(value), now_ms, self._created_ms))
        return points
