"""A broker's side of SASL authentication (Java: SaslServerAuthenticator)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from pykclient.errors import (
    AuthenticationError,
    IllegalSaslStateError,
    IllegalStateError,
    RemoteProtocolError,
    SaslAuthenticationError,
    UnsupportedSaslMechanismError,
)
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.headers import encode_response, parse_request_header
from pykclient.protocol.messages.api_versions import ApiVersionsRequest
from pykclient.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from pykclient.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from pykclient.protocol.wire import Reader
from pykclient.testing.handlers.api_versions import api_versions_response, unsupported_version_response
from pykclient.testing.security import Security, UserCredentials
from pykclient.testing.server.sasl_servers import SaslServer, new_sasl_server

if TYPE_CHECKING:
    from pykclient.network.network_receive import Frame
    from pykclient.network.network_send import BytesLike
    from pykclient.protocol.headers import RequestHeader
    from pykclient.protocol.message import Response
    from pykclient.testing.delegation_tokens import DelegationTokens
    from pykclient.testing.server.api_version_manager import ApiVersionManager

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


class SaslServerAuthenticator:
    """An ``Authenticator`` for brokers. Thread: loop."""

    __slots__ = (
        "_credentials",
        "_frames",
        "_is_raw",
        "_max_reauth_ms",
        "_mechanism",
        "_security",
        "_server",
        "_state",
        "_tokens",
        "_versions",
        "_wall_ms",
        "expiry_ms",
        "user",
        "uses_token",
    )

    def __init__(
        self,
        security: Security,
        credentials: UserCredentials,
        versions: ApiVersionManager,
        wall_ms: Callable[[], int],
        max_reauth_ms: int,
        tokens: DelegationTokens | None = None,
    ) -> None:
        self._security = security
        self._max_reauth_ms = max_reauth_ms  # 0: sessions have no limit
        self._credentials = credentials
        self._versions = versions
        self._tokens = tokens
        self._wall_ms = wall_ms
        self._state = HANDSHAKE_OR_VERSIONS
        self._frames: list[Sequence[BytesLike]] = []
        self._is_raw = False  # True if the client sends tokens without headers
        self._mechanism: str | None = None
        self._server: SaslServer | None = None
        self.user: str | None = None
        #: When the session ends, by the loop's clock; None if never (KIP-368).
        self.expiry_ms: int | None = None
        #: True if the client has logged in by a delegation token.
        self.uses_token = False

    @property
    def complete(self) -> bool:
        return self._state == COMPLETE

    @property
    def reauthenticate_ms(self) -> int | None:
        return None  # the client decides

    @property
    def session(self) -> SaslServerAuthenticator:
        return self

    def start(self, resume: Callable[[], object]) -> None:
        """Do nothing, as it never waits."""

    def next_frame(self, now_ms: int) -> Sequence[BytesLike] | None:  # noqa: ARG002 - the seam's signature
        return self._frames.pop(0) if self._frames else None

    def begin_reauthentication(self) -> None:
        self._move_to(HANDSHAKE)
        self.expiry_ms = None

    def close(self) -> None:
        """Do nothing, as there are no resources."""

    # --- receiving ---------------------------------------------------------------------------------------------------

    def receive(self, frame: Frame, now_ms: int) -> bool:
        try:
            self._receive(frame, now_ms)
        except RemoteProtocolError as error:
            self._move_to(FAILED)
            raise IllegalSaslStateError(f"a client's request is unreadable: {error}") from error
        except AuthenticationError:
            self._move_to(FAILED)
            raise
        return True

    def _receive(self, frame: Frame, now_ms: int) -> None:
        if len(frame) > _MOST_BYTES:
            raise IllegalSaslStateError(f"a client sent {len(frame)} bytes before it had authenticated")
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
            raise IllegalSaslStateError(f"a client sent {name} before it had authenticated")

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
            raise IllegalSaslStateError(f"SaslHandshake v{header.api_version} is not served here")
        mechanism = SaslHandshakeRequest.read(reader, header.api_version).mechanism
        enabled = list(self._security.mechanisms)
        if mechanism not in enabled:
            code = UnsupportedSaslMechanismError.code
            self._respond(SaslHandshakeResponse(error_code=code, mechanisms=enabled), header)
            raise UnsupportedSaslMechanismError(f"a client wants the mechanism {mechanism!r}, which is not enabled")
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
            raise IllegalSaslStateError(f"a client sent {name} v{header.api_version} instead of SaslAuthenticate")
        token = SaslAuthenticateRequest.read(reader, header.api_version).auth_bytes
        try:
            challenge = self._evaluate(token, now_ms)
        except SaslAuthenticationError as error:
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
            raise SaslAuthenticationError("Cannot change the mechanism during re-authentication")
        challenge = server.evaluate(token)
        if server.user is None:
            return challenge
        if self.user not in (None, server.user):
            raise SaslAuthenticationError("Cannot change principals during re-authentication")
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
        if state not in MOVES[self._state]:
            raise IllegalStateError(f"an authentication cannot go from {self._state} to {state}")
        self._state = state

    def __repr__(self) -> str:
        return f"SaslServerAuthenticator({self._mechanism}, {self.user}, {self._state})"


def _raw(token: bytes) -> list[BytesLike]:
    return [len(token).to_bytes(4, "big"), token]
