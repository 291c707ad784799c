"""The metrics of single partitions, which are made when somebody reads them."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest

from pykclient.consumer.consumer_metrics import PartitionMetrics
from pykclient.consumer.values import READ_UNCOMMITTED
from pykclient.metrics import KafkaMetric, Metrics, MetricsReporter
from pykclient.types import TopicPartition
from tests.consumer.harness import TP0, TP1, Harness

GROUP = "consumer-fetch-manager-metrics"
LAG = ("records-lag", "records-lag-max", "records-lag-avg")
LEAD = ("records-lead", "records-lead-min", "records-lead-avg")


class Reporter(MetricsReporter):
    def __init__(self) -> None:
        self.known: dict[Any, KafkaMetric] = {}

    def init(self, metrics: Any) -> None:
        self.known = {metric.metric_name: metric for metric in metrics}

    def metric_change(self, metric: KafkaMetric) -> None:
        assert metric.metric_name not in self.known
        self.known[metric.metric_name] = metric

    def metric_removal(self, metric: KafkaMetric) -> None:
        del self.known[metric.metric_name]

    def of(self, partition: int) -> set[str]:
        return {name.name for name in self.known if name.tags.get("partition") == str(partition)}


@pytest.fixture
def harness() -> Harness:
    harness = Harness()
    harness.assign(TP0, TP1)
    return harness


def test_reporters_see_added_and_removed_partitions(harness: Harness) -> None:
    reporter = Reporter()
    harness.metrics.add_reporter(reporter)
    manager = harness.metrics_manager
    manager.update_assignment(harness.subscriptions)
    assert reporter.of(0) == reporter.of(1) == {"preferred-read-replica"}
    manager.record_partition(TP0, 3, None, harness.metrics.clock.now_ms())
    assert reporter.of(0) == {"preferred-read-replica", *LAG}
    manager.record_partition(TP0, 5, 7, harness.metrics.clock.now_ms())
    assert reporter.of(0) == {"preferred-read-replica", *LAG, *LEAD}
    harness.subscriptions.assign_from_user([TP1])
    manager.update_assignment(harness.subscriptions)
    assert (reporter.of(0), reporter.of(1)) == (set(), {"preferred-read-replica"})


def test_late_reporter_gets_all_partition_metrics(harness: Harness) -> None:
    harness.metrics_manager.update_assignment(harness.subscriptions)
    harness.metrics_manager.record_partition(TP0, 3, 4, harness.metrics.clock.now_ms())
    reporter = Reporter()
    harness.metrics.add_reporter(reporter)
    assert reporter.of(0) == {"preferred-read-replica", *LAG, *LEAD}
    assert set(reporter.known) == set(harness.metrics.metrics)


def test_metric_count_includes_partition_metrics(harness: Harness) -> None:
    harness.metrics_manager.update_assignment(harness.subscriptions)
    harness.metrics_manager.record_partition(TP0, 3, None, harness.metrics.clock.now_ms())
    assert harness.metrics.by_group()["kafka-metrics-count"]["count"] == len(harness.metrics.metrics)


def test_partition_metric_is_found_by_name(harness: Harness) -> None:
    harness.metrics_manager.record_partition(TP0, 3, None, harness.metrics.clock.now_ms())
    tags = {"topic": TP0.topic, "partition": "0"}
    name = harness.metrics.metric_name("records-lag-max", GROUP, tags=tags)
    harness.metrics_manager.update_assignment(harness.subscriptions)
    found = harness.metrics.metric(name)
    assert found is not None
    assert found.metric_value() == 3
    for other, group, tags_of_other in (
        ("records-lead", GROUP, tags),
        ("records-lag", GROUP, {"topic": TP0.topic}),
        ("records-lag", GROUP, {"topic": TP0.topic, "partition": "x"}),
        ("records-lag", GROUP, {"topic": TP0.topic, "partition": "9"}),
        ("records-lag", "mine", tags),
    ):
        assert harness.metrics.metric(harness.metrics.metric_name(other, group, tags=tags_of_other)) is None
    own = KafkaMetric(name, lambda _config, _now_ms: 1.0)
    assert not harness.metrics.register_for_subscription(own)


def test_a_partition_takes_less_than_a_kilobyte() -> None:
    metrics = PartitionMetrics(Metrics(), GROUP, READ_UNCOMMITTED)
    partitions = [TopicPartition("orders", number) for number in range(1_000)]
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for tp in partitions:
            metrics.record(tp, 1_000_000, 1_000_000, 1_000_000)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(metrics) == 7 * len(partitions)
    assert (after - before) / len(partitions) < 1_000
