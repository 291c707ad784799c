"""The brokers' assignor of share groups (Java: SimpleAssignor and its builders)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from uuid import UUID

    Partition = tuple[UUID, int]

#: The assignor's name in descriptions of groups.
NAME: Final = "simple"


class ShareMemberSpec(NamedTuple):
    """A member as the assignor sees it."""

    member_id: str
    topics: frozenset[UUID]
    target: Mapping[UUID, frozenset[int]]  # the last target assignment


def assign_simple(
    members: Sequence[ShareMemberSpec], partitions: Mapping[UUID, frozenset[int]]
) -> dict[str, dict[UUID, frozenset[int]]]:
    """Assign each of ``partitions`` to equally many members that subscribe to it, and move as few as possible.

    With more members than partitions, several members share a partition.
    """
    owned: dict[str, set[Partition]] = {member.member_id: set() for member in members}
    if len({member.topics for member in members}) == 1:
        wanted = sorted(members[0].topics & partitions.keys(), key=str)
        _share(members, [(topic_id, each) for topic_id in wanted for each in sorted(partitions[topic_id])], owned)
    else:
        for topic_id in sorted(partitions, key=str):
            subscribers = [member for member in members if topic_id in member.topics]
            if subscribers:
                _share(subscribers, [(topic_id, each) for each in sorted(partitions[topic_id])], owned)
    targets: dict[str, dict[UUID, frozenset[int]]] = {}
    for member_id, mine in owned.items():
        target = targets[member_id] = {}
        for topic_id, partition in sorted(mine, key=lambda each: (str(each[0]), each[1])):
            target[topic_id] = target.get(topic_id, frozenset()) | {partition}
    return targets


def _share(
    members: Sequence[ShareMemberSpec], partitions: Sequence[Partition], owned: dict[str, set[Partition]]
) -> None:
    """Add ``partitions`` to what the members own."""
    if not partitions:
        return
    sharing = -(-len(members) // len(partitions))
    total = sharing * len(partitions)
    owners: dict[Partition, set[str]] = {partition: set() for partition in partitions}
    room: dict[str, int] = {}
    for index, member in enumerate(members):
        id = member.member_id
        room[id] = -(-total * (index + 1) // len(members)) - -(-total * index // len(members))
        for partition in partitions:
            kept = partition[1] in member.target.get(partition[0], ())
            if kept and room[id] and len(owners[partition]) < sharing:
                owners[partition].add(id)
                room[id] -= 1
    for having in owners.values():
        # Those with the most room first; the order of members decides between equals.
        for id in sorted((id for id in room if room[id] and id not in having), key=room.__getitem__, reverse=True):
            if len(having) >= sharing:
                break
            having.add(id)
            room[id] -= 1
    for partition, having in owners.items():
        for id in having:
            owned[id].add(partition)
