"""Metrics with Java's names and meaning: sensors record values, stats compute metrics, reporters are notified."""

from pykclient.metrics.kafka_metric import KafkaMetric
from pykclient.metrics.metric_config import MetricConfig, RecordingLevel
from pykclient.metrics.metric_name import MetricName
from pykclient.metrics.metrics import Metrics
from pykclient.metrics.metrics_reporter import MetricsContext, MetricsReporter
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
