"""The states of a partition on the controller (Java: PartitionState)."""

from __future__ import annotations

from typing import Final

from pykclient.errors import IllegalStateError

NON_EXISTENT: Final = "NON_EXISTENT"  # never created, or deleted
NEW: Final = "NEW"  # has replicas, and no leader yet
ONLINE: Final = "ONLINE"  # has a leader
OFFLINE: Final = "OFFLINE"  # had one

#: state -> its valid previous states
VALID_PREVIOUS_STATES: Final = {
    NEW: (NON_EXISTENT,),
    ONLINE: (NEW, ONLINE, OFFLINE),
    OFFLINE: (NEW, ONLINE, OFFLINE),
    NON_EXISTENT: (OFFLINE,),
}


def check_move(partition: object, current: str, target: str) -> None:
    """Check a transition.

    Raises:
        IllegalStateError: the table does not have it.
    """
    if current not in VALID_PREVIOUS_STATES[target]:
        raise IllegalStateError(f"partition {partition} cannot become {target}, as it is {current}")
