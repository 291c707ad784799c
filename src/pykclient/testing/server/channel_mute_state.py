"""The reasons why a connection's next request must wait, as a table (Java: KafkaChannel.ChannelMuteState)."""

from __future__ import annotations

from typing import Final

from pykclient.errors import IllegalStateError

NOT_MUTED: Final = "NOT_MUTED"
RESPONSE_PENDING: Final = "RESPONSE_PENDING"
THROTTLED: Final = "THROTTLED"
THROTTLED_AND_RESPONSE_PENDING: Final = "THROTTLED_AND_RESPONSE_PENDING"

REQUEST_RECEIVED: Final = "REQUEST_RECEIVED"
RESPONSE_SENT: Final = "RESPONSE_SENT"
THROTTLE_STARTED: Final = "THROTTLE_STARTED"
THROTTLE_ENDED: Final = "THROTTLE_ENDED"

#: The state after each event.
MOVES: Final[dict[str, dict[str, str]]] = {
    NOT_MUTED: {REQUEST_RECEIVED: RESPONSE_PENDING},
    RESPONSE_PENDING: {RESPONSE_SENT: NOT_MUTED, THROTTLE_STARTED: THROTTLED_AND_RESPONSE_PENDING},
    THROTTLED_AND_RESPONSE_PENDING: {RESPONSE_SENT: THROTTLED, THROTTLE_ENDED: RESPONSE_PENDING},
    THROTTLED: {THROTTLE_ENDED: NOT_MUTED},
}


def after(state: str, event: str) -> str:
    """Return the state after ``event``.

    Raises:
        IllegalStateError: the table does not have the transition.
    """
    try:
        return MOVES[state][event]
    except KeyError:
        raise IllegalStateError(f"{event} cannot happen to a connection that is {state}") from None
