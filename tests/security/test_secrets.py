"""Passwords and keys appear nowhere: not in logs at DEBUG, not in errors, reprs or pickles of errors."""

from __future__ import annotations

import gc
import logging
from collections import deque
from pathlib import Path
from types import CellType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

import pytest

from pykclient import KafkaAdminClient, KafkaConsumer, KafkaProducer
from pykclient.config.consumer_config import ConsumerConfig
from pykclient.config.producer_config import ProducerConfig
from pykclient.errors import ConfigError, SaslAuthenticationError, SslAuthenticationError
from pykclient.testing import EmbeddedCluster, Security
from pykclient.testing.certificates import CertificateAuthority
from tests.security.tokens import TokenServer, unsecured_token
from tests.support.secrets import forms_of

SECRET = "correct-horse-battery-staple"


def secrets_in(config: dict[str, Any], key_pem: str) -> list[str]:
    """Return what must not appear: passwords, and the lines of private keys."""
    return [SECRET, *(line for line in key_pem.splitlines() if not line.startswith("-----"))]


def forms_of_config(config: ProducerConfig | ConsumerConfig) -> str:
    return "\n".join([repr(config), str(config), repr(dict(config))])


def test_debug_logs_show_no_key_password(
    authority: CertificateAuthority, stranger: CertificateAuthority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    security = Security("SASL_SSL", authority=authority, client_auth="required", users={"alice": SECRET})
    encrypted = security.client_certificate.key_pem(SECRET)
    found: list[str] = []
    with EmbeddedCluster(security=security) as cluster:
        config = {**cluster.client_config(), "ssl.key.pem": encrypted, "ssl.key.password": SECRET}
        with KafkaProducer(config) as producer:
            found.append(repr(producer))
            producer.send("t", b"x").get(30)
        with KafkaConsumer("t", **{name.replace(".", "_"): value for name, value in config.items()}) as consumer:
            found.append(repr(consumer))
            consumer.poll(100)
        with KafkaProducer({**config, "ssl.ca.pem": stranger.certificate_pem}) as producer:
            with pytest.raises(SslAuthenticationError) as caught:
                producer.partitions_for("t")
            found.append(forms_of(caught.value))
    found.append(caplog.text)
    assert "Connecting to" in caplog.text
    everything = "\n".join(found)
    for secret in secrets_in(config, encrypted):
        assert secret not in everything


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_debug_logs_show_no_password(mechanism: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    security = Security(users={"alice": SECRET})
    found = [repr(security)]
    with EmbeddedCluster(security=security, connections_max_reauth_ms=60_000) as cluster:
        config = cluster.client_config(mechanism=mechanism)
        with KafkaProducer(config) as producer:
            producer.send("t", b"x").get(30)
        for wrong in ({"sasl.password": f"not {SECRET}"}, {"sasl.username": "bob"}):
            with KafkaProducer({**config, **wrong}) as producer:
                with pytest.raises(SaslAuthenticationError) as caught:
                    producer.partitions_for("t")
                found.append(forms_of(caught.value))
    found.append(caplog.text)
    assert "Authentication of connection" in caplog.text
    assert SECRET not in "\n".join(found)


def everything_in(client: object) -> list[object]:
    """Return the objects of this package that a client leads to."""
    found: dict[int, object] = {}
    waiting: list[object] = [client]
    while waiting:
        each = waiting.pop()
        if id(each) in found or isinstance(each, type | ModuleType | FunctionType | FrameType | logging.Logger):
            continue
        is_container = isinstance(each, dict | list | tuple | set | frozenset | deque | MethodType | CellType)
        if is_container or type(each).__module__.startswith("pykclient"):
            found[id(each)] = each
            waiting += gc.get_referents(each)
    return [each for each in found.values() if type(each).__module__.startswith("pykclient")]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_repr_of_client_objects_shows_no_secret(mechanism: str, authority: CertificateAuthority) -> None:
    """A traceback with local variables, as some services for error reports take it, shows these."""
    token = unsecured_token("alice", 3600)
    security = Security("SASL_SSL", authority=authority, users={"alice": SECRET})
    encrypted = security.client_certificate.key_pem(SECRET)
    with EmbeddedCluster(security=security) as cluster:
        config = {
            **cluster.client_config(mechanism=mechanism),
            "ssl.certificate.pem": security.client_certificate.certificate_pem,
            "ssl.key.pem": encrypted,
            "ssl.key.password": SECRET,
        }
        if mechanism == "OAUTHBEARER":
            config["oauth_cb"] = lambda: token
        keywords = {name.replace(".", "_"): value for name, value in config.items()}
        with (
            KafkaProducer(config) as producer,
            KafkaConsumer("t", **keywords) as consumer,
            KafkaAdminClient(**keywords) as admin,
        ):
            producer.send("t", b"x").get(30)
            consumer.poll(100)
            admin.list_topics()
            for client in (producer, consumer, admin):
                everything = everything_in(client)
                names = {type(each).__name__ for each in everything}
                assert {"SaslClientAuthenticator", "Password"} <= names
                shown = "\n".join(repr(each) for each in everything)
                for secret in (*secrets_in(config, encrypted), token):
                    assert secret not in shown


def test_debug_logs_show_no_token(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    found = []
    token = unsecured_token("alice", 3600)
    expired = unsecured_token("alice", -5)
    with EmbeddedCluster(security="SASL_PLAINTEXT") as cluster, TokenServer("alice") as provider:
        config = cluster.client_config(mechanism="OAUTHBEARER")
        endpoint = {
            "sasl.oauthbearer.token.endpoint.url": provider.url,
            "sasl.oauthbearer.client.credentials.client.id": "client",
            "sasl.oauthbearer.client.credentials.client.secret": SECRET,
        }
        for good in ({"oauth_cb": lambda: token}, endpoint):
            with KafkaProducer({**config, **good}) as producer:
                producer.send("t", b"x").get(30)
        provider.status = 401
        for bad in ({"oauth_cb": lambda: expired}, endpoint):
            with KafkaProducer({**config, **bad}) as producer:
                with pytest.raises(SaslAuthenticationError) as caught:
                    producer.partitions_for("t")
                found.append(forms_of(caught.value))
    everything = "\n".join([*found, caplog.text])
    for secret in (SECRET, token, expired, "hush-query"):
        assert secret not in everything


def test_sasl_configurations_and_errors_show_no_secret() -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    base = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    jaas = {**base, "sasl.jaas.config": f'{module} username="u" password="{SECRET}";'}
    found = [
        forms_of_config(config(settings))
        for config in (ProducerConfig, ConsumerConfig)
        for settings in (jaas, {**base, "sasl.username": "u", "sasl.password": SECRET})
    ]
    for wrong in (
        {**jaas, "sasl.jaas.config": f"{module} username=u password={SECRET}"},
        {**jaas, "sasl.jaas.config": f"{module} username=u password= {SECRET} {SECRET};"},
        {**jaas, "sasl.jaas.config": f'{module} password="{SECRET};'},
        {**jaas, "sasl.mechanism": "SCRAM-SHA-256"},
        {**jaas, "sasl.password": SECRET},
        {**base, "sasl.password": SECRET},
        {**base, "sasl.username": "u", "sasl.password": [SECRET]},
        {**base, "sasl_oauth_token_provider": SECRET},
        {**base, "sasl_oauth_token_provider": f"{SECRET}.payload.signature"},
        {**base, "sasl_oauth_token_provider": [SECRET]},
        {**base, "sasl_aws_credentials_provider": ("id", SECRET)},
        {**base, SECRET.replace(" ", "") * 4: ""},
    ):
        with pytest.raises(ConfigError) as caught:
            KafkaProducer(wrong)
        found.append(forms_of(caught.value))
    assert SECRET not in "\n".join(found)


def test_tls_configurations_and_errors_show_no_secret(authority: CertificateAuthority, tmp_path: Path) -> None:
    certificate = authority.issue("client")
    encrypted = certificate.key_pem("another password")
    (tmp_path / "client.p12").write_bytes(certificate.pkcs12("another password"))
    settings = {
        "security.protocol": "SSL",
        "ssl.keystore.certificate.chain": certificate.certificate_pem,
        "ssl.keystore.key": encrypted,
        "ssl.key.password": SECRET,
    }
    stores = {
        "security.protocol": "SSL",
        "ssl.keystore.location": str(tmp_path / "client.p12"),
        "ssl.keystore.password": SECRET,
    }
    found = [forms_of_config(config(settings)) for config in (ProducerConfig, ConsumerConfig)]
    for wrong in (
        settings,
        stores,
        {**settings, "ssl.keystore.key": SECRET},
        {**settings, "ssl.key.password": [SECRET]},
    ):
        with pytest.raises(ConfigError) as caught:
            KafkaProducer(wrong)
        found.append(forms_of(caught.value))
    everything = "\n".join(found)
    for secret in secrets_in(settings, encrypted):
        assert secret not in everything
