"""The sticky assignor (Java: StickyAssignor, KIP-54, KIP-341)."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from pykclient.consumer.assignors.abstract_sticky_assignor import AbstractStickyAssignor
from pykclient.consumer.assignors.consumer_partition_assignor import Assignment, Subscription
from pykclient.consumer.assignors.owned_partitions import DEFAULT_GENERATION, MemberData
from pykclient.consumer.assignors.sticky_user_data import deserialize_member_data, serialize_member_data
from pykclient.types import ConsumerGroupMetadata, TopicPartition


class StickyAssignor(AbstractStickyAssignor):
    """Balances the members' numbers of partitions; members get back what they had before, as far as possible.

    Members revoke all partitions before each rebalance, so they tell the leader what they had in the user data of their
    subscription. One instance belongs to one consumer. Thread: application.
    """

    name = "sticky"

    def __init__(self) -> None:
        self._partitions: Sequence[TopicPartition] | None = None
        self._generation_id = DEFAULT_GENERATION

    @property
    def version(self) -> int:
        return 1

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:
        self._partitions = assignment.partitions
        self._generation_id = metadata.generation_id

    def subscription_user_data(self, topics: AbstractSet[str]) -> bytes | None:  # noqa: ARG002 - the previous one counts
        if self._partitions is None:
            return None
        return serialize_member_data(self._partitions, self._generation_id)

    def member_data(self, subscription: Subscription) -> MemberData:
        return deserialize_member_data(subscription.user_data)
