"""The records of __consumer_offsets, equal to Kafka's (Java: GroupCoordinatorRecordHelpers and its serde).

A key begins with its type, a value with its version, two bytes each. A record without a value is a tombstone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, Generic, TypeVar
from uuid import UUID

from pykclient.errors import IllegalStateError, UnsupportedVersionError
from pykclient.protocol.message import DataMessage
from pykclient.protocol.messages.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from pykclient.protocol.messages.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
)
from pykclient.protocol.messages.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from pykclient.protocol.messages.consumer_group_member_metadata_value import ConsumerGroupMemberMetadataValue
from pykclient.protocol.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from pykclient.protocol.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from pykclient.protocol.messages.consumer_group_regular_expression_key import ConsumerGroupRegularExpressionKey
from pykclient.protocol.messages.consumer_group_regular_expression_value import ConsumerGroupRegularExpressionValue
from pykclient.protocol.messages.consumer_group_target_assignment_member_key import (
    ConsumerGroupTargetAssignmentMemberKey,
)
from pykclient.protocol.messages.consumer_group_target_assignment_member_value import (
    ConsumerGroupTargetAssignmentMemberValue,
)
from pykclient.protocol.messages.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from pykclient.protocol.messages.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue,
)
from pykclient.protocol.messages.group_metadata_key import GroupMetadataKey
from pykclient.protocol.messages.group_metadata_value import GroupMetadataValue
from pykclient.protocol.messages.offset_commit_key import OffsetCommitKey
from pykclient.protocol.messages.offset_commit_value import OffsetCommitValue
from pykclient.protocol.messages.share_group_current_member_assignment_key import ShareGroupCurrentMemberAssignmentKey
from pykclient.protocol.messages.share_group_current_member_assignment_value import (
    ShareGroupCurrentMemberAssignmentValue,
)
from pykclient.protocol.messages.share_group_member_metadata_key import ShareGroupMemberMetadataKey
from pykclient.protocol.messages.share_group_member_metadata_value import ShareGroupMemberMetadataValue
from pykclient.protocol.messages.share_group_metadata_key import ShareGroupMetadataKey
from pykclient.protocol.messages.share_group_metadata_value import ShareGroupMetadataValue
from pykclient.protocol.messages.share_group_state_partition_metadata_key import ShareGroupStatePartitionMetadataKey
from pykclient.protocol.messages.share_group_state_partition_metadata_value import (
    ShareGroupStatePartitionMetadataValue,
)
from pykclient.protocol.messages.share_group_target_assignment_member_key import ShareGroupTargetAssignmentMemberKey
from pykclient.protocol.messages.share_group_target_assignment_member_value import (
    ShareGroupTargetAssignmentMemberValue,
)
from pykclient.protocol.messages.share_group_target_assignment_metadata_key import (
    ShareGroupTargetAssignmentMetadataKey,
)
from pykclient.protocol.messages.share_group_target_assignment_metadata_value import (
    ShareGroupTargetAssignmentMetadataValue,
)
from pykclient.protocol.wire import BytesLike, Reader, Writer
from pykclient.testing.coordinator_log import KeyValue
from pykclient.testing.group.group_metadata import CommittedOffset, GroupMetadata, MemberMetadata
from pykclient.testing.group.modern_groups import (
    ClassicProtocol,
    ConsumerGroup,
    ConsumerGroupMember,
    CurrentAssignment,
    ModernGroup,
    ModernGroupMember,
    Partitions,
    SharedTopic,
    ShareGroup,
    ShareGroupMember,
)
from pykclient.types import TopicPartition

GROUP_METADATA_TOPIC: Final = "__consumer_offsets"

#: Kafka before 0.9 wrote type 0, with the same fields.
_OFFSET_COMMIT_KEYS: Final = (0, 1)
_GROUP_METADATA_KEY: Final = 2

#: The only version with an expiry time for each offset.
_OFFSET_WITH_EXPIRATION_VERSION: Final = 1
_OFFSET_VERSION: Final = 4
_GROUP_VERSION: Final = 3


def _prefixed(prefix: int, message: DataMessage, version: int) -> bytes:
    w = Writer()
    w.int16(prefix)
    message.write(w, version)
    return w.getvalue()


def offset_commit_key(group_id: str, tp: TopicPartition) -> bytes:
    key = OffsetCommitKey(group=group_id, topic=tp.topic, partition=tp.partition)
    return _prefixed(_OFFSET_COMMIT_KEYS[-1], key, 0)


def offset_commit_value(offset: CommittedOffset) -> bytes:
    version = _OFFSET_VERSION if offset.expire_timestamp_ms < 0 else _OFFSET_WITH_EXPIRATION_VERSION
    value = OffsetCommitValue(
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        commit_timestamp=offset.commit_timestamp_ms,
        expire_timestamp=offset.expire_timestamp_ms,
        topic_id=offset.topic_id,
    )
    return _prefixed(version, value, version)


def group_metadata_key(group_id: str) -> bytes:
    return _prefixed(_GROUP_METADATA_KEY, GroupMetadataKey(group=group_id), 0)


def group_metadata_value(group: GroupMetadata, assignments: Mapping[str, bytes]) -> bytes:
    """Return the group's record with these assignments, which must include all members."""
    protocol = group.protocol_name
    if group.members and protocol is None:
        raise IllegalStateError(f"{group!r} has members and no protocol")
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=protocol,
        leader=group.leader_id,
        current_state_timestamp=group.state_timestamp_ms,
        members=[
            GroupMetadataValue.MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(protocol or ""),
                assignment=assignments[member.member_id],
            )
            for member in group.members.values()
        ],
    )
    return _prefixed(_GROUP_VERSION, value, _GROUP_VERSION)


def read_key(key: BytesLike) -> tuple[str, TopicPartition | None] | None:
    """Return group and partition of an offset's key, group and None for a group's key, or None for other types.

    Raises:
        RemoteProtocolError: the bytes are not a key.
    """
    reader = Reader(key)
    type = reader.int16()
    if type in _OFFSET_COMMIT_KEYS:
        offset_key = OffsetCommitKey.read(reader, 0)
        return offset_key.group, TopicPartition(offset_key.topic, offset_key.partition)
    if type == _GROUP_METADATA_KEY:
        return GroupMetadataKey.read(reader, 0).group, None
    return None


def read_offset(value: BytesLike, record_offset: int) -> CommittedOffset:
    """Decode the value of an offset record.

    Raises:
        RemoteProtocolError, UnsupportedVersionError: the value cannot be decoded.
    """
    reader = Reader(value)
    read = OffsetCommitValue.read(reader, reader.int16())
    return CommittedOffset(
        read.offset,
        read.leader_epoch,
        read.metadata,
        read.commit_timestamp,
        read.expire_timestamp,
        read.topic_id,
        record_offset,
    )


def read_group(group_id: str, value: BytesLike) -> GroupMetadata:
    """Decode the value of a group record.

    Raises:
        RemoteProtocolError, UnsupportedVersionError: the value cannot be decoded.
    """
    reader = Reader(value)
    version = reader.int16()
    read = GroupMetadataValue.read(reader, version)
    if read.members and read.protocol is None:
        raise UnsupportedVersionError(f"group {group_id} was written with members and without a protocol")
    instances = [member.group_instance_id for member in read.members if member.group_instance_id is not None]
    if len(set(instances)) < len(instances) or len({member.member_id for member in read.members}) < len(read.members):
        raise UnsupportedVersionError(f"group {group_id} was written with two members of one id")
    members = [
        MemberMetadata(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.session_timeout if version == 0 else member.rebalance_timeout,
            member.session_timeout,
            read.protocol_type,
            [(read.protocol or "", member.subscription)],
            member.assignment,
        )
        for member in read.members
    ]
    return GroupMetadata.loaded(
        group_id,
        read.generation,
        read.protocol_type or None,
        read.protocol,
        read.leader,
        read.current_state_timestamp,
        members,
    )


# --- groups whose coordinator assigns --------------------------------------------------------------------------------

#: A member's state in the record of a share group: it has what it was assigned.
_STABLE: Final = 0

M = TypeVar("M", bound=ModernGroupMember)
G = TypeVar("G", bound="ModernGroup[Any]")


def _record(key: Any, value: DataMessage) -> KeyValue:
    return _prefixed(key.RECORD_TYPE, key, 0), _prefixed(0, value, 0)


def _tombstone(key: Any) -> KeyValue:
    return _prefixed(key.RECORD_TYPE, key, 0), None


def topics_of(topic_class: Any, partitions: Partitions) -> list[Any]:
    """Return partitions as a message has them, in objects of ``topic_class``."""
    return [topic_class(topic_id=topic_id, partitions=sorted(numbers)) for topic_id, numbers in partitions.items()]


def _partitions(topics: Iterable[Any]) -> dict[UUID, frozenset[int]]:
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics}


class ModernGroupRecords(ABC, Generic[G, M]):
    """The records of one kind of group: epochs, members, and the target and the current assignment of each member.

    Both kinds have these records, in messages of their own. Thread: any.
    """

    _group_class: ClassVar[Any]
    _group: ClassVar[Any]
    _member: ClassVar[Any]
    _target: ClassVar[Any]
    _member_target: ClassVar[Any]
    _member_current: ClassVar[Any]
    #: The class of the remaining kind of key.
    _other_key: ClassVar[Any]

    # --- writing

    def group_record(self, group: G) -> KeyValue:
        """Return the record of the group's epoch."""
        key, value = self._group
        return _record(key(group_id=group.group_id), value(epoch=group.group_epoch, metadata_hash=group.metadata_hash))

    def member_record(self, group_id: str, member: M) -> KeyValue:
        """Return the record of a member's settings."""
        return _record(self._member[0](group_id=group_id, member_id=member.member_id), self._settings(member))

    def target_record(self, group: G, wall_ms: int) -> KeyValue:
        """Return the record of the target assignment's epoch, which comes after its members'."""
        key, value = self._target
        epoch = value(assignment_epoch=group.assignment_epoch, assignment_timestamp=wall_ms)
        return _record(key(group_id=group.group_id), epoch)

    def member_target_record(self, group_id: str, member_id: str, target: Partitions) -> KeyValue:
        """Return the record of a member's target assignment."""
        key, value = self._member_target
        topics = topics_of(value.TopicPartition, target)
        return _record(key(group_id=group_id, member_id=member_id), value(topic_partitions=topics))

    def assignment_records(self, group: G, before: Mapping[str, Partitions], wall_ms: int) -> list[KeyValue]:
        """Return the records of a target assignment that has replaced the targets ``before`` it."""
        changed = [(id, target) for id, target in group.targets.items() if before.get(id) != target]
        return [
            *(self.member_target_record(group.group_id, id, target) for id, target in changed),
            self.target_record(group, wall_ms),
        ]

    def member_current_record(self, group_id: str, member: M) -> KeyValue:
        """Return the record of a member's current assignment."""
        return _record(self._member_current[0](group_id=group_id, member_id=member.member_id), self._current(member))

    def member_tombstones(self, group_id: str, member_id: str) -> list[KeyValue]:
        """Return the records that remove a member."""
        keys = (self._member_current[0], self._member_target[0], self._member[0])
        return [_tombstone(key(group_id=group_id, member_id=member_id)) for key in keys]

    def group_tombstones(self, group: G) -> list[KeyValue]:
        """Return the records that remove a group with its members."""
        return [
            *(one for member_id in group.members for one in self.member_tombstones(group.group_id, member_id)),
            *self._other_tombstones(group),
            _tombstone(self._target[0](group_id=group.group_id)),
            _tombstone(self._group[0](group_id=group.group_id)),
        ]

    def all_records(self, group: G, wall_ms: int) -> list[KeyValue]:
        """Return records with the complete state of the group, but without tombstones for older records."""
        group_id, members = group.group_id, group.members.values()
        return [
            *(self.member_record(group_id, member) for member in members),
            *self._other_records(group, wall_ms),
            self.group_record(group),
            *(self.member_target_record(group_id, member_id, target) for member_id, target in group.targets.items()),
            self.target_record(group, wall_ms),
            *(self.member_current_record(group_id, member) for member in members),
        ]

    # --- reading

    def read_into(self, groups: dict[str, G], key: BytesLike, value: BytesLike | None, wall_ms: int) -> bool:
        """Apply a record to the groups loaded so far; return False for other types of records.

        Raises:
            RemoteProtocolError, UnsupportedVersionError: the record cannot be decoded.
        """
        reader = Reader(key)
        type = reader.int16()
        pairs = self._group, self._member, self._target, self._member_target, self._member_current
        key_classes = [*(key for key, _ in pairs), self._other_key]
        key_class = next((one for one in key_classes if type == one.RECORD_TYPE), None)
        if key_class is None:
            return False
        found = key_class.read(reader, 0)
        group = groups.get(found.group_id)
        if value is None:
            if group is not None and key_class is self._group[0]:
                del groups[found.group_id]
            elif group is not None:
                self._forget(group, key_class, found)
            return True
        body = Reader(value)
        body.int16()
        if group is None:
            group = groups[found.group_id] = self._group_class(found.group_id, wall_ms)
        self._apply(group, key_class, found, body)
        return True

    def _forget(self, group: G, key_class: type[DataMessage], key: Any) -> None:
        """Apply a tombstone, except the group's."""
        if key_class is self._other_key:
            self._forget_other(group, key)
        elif key_class is self._member_target[0]:
            group.targets.pop(key.member_id, None)
        elif key_class is not self._target[0] and key.member_id in group.members:
            member = group.members[key.member_id]
            if key_class is self._member[0]:
                group.remove(member)
            else:
                self._forget_current(group, member)

    def _apply(self, group: G, key_class: type[DataMessage], key: Any, body: Reader) -> None:
        if key_class is self._group[0]:
            epoch = self._group[1].read(body, 0)
            group.group_epoch, group.metadata_hash = epoch.epoch, epoch.metadata_hash
        elif key_class is self._target[0]:
            group.assignment_epoch = self._target[1].read(body, 0).assignment_epoch
        elif key_class is self._other_key:
            self._read_other(group, key, body)
        elif key_class is self._member_target[0]:
            group.targets[key.member_id] = _partitions(self._member_target[1].read(body, 0).topic_partitions)
        elif key_class is self._member[0]:
            self._read_settings(group, key.member_id, self._member[1].read(body, 0))
        elif key.member_id in group.members:
            self._read_current(group, group.members[key.member_id], self._member_current[1].read(body, 0))

    # --- by kind

    @abstractmethod
    def _settings(self, member: M) -> DataMessage: ...

    @abstractmethod
    def _read_settings(self, group: G, member_id: str, value: Any) -> None: ...

    @abstractmethod
    def _current(self, member: M) -> DataMessage: ...

    @abstractmethod
    def _read_current(self, group: G, member: M, value: Any) -> None: ...

    def _forget_current(self, group: G, member: M) -> None:
        """Apply the tombstone of a current assignment, unless it only comes together with the member's."""

    @abstractmethod
    def _other_records(self, group: G, wall_ms: int) -> list[KeyValue]: ...

    @abstractmethod
    def _other_tombstones(self, group: G) -> list[KeyValue]: ...

    @abstractmethod
    def _read_other(self, group: G, key: Any, body: Reader) -> None: ...

    def _forget_other(self, group: G, key: Any) -> None:
        """Apply the tombstone of the remaining kind, unless it only comes together with the group's."""


class ConsumerGroupRecords(ModernGroupRecords[ConsumerGroup, ConsumerGroupMember]):
    """The records of consumer groups, which also have the topics that match each regular expression."""

    _group_class = ConsumerGroup
    _group = ConsumerGroupMetadataKey, ConsumerGroupMetadataValue
    _member = ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue
    _target = ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue
    _member_target = ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue
    _member_current = ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue
    _other_key = ConsumerGroupRegularExpressionKey

    def regex_record(self, group_id: str, regex: str, topics: Iterable[str], wall_ms: int) -> KeyValue:
        """Return the record of the topics that match a regular expression."""
        key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
        return _record(key, ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=0, timestamp=wall_ms))

    def _settings(self, member: ConsumerGroupMember) -> ConsumerGroupMemberMetadataValue:
        value = ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topic_names),
            subscribed_topic_regex=member.topic_regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.server_assignor,
        )
        value.classic_member_metadata = None
        if member.classic is not None:
            value.classic_member_metadata = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(
                session_timeout_ms=member.classic.session_timeout_ms,
                supported_protocols=[
                    ConsumerGroupMemberMetadataValue.ClassicProtocol(name=name, metadata=metadata)
                    for name, metadata in member.classic.protocols
                ],
            )
        return value

    def _read_settings(self, group: ConsumerGroup, member_id: str, value: ConsumerGroupMemberMetadataValue) -> None:
        member = group.members.get(member_id)
        if member is None:
            member = ConsumerGroupMember(member_id, value.instance_id)
            group.add(member)
        member.rack_id = value.rack_id
        member.client_id = value.client_id
        member.client_host = value.client_host
        member.topic_names = frozenset(value.subscribed_topic_names)
        member.topic_regex = value.subscribed_topic_regex or ""
        member.rebalance_timeout_ms = value.rebalance_timeout_ms
        member.server_assignor = value.server_assignor
        member.classic = None
        if (classic := value.classic_member_metadata) is not None:
            protocols = tuple((protocol.name, bytes(protocol.metadata)) for protocol in classic.supported_protocols)
            member.classic = ClassicProtocol(classic.session_timeout_ms, protocols)

    def _current(self, member: ConsumerGroupMember) -> ConsumerGroupCurrentMemberAssignmentValue:
        current, topic = member.current, ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=current.epoch,
            previous_member_epoch=current.previous_epoch,
            state=current.state,
            assigned_partitions=topics_of(topic, current.assigned),
            partitions_pending_revocation=topics_of(topic, current.pending_revocation),
        )

    def _read_current(
        self, group: ConsumerGroup, member: ConsumerGroupMember, value: ConsumerGroupCurrentMemberAssignmentValue
    ) -> None:
        group.advance(
            member,
            CurrentAssignment(
                value.member_epoch,
                value.previous_member_epoch,
                value.state,
                _partitions(value.assigned_partitions),
                _partitions(value.partitions_pending_revocation),
            ),
        )

    def _forget_current(self, group: ConsumerGroup, member: ConsumerGroupMember) -> None:
        group.advance(member, CurrentAssignment())

    def _other_records(self, group: ConsumerGroup, wall_ms: int) -> list[KeyValue]:
        return [self.regex_record(group.group_id, regex, topics, wall_ms) for regex, topics in group.regexes.items()]

    def _other_tombstones(self, group: ConsumerGroup) -> list[KeyValue]:
        key = ConsumerGroupRegularExpressionKey
        return [_tombstone(key(group_id=group.group_id, regular_expression=regex)) for regex in group.regexes]

    def _read_other(self, group: ConsumerGroup, key: ConsumerGroupRegularExpressionKey, body: Reader) -> None:
        topics = ConsumerGroupRegularExpressionValue.read(body, 0).topics
        group.regexes[key.regular_expression] = frozenset(topics)

    def _forget_other(self, group: ConsumerGroup, key: ConsumerGroupRegularExpressionKey) -> None:
        group.regexes.pop(key.regular_expression, None)


class ShareGroupRecords(ModernGroupRecords[ShareGroup, ShareGroupMember]):
    """The records of share groups, which also have the topics with a state in share coordinators."""

    _group_class = ShareGroup
    _group = ShareGroupMetadataKey, ShareGroupMetadataValue
    _member = ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue
    _target = ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue
    _member_target = ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue
    _member_current = ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue
    _other_key = ShareGroupStatePartitionMetadataKey

    def state_record(self, group: ShareGroup) -> KeyValue:
        """Return the record of the topics that have a state in share coordinators."""

        def infos(
            topics: Mapping[UUID, SharedTopic],
        ) -> list[ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo]:
            return [
                ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo(
                    topic_id=topic_id, topic_name=topic.name, partitions=sorted(topic.partitions)
                )
                for topic_id, topic in topics.items()
            ]

        value = ShareGroupStatePartitionMetadataValue(
            initializing_topics=infos(group.initializing),
            initialized_topics=infos(group.initialized),
            deleting_topics=[
                ShareGroupStatePartitionMetadataValue.TopicInfo(topic_id=topic_id, topic_name=name)
                for topic_id, name in group.deleting.items()
            ],
        )
        return _record(ShareGroupStatePartitionMetadataKey(group_id=group.group_id), value)

    def _settings(self, member: ShareGroupMember) -> ShareGroupMemberMetadataValue:
        return ShareGroupMemberMetadataValue(
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topic_names),
        )

    def _read_settings(self, group: ShareGroup, member_id: str, value: ShareGroupMemberMetadataValue) -> None:
        member = group.members.setdefault(member_id, ShareGroupMember(member_id))
        member.rack_id = value.rack_id
        member.client_id = value.client_id
        member.client_host = value.client_host
        member.topic_names = frozenset(value.subscribed_topic_names)

    def _current(self, member: ShareGroupMember) -> ShareGroupCurrentMemberAssignmentValue:
        return ShareGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=_STABLE,
            assigned_partitions=topics_of(ShareGroupCurrentMemberAssignmentValue.TopicPartitions, member.assigned),
        )

    def _read_current(
        self,
        group: ShareGroup,  # noqa: ARG002
        member: ShareGroupMember,
        value: ShareGroupCurrentMemberAssignmentValue,
    ) -> None:
        member.epoch = value.member_epoch
        member.previous_epoch = value.previous_member_epoch
        member.assigned = _partitions(value.assigned_partitions)

    def _other_records(self, group: ShareGroup, wall_ms: int) -> list[KeyValue]:  # noqa: ARG002
        return [self.state_record(group)]

    def _other_tombstones(self, group: ShareGroup) -> list[KeyValue]:
        return [_tombstone(ShareGroupStatePartitionMetadataKey(group_id=group.group_id))]

    def _read_other(self, group: ShareGroup, key: ShareGroupStatePartitionMetadataKey, body: Reader) -> None:  # noqa: ARG002
        value = ShareGroupStatePartitionMetadataValue.read(body, 0)
        for found, topics in (
            (value.initializing_topics, group.initializing),
            (value.initialized_topics, group.initialized),
        ):
            topics.clear()
            for topic in found:
                topics[topic.topic_id] = SharedTopic(topic.topic_name, frozenset(topic.partitions))
        group.deleting = {topic.topic_id: topic.topic_name for topic in value.deleting_topics}


CONSUMER_GROUP_RECORDS: Final = ConsumerGroupRecords()
SHARE_GROUP_RECORDS: Final = ShareGroupRecords()
