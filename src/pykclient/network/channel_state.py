"""The states of a channel, as a table (Java: ChannelState)."""

from __future__ import annotations

from typing import Final, NamedTuple

from pykclient.errors import AuthenticationError, check_move

NOT_CONNECTED: Final = "NOT_CONNECTED"
AUTHENTICATE: Final = "AUTHENTICATE"
READY: Final = "READY"
EXPIRED: Final = "EXPIRED"
AUTHENTICATION_FAILED: Final = "AUTHENTICATION_FAILED"
LOCAL_CLOSE: Final = "LOCAL_CLOSE"

#: The valid next states of each state.
MOVES: Final[dict[str, frozenset[str]]] = {
    NOT_CONNECTED: frozenset((AUTHENTICATE, READY, AUTHENTICATION_FAILED, EXPIRED, LOCAL_CLOSE)),
    AUTHENTICATE: frozenset((READY, AUTHENTICATION_FAILED, EXPIRED, LOCAL_CLOSE)),
    READY: frozenset((AUTHENTICATION_FAILED, EXPIRED, LOCAL_CLOSE)),
    AUTHENTICATION_FAILED: frozenset((LOCAL_CLOSE,)),
    EXPIRED: frozenset((LOCAL_CLOSE,)),
    LOCAL_CLOSE: frozenset(),
}


class ChannelState(NamedTuple):
    """The state of a channel, or its last state before it was closed.

    Only AUTHENTICATION_FAILED has an ``exception``. ``cause`` is the error that broke the connection, if any.
    ``remote_address`` is for messages. Immutable. Thread: any.
    """

    state: str
    exception: AuthenticationError | None = None
    remote_address: str | None = None
    cause: Exception | None = None

    def move_to(self, state: str, exception: AuthenticationError | None = None) -> ChannelState:
        """Return the next state.

        Raises:
            IllegalStateError: the table does not have this transition.
        """
        check_move("a channel", MOVES, self.state, state)
        return ChannelState(state, exception, self.remote_address, self.cause)

    def with_details(self, remote_address: str | None, cause: Exception | None = None) -> ChannelState:
        """Return the same state with details about the peer and the error."""
        return ChannelState(self.state, self.exception, remote_address, cause)

    def __repr__(self) -> str:
        return f"ChannelState({self.state}, remote_address={self.remote_address}, cause={self.cause!r})"
