"""The computations and messages of SCRAM, for clients and servers (RFC 5802; Java: ScramFormatter, ScramMessages)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from typing import Final, NamedTuple

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
