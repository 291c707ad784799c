"""The client's side of SASL, against brokers of all releases, and against hostile ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import given, strategies as st

from pykclient.config.config_def import Password
from pykclient.errors import (
    AuthenticationError,
    IllegalSaslStateError,
    RemoteProtocolError,
    SaslAuthenticationError,
    UnsupportedSaslMechanismError,
)
from pykclient.network.authenticator.sasl_client import Login, PlainLogin, PlainSaslClient, SaslClient
from pykclient.network.authenticator.sasl_client_authenticator import SaslClientAuthenticator
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.headers import encode_response, parse_request
from pykclient.protocol.message import Response
from pykclient.protocol.messages.api_versions import ApiVersionsResponse
from pykclient.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from pykclient.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.support.secrets import forms_of

LOGIN = PlainLogin("user", Password("hush"))
CURRENT = {ApiKeys.SASL_HANDSHAKE: 1, ApiKeys.SASL_AUTHENTICATE: 2}


def authenticator(login: Login = LOGIN) -> SaslClientAuthenticator:
    return SaslClientAuthenticator(login, "kafka.example.com", 9093, "client", random.Random(1))


class ScriptedBroker:
    """Responds to the frames of an authenticator: PLAIN, unless ``token`` answers otherwise."""

    def __init__(
        self,
        versions: dict[int, int] | None = None,
        handshake: SaslHandshakeResponse | None = None,
        token: Callable[[bytes], SaslAuthenticateResponse] | None = None,
        change: Callable[[bytes], bytes] = bytes,
    ) -> None:
        self.versions = CURRENT if versions is None else versions
        self.handshake = handshake or SaslHandshakeResponse(mechanisms=["PLAIN"])
        self.token = token or (lambda _: SaslAuthenticateResponse())
        self.change = change
        self.seen: list[str] = []
        self._raw = False  # True once the broker expects tokens without headers

    def respond(self, frame: bytes) -> bytes:
        size, frame = int.from_bytes(frame[:4], "big"), frame[4:]
        assert size == len(frame)
        return self.change(self._respond(frame))

    def _respond(self, frame: bytes) -> bytes:
        if self._raw:
            self.seen.append(f"token {frame!r}")
            return self.token(frame).auth_bytes
        try:
            header, request = parse_request(frame)
        except RemoteProtocolError:  # the client was told of a version that this broker does not have
            return b""
        self.seen.append(f"{type(request).__name__} v{header.api_version}")
        response: Response
        if isinstance(request, SaslHandshakeRequest):
            response = self.handshake
            self._raw = header.api_version == 0 or ApiKeys.SASL_AUTHENTICATE not in self.versions
        elif isinstance(request, SaslAuthenticateRequest):
            response = self.token(request.auth_bytes)
        else:
            ranges = [
                ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=newest)
                for key, newest in self.versions.items()
            ]
            response = ApiVersionsResponse(api_keys=ranges)
        frames = encode_response(response, header.api_version, header.correlation_id).buffers()
        return b"".join(map(bytes, frames))[4:]


def run(client: SaslClientAuthenticator, broker: ScriptedBroker, now_ms: int = 1000, steps: int = 100) -> None:
    """Exchange frames until it is the peer's turn, or the client is done or raises."""
    for _ in range(steps):
        frames = client.next_frame(now_ms)
        if frames is None:
            return
        response = broker.respond(b"".join(map(bytes, frames)))
        if client.complete:  # the last token to an old broker has no response
            return
        assert client.receive(response, now_ms)
    raise AssertionError("the exchange does not end")


def test_authentication_asks_versions_then_handshake_then_token() -> None:
    client, broker = authenticator(), ScriptedBroker()
    run(client, broker)
    assert client.complete
    assert client.reauthenticate_ms is None
    assert broker.seen == ["ApiVersionsRequest v0", "SaslHandshakeRequest v1", "SaslAuthenticateRequest v2"]


@pytest.mark.parametrize(
    ("versions", "seen"),
    [
        ({**CURRENT, ApiKeys.SASL_AUTHENTICATE: 0}, "SaslAuthenticateRequest v0"),
        ({**CURRENT, ApiKeys.SASL_AUTHENTICATE: 99}, "SaslAuthenticateRequest v2"),
        ({ApiKeys.SASL_HANDSHAKE: 0, ApiKeys.SASL_AUTHENTICATE: 2}, "token b'\\x00user\\x00hush'"),
        ({ApiKeys.SASL_HANDSHAKE: 0}, "token b'\\x00user\\x00hush'"),
        ({ApiKeys.SASL_HANDSHAKE: 1}, "token b'\\x00user\\x00hush'"),
    ],
)
def test_older_brokers_get_older_requests(versions: dict[int, int], seen: str) -> None:
    client, broker = authenticator(), ScriptedBroker(versions)
    run(client, broker)
    assert client.complete
    assert broker.seen[-1] == seen


class Dialogue:
    """A mechanism that sends a number for each challenge, up to ``count``."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.sent = 0
        self.complete = False

    def initial(self) -> bytes:
        self.sent = 1
        return b"1"

    def evaluate(self, challenge: bytes) -> bytes | None:
        assert challenge == b"after %d" % self.sent
        self.sent += 1
        self.complete = self.sent == self.count
        return b"%d" % self.sent


class OtherLogin:
    """A login for any exchange; ``clients`` are returned in turn."""

    mechanism = "OTHER"
    remedy = "try again"

    def __init__(self, *clients: SaslClient | None) -> None:
        self.clients = list(clients)
        self.on_ready: Callable[[], object] = bool

    def new_client(self, host: str, on_ready: Callable[[], object]) -> SaslClient | None:
        assert host == "kafka.example.com"
        self.on_ready = on_ready
        return self.clients.pop(0)

    def close(self) -> None:
        """Do nothing."""


def counting(token: bytes) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(auth_bytes=b"after " + token)


@pytest.mark.parametrize("handshake", [0, 1])
def test_mechanism_may_need_several_tokens(handshake: int) -> None:
    client = authenticator(OtherLogin(Dialogue(4)))
    broker = ScriptedBroker({**CURRENT, ApiKeys.SASL_HANDSHAKE: handshake}, token=counting)
    run(client, broker)
    assert client.complete
    assert len(broker.seen) == 6


@pytest.mark.parametrize("handshake", [0, 1])
def test_number_of_challenges_is_limited(handshake: int) -> None:
    client = authenticator(OtherLogin(Dialogue(1_000_000)))
    broker = ScriptedBroker({**CURRENT, ApiKeys.SASL_HANDSHAKE: handshake}, token=counting)
    with pytest.raises(SaslAuthenticationError, match="more than 16 challenges"):
        run(client, broker)
    assert client.next_frame(0) is None


def test_authenticator_waits_for_credentials() -> None:
    login = OtherLogin(None, None, Dialogue(2))
    client, broker = authenticator(login), ScriptedBroker(token=counting)
    resumed: list[int] = []
    client.start(lambda: resumed.append(1))
    run(client, broker)
    assert not client.complete
    login.on_ready()
    assert resumed == [1]
    run(client, broker)
    assert not client.complete
    run(client, broker)
    assert client.complete
    client.close()
    client._resume()
    assert resumed == [1]


# --- failures --------------------------------------------------------------------------------------------------------


def failure(broker: ScriptedBroker, login: Login = LOGIN) -> AuthenticationError:
    client = authenticator(login)
    with pytest.raises(AuthenticationError) as caught:
        run(client, broker)
    assert not client.complete
    assert client.next_frame(0) is None
    text = str(caught.value)
    assert text.startswith(f"Authentication with kafka.example.com:9093 by {login.mechanism} failed: ")
    assert "hush" not in text + repr(client)
    return caught.value


def test_error_quotes_brokers_refusal_sanitized() -> None:
    error = failure(ScriptedBroker(token=lambda _: SaslAuthenticateResponse(error_code=58, error_message="no\x1b[31m")))
    assert isinstance(error, SaslAuthenticationError)
    assert str(error).endswith("the broker refused: no?[31m (check the user name and the password)")


def test_invalid_text_in_credentials_is_refused() -> None:
    """A provider of AWS credentials may return anything. The error ends this connection only, and shows nothing."""
    login = PlainLogin("user", Password("hush\ud800"))
    error = failure(ScriptedBroker(), login)
    assert "not valid text" in str(error)
    assert "hush" not in forms_of(error)


def test_a_long_message_is_cut() -> None:
    error = failure(ScriptedBroker(token=lambda _: SaslAuthenticateResponse(error_code=58, error_message="x" * 30_000)))
    assert len(str(error)) < 700


@pytest.mark.parametrize(
    ("code", "kind"), [(58, SaslAuthenticationError), (34, IllegalSaslStateError), (-1, SaslAuthenticationError)]
)
def test_error_code_without_message_selects_error_class(code: int, kind: type[AuthenticationError]) -> None:
    error = failure(ScriptedBroker(token=lambda _: SaslAuthenticateResponse(error_code=code)))
    assert type(error) is kind


def test_error_names_enabled_mechanisms() -> None:
    response = SaslHandshakeResponse(error_code=33, mechanisms=["SCRAM-SHA-256", "GSSAPI"])
    error = failure(ScriptedBroker(handshake=response))
    assert isinstance(error, UnsupportedSaslMechanismError)
    assert "only SCRAM-SHA-256, GSSAPI; set sasl.mechanism to one of these" in str(error)


def test_error_names_listener_without_sasl() -> None:
    error = failure(ScriptedBroker(handshake=SaslHandshakeResponse(error_code=34)))
    assert isinstance(error, IllegalSaslStateError)
    assert "does not use SASL" in str(error)


def test_broker_without_sasl_handshake_is_error() -> None:
    assert "does not support SaslHandshake" in str(failure(ScriptedBroker({ApiKeys.PRODUCE: 3})))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda frame: b"", "is unreadable"),
        (lambda frame: frame[:-1], "is unreadable"),
        (lambda frame: b"\0\0\0\7" + frame[4:], "the broker responded to request 7 instead of 2147483640"),
        (lambda frame: b"x" * 600_000, "has 600000 bytes, more than 524288"),
    ],
)
def test_invalid_response_frames_are_refused(change: Callable[[bytes], bytes], problem: str) -> None:
    assert problem in str(failure(ScriptedBroker(change=change)))


def test_unexpected_frame_is_refused() -> None:
    client = authenticator()
    with pytest.raises(IllegalSaslStateError, match="not asked for"):
        client.receive(b"\0\0\0\0", 0)


@given(st.integers(0, 2), st.integers(0, 200), st.integers(1, 255))
def test_changed_byte_ends_exchange_or_is_harmless(step: int, position: int, change: int) -> None:
    steps = iter(range(100))

    def changed(frame: bytes) -> bytes:
        if next(steps) != step:
            return frame
        changing = bytearray(frame)
        changing[position % len(frame)] ^= change
        return bytes(changing)

    client = authenticator()
    try:
        run(client, ScriptedBroker(change=changed))
    except AuthenticationError:
        assert not client.complete


@given(st.lists(st.binary(max_size=60), min_size=3, max_size=20))
def test_random_frames_end_exchange(frames: list[bytes]) -> None:
    client = authenticator()
    client.next_frame(0)

    def exchange() -> None:
        for frame in frames:
            client.receive(frame, 0)
            client.next_frame(0)

    with pytest.raises(AuthenticationError):
        exchange()
    assert not client.complete


# --- re-authentication -----------------------------------------------------------------------------------------------


def test_a_session_is_renewed_before_it_ends() -> None:
    """Responses to earlier requests belong to the connection's user, whatever they contain."""
    due = set()
    client = authenticator()
    broker = ScriptedBroker(token=lambda _: SaslAuthenticateResponse(session_lifetime_ms=10_000))
    run(client, broker, now_ms=1_000)
    for now_ms in range(20_000, 400_000, 20_000):
        assert client.reauthenticate_ms is not None
        due.add(client.reauthenticate_ms - (now_ms - 20_000 or 1_000))
        client.begin_reauthentication()
        assert not client.complete
        assert client.reauthenticate_ms is None
        broker.seen.clear()
        frames = client.next_frame(now_ms)
        assert frames is not None
        response = broker.respond(b"".join(map(bytes, frames)))
        for correlation_id in (0, 7, (1 << 31) - 9):
            assert not client.receive(correlation_id.to_bytes(4, "big") + b"anything", now_ms)
        assert client.receive(response, now_ms)
        run(client, broker, now_ms)
        assert client.complete
        assert broker.seen == ["SaslHandshakeRequest v1", "SaslAuthenticateRequest v2"]
    assert min(due) >= 8_500
    assert max(due) <= 9_500
    assert len(due) > 5


def test_reauthentication_may_remove_session_lifetime() -> None:
    client = authenticator()
    run(client, ScriptedBroker(token=lambda _: SaslAuthenticateResponse(session_lifetime_ms=10_000)))
    client.begin_reauthentication()
    run(client, ScriptedBroker(token=lambda _: SaslAuthenticateResponse()))
    assert client.complete
    assert client.reauthenticate_ms is None


def test_plain_token_has_user_and_password() -> None:
    client = PlainSaslClient("ü", "pä")
    assert client.initial() == "\0ü\0pä".encode()
    assert client.complete
    assert cast(SaslClient, client).evaluate(b"") is None
    assert "hush" not in repr(LOGIN)
