"""Each fault that users meet when they connect: one error, by itself, that tells where, how, why and what to do."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from pykclient import KafkaConsumer, KafkaProducer
from pykclient.admin import Admin
from pykclient.aio import AIOKafkaConsumer, AIOKafkaProducer
from pykclient.errors import (
    IllegalSaslStateError,
    KafkaError,
    KafkaTimeoutError,
    SaslAuthenticationError,
    SslAuthenticationError,
    UnsupportedSaslMechanismError,
)
from pykclient.testing import EmbeddedCluster, Security
from pykclient.testing.certificates import CertificateAuthority
from tests.security.tokens import TokenServer, unsecured_token
from tests.support.proxy import TcpProxy

#: Far above what an error takes that arrives by itself.
NEVER_MS = 600_000

#: The listeners, all on one broker. Each has the certificate or the credentials of one fault.
SASL, SASL_TLS, TLS, MUTUAL, EXPIRED, FUTURE, SELF_SIGNED, ELSEWHERE, PLAINTEXT = LISTENERS = (
    *("SASL", "SASL_TLS", "TLS", "MUTUAL", "EXPIRED", "FUTURE", "SELF_SIGNED", "ELSEWHERE", "PLAINTEXT"),
)


class Fault(NamedTuple):
    """A client's mistake, or a broken part around it, and the words that an error about it has."""

    listener: str
    changes: dict[str, Any]
    error: type[KafkaError]
    #: The mechanism, or what takes its place.
    how: str
    why: str
    remedy: str


def oauth(provider: Callable[[], object]) -> dict[str, Any]:
    """Return the settings of a client with tokens from a function."""
    return {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": provider, "sasl.username": None, "sasl.password": None}


def endpoint(url: str) -> dict[str, Any]:
    """Return the settings of a client with tokens from an identity provider."""
    prefix = "sasl.oauthbearer"
    return {
        **oauth(lambda: None),
        "oauth_cb": None,
        f"{prefix}.token.endpoint.url": url,
        f"{prefix}.client.credentials.client.id": "client",
        f"{prefix}.client.credentials.client.secret": "hush-secret",
    }


NO_CERTIFICATE = {"ssl.certificate.pem": None, "ssl.key.pem": None}
_PASSWORD = ("the broker refused", "check the user name")

FAULTS: dict[str, Fault] = {
    "a wrong password": Fault(SASL, {"sasl.password": "hush-wrong"}, SaslAuthenticationError, "PLAIN", *_PASSWORD),
    "an unknown user": Fault(SASL, {"sasl.username": "nobody"}, SaslAuthenticationError, "PLAIN", *_PASSWORD),
    "a wrong password over TLS": Fault(
        SASL_TLS,
        {"sasl.mechanism": "SCRAM-SHA-256", "sasl.password": "hush-wrong"},
        SaslAuthenticationError,
        "SCRAM-SHA-256",
        *_PASSWORD,
    ),
    "a mechanism that is not enabled": Fault(
        SASL,
        {"sasl.mechanism": "SCRAM-SHA-512"},
        UnsupportedSaslMechanismError,
        "SCRAM-SHA-512",
        "does not have this mechanism enabled, only PLAIN, SCRAM-SHA-256, OAUTHBEARER",
        "set sasl.mechanism",
    ),
    "SASL on a listener without it": Fault(
        PLAINTEXT,
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "a",
            "sasl.password": "hush",
        },
        IllegalSaslStateError,
        "PLAIN",
        "the listener does not use SASL",
        "set security.protocol",
    ),
    "an expired certificate": Fault(
        EXPIRED, {}, SslAuthenticationError, "the certificate of", "it has expired", "renew it"
    ),
    "a self-signed certificate": Fault(
        SELF_SIGNED, {}, SslAuthenticationError, "the certificate of", "it is self-signed", "ssl.truststore.location"
    ),
    "a wrong host name": Fault(
        ELSEWHERE,
        {},
        SslAuthenticationError,
        "the certificate of",
        "not for the host name '127.0.0.1'",
        "advertised.listeners",
    ),
    "no client certificate": Fault(
        MUTUAL,
        NO_CERTIFICATE,
        SslAuthenticationError,
        "TLS",
        "requires a certificate of this client",
        "ssl.keystore.location",
    ),
    "a client without TLS on a port with TLS": Fault(
        TLS, {"security.protocol": "PLAINTEXT"}, SslAuthenticationError, "TLS", "speaks TLS", "set it to SSL"
    ),
    "a certificate that is not valid yet": Fault(
        FUTURE, {}, SslAuthenticationError, "the certificate of", "it is not valid yet", "set this machine's clock"
    ),
    "an identity provider that is down": Fault(
        SASL,
        endpoint("http://127.0.0.1:1/token"),
        SaslAuthenticationError,
        "OAUTHBEARER",
        "no token from",
        "whether the identity provider is up",
    ),
    "an expired token": Fault(
        SASL,
        oauth(lambda: unsecured_token("alice", -10)),
        SaslAuthenticationError,
        "OAUTHBEARER",
        "expired 1",
        "by this machine's clock; check the clock",
    ),
}

#: Faults that only a second connection can tell from a load balancer without brokers.
FAULTS_OF_TWO_CONNECTIONS: dict[str, Fault] = {
    "TLS on a port without it": Fault(
        PLAINTEXT,
        {"security.protocol": "SSL", "ssl.ca.pem": CertificateAuthority().certificate_pem},
        SslAuthenticationError,
        "TLS",
        "a Kafka listener without it",
        "set security.protocol to PLAINTEXT",
    ),
    "TLS and SASL on a port with SASL alone": Fault(
        SASL,
        {"security.protocol": "SASL_SSL", "ssl.ca.pem": CertificateAuthority().certificate_pem},
        SslAuthenticationError,
        "TLS",
        "a Kafka listener without it",
        "or SASL_PLAINTEXT",
    ),
}


def security(authority: CertificateAuthority) -> dict[str, str | Security]:
    """Return the listeners."""

    def tls(certificate: Any = None, **more: Any) -> Security:
        return Security("SSL", authority=authority, broker_certificate=certificate, **more)

    here = ["127.0.0.1"]
    mechanisms = ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"]
    return {
        SASL: Security("SASL_PLAINTEXT", mechanisms=mechanisms),
        SASL_TLS: Security("SASL_SSL", mechanisms=mechanisms, authority=authority),
        TLS: tls(),
        MUTUAL: tls(client_auth="required"),
        EXPIRED: tls(authority.issue("broker", here, expired=True)),
        FUTURE: tls(authority.issue("broker", here, valid_from_s=3600)),
        SELF_SIGNED: tls(authority.issue("broker", here, self_signed=True)),
        ELSEWHERE: tls(authority.issue("broker", ["kafka.example.com"])),
        PLAINTEXT: "PLAINTEXT",
    }


@pytest.fixture(scope="module")
def cluster(authority: CertificateAuthority) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(security=security(authority)) as running:
        yield running


def settings(cluster: EmbeddedCluster, listener: str, changes: dict[str, Any]) -> dict[str, Any]:
    config = {**cluster.client_config(listener), **changes}
    return {key: value for key, value in config.items() if value is not None}


def check(cluster: EmbeddedCluster, fault: Fault) -> None:
    """Check the error of a call, and that further calls within the backoff do not connect again."""
    config = settings(cluster, fault.listener, fault.changes)
    host, port = config["bootstrap.servers"].split(":")
    with TcpProxy((host, int(port))) as proxy:
        config |= {"bootstrap.servers": proxy.address, "reconnect.backoff.ms": NEVER_MS}
        config["reconnect.backoff.max.ms"] = NEVER_MS
        with Admin(config) as admin:
            with pytest.raises(fault.error) as caught:
                admin.list_topics(timeout_ms=NEVER_MS)
            for _ in range(3):
                with pytest.raises((fault.error, KafkaTimeoutError)):
                    admin.list_topics(timeout_ms=100)
        assert proxy.accepted <= 1
    text = str(caught.value)
    for words in (proxy.address, fault.how, fault.why, fault.remedy):
        assert words in text
    assert "hush" not in text


@pytest.mark.parametrize("name", FAULTS)
def test_error_names_place_cause_and_remedy(cluster: EmbeddedCluster, name: str) -> None:
    check(cluster, FAULTS[name])


def test_error_explains_refusal_of_identity_provider(cluster: EmbeddedCluster) -> None:
    why, remedy = "refused to issue a token", "check the client's id, its secret"
    with TokenServer("alice") as provider:
        provider.status = 401
        check(cluster, Fault(SASL, endpoint(provider.url), SaslAuthenticationError, "OAUTHBEARER", why, remedy))


def test_closed_connection_is_not_taken_for_tls_mismatch(authority: CertificateAuthority) -> None:
    """A load balancer without brokers ends connections, too, so the client tries again until its timeout.

    Only once it asks in plaintext for a listener without TLS. The timeout names the likely cause.
    """
    first_bytes: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = "{}:{}".format(*listener.getsockname())

        def end_connections() -> None:
            with contextlib.suppress(OSError):  # the listener is closed
                while True:
                    connection, _ = listener.accept()
                    with connection, contextlib.suppress(OSError):  # the client has gone
                        first_bytes.extend(connection.recv(1))

        ender = threading.Thread(target=end_connections)
        ender.start()
        config = {"security.protocol": "SSL", "ssl.ca.pem": authority.certificate_pem, "bootstrap.servers": address}
        config |= {"reconnect.backoff.ms": "1", "reconnect.backoff.max.ms": "1"}
        text = ""
        with Admin(config) as admin:
            while len(first_bytes) < 6:
                with pytest.raises(KafkaTimeoutError) as caught:
                    admin.list_topics(timeout_ms=200)
                text = str(caught.value)
        listener.shutdown(socket.SHUT_RDWR)
        ender.join()
    for words in (address, "without an answer to the TLS handshake", "wrong security.protocol"):
        assert words in text
    tls, plaintext = 0x16, 0
    assert first_bytes[:4] == [tls, plaintext, tls, tls]


Calls = dict[str, Callable[[dict[str, Any]], object]]


def _produce(config: dict[str, Any]) -> None:
    with KafkaProducer(config) as producer:
        producer.send("t", b"x").get(5)


def _consume(config: dict[str, Any]) -> None:
    with KafkaConsumer({**config, "group.id": "g"}) as consumer:
        consumer.subscribe(["t"])
        consumer.poll(60_000)


def _administer(config: dict[str, Any]) -> None:
    with Admin(config) as admin:
        admin.list_topics()


def _produce_on_a_loop(config: dict[str, Any]) -> None:
    async def produce() -> None:
        async with AIOKafkaProducer(config) as producer:
            await producer.send_and_wait("t", b"x")

    asyncio.run(produce())


def _consume_on_a_loop(config: dict[str, Any]) -> None:
    async def consume() -> None:
        async with AIOKafkaConsumer({**config, "group.id": "g"}, "t") as consumer:
            await consumer.getone()

    asyncio.run(consume())


CALLS: Calls = {
    "producer": _produce,
    "consumer": _consume,
    "admin": _administer,
    "producer for asyncio": _produce_on_a_loop,
    "consumer for asyncio": _consume_on_a_loop,
}


@pytest.mark.parametrize("client", CALLS)
@pytest.mark.parametrize("name", [*FAULTS, *FAULTS_OF_TWO_CONNECTIONS])
def test_every_client_raises_error_in_call(cluster: EmbeddedCluster, client: str, name: str) -> None:
    """With the defaults of all settings, no call waits for its timeout, which would raise another error."""
    fault = (FAULTS | FAULTS_OF_TWO_CONNECTIONS)[name]
    config = settings(cluster, fault.listener, fault.changes)
    with pytest.raises(fault.error) as caught:
        CALLS[client](config)
    text = str(caught.value)
    for words in (config["bootstrap.servers"], fault.how, fault.why, fault.remedy):
        assert words in text
    assert "hush" not in text
