"""Addresses that are unreachable or not Kafka's. An error in time names each address and the reason."""

from __future__ import annotations

import contextlib
import http.server
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pykclient import KafkaConsumer, KafkaProducer
from pykclient.errors import ConfigError, KafkaTimeoutError
from pykclient.types import TopicPartition
from tests.kafka.ports import refusing_port
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually

BOUND_S = 0.8


@contextlib.contextmanager
def refusing() -> Iterator[str]:
    """An address that refuses connections."""
    with refusing_port() as port:
        yield f"127.0.0.1:{port}"


@contextlib.contextmanager
def silent() -> Iterator[str]:
    """An address that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@contextlib.contextmanager
def web_server() -> Iterator[str]:
    with http.server.HTTPServer(("127.0.0.1", 0), QuietHandler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class QuietHandler(http.server.BaseHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextlib.contextmanager
def tls_server(folder: Path) -> Iterator[str]:
    """An address that speaks TLS."""
    key, certificate = folder / "key.pem", folder / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                connection.settimeout(10.0)
                with contextlib.suppress(OSError), connection, context.wrap_socket(connection, server_side=True):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def reasons(servers: str, **settings: Any) -> list[str]:
    """Return the errors of a producer and a consumer with these bootstrap servers, each raised within the bound."""
    producer: KafkaProducer[bytes, bytes] = KafkaProducer(
        bootstrap_servers=servers, max_block_ms=int(BOUND_S * 1000), reconnect_backoff_max_ms=100, **settings
    )
    texts = []
    start = time.monotonic()
    with producer, pytest.raises(KafkaTimeoutError) as failed:
        producer.send("orders", b"x")
    texts.append(str(failed.value))
    assert "'orders'" in texts[0]
    assert f"{BOUND_S} s" in texts[0]
    consumer: KafkaConsumer[bytes, bytes] = KafkaConsumer(
        bootstrap_servers=servers, group_id="group", reconnect_backoff_max_ms=100, **settings
    )
    with consumer:
        consumer.assign([TopicPartition("orders", 0)])
        for call in (consumer.list_topics, lambda **bound: consumer.committed(TopicPartition("orders", 0), **bound)):
            with pytest.raises(KafkaTimeoutError) as failed:
                call(timeout_ms=BOUND_S * 1000)
            texts.append(str(failed.value))
    assert time.monotonic() - start < 30.0, "no default, which is a minute for each"
    return texts


def assert_named(servers: str, *parts: str, **settings: Any) -> None:
    """Check that each error has these parts. On a busy machine a client may not try all servers within the bound."""

    def named() -> bool:
        for text in reasons(servers, **settings):
            for part in parts:
                assert part in text
        return True

    eventually(named, 30.0)


def test_error_names_each_refusing_bootstrap_server() -> None:
    with refusing() as first, refusing() as second:
        assert_named(
            f"{first},{second}",
            "2 of 2 bootstrap servers could not be reached",
            f"{first}: Connection refused",
            f"{second}: Connection refused",
        )


def test_error_names_the_reason_of_each_address() -> None:
    with refusing() as refused, silent() as deaf:
        assert_named(
            f"{refused},{deaf}",
            f"{refused}: Connection refused",
            f"{deaf}: no response to API_VERSIONS within 600 ms",
            request_timeout_ms=600,
            socket_connection_setup_timeout_ms=200,
        )


def test_unresolvable_bootstrap_server_is_a_config_error() -> None:
    for client in (KafkaProducer, KafkaConsumer):
        with pytest.raises(ConfigError) as failed:
            client(bootstrap_servers="no-such-host.invalid:9092")
        assert "no-such-host.invalid:9092: " in str(failed.value)
        assert "bootstrap.servers" in str(failed.value)


def test_error_names_the_unresolvable_one_of_two_servers() -> None:
    with refusing() as refused:
        assert_named(
            f"{refused},no-such-host.invalid:9092",
            "2 of 2 bootstrap servers",
            f"{refused}: Connection refused",
            "no-such-host.invalid:9092: ",
        )


@pytest.mark.parametrize("servers", ["localhost:kafka", "localhost:99999", "", "a b:1"])
def test_malformed_bootstrap_address_is_a_config_error(servers: str) -> None:
    for client in (KafkaProducer, KafkaConsumer):
        with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
            client(bootstrap_servers=servers)


def test_error_says_that_a_web_server_speaks_http() -> None:
    with web_server() as address:
        assert_named(address, f"{address}: ", "HTTP")


def test_error_says_that_the_server_expects_tls(tmp_path: Path) -> None:
    with tls_server(tmp_path) as address:
        assert_named(address, f"{address}: ", "TLS")


def test_one_reachable_bootstrap_server_of_three_is_enough(any_kafka: AnyKafka, topic: str) -> None:
    with refusing() as refused, silent() as deaf:
        # A client that tries the silent address first waits for the request timeout, as Java's clients do.
        servers = f"{refused},{any_kafka.bootstrap_servers},{deaf}"
        producer: KafkaProducer[bytes, bytes] = KafkaProducer(bootstrap_servers=servers, request_timeout_ms=500)
        with producer:
            assert producer.send(topic, b"x").get(20).offset == 0
        consumer: KafkaConsumer[bytes, bytes] = KafkaConsumer(
            bootstrap_servers=servers, request_timeout_ms=500, fetch_max_wait_ms=100, auto_offset_reset="earliest"
        )
        with consumer:
            consumer.assign([TopicPartition(topic, 0)])
            assert next(consumer).value == b"x"


def test_error_names_advertised_addresses_without_listener(any_kafka: AnyKafka, topic: str) -> None:
    """A client reaches the bootstrap server, but not the address that the server advertises."""
    broker = any_kafka.brokers[1]
    any_kafka.create_topic(topic)
    producer: KafkaProducer[bytes, bytes] = KafkaProducer(
        bootstrap_servers=f"{broker.host}:{broker.behind_proxy_port}",
        delivery_timeout_ms=1000,
        request_timeout_ms=500,
        linger_ms=0,
    )
    with producer:

        def told() -> bool:
            with pytest.raises(KafkaTimeoutError) as failed:
                producer.send(topic, b"x").get(30)
            assert f"{broker.host}:{broker.proxied_port}: Connection refused" in str(failed.value)
            assert "advertised.listeners" in str(failed.value)
            return True

        eventually(told, 30.0)  # on a busy machine the first record may expire before a connection was refused
