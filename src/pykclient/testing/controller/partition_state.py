"""What states a partition goes through at the controller (Java: PartitionState)."""

from __future__ import annotations

from typing import Final

from pykclient.errors import IllegalStateError

NON_EXISTENT: Final = "NON_EXISTENT"  # never made, or deleted
NEW: Final = "NEW"  # has replicas, and no leader yet
ONLINE: Final = "ONLINE"  # has a leader
OFFLINE: Final = "OFFLINE"  # had one

#: state -> where it may come from.
VALID_PREVIOUS_STATES: Final = {
    NEW: (NON_EXISTENT,),
    ONLINE: (NEW, ONLINE, OFFLINE),
    OFFLINE: (NEW, ONLINE, OFFLINE),
    NON_EXISTENT: (OFFLINE,),
}


def check_move(partition: object, current: str, target: str) -> None:
    """Raises IllegalStateError unless the table has the move."""
    if current not in VALID_PREVIOUS_STATES[target]:
        raise IllegalStateError(f"partition {partition} cannot become {target}, as it is {current}")
