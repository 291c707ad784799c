"""The states of a group member, as a table.

Java: AbstractCoordinator.MemberState, with the moves that are spread over its handlers there.
"""

from __future__ import annotations

from typing import NamedTuple

from pykclient import types
from pykclient.errors import IllegalStateError


class MemberState:
    """One state; ``reported`` is its name in ``ConsumerGroupMetadata.state``. Compare by identity. Thread: any."""

    __slots__ = ("has_not_joined_group", "name", "reported")

    def __init__(self, name: str, reported: str, *, has_not_joined_group: bool) -> None:
        self.name = name
        self.reported = reported
        self.has_not_joined_group = has_not_joined_group

    def __repr__(self) -> str:
        return self.name


#: Not part of the group.
UNJOINED = MemberState("UNJOINED", types.MemberState.UNJOINED, has_not_joined_group=True)
#: JoinGroup was sent; the others have their turn to join.
PREPARING_REBALANCE = MemberState("PREPARING_REBALANCE", types.MemberState.REBALANCING, has_not_joined_group=True)
#: JoinGroup was answered, SyncGroup was sent; the coordinator expects heartbeats.
COMPLETING_REBALANCE = MemberState("COMPLETING_REBALANCE", types.MemberState.REBALANCING, has_not_joined_group=False)
#: The assignment is here.
STABLE = MemberState("STABLE", types.MemberState.STABLE, has_not_joined_group=False)

#: A failed attempt leaves its state as it is until the next JoinGroup, which starts from any state. Whatever tells that
#: the membership has ended leads to UNJOINED, also when that is known already.
TRANSITIONS: dict[MemberState, frozenset[MemberState]] = {
    UNJOINED: frozenset((UNJOINED, PREPARING_REBALANCE)),
    PREPARING_REBALANCE: frozenset((UNJOINED, PREPARING_REBALANCE, COMPLETING_REBALANCE)),
    COMPLETING_REBALANCE: frozenset((UNJOINED, PREPARING_REBALANCE, STABLE)),
    STABLE: frozenset((UNJOINED, PREPARING_REBALANCE)),
}


def move(state: MemberState, to: MemberState) -> MemberState:
    """``to``, if the table allows to go there; raises IllegalStateError otherwise."""
    if to not in TRANSITIONS[state]:
        raise IllegalStateError(f"a group member cannot go from {state} to {to}")
    return to


class Generation(NamedTuple):
    """Which round of the group a member belongs to, and as whom."""

    generation_id: int
    member_id: str
    protocol_name: str | None

    @property
    def has_member_id(self) -> bool:
        """A member may have an id before it is part of a generation (KIP-394)."""
        return bool(self.member_id)

    @property
    def is_reset(self) -> bool:
        """Whether the membership has ended. The member id may outlive it, after ILLEGAL_GENERATION."""
        return self.generation_id == NO_GENERATION.generation_id and self.protocol_name is None

    def __str__(self) -> str:
        return f"generation {self.generation_id} (member {self.member_id or 'without id'}, {self.protocol_name})"


NO_GENERATION = Generation(-1, "", None)
