"""The cooperative sticky assignor (Java: CooperativeStickyAssignor, KIP-429, KIP-792)."""

from __future__ import annotations

import struct
from collections.abc import Set as AbstractSet

from pykclient.consumer.assignors.abstract_sticky_assignor import AbstractStickyAssignor
from pykclient.consumer.assignors.consumer_partition_assignor import COOPERATIVE, EAGER, Assignment, Subscription
from pykclient.consumer.assignors.owned_partitions import DEFAULT_GENERATION, MemberData, OwnedPartitions
from pykclient.consumer.assignors.sticky_user_data import deserialize_member_data
from pykclient.types import ConsumerGroupMetadata, TopicPartition

#: The user data of Java's assignor.
_GENERATION = struct.Struct(">i")


class CooperativeStickyAssignor(AbstractStickyAssignor):
    """Assigns like the sticky assignor, but members keep reading while they rebalance.

    A partition that moves is taken from its owner in one rebalance, and given to its new owner in the next one, which
    follows once the first owner has revoked it. One instance belongs to one consumer. Thread: application.
    """

    name = "cooperative-sticky"

    def __init__(self) -> None:
        self._generation_id = DEFAULT_GENERATION

    @property
    def supported_protocols(self) -> tuple[int, ...]:
        return COOPERATIVE, EAGER

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:  # noqa: ARG002
        self._generation_id = metadata.generation_id

    def subscription_user_data(self, topics: AbstractSet[str]) -> bytes | None:  # noqa: ARG002 - all have one
        return _GENERATION.pack(self._generation_id)

    def member_data(self, subscription: Subscription) -> MemberData:
        return MemberData(subscription.owned_partitions, _generation_id(subscription))

    def adjust(
        self, assignment: dict[str, list[TopicPartition]], owned: OwnedPartitions
    ) -> dict[str, list[TopicPartition]]:
        return {
            member_id: [tp for tp in partitions if not owned.moves(member_id, tp)]
            for member_id, partitions in assignment.items()
        }


def _generation_id(subscription: Subscription) -> int:
    """Return the generation in which a member got its partitions.

    Since KIP-792 it is a field of the subscription. Older members send it in the user data: Java alone, librdkafka
    after the previous assignment, and kafka-python not at all.
    """
    user_data = subscription.user_data
    if subscription.generation_id >= 0 or not user_data:
        return subscription.generation_id
    if len(user_data) == _GENERATION.size:
        generation_id: int = _GENERATION.unpack(user_data)[0]
        return generation_id
    return deserialize_member_data(user_data).generation_id
