"""SASL PLAIN: user name and password in clear text (RFC 4616)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pykclient.config.config_def import Password, white_space_remark

MECHANISM: Final = "PLAIN"


class PlainSaslClient:
    """An exchange of one token. Thread: io."""

    __slots__ = ("_token", "complete")

    def __init__(self, username: str, password: str) -> None:
        self._token = f"\0{username}\0{password}".encode()
        self.complete = False

    def initial(self) -> bytes:
        self.complete = True
        return self._token

    def evaluate(self, challenge: bytes) -> bytes | None:  # noqa: ARG002 - the mechanism has no challenges
        return None


class PlainLogin:
    """A user name and a password. Thread: any (immutable)."""

    __slots__ = ("_password", "_username", "remedy")

    mechanism = MECHANISM

    def __init__(self, username: str, password: Password) -> None:
        self._username = username
        self._password = password
        self.remedy = f"check the user name and the password{white_space_remark(password.value)}"

    def new_client(self, host: str, on_ready: Callable[[], object]) -> PlainSaslClient:  # noqa: ARG002
        return PlainSaslClient(self._username, self._password.value)

    def close(self) -> None:
        """Do nothing, as there are no resources."""

    def __repr__(self) -> str:
        return f"PlainLogin({self._username!r})"
