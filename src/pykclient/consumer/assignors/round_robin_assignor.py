"""Partition after partition to member after member (Java: RoundRobinAssignor)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pykclient.consumer.assignors.abstract_partition_assignor import AbstractPartitionAssignor, sorted_members
from pykclient.consumer.assignors.consumer_partition_assignor import Subscription
from pykclient.types import PartitionInfo, TopicPartition


class RoundRobinAssignor(AbstractPartitionAssignor):
    """Deals the partitions of all topics out like cards, passing over members that do not want the topic.

    With equal subscriptions no member has more than one partition more than another. Thread: application.
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
            for info in partitions_per_topic[topic]:
                while topic not in wanted[turn]:
                    turn = (turn + 1) % len(members)
                assignment[members[turn]].append(TopicPartition(topic, info.partition))
                turn = (turn + 1) % len(members)
        return assignment
