"""The states of a Sender, as a table.

A sender that is closing first sends the remaining batches (DRAINING). A forced close fails them instead (FORCED). An
exception that ends the driver closes from any state.
"""

from __future__ import annotations

from typing import Final

from pykclient.errors import IllegalStateError

RUNNING: Final = "RUNNING"
DRAINING: Final = "DRAINING"
FORCED: Final = "FORCED"
CLOSED: Final = "CLOSED"

STATES = (RUNNING, DRAINING, FORCED, CLOSED)

#: The allowed next states of each state.
MOVES: dict[str, frozenset[str]] = {
    RUNNING: frozenset((DRAINING, FORCED, CLOSED)),
    DRAINING: frozenset((FORCED, CLOSED)),
    FORCED: frozenset((CLOSED,)),
    CLOSED: frozenset(),
}

#: The states in which a forced close changes the state.
MAY_BE_FORCED = frozenset(source for source in STATES if FORCED in MOVES[source])


def check_move(source: str, target: str) -> None:
    """Check that the table allows a transition.

    Raises:
        IllegalStateError: the table has no transition from ``source`` to ``target``.
    """
    if target not in MOVES[source]:
        raise IllegalStateError(f"a sender cannot go from {source} to {target}")
