"""Clients push their metrics to brokers that ask for them: to the embedded cluster, and to a receiver in real Kafka."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pykclient import KafkaConsumer, KafkaProducer, KafkaShareConsumer
from pykclient.admin import Admin, ConfigResource, ConfigResourceType, NewTopic
from pykclient.aio import AIOKafkaProducer
from pykclient.errors import IllegalArgumentError
from pykclient.metrics import KafkaMetric, MetricName, SubscribedMetrics
from pykclient.network import client_telemetry
from pykclient.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from pykclient.testing import EmbeddedCluster
from pykclient.testing.telemetry import Push, PushedMetric, decode_metrics
from tests.kafka.cluster import KafkaCluster
from tests.support.java import compiled_classes
from tests.testing.handlers.raw_client import RawClient

INTERVAL_MS = 20


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients that have just been made look for a connection more often than each second."""
    monkeypatch.setattr(client_telemetry, "_NO_NODE_MS", 10)


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


def test_producer_pushes_repeatedly_and_when_closing(cluster: EmbeddedCluster) -> None:
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
    labels = cluster.telemetry()[-1].resource
    assert labels.pop("group_member_id")
    assert labels == {"group_id": "g"}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_push_has_the_labels_of_a_group_member(cluster: EmbeddedCluster, protocol: str) -> None:
    cluster.collect_telemetry(["*"], INTERVAL_MS)
    with KafkaConsumer(
        "pushed",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        group_protocol=protocol,
        group_instance_id="member-1",
        client_rack="b",
    ) as consumer:

        def has_pushed() -> bool:
            consumer.poll(50)
            # A push may name the member before the consumer has joined.
            has_joined = bool(consumer.group_metadata().member_id)
            return has_joined and any("group_member_id" in push.resource for push in cluster.telemetry())

        wait_until(has_pushed)
        member_id = consumer.group_metadata().member_id
    assert cluster.telemetry()[-1].resource == {
        "client_rack": "b",
        "group_id": "g",
        "group_instance_id": "member-1",
        "group_member_id": member_id,
    }


def test_a_share_consumer_pushes_its_member_id(cluster: EmbeddedCluster) -> None:
    cluster.collect_telemetry(["*"], INTERVAL_MS)
    with KafkaShareConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id="s") as consumer:
        consumer.subscribe(["pushed"])

        def has_pushed() -> bool:
            consumer.poll(50)
            return bool(cluster.telemetry())

        wait_until(has_pushed)
    labels = cluster.telemetry()[-1].resource
    assert labels.pop("group_member_id")
    assert labels == {"group_id": "s"}


class Orders:
    """A metric of an application."""

    def __init__(self, name: str, group: str = "shop-metrics") -> None:
        self.value: float = 0
        self.metric = KafkaMetric(MetricName(name, group, "", {"shop-id": "7"}), lambda _config, _now_ms: self.value)


@contextmanager
def registered_at(kind: str, servers: str) -> Iterator[tuple[SubscribedMetrics, Callable[[], object]]]:
    """Yield a client that pushes, and a function that lets it work."""
    settings: dict[str, Any] = {"bootstrap_servers": servers, "enable_metrics_push": True}
    if kind == "producer":
        with KafkaProducer(**settings) as producer:
            yield producer, lambda: producer.send("pushed", b"x").get(10)
    elif kind == "consumer":
        with KafkaConsumer("pushed", **settings) as consumer:
            yield consumer, lambda: consumer.poll(50)
    elif kind == "share consumer":
        with KafkaShareConsumer(group_id="s", **settings) as sharing:
            sharing.subscribe(["pushed"])
            yield sharing, lambda: sharing.poll(50)
    else:
        with Admin(**settings) as admin:
            yield admin, admin.describe_cluster


@pytest.mark.parametrize("kind", ["producer", "consumer", "share consumer", "admin"])
def test_metrics_of_the_application_are_pushed(cluster: EmbeddedCluster, kind: str) -> None:
    cluster.collect_telemetry(["org.apache.kafka.shop."], INTERVAL_MS)
    open_orders, all_orders = Orders("orders-open"), Orders("orders-total")
    with registered_at(kind, cluster.bootstrap_servers) as (client, work):
        client.register_metric_for_subscription(open_orders.metric)
        client.register_metric_for_subscription(all_orders.metric)
        open_orders.value, all_orders.value = 3, 40

        def found(name: str) -> list[PushedMetric]:
            work()
            return [metric for push in cluster.telemetry() for metric in push.metrics if metric.name.endswith(name)]

        wait_until(lambda: len(found("orders.open")) > 0)
        assert found("orders.open")[0] == PushedMetric(
            "org.apache.kafka.shop.orders.open", {"shop_id": "7"}, "gauge", 3
        )
        assert found("orders.total")[0] == PushedMetric(
            "org.apache.kafka.shop.orders.total", {"shop_id": "7"}, "delta", 40
        )
        client.unregister_metric_from_subscription(open_orders.metric)
        all_orders.value = 42  # a push that tells this was made after the metric had gone
        wait_until(lambda: sum(metric.value for metric in found("orders.total")) == 42)
    names = [
        metric.name.removeprefix("org.apache.kafka.shop.")
        for push in cluster.telemetry()
        if any(metric.name.endswith("orders.total") and metric.value == 2 for metric in push.metrics)
        for metric in push.metrics
    ]
    assert names == ["orders.total"]


def test_application_cannot_replace_or_remove_client_metric(cluster: EmbeddedCluster) -> None:
    name = "org.apache.kafka.producer.record.send.total"
    cluster.collect_telemetry([name], INTERVAL_MS, is_delta=False)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, client_id="p") as producer:
        producer.send("pushed", b"x").get(10)
        own = next(metric for metric in producer.metrics(raw=True) if metric.name == "record-send-total")
        other = KafkaMetric(own, lambda _config, _now_ms: 1_000)
        producer.register_metric_for_subscription(other)
        producer.unregister_metric_from_subscription(other)
        # One that was made before the record was sent may still be on its way.
        earlier = len(pushes_of(cluster, "p")) + 1
        cluster.wait_for(lambda: len(pushes_of(cluster, "p")) > earlier, what="a push that was made since")
        with pytest.raises(IllegalArgumentError, match="a KafkaMetric is needed, not a str"):
            producer.register_metric_for_subscription("record-send-total")  # type: ignore[arg-type]
    pushes = pushes_of(cluster, "p")[earlier:]
    assert {metric.value for push in pushes for metric in push.metrics if metric.name == name} == {1}


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


def test_client_asks_no_subscription_if_broker_lacks_telemetry(cluster: EmbeddedCluster) -> None:
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
        wanted = {
            "interval.ms": "100",
            "metrics": "org.apache.kafka.producer.,org.apache.kafka.consumer.fetch,org.apache.kafka.shop.",
        }
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("pushed", 1, 1)]).all()
            admin.incremental_alter_configs([ConfigResource(ConfigResourceType.CLIENT_METRICS, "all", wanted)]).all()
        # The broker learns of this a little later. A client that asks before that asks again after five minutes.
        with RawClient(cluster.bootstrap_servers) as client:
            wait_until(lambda: subscribed_metrics(client) != [])
        yield cluster, file


def subscribed_metrics(client: RawClient) -> list[str]:
    """Return what the broker wants of a client that it does not know yet."""
    response = client.ask(GetTelemetrySubscriptionsRequest(), 0, GetTelemetrySubscriptionsResponse)
    assert response.error_code == 0
    return response.requested_metrics


class Written(NamedTuple):
    """A push in the receiver's file."""

    instance: str
    is_last: bool
    labels: dict[str, str]
    metrics: dict[str, float]


def written(file: Path, client_id: str) -> list[Written]:
    """Return the pushes of a client. The last line may be half written yet."""
    found: list[Written] = []
    for line in file.read_text(encoding="utf-8").split("\n")[:-1]:
        client, instance, is_last, data = line.split(" ")
        if client == client_id:
            labels, metrics = decode_metrics(base64.b64decode(data))
            values = {metric.name: metric.value for metric in metrics}
            found.append(Written(instance, is_last == "true", labels, values))
    return found


@pytest.mark.kafka
def test_real_broker_gets_subscribed_metrics(kafka: tuple[KafkaCluster, Path]) -> None:
    cluster, file = kafka
    name = "org.apache.kafka.producer.record.send.total"
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, client_id="ours") as producer:

        def has_pushed() -> bool:
            producer.send("pushed", b"x").get(10)
            return len(written(file, "ours")) > 2

        wait_until(has_pushed)
        sent = producer.metrics()["producer-metrics"]["record-send-total"]
    wait_until(lambda: written(file, "ours")[-1].is_last)
    pushes = written(file, "ours")
    assert len({push.instance for push in pushes}) == 1
    assert sum(push.metrics.get(name, 0) for push in pushes) == sent
    assert {metric.split(".")[3] for push in pushes for metric in push.metrics} == {"producer"}


@pytest.mark.kafka
def test_a_real_broker_gets_labels_and_metrics_of_the_application(kafka: tuple[KafkaCluster, Path]) -> None:
    cluster, file = kafka
    orders = Orders("orders-open")
    orders.value = 3
    with KafkaConsumer("pushed", bootstrap_servers=cluster.bootstrap_servers, client_id="m", group_id="g") as consumer:
        consumer.register_metric_for_subscription(orders.metric)

        def has_pushed() -> bool:
            consumer.poll(50)
            has_joined = consumer.group_metadata().member_id != ""  # a push may come before the join is complete
            return has_joined and any("group_member_id" in push.labels for push in written(file, "m"))

        wait_until(has_pushed)
        member_id = consumer.group_metadata().member_id
    push = written(file, "m")[-1]
    assert push.labels == {"group_id": "g", "group_member_id": member_id}
    assert push.metrics["org.apache.kafka.shop.orders.open"] == 3


def wait_until(predicate: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 30
    while not predicate():
        assert time.monotonic() < deadline_s, "it never happened"
