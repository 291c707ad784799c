"""The seam for whoever wants to be told of metrics (Java: MetricsReporter)."""

from __future__ import annotations

from collections.abc import Sequence

from pykclient.metrics.kafka_metric import KafkaMetric


class MetricsReporter:
    """Told which metrics come and go; reads their values when it likes. Errors are logged and otherwise ignored.

    Any object with these methods will do. Thread: any (the thread that adds or removes the metric).
    """

    def init(self, metrics: Sequence[KafkaMetric]) -> None:
        """Called first, with the metrics that exist."""

    def metric_change(self, metric: KafkaMetric) -> None:
        """A metric has been added."""

    def metric_removal(self, metric: KafkaMetric) -> None:
        """A metric has been removed."""

    def close(self) -> None:
        """The client is closing."""
