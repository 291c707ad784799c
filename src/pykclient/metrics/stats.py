"""Stats, which compute metrics from recorded values (Java: common.metrics.stats).

They have no locks; their sensor locks. Times are milliseconds of the sensor's clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol, Self

from pykclient.clock import FOREVER_MS
from pykclient.errors import IllegalArgumentError
from pykclient.metrics.kafka_metric import UNLIMITED_EVENTS, MetricConfig, MetricName

_NAN = float("nan")
_INFINITY = float("inf")


class Tally:
    """Values that are recorded together: their number, sum, extremes, and the last of them. Thread: owner."""

    __slots__ = ("count", "largest", "last", "smallest", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total: float = 0
        self.largest = -_INFINITY
        self.smallest = _INFINITY
        self.last: float = 0

    @classmethod
    def of(cls, *values: float) -> Self:
        """Return the tally of these values."""
        tally = cls()
        tally.count = len(values)
        tally.total = sum(values)
        tally.largest = max(values, default=-_INFINITY)
        tally.smallest = min(values, default=_INFINITY)
        tally.last = values[-1] if values else 0
        return tally

    def add(self, other: Tally) -> None:
        """Add the values of a tally that is not empty."""
        self.count += other.count
        self.total += other.total
        self.largest = max(self.largest, other.largest)
        self.smallest = min(self.smallest, other.smallest)
        self.last = other.last


class Stat(Protocol):
    """A consumer of recorded values. Thread: owner."""

    def record(self, config: MetricConfig, values: Tally, now_ms: int) -> None:
        """Record values as of ``now_ms``."""

    def window_end_ms(self, config: MetricConfig) -> int:
        """Return the time until which values may be recorded together instead of one by one."""


class MeasurableStat(Stat, Protocol):
    """A stat that computes one value. Thread: owner."""

    def measure(self, config: MetricConfig, now_ms: int) -> float: ...


class NamedMeasurable(NamedTuple):
    """A part of a compound stat."""

    name: MetricName
    stat: MeasurableStat


class CompoundStat(Stat, Protocol):
    """Computes several metrics from the same values. Thread: owner."""

    def stats(self) -> list[NamedMeasurable]: ...


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


class SampledTally:
    """The number, sum and extremes of the values of the last few windows. Thread: owner.

    It counts what an Avg, a Max and a Min would, in windows of the same bounds, and takes a tenth of the memory of a
    sensor with these stats.
    """

    __slots__ = ("_count", "_largest", "_last_ms", "_older", "_smallest", "_start_ms", "_total")

    def __init__(self) -> None:
        self._older: tuple[tuple[int, Tally], ...] = ()  # the times of their last values, and their values
        self._last_ms = 0
        self._start_window(0)

    def _start_window(self, now_ms: int) -> None:
        self._start_ms = now_ms
        self._count = 0
        self._total: float = 0
        self._largest = -_INFINITY
        self._smallest = _INFINITY

    def record(self, config: MetricConfig, value: float, now_ms: int) -> None:
        """Record a value as of ``now_ms``."""
        is_over = now_ms - self._start_ms >= config.time_window_ms or self._count >= config.event_window
        if self._count and is_over:
            self._older = (*self._older, (self._last_ms, self._current()))[-config.samples :]
        if is_over or not self._count:
            self._start_window(now_ms)
        self._count += 1
        self._total += value
        self._largest = max(self._largest, value)
        self._smallest = min(self._smallest, value)
        self._last_ms = now_ms

    def _current(self) -> Tally:
        tally = Tally()
        tally.count = self._count
        tally.total = self._total
        tally.largest = self._largest
        tally.smallest = self._smallest
        return tally

    def tally(self, config: MetricConfig, now_ms: int) -> Tally:
        """Return the values of the windows that are not too old, without the last value."""
        oldest_ms = now_ms - config.samples * config.time_window_ms
        tally = Tally()
        for last_ms, window in (*self._older, (self._last_ms, self._current())) if self._count else ():
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


class SimpleRate(Rate):
    """A rate over the elapsed time, at least one window. Thread: owner."""

    __slots__ = ()

    def window_size_ms(self, config: MetricConfig, now_ms: int) -> int:
        self.stat.purge(config, now_ms)
        return max(now_ms - self.stat.oldest_start_ms(now_ms), config.time_window_ms, 1)


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


class Value:
    """The last value. Thread: owner."""

    __slots__ = ("_value",)

    def __init__(self) -> None:
        self._value = 0.0

    def record(self, config: MetricConfig, values: Tally, now_ms: int) -> None:  # noqa: ARG002
        self._value = values.last

    def window_end_ms(self, config: MetricConfig) -> int:  # noqa: ARG002
        return FOREVER_MS

    def measure(self, config: MetricConfig, now_ms: int) -> float:  # noqa: ARG002
        return self._value


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

    def stats(self) -> list[NamedMeasurable]:
        return [NamedMeasurable(self._total_name, self._total), NamedMeasurable(self._rate_name, self._rate)]

    def record(self, config: MetricConfig, values: Tally, now_ms: int) -> None:
        self._rate.record(config, values, now_ms)
        self._total.record(config, values, now_ms)

    def window_end_ms(self, config: MetricConfig) -> int:
        return self._rate.window_end_ms(config)
