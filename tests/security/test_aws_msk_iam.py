"""AWS_MSK_IAM: the signature as another implementation makes it, and where credentials come from."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pykclient.config.producer_config import ProducerConfig
from pykclient.errors import ConfigError, SaslAuthenticationError
from pykclient.network.authenticator.aws_msk_iam import (
    AwsCredentials,
    AwsMskIamSaslClient,
    credentials_source,
    region_of,
    signed_payload,
)
from pykclient.network.authenticator.logins import login_for
from pykclient.network.authenticator.sasl_client import SaslClient
from tests.support.wait import eventually

HOST = "b-1.bank.abc123.c2.kafka.eu-central-1.amazonaws.com"
TIME = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
JAAS = "software.amazon.msk.auth.iam.IAMLoginModule required"


@pytest.mark.parametrize("session_token", [None, "session/token+=="])
def test_signature_equals_kafka_pythons(session_token: str | None) -> None:
    from kafka.net.sasl.msk import AwsMskIamClient

    other = AwsMskIamClient(HOST, "AKIA", "hush/secret+", "eu-central-1", session_token)
    other.datestamp, other.timestamp = TIME.strftime("%Y%m%d"), TIME.strftime("%Y%m%dT%H%M%SZ")
    credentials = AwsCredentials.of("AKIA", "hush/secret+", session_token)
    ours = json.loads(signed_payload(credentials, HOST, "eu-central-1", TIME))
    theirs = json.loads(other.first_message())
    assert ours.pop("user-agent").startswith("pykclient/")
    del theirs["user-agent"]
    assert ours == theirs
    assert "hush" not in repr(credentials) + json.dumps(ours)


def test_missing_confirmation_of_broker_is_error() -> None:
    credentials = AwsCredentials.of("AKIA", "hush")
    client = AwsMskIamSaslClient(credentials, HOST, "eu-central-1", TIME)
    client.initial()
    with pytest.raises(SaslAuthenticationError, match="did not confirm"):
        client.evaluate(b"")
    assert client.evaluate(b'{"version":"2020_10_22","request-id":"x"}') is None
    assert client.complete


@pytest.mark.parametrize(
    ("host", "environment", "region"),
    [
        (HOST, {"AWS_REGION": "other"}, "eu-central-1"),
        ("boot-x.c1.kafka-serverless.us-east-1.amazonaws.com", {}, "us-east-1"),
        ("b-1.x.kafka.cn-north-1.amazonaws.com.cn", {}, "cn-north-1"),
        ("kafka.example.com", {"AWS_REGION": "a", "AWS_DEFAULT_REGION": "b"}, "a"),
        ("kafka.example.com", {"AWS_DEFAULT_REGION": "b"}, "b"),
    ],
)
def test_region_is_taken_from_host_or_environment(host: str, environment: dict[str, str], region: str) -> None:
    assert region_of(host, environment) == region


def test_unknown_region_error_suggests_variable() -> None:
    with pytest.raises(SaslAuthenticationError, match="set the variable AWS_REGION"):
        region_of("kafka.example.com", {})


def test_credentials_are_read_from_environment() -> None:
    environment = {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "hush", "AWS_SESSION_TOKEN": "token"}
    assert credentials_source(None, None, environment)() == AwsCredentials.of("AKIA", "hush", "token")


@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        (lambda: ("AKIA", "hush"), AwsCredentials.of("AKIA", "hush")),
        (lambda: ("AKIA", "hush", "t"), AwsCredentials.of("AKIA", "hush", "t")),
        (
            lambda: SimpleNamespace(access_key="AKIA", secret_key="hush", token=None),
            AwsCredentials.of("AKIA", "hush"),
        ),
    ],
)
def test_credentials_may_come_from_callable(provider: Callable[[], Any], expected: AwsCredentials) -> None:
    assert credentials_source(provider, None, {})() == expected


@pytest.mark.parametrize("returned", [None, "AKIA", ("AKIA",), (1, 2)])
def test_invalid_credentials_of_provider_are_refused(returned: Any) -> None:
    with pytest.raises(SaslAuthenticationError, match="the provider of AWS credentials returned a"):
        credentials_source(lambda: returned, None, {})()


def test_credentials_are_read_from_botocore_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    class Session:
        def __init__(self, profile: str | None) -> None:
            seen.append(profile)

        def get_credentials(self) -> Any:
            frozen = SimpleNamespace(access_key="AKIA", secret_key="hush", token="t")
            return SimpleNamespace(get_frozen_credentials=lambda: frozen)

    module = ModuleType("botocore.session")
    module.Session = Session  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "botocore", ModuleType("botocore"))
    monkeypatch.setitem(sys.modules, "botocore.session", module)
    assert credentials_source(None, "bank", {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"})() == (
        AwsCredentials.of("AKIA", "hush", "t")
    )
    assert seen == ["bank"]
    monkeypatch.setattr(Session, "get_credentials", lambda _: None)
    with pytest.raises(SaslAuthenticationError, match="botocore finds no AWS credentials"):
        credentials_source(None, None, {})()
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(SaslAuthenticationError, match=r"pip install 'pykclient\[aws\]'"):
        credentials_source(None, None, {})()


def login(**settings: Any) -> Any:
    config = {"bootstrap.servers": "b:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"}
    return login_for(ProducerConfig({**config, **settings}))


def test_a_login_signs_for_each_broker() -> None:
    made = login(sasl_aws_credentials_provider=lambda: ("AKIA", "hush"))
    clients: list[SaslClient] = []

    def is_there() -> bool:
        client = made.new_client(HOST, bool)
        if client is not None:
            clients.append(client)
        return client is not None

    eventually(is_there, 10, "the credentials are fetched")
    assert json.loads(clients[0].initial())["host"] == HOST
    made.close()


def test_configuration_from_amazons_documentation_is_accepted() -> None:
    handler = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
    login(**{"sasl.jaas.config": f"{JAAS};", "sasl.client.callback.handler.class": handler}).close()
    login(**{"sasl.jaas.config": f'{JAAS} awsProfileName="bank";'}).close()
    with pytest.raises(ConfigError, match="the only option of IAMLoginModule that is supported is awsProfileName"):
        login(**{"sasl.jaas.config": f'{JAAS} awsRoleArn="arn";'})
    with pytest.raises(ConfigError, match="is a callable, not a object"):
        login(sasl_aws_credentials_provider=object())
