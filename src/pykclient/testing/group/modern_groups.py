"""Groups whose coordinator assigns, in its memory, with their members.

Consumer groups: KIP-848; share groups: KIP-932.
"""

from __future__ import annotations

import zlib
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from types import MappingProxyType
from typing import ClassVar, Final, NamedTuple, TypeVar
from uuid import UUID

from pykclient import errors
from pykclient.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pykclient.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from pykclient.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from pykclient.testing.event_loop import TimerHandle
from pykclient.testing.group.group_metadata import DEAD, EMPTY, STABLE, CoordinatedGroup, GroupOffsets, GroupState
from pykclient.testing.group.server_assignors import ASSIGNORS, MemberSpec, ShareMemberSpec, assign_simple
from pykclient.testing.metadata_cache import MetadataCache

#: The group's epoch is newer than that of the target assignment.
ASSIGNING: Final = GroupState("Assigning")

#: A member has not reached its target assignment yet.
RECONCILING: Final = GroupState("Reconciling")

#: The topics of a subscription, and the number of partitions of each.
Topics = Mapping[str, tuple["UUID", int]]

#: The time until the next attempt to remove an expired member that the log refuses to forget.
RETRY_EXPIRY_MS: Final = 500

#: Partitions by topic id.
Partitions = Mapping["UUID", frozenset[int]]


#: The values in records of ConsumerGroupCurrentMemberAssignment.
MEMBER_STABLE: Final = 1

UNREVOKED_PARTITIONS: Final = 2

UNRELEASED_PARTITIONS: Final = 3

#: The epoch of a heartbeat with which a member leaves.
LEAVE_EPOCH: Final = -1

#: The epoch of a static member that has left for a while.
LEFT_STATIC_EPOCH: Final = -2


class CurrentAssignment(NamedTuple):
    """The progress of a member towards its target."""

    epoch: int = 0
    previous_epoch: int = -1
    state: int = MEMBER_STABLE
    assigned: Partitions = MappingProxyType({})
    pending_revocation: Partitions = MappingProxyType({})

    def next(
        self,
        target_epoch: int,
        target: Partitions,
        reported: Partitions | None,
        is_owned: Callable[[UUID, int], bool],
    ) -> CurrentAssignment:
        """Return the next step towards ``target`` (Java: CurrentAssignmentBuilder).

        ``reported`` are the partitions that the member says it owns, None if the heartbeat did not say.
        ``is_owned(topic_id, partition)`` tells whether any member owns or still has to give up a partition.
        """
        epoch = self.epoch
        if self.state == MEMBER_STABLE and epoch == target_epoch:
            return self
        if self.state == UNREVOKED_PARTITIONS:
            if _overlaps(reported, self.pending_revocation):
                return self
            epoch += 1
        kept: dict[UUID, frozenset[int]] = {}
        revoked: dict[UUID, frozenset[int]] = {}
        added: dict[UUID, frozenset[int]] = {}
        is_waiting = False
        for topic_id in {**target, **self.assigned}:
            wanted, assigned = target.get(topic_id, frozenset()), self.assigned.get(topic_id, frozenset())
            free = frozenset(number for number in wanted - assigned if not is_owned(topic_id, number))
            is_waiting = is_waiting or free != wanted - assigned
            for partitions, into in ((assigned & wanted, kept), (assigned - wanted, revoked), (free, added)):
                if partitions:
                    into[topic_id] = partitions
        if revoked and _overlaps(reported, revoked):
            return CurrentAssignment(epoch, self.epoch, UNREVOKED_PARTITIONS, kept, revoked)
        for topic_id, partitions in added.items():
            kept[topic_id] = kept.get(topic_id, frozenset()) | partitions
        state = UNRELEASED_PARTITIONS if is_waiting else MEMBER_STABLE
        return CurrentAssignment(target_epoch, self.epoch, state, kept, {})


def _overlaps(reported: Partitions | None, revoked: Partitions) -> bool:
    """Return whether the member may still own any of the revoked partitions."""
    if reported is None:
        return True
    return any(reported.get(topic_id, frozenset()) & partitions for topic_id, partitions in revoked.items())


class ModernGroupMember:
    """A member of either kind of group. Thread: loop."""

    #: The settings that the member's record has as they are.
    SETTINGS: ClassVar[tuple[str, ...]] = ("rack_id", "client_id", "client_host")
    #: The assignment of a new member.
    FIRST: ClassVar = CurrentAssignment()

    instance_id: str | None = None

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.rack_id: str | None = None
        self.client_id = ""
        self.client_host = ""
        self.topic_names: frozenset[str] = frozenset()
        self.current: CurrentAssignment = self.FIRST
        self.session_timer: TimerHandle | None = None

    def update_settings(
        self, body: ConsumerGroupHeartbeatRequest | ShareGroupHeartbeatRequest, client_id: str, client_host: str
    ) -> None:
        """Apply the fields that a heartbeat of either kind has."""
        self.client_id = client_id
        self.client_host = client_host
        if body.rack_id is not None:
            self.rack_id = body.rack_id
        if body.subscribed_topic_names is not None:
            self.topic_names = frozenset(body.subscribed_topic_names)

    @property
    def subscription(self) -> tuple[object, ...]:
        """The subscription of the member: a change of it begins the group's next epoch."""
        return (self.topic_names,)

    def cancel_timers(self) -> None:
        """Cancel the timer of the session."""
        if self.session_timer is not None:
            self.session_timer.cancel()
            self.session_timer = None

    def __repr__(self) -> str:
        return f"<member {self.member_id}, epoch {self.current.epoch}>"


M = TypeVar("M", bound=ModernGroupMember)


class ModernGroup(CoordinatedGroup[M]):
    """The members, epochs and writes of a group whose members only send heartbeats.

    The group's epoch rises when its members, their subscriptions or the subscribed topics change; then the target is
    assigned anew, in that epoch. ``is_behind_log`` is True if an append has failed, so that the log lacks a part of
    this; the next append writes all. Thread: loop.
    """

    protocol_type: ClassVar[str]
    uses_consumer_protocol: ClassVar[bool]

    def __init__(self, group_id: str, now_wall_ms: int) -> None:
        self.group_id = group_id
        self.members: dict[str, M] = {}
        #: The target assignment, by member.
        self.targets: dict[str, Partitions] = {}
        self.group_epoch = 0
        self.assignment_epoch = 0
        self.metadata_hash = 0
        self.state_timestamp_ms = now_wall_ms
        self.offsets = GroupOffsets()
        self.is_metadata_stale = True
        self.is_behind_log = False
        self.is_dead = False
        self._pending = 0
        self._waiting: list[Callable[[], None]] = []

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """The topics that members read."""
        return frozenset(topic for member in self.members.values() for topic in self.topics_of(member))

    def topics_of(self, member: M) -> frozenset[str]:
        """Return the topics that a member subscribes to."""
        return member.topic_names

    def is_subscribed_to_topic(self, topic: str) -> bool:
        """Return whether the members read a topic."""
        return topic in self.subscribed_topics

    def known_topics(self, cache: MetadataCache) -> Topics:
        """Return those of the subscribed topics that exist."""
        return {
            topic: (cache.topic_id(topic), count)
            for topic in sorted(self.subscribed_topics)
            if (count := cache.num_partitions(topic))
        }

    def add(self, member: M) -> None:
        """Add a member, or replace the one with its id."""
        self.members[member.member_id] = member

    def advance(self, member: M, current: CurrentAssignment) -> None:
        """Advance a member towards its target."""
        member.current = current

    def remove(self, member: M) -> None:
        """Remove a member with its target."""
        self.members.pop(member.member_id, None)
        self.targets.pop(member.member_id, None)
        member.cancel_timers()

    def cancel_timers(self) -> None:
        """Cancel the timers of all members."""
        for member in self.members.values():
            member.cancel_timers()

    @property
    def generation_id(self) -> int:
        """The group's epoch."""
        return self.group_epoch

    @property
    def pending_members(self) -> Mapping[str, object]:
        """Always empty: in this protocol, members choose their ids."""
        return {}

    def transition_to(self, state: GroupState, now_wall_ms: int) -> None:
        """Record that the group is deleted or unloaded. Other states are derived from the members."""
        assert state is DEAD
        self.is_dead = True
        self.state_timestamp_ms = now_wall_ms

    @abstractmethod
    def assign(self, topics: Topics) -> None:
        """Assign the target anew, in the group's epoch, of the subscribed topics that exist."""

    # --- writes

    def snapshot(self) -> Callable[[], None]:
        """Return a function that restores the group and its members as they are now, without timers and offsets."""
        group = {name: copy(value) for name, value in vars(self).items() if name not in _NOT_RESTORED}
        members = [
            (member, {name: value for name, value in vars(member).items() if name not in _TIMERS})
            for member in self.members.values()
        ]

        def restore() -> None:
            vars(self).update(group)
            for member, values in members:
                vars(member).update(values)

        return restore

    def begin_write(self) -> None:
        """Count an append that begins, until ``end_write``."""
        self._pending += 1

    def end_write(self) -> None:
        """Call those that wait for the appends, if this was the last one."""
        self._pending -= 1
        if not self._pending:
            waiting, self._waiting = self._waiting, []
            for then in waiting:
                then()

    def when_written(self, then: Callable[[], None]) -> None:
        """Call ``then`` when all appends that have begun have ended."""
        if self._pending:
            self._waiting.append(then)
        else:
            then()


#: The fields of a group that ``ModernGroup.snapshot`` leaves alone: they are about writes under way.
_NOT_RESTORED: Final = frozenset({"_pending", "_waiting", "is_behind_log", "is_dead", "offsets"})

_TIMERS: Final = frozenset({"rebalance_timer", "session_timer"})


def hash_of(topics: Topics) -> int:
    """Return a number that changes with the subscribed topics and their partitions; 0 without topics."""
    known: Iterable[str] = (f"{topic}:{topic_id}:{count}" for topic, (topic_id, count) in sorted(topics.items()))
    text = ",".join(known)
    return zlib.crc32(text.encode()) if text else 0


class ClassicProtocol(NamedTuple):
    """The settings of a member that uses the classic protocol: the names of its assignors and its subscription."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class ConsumerGroupMember(ModernGroupMember):
    """A member of a consumer group (Java: ConsumerGroupMember).

    ``classic`` is None if it uses the consumer protocol. ``rebalance_timer`` limits the time to give up partitions or,
    with the classic protocol, the time until the next request. Thread: loop.
    """

    SETTINGS = (
        *ModernGroupMember.SETTINGS,
        *("instance_id", "rebalance_timeout_ms", "subscribed_topic_regex", "server_assignor"),
    )

    def __init__(self, member_id: str, instance_id: str | None = None) -> None:
        super().__init__(member_id)
        self.instance_id = instance_id
        self.rebalance_timeout_ms = -1
        self.subscribed_topic_regex = ""
        self.server_assignor: str | None = None
        self.classic: ClassicProtocol | None = None
        self.rebalance_timer: TimerHandle | None = None

    def update(self, body: ConsumerGroupHeartbeatRequest, client_id: str, client_host: str) -> None:
        """Apply the fields that a heartbeat has."""
        self.classic = None
        self.update_settings(body, client_id, client_host)
        if body.rebalance_timeout_ms != -1:
            self.rebalance_timeout_ms = body.rebalance_timeout_ms
        if body.subscribed_topic_regex is not None:
            self.subscribed_topic_regex = body.subscribed_topic_regex
        if body.server_assignor is not None:
            self.server_assignor = body.server_assignor

    def update_classic(
        self,
        classic: ClassicProtocol,
        subscription: ConsumerProtocolSubscription,
        rebalance_timeout_ms: int,
        client_id: str,
        client_host: str,
    ) -> None:
        """Apply the fields of JoinGroup."""
        self.classic = classic
        self.client_id = client_id
        self.client_host = client_host
        self.rack_id = subscription.rack_id or self.rack_id
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.topic_names = frozenset(subscription.topics)
        self.subscribed_topic_regex = ""
        self.server_assignor = None

    def copy_settings(self, other: ConsumerGroupMember) -> None:
        """Take over the place of a static member that has left."""
        for name in (*self.SETTINGS, "topic_names", "classic"):
            setattr(self, name, getattr(other, name))
        self.current = other.current._replace(epoch=0, previous_epoch=0)

    @property
    def subscription(self) -> tuple[object, ...]:
        return self.topic_names, self.subscribed_topic_regex

    def cancel_timers(self) -> None:
        """Cancel the timers of the session and of a rebalance."""
        super().cancel_timers()
        self.cancel_rebalance_timer()

    def cancel_rebalance_timer(self) -> None:
        """Cancel the timer of a rebalance, after the member's awaited step."""
        if self.rebalance_timer is not None:
            self.rebalance_timer.cancel()
            self.rebalance_timer = None

    def __repr__(self) -> str:
        instance = "" if self.instance_id is None else f", instance {self.instance_id}"
        return f"<member {self.member_id}{instance}, epoch {self.current.epoch}>"


#: The first version of OffsetCommit with member epochs.
_COMMIT_WITH_MEMBER_EPOCH: Final = 9


class ConsumerGroup(ModernGroup[ConsumerGroupMember]):
    """Members, target assignment and offsets of one group (Java: ConsumerGroup).

    Each member reaches its target by its heartbeats. Thread: loop.
    """

    protocol_type = group_type = "consumer"
    uses_consumer_protocol = True

    def __init__(self, group_id: str, now_wall_ms: int) -> None:
        super().__init__(group_id, now_wall_ms)
        #: The topics that match each regular expression of a member.
        self.regexes: dict[str, frozenset[str]] = {}
        #: The members that own a partition or still have to give it up.
        self._owners: Counter[tuple[UUID, int]] = Counter()

    # --- the state

    @property
    def state(self) -> GroupState:
        if self.is_dead:
            return DEAD
        if not self.members:
            return EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ASSIGNING
        for member in self.members.values():
            if member.current.state != MEMBER_STABLE or member.current.epoch != self.assignment_epoch:
                return RECONCILING
        return STABLE

    def topics_of(self, member: ConsumerGroupMember) -> frozenset[str]:
        """Return the topics that a member subscribes to, by name or by regular expression."""
        return member.topic_names | self.regexes.get(member.subscribed_topic_regex, frozenset())

    # --- members

    def add(self, member: ConsumerGroupMember) -> None:
        super().add(member)
        self._count(member.current, 1)

    def remove(self, member: ConsumerGroupMember) -> None:
        """Remove a member with its partitions and its target."""
        super().remove(member)
        self._count(member.current, -1)

    def advance(self, member: ConsumerGroupMember, current: CurrentAssignment) -> None:
        self._count(member.current, -1)
        member.current = current
        self._count(current, 1)

    def _count(self, current: CurrentAssignment, by: int) -> None:
        for partitions in (current.assigned, current.pending_revocation):
            for topic_id, numbers in partitions.items():
                for number in numbers:
                    self._owners[topic_id, number] += by

    def is_owned(self, topic_id: UUID, number: int) -> bool:
        """Return whether a member owns a partition or still has to give it up."""
        return self._owners[topic_id, number] > 0

    def assign(self, topics: Topics) -> None:
        specs = [
            MemberSpec(
                member.member_id,
                member.instance_id,
                dict(topics[topic] for topic in sorted(self.topics_of(member)) if topic in topics),
                self.targets.get(member.member_id, {}),
            )
            for member in self.members.values()
        ]
        self.targets = dict(ASSIGNORS[self.assignor](specs)) if specs else {}
        self.assignment_epoch = self.group_epoch

    @property
    def assignor(self) -> str:
        """The assignor that most members have chosen, or the brokers' default."""
        chosen = Counter(member.server_assignor for member in self.members.values() if member.server_assignor)
        return max(chosen, key=lambda name: chosen[name]) if chosen else next(iter(ASSIGNORS))

    def is_waiting_for_others(self, member: ConsumerGroupMember) -> bool:
        """Return whether other members own, or have not given up yet, partitions of a member's target."""
        assigned = member.current.assigned
        return any(
            self.is_owned(topic_id, number)
            for topic_id, numbers in self.targets.get(member.member_id, {}).items()
            for number in numbers - assigned.get(topic_id, frozenset())
        )

    @property
    def has_only_classic_members(self) -> bool:
        """True if the group has members, and all use the classic protocol."""
        return bool(self.members) and all(member.classic is not None for member in self.members.values())

    def supports_classic_protocols(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Return whether a member with these assignors may join: all with the classic protocol must share one."""
        shared = set(names)
        for member in self.members.values():
            if member.classic is not None:
                shared.intersection_update(name for name, _ in member.classic.protocols)
        return protocol_type == self.protocol_type and bool(shared)

    # --- permissions

    def validate_released(self, instance_id: str) -> ConsumerGroupMember | None:
        """Return the static member that another one may replace, None if nobody has this instance id.

        Raises:
            UnreleasedInstanceIdError: it has not left, and does not use the classic protocol.
        """
        owner_id = self.static_members.get(instance_id)
        if owner_id is None:
            return None
        owner = self.members[owner_id]
        if owner.current.epoch != LEFT_STATIC_EPOCH and owner.classic is None:
            raise errors.UnreleasedInstanceIdError(
                f"Static member with instance id {instance_id} cannot join the group because the instance id is owned "
                f"by {owner_id} member."
            )
        return owner

    def validate_epoch(self, member: ConsumerGroupMember, epoch: int, reported: Partitions | None) -> None:
        """Check the epoch of a heartbeat.

        Raises:
            FencedMemberEpochError: it is neither the current one, nor the last one in a heartbeat whose answer may
                have been lost.
        """
        current = member.current
        rest = "The member must abandon all its partitions and rejoin."
        if epoch > current.epoch:
            raise errors.FencedMemberEpochError(
                f"The consumer group member has a greater member epoch ({epoch}) than the one known by the group "
                f"coordinator ({current.epoch}). {rest}"
            )
        if epoch < current.epoch and not (
            epoch == current.previous_epoch and reported is not None and _is_subset(reported, current.assigned)
        ):
            raise errors.FencedMemberEpochError(
                f"The consumer group member has a smaller member epoch ({epoch}) than the one known by the group "
                f"coordinator ({current.epoch}). {rest}"
            )

    def validate_commit(self, member_id: str, epoch: int, api_version: int | None) -> None:
        """Check that offsets may be committed; ``api_version`` is None for a commit in a transaction.

        Raises:
            UnknownMemberIdError, StaleMemberEpochError, IllegalGenerationError: the member or its epoch is not valid.
            UnsupportedVersionError: the version of the request has no member epochs.
        """
        self.validate_alive()
        if epoch < 0 and not self.members:
            return
        if epoch < 0 and not member_id and api_version is None:
            return
        member = self.member(member_id)
        if member.classic is None and api_version is not None and api_version < _COMMIT_WITH_MEMBER_EPOCH:
            raise errors.UnsupportedVersionError(
                "OffsetCommit version 9 or above must be used by members using the modern group protocol"
            )
        self._validate_member_epoch(member, epoch)

    def validate_fetch(self, member_id: str | None, epoch: int) -> None:
        """Check that a member may look up offsets.

        Raises:
            UnknownMemberIdError, StaleMemberEpochError: the request names a member or an epoch that is not valid.
        """
        if member_id is not None or epoch >= 0:
            self._validate_member_epoch(self.member(member_id or ""), epoch)

    def _validate_member_epoch(self, member: ConsumerGroupMember, epoch: int) -> None:
        if epoch != member.current.epoch and member.classic is not None:
            raise errors.IllegalGenerationError(f"the generation of the member is {member.current.epoch}, not {epoch}")
        if epoch != member.current.epoch:
            raise errors.StaleMemberEpochError(
                f"The received member epoch {epoch} does not match the expected member epoch {member.current.epoch}."
            )

    def validate_offset_delete(self) -> None:
        """Check that offsets of the group can be deleted.

        Raises:
            GroupIdNotFoundError: the group is dead.
        """
        self.validate_exists()

    def __repr__(self) -> str:
        return f"<group {self.group_id}, {self.state}, epoch {self.group_epoch}, {len(self.members)} members>"


def _is_subset(reported: Partitions, assigned: Partitions) -> bool:
    return all(partitions <= assigned.get(topic_id, frozenset()) for topic_id, partitions in reported.items())


class ShareGroupMember(ModernGroupMember):
    """A member of a share group (Java: ShareGroupMember). Thread: loop."""

    #: In records of ShareGroupCurrentMemberAssignment, 0 means that the member has what it was assigned.
    FIRST = CurrentAssignment(state=0)


class SharedTopic(NamedTuple):
    """A topic and those of its partitions that have, or are about to have, a state in a share coordinator."""

    name: str
    partitions: frozenset[int]


class ShareGroup(ModernGroup[ShareGroupMember]):
    """The members and the target assignment of a share group, and the progress of its state (Java: ShareGroup).

    Before a partition is assigned, its state must be initialized in a share coordinator. Topics are ``initializing``,
    then ``initialized``, and ``deleting`` while their state is being deleted. Thread: loop.
    """

    protocol_type = group_type = "share"
    uses_consumer_protocol = False

    def __init__(self, group_id: str, now_wall_ms: int) -> None:
        super().__init__(group_id, now_wall_ms)
        self.initializing: dict[UUID, SharedTopic] = {}
        self.initialized: dict[UUID, SharedTopic] = {}
        self.deleting: dict[UUID, str] = {}

    # --- the state

    @property
    def state(self) -> GroupState:
        if self.is_dead:
            return DEAD
        return STABLE if self.members else EMPTY

    # --- members

    def assign(self, topics: Topics) -> None:
        topic_ids = {topic: topic_id for topic, (topic_id, _) in topics.items()}
        specs = [
            ShareMemberSpec(
                member.member_id,
                frozenset(topic_ids[topic] for topic in member.topic_names if topic in topic_ids),
                self.targets.get(member.member_id, {}),
            )
            for member in self.members.values()
        ]
        partitions = {
            topic_id: topic.partitions
            for topic_id, topic in self.initialized.items()
            if topic_ids.get(topic.name) == topic_id
        }
        self.targets = dict(assign_simple(specs, partitions)) if specs else {}
        self.assignment_epoch = self.group_epoch

    def is_assignment_behind(self) -> bool:
        """Return whether the target lacks initialized partitions of topics that members read."""
        assigned: dict[UUID, set[int]] = {}
        for target in self.targets.values():
            for topic_id, partitions in target.items():
                assigned.setdefault(topic_id, set()).update(partitions)
        subscribed = self.subscribed_topics
        return any(
            topic.name in subscribed and topic.partitions != assigned.get(topic_id, set())
            for topic_id, topic in self.initialized.items()
        )

    # --- the state of partitions

    def begin_initialization(self, topics: Mapping[UUID, SharedTopic]) -> None:
        """Record that partitions are about to be initialized."""
        for topic_id, topic in topics.items():
            _add(self.initializing, topic_id, topic)
            self.deleting.pop(topic_id, None)

    def end_initialization(self, topics: Mapping[UUID, SharedTopic], *, succeeded: bool) -> None:
        """Record that partitions were initialized, or must be retried."""
        for topic_id, topic in topics.items():
            waiting = self.initializing.pop(topic_id, None)
            left = frozenset() if waiting is None else waiting.partitions - topic.partitions
            if left:
                self.initializing[topic_id] = SharedTopic(topic.name, left)
            if succeeded:
                _add(self.initialized, topic_id, topic)

    # --- permissions

    def validate_epoch(self, member: ShareGroupMember, epoch: int) -> None:
        """Check the epoch of a heartbeat. 0 joins again.

        Raises:
            FencedMemberEpochError: it is neither the current one, nor the one before, whose answer may have been lost.
        """
        current = member.current.epoch
        if epoch in (0, current, member.current.previous_epoch):
            return
        than = "greater" if epoch > current else "smaller"
        raise errors.FencedMemberEpochError(
            f"The share group member has a {than} member epoch ({epoch}) than the one known by the group coordinator "
            f"({current}). The member must abandon all its partitions and rejoin."
        )

    def validate_commit(self, *_: object) -> None:
        """Refuse requests about committed offsets, which share groups do not have.

        Raises:
            GroupIdNotFoundError: always.
        """
        raise errors.GroupIdNotFoundError(f"Group {self.group_id} is not a consumer group.")

    validate_fetch = validate_offset_delete = validate_commit

    def __repr__(self) -> str:
        return f"<share group {self.group_id}, {self.state}, epoch {self.group_epoch}, {len(self.members)} members>"


def _add(topics: dict[UUID, SharedTopic], topic_id: UUID, topic: SharedTopic) -> None:
    known: Iterable[int] = topics[topic_id].partitions if topic_id in topics else ()
    topics[topic_id] = SharedTopic(topic.name, topic.partitions.union(known))
