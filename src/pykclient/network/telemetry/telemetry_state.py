"""The states of telemetry, as a table (Java: ClientTelemetryState)."""

from __future__ import annotations

from typing import Final

from pykclient.errors import IllegalStateError

SUBSCRIPTION_NEEDED: Final = "SUBSCRIPTION_NEEDED"
SUBSCRIPTION_IN_PROGRESS: Final = "SUBSCRIPTION_IN_PROGRESS"
PUSH_NEEDED: Final = "PUSH_NEEDED"
PUSH_IN_PROGRESS: Final = "PUSH_IN_PROGRESS"
TERMINATING_PUSH_NEEDED: Final = "TERMINATING_PUSH_NEEDED"
TERMINATING_PUSH_IN_PROGRESS: Final = "TERMINATING_PUSH_IN_PROGRESS"
TERMINATED: Final = "TERMINATED"

#: The states that may follow each state. A subscription without metrics, and every failure, lead back to the first.
MOVES: Final[dict[str, frozenset[str]]] = {
    SUBSCRIPTION_NEEDED: frozenset((SUBSCRIPTION_IN_PROGRESS, TERMINATED)),
    SUBSCRIPTION_IN_PROGRESS: frozenset((PUSH_NEEDED, SUBSCRIPTION_NEEDED, TERMINATING_PUSH_NEEDED, TERMINATED)),
    PUSH_NEEDED: frozenset((PUSH_IN_PROGRESS, SUBSCRIPTION_NEEDED, TERMINATING_PUSH_NEEDED, TERMINATED)),
    PUSH_IN_PROGRESS: frozenset((PUSH_NEEDED, SUBSCRIPTION_NEEDED, TERMINATING_PUSH_NEEDED, TERMINATED)),
    TERMINATING_PUSH_NEEDED: frozenset((TERMINATING_PUSH_IN_PROGRESS, TERMINATED)),
    TERMINATING_PUSH_IN_PROGRESS: frozenset((TERMINATED,)),
    TERMINATED: frozenset(),
}

#: The states in which a request waits for its response.
IN_PROGRESS: Final = frozenset((SUBSCRIPTION_IN_PROGRESS, PUSH_IN_PROGRESS, TERMINATING_PUSH_IN_PROGRESS))
#: The states of a client that is closing.
TERMINATING: Final = frozenset((TERMINATING_PUSH_NEEDED, TERMINATING_PUSH_IN_PROGRESS, TERMINATED))


def check_move(source: str, target: str) -> None:
    """Check that the table allows a transition.

    Raises:
        IllegalStateError: the table has no transition from ``source`` to ``target``.
    """
    if target not in MOVES[source]:
        raise IllegalStateError(f"telemetry cannot go from {source} to {target}")
