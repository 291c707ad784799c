"""Sticky assignment to members that all subscribe to the same topics (Java: ConstrainedAssignmentBuilder)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from pykclient.consumer.assignors.owned_partitions import OwnedPartitions
from pykclient.consumer.assignors.rack_info import RackInfo
from pykclient.types import TopicPartition


class ConstrainedAssignmentBuilder:
    """Gives each member the same number of partitions, or one more.

    1. Members keep what they own, up to their share. If racks are used, they keep only partitions in their rack.
    2. If racks are used, members that lack partitions get those in their rack, in turn. Partitions with few members in
       their racks are first; of equal ones, those without an owner.
    3. Of the partitions that nobody in their racks can take, members keep what they own, up to their share.
    4. Members that lack partitions get the others, in turn.

    Java omits step 3, so partitions change their owner in rebalances that do not bring them nearer to one.

    ``partitions`` are those of all topics, in ascending order. Thread: application.
    """

    __slots__ = (
        "_assignment",
        "_at_min_quota",
        "_max_quota",
        "_min_quota",
        "_owned",
        "_owners",
        "_partitions",
        "_racks",
        "_under_min_quota",
        "_vacant_max_quotas",
    )

    def __init__(self, partitions: Sequence[TopicPartition], racks: RackInfo, owned: OwnedPartitions) -> None:
        self._partitions = partitions
        self._racks = racks
        self._owners = owned.owners
        self._owned = owned.by_member()
        self._assignment: dict[str, list[TopicPartition]] = {member_id: [] for member_id in self._owned}
        # So many members get the higher quota; none if the quotas are equal.
        self._min_quota, self._vacant_max_quotas = divmod(len(partitions), len(self._owned))
        self._max_quota = self._min_quota + (self._vacant_max_quotas > 0)
        self._under_min_quota: list[str] = []
        self._at_min_quota: deque[str] = deque()

    def build(self) -> dict[str, list[TopicPartition]]:
        """Return the partitions of each member."""
        self._assign_owned_partitions()
        assigned = {tp for partitions in self._assignment.values() for tp in partitions}
        unassigned = [tp for tp in self._partitions if tp not in assigned]
        if self._racks.is_used:
            unassigned = self._assign_by_racks(unassigned)
        self._assign_round_robin(unassigned)
        return self._assignment

    def _assign_owned_partitions(self) -> None:
        for member_id, partitions in self._owned.items():
            owned = [tp for tp in partitions if self._racks.matches(member_id, tp)]
            # Spread what is kept evenly over the topics.
            owned.sort(key=lambda tp: (tp.partition, tp.topic))
            if len(owned) < self._min_quota:
                self._under_min_quota.append(member_id)
            elif len(owned) >= self._max_quota and self._vacant_max_quotas:
                del owned[self._max_quota :]
                self._take_max_quota()
            else:
                del owned[self._min_quota :]
                self._keep_at_min_quota(member_id)
            self._assignment[member_id] += owned

    def _take_max_quota(self) -> None:
        """Count one more member with the higher quota."""
        self._vacant_max_quotas -= 1
        if not self._vacant_max_quotas:
            self._at_min_quota.clear()

    def _keep_at_min_quota(self, member_id: str) -> None:
        if self._vacant_max_quotas:
            self._at_min_quota.append(member_id)

    def _assign_by_racks(self, unassigned: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Assign partitions to members in the rack of a replica, else to their owners; return the others."""
        far = {tp for tp in unassigned if tp in self._owners and not self._racks.matches(self._owners[tp], tp)}
        by_choice = self._racks.fewest_members_first(sorted(unassigned, key=far.__contains__))
        rest = self._assign_in_racks(by_choice)
        return [tp for tp in rest if tp not in far] + self._assign_to_owners([tp for tp in rest if tp in far])

    def _assign_in_racks(self, unassigned: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Assign partitions to members in the rack of a replica, as far as quotas allow; return the others."""
        rest: list[TopicPartition] = []
        turn = 0
        for tp in unassigned:
            index = self._racks.next_near(tp, self._under_min_quota, turn)
            if index is not None:
                turn = self._give_below_min_quota(tp, index)
                continue
            index = self._racks.next_near(tp, self._at_min_quota, 0)
            if index is None:
                rest.append(tp)
            else:
                self._give_at_min_quota(tp, index)
        return rest

    def _assign_to_owners(self, unassigned: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Assign partitions to their owners, as far as quotas allow; return the others."""
        rest: list[TopicPartition] = []
        for tp in unassigned:
            owner = self._owners[tp]
            if owner in self._under_min_quota:
                self._give_below_min_quota(tp, self._under_min_quota.index(owner))
            elif owner in self._at_min_quota:
                self._give_at_min_quota(tp, self._at_min_quota.index(owner))
            else:
                rest.append(tp)
        return rest

    def _give_below_min_quota(self, tp: TopicPartition, index: int) -> int:
        """Assign a partition to a member that lacks some; return the index of the next such member."""
        member_id = self._under_min_quota[index]
        assigned = self._assignment[member_id]
        assigned.append(tp)
        if len(assigned) < self._min_quota:
            index += 1
        else:
            del self._under_min_quota[index]
            self._keep_at_min_quota(member_id)
        return index if index < len(self._under_min_quota) else 0

    def _give_at_min_quota(self, tp: TopicPartition, index: int) -> None:
        """Assign one more partition to a member that has its share already."""
        self._assignment[self._at_min_quota[index]].append(tp)
        del self._at_min_quota[index]
        self._take_max_quota()

    def _assign_round_robin(self, unassigned: Sequence[TopicPartition]) -> None:
        turn = 0
        for tp in unassigned:
            if self._under_min_quota:
                turn = self._give_below_min_quota(tp, turn)
            else:
                self._assignment[self._at_min_quota.popleft()].append(tp)
