"""The range assignor (Java: RangeAssignor, with KIP-881)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from pykclient.consumer.assignors.abstract_partition_assignor import AbstractPartitionAssignor, sorted_members
from pykclient.consumer.assignors.consumer_partition_assignor import Subscription
from pykclient.types import PartitionInfo, TopicPartition

_NO_RACKS: frozenset[str] = frozenset()


class RangeAssignor(AbstractPartitionAssignor):
    """Divides each topic on its own into ranges that are as equal as possible.

    Topics with equal subscribers and equal partition counts are divided alike (co-partitioned). If members and replicas
    have racks, and racks differ between partitions, members first get partitions with a replica in their rack, as far
    as balance and co-partitioning allow. Thread: application.
    """

    name = "range"

    def assign_partitions(
        self, partitions_per_topic: Mapping[str, Sequence[PartitionInfo]], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        assignment: dict[str, list[TopicPartition]] = {member_id: [] for member_id in subscriptions}
        members_per_topic: dict[str, list[str]] = {}
        for member_id in sorted_members(subscriptions):
            for topic in dict.fromkeys(subscriptions[member_id].topics):
                members_per_topic.setdefault(topic, []).append(member_id)
        racks = {member_id: subscription.rack_id or None for member_id, subscription in subscriptions.items()}
        topics = [
            _Topic(topic, infos, {member_id: racks[member_id] for member_id in members_per_topic.get(topic, ())})
            for topic, infos in partitions_per_topic.items()
            if infos
        ]
        rack_aware = any(state.needs_rack_awareness for state in topics)
        if rack_aware:
            _assign_with_rack_matching(topics, assignment)
        for state in topics:
            state.assign_ranges(assignment)
        if rack_aware:
            for partitions in assignment.values():
                partitions.sort()
        return assignment


class _Topic:
    """The unassigned partitions of a topic. ``members`` maps the subscribers, in order, to their racks."""

    __slots__ = ("_extra", "_given", "_quota", "_racks", "members", "name", "needs_rack_awareness", "unassigned")

    def __init__(self, name: str, infos: Sequence[PartitionInfo], members: dict[str, str | None]) -> None:
        self.name = name
        self.members = members
        self.unassigned: dict[TopicPartition, None] = {TopicPartition(name, info.partition): None for info in infos}
        self._given = dict.fromkeys(members, 0)
        # Each member gets the quota, and the first ones get one more if there is a remainder.
        self._quota, self._extra = divmod(len(infos), len(members)) if members else (0, 0)
        member_racks = {rack for rack in members.values() if rack is not None}
        self._racks: dict[TopicPartition, frozenset[str]] = {}
        if member_racks:
            self._racks = {
                TopicPartition(name, info.partition): frozenset(node.rack for node in info.replicas if node.rack)
                for info in infos
            }
        all_racks = _NO_RACKS.union(*self._racks.values())
        # Racks matter only if not every partition is in every rack.
        self.needs_rack_awareness = not member_racks.isdisjoint(all_racks) and any(
            racks != all_racks for racks in self._racks.values()
        )

    @property
    def racked_partition_count(self) -> int:
        return len(self._racks)

    def racks_match(self, member_id: str, tp: TopicPartition) -> bool:
        rack = self.members[member_id]
        return rack is None or rack in self._racks.get(tp, _NO_RACKS)

    def max_assignable(self, member_id: str) -> int:
        """Return how many more partitions the member may get."""
        return max(0, self._quota + (self._extra > 0) - self._given[member_id])

    def give(
        self, member_id: str, partitions: Sequence[TopicPartition], assignment: dict[str, list[TopicPartition]]
    ) -> None:
        assignment[member_id].extend(partitions)
        self._given[member_id] += len(partitions)
        if self._given[member_id] > self._quota:
            self._extra -= 1
        for tp in partitions:
            self.unassigned.pop(tp, None)

    def assign_ranges(
        self,
        assignment: dict[str, list[TopicPartition]],
        may_assign: Callable[[str, TopicPartition], bool] | None = None,
    ) -> None:
        """Assign to each member in turn the first partitions that it may have, up to its share."""
        for member_id in self.members:
            if not self.unassigned:
                return
            candidates = (tp for tp in self.unassigned if may_assign is None or may_assign(member_id, tp))
            partitions = list(islice(candidates, self.max_assignable(member_id)))
            if partitions:
                self.give(member_id, partitions, assignment)


def _assign_with_rack_matching(topics: Sequence[_Topic], assignment: dict[str, list[TopicPartition]]) -> None:
    co_partitioned: dict[tuple[tuple[tuple[str, str | None], ...], int], list[_Topic]] = {}
    for topic in topics:
        key = tuple(topic.members.items()), topic.racked_partition_count
        co_partitioned.setdefault(key, []).append(topic)
    for (_, partition_count), group in co_partitioned.items():
        if len(group) > 1:
            _assign_co_partitioned(group, partition_count, assignment)
        elif group[0].needs_rack_awareness:
            group[0].assign_ranges(assignment, group[0].racks_match)


def _assign_co_partitioned(
    group: Sequence[_Topic], partition_count: int, assignment: dict[str, list[TopicPartition]]
) -> None:
    """Assign partition n of all topics to one member whose rack has a replica of each."""
    remaining = list(group[0].members)
    for partition in range(partition_count):
        for member_id in remaining:
            if all(
                topic.racks_match(member_id, TopicPartition(topic.name, partition)) and topic.max_assignable(member_id)
                for topic in group
            ):
                break
        else:
            continue
        for topic in group:
            topic.give(member_id, (TopicPartition(topic.name, partition),), assignment)
        if not any(topic.max_assignable(member_id) for topic in group):
            remaining.remove(member_id)
            if not remaining:
                return
