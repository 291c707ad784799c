"""Authentication of connections, between connecting and the first request (Java: Authenticator).

SASL is an exchange of frames, whose interface is here, without I/O.

- ``sasl_client_authenticator``: the exchange on a client's connection
- ``sasl_client``: the mechanisms; ``scram``, ``oauth_bearer``, ``gssapi_client``, ``aws_msk_iam``: the larger ones
- ``logins``: whose credentials a connection uses
- ``token_endpoint``, ``assertions``: tokens from OAuth servers
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from pykclient.network.frames import Frame
from pykclient.protocol.wire import BytesLike

if TYPE_CHECKING:
    from pykclient.network.authenticator.sasl_client import Login
    from pykclient.network.selectable import SocketAddress
    from pykclient.network.transport_layer import TransportLayer


class Session(Protocol):
    """A server's view of an authenticated client."""

    @property
    def user(self) -> str | None:
        """The client's user name; None before it has authenticated."""

    @property
    def expiry_ms(self) -> int | None:
        """The time by which the client must have authenticated again (KIP-368), or None."""

    @property
    def uses_token(self) -> bool:
        """True if the client authenticated with a delegation token, so it may not manage tokens (KIP-48)."""


class Authenticator:
    """Decides which frame to send next, and processes those received, until ``complete``.

    The channel drives it: it sends the frames from ``next_frame`` until that returns None, passes each received frame
    to ``receive``, and so on. The contents of the frames, including correlation ids, belong to the authenticator. Any
    step may raise AuthenticationError. The channel then sends what ``next_frame`` still returns (a server's rejection),
    and is closed.

    This class has no exchange (security.protocol PLAINTEXT, or SSL, whose handshake does it). Thread: io.
    """

    @property
    def complete(self) -> bool:
        """True if the connection may be used."""
        return True

    #: The time at which a client must authenticate again (KIP-368), or None.
    reauthenticate_ms: int | None = None

    @property
    def session(self) -> Session | None:
        """The client's session, for a server; None on the client's side."""
        return None

    def start(self, resume: Callable[[], object]) -> None:
        """Set the callback, invoked on any thread, for when ``next_frame`` has a frame without having received one."""

    def next_frame(self, now_ms: int) -> Sequence[BytesLike] | None:  # noqa: ARG002 - for subclasses, here and below
        """Return the next frame to send, with its size prefix, as buffers; None while waiting for the peer."""
        return None

    def receive(self, frame: Frame, now_ms: int) -> bool:  # noqa: ARG002
        """Process a frame, without its size prefix.

        Return False if it is not part of the exchange but the response to a request sent before
        ``begin_reauthentication``.
        """
        return False

    def begin_reauthentication(self) -> None:
        """Start another exchange on a connection in use. It is not ``complete`` until that has succeeded."""

    def close(self) -> None:
        """Release resources."""


class Authenticators:
    """Creates the authenticators of one client or server; here, those without an exchange. Thread: io."""

    #: The credentials of all connections; None without SASL.
    login: Login | None = None

    def new_authenticator(
        self,
        id: str,  # noqa: ARG002 - for subclasses
        address: SocketAddress | None,  # noqa: ARG002
        transport: TransportLayer,  # noqa: ARG002
    ) -> Authenticator:
        """Return the authenticator of connection ``id``, as a client of ``address``; without one, as a server.

        ``transport`` tells a server about the peer.
        """
        return Authenticator()

    def close(self) -> None:
        """Release resources."""
