"""The registry of a client's metrics (Java: Metrics)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from pykclient.argument_values import checked_flag
from pykclient.clock import SYSTEM_CLOCK, Clock
from pykclient.errors import IllegalArgumentError
from pykclient.metrics.kafka_metric import KafkaMetric, MetricConfig, MetricName, RecordingLevel
from pykclient.metrics.sensor import Sensor, SensorOptions
from pykclient.version import __version__


class MetricsContext:
    """The labels that describe a client's metrics (KIP-606; Java: MetricsContext). Thread: any (immutable)."""

    NAMESPACE: Final = "_namespace"

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = dict(labels)

    def context_labels(self) -> dict[str, str]:
        """Return the labels: ``_namespace``, such as "kafka.producer", and those set as ``metrics.context.<label>``."""
        return dict(self._labels)


class MetricsReporter:
    """A reporter, which is notified of added and removed metrics, and may read their values at any time.

    Its errors are logged and otherwise ignored. Any object with these methods will do. Thread: any (the thread that
    adds or removes the metric).
    """

    def context_change(self, metrics_context: MetricsContext) -> None:
        """Receive the client's labels (KIP-606). Called before ``init``. Optional."""

    def init(self, metrics: Sequence[KafkaMetric]) -> None:
        """Handle the existing metrics. Called before the following methods."""

    def metric_change(self, metric: KafkaMetric) -> None:
        """Handle an added metric."""

    def metric_removal(self, metric: KafkaMetric) -> None:
        """Handle a removed metric."""

    def close(self) -> None:
        """Release resources, as the client is closing."""


class MetricSource(Protocol):
    """Metrics that exist while somebody reads them: objects for those of thousands of partitions take megabytes.

    A source announces each metric that is added or removed to the registry. Thread: any.
    """

    def __len__(self) -> int:
        """Return the number of metrics."""

    def metrics(self) -> Iterable[KafkaMetric]:
        """Return all metrics, as new objects."""

    def metric(self, metric_name: MetricName) -> KafkaMetric | None:
        """Return the metric of this name, if it is one of this source's."""


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
        # guards: _metrics, _sources, _of_application, _sensors, _children, _reporters, _labels, _next_sweep_ms
        self._lock = threading.RLock()
        self._metrics: dict[MetricName, KafkaMetric] = {}
        self._sources: tuple[MetricSource, ...] = ()
        self._of_application: dict[MetricName, KafkaMetric] = {}
        self._labels: dict[str, str] = {}
        self._sensors: dict[str, Sensor] = {}
        self._children: dict[Sensor, list[Sensor]] = {}
        self._reporters: list[MetricsReporter] = []
        self._next_sweep_ms = clock.now_ms() + _SWEEP_INTERVAL_MS
        for reporter in reporters:
            self.add_reporter(reporter)
        count_name = self.metric_name("count", "kafka-metrics-count", "How many metrics there are")
        self.add_metric(count_name, lambda _config, _now_ms: len(self._metrics) + sum(map(len, self._sources)))

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
        """Return the metric of this name, if there is one."""
        metric = self._metrics.get(metric_name)
        if metric is not None:
            return metric
        return next((found for source in self._sources if (found := source.metric(metric_name)) is not None), None)

    @property
    def metrics(self) -> dict[MetricName, KafkaMetric]:
        """Return a copy of all metrics by name."""
        self._sweep()
        with self._lock:
            metrics = dict(self._metrics)
        for source in self._sources:
            metrics.update((metric.metric_name, metric) for metric in source.metrics())
        return metrics

    def add_source(self, source: MetricSource) -> None:
        """Add metrics that are made when they are read. The source has none yet."""
        with self._lock:
            self._sources = (*self._sources, source)

    @property
    def has_reporters(self) -> bool:
        """Return whether somebody wants to know of added and removed metrics."""
        return bool(self._reporters)

    def announce(self, added: Iterable[KafkaMetric] = (), removed: Iterable[KafkaMetric] = ()) -> None:
        """Tell the reporters of metrics that a source has, or has no more."""
        for method, metrics in (("metric_change", added), ("metric_removal", removed)):
            for metric in metrics:
                for reporter in self.reporters:
                    _tell(reporter, method, metric)

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
        """Push a metric of the application (KIP-1076). Replaces one of the same name.

        Return False, and change nothing, if the client has a metric of this name.
        """
        if self.metric(metric.metric_name) is not None:
            return False
        with self._lock:
            self._of_application[metric.metric_name] = metric
            return True

    def unregister_from_subscription(self, metric: KafkaMetric) -> bool:
        """Stop pushing a metric of the application. Return False if there is none of its name."""
        with self._lock:
            return self._of_application.pop(metric.metric_name, None) is not None

    @property
    def pushed(self) -> dict[MetricName, KafkaMetric]:
        """Return a copy of the metrics that may be pushed: the client's, and those that the application registered."""
        metrics = self.metrics
        with self._lock:
            return {**self._of_application, **metrics}

    def update_labels(self, **labels: str) -> None:
        """Set attributes of the client for all later pushes."""
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
        existing += [metric for source in self._sources for metric in source.metrics()]
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


_GROUP: Final = "app-info"
#: The value of ``commit-id``, as packages do not hold the commit that they were built from.
_UNKNOWN: Final = "unknown"


def register_app_info(metrics: Metrics) -> None:
    """Register the version of this package, and when the client started, in milliseconds since the epoch."""
    start_ms = metrics.clock.wall_ms()
    for name, value, description in (
        ("version", __version__, "The version of pykclient"),
        ("commit-id", _UNKNOWN, "The commit that the package was built from"),
        ("start-time-ms", start_ms, "When the client started, in milliseconds since the epoch"),
    ):
        metrics.add_metric(metrics.metric_name(name, _GROUP, description), _constant(value))


def _constant(value: object) -> Callable[[MetricConfig, int], object]:
    return lambda _config, _now_ms: value


class SubscribedMetrics:
    """A client with metrics, which pushes metrics of the application with its own. Thread: any."""

    __slots__ = ()

    def _registry(self, call: str) -> Metrics:
        """Return the client's metrics, if the client can be used. ``call`` names the method for an error."""
        raise NotImplementedError

    def metrics(self, raw: bool = False) -> dict[Any, Any]:
        """Return the current values as ``{group: {name: value}}``; with ``raw``, metric objects by their MetricName.

        May be called from any thread.

        Raises:
            IllegalArgumentError: ``raw`` is not a ``bool``.
        """
        metrics = self._registry("metrics()")
        return metrics.metrics if checked_flag(raw, "raw") else metrics.by_group()

    def register_metric_for_subscription(self, metric: KafkaMetric) -> None:
        """Push ``metric`` with the client's own metrics to brokers whose subscription names it (KIP-714, KIP-1076).

        It is called ``org.apache.kafka.<group>.<name>``, with dots for hyphens, and is a sum if its name ends with
        ``-total``, else a gauge. A metric of the application that has the same name and tags is replaced. A metric of
        the client is not: then this call has no effect. The metric is not among ``metrics()``.

        May be called from any thread. The metric is read by the thread that pushes.

        Raises:
            IllegalArgumentError: ``metric`` is no KafkaMetric.
        """
        if not self._registry("register_metric_for_subscription()").register_for_subscription(_checked(metric)):
            _logger.debug("%r is a metric of the client, and is not replaced", metric.metric_name)

    def unregister_metric_from_subscription(self, metric: KafkaMetric) -> None:
        """Stop pushing ``metric``, or the application's metric with the same name and tags.

        Without such a metric this call has no effect. May be called from any thread.

        Raises:
            IllegalArgumentError: ``metric`` is no KafkaMetric.
        """
        if not self._registry("unregister_metric_from_subscription()").unregister_from_subscription(_checked(metric)):
            _logger.debug("%r is no registered metric of the application", metric.metric_name)


def _checked(metric: KafkaMetric) -> KafkaMetric:
    if not isinstance(metric, KafkaMetric):
        raise IllegalArgumentError(f"a KafkaMetric is needed, not a {type(metric).__name__}")
    return metric
