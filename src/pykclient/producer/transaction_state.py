"""The states of a producer id, as a table (Java: TransactionManager.State).

An idempotent producer requests an id when it first has a record to send (UNINITIALIZED, INITIALIZING, READY). It
returns to UNINITIALIZED when its epochs are used up, and after an error with a temporary cause, such as a missing
permission. The table does not yet contain the states of transactions (IN_TRANSACTION, PREPARED_TRANSACTION,
COMMITTING_TRANSACTION, ABORTING_TRANSACTION).
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

#: The allowed next states of each state. A fatal error is final; only another fatal error may follow.
MOVES: dict[str, frozenset[str]] = {
    UNINITIALIZED: frozenset((INITIALIZING, FATAL_ERROR)),
    INITIALIZING: frozenset((READY, ABORTABLE_ERROR, FATAL_ERROR)),
    READY: frozenset((UNINITIALIZED, FATAL_ERROR)),
    ABORTABLE_ERROR: frozenset((UNINITIALIZED, ABORTABLE_ERROR, FATAL_ERROR)),
    FATAL_ERROR: frozenset((FATAL_ERROR,)),
}


def check_move(source: str, target: str) -> None:
    """Check that the table allows a transition.

    Raises:
        IllegalStateError: the table has no transition from ``source`` to ``target``.
    """
    if target not in MOVES[source]:
        raise IllegalStateError(f"a producer id cannot go from {source} to {target}")
