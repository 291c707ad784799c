"""Members of a consumer group that still use the classic protocol, and groups that change their protocol (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from pykclient.errors import (
    BrokerError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    RemoteProtocolError,
    UnknownMemberIdError,
)
from pykclient.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from pykclient.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from pykclient.protocol.messages.heartbeat import HeartbeatRequest
from pykclient.protocol.messages.join_group import JoinGroupResponse
from pykclient.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from pykclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from pykclient.protocol.wire import Reader, Writer
from pykclient.testing.group import consumer_group_records as records_of
from pykclient.testing.group.consumer_group_records import KeyValue
from pykclient.testing.group.group_metadata import (
    CONSUMER_PROTOCOL_TYPE,
    UNKNOWN_MEMBER_ID,
    GroupMetadata,
    MemberMetadata,
    SyncCallback,
)
from pykclient.testing.group.group_rebalance import REQUIRES_KNOWN_MEMBER_ID, JoinAttempt
from pykclient.testing.group.modern_groups import (
    MEMBER_STABLE as STABLE,
    UNRELEASED_PARTITIONS,
    UNREVOKED_PARTITIONS,
    ClassicProtocol,
    ConsumerGroup,
    ConsumerGroupMember,
    CurrentAssignment,
    Partitions,
)

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.testing.broker import Broker
    from pykclient.testing.group.consumer_group_manager import ConsumerGroupManager
    from pykclient.testing.metadata_cache import MetadataCache

#: The values of ``group.consumer.migration.policy`` that allow each direction.
UPGRADES: Final = ("upgrade", "bidirectional")

DOWNGRADES: Final = ("downgrade", "bidirectional")

_HIGHEST_VERSION: Final = ConsumerProtocolSubscription.VERSIONS[1]

_Topic = ConsumerProtocolSubscription.TopicPartition | ConsumerProtocolAssignment.TopicPartition


def _version(reader: Reader) -> int:
    version = reader.int16()
    if version < 0:
        raise RemoteProtocolError(f"version {version} of the consumer protocol does not exist")
    return min(version, _HIGHEST_VERSION)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Decode the metadata of a JoinGroup request.

    Raises:
        RemoteProtocolError: the bytes are not a consumer's subscription.
    """
    reader = Reader(data)
    return ConsumerProtocolSubscription.read(reader, _version(reader))


def partitions_of(topics: Iterable[_Topic], cache: MetadataCache) -> Partitions:
    """Return partitions by topic id, without those of topics that do not exist."""
    return {
        cache.topic_id(topic.topic): frozenset(topic.partitions)
        for topic in topics
        if topic.partitions and cache.contains(topic.topic)
    }


def assignment_bytes(classic: ClassicProtocol, partitions: Partitions, cache: MetadataCache) -> bytes:
    """Return an assignment for a member of the classic protocol, in the version of its subscription."""
    names: dict[UUID, str | None] = {topic_id: cache.topic_name(topic_id) for topic_id in partitions}
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=name, partitions=sorted(partitions[topic_id]))
            for topic_id, name in sorted(names.items(), key=lambda item: item[1] or "")
            if name is not None
        ]
    )
    version = _version(Reader(classic.protocols[0][1]))
    writer = Writer()
    writer.int16(version)
    assignment.write(writer, version)
    return writer.getvalue()


def to_consumer_group(old: GroupMetadata, cache: MetadataCache, now_wall_ms: int) -> ConsumerGroup:
    """Return a group of the consumer protocol with the members and assignments of a classic group.

    Raises:
        RemoteProtocolError: a member is not a consumer.
    """
    new = ConsumerGroup(old.group_id, now_wall_ms)
    new.group_epoch = new.assignment_epoch = epoch = old.generation_id
    for one in old.members.values():
        member = ConsumerGroupMember(one.member_id, one.group_instance_id)
        subscription = read_subscription(one.protocols[0][1])
        member.update_classic(
            ClassicProtocol(one.session_timeout_ms, tuple(one.protocols)),
            subscription,
            one.rebalance_timeout_ms,
            one.client_id,
            one.client_host,
        )
        assigned: Partitions = {}
        if one.assignment:
            reader = Reader(one.assignment)
            topics = ConsumerProtocolAssignment.read(reader, _version(reader)).assigned_partitions
            assigned = partitions_of(topics, cache)
        member.current = CurrentAssignment(epoch, epoch, STABLE, assigned, {})
        new.targets[member.member_id] = assigned
        new.add(member)
    return new


def to_classic_group(old: ConsumerGroup, cache: MetadataCache, now_wall_ms: int) -> GroupMetadata:
    """Return a classic group with the members and targets of a group whose members all use the classic protocol.

    The targets become assignments. The group's epoch becomes its generation.
    """
    members = [
        MemberMetadata(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            member.classic.session_timeout_ms,
            CONSUMER_PROTOCOL_TYPE,
            member.classic.protocols,
            assignment_bytes(member.classic, old.targets.get(member.member_id, {}), cache),
        )
        for member in old.members.values()
        if member.classic is not None
    ]
    leader_id = members[0].member_id

    def group(protocol_name: str | None) -> GroupMetadata:
        return GroupMetadata.loaded(
            old.group_id, old.group_epoch, CONSUMER_PROTOCOL_TYPE, protocol_name, leader_id, now_wall_ms, members
        )

    return group(group(None).select_protocol())


class ClassicProtocolMembers:
    """JoinGroup, SyncGroup, Heartbeat and LeaveGroup of members of a group of the consumer protocol.

    A member reports what it owns when it joins, and gets what it may have when it syncs; its generation is its member
    epoch. Nobody is the leader, as the coordinator assigns. Heartbeats tell a member to join again whenever that would
    bring it closer to its target. It must do so, and sync, within its rebalance timeout. Thread: loop.
    """

    __slots__ = ("_broker", "_groups", "_log")

    def __init__(self, broker: Broker, groups: ConsumerGroupManager) -> None:
        self._broker = broker
        self._groups = groups
        self._log = broker.log_context.logger(__name__)

    # --- joining

    def join(self, group: ConsumerGroup, attempt: JoinAttempt) -> None:
        """Handle JoinGroup. The response does not wait for other members."""
        try:
            self._join(group, attempt)
        except BrokerError as error:
            attempt.refuse(error, attempt.body.member_id)

    def _join(self, group: ConsumerGroup, attempt: JoinAttempt) -> None:
        body, groups = attempt.body, self._groups
        groups.validate_size(group, body.member_id)
        subscription = self._subscription(group, attempt)
        instance_id = body.group_instance_id
        member_id = body.member_id
        if member_id == UNKNOWN_MEMBER_ID:
            member_id = GroupMetadata.generate_member_id(attempt.client_id, instance_id, self._broker.rng)
            if instance_id is None and attempt.api_version >= REQUIRES_KNOWN_MEMBER_ID:
                attempt.refuse(MemberIdRequiredError(), member_id)
                return
        records: list[KeyValue] = []
        member, replaces_other = self._member(group, member_id, attempt, records)
        before, topics = member.settings(), member.topic_names
        is_new = member.member_id not in group.targets
        classic = ClassicProtocol(body.session_timeout_ms, tuple(attempt.protocols))
        member.update_classic(
            classic, subscription, attempt.rebalance_timeout_ms, attempt.client_id, attempt.client_host
        )
        if member.settings() != before:
            records.append(records_of.member_record(group.group_id, member))
        groups.refresh(group, is_new or member.topic_names != topics, records)
        owned = partitions_of(subscription.owned_partitions, self._broker.metadata_cache)
        groups.reconcile(group, member, owned, records)
        groups.restart_session(group, member)
        groups.expect_next_step(group, member, "it did not ask for its assignment in time", anew=True)
        response = JoinGroupResponse(
            generation_id=member.current.epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=classic.protocols[0][0],
            member_id=member.member_id,
        )

        def written(code: int) -> None:
            refusal = JoinGroupResponse(member_id=UNKNOWN_MEMBER_ID, error_code=code)
            attempt.respond(refusal if code else response)

        if replaces_other and groups.may_downgrade(group):
            groups.downgrade(group, records, written)
        else:
            groups.write(group, records, written)

    @staticmethod
    def _subscription(group: ConsumerGroup, attempt: JoinAttempt) -> ConsumerProtocolSubscription:
        names = [name for name, _ in attempt.protocols]
        if not group.supports_classic_protocols(attempt.body.protocol_type, names):
            raise InconsistentGroupProtocolError(
                f"no protocol of the member ({attempt.body.protocol_type!r}: {names}) is one that all members of "
                f"group {group.group_id} with the classic protocol support"
            )
        try:
            return read_subscription(attempt.protocols[0][1])
        except RemoteProtocolError as error:
            raise InconsistentGroupProtocolError(f"the subscription cannot be decoded: {error}") from error

    def _member(
        self, group: ConsumerGroup, member_id: str, attempt: JoinAttempt, records: list[KeyValue]
    ) -> tuple[ConsumerGroupMember, bool]:
        """Return the member, which may be new, and whether it has replaced another one with its instance id."""
        instance_id = attempt.body.group_instance_id
        if instance_id is None:
            existing = group.members.get(member_id)
            return existing or self._groups.add_member(group, member_id, None, None, records), False
        if attempt.body.member_id != UNKNOWN_MEMBER_ID:
            return group.static_member(instance_id, member_id), False
        left = group.members.get(group.static_members.get(instance_id, ""))
        return self._groups.add_member(group, member_id, instance_id, left, records), left is not None

    # --- what joined members ask

    def sync(self, group: ConsumerGroup, body: SyncGroupRequest, respond: SyncCallback) -> None:
        """Handle SyncGroup: return the partitions that the member may own now.

        Raises:
            UnknownMemberIdError, FencedInstanceIdError, IllegalGenerationError: the member or generation is not valid.
            InconsistentGroupProtocolError: the request names another protocol.
            RebalanceInProgressError: the member should join again.
        """
        member, classic = self._validated(group, body.member_id, body.group_instance_id, body.generation_id)
        ours = CONSUMER_PROTOCOL_TYPE, classic.protocols[0][0]
        for theirs, our in zip((body.protocol_type, body.protocol_name), ours, strict=True):
            if theirs is not None and theirs != our:
                raise InconsistentGroupProtocolError(f"the protocol of this member is {our!r}, not {theirs!r}")
        if group.group_epoch > member.current.epoch and member.current.state != UNREVOKED_PARTITIONS:
            self._groups.expect_next_step(group, member, "it did not join again in time")
            raise RebalanceInProgressError(f"group {group.group_id} is in epoch {group.group_epoch}: join again")
        member.cancel_rebalance_timer()
        self._groups.restart_session(group, member)
        assignment = assignment_bytes(classic, member.current.assigned, self._broker.metadata_cache)
        respond(SyncGroupResponse(protocol_type=ours[0], protocol_name=ours[1], assignment=assignment))

    def heartbeat(self, group: ConsumerGroup, body: HeartbeatRequest) -> None:
        """Handle Heartbeat.

        Raises:
            UnknownMemberIdError, FencedInstanceIdError, IllegalGenerationError: the member or generation is not valid.
            RebalanceInProgressError: the member should join again.
        """
        member, _ = self._validated(group, body.member_id, body.group_instance_id, body.generation_id)
        self._groups.restart_session(group, member)
        state = member.current.state
        if (
            member.current.epoch < group.group_epoch
            or state == UNREVOKED_PARTITIONS
            or (state == UNRELEASED_PARTITIONS and not group.is_waiting_for_others(member))
        ):
            self._groups.expect_next_step(group, member, "it did not join again in time")
            raise RebalanceInProgressError(f"group {group.group_id} has another assignment for the member: join again")

    def _validated(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
    ) -> tuple[ConsumerGroupMember, ClassicProtocol]:
        member = self._existing(group, member_id, instance_id)
        if member.classic is None:
            raise UnknownMemberIdError(f"Member {member_id} does not use the classic protocol.")
        if generation_id != member.current.epoch:
            raise IllegalGenerationError(f"the generation of the member is {member.current.epoch}, not {generation_id}")
        return member, member.classic

    @staticmethod
    def _existing(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerGroupMember:
        if instance_id is None:
            return group.existing_member(member_id)
        return group.static_member(instance_id, member_id)

    # --- leaving

    def leave(
        self, group: ConsumerGroup, leaving: Iterable[LeaveGroupRequest.MemberIdentity]
    ) -> list[LeaveGroupResponse.MemberResponse]:
        """Handle LeaveGroup, from one member or, for several members, from an administrator."""
        responses = []
        for identity in leaving:
            member_id, instance_id = identity.member_id, identity.group_instance_id
            error_code = 0
            try:
                if member_id == UNKNOWN_MEMBER_ID and instance_id is not None:
                    member_id = group.static_members.get(instance_id, UNKNOWN_MEMBER_ID)
                member = self._existing(group, member_id, instance_id)
                if member.classic is None:
                    raise UnknownMemberIdError(f"Member {member_id} does not use the classic protocol.")
                self._groups.remove(group, member, f"it leaves: {identity.reason or 'not provided'}", _ignore)
            except BrokerError as error:
                error_code = error.code
            responses.append(
                LeaveGroupResponse.MemberResponse(
                    member_id=member_id, group_instance_id=instance_id, error_code=error_code
                )
            )
        return responses


def _ignore(_: int) -> None:
    pass
