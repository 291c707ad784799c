"""Assignors, with which a group's leader distributes partitions: interface, range, roundrobin, and loading by name.

Java: ConsumerPartitionAssignor, AbstractPartitionAssignor, RangeAssignor (with KIP-881) and RoundRobinAssignor.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence, Set as AbstractSet
from itertools import islice
from typing import Any, NamedTuple

from pykclient.config.config_def import load
from pykclient.errors import ConfigError
from pykclient.network.metadata import Cluster
from pykclient.types import ConsumerGroupMetadata, PartitionInfo, TopicPartition

#: Members revoke all partitions before they rejoin.
EAGER = 0
#: Members keep their partitions while they rejoin; those that move are revoked in a round of their own (KIP-429).
COOPERATIVE = 1


class Subscription(NamedTuple):
    """A member's subscription.

    ``owned_partitions`` are the partitions it owns since ``generation_id`` (-1: unknown). Members do not send
    ``group_instance_id``; the leader gets it from the coordinator. Thread: any.
    """

    topics: Sequence[str]
    user_data: bytes | None = None
    owned_partitions: Sequence[TopicPartition] = ()
    generation_id: int = -1
    rack_id: str | None = None
    group_instance_id: str | None = None


class Assignment(NamedTuple):
    """A member's assignment. Thread: any."""

    partitions: Sequence[TopicPartition]
    user_data: bytes | None = None


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


_log = logging.getLogger(__name__)


def numbers_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the partition numbers of each topic."""
    by_topic: dict[str, list[int]] = {}
    for tp in partitions:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    return by_topic


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


_NO_RACKS: frozenset[str] = frozenset()


class RackInfo:
    """Maps partitions to the members in the racks of their replicas.

    Racks count only if some partitions have replicas in some racks and others do not, and members are in these racks.
    Otherwise ``is_used`` is False, and every member matches every partition. Thread: application.
    """

    def __init__(self, infos: Iterable[PartitionInfo], subscriptions: Mapping[str, Subscription]) -> None:
        self._member_racks: dict[str, str] = {
            member_id: subscription.rack_id for member_id, subscription in subscriptions.items() if subscription.rack_id
        }
        # Empty if no member has a rack.
        self._partition_racks: dict[TopicPartition, frozenset[str]] = {}
        if self._member_racks:
            self._partition_racks = {
                TopicPartition(info.topic, info.partition): frozenset(node.rack for node in info.replicas if node.rack)
                for info in infos
            }
        every_rack = _NO_RACKS.union(*self._partition_racks.values())
        self.is_used = not every_rack.isdisjoint(self._member_racks.values()) and any(
            racks != every_rack for racks in self._partition_racks.values()
        )
        members_per_rack: dict[str, int] = {}
        for rack in self._member_racks.values():
            members_per_rack[rack] = members_per_rack.get(rack, 0) + 1
        self._members_near: dict[TopicPartition, int] = {
            tp: sum(members_per_rack.get(rack, 0) for rack in racks) for tp, racks in self._partition_racks.items()
        }

    def member_rack(self, member_id: str) -> str | None:
        """Return the member's rack, or None if it has none."""
        return self._member_racks.get(member_id) if self.is_used else None

    @property
    def partition_count(self) -> int:
        """The number of partitions; 0 if no member has a rack."""
        return len(self._partition_racks)

    def replica_racks(self, tp: TopicPartition) -> frozenset[str]:
        """Return the racks of the partition's replicas; none if no member has a rack."""
        return self._partition_racks.get(tp, _NO_RACKS)

    def matches(self, member_id: str, tp: TopicPartition) -> bool:
        """Return True if racks do not count, or the partition is near the member."""
        return not self.is_used or self.is_near(member_id, tp)

    def is_near(self, member_id: str, tp: TopicPartition) -> bool:
        """Return True if the partition has a replica in the member's rack, or the member has no rack."""
        rack = self._member_racks.get(member_id)
        return rack is None or rack in self.replica_racks(tp)

    def fewest_members_first(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions sorted by their number of members in a replica's rack. The sort is stable."""
        return sorted(partitions, key=lambda tp: self._members_near.get(tp, 0))

    def next_near(self, tp: TopicPartition, members: Sequence[str], first: int) -> int | None:
        """Return the index of the next of ``members``, cyclically from ``first``, in a replica's rack."""
        racks = self.replica_racks(tp)
        for step in range(len(members)):
            index = (first + step) % len(members)
            if self._member_racks.get(members[index]) in racks:
                return index
        return None


class RangeAssignor(AbstractPartitionAssignor):
    """Divides each topic on its own into ranges that are as equal as possible.

    Topics with equal subscribers and equal partition counts are divided alike (co-partitioned). If members and replicas
    have racks, and racks differ between partitions, members first get partitions with a replica in their rack, as far
    as balance and co-partitioning allow. Thread: application.
    """

    name = "range"

    def assign_partitions(
        self, partitions_per_topic: Mapping[str, Sequence[PartitionInfo]], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        assignment: dict[str, list[TopicPartition]] = {member_id: [] for member_id in subscriptions}
        members_per_topic: dict[str, list[str]] = {}
        for member_id in sorted_members(subscriptions):
            for topic in dict.fromkeys(subscriptions[member_id].topics):
                members_per_topic.setdefault(topic, []).append(member_id)
        topics = [
            _Topic(
                topic, infos, {member_id: subscriptions[member_id] for member_id in members_per_topic.get(topic, ())}
            )
            for topic, infos in partitions_per_topic.items()
            if infos
        ]
        rack_aware = any(state.racks.is_used for state in topics)
        if rack_aware:
            _assign_with_rack_matching(topics, assignment)
        for state in topics:
            state.assign_ranges(assignment)
        if rack_aware:
            for partitions in assignment.values():
                partitions.sort()
        return assignment


class _Topic:
    """The unassigned partitions of a topic. ``members`` are the subscriptions of its subscribers, in order."""

    def __init__(self, name: str, infos: Sequence[PartitionInfo], members: Mapping[str, Subscription]) -> None:
        self.name = name
        self.members = tuple(members)
        self.racks = RackInfo(infos, members)
        self.unassigned: dict[TopicPartition, None] = {TopicPartition(name, info.partition): None for info in infos}
        self._given = dict.fromkeys(members, 0)
        # Each member gets the quota, and the first ones get one more if there is a remainder.
        self._quota, self._extra = divmod(len(infos), len(members)) if members else (0, 0)

    def max_assignable(self, member_id: str) -> int:
        """Return how many more partitions the member may get."""
        return max(0, self._quota + (self._extra > 0) - self._given[member_id])

    def give(
        self, member_id: str, partitions: Sequence[TopicPartition], assignment: dict[str, list[TopicPartition]]
    ) -> None:
        assignment[member_id].extend(partitions)
        self._given[member_id] += len(partitions)
        if self._given[member_id] > self._quota:
            self._extra -= 1
        for tp in partitions:
            self.unassigned.pop(tp, None)

    def assign_ranges(
        self,
        assignment: dict[str, list[TopicPartition]],
        may_assign: Callable[[str, TopicPartition], bool] | None = None,
    ) -> None:
        """Assign to each member in turn the first partitions that it may have, up to its share."""
        for member_id in self.members:
            if not self.unassigned:
                return
            candidates = (tp for tp in self.unassigned if may_assign is None or may_assign(member_id, tp))
            partitions = list(islice(candidates, self.max_assignable(member_id)))
            if partitions:
                self.give(member_id, partitions, assignment)


def _assign_with_rack_matching(topics: Sequence[_Topic], assignment: dict[str, list[TopicPartition]]) -> None:
    co_partitioned: dict[tuple[tuple[str, ...], int], list[_Topic]] = {}
    for topic in topics:
        co_partitioned.setdefault((topic.members, topic.racks.partition_count), []).append(topic)
    for (_, partition_count), group in co_partitioned.items():
        if len(group) > 1:
            _assign_co_partitioned(group, partition_count, assignment)
        elif group[0].racks.is_used:
            group[0].assign_ranges(assignment, group[0].racks.is_near)


def _assign_co_partitioned(
    group: Sequence[_Topic], partition_count: int, assignment: dict[str, list[TopicPartition]]
) -> None:
    """Assign partition n of all topics to one member whose rack has a replica of each."""
    remaining = list(group[0].members)
    for partition in range(partition_count):
        for member_id in remaining:
            if all(
                topic.racks.is_near(member_id, TopicPartition(topic.name, partition))
                and topic.max_assignable(member_id)
                for topic in group
            ):
                break
        else:
            continue
        for topic in group:
            topic.give(member_id, (TopicPartition(topic.name, partition),), assignment)
        if not any(topic.max_assignable(member_id) for topic in group):
            remaining.remove(member_id)
            if not remaining:
                return


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


KEY = "partition.assignment.strategy"
#: The classes by their names in the group protocol, loaded when they are configured.
_BY_NAME = {
    "range": "pykclient.consumer.partition_assignors.RangeAssignor",
    "roundrobin": "pykclient.consumer.partition_assignors.RoundRobinAssignor",
    "sticky": "pykclient.consumer.sticky_assignor.StickyAssignor",
    "cooperative-sticky": "pykclient.consumer.sticky_assignor.CooperativeStickyAssignor",
}
_NAMES = ", ".join(_BY_NAME)


def assignor_instances(values: Sequence[Any]) -> list[ConsumerPartitionAssignor]:
    """Return instances for names, dotted names of classes, classes and instances.

    Raises:
        ConfigError: a value is not an assignor.
    """
    assignors: list[ConsumerPartitionAssignor] = []
    for value in values:
        assignor = _instance(value)
        if any(other.name == assignor.name for other in assignors):
            raise ConfigError(f"{KEY}: two assignors have the name {assignor.name!r}")
        assignors.append(assignor)
    return assignors


def _instance(value: Any) -> ConsumerPartitionAssignor:
    given = value
    if isinstance(value, str):
        value = _load(_BY_NAME.get(value, value))
    if isinstance(value, type):
        value = value()
    if not isinstance(value, ConsumerPartitionAssignor):
        raise ConfigError(f"{KEY}: {given!r} is none of {_NAMES}, and no ConsumerPartitionAssignor")
    return value


def _load(name: str) -> Any:
    try:
        return load(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{KEY}: {name!r} is none of {_NAMES}, and not the dotted name of a class ({error})"
        ) from error
