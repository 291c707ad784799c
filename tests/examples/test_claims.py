"""Statements of the guides that no program on their pages shows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import prometheus_client
import pytest

import examples
from pykclient import KafkaConsumer, KafkaProducer, TopicPartition
from pykclient.admin import Admin, UserScramCredentialDeletion, UserScramCredentialUpsertion
from pykclient.consumer import consumer_face
from pykclient.errors import AuthenticationError, ConcurrentModificationError, WakeupError
from pykclient.exporters.prometheus import KafkaCollector
from pykclient.protocol.messages.metadata import MetadataRequest
from pykclient.testing import EmbeddedCluster, Security
from tests.support.wait import eventually

DOCS = Path(examples.__file__).parents[1] / "docs"
ORDERS = TopicPartition("orders", 0)


def text_of(page: str) -> str:
    """Return the text of a page in one line."""
    return " ".join((DOCS / page).read_text(encoding="utf-8").split())


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3) as cluster:
        cluster.create_topic("orders", partitions=1)
        yield cluster


@pytest.mark.timeout(40)  # default.api.timeout.ms is 60 s
def test_close_of_a_consumer_waits_for_a_silent_coordinator_as_long_as_the_page_says(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert consumer_face.DEFAULT_CLOSE_TIMEOUT_MS == 30_000
    assert "leaving the group, at most 30 s; `close(timeout_ms=5000)` waits less" in text_of("troubleshooting.md")
    monkeypatch.setattr(f"{KafkaConsumer.__module__}.DEFAULT_CLOSE_TIMEOUT_MS", 500)
    consumer = KafkaConsumer("orders", bootstrap_servers=cluster.bootstrap_servers, group_id="billing")
    while not consumer.assignment():
        consumer.poll(timeout_ms=1000)
    for broker in cluster.broker_ids:
        cluster.pause(broker)
    consumer.close()
    assert "closed" in repr(consumer)


def test_three_methods_of_a_consumer_may_be_called_by_a_second_thread(cluster: EmbeddedCluster) -> None:
    assert "Three methods may be called from any thread: `wakeup()`" in text_of("consuming.md")
    results: dict[str, Any] = {}

    with KafkaConsumer("orders", bootstrap_servers=cluster.bootstrap_servers, group_id="billing") as consumer:

        def call_all() -> None:
            eventually(lambda: "poll(" in consumer.explain(), 20.0, "the consumer polls")
            results["explain"] = consumer.explain()
            results["metrics"] = consumer.metrics()
            try:
                consumer.position(ORDERS)
            except ConcurrentModificationError as error:
                results["position"] = error
            consumer.wakeup()

        second = threading.Thread(target=call_all)
        second.start()
        with pytest.raises(WakeupError):
            consumer.poll(timeout_ms=50_000)
        second.join()
    assert "poll(" in results["explain"]
    assert "consumer-metrics" in results["metrics"]
    assert "another thread may call only wakeup(), explain(), metrics() and methods that just read" in str(
        results["position"]
    )


def test_calls_of_an_admin_client_look_for_a_new_topic_in_five_attempts(cluster: EmbeddedCluster) -> None:
    assert "look for it in five attempts" in text_of("admin.md")
    with Admin(bootstrap_servers=cluster.bootstrap_servers, retry_backoff_ms=10) as admin:
        assert admin.list_offsets({TopicPartition("new", 0): 0}).failed
    asked = [request.body for request in cluster.requests_of("Metadata")]
    lists = [body.topics or [] for body in asked if isinstance(body, MetadataRequest)]
    assert sum("new" in [topic.name for topic in topics] for topics in lists) == 5


# --- rotation of passwords -------------------------------------------------------------------------------------------


@pytest.fixture
def secure() -> Iterator[EmbeddedCluster]:
    mechanisms = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    security: dict[str, str | Security] = {
        "OUTSIDE": Security("SASL_PLAINTEXT", mechanisms=mechanisms, users={"orders": "old"}),
        "INSIDE": "PLAINTEXT",
    }
    with EmbeddedCluster(security=security) as cluster:
        yield cluster


def login(cluster: EmbeddedCluster, user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, Any]:
    config = cluster.client_config("OUTSIDE")
    return {**config, "sasl.username": user, "sasl.password": password, "sasl.mechanism": mechanism}


def write(config: dict[str, Any]) -> int:
    """Write a record over a new connection, and return its offset."""
    with KafkaProducer({**config, "max.block.ms": 20_000}) as producer:
        return producer.send("orders", b"tea", partition=0).get(20).offset


def alter(cluster: EmbeddedCluster, change: UserScramCredentialDeletion | UserScramCredentialUpsertion) -> None:
    with Admin(cluster.client_config("INSIDE")) as admin:
        admin.alter_user_scram_credentials([change]).all()


def test_new_password_of_a_user_replaces_the_old_one(secure: EmbeddedCluster) -> None:
    old, new = login(secure, "orders", "old"), login(secure, "orders", "new")
    with KafkaProducer(old) as connected:
        connected.send("orders", b"tea", partition=0).get(20)
        alter(secure, UserScramCredentialUpsertion("orders", "SCRAM-SHA-512", password="new"))
        assert connected.send("orders", b"tea", partition=0).get(20).offset == 1
    with pytest.raises(AuthenticationError):
        write(old)
    assert write(new) == 2


def test_second_user_rotates_a_password_without_a_gap(secure: EmbeddedCluster) -> None:
    alter(secure, UserScramCredentialUpsertion("orders-2", "SCRAM-SHA-512", password="new"))
    old, new = login(secure, "orders", "old"), login(secure, "orders-2", "new")
    assert [write(old), write(new), write(old)] == [0, 1, 2]
    alter(secure, UserScramCredentialDeletion("orders", "SCRAM-SHA-512"))
    with pytest.raises(AuthenticationError):
        write(old)
    assert write(new) == 3


def test_second_mechanism_rotates_a_password_without_a_gap(secure: EmbeddedCluster) -> None:
    alter(secure, UserScramCredentialUpsertion("orders", "SCRAM-SHA-256", password="new"))
    old, new = login(secure, "orders", "old"), login(secure, "orders", "new", "SCRAM-SHA-256")
    assert [write(old), write(new), write(old)] == [0, 1, 2]


# --- metrics ---------------------------------------------------------------------------------------------------------


def test_number_of_metrics_is_about_that_of_the_page(cluster: EmbeddedCluster) -> None:
    assert "A producer and a consumer of a group have about 250 metrics" in text_of("production.md")
    with (
        KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer,
        KafkaConsumer(
            "orders", bootstrap_servers=cluster.bootstrap_servers, group_id="billing", auto_offset_reset="earliest"
        ) as consumer,
    ):
        producer.send("orders", b"tea").get(10)
        while not consumer.poll(timeout_ms=1000):
            pass
        registry = prometheus_client.CollectorRegistry()
        registry.register(KafkaCollector())
        samples = [sample for family in registry.collect() for sample in family.samples]
    assert 225 <= len(samples) <= 275
