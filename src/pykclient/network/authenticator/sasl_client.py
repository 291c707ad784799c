"""The interfaces of SASL mechanisms: one exchange, and the source of its credentials (Java: SaslClient, Login)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class SaslClient(Protocol):
    """The client's side of one exchange of a mechanism, without I/O.

    Any step may raise SaslAuthenticationError. Thread: io.
    """

    @property
    def complete(self) -> bool:
        """True once the client needs nothing more from the server, which it has then verified if it can."""

    def initial(self) -> bytes:
        """Return the first token, which is sent without a challenge."""

    def evaluate(self, challenge: bytes) -> bytes | None:
        """Return the token that answers the server's challenge; None if there is nothing to send.

        Not called once ``complete``.
        """


class Login(Protocol):
    """The credentials of one client for a mechanism, shared by all its connections. Its repr shows no secret.

    Thread: io, except for ``close``.
    """

    mechanism: str
    #: Advice for the user when the broker rejects the credentials.
    remedy: str

    def new_client(self, host: str, on_ready: Callable[[], object]) -> SaslClient | None:
        """Return an exchange with the broker at ``host``; None while the credentials are being fetched.

        In that case any thread calls ``on_ready``, once, when it is worthwhile to call this method again.

        Raises:
            AuthenticationError: there are no credentials, and waiting will not help.
        """

    def close(self) -> None:
        """Stop fetching credentials. Thread: any."""
