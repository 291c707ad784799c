"""The brokers' assignors: of consumer groups and of share groups.

Java: RangeAssignor, UniformAssignor, SimpleAssignor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

#: Partitions by topic id.
Partitions = Mapping[UUID, frozenset[int]]


class MemberSpec(NamedTuple):
    """A member as an assignor sees it."""

    member_id: str
    instance_id: str | None
    topics: Mapping[UUID, int]  # the number of partitions of each topic that it subscribes to
    target: Partitions  # the last target assignment


Partition = tuple[UUID, int]

#: The target assignment by member id.
Targets = dict[str, dict[UUID, frozenset[int]]]


def assign_range(members: Sequence[MemberSpec]) -> Targets:
    """Give each member a range of each topic that it subscribes to; static members come first, by instance id."""
    ordered = sorted(members, key=_range_order)
    subscribers: dict[UUID, int] = {}
    for member in ordered:
        for topic_id in member.topics:
            subscribers[topic_id] = subscribers.get(topic_id, 0) + 1
    next_partition: dict[UUID, int] = {}
    extra = {topic_id: count % subscribers[topic_id] for member in ordered for topic_id, count in member.topics.items()}
    targets: Targets = {}
    for member in ordered:
        target = targets[member.member_id] = {}
        for topic_id, count in member.topics.items():
            quota = count // subscribers[topic_id]
            if extra[topic_id]:
                extra[topic_id] -= 1
                quota += 1
            start = next_partition.get(topic_id, 0)
            next_partition[topic_id] = start + quota
            if quota:
                target[topic_id] = frozenset(range(start, start + quota))
    return targets


def _range_order(member: MemberSpec) -> tuple[bool, str]:
    if member.instance_id is not None:
        return False, member.instance_id
    return True, member.member_id


def assign_uniform(members: Sequence[MemberSpec]) -> Targets:
    """Give members equally many partitions, and move as few as possible."""
    if len({tuple(sorted(member.topics, key=str)) for member in members}) == 1:
        return _uniform_homogeneous(members)
    return _uniform_heterogeneous(members)


def _uniform_homogeneous(members: Sequence[MemberSpec]) -> Targets:
    topics = members[0].topics
    quota, extra = divmod(sum(topics.values()), len(members))
    targets: Targets = {}
    room: list[tuple[str, int]] = []
    taken: set[Partition] = set()
    for member in members:
        left = quota + (extra > 0)
        extra -= extra > 0
        kept: dict[UUID, frozenset[int]] = {}
        for topic_id, partitions in member.target.items():
            mine = sorted(number for number in partitions if number < topics.get(topic_id, 0))[:left]
            if mine:
                kept[topic_id] = frozenset(mine)
                taken.update((topic_id, number) for number in mine)
                left -= len(mine)
        targets[member.member_id] = kept
        if left:
            room.append((member.member_id, left))
    free = iter(
        [
            (topic_id, number)
            for topic_id, count in topics.items()
            for number in range(count)
            if (topic_id, number) not in taken
        ]
    )
    for member_id, left in room:
        target = targets[member_id]
        for _, (topic_id, number) in zip(range(left), free, strict=False):
            target[topic_id] = target.get(topic_id, frozenset()) | {number}
    return targets


def _uniform_heterogeneous(members: Sequence[MemberSpec]) -> Targets:
    """Keep what members have and want; give the rest to those with the fewest; then level."""
    owned: dict[str, set[Partition]] = {member.member_id: set() for member in members}
    wants = {member.member_id: member.topics for member in members}

    def poorest_of(topic_id: UUID) -> str:
        return min((each for each in owned if topic_id in wants[each]), key=lambda each: len(owned[each]))

    owner: dict[Partition, str] = {}
    for member in members:
        for topic_id, partitions in member.target.items():
            for number in sorted(partitions):
                if number < member.topics.get(topic_id, 0) and (topic_id, number) not in owner:
                    owner[topic_id, number] = member.member_id
                    owned[member.member_id].add((topic_id, number))
    counts = {topic_id: count for member in members for topic_id, count in member.topics.items()}
    for topic_id, count in counts.items():
        for number in range(count):
            if (topic_id, number) not in owner:
                poorest = poorest_of(topic_id)
                owner[topic_id, number] = poorest
                owned[poorest].add((topic_id, number))
    moved = True
    while moved:
        moved = False
        for (topic_id, number), rich in owner.items():
            poorest = poorest_of(topic_id)
            if len(owned[rich]) - len(owned[poorest]) > 1:
                owned[rich].remove((topic_id, number))
                owned[poorest].add((topic_id, number))
                owner[topic_id, number] = poorest
                moved = True
    return {member_id: _by_topic(partitions) for member_id, partitions in owned.items()}


def _by_topic(partitions: Iterable[Partition]) -> dict[UUID, frozenset[int]]:
    target: dict[UUID, frozenset[int]] = {}
    for topic_id, number in sorted(partitions, key=lambda each: (str(each[0]), each[1])):
        target[topic_id] = target.get(topic_id, frozenset()) | {number}
    return target


#: The assignors by name, the default first (``group.consumer.assignors``).
ASSIGNORS: Final[Mapping[str, Callable[[Sequence[MemberSpec]], Targets]]] = {
    "uniform": assign_uniform,
    "range": assign_range,
}

#: The assignor's name in descriptions of groups.
NAME: Final = "simple"


class ShareMemberSpec(NamedTuple):
    """A member as the assignor sees it."""

    member_id: str
    topics: frozenset[UUID]
    target: Mapping[UUID, frozenset[int]]  # the last target assignment


def assign_simple(members: Sequence[ShareMemberSpec], partitions: Mapping[UUID, frozenset[int]]) -> Targets:
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
    return {member_id: _by_topic(mine) for member_id, mine in owned.items()}


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
