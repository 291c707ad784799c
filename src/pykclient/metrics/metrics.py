"""The registry of a client's metrics (Java: Metrics)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pykclient.clock import SYSTEM_CLOCK, Clock
from pykclient.errors import IllegalArgumentError
from pykclient.metrics.kafka_metric import KafkaMetric
from pykclient.metrics.metric_config import MetricConfig, RecordingLevel
from pykclient.metrics.metric_name import MetricName
from pykclient.metrics.metrics_reporter import MetricsContext, MetricsReporter
from pykclient.metrics.sensor import Sensor, SensorOptions

_logger = logging.getLogger(__name__)

#: The minimum interval between searches for expired sensors.
_SWEEP_INTERVAL_MS = 30_000


class Metrics:
    """The sensors and metrics of a client, by name. Thread: any.

    Expired sensors are removed during other calls, not by a thread. So they outlive their time by at most 30 s and the
    time to the next call.
    """

    def __init__(
        self, config: MetricConfig | None = None, reporters: Iterable[MetricsReporter] = (), clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.config = MetricConfig() if config is None else config
        self.clock = clock
        # guards: _metrics, _of_application, _sensors, _children, _reporters, _labels, _next_sweep_ms
        self._lock = threading.RLock()
        self._metrics: dict[MetricName, KafkaMetric] = {}
        self._of_application: dict[MetricName, KafkaMetric] = {}
        self._labels: dict[str, str] = {}
        self._sensors: dict[str, Sensor] = {}
        self._children: dict[Sensor, list[Sensor]] = {}
        self._reporters: list[MetricsReporter] = []
        self._next_sweep_ms = clock.now_ms() + _SWEEP_INTERVAL_MS
        for reporter in reporters:
            self.add_reporter(reporter)
        count_name = self.metric_name("count", "kafka-metrics-count", "How many metrics there are")
        self.add_metric(count_name, lambda _config, _now_ms: len(self._metrics))

    def metric_name(
        self, name: str, group: str, description: str = "", tags: Mapping[str, str] | None = None
    ) -> MetricName:
        """Return a name with the registry's own tags added."""
        return MetricName(name, group, description, {**self.config.tags, **(tags or {})})

    # --- sensors ---------------------------------------------------------------------------------------------------

    def sensor(
        self,
        name: str,
        *parents: Sensor,
        config: MetricConfig | None = None,
        recording_level: int = RecordingLevel.INFO,
        inactive_expiration_ms: int | None = None,
        before_read: Callable[[int], object] | None = None,
    ) -> Sensor:
        """Return the sensor of this name; create it with these properties if there is none."""
        self._sweep()
        with self._lock:
            sensor = self._sensors.get(name)
            if sensor is None:
                options = SensorOptions(
                    config or self.config, parents, recording_level, inactive_expiration_ms, before_read
                )
                sensor = self._sensors[name] = Sensor(self, name, options, self.clock)
                for parent in sensor.parents:
                    self._children.setdefault(parent, []).append(sensor)
            return sensor

    def get_sensor(self, name: str) -> Sensor | None:
        return self._sensors.get(name)

    def remove_sensor(self, name: str) -> None:
        """Remove a sensor with its metrics, and its child sensors."""
        with self._lock:
            sensor = self._sensors.pop(name, None)
            if sensor is None:
                return
            children = self._children.pop(sensor, [])
            for parent in sensor.parents:
                siblings = self._children.get(parent, [])
                if sensor in siblings:
                    siblings.remove(sensor)
        for metric in sensor.metrics:
            self.remove_metric(metric.metric_name)
        for child in children:
            self.remove_sensor(child.name)

    def _sweep(self) -> None:
        now_ms = self.clock.now_ms()
        with self._lock:
            if now_ms < self._next_sweep_ms:
                return
            self._next_sweep_ms = now_ms + _SWEEP_INTERVAL_MS
            expired = [sensor.name for sensor in self._sensors.values() if sensor.has_expired(now_ms)]
        for name in expired:
            _logger.debug("Removing sensor %s, which has had no values for too long", name)
            self.remove_sensor(name)

    # --- metrics ---------------------------------------------------------------------------------------------------

    def add_metric(
        self,
        metric_name: MetricName,
        provider: Callable[[MetricConfig, int], Any],
        config: MetricConfig | None = None,
    ) -> KafkaMetric:
        """Register a gauge: ``provider(config, now_ms)`` is called whenever the metric is read.

        Raises:
            IllegalArgumentError: a metric of this name exists.
        """
        metric = KafkaMetric(metric_name, provider, config or self.config, self.clock)
        if self.register(metric) is not metric:
            raise IllegalArgumentError(f"{metric_name!r} is registered already")
        return metric

    def add_metric_if_absent(
        self,
        metric_name: MetricName,
        provider: Callable[[MetricConfig, int], Any],
        config: MetricConfig | None = None,
    ) -> KafkaMetric:
        """Register a gauge, or return the existing metric of this name."""
        return self.register(KafkaMetric(metric_name, provider, config or self.config, self.clock))

    def register(self, metric: KafkaMetric) -> KafkaMetric:
        """Register ``metric``, unless there is a metric of its name; return the registered one."""
        with self._lock:
            registered = self._metrics.setdefault(metric.metric_name, metric)
            reporters = list(self._reporters)
        if registered is metric:
            for reporter in reporters:
                _tell(reporter, "metric_change", metric)
        return registered

    def remove_metric(self, metric_name: MetricName) -> KafkaMetric | None:
        with self._lock:
            metric = self._metrics.pop(metric_name, None)
            reporters = list(self._reporters)
        if metric is not None:
            for reporter in reporters:
                _tell(reporter, "metric_removal", metric)
        return metric

    def metric(self, metric_name: MetricName) -> KafkaMetric | None:
        return self._metrics.get(metric_name)

    @property
    def metrics(self) -> dict[MetricName, KafkaMetric]:
        """Return a copy of all metrics by name."""
        self._sweep()
        with self._lock:
            return dict(self._metrics)

    def by_group(self) -> dict[str, dict[str, Any]]:
        """Return all values as ``{group: {name: value}}``, like kafka-python.

        Values of tags other than the registry's become part of the group: ``producer-topic-metrics.orders``.
        """
        groups: dict[str, dict[str, Any]] = {}
        for name, metric in self.metrics.items():
            own_tags = [value for tag, value in name.tags.items() if tag not in self.config.tags]
            group = ".".join([name.group, *own_tags])
            groups.setdefault(group, {})[name.name] = metric.metric_value()
        return groups

    # --- telemetry -------------------------------------------------------------------------------------------------

    def register_for_subscription(self, metric: KafkaMetric) -> bool:
        """Add a metric of the application to those that are pushed (KIP-1076). It replaces one of the same name.

        Return False, and change nothing, if the client has a metric of this name.
        """
        with self._lock:
            if metric.metric_name in self._metrics:
                return False
            self._of_application[metric.metric_name] = metric
            return True

    def unregister_from_subscription(self, metric: KafkaMetric) -> bool:
        """Push a metric of the application no more. Return False if there is none of its name."""
        with self._lock:
            return self._of_application.pop(metric.metric_name, None) is not None

    @property
    def pushed(self) -> dict[MetricName, KafkaMetric]:
        """Return a copy of the metrics that may be pushed: the client's, and those that the application registered."""
        metrics = self.metrics
        with self._lock:
            return {**self._of_application, **metrics}

    def update_labels(self, **labels: str) -> None:
        """Set attributes of the client that each push has from now on."""
        with self._lock:
            self._labels = {**self._labels, **labels}

    @property
    def labels(self) -> dict[str, str]:
        """The attributes that were set. The dictionary never changes."""
        return self._labels

    # --- reporters -------------------------------------------------------------------------------------------------

    @property
    def reporters(self) -> list[MetricsReporter]:
        with self._lock:
            return list(self._reporters)

    def add_reporter(self, reporter: MetricsReporter) -> None:
        with self._lock:
            existing = list(self._metrics.values())
            self._reporters.append(reporter)
        if callable(getattr(reporter, "context_change", None)):
            reporter.context_change(MetricsContext(self.config.context))
        reporter.init(existing)

    def remove_reporter(self, reporter: MetricsReporter) -> None:
        with self._lock:
            if reporter not in self._reporters:
                return
            self._reporters.remove(reporter)
        _tell(reporter, "close")

    def close(self) -> None:
        """Close the reporters. The metrics can still be read."""
        for reporter in self.reporters:
            self.remove_reporter(reporter)


def _tell(reporter: MetricsReporter, method: str, *args: Any) -> None:
    try:
        getattr(reporter, method)(*args)
    except Exception:
        _logger.exception("Metrics reporter %s failed in %s", type(reporter).__name__, method)
