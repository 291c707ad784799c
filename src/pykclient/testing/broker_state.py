"""The states of a broker (Java: BrokerState)."""

from __future__ import annotations

from typing import Final

from pykclient.errors import IllegalStateError

NOT_RUNNING: Final = "NOT_RUNNING"
STARTING: Final = "STARTING"
RUNNING: Final = "RUNNING"
PENDING_CONTROLLED_SHUTDOWN: Final = "PENDING_CONTROLLED_SHUTDOWN"
SHUTTING_DOWN: Final = "SHUTTING_DOWN"
STOPPED: Final = "STOPPED"

_MOVES: Final = {
    NOT_RUNNING: (STARTING,),
    STARTING: (RUNNING, SHUTTING_DOWN, STOPPED),
    RUNNING: (PENDING_CONTROLLED_SHUTDOWN, SHUTTING_DOWN, STOPPED),
    PENDING_CONTROLLED_SHUTDOWN: (SHUTTING_DOWN, STOPPED),
    SHUTTING_DOWN: (STOPPED,),
    STOPPED: (),
}


def move(state: str, to: str) -> str:
    """Return ``to``.

    Raises:
        IllegalStateError: the table does not have this transition.
    """
    if to not in _MOVES[state]:
        raise IllegalStateError(f"a broker that is {state} cannot become {to}")
    return to
