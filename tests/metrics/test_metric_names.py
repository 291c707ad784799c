"""The names, groups and tags of the clients' metrics, compared with those of Java's clients."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pykclient import KafkaConsumer, KafkaProducer
from pykclient.testing import EmbeddedCluster
from tests.support.java import run_java

TOPIC = "measured"

#: Metrics of Java's clients that these do not have, with the reason.
MISSING = {
    "successful-authentication-no-reauth-total": "brokers count clients that cannot authenticate again; clients do not",
    "application-event": "calls of the application reach the request managers without a queue",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1) as cluster:
        cluster.create_topic(TOPIC)
        yield cluster


def names(role: str, client: Any) -> set[tuple[str, ...]]:
    return {(role, name.group, name.name, ",".join(sorted(name.tags))) for name in client.metrics(raw=True)}


@pytest.fixture(scope="module")
def ours(cluster: EmbeddedCluster) -> set[tuple[str, ...]]:
    servers = cluster.bootstrap_servers
    with KafkaProducer(bootstrap_servers=servers, transactional_id="ours") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(TOPIC, b"x").get(10)
        found = names("producer", producer)
    for protocol in ("classic", "consumer"):
        with KafkaConsumer(
            TOPIC,
            bootstrap_servers=servers,
            group_id=f"ours-{protocol}",
            group_protocol=protocol,
            auto_offset_reset="earliest",
        ) as consumer:
            while not consumer.poll(100):
                pass
            consumer.commit()
            found |= names(protocol, consumer)
    return found


@pytest.mark.java
def test_metric_names_groups_and_tags_equal_javas(cluster: EmbeddedCluster, ours: set[tuple[str, ...]]) -> None:
    output = run_java(Path(__file__).with_name("MetricsOracle.java"), cluster.bootstrap_servers).decode()
    java = {tuple(line.split(" ")) for line in output.splitlines()}
    missing = {metric for metric in java - ours if not metric[2].startswith(tuple(MISSING))}
    assert not missing
    assert not ours - java
    unused = [name for name in MISSING if not any(metric[2].startswith(name) for metric in java - ours)]
    assert not unused


def test_transactional_calls_are_measured(cluster: EmbeddedCluster) -> None:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="timed") as producer:
        before = producer.metrics()["producer-metrics"]
        producer.init_transactions()
        with producer.transaction():
            producer.send(TOPIC, b"x")
        after = producer.metrics()["producer-metrics"]
        producer.begin_transaction()
        producer.abort_transaction()
        aborted = producer.metrics()["producer-metrics"]
    assert before["txn-init-time-ns-total"] == before["txn-commit-time-ns-total"] == 0
    assert after["txn-init-time-ns-total"] > 0
    assert aborted["txn-abort-time-ns-total"] >= 0


def test_app_info_has_version_and_start_time(cluster: EmbeddedCluster) -> None:
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        info = consumer.metrics()["app-info"]
    assert info["version"].count(".") == 2
    assert info["start-time-ms"] > 1_700_000_000_000


def test_metrics_page_is_up_to_date() -> None:
    root = Path(__file__).parents[2]
    command = [
        sys.executable,
        str(root / "tools" / "metrics_reference.py"),
        str(root / "docs" / "metrics.md"),
        "--check",
    ]
    subprocess.run(command, check=True, timeout=60)
