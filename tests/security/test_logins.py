"""The credentials in a client's configuration: what is accepted, and errors that name the keys."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pykclient import KafkaProducer
from pykclient.config.producer_config import ProducerConfig
from pykclient.config.security_keys import warn_of_ignored
from pykclient.errors import ConfigError
from pykclient.network.authenticator.logins import login_for
from pykclient.network.authenticator.scram import ScramLogin
from pykclient.testing import EmbeddedCluster

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


def login(**settings: Any) -> Any:
    return login_for(ProducerConfig({"bootstrap.servers": "b:1", "security.protocol": "SASL_PLAINTEXT", **settings}))


def first_token(**settings: Any) -> bytes:
    client = login(**settings).new_client("host", bool)
    return bytes(client.initial())


@pytest.mark.parametrize(
    "settings",
    [
        {"sasl_mechanism": "PLAIN", "sasl_plain_username": "u", "sasl_plain_password": "hush"},
        {"sasl.mechanisms": "PLAIN", "sasl.username": "u", "sasl.password": "hush"},
        {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{PLAIN} username='u' password=\"hush\";"},
    ],
)
def test_credentials_accept_names_of_three_clients(settings: dict[str, Any]) -> None:
    assert first_token(**settings) == b"\0u\0hush"
    config = ProducerConfig({"bootstrap.servers": "b:1", **settings})
    assert "hush" not in repr(config) + repr(login(**settings))


def test_jaas_tokenauth_marks_delegation_token() -> None:
    options = 'username="id" password="hmac" tokenauth="true"'
    made = login(**{"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": f"{SCRAM} {options};"})
    assert isinstance(made, ScramLogin)
    assert made.new_client("host", bool).initial().endswith(b",tokenauth=true")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"sasl.mechanism": "PLAIN"}, "set sasl.username and sasl.password"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "u"}, "set sasl.username and sasl.password"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": ""}, "needs a user name and a password"),
        ({"sasl.mechanism": "SCRAM-SHA-256", "sasl.password": "hush"}, "needs a user name and a password"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{PLAIN};"}, "needs a user name and a password"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{SCRAM};"}, "is for SCRAM-SHA-256 and SCRAM-SHA-512, but"),
        (
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{PLAIN} username=u password=hush;", "sasl.username": "u"},
            "both sasl.jaas.config and sasl.username or sasl.password",
        ),
        *(
            (settings, "sasl.mechanism is not set, so it is GSSAPI (Kerberos), the default, which does not use ")
            for settings in (
                {"sasl.username": "u", "sasl.password": "hush"},
                {"sasl_oauth_token_provider": lambda: "hush"},
                {"sasl.oauthbearer.token.endpoint.url": "https://idp/t"},
            )
        ),
        (
            {"sasl.jaas.config": f"{PLAIN} username=u password=hush;"},
            "so it is GSSAPI (Kerberos), the default: sasl.jaas.config = [hidden]: its login module is for PLAIN",
        ),
        ({"sasl.mechanism": "DIGEST-MD5"}, "'DIGEST-MD5': it must be one of PLAIN"),
        ({"sasl.mechanism": "plain"}, "'plain': it must be one of PLAIN"),
    ],
)
def test_login_errors_name_keys(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        login(**settings)
    assert "hush" not in str(caught.value)


def test_refused_secret_with_white_space_is_explained() -> None:
    """Java trims them, so that a password with white space at its ends never works there."""
    for secret in ("abc \n", " abc", "\tabc"):
        named = {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": secret}
        assert first_token(**named) == f"\0u\0{secret}".encode()
        scram = {**named, "sasl.mechanism": "SCRAM-SHA-256"}
        for made in (login(**named), login(**scram)):
            assert "begins or ends with white space" in made.remedy
            assert secret.strip() not in made.remedy
    plain = {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "a b c"}
    assert first_token(**plain) == b"\0u\0a b c"
    assert "white space" not in login(**plain).remedy


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"ssl_cafile": "/ca.pem"}, "PLAINTEXT does not use ssl.cafile: set security.protocol to SSL or SASL_SSL,"),
        (
            {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "hush"},
            "PLAINTEXT does not use sasl.mechanism, sasl.username, sasl.password: set security.protocol to SASL_SSL,",
        ),
        (
            {"ssl.truststore.location": "/ca.p12", "ssl.truststore.password": "hush", "sasl.username": "u"},
            "does not use ssl.truststore.location, ssl.truststore.password, sasl.username: set security.protocol to "
            "SASL_SSL,",
        ),
        ({"security.protocol": "SSL", "sasl.username": "u"}, "SSL does not use sasl.username: set security.protocol"),
        ({"security.protocol": "SASL_PLAINTEXT", "ssl_cafile": "/ca.pem"}, "SASL_PLAINTEXT does not use ssl.cafile"),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "ssl_cafile": "/ca.pem",
                "ssl_certfile": "/c.pem",
            },
            "SASL_PLAINTEXT does not use ssl.certfile: ",
        ),
        ({"security.protocol": "SASL_SSL", "ssl_cafile": "/ca.pem", "sasl.username": "u"}, ""),
        ({"ssl_check_hostname": True, "sasl_mechanism": None, "ssl_context": None}, ""),
        ({}, ""),
    ],
)
def test_settings_ignored_by_protocol_warn(
    settings: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_ignored(ProducerConfig({"bootstrap.servers": "b:1", **settings}))
    assert said in caplog.text
    assert len(caplog.records) == bool(said)
    assert "hush" not in caplog.text


def test_each_client_warns_once_of_ignored_settings(caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedCluster(1) as cluster:
        with KafkaProducer[bytes, bytes](bootstrap_servers=cluster.bootstrap_servers, ssl_cafile="/ca.pem") as producer:
            producer.send("t", b"x").get(30)
        assert caplog.text.count("does not use ssl.cafile") == 1
