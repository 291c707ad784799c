"""The manifests, alerts and dashboards for those who run services fit the clients."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import prometheus_client
import pytest
import yaml

import examples
from examples.health import HealthServer
from examples.kubernetes.settings import mounted_settings
from pykclient import KafkaConsumer, KafkaProducer
from pykclient.config.consumer_config import ConsumerConfig
from pykclient.exporters.prometheus import KafkaCollector
from pykclient.testing import EmbeddedCluster

EXAMPLES = Path(examples.__file__).parent
ALERTS = (EXAMPLES / "monitoring" / "alerts.yaml").read_text(encoding="utf-8")
DASHBOARD = (EXAMPLES / "monitoring" / "dashboard.json").read_text(encoding="utf-8")
MANIFEST = (EXAMPLES / "kubernetes" / "shipping.yaml").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def exported(cluster: EmbeddedCluster) -> dict[str, set[str]]:
    """The names of all samples that Prometheus gets of a producer and a consumer, with their labels."""
    with (
        KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer,
        KafkaConsumer("t", bootstrap_servers=cluster.bootstrap_servers, group_id="g") as consumer,
    ):
        producer.send("t", b"value").get(10)
        consumer.poll(timeout_ms=1000)
        registry = prometheus_client.CollectorRegistry()
        registry.register(KafkaCollector())
        return {sample.name: set(sample.labels) for family in registry.collect() for sample in family.samples}


def expressions() -> dict[str, str]:
    """Return the PromQL of each alert and of each panel by its name."""
    alerts = {rule["alert"]: rule["expr"] for group in yaml.safe_load(ALERTS)["groups"] for rule in group["rules"]}
    panels = {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in json.loads(DASHBOARD)["panels"]
        for target in panel["targets"]
    }
    return {**alerts, **panels}


@pytest.mark.parametrize("name", sorted(expressions()))
def test_metrics_of_an_expression_are_exported(name: str, exported: dict[str, set[str]]) -> None:
    metrics = set(re.findall(r"\bkafka_\w+", expressions()[name]))
    assert metrics
    assert metrics <= set(exported)
    assert all("client_id" in exported[metric] for metric in metrics)


def test_variable_of_the_dashboard_is_a_label_of_an_exported_metric(exported: dict[str, set[str]]) -> None:
    (query,) = [item["query"] for item in json.loads(DASHBOARD)["templating"]["list"] if item["type"] == "query"]
    metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", query).groups()  # type: ignore[union-attr]
    assert label in exported[metric]


def status(server: HealthServer, path: str) -> int:
    """Return the status of a GET request."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=10) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_probes_follow_the_consumer(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("health", partitions=1)
    config: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "health"}
    with KafkaConsumer("health", **{key.replace(".", "_"): value for key, value in config.items()}) as consumer:
        server = HealthServer(consumer, port=0)
        try:
            assert (status(server, "/live"), status(server, "/ready")) == (200, 503)
            while not consumer.assignment():
                consumer.poll(timeout_ms=1000)
            assert (status(server, "/live"), status(server, "/ready")) == (200, 200)
            assert status(server, "/metrics") == 200
            assert status(server, "/else") == 404
            server._max_poll_interval_s = -1.0  # as if the interval were over
            assert status(server, "/live") == 503
        finally:
            server.close()


def test_settings_of_the_manifest_make_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret, settings, _ = yaml.safe_load_all(MANIFEST)
    for folder, files in (("settings", settings["data"]), ("secrets", secret["stringData"])):
        (tmp_path / folder).mkdir()
        for name, text in files.items():
            (tmp_path / folder / name).write_text(text, encoding="utf-8")
    (tmp_path / "settings" / "..data").mkdir()  # Kubernetes keeps its own links beside the files
    monkeypatch.setenv("INSTANCE", "shipping-0")
    config = ConsumerConfig(mounted_settings(tmp_path))
    assert config["sasl.mechanism"] == "SCRAM-SHA-512"
    assert config["group.instance.id"] == "shipping-0"
    assert config["ssl.truststore.location"] == str(tmp_path / "tls" / "ca.pem")


def test_ports_and_paths_of_the_manifest_are_those_of_the_health_server() -> None:
    *_, workload = yaml.safe_load_all(MANIFEST)
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    paths = {container[probe]["httpGet"]["path"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert paths == {"/live", "/ready"}
    assert container["ports"] == [{"name": "health", "containerPort": 8080}]
