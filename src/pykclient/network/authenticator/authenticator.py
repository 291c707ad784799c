"""The seam for SASL: an exchange of frames, without I/O (Java: Authenticator)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pykclient.network.network_receive import Frame
from pykclient.network.network_send import BytesLike


class Authenticator(Protocol):
    """Says which frame to send next and takes those that come, until ``complete``.

    The channel drives it: it sends what ``next_frame`` gives until that is None, hands each frame received to
    ``receive``, and so on. Requests and responses inside the frames are the authenticator's own, correlation ids
    included. Any step may raise AuthenticationError, after which the channel sends what ``next_frame`` still gives (a
    server's refusal) and is closed. Thread: io.
    """

    @property
    def complete(self) -> bool:
        """Whether the connection may be used."""

    def next_frame(self, now_ms: int) -> Sequence[BytesLike] | None:
        """The frame to send now, size prefix included, as buffers; None while the peer has the turn."""

    def receive(self, frame: Frame, now_ms: int) -> None:
        """Take a frame, without its size prefix."""

    def close(self) -> None: ...


class PlaintextAuthenticator:
    """Nobody proves anything (security.protocol PLAINTEXT, and SSL, whose handshake did it). Thread: io."""

    __slots__ = ()

    @property
    def complete(self) -> bool:
        return True

    def next_frame(self, now_ms: int) -> Sequence[BytesLike] | None:  # noqa: ARG002 - the seam's signature
        return None

    def receive(self, frame: Frame, now_ms: int) -> None:
        """Never called."""

    def close(self) -> None:
        """Holds nothing."""
