"""Metrics with Java's names and meaning (Java: org.apache.kafka.common.metrics).

Sensors record values, stats compute metrics from them, and the registry tells reporters. Stats have no locks; their
sensor locks. Times are milliseconds of the sensor's clock.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, Self, overload

from pykclient.argument_values import checked_flag
from pykclient.clock import FOREVER_MS, HERE, SYSTEM_CLOCK, Clock
from pykclient.errors import IllegalArgumentError
from pykclient.version import __version__

__all__ = [
    "KafkaMetric",
    "MetricConfig",
    "MetricName",
    "Metrics",
    "MetricsContext",
    "MetricsReporter",
    "RecordingLevel",
    "Sensor",
]


class MetricName:
    """A name within a group, and tags that distinguish metrics of the same name.

    Equality ignores the description. Thread: any (immutable).
    """

    __slots__ = ("_hash", "description", "group", "name", "tags")

    def __init__(self, name: str, group: str, description: str = "", tags: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.group = group
        self.description = description
        self.tags: dict[str, str] = dict(tags or {})
        # Only the hash is kept: with thousands of partitions, keys would be a quarter of a consumer's memory.
        self._hash = hash((name, group, frozenset(self.tags.items())))

    def sibling(self, name: str, description: str = "") -> MetricName:
        """Return another name with this one's group and tags, which both share: most of a name's memory is its tags."""
        sibling = MetricName(name, self.group, description, self.tags)
        sibling.tags = self.tags
        return sibling

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, MetricName)
            and self._hash == other._hash
            and self.name == other.name
            and self.group == other.group
            and self.tags == other.tags
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"MetricName({self.name!r}, group={self.group!r}, tags={self.tags!r})"


#: The value of ``event_window`` for windows that end by time alone.
UNLIMITED_EVENTS: Final = (1 << 63) - 1


class RecordingLevel:
    """The level of a sensor, compared with ``metrics.recording.level``."""

    INFO: Final = 0
    DEBUG: Final = 1
    TRACE: Final = 2

    @staticmethod
    def for_name(name: str) -> int:
        """Return the level for a value of ``metrics.recording.level``."""
        return {"INFO": 0, "DEBUG": 1, "TRACE": 2}[name.upper()]


class MetricConfig:
    """The sampling of one client's metrics: ``samples`` windows of ``time_window_ms`` each.

    A window also ends after ``event_window`` values. ``tags`` are added to every metric's own. Reporters are told the
    labels in ``context``. Thread: any (immutable).
    """

    def __init__(
        self,
        samples: int = 2,
        time_window_ms: int = 30_000,
        record_level: int = RecordingLevel.INFO,
        tags: Mapping[str, str] | None = None,
        event_window: int = UNLIMITED_EVENTS,
        context: Mapping[str, str] | None = None,
    ) -> None:
        if samples < 1:
            raise IllegalArgumentError(f"samples = {samples}: at least one is needed")
        self.samples = samples
        self.time_window_ms = time_window_ms
        self.record_level = record_level
        self.tags: dict[str, str] = dict(tags or {})
        self.event_window = event_window
        self.context: dict[str, str] = dict(context or {})

    @classmethod
    def of(cls, config: Mapping[str, Any], client_id: str, context: Mapping[str, str] | None = None) -> MetricConfig:
        """Return the settings from a client's configuration, with the tag ``client-id``."""
        return cls(
            context=context,
            samples=config["metrics.num.samples"],
            time_window_ms=config["metrics.sample.window.ms"],
            record_level=RecordingLevel.for_name(config["metrics.recording.level"]),
            tags={"client-id": client_id},
        )


class KafkaMetric:
    """A name and a way to compute its value. Thread: any.

    ``provider(config, now_ms)`` returns the value. It is called without a lock.
    """

    __slots__ = ("_clock", "_provider", "config", "metric_name")

    def __init__(
        self,
        metric_name: MetricName,
        provider: Callable[[MetricConfig, int], Any],
        config: MetricConfig | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.metric_name = metric_name
        self.config = MetricConfig() if config is None else config
        self._provider = provider
        self._clock = clock

    def metric_value(self) -> Any:
        """Return the current value: a float for a stat, anything for a gauge."""
        return self._provider(self.config, self._clock.now_ms())

    def value(self) -> Any:
        """Return the current value: ``metric_value`` under kafka-python's name."""
        return self.metric_value()

    def __repr__(self) -> str:
        return f"KafkaMetric({self.metric_name!r})"


_NAN = float("nan")
_INFINITY = float("inf")


class Tally:
    """Values that are recorded together: their number, sum and extremes. Thread: owner."""

    __slots__ = ("count", "largest", "smallest", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total: float = 0
        self.largest = -_INFINITY
        self.smallest = _INFINITY

    @classmethod
    def of(cls, *values: float) -> Self:
        """Return the tally of these values."""
        tally = cls()
        tally.count = len(values)
        tally.total = sum(values)
        tally.largest = max(values, default=-_INFINITY)
        tally.smallest = min(values, default=_INFINITY)
        return tally

    def add(self, other: Tally) -> None:
        """Add the values of a tally that is not empty."""
        self.count += other.count
        self.total += other.total
        self.largest = max(self.largest, other.largest)
        self.smallest = min(self.smallest, other.smallest)


class Stat(Protocol):
    """A consumer of recorded values. Thread: owner."""

    def record(self, config: MetricConfig, values: Tally, now_ms: int) -> None:
        """Record values as of ``now_ms``."""

    def window_end_ms(self, config: MetricConfig) -> int:
        """Return the time until which values may be recorded together instead of one by one."""


class MeasurableStat(Stat, Protocol):
    """A stat that computes one value. Thread: owner."""

    def measure(self, config: MetricConfig, now_ms: int) -> float: ...


class Sample:
    """The values of one window. Thread: owner."""

    __slots__ = ("event_count", "last_event_ms", "start_ms", "value")

    def __init__(self, value: float, now_ms: int) -> None:
        self.reset(value, now_ms)

    def reset(self, value: float, now_ms: int) -> None:
        self.value = value
        self.event_count = 0
        self.start_ms = now_ms
        self.last_event_ms = now_ms


class SampledStat:
    """A stat of the last few windows. Thread: owner.

    It keeps one sample more than configured, because the oldest one may overlap the observed span (KAFKA-13152).
    """

    __slots__ = ("_current", "_initial_value", "samples")

    def __init__(self, initial_value: float = 0.0) -> None:
        self._initial_value = initial_value
        self._current = 0
        self.samples: tuple[Sample, ...] = ()  # smaller than a list, and changed once in a window at most

    def record(self, config: MetricConfig, values: Tally, now_ms: int) -> None:
        if self.samples:
            sample = self.samples[self._current]
            if now_ms - sample.start_ms >= config.time_window_ms or sample.event_count >= config.event_window:
                sample = self._advance(config, now_ms)
        else:
            sample = self._new_sample(now_ms)
        self._update(sample, values)
        sample.event_count += values.count
        sample.last_event_ms = now_ms

    def window_end_ms(self, config: MetricConfig) -> int:
        if not self.samples or config.event_window < UNLIMITED_EVENTS:
            return 0
        return self.samples[self._current].start_ms + config.time_window_ms

    def measure(self, config: MetricConfig, now_ms: int) -> float:
        self.purge(config, now_ms)
        return self._combine(self.samples)

    def purge(self, config: MetricConfig, now_ms: int) -> None:
        """Reset the samples whose last value is too old."""
        oldest_ms = now_ms - config.samples * config.time_window_ms
        for sample in self.samples:
            if sample.last_event_ms <= oldest_ms:
                sample.reset(self._initial_value, now_ms)

    def oldest_start_ms(self, now_ms: int) -> int:
        """Return the start of the oldest window; start one now if there is none."""
        if not self.samples:
            self._new_sample(now_ms)
        return min(sample.start_ms for sample in self.samples)

    def _new_sample(self, now_ms: int) -> Sample:
        sample = Sample(self._initial_value, now_ms)
        self.samples = (*self.samples, sample)
        return sample

    def _advance(self, config: MetricConfig, now_ms: int) -> Sample:
        self._current = (self._current + 1) % (config.samples + 1)
        if self._current >= len(self.samples):
            return self._new_sample(now_ms)
        sample = self.samples[self._current]
        sample.reset(self._initial_value, now_ms)
        return sample

    def _update(self, sample: Sample, values: Tally) -> None:
        sample.value += values.total

    def _combine(self, samples: Iterable[Sample]) -> float:
        raise NotImplementedError


class SampledTally(Tally):
    """The number, sum and extremes of the values of the last few windows; as a Tally, those of the current window.

    It counts what an Avg, a Max and a Min would, in windows of the same bounds, and takes a tenth of the memory of a
    sensor with these stats. Thread: owner.
    """

    __slots__ = ("_last_ms", "_older", "_start_ms")

    def __init__(self) -> None:
        super().__init__()
        self._older: tuple[tuple[int, Tally], ...] = ()  # the times of their last values, and their values
        self._last_ms = self._start_ms = 0

    def record(self, config: MetricConfig, value: float, now_ms: int) -> None:
        """Record a value as of ``now_ms``."""
        is_over = now_ms - self._start_ms >= config.time_window_ms or self.count >= config.event_window
        if self.count and is_over:
            window = Tally()
            window.add(self)
            self._older = (*self._older, (self._last_ms, window))[-config.samples :]
        if is_over or not self.count:
            super().__init__()
            self._start_ms = now_ms
        self.count += 1
        self.total += value
        self.largest = max(self.largest, value)
        self.smallest = min(self.smallest, value)
        self._last_ms = now_ms

    def tally(self, config: MetricConfig, now_ms: int) -> Tally:
        """Return the values of the windows that are not too old."""
        oldest_ms = now_ms - config.samples * config.time_window_ms
        tally = Tally()
        for last_ms, window in (*self._older, (self._last_ms, self)) if self.count else ():
            if last_ms > oldest_ms:
                tally.add(window)
        return tally


class Avg(SampledStat):
    """The mean of the values; NaN without any. Thread: owner."""

    __slots__ = ()

    def _combine(self, samples: Iterable[Sample]) -> float:
        total, count = 0.0, 0
        for sample in samples:
            total += sample.value
            count += sample.event_count
        return total / count if count else _NAN


class Max(SampledStat):
    """The largest value; NaN without any. Thread: owner."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(-_INFINITY)

    def _update(self, sample: Sample, values: Tally) -> None:
        sample.value = max(sample.value, values.largest)

    def _combine(self, samples: Iterable[Sample]) -> float:
        return max((sample.value for sample in samples if sample.event_count), default=_NAN)


class Min(SampledStat):
    """The smallest value; NaN without any. Thread: owner."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(_INFINITY)

    def _update(self, sample: Sample, values: Tally) -> None:
        sample.value = min(sample.value, values.smallest)

    def _combine(self, samples: Iterable[Sample]) -> float:
        return min((sample.value for sample in samples if sample.event_count), default=_NAN)


class WindowedSum(SampledStat):
    """The sum of the values. Thread: owner."""

    __slots__ = ()

    def _combine(self, samples: Iterable[Sample]) -> float:
        return sum((sample.value for sample in samples), 0.0)


class WindowedCount(WindowedSum):
    """The number of values. Thread: owner."""

    __slots__ = ()

    def _update(self, sample: Sample, values: Tally) -> None:
        sample.value += values.count


class Rate:
    """A sampled sum per second (or per ``unit_ms``). Thread: owner."""

    __slots__ = ("_unit_ms", "stat")

    def __init__(self, stat: SampledStat | None = None, unit_ms: int = 1_000) -> None:
        self.stat = WindowedSum() if stat is None else stat
        self._unit_ms = unit_ms

    def record(self, config: MetricConfig, values: Tally, now_ms: int) -> None:
        self.stat.record(config, values, now_ms)

    def window_end_ms(self, config: MetricConfig) -> int:
        return self.stat.window_end_ms(config)

    def measure(self, config: MetricConfig, now_ms: int) -> float:
        value = self.stat.measure(config, now_ms)
        return value * self._unit_ms / self.window_size_ms(config, now_ms)

    def window_size_ms(self, config: MetricConfig, now_ms: int) -> int:
        """Return the span that the sum covers, at least one millisecond.

        All windows but one count as full from the start. Otherwise the first value of an idle sensor would show as a
        huge rate.
        """
        self.stat.purge(config, now_ms)
        elapsed_ms = now_ms - self.stat.oldest_start_ms(now_ms)
        full_windows = elapsed_ms // config.time_window_ms if config.time_window_ms else config.samples
        missing_windows = max(0, config.samples - 1 - full_windows)
        return max(elapsed_ms + missing_windows * config.time_window_ms, 1)


class CumulativeSum:
    """The sum of all values ever. Thread: owner."""

    __slots__ = ("_total",)

    def __init__(self, value: float = 0.0) -> None:
        self._total = value

    def record(self, config: MetricConfig, values: Tally, now_ms: int) -> None:  # noqa: ARG002
        self._total += values.total

    def window_end_ms(self, config: MetricConfig) -> int:  # noqa: ARG002
        return FOREVER_MS

    def measure(self, config: MetricConfig, now_ms: int) -> float:  # noqa: ARG002
        return self._total


class CumulativeCount(CumulativeSum):
    """The number of all values ever. Thread: owner."""

    __slots__ = ()

    def record(self, config: MetricConfig, values: Tally, now_ms: int) -> None:  # noqa: ARG002
        self._total += values.count


class Meter:
    """A rate and a total of the same values. Thread: owner."""

    __slots__ = ("_rate", "_rate_name", "_total", "_total_name")

    def __init__(
        self,
        rate_metric_name: MetricName,
        total_metric_name: MetricName,
        rate_stat: SampledStat | None = None,
        unit_ms: int = 1_000,
    ) -> None:
        if rate_stat is not None and not isinstance(rate_stat, WindowedSum):
            raise IllegalArgumentError("a Meter's rate is of a WindowedSum or a WindowedCount")
        self._rate = Rate(rate_stat, unit_ms)
        self._total = CumulativeCount() if isinstance(rate_stat, WindowedCount) else CumulativeSum()
        self._rate_name = rate_metric_name
        self._total_name = total_metric_name

    def stats(self) -> dict[MetricName, MeasurableStat]:
        """Return the stats that measure, by the names of their metrics."""
        return {self._total_name: self._total, self._rate_name: self._rate}

    def record(self, config: MetricConfig, values: Tally, now_ms: int) -> None:
        self._rate.record(config, values, now_ms)
        self._total.record(config, values, now_ms)

    def window_end_ms(self, config: MetricConfig) -> int:
        return self._rate.window_end_ms(config)


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

    ``parents`` also record every value. A sensor without a value for ``inactive_expiration_ms`` is removed (None:
    never). ``before_read`` is called with the time before one of the sensor's metrics is read: it records what its
    owner has only counted so far.

    Values are added up first, which costs much less than a call of each stat. The stats get the sum when one of their
    windows ends, or when a metric is read. So metrics are the same as if each value had been passed on at once.
    """

    def __init__(
        self,
        registry: Metrics,
        name: str,
        config: MetricConfig,
        parents: tuple[Sensor, ...],
        recording_level: int,
        inactive_expiration_ms: int | None,
        before_read: Callable[[int], object] | None,
    ) -> None:
        self.name = name
        self.parents = parents
        self._registry = registry
        self._config = config
        self._before_read = before_read
        self._clock = registry.clock
        self._should_record = recording_level <= config.record_level
        self._inactive_expiration_ms = inactive_expiration_ms
        self._last_record_ms = self._clock.now_ms()
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
    def add(self, what: Meter, /, *, config: MetricConfig | None = None) -> bool: ...

    @overload
    def add(self, what: MetricName, stat: MeasurableStat, /, config: MetricConfig | None = None) -> bool: ...

    def add(
        self, what: MetricName | Meter, stat: MeasurableStat | None = None, /, config: MetricConfig | None = None
    ) -> bool:
        """Register the metric that ``stat`` computes from this sensor's values, or all metrics of a Meter.

        Adding a metric again changes nothing. Return False if the sensor has expired.

        Raises:
            IllegalArgumentError: another sensor has the metric.
        """
        if not isinstance(what, MetricName):
            return self._add(what.stats(), what, config)
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
                sensor = self._sensors[name] = Sensor(
                    self, name, config or self.config, parents, recording_level, inactive_expiration_ms, before_read
                )
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
        self, metric_name: MetricName, provider: Callable[[MetricConfig, int], Any], config: MetricConfig | None = None
    ) -> KafkaMetric:
        """Register a gauge: ``provider(config, now_ms)`` is called whenever the metric is read.

        Raises:
            IllegalArgumentError: a metric of this name exists.
        """
        metric = KafkaMetric(metric_name, provider, config or self.config, self.clock)
        if self.register(metric) is not metric:
            raise IllegalArgumentError(f"{metric_name!r} is registered already")
        return metric

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
