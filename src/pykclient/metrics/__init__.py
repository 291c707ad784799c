"""Metrics with Java's names and meaning: sensors record values, stats compute metrics, reporters are notified.

- ``metrics``: the registry of a client; ``kafka_metric``: one metric
- ``sensor``, ``stats``: recording values, and what is computed from them
"""

from pykclient.metrics.kafka_metric import KafkaMetric, MetricConfig, MetricName, RecordingLevel
from pykclient.metrics.metrics import Metrics, MetricsContext, MetricsReporter
from pykclient.metrics.sensor import Sensor

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
