"""The states of partitions and replicas on the controller, as tables (Java: PartitionState, ReplicaState)."""

from __future__ import annotations

from typing import Final

from pykclient.errors import IllegalStateError


class PartitionState:
    """The states of a partition."""

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

    @classmethod
    def check_move(cls, partition: object, current: str, target: str) -> None:
        """Check a transition.

        Raises:
            IllegalStateError: the table does not have it.
        """
        if current not in cls.VALID_PREVIOUS_STATES[target]:
            raise IllegalStateError(f"partition {partition} cannot become {target}, as it is {current}")


class ReplicaState:
    """The states of a replica."""

    NON_EXISTENT: Final = "NON_EXISTENT"
    NEW: Final = "NEW"  # can only become a follower
    ONLINE: Final = "ONLINE"
    OFFLINE: Final = "OFFLINE"  # its broker is gone, or it was told to stop
    DELETION_STARTED: Final = "DELETION_STARTED"
    DELETION_SUCCESSFUL: Final = "DELETION_SUCCESSFUL"
    DELETION_INELIGIBLE: Final = "DELETION_INELIGIBLE"  # the deletion failed or cannot start

    #: state -> its valid previous states
    VALID_PREVIOUS_STATES: Final = {
        NEW: (NON_EXISTENT,),
        ONLINE: (NEW, ONLINE, OFFLINE, DELETION_INELIGIBLE),
        OFFLINE: (NEW, ONLINE, OFFLINE, DELETION_INELIGIBLE),
        DELETION_STARTED: (OFFLINE,),
        DELETION_SUCCESSFUL: (DELETION_STARTED,),
        DELETION_INELIGIBLE: (OFFLINE, DELETION_STARTED),
        NON_EXISTENT: (DELETION_SUCCESSFUL,),
    }

    @classmethod
    def check_move(cls, replica: object, current: str, target: str) -> None:
        """Check a transition.

        Raises:
            IllegalStateError: the table does not have it.
        """
        if current not in cls.VALID_PREVIOUS_STATES[target]:
            raise IllegalStateError(f"replica {replica} cannot become {target}, as it is {current}")
