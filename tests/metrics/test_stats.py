from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from pykclient.errors import IllegalArgumentError
from pykclient.metrics import (
    Avg,
    CumulativeCount,
    CumulativeSum,
    Max,
    MeasurableStat,
    Meter,
    MetricConfig,
    MetricName,
    Min,
    Rate,
    SampledStat,
    SampledTally,
    Tally,
    WindowedCount,
    WindowedSum,
)
from tests.support.java import run_java

CONFIG = MetricConfig(samples=2, time_window_ms=1_000)


def measured(stat: MeasurableStat, values: list[tuple[int, float]], now_ms: int) -> float:
    for at_ms, value in values:
        stat.record(CONFIG, Tally.of(value), at_ms)
    return stat.measure(CONFIG, now_ms)


VALUES = [(0, 5.0), (10, 1.0), (20, 3.0)]


@pytest.mark.parametrize(
    ("stat", "expected"),
    [
        (Avg(), 3.0),
        (Max(), 5.0),
        (Min(), 1.0),
        (WindowedSum(), 9.0),
        (WindowedCount(), 3.0),
        (CumulativeSum(), 9.0),
        (CumulativeCount(), 3.0),
        (Rate(), 9.0),
        (Rate(WindowedCount()), 3.0),
        (Rate(unit_ms=1), 0.009),
    ],
)
def test_each_stat_measures_expected_value(stat: MeasurableStat, expected: float) -> None:
    assert measured(stat, VALUES, 1_000 if isinstance(stat, Rate) else 20) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("stat", "expected"), [(Avg(), math.nan), (Max(), math.nan), (Min(), math.nan), (WindowedSum(), 0.0), (Rate(), 0.0)]
)
def test_old_values_are_forgotten(stat: SampledStat, expected: float) -> None:
    assert measured(stat, [], 0) == pytest.approx(expected, nan_ok=True)
    assert measured(stat, VALUES, 10_000) == pytest.approx(expected, nan_ok=True)


def test_a_first_value_is_not_a_huge_rate() -> None:
    assert measured(Rate(), [(0, 100.0)], 0) == pytest.approx(100.0), "as if one window of a second were full"


def test_window_ends_after_event_limit() -> None:
    config = MetricConfig(samples=1, event_window=2)
    total = WindowedSum()
    for _ in range(5):
        total.record(config, Tally.of(1.0), 0)
    assert total.measure(config, 0) == 3.0, "two samples are kept: one of 2 values, one of 1"


def test_meter_has_rate_and_total() -> None:
    rate_name, total_name = MetricName("rate", "g"), MetricName("total", "g")
    meter = Meter(rate_name, total_name)
    meter.record(CONFIG, Tally.of(4.0), 0)
    stats = meter.stats()
    assert stats[total_name].measure(CONFIG, 0) == 4.0
    assert stats[rate_name].measure(CONFIG, 1_000) == pytest.approx(4.0)


def test_count_meter_counts_events() -> None:
    meter = Meter(MetricName("rate", "g"), MetricName("total", "g"), WindowedCount())
    meter.record(CONFIG, Tally.of(4.0), 0)
    assert [stat.measure(CONFIG, 1_000) for stat in meter.stats().values()] == [1.0, pytest.approx(1.0)]
    with pytest.raises(IllegalArgumentError):
        Meter(MetricName("rate", "g"), MetricName("total", "g"), Avg())


@given(st.lists(st.tuples(st.integers(0, 5_000), st.floats(-1e6, 1e6)), min_size=1))
def test_averages_lie_between_extremes(steps: list[tuple[int, float]]) -> None:
    average, smallest, largest = Avg(), Min(), Max()
    now_ms = 0
    for step_ms, value in steps:
        now_ms += step_ms
        for stat in (average, smallest, largest):
            stat.record(CONFIG, Tally.of(value), now_ms)
        low, mean, high = (stat.measure(CONFIG, now_ms) for stat in (smallest, average, largest))
        assert low - 1e-6 <= mean <= high + 1e-6
        assert len(average.samples) <= CONFIG.samples + 1


@pytest.mark.java
def test_stats_equal_javas() -> None:
    """Stats equal Java's for some thousand values at irregular times, over several sample sizes."""
    rng = random.Random(431)
    script: list[str] = []
    expected: list[list[float]] = []
    for samples, window_ms in ((1, 1_000), (2, 30_000), (3, 100), (5, 7)):
        script.append(f"new {samples} {window_ms}")
        config = MetricConfig(samples, window_ms)
        stats: list[MeasurableStat] = [Avg(), Max(), Min(), WindowedSum(), WindowedCount(), Rate()]
        stats += [Rate(WindowedCount()), CumulativeSum(), CumulativeCount()]
        now_ms = 1_000
        for _ in range(500):
            now_ms += rng.choice([0, 1, window_ms // 3, window_ms, window_ms * samples, window_ms * 10])
            value = float(rng.randint(-1_000, 1_000))
            if rng.random() < 0.7:
                script.append(f"record {now_ms} {value}")
                for stat in stats:
                    stat.record(config, Tally.of(value), now_ms)
            else:
                script.append(f"measure {now_ms}")
                expected.append([stat.measure(config, now_ms) for stat in stats])
    output = run_java(Path(__file__).with_name("StatsOracle.java"), stdin="\n".join(script).encode()).decode()
    java = [[float(word) for word in line.split()] for line in output.splitlines()]
    assert len(java) == len(expected) > 400
    for ours, theirs in zip(expected, java, strict=True):
        assert ours == pytest.approx(theirs, nan_ok=True, rel=1e-12)


@given(
    st.lists(st.tuples(st.integers(0, 2_500), st.integers(-5, 5)), max_size=20),
    st.integers(0, 4_000),
    st.integers(1, 3),
    st.sampled_from([3, 1 << 62]),
)
def test_sampled_tally_equals_average_and_extremes_of_sampled_stats(
    steps: list[tuple[int, int]], later_ms: int, samples: int, event_window: int
) -> None:
    config = MetricConfig(samples=samples, time_window_ms=1_000, event_window=event_window)
    average, largest, smallest, sampled = Avg(), Max(), Min(), SampledTally()
    now_ms = 0
    for pause_ms, value in steps:
        now_ms += pause_ms
        sampled.record(config, value, now_ms)
        for stat in (average, largest, smallest):
            stat.record(config, Tally.of(value), now_ms)
    now_ms += later_ms
    tally = sampled.tally(config, now_ms)
    if tally.count:
        assert average.measure(config, now_ms) == pytest.approx(tally.total / tally.count)
        assert (largest.measure(config, now_ms), smallest.measure(config, now_ms)) == (tally.largest, tally.smallest)
    else:
        assert math.isnan(average.measure(config, now_ms))
    assert sampled.tally(config, now_ms).count == tally.count  # reading changes nothing
