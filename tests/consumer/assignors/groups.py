"""Random consumer groups as input for assignors."""

from __future__ import annotations

import random
import struct
from typing import NamedTuple

from pykclient.consumer.assignors.consumer_partition_assignor import Subscription
from pykclient.consumer.coordinator import consumer_protocol
from pykclient.network.cluster import Cluster
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


def encode(assignor: str, group: Group) -> bytes:
    """Return the group in the format that AssignorOracle.java reads."""
    parts = [_utf(assignor), _int(len(group.topics))]
    for topic, partitions in group.topics.items():
        parts += [_utf(topic), _int(len(partitions))]
        for racks in partitions:
            parts += [_int(len(racks)), *map(_utf, racks)]
    parts.append(_int(len(group.members)))
    for member_id, subscription in group.members.items():
        data = consumer_protocol.serialize_subscription(subscription)
        parts += [_utf(member_id), _utf(subscription.group_instance_id or ""), _int(len(data)), data]
    return b"".join(parts)


def _int(value: int) -> bytes:
    return struct.pack(">i", value)


def _utf(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data
