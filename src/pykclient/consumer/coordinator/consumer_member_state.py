"""The states of a member of the consumer group protocol (KIP-848), as a table (Java: MemberState)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from pykclient import types
from pykclient.consumer.coordinator.member_state import MemberState
from pykclient.errors import IllegalStateError

if TYPE_CHECKING:
    from uuid import UUID

#: Not part of a group, because the application has not subscribed.
UNSUBSCRIBED = MemberState("UNSUBSCRIBED", types.MemberState.UNJOINED, sends_heartbeats=False)
#: The member asks to join; it has no assignment yet.
JOINING = MemberState("JOINING", types.MemberState.REBALANCING, sends_heartbeats=True)
#: The application gives up and takes over partitions, until it has the target assignment.
RECONCILING = MemberState("RECONCILING", types.MemberState.REBALANCING, sends_heartbeats=True)
#: The next heartbeat reports the partitions that the member owns now.
ACKNOWLEDGING = MemberState("ACKNOWLEDGING", types.MemberState.REBALANCING, sends_heartbeats=True)
#: The member has its target assignment.
STABLE = MemberState("STABLE", types.MemberState.STABLE, sends_heartbeats=True)
#: The application gives up its partitions, in order to leave.
PREPARE_LEAVING = MemberState("PREPARE_LEAVING", types.MemberState.UNJOINED, sends_heartbeats=True)
#: The next heartbeat says that the member leaves.
LEAVING = MemberState("LEAVING", types.MemberState.UNJOINED, sends_heartbeats=True)
#: The coordinator has removed the member. The application loses its partitions, and then the member joins again.
FENCED = MemberState("FENCED", types.MemberState.UNJOINED, sends_heartbeats=False)
#: The member has left, as the application did not poll for ``max.poll.interval.ms``. The next poll loses the
#: partitions, and then the member joins again.
STALE = MemberState("STALE", types.MemberState.UNJOINED, sends_heartbeats=False)
#: An error that no retry will mend has ended the membership. Each poll raises it until the application unsubscribes.
FATAL = MemberState("FATAL", types.MemberState.UNJOINED, sends_heartbeats=False)

TRANSITIONS: dict[MemberState, frozenset[MemberState]] = {
    UNSUBSCRIBED: frozenset((JOINING,)),
    JOINING: frozenset((RECONCILING, STABLE, PREPARE_LEAVING, FENCED, FATAL)),
    RECONCILING: frozenset((ACKNOWLEDGING, STABLE, PREPARE_LEAVING, FENCED, FATAL)),
    ACKNOWLEDGING: frozenset((RECONCILING, STABLE, PREPARE_LEAVING, FENCED, FATAL)),
    STABLE: frozenset((RECONCILING, PREPARE_LEAVING, FENCED, FATAL)),
    # Also to UNSUBSCRIBED: the coordinator has removed the member meanwhile, so there is nothing to leave.
    PREPARE_LEAVING: frozenset((LEAVING, UNSUBSCRIBED)),
    LEAVING: frozenset((UNSUBSCRIBED, STALE)),
    FENCED: frozenset((JOINING, UNSUBSCRIBED)),
    STALE: frozenset((JOINING, UNSUBSCRIBED)),
    FATAL: frozenset((UNSUBSCRIBED,)),
}


def move(state: MemberState, to: MemberState) -> MemberState:
    """Return ``to``.

    Raises:
        IllegalStateError: the table does not have this transition.
    """
    if to not in TRANSITIONS[state]:
        raise IllegalStateError(f"a member of a consumer group cannot go from {state} to {to}")
    return to


class LocalAssignment(NamedTuple):
    """Partitions by topic id. The number tells assignments apart that have the same partitions.

    A member that loses a partition and gets it back between two heartbeats must report that, although it owns the same
    partitions as before (KAFKA-15839).
    """

    number: int
    partitions: Mapping[UUID, frozenset[int]]

    def next(self, partitions: Mapping[UUID, frozenset[int]]) -> LocalAssignment:
        """Return the assignment that follows: this one if it has the same partitions."""
        if self.number != NO_ASSIGNMENT.number and self.partitions == partitions:
            return self
        return LocalAssignment(self.number + 1, partitions)

    def with_partitions_of(self, other: LocalAssignment) -> LocalAssignment:
        """Return this assignment with the partitions of ``other`` added to its own."""
        if all(numbers <= self.partitions.get(topic_id, frozenset()) for topic_id, numbers in other.partitions.items()):
            return self
        partitions = dict(self.partitions)
        for topic_id, numbers in other.partitions.items():
            partitions[topic_id] = partitions.get(topic_id, frozenset()) | numbers
        return LocalAssignment(self.number, partitions)


#: There is no assignment yet, not even an empty one.
NO_ASSIGNMENT = LocalAssignment(-1, {})
