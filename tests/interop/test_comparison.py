"""The table of README.md that compares clients: each cell is looked up in the installed packages."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import re
from collections.abc import Callable
from importlib.metadata import files, version
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.conn
import aiokafka.util
import confluent_kafka
import confluent_kafka.admin
import confluent_kafka.aio
import kafka
import kafka.net
import pytest

import pykclient
import pykclient.aio
import pykclient.testing
from pykclient.config.consumer_config import ConsumerConfig

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
CLIENTS = ("pykclient", "kafka-python", "confluent-kafka", "aiokafka")


def has_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # a package around it is missing
        return False


@functools.cache
def imported(package: str) -> frozenset[str]:
    """Return the names of the top-level packages that any file of a package imports."""
    found: set[str] = set()
    for path in files(package) or ():
        if path.suffix in {".py", ".pyi"}:
            text = Path(str(path.locate())).read_text(encoding="utf-8", errors="replace")
            found.update(re.findall(r"^\s*(?:from|import)\s+(\w+)", text, flags=re.MULTILINE))
    return frozenset(found)


def has_file(package: str, name: str) -> bool:
    return any(path.name == name for path in files(package) or ())


def confluent_takes(**config: str) -> bool:
    """Return whether confluent-kafka makes a consumer with these settings, which have underscores for dots."""
    settings: dict[str, Any] = {key.replace("_", "."): value for key, value in config.items()}
    try:
        confluent_kafka.Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", **settings}).close()
    except confluent_kafka.KafkaException:
        return False
    return True


def kafka_python_takes(key: str) -> bool:
    return key in kafka.KafkaConsumer.DEFAULT_CONFIG


def aiokafka_takes(key: str) -> bool:
    return key in inspect.signature(aiokafka.AIOKafkaConsumer.__init__).parameters


def is_threadless(client: type) -> bool:
    return not {"executor", "max_workers"} & set(inspect.signature(client.__init__).parameters)  # type: ignore[misc]


#: For each row: whether a client has it, in the order of CLIENTS.
ROWS: dict[str, tuple[Callable[[], bool], ...]] = {
    "runs without compiled code of its own (the packages for codecs and checksums are compiled)": (
        lambda: has_module("pykclient.implementation"),
        lambda: not any(path.suffix in {".so", ".pyd"} for path in files("kafka-python") or ()),
        lambda: not str(confluent_kafka.cimpl.__file__).endswith((".so", ".pyd")),
        lambda: hasattr(aiokafka.util, "NO_EXTENSIONS"),
    ),
    "typed (`py.typed`)": (
        (Path(pykclient.__file__).parent / "py.typed").exists,
        lambda: has_file("kafka-python", "py.typed"),
        lambda: has_file("confluent-kafka", "py.typed"),
        lambda: has_file("aiokafka", "py.typed"),
    ),
    "transactions": (
        lambda: hasattr(pykclient.KafkaProducer, "commit_transaction"),
        lambda: hasattr(kafka.KafkaProducer, "commit_transaction"),
        lambda: hasattr(confluent_kafka.Producer, "commit_transaction"),
        lambda: hasattr(aiokafka.AIOKafkaProducer, "commit_transaction"),
    ),
    "cooperative rebalances (KIP-429)": (
        lambda: has_module("pykclient.consumer.sticky_assignor"),
        lambda: has_module("kafka.coordinator.assignors.cooperative_sticky"),
        lambda: confluent_takes(partition_assignment_strategy="cooperative-sticky"),
        lambda: has_module("aiokafka.coordinator.assignors.cooperative_sticky"),
    ),
    "the new group protocol (KIP-848)": (
        lambda: "group.protocol" in ConsumerConfig.DEFINITION.keys,
        lambda: kafka_python_takes("group_protocol"),
        lambda: confluent_takes(group_protocol="consumer"),
        lambda: aiokafka_takes("group_protocol"),
    ),
    "share groups (KIP-932)": (
        lambda: hasattr(pykclient, "KafkaShareConsumer"),
        lambda: hasattr(kafka, "KafkaShareConsumer"),
        lambda: hasattr(confluent_kafka, "ShareConsumer"),
        lambda: hasattr(aiokafka, "AIOKafkaShareConsumer"),
    ),
    "asyncio on the event loop, without threads for I/O": (
        lambda: is_threadless(pykclient.aio.AIOKafkaConsumer),
        lambda: hasattr(kafka, "AIOKafkaConsumer"),
        lambda: is_threadless(confluent_kafka.aio.AIOConsumer),
        lambda: is_threadless(aiokafka.AIOKafkaConsumer),
    ),
    "Arrow tables in and out": (
        lambda: hasattr(pykclient.KafkaConsumer, "poll_arrow"),
        lambda: "pyarrow" in imported("kafka-python"),
        lambda: "pyarrow" in imported("confluent-kafka"),
        lambda: "pyarrow" in imported("aiokafka"),
    ),
    "interceptors": (
        lambda: "interceptor.classes" in ConsumerConfig.DEFINITION.keys,
        lambda: kafka_python_takes("interceptor_classes"),
        lambda: confluent_takes(interceptor_classes=""),
        lambda: aiokafka_takes("interceptor_classes"),
    ),
    "Kerberos": (
        lambda: has_module("pykclient.network.authenticator.gssapi_client"),
        lambda: has_module("kafka.net.sasl.gssapi"),
        lambda: confluent_takes(security_protocol="SASL_PLAINTEXT", sasl_mechanism="GSSAPI"),
        lambda: hasattr(aiokafka.conn, "SaslGSSAPIAuthenticator"),
    ),
    "AWS_MSK_IAM built in": (
        lambda: has_module("pykclient.network.authenticator.aws_msk_iam"),
        lambda: has_module("kafka.net.sasl.msk"),
        lambda: confluent_takes(security_protocol="SASL_SSL", sasl_mechanism="AWS_MSK_IAM"),
        lambda: hasattr(aiokafka.conn, "SaslMskIamAuthenticator"),
    ),
    "a cluster for tests in the same process": (
        lambda: has_module("pykclient.testing"),
        lambda: has_module("kafka.testing"),
        lambda: confluent_takes(test_mock_num_brokers="1"),
        lambda: has_module("aiokafka.testing"),
    ),
    "the same with fault injection": (
        lambda: hasattr(pykclient.testing.EmbeddedCluster, "faults"),
        lambda: has_module("kafka.testing"),
        lambda: any(
            "mock" in name for name in (*dir(confluent_kafka.Consumer), *dir(confluent_kafka.admin.AdminClient))
        ),
        lambda: has_module("aiokafka.testing"),
    ),
    "a source and a sink for PySpark": (
        lambda: has_module("pykclient.spark"),
        lambda: "pyspark" in imported("kafka-python"),
        lambda: "pyspark" in imported("confluent-kafka"),
        lambda: "pyspark" in imported("aiokafka"),
    ),
    "exporters for Prometheus and OpenTelemetry built in": (
        lambda: has_module("pykclient.exporters.prometheus") and has_module("pykclient.exporters.opentelemetry"),
        lambda: bool({"prometheus_client", "opentelemetry"} & imported("kafka-python")),
        lambda: bool({"prometheus_client", "opentelemetry"} & imported("confluent-kafka")),
        lambda: bool({"prometheus_client", "opentelemetry"} & imported("aiokafka")),
    ),
    "client metrics pushed to brokers (KIP-714)": (
        lambda: has_module("pykclient.network.client_telemetry"),
        lambda: kafka_python_takes("enable_metrics_push"),
        lambda: confluent_takes(enable_metrics_push="true"),
        lambda: aiokafka_takes("enable_metrics_push"),
    ),
    "SOCKS5 and HTTP CONNECT proxies": (
        lambda: "proxy.url" in ConsumerConfig.DEFINITION.keys,
        lambda: kafka_python_takes("proxy_url"),
        lambda: confluent_takes(proxy_url="socks5://127.0.0.1:1"),
        lambda: aiokafka_takes("proxy_url"),
    ),
    "schema registry": (
        lambda: has_module("pykclient.schema_registry"),
        lambda: has_module("kafka.schema_registry"),
        lambda: has_module("confluent_kafka.schema_registry"),
        lambda: has_module("aiokafka.schema_registry"),
    ),
}


def table() -> list[list[str]]:
    """Return the cells of the table's rows."""
    text = README.split("### Beside other clients\n\n")[1].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in text.splitlines()]


def test_comparison_table_names_the_installed_versions() -> None:
    heading = table()[0]
    assert heading == ["pykclient", "kafka-python 3.0", "confluent-kafka 2.16", "aiokafka 0.14"]
    for cell in heading[1:]:
        client, release = cell.split(" ")
        assert version(client).startswith(release)


def test_each_row_of_the_comparison_is_checked() -> None:
    assert [row[0] for row in table()[2:]] == list(ROWS)


@pytest.mark.parametrize("row", table()[2:], ids=lambda row: row[0])
def test_cells_of_a_comparison_row_are_true(row: list[str]) -> None:
    found = [has() for has in ROWS[row[0]]]
    assert dict(zip(CLIENTS, row[1:], strict=True)) == {
        client: "yes" if has else "no" for client, has in zip(CLIENTS, found, strict=True)
    }
