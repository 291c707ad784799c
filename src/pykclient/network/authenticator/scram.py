"""SASL SCRAM-SHA-256 and SCRAM-SHA-512: passwords that do not cross the network (RFC 5802, RFC 7677)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from typing import Final, NamedTuple

from pykclient.config.config_def import Password, white_space_remark
from pykclient.errors import SaslAuthenticationError

#: The mechanisms, and the names of their hash functions.
HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
#: The fewest iterations that Kafka accepts, on either side.
MIN_ITERATIONS: Final = 4096
#: The most iterations that a client computes. Kafka allows 16,384; more cost the client noticeable time, during which a
#: hostile server would keep it busy.
MAX_ITERATIONS: Final = 131_072
#: The header for a client without channel binding and without another identity to act as.
GS2_HEADER: Final = b"n,,"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_SASLNAME = r"(?:[^,=\x00]|=2C|=3D)+"
_EXTENSIONS = r"(?:,[A-Za-z]+=[^,\x00]*)*"
_BASE64 = r"[A-Za-z0-9+/]+={0,2}"
_CLIENT_FIRST = re.compile(
    rf"n,(?:a=(?P<authzid>{_SASLNAME}))?,(?:m=[^,\x00]+,)?n=(?P<username>{_SASLNAME}),r=(?P<nonce>{_NONCE})"
    rf"(?P<extensions>{_EXTENSIONS})"
)
_SERVER_FIRST = re.compile(
    rf"(?:m=[^,\x00]+,)?r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,10}}){_EXTENSIONS}"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<without_proof>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL = re.compile(rf"(?:e=(?P<error>[^,\x00]+)|v=(?P<signature>{_BASE64})){_EXTENSIONS}")


class ScramCredential(NamedTuple):
    """The values that a server keeps about a user's password (Java: ScramCredential)."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential({self.iterations} iterations)"


class ClientFirst(NamedTuple):
    """The client's first message."""

    username: str
    authzid: str
    nonce: str
    extensions: dict[str, str]
    bare: str


class ServerFirst(NamedTuple):
    """The server's first message."""

    nonce: str
    salt: bytes
    iterations: int


class ClientFinal(NamedTuple):
    """The client's last message."""

    binding: bytes
    nonce: str
    proof: bytes
    without_proof: str


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the password after ``iterations`` rounds of hashing with ``salt``."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def credential(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Return what a server keeps about a salted password."""
    stored_key = hashlib.new(HASHES[mechanism], sign(mechanism, salted, b"Client Key")).digest()
    return ScramCredential(salt, stored_key, sign(mechanism, salted, b"Server Key"), iterations)


def sign(mechanism: str, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, HASHES[mechanism])


def client_proof(mechanism: str, salted: bytes, auth_message: bytes) -> bytes:
    """Return the proof that the client knows the salted password."""
    client_key = sign(mechanism, salted, b"Client Key")
    stored_key = hashlib.new(HASHES[mechanism], client_key).digest()
    return xor(client_key, sign(mechanism, stored_key, auth_message))


def server_signature(mechanism: str, salted: bytes, auth_message: bytes) -> bytes:
    """Return the proof that the server knows the user's credential."""
    return sign(mechanism, sign(mechanism, salted, b"Server Key"), auth_message)


def xor(first: bytes, second: bytes) -> bytes:
    return (int.from_bytes(first, "big") ^ int.from_bytes(second, "big")).to_bytes(len(first), "big")


def escaped(username: str) -> str:
    return username.replace("=", "=3D").replace(",", "=2C")


def unescaped(saslname: str) -> str:
    return saslname.replace("=2C", ",").replace("=3D", "=")


def parse_client_first(message: bytes) -> ClientFirst:
    """Return the parts of a client's first message.

    Raises:
        ValueError: the message is malformed.
    """
    text, match = _match(_CLIENT_FIRST, message)
    pairs = [pair.split("=", 1) for pair in match["extensions"].split(",")[1:]]
    return ClientFirst(
        unescaped(match["username"]),
        unescaped(match["authzid"] or ""),
        match["nonce"],
        dict(pairs),
        text[match.start("username") - 2 :],
    )


def parse_server_first(message: bytes) -> ServerFirst:
    """Return the parts of a server's first message.

    Raises:
        ValueError: the message is malformed.
    """
    _, match = _match(_SERVER_FIRST, message)
    return ServerFirst(match["nonce"], _decoded(match["salt"]), int(match["iterations"]))


def parse_client_final(message: bytes) -> ClientFinal:
    """Return the parts of a client's last message.

    Raises:
        ValueError: the message is malformed.
    """
    _, match = _match(_CLIENT_FINAL, message)
    return ClientFinal(_decoded(match["binding"]), match["nonce"], _decoded(match["proof"]), match["without_proof"])


def parse_server_final(message: bytes) -> tuple[str | None, bytes]:
    """Return the error of a server's last message, or None and the server's signature.

    Raises:
        ValueError: the message is malformed.
    """
    _, match = _match(_SERVER_FINAL, message)
    return match["error"], _decoded(match["signature"] or "")


def encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _match(pattern: re.Pattern[str], message: bytes) -> tuple[str, re.Match[str]]:
    text = message.decode()  # UnicodeDecodeError is a ValueError
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError("the message is malformed")
    return text, match


def _decoded(text: str) -> bytes:
    try:
        value = base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("a value is not valid base 64") from None
    if encoded(value) != text:  # its unused bits are not 0 (RFC 4648, section 3.5)
        raise ValueError("a value is not canonical base 64")
    return value


#: Salted passwords that a login keeps. A user has one salt, so more are only there if the password changes.
_CACHED: Final = 8
_FIRST, _CHALLENGED, _PROVEN, _COMPLETE = "FIRST", "CHALLENGED", "PROVEN", "COMPLETE"


class _User:
    """A user name, a password, and what salts have made of the password. Thread: io."""

    def __init__(self, mechanism: str, name: str, password: Password) -> None:
        self._mechanism = mechanism
        self._password = password
        self.name = name
        self.known: dict[tuple[bytes, int], bytes] = {}

    def salted(self, salt: bytes, iterations: int) -> bytes:
        """Return the salted password, computed only once because that takes milliseconds."""
        salted = self.known.get((salt, iterations))
        if salted is None:
            salted = salted_password(self._mechanism, self._password.value, salt, iterations)
            while len(self.known) >= _CACHED:
                del self.known[next(iter(self.known))]
            self.known[salt, iterations] = salted
        return salted


class ScramLogin:
    """A user name and a password, or a delegation token's id and its HMAC. Thread: io, but for ``set_credentials``."""

    def __init__(self, mechanism: str, username: str, password: Password, *, is_token: bool = False) -> None:
        self.mechanism = mechanism
        self._is_token = is_token
        self.set_credentials(username, password)

    def set_credentials(self, username: str, password: Password) -> None:
        """Use another user for the connections that are made from now on. Thread: any."""
        self._user = _User(self.mechanism, username, password)
        self.remedy = (
            "check the delegation token's id and HMAC, and whether it has expired"
            if self._is_token
            else "check the user name, the password and the mechanism for which the user has credentials"
        ) + white_space_remark(password.value)

    def new_client(self, host: str, on_ready: Callable[[], object]) -> ScramSaslClient:  # noqa: ARG002
        nonce = base64.b64encode(secrets.token_bytes(24)).decode()
        user = self._user
        return ScramSaslClient(self.mechanism, user.name, user.salted, nonce, is_token=self._is_token)

    def close(self) -> None:
        """Do nothing, as there are no resources."""

    def __repr__(self) -> str:
        return f"ScramLogin({self.mechanism}, {self._user.name!r})"


class ScramSaslClient:
    """An exchange in which each side proves that it knows the password (Java: ScramSaslClient). Thread: io."""

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
        self._first_bare = f"n={escaped(username)},r={nonce}{extension}"
        self._state = _FIRST
        self._salted = self._auth_message = b""

    @property
    def complete(self) -> bool:
        return self._state == _COMPLETE

    def initial(self) -> bytes:
        self._state = _CHALLENGED
        return GS2_HEADER + self._first_bare.encode()

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
            first = parse_server_first(challenge)
        except ValueError as error:
            raise self._invalid(str(error)) from None
        if not first.nonce.startswith(self._nonce) or len(first.nonce) == len(self._nonce):
            raise self._invalid("its nonce does not continue the client's")
        if not MIN_ITERATIONS <= first.iterations <= MAX_ITERATIONS:
            raise self._invalid(
                f"it asks for {first.iterations} iterations, outside of {MIN_ITERATIONS} to {MAX_ITERATIONS}"
            )
        self._salted = self._salt(first.salt, first.iterations)
        without_proof = f"c={encoded(GS2_HEADER)},r={first.nonce}"
        self._auth_message = b",".join((self._first_bare.encode(), challenge, without_proof.encode()))
        proof = client_proof(self._mechanism, self._salted, self._auth_message)
        return f"{without_proof},p={encoded(proof)}".encode()

    def _verify(self, challenge: bytes) -> None:
        """Check the server's proof in its last message."""
        try:
            error, signature = parse_server_final(challenge)
        except ValueError as problem:
            raise self._invalid(str(problem)) from None
        if error is not None:
            raise SaslAuthenticationError(f"the broker ended the exchange: {error}")
        if not hmac.compare_digest(signature, server_signature(self._mechanism, self._salted, self._auth_message)):
            raise self._invalid("its signature is wrong, so it does not know the user's credentials")

    def _invalid(self, problem: str) -> SaslAuthenticationError:
        return SaslAuthenticationError(f"the broker's {self._mechanism} exchange is invalid: {problem}")
