"""A client's side of SASL authentication (Java: SaslClientAuthenticator)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final, cast

from pykclient.errors import (
    AuthenticationError,
    IllegalSaslStateError,
    ProtocolError,
    SaslAuthenticationError,
    UnsupportedSaslMechanismError,
    check_move,
    for_code,
)
from pykclient.network.authenticator import Authenticator
from pykclient.network.authenticator.sasl_client import Login, SaslClient
from pykclient.network.failures import shown_text
from pykclient.network.frames import Frame
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.headers import encode_request, parse_response
from pykclient.protocol.message import Request, Response
from pykclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykclient.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from pykclient.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from pykclient.protocol.wire import BytesLike

SEND_API_VERSIONS: Final = "SEND_API_VERSIONS"
RECEIVE_API_VERSIONS: Final = "RECEIVE_API_VERSIONS"
SEND_HANDSHAKE: Final = "SEND_HANDSHAKE"
RECEIVE_HANDSHAKE: Final = "RECEIVE_HANDSHAKE"
INITIAL: Final = "INITIAL"
SEND_TOKEN: Final = "SEND_TOKEN"  # noqa: S105 - a state
RECEIVE_TOKEN: Final = "RECEIVE_TOKEN"  # noqa: S105
COMPLETE: Final = "COMPLETE"
FAILED: Final = "FAILED"

#: The valid next states of each state. In INITIAL the client may wait for its credentials. A session that expires
#: starts again with the handshake, because the broker's versions are known.
MOVES: Final[dict[str, frozenset[str]]] = {
    SEND_API_VERSIONS: frozenset((RECEIVE_API_VERSIONS, FAILED)),
    RECEIVE_API_VERSIONS: frozenset((SEND_HANDSHAKE, FAILED)),
    SEND_HANDSHAKE: frozenset((RECEIVE_HANDSHAKE, FAILED)),
    RECEIVE_HANDSHAKE: frozenset((INITIAL, FAILED)),
    INITIAL: frozenset((RECEIVE_TOKEN, FAILED)),
    RECEIVE_TOKEN: frozenset((SEND_TOKEN, COMPLETE, FAILED)),
    SEND_TOKEN: frozenset((RECEIVE_TOKEN, COMPLETE, FAILED)),
    COMPLETE: frozenset((SEND_HANDSHAKE, FAILED)),
    FAILED: frozenset(),
}

#: Correlation ids that NetworkClient never uses. So while a connection authenticates again, a response to one of its
#: requests cannot be mistaken for one of this exchange.
_FIRST_CORRELATION_ID: Final = (1 << 31) - 8
_LAST_CORRELATION_ID: Final = (1 << 31) - 1

#: The most tokens that a client sends in one exchange. Kerberos needs about four.
_MOST_TOKENS: Final = 16

#: The largest response that a client accepts, in bytes. Kerberos tickets have some kilobytes.
_MOST_BYTES: Final = 512 * 1024

#: The fraction of a session's lifetime after which the client authenticates again: at least, and added at random.
_REAUTHENTICATION_FACTOR: Final = 0.85
_REAUTHENTICATION_JITTER: Final = 0.10

#: The characters of a broker's error message that are shown.
_MOST_SHOWN: Final = 500


class SaslClientAuthenticator(Authenticator):
    """An ``Authenticator`` for clients: versions, handshake, then the tokens of a mechanism.

    Brokers before 1.0 exchange tokens without headers; the version of their handshake tells. Thread: io.
    """

    def __init__(self, login: Login, host: str, port: int, client_id: str, rng: random.Random) -> None:
        """Prepare the authentication with the broker at ``host`` and ``port``."""
        self._login = login
        self._host = host
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._client_id = client_id
        self._rng = rng
        self._state = SEND_API_VERSIONS
        self._versions: dict[int, int] = {}  # the newest versions that both the broker and this client know
        self._authenticate_version: int | None = None  # None: tokens have no headers
        self._correlation_id = _LAST_CORRELATION_ID
        self._client: SaslClient | None = None
        self._token = b""
        self._sent_tokens = 0
        self._session_lifetime_ms = 0
        self._is_again = False  # True if the connection was in use, so that responses to its requests may arrive
        self._resume: Callable[[], object] = bool

    @property
    def complete(self) -> bool:
        return self._state == COMPLETE

    def start(self, resume: Callable[[], object]) -> None:
        self._resume = resume

    def begin_reauthentication(self) -> None:
        self._move_to(SEND_HANDSHAKE)
        self._is_again = True
        self.reauthenticate_ms = None

    # --- sending -----------------------------------------------------------------------------------------------------

    def next_frame(self, now_ms: int) -> Sequence[BytesLike] | None:
        try:
            return self._next_frame(now_ms)
        except AuthenticationError as error:
            raise self._failed(error) from error.__cause__

    def _next_frame(self, now_ms: int) -> Sequence[BytesLike] | None:
        if self._state == SEND_API_VERSIONS:
            # Version 0, because an old broker takes anything it does not know for a token.
            self._move_to(RECEIVE_API_VERSIONS)
            return self._request(ApiVersionsRequest(), 0)
        if self._state == SEND_HANDSHAKE:
            self._move_to(RECEIVE_HANDSHAKE)
            version = self._versions[ApiKeys.SASL_HANDSHAKE]
            self._authenticate_version = self._versions.get(ApiKeys.SASL_AUTHENTICATE) if version > 0 else None
            return self._request(SaslHandshakeRequest(mechanism=self._login.mechanism), version)
        if self._state == INITIAL:
            try:
                self._client = self._login.new_client(self._host, self._resume)
                if self._client is None:
                    return None
                token = self._client.initial()
            except ValueError:  # whose text may show a part of the credentials
                raise SaslAuthenticationError(
                    f"the credentials cannot be sent, because they are not valid text ({self._login.remedy})"
                ) from None
            self._sent_tokens = 0
            return self._send_token(token, now_ms)
        if self._state == SEND_TOKEN:
            return self._send_token(self._token, now_ms)
        return None

    def _send_token(self, token: bytes, now_ms: int) -> Sequence[BytesLike]:
        self._token = b""
        self._sent_tokens += 1
        if self._sent_tokens > _MOST_TOKENS:
            raise SaslAuthenticationError(f"the broker sent more than {_MOST_TOKENS} challenges")
        if self._authenticate_version is not None:
            self._move_to(RECEIVE_TOKEN)
            return self._request(SaslAuthenticateRequest(auth_bytes=token), self._authenticate_version)
        if self._sent_tokens > 1 and self._is_client_complete:
            self._completed(now_ms)  # the broker does not respond to the last token
        else:
            self._move_to(RECEIVE_TOKEN)
        return [len(token).to_bytes(4, "big"), token]

    def _request(self, request: Request, version: int) -> list[BytesLike]:
        if self._correlation_id >= _LAST_CORRELATION_ID:
            self._correlation_id = _FIRST_CORRELATION_ID
        else:
            self._correlation_id += 1
        return encode_request(request, version, self._correlation_id, self._client_id).buffers()

    # --- receiving ---------------------------------------------------------------------------------------------------

    def receive(self, frame: Frame, now_ms: int) -> bool:
        if self._is_again and int.from_bytes(frame[:4], "big", signed=True) < _FIRST_CORRELATION_ID:
            return False
        try:
            self._receive(frame, now_ms)
        except AuthenticationError as error:
            raise self._failed(error) from error.__cause__
        return True

    def _receive(self, frame: Frame, now_ms: int) -> None:
        if len(frame) > _MOST_BYTES:
            raise IllegalSaslStateError(f"the broker's response has {len(frame)} bytes, more than {_MOST_BYTES}")
        if self._state == RECEIVE_API_VERSIONS:
            self._receive_api_versions(cast(ApiVersionsResponse, self._response(frame, ApiKeys.API_VERSIONS, 0)))
        elif self._state == RECEIVE_HANDSHAKE:
            version = self._versions[ApiKeys.SASL_HANDSHAKE]
            response = self._response(frame, ApiKeys.SASL_HANDSHAKE, version)
            self._receive_handshake(cast(SaslHandshakeResponse, response))
        elif self._state != RECEIVE_TOKEN:
            raise IllegalSaslStateError(f"the broker sent a response that it was not asked for (in {self._state})")
        elif self._authenticate_version is None:
            self._receive_token(bytes(frame), now_ms)
        else:
            response = self._response(frame, ApiKeys.SASL_AUTHENTICATE, self._authenticate_version)
            self._receive_authenticate(cast(SaslAuthenticateResponse, response), now_ms)

    def _response(self, frame: Frame, api_key: int, version: int) -> Response:
        try:
            correlation_id, response = parse_response(frame, api_key, version)
        except ProtocolError as error:
            raise IllegalSaslStateError(
                f"the broker's response to {ApiKeys.name_of(api_key)} is unreadable ({error}); "
                "check that the port is that of a Kafka listener"
            ) from error
        if correlation_id != self._correlation_id:
            raise IllegalSaslStateError(
                f"the broker responded to request {correlation_id} instead of {self._correlation_id}"
            )
        return response

    def _receive_api_versions(self, response: ApiVersionsResponse) -> None:
        if response.error_code:
            raise IllegalSaslStateError(
                f"the broker rejected the request for its versions: {for_code(response.error_code)}"
            )
        for api in response.api_keys:
            if api.api_key in (ApiKeys.SASL_HANDSHAKE, ApiKeys.SASL_AUTHENTICATE) and api.max_version >= 0:
                self._versions[api.api_key] = min(api.max_version, ApiKeys.latest_version(api.api_key))
        if ApiKeys.SASL_HANDSHAKE not in self._versions:
            raise IllegalSaslStateError("the broker does not support SaslHandshake")
        self._move_to(SEND_HANDSHAKE)

    def _receive_handshake(self, response: SaslHandshakeResponse) -> None:
        mechanism = self._login.mechanism
        if response.error_code == UnsupportedSaslMechanismError.code:
            enabled = shown_text(", ".join(response.mechanisms), _MOST_SHOWN) or "none"
            raise UnsupportedSaslMechanismError(
                f"the broker's listener does not have this mechanism enabled, only {enabled}; set sasl.mechanism to "
                "one of these"
            )
        if response.error_code == IllegalSaslStateError.code:
            raise IllegalSaslStateError(
                "the listener does not use SASL; set security.protocol to PLAINTEXT or SSL, or connect to a port with "
                "SASL"
            )
        if response.error_code:
            raise IllegalSaslStateError(
                f"the broker rejected the handshake for {mechanism}: {for_code(response.error_code)}"
            )
        self._move_to(INITIAL)

    def _receive_authenticate(self, response: SaslAuthenticateResponse, now_ms: int) -> None:
        error = for_code(response.error_code)
        if error is not None:
            error_class = type(error) if isinstance(error, AuthenticationError) else SaslAuthenticationError
            message = shown_text(response.error_message or str(error), _MOST_SHOWN)
            raise error_class(f"the broker refused: {message} ({self._login.remedy})")
        self._session_lifetime_ms = response.session_lifetime_ms
        self._receive_token(response.auth_bytes, now_ms)

    def _receive_token(self, challenge: bytes, now_ms: int) -> None:
        client = self._client
        assert client is not None
        if client.complete:
            self._completed(now_ms)
            return
        answer = client.evaluate(challenge)
        if answer is not None:
            self._token = answer
            self._move_to(SEND_TOKEN)
        elif client.complete:
            self._completed(now_ms)
        else:
            raise SaslAuthenticationError("the broker's challenge has no answer")

    @property
    def _is_client_complete(self) -> bool:
        return self._client is not None and self._client.complete

    def _completed(self, now_ms: int) -> None:
        self._move_to(COMPLETE)
        self._client = None
        lifetime_ms, self._session_lifetime_ms = self._session_lifetime_ms, 0
        if lifetime_ms > 0:
            factor = _REAUTHENTICATION_FACTOR + self._rng.random() * _REAUTHENTICATION_JITTER
            self.reauthenticate_ms = now_ms + int(lifetime_ms * factor)

    # --- state -------------------------------------------------------------------------------------------------------

    def _move_to(self, state: str) -> None:
        check_move("an authentication", MOVES, self._state, state)
        self._state = state

    def _failed(self, error: AuthenticationError) -> AuthenticationError:
        """Return the error with the broker's address and the mechanism, for the user."""
        self._move_to(FAILED)
        self._client = None
        return type(error)(f"Authentication with {self._address} by {self._login.mechanism} failed: {error}")

    def close(self) -> None:
        self._resume = bool
        self._client = None

    def __repr__(self) -> str:
        return f"SaslClientAuthenticator({self._login.mechanism}, {self._address}, {self._state})"
