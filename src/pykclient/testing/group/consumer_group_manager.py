"""The consumer group protocol on the coordinator's side: heartbeats, epochs and assignments (KIP-848)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from pykclient.errors import (
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    InvalidRegularExpressionError,
    InvalidRequestError,
    RebalanceInProgressError,
    RemoteProtocolError,
    UnsupportedAssignorError,
    UnsupportedVersionError,
)
from pykclient.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from pykclient.testing.group import consumer_group_records as records_of
from pykclient.testing.group.classic_protocol_members import DOWNGRADES, UPGRADES, to_classic_group, to_consumer_group
from pykclient.testing.group.consumer_group_records import KeyValue
from pykclient.testing.group.group_metadata import GroupMetadata
from pykclient.testing.group.modern_groups import (
    LEFT_STATIC_EPOCH,
    UNREVOKED_PARTITIONS,
    ConsumerGroup,
    ConsumerGroupMember,
    Partitions,
    Topics,
    hash_of,
)
from pykclient.testing.group.server_assignors import ASSIGNORS

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.group.group_metadata_manager import GroupMetadataManager
    from pykclient.testing.group.group_rebalance import GroupRebalance

_LEAVE_EPOCH = -1

#: Called with the response, when all that it tells is in the log.
HeartbeatCallback = Callable[[ConsumerGroupHeartbeatResponse], None]


class ConsumerGroupManager:
    """Manages groups whose members join, report and leave by heartbeats (Java: GroupMetadataManager).

    A partition that moves is first taken from its owner, whose heartbeat confirms that; only then its new owner gets
    it. Changes take effect in memory at once, and are answered when they are in the log. Thread: loop.
    """

    __slots__ = (
        "_broker",
        "_interval_ms",
        "_log",
        "_manager",
        "_max_classic_size",
        "_max_size",
        "_policy",
        "_rebalance",
        "_session_timeout_ms",
    )

    def __init__(self, broker: Broker, manager: GroupMetadataManager, rebalance: GroupRebalance) -> None:
        self._broker = broker
        self._manager = manager
        self._rebalance = rebalance
        self._policy: str = broker.config["group.consumer.migration.policy"]
        self._max_classic_size: int = broker.config["group.max.size"]
        self._log = broker.log_context.logger(__name__)
        self._session_timeout_ms: int = broker.config["group.consumer.session.timeout.ms"]
        self._interval_ms: int = broker.config["group.consumer.heartbeat.interval.ms"]
        self._max_size: int = broker.config["group.consumer.max.size"]

    # --- heartbeats

    def heartbeat(
        self, body: ConsumerGroupHeartbeatRequest, client_id: str, client_host: str, respond: HeartbeatCallback
    ) -> None:
        """Handle ConsumerGroupHeartbeat."""
        if not self._broker.cluster.features.group_version:
            raise UnsupportedVersionError("the feature group.version is at level 0, which has no consumer groups")
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
        before = member.current.assigned
        is_changed = self._update(group, member, body, client_id, client_host, records)
        self.refresh(group, is_changed, records)
        self.reconcile(group, member, reported, records)
        self.restart_session(group, member)
        is_full = body.member_epoch == 0 or (
            body.rebalance_timeout_ms != -1 and body.subscribed_topic_names is not None and reported is not None
        )
        response = ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.current.epoch,
            heartbeat_interval_ms=self._interval_ms,
            assignment=_assignment(member.current.assigned) if is_full or member.current.assigned != before else None,
        )
        self.write(group, records, lambda code: respond(response if not code else _refusal(code)))

    def validate_size(self, group: ConsumerGroup, member_id: str) -> None:
        """Check that the group has room for a member.

        Raises:
            GroupMaxSizeReachedError: it has not.
        """
        if member_id not in group.members and len(group.members) >= self._max_size:
            raise GroupMaxSizeReachedError(
                f"The consumer group has reached its maximum capacity of {self._max_size} members."
            )

    def validate(self, body: ConsumerGroupHeartbeatRequest) -> None:
        """Check the fields of a heartbeat.

        Raises:
            InvalidRequestError, UnsupportedAssignorError, InvalidRegularExpressionError: one of them is not valid.
        """
        for what, value in (
            ("GroupId", body.group_id),
            ("InstanceId", body.instance_id),
            ("RackId", body.rack_id),
            ("MemberId", body.member_id),
        ):
            if value is not None and not value.strip():
                raise InvalidRequestError(f"{what} can't be empty.")
        if body.member_epoch == 0:
            if body.rebalance_timeout_ms == -1:
                raise InvalidRequestError("RebalanceTimeoutMs must be provided in first request.")
            if body.topic_partitions is None or body.topic_partitions:
                raise InvalidRequestError("TopicPartitions must be empty when (re-)joining.")
            if body.subscribed_topic_names is None and body.subscribed_topic_regex is None:
                raise InvalidRequestError(
                    "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
                )
        elif body.member_epoch == LEFT_STATIC_EPOCH:
            if body.instance_id is None:
                raise InvalidRequestError("InstanceId can't be null.")
        elif body.member_epoch < _LEAVE_EPOCH:
            raise InvalidRequestError(f"MemberEpoch is {body.member_epoch}, but must be greater than or equal to -2.")
        if body.server_assignor is not None and body.server_assignor not in ASSIGNORS:
            raise UnsupportedAssignorError(
                f"ServerAssignor {body.server_assignor} is not supported. Supported assignors: {', '.join(ASSIGNORS)}."
            )
        if body.subscribed_topic_regex:
            try:
                re.compile(body.subscribed_topic_regex)
            except re.error as error:
                raise InvalidRegularExpressionError(
                    f"SubscribedTopicRegex `{body.subscribed_topic_regex}` is not a valid regular expression: {error}."
                ) from error

    def _group(self, group_id: str, *, may_create: bool) -> ConsumerGroup:
        group = self._manager.consumer_group(group_id, may_create=may_create)
        if group is None and may_create:
            group = self._upgrade(group_id)
        if group is None:
            raise GroupIdNotFoundError(f"Group {group_id} is not a consumer group.")
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
            if instance_id is None:
                member = group.existing_member(body.member_id)
            else:
                member = group.static_member(instance_id, body.member_id)
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
        """Return a new member, which takes the place of the static member ``left``, if there is one."""
        member = ConsumerGroupMember(member_id, instance_id)
        if left is not None:
            # It keeps the place and the partitions of the one that left.
            target = group.targets.get(left.member_id, {})
            records += records_of.member_tombstones(group.group_id, left.member_id)
            group.remove(left)
            member.copy_settings(left)
            group.targets[member.member_id] = target
            group.add(member)
            records.append(records_of.member_record(group.group_id, member))
            records.append(records_of.member_target_record(group.group_id, member.member_id, target))
            records.append(records_of.member_current_record(group.group_id, member.member_id, member.current))
        else:
            group.add(member)
        self._log.info("%r: %r joins", group, member)
        return member

    def _update(
        self,
        group: ConsumerGroup,
        member: ConsumerGroupMember,
        body: ConsumerGroupHeartbeatRequest,
        client_id: str,
        client_host: str,
        records: list[KeyValue],
    ) -> bool:
        """Apply the fields of a heartbeat; return whether the subscription has changed."""
        before, topics = member.settings(), (member.topic_names, member.topic_regex)
        is_new = member.member_id not in group.targets
        member.update(body, client_id, client_host)
        if member.settings() != before:
            records.append(records_of.member_record(group.group_id, member))
        if member.topic_regex and member.topic_regex not in group.regexes:
            group.is_metadata_stale = True
        return is_new or (member.topic_names, member.topic_regex) != topics

    # --- epochs and assignments

    def refresh(self, group: ConsumerGroup, is_changed: bool, records: list[KeyValue]) -> None:
        """Begin the group's next epoch with a new assignment if its members or topics have changed."""
        wall_ms = self._broker.loop.wall_ms
        if is_changed or group.is_metadata_stale:
            self._match(group, records)
            topics = self._topics(group)
            hash = hash_of(topics)
            if is_changed or hash != group.metadata_hash:
                group.metadata_hash = hash
                group.group_epoch += 1
                records.append(records_of.group_record(group))
            group.is_metadata_stale = False
        if group.group_epoch > group.assignment_epoch:
            before = dict(group.targets)
            group.assign(self._topics(group), next(iter(ASSIGNORS)))
            for member_id, target in group.targets.items():
                if before.get(member_id) != target:
                    records.append(records_of.member_target_record(group.group_id, member_id, target))
            records.append(records_of.target_record(group, wall_ms))
            self._log.info("%r: assigned anew", group)

    def _match(self, group: ConsumerGroup, records: list[KeyValue]) -> None:
        """Match the members' regular expressions with the topics that there are."""
        wanted = {member.topic_regex for member in group.members.values() if member.topic_regex}
        group.regexes = {regex: topics for regex, topics in group.regexes.items() if regex in wanted}
        topics = self._broker.metadata_cache.all_topics()
        for regex in sorted(wanted):
            pattern = re.compile(regex)
            matches = frozenset(topic for topic in topics if pattern.fullmatch(topic))
            if group.regexes.get(regex) != matches:
                group.regexes[regex] = matches
                records.append(records_of.regex_record(group.group_id, regex, matches, self._broker.loop.wall_ms))

    def _topics(self, group: ConsumerGroup) -> Topics:
        cache = self._broker.metadata_cache
        topics = {}
        for topic in sorted(group.subscribed_topics):
            count = cache.num_partitions(topic)
            if count:
                topics[topic] = cache.topic_id(topic), count
        return topics

    def reconcile(
        self, group: ConsumerGroup, member: ConsumerGroupMember, reported: Partitions | None, records: list[KeyValue]
    ) -> None:
        """Advance a member after it has reported the partitions that it owns."""
        target = group.targets.get(member.member_id, {})
        current = member.current.next(group.assignment_epoch, target, reported, group.is_owned)
        if current is member.current:
            return
        if current != member.current:
            group.advance(member, current)
            records.append(records_of.member_current_record(group.group_id, member.member_id, current))
            self._log.debug("%r: %r has %s", group, member, current)
        if member.classic is not None:
            return  # it has a time limit for each of its requests
        if current.state == UNREVOKED_PARTITIONS:
            self._expect_revocation(group, member)
        else:
            member.cancel_rebalance_timer()

    # --- timers

    def schedule_sessions(self, group: ConsumerGroup) -> None:
        """Start the sessions of all members of a group that was loaded."""
        for member in group.members.values():
            self.restart_session(group, member)
            if member.classic is None and member.current.state == UNREVOKED_PARTITIONS:
                self._expect_revocation(group, member)

    def restart_session(self, group: ConsumerGroup, member: ConsumerGroupMember) -> None:
        """Restart the session of a member after a sign of life."""
        if member.session_timer is not None:
            member.session_timer.cancel()
        timeout_ms = self._session_timeout_ms if member.classic is None else member.classic.session_timeout_ms
        member.session_timer = self._broker.call_later(timeout_ms, self._expire, group, member, "its session expired")

    def expect_next_step(
        self, group: ConsumerGroup, member: ConsumerGroupMember, why: str, *, anew: bool = False
    ) -> None:
        """Remove a member of the classic protocol unless it takes its next step within its rebalance timeout.

        A time limit that runs already is kept, except with ``anew``.
        """
        if anew:
            member.cancel_rebalance_timer()
        if member.rebalance_timer is None:
            member.rebalance_timer = self._broker.call_later(
                member.rebalance_timeout_ms, self._expire, group, member, why
            )

    def _expect_revocation(self, group: ConsumerGroup, member: ConsumerGroupMember) -> None:
        if member.rebalance_timer is None:
            member.rebalance_timer = self._broker.call_later(
                member.rebalance_timeout_ms, self._expire_revocation, group, member, member.current.epoch
            )

    def _expire_revocation(self, group: ConsumerGroup, member: ConsumerGroupMember, epoch: int) -> None:
        if member.current.state == UNREVOKED_PARTITIONS and member.current.epoch == epoch:
            self._expire(group, member, "it did not give up partitions within its rebalance timeout")

    def _expire(self, group: ConsumerGroup, member: ConsumerGroupMember, why: str) -> None:
        if group.is_dead or group.members.get(member.member_id) is not member:
            return
        self.remove(group, member, why, lambda _: None)

    # --- leaving

    def _leave(self, body: ConsumerGroupHeartbeatRequest, respond: HeartbeatCallback) -> None:
        group = self._group(body.group_id, may_create=False)
        response = ConsumerGroupHeartbeatResponse(member_id=body.member_id, member_epoch=body.member_epoch)

        def written(code: int) -> None:
            respond(response if not code else _refusal(code))

        if body.instance_id is None:
            self.remove(group, group.existing_member(body.member_id), "it leaves", written)
            return
        member = group.static_member(body.instance_id, body.member_id)
        if body.member_epoch == _LEAVE_EPOCH:
            self.remove(group, member, "it leaves", written)
            return
        self._log.info("%r: %r leaves for a while", group, member)
        # What it was to give up is free now.
        group.advance(member, member.current._replace(epoch=LEFT_STATIC_EPOCH, pending_revocation={}))
        record = records_of.member_current_record(group.group_id, member.member_id, member.current)
        self.write(group, [record], written)

    def remove(self, group: ConsumerGroup, member: ConsumerGroupMember, why: str, then: Callable[[int], None]) -> None:
        """Remove a member; the group becomes classic if all others use the classic protocol."""
        self._log.info("%r: removing %r, as %s", group, member, why)
        group.remove(member)
        if self.may_downgrade(group):
            group.group_epoch += 1
            classic = self.downgrade(group, records_of.member_tombstones(group.group_id, member.member_id), then)
            self._rebalance.prepare_rebalance(classic, "its last member of the consumer protocol is gone")
            return
        group.group_epoch += 1
        records = records_of.member_tombstones(group.group_id, member.member_id)
        topics = self._topics(group)
        group.metadata_hash = hash_of(topics)
        records.append(records_of.group_record(group))
        self.write(group, records, then)

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
        try:
            new = to_consumer_group(old, self._broker.metadata_cache, self._broker.loop.wall_ms)
        except RemoteProtocolError as error:
            raise GroupIdNotFoundError(f"Cannot upgrade classic group {group_id} to consumer group: {error}") from error
        self._log.info("%r becomes a group of the consumer protocol", old)
        tombstones = self._manager.replace(old, new)
        self._rebalance.abandon(old, RebalanceInProgressError.code)
        self.schedule_sessions(new)
        new.is_behind_log = True
        self.write(new, tombstones, lambda _: None)
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
        new = to_classic_group(old, self._broker.metadata_cache, self._broker.loop.wall_ms)
        self._log.info("%r becomes a classic group", old)
        tombstones = self._manager.replace(old, new)
        old.is_dead = True
        assignments = {member.member_id: member.assignment for member in new.members.values()}
        self._manager.store_group(new, assignments, then, [*records, *tombstones])
        for member in new.members.values():
            self._rebalance.reschedule_session(new, member)
        return new

    # --- writing

    def write(self, group: ConsumerGroup, records: list[KeyValue], then: Callable[[int], None]) -> None:
        """Append the records; call ``then`` with an error code or 0 when all changes are in the log."""
        wall_ms = self._broker.loop.wall_ms
        group.write(self._manager.store_records, records, lambda: records_of.all_records(group, wall_ms), then)


def _assignment(partitions: Partitions) -> ConsumerGroupHeartbeatResponse.Assignment:
    return ConsumerGroupHeartbeatResponse.Assignment(
        topic_partitions=[
            ConsumerGroupHeartbeatResponse.TopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
            for topic_id, numbers in partitions.items()
        ]
    )


def _refusal(code: int) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code)
