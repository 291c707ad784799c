"""The states of a consumer group, as a table (Java: ClassicGroupState; KIP-62, KIP-134)."""

from __future__ import annotations

from typing import Final

from pykclient.errors import IllegalStateError


class GroupState:
    """A state, with the name that DescribeGroups and ListGroups show. Compare by identity. Thread: any."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


#: No members, but perhaps offsets. The initial state, and the state of groups that only store offsets.
EMPTY: Final = GroupState("Empty")
#: Members must join or rejoin; JoinGroup requests wait.
PREPARING_REBALANCE: Final = GroupState("PreparingRebalance")
#: All members have joined; SyncGroup requests wait for the leader's assignment.
COMPLETING_REBALANCE: Final = GroupState("CompletingRebalance")
#: The members have their assignment.
STABLE: Final = GroupState("Stable")
#: Deleted, expired, or moved to another broker.
DEAD: Final = GroupState("Dead")

#: A dead group stays dead; a new group with its name is another object.
TRANSITIONS: Final[dict[GroupState, frozenset[GroupState]]] = {
    EMPTY: frozenset((PREPARING_REBALANCE, DEAD)),
    PREPARING_REBALANCE: frozenset((COMPLETING_REBALANCE, EMPTY, DEAD)),
    COMPLETING_REBALANCE: frozenset((PREPARING_REBALANCE, STABLE, DEAD)),
    STABLE: frozenset((PREPARING_REBALANCE, DEAD)),
    DEAD: frozenset(),
}


def move(state: GroupState, to: GroupState) -> GroupState:
    """Return ``to``.

    Raises:
        IllegalStateError: the table does not have this transition.
    """
    if to not in TRANSITIONS[state]:
        raise IllegalStateError(f"a group cannot go from {state} to {to}")
    return to
