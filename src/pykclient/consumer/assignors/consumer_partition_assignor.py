"""The seam between a group's leader and what divides the partitions (Java: ConsumerPartitionAssignor)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from pykclient.network.cluster import Cluster
from pykclient.types import ConsumerGroupMetadata, TopicPartition

#: Members give everything back before they join again.
EAGER = 0
#: Members keep what they own while they join; what has to move is revoked in a round of its own (KIP-429).
COOPERATIVE = 1


class Subscription:
    """What one member asks for.

    ``owned_partitions`` is what it holds since ``generation_id`` (-1: unknown); ``group_instance_id`` is not part of
    what the member sends, the leader learns it from the coordinator. Thread: any.
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
    """What one member gets. Thread: any."""

    __slots__ = ("partitions", "user_data")

    def __init__(self, partitions: Sequence[TopicPartition], user_data: bytes | None = None) -> None:
        self.partitions = partitions
        self.user_data = user_data

    def __repr__(self) -> str:
        return f"Assignment({', '.join(map(str, self.partitions))})"


class ConsumerPartitionAssignor(ABC):
    """Divides the partitions of the subscribed topics among the members of a group.

    Every member offers its assignors by name, the coordinator chooses one that all have, the leader runs it.
    Thread: application.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The name that goes over the wire, the same for all members."""

    @abstractmethod
    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        """Return the assignment of each member id. A member that is left out gets an empty one."""

    def subscription_user_data(self, topics: AbstractSet[str]) -> bytes | None:  # noqa: ARG002 - for subclasses
        """What this member wants to tell the leader's assignor besides its topics."""
        return None

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:  # noqa: B027 - a hook
        """This member got ``assignment``."""

    @property
    def supported_protocols(self) -> tuple[int, ...]:
        """EAGER, COOPERATIVE or both; the group uses the highest one that all assignors of a member have."""
        return (EAGER,)

    @property
    def version(self) -> int:
        """Of the user data."""
        return 0
