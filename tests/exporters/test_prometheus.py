"""The collector for Prometheus: names, labels, and which clients it sees."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from pykclient import KafkaConsumer, KafkaProducer
from pykclient.aio import AIOKafkaConsumer, AIOKafkaProducer
from pykclient.exporters.prometheus import KafkaCollector
from pykclient.exporters.samples import Family, family_of
from pykclient.metrics import MetricName
from pykclient.testing import EmbeddedCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1) as cluster:
        yield cluster


def scrape(collector: KafkaCollector) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return the values of a scrape by name and labels, read back from the text that Prometheus gets."""
    registry = CollectorRegistry()
    registry.register(collector)
    text = generate_latest(registry).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.parametrize(
    ("group", "name", "tags", "family"),
    [
        (
            "producer-metrics",
            "record-send-total",
            ("client-id",),
            Family(("kafka", "producer", "record_send_total"), True, "", ("client_id",)),
        ),
        (
            "producer-topic-metrics",
            "byte-rate",
            ("client-id", "topic"),
            Family(("kafka", "producer_topic", "byte_rate"), False, "", ("client_id", "topic")),
        ),
        (
            "consumer-fetch-manager-metrics",
            "records-lag",
            ("client-id", "topic", "partition"),
            Family(
                ("kafka", "consumer_fetch_manager", "partition", "records_lag"),
                False,
                "",
                ("client_id", "partition", "topic"),
            ),
        ),
        (
            "consumer-fetch-manager-metrics",
            "bytes-consumed-total",
            ("client-id", "topic"),
            Family(
                ("kafka", "consumer_fetch_manager", "topic", "bytes_consumed_total"), True, "", ("client_id", "topic")
            ),
        ),
    ],
)
def test_metrics_have_names_and_labels_of_prometheus(
    group: str, name: str, tags: tuple[str, ...], family: Family
) -> None:
    assert family_of(MetricName(name, group, "", dict.fromkeys(tags, "x"))) == family


def test_a_scrape_has_what_was_flushed(cluster: EmbeddedCluster) -> None:
    labels = (("client_id", "counted"),)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, client_id="counted") as producer:
        for _ in range(7):
            producer.send("scraped", b"x")
        producer.flush()
        values = scrape(KafkaCollector([producer]))
    assert values["kafka_producer_record_send_total", labels] == 7
    assert values["kafka_producer_topic_record_send_total", (*labels, ("topic", "scraped"))] == 7
    assert values["kafka_producer_connection_count", labels] >= 1
    assert not [name for name, _ in values if "-" in name]


def test_all_open_clients_are_collected_until_they_are_closed(cluster: EmbeddedCluster) -> None:
    collector = KafkaCollector()

    def clients() -> set[str]:
        return {value for _, labels in scrape(collector) for label, value in labels if label == "client_id"}

    with (
        KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, client_id="open-p") as producer,
        KafkaConsumer("scraped", bootstrap_servers=cluster.bootstrap_servers, client_id="open-c") as consumer,
    ):
        producer.send("scraped", b"x").get(10)
        consumer.poll(100)
        assert {"open-p", "open-c"} <= clients()
    assert not {"open-p", "open-c"} & clients()


def test_clients_of_asyncio_are_scraped_by_a_thread(cluster: EmbeddedCluster) -> None:
    scraped: list[dict[tuple[str, tuple[tuple[str, str], ...]], float]] = []

    async def main() -> None:
        async with (
            AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, client_id="loop-p") as producer,
            AIOKafkaConsumer("scraped", bootstrap_servers=cluster.bootstrap_servers, client_id="loop-c") as consumer,
        ):
            await producer.send_and_wait("scraped", b"x")
            for collector in (KafkaCollector(), KafkaCollector([producer, consumer])):
                thread = threading.Thread(target=lambda: scraped.append(scrape(collector)))  # noqa: B023 - joined below
                thread.start()
                await asyncio.to_thread(thread.join)

    asyncio.run(main())
    for values in scraped:
        assert values["kafka_producer_record_send_total", (("client_id", "loop-p"),)] == 1
        assert ("kafka_consumer_connection_count", (("client_id", "loop-c"),)) in values


def test_a_metric_without_values_is_nan(cluster: EmbeddedCluster) -> None:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, client_id="new") as producer:
        values = scrape(KafkaCollector([producer]))
    assert math.isnan(values["kafka_producer_request_latency_avg", (("client_id", "new"),)])
