"""Random consumer groups as input for assignors."""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pykclient.consumer.coordinator import classic_rebalance
from pykclient.consumer.partition_assignors import (
    ConsumerPartitionAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    Subscription,
)
from pykclient.consumer.sticky_assignor import StickyAssignor, serialize_member_data
from pykclient.network.metadata import Cluster
from pykclient.types import Node, PartitionInfo, TopicPartition


class Group(NamedTuple):
    """The racks of each partition's replicas by topic, and the members' subscriptions."""

    topics: dict[str, list[list[str]]]
    members: dict[str, Subscription]

    @property
    def cluster(self) -> Cluster:
        infos = []
        for topic, partitions in self.topics.items():
            for number, racks in enumerate(partitions):
                nodes = tuple(Node(index, "host", 9092, rack or None) for index, rack in enumerate(racks))
                infos.append(PartitionInfo(topic, number, None, nodes, nodes))
        return Cluster("id", (), infos)

    @property
    def partitions(self) -> set[TopicPartition]:
        """The partitions of all subscribed topics."""
        subscribed = {topic for member in self.members.values() for topic in member.topics}
        return {
            TopicPartition(topic, number)
            for topic, partitions in self.topics.items()
            if topic in subscribed
            for number in range(len(partitions))
        }

    def is_near(self, member_id: str, tp: TopicPartition) -> bool:
        """Return True if the member has no rack, or the partition has a replica in it."""
        rack = self.members[member_id].rack_id
        return rack is None or rack in self.topics[tp.topic][tp.partition]


def random_group(rng: random.Random) -> Group:
    racks = rng.choice([[""], ["a", "b", "c"], ["a", "b", "c"], ["a", "b", ""]])
    replicas = rng.randint(1, 3)
    same = rng.random() < 0.5
    count = rng.randint(0, 12)
    topics = {
        f"topic-{number}": [
            [rng.choice(racks) for _ in range(replicas)] for _ in range(count if same else rng.randint(0, 12))
        ]
        for number in range(rng.randint(1, 5))
    }
    everything = [*topics, "missing"]
    members: dict[str, Subscription] = {}
    for number in rng.sample(range(1000), rng.randint(1, 7)):
        wanted = list(topics) if rng.random() < 0.6 else rng.sample(everything, rng.randint(0, len(everything)))
        owned = [TopicPartition(topic, 0) for topic in wanted if rng.random() < 0.2]
        rack = rng.choice([*racks, "z"]) if rng.random() < 0.8 else ""
        instance = f"instance-{rng.randint(0, 10**6)}" if rng.random() < 0.3 else None
        members[f"member-{number}"] = Subscription(
            sorted(wanted), rng.choice([None, b"data"]), sorted(owned), rng.randint(-1, 9), rack or None, instance
        )
    return Group(topics, members)


def rebalancing_group(
    rng: random.Random,
    *,
    cooperative: bool,
    same_topics: bool | None = None,
    racks: bool | None = None,
    stale: bool = False,
    contested: bool = False,
    ids: Sequence[str] | None = None,
) -> Group:
    """Return a group whose members own partitions of an earlier assignment.

    Since then members, topics and partitions were added, and members left. ``stale``: some members missed rebalances,
    and claim partitions that others have got. ``contested``: a partition is claimed twice in one generation.
    """
    same_topics = rng.random() < 0.5 if same_topics is None else same_topics
    names = ["a", "b", "c"] if racks or (racks is None and rng.random() < 0.5) else [""]
    most_members, most_topics, most_partitions = (60, 12, 60) if rng.random() < 0.05 else (10, 6, 12)
    topics = {
        f"topic-{number}": [
            [rng.choice(names) for _ in range(rng.randint(1, 2))] for _ in range(rng.randint(1, most_partitions))
        ]
        for number in range(rng.randint(1, most_topics))
    }
    ids = ids or [f"member-{number}" for number in rng.sample(range(1000), most_members)]

    def subscribed() -> list[str]:
        return sorted(topics if same_topics else rng.sample(list(topics), rng.randint(1, len(topics))))

    members = {
        member_id: Subscription(
            subscribed(),
            rack_id=rng.choice([*names, "z"] if names[0] else [""]) or None,
            group_instance_id=f"instance-{rng.randint(0, 10**6)}" if rng.random() < 0.3 else None,
        )
        for member_id in ids[: rng.randint(1, most_members)]
    }
    before = _earlier_group(rng, topics, members, [subscribed() for _ in range(3)])
    owned, generations = _owned_partitions(rng, before, list(members), stale=stale)
    if contested and any(owned.values()):
        claimed = rng.choice([tp for some in owned.values() for tp in some])
        member_id = rng.choice(list(members))
        owned[member_id] = sorted({*owned[member_id], claimed})
        generations[member_id] = max(generations.values())
    for member_id, subscription in members.items():
        generation_id = generations[member_id]
        claim = subscription._replace(generation_id=generation_id)
        if cooperative:
            claim = claim._replace(owned_partitions=sorted(owned[member_id]), user_data=_int(generation_id))
            # Clients before KIP-792. If claims conflict, Java takes their generation for unknown.
            if not (stale or contested) and rng.random() < 0.3:
                claim = claim._replace(generation_id=-1)
        elif generation_id >= 0 or owned[member_id]:
            claim = claim._replace(user_data=serialize_member_data(owned[member_id], generation_id))
        members[member_id] = claim
    return Group(topics, members)


def _earlier_group(
    rng: random.Random,
    topics: Mapping[str, list[list[str]]],
    members: Mapping[str, Subscription],
    others: Sequence[Sequence[str]],
) -> Group:
    """Return the group before its topics grew and some of its members joined, with members that have left."""
    before = Group({}, {})
    for topic, partitions in topics.items():
        before.topics[topic] = partitions[: rng.randint(0, len(partitions))] if rng.random() < 0.3 else partitions
    for member_id, subscription in members.items():
        if rng.random() < 0.8:
            changed = rng.random() < 0.2
            before.members[member_id] = Subscription(
                rng.choice(others) if changed else subscription.topics, rack_id=subscription.rack_id
            )
    for number in range(rng.randint(0, 3)):
        before.members[f"left-{number}"] = Subscription(others[number])
    return before


def _owned_partitions(
    rng: random.Random, before: Group, members: Sequence[str], *, stale: bool
) -> tuple[dict[str, list[TopicPartition]], dict[str, int]]:
    """Return what each member owns of an assignment of the earlier group, and the generation in which it got that."""
    assignor: ConsumerPartitionAssignor = rng.choice((StickyAssignor(), RoundRobinAssignor(), RangeAssignor()))
    assigned = assignor.assign(before.cluster, before.members)
    older = RoundRobinAssignor().assign(before.cluster, before.members)
    latest = rng.randint(2, 9)
    owned: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
    generations = dict.fromkeys(members, -1)
    for member_id in members:
        if member_id not in assigned:
            continue
        missed = stale and rng.random() < 0.3
        kept = rng.choice([0.0, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
        partitions = (older if missed else assigned)[member_id].partitions
        owned[member_id] = [tp for tp in partitions if rng.random() < kept]
        generations[member_id] = latest - rng.randint(1, 2) if missed else latest
    return owned, generations


def encode(assignor: str, group: Group) -> bytes:
    """Return the group in the format that AssignorOracle.java reads."""
    parts = [_utf(assignor), _int(len(group.topics))]
    for topic, partitions in group.topics.items():
        parts += [_utf(topic), _int(len(partitions))]
        for racks in partitions:
            parts += [_int(len(racks)), *map(_utf, racks)]
    parts.append(_int(len(group.members)))
    for member_id, subscription in group.members.items():
        data = classic_rebalance.serialize_subscription(subscription)
        parts += [_utf(member_id), _utf(subscription.group_instance_id or ""), _int(len(data)), data]
    return b"".join(parts)


def _int(value: int) -> bytes:
    return struct.pack(">i", value)


def _utf(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data
