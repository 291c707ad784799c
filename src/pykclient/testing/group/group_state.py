"""The states of a consumer group, as a table (Java: ClassicGroupState; KIP-62, KIP-134)."""

from __future__ import annotations

from typing import Final

from pykclient.errors import IllegalStateError


class GroupState:
    """One state, with the name that DescribeGroups and ListGroups show. Compare by identity. Thread: any."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


#: No members; offsets may be left. Where a group begins, and what those are that only store offsets.
EMPTY: Final = GroupState("Empty")
#: Members are to join, or to join again: JoinGroup requests wait.
PREPARING_REBALANCE: Final = GroupState("PreparingRebalance")
#: All know who is there; SyncGroup requests wait for the leader's assignment.
COMPLETING_REBALANCE: Final = GroupState("CompletingRebalance")
#: The members have their assignment.
STABLE: Final = GroupState("Stable")
#: Deleted, expired, or another broker's now.
DEAD: Final = GroupState("Dead")

#: A dead group stays dead: whoever comes back by its name finds a new one.
TRANSITIONS: Final[dict[GroupState, frozenset[GroupState]]] = {
    EMPTY: frozenset((PREPARING_REBALANCE, DEAD)),
    PREPARING_REBALANCE: frozenset((COMPLETING_REBALANCE, EMPTY, DEAD)),
    COMPLETING_REBALANCE: frozenset((PREPARING_REBALANCE, STABLE, DEAD)),
    STABLE: frozenset((PREPARING_REBALANCE, DEAD)),
    DEAD: frozenset(),
}


def move(state: GroupState, to: GroupState) -> GroupState:
    """``to``, if the table allows to go there; raises IllegalStateError otherwise."""
    if to not in TRANSITIONS[state]:
        raise IllegalStateError(f"a group cannot go from {state} to {to}")
    return to
