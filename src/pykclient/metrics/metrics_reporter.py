"""The interface for metrics reporters (Java: MetricsReporter)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pykclient.metrics.kafka_metric import KafkaMetric


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
        """Take the labels of the client (KIP-606). Called before ``init``; need not be there."""

    def init(self, metrics: Sequence[KafkaMetric]) -> None:
        """Handle the existing metrics. Called before the following methods."""

    def metric_change(self, metric: KafkaMetric) -> None:
        """Handle an added metric."""

    def metric_removal(self, metric: KafkaMetric) -> None:
        """Handle a removed metric."""

    def close(self) -> None:
        """Release resources, as the client is closing."""
