"""A group of the consumer protocol in its coordinator's memory (KIP-848)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from pykclient.errors import (
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupIdNotFoundError,
    IllegalGenerationError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedVersionError,
)
from pykclient.testing.group.consumer_group_member import (
    LEFT_STATIC_EPOCH,
    ConsumerGroupMember,
    CurrentAssignment,
    Partitions,
)
from pykclient.testing.group.consumer_group_member import (
    STABLE as MEMBER_STABLE,
)
from pykclient.testing.group.group_state import DEAD, EMPTY, STABLE, GroupState
from pykclient.testing.group.modern_group import ASSIGNING, RECONCILING, ModernGroup, Topics
from pykclient.testing.group.server_assignors import ASSIGNORS, MemberSpec

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

#: The first version of OffsetCommit with member epochs.
_COMMIT_WITH_MEMBER_EPOCH: Final = 9


class ConsumerGroup(ModernGroup):
    """Members, target assignment and offsets of one group (Java: ConsumerGroup).

    Each member reaches its target by its heartbeats. Thread: loop.
    """

    __slots__ = ("_owners", "members", "regexes", "static_members", "targets")

    protocol_type = "consumer"
    uses_consumer_protocol = True

    def __init__(self, group_id: str, now_wall_ms: int) -> None:
        super().__init__(group_id, now_wall_ms)
        self.members: dict[str, ConsumerGroupMember] = {}
        self.static_members: dict[str, str] = {}
        self.targets: dict[str, Partitions] = {}
        #: The topics that match each regular expression of a member.
        self.regexes: dict[str, frozenset[str]] = {}
        #: The members that own a partition or still have to give it up.
        self._owners: Counter[tuple[UUID, int]] = Counter()

    # --- the state

    @property
    def state(self) -> GroupState:
        """The state, as ListGroups shows it."""
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

    @property
    def has_members(self) -> bool:
        """True if the group has members."""
        return bool(self.members)

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """The topics that members read."""
        return frozenset(topic for member in self.members.values() for topic in self.topics_of(member))

    def topics_of(self, member: ConsumerGroupMember) -> frozenset[str]:
        """Return the topics that a member subscribes to, by name or by regular expression."""
        return member.topic_names | self.regexes.get(member.topic_regex, frozenset())

    def is_subscribed_to_topic(self, topic: str) -> bool:
        """Return whether the members read a topic."""
        return topic in self.subscribed_topics

    # --- members

    def add(self, member: ConsumerGroupMember) -> None:
        """Add a member, or replace the one with its id."""
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._count(member.current, 1)

    def remove(self, member: ConsumerGroupMember) -> None:
        """Remove a member with its partitions and its target."""
        self.members.pop(member.member_id, None)
        self.targets.pop(member.member_id, None)
        if self.static_members.get(member.instance_id or "") == member.member_id:
            del self.static_members[member.instance_id or ""]
        self._count(member.current, -1)
        member.cancel_timers()

    def advance(self, member: ConsumerGroupMember, current: CurrentAssignment) -> None:
        """Take a member a step further on its way to its target."""
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

    def assign(self, topics: Topics, default_assignor: str) -> None:
        """Assign the target anew, in the group's epoch."""
        specs = [
            MemberSpec(
                member.member_id,
                member.instance_id,
                dict(topics[topic] for topic in sorted(self.topics_of(member)) if topic in topics),
                self.targets.get(member.member_id, {}),
            )
            for member in self.members.values()
        ]
        self.targets = dict(ASSIGNORS[self.assignor(default_assignor)](specs)) if specs else {}
        self.assignment_epoch = self.group_epoch

    def assignor(self, default: str) -> str:
        """Return the assignor that most members have chosen, or the brokers' default."""
        chosen = Counter(member.server_assignor for member in self.members.values() if member.server_assignor)
        return max(chosen, key=lambda name: chosen[name]) if chosen else default

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

    def cancel_timers(self) -> None:
        """Cancel the timers of all members."""
        for member in self.members.values():
            member.cancel_timers()

    # --- who may do what

    def existing_member(self, member_id: str) -> ConsumerGroupMember:
        """Return the member.

        Raises:
            UnknownMemberIdError: there is no such member.
        """
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberIdError(f"Member {member_id} is not a member of group {self.group_id}.")
        return member

    def static_member(self, instance_id: str, member_id: str) -> ConsumerGroupMember:
        """Return the member with this instance id.

        Raises:
            UnknownMemberIdError: there is none.
            FencedInstanceIdError: it has another member id.
        """
        current_id = self.static_members.get(instance_id)
        if current_id is None:
            raise UnknownMemberIdError(f"Instance id {instance_id} is unknown.")
        if current_id != member_id:
            raise FencedInstanceIdError(
                f"Static member {member_id} with instance id {instance_id} was fenced by member {current_id}."
            )
        return self.members[current_id]

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
            raise UnreleasedInstanceIdError(
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
            raise FencedMemberEpochError(
                f"The consumer group member has a greater member epoch ({epoch}) than the one known by the group "
                f"coordinator ({current.epoch}). {rest}"
            )
        if epoch < current.epoch and not (
            epoch == current.previous_epoch and reported is not None and _is_subset(reported, current.assigned)
        ):
            raise FencedMemberEpochError(
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
        member = self.existing_member(member_id)
        if member.classic is None and api_version is not None and api_version < _COMMIT_WITH_MEMBER_EPOCH:
            raise UnsupportedVersionError(
                "OffsetCommit version 9 or above must be used by members using the modern group protocol"
            )
        self._validate_member_epoch(member, epoch)

    def validate_fetch(self, member_id: str | None, epoch: int) -> None:
        """Check that a member may look up offsets.

        Raises:
            UnknownMemberIdError, StaleMemberEpochError: the request names a member or an epoch that is not valid.
        """
        if member_id is not None or epoch >= 0:
            self._validate_member_epoch(self.existing_member(member_id or ""), epoch)

    def _validate_member_epoch(self, member: ConsumerGroupMember, epoch: int) -> None:
        if epoch != member.current.epoch and member.classic is not None:
            raise IllegalGenerationError(f"the generation of the member is {member.current.epoch}, not {epoch}")
        if epoch != member.current.epoch:
            raise StaleMemberEpochError(
                f"The received member epoch {epoch} does not match the expected member epoch {member.current.epoch}."
            )

    def validate_offset_delete(self) -> None:
        """Check that offsets of the group can be deleted.

        Raises:
            GroupIdNotFoundError: the group is dead.
        """
        if self.is_dead:
            raise GroupIdNotFoundError(f"group {self.group_id} is in dead state")

    def __repr__(self) -> str:
        return f"<group {self.group_id}, {self.state}, epoch {self.group_epoch}, {len(self.members)} members>"


def _is_subset(reported: Partitions, assigned: Partitions) -> bool:
    return all(partitions <= assigned.get(topic_id, frozenset()) for topic_id, partitions in reported.items())
