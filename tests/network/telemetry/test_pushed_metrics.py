"""Clients push their metrics to brokers that ask for them: to the embedded cluster, and to a receiver in real Kafka."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pykclient import KafkaConsumer, KafkaProducer
from pykclient.admin import Admin, ConfigResource, ConfigResourceType, NewTopic
from pykclient.aio import AIOKafkaProducer
from pykclient.testing import EmbeddedCluster
from pykclient.testing.telemetry import Push, decode_metrics
from tests.kafka.cluster import KafkaCluster
from tests.support.java import compiled_classes

INTERVAL_MS = 200


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1) as cluster:
        cluster.create_topic("pushed")
        yield cluster


def pushes_of(cluster: EmbeddedCluster, client_id: str) -> list[Push]:
    return [push for push in cluster.telemetry() if push.client_id == client_id]


def total(pushes: list[Push], name: str) -> float:
    """Return the sum of the deltas of a metric."""
    return sum(metric.value for push in pushes for metric in push.metrics if metric.name == name)


def test_a_producer_pushes_and_pushes_a_last_time(cluster: EmbeddedCluster) -> None:
    cluster.collect_telemetry(["org.apache.kafka.producer."], INTERVAL_MS)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, client_id="p", transactional_id="tx") as producer:
        producer.init_transactions()
        with producer.transaction():
            for _ in range(5):
                producer.send("pushed", b"x")
        cluster.wait_for(lambda: len(pushes_of(cluster, "p")) >= 2, what="two pushes")
        with producer.transaction():
            producer.send("pushed", b"x")
    cluster.wait_for(lambda: pushes_of(cluster, "p")[-1].is_last, what="the last push")
    pushes = pushes_of(cluster, "p")
    assert total(pushes, "org.apache.kafka.producer.record.send.total") == 6
    assert {push.compression for push in pushes} == {"zstd"}
    assert pushes[0].resource == {"transactional_id": "tx"}
    assert len({push.client_instance_id for push in pushes}) == 1
    assert all(metric.name.startswith("org.apache.kafka.producer.") for push in pushes for metric in push.metrics)
    by_topic = [metric.attributes for metric in pushes[-1].metrics if metric.name.endswith("producer.topic.byte.rate")]
    assert by_topic == [{"topic": "pushed"}]


def test_a_consumer_pushes_while_it_polls(cluster: EmbeddedCluster) -> None:
    cluster.collect_telemetry(["*"], INTERVAL_MS, is_delta=False)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, enable_metrics_push=False) as producer:
        producer.send("pushed", b"x").get(10)
    with KafkaConsumer(
        "pushed",
        bootstrap_servers=cluster.bootstrap_servers,
        client_id="c",
        group_id="g",
        auto_offset_reset="earliest",
    ) as consumer:

        def has_pushed() -> bool:
            consumer.poll(50)
            name = "org.apache.kafka.consumer.fetch.manager.records.consumed.total"
            return any(
                metric.name == name and metric.value == 1 for push in pushes_of(cluster, "c") for metric in push.metrics
            )

        wait_until(has_pushed)
    assert {push.client_id for push in cluster.telemetry()} == {"c"}
    assert cluster.telemetry()[0].resource == {"group_id": "g"}


def test_a_client_of_asyncio_pushes(cluster: EmbeddedCluster) -> None:
    cluster.collect_telemetry(["org.apache.kafka.producer.record.send.total"], INTERVAL_MS)

    async def main() -> None:
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, client_id="a") as producer:
            await producer.send_and_wait("pushed", b"x")
            async with asyncio.timeout(20):
                while not pushes_of(cluster, "a"):
                    await asyncio.sleep(0.01)

    asyncio.run(main())
    assert total(pushes_of(cluster, "a"), "org.apache.kafka.producer.record.send.total") == 1


def test_a_changed_subscription_is_fetched_again(cluster: EmbeddedCluster) -> None:
    cluster.collect_telemetry(["org.apache.kafka.producer.record"], INTERVAL_MS)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, client_id="p") as producer:
        producer.send("pushed", b"x").get(10)
        cluster.wait_for(lambda: len(pushes_of(cluster, "p")) > 0, what="a push")
        cluster.collect_telemetry(["org.apache.kafka.producer.request"], INTERVAL_MS)
        cluster.wait_for(lambda: len(pushes_of(cluster, "p")) > 0, what="a push of the other metrics")
        (push, *_) = pushes_of(cluster, "p")
    assert {metric.name.split(".")[4] for metric in push.metrics} == {"request", "requests"}


def test_without_a_receiver_nothing_is_asked(cluster: EmbeddedCluster) -> None:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send("pushed", b"x").get(10)
    assert not cluster.requests_of("GET_TELEMETRY_SUBSCRIPTIONS")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaCluster, Path]]:
    """A real broker with a plug-in that writes pushes into a file."""
    file = tmp_path_factory.mktemp("telemetry") / "pushes"
    file.touch()
    plugins = compiled_classes(Path(__file__).with_name("TelemetryPlugin.java"))
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m", f"-Dpushes={file}"]
    with KafkaCluster(1, {"metric.reporters": "TelemetryPlugin"}, java_options=options, plugins=plugins) as cluster:
        wanted = {"interval.ms": "100", "metrics": "org.apache.kafka.producer.,org.apache.kafka.consumer.fetch"}
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("pushed", 1, 1)]).all()
            admin.incremental_alter_configs([ConfigResource(ConfigResourceType.CLIENT_METRICS, "all", wanted)]).all()
        yield cluster, file


def written(file: Path, client_id: str) -> list[tuple[str, bool, dict[str, float]]]:
    """Return the pushes of a client: the id of the instance, whether it is the last, and the metrics."""
    found: list[tuple[str, bool, dict[str, float]]] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        client, instance, is_last, data = line.split(" ")
        if client == client_id:
            _, metrics = decode_metrics(base64.b64decode(data))
            found.append((instance, is_last == "true", {metric.name: metric.value for metric in metrics}))
    return found


@pytest.mark.kafka
def test_a_real_broker_gets_what_it_asks_for(kafka: tuple[KafkaCluster, Path]) -> None:
    cluster, file = kafka
    name = "org.apache.kafka.producer.record.send.total"
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, client_id="ours") as producer:

        def has_pushed() -> bool:
            producer.send("pushed", b"x").get(10)
            return len(written(file, "ours")) > 2

        wait_until(has_pushed)
        sent = producer.metrics()["producer-metrics"]["record-send-total"]
    wait_until(lambda: written(file, "ours")[-1][1])
    pushes = written(file, "ours")
    assert len({instance for instance, _, _ in pushes}) == 1
    assert sum(metrics.get(name, 0) for _, _, metrics in pushes) == sent
    assert {metric.split(".")[3] for _, _, metrics in pushes for metric in metrics} == {"producer"}


def wait_until(predicate: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 30
    while not predicate():
        assert time.monotonic() < deadline_s, "it never happened"
