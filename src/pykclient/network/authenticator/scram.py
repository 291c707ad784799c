"""SASL SCRAM-SHA-256 and SCRAM-SHA-512: passwords that do not cross the network (RFC 5802, RFC 7677)."""

from __future__ import annotations

import base64
import hmac
import secrets
from collections.abc import Callable
from typing import Final

from pykclient.config.config_def import Password, white_space_remark
from pykclient.errors import SaslAuthenticationError
from pykclient.network.authenticator import scram_formatter as formatter

#: Salted passwords that a login keeps. A user has one salt, so more are only there if the password changes.
_CACHED: Final = 8

_FIRST, _CHALLENGED, _PROVEN, _COMPLETE = "FIRST", "CHALLENGED", "PROVEN", "COMPLETE"


class ScramLogin:
    """A user name and a password, or a delegation token's id and its HMAC. Thread: io."""

    __slots__ = ("_is_token", "_password", "_salted", "_username", "mechanism", "remedy")

    def __init__(self, mechanism: str, username: str, password: Password, *, is_token: bool = False) -> None:
        self.mechanism = mechanism
        self._username = username
        self._password = password
        self._is_token = is_token
        self.remedy = (
            "check the delegation token's id and HMAC, and whether it has expired"
            if is_token
            else "check the user name, the password and the mechanism for which the user has credentials"
        ) + white_space_remark(password.value)
        self._salted: dict[tuple[bytes, int], bytes] = {}

    def new_client(self, host: str, on_ready: Callable[[], object]) -> ScramSaslClient:  # noqa: ARG002
        nonce = base64.b64encode(secrets.token_bytes(24)).decode()
        return ScramSaslClient(self.mechanism, self._username, self._salt, nonce, is_token=self._is_token)

    def _salt(self, salt: bytes, iterations: int) -> bytes:
        """Return the salted password, computed only once because that takes milliseconds."""
        salted = self._salted.get((salt, iterations))
        if salted is None:
            salted = formatter.salted_password(self.mechanism, self._password.value, salt, iterations)
            while len(self._salted) >= _CACHED:
                del self._salted[next(iter(self._salted))]
            self._salted[salt, iterations] = salted
        return salted

    def close(self) -> None:
        """Do nothing, as there are no resources."""

    def __repr__(self) -> str:
        return f"ScramLogin({self.mechanism}, {self._username!r})"


class ScramSaslClient:
    """An exchange in which each side proves that it knows the password (Java: ScramSaslClient). Thread: io."""

    __slots__ = ("_auth_message", "_first_bare", "_mechanism", "_nonce", "_salt", "_salted", "_state")

    def __init__(
        self,
        mechanism: str,
        username: str,
        salt: Callable[[bytes, int], bytes],
        nonce: str,
        *,
        is_token: bool = False,
    ) -> None:
        """Prepare the exchange. ``salt`` returns the password hashed with a salt in a number of iterations."""
        self._mechanism = mechanism
        self._salt = salt
        self._nonce = nonce
        extension = ",tokenauth=true" if is_token else ""
        self._first_bare = f"n={formatter.escaped(username)},r={nonce}{extension}"
        self._state = _FIRST
        self._salted = self._auth_message = b""

    @property
    def complete(self) -> bool:
        return self._state == _COMPLETE

    def initial(self) -> bytes:
        self._state = _CHALLENGED
        return formatter.GS2_HEADER + self._first_bare.encode()

    def evaluate(self, challenge: bytes) -> bytes | None:
        if self._state == _CHALLENGED:
            self._state = _PROVEN
            return self._prove(challenge)
        if self._state == _PROVEN:
            self._verify(challenge)
            self._state = _COMPLETE
            return None
        raise self._invalid("it sent a message out of turn")

    def _prove(self, challenge: bytes) -> bytes:
        """Answer the server's first message."""
        try:
            first = formatter.parse_server_first(challenge)
        except ValueError as error:
            raise self._invalid(str(error)) from None
        if not first.nonce.startswith(self._nonce) or len(first.nonce) == len(self._nonce):
            raise self._invalid("its nonce does not continue the client's")
        if not formatter.MIN_ITERATIONS <= first.iterations <= formatter.MAX_ITERATIONS:
            raise self._invalid(
                f"it asks for {first.iterations} iterations, outside of "
                f"{formatter.MIN_ITERATIONS} to {formatter.MAX_ITERATIONS}"
            )
        self._salted = self._salt(first.salt, first.iterations)
        without_proof = f"c={formatter.encoded(formatter.GS2_HEADER)},r={first.nonce}"
        self._auth_message = b",".join((self._first_bare.encode(), challenge, without_proof.encode()))
        proof = formatter.client_proof(self._mechanism, self._salted, self._auth_message)
        return f"{without_proof},p={formatter.encoded(proof)}".encode()

    def _verify(self, challenge: bytes) -> None:
        """Check the server's proof in its last message."""
        try:
            error, signature = formatter.parse_server_final(challenge)
        except ValueError as problem:
            raise self._invalid(str(problem)) from None
        if error is not None:
            raise SaslAuthenticationError(f"the broker ended the exchange: {error}")
        if not hmac.compare_digest(
            signature, formatter.server_signature(self._mechanism, self._salted, self._auth_message)
        ):
            raise self._invalid("its signature is wrong, so it does not know the user's credentials")

    def _invalid(self, problem: str) -> SaslAuthenticationError:
        return SaslAuthenticationError(f"the broker's {self._mechanism} exchange is invalid: {problem}")
