"""Sticky assignment to members with different subscriptions (Java: GeneralAssignmentBuilder)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pykclient.consumer.assignors.owned_partitions import OwnedPartitions
from pykclient.consumer.assignors.rack_info import RackInfo
from pykclient.consumer.assignors.rack_moves import RackMoves
from pykclient.consumer.assignors.subscribers import Subscribers
from pykclient.types import TopicPartition


class GeneralAssignmentBuilder:
    """Balances the members' numbers of partitions as far as subscriptions allow.

    1. Members keep what they own and still subscribe to.
    2. Each other partition goes to the subscriber with the fewest partitions, if racks are used first to those in the
       rack of a replica.
    3. Partitions move to the subscriber with the fewest while that makes the difference between the two smaller, new
       partitions first.
    4. If racks are used, partitions move to subscribers in the rack of a replica, alone or in exchange for another one,
       as far as that keeps the balance.

    Without racks this is what Java does, which searches the whole group for an imbalance before each move and takes
    minutes for large groups. With racks, Java takes partitions from owners in other racks before it assigns, and then
    moves them without regard to racks. It may do so in each rebalance anew, and cooperative rebalances never end.
    Thread: application.
    """

    __slots__ = ("_movements", "_owned", "_owners", "_partitions", "_previous", "_racks", "_sizes", "_subscribers")

    def __init__(
        self,
        partitions: Mapping[str, Sequence[TopicPartition]],
        topics: Mapping[str, frozenset[str]],
        racks: RackInfo,
        owned: OwnedPartitions,
    ) -> None:
        """``partitions`` are the partitions of each topic, ``topics`` each member's topics."""
        self._racks = racks
        self._owned = owned.owners
        self._previous = owned.previous_owners(topics)
        self._subscribers = Subscribers(partitions, topics, racks)
        # Partitions with few subscribers first: there is less choice.
        order = sorted(partitions, key=lambda topic: (len(self._subscribers.of(topic)), topic))
        self._partitions = [tp for topic in order for tp in partitions[topic]]
        self._owners: dict[TopicPartition, str] = {}
        self._sizes = dict.fromkeys(sorted(topics), 0)
        self._movements = _PartitionMovements(self._owned)

    def build(self) -> dict[str, list[TopicPartition]]:
        """Return the partitions of each member."""
        must_revoke = self._keep_owned_partitions()
        unassigned = [tp for tp in self._partitions if tp not in self._owners]
        for tp in unassigned if self._racks.is_used else ():
            self._assign(tp, self._subscribers.near(tp))
        for tp in unassigned:
            if tp not in self._owners:
                self._assign(tp, self._subscribers.of(tp.topic))
        if not must_revoke:
            self._balance(unassigned)
        self._balance(self._partitions)
        while self._racks.is_used and self._move_into_racks():
            self._balance(self._partitions)
        assignment: dict[str, list[TopicPartition]] = {member_id: [] for member_id in self._sizes}
        for tp in self._partitions:
            assignment[self._owners[tp]].append(tp)
        return assignment

    def _keep_owned_partitions(self) -> bool:
        """Return True if an owned partition must be revoked whatever the balance is."""
        must_revoke = False
        for tp, member_id in self._owned.items():
            if self._subscribers.may_have(member_id, tp):
                self._owners[tp] = member_id
                self._sizes[member_id] += 1
            else:
                must_revoke = True
        return must_revoke

    def _assign(self, tp: TopicPartition, candidates: Sequence[str]) -> None:
        if candidates:
            member_id = self._smallest(candidates)
            self._owners[tp] = member_id
            self._sizes[member_id] += 1

    def _smallest(self, members: Sequence[str]) -> str:
        """Return the member with the fewest partitions, the first of several."""
        return min(members, key=self._sizes.__getitem__)

    def _balance(self, partitions: Iterable[TopicPartition]) -> None:
        """Move partitions until no move reduces the difference between two members."""
        sizes = self._sizes
        again = True
        while again:
            again = False
            fewest = min(sizes.values())  # no member gets fewer by the moves below
            for tp in partitions:
                owner = self._owners[tp]
                if sizes[owner] <= fewest + 1:
                    continue
                target = self._previous.get(tp)
                if target is None or sizes[owner] <= sizes[target] + 1:
                    target = self._smallest(self._subscribers.of(tp.topic))
                if sizes[owner] > sizes[target] + 1:
                    # Two members do not swap partitions of one topic: the target gets back what it gave away.
                    self._move(self._movements.returning(tp, owner, target), target)
                    again = True

    def _move(self, tp: TopicPartition, target: str) -> None:
        owner = self._owners[tp]
        self._movements.add(tp, owner, target)
        self._owners[tp] = target
        self._sizes[owner] -= 1
        self._sizes[target] += 1

    def _move_into_racks(self) -> bool:
        """Move partitions into the racks of their owners while that keeps the balance; return True if any moved."""
        moves = RackMoves(self._racks, self._subscribers, self._owned, self._owners, self._sizes)
        moved = False
        again = True
        while again:
            again = False
            for tp in self._partitions:
                for each, target in moves.find(tp):
                    moves.moved(each, self._owners[each], target)
                    self._move(each, target)
                    moved = again = True
        return moved


class _PartitionMovements:
    """The partitions that were moved for balance, by topic, first owner and last owner.

    Two members never swap partitions of one topic: before a member gets another partition of a topic, it gets back one
    that it gave away. Thread: application.
    """

    __slots__ = ("_by_members", "_first_owners", "_owned")

    def __init__(self, owned: Mapping[TopicPartition, str]) -> None:
        """``owned`` maps partitions to their owners before the rebalance."""
        self._owned = owned
        self._first_owners: dict[TopicPartition, str] = {}
        self._by_members: dict[tuple[str, str, str], set[TopicPartition]] = {}

    def add(self, tp: TopicPartition, owner: str, target: str) -> None:
        first = self._first_owners.pop(tp, owner)
        if first != owner:
            self._by_members[tp.topic, first, owner].discard(tp)
        if first != target:
            self._first_owners[tp] = first
            self._by_members.setdefault((tp.topic, first, target), set()).add(tp)

    def returning(self, tp: TopicPartition, owner: str, target: str) -> TopicPartition:
        """Return a partition of the same topic that ``owner`` got from ``target``, or ``tp`` if there is none.

        Rather one that ``target`` owned before the rebalance; Java takes any.
        """
        given = self._by_members.get((tp.topic, target, owner), ())
        return min(given, key=lambda each: (self._owned.get(each) != target, each), default=tp)
