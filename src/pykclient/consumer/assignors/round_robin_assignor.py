"""The round-robin assignor (Java: RoundRobinAssignor)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pykclient.consumer.assignors.abstract_partition_assignor import AbstractPartitionAssignor, sorted_members
from pykclient.consumer.assignors.consumer_partition_assignor import Subscription
from pykclient.types import PartitionInfo, TopicPartition


class RoundRobinAssignor(AbstractPartitionAssignor):
    """Deals out the partitions of all topics one by one to the members in turn, skipping members without the topic.

    If all members subscribe to the same topics, their numbers of partitions differ by at most one. Thread: application.
    """

    name = "roundrobin"

    def assign_partitions(
        self, partitions_per_topic: Mapping[str, Sequence[PartitionInfo]], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        assignment: dict[str, list[TopicPartition]] = {member_id: [] for member_id in subscriptions}
        members = sorted_members(subscriptions)
        wanted = [frozenset(subscriptions[member_id].topics) for member_id in members]
        turn = 0
        for topic in sorted(partitions_per_topic):
            if not any(topic in topics for topics in wanted):
                continue
            for info in partitions_per_topic[topic]:
                while topic not in wanted[turn]:
                    turn = (turn + 1) % len(members)
                assignment[members[turn]].append(TopicPartition(topic, info.partition))
                turn = (turn + 1) % len(members)
        return assignment
