"""Both sides of TLS and of each SASL mechanism, key stores, and tokens."""

from __future__ import annotations

import functools
import hashlib
import random
import ssl
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from pykclient.config.config_def import Password
from pykclient.errors import AuthenticationError, ConfigError, SaslAuthenticationError
from pykclient.network.authenticator.aws_msk_iam import AwsCredentials, new_client as new_aws_client
from pykclient.network.authenticator.oauth_bearer import (
    BearerToken,
    OAuthBearerSaslClient,
    checked,
    expiry_of_jwt,
    initial_response,
)
from pykclient.network.authenticator.sasl_client import PlainLogin, SaslClient
from pykclient.network.authenticator.sasl_client_authenticator import SaslClientAuthenticator
from pykclient.network.authenticator.scram import ScramSaslClient
from pykclient.network.authenticator.token_endpoint import EndpointSettings, TokenEndpoint
from pykclient.network.tls.ssl_factory import KeyStore, key_store, load_key_store, trust_store
from pykclient.network.tls.ssl_failures import handshake_failure, text_of
from pykclient.network.tls.ssl_transport_layer import SslEngine
from pykclient.protocol.headers import encode_request
from pykclient.protocol.messages.api_versions import ApiVersionsRequest
from pykclient.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from pykclient.protocol.messages.sasl_handshake import SaslHandshakeRequest
from pykclient.testing.certificates import CertificateAuthority, IssuedCertificate
from pykclient.testing.handlers import ApiVersionManager
from pykclient.testing.release_profiles import ReleaseProfile
from pykclient.testing.security import Security, UserCredentials, listeners_of
from pykclient.testing.server.sasl_server_authenticator import SaslServerAuthenticator
from tests.fuzz.protocol_targets import outcome
from tests.fuzz.target import Input, Target, number, pieces
from tests.security.test_sasl_client_authenticator import ScriptedBroker
from tests.security.test_sasl_server_authenticator import WALL_MS, unsecured_token

_NONCE = "fuzz"
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM")


# --- SASL, the client's side -----------------------------------------------------------------------------------------


def _salt(salt: bytes, iterations: int) -> bytes:
    """Hash a password quickly."""
    return hashlib.sha256(b"hush" + salt + number(iterations, 8)).digest()


class _Login:
    """A login with a known nonce, which costs little. Thread: owner."""

    remedy = "check the fuzzer"

    def __init__(self, mechanism: str) -> None:
        self.mechanism = mechanism

    def new_client(self, host: str, on_ready: Callable[[], object]) -> SaslClient | None:
        if self.mechanism == "PLAIN":
            return PlainLogin("alice", Password("hush")).new_client(host, on_ready)
        if self.mechanism == "OAUTHBEARER":
            return OAuthBearerSaslClient(BearerToken("token"))
        if self.mechanism == "AWS_MSK_IAM":
            return new_aws_client(
                AwsCredentials("AKID", Password("hush")), "b-1.kafka.us-east-1.amazonaws.com", WALL_MS
            )
        return ScramSaslClient(self.mechanism, "alice", _salt, _NONCE)

    def close(self) -> None:
        """Do nothing."""


def run_sasl_client(data: bytes) -> None:
    """Answer an authenticating client with a script: honestly, with a token, or with any bytes."""
    given = Input(data)
    client = SaslClientAuthenticator(
        _Login(_MECHANISMS[given.byte() % len(_MECHANISMS)]), "kafka.example.com", 9093, "fuzz", random.Random(1)
    )
    broker = ScriptedBroker()
    try:
        for step in given.pieces():
            request = client.next_frame(1000)
            if client.complete:
                client.begin_reauthentication()
                continue
            if request is None:
                return
            frame = b"".join(map(bytes, request))
            kind, body = step[:1] or b"\0", step[1:]
            honest = outcome(lambda f=frame: broker.respond(f), AttributeError)  # type: ignore[misc]
            match kind[0] % 4:
                case 0 if isinstance(honest, bytes):
                    response = honest
                case 1:
                    broker.token = lambda _, b=body: SaslAuthenticateResponse(auth_bytes=b)  # type: ignore[misc]
                    response = broker.respond(frame)
                case 2:
                    response = frame[8:12] + body
                case _:
                    response = body
            client.receive(response, 1000)
    except AuthenticationError as error:
        _check_refusal(str(error), data, is_complete=client.complete)


def _check_refusal(text: str, data: bytes, *, is_complete: bool) -> None:
    """Check that an error has a text, which shows the password only if the peer's own bytes contain it."""
    assert text
    assert "hush" not in text or b"hush" in data
    assert not is_complete


def sasl_client_seeds(rng: Random) -> Iterator[bytes]:
    scram = b"r=fuzzXYZ,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    tokens: dict[str, list[bytes]] = {
        "PLAIN": [b""],
        "OAUTHBEARER": [b'{"status":"invalid_token","scope":"s"}', b""],
        "AWS_MSK_IAM": [b'{"version":"2020_10_22","request-id":"8"}'],
        "SCRAM-SHA-256": [scram, b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="],
        "SCRAM-SHA-512": [scram, b"e=invalid-proof"],
    }
    for index, mechanism in enumerate(_MECHANISMS):
        steps = [b"\0", b"\0", *(b"\1" + token for token in tokens[mechanism])]
        yield number(index) + pieces(*steps)
        yield number(index) + pieces(*steps, b"\0", b"\0", b"\1again", b"\3raw")
        yield number(index) + pieces(b"\2\0\0\0\0\0\1\0\x11\0\0\0\1", b"\2\0\0\0\0\0\1\0\5PLAIN", b"\1")


# --- SASL, the server's side -----------------------------------------------------------------------------------------


@functools.cache
def _server_parts() -> tuple[Security, UserCredentials, ApiVersionManager]:
    security = Security(users={"alice": "hush"})
    versions = ApiVersionManager(ReleaseProfile.of(ReleaseProfile.CURRENT))
    return security, UserCredentials(listeners_of(security)), versions


def run_sasl_server(data: bytes) -> None:
    """Send an embedded broker a script: requests with tokens, or any bytes."""
    broker = SaslServerAuthenticator(*_server_parts(), lambda: WALL_MS, 0)
    given = Input(data)
    try:
        for step in given.pieces():
            kind, body = step[:1] or b"\0", step[1:]
            match kind[0] % 4:
                case 0:
                    request: Any = SaslHandshakeRequest(mechanism=_MECHANISMS[len(body) % len(_MECHANISMS)])
                    frame = encode_request(request, 1 - kind[0] // 4 % 2, 7, "fuzz").getvalue()[4:]
                case 1:
                    frame = encode_request(SaslAuthenticateRequest(auth_bytes=body), 2, 7, "fuzz").getvalue()[4:]
                case 2:
                    frame = encode_request(ApiVersionsRequest(), 0, 7, "fuzz").getvalue()[4:]
                case _:
                    frame = body
            broker.receive(frame, 0)
            if broker.next_frame(0) is None:
                return
            if broker.complete:
                assert broker.user is not None
                broker.begin_reauthentication()
    except AuthenticationError as error:
        _check_refusal(str(error), data, is_complete=broker.complete)


def sasl_server_seeds(rng: Random) -> Iterator[bytes]:
    first = b"n,,n=alice,r=nonce"
    token = initial_response(BearerToken(unsecured_token(), None, {"a": "b"}))
    yield pieces(b"\2", b"\0", b"\1\0alice\0hush", b"\0", b"\1\0alice\0hush")
    for length in (1, 2):
        yield pieces(b"\2", b"\0" + b"x" * length, b"\1" + first, b"\1c=biws,r=nonce,p=AAAA")
    yield pieces(b"\2", b"\0xxx", b"\1" + token)
    yield pieces(b"\2", b"\0xxx", b"\1" + token.replace(b"n,,", b"n,a=carol,"), b"\1\x01")
    yield pieces(b"\2", b"\4", b"\3\0alice\0hush")
    huge = initial_response(BearerToken(unsecured_token(exp=1e300)))
    yield pieces(b"\2", b"\0xxx", b"\1" + huge)


# --- TLS -------------------------------------------------------------------------------------------------------------


@functools.cache
def _authority() -> CertificateAuthority:
    return CertificateAuthority()


@functools.cache
def _certificate() -> IssuedCertificate:
    return _authority().issue("localhost")


@functools.cache
def _contexts(newest: ssl.TLSVersion) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    contexts = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for context in contexts:
        context.maximum_version = newest
        context.load_verify_locations(cadata=_authority().certificate_pem)
        store = KeyStore(_certificate().certificate_pem, _certificate().key_pem(), None)
        load_key_store(context, store, "fuzz")
    contexts[1].verify_mode = ssl.CERT_REQUIRED
    return contexts


def _damage(flow: bytes, at: int, kind: int, content: bytes) -> bytes:
    changed = bytearray(flow)
    at %= len(changed)
    match kind % 4:
        case 0:
            changed[at] ^= content[0] if content else 0xFF
        case 1:
            changed[at : at + len(content)] = content
        case 2:
            changed[at:at] = content
        case _:
            del changed[at:]
    return bytes(changed)


def _check_failure(error: ssl.SSLError, *, is_first_answer: bool) -> None:
    """Check that a user can be told about it."""
    assert text_of(error)
    assert "localhost:9093" in str(handshake_failure(error, "localhost:9093", "localhost", is_first_answer))


def run_tls(data: bytes) -> None:
    """Let a client and a server talk over a wire that changes, inserts or drops bytes."""
    given = Input(data)
    flags = given.byte()
    client_context, server_context = _contexts(ssl.TLSVersion.TLSv1_2 if flags & 1 else ssl.TLSVersion.TLSv1_3)
    sides = SslEngine(client_context, "localhost"), SslEngine(server_context, None)
    damages = given.pieces()
    target = memoryview(bytearray(1 << 15))
    said = [False, False]
    flow = b""
    for turn in range(20):
        engine = sides[turn % 2]
        if flow:
            for damage in damages:
                if damage and damage[0] % 16 == turn:
                    flow = _damage(flow, int.from_bytes(damage[1:3], "big"), damage[0] // 16, damage[3:]) or b"\0"
            engine.feed(flow)
        try:
            if engine.handshake():
                if not said[turn % 2]:
                    said[turn % 2] = True
                    flow = engine.encrypt([b"x" * 5000])
                else:
                    flow = engine.output()
                count = engine.read_into(target)
                assert count is None or bytes(target[:count]) == b"x" * count, "bytes were read that nobody sent"
            else:
                flow = engine.output()
        except ssl.SSLError as error:
            _check_failure(error, is_first_answer=turn < 2)
            engine.output()
            return
        if not flow and turn > 4:
            break
    engine.close_notify()


def tls_seeds(rng: Random) -> Iterator[bytes]:
    for version in range(2):
        yield number(version)
        for turn in range(1, 5):
            for kind in range(4):
                yield number(version) + pieces(
                    number(turn + 16 * kind) + rng.randbytes(2) + (b"\x17\x03\x03\x00\x01x" if kind else b"\1")
                )


def run_tls_garbage(data: bytes) -> None:
    """Feed any bytes to the client's or the server's side of a new connection."""
    given = Input(data)
    flags = given.byte()
    context = _contexts(ssl.TLSVersion.TLSv1_3)[flags & 1]
    engine = SslEngine(context, None if flags & 1 else "localhost")
    try:
        engine.handshake()
        for part in given.pieces():
            engine.feed(part)
            assert not engine.handshake()
    except ssl.SSLError as error:
        _check_failure(error, is_first_answer=True)


def tls_garbage_seeds(rng: Random) -> Iterator[bytes]:
    client, broker = _contexts(ssl.TLSVersion.TLSv1_3)
    one = SslEngine(client, "localhost")
    one.handshake()
    hello = one.output()
    yield number(1) + pieces(hello)
    other = SslEngine(broker, None)
    other.feed(hello)
    other.handshake()
    yield number(0) + pieces(other.output())
    for garbage in (
        b"HTTP/1.1 400\r\n\r\n",
        b"\x15\x03\x03\x00\x02\x02\x50",
        b"\x16\x03\x03\x40\x00",
        b"\0\0\0\x0a" * 3,
    ):
        yield number(0) + pieces(garbage)
        yield number(1) + pieces(garbage)


# --- key stores ------------------------------------------------------------------------------------------------------


def run_stores(data: bytes) -> None:
    """Read any bytes as a trust store and as a key store."""
    given = Input(data)
    password = (None, "hush", "wrong")[given.byte() % 3]
    content = given.rest()
    outcome(lambda: trust_store(content, "ssl.truststore.location", password), ConfigError)
    store = outcome(lambda: key_store(content, "ssl.keystore.location", password, None), ConfigError)
    if isinstance(store, KeyStore):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        outcome(lambda: load_key_store(context, store, "ssl.keystore.location"), ConfigError)
    else:
        assert "hush" not in store[1]


def store_seeds(rng: Random) -> Iterator[bytes]:
    import jks

    certificate = _certificate()
    pem = certificate.certificate_pem
    yield b"\0" + (pem + certificate.key_pem()).encode()
    yield b"\1" + (pem + certificate.key_pem("hush")).encode()
    yield b"\1" + certificate.pkcs12("hush")
    yield b"\1" + _authority().pkcs12("hush")
    der = ssl.PEM_cert_to_DER_cert(pem[: pem.index("-----END CERTIFICATE-----") + 26])
    trusted = jks.TrustedCertEntry.new("ca", der)
    yield b"\1" + jks.KeyStore.new("jks", [trusted]).saves("hush")
    key = ssl.PEM_cert_to_DER_cert(certificate.key_pem().replace("PRIVATE KEY", "CERTIFICATE"))
    entry = jks.PrivateKeyEntry.new("me", [der], key, "pkcs8")
    yield b"\1" + jks.KeyStore.new("jks", [entry]).saves("hush")


# --- tokens ----------------------------------------------------------------------------------------------------------


@functools.cache
def _endpoint() -> TokenEndpoint:
    return TokenEndpoint(EndpointSettings("https://idp.example.com/token", 1, 1, 1), dict, dict, {})


def run_tokens(data: bytes) -> None:
    """Read any bytes as the body of a token endpoint's response, and as a token."""
    endpoint = _endpoint()
    token = outcome(lambda: endpoint._token_in(data), SaslAuthenticationError)
    text = data.decode("latin-1")
    for candidate in (token if isinstance(token, BearerToken) else BearerToken(text), BearerToken(text)):
        expiry_ms = expiry_of_jwt(candidate.value)
        assert expiry_ms is None or 0 <= expiry_ms < 1 << 60
        outcome(lambda c=candidate: checked(c, WALL_MS), SaslAuthenticationError)  # type: ignore[misc]


def token_seeds(rng: Random) -> Iterator[bytes]:
    token = unsecured_token()
    yield token.encode()
    yield b'{"access_token":"' + token.encode() + b'","expires_in":3600,"token_type":"bearer"}'
    yield b'{"id_token":"opaque","expires_in":1e400}'
    yield b"[" * 2000


TARGETS = [
    Target("sasl-client", run_sasl_client, sasl_client_seeds),
    Target("sasl-server", run_sasl_server, sasl_server_seeds),
    Target("tls", run_tls, tls_seeds),
    Target("tls-garbage", run_tls_garbage, tls_garbage_seeds),
    Target("stores", run_stores, store_seeds),
    Target("tokens", run_tokens, token_seeds),
]
