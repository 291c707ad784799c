"""Sensors, which record values (Java: Sensor)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol, overload

from pykclient.clock import FOREVER_MS, Clock
from pykclient.errors import IllegalArgumentError
from pykclient.metrics.kafka_metric import KafkaMetric, MetricConfig, MetricName, RecordingLevel
from pykclient.metrics.stats import CompoundStat, MeasurableStat, Stat, Tally
from pykclient.reentry import HERE


class MetricRegistry(Protocol):
    """The part of ``Metrics`` that a sensor uses."""

    def register(self, metric: KafkaMetric) -> KafkaMetric:
        """Add a metric; return the one that has its name already, if any."""

    def metric(self, metric_name: MetricName) -> KafkaMetric | None: ...

    def remove_metric(self, metric_name: MetricName) -> KafkaMetric | None: ...


class SensorOptions:
    """The properties of a sensor.

    ``parents`` also record every value. A sensor without a value for ``inactive_expiration_ms`` is removed (None:
    never). ``before_read`` is called with the time before one of the sensor's metrics is read: it records what its
    owner has only counted so far.
    """

    __slots__ = ("before_read", "config", "inactive_expiration_ms", "parents", "recording_level")

    def __init__(
        self,
        config: MetricConfig,
        parents: Sequence[Sensor] = (),
        recording_level: int = RecordingLevel.INFO,
        inactive_expiration_ms: int | None = None,
        before_read: Callable[[int], object] | None = None,
    ) -> None:
        self.config = config
        self.before_read = before_read
        self.parents = tuple(parents)
        self.recording_level = recording_level
        self.inactive_expiration_ms = inactive_expiration_ms


class SensorMetric(KafkaMetric):
    """The metric that ``stat`` computes from the values of ``sensor``. Thread: any.

    It has no provider: functions for the metrics of thousands of partitions take megabytes.
    """

    __slots__ = ("_sensor", "_stat")

    def __init__(
        self, metric_name: MetricName, stat: MeasurableStat, config: MetricConfig, clock: Clock, sensor: Sensor
    ) -> None:
        self.metric_name = metric_name
        self.config = config
        self._stat = stat
        self._clock = clock
        self._sensor = sensor

    def metric_value(self) -> float:
        return self._sensor.measure(self._stat, self.config, self._clock.now_ms())


class Sensor:
    """Passes recorded values to its stats and its parents. Created by ``Metrics.sensor``. Thread: any.

    Values are added up first, which costs much less than a call of each stat. The stats get the sum when one of their
    windows ends, or when a metric is read. So metrics are the same as if each value had been passed on at once.
    """

    __slots__ = (
        "_before_read",
        "_clock",
        "_config",
        "_inactive_expiration_ms",
        "_last_record_ms",
        "_lock",
        "_metrics",
        "_next_pass_ms",
        "_registry",
        "_should_record",
        "_stats",
        "_tally",
        "name",
        "parents",
    )

    def __init__(self, registry: MetricRegistry, name: str, options: SensorOptions, clock: Clock) -> None:
        self.name = name
        self.parents = options.parents
        self._registry = registry
        self._config = options.config
        self._before_read = options.before_read
        self._clock = clock
        self._should_record = options.recording_level <= options.config.record_level
        self._inactive_expiration_ms = options.inactive_expiration_ms
        self._last_record_ms = clock.now_ms()
        self._next_pass_ms = 0
        self._tally = Tally()
        # guards: the stats' state, _stats, _metrics, _tally, _last_record_ms, _next_pass_ms
        self._lock = threading.Lock()
        self._stats: tuple[tuple[Stat, MetricConfig], ...] = ()
        self._metrics: tuple[SensorMetric, ...] = ()  # few: smaller than a dictionary
        self._check_parents(set())

    def _check_parents(self, seen: set[Sensor]) -> None:
        # With two paths to an ancestor, a value would be recorded there twice.
        if self in seen:
            raise IllegalArgumentError(f"sensor {self.name!r} would get the same value twice")
        seen.add(self)
        for parent in self.parents:
            parent._check_parents(seen)

    def record(self, value: float = 1.0, now_ms: int | None = None) -> None:
        """Record a value. Passing ``now_ms`` saves reading the clock."""
        if not self._should_record:
            return
        if now_ms is None:
            now_ms = self._clock.now_ms()
        with HERE.mark, self._lock:
            if now_ms >= self._next_pass_ms and self._tally.count:
                self._pass_on()
            tally = self._tally
            tally.count += 1
            tally.total += value
            if value > tally.largest:  # noqa: PLR1730 - saves two calls per value
                tally.largest = value
            if value < tally.smallest:  # noqa: PLR1730
                tally.smallest = value
            tally.last = value
            self._last_record_ms = now_ms
            if now_ms >= self._next_pass_ms:
                self._pass_on()
        for parent in self.parents:
            parent.record(value, now_ms)

    def record_all(self, values: Tally, now_ms: int) -> None:
        """Record values that were added up."""
        if not self._should_record or not values.count:
            return
        with HERE.mark, self._lock:
            if now_ms >= self._next_pass_ms and self._tally.count:
                self._pass_on()
            self._tally.add(values)
            self._last_record_ms = now_ms
            if now_ms >= self._next_pass_ms:
                self._pass_on()
        for parent in self.parents:
            parent.record_all(values, now_ms)

    def _pass_on(self) -> None:
        """Pass the tally to the stats, as of its last value. The caller has the lock.

        A value that ends a window is passed on alone: it begins the next one.
        """
        values, self._tally = self._tally, Tally()
        next_pass_ms = FOREVER_MS
        for stat, config in self._stats:
            stat.record(config, values, self._last_record_ms)
            next_pass_ms = min(next_pass_ms, stat.window_end_ms(config))
        self._next_pass_ms = next_pass_ms

    def measure(self, stat: MeasurableStat, config: MetricConfig, now_ms: int) -> float:
        """Return what ``stat`` computes from all values so far."""
        if self._before_read is not None:
            self._before_read(now_ms)
        with HERE.mark, self._lock:
            if self._tally.count:
                self._pass_on()
            return stat.measure(config, now_ms)

    @overload
    def add(self, what: CompoundStat, /, *, config: MetricConfig | None = None) -> bool: ...

    @overload
    def add(self, what: MetricName, stat: MeasurableStat, /, config: MetricConfig | None = None) -> bool: ...

    def add(
        self,
        what: MetricName | CompoundStat,
        stat: MeasurableStat | None = None,
        /,
        config: MetricConfig | None = None,
    ) -> bool:
        """Register the metric that ``stat`` computes from this sensor's values, or all metrics of a compound stat
        (Meter).

        Adding a metric again changes nothing. Return False if the sensor has expired.

        Raises:
            IllegalArgumentError: another sensor has the metric.
        """
        if not isinstance(what, MetricName):
            return self._add(dict(what.stats()), what, config)
        if stat is None:
            raise IllegalArgumentError("a metric needs a stat that computes it")
        return self._add({what: stat}, stat, config)

    def _add(self, parts: dict[MetricName, MeasurableStat], stat: Stat, config: MetricConfig | None) -> bool:
        if self.has_expired():
            return False
        config = self._config if config is None else config
        with HERE.mark, self._lock:
            present = {metric.metric_name for metric in self._metrics}
            new = tuple(
                SensorMetric(metric_name, measurable, config, self._clock, self)
                for metric_name, measurable in parts.items()
                if metric_name not in present
            )
            self._metrics += new
        # Outside the lock, because the registry notifies reporters.
        for metric in new:
            if self._registry.register(metric) is not metric:
                self._take_back(new)
                raise IllegalArgumentError(f"{metric.metric_name!r} is registered already, by another sensor")
        if new:
            with HERE.mark, self._lock:
                if self._tally.count:
                    self._pass_on()  # those values were recorded before this stat was added
                self._stats = (*self._stats, (stat, config))
                self._next_pass_ms = 0
        return True

    def _take_back(self, metrics: tuple[SensorMetric, ...]) -> None:
        with HERE.mark, self._lock:
            self._metrics = tuple(metric for metric in self._metrics if metric not in metrics)
        for metric in metrics:
            if self._registry.metric(metric.metric_name) is metric:
                self._registry.remove_metric(metric.metric_name)

    @property
    def metrics(self) -> list[KafkaMetric]:
        """Return the metrics computed from this sensor."""
        return list(self._metrics)

    def has_expired(self, now_ms: int | None = None) -> bool:
        """Return whether the sensor has been inactive for long enough to be removed."""
        if self._inactive_expiration_ms is None:
            return False
        now_ms = self._clock.now_ms() if now_ms is None else now_ms
        return now_ms - self._last_record_ms > self._inactive_expiration_ms

    def __repr__(self) -> str:
        return f"Sensor({self.name!r})"
