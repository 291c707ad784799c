"""The states of a broker (Java: BrokerState)."""

from __future__ import annotations

from typing import Final

from pykclient.errors import check_move

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
    check_move("a broker", _MOVES, state, to)
    return to
