"""GSSAPI, over a stand-in for the package gssapi: which calls it gets, and what its answers lead to."""

from __future__ import annotations

import sys
import threading
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import pytest

from pykclient.config.producer_config import ProducerConfig
from pykclient.errors import ConfigError, SaslAuthenticationError
from pykclient.network.authenticator.logins import login_for
from pykclient.network.authenticator.sasl_client import SaslClient
from tests.support.wait import eventually


class GSSError(Exception):
    """The stand-in's error."""


class Name:
    def __init__(self, text: str, kind: str) -> None:
        self.text = text
        self.kind = kind

    def canonicalize(self, mechanism: str) -> Name:
        assert mechanism == "kerberos"
        return self


class Context:
    """A security context of two steps: ``ticket``, and ``done`` for the server's ``mutual``."""

    fails = False
    may_step = threading.Event()

    def __init__(self, name: Name, creds: Any, usage: str) -> None:
        assert usage == "initiate"
        self.name = name
        self.creds = creds
        self.complete = False

    def step(self, token: bytes | None) -> bytes | None:
        assert Context.may_step.wait(30)
        if Context.fails:
            raise GSSError("no ticket")
        if token is None:
            return b"ticket"
        if token != b"mutual":
            raise GSSError("bad token")
        self.complete = True
        return None

    def unwrap(self, message: bytes) -> Any:
        if not message.startswith(b"wrapped:"):
            raise GSSError("bad seal")
        return SimpleNamespace(message=message.removeprefix(b"wrapped:"))

    def wrap(self, message: bytes, encrypt: bool) -> Any:
        assert not encrypt
        return SimpleNamespace(message=b"wrapped:" + message)


@pytest.fixture(autouse=True)
def gssapi(monkeypatch: pytest.MonkeyPatch) -> None:
    Context.fails = False
    Context.may_step.set()
    module = SimpleNamespace(
        Name=Name,
        NameType=SimpleNamespace(hostbased_service="service", kerberos_principal="principal"),
        MechType=SimpleNamespace(kerberos="kerberos"),
        Credentials=lambda usage, name, store: (usage, name and name.text, store),
        SecurityContext=Context,
        exceptions=SimpleNamespace(GSSError=GSSError),
    )
    monkeypatch.setitem(sys.modules, "gssapi", module)


def login(**settings: Any) -> Any:
    config = {"bootstrap.servers": "b:1", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}
    return login_for(ProducerConfig({**config, **settings}))


def client_of(made: Any) -> Any:
    clients: list[SaslClient] = []
    is_ready = threading.Event()
    on_ready = is_ready.set
    assert made.new_client("kafka1.example.com", on_ready) is None
    assert is_ready.wait(10)
    clients.append(made.new_client("kafka1.example.com", on_ready))
    return clients[0]


def test_gssapi_exchange_completes() -> None:
    client = client_of(login())
    assert client.initial() == b"ticket"
    assert client.evaluate(b"mutual") == b""
    assert not client.complete
    assert client.evaluate(b"wrapped:\x07\0\xff\xff") == b"wrapped:\x01\0\0\0"
    assert client.complete
    assert client._context.name.text == "kafka@kafka1.example.com"
    assert client._context.creds is None


STORE = {
    "client_keytab": "FILE:/etc/app.keytab",
    "ccache": f"MEMORY:pykclient-{sha256(b'app@EXAMPLE.COM' + bytes((10,)) + b'/etc/app.keytab').hexdigest()}",
}


@pytest.mark.parametrize(
    ("settings", "target", "credentials"),
    [
        ({"sasl_kerberos_service_name": "broker"}, "broker@kafka1.example.com", None),
        ({"sasl_kerberos_service_name": "kafka", "sasl_kerberos_domain_name": "x.y"}, "kafka@x.y", None),
        ({"sasl_kerberos_name": "a@b"}, "a@b", None),
        (
            {
                "sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true "
                'keyTab="/etc/app.keytab" principal="app@EXAMPLE.COM" serviceName="svc";'
            },
            "svc@kafka1.example.com",
            ("initiate", "app@EXAMPLE.COM", STORE),
        ),
    ],
)
def test_settings_choose_service_name_and_keytab(settings: dict[str, str], target: str, credentials: Any) -> None:
    client = client_of(login(**settings))
    assert client._context.name.text == target
    assert client._context.creds == credentials


@pytest.mark.parametrize(
    "challenges", [[b"x"], [b"mutual", b"x"], [b"mutual", b"wrapped:\x06\0\0\0"], [b"mutual", b"wrapped:"]]
)
def test_hostile_challenges_are_refused(challenges: list[bytes]) -> None:
    client = client_of(login())
    client.initial()
    for challenge in challenges[:-1]:
        client.evaluate(challenge)
    with pytest.raises(SaslAuthenticationError):
        client.evaluate(challenges[-1])
    assert not client.complete


def test_slow_or_failing_kdc_does_not_block_others() -> None:
    Context.may_step.clear()
    Context.fails = True
    made = login()
    resumed: list[int] = []

    def on_ready() -> None:
        resumed.append(1)

    for _ in range(3):  # a connection that waits asks again whenever something arrives
        assert made.new_client("kafka1.example.com", on_ready) is None
    assert not resumed
    Context.may_step.set()
    eventually(lambda: resumed, 10, "the connection is resumed")
    assert resumed == [1]
    with pytest.raises(SaslAuthenticationError, match=r"Kerberos failed: no ticket .*kinit"):
        made.new_client("kafka1.example.com", on_ready)
    made.close()


def test_missing_credential_stores_end_the_wait_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only Kerberos' own errors end the wait of a connection."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise NotImplementedError("no credential stores")

    made = login()
    monkeypatch.setattr(sys.modules["gssapi"], "SecurityContext", refuse)
    resumed = threading.Event()
    assert made.new_client("kafka1.example.com", resumed.set) is None
    assert resumed.wait(10)
    with pytest.raises(SaslAuthenticationError, match="there are no credentials: NotImplementedError: no credential"):
        made.new_client("kafka1.example.com", resumed.set)
    made.close()


def test_the_error_without_the_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ConfigError, match=r"pip install 'pykclient\[gssapi\]'"):
        login()
