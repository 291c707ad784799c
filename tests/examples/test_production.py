"""The metrics, keys and defaults in docs/production.md exist, and its code runs."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import prometheus_client
import pytest

import examples
from pykclient import KafkaConsumer, KafkaProducer
from pykclient.config.consumer_config import ConsumerConfig
from pykclient.config.producer_config import ProducerConfig
from pykclient.testing import EmbeddedCluster

PAGE = (Path(examples.__file__).parents[1] / "docs" / "production.md").read_text(encoding="utf-8")
DEFAULTS = {
    "2 minutes": 120_000,
    "30 s": 30_000,
    "1 minute": 60_000,
    "45 s": 45_000,
    "5 minutes": 300_000,
    "10 s": 10_000,
}


def rows(heading: str) -> list[list[str]]:
    """Return the rows of the table whose first column has this heading."""
    table = re.search(rf"^\| {heading} \|.*\n\|[ -|]*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert table is not None
    return [[cell.strip().strip("`") for cell in line.strip("|").split(" | ")] for line in table[1].splitlines()]


@pytest.fixture(scope="module")
def metrics() -> dict[str, set[str]]:
    with (
        EmbeddedCluster() as cluster,
        KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer,
        KafkaConsumer("t", bootstrap_servers=cluster.bootstrap_servers, group_id="g") as consumer,
    ):
        producer.send("t", b"value").get(10)
        consumer.poll(timeout_ms=0)
        return {
            "producer": {name for names in producer.metrics().values() for name in names},
            "consumer": {name for names in consumer.metrics().values() for name in names},
        }


@pytest.mark.parametrize("client", ["producer", "consumer"])
def test_metrics_exist(client: str, metrics: dict[str, set[str]]) -> None:
    names = {row[0].split("`")[0] for row in rows(client)}
    assert len(names) > 5
    assert names <= metrics[client]


def test_timeouts_exist_with_these_defaults() -> None:
    servers = {"bootstrap.servers": "localhost:9092"}
    configs = (ProducerConfig(servers), ConsumerConfig(servers))
    for key, default, *_ in rows("key"):
        assert any(key in config and config[key] == DEFAULTS[default] for config in configs), key


def snippet(text: str) -> str:
    """Return the snippet that contains ``text``."""
    (code,) = [code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if text in code]
    return str(code)


def test_signal_explains_all_clients() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    try:
        exec(snippet("explain_on_signal"), {})
        assert callable(signal.getsignal(signal.SIGUSR1))
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_prometheus_gets_the_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    registry, ports = prometheus_client.CollectorRegistry(), list[int]()
    monkeypatch.setattr(prometheus_client, "REGISTRY", registry)
    monkeypatch.setattr(prometheus_client, "start_http_server", ports.append)
    exec(snippet("KafkaCollector"), {})
    assert ports == [9000]
    with EmbeddedCluster() as cluster, KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send("t", b"value").get(10)
        assert b"kafka_producer_record_send_total{client_id=" in prometheus_client.generate_latest(registry)


def test_the_loop_ends_on_sigterm() -> None:
    code = snippet("def serve")
    seen: list[int] = []

    def print_(count: int) -> None:
        seen.append(count)
        os.kill(os.getpid(), signal.SIGTERM)

    namespace: dict[str, Any] = {"print": print_}
    exec(code, namespace)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with EmbeddedCluster() as cluster:
            with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                producer.send("t", b"value").get(10)
            namespace["serve"](
                KafkaConsumer(
                    "t", bootstrap_servers=cluster.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
                )
            )
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [1]
