"""A broker's side of SASL authentication, and of its mechanisms (Java: SaslServerAuthenticator, SaslServer)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from pykclient import errors
from pykclient.network.authenticator import Authenticator, oauth_bearer, sasl_client, scram
from pykclient.network.authenticator.scram import ClientFirst, ScramCredential
from pykclient.network.frames import Frame
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.headers import RequestHeader, encode_response, parse_request_header
from pykclient.protocol.message import Response
from pykclient.protocol.messages.api_versions import ApiVersionsRequest
from pykclient.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from pykclient.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from pykclient.protocol.wire import BytesLike, Reader
from pykclient.testing.delegation_tokens import DelegationToken, DelegationTokens
from pykclient.testing.handlers import ApiVersionManager
from pykclient.testing.handlers.cluster_metadata import api_versions_response, unsupported_version_response
from pykclient.testing.security import Security, UserCredentials, ValidToken


class SaslServer:
    """The server's side of one exchange. Thread: loop."""

    #: The authenticated user; None before the exchange has succeeded.
    user: str | None = None
    #: The wall clock time at which the credentials expire, if they do.
    expiry_ms: int | None = None
    #: True if the client authenticated with a delegation token.
    uses_token: bool = False

    def evaluate(self, response: bytes) -> bytes:
        """Return the next challenge, or the outcome.

        Raises:
            SaslAuthenticationError: the client is refused. The message is sent to the client.
        """
        raise NotImplementedError


def new_sasl_server(
    mechanism: str,
    security: Security,
    credentials: UserCredentials,
    wall_ms: Callable[[], int],
    tokens: DelegationTokens | None = None,
) -> SaslServer:
    """Return the server's side of an exchange of ``mechanism``. ``tokens`` enables delegation tokens."""
    if mechanism == sasl_client.PLAIN_MECHANISM:
        return PlainSaslServer(security)
    if mechanism == oauth_bearer.MECHANISM:
        validate = security.validate_token
        return OAuthBearerSaslServer(validate or (lambda token: validate_unsecured(token, wall_ms())))
    return ScramSaslServer(mechanism, credentials, tokens)


class PlainSaslServer(SaslServer):
    """Compares the password (Java: PlainSaslServer). Thread: loop."""

    def __init__(self, security: Security) -> None:
        self._security = security

    def evaluate(self, response: bytes) -> bytes:
        try:
            authzid, user, password = response.decode().split("\0")
        except ValueError:
            raise errors.SaslAuthenticationError("Invalid SASL/PLAIN response: expected 3 tokens") from None
        expected = self._security.users.get(user)
        if not user or expected is None or not hmac.compare_digest(expected.encode(), password.encode()):
            raise errors.SaslAuthenticationError("Authentication failed: Invalid username or password")
        if authzid not in ("", user):
            raise errors.SaslAuthenticationError(
                "Authentication failed: Client requested an authorization id that is not its own"
            )
        self.user = user
        return b""


class ScramSaslServer(SaslServer):
    """Verifies the client's proof, and sends the server's (Java: ScramSaslServer). Thread: loop."""

    def __init__(self, mechanism: str, credentials: UserCredentials, tokens: DelegationTokens | None = None) -> None:
        self._mechanism = mechanism
        self._credentials = credentials
        self._tokens = tokens
        self._token: DelegationToken | None = None
        self._first: ClientFirst | None = None
        self._credential: ScramCredential | None = None
        self._server_first = ""

    def evaluate(self, response: bytes) -> bytes:
        try:
            return self._begin(response) if self._first is None else self._end(self._first, response)
        except ValueError as error:
            raise errors.SaslAuthenticationError(f"Authentication failed: Invalid SCRAM message: {error}") from None

    def _refused(self) -> errors.SaslAuthenticationError:
        return errors.SaslAuthenticationError(
            f"Authentication failed during authentication due to invalid credentials with SASL mechanism "
            f"{self._mechanism}"
        )

    def _begin(self, response: bytes) -> bytes:
        first = scram.parse_client_first(response)
        if first.extensions.get("tokenauth", "").lower() == "true":
            self._credential = self._credential_of_token(first.username)
        else:
            self._credential = self._credentials.scram(first.username, self._mechanism)
        if self._credential is None or first.authzid not in ("", first.username):
            raise self._refused()
        self._first = first
        nonce = first.nonce + base64.b64encode(secrets.token_bytes(24)).decode()
        salt = scram.encoded(self._credential.salt)
        self._server_first = f"r={nonce},s={salt},i={self._credential.iterations}"
        return self._server_first.encode()

    def _credential_of_token(self, token_id: str) -> ScramCredential | None:
        """Return the credential of a delegation token; None if the token is unknown or has expired."""
        self._token = None if self._tokens is None else self._tokens.token(token_id)
        if self._tokens is None or self._token is None:
            return None
        return self._tokens.credential(token_id, self._mechanism)

    def _end(self, first: ClientFirst, response: bytes) -> bytes:
        final = scram.parse_client_final(response)
        kept = self._credential
        assert kept is not None
        if final.nonce != self._server_first.partition(",")[0][2:] or final.binding != scram.GS2_HEADER:
            raise self._refused()
        message = ",".join((first.bare, self._server_first, final.without_proof)).encode()
        signature = scram.sign(self._mechanism, kept.stored_key, message)
        if len(final.proof) != len(signature):
            raise self._refused()
        client_key = scram.xor(final.proof, signature)
        stored_key = hashlib.new(scram.HASHES[self._mechanism], client_key).digest()
        if not hmac.compare_digest(stored_key, kept.stored_key):
            raise self._refused()
        if self._token is None:
            self.user = first.username
        else:
            self.uses_token = True
            self.user = self._token.owner.partition(":")[2]
            self.expiry_ms = self._token.expiry_ms
        return b"v=" + scram.encoded(scram.sign(self._mechanism, kept.server_key, message)).encode()


class OAuthBearerSaslServer(SaslServer):
    """Validates the token (Java: OAuthBearerSaslServer). Thread: loop."""

    def __init__(self, validate: Callable[[str], ValidToken]) -> None:
        self._validate = validate
        self._problem: str | None = None

    def evaluate(self, response: bytes) -> bytes:
        if self._problem is not None:
            raise errors.SaslAuthenticationError(f"Authentication failed: {self._problem}")
        try:
            initial = oauth_bearer.parse_initial_response(response)
        except ValueError as error:
            raise errors.SaslAuthenticationError(
                f"Authentication failed: Invalid OAUTHBEARER message: {error}"
            ) from None
        try:
            valid = self._validate(initial.token)
        except ValueError as error:
            self._problem = str(error)
            return json.dumps({"status": "invalid_token"}).encode()
        if initial.authzid not in ("", valid.principal):
            raise errors.SaslAuthenticationError(
                "Authentication failed: Client requested an authorization id that is not its own"
            )
        self.user, self.expiry_ms = valid.principal, valid.expiry_ms
        return b""


def validate_unsecured(token: str, wall_ms: int) -> ValidToken:
    """Validate a token without a signature (Java: OAuthBearerUnsecuredValidatorCallbackHandler).

    Raises:
        ValueError: it is malformed, signed, expired, or lacks a subject.
    """
    parts = token.split(".")
    if len(parts) != 3 or parts[2]:
        raise ValueError("the token is not an unsecured JWT")
    header, claims = (_json_object(part) for part in parts[:2])
    if header.get("alg") != "none":
        raise ValueError("the token is signed, but this listener accepts unsecured tokens only")
    subject, expiry = claims.get("sub"), claims.get("exp")
    if not isinstance(subject, str) or not subject or isinstance(expiry, bool) or not isinstance(expiry, int | float):
        raise ValueError("the token lacks a subject or an expiration time")
    if not wall_ms < expiry * 1000 < float("inf"):
        raise ValueError("the token has expired")
    return ValidToken(subject, int(expiry * 1000))


def _json_object(part: str) -> dict[str, object]:
    try:
        found = json.loads(base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True))
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    raise ValueError("the token is malformed")


HANDSHAKE_OR_VERSIONS: Final = "HANDSHAKE_OR_VERSIONS"

HANDSHAKE: Final = "HANDSHAKE"

AUTHENTICATE: Final = "AUTHENTICATE"

COMPLETE: Final = "COMPLETE"

FAILED: Final = "FAILED"

#: The valid next states of each state.
MOVES: Final[dict[str, frozenset[str]]] = {
    HANDSHAKE_OR_VERSIONS: frozenset((HANDSHAKE, AUTHENTICATE, FAILED)),
    HANDSHAKE: frozenset((AUTHENTICATE, FAILED)),
    AUTHENTICATE: frozenset((COMPLETE, FAILED)),
    COMPLETE: frozenset((HANDSHAKE,)),
    FAILED: frozenset(),
}

#: The largest request of a client that has not authenticated, in bytes (Kafka: sasl.server.max.receive.size).
_MOST_BYTES: Final = 524_288

#: The longest session, which a token with an expiration time beyond all calendars gets.
_LONGEST_SESSION_MS: Final = 1 << 53


@dataclass(eq=False)
class SaslServerAuthenticator(Authenticator):
    """An ``Authenticator`` for brokers: the client decides when to authenticate again. Thread: loop."""

    _security: Security
    _credentials: UserCredentials
    _versions: ApiVersionManager
    _wall_ms: Callable[[], int]
    _max_reauth_ms: int  # 0: sessions have no limit
    _tokens: DelegationTokens | None = None
    _state: str = HANDSHAKE_OR_VERSIONS
    _frames: list[Sequence[BytesLike]] = field(default_factory=list)
    _is_raw: bool = False  # True if the client sends tokens without headers
    _mechanism: str | None = None
    _server: SaslServer | None = None
    user: str | None = None
    #: When the session ends, by the loop's clock; None if never (KIP-368).
    expiry_ms: int | None = None
    #: True if the client has logged in by a delegation token.
    uses_token: bool = False

    @property
    def complete(self) -> bool:
        return self._state == COMPLETE

    @property
    def session(self) -> SaslServerAuthenticator:
        return self

    def next_frame(self, now_ms: int) -> Sequence[BytesLike] | None:  # noqa: ARG002 - the base's signature
        return self._frames.pop(0) if self._frames else None

    def begin_reauthentication(self) -> None:
        self._move_to(HANDSHAKE)
        self.expiry_ms = None

    # --- receiving ---------------------------------------------------------------------------------------------------

    def receive(self, frame: Frame, now_ms: int) -> bool:
        try:
            self._receive(frame, now_ms)
        except errors.RemoteProtocolError as error:
            self._move_to(FAILED)
            raise errors.IllegalSaslStateError(f"a client's request is unreadable: {error}") from error
        except errors.AuthenticationError:
            self._move_to(FAILED)
            raise
        return True

    def _receive(self, frame: Frame, now_ms: int) -> None:
        if len(frame) > _MOST_BYTES:
            raise errors.IllegalSaslStateError(f"a client sent {len(frame)} bytes before it had authenticated")
        if self._state == AUTHENTICATE and self._is_raw:
            self._frames.append(_raw(self._evaluate(bytes(frame), now_ms)))
            return
        reader = Reader(frame)
        header = parse_request_header(reader)
        if self._state == AUTHENTICATE:
            self._receive_authenticate(header, reader, now_ms)
        elif header.api_key == ApiKeys.SASL_HANDSHAKE:
            self._receive_handshake(header, reader)
        elif header.api_key == ApiKeys.API_VERSIONS and self._state == HANDSHAKE_OR_VERSIONS:
            self._receive_api_versions(header, reader)
        else:
            name = ApiKeys.name_of(header.api_key)
            raise errors.IllegalSaslStateError(f"a client sent {name} before it had authenticated")

    def _receive_api_versions(self, header: RequestHeader, reader: Reader) -> None:
        if not self._versions.is_api_enabled(header.api_key, header.api_version):
            header.api_version = 0
            self._respond(unsupported_version_response(self._versions), header)
            return
        ApiVersionsRequest.read(reader, header.api_version)
        self._respond(api_versions_response(self._versions), header)
        self._move_to(HANDSHAKE)

    def _receive_handshake(self, header: RequestHeader, reader: Reader) -> None:
        if not self._versions.is_api_enabled(header.api_key, header.api_version):
            raise errors.IllegalSaslStateError(f"SaslHandshake v{header.api_version} is not served here")
        mechanism = SaslHandshakeRequest.read(reader, header.api_version).mechanism
        enabled = list(self._security.mechanisms)
        if mechanism not in enabled:
            code = errors.UnsupportedSaslMechanismError.code
            self._respond(SaslHandshakeResponse(error_code=code, mechanisms=enabled), header)
            raise errors.UnsupportedSaslMechanismError(
                f"a client wants the mechanism {mechanism!r}, which is not enabled"
            )
        self._respond(SaslHandshakeResponse(mechanisms=enabled), header)
        self._is_raw = header.api_version == 0
        if self._mechanism in (None, mechanism):
            self._mechanism = mechanism
            self._server = new_sasl_server(mechanism, self._security, self._credentials, self._wall_ms, self._tokens)
        self._move_to(AUTHENTICATE)

    def _receive_authenticate(self, header: RequestHeader, reader: Reader, now_ms: int) -> None:
        is_enabled = self._versions.is_api_enabled(header.api_key, header.api_version)
        if header.api_key != ApiKeys.SASL_AUTHENTICATE or not is_enabled:
            name = ApiKeys.name_of(header.api_key)
            raise errors.IllegalSaslStateError(
                f"a client sent {name} v{header.api_version} instead of SaslAuthenticate"
            )
        token = SaslAuthenticateRequest.read(reader, header.api_version).auth_bytes
        try:
            challenge = self._evaluate(token, now_ms)
        except errors.SaslAuthenticationError as error:
            self._respond(SaslAuthenticateResponse(error_code=error.code, error_message=str(error)), header)
            raise
        response = SaslAuthenticateResponse(auth_bytes=challenge)
        if self.expiry_ms is not None and header.api_version >= 1:
            response.session_lifetime_ms = max(0, self.expiry_ms - now_ms)
        self._respond(response, header)

    def _evaluate(self, token: bytes, now_ms: int) -> bytes:
        """Return the server's answer to a token. If it is the last one, store the user and the end of the session."""
        server = self._server
        if server is None:
            raise errors.SaslAuthenticationError("Cannot change the mechanism during re-authentication")
        challenge = server.evaluate(token)
        if server.user is None:
            return challenge
        if self.user not in (None, server.user):
            raise errors.SaslAuthenticationError("Cannot change principals during re-authentication")
        self.user = server.user
        self.uses_token = server.uses_token
        self._server = None
        lifetimes_ms = []
        if self._max_reauth_ms > 0:
            lifetimes_ms.append(self._max_reauth_ms)
        if server.expiry_ms is not None:
            lifetimes_ms.append(min(server.expiry_ms - self._wall_ms(), _LONGEST_SESSION_MS))
        self.expiry_ms = now_ms + min(lifetimes_ms) if lifetimes_ms else None
        self._move_to(COMPLETE)
        return challenge

    def _respond(self, response: Response, header: RequestHeader) -> None:
        self._frames.append(encode_response(response, header.api_version, header.correlation_id).buffers())

    def _move_to(self, state: str) -> None:
        errors.check_move("an authentication", MOVES, self._state, state)
        self._state = state

    def __repr__(self) -> str:
        return f"SaslServerAuthenticator({self._mechanism}, {self.user}, {self._state})"


def _raw(token: bytes) -> list[BytesLike]:
    return [len(token).to_bytes(4, "big"), token]
