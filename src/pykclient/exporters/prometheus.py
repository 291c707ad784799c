"""The clients' metrics for Prometheus, through prometheus_client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ImportError("this needs prometheus_client: pip install pykclient[prometheus]") from error

from pykclient.exporters.samples import Families, Family, MeasuredClient, samples


class KafkaCollector(Collector):
    """Collects the metrics of producers and consumers whenever Prometheus scrapes.

        from prometheus_client import REGISTRY, start_http_server
        from pykclient.exporters.prometheus import KafkaCollector

        REGISTRY.register(KafkaCollector())
        start_http_server(9000)

    Without ``clients`` it collects from all open clients of the process, also from those that are created later. A
    metric of Kafka keeps its name, after ``kafka`` and its group: ``record-send-total`` of ``producer-metrics`` is
    ``kafka_producer_record_send_total``. Tags become labels. The client does no work for this between scrapes.

    Thread: any.
    """

    def __init__(self, clients: Iterable[MeasuredClient] | None = None) -> None:
        self._clients = None if clients is None else tuple(clients)
        self._families = Families()

    def describe(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily]:
        """Return nothing: the names depend on the clients, so the registry must not ask for them at registration."""
        return ()

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Yield the current values of all metrics."""
        found: dict[Family, CounterMetricFamily | GaugeMetricFamily] = {}
        for sample in samples(self._families, self._clients):
            family = found.get(sample.family)
            if family is None:
                family = found[sample.family] = _new(sample.family)
            family.add_metric(sample.values, sample.value)
        yield from found.values()


def _new(family: Family) -> CounterMetricFamily | GaugeMetricFamily:
    name = "_".join(family.words)
    kind = CounterMetricFamily if family.is_counter else GaugeMetricFamily
    return kind(name, family.description or name, labels=family.labels)
