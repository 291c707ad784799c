"""The states of a producer id and its transactions, as a table (Java: TransactionManager.State).

An idempotent producer requests an id when it first has a record to send (UNINITIALIZED, INITIALIZING, READY). It
returns to UNINITIALIZED when its epochs are used up, and after an error with a temporary cause, such as a missing
permission.

A transactional producer requests its id in ``init_transactions``. A transaction is open (IN_TRANSACTION) until it
commits or aborts. In the meantime, an error may leave abort as the only way on (ABORTABLE_ERROR). An aborted
transaction may need a new epoch, so the producer may return to INITIALIZING.

With two-phase commit (KIP-939), ``prepare_transaction`` sends all remaining records (PREPARING_TRANSACTION, which Java
does not have). The transaction then waits for its commit or abort (PREPARED_TRANSACTION). ``init_transactions`` of a
later producer may also find the prepared transaction of an earlier one.
"""

from __future__ import annotations

from typing import Final

UNINITIALIZED: Final = "UNINITIALIZED"
INITIALIZING: Final = "INITIALIZING"
READY: Final = "READY"
IN_TRANSACTION: Final = "IN_TRANSACTION"
PREPARING_TRANSACTION: Final = "PREPARING_TRANSACTION"
PREPARED_TRANSACTION: Final = "PREPARED_TRANSACTION"
COMMITTING_TRANSACTION: Final = "COMMITTING_TRANSACTION"
ABORTING_TRANSACTION: Final = "ABORTING_TRANSACTION"
ABORTABLE_ERROR: Final = "ABORTABLE_ERROR"
FATAL_ERROR: Final = "FATAL_ERROR"

STATES = (
    UNINITIALIZED,
    INITIALIZING,
    READY,
    IN_TRANSACTION,
    PREPARING_TRANSACTION,
    PREPARED_TRANSACTION,
    COMMITTING_TRANSACTION,
    ABORTING_TRANSACTION,
    ABORTABLE_ERROR,
    FATAL_ERROR,
)

#: The allowed next states of each state. A fatal error is final; only another fatal error may follow.
MOVES: dict[str, frozenset[str]] = {
    UNINITIALIZED: frozenset((INITIALIZING, FATAL_ERROR)),
    INITIALIZING: frozenset((READY, PREPARED_TRANSACTION, ABORTABLE_ERROR, FATAL_ERROR)),
    READY: frozenset((UNINITIALIZED, IN_TRANSACTION, FATAL_ERROR)),
    IN_TRANSACTION: frozenset(
        (PREPARING_TRANSACTION, COMMITTING_TRANSACTION, ABORTING_TRANSACTION, ABORTABLE_ERROR, FATAL_ERROR)
    ),
    PREPARING_TRANSACTION: frozenset((PREPARED_TRANSACTION, ABORTING_TRANSACTION, ABORTABLE_ERROR, FATAL_ERROR)),
    PREPARED_TRANSACTION: frozenset((COMMITTING_TRANSACTION, ABORTING_TRANSACTION, FATAL_ERROR)),
    COMMITTING_TRANSACTION: frozenset((READY, INITIALIZING, ABORTABLE_ERROR, FATAL_ERROR)),
    ABORTING_TRANSACTION: frozenset((READY, INITIALIZING, FATAL_ERROR)),
    ABORTABLE_ERROR: frozenset((UNINITIALIZED, ABORTING_TRANSACTION, ABORTABLE_ERROR, FATAL_ERROR)),
    FATAL_ERROR: frozenset((FATAL_ERROR,)),
}

#: The states in which batches and offsets of a transaction are sent.
SENDING = frozenset((IN_TRANSACTION, PREPARING_TRANSACTION, COMMITTING_TRANSACTION))
#: The states in which a transaction ends.
COMPLETING = frozenset((COMMITTING_TRANSACTION, ABORTING_TRANSACTION))
#: The states in which a transaction is open, or ends.
ONGOING = SENDING | COMPLETING | {PREPARED_TRANSACTION, ABORTABLE_ERROR}
#: The states in which all batches of a transaction are due, and more are refused.
FLUSHING = COMPLETING | {PREPARING_TRANSACTION}
#: The states in which batches that were not sent yet fail.
REFUSING = frozenset((ABORTING_TRANSACTION, ABORTABLE_ERROR, FATAL_ERROR))
#: The states that determine the results of calls.
SETTLING = frozenset((READY, PREPARED_TRANSACTION, ABORTABLE_ERROR, FATAL_ERROR))
