"""A share group in its coordinator's memory (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from pykclient.errors import FencedMemberEpochError, GroupIdNotFoundError, UnknownMemberIdError
from pykclient.testing.group.group_state import DEAD, EMPTY, STABLE, GroupState
from pykclient.testing.group.modern_group import ModernGroup
from pykclient.testing.group.simple_assignor import ShareMemberSpec, assign_simple

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
    from pykclient.testing.event_loop import TimerHandle

#: Partitions by topic id.
Partitions = Mapping["UUID", frozenset[int]]


class ShareGroupMember:
    """A member of a share group (Java: ShareGroupMember). Thread: loop."""

    __slots__ = (
        "assigned",
        "client_host",
        "client_id",
        "epoch",
        "member_id",
        "previous_epoch",
        "rack_id",
        "session_timer",
        "topic_names",
    )

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.rack_id: str | None = None
        self.client_id = ""
        self.client_host = ""
        self.topic_names: frozenset[str] = frozenset()
        self.epoch = 0
        self.previous_epoch = -1
        self.assigned: Partitions = MappingProxyType({})
        self.session_timer: TimerHandle | None = None

    def settings(self) -> tuple[object, ...]:
        """Return what the member's metadata record contains."""
        return self.rack_id, self.client_id, self.client_host, self.topic_names

    def update(self, body: ShareGroupHeartbeatRequest, client_id: str, client_host: str) -> None:
        """Apply the fields that a heartbeat has."""
        self.client_id = client_id
        self.client_host = client_host
        if body.rack_id is not None:
            self.rack_id = body.rack_id
        if body.subscribed_topic_names is not None:
            self.topic_names = frozenset(body.subscribed_topic_names)

    def cancel_timers(self) -> None:
        """Cancel the timer of the session."""
        if self.session_timer is not None:
            self.session_timer.cancel()
            self.session_timer = None

    def __repr__(self) -> str:
        return f"<member {self.member_id}, epoch {self.epoch}>"


class SharedTopic(NamedTuple):
    """A topic and those of its partitions that have, or are about to have, a state in a share coordinator."""

    name: str
    partitions: frozenset[int]


class ShareGroup(ModernGroup):
    """The members and the target assignment of a share group, and the progress of its state (Java: ShareGroup).

    Before a partition is assigned, its state must be initialized in a share coordinator. Topics are ``initializing``,
    then ``initialized``, and ``deleting`` while their state is being deleted. Thread: loop.
    """

    __slots__ = ("deleting", "initialized", "initializing", "members", "targets")

    protocol_type: ClassVar[str] = "share"
    uses_consumer_protocol: ClassVar[bool] = False

    def __init__(self, group_id: str, now_wall_ms: int) -> None:
        super().__init__(group_id, now_wall_ms)
        self.members: dict[str, ShareGroupMember] = {}
        self.targets: dict[str, Partitions] = {}
        self.initializing: dict[UUID, SharedTopic] = {}
        self.initialized: dict[UUID, SharedTopic] = {}
        self.deleting: dict[UUID, str] = {}

    # --- the state

    @property
    def state(self) -> GroupState:
        """The state, as ListGroups shows it."""
        if self.is_dead:
            return DEAD
        return STABLE if self.members else EMPTY

    @property
    def has_members(self) -> bool:
        """True if the group has members."""
        return bool(self.members)

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """The topics that members read."""
        return frozenset(topic for member in self.members.values() for topic in member.topic_names)

    def is_subscribed_to_topic(self, topic: str) -> bool:
        """Return whether the members read a topic."""
        return topic in self.subscribed_topics

    # --- members

    def remove(self, member: ShareGroupMember) -> None:
        """Remove a member with its target."""
        self.members.pop(member.member_id, None)
        self.targets.pop(member.member_id, None)
        member.cancel_timers()

    def assign(self, topic_ids: Mapping[str, UUID]) -> None:
        """Assign the initialized partitions anew, in the group's epoch. ``topic_ids`` has the topics that exist."""
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

    def cancel_timers(self) -> None:
        """Cancel the timers of all members."""
        for member in self.members.values():
            member.cancel_timers()

    # --- the state of partitions

    def begin_initialization(self, topics: Mapping[UUID, SharedTopic]) -> None:
        """Note that partitions are about to be initialized."""
        for topic_id, topic in topics.items():
            _add(self.initializing, topic_id, topic)
            self.deleting.pop(topic_id, None)

    def end_initialization(self, topics: Mapping[UUID, SharedTopic], *, succeeded: bool) -> None:
        """Note that partitions were initialized, or will have to be tried again."""
        for topic_id, topic in topics.items():
            waiting = self.initializing.pop(topic_id, None)
            left = frozenset() if waiting is None else waiting.partitions - topic.partitions
            if left:
                self.initializing[topic_id] = SharedTopic(topic.name, left)
            if succeeded:
                _add(self.initialized, topic_id, topic)

    # --- who may do what

    def existing_member(self, member_id: str) -> ShareGroupMember:
        """Return the member.

        Raises:
            UnknownMemberIdError: there is no such member.
        """
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberIdError(f"Member {member_id} is not a member of group {self.group_id}.")
        return member

    def validate_epoch(self, member: ShareGroupMember, epoch: int) -> None:
        """Check the epoch of a heartbeat. 0 joins again.

        Raises:
            FencedMemberEpochError: it is neither the current one, nor the one before, whose answer may have been lost.
        """
        if epoch in (0, member.epoch, member.previous_epoch):
            return
        than = "greater" if epoch > member.epoch else "smaller"
        raise FencedMemberEpochError(
            f"The share group member has a {than} member epoch ({epoch}) than the one known by the group coordinator "
            f"({member.epoch}). The member must abandon all its partitions and rejoin."
        )

    def validate_commit(self, member_id: str, epoch: int, api_version: int | None) -> None:  # noqa: ARG002
        """Refuse offsets, which share groups do not have.

        Raises:
            GroupIdNotFoundError: always.
        """
        raise self._not_a_consumer_group()

    def validate_fetch(self, member_id: str | None, epoch: int) -> None:  # noqa: ARG002
        """Refuse to look up offsets, which share groups do not have.

        Raises:
            GroupIdNotFoundError: always.
        """
        raise self._not_a_consumer_group()

    def validate_offset_delete(self) -> None:
        """Refuse to delete offsets, which share groups do not have.

        Raises:
            GroupIdNotFoundError: always.
        """
        raise self._not_a_consumer_group()

    def _not_a_consumer_group(self) -> GroupIdNotFoundError:
        return GroupIdNotFoundError(f"Group {self.group_id} is not a consumer group.")

    def __repr__(self) -> str:
        return f"<share group {self.group_id}, {self.state}, epoch {self.group_epoch}, {len(self.members)} members>"


def _add(topics: dict[UUID, SharedTopic], topic_id: UUID, topic: SharedTopic) -> None:
    known: Iterable[int] = topics[topic_id].partitions if topic_id in topics else ()
    topics[topic_id] = SharedTopic(topic.name, topic.partitions.union(known))
