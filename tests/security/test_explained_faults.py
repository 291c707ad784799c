"""Each fault that users meet when they connect: one error, by itself, that tells where, how, why and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from pykclient.admin import Admin
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
SASL, SASL_TLS, TLS, MUTUAL, EXPIRED, SELF_SIGNED, ELSEWHERE, PLAINTEXT = LISTENERS = (
    *("SASL", "SASL_TLS", "TLS", "MUTUAL", "EXPIRED", "SELF_SIGNED", "ELSEWHERE", "PLAINTEXT"),
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
    "an expired token": Fault(
        SASL,
        oauth(lambda: unsecured_token("alice", -10)),
        SaslAuthenticationError,
        "OAUTHBEARER",
        "expired 1",
        "by this machine's clock; check the clock",
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
def test_the_error_tells_where_how_why_and_what_to_do(cluster: EmbeddedCluster, name: str) -> None:
    check(cluster, FAULTS[name])


@pytest.mark.parametrize(
    ("status", "why", "remedy"),
    [
        (None, "no token from", "whether the identity provider is up"),
        (401, "refused to issue a token", "check the client's id, its secret"),
    ],
)
def test_an_identity_provider_that_is_down_or_refuses(
    cluster: EmbeddedCluster, status: int | None, why: str, remedy: str
) -> None:
    with TokenServer("alice") as provider:
        if status is None:
            provider.close()
        else:
            provider.status = status
        check(cluster, Fault(SASL, endpoint(provider.url), SaslAuthenticationError, "OAUTHBEARER", why, remedy))


def test_tls_on_a_listener_without_it(cluster: EmbeddedCluster, authority: CertificateAuthority) -> None:
    """Such a listener ends the connection without a word, as a load balancer without brokers does.

    So the client tries again, as Java's does, at most once per backoff; the timeout names the likely cause.
    """
    host, port = cluster.client_config(PLAINTEXT)["bootstrap.servers"].split(":")
    with TcpProxy((host, int(port))) as proxy:
        config = {"security.protocol": "SSL", "ssl.ca.pem": authority.certificate_pem}
        config |= {"bootstrap.servers": proxy.address, "reconnect.backoff.ms": str(NEVER_MS)}
        config["reconnect.backoff.max.ms"] = str(NEVER_MS)
        with Admin(config) as admin, pytest.raises(KafkaTimeoutError) as caught:
            admin.list_topics(timeout_ms=2_000)
        assert proxy.accepted <= 1
    for words in (proxy.address, "without an answer to the TLS handshake", "wrong security.protocol"):
        assert words in str(caught.value)
