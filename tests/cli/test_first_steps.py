"""The first wrong step of a new user: the error's text says the next one, in the library and on the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykclient import KafkaConsumer, KafkaProducer
from pykclient.admin import Admin
from pykclient.errors import KafkaError
from pykclient.testing import EmbeddedCluster, Security
from tests.cli.command import Pykclient
from tests.kafka.ports import refusing_port

#: The longest wait of a client in these tests, in milliseconds.
WAIT_MS = 800


def produce(settings: dict[str, Any]) -> None:
    with KafkaProducer({**settings, "max.block.ms": WAIT_MS}) as producer:
        producer.send("orders", b"x").get(10)


def consume(settings: dict[str, Any]) -> None:
    waits = {"default.api.timeout.ms": WAIT_MS, "request.timeout.ms": WAIT_MS}
    with KafkaConsumer({**settings, **waits}) as consumer:
        consumer.partitions_for("orders")


def describe(settings: dict[str, Any]) -> None:
    with Admin({**settings, "default.api.timeout.ms": WAIT_MS, "request.timeout.ms": WAIT_MS}) as admin:
        admin.describe_topics(["orders"]).all()


def on_the_command_line(*words: str) -> Callable[[dict[str, Any], pytest.MonkeyPatch], str]:
    def run(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> str:
        for key, value in settings.items():
            monkeypatch.setenv(f"PYKCLIENT_{key.upper().replace('.', '_')}", value)
        result = Pykclient()(*words, "--timeout", f"{WAIT_MS}ms", stdin=b"x\n")
        assert result.code != 0
        assert "Traceback" not in result.err
        return result.err

    return run


def in_the_library(use: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any], pytest.MonkeyPatch], str]:
    def run(settings: dict[str, Any], _: pytest.MonkeyPatch) -> str:
        with pytest.raises(KafkaError) as raised:
            use(settings)
        return str(raised.value)

    return run


_WAYS = [
    pytest.param(in_the_library(produce), id="KafkaProducer"),
    pytest.param(in_the_library(consume), id="KafkaConsumer"),
    pytest.param(in_the_library(describe), id="Admin"),
    pytest.param(on_the_command_line("produce", "orders"), id="produce"),
    pytest.param(on_the_command_line("consume", "orders", "--exit"), id="consume"),
    pytest.param(on_the_command_line("topics", "describe", "orders"), id="topics"),
]
ways = pytest.mark.parametrize("way", _WAYS)
Way = Callable[[dict[str, Any], pytest.MonkeyPatch], str]


@pytest.fixture(scope="module")
def secure_cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1, security=Security("SASL_PLAINTEXT", users={"alice": "hers"})) as running:
        yield running


def said(expected: str, way: Way, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the text of the error. On a busy machine the first wait may end before the client knows the cause."""
    text = way(settings, monkeypatch)
    if expected not in text:
        monkeypatch.setattr(f"{__name__}.WAIT_MS", 10_000)
        text = way(settings, monkeypatch)
    assert expected in text
    return text


@pytest.fixture(scope="module")
def tls_cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1, security=Security("SSL")) as running:
        yield running


@ways
def test_error_names_unused_address(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    with refusing_port() as port:
        address = f"127.0.0.1:{port}"
        cause = f"{address}: Connection refused, nothing listens there"
        text = said(cause, way, {"bootstrap.servers": address}, monkeypatch)
    assert "Check that the brokers are up and that bootstrap.servers names them" in text


@ways
def test_error_names_missing_host(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    text = way({"bootstrap.servers": "no-such-host.invalid:9092"}, monkeypatch)
    assert "bootstrap.servers" in text
    assert "no-such-host.invalid:9092" in text


@pytest.mark.parametrize("way", [way for way in _WAYS if way.id != "KafkaConsumer"])  # which only warns, as Java's
def test_error_names_missing_topic(way: Way, cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    text = said("create", way, {"bootstrap.servers": cluster.bootstrap_servers}, monkeypatch)
    assert "orders" in text


@ways
def test_wrong_password_is_named(way: Way, secure_cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {**secure_cluster.client_config(), "sasl.password": "not-hers"}
    cause = "check the user name and the password"
    text = said(cause, way, {key: str(value) for key, value in settings.items()}, monkeypatch)
    assert "not-hers" not in text


@ways
def test_error_names_expected_password(
    way: Way, secure_cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    said("security.protocol", way, {"bootstrap.servers": secure_cluster.bootstrap_servers}, monkeypatch)


@ways
def test_error_names_expected_tls(way: Way, tls_cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    text = said("security.protocol", way, {"bootstrap.servers": tls_cluster.bootstrap_servers}, monkeypatch)
    assert "SSL" in text
