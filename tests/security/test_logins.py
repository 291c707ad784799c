"""The credentials in a client's configuration: what is accepted, and errors that name the keys."""

from __future__ import annotations

from typing import Any

import pytest

from pykclient.config.producer_config import ProducerConfig
from pykclient.errors import ConfigError
from pykclient.network.authenticator.logins import login_for
from pykclient.network.authenticator.scram import ScramLogin

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
def test_credentials_by_the_names_of_three_clients(settings: dict[str, Any]) -> None:
    assert first_token(**settings) == b"\0u\0hush"
    config = ProducerConfig({"bootstrap.servers": "b:1", **settings})
    assert "hush" not in repr(config) + repr(login(**settings))


def test_a_delegation_token() -> None:
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
        ({"sasl.mechanism": "DIGEST-MD5"}, "'DIGEST-MD5': it must be one of PLAIN"),
        ({"sasl.mechanism": "plain"}, "'plain': it must be one of PLAIN"),
    ],
)
def test_errors_name_the_keys(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        login(**settings)
    assert "hush" not in str(caught.value)
