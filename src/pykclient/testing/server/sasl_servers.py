"""The servers' side of SASL mechanisms, without I/O (Java: SaslServer)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Callable
from typing import Protocol

from pykclient.errors import SaslAuthenticationError
from pykclient.network.authenticator import oauth_bearer, plain, scram_formatter
from pykclient.network.authenticator.scram_formatter import ClientFirst, ScramCredential
from pykclient.testing.delegation_tokens import DelegationToken, DelegationTokens
from pykclient.testing.security import Security, UserCredentials, ValidToken


class SaslServer(Protocol):
    """The server's side of one exchange. Thread: loop."""

    @property
    def user(self) -> str | None:
        """The authenticated user; None before the exchange has succeeded."""

    @property
    def expiry_ms(self) -> int | None:
        """The wall clock time at which the credentials expire, if they do."""

    @property
    def uses_token(self) -> bool:
        """True if the client has logged in by a delegation token."""

    def evaluate(self, response: bytes) -> bytes:
        """Return the next challenge, or the outcome.

        Raises:
            SaslAuthenticationError: the client is refused. The message is sent to the client.
        """


def new_sasl_server(
    mechanism: str,
    security: Security,
    credentials: UserCredentials,
    wall_ms: Callable[[], int],
    tokens: DelegationTokens | None = None,
) -> SaslServer:
    """Return the server's side of an exchange of ``mechanism``. Without ``tokens``, no client can log in by one."""
    if mechanism == plain.MECHANISM:
        return PlainSaslServer(security)
    if mechanism == oauth_bearer.MECHANISM:
        validate = security.validate_token
        return OAuthBearerSaslServer(validate or (lambda token: validate_unsecured(token, wall_ms())))
    return ScramSaslServer(mechanism, credentials, tokens)


class PlainSaslServer:
    """Compares the password (Java: PlainSaslServer). Thread: loop."""

    __slots__ = ("_security", "expiry_ms", "user")

    uses_token: bool = False

    def __init__(self, security: Security) -> None:
        self._security = security
        self.user: str | None = None
        self.expiry_ms: int | None = None

    def evaluate(self, response: bytes) -> bytes:
        try:
            authzid, user, password = response.decode().split("\0")
        except ValueError:
            raise SaslAuthenticationError("Invalid SASL/PLAIN response: expected 3 tokens") from None
        expected = self._security.users.get(user)
        if not user or expected is None or not hmac.compare_digest(expected.encode(), password.encode()):
            raise SaslAuthenticationError("Authentication failed: Invalid username or password")
        if authzid not in ("", user):
            raise SaslAuthenticationError(
                "Authentication failed: Client requested an authorization id that is not its own"
            )
        self.user = user
        return b""


class ScramSaslServer:
    """Checks the client's proof, and gives its own (Java: ScramSaslServer). Thread: loop."""

    __slots__ = (
        "_credential",
        "_credentials",
        "_first",
        "_mechanism",
        "_server_first",
        "_token",
        "_tokens",
        "expiry_ms",
        "user",
    )

    def __init__(self, mechanism: str, credentials: UserCredentials, tokens: DelegationTokens | None = None) -> None:
        self._mechanism = mechanism
        self._credentials = credentials
        self._tokens = tokens
        self._token: DelegationToken | None = None
        self._first: ClientFirst | None = None
        self._credential: ScramCredential | None = None
        self._server_first = ""
        self.user: str | None = None
        self.expiry_ms: int | None = None

    def evaluate(self, response: bytes) -> bytes:
        try:
            return self._begin(response) if self._first is None else self._end(self._first, response)
        except ValueError as error:
            raise SaslAuthenticationError(f"Authentication failed: Invalid SCRAM message: {error}") from None

    @property
    def uses_token(self) -> bool:
        return self._token is not None

    def _refused(self) -> SaslAuthenticationError:
        return SaslAuthenticationError(
            f"Authentication failed during authentication due to invalid credentials with SASL mechanism "
            f"{self._mechanism}"
        )

    def _begin(self, response: bytes) -> bytes:
        first = scram_formatter.parse_client_first(response)
        if first.extensions.get("tokenauth", "").lower() == "true":
            self._credential = self._credential_of_token(first.username)
        else:
            self._credential = self._credentials.scram(first.username, self._mechanism)
        if self._credential is None or first.authzid not in ("", first.username):
            raise self._refused()
        self._first = first
        nonce = first.nonce + base64.b64encode(secrets.token_bytes(24)).decode()
        salt = scram_formatter.encoded(self._credential.salt)
        self._server_first = f"r={nonce},s={salt},i={self._credential.iterations}"
        return self._server_first.encode()

    def _credential_of_token(self, token_id: str) -> ScramCredential | None:
        """Return the credential of a delegation token; None if the token is unknown or has expired."""
        self._token = None if self._tokens is None else self._tokens.token(token_id)
        if self._tokens is None or self._token is None:
            return None
        return self._tokens.credential(token_id, self._mechanism)

    def _end(self, first: ClientFirst, response: bytes) -> bytes:
        final = scram_formatter.parse_client_final(response)
        kept = self._credential
        assert kept is not None
        if final.nonce != self._server_first.partition(",")[0][2:] or final.binding != scram_formatter.GS2_HEADER:
            raise self._refused()
        message = ",".join((first.bare, self._server_first, final.without_proof)).encode()
        signature = scram_formatter.sign(self._mechanism, kept.stored_key, message)
        if len(final.proof) != len(signature):
            raise self._refused()
        client_key = scram_formatter.xor(final.proof, signature)
        stored_key = hashlib.new(scram_formatter.HASHES[self._mechanism], client_key).digest()
        if not hmac.compare_digest(stored_key, kept.stored_key):
            raise self._refused()
        if self._token is None:
            self.user = first.username
        else:
            self.user = self._token.owner.partition(":")[2]
            self.expiry_ms = self._token.expiry_ms
        return b"v=" + scram_formatter.encoded(scram_formatter.sign(self._mechanism, kept.server_key, message)).encode()


class OAuthBearerSaslServer:
    """Validates the token (Java: OAuthBearerSaslServer). Thread: loop."""

    __slots__ = ("_problem", "_validate", "expiry_ms", "user")

    uses_token: bool = False

    def __init__(self, validate: Callable[[str], ValidToken]) -> None:
        self._validate = validate
        self._problem: str | None = None
        self.user: str | None = None
        self.expiry_ms: int | None = None

    def evaluate(self, response: bytes) -> bytes:
        if self._problem is not None:
            raise SaslAuthenticationError(f"Authentication failed: {self._problem}")
        try:
            initial = oauth_bearer.parse_initial_response(response)
        except ValueError as error:
            raise SaslAuthenticationError(f"Authentication failed: Invalid OAUTHBEARER message: {error}") from None
        try:
            valid = self._validate(initial.token)
        except ValueError as error:
            self._problem = str(error)
            return json.dumps({"status": "invalid_token"}).encode()
        if initial.authzid not in ("", valid.principal):
            raise SaslAuthenticationError(
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
