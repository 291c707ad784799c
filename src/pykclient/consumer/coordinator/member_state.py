"""The states of a group member, as a table.

Java: AbstractCoordinator.MemberState; there, the transitions are spread over its handlers.
"""

from __future__ import annotations

from typing import NamedTuple

from pykclient import types
from pykclient.errors import IllegalStateError, check_move


class MemberState:
    """A state. ``reported`` is its name in ``ConsumerGroupMetadata.state``. Compare by identity. Thread: any."""

    __slots__ = ("name", "reported", "sends_heartbeats")

    def __init__(self, name: str, reported: str, *, sends_heartbeats: bool) -> None:
        self.name = name
        self.reported = reported
        self.sends_heartbeats = sends_heartbeats

    def __repr__(self) -> str:
        return self.name


#: Not part of the group.
UNJOINED = MemberState("UNJOINED", types.MemberState.UNJOINED, sends_heartbeats=False)
#: JoinGroup is in flight, while the other members join.
PREPARING_REBALANCE = MemberState("PREPARING_REBALANCE", types.MemberState.REBALANCING, sends_heartbeats=False)
#: JoinGroup was answered and SyncGroup is in flight; the coordinator expects heartbeats.
COMPLETING_REBALANCE = MemberState("COMPLETING_REBALANCE", types.MemberState.REBALANCING, sends_heartbeats=True)
#: The member has its assignment.
STABLE = MemberState("STABLE", types.MemberState.STABLE, sends_heartbeats=True)

#: A failed attempt keeps the state until the next JoinGroup, which can start from any state. An error that ends the
#: membership leads to UNJOINED, even if it has ended already.
TRANSITIONS: dict[MemberState, frozenset[MemberState]] = {
    UNJOINED: frozenset((UNJOINED, PREPARING_REBALANCE)),
    PREPARING_REBALANCE: frozenset((UNJOINED, PREPARING_REBALANCE, COMPLETING_REBALANCE)),
    COMPLETING_REBALANCE: frozenset((UNJOINED, PREPARING_REBALANCE, STABLE)),
    STABLE: frozenset((UNJOINED, PREPARING_REBALANCE)),
}


def move(state: MemberState, to: MemberState) -> MemberState:
    """Return ``to``.

    Raises:
        IllegalStateError: the table does not have this transition.
    """
    check_move("a group member", TRANSITIONS, state, to)
    return to


class RebalanceStep:
    """A step of a member towards its next assignment. Compare by identity. Thread: any."""

    __slots__ = ("name", "needs_application")

    def __init__(self, name: str, *, needs_application: bool = False) -> None:
        self.name = name
        self.needs_application = needs_application  # only a poll of the application leads on from here

    def __repr__(self) -> str:
        return self.name


#: There is nothing to do, or the next poll of the application begins a rebalance.
RESTING = RebalanceStep("RESTING", needs_application=True)
#: A pattern is matched with fresh metadata first.
REFRESHING = RebalanceStep("REFRESHING")
#: The offsets of the partitions to be revoked are being committed.
COMMITTING = RebalanceStep("COMMITTING")
#: The application revokes partitions, and its assignors say what to offer.
PREPARING = RebalanceStep("PREPARING", needs_application=True)
#: JoinGroup is to be sent.
READY = RebalanceStep("READY")
#: JoinGroup is in flight.
JOINING = RebalanceStep("JOINING")
#: The leader waits for the metadata of all members' topics.
ELECTED = RebalanceStep("ELECTED")
#: The application's assignor assigns partitions to the members.
DISTRIBUTING = RebalanceStep("DISTRIBUTING", needs_application=True)
#: SyncGroup is to be sent, once the leader has the metadata of all topics that it has assigned.
JOINED = RebalanceStep("JOINED")
#: SyncGroup is in flight.
SYNCING = RebalanceStep("SYNCING")
#: The application is told its assignment.
ASSIGNING = RebalanceStep("ASSIGNING", needs_application=True)

#: From each step a rebalance may also fail or end, back to RESTING.
STEPS: dict[RebalanceStep, frozenset[RebalanceStep]] = {
    RESTING: frozenset((REFRESHING, COMMITTING, PREPARING)),
    REFRESHING: frozenset((COMMITTING, PREPARING)),
    COMMITTING: frozenset((PREPARING,)),
    PREPARING: frozenset((READY,)),
    READY: frozenset((JOINING,)),
    JOINING: frozenset((ELECTED, JOINED)),
    ELECTED: frozenset((DISTRIBUTING,)),
    DISTRIBUTING: frozenset((JOINED,)),
    JOINED: frozenset((SYNCING,)),
    SYNCING: frozenset((ASSIGNING,)),
    ASSIGNING: frozenset(),
}


def step(current: RebalanceStep, to: RebalanceStep) -> RebalanceStep:
    """Return ``to``.

    Raises:
        IllegalStateError: the table does not have this transition.
    """
    if to is not RESTING and to not in STEPS[current]:
        raise IllegalStateError(f"a rebalance cannot go from {current} to {to}")
    return to


class Generation(NamedTuple):
    """A generation of the group, and the member's id in it."""

    generation_id: int
    member_id: str
    protocol_name: str | None

    @property
    def has_member_id(self) -> bool:
        """True if the member has an id, possibly before it is part of a generation (KIP-394)."""
        return bool(self.member_id)

    @property
    def is_reset(self) -> bool:
        """True if the membership has ended. The member id may outlive it, after ILLEGAL_GENERATION."""
        return self.generation_id == NO_GENERATION.generation_id and self.protocol_name is None

    def __str__(self) -> str:
        protocol = "" if self.protocol_name is None else f", {self.protocol_name}"
        return f"generation {self.generation_id} (member {self.member_id or 'without id'}{protocol})"


NO_GENERATION = Generation(-1, "", None)
