from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, strategies as st

from pykclient.config.consumer_config import ConsumerConfig
from pykclient.errors import IllegalArgumentError
from pykclient.metrics import (
    Avg,
    CumulativeCount,
    CumulativeSum,
    KafkaMetric,
    Max,
    MeasurableStat,
    Meter,
    MetricConfig,
    MetricName,
    Metrics,
    MetricsReporter,
    Min,
    Rate,
    RecordingLevel,
    Tally,
    WindowedCount,
    WindowedSum,
)
from tests.support.mock_clock import MockClock


class Reporter(MetricsReporter):
    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def init(self, metrics: Sequence[KafkaMetric]) -> None:
        self.events += [("init", metric.metric_name.name) for metric in metrics]

    def metric_change(self, metric: KafkaMetric) -> None:
        self.events.append(("change", metric.metric_name.name))

    def metric_removal(self, metric: KafkaMetric) -> None:
        self.events.append(("removal", metric.metric_name.name))

    def close(self) -> None:
        self.events.append(("close", ""))


class Failing(MetricsReporter):
    def metric_change(self, metric: KafkaMetric) -> None:
        raise RuntimeError("no")

    metric_removal = metric_change

    def close(self) -> None:
        raise RuntimeError("no")


@pytest.fixture
def clock() -> MockClock:
    return MockClock()


@pytest.fixture
def metrics(clock: MockClock) -> Metrics:
    return Metrics(MetricConfig(tags={"client-id": "c"}), clock=clock)


def value(metrics: Metrics, name: MetricName) -> object:
    metric = metrics.metric(name)
    assert metric is not None
    return metric.metric_value()


def test_names_are_equal_by_name_group_and_tags() -> None:
    name = MetricName("rate", "g", "what it is", {"a": "1", "b": "2"})
    assert name == MetricName("rate", "g", "said otherwise", {"b": "2", "a": "1"})
    assert hash(name) == hash(MetricName("rate", "g", tags={"b": "2", "a": "1"}))
    assert name != MetricName("rate", "g", tags={"a": "1"})
    assert name != "rate"
    assert "rate" in repr(name)


def test_a_sensor_computes_several_metrics(metrics: Metrics) -> None:
    sensor = metrics.sensor("requests")
    average, rate, total = (metrics.metric_name(name, "g") for name in ("avg", "rate", "total"))
    assert sensor.add(average, Avg())
    assert sensor.add(Meter(rate, total))
    for size in (1.0, 3.0):
        sensor.record(size)
    sensor.record()
    assert value(metrics, average) == pytest.approx(5 / 3)
    assert value(metrics, total) == 5.0
    assert {metric.metric_name for metric in sensor.metrics} == {average, rate, total}


def test_adding_sensor_or_metric_again_changes_nothing(metrics: Metrics) -> None:
    sensor = metrics.sensor("s")
    assert metrics.sensor("s") is sensor
    total = metrics.metric_name("total", "g")
    assert sensor.add(total, CumulativeSum())
    assert sensor.add(total, CumulativeSum())
    sensor.record(2.0)
    assert value(metrics, total) == 2.0


def test_a_metric_has_one_sensor(metrics: Metrics) -> None:
    rate, total = metrics.metric_name("rate", "g"), metrics.metric_name("total", "g")
    metrics.sensor("a").add(total, CumulativeSum())
    other = metrics.sensor("b")
    with pytest.raises(IllegalArgumentError, match="by another sensor"):
        other.add(Meter(rate, total))
    assert not other.metrics
    assert metrics.metric(rate) is None
    assert metrics.metric(total) is not None
    with pytest.raises(IllegalArgumentError, match="needs a stat"):
        other.add(rate, None)  # type: ignore[call-overload]


def test_gauge_is_registered_once_and_removed(metrics: Metrics, clock: MockClock) -> None:
    name = metrics.metric_name("age", "g")
    metric = metrics.add_metric(name, lambda config, now_ms: (config.samples, now_ms))
    assert metric.metric_value() == metric.value() == (2, clock.now_ms())
    with pytest.raises(IllegalArgumentError, match="registered already"):
        metrics.add_metric(name, lambda _config, _now_ms: 0)
    assert metrics.remove_metric(name) is metric
    assert metrics.remove_metric(name) is None


ALL_STATS: dict[str, Callable[[], MeasurableStat]] = {
    "avg": Avg,
    "max": Max,
    "min": Min,
    "sum": WindowedSum,
    "count": WindowedCount,
    "rate": Rate,
    "total": CumulativeSum,
    "total-count": CumulativeCount,
}


@given(
    st.lists(
        st.tuples(
            st.integers(0, 70),
            st.lists(st.integers(-1000, 1000), max_size=3),
            st.booleans(),
        ),
        min_size=1,
    ),
    st.integers(1, 3) | st.none(),
)
def test_sensor_with_tally_equals_its_stats(steps: list[tuple[int, list[int], bool]], event_window: int | None) -> None:
    """Values are recorded one by one or together, and metrics are read at any time in between.

    Half of the stats are added later, so that their windows do not begin with those of the others.
    """
    clock = MockClock()
    unlimited = MetricConfig(samples=2, time_window_ms=100)
    limited = MetricConfig(samples=2, time_window_ms=100, event_window=event_window or 1)
    metrics = Metrics(unlimited if event_window is None else limited, clock=clock)
    sensor = metrics.sensor("s")
    alone: dict[str, MeasurableStat] = {}
    for number, (step_ms, recorded, reads) in enumerate(steps):
        clock.advance(step_ms)
        if number < 2:
            for name, make in list(ALL_STATS.items())[number::2]:
                alone[name] = make()
                sensor.add(metrics.metric_name(name, "g"), make())
        values = recorded if event_window is None else recorded[:1]  # more at once may be more than a window has
        if step_ms % 2:
            sensor.record_all(Tally.of(*values), clock.now_ms())
        else:
            for each in values:
                sensor.record(each)
        for each in values:
            for stat in alone.values():
                stat.record(metrics.config, Tally.of(each), clock.now_ms())
        if reads or number == len(steps) - 1:
            for name, stat in alone.items():
                expected = pytest.approx(stat.measure(metrics.config, clock.now_ms()), nan_ok=True, rel=1e-9)
                assert value(metrics, metrics.metric_name(name, "g")) == expected


def test_values_count_at_their_recording_time(metrics: Metrics, clock: MockClock) -> None:
    """Not for the time of the next one, or of the reading."""
    sensor = metrics.sensor("s")
    largest = metrics.metric_name("max", "g")
    sensor.add(largest, Max())
    sensor.record(1.0)
    clock.advance(50)
    sensor.record(5.0)
    clock.advance(60_000)
    sensor.record(2.0)
    assert value(metrics, largest) == 2.0
    clock.advance(50)
    sensor.record(7.0)
    clock.advance(60_000)
    assert value(metrics, largest) != 7.0


def test_stat_ignores_values_recorded_before_it_was_added(metrics: Metrics) -> None:
    sensor = metrics.sensor("s")
    sensor.record(1.0)
    total = metrics.metric_name("total", "g")
    sensor.add(total, CumulativeSum())
    sensor.record(2.0)
    assert value(metrics, total) == 2.0


def test_stats_are_called_once_or_twice_for_each_window(metrics: Metrics, clock: MockClock) -> None:
    """Once with what was added up in the last window, and once with the value that begins the next."""
    calls: list[tuple[int, int]] = []

    class Counted(WindowedSum):
        __slots__ = ()

        def record(self, config: MetricConfig, values: Tally, now_ms: int) -> None:
            calls.append((values.count, now_ms))
            super().record(config, values, now_ms)

    sensor = metrics.sensor("s")
    sensor.add(metrics.metric_name("total", "g"), Counted())
    window_ms = metrics.config.time_window_ms
    clock.advance(3000)
    begun_ms = clock.now_ms()
    for _ in range(250):
        sensor.record()
        clock.advance(window_ms // 100)
    assert calls == [
        (1, begun_ms),
        (99, begun_ms + window_ms * 99 // 100),
        (1, begun_ms + window_ms),
        (99, begun_ms + window_ms * 199 // 100),
        (1, begun_ms + window_ms * 2),
    ]
    assert value(metrics, metrics.metric_name("total", "g")) == 250


def test_parents_get_every_value(metrics: Metrics) -> None:
    parent = metrics.sensor("parent")
    child = metrics.sensor("child", parent)
    total = metrics.metric_name("total", "g")
    parent.add(total, CumulativeSum())
    child.record(2.0)
    parent.record(1.0)
    assert value(metrics, total) == 3.0
    with pytest.raises(IllegalArgumentError, match="twice"):
        metrics.sensor("both", parent, child)


def test_removing_a_parent_removes_its_children(metrics: Metrics) -> None:
    parent = metrics.sensor("parent")
    child = metrics.sensor("child", parent)
    child.add(metrics.metric_name("total", "g"), CumulativeSum())
    metrics.remove_sensor("parent")
    assert metrics.get_sensor("child") is None
    assert [name.group for name in metrics.metrics] == ["kafka-metrics-count"]
    metrics.remove_sensor("parent")


def test_removing_a_child_leaves_its_parent(metrics: Metrics) -> None:
    parent = metrics.sensor("parent")
    metrics.sensor("child", parent)
    metrics.remove_sensor("child")
    assert metrics.get_sensor("parent") is parent


def test_sensor_records_only_at_configured_level(clock: MockClock) -> None:
    for level, expected in ((RecordingLevel.INFO, 0.0), (RecordingLevel.DEBUG, 1.0), (RecordingLevel.TRACE, 1.0)):
        metrics = Metrics(MetricConfig(record_level=level), clock=clock)
        sensor = metrics.sensor("fine", recording_level=RecordingLevel.DEBUG)
        total = metrics.metric_name("total", "g")
        sensor.add(total, CumulativeSum())
        sensor.record()
        assert value(metrics, total) == expected


def test_idle_sensors_expire(metrics: Metrics, clock: MockClock) -> None:
    idle = metrics.sensor("idle", inactive_expiration_ms=60_000)
    busy = metrics.sensor("busy", inactive_expiration_ms=60_000)
    idle.add(metrics.metric_name("total", "g"), CumulativeSum())
    for _ in range(3):
        clock.advance(30_000)
        busy.record()
        metrics.sensor("any")
    assert idle.has_expired()
    assert not idle.add(metrics.metric_name("late", "g"), CumulativeSum())
    assert metrics.get_sensor("idle") is None
    assert metrics.get_sensor("busy") is busy
    assert metrics.get_sensor("any") is not None, "no limit, no expiry"


def test_reporters_are_notified_of_added_and_removed_metrics(metrics: Metrics) -> None:
    reporter = Reporter()
    metrics.add_reporter(reporter)
    sensor = metrics.sensor("s")
    name = metrics.metric_name("total", "g")
    sensor.add(name, CumulativeSum())
    sensor.add(name, CumulativeSum())
    metrics.remove_sensor("s")
    metrics.close()
    metrics.close()
    assert reporter.events == [("init", "count"), ("change", "total"), ("removal", "total"), ("close", "")]
    assert metrics.reporters == []


def test_a_failing_reporter_is_logged_and_survived(clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    reporter = Reporter()
    metrics = Metrics(reporters=[Failing(), reporter], clock=clock)
    name = metrics.metric_name("total", "g")
    metrics.sensor("s").add(name, CumulativeSum())
    metrics.remove_metric(name)
    metrics.close()
    assert reporter.events == [("change", "count"), ("change", "total"), ("removal", "total"), ("close", "")]
    assert "Metrics reporter Failing failed in metric_change" in caplog.text


def test_metrics_by_group_equal_kafka_pythons(metrics: Metrics) -> None:
    for topic in ("a", "b"):
        sensor = metrics.sensor(topic)
        sensor.add(metrics.metric_name("size", "topic-metrics", tags={"topic": topic}), Max())
        sensor.record(5.0)
    metrics.sensor("all").add(metrics.metric_name("sum", "client-metrics"), WindowedSum())
    assert metrics.by_group() == {
        "kafka-metrics-count": {"count": 4},
        "topic-metrics.a": {"size": 5.0},
        "topic-metrics.b": {"size": 5.0},
        "client-metrics": {"sum": 0.0},
    }


def test_the_mapping_is_a_copy(metrics: Metrics) -> None:
    metrics.metrics.clear()
    assert len(metrics.metrics) == 1


def test_metric_config_follows_client_config() -> None:
    config = ConsumerConfig(
        bootstrap_servers="a", metrics_num_samples=3, metrics_sample_window_ms=5, metrics_recording_level="DEBUG"
    )
    metric_config = MetricConfig.of(config, "me")
    assert (metric_config.samples, metric_config.time_window_ms) == (3, 5)
    assert metric_config.record_level == RecordingLevel.DEBUG
    assert metric_config.tags == {"client-id": "me"}
    with pytest.raises(IllegalArgumentError):
        MetricConfig(samples=0)


def test_threads_may_record_read_and_register_at_once(metrics: Metrics) -> None:
    """Four threads that use one registry lose nothing and raise nothing."""
    total = metrics.metric_name("total", "g")
    shared = metrics.sensor("shared")
    shared.add(total, CumulativeSum())
    start = threading.Barrier(4)
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            start.wait(10)
            for turn in range(500):
                shared.record()
                shared.add(metrics.metric_name(f"max-{turn % 7}", "g"), Max())
                metrics.sensor(f"own-{number}-{turn % 5}").record()
                metrics.by_group()
                metrics.remove_sensor(f"own-{number}-{turn % 3}")
        except BaseException as error:  # noqa: BLE001 - a thread's errors are the test's result
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert value(metrics, total) == 2_000.0


def test_sibling_metric_name_equals_separate_one_and_shares_tags() -> None:
    first = MetricName("lag", "fetch", "Lag", {"topic": "t", "partition": "1"})
    sibling = first.sibling("lag-max", "Largest lag")
    alone = MetricName("lag-max", "fetch", "Largest lag", {"topic": "t", "partition": "1"})
    assert (sibling, hash(sibling), sibling.description) == (alone, hash(alone), alone.description)
    assert sibling.tags is first.tags
    assert sibling != first
