"""The sticky assignors: sticky and cooperative-sticky (Java: StickyAssignor and CooperativeStickyAssignor).

Owners before an assignment and racks (KIP-54, KIP-341, KIP-881) go into one of two builders: for members that all
subscribe to the same topics, and for those that do not. Members say what they own in the user data of a subscription::

    version 0: [topic STRING, [partition INT32]]
    version 1: [topic STRING, [partition INT32]] generation INT32

The version is not part of the data, except in that of kafka-python 3, which begins with it (INT16). librdkafka also
sends version 1 for its cooperative-sticky assignor.
"""

from __future__ import annotations

import logging
import struct
from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Set as AbstractSet
from typing import NamedTuple

from pykclient.consumer.partition_assignors import (
    COOPERATIVE,
    EAGER,
    AbstractPartitionAssignor,
    Assignment,
    RackInfo,
    Subscription,
    numbers_by_topic,
)
from pykclient.errors import RemoteProtocolError
from pykclient.protocol.wire import BytesLike, Reader, Writer
from pykclient.types import ConsumerGroupMetadata, PartitionInfo, TopicPartition

_log = logging.getLogger(__name__)
#: The generation of a member that does not know its own.
DEFAULT_GENERATION = -1


class MemberData(NamedTuple):
    """The partitions that a member claims, and the generation that assigned them (-1: unknown)."""

    partitions: Sequence[TopicPartition]
    generation_id: int = DEFAULT_GENERATION


class OwnedPartitions:
    """The owners of partitions, resolved from the claims of all members.

    A partition belongs to the member that got it in the latest generation. If several members claim it in that
    generation, it is ``contested`` and belongs to none of them. Claims of partitions that do not exist are ignored.
    Thread: application.
    """

    def __init__(self, partitions: Sequence[TopicPartition], member_data: Mapping[str, MemberData]) -> None:
        existing = frozenset(partitions)
        claims: dict[TopicPartition, tuple[int, str]] = {}
        self.contested: set[TopicPartition] = set()
        for member_id, data in sorted(member_data.items()):
            for tp in dict.fromkeys(data.partitions):
                if tp not in existing:
                    continue
                claim = claims.get(tp)
                if claim is None or data.generation_id > claim[0]:
                    claims[tp] = data.generation_id, member_id
                    self.contested.discard(tp)
                elif data.generation_id == claim[0]:
                    self.contested.add(tp)
        if self.contested:
            _log.warning(
                "Several members claim to own %s in the same generation; assigning them as if nobody did",
                ", ".join(map(str, sorted(self.contested))),
            )
        self.owners = {tp: member_id for tp, (_, member_id) in claims.items() if tp not in self.contested}
        self._member_data = member_data

    def by_member(self) -> dict[str, list[TopicPartition]]:
        """Return the partitions that each member owns. Members are in ascending order."""
        owned: dict[str, list[TopicPartition]] = {member_id: [] for member_id in sorted(self._member_data)}
        for tp, member_id in self.owners.items():
            owned[member_id].append(tp)
        return owned

    def previous_owners(self, topics: Mapping[str, frozenset[str]]) -> dict[TopicPartition, str]:
        """Return the members that claim a partition in an older generation than the group's latest, the latest first.

        ``topics`` are each member's topics; claims of others are left out.
        """
        latest = max((data.generation_id for data in self._member_data.values()), default=DEFAULT_GENERATION)
        previous: dict[TopicPartition, tuple[int, str]] = {}
        for member_id, data in sorted(self._member_data.items()):
            if data.generation_id == latest:
                continue
            for tp in data.partitions:
                if tp.topic in topics[member_id] and (tp not in previous or data.generation_id > previous[tp][0]):
                    previous[tp] = data.generation_id, member_id
        return {tp: member_id for tp, (_, member_id) in previous.items()}

    def moves(self, member_id: str, tp: TopicPartition) -> bool:
        """Return True if the partition must be revoked from another member before this one may own it."""
        return tp in self.contested or self.owners.get(tp, member_id) != member_id


_VERSION = 1
_INT32_BYTES = 4


def serialize_member_data(partitions: Iterable[TopicPartition], generation_id: int) -> bytes:
    """Encode a previous assignment in version 1."""
    numbers = numbers_by_topic(partitions)
    writer = Writer()
    writer.array_length(len(numbers), flexible=False)
    for topic, some in numbers.items():
        writer.string(topic, flexible=False)
        writer.int32_array(some, flexible=False)
    writer.int32(generation_id)
    return writer.getvalue()


def deserialize_member_data(user_data: BytesLike | None) -> MemberData:
    """Decode a previous assignment of either version. If it cannot be read, the member owned nothing."""
    if not user_data:
        return MemberData(())
    try:
        return _read_member_data(Reader(user_data))
    except RemoteProtocolError:
        pass  # it may be of the other version
    try:
        reader = Reader(user_data)
        if reader.int16() == _VERSION:
            return _read_member_data(reader)
    except RemoteProtocolError:
        pass
    return MemberData(())


def _read_member_data(reader: Reader) -> MemberData:
    partitions: list[TopicPartition] = []
    for _ in range(reader.array_length(flexible=False)):
        topic = reader.string(flexible=False)
        partitions += [TopicPartition(topic, number) for number in reader.int32_array(flexible=False)]
    return MemberData(partitions, reader.int32() if reader.remaining >= _INT32_BYTES else DEFAULT_GENERATION)


class Subscribers:
    """The members that subscribe to a topic, in ascending order, and those in the rack of a partition's replica.

    ``topics`` are each member's topics. Thread: application.
    """

    def __init__(self, subscribed: Iterable[str], topics: Mapping[str, frozenset[str]], racks: RackInfo) -> None:
        members = sorted(topics)
        self._topics = topics
        self._racks = racks
        self._by_topic = {topic: [each for each in members if topic in topics[each]] for topic in subscribed}
        self._by_racks: dict[tuple[str, frozenset[str]], Sequence[str]] = {}

    def of(self, topic: str) -> Sequence[str]:
        """Return the members that subscribe to the topic."""
        return self._by_topic[topic]

    def near(self, tp: TopicPartition) -> Sequence[str]:
        """Return the subscribers in the rack of a replica, and those that have no rack."""
        key = tp.topic, self._racks.replica_racks(tp)
        near = self._by_racks.get(key)
        if near is None:
            near = [each for each in self._by_topic[tp.topic] if self._racks.matches(each, tp)]
            self._by_racks[key] = near
        return near

    def may_have(self, member_id: str, tp: TopicPartition) -> bool:
        """Return True if the member subscribes to the partition's topic."""
        return tp.topic in self._topics[member_id]


#: A partition and the member that it moves to.
Move = tuple[TopicPartition, str]


class RackMoves:
    """Finds moves that put more partitions in the rack of a replica, and keep the balance.

    ``owned`` are the owners before the rebalance, ``owners`` those so far. ``sizes`` are the members' numbers of
    partitions. The caller changes both, and reports each change. Thread: application.
    """

    def __init__(
        self,
        racks: RackInfo,
        subscribers: Subscribers,
        owned: Mapping[TopicPartition, str],
        owners: Mapping[TopicPartition, str],
        sizes: Mapping[str, int],
    ) -> None:
        self._racks = racks
        self._subscribers = subscribers
        self._owned = owned
        self._owners = owners
        self._sizes = sizes
        self._assigned: dict[str, set[TopicPartition]] = {member_id: set() for member_id in sizes}
        for tp, owner in owners.items():
            self._assigned[owner].add(tp)
        self._exchangeable: dict[str, dict[str | None, list[TopicPartition]]] = {}

    def moved(self, tp: TopicPartition, source: str, target: str) -> None:
        """Take note of a move."""
        self._assigned[source].discard(tp)
        self._assigned[target].add(tp)
        self._exchangeable.pop(source, None)
        self._exchangeable.pop(target, None)

    def find(self, tp: TopicPartition) -> Sequence[Move]:
        """Return a move of the partition, two moves that exchange it for another one, or none."""
        owner, sizes = self._owners[tp], self._sizes
        near = () if self._racks.matches(owner, tp) else self._subscribers.near(tp)
        for target in sorted(near, key=sizes.__getitem__):
            if sizes[target] < sizes[owner]:
                return ((tp, target),)
            for other in self._may_go_to(self._racks.member_rack(owner), target):
                if self._subscribers.may_have(owner, other):
                    return (tp, target), (other, owner)
        return ()

    def _may_go_to(self, rack: str | None, member_id: str) -> Sequence[TopicPartition]:
        """Return the member's partitions that would not be farther from an owner in ``rack``.

        The first ones are those that the member did not own before the rebalance.
        """
        by_rack = self._exchangeable.setdefault(member_id, {})
        found = by_rack.get(rack)
        if found is None:
            found = [
                tp
                for tp in self._assigned[member_id]
                if rack in self._racks.replica_racks(tp) or not self._racks.matches(member_id, tp)
            ]
            found.sort(key=lambda tp: (self._owned.get(tp) == member_id, tp))
            by_rack[rack] = found
        return found


class ConstrainedAssignmentBuilder:
    """Gives each member the same number of partitions, or one more.

    1. Members keep what they own, up to their share. If racks are used, they keep only partitions in their rack.
    2. If racks are used, members that lack partitions get those in their rack, in turn. Partitions with few members in
       their racks are first; of equal ones, those without an owner.
    3. Of the partitions that nobody in their racks can take, members keep what they own, up to their share.
    4. Members that lack partitions get the others, in turn.

    Java omits step 3, so partitions change their owner in rebalances that do not bring them nearer to one.

    ``partitions`` are those of all topics, in ascending order. Thread: application.
    """

    def __init__(self, partitions: Sequence[TopicPartition], racks: RackInfo, owned: OwnedPartitions) -> None:
        self._partitions = partitions
        self._racks = racks
        self._owners = owned.owners
        self._owned = owned.by_member()
        self._assignment: dict[str, list[TopicPartition]] = {member_id: [] for member_id in self._owned}
        # So many members get the higher quota; none if the quotas are equal.
        self._min_quota, self._vacant_max_quotas = divmod(len(partitions), len(self._owned))
        self._max_quota = self._min_quota + (self._vacant_max_quotas > 0)
        self._under_min_quota: list[str] = []
        self._at_min_quota: deque[str] = deque()

    def build(self) -> dict[str, list[TopicPartition]]:
        """Return the partitions of each member."""
        self._assign_owned_partitions()
        assigned = {tp for partitions in self._assignment.values() for tp in partitions}
        unassigned = [tp for tp in self._partitions if tp not in assigned]
        if self._racks.is_used:
            unassigned = self._assign_by_racks(unassigned)
        self._assign_round_robin(unassigned)
        return self._assignment

    def _assign_owned_partitions(self) -> None:
        for member_id, partitions in self._owned.items():
            owned = [tp for tp in partitions if self._racks.matches(member_id, tp)]
            # Spread what is kept evenly over the topics.
            owned.sort(key=lambda tp: (tp.partition, tp.topic))
            if len(owned) < self._min_quota:
                self._under_min_quota.append(member_id)
            elif len(owned) >= self._max_quota and self._vacant_max_quotas:
                del owned[self._max_quota :]
                self._take_max_quota()
            else:
                del owned[self._min_quota :]
                self._keep_at_min_quota(member_id)
            self._assignment[member_id] += owned

    def _take_max_quota(self) -> None:
        """Count one more member with the higher quota."""
        self._vacant_max_quotas -= 1
        if not self._vacant_max_quotas:
            self._at_min_quota.clear()

    def _keep_at_min_quota(self, member_id: str) -> None:
        if self._vacant_max_quotas:
            self._at_min_quota.append(member_id)

    def _assign_by_racks(self, unassigned: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Assign partitions to members in the rack of a replica, else to their owners; return the others."""
        far = {tp for tp in unassigned if tp in self._owners and not self._racks.matches(self._owners[tp], tp)}
        by_choice = self._racks.fewest_members_first(sorted(unassigned, key=far.__contains__))
        rest = self._assign_in_racks(by_choice)
        return [tp for tp in rest if tp not in far] + self._assign_to_owners([tp for tp in rest if tp in far])

    def _assign_in_racks(self, unassigned: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Assign partitions to members in the rack of a replica, as far as quotas allow; return the others."""
        rest: list[TopicPartition] = []
        turn = 0
        for tp in unassigned:
            index = self._racks.next_near(tp, self._under_min_quota, turn)
            if index is not None:
                turn = self._give_below_min_quota(tp, index)
                continue
            index = self._racks.next_near(tp, self._at_min_quota, 0)
            if index is None:
                rest.append(tp)
            else:
                self._give_at_min_quota(tp, index)
        return rest

    def _assign_to_owners(self, unassigned: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Assign partitions to their owners, as far as quotas allow; return the others."""
        rest: list[TopicPartition] = []
        for tp in unassigned:
            owner = self._owners[tp]
            if owner in self._under_min_quota:
                self._give_below_min_quota(tp, self._under_min_quota.index(owner))
            elif owner in self._at_min_quota:
                self._give_at_min_quota(tp, self._at_min_quota.index(owner))
            else:
                rest.append(tp)
        return rest

    def _give_below_min_quota(self, tp: TopicPartition, index: int) -> int:
        """Assign a partition to a member that lacks some; return the index of the next such member."""
        member_id = self._under_min_quota[index]
        assigned = self._assignment[member_id]
        assigned.append(tp)
        if len(assigned) < self._min_quota:
            index += 1
        else:
            del self._under_min_quota[index]
            self._keep_at_min_quota(member_id)
        return index if index < len(self._under_min_quota) else 0

    def _give_at_min_quota(self, tp: TopicPartition, index: int) -> None:
        """Assign one more partition to a member that has its share already."""
        self._assignment[self._at_min_quota[index]].append(tp)
        del self._at_min_quota[index]
        self._take_max_quota()

    def _assign_round_robin(self, unassigned: Sequence[TopicPartition]) -> None:
        turn = 0
        for tp in unassigned:
            if self._under_min_quota:
                turn = self._give_below_min_quota(tp, turn)
            else:
                self._assignment[self._at_min_quota.popleft()].append(tp)


class GeneralAssignmentBuilder:
    """Balances the members' numbers of partitions as far as subscriptions allow.

    1. Members keep what they own and still subscribe to.
    2. Each other partition goes to the subscriber with the fewest partitions, if racks are used first to those in the
       rack of a replica.
    3. Partitions move to the subscriber with the fewest while that makes the difference between the two smaller, new
       partitions first.
    4. If racks are used, partitions move to subscribers in the rack of a replica, alone or in exchange for another one,
       as far as that keeps the balance.

    Without racks this is what Java does, which searches the whole group for an imbalance before each move and takes
    minutes for large groups. With racks, Java takes partitions from owners in other racks before it assigns, and then
    moves them without regard to racks. It may do so in each rebalance anew, and cooperative rebalances never end.
    Thread: application.
    """

    def __init__(
        self,
        partitions: Mapping[str, Sequence[TopicPartition]],
        topics: Mapping[str, frozenset[str]],
        racks: RackInfo,
        owned: OwnedPartitions,
    ) -> None:
        """``partitions`` are the partitions of each topic, ``topics`` each member's topics."""
        self._racks = racks
        self._owned = owned.owners
        self._previous = owned.previous_owners(topics)
        self._subscribers = Subscribers(partitions, topics, racks)
        # Partitions with few subscribers first: there is less choice.
        order = sorted(partitions, key=lambda topic: (len(self._subscribers.of(topic)), topic))
        self._partitions = [tp for topic in order for tp in partitions[topic]]
        self._owners: dict[TopicPartition, str] = {}
        self._sizes = dict.fromkeys(sorted(topics), 0)
        self._movements = _PartitionMovements(self._owned)

    def build(self) -> dict[str, list[TopicPartition]]:
        """Return the partitions of each member."""
        must_revoke = self._keep_owned_partitions()
        unassigned = [tp for tp in self._partitions if tp not in self._owners]
        for tp in unassigned if self._racks.is_used else ():
            self._assign(tp, self._subscribers.near(tp))
        for tp in unassigned:
            if tp not in self._owners:
                self._assign(tp, self._subscribers.of(tp.topic))
        if not must_revoke:
            self._balance(unassigned)
        self._balance(self._partitions)
        while self._racks.is_used and self._move_into_racks():
            self._balance(self._partitions)
        assignment: dict[str, list[TopicPartition]] = {member_id: [] for member_id in self._sizes}
        for tp in self._partitions:
            assignment[self._owners[tp]].append(tp)
        return assignment

    def _keep_owned_partitions(self) -> bool:
        """Return True if an owned partition must be revoked whatever the balance is."""
        must_revoke = False
        for tp, member_id in self._owned.items():
            if self._subscribers.may_have(member_id, tp):
                self._owners[tp] = member_id
                self._sizes[member_id] += 1
            else:
                must_revoke = True
        return must_revoke

    def _assign(self, tp: TopicPartition, candidates: Sequence[str]) -> None:
        if candidates:
            member_id = self._smallest(candidates)
            self._owners[tp] = member_id
            self._sizes[member_id] += 1

    def _smallest(self, members: Sequence[str]) -> str:
        """Return the member with the fewest partitions, the first of several."""
        return min(members, key=self._sizes.__getitem__)

    def _balance(self, partitions: Iterable[TopicPartition]) -> None:
        """Move partitions until no move reduces the difference between two members."""
        sizes = self._sizes
        again = True
        while again:
            again = False
            fewest = min(sizes.values())  # no member gets fewer by the moves below
            for tp in partitions:
                owner = self._owners[tp]
                if sizes[owner] <= fewest + 1:
                    continue
                target = self._previous.get(tp)
                if target is None or sizes[owner] <= sizes[target] + 1:
                    target = self._smallest(self._subscribers.of(tp.topic))
                if sizes[owner] > sizes[target] + 1:
                    # Two members do not swap partitions of one topic: the target gets back what it gave away.
                    self._move(self._movements.returning(tp, owner, target), target)
                    again = True

    def _move(self, tp: TopicPartition, target: str) -> None:
        owner = self._owners[tp]
        self._movements.add(tp, owner, target)
        self._owners[tp] = target
        self._sizes[owner] -= 1
        self._sizes[target] += 1

    def _move_into_racks(self) -> bool:
        """Move partitions into the racks of their owners while that keeps the balance; return True if any moved."""
        moves = RackMoves(self._racks, self._subscribers, self._owned, self._owners, self._sizes)
        moved = False
        again = True
        while again:
            again = False
            for tp in self._partitions:
                for each, target in moves.find(tp):
                    moves.moved(each, self._owners[each], target)
                    self._move(each, target)
                    moved = again = True
        return moved


class _PartitionMovements:
    """The partitions that were moved for balance, by topic, first owner and last owner.

    Two members never swap partitions of one topic: before a member gets another partition of a topic, it gets back one
    that it gave away. Thread: application.
    """

    def __init__(self, owned: Mapping[TopicPartition, str]) -> None:
        """``owned`` maps partitions to their owners before the rebalance."""
        self._owned = owned
        self._first_owners: dict[TopicPartition, str] = {}
        self._by_members: dict[tuple[str, str, str], set[TopicPartition]] = {}

    def add(self, tp: TopicPartition, owner: str, target: str) -> None:
        first = self._first_owners.pop(tp, owner)
        if first != owner:
            self._by_members[tp.topic, first, owner].discard(tp)
        if first != target:
            self._first_owners[tp] = first
            self._by_members.setdefault((tp.topic, first, target), set()).add(tp)

    def returning(self, tp: TopicPartition, owner: str, target: str) -> TopicPartition:
        """Return a partition of the same topic that ``owner`` got from ``target``, or ``tp`` if there is none.

        Rather one that ``target`` owned before the rebalance; Java takes any.
        """
        given = self._by_members.get((tp.topic, target, owner), ())
        return min(given, key=lambda each: (self._owned.get(each) != target, each), default=tp)


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
        """Return the part of the balanced assignment that members may own after this rebalance."""
        return assignment


class StickyAssignor(AbstractStickyAssignor):
    """Balances the members' numbers of partitions, and keeps previous assignments as far as possible.

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
