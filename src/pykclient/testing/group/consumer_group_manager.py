"""The consumer group protocol on the coordinator's side: heartbeats, epochs and assignments (KIP-848).

A group may have members that still use the classic protocol, and may change its protocol when such members come and go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final
from uuid import UUID

from pykclient import errors
from pykclient.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from pykclient.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from pykclient.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from pykclient.protocol.messages.heartbeat import HeartbeatRequest
from pykclient.protocol.messages.join_group import JoinGroupResponse
from pykclient.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from pykclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from pykclient.protocol.wire import Reader, Writer
from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.coordinator_log import KeyValue
from pykclient.testing.group.group_metadata import (
    CONSUMER_PROTOCOL_TYPE,
    UNKNOWN_MEMBER_ID,
    GroupMetadata,
    MemberMetadata,
    SyncCallback,
)
from pykclient.testing.group.group_metadata_manager import (
    GroupMetadataManager,
    ModernGroupManager,
    heartbeat_response,
    ignore,
    validate_names,
    when_written,
)
from pykclient.testing.group.group_rebalance import REQUIRES_KNOWN_MEMBER_ID, GroupRebalance, JoinAttempt, leave_each
from pykclient.testing.group.group_records import CONSUMER_GROUP_RECORDS as RECORDS
from pykclient.testing.group.modern_groups import (
    LEAVE_EPOCH,
    LEFT_STATIC_EPOCH,
    MEMBER_STABLE as STABLE,
    UNRELEASED_PARTITIONS,
    UNREVOKED_PARTITIONS,
    ClassicProtocol,
    ConsumerGroup,
    ConsumerGroupMember,
    CurrentAssignment,
    Partitions,
)
from pykclient.testing.group.server_assignors import ASSIGNORS
from pykclient.testing.metadata_cache import MetadataCache

#: Called with the response, when all that it tells is in the log.
HeartbeatCallback = Callable[[ConsumerGroupHeartbeatResponse], None]


class ConsumerGroupManager(ModernGroupManager[ConsumerGroup, ConsumerGroupMember]):
    """Manages groups whose members join, report and leave by heartbeats (Java: GroupMetadataManager).

    A partition that moves is first taken from its owner, whose heartbeat confirms that; only then its new owner gets
    it. Changes take effect in memory at once, unless the log refuses them, and are answered when they are in the log.
    Thread: loop.
    """

    def __init__(
        self,
        broker: BrokerContext,
        metadata_cache: MetadataCache,
        manager: GroupMetadataManager,
        rebalance: GroupRebalance,
    ) -> None:
        super().__init__(broker, metadata_cache, manager, RECORDS, broker.config["group.consumer.max.size"])
        self._rebalance = rebalance
        self._policy: str = broker.config["group.consumer.migration.policy"]
        self._max_classic_size: int = broker.config["group.max.size"]
        self._consumer_session_timeout_ms: int = broker.config["group.consumer.session.timeout.ms"]
        self._interval_ms: int = broker.config["group.consumer.heartbeat.interval.ms"]

    # --- heartbeats

    def heartbeat(
        self, body: ConsumerGroupHeartbeatRequest, client_id: str, client_host: str, respond: HeartbeatCallback
    ) -> None:
        """Handle ConsumerGroupHeartbeat."""
        if not self._broker.features.group_version:
            raise errors.UnsupportedVersionError(
                "the feature group.version is at level 0, which has no consumer groups"
            )
        if body.member_epoch < 0:
            self._leave(body, respond)
            return
        group = self._group(body.group_id, may_create=body.member_epoch == 0)
        self.validate_size(group, body.member_id)
        reported = None
        if body.topic_partitions is not None:
            reported = {topic.topic_id: frozenset(topic.partitions) for topic in body.topic_partitions}
        records: list[KeyValue] = []
        member = self._member(group, body, reported, records)
        current = member.current
        with self._manager.all_or_nothing(group, records):
            is_changed = self.update(group, member, partial(member.update, body, client_id, client_host), records)
            if member.subscribed_topic_regex and member.subscribed_topic_regex not in group.regexes:
                group.is_metadata_stale = True
            self.refresh(group, is_changed, records)
            self.reconcile(group, member, reported, records)
            # Also a heartbeat whose effect is undone shows that the member lives.
            self.restart_session(group, member)
        if member.current is not current:
            member.cancel_rebalance_timer()
            self._expect_revocation(group, member)
        is_full = body.member_epoch == 0 or (
            body.rebalance_timeout_ms != -1 and body.subscribed_topic_names is not None and reported is not None
        )
        with_assignment = is_full or member.current.assigned != current.assigned
        response = heartbeat_response(ConsumerGroupHeartbeatResponse, member, self._interval_ms, with_assignment)
        self._manager.write(group, records, when_written(respond, response))

    def validate(self, body: ConsumerGroupHeartbeatRequest) -> None:
        """Check the fields of a heartbeat.

        Raises:
            InvalidRequestError, UnsupportedAssignorError, InvalidRegularExpressionError: one of them is not valid.
        """
        validate_names(GroupId=body.group_id, InstanceId=body.instance_id, RackId=body.rack_id, MemberId=body.member_id)
        if body.member_epoch == 0:
            if body.rebalance_timeout_ms == -1:
                raise errors.InvalidRequestError("RebalanceTimeoutMs must be provided in first request.")
            if body.topic_partitions is None or body.topic_partitions:
                raise errors.InvalidRequestError("TopicPartitions must be empty when (re-)joining.")
            if body.subscribed_topic_names is None and body.subscribed_topic_regex is None:
                raise errors.InvalidRequestError(
                    "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
                )
        elif body.member_epoch == LEFT_STATIC_EPOCH:
            if body.instance_id is None:
                raise errors.InvalidRequestError("InstanceId can't be null.")
        elif body.member_epoch < LEAVE_EPOCH:
            raise errors.InvalidRequestError(
                f"MemberEpoch is {body.member_epoch}, but must be greater than or equal to -2."
            )
        if body.server_assignor is not None and body.server_assignor not in ASSIGNORS:
            raise errors.UnsupportedAssignorError(
                f"ServerAssignor {body.server_assignor} is not supported. Supported assignors: {', '.join(ASSIGNORS)}."
            )
        if body.subscribed_topic_regex:
            try:
                re.compile(body.subscribed_topic_regex)
            except re.error as error:
                raise errors.InvalidRegularExpressionError(
                    f"SubscribedTopicRegex `{body.subscribed_topic_regex}` is not a valid regular expression: {error}."
                ) from error

    def _group(self, group_id: str, *, may_create: bool) -> ConsumerGroup:
        group = self._manager.group_of(ConsumerGroup, group_id, may_create=may_create)
        if group is None and may_create:
            group = self._upgrade(group_id)
        if group is None:
            raise errors.GroupIdNotFoundError(f"Group {group_id} is not a consumer group.")
        return group

    def _member(
        self,
        group: ConsumerGroup,
        body: ConsumerGroupHeartbeatRequest,
        reported: Partitions | None,
        records: list[KeyValue],
    ) -> ConsumerGroupMember:
        """Return the member that a heartbeat comes from, which joins with epoch 0."""
        instance_id = body.instance_id
        if body.member_epoch:
            member = group.member(body.member_id, instance_id)
            group.validate_epoch(member, body.member_epoch, reported)
            return member
        left = None if instance_id is None else group.validate_released(instance_id)
        existing = group.members.get(body.member_id)
        if existing is not None and left is None:
            return existing
        return self.add_member(group, body.member_id, instance_id, left, records)

    def add_member(
        self,
        group: ConsumerGroup,
        member_id: str,
        instance_id: str | None,
        left: ConsumerGroupMember | None,
        records: list[KeyValue],
    ) -> ConsumerGroupMember:
        """Return a new member, which takes the place of the static member ``left``, if there is one.

        Raises:
            CoordinatorNotAvailableError, NotCoordinatorError: the log refuses it.
        """
        self._manager.validate_appendable(group.group_id)
        member = ConsumerGroupMember(member_id, instance_id)
        if left is not None:
            # It keeps the place and the partitions of the one that left.
            target = group.targets.get(left.member_id, {})
            records += RECORDS.member_tombstones(group.group_id, left.member_id)
            group.remove(left)
            member.copy_settings(left)
            group.targets[member.member_id] = target
            group.add(member)
            records.append(RECORDS.member_record(group.group_id, member))
            records.append(RECORDS.member_target_record(group.group_id, member.member_id, target))
            records.append(RECORDS.member_current_record(group.group_id, member))
        else:
            group.add(member)
        self._log.info("%r: %r joins", group, member)
        return member

    # --- epochs and assignments

    def _match(self, group: ConsumerGroup, records: list[KeyValue]) -> None:
        """Match the members' regular expressions with the topics that there are."""
        wanted = {member.subscribed_topic_regex for member in group.members.values() if member.subscribed_topic_regex}
        group.regexes = {regex: topics for regex, topics in group.regexes.items() if regex in wanted}
        topics = self._metadata_cache.all_topics()
        for regex in sorted(wanted):
            pattern = re.compile(regex)
            matches = frozenset(topic for topic in topics if pattern.fullmatch(topic))
            if group.regexes.get(regex) != matches:
                group.regexes[regex] = matches
                records.append(RECORDS.regex_record(group.group_id, regex, matches, self._broker.loop.wall_ms))

    def reconcile(
        self, group: ConsumerGroup, member: ConsumerGroupMember, reported: Partitions | None, records: list[KeyValue]
    ) -> None:
        """Advance a member after it has reported the partitions that it owns."""
        target = group.targets.get(member.member_id, {})
        current = member.current.next(group.assignment_epoch, target, reported, group.is_owned)
        if current != member.current:
            group.advance(member, current)
            records.append(RECORDS.member_current_record(group.group_id, member))
            self._log.debug("%r: %r has %s", group, member, current)

    # --- timers

    def _session_timeout_ms(self, group: ConsumerGroup, member: ConsumerGroupMember) -> int:  # noqa: ARG002
        return self._consumer_session_timeout_ms if member.classic is None else member.classic.session_timeout_ms

    def schedule_sessions(self, group: ConsumerGroup) -> None:
        super().schedule_sessions(group)
        for member in group.members.values():
            if member.classic is None:
                self._expect_revocation(group, member)

    def expect_next_step(
        self, group: ConsumerGroup, member: ConsumerGroupMember, why: str, *, anew: bool = False
    ) -> None:
        """Remove a member unless it takes its next step within its rebalance timeout.

        With the classic protocol the step is a request, otherwise it is to give up partitions. A time limit that runs
        already is kept, except with ``anew``.
        """
        if anew:
            member.cancel_rebalance_timer()
        if member.rebalance_timer is None:
            self._expire_step_later(group, member, why, member.rebalance_timeout_ms)

    def _expect_revocation(self, group: ConsumerGroup, member: ConsumerGroupMember) -> None:
        if member.current.state == UNREVOKED_PARTITIONS:
            self.expect_next_step(group, member, "it did not give up partitions within its rebalance timeout")

    def _expire_step_later(self, group: ConsumerGroup, member: ConsumerGroupMember, why: str, delay_ms: int) -> None:
        again = self._expire_step_later
        member.rebalance_timer = self._broker.call_later(delay_ms, self._expire, group, member, why, again)

    # --- leaving

    def _leave(self, body: ConsumerGroupHeartbeatRequest, respond: HeartbeatCallback) -> None:
        group = self._group(body.group_id, may_create=False)
        response = ConsumerGroupHeartbeatResponse(member_id=body.member_id, member_epoch=body.member_epoch)
        written = when_written(respond, response)
        member = group.member(body.member_id, body.instance_id)
        if body.instance_id is None or body.member_epoch == LEAVE_EPOCH:
            self.remove(group, member, "it leaves", written)
            return
        self._manager.validate_appendable(group.group_id)
        self._log.info("%r: %r leaves for a while", group, member)
        # What it was to give up is free now.
        member.cancel_rebalance_timer()
        group.advance(member, member.current._replace(epoch=LEFT_STATIC_EPOCH, pending_revocation={}))
        record = RECORDS.member_current_record(group.group_id, member)
        self._manager.write(group, [record], written)

    def _write_removal(self, group: ConsumerGroup, records: list[KeyValue], then: Callable[[int], None]) -> None:
        """Write that a member was removed; the group becomes classic if all others use the classic protocol."""
        if self.may_downgrade(group):
            classic = self.downgrade(group, records, then)
            self._rebalance.prepare_rebalance(classic, "its last member of the consumer protocol is gone")
        else:
            super()._write_removal(group, records, then)

    # --- members of the other protocol

    def _upgrade(self, group_id: str) -> ConsumerGroup | None:
        """Return the group as one of the consumer protocol, None if its members or the brokers do not allow that."""
        old = self._manager.groups.get(group_id)
        if (
            not isinstance(old, GroupMetadata)
            or not old.uses_consumer_protocol
            or len(old.members) > self._max_size
            or self._policy not in UPGRADES
        ):
            return None
        self._manager.validate_appendable(group_id)
        try:
            new = to_consumer_group(old, self._metadata_cache, self._broker.loop.wall_ms)
        except errors.RemoteProtocolError as error:
            raise errors.GroupIdNotFoundError(
                f"Cannot upgrade classic group {group_id} to consumer group: {error}"
            ) from error
        self._log.info("%r becomes a group of the consumer protocol", old)
        tombstones = self._manager.replace(old, new)
        self._rebalance.abandon(old, errors.RebalanceInProgressError.code)
        self.schedule_sessions(new)
        new.is_behind_log = True
        self._manager.write(new, tombstones, ignore)
        return new

    def may_downgrade(self, group: ConsumerGroup) -> bool:
        """Return whether a group may become classic: all members use that protocol, and the brokers allow it."""
        return (
            group.has_only_classic_members
            and len(group.members) <= self._max_classic_size
            and self._policy in DOWNGRADES
        )

    def downgrade(self, old: ConsumerGroup, records: list[KeyValue], then: Callable[[int], None]) -> GroupMetadata:
        """Return the group as a classic one, in the generation that equals its epoch.

        ``records``, the last ones of the old group, are written with it. Without it, a new coordinator would load a
        group of the consumer protocol in which no rebalance is due. ``then`` is called with an error code or 0 when
        both are in the log.
        """
        new = to_classic_group(old, self._metadata_cache, self._broker.loop.wall_ms)
        self._log.info("%r becomes a classic group", old)
        tombstones = self._manager.replace(old, new)
        old.is_dead = True
        assignments = {member.member_id: member.assignment for member in new.members.values()}
        self._manager.store_group(new, assignments, then, [*records, *tombstones])
        for member in new.members.values():
            self._rebalance.reschedule_session(new, member)
        return new

    # --- JoinGroup, SyncGroup, Heartbeat and LeaveGroup of members with the classic protocol
    #
    # A member reports what it owns when it joins, and gets what it may have when it syncs; its generation is its member
    # epoch. Nobody is the leader, as the coordinator assigns. Heartbeats tell a member to join again whenever that
    # would bring it closer to its target. It must do so, and sync, within its rebalance timeout.

    def join(self, group: ConsumerGroup, attempt: JoinAttempt) -> None:
        """Handle JoinGroup. The response does not wait for other members."""
        try:
            self._join(group, attempt)
        except errors.BrokerError as error:
            attempt.refuse(error, attempt.body.member_id)

    def _join(self, group: ConsumerGroup, attempt: JoinAttempt) -> None:
        body = attempt.body
        self.validate_size(group, body.member_id)
        subscription = self._subscription(group, attempt)
        instance_id = body.group_instance_id
        member_id = body.member_id
        if member_id == UNKNOWN_MEMBER_ID:
            member_id = GroupMetadata.generate_member_id(attempt.client_id, instance_id, self._broker.rng)
            if instance_id is None and attempt.api_version >= REQUIRES_KNOWN_MEMBER_ID:
                attempt.refuse(errors.MemberIdRequiredError(), member_id)
                return
        records: list[KeyValue] = []
        member, replaces_other = self._classic_member(group, member_id, attempt, records)
        classic = ClassicProtocol(body.session_timeout_ms, tuple(attempt.protocols))
        with self._manager.all_or_nothing(group, records):
            settings = classic, subscription, attempt.rebalance_timeout_ms, attempt.client_id, attempt.client_host
            self.refresh(group, self.update(group, member, partial(member.update_classic, *settings), records), records)
            owned, cache = subscription.owned_partitions, self._metadata_cache
            # A broker that has just started may not have heard of the topics yet: the member may own anything then.
            is_known = all(cache.contains(topic.topic) for topic in owned)
            self.reconcile(group, member, partitions_of(owned, cache) if is_known else None, records)
        self.restart_session(group, member)
        self.expect_next_step(group, member, "it did not ask for its assignment in time", anew=True)
        response = JoinGroupResponse(
            generation_id=member.current.epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=classic.protocols[0][0],
            member_id=member.member_id,
        )

        def written(code: int) -> None:
            refusal = JoinGroupResponse(member_id=UNKNOWN_MEMBER_ID, error_code=code)
            attempt.respond(refusal if code else response)

        if replaces_other and self.may_downgrade(group):
            self.downgrade(group, records, written)
        else:
            self._manager.write(group, records, written)

    @staticmethod
    def _subscription(group: ConsumerGroup, attempt: JoinAttempt) -> ConsumerProtocolSubscription:
        names = [name for name, _ in attempt.protocols]
        if not group.supports_classic_protocols(attempt.body.protocol_type, names):
            raise errors.InconsistentGroupProtocolError(
                f"no protocol of the member ({attempt.body.protocol_type!r}: {names}) is one that all members of "
                f"group {group.group_id} with the classic protocol support"
            )
        try:
            return read_subscription(attempt.protocols[0][1])
        except errors.RemoteProtocolError as error:
            raise errors.InconsistentGroupProtocolError(f"the subscription cannot be decoded: {error}") from error

    def _classic_member(
        self, group: ConsumerGroup, member_id: str, attempt: JoinAttempt, records: list[KeyValue]
    ) -> tuple[ConsumerGroupMember, bool]:
        """Return the member, which may be new, and whether it has replaced another one with its instance id."""
        instance_id = attempt.body.group_instance_id
        if instance_id is None:
            existing = group.members.get(member_id)
            return existing or self.add_member(group, member_id, None, None, records), False
        if attempt.body.member_id != UNKNOWN_MEMBER_ID:
            return group.member(member_id, instance_id), False
        left = group.members.get(group.static_members.get(instance_id, ""))
        return self.add_member(group, member_id, instance_id, left, records), left is not None

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
                raise errors.InconsistentGroupProtocolError(f"the protocol of this member is {our!r}, not {theirs!r}")
        if group.group_epoch > member.current.epoch and member.current.state != UNREVOKED_PARTITIONS:
            self.expect_next_step(group, member, "it did not join again in time")
            raise errors.RebalanceInProgressError(f"group {group.group_id} is in epoch {group.group_epoch}: join again")
        member.cancel_rebalance_timer()
        self.restart_session(group, member)
        assignment = assignment_bytes(classic, member.current.assigned, self._metadata_cache)
        respond(SyncGroupResponse(protocol_type=ours[0], protocol_name=ours[1], assignment=assignment))

    def classic_heartbeat(self, group: ConsumerGroup, body: HeartbeatRequest) -> None:
        """Handle Heartbeat.

        Raises:
            UnknownMemberIdError, FencedInstanceIdError, IllegalGenerationError: the member or generation is not valid.
            RebalanceInProgressError: the member should join again.
        """
        member, _ = self._validated(group, body.member_id, body.group_instance_id, body.generation_id)
        self.restart_session(group, member)
        state = member.current.state
        if (
            member.current.epoch < group.group_epoch
            or state == UNREVOKED_PARTITIONS
            or (state == UNRELEASED_PARTITIONS and not group.is_waiting_for_others(member))
        ):
            self.expect_next_step(group, member, "it did not join again in time")
            raise errors.RebalanceInProgressError(
                f"group {group.group_id} has another assignment for the member: join again"
            )

    def _validated(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
    ) -> tuple[ConsumerGroupMember, ClassicProtocol]:
        member = group.member(member_id, instance_id)
        if member.classic is None:
            raise errors.UnknownMemberIdError(f"Member {member_id} does not use the classic protocol.")
        if generation_id != member.current.epoch:
            raise errors.IllegalGenerationError(
                f"the generation of the member is {member.current.epoch}, not {generation_id}"
            )
        return member, member.classic

    def leave(
        self, group: ConsumerGroup, leaving: Iterable[LeaveGroupRequest.MemberIdentity]
    ) -> list[LeaveGroupResponse.MemberResponse]:
        """Handle LeaveGroup, from one member or, for several members, from an administrator.

        Raises:
            CoordinatorNotAvailableError, NotCoordinatorError: the log refuses that, and all members stay.
        """
        self._manager.validate_appendable(group.group_id)

        def known(identity: LeaveGroupRequest.MemberIdentity) -> LeaveGroupRequest.MemberIdentity:
            member_id, instance_id = identity.member_id, identity.group_instance_id
            if member_id == UNKNOWN_MEMBER_ID and instance_id is not None:
                member_id = group.static_members.get(instance_id, UNKNOWN_MEMBER_ID)
            return LeaveGroupRequest.MemberIdentity(
                member_id=member_id, group_instance_id=instance_id, reason=identity.reason
            )

        def remove(identity: LeaveGroupRequest.MemberIdentity) -> None:
            member = group.member(identity.member_id, identity.group_instance_id)
            if member.classic is None:
                raise errors.UnknownMemberIdError(f"Member {identity.member_id} does not use the classic protocol.")
            self.remove(group, member, f"it leaves: {identity.reason or 'not provided'}", ignore)

        return leave_each(map(known, leaving), remove)


#: The values of ``group.consumer.migration.policy`` that allow each direction.
UPGRADES: Final = ("upgrade", "bidirectional")

DOWNGRADES: Final = ("downgrade", "bidirectional")

_HIGHEST_VERSION: Final = ConsumerProtocolSubscription.VERSIONS[1]

_Topic = ConsumerProtocolSubscription.TopicPartition | ConsumerProtocolAssignment.TopicPartition


def _version(reader: Reader) -> int:
    version = reader.int16()
    if version < 0:
        raise errors.RemoteProtocolError(f"version {version} of the consumer protocol does not exist")
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
        member = ConsumerGroupMember(one.member_id, one.instance_id)
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
