"""An embedded broker's side of SASL: clients of all ages, and hostile ones."""

from __future__ import annotations

import base64
import contextlib
import json
import random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pykclient.config.config_def import Password
from pykclient.errors import (
    AuthenticationError,
    ConfigError,
    IllegalArgumentError,
    IllegalSaslStateError,
    SaslAuthenticationError,
    UnsupportedSaslMechanismError,
)
from pykclient.network.authenticator.oauth_bearer import BearerToken, OAuthBearerSaslClient
from pykclient.network.authenticator.sasl_client import Login, PlainLogin
from pykclient.network.authenticator.sasl_client_authenticator import SaslClientAuthenticator
from pykclient.network.authenticator.scram import ScramLogin
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.headers import encode_request, parse_response
from pykclient.protocol.message import Request, Response
from pykclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykclient.protocol.messages.produce import ProduceRequest
from pykclient.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pykclient.protocol.messages.sasl_handshake import SaslHandshakeRequest
from pykclient.testing.handlers import ApiVersionManager
from pykclient.testing.release_profiles import ReleaseProfile
from pykclient.testing.security import Security, UserCredentials, ValidToken, listeners_of
from pykclient.testing.server.sasl_server_authenticator import SaslServerAuthenticator, validate_unsecured

WALL_MS = 1_700_000_000_000
USERS = {"alice": "hush", "a=b,c": "pä=ss,word"}


def server(
    security: Security | None = None, *, max_reauth_ms: int = 0, release: str = ReleaseProfile.CURRENT
) -> SaslServerAuthenticator:
    security = security or Security(users=USERS)
    credentials = UserCredentials(listeners_of(security))
    versions = ApiVersionManager(ReleaseProfile.of(release))
    return SaslServerAuthenticator(security, credentials, versions, lambda: WALL_MS, max_reauth_ms)


def unsecured_token(**claims: Any) -> str:
    parts = ({"alg": "none"}, {"sub": "carol", "exp": WALL_MS // 1000 + 60, **claims})
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join((*encoded, ""))


class TokenLogin:
    mechanism = "OAUTHBEARER"
    remedy = "check the token"

    def __init__(self, token: str) -> None:
        self.token = token

    def new_client(self, host: str, on_ready: object) -> OAuthBearerSaslClient:
        return OAuthBearerSaslClient(BearerToken(self.token, None, {"traceId": "1 2"}))

    def close(self) -> None:
        """Do nothing."""


def logins() -> list[Login]:
    names = "SCRAM-SHA-256", "SCRAM-SHA-512"
    return [
        PlainLogin("a=b,c", Password("pä=ss,word")),
        *(ScramLogin(name, "a=b,c", Password("pä=ss,word")) for name in names),
        TokenLogin(unsecured_token()),
    ]


def connect(login: Login, broker: SaslServerAuthenticator, now_ms: int = 1_000) -> SaslClientAuthenticator:
    client = SaslClientAuthenticator(login, "localhost", 9092, "client", random.Random(0))
    exchange(client, broker, now_ms)
    return client


def exchange(client: SaslClientAuthenticator, broker: SaslServerAuthenticator, now_ms: int) -> None:
    while (request := client.next_frame(now_ms)) is not None:
        rejected: AuthenticationError | None = None
        try:
            assert broker.receive(b"".join(map(bytes, request))[4:], now_ms)
        except AuthenticationError as error:
            rejected = error
        response = broker.next_frame(now_ms)
        if response is not None:
            client.receive(b"".join(map(bytes, response))[4:], now_ms)
        elif rejected is not None:
            raise rejected


@pytest.mark.parametrize("login", logins(), ids=lambda login: login.mechanism)
@pytest.mark.parametrize("release", ["0.10.0", "1.0", "2.2", ReleaseProfile.CURRENT])
def test_client_and_server_authenticate_each_other(login: Login, release: str) -> None:
    broker = server(release=release)
    client = connect(login, broker)
    assert client.complete
    assert broker.complete
    assert broker.session.user == ("carol" if login.mechanism == "OAUTHBEARER" else "a=b,c")


@pytest.mark.parametrize(
    ("login", "said"),
    [
        (PlainLogin("alice", Password("no")), "Invalid username or password"),
        (PlainLogin("nobody", Password("hush")), "Invalid username or password"),
        (ScramLogin("SCRAM-SHA-256", "alice", Password("no")), "invalid credentials with SASL mechanism SCRAM-SHA-256"),
        (ScramLogin("SCRAM-SHA-512", "nobody", Password("hush")), "invalid credentials with SASL mechanism"),
        (TokenLogin(unsecured_token(exp=WALL_MS // 1000)), "the token has expired"),
        (TokenLogin(unsecured_token(sub=None)), "lacks a subject"),
        (TokenLogin(unsecured_token() + "signature"), "not an unsecured JWT"),
        (TokenLogin("opaque"), "not an unsecured JWT"),
    ],
)
def test_wrong_credentials_are_refused_with_reason(login: Login, said: str) -> None:
    broker = server()
    with pytest.raises(SaslAuthenticationError, match=said):
        connect(login, broker)
    assert not broker.complete
    assert broker.session.user is None


def test_disabled_mechanism_is_refused() -> None:
    with pytest.raises(UnsupportedSaslMechanismError, match="only SCRAM-SHA-512"):
        connect(logins()[0], server(Security(mechanisms=["SCRAM-SHA-512"])))


# --- sessions --------------------------------------------------------------------------------------------------------


def test_session_ends_at_limit_or_token_expiry() -> None:
    for login, limit_ms, expected_ms in (
        (logins()[0], 0, None),
        (logins()[0], 30_000, 31_000),
        (TokenLogin(unsecured_token()), 0, 61_000),
        (TokenLogin(unsecured_token()), 30_000, 31_000),
        (TokenLogin(unsecured_token()), 90_000, 61_000),
    ):
        broker = server(max_reauth_ms=limit_ms)
        client = connect(login, broker)
        assert broker.expiry_ms == expected_ms
        assert (client.reauthenticate_ms is None) == (expected_ms is None)


def test_session_of_endless_token_has_valid_lifetime() -> None:
    broker = server()
    client = connect(TokenLogin(unsecured_token(exp=1e300)), broker)
    assert client.complete
    assert broker.expiry_ms is not None
    assert broker.expiry_ms > WALL_MS


def test_authenticating_again_keeps_user_and_mechanism() -> None:
    broker = server(max_reauth_ms=30_000)
    client = connect(PlainLogin("alice", Password("hush")), broker)
    for side in (client, broker):
        side.begin_reauthentication()
    exchange(client, broker, 20_000)
    assert broker.complete
    assert broker.expiry_ms == 50_000
    for login, problem in (
        (PlainLogin("a=b,c", Password("pä=ss,word")), "Cannot change principals"),
        (ScramLogin("SCRAM-SHA-256", "alice", Password("hush")), "Cannot change the mechanism"),
    ):
        broker = server(max_reauth_ms=30_000)
        client = connect(PlainLogin("alice", Password("hush")), broker)
        client._login = login
        for side in (client, broker):
            side.begin_reauthentication()
        with pytest.raises(SaslAuthenticationError, match=problem):
            exchange(client, broker, 20_000)
        assert not broker.complete


# --- hostile clients -------------------------------------------------------------------------------------------------


def ask(broker: SaslServerAuthenticator, request: Request, version: int) -> Response | None:
    frame = b"".join(map(bytes, encode_request(request, version, 7, "client").buffers()))
    broker.receive(frame[4:], 0)
    response = broker.next_frame(0)
    if response is None:
        return None
    body = b"".join(map(bytes, response))[4:]
    return parse_response(body, request.API_KEY, version)[1]


def test_api_versions_request_of_any_version_is_answered() -> None:
    broker = server()
    frame = b"".join(map(bytes, encode_request(ApiVersionsRequest(), 3, 7, "client").buffers()))[4:]
    newer = frame[:2] + b"\0\x63" + frame[4:]
    broker.receive(newer, 0)
    response = broker.next_frame(0)
    assert response is not None
    _, answer = parse_response(b"".join(map(bytes, response))[4:], ApiKeys.API_VERSIONS, 0)
    assert isinstance(answer, ApiVersionsResponse)
    assert answer.error_code == 35
    assert ask(broker, ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3) is not None


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_other_requests_before_authentication_are_refused(steps: int) -> None:
    broker = server()
    for request, version in ((ApiVersionsRequest(), 0), (SaslHandshakeRequest(mechanism="PLAIN"), 1))[:steps]:
        ask(broker, request, version)
    with pytest.raises(IllegalSaslStateError, match="PRODUCE"):
        ask(broker, ProduceRequest(), 9)
    assert broker.next_frame(0) is None


def test_token_before_handshake_is_refused() -> None:
    with pytest.raises(IllegalSaslStateError):
        ask(server(), SaslAuthenticateRequest(auth_bytes=b"\0alice\0hush"), 2)


def test_too_large_request_is_refused() -> None:
    with pytest.raises(IllegalSaslStateError, match="600000 bytes"):
        server().receive(b"\0" * 600_000, 0)


@given(st.binary(max_size=100))
def test_any_first_frame_is_served_or_refused(frame: bytes) -> None:
    broker = server()
    with contextlib.suppress(AuthenticationError):
        broker.receive(frame, 0)
    assert not broker.complete


@given(st.sampled_from(["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"]), st.lists(st.binary(max_size=80), max_size=3))
def test_random_tokens_are_refused(mechanism: str, tokens: list[bytes]) -> None:
    broker = server()
    ask(broker, SaslHandshakeRequest(mechanism=mechanism), 1)
    try:
        for token in tokens:
            ask(broker, SaslAuthenticateRequest(auth_bytes=token), 2)
    except AuthenticationError:
        pass
    assert not broker.complete


@given(st.text(max_size=60), st.binary(max_size=60))
def test_any_token_is_validated_or_refused(text: str, claims: bytes) -> None:
    header = base64.urlsafe_b64encode(b'{"alg":"none"}').decode()
    for token in (text, f"{header}.{text}.", f"{header}.{base64.urlsafe_b64encode(claims).decode()}."):
        with pytest.raises(ValueError, match="token"):
            validate_unsecured(token, WALL_MS)


# --- settings --------------------------------------------------------------------------------------------------------


def test_security_yields_client_config_without_showing_secrets() -> None:
    security = Security(users={"u": "hush"}, mechanisms=["PLAIN", "OAUTHBEARER"])
    assert "hush" not in repr(security)
    assert security.client_config() == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "hush",
    }
    assert security.client_config("OAUTHBEARER") == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
    }
    assert Security("PLAINTEXT").client_config() == {"security.protocol": "PLAINTEXT"}
    with pytest.raises(IllegalArgumentError, match="SCRAM-SHA-256 is not enabled, only PLAIN, OAUTHBEARER"):
        security.client_config("SCRAM-SHA-256")
    with pytest.raises(IllegalArgumentError, match="no user 'x', only u"):
        security.client_config(user="x")
    with pytest.raises(ConfigError, match="one of PLAINTEXT, SSL"):
        Security("TLS")
    with pytest.raises(ConfigError, match="know the mechanisms"):
        Security(mechanisms=["DIGEST-MD5"])
    with pytest.raises(ConfigError, match="at least one listener"):
        listeners_of({})


def test_custom_token_validator_is_used() -> None:
    def validate(token: str) -> ValidToken:
        if token != "open sesame".replace(" ", "-"):
            raise ValueError("wrong word")
        return ValidToken("ali", WALL_MS + 5_000)

    broker = server(Security(validate_token=validate))
    connect(TokenLogin("open-sesame"), broker)
    assert broker.session.user == "ali"
    assert broker.expiry_ms == 6_000
    with pytest.raises(SaslAuthenticationError, match="wrong word"):
        connect(TokenLogin("open-barley"), server(Security(validate_token=validate)))
