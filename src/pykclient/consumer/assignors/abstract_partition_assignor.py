"""The base class of assignors that distribute the partitions of subscribed topics (Java: AbstractPartitionAssignor)."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence

from pykclient.consumer.assignors.consumer_partition_assignor import (
    Assignment,
    ConsumerPartitionAssignor,
    Subscription,
)
from pykclient.network.cluster import Cluster
from pykclient.types import PartitionInfo, TopicPartition

_log = logging.getLogger(__name__)


def member_order(member_id: str, subscription: Subscription) -> tuple[bool, str]:
    """Return a sort key: static members by instance id, which survives restarts, then the others by member id."""
    if subscription.group_instance_id is not None:
        return False, subscription.group_instance_id
    return True, member_id


def sorted_members(subscriptions: Mapping[str, Subscription]) -> list[str]:
    """Return the member ids, static members first."""
    return sorted(subscriptions, key=lambda member_id: member_order(member_id, subscriptions[member_id]))


class AbstractPartitionAssignor(ConsumerPartitionAssignor):
    """Collects the topics' partitions; ``assign_partitions`` distributes them. Thread: application."""

    @abstractmethod
    def assign_partitions(
        self, partitions_per_topic: Mapping[str, Sequence[PartitionInfo]], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """Return the partitions of each member id; every member gets an entry.

        ``partitions_per_topic`` has the partitions of existing topics in ascending order. Topics that nobody subscribed
        to are not assigned.
        """

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        topics = {topic for subscription in subscriptions.values() for topic in subscription.topics}
        partitions_per_topic: dict[str, Sequence[PartitionInfo]] = {}
        for topic in sorted(topics):
            partitions = cluster.partitions_for_topic(topic)
            if partitions:
                partitions_per_topic[topic] = sorted(partitions, key=lambda info: info.partition)
            else:
                _log.debug("Topic %s is left out of the assignment: metadata does not have it", topic)
        divided = self.assign_partitions(partitions_per_topic, subscriptions)
        return {member_id: Assignment(partitions) for member_id, partitions in divided.items()}
