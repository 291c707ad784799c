"""The metric of throttle times."""

from __future__ import annotations

from pykclient.metrics import Avg, Max, Metrics
from pykclient.network.network_client import ThrottleTimes
from tests.support.mock_clock import MockClock


def test_times_of_zero_are_recorded_together() -> None:
    clock = MockClock()
    metrics = Metrics(clock=clock)
    sensor = metrics.sensor("throttle")
    average, largest = metrics.metric_name("avg", "group"), metrics.metric_name("max", "group")
    sensor.add(average, Avg())
    sensor.add(largest, Max())
    times = ThrottleTimes(sensor)

    assert clock.now_ms() >= times.due_ms, "the first is recorded at once"
    times.record(0, clock.now_ms())
    assert metrics.metrics[average].value() == 0
    assert clock.now_ms() < times.due_ms
    times.zeros += 2
    times.record(8, clock.now_ms())
    assert (metrics.metrics[average].value(), metrics.metrics[largest].value()) == (2, 8)
    assert times.zeros == 0


def test_throttle_time_without_a_sensor_is_ignored() -> None:
    times = ThrottleTimes(None)
    times.record(5, 1_000)
    assert times.due_ms > 1_000
