"""Share groups on the coordinator's side: heartbeats, epochs and assignments (KIP-932)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from pykclient.errors import (
    GroupMaxSizeReachedError,
    InvalidRequestError,
    UnsupportedVersionError,
)
from pykclient.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from pykclient.testing.group import share_group_records as records_of
from pykclient.testing.group.modern_group import Topics, hash_of
from pykclient.testing.group.share_group import Partitions, SharedTopic, ShareGroup, ShareGroupMember
from pykclient.testing.share.share_types import UNINITIALIZED_START_OFFSET, SharePartitionKey

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.testing.broker import Broker
    from pykclient.testing.coordinator_log import KeyValue
    from pykclient.testing.group.group_metadata_manager import GroupMetadataManager

_LEAVE_EPOCH = -1

#: Called with the response, when all that it tells is in the log.
HeartbeatCallback = Callable[[ShareGroupHeartbeatResponse], None]


class ShareGroupManager:
    """Members join, report and leave by heartbeats; this assigns and tells them (Java: GroupMetadataManager).

    A member need not give anything up before another member gets it. But a partition is only assigned when a share
    coordinator has initialized its state. Changes take effect in memory at once, and are answered when they are in
    the log. Thread: loop.
    """

    __slots__ = ("_broker", "_log", "_manager", "_max_size")

    def __init__(self, broker: Broker, manager: GroupMetadataManager) -> None:
        self._broker = broker
        self._manager = manager
        self._log = broker.log_context.logger(__name__)
        self._max_size: int = broker.config["group.share.max.size"]

    # --- heartbeats

    def validate(self, body: ShareGroupHeartbeatRequest) -> None:
        """Check the fields of a heartbeat.

        Raises:
            UnsupportedVersionError: the cluster has no share groups.
            InvalidRequestError: a field is not valid.
        """
        if not self._broker.cluster.features.share_version:
            raise UnsupportedVersionError("the feature share.version is at level 0, which has no share groups")
        for what, value in (("MemberId", body.member_id), ("GroupId", body.group_id), ("RackId", body.rack_id)):
            if value is not None and not value.strip():
                raise InvalidRequestError(f"{what} can't be empty.")
        if body.member_epoch == 0:
            if not body.subscribed_topic_names:
                raise InvalidRequestError("SubscribedTopicNames must be set in first request.")
        elif body.member_epoch < _LEAVE_EPOCH:
            raise InvalidRequestError("MemberEpoch is invalid.")

    def heartbeat(
        self, body: ShareGroupHeartbeatRequest, client_id: str, client_host: str, respond: HeartbeatCallback
    ) -> None:
        """Handle ShareGroupHeartbeat."""
        group = self._manager.share_group(body.group_id, may_create=body.member_epoch == 0)
        if body.member_epoch == _LEAVE_EPOCH:
            self._leave(group, body, respond)
            return
        if body.member_id not in group.members and len(group.members) >= self._max_size:
            raise GroupMaxSizeReachedError(
                f"The share group has reached its maximum capacity of {self._max_size} members."
            )
        records: list[KeyValue] = []
        member = self._member(group, body)
        before = member.assigned
        is_changed = self._update(group, member, body, client_id, client_host, records)
        is_changed = self._refresh(group, is_changed, records)
        self._reconcile(group, member, is_changed, records)
        self._restart_session(group, member)
        topics = self._uninitialized(group)
        if topics:
            group.begin_initialization(topics)
            records.append(records_of.state_record(group))
        is_full = body.member_epoch == 0 or body.subscribed_topic_names is not None
        response = ShareGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._broker.group_configs.get(group.group_id).heartbeat_interval_ms,
            assignment=_assignment(member.assigned) if is_full or member.assigned != before else None,
        )

        def written(code: int) -> None:
            respond(ShareGroupHeartbeatResponse(error_code=code) if code else response)
            if topics:
                self._initialize(group, topics)

        self._write(group, records, written)

    def _member(self, group: ShareGroup, body: ShareGroupHeartbeatRequest) -> ShareGroupMember:
        """Return the member that a heartbeat comes from, which joins with epoch 0."""
        if body.member_epoch:
            member = group.existing_member(body.member_id)
            group.validate_epoch(member, body.member_epoch)
            return member
        known = group.members.get(body.member_id)
        if known is None:
            known = group.members[body.member_id] = ShareGroupMember(body.member_id)
            self._log.info("%r: %r joins", group, known)
        return known

    def _update(
        self,
        group: ShareGroup,
        member: ShareGroupMember,
        body: ShareGroupHeartbeatRequest,
        client_id: str,
        client_host: str,
        records: list[KeyValue],
    ) -> bool:
        """Apply the fields of a heartbeat; return whether the subscription has changed."""
        before, topics = member.settings(), member.topic_names
        member.update(body, client_id, client_host)
        if member.settings() != before:
            records.append(records_of.member_record(group.group_id, member))
        return member.topic_names != topics

    # --- epochs and assignments

    def _refresh(self, group: ShareGroup, is_changed: bool, records: list[KeyValue]) -> bool:
        """Begin the group's next epoch if its members, topics or initialized partitions have changed.

        Assign anew then, and return whether there is a new epoch.
        """
        is_changed = is_changed or (group.assignment_epoch >= group.group_epoch and group.is_assignment_behind())
        topics = self._topics(group)
        if is_changed or group.is_metadata_stale:
            hash = hash_of(topics)
            is_changed = is_changed or hash != group.metadata_hash
            if is_changed:
                group.metadata_hash = hash
                group.group_epoch += 1
                records.append(records_of.group_record(group))
            group.is_metadata_stale = False
        if group.group_epoch > group.assignment_epoch:
            before = dict(group.targets)
            group.assign({topic: topic_id for topic, (topic_id, _) in topics.items()})
            for member_id, target in group.targets.items():
                if before.get(member_id) != target:
                    records.append(records_of.member_target_record(group.group_id, member_id, target))
            records.append(records_of.target_record(group, self._broker.loop.wall_ms))
            self._log.info("%r: assigned anew", group)
        return is_changed

    def _topics(self, group: ShareGroup) -> Topics:
        cache = self._broker.metadata_cache
        return {
            topic: (cache.topic_id(topic), count)
            for topic in sorted(group.subscribed_topics)
            if (count := cache.num_partitions(topic))
        }

    def _reconcile(
        self, group: ShareGroup, member: ShareGroupMember, is_changed: bool, records: list[KeyValue]
    ) -> None:
        if not is_changed and member.epoch == group.assignment_epoch:
            return
        wanted = {self._broker.metadata_cache.topic_id(topic) for topic in member.topic_names}
        target = group.targets.get(member.member_id, {})
        assigned = {topic_id: partitions for topic_id, partitions in target.items() if topic_id in wanted}
        if member.epoch == group.assignment_epoch and member.assigned == assigned:
            return
        member.assigned = assigned
        if member.epoch != group.assignment_epoch:
            member.previous_epoch, member.epoch = member.epoch, group.assignment_epoch
        records.append(records_of.member_current_record(group.group_id, member))

    # --- the state of partitions

    def _uninitialized(self, group: ShareGroup) -> dict[UUID, SharedTopic]:
        """Return the partitions of subscribed topics whose state is neither initialized nor about to be."""
        found = {}
        for name, (topic_id, count) in self._topics(group).items():
            known: set[int] = set()
            for topics in (group.initialized, group.initializing):
                if topic_id in topics:
                    known |= topics[topic_id].partitions
            missing = frozenset(range(count)) - known
            if missing:
                found[topic_id] = SharedTopic(name, missing)
        return found

    def _initialize(self, group: ShareGroup, topics: Mapping[UUID, SharedTopic]) -> None:
        keys = [
            SharePartitionKey(group.group_id, topic_id, partition)
            for topic_id, topic in topics.items()
            for partition in sorted(topic.partitions)
        ]
        codes: list[int] = []

        def initialized(code: int, message: str) -> None:
            codes.append(code)
            if code:
                self._log.info("%r: a share partition could not be initialized: %s", group, message)
            if len(codes) == len(keys) and not group.is_dead:
                self._end_initialization(group, topics, succeeded=not any(codes))

        for key in keys:
            self._broker.share_persister.initialize_state(
                key, group.group_epoch, UNINITIALIZED_START_OFFSET, initialized
            )

    def _end_initialization(self, group: ShareGroup, topics: Mapping[UUID, SharedTopic], *, succeeded: bool) -> None:
        """Note the result; the next heartbeat of a member assigns the partitions, or tries again."""
        group.end_initialization(topics, succeeded=succeeded)
        self._write(group, [records_of.state_record(group)], lambda _: None)

    def resume_initialization(self, group: ShareGroup) -> None:
        """Let the next heartbeat begin anew what the coordinator before this one had begun."""
        group.initializing.clear()

    # --- sessions

    def schedule_sessions(self, group: ShareGroup) -> None:
        """Start the sessions of all members of a group that was loaded."""
        for member in group.members.values():
            self._restart_session(group, member)

    def _restart_session(self, group: ShareGroup, member: ShareGroupMember) -> None:
        member.cancel_timers()
        timeout_ms = self._broker.group_configs.get(group.group_id).session_timeout_ms
        member.session_timer = self._broker.call_later(timeout_ms, self._expire, group, member)

    def _expire(self, group: ShareGroup, member: ShareGroupMember) -> None:
        if not group.is_dead and group.members.get(member.member_id) is member:
            self._remove(group, member, "its session expired", lambda _: None)

    def _leave(self, group: ShareGroup, body: ShareGroupHeartbeatRequest, respond: HeartbeatCallback) -> None:
        response = ShareGroupHeartbeatResponse(member_id=body.member_id, member_epoch=body.member_epoch)

        def written(code: int) -> None:
            respond(ShareGroupHeartbeatResponse(error_code=code) if code else response)

        self._remove(group, group.existing_member(body.member_id), "it leaves", written)

    def _remove(self, group: ShareGroup, member: ShareGroupMember, why: str, then: Callable[[int], None]) -> None:
        self._log.info("%r: removing %r, as %s", group, member, why)
        group.remove(member)
        group.group_epoch += 1
        group.metadata_hash = hash_of(self._topics(group))
        records = records_of.member_tombstones(group.group_id, member.member_id)
        records.append(records_of.group_record(group))
        self._write(group, records, then)

    # --- writing

    def _write(self, group: ShareGroup, records: list[KeyValue], then: Callable[[int], None]) -> None:
        all_records = partial(records_of.all_records, group, self._broker.loop.wall_ms)
        group.write(self._manager.store_records, records, all_records, then)


def _assignment(partitions: Partitions) -> ShareGroupHeartbeatResponse.Assignment:
    return ShareGroupHeartbeatResponse.Assignment(
        topic_partitions=[
            ShareGroupHeartbeatResponse.TopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
            for topic_id, numbers in partitions.items()
        ]
    )
