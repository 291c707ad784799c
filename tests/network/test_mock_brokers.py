"""The network client on librdkafka's mock brokers, and on servers that are not Kafka brokers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import confluent_kafka
import pytest

from pykclient.clock import SYSTEM_CLOCK
from pykclient.protocol.api_keys import ApiKeys
from tests.kafka.ports import refusing_port
from tests.network.client import client


@pytest.fixture(scope="module")
def mock_brokers() -> Iterator[str]:
    producer = confluent_kafka.Producer({"test.mock.num.brokers": 3, "log_level": 2})
    brokers = producer.list_topics(timeout=10).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    producer.flush(1)  # the brokers live as long as the producer


def test_client_accepts_broker_with_old_api_versions(mock_brokers: str) -> None:
    with client(mock_brokers) as c:
        c.bootstrap()
        assert len(c.metadata.fetch().nodes) == 3
        node = c.metadata.fetch().nodes[0]
        c.poll_until(lambda: c.network.ready(node, SYSTEM_CLOCK.now_ms()))
        versions = c.api_versions.get(node.id_string)
        assert versions is not None
        spoken = versions.api_version(ApiKeys.API_VERSIONS)
        assert spoken is not None
        assert spoken.max_version < 3  # the broker refused the first request


@contextmanager
def server(answer: bytes) -> Iterator[str]:
    """A server that sends ``answer`` after the first bytes it reads, then closes the connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            with sock, suppress(OSError):  # the client may reset the connection
                sock.recv(4096)
                sock.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "looks like HTTP"),
        (b"<!DOCTYPE HTML>\n<html><body>Error response</body></html>", "looks like HTTP"),
        (b"\x15\x03\x03\x00\x02\x02\x28", "looks like TLS"),
        (b"\x7f\xff\xff\xff", "not that of a Kafka broker"),
        (b"", "before its first response"),
        (b"\0\0\0\x04\0\0\0\x63", "it responded to request 99"),
        (b"\0\0\0\x08\0\0\0\0\xff\xff\xff\xff", "rejected the ApiVersions request|unreadable"),
    ],
)
def test_report_names_servers_that_are_no_broker(answer: bytes, said: str) -> None:
    with server(answer) as address, client(address) as c:
        c.poll_until(lambda: c.network.connection_report() != "")
        report = c.network.connection_report()
        assert report.startswith(f"1 of 1 bootstrap servers could not be reached ({address}: ")
        assert any(word in report for word in said.split("|"))
        c.poll_until(lambda: c.network.least_loaded_node(SYSTEM_CLOCK.now_ms()).node is not None)  # still works


def test_connection_without_a_listener_is_refused() -> None:
    with refusing_port() as port, client(f"127.0.0.1:{port}") as c:
        c.poll_until(lambda: c.network.connection_report() != "")
        assert "Connection refused, nothing listens there" in c.network.connection_report()
