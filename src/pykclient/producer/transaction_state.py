"""The states of a producer id, as a table (Java: TransactionManager.State).

An idempotent producer asks for an id when it first has something to send (UNINITIALIZED, INITIALIZING, READY). It goes
back to the start when its epochs are used up, or after an error that may pass, such as a missing permission. The states
of transactions (IN_TRANSACTION, PREPARED_TRANSACTION, COMMITTING_TRANSACTION, ABORTING_TRANSACTION) join this table
together with transactions.
"""

from __future__ import annotations

from typing import Final

from pykclient.errors import IllegalStateError

UNINITIALIZED: Final = "UNINITIALIZED"
INITIALIZING: Final = "INITIALIZING"
READY: Final = "READY"
ABORTABLE_ERROR: Final = "ABORTABLE_ERROR"
FATAL_ERROR: Final = "FATAL_ERROR"

STATES = (UNINITIALIZED, INITIALIZING, READY, ABORTABLE_ERROR, FATAL_ERROR)

#: From a state to those that may follow. Nothing follows a fatal error, except another one.
MOVES: dict[str, frozenset[str]] = {
    UNINITIALIZED: frozenset((INITIALIZING, FATAL_ERROR)),
    INITIALIZING: frozenset((READY, ABORTABLE_ERROR, FATAL_ERROR)),
    READY: frozenset((UNINITIALIZED, FATAL_ERROR)),
    ABORTABLE_ERROR: frozenset((UNINITIALIZED, ABORTABLE_ERROR, FATAL_ERROR)),
    FATAL_ERROR: frozenset((FATAL_ERROR,)),
}


def check_move(source: str, target: str) -> None:
    """Raises IllegalStateError for a move that the table lacks."""
    if target not in MOVES[source]:
        raise IllegalStateError(f"a producer id cannot go from {source} to {target}")
