"""Other clients against the embedded cluster's SASL listeners, and what brokers know about who is there."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from pykclient import KafkaConsumer, KafkaProducer
from pykclient.network.frames import Frame
from pykclient.protocol.headers import encode_request, parse_response
from pykclient.protocol.message import Request, Response
from pykclient.protocol.messages.metadata import MetadataRequest
from pykclient.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from pykclient.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from pykclient.testing import EmbeddedCluster, Security
from tests.support.wait import eventually

RECORDS = 200


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    security: dict[str, str | Security] = {
        "OUTSIDE": Security(users={"alice": "alice-secret", "bob": "bob-secret"}),
        "INSIDE": "PLAINTEXT",
    }
    with EmbeddedCluster(3, security=security, connections_max_reauth_ms=600_000) as cluster:
        yield cluster


def keywords(config: dict[str, Any]) -> dict[str, Any]:
    return {name.replace(".", "_"): value for name, value in config.items()}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_kafka_python_authenticates_to_embedded_cluster(cluster: EmbeddedCluster, topic: str, mechanism: str) -> None:
    import kafka

    cluster.create_topic(topic)
    config = cluster.client_config(mechanism=mechanism, user="bob")
    settings = keywords(config)
    settings["sasl_plain_username"], settings["sasl_plain_password"] = (
        settings.pop("sasl_username"),
        settings.pop("sasl_password"),
    )
    producer = kafka.KafkaProducer(**settings)
    for number in range(RECORDS):
        producer.send(topic, b"%d" % number)
    producer.flush(30)
    producer.close()
    consumer = kafka.KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=30_000, **settings)
    values = [next(consumer).value for _ in range(RECORDS)]
    consumer.close()
    assert values == [b"%d" % number for number in range(RECORDS)]


def test_each_listener_advertises_its_own_addresses(cluster: EmbeddedCluster, topic: str) -> None:
    cluster.create_topic(topic, partitions=3)
    for listener in ("OUTSIDE", "INSIDE"):
        config = cluster.client_config(listener)
        with KafkaProducer(config) as producer:
            for partition in range(3):
                producer.send(topic, b"v", partition=partition).get(30)
            nodes = {f"{node.host}:{node.port}" for node in producer._components.metadata.fetch().nodes}
            assert nodes == set(str(config["bootstrap.servers"]).split(","))
    assert cluster.bootstrap_servers == cluster.client_config("OUTSIDE")["bootstrap.servers"]
    with KafkaConsumer(topic, auto_offset_reset="earliest", **keywords(cluster.client_config("INSIDE"))) as consumer:
        received = 0
        while received < 6:
            received += sum(map(len, consumer.poll(10_000).values()))


class RawClient:
    """A client that sends whatever the test wants."""

    def __init__(self, cluster: EmbeddedCluster, listener: str | None = None) -> None:
        host, port = str(cluster.client_config(listener)["bootstrap.servers"]).split(",")[0].split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)

    def close(self) -> None:
        self._socket.close()

    def send(self, request: Request, version: int) -> None:
        self._socket.sendall(b"".join(map(bytes, encode_request(request, version, 7, "raw").buffers())))

    def frame(self) -> Frame | None:
        """Return the next frame; None at the end of the stream."""
        with self._socket.makefile("rb") as stream:
            size = stream.read(4)
            return stream.read(int.from_bytes(size, "big")) if size else None

    def ask(self, request: Request, version: int) -> Response:
        self.send(request, version)
        frame = self.frame()
        assert frame is not None
        return parse_response(frame, request.API_KEY, version)[1]

    def authenticate(self, user: str, password: str) -> SaslAuthenticateResponse:
        assert isinstance(self.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1), SaslHandshakeResponse)
        token = f"\0{user}\0{password}".encode()
        response = self.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        assert isinstance(response, SaslAuthenticateResponse)
        return response


@pytest.fixture
def raw(cluster: EmbeddedCluster) -> Iterator[RawClient]:
    client = RawClient(cluster)
    yield client
    client.close()


def test_a_request_before_authentication_closes_the_connection(raw: RawClient) -> None:
    raw.send(MetadataRequest(), 9)
    assert raw.frame() is None


def test_a_refusal_arrives_before_the_connection_is_closed(raw: RawClient) -> None:
    response = raw.authenticate("alice", "wrong")
    assert response.error_code == 58
    assert response.error_message == "Authentication failed: Invalid username or password"
    assert raw.frame() is None


def test_reauthentication_cannot_change_user(raw: RawClient) -> None:
    assert raw.authenticate("alice", "alice-secret").session_lifetime_ms == 600_000
    raw.ask(MetadataRequest(topics=[]), 9)
    assert raw.authenticate("alice", "alice-secret").session_lifetime_ms == 600_000
    raw.ask(MetadataRequest(topics=[]), 9)
    assert raw.authenticate("bob", "bob-secret").error_message == "Cannot change principals during re-authentication"
    assert raw.frame() is None


def test_a_session_ends_if_it_is_not_renewed() -> None:
    with EmbeddedCluster(security="SASL_PLAINTEXT", connections_max_reauth_ms=50) as cluster:
        raw = RawClient(cluster)
        assert raw.authenticate("alice", "alice-secret").session_lifetime_ms == 50

        def is_closed() -> bool:
            raw.send(MetadataRequest(topics=[]), 9)
            return raw.frame() is None

        eventually(is_closed, 10, "the connection is closed")
        raw.close()


def test_tokens_outside_of_sasl_are_refused(cluster: EmbeddedCluster) -> None:
    raw = RawClient(cluster, "INSIDE")
    handshake = raw.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    token = raw.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-secret"), 2)
    assert isinstance(handshake, SaslHandshakeResponse)
    assert isinstance(token, SaslAuthenticateResponse)
    assert handshake.error_code == token.error_code == 34
    raw.close()
