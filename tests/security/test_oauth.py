"""OAUTHBEARER: where tokens come from, when they are refreshed, and what is wrong when there is none."""

from __future__ import annotations

import base64
import contextlib
import json
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, strategies as st

from pykclient.config.config_def import Password
from pykclient.config.producer_config import ProducerConfig
from pykclient.errors import ConfigError, SaslAuthenticationError
from pykclient.network.authenticator.logins import login_for
from pykclient.network.authenticator.oauth_bearer import (
    BearerToken,
    OAuthBearerSaslClient,
    checked,
    expiry_of_jwt,
    file_provider,
    initial_response,
    parse_initial_response,
    provider_of,
    unsecured_provider,
)
from pykclient.network.authenticator.sasl_client import RefreshingLogin, RefreshWindow, SaslClient
from pykclient.network.authenticator.token_endpoint import ClientCredentials, EndpointSettings, TokenEndpoint
from pykclient.network.tls.ssl_factory import KeyStore, server_context
from pykclient.testing.certificates import CertificateAuthority
from tests.security.tokens import TokenServer, answering, unsecured_token
from tests.support.interrupts import places
from tests.support.secrets import forms_of
from tests.support.wait import eventually

# --- messages --------------------------------------------------------------------------------------------------------


def test_initial_response_equals_rfc_7628() -> None:
    token = BearerToken("vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==", None, {"host": "server.example.com"})
    message = initial_response(token)
    assert message == (
        b"n,,\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01host=server.example.com\x01\x01"
    )
    assert parse_initial_response(message) == ("", token.value, {"host": "server.example.com"})
    assert token.value not in repr(token)


@pytest.mark.parametrize(
    "challenge", [b'{"status":"invalid_token","scope":"a\\u0007b"}', b"\xff", b"[]", b'{"status":1}']
)
def test_error_challenge_is_acknowledged_and_ends_exchange(challenge: bytes) -> None:
    client = OAuthBearerSaslClient(BearerToken("t"))
    client.initial()
    assert client.evaluate(challenge) == b"\x01"
    assert not client.complete
    with pytest.raises(SaslAuthenticationError, match="the broker refused the token: "):
        client.evaluate(b"")


@given(st.binary(max_size=100))
def test_non_empty_challenge_never_succeeds(challenge: bytes) -> None:
    client = OAuthBearerSaslClient(BearerToken("t"))
    assert (client.evaluate(challenge) is None) == client.complete == (not challenge)


# --- providers -------------------------------------------------------------------------------------------------------


class KafkaPythonProvider:
    def token(self) -> str:
        return "opaque"

    def extensions(self) -> dict[str, str]:
        return {"traceId": "7"}


@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        (lambda: "opaque", BearerToken("opaque", None, {})),
        (lambda: b"opaque", BearerToken("opaque", None, {})),
        (lambda config: (config, 1_000.5), BearerToken("argument", 1_000_500, {})),
        (
            lambda config, more=1: (config, 1_000, "principal", {"a": "b"}),
            BearerToken("argument", 1_000_000, {"a": "b"}),
        ),
        (KafkaPythonProvider(), BearerToken("opaque", None, {"traceId": "7"})),
        (KafkaPythonProvider, BearerToken("opaque", None, {"traceId": "7"})),
    ],
)
def test_token_providers_of_other_clients_are_accepted(provider: Any, expected: BearerToken) -> None:
    assert provider_of(provider, "argument")() == expected


@pytest.mark.parametrize("returned", [None, 7, ("t", "soon"), ("t", float("nan")), ("t", True), ("t", 1, "p", "ext")])
def test_invalid_values_of_provider_are_refused(returned: Any) -> None:
    with pytest.raises(SaslAuthenticationError, match="the token provider returned"):
        provider_of(lambda: returned, "")()


def test_an_object_without_a_method_token_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"the method token\(\), or a callable, not a object"):
        provider_of(object(), "")


@pytest.mark.parametrize("value", ["", "a b", "a\nb", "tökén", "a\x01auth=x"])
def test_tokens_with_invalid_characters_are_refused(value: str) -> None:
    with pytest.raises(SaslAuthenticationError, match="characters that no token has"):
        checked(BearerToken(value), 0)


@pytest.mark.parametrize("extensions", [{"auth": "x"}, {"a1": "x"}, {"a": ""}, {"a": "\x01"}])
def test_invalid_extensions_are_refused(extensions: dict[str, str]) -> None:
    with pytest.raises(SaslAuthenticationError, match="extension"):
        checked(BearerToken("t", None, extensions), 0)


def test_expired_token_error_suggests_clock() -> None:
    with pytest.raises(SaslAuthenticationError, match=r"expired 5 s ago by this machine's clock; check the clock"):
        checked(BearerToken("t", 10_000), 15_000)
    assert checked(BearerToken("t", 10_000), 9_999).value == "t"


@given(st.text(max_size=40), st.binary(max_size=40))
def test_any_text_yields_expiry_or_none(text: str, claims: bytes) -> None:
    encoded = base64.urlsafe_b64encode(claims).decode()
    for token in (text, f"{text}.{text}.{text}", f"a.{encoded}.b"):
        assert expiry_of_jwt(token) is None or expiry_of_jwt(token)


def test_expiry_is_read_from_jwt() -> None:
    assert expiry_of_jwt(f"e30.{base64.urlsafe_b64encode(json.dumps({'exp': 12.5}).encode()).decode()}.s") == 12_500


def test_token_file_is_read_each_time(tmp_path: Path) -> None:
    read = file_provider(tmp_path / "token")
    with pytest.raises(SaslAuthenticationError, match=r"the file .*token cannot be read: No such file"):
        read()
    for text in ("one", "two"):
        (tmp_path / "token").write_text(f" {text}\n")
        assert read() == BearerToken(text)
    (tmp_path / "token").write_bytes(b"\xff")
    with pytest.raises(SaslAuthenticationError, match="characters that no token has"):
        checked(read(), 0)
    (tmp_path / "token").write_bytes(b"x" * 2_000_000)
    with pytest.raises(SaslAuthenticationError, match="more than 1048576 bytes"):
        read()


def test_unsecured_token_has_claims_of_jaas_options() -> None:
    make = unsecured_provider(
        {
            "unsecuredLoginStringClaim_sub": "alice",
            "unsecuredLoginNumberClaim_level": "1.5",
            "unsecuredLoginListClaim_scope": "|a|b",
            "unsecuredLoginLifetimeSeconds": "60",
        },
        lambda: 1_000_000,
    )
    assert make is not None
    token = make()
    claims = json.loads(base64.urlsafe_b64decode(token.value.split(".")[1] + "=="))
    assert claims == {"iat": 1000.0, "exp": 1060.0, "sub": "alice", "level": 1.5, "scope": ["a", "b"]}
    assert token.expiry_ms == 1_060_000
    assert unsecured_provider({"username": "u"}, lambda: 0) is None
    with pytest.raises(ConfigError, match="is not a number"):
        unsecured_provider({"unsecuredLoginNumberClaim_x": "y"}, lambda: 0)


# --- the login -------------------------------------------------------------------------------------------------------


class WallClock:
    """A clock that moves when the test says so; its waits end soon, so that their condition is looked at again."""

    def __init__(self) -> None:
        self.time_ms = 1_000_000

    def now_ms(self) -> int:
        return self.time_ms

    wall_ms = now_ms

    def wait(self, condition: threading.Condition, timeout_ms: int) -> bool:
        return condition.wait(0.005)


class Source:
    """Tokens that the test releases one by one."""

    def __init__(self, clock: WallClock, lifetime_ms: int | None = 100_000) -> None:
        self.clock = clock
        self.lifetime_ms = lifetime_ms
        self.error: BaseException | None = None
        self.fetched = 0
        self.released = threading.Semaphore(0)

    def fetch(self) -> BearerToken:
        assert self.released.acquire(timeout=30)
        self.fetched += 1
        if self.error is not None:
            raise self.error
        expiry_ms = None if self.lifetime_ms is None else self.clock.time_ms + self.lifetime_ms
        return BearerToken(f"t{self.fetched}", expiry_ms)


class Harness:
    def __init__(self, lifetime_ms: int | None = 100_000) -> None:
        self.clock = WallClock()
        self.source = Source(self.clock, lifetime_ms)
        self.login = RefreshingLogin(
            "OAUTHBEARER",
            "",
            self.source.fetch,
            lambda token, _: OAuthBearerSaslClient(token),
            RefreshWindow(0.8, 0.0),
            self.clock,  # type: ignore[arg-type]
            random.Random(0),
        )
        self.resumed: list[str] = []

    def token(self, on_ready: Callable[[], object] = bool) -> str | None:
        client: SaslClient | None = self.login.new_client("host", on_ready)
        return None if client is None else parse_initial_response(client.initial()).token

    def connection(self, name: str) -> Callable[[], object]:
        return lambda: self.resumed.append(name)


@pytest.fixture
def harness() -> Any:
    harness = Harness()
    yield harness
    harness.login.close()
    harness.source.released.release(10)


def test_connections_share_token_without_blocking(harness: Harness) -> None:
    one, two = harness.connection("one"), harness.connection("two")
    assert harness.token(one) is None
    assert harness.token(two) is None
    harness.source.released.release()
    eventually(lambda: sorted(harness.resumed) == ["one", "two"], 10, "both are resumed")
    assert harness.token(one) == harness.token(two) == harness.token() == "t1"
    assert harness.source.fetched == 1


def test_interrupted_request_for_a_token_leaves_the_login_usable() -> None:
    for place in places(under=threading.__file__):
        harness = Harness()
        harness.source.released.release(10)
        with place:
            place.interrupt(harness.token)
            found: list[str | None] = []

            def find(harness: Harness = harness, found: list[str | None] = found) -> str | None:
                found.append(harness.token())
                return found[-1]

            other = threading.Thread(target=eventually, args=(find, 10, "a token"), daemon=True)
            other.start()
            other.join(30)
            assert found[-1] in {"t1", "t2"}, found  # the interrupted call may have begun to fetch one
            harness.login.close()


def test_a_token_is_refreshed_before_it_expires(harness: Harness) -> None:
    harness.token()
    harness.source.released.release()
    eventually(lambda: harness.token() == "t1", 10, "the first token")
    harness.clock.time_ms += 79_000
    harness.source.released.release()
    assert harness.token() == "t1"
    harness.clock.time_ms += 2_000
    eventually(lambda: harness.token() == "t2", 10, "the second token")


def test_token_is_used_until_expiry_if_refresh_fails(harness: Harness) -> None:
    harness.token()
    harness.source.released.release()
    eventually(lambda: harness.token() == "t1", 10, "the first token")
    harness.source.error = OSError("down")
    harness.clock.time_ms += 81_000
    harness.source.released.release()
    eventually(lambda: harness.source.fetched == 2, 10, "an attempt to refresh")
    assert harness.token() == "t1"
    harness.clock.time_ms += 10_000
    harness.source.released.release()
    eventually(lambda: harness.source.fetched == 3, 10, "another attempt, ten seconds later")
    harness.source.error = None
    harness.clock.time_ms += 10_000
    harness.source.released.release()
    eventually(lambda: harness.token() == "t4", 10, "a token again")


def test_a_failure_reaches_each_waiting_connection_once(harness: Harness) -> None:
    one, two = harness.connection("one"), harness.connection("two")
    harness.source.error = OSError("no route")
    harness.token(one)
    harness.token(two)
    harness.source.released.release()
    eventually(lambda: len(harness.resumed) == 2, 10, "both are resumed")
    harness.clock.time_ms += 5_000
    for connection in (one, two):
        with pytest.raises(SaslAuthenticationError, match="there are no credentials: OSError: no route"):
            harness.token(connection)
    harness.source.error = None
    assert harness.token(one) is None, "it tries again"
    harness.source.released.release()
    eventually(lambda: harness.token(one) == "t2", 10, "a token")


class SilentError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), SilentError()], ids=repr)
def test_every_error_of_a_provider_reaches_the_connections(harness: Harness, error: BaseException) -> None:
    """Its thread goes on, too: the next connection gets a token."""
    one = harness.connection("one")
    harness.source.error = error
    harness.token(one)
    harness.source.released.release()
    eventually(lambda: harness.resumed, 10, "it is resumed")
    with pytest.raises(SaslAuthenticationError, match=f"there are no credentials: .*{type(error).__name__}"):
        harness.token(one)
    harness.source.error = None
    harness.clock.time_ms += 5_000
    assert harness.token(one) is None
    harness.source.released.release()
    eventually(lambda: harness.token(one) == "t2", 10, "a token")


def test_provider_failure_is_cached_for_one_second(harness: Harness) -> None:
    harness.source.error = SaslAuthenticationError("refused")
    harness.token(harness.connection("one"))
    harness.source.released.release()
    eventually(lambda: harness.resumed, 10, "it is resumed")
    for _ in range(5):
        with pytest.raises(SaslAuthenticationError, match="refused"):
            harness.token(harness.connection("other"))
    assert harness.source.fetched == 1


def test_a_token_of_unknown_lifetime_is_used_for_a_minute() -> None:
    harness = Harness(lifetime_ms=None)
    harness.token()
    harness.source.released.release()
    eventually(lambda: harness.token() == "t1", 10, "a token")
    harness.clock.time_ms += 59_999
    assert harness.token() == "t1"
    harness.clock.time_ms += 1
    assert harness.token() is None
    harness.source.released.release()
    eventually(lambda: harness.token() == "t2", 10, "another token")
    harness.login.close()
    with pytest.raises(SaslAuthenticationError, match="closed"):
        harness.token()


def test_refresh_time_lies_within_refresh_window() -> None:
    rng = random.Random(0)
    window = RefreshWindow(0.8, 0.05, 60_000, 300_000)
    day_ms = 86_400_000
    for _ in range(100):
        assert 0.8 * day_ms <= window.refresh_ms(0, day_ms, rng) <= 0.85 * day_ms
    assert window.refresh_ms(0, 1_000_000, rng) == 700_000, "the buffer before the end"
    assert window.refresh_ms(0, 361_000, rng) == 61_000
    assert 80_000 <= window.refresh_ms(0, 100_000, rng) <= 85_000, "too short a lifetime for period and buffer"
    assert RefreshWindow(0.5, 0.0, 600_000, 0).refresh_ms(0, 1_000_000, rng) == 600_000, "the minimum period"


# --- identity providers ----------------------------------------------------------------------------------------------


def endpoint(server: TokenServer, **settings: Any) -> TokenEndpoint:
    credentials = ClientCredentials(
        "client id", Password("hush:+ü"), "scope one", urlencode=settings.pop("encode", False)
    )
    assert "hush" not in repr(credentials)
    limits = EndpointSettings(server.url, retry_backoff_ms=1, **settings)
    return TokenEndpoint(limits, credentials.headers, credentials.form, {"pool": "p"})


def test_token_request_has_credentials_and_scope() -> None:
    with TokenServer("alice") as server:
        token = endpoint(server).fetch()
        encoded = endpoint(server, encode=True).fetch()
        assert token.extensions == encoded.extensions == {"pool": "p"}
        assert token.expiry_ms is not None
        authorizations = []
        for headers, form in server.requests:
            assert form == {"grant_type": "client_credentials", "scope": "scope one"}
            kind, _, value = headers["Authorization"].partition(" ")
            assert kind == "Basic"
            authorizations.append(base64.b64decode(value).decode())
        assert authorizations == ["client id:hush:+ü", "client+id:hush%3A%2B%C3%BC"]


def test_opaque_token_expires_as_response_says() -> None:
    with TokenServer("alice") as server:
        server.body = b'{"access_token": "opaque", "expires_in": 60}'
        assert endpoint(server).fetch().expiry_ms is not None
        for lifetime in (b'"3600"', b"3600.0", b"1e300"):  # as text, as Azure's endpoints of version 1 do
            server.body = b'{"access_token": "opaque", "expires_in": %b}' % lifetime
            assert (endpoint(server).fetch().expiry_ms or 0) > time.time() * 1000
        for lifetime in (b"-1", b"0", b"true", b"null", b"NaN", b"Infinity", b"9" * 400, b'"soon"', b"[60]"):
            server.body = b'{"access_token": "opaque", "expires_in": %b}' % lifetime
            assert endpoint(server).fetch().expiry_ms is None
        server.body = b'{"access_token": "opaque"}'
        assert endpoint(server).fetch().expiry_ms is None


def test_temporary_failures_are_retried() -> None:
    with TokenServer("alice") as server:
        server.failures = 3
        endpoint(server).fetch()
        assert len(server.requests) == 4


@pytest.mark.parametrize(
    ("status", "body", "headers", "said"),
    [
        (401, None, {}, "refused to issue a token: status 401, invalid_client: who?  are you"),
        (400, b"\xff", {}, "refused to issue a token: status 400;"),
        (
            302,
            None,
            {"Location": "https://login.example/t?secret=hush"},
            r"redirects to https://login\.example/t \(status 302\), .*: set sasl\.oauthbearer\.token\.endpoint\.url to",
        ),
        (307, None, {"Location": "/other"}, r"redirects to http://127\.0\.0\.1:\d+/other \(status 307\)"),
        (308, None, {"Location": "http://[x"}, r"redirects to another address \(status 308\)"),
        (503, None, {}, "no token from .* status 503"),
        (200, b"<html>", {}, "has no access_token; is it a token endpoint"),
        (200, b'{"access_token": 7}', {}, "has no access_token"),
        (200, b"x" * 2_000_000, {}, "has no access_token"),
    ],
)
def test_provider_failures_are_explained(status: int, body: bytes | None, headers: dict[str, str], said: str) -> None:
    with TokenServer("alice") as server:
        server.status, server.body, server.headers = status, body, headers
        with pytest.raises(SaslAuthenticationError, match=said.replace("who?  are you", r"who\?")) as caught:
            endpoint(server, retry_backoff_max_ms=20).fetch()
        assert "hush" not in str(caught.value)
        assert "127.0.0.1" in str(caught.value)


def dripping(start: bytes, every_s: float) -> Callable[[socket.socket], None]:
    """Return a service that answers ``start``, and then one byte after the other until the client has gone."""

    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(start)
        with contextlib.suppress(OSError):
            while True:
                connection.sendall(b"a")
                time.sleep(every_s)

    return serve


@pytest.mark.parametrize(
    "start",
    [
        b"HTTP/1.1 200 OK\r\nX: ",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n",
        b"HTTP/1.1 503 Later\r\nContent-Length: 100000\r\n\r\n",
    ],
)
def test_endless_provider_response_times_out(start: bytes) -> None:
    """The timeout is that of the whole response: each byte of a slow answer would begin the one of a read anew."""
    with answering(dripping(start, 0.01)) as url:
        limits = EndpointSettings(url, timeout_ms=200, retry_backoff_ms=1, retry_backoff_max_ms=20)
        with pytest.raises(SaslAuthenticationError, match=r"no token from http://127\.0\.0\.1:"):
            TokenEndpoint(limits, dict, dict, {}).fetch()


def test_provider_response_is_sanitized_in_errors() -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 \x1b[31mno status" + b"x" * 10_000 + b"\r\n\r\n")

    with answering(serve) as url:
        limits = EndpointSettings(url, retry_backoff_ms=1, retry_backoff_max_ms=20)
        with pytest.raises(SaslAuthenticationError, match=r"BadStatusLine.*\?\[31mno status") as caught:
            TokenEndpoint(limits, dict, dict, {}).fetch()
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 600


def test_silent_provider_times_out() -> None:
    with TokenServer("alice") as server:
        server.may_answer.clear()
        with pytest.raises(SaslAuthenticationError, match=r"no token from http://127\.0\.0\.1:.*timed out"):
            endpoint(server, timeout_ms=50, retry_backoff_max_ms=20).fetch()


# --- identity providers with a certificate of an authority of their own ----------------------------------------------


class Provider(NamedTuple):
    """An identity provider whose certificate only its own authority vouches for, and files that name authorities."""

    server: TokenServer
    authority: CertificateAuthority
    trusted: Path
    store: Path
    other: Path


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[Provider]:
    authority = CertificateAuthority()
    issued = authority.issue("idp", ["127.0.0.1"])
    store = KeyStore(issued.certificate_pem, issued.key_pem(), None)
    files = tmp_path / "authority.pem", tmp_path / "authority.p12", tmp_path / "other.pem"
    files[0].write_text(authority.certificate_pem)
    files[1].write_bytes(authority.pkcs12("store-4021"))
    files[2].write_text(CertificateAuthority("another").certificate_pem)
    with TokenServer("alice", server_context(store, authority.certificate_pem, "none")) as server:
        yield Provider(server, authority, *files)


def token_with(provider: Provider, **settings: Any) -> str:
    """Return the token that a client with these settings gets from the provider.

    Raises:
        SaslAuthenticationError: it gets none.
    """
    settings = {**CLIENT, **settings, "sasl.oauthbearer.token.endpoint.url": provider.server.url}
    made = login(**settings)
    try:
        ready = threading.Event()
        client: SaslClient | None = made.new_client("broker", ready.set)
        while client is None:
            assert ready.wait(30)
            ready.clear()
            client = made.new_client("broker", ready.set)
        return parse_initial_response(client.initial()).token
    finally:
        made.close()


def own_context(provider: Provider) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=provider.trusted)


@pytest.mark.parametrize(
    "settings",
    [
        lambda found: {"ssl_cafile": found.trusted},
        lambda found: {"ssl.truststore.location": found.store, "ssl.truststore.password": "store-4021"},
        lambda found: {"ssl.truststore.certificates": found.authority.certificate_pem},
        lambda found: {"ssl_context": own_context(found)},
        lambda found: {"https.ca.location": found.trusted},
        lambda found: {"https.ca.location": found.trusted, "ssl_cafile": found.other},
        lambda found: {"https.ca.pem": found.authority.certificate_pem},
        lambda found: {"sasl.jaas.config": f'{JAAS} ssl.truststore.location="{found.trusted}";'},
        lambda found: {
            "ssl_cafile": found.other,
            "sasl.jaas.config": f'{JAAS} ssl.truststore.location="{found.store}" ssl.truststore.type="PKCS12" '
            'ssl.truststore.password="store-4021";',
        },
    ],
)
def test_trust_settings_apply_to_token_endpoint(
    provider: Provider, settings: Callable[[Provider], dict[str, Any]]
) -> None:
    assert token_with(provider, **settings(provider)).count(".") == 2


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        (lambda _: {}, r"set https\.ca\.location \(or ssl\.truststore\.location, ssl_cafile\) to the certificate"),
        (lambda found: {"ssl_cafile": found.other}, r"set https\.ca\.location"),
        (
            lambda found: {"https.ca.location": found.other, "ssl_cafile": found.trusted},
            r"https\.ca\.location must have the certificate",
        ),
        (
            lambda found: {
                "ssl_cafile": found.trusted,
                "sasl.jaas.config": f'{JAAS} ssl.truststore.location="{found.other}";',
            },
            r"ssl\.truststore\.location in sasl\.jaas\.config must have the certificate",
        ),
    ],
)
def test_error_for_untrusted_provider_names_setting(
    provider: Provider, settings: Callable[[Provider], dict[str, Any]], remedy: str
) -> None:
    with pytest.raises(SaslAuthenticationError, match=rf"certificate of https://127.*authority.*{remedy}") as caught:
        token_with(provider, **settings(provider))
    assert "identity provider is up" not in str(caught.value)
    assert provider.server.requests == [], "no credentials were sent"


def test_jaas_options_can_disable_host_name_check(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    issued = authority.issue("idp", ["idp.example"])
    store = KeyStore(issued.certificate_pem, issued.key_pem(), None)
    trusted = tmp_path / "authority.pem"
    trusted.write_text(authority.certificate_pem)
    with TokenServer("alice", server_context(store, authority.certificate_pem, "none")) as server:
        provider = Provider(server, authority, trusted, trusted, trusted)
        with pytest.raises(SaslAuthenticationError, match=r"use a host name that the certificate has in sasl\.oauth"):
            token_with(provider, ssl_cafile=trusted)
        jaas = f'{JAAS} ssl.truststore.location="{trusted}" ssl.endpoint.identification.algorithm="";'
        assert token_with(provider, **{"sasl.jaas.config": jaas})


def test_error_explains_https_url_of_server_without_tls() -> None:
    with TokenServer("alice") as server:
        server.url = server.url.replace("http:", "https:")
        with pytest.raises(SaslAuthenticationError, match=r"does not speak TLS: check the port in sasl\.oauth"):
            endpoint(server).fetch()


def test_sending_credentials_over_http_warns(caplog: pytest.LogCaptureFixture) -> None:
    url = "sasl.oauthbearer.token.endpoint.url"
    for address in ("https://idp.example/t", "http://127.0.0.1/t", "http://localhost/t"):
        login(**{**CLIENT, url: address}).close()
    assert caplog.text == ""
    login(**{**CLIENT, url: "http://idp.example/t"}).close()
    assert "cross the network unencrypted" in caplog.text


# --- the configuration -----------------------------------------------------------------------------------------------

ENDPOINT = {"sasl.oauthbearer.token.endpoint.url": "https://idp.example.com/token"}
CLIENT = {**ENDPOINT, "sasl.oauthbearer.client.id": "c", "sasl.oauthbearer.client.secret": "s"}
JAAS = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


def login(**settings: Any) -> Any:
    """Return the login of a producer with these settings."""
    config = {"bootstrap.servers": "b:1", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    return login_for(ProducerConfig({**config, **settings}))


@pytest.mark.parametrize(
    "settings",
    [
        {"sasl_oauth_token_provider": KafkaPythonProvider()},
        {"oauth_cb": lambda config: ("t", 1)},
        {**ENDPOINT, "sasl.jaas.config": f'{JAAS} clientId="c" clientSecret="s" scope="x" extension_a="b";'},
        CLIENT,
        {"sasl.oauthbearer.token.endpoint.url": "file:///var/run/token"},
        {"sasl.jaas.config": f'{JAAS} unsecuredLoginStringClaim_sub="alice";'},
    ],
)
def test_each_token_source_can_be_configured(settings: dict[str, Any]) -> None:
    made = login(**settings)
    assert made.mechanism == "OAUTHBEARER"
    made.close()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "needs a source of tokens.*: there is none"),
        ({**ENDPOINT, "oauth_cb": len}, "only one of them, not sasl.oauth.token.provider and sasl.oauthbearer.token"),
        (ENDPOINT, r"needs sasl\.oauthbearer\.client\.credentials\.client\.id and"),
        ({**ENDPOINT, "sasl.oauthbearer.client.id": "c"}, r"needs sasl\.oauthbearer\.client\.credentials"),
        ({"sasl.oauthbearer.token.endpoint.url": "ftp://x/y"}, "must be the URL of a token endpoint"),
        ({"sasl.oauthbearer.token.endpoint.url": "https://"}, "must be the URL of a token endpoint"),
        *(
            ({"sasl.oauthbearer.token.endpoint.url": url}, "has no scheme: it must begin with https://")
            for url in ("https:", "idp.example.com/token", "idp.example.com:8443/token", "/token")
        ),
        ({**CLIENT, "https.ca.pem": "hush"}, "https.ca.pem has no|https.ca.pem is neither"),
        ({**CLIENT, "https.ca.location": "/nonexistent"}, "https.ca.location = '/nonexistent' cannot be read"),
        ({**CLIENT, "ssl_cafile": "/nonexistent"}, "ssl.cafile = '/nonexistent' cannot be read"),
        (
            {**CLIENT, "sasl.jaas.config": f'{JAAS} ssl.truststore.location="/nonexistent";'},
            "in sasl.jaas.config: ssl.truststore.location = '/nonexistent' cannot be read",
        ),
        (
            {**CLIENT, "sasl.jaas.config": f'{JAAS} ssl.trustore.location="/x";'},
            "in sasl.jaas.config: unknown .* did you mean 'ssl.truststore.location'",
        ),
        (
            {**CLIENT, "https.ca.location": "probe", "sasl.jaas.config": f'{JAAS} ssl.truststore.location="/x";'},
            "https.ca.location and ssl.* options in sasl.jaas.config are set",
        ),
        *(
            ({"sasl.oauthbearer.token.endpoint.url": url}, "endpoint.url is not a valid URL")
            for url in (
                "http://[idp/x",
                "http://idp:hush/x",
                "http://idp:99999/x",
                "http://user:hush\u2100@idp/x",
                "http://h\u00f6st/x",
                "http://idp/a b",
                "http://idp/a\r\nX: y",
            )
        ),
        ({"sasl.oauthbearer.token.endpoint.url": "https://user:hush@idp/x"}, "must not contain a user or a password"),
        ({**CLIENT, "sasl.login.read.timeout.ms": -1}, r"sasl\.login\.read\.timeout\.ms = -1: it must be at least 0"),
        ({**CLIENT, "sasl.login.retry.backoff.ms": -1}, r"sasl\.login\.retry\.backoff\.ms = -1: it must be at least 0"),
        ({"sasl.jaas.config": f'{JAAS} unsecuredLoginNumberClaim_x="hush";'}, "is not a number"),
    ],
)
def test_wrong_oauth_settings_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        login(**settings)
    assert "hush" not in forms_of(caught.value)


def test_an_unsecured_token_is_a_jwt() -> None:
    assert expiry_of_jwt(unsecured_token("alice", 60)) is not None
