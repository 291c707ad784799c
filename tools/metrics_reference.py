"""Write docs/metrics.md, the list of all metrics, from clients that run on an embedded cluster.

    python tools/metrics_reference.py docs/metrics.md [--check]

``--check`` only reports whether the file is up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pykclient import KafkaAdminClient, KafkaConsumer, KafkaProducer
from pykclient.exporters.samples import family_of
from pykclient.metrics import MetricName
from pykclient.testing import EmbeddedCluster

_TOPIC = "metrics"

_HEAD = """# Metrics

<!-- Written by `python tools/metrics_reference.py docs/metrics.md` from the metrics of running clients. -->

The names, groups and tags are those of Kafka's Java clients, version 4.3.1. `metrics()` returns the values by group
and name, and `metrics(raw=True)` the metrics with their tags. In `metrics()`, the values of tags other than
`client-id` become part of the group: `producer-topic-metrics.orders`. A metric without values is NaN. Averages, maxima
and rates are of the last `metrics.num.samples` (2) windows of `metrics.sample.window.ms` (30 s). Totals are since the
client was created.

The metrics of a producer include all batches that were acknowledged before `flush()` returned. The last column is the
name for Prometheus, which gets all metrics that are numbers. [Running it in production](production.md#metrics) says how
to export them, and which ones to watch.
"""

_TITLES = {
    "producer-metrics": "Producer",
    "producer-node-metrics": "Producer, by broker",
    "producer-topic-metrics": "Producer, by topic",
    "consumer-metrics": "Consumer",
    "consumer-fetch-manager-metrics": "Consumer, fetching",
    "consumer-coordinator-metrics": "Consumer, group",
    "consumer-node-metrics": "Consumer, by broker",
    "admin-client-metrics": "Admin client",
    "admin-client-node-metrics": "Admin client, by broker",
    "app-info": "All clients",
    "kafka-metrics-count": "All clients",
}


def registered() -> set[MetricName]:
    """Return the names of all metrics that clients register when they are used."""
    found: set[MetricName] = set()

    def keep(metrics: Mapping[Any, Any]) -> None:
        found.update(metrics)

    with EmbeddedCluster(brokers=1) as cluster:
        servers = cluster.bootstrap_servers
        cluster.create_topic(_TOPIC)
        with KafkaProducer(bootstrap_servers=servers, transactional_id="metrics") as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send(_TOPIC, b"1")
            keep(producer.metrics(raw=True))
        for protocol in ("classic", "consumer"):
            with KafkaConsumer(
                _TOPIC,
                bootstrap_servers=servers,
                group_id=protocol,
                group_protocol=protocol,
                auto_offset_reset="earliest",
            ) as consumer:
                while not consumer.poll(100):
                    pass
                consumer.commit()
                keep(consumer.metrics(raw=True))
        with KafkaAdminClient(bootstrap_servers=servers) as admin:
            admin.list_topics()
            keep(admin.metrics(raw=True))
    return found


def page() -> str:
    """Return the text of the page."""
    rows: dict[str, set[tuple[str, str, str, str]]] = {}
    for name in registered():
        tags = ", ".join(f"`{tag}`" for tag in sorted(name.tags) if tag != "client-id")
        exported = "_".join(family_of(name).words)
        rows.setdefault(name.group, set()).add((name.name, tags, name.description, exported))
    order = [group for group in _TITLES if group in rows] + sorted(rows.keys() - _TITLES.keys())
    return "\n".join([_HEAD, *(line for group in order for line in _section(group, rows[group]))])


def _section(group: str, rows: set[tuple[str, str, str, str]]) -> Iterator[str]:
    yield f"## {_TITLES.get(group, group)}: `{group}`\n"
    yield "| name | tags besides `client-id` | meaning | for Prometheus |"
    yield "| --- | --- | --- | --- |"
    for name, tags, description, exported in sorted(rows):
        yield f"| `{name}` | {tags} | {description} | `{exported}` |"
    yield ""


def main() -> int:
    path, text = Path(sys.argv[1]), page()
    if "--check" in sys.argv:
        if path.read_text(encoding="utf-8") == text:
            return 0
        print(f"{path} is out of date: run make docs", file=sys.stderr)
        return 1
    path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
