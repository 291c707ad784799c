"""How often clients try to authenticate, and how many can at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any

import pytest

from pykclient import KafkaConsumer
from pykclient.admin import Admin
from pykclient.errors import SaslAuthenticationError
from pykclient.testing import EmbeddedCluster, Security
from tests.support.forward_proxy import ForwardProxy

BACKOFF_MS = 200


def poll_until_error(consumer: KafkaConsumer[Any, Any]) -> None:
    for _ in range(50):
        consumer.poll(timeout_ms=200)


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


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_many_connections_authenticate_in_parallel() -> None:
    """300 clients authenticate with TLS and SCRAM at the same time, and none times out."""
    security = Security("SASL_SSL", mechanisms=["SCRAM-SHA-256"])
    with EmbeddedCluster(security=security) as cluster:
        config = {**cluster.client_config(), "reconnect.backoff.ms": 60_000, "reconnect.backoff.max.ms": 60_000}
        clients = [Admin(config) for _ in range(300)]
        try:
            with ThreadPoolExecutor(len(clients)) as pool:
                # Without another attempt, because the backoff is longer than the calls' timeout.
                results = list(pool.map(lambda admin: admin.list_topics(timeout_ms=50_000), clients))
            assert results == [[]] * len(clients)
        finally:
            for client in clients:
                client.close()
