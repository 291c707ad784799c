"""Each reason why a TLS connection cannot be made: an error with the address, the cause and the remedy, at the call."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from pykclient import KafkaConsumer, KafkaProducer
from pykclient.errors import AuthenticationError, KafkaTimeoutError, SslAuthenticationError
from pykclient.testing import EmbeddedCluster, Security
from pykclient.testing.certificates import CertificateAuthority
from tests.security.test_embedded_tls import values_in
from tests.support.proxy import TcpProxy
from tests.support.wait import eventually

Scenario = tuple[Security, dict[str, Any], str]


def _unknown_authority(authority: CertificateAuthority, stranger: CertificateAuthority) -> Scenario:
    security = Security("SSL", authority=authority)
    return (
        security,
        {"ssl.ca.pem": stranger.certificate_pem},
        "an authority that is not trusted.*ssl.truststore.location",
    )


def _wrong_host(authority: CertificateAuthority, _: CertificateAuthority) -> Scenario:
    certificate = authority.issue("broker", ["kafka.example.com"])
    security = Security("SSL", authority=authority, broker_certificate=certificate)
    return security, {}, "not for the host name '127.0.0.1'.*advertised.listeners"


def _expired(authority: CertificateAuthority, _: CertificateAuthority) -> Scenario:
    certificate = authority.issue("broker", ["127.0.0.1"], expired=True)
    security = Security("SSL", authority=authority, broker_certificate=certificate)
    return security, {}, "it has expired.*renew it"


def _self_signed(authority: CertificateAuthority, _: CertificateAuthority) -> Scenario:
    certificate = authority.issue("broker", ["127.0.0.1"], self_signed=True)
    security = Security("SSL", authority=authority, broker_certificate=certificate)
    return security, {}, "it is self-signed.*ssl.truststore.location"


def _no_certificate(authority: CertificateAuthority, _: CertificateAuthority) -> Scenario:
    security = Security("SSL", authority=authority, client_auth="required")
    nothing = {"ssl.certificate.pem": None, "ssl.key.pem": None}
    return security, nothing, "requires a certificate of this client.*ssl.keystore.location"


def _no_certificate_in_tls_1_2(authority: CertificateAuthority, stranger: CertificateAuthority) -> Scenario:
    security, nothing, _ = _no_certificate(authority, stranger)
    return security, {**nothing, "ssl.enabled.protocols": "TLSv1.2"}, "or requires a certificate.*ssl.keystore.location"


def _certificate_of_a_stranger(authority: CertificateAuthority, stranger: CertificateAuthority) -> Scenario:
    certificate = stranger.issue("client")
    pem = {"ssl.certificate.pem": certificate.certificate_pem, "ssl.key.pem": certificate.key_pem()}
    security = Security("SSL", authority=authority, client_auth="required")
    return security, pem, "does not trust the issuer of this client's certificate.*ssl.keystore.location"


def _expired_certificate_of_the_client(authority: CertificateAuthority, _: CertificateAuthority) -> Scenario:
    certificate = authority.issue("client", expired=True)
    pem = {"ssl.certificate.pem": certificate.certificate_pem, "ssl.key.pem": certificate.key_pem()}
    security = Security("SSL", authority=authority, client_auth="required")
    return security, pem, "client's certificate has expired"


def _no_common_cipher_suite(authority: CertificateAuthority, _: CertificateAuthority) -> Scenario:
    security = Security("SSL", authority=authority)
    rsa = {"ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}  # the broker's key is of another kind
    return security, rsa, "ssl.cipher.suites"


def _plaintext_client(authority: CertificateAuthority, _: CertificateAuthority) -> Scenario:
    security = Security("SSL", authority=authority)
    return security, {"security.protocol": "PLAINTEXT"}, "speaks TLS.*set it to SSL"


SCENARIOS = [
    _unknown_authority,
    _wrong_host,
    _expired,
    _self_signed,
    _no_certificate,
    _no_certificate_in_tls_1_2,
    _certificate_of_a_stranger,
    _expired_certificate_of_the_client,
    _no_common_cipher_suite,
    _plaintext_client,
]


def without_none(config: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if value is not None}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_each_call_raises_cause_of_tls_failure(
    scenario: Callable[..., Scenario], authority: CertificateAuthority, stranger: CertificateAuthority
) -> None:
    security, changes, text = scenario(authority, stranger)
    with EmbeddedCluster(security=security) as cluster:
        config = without_none({**cluster.client_config(), **changes})
        address = config["bootstrap.servers"]
        # The timeouts are longer than the test may take.
        producer = KafkaProducer(config, max_block_ms=300_000)
        with producer, pytest.raises(SslAuthenticationError, match=f"{address}.*{text}"):
            producer.send("t", b"x").get(300)
        producer = KafkaProducer(config, max_block_ms=300_000)
        with producer, pytest.raises(SslAuthenticationError, match=f"{address}.*{text}"):
            producer.partitions_for("t")
        consumer = KafkaConsumer("t", **{key.replace(".", "_"): value for key, value in config.items()})
        with consumer, pytest.raises(SslAuthenticationError, match=f"{address}.*{text}"):
            consumer.poll(300_000)


def test_error_names_server_without_tls(authority: CertificateAuthority) -> None:
    from tests.network.test_mock_brokers import server

    with (
        server(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address,
        KafkaProducer(
            bootstrap_servers=address, security_protocol="SSL", ssl_ca_pem=authority.certificate_pem
        ) as producer,
        pytest.raises(SslAuthenticationError, match=f"{address} does not speak TLS.*security.protocol"),
    ):
        producer.partitions_for("t")


def test_refused_tls_connection_is_retried_after_backoff(
    authority: CertificateAuthority, stranger: CertificateAuthority
) -> None:
    with EmbeddedCluster(security=Security("SSL", authority=authority)) as cluster:
        host, port = cluster.client_config()["bootstrap.servers"].split(":")
        with TcpProxy((host, int(port))) as proxy:
            config = {
                **cluster.client_config(),
                "bootstrap.servers": proxy.address,
                "ssl.ca.pem": stranger.certificate_pem,
                "reconnect.backoff.ms": 600_000,
                "max.block.ms": 300,
            }
            with KafkaProducer(config) as producer:

                def is_refused() -> bool:
                    with pytest.raises((AuthenticationError, KafkaTimeoutError)) as caught:
                        producer.partitions_for("t")
                    return isinstance(caught.value, SslAuthenticationError)

                eventually(is_refused)  # on a busy machine the first call may end before
                for _ in range(3):
                    is_refused()
            assert proxy.accepted == 1


GARBAGE = [
    b"\x00" * 5_000,
    b"\x16\x03\x01\xff\xff" + b"\xff" * 70_000,
    b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00" * 3,
    b"\x15\x03\x03\x00\x02\x02\x28",
    b"\x17\x03\x03\x00\x10" + b"\x55" * 16,
    b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_ends_only_its_connection(authority: CertificateAuthority, garbage: bytes) -> None:
    with EmbeddedCluster(security=Security("SSL", authority=authority)) as cluster:
        cluster.create_topic("t", partitions=2)
        host, port = cluster.client_config()["bootstrap.servers"].split(":")
        with KafkaProducer(cluster.client_config()) as producer:
            producer.send("t", b"1", partition=0).get(30)
            with socket.create_connection((host, int(port)), timeout=30) as hostile:
                hostile.sendall(garbage)
                while hostile.recv(4096):  # at most an alert, and then the end
                    pass
            producer.send("t", b"2", partition=0).get(30)
        assert values_in(cluster.client_config(), 2) == [b"1", b"2"]
