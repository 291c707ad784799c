"""Finding moves that bring partitions into the racks of their owners, if members subscribe to different topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pykclient.consumer.assignors.rack_info import RackInfo
from pykclient.consumer.assignors.subscribers import Subscribers
from pykclient.types import TopicPartition

#: A partition and the member that it moves to.
Move = tuple[TopicPartition, str]


class RackMoves:
    """Finds moves after which more partitions have a replica in their owner's rack, and the balance is as good.

    ``owned`` are the owners before the rebalance, ``owners`` those so far. ``sizes`` are the members' numbers of
    partitions. The caller changes both, and reports each change. Thread: application.
    """

    __slots__ = ("_assigned", "_exchangeable", "_owned", "_owners", "_racks", "_sizes", "_subscribers")

    def __init__(
        self,
        racks: RackInfo,
        subscribers: Subscribers,
        owned: Mapping[TopicPartition, str],
        owners: Mapping[TopicPartition, str],
        sizes: Mapping[str, int],
    ) -> None:
        self._racks = racks
        self._subscribers = subscribers
        self._owned = owned
        self._owners = owners
        self._sizes = sizes
        self._assigned: dict[str, set[TopicPartition]] = {member_id: set() for member_id in sizes}
        for tp, owner in owners.items():
            self._assigned[owner].add(tp)
        self._exchangeable: dict[str, dict[str | None, list[TopicPartition]]] = {}

    def moved(self, tp: TopicPartition, source: str, target: str) -> None:
        """Take note of a move."""
        self._assigned[source].discard(tp)
        self._assigned[target].add(tp)
        self._exchangeable.pop(source, None)
        self._exchangeable.pop(target, None)

    def find(self, tp: TopicPartition) -> Sequence[Move]:
        """Return a move of the partition, two moves that exchange it for another one, or none."""
        owner, sizes = self._owners[tp], self._sizes
        near = () if self._racks.matches(owner, tp) else self._subscribers.near(tp)
        for target in sorted(near, key=sizes.__getitem__):
            if sizes[target] < sizes[owner]:
                return ((tp, target),)
            for other in self._may_go_to(self._racks.member_rack(owner), target):
                if self._subscribers.may_have(owner, other):
                    return (tp, target), (other, owner)
        return ()

    def _may_go_to(self, rack: str | None, member_id: str) -> Sequence[TopicPartition]:
        """Return the member's partitions that would not be farther from an owner in ``rack``.

        The first ones are those that the member did not own before the rebalance.
        """
        by_rack = self._exchangeable.setdefault(member_id, {})
        found = by_rack.get(rack)
        if found is None:
            found = [
                tp
                for tp in self._assigned[member_id]
                if rack in self._racks.replica_racks(tp) or not self._racks.matches(member_id, tp)
            ]
            found.sort(key=lambda tp: (self._owned.get(tp) == member_id, tp))
            by_rack[rack] = found
        return found
