"""The states of a transactional id, as a table (Java: TransactionState; KIP-98, KIP-890)."""

from __future__ import annotations

from typing import Final

from pykclient.errors import IllegalStateError


class TransactionState:
    """A state: its id in the log, and its name in DescribeTransactions. Compare by identity. Thread: any."""

    __slots__ = ("id", "name")

    def __init__(self, id: int, name: str) -> None:
        self.id = id
        self.name = name

    def __repr__(self) -> str:
        return self.name


#: No transaction yet in this epoch.
EMPTY: Final = TransactionState(0, "Empty")
#: At least one partition was added.
ONGOING: Final = TransactionState(1, "Ongoing")
#: The transaction is committed; its markers are being written.
PREPARE_COMMIT: Final = TransactionState(2, "PrepareCommit")
#: The transaction is aborted; its markers are being written.
PREPARE_ABORT: Final = TransactionState(3, "PrepareAbort")
#: All markers of the commit are written.
COMPLETE_COMMIT: Final = TransactionState(4, "CompleteCommit")
#: All markers of the abort are written.
COMPLETE_ABORT: Final = TransactionState(5, "CompleteAbort")
#: Expired: a tombstone is being written.
DEAD: Final = TransactionState(6, "Dead")
#: The coordinator is about to abort the transaction in a higher epoch. Only ever a pending state.
PREPARE_EPOCH_FENCE: Final = TransactionState(7, "PrepareEpochFence")

#: With transactions of version 2, a producer may abort without having added a partition.
TRANSITIONS: Final[dict[TransactionState, frozenset[TransactionState]]] = {
    EMPTY: frozenset((EMPTY, ONGOING, PREPARE_ABORT, DEAD)),
    ONGOING: frozenset((ONGOING, PREPARE_COMMIT, PREPARE_ABORT, PREPARE_EPOCH_FENCE)),
    PREPARE_COMMIT: frozenset((COMPLETE_COMMIT,)),
    PREPARE_ABORT: frozenset((COMPLETE_ABORT,)),
    COMPLETE_COMMIT: frozenset((EMPTY, ONGOING, PREPARE_ABORT, DEAD)),
    COMPLETE_ABORT: frozenset((EMPTY, ONGOING, PREPARE_ABORT, DEAD)),
    DEAD: frozenset(),
    PREPARE_EPOCH_FENCE: frozenset((PREPARE_ABORT,)),
}

#: States in which an idle transactional id may expire.
EXPIRABLE: Final = frozenset((EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT))

BY_ID: Final = {state.id: state for state in TRANSITIONS}
BY_NAME: Final = {state.name: state for state in TRANSITIONS}


def move(state: TransactionState, to: TransactionState) -> TransactionState:
    """Return ``to``.

    Raises:
        IllegalStateError: the table does not have this transition.
    """
    if to not in TRANSITIONS[state]:
        raise IllegalStateError(f"a transactional id cannot go from {state} to {to}")
    return to
