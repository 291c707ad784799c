"""A classic group in its coordinator's memory: its members, its states as a table, and committed offsets.

Java: ClassicGroup, ClassicGroupState; KIP-62, KIP-134.
"""

from __future__ import annotations

import random
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, Generic, NamedTuple, Protocol, TypeVar
from uuid import UUID

from pykclient import errors
from pykclient.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from pykclient.protocol.messages.join_group import JoinGroupResponse
from pykclient.protocol.messages.sync_group import SyncGroupResponse
from pykclient.protocol.wire import ZERO_UUID, Reader
from pykclient.testing.event_loop import TimerHandle
from pykclient.types import TopicPartition


@dataclass(slots=True, eq=False)
class CommittedOffset:
    """A committed offset of one partition (Java: the coordinator's OffsetAndMetadata). Compare by identity.

    ``leader_epoch`` is -1 if the consumer did not know it. ``topic_id`` is ZERO_UUID for a topic without one.
    ``expire_timestamp_ms`` is -1 unless the commit had its own retention time, as old clients may send.
    ``record_offset`` is the offset of the commit's batch in __consumer_offsets, -1 before it has one.

    Thread: loop
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    topic_id: UUID = ZERO_UUID
    record_offset: int = -1


class GroupOffsets:
    """The commits of one group (Java: the offsets of GroupMetadata).

    A commit is *pending* from its append until all in-sync replicas have it. Only then can it be read, because an
    offset that a client has seen must survive the loss of a broker. Each commit request is one write. A fetch of stable
    offsets (KIP-447) waits for the writes that were pending when it arrived. Offsets that a transaction sends are kept
    by its producer's id until the transaction's marker decides; meanwhile they are *unstable*.

    Thread: loop
    """

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, CommittedOffset] = {}
        self._pending: dict[TopicPartition, CommittedOffset] = {}
        #: The offsets of tombstones written while commits were pending, by partition.
        self._removed: dict[TopicPartition, int] = {}
        self._last_write = 0
        self._writes: dict[int, Mapping[TopicPartition, CommittedOffset]] = {}
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        #: The offsets that open transactions have sent, by producer id.
        self.transactional: dict[int, dict[TopicPartition, CommittedOffset]] = {}

    def __bool__(self) -> bool:
        """Return whether there are any offsets, including pending ones."""
        return bool(self.committed or self._pending or self.transactional)

    def partitions(self) -> list[TopicPartition]:
        """Return all partitions with an offset, including pending ones."""
        known = {**self.committed, **self._pending}
        for offsets in self.transactional.values():
            known |= offsets
        return list(known)

    # --- transactions

    def is_unstable(self, tp: TopicPartition) -> bool:
        """Return whether an open transaction has sent an offset of the partition."""
        return any(tp in offsets for offsets in self.transactional.values())

    def prepare_transactional(self, producer_id: int, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Add offsets of a transaction that are about to be appended."""
        self.transactional.setdefault(producer_id, {}).update(offsets)

    def complete_transactional(self, offsets: Mapping[TopicPartition, CommittedOffset], record_offset: int) -> None:
        """Complete the write of a transaction's offsets, whose batch is at ``record_offset``."""
        for offset in offsets.values():
            offset.record_offset = record_offset

    def fail_transactional(self, producer_id: int, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Remove offsets of a transaction that, as far as is known, are not in the log."""
        pending = self.transactional.get(producer_id, {})
        for tp, offset in offsets.items():
            if pending.get(tp) is offset:
                del pending[tp]
        if not pending:
            self.transactional.pop(producer_id, None)

    def end_transaction(self, producer_id: int, marker_offset: int, *, committed: bool) -> None:
        """Commit or discard the offsets of a producer's transaction, whose marker is at ``marker_offset``."""
        for tp, offset in self.transactional.pop(producer_id, {}).items():
            if not committed:
                continue
            if offset.record_offset < 0:
                # Not known to be replicated, but the marker is, which comes later in the log.
                offset.record_offset = marker_offset
            self._commit(tp, offset)

    # --- writes

    def prepare(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> int:
        """Add offsets that are about to be appended; return the number of the write, to be completed or failed."""
        self._last_write += 1
        self._writes[self._last_write] = offsets
        self._pending.update(offsets)
        return self._last_write

    def complete(self, write: int, record_offset: int) -> None:
        """Complete a write, whose batch is at ``record_offset``. Writes may complete in any order."""
        for tp, offset in self._writes[write].items():
            # Deleted meanwhile, by a later tombstone in the log.
            if record_offset < self._removed.get(tp, -1):
                continue
            offset.record_offset = record_offset
            self._commit(tp, offset)
        self.fail(write)

    def _commit(self, tp: TopicPartition, offset: CommittedOffset) -> None:
        """Take over an offset, unless a later one is committed."""
        known = self.committed.get(tp)
        if known is None or known.record_offset < offset.record_offset:
            self.committed[tp] = offset

    def fail(self, write: int) -> None:
        """End a write that, as far as is known, is not in the log."""
        for tp, offset in self._writes.pop(write).items():
            if self._pending.get(tp) is offset:
                del self._pending[tp]
        if not self._writes:
            self._removed.clear()
        oldest = next(iter(self._writes), self._last_write + 1)
        ready = [then for last, then in self._waiting if last < oldest]
        if ready:
            self._waiting = [waiting for waiting in self._waiting if waiting[0] >= oldest]
            for then in ready:
                then()

    def when_stable(self, then: Callable[[], None]) -> None:
        """Call ``then`` when all writes that are pending now have ended, or immediately if there is none."""
        if self._writes:
            self._waiting.append((self._last_write, then))
        else:
            then()

    def abandon(self) -> None:
        """Call all waiters, which then find that the group is unloaded."""
        waiting, self._waiting = self._waiting, []
        for _, then in waiting:
            then()

    def remove(self, partitions: Iterable[TopicPartition], tombstone_offset: int) -> None:
        """Remove the offsets of these partitions. Those committed after the tombstone at ``tombstone_offset`` stay."""
        for tp in partitions:
            if self._writes:
                self._removed[tp] = tombstone_offset
            known = self.committed.get(tp)
            if known is not None and known.record_offset < tombstone_offset:
                del self.committed[tp]
            for producer_id, pending in list(self.transactional.items()):
                sent = pending.get(tp)
                if sent is not None and sent.record_offset < tombstone_offset:
                    self.fail_transactional(producer_id, {tp: sent})

    def expired(
        self, base_timestamp_ms: Callable[[CommittedOffset], int], now_ms: int, retention_ms: int
    ) -> list[TopicPartition]:
        """Return the partitions without pending commits whose retention is over.

        The retention starts at ``base_timestamp_ms`` (KIP-211).
        """
        return [
            tp
            for tp, offset in self.committed.items()
            if tp not in self._pending
            and not self.is_unstable(tp)
            and (
                now_ms >= offset.expire_timestamp_ms
                if offset.expire_timestamp_ms >= 0
                else now_ms - base_timestamp_ms(offset) >= retention_ms
            )
        ]


class GroupState(NamedTuple):
    """A state, with the name that DescribeGroups and ListGroups show. Compare by identity. Thread: any."""

    name: str

    def __repr__(self) -> str:
        return self.name


#: No members, but perhaps offsets. The initial state, and the state of groups that only store offsets.
EMPTY: Final = GroupState("Empty")

#: Members must join or rejoin; JoinGroup requests wait.
PREPARING_REBALANCE: Final = GroupState("PreparingRebalance")

#: All members have joined; SyncGroup requests wait for the leader's assignment.
COMPLETING_REBALANCE: Final = GroupState("CompletingRebalance")

#: The members have their assignment.
STABLE: Final = GroupState("Stable")

#: Deleted, expired, or moved to another broker.
DEAD: Final = GroupState("Dead")

#: A dead group stays dead; a new group with its name is another object.
TRANSITIONS: Final[dict[GroupState, frozenset[GroupState]]] = {
    EMPTY: frozenset((PREPARING_REBALANCE, DEAD)),
    PREPARING_REBALANCE: frozenset((COMPLETING_REBALANCE, EMPTY, DEAD)),
    COMPLETING_REBALANCE: frozenset((PREPARING_REBALANCE, STABLE, DEAD)),
    STABLE: frozenset((PREPARING_REBALANCE, DEAD)),
    DEAD: frozenset(),
}


JoinCallback = Callable[[JoinGroupResponse], None]

SyncCallback = Callable[[SyncGroupResponse], None]

#: Names of protocols and the member's metadata for each, the preferred one first.
Protocols = Sequence[tuple[str, bytes]]


@dataclass(slots=True, eq=False, repr=False)
class MemberMetadata:
    """A group member (Java: ClassicGroupMember).

    ``awaiting_join`` and ``awaiting_sync`` answer the member's waiting request, if there is one. ``is_new`` is True
    until the member's first JoinGroup is answered: before, it does not know its id and cannot send heartbeats. The
    session ends at ``deadline_ms``; ``session_timer`` fires at ``timer_due_ms``, which may be earlier.

    Thread: loop
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    awaiting_join: JoinCallback | None = None
    awaiting_sync: SyncCallback | None = None
    deadline_ms: int = 0
    session_timer: TimerHandle | None = None
    timer_due_ms: int = 0

    @property
    def is_awaiting_join(self) -> bool:
        return self.awaiting_join is not None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """True if the member counts as alive without heartbeats because it waits for the coordinator.

        New members do not count: their connection may be long gone, and they cannot send heartbeats.
        """
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata(self, protocol: str) -> bytes:
        """Return the member's metadata for ``protocol``.

        Raises:
            IllegalArgumentError: the member does not support the protocol.
        """
        for name, data in self.protocols:
            if name == protocol:
                return data
        raise errors.IllegalArgumentError(f"member {self.member_id} does not support protocol {protocol!r}")

    def matches(self, protocols: Protocols) -> bool:
        """Return whether the member has exactly these protocols, with the same order and metadata."""
        return list(protocols) == list(self.protocols)

    def answer_join(self, response: JoinGroupResponse) -> None:
        """Answer the waiting JoinGroup request, if there is one."""
        respond, self.awaiting_join = self.awaiting_join, None
        if respond is not None:
            respond(response)

    def answer_sync(self, response: SyncGroupResponse) -> bool:
        """Answer the waiting SyncGroup request; return False if there is none."""
        respond, self.awaiting_sync = self.awaiting_sync, None
        if respond is None:
            return False
        respond(response)
        return True

    def __repr__(self) -> str:
        instance = "" if self.instance_id is None else f", instance {self.instance_id}"
        return f"<member {self.member_id}{instance}>"


#: The coordinator can decode the subscriptions of members with this protocol type.
CONSUMER_PROTOCOL_TYPE = "consumer"

UNKNOWN_MEMBER_ID = ""


class Member(Protocol):
    """A member of a group of any kind. It is static if it has an instance id."""

    @property
    def instance_id(self) -> str | None: ...


M = TypeVar("M", bound=Member)


class CoordinatedGroup(ABC, Generic[M]):
    """A group of any protocol: its members and offsets, and who may do what with it. Thread: loop."""

    #: As ListGroups shows it.
    group_type: ClassVar[str]

    group_id: str
    offsets: GroupOffsets
    members: dict[str, M]

    @property
    @abstractmethod
    def state(self) -> GroupState:
        """The state, as ListGroups shows it."""

    @property
    def static_members(self) -> dict[str, str]:
        """The member ids of static members, by instance id."""
        return {member.instance_id: id for id, member in self.members.items() if member.instance_id is not None}

    def member(self, member_id: str, instance_id: str | None = None) -> M:
        """Return the member that a request names, which is static if there is an instance id.

        Raises:
            UnknownMemberIdError: there is no such member.
            FencedInstanceIdError: its instance has another member id.
        """
        if instance_id is not None:
            current_id = self.static_members.get(instance_id)
            if current_id is None:
                raise errors.UnknownMemberIdError(f"Instance id {instance_id} is unknown.")
            if current_id != member_id:
                raise errors.FencedInstanceIdError(
                    f"Static member {member_id} with instance id {instance_id} was fenced by member {current_id}."
                )
        member = self.members.get(member_id)
        if member is None:
            raise errors.UnknownMemberIdError(f"Member {member_id} is not a member of group {self.group_id}.")
        return member

    def validate_alive(self) -> None:
        """Check that the group is not dead.

        Raises:
            CoordinatorNotAvailableError: the group was just unloaded or deleted; the client should look for it again.
        """
        if self.state is DEAD:
            raise errors.CoordinatorNotAvailableError(f"group {self.group_id} is being removed")

    def validate_delete(self) -> None:
        """Check that the group can be deleted.

        Raises:
            GroupNotEmptyError: it has members.
            GroupIdNotFoundError: it is dead already.
        """
        self.validate_exists()
        if self.state is not EMPTY:
            raise errors.GroupNotEmptyError(f"group {self.group_id} has members; it can be deleted when all have left")

    def validate_exists(self) -> None:
        """Check that the group is not dead, for an administrator.

        Raises:
            GroupIdNotFoundError: it is.
        """
        if self.state is DEAD:
            raise errors.GroupIdNotFoundError(f"group {self.group_id} is in dead state")


@dataclass(eq=False, repr=False)
class GroupMetadata(CoordinatedGroup[MemberMetadata]):
    """Members, generation and offsets of one group (Java: ClassicGroup).

    The class keeps members and counts consistent, validates requests, and raises the error for the response.
    ``GroupRebalance`` decides when things happen.

    All collections keep their order, so that a simulated schedule is reproducible. ``generation_id`` counts rebalances
    from 0. ``state_timestamp_ms`` is the wall-clock time of the last state change. ``pending_members`` were given an id
    and must join with it (KIP-394); each has a timer that removes it.

    Thread: loop
    """

    group_type = "classic"

    group_id: str
    state_timestamp_ms: int
    generation_id: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str | None = None
    state: GroupState = EMPTY
    previous_state: GroupState = EMPTY
    members: dict[str, MemberMetadata] = field(default_factory=dict)
    pending_members: dict[str, TimerHandle] = field(default_factory=dict)
    pending_sync_members: dict[str, None] = field(default_factory=dict)
    subscribed_topics: frozenset[str] | None = None
    new_member_added: bool = False
    offsets: GroupOffsets = field(default_factory=GroupOffsets)
    rebalance_timer: TimerHandle | None = None
    sync_timer: TimerHandle | None = None

    @classmethod
    def loaded(
        cls,
        group_id: str,
        generation_id: int,
        protocol_type: str | None,
        protocol_name: str | None,
        leader_id: str | None,
        state_timestamp_ms: int,
        members: Sequence[MemberMetadata],
    ) -> GroupMetadata:
        """Return a group as loaded from the log: stable if it has members."""
        group = cls(group_id, state_timestamp_ms, generation_id, protocol_type, protocol_name)
        for member in members:
            group.add(member)
        group.leader_id = leader_id
        group.subscribed_topics = group._compute_subscribed_topics()
        if members:
            group.state = STABLE
        return group

    # --- the state

    def transition_to(self, state: GroupState, now_wall_ms: int) -> None:
        """Change the state.

        Raises:
            IllegalStateError: the table does not have the transition.
        """
        errors.check_move("a group", TRANSITIONS, self.state, state)
        self.previous_state, self.state = self.state, state
        self.state_timestamp_ms = now_wall_ms

    @property
    def can_rebalance(self) -> bool:
        return PREPARING_REBALANCE in TRANSITIONS[self.state]

    @property
    def is_initial_rebalance(self) -> bool:
        """True if the first members are joining and others get time to join as well."""
        return self.state is PREPARING_REBALANCE and self.previous_state is EMPTY

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def init_next_generation(self, now_wall_ms: int) -> None:
        """Start the next generation after all members have joined, and choose its protocol."""
        self.generation_id += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed_topics = self._compute_subscribed_topics()
        self.transition_to(COMPLETING_REBALANCE if self.members else EMPTY, now_wall_ms)
        self.pending_sync_members.clear()

    # --- members

    def add(self, member: MemberMetadata, callback: JoinCallback | None = None) -> None:
        """Add a member; its JoinGroup waits if there is a callback.

        The first one becomes leader and sets the protocol type.
        """
        if member.instance_id in self.static_members:
            raise errors.IllegalStateError(f"group {self.group_id} already has a static member {member.instance_id!r}")
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        member.awaiting_join = callback
        self.remove_pending_member(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member: elect another leader if necessary, cancel its timers, and answer its waiting requests.

        Kafka answers only the JoinGroup, so the SyncGroup of a member that an administrator removes times out.
        """
        member = self.members.pop(member_id, None)
        if member is not None and member.session_timer is not None:
            member.session_timer.cancel()
        if member_id == self.leader_id:
            self.leader_id = next(iter(self.members), None)
        self.remove_pending_member(member_id)
        self.pending_sync_members.pop(member_id, None)
        if member is not None:
            refusal = JoinGroupResponse(member_id=UNKNOWN_MEMBER_ID, error_code=errors.UnknownMemberIdError.code)
            member.answer_join(refusal)
            member.answer_sync(SyncGroupResponse(error_code=errors.UnknownMemberIdError.code))

    def update_member(
        self,
        member: MemberMetadata,
        protocols: Protocols,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        callback: JoinCallback | None,
    ) -> None:
        """Update a member that joins again. If an earlier JoinGroup still waits, answer it with an error."""
        member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        member.answer_join(
            JoinGroupResponse(member_id=member.member_id, error_code=errors.RebalanceInProgressError.code)
        )
        member.awaiting_join = callback

    def replace_static_member(self, old_member_id: str, new_member_id: str) -> MemberMetadata:
        """Give a static member a new id; requests with the old one are fenced (KIP-345)."""
        member = self.members[old_member_id]
        member.answer_join(JoinGroupResponse(member_id=old_member_id, error_code=errors.FencedInstanceIdError.code))
        member.answer_sync(SyncGroupResponse(error_code=errors.FencedInstanceIdError.code))
        # The member keeps its position, as members are ordered by joining.
        self.members = {
            (new_member_id if member_id == old_member_id else member_id): each
            for member_id, each in self.members.items()
        }
        member.member_id = new_member_id
        if old_member_id in self.pending_sync_members:
            del self.pending_sync_members[old_member_id]
            self.pending_sync_members[new_member_id] = None
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        return member

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    def maybe_elect_new_joined_leader(self) -> bool:
        """Make sure that the leader is a member that has joined; return False if none has."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].is_awaiting_join:
            return True
        for member in self.members.values():
            if member.is_awaiting_join:
                self.leader_id = member.member_id
                return True
        return False

    def remove_pending_member(self, member_id: str) -> bool:
        """Remove a pending member id; return whether it was pending."""
        timer = self.pending_members.pop(member_id, None)
        if timer is None:
            return False
        timer.cancel()
        return True

    @property
    def num_awaiting_join(self) -> int:
        return sum(member.is_awaiting_join for member in self.members.values())

    @property
    def has_all_members_joined(self) -> bool:
        return not self.not_yet_rejoined() and not self.pending_members

    def not_yet_rejoined(self) -> list[MemberMetadata]:
        return [member for member in self.members.values() if not member.is_awaiting_join]

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @staticmethod
    def generate_member_id(client_id: str, group_instance_id: str | None, rng: random.Random) -> str:
        """Return a new member id, which begins with the client id."""
        prefix = client_id if group_instance_id is None else group_instance_id
        return f"{prefix}-{uuid.UUID(int=rng.getrandbits(128), version=4)}"

    def cancel_timers(self) -> None:
        """Cancel all timers of the group and its members."""
        timers = [self.rebalance_timer, self.sync_timer, *self.pending_members.values()]
        timers += [member.session_timer for member in self.members.values()]
        for timer in timers:
            if timer is not None:
                timer.cancel()

    # --- protocols

    def supports_protocols(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Return whether a member with these protocols may join.

        An empty group accepts any; others need one that all members support.
        """
        if self.state is EMPTY:
            return bool(protocol_type) and any(True for _ in protocols)
        shared = self._shared_protocols()
        return self.protocol_type == protocol_type and any(not self.members or name in shared for name in protocols)

    def select_protocol(self) -> str:
        """Return the protocol with the most votes among those that all members support.

        In case of a tie, the first voter's choice wins.
        """
        candidates = self._shared_protocols()
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = next(name for name, _ in member.protocols if name in candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def _shared_protocols(self) -> set[str]:
        """Return the protocols that all members support."""
        supported = [{name for name, _ in member.protocols} for member in self.members.values()]
        return set[str].intersection(*supported) if supported else set()

    def is_subscribed_to_topic(self, topic: str) -> bool:
        """Return whether the members read a topic. True if their subscriptions cannot be decoded."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def _compute_subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics of all members.

        None if they are not consumers, or their subscriptions cannot be decoded.
        """
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: set[str] = set()
        try:
            for member in self.members.values():
                reader = Reader(member.metadata(self.protocol_name))
                reader.int16()
                # All later versions start with the fields of version 0.
                topics.update(ConsumerProtocolSubscription.read(reader, 0).topics)
        except errors.RemoteProtocolError:
            return None
        return frozenset(topics)

    def current_members(self) -> list[JoinGroupResponse.JoinGroupResponseMember]:
        """Return the members as the leader's response lists them."""
        protocol = self.protocol_name
        if protocol is None:
            raise errors.IllegalStateError(f"group {self.group_id} has no protocol in state {self.state}")
        return [
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(protocol),
            )
            for member in self.members.values()
        ]

    # --- permissions

    def validate_generation(self, generation_id: int) -> None:
        """Check the generation of a request.

        Raises:
            IllegalGenerationError: it is not the current one.
        """
        if generation_id != self.generation_id:
            raise errors.IllegalGenerationError(
                f"group {self.group_id} is in generation {self.generation_id}, not {generation_id}"
            )

    def validate_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> MemberMetadata | None:
        """Return the member that commits, or None for a client that only stores offsets.

        Raises:
            UnknownMemberIdError, FencedInstanceIdError, IllegalGenerationError: the member or generation is not valid.
            RebalanceInProgressError: the member of the new generation has no assignment yet.
        """
        self.validate_alive()
        if generation_id < 0 and self.state is EMPTY:
            return None
        if generation_id < 0 and member_id == UNKNOWN_MEMBER_ID and group_instance_id is None:
            raise errors.UnknownMemberIdError(f"group {self.group_id} has members: only they can commit")
        member = self.member(member_id, group_instance_id)
        self.validate_generation(generation_id)
        if self.state is COMPLETING_REBALANCE:
            raise errors.RebalanceInProgressError(
                f"generation {generation_id} of group {self.group_id} has no assignment yet"
            )
        return member

    def validate_offset_delete(self) -> None:
        """Check that offsets of the group can be deleted.

        Raises:
            GroupIdNotFoundError: the group is dead.
            GroupNotEmptyError: the topics that its members read are unknown.
        """
        self.validate_exists()
        if self.state is not EMPTY and not self.uses_consumer_protocol:
            raise errors.GroupNotEmptyError(
                f"group {self.group_id} has members of type {self.protocol_type!r}; its offsets may be in use"
            )

    def __repr__(self) -> str:
        return f"<group {self.group_id}, {self.state}, generation {self.generation_id}, {len(self.members)} members>"
