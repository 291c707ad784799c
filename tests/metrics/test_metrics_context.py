"""The labels that metrics reporters are told (KIP-606)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pykclient import KafkaConsumer, KafkaProducer, KafkaShareConsumer
from pykclient.admin import Admin
from pykclient.errors import ConfigError
from pykclient.metrics import KafkaMetric, Metrics, MetricsContext, MetricsReporter

ADDRESS = "127.0.0.1:1"


class Labelled(MetricsReporter):
    def __init__(self) -> None:
        self.labels: list[Any] = []

    def context_change(self, metrics_context: MetricsContext) -> None:
        self.labels.append(metrics_context.context_labels())

    def init(self, metrics: Sequence[KafkaMetric]) -> None:
        self.labels.append("init")


@pytest.mark.parametrize(
    ("client", "namespace"),
    [
        (KafkaProducer, "kafka.producer"),
        (KafkaConsumer, "kafka.consumer"),
        (KafkaShareConsumer, "kafka.consumer"),
        (Admin, "kafka.admin.client"),
    ],
)
def test_reporters_get_context_labels_before_metrics(client: Any, namespace: str) -> None:
    reporter = Labelled()
    settings = {"bootstrap.servers": ADDRESS, "metrics.context.region": "eu", "metric.reporters": [reporter]}
    if client is KafkaShareConsumer:
        settings["group.id"] = "g"
    with client(settings, metrics_context_team="payments"):
        pass
    assert reporter.labels == [{"_namespace": namespace, "region": "eu", "team": "payments"}, "init"]


def test_reporters_without_context_method_are_accepted() -> None:
    class Plain:
        def init(self, metrics: Sequence[KafkaMetric]) -> None:
            self.metrics = list(metrics)

        def close(self) -> None: ...

        def metric_change(self, metric: KafkaMetric) -> None: ...

        def metric_removal(self, metric: KafkaMetric) -> None: ...

    reporter: Any = Plain()
    Metrics(reporters=[reporter]).close()
    assert reporter.metrics == []


@pytest.mark.parametrize(("key", "value"), [("metrics.context.region", 5), ("metrics.context.", "eu")])
def test_invalid_context_label_is_refused(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=key):
        KafkaProducer({"bootstrap.servers": ADDRESS, key: value})
