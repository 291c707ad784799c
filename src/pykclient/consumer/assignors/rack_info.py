"""The racks of members and replicas in sticky assignments (Java: AbstractStickyAssignor.RackInfo, KIP-881)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pykclient.consumer.assignors.consumer_partition_assignor import Subscription
from pykclient.types import PartitionInfo, TopicPartition

_NO_RACKS: frozenset[str] = frozenset()


class RackInfo:
    """Tells which partitions have a replica in which member's rack.

    Racks count only if some partitions have replicas in some racks and others do not, and members are in these racks.
    Otherwise ``is_used`` is False, and every member matches every partition. Thread: application.
    """

    __slots__ = ("_member_racks", "_members_near", "_partition_racks", "is_used")

    def __init__(self, infos: Iterable[PartitionInfo], subscriptions: Mapping[str, Subscription]) -> None:
        self._member_racks: dict[str, str] = {
            member_id: subscription.rack_id for member_id, subscription in subscriptions.items() if subscription.rack_id
        }
        self._partition_racks: dict[TopicPartition, frozenset[str]] = {}
        if self._member_racks:
            self._partition_racks = {
                TopicPartition(info.topic, info.partition): frozenset(node.rack for node in info.replicas if node.rack)
                for info in infos
            }
        every_rack = _NO_RACKS.union(*self._partition_racks.values())
        self.is_used = not every_rack.isdisjoint(self._member_racks.values()) and any(
            racks != every_rack for racks in self._partition_racks.values()
        )
        members_per_rack: dict[str, int] = {}
        for rack in self._member_racks.values():
            members_per_rack[rack] = members_per_rack.get(rack, 0) + 1
        self._members_near: dict[TopicPartition, int] = {
            tp: sum(members_per_rack.get(rack, 0) for rack in racks) for tp, racks in self._partition_racks.items()
        }

    def member_rack(self, member_id: str) -> str | None:
        """Return the member's rack; None if racks do not matter to it."""
        return self._member_racks.get(member_id) if self.is_used else None

    def replica_racks(self, tp: TopicPartition) -> frozenset[str]:
        """Return the racks of the partition's replicas; none if no member has a rack."""
        return self._partition_racks.get(tp, _NO_RACKS)

    def matches(self, member_id: str, tp: TopicPartition) -> bool:
        """Return True if the partition has a replica in the member's rack, or racks do not matter to the member."""
        rack = self.member_rack(member_id)
        return rack is None or rack in self.replica_racks(tp)

    def fewest_members_first(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions sorted by how many members are near a replica. The order is stable."""
        return sorted(partitions, key=lambda tp: self._members_near.get(tp, 0))

    def next_near(self, tp: TopicPartition, members: Sequence[str], first: int) -> int | None:
        """Return the index of the next of ``members``, from ``first`` on in a circle, that is near a replica."""
        racks = self.replica_racks(tp)
        for step in range(len(members)):
            index = (first + step) % len(members)
            if self._member_racks.get(members[index]) in racks:
                return index
        return None
