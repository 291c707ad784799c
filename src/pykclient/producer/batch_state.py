"""The states of a batch between its first record and its result, as a table.

A batch waits in its partition's queue (QUEUED) until the sender drains it (DRAINED). It is SENT once the network client
has a request with it, and ANSWERED once the response arrives or is known not to. Then the sender puts it back into the
queue for a retry, or completes, fails or splits it (DONE). A batch that fails while the network client still has it is
GIVEN_UP: the client may be writing its memory, so this is freed after the answer.
"""

from __future__ import annotations

from typing import Final

from pykclient.errors import IllegalStateError

QUEUED: Final = "QUEUED"
DRAINED: Final = "DRAINED"
SENT: Final = "SENT"
GIVEN_UP: Final = "GIVEN_UP"
ANSWERED: Final = "ANSWERED"
DONE: Final = "DONE"

STATES = (QUEUED, DRAINED, SENT, GIVEN_UP, ANSWERED, DONE)

#: The allowed next states of each state.
MOVES: dict[str, frozenset[str]] = {
    QUEUED: frozenset((DRAINED,)),
    DRAINED: frozenset((SENT, QUEUED, DONE)),
    SENT: frozenset((ANSWERED, GIVEN_UP)),
    GIVEN_UP: frozenset((ANSWERED,)),
    ANSWERED: frozenset((QUEUED, DONE)),
    DONE: frozenset(),
}


def check_move(source: str, target: str) -> None:
    """Check that the table allows a transition.

    Raises:
        IllegalStateError: the table has no transition from ``source`` to ``target``.
    """
    if target not in MOVES[source]:
        raise IllegalStateError(f"a batch cannot go from {source} to {target}")
