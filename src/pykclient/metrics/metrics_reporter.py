"""The interface for metrics reporters (Java: MetricsReporter)."""

from __future__ import annotations

from collections.abc import Sequence

from pykclient.metrics.kafka_metric import KafkaMetric


class MetricsReporter:
    """A reporter, which is notified of added and removed metrics, and may read their values at any time.

    Its errors are logged and otherwise ignored. Any object with these methods will do. Thread: any (the thread that
    adds or removes the metric).
    """

    def init(self, metrics: Sequence[KafkaMetric]) -> None:
        """Handle the existing metrics. Called first."""

    def metric_change(self, metric: KafkaMetric) -> None:
        """Handle an added metric."""

    def metric_removal(self, metric: KafkaMetric) -> None:
        """Handle a removed metric."""

    def close(self) -> None:
        """Release resources, as the client is closing."""
