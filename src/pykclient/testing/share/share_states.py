"""The states of records in share groups, and of share partitions, as tables.

Java: RecordState, SharePartitionState.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final

from pykclient.errors import IllegalStateError


class RecordState(IntEnum):
    """The state of a record's delivery. The numbers are those of the state topic."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


#: Only an available record can be acquired, and only an acquired one acknowledged. Available records are archived when
#: they are deleted from the log.
RECORD_TRANSITIONS: Final[dict[RecordState, frozenset[RecordState]]] = {
    RecordState.AVAILABLE: frozenset((RecordState.ACQUIRED, RecordState.ARCHIVED)),
    RecordState.ACQUIRED: frozenset((RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)),
    RecordState.ACKNOWLEDGED: frozenset(),
    RecordState.ARCHIVED: frozenset(),
}

#: The states in which a record's delivery is complete.
TERMINAL: Final = frozenset((RecordState.ACKNOWLEDGED, RecordState.ARCHIVED))


def move_record(state: RecordState, to: RecordState) -> RecordState:
    """Return ``to``.

    Raises:
        IllegalStateError: the table does not have this transition.
    """
    if to not in RECORD_TRANSITIONS[state]:
        raise IllegalStateError(f"a record cannot go from {state.name} to {to.name}")
    return to


class SharePartitionState(Enum):
    """The state of a share partition on the leader of its partition."""

    #: Nothing is known about it.
    EMPTY = "empty"
    #: The leader has asked the share coordinator for its state.
    INITIALIZING = "initializing"
    #: Records can be acquired and acknowledged.
    ACTIVE = "active"
    #: Its state could not be read. The next fetch creates another one.
    FAILED = "failed"
    #: Another broker leads the partition now, or the state was deleted.
    FENCED = "fenced"


SHARE_PARTITION_TRANSITIONS: Final[dict[SharePartitionState, frozenset[SharePartitionState]]] = {
    SharePartitionState.EMPTY: frozenset((SharePartitionState.INITIALIZING, SharePartitionState.FENCED)),
    SharePartitionState.INITIALIZING: frozenset(
        (SharePartitionState.ACTIVE, SharePartitionState.FAILED, SharePartitionState.FENCED)
    ),
    SharePartitionState.ACTIVE: frozenset((SharePartitionState.FENCED,)),
    SharePartitionState.FAILED: frozenset((SharePartitionState.FENCED,)),
    SharePartitionState.FENCED: frozenset(),
}


def move_share_partition(state: SharePartitionState, to: SharePartitionState) -> SharePartitionState:
    """Return ``to``.

    Raises:
        IllegalStateError: the table does not have this transition.
    """
    if to not in SHARE_PARTITION_TRANSITIONS[state]:
        raise IllegalStateError(f"a share partition cannot go from {state.name} to {to.name}")
    return to
