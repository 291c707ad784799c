"""The base class of the sticky assignors (Java: AbstractStickyAssignor)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from pykclient.consumer.assignors.abstract_partition_assignor import AbstractPartitionAssignor
from pykclient.consumer.assignors.constrained_assignment_builder import ConstrainedAssignmentBuilder
from pykclient.consumer.assignors.consumer_partition_assignor import Subscription
from pykclient.consumer.assignors.general_assignment_builder import GeneralAssignmentBuilder
from pykclient.consumer.assignors.owned_partitions import MemberData, OwnedPartitions
from pykclient.consumer.assignors.rack_info import RackInfo
from pykclient.types import PartitionInfo, TopicPartition


class AbstractStickyAssignor(AbstractPartitionAssignor):
    """Balances the members' numbers of partitions, and moves as few partitions as possible.

    If members and replicas have racks, and racks differ between partitions, members prefer partitions with a replica in
    their rack. Balance comes first, then racks, then stickiness (KIP-881). Thread: application.
    """

    @abstractmethod
    def member_data(self, subscription: Subscription) -> MemberData:
        """Return the partitions that a member owned before this rebalance."""

    def assign_partitions(
        self, partitions_per_topic: Mapping[str, Sequence[PartitionInfo]], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        if not subscriptions:
            return {}
        topics = {member_id: frozenset(subscription.topics) for member_id, subscription in subscriptions.items()}
        wanted = frozenset[str]().union(*topics.values())
        partitions = {
            topic: [TopicPartition(topic, info.partition) for info in infos]
            for topic, infos in sorted(partitions_per_topic.items())
            if topic in wanted
        }
        racks = RackInfo([info for topic in partitions for info in partitions_per_topic[topic]], subscriptions)
        every_partition = [tp for some in partitions.values() for tp in some]
        owned = OwnedPartitions(
            every_partition,
            {member_id: self.member_data(subscription) for member_id, subscription in subscriptions.items()},
        )
        if len(set(topics.values())) == 1:
            assignment = ConstrainedAssignmentBuilder(every_partition, racks, owned).build()
        else:
            assignment = GeneralAssignmentBuilder(partitions, topics, racks, owned).build()
        return self.adjust(assignment, owned)

    def adjust(
        self,
        assignment: dict[str, list[TopicPartition]],
        owned: OwnedPartitions,  # noqa: ARG002 - for subclasses
    ) -> dict[str, list[TopicPartition]]:
        """Return the balanced assignment as the members get it in this rebalance."""
        return assignment
