"""SASL OAUTHBEARER: a token that someone else has issued (RFC 7628; Java: OAuthBearerSaslClient)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from pykclient.errors import SaslAuthenticationError
from pykclient.network.connection_failures import shown_text

MECHANISM: Final = "OAUTHBEARER"

#: The client's answer to the server's description of an error, which ends the exchange.
END: Final = b"\x01"

_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")
_TOKEN = re.compile(r"[\x21-\x7e]+")
_INITIAL = re.compile(
    r"n,(?:a=(?P<authzid>(?:[^,=\x00\x01]|=2C|=3D)+))?,\x01auth=(?i:bearer) +(?P<token>[\x21-\x7e]+)"
    r"(?P<extensions>(?:\x01(?!auth=)[A-Za-z]+=[\x21-\x7e \t\r\n]+)*)\x01\x01"
)


class BearerToken(NamedTuple):
    """A token and its extensions. ``expiry_ms`` is by the wall clock; None if unknown. Its repr does not show it."""

    value: str
    expiry_ms: int | None = None
    extensions: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"BearerToken([hidden], expiry_ms={self.expiry_ms}, extensions={sorted(self.extensions)})"


class InitialResponse(NamedTuple):
    """The only message of a client that is not an end."""

    authzid: str
    token: str
    extensions: dict[str, str]


def check(token: BearerToken) -> None:
    """Check that a token can be sent.

    Raises:
        ValueError: it contains characters that are not allowed. The error does not show them.
    """
    if not _TOKEN.fullmatch(token.value):
        raise ValueError("the token is empty or has characters that no token has")
    for name, value in token.extensions.items():
        if not _EXTENSION_NAME.fullmatch(name) or name.lower() == "auth":
            raise ValueError(f"{name!r} cannot be the name of an extension")
        if not _EXTENSION_VALUE.fullmatch(value):
            raise ValueError(f"the extension {name} is empty or has characters that are not allowed")


def initial_response(token: BearerToken) -> bytes:
    """Return the client's first message."""
    extensions = "".join(f"\x01{name}={value}" for name, value in token.extensions.items())
    return f"n,,\x01auth=Bearer {token.value}{extensions}\x01\x01".encode()


def parse_initial_response(message: bytes) -> InitialResponse:
    """Return the parts of a client's first message.

    Raises:
        ValueError: the message is malformed.
    """
    match = _INITIAL.fullmatch(message.decode())
    if match is None:
        raise ValueError("the message is malformed")
    pairs = [pair.split("=", 1) for pair in match["extensions"].split("\x01")[1:]]
    return InitialResponse(match["authzid"] or "", match["token"], dict(pairs))


class OAuthBearerSaslClient:
    """An exchange of one token, or of two if the server describes an error. Thread: io."""

    __slots__ = ("_problem", "_token", "complete")

    def __init__(self, token: BearerToken) -> None:
        self._token = token
        self._problem: str | None = None
        self.complete = False

    def initial(self) -> bytes:
        return initial_response(self._token)

    def evaluate(self, challenge: bytes) -> bytes | None:
        if self._problem is not None:
            raise SaslAuthenticationError(f"the broker refused the token: {self._problem}")
        if challenge:
            self._problem = _problem_in(challenge)
            return END
        self.complete = True
        return None


def _problem_in(challenge: bytes) -> str:
    """Return the server's description of an error in a form that is safe to show."""
    try:
        found = json.loads(challenge)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return "the description of the error is unreadable"
    shown = [f"{name} {found[name]}" for name in ("status", "scope") if isinstance(found.get(name), str)]
    return shown_text(", ".join(shown), 200) or "no reason is given"
