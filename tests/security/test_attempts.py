"""How often clients try to authenticate, and how many can at the same time."""

from __future__ import annotations

import select
import socket
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any, BinaryIO

import pytest

from pykclient import KafkaConsumer
from pykclient.admin import Admin
from pykclient.errors import SaslAuthenticationError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.headers import encode_request, parse_response
from pykclient.protocol.message import Request
from pykclient.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from pykclient.protocol.messages.sasl_handshake import SaslHandshakeRequest
from pykclient.testing import EmbeddedCluster, Security
from tests.support.forward_proxy import ForwardProxy

BACKOFF_MS = 200


def poll_until_error(consumer: KafkaConsumer[Any, Any]) -> None:
    for _ in range(50):
        consumer.poll(timeout_ms=200)


def _sent(connection: socket.socket, request: Request, version: int) -> BinaryIO:
    """Send a request; return the stream of responses."""
    connection.sendall(encode_request(request, version, 7, "guesser").getvalue())
    return connection.makefile("rb")


def guess(cluster: EmbeddedCluster) -> tuple[socket.socket, BinaryIO]:
    """Connect and log in with a wrong password; return the connection, on which the refusal will arrive."""
    host, port = cluster.bootstrap_servers.split(":")
    connection = socket.create_connection((host, int(port)), timeout=60)
    stream = _sent(connection, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    stream.read(int.from_bytes(stream.read(4), "big"))
    _sent(connection, SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2)
    return connection, stream


def test_a_refusal_is_delayed() -> None:
    """A client that guesses passwords waits for each answer, and is disconnected after it (KIP-306)."""
    with EmbeddedCluster(security="SASL_PLAINTEXT", connection_failed_authentication_delay_ms=300) as cluster:
        began = monotonic()
        connection, stream = guess(cluster)
        with connection, stream:
            frame = stream.read(int.from_bytes(stream.read(4), "big"))
            assert monotonic() - began >= 0.3
            _, response = parse_response(frame, ApiKeys.SASL_AUTHENTICATE, 2)
            assert isinstance(response, SaslAuthenticateResponse)
            assert response.error_code == SaslAuthenticationError.code
            assert not stream.read(1)


def test_delayed_refusal_does_not_block_others() -> None:
    """While one client waits for its refusal, others log in, send and receive."""
    with EmbeddedCluster(security="SASL_PLAINTEXT", connection_failed_authentication_delay_ms=600_000) as cluster:
        connection, stream = guess(cluster)
        with connection, stream, Admin(cluster.client_config()) as admin:
            assert admin.list_topics() == []
            readable, _, _ = select.select([connection], [], [], 0)
            assert not readable


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password_is_tried_once_per_backoff(mechanism: str) -> None:
    """A consumer that polls on after the error does not try faster than reconnect.backoff.ms allows."""
    security = Security("SASL_PLAINTEXT", mechanisms=[mechanism])
    with EmbeddedCluster(security=security) as cluster, ForwardProxy({"127.0.0.1": "127.0.0.1"}) as proxy:
        config = {**cluster.client_config(), "sasl.password": "wrong", "proxy.url": proxy.url("socks5")}
        config |= {"reconnect.backoff.ms": BACKOFF_MS, "reconnect.backoff.max.ms": BACKOFF_MS}
        with KafkaConsumer(config) as consumer:
            consumer.subscribe(["t"])
            began = monotonic()
            for _ in range(4):
                with pytest.raises(SaslAuthenticationError):
                    poll_until_error(consumer)
            # The backoff varies by a fifth. A slow machine makes the bound larger, not smaller.
            most = 1 + (monotonic() - began) * 1000 / (BACKOFF_MS * 0.8)
        assert 4 <= proxy.connections <= most


@pytest.mark.timeout(180)
@pytest.mark.parametrize("count", [60, pytest.param(300, marks=pytest.mark.exhaustive)])
def test_many_connections_authenticate_in_parallel(count: int) -> None:
    """Many clients authenticate with TLS and SCRAM at the same time, and none times out."""
    security = Security("SASL_SSL", mechanisms=["SCRAM-SHA-256"])
    with EmbeddedCluster(security=security) as cluster:
        config = {**cluster.client_config(), "reconnect.backoff.ms": 60_000, "reconnect.backoff.max.ms": 60_000}
        clients = [Admin(config) for _ in range(count)]
        try:
            with ThreadPoolExecutor(len(clients)) as pool:
                # Without another attempt, because the backoff is longer than the calls' timeout.
                results = list(pool.map(lambda admin: admin.list_topics(timeout_ms=50_000), clients))
            assert results == [[]] * len(clients)
        finally:
            for client in clients:
                client.close()
