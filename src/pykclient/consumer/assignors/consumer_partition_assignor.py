"""The interface of assignors (Java: ConsumerPartitionAssignor)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from pykclient.network.cluster import Cluster
from pykclient.types import ConsumerGroupMetadata, TopicPartition

#: Members revoke all partitions before they rejoin.
EAGER = 0
#: Members keep their partitions while they rejoin; those that move are revoked in a round of their own (KIP-429).
COOPERATIVE = 1


class Subscription:
    """A member's subscription.

    ``owned_partitions`` are the partitions it owns since ``generation_id`` (-1: unknown). Members do not send
    ``group_instance_id``; the leader gets it from the coordinator. Thread: any.
    """

    __slots__ = ("generation_id", "group_instance_id", "owned_partitions", "rack_id", "topics", "user_data")

    def __init__(
        self,
        topics: Sequence[str],
        user_data: bytes | None = None,
        owned_partitions: Sequence[TopicPartition] = (),
        generation_id: int = -1,
        rack_id: str | None = None,
        group_instance_id: str | None = None,
    ) -> None:
        self.topics = topics
        self.user_data = user_data
        self.owned_partitions = owned_partitions
        self.generation_id = generation_id
        self.rack_id = rack_id
        self.group_instance_id = group_instance_id

    def __repr__(self) -> str:
        return (
            f"Subscription(topics={list(self.topics)}, owned_partitions={len(self.owned_partitions)}, "
            f"generation_id={self.generation_id}, rack_id={self.rack_id!r}, instance={self.group_instance_id!r})"
        )


class Assignment:
    """A member's assignment. Thread: any."""

    __slots__ = ("partitions", "user_data")

    def __init__(self, partitions: Sequence[TopicPartition], user_data: bytes | None = None) -> None:
        self.partitions = partitions
        self.user_data = user_data

    def __repr__(self) -> str:
        return f"Assignment({', '.join(map(str, self.partitions))})"


class ConsumerPartitionAssignor(ABC):
    """Distributes the partitions of the subscribed topics among the members of a group.

    Every member offers its assignors by name, the coordinator chooses one that all have, and the leader runs it.
    Thread: application.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The name in the group protocol, equal for all members."""

    @abstractmethod
    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        """Return the assignment of each member id. A member that is left out gets an empty one."""

    def subscription_user_data(self, topics: AbstractSet[str]) -> bytes | None:  # noqa: ARG002 - for subclasses
        """Return data for the leader's assignor, besides this member's topics."""
        return None

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:  # noqa: B027 - a hook
        """Handle this member's new assignment."""

    @property
    def supported_protocols(self) -> tuple[int, ...]:
        """Return EAGER, COOPERATIVE or both.

        The group uses the highest one that all of a member's assignors support.
        """
        return (EAGER,)

    @property
    def version(self) -> int:
        """The version of the user data."""
        return 0
