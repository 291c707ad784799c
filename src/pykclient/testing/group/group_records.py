"""The records of __consumer_offsets, equal to Kafka's (Java: GroupCoordinatorRecordHelpers and its serde).

A key begins with its type, a value with its version, two bytes each. A record without a value is a tombstone.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from pykclient.errors import IllegalStateError, UnsupportedVersionError
from pykclient.protocol.message import DataMessage
from pykclient.protocol.messages.group_metadata_key import GroupMetadataKey
from pykclient.protocol.messages.group_metadata_value import GroupMetadataValue
from pykclient.protocol.messages.offset_commit_key import OffsetCommitKey
from pykclient.protocol.messages.offset_commit_value import OffsetCommitValue
from pykclient.protocol.wire import BytesLike, Reader
from pykclient.testing.coordinator_log import KeyValue, versioned
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


def offset_commit_key(group_id: str, tp: TopicPartition) -> bytes:
    key = OffsetCommitKey(group=group_id, topic=tp.topic, partition=tp.partition)
    return versioned(_OFFSET_COMMIT_KEYS[-1], key)


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
    return versioned(version, value, version)


def group_metadata_key(group_id: str) -> bytes:
    return versioned(_GROUP_METADATA_KEY, GroupMetadataKey(group=group_id))


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
                group_instance_id=member.instance_id,
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
    return versioned(_GROUP_VERSION, value, _GROUP_VERSION)


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

M = TypeVar("M", bound=ModernGroupMember)
G = TypeVar("G", bound="ModernGroup[Any]")


def _record_classes(name: str) -> tuple[Any, Any]:
    """Return the classes of the key and the value of a kind of record."""
    module = re.sub("(?<!^)(?=[A-Z])", "_", name).lower()
    key, value = (
        getattr(import_module(f"pykclient.protocol.messages.{module}_{part.lower()}"), f"{name}{part}")
        for part in ("Key", "Value")
    )
    return key, value


def _record(key: Any, value: DataMessage) -> KeyValue:
    return versioned(key.RECORD_TYPE, key), versioned(0, value)


def _tombstone(key: Any) -> KeyValue:
    return versioned(key.RECORD_TYPE, key), None


def topics_of(topic_class: Any, partitions: Partitions) -> list[Any]:
    """Return partitions as a message has them, in objects of ``topic_class``."""
    return [topic_class(topic_id=topic_id, partitions=sorted(numbers)) for topic_id, numbers in partitions.items()]


def _partitions(topics: Iterable[Any]) -> dict[UUID, frozenset[int]]:
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics}


class ModernGroupRecords(ABC, Generic[G, M]):
    """The records of one kind of group: epochs, members, and the target and the current assignment of each member.

    Both kinds have these records, in messages of their own, and an ``other`` one. Thread: any.
    """

    def __init__(self, kind: str, other: str, group_class: type[G], member_class: type[M]) -> None:
        self._group_class = group_class
        self._member_class = member_class
        names = (
            *("Metadata", "MemberMetadata", "TargetAssignmentMetadata", "TargetAssignmentMember"),
            *("CurrentMemberAssignment", other),
        )
        pairs = [_record_classes(f"{kind}Group{name}") for name in names]
        self._group, self._member, self._target, self._member_target, self._member_current, self._other = pairs
        self._by_type = {key.RECORD_TYPE: (key, value) for key, value in pairs}

    # --- writing

    def group_record(self, group: G) -> KeyValue:
        """Return the record of the group's epoch."""
        key, value = self._group
        return _record(key(group_id=group.group_id), value(epoch=group.group_epoch, metadata_hash=group.metadata_hash))

    def member_record(self, group_id: str, member: M) -> KeyValue:
        """Return the record of a member's settings."""
        key, value = self._member
        settings = value(subscribed_topic_names=sorted(member.topic_names))
        for name in member.SETTINGS:
            setattr(settings, name, getattr(member, name))
        self._add_settings(settings, member)
        return _record(key(group_id=group_id, member_id=member.member_id), settings)

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
        key, value = self._member_current
        current = value(
            member_epoch=member.current.epoch,
            previous_member_epoch=member.current.previous_epoch,
            state=member.current.state,
            assigned_partitions=topics_of(value.TopicPartitions, member.current.assigned),
        )
        if member.current.pending_revocation:
            pending = topics_of(value.TopicPartitions, member.current.pending_revocation)
            current.partitions_pending_revocation = pending
        return _record(key(group_id=group_id, member_id=member.member_id), current)

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

    def read_into(
        self, groups: dict[str, GroupMetadata | G], key: BytesLike, value: BytesLike | None, wall_ms: int
    ) -> bool:
        """Apply a record to the groups loaded so far; return False for other types of records.

        Raises:
            RemoteProtocolError, UnsupportedVersionError: the record cannot be decoded.
        """
        reader = Reader(key)
        key_class, value_class = self._by_type.get(reader.int16(), (None, None))
        if key_class is None:
            return False
        found = key_class.read(reader, 0)
        known = groups.get(found.group_id)
        group = known if isinstance(known, self._group_class) else None
        if value is not None:
            body = Reader(value)
            body.int16()
            read = value_class.read(body, 0)
            if group is None:
                group = groups[found.group_id] = self._group_class(found.group_id, wall_ms)
            self._apply(group, key_class, found, read)
        elif group is not None and key_class is self._group[0]:
            del groups[found.group_id]
        elif group is not None:
            self._forget(group, key_class, found)
        return True

    def _forget(self, group: G, key_class: type[DataMessage], key: Any) -> None:
        """Apply a tombstone, except the group's."""
        if key_class is self._other[0]:
            self._forget_other(group, key)
        elif key_class is self._member_target[0]:
            group.targets.pop(key.member_id, None)
        elif key_class is not self._target[0] and key.member_id in group.members:
            member = group.members[key.member_id]
            if key_class is self._member[0]:
                group.remove(member)
            else:
                group.advance(member, member.FIRST)

    def _apply(self, group: G, key_class: type[DataMessage], key: Any, value: Any) -> None:
        if key_class is self._group[0]:
            group.group_epoch, group.metadata_hash = value.epoch, value.metadata_hash
        elif key_class is self._target[0]:
            group.assignment_epoch = value.assignment_epoch
        elif key_class is self._other[0]:
            self._read_other(group, key, value)
        elif key_class is self._member_target[0]:
            group.targets[key.member_id] = _partitions(value.topic_partitions)
        elif key_class is self._member[0]:
            member = group.members.get(key.member_id) or self._member_class(key.member_id)
            for name in member.SETTINGS:
                setattr(member, name, getattr(value, name))
            member.topic_names = frozenset(value.subscribed_topic_names)
            self._read_more_settings(member, value)
            if key.member_id not in group.members:
                group.add(member)
        elif key.member_id in group.members:
            current = CurrentAssignment(
                value.member_epoch,
                value.previous_member_epoch,
                value.state,
                _partitions(value.assigned_partitions),
                _partitions(getattr(value, "partitions_pending_revocation", ())),
            )
            group.advance(group.members[key.member_id], current)

    # --- by kind

    def _add_settings(self, value: Any, member: M) -> None:
        """Add to a record what only members of this kind have."""

    def _read_more_settings(self, member: M, value: Any) -> None:
        """Apply what only members of this kind have."""

    @abstractmethod
    def _other_records(self, group: G, wall_ms: int) -> list[KeyValue]: ...

    @abstractmethod
    def _other_tombstones(self, group: G) -> list[KeyValue]: ...

    @abstractmethod
    def _read_other(self, group: G, key: Any, value: Any) -> None: ...

    def _forget_other(self, group: G, key: Any) -> None:
        """Apply the tombstone of the remaining kind, unless it only comes together with the group's."""


class ConsumerGroupRecords(ModernGroupRecords[ConsumerGroup, ConsumerGroupMember]):
    """The records of consumer groups, which also have the topics that match each regular expression."""

    def regex_record(self, group_id: str, regex: str, topics: Iterable[str], wall_ms: int) -> KeyValue:
        """Return the record of the topics that match a regular expression."""
        key, value = self._other
        return _record(
            key(group_id=group_id, regular_expression=regex),
            value(topics=sorted(topics), version=0, timestamp=wall_ms),
        )

    def _add_settings(self, value: Any, member: ConsumerGroupMember) -> None:
        value.classic_member_metadata = None
        if member.classic is not None:
            value.classic_member_metadata = value.ClassicMemberMetadata(
                session_timeout_ms=member.classic.session_timeout_ms,
                supported_protocols=[
                    value.ClassicProtocol(name=name, metadata=metadata) for name, metadata in member.classic.protocols
                ],
            )

    def _read_more_settings(self, member: ConsumerGroupMember, value: Any) -> None:
        member.subscribed_topic_regex = value.subscribed_topic_regex or ""
        member.classic = None
        if (classic := value.classic_member_metadata) is not None:
            protocols = tuple((protocol.name, bytes(protocol.metadata)) for protocol in classic.supported_protocols)
            member.classic = ClassicProtocol(classic.session_timeout_ms, protocols)

    def _other_records(self, group: ConsumerGroup, wall_ms: int) -> list[KeyValue]:
        return [self.regex_record(group.group_id, regex, topics, wall_ms) for regex, topics in group.regexes.items()]

    def _other_tombstones(self, group: ConsumerGroup) -> list[KeyValue]:
        key = self._other[0]
        return [_tombstone(key(group_id=group.group_id, regular_expression=regex)) for regex in group.regexes]

    def _read_other(self, group: ConsumerGroup, key: Any, value: Any) -> None:
        group.regexes[key.regular_expression] = frozenset(value.topics)

    def _forget_other(self, group: ConsumerGroup, key: Any) -> None:
        group.regexes.pop(key.regular_expression, None)


class ShareGroupRecords(ModernGroupRecords[ShareGroup, ShareGroupMember]):
    """The records of share groups, which also have the topics with a state in share coordinators."""

    def state_record(self, group: ShareGroup) -> KeyValue:
        """Return the record of the topics that have a state in share coordinators."""
        key, value = self._other
        initializing, initialized = (
            [
                value.TopicPartitionsInfo(topic_id=topic_id, topic_name=topic.name, partitions=sorted(topic.partitions))
                for topic_id, topic in topics.items()
            ]
            for topics in (group.initializing, group.initialized)
        )
        deleting = [value.TopicInfo(topic_id=topic_id, topic_name=name) for topic_id, name in group.deleting.items()]
        return _record(
            key(group_id=group.group_id),
            value(initializing_topics=initializing, initialized_topics=initialized, deleting_topics=deleting),
        )

    def _other_records(self, group: ShareGroup, wall_ms: int) -> list[KeyValue]:  # noqa: ARG002
        return [self.state_record(group)]

    def _other_tombstones(self, group: ShareGroup) -> list[KeyValue]:
        return [_tombstone(self._other[0](group_id=group.group_id))]

    def _read_other(self, group: ShareGroup, key: Any, value: Any) -> None:  # noqa: ARG002
        group.initializing, group.initialized = (
            {topic.topic_id: SharedTopic(topic.topic_name, frozenset(topic.partitions)) for topic in topics}
            for topics in (value.initializing_topics, value.initialized_topics)
        )
        group.deleting = {topic.topic_id: topic.topic_name for topic in value.deleting_topics}


CONSUMER_GROUP_RECORDS: Final = ConsumerGroupRecords(
    "Consumer", "RegularExpression", ConsumerGroup, ConsumerGroupMember
)
SHARE_GROUP_RECORDS: Final = ShareGroupRecords("Share", "StatePartitionMetadata", ShareGroup, ShareGroupMember)
