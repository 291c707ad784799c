"""The methods of clients for their metrics, and for those of the application (KIP-1076)."""

from __future__ import annotations

import logging
from typing import Any

from pykclient.argument_values import checked_flag
from pykclient.errors import IllegalArgumentError
from pykclient.metrics.kafka_metric import KafkaMetric
from pykclient.metrics.metrics import Metrics

_logger = logging.getLogger(__name__)


class SubscribedMetrics:
    """A client with metrics, which pushes metrics of the application with its own. Thread: any."""

    __slots__ = ()

    def _registry(self, call: str) -> Metrics:
        """Return the client's metrics, if the client can be used. ``call`` names the method for an error."""
        raise NotImplementedError

    def metrics(self, raw: bool = False) -> dict[Any, Any]:
        """Return the current values as ``{group: {name: value}}``; with ``raw``, metric objects by their MetricName.

        May be called from any thread.

        Raises:
            IllegalArgumentError: ``raw`` is not a ``bool``.
        """
        metrics = self._registry("metrics()")
        return metrics.metrics if checked_flag(raw, "raw") else metrics.by_group()

    def register_metric_for_subscription(self, metric: KafkaMetric) -> None:
        """Push ``metric`` with the client's own metrics to brokers whose subscription names it (KIP-714, KIP-1076).

        It is called ``org.apache.kafka.<group>.<name>``, with dots for hyphens, and is a sum if its name ends with
        ``-total``, else a gauge. A metric of the application that has the same name and tags is replaced. A metric of
        the client is not: then this call has no effect. The metric is not among ``metrics()``.

        May be called from any thread. The metric is read by the thread that pushes.

        Raises:
            IllegalArgumentError: ``metric`` is no KafkaMetric.
        """
        if not self._registry("register_metric_for_subscription()").register_for_subscription(_checked(metric)):
            _logger.debug("%r is a metric of the client, and is not replaced", metric.metric_name)

    def unregister_metric_from_subscription(self, metric: KafkaMetric) -> None:
        """Push ``metric``, or another one of the application with the same name and tags, no more.

        Without such a metric this call has no effect. May be called from any thread.

        Raises:
            IllegalArgumentError: ``metric`` is no KafkaMetric.
        """
        if not self._registry("unregister_metric_from_subscription()").unregister_from_subscription(_checked(metric)):
            _logger.debug("%r is no registered metric of the application", metric.metric_name)


def _checked(metric: KafkaMetric) -> KafkaMetric:
    if not isinstance(metric, KafkaMetric):
        raise IllegalArgumentError(f"a KafkaMetric is needed, not a {type(metric).__name__}")
    return metric
