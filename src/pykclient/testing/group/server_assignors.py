"""The brokers' assignors of consumer groups (Java: RangeAssignor, UniformAssignor and its builders)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from uuid import UUID

#: Partitions by topic id.
Partitions = Mapping["UUID", frozenset[int]]


class MemberSpec(NamedTuple):
    """A member as an assignor sees it."""

    member_id: str
    instance_id: str | None
    topics: Mapping[UUID, int]  # the number of partitions of each topic that it subscribes to
    target: Partitions  # the last target assignment


#: The target assignment by member id.
Targets = dict[str, dict["UUID", frozenset[int]]]


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
    taken: set[tuple[UUID, int]] = set()
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
    owned: dict[str, set[tuple[UUID, int]]] = {member.member_id: set() for member in members}
    wants = {member.member_id: member.topics for member in members}
    owner: dict[tuple[UUID, int], str] = {}
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
                poorest = min((each for each in owned if topic_id in wants[each]), key=lambda each: len(owned[each]))
                owner[topic_id, number] = poorest
                owned[poorest].add((topic_id, number))
    moved = True
    while moved:
        moved = False
        for (topic_id, number), rich in owner.items():
            poorest = min((each for each in owned if topic_id in wants[each]), key=lambda each: len(owned[each]))
            if len(owned[rich]) - len(owned[poorest]) > 1:
                owned[rich].remove((topic_id, number))
                owned[poorest].add((topic_id, number))
                owner[topic_id, number] = poorest
                moved = True
    targets: Targets = {}
    for member_id, partitions_of in owned.items():
        target: dict[UUID, frozenset[int]] = {}
        for topic_id, number in sorted(partitions_of, key=lambda tp: (str(tp[0]), tp[1])):
            target[topic_id] = target.get(topic_id, frozenset()) | {number}
        targets[member_id] = target
    return targets


#: The assignors by name, the default first (``group.consumer.assignors``).
ASSIGNORS: Final[Mapping[str, Callable[[Sequence[MemberSpec]], Targets]]] = {
    "uniform": assign_uniform,
    "range": assign_range,
}
