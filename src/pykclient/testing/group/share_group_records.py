"""The records of share groups in __consumer_offsets, in Kafka's format (Java: GroupCoordinatorRecordHelpers)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from pykclient.protocol.message import DataMessage
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
from pykclient.testing.group.modern_groups import Partitions, SharedTopic, ShareGroup, ShareGroupMember

if TYPE_CHECKING:
    from uuid import UUID

if TYPE_CHECKING:
    _Topic = (
        ShareGroupTargetAssignmentMemberValue.TopicPartition | ShareGroupCurrentMemberAssignmentValue.TopicPartitions
    )

#: The types of records, which the keys start with.
MEMBER: Final = 10
GROUP: Final = 11
TARGET: Final = 12
MEMBER_TARGET: Final = 13
MEMBER_CURRENT: Final = 14
STATE: Final = 15
TYPES: Final = frozenset((MEMBER, GROUP, TARGET, MEMBER_TARGET, MEMBER_CURRENT, STATE))

#: A member's state in its record: it has what it was assigned.
_STABLE: Final = 0


def _bytes(type: int, message: DataMessage) -> bytes:
    w = Writer()
    w.int16(type)
    message.write(w, 0)
    return w.getvalue()


# --- writing


def group_record(group: ShareGroup) -> KeyValue:
    """Return the record of the group's epoch."""
    value = ShareGroupMetadataValue(epoch=group.group_epoch, metadata_hash=group.metadata_hash)
    return _bytes(GROUP, ShareGroupMetadataKey(group_id=group.group_id)), _bytes(0, value)


def member_record(group_id: str, member: ShareGroupMember) -> KeyValue:
    """Return the record of a member's settings."""
    value = ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
    )
    return _member_key(group_id, member.member_id), _bytes(0, value)


def _member_key(group_id: str, member_id: str) -> bytes:
    return _bytes(MEMBER, ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id))


def target_record(group: ShareGroup, wall_ms: int) -> KeyValue:
    """Return the record of the target assignment's epoch, which comes after its members'."""
    value = ShareGroupTargetAssignmentMetadataValue(
        assignment_epoch=group.assignment_epoch, assignment_timestamp=wall_ms
    )
    return _target_key(group.group_id), _bytes(0, value)


def _target_key(group_id: str) -> bytes:
    return _bytes(TARGET, ShareGroupTargetAssignmentMetadataKey(group_id=group_id))


def member_target_record(group_id: str, member_id: str, target: Partitions) -> KeyValue:
    """Return the record of a member's target assignment."""
    topic = ShareGroupTargetAssignmentMemberValue.TopicPartition
    value = ShareGroupTargetAssignmentMemberValue(
        topic_partitions=[topic(topic_id=topic_id, partitions=sorted(numbers)) for topic_id, numbers in target.items()]
    )
    return _member_target_key(group_id, member_id), _bytes(0, value)


def _member_target_key(group_id: str, member_id: str) -> bytes:
    return _bytes(MEMBER_TARGET, ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id))


def member_current_record(group_id: str, member: ShareGroupMember) -> KeyValue:
    """Return the record of a member's current assignment."""
    topic = ShareGroupCurrentMemberAssignmentValue.TopicPartitions
    value = ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=_STABLE,
        assigned_partitions=[
            topic(topic_id=topic_id, partitions=sorted(numbers)) for topic_id, numbers in member.assigned.items()
        ],
    )
    return _member_current_key(group_id, member.member_id), _bytes(0, value)


def _member_current_key(group_id: str, member_id: str) -> bytes:
    return _bytes(MEMBER_CURRENT, ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id))


def state_record(group: ShareGroup) -> KeyValue:
    """Return the record of the topics that have a state in share coordinators."""
    info = ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo
    value = ShareGroupStatePartitionMetadataValue(
        initializing_topics=[
            info(topic_id=topic_id, topic_name=topic.name, partitions=sorted(topic.partitions))
            for topic_id, topic in group.initializing.items()
        ],
        initialized_topics=[
            info(topic_id=topic_id, topic_name=topic.name, partitions=sorted(topic.partitions))
            for topic_id, topic in group.initialized.items()
        ],
        deleting_topics=[
            ShareGroupStatePartitionMetadataValue.TopicInfo(topic_id=topic_id, topic_name=name)
            for topic_id, name in group.deleting.items()
        ],
    )
    return _state_key(group.group_id), _bytes(0, value)


def _state_key(group_id: str) -> bytes:
    return _bytes(STATE, ShareGroupStatePartitionMetadataKey(group_id=group_id))


def member_tombstones(group_id: str, member_id: str) -> list[KeyValue]:
    """Return the records that remove a member."""
    return [
        (_member_current_key(group_id, member_id), None),
        (_member_target_key(group_id, member_id), None),
        (_member_key(group_id, member_id), None),
    ]


def group_tombstones(group: ShareGroup) -> list[KeyValue]:
    """Return the records that remove a group without members."""
    return [
        (_target_key(group.group_id), None),
        (_state_key(group.group_id), None),
        (_bytes(GROUP, ShareGroupMetadataKey(group_id=group.group_id)), None),
    ]


def all_records(group: ShareGroup, wall_ms: int) -> list[KeyValue]:
    """Return records with the complete state of the group, but without tombstones for older records."""
    records = [member_record(group.group_id, member) for member in group.members.values()]
    records.append(group_record(group))
    records += [member_target_record(group.group_id, member_id, target) for member_id, target in group.targets.items()]
    records.append(target_record(group, wall_ms))
    records += [member_current_record(group.group_id, member) for member in group.members.values()]
    records.append(state_record(group))
    return records


# --- reading


def read_into(groups: dict[str, ShareGroup], key: BytesLike, value: BytesLike | None, wall_ms: int) -> bool:
    """Apply a record to the groups loaded so far; return False for other types of records.

    Raises:
        RemoteProtocolError, UnsupportedVersionError: the record cannot be decoded.
    """
    reader = Reader(key)
    type = reader.int16()
    if type not in TYPES:
        return False
    body = None
    if value is not None:
        body = Reader(value)
        body.int16()
    if type in (MEMBER, MEMBER_TARGET, MEMBER_CURRENT):
        # The three keys have the same fields.
        member_key = ShareGroupMemberMetadataKey.read(reader, 0)
        group_id = member_key.group_id
    else:
        # So have these.
        group_id = ShareGroupMetadataKey.read(reader, 0).group_id
    group = groups.get(group_id)
    if body is None:
        if type == GROUP:
            groups.pop(group_id, None)
        elif group is not None and type in (MEMBER, MEMBER_TARGET):
            _remove(group, type, member_key.member_id)
        return True
    if group is None:
        group = groups[group_id] = ShareGroup(group_id, wall_ms)
    if type == GROUP:
        metadata = ShareGroupMetadataValue.read(body, 0)
        group.group_epoch, group.metadata_hash = metadata.epoch, metadata.metadata_hash
    elif type == TARGET:
        group.assignment_epoch = ShareGroupTargetAssignmentMetadataValue.read(body, 0).assignment_epoch
    elif type == STATE:
        _read_state(group, ShareGroupStatePartitionMetadataValue.read(body, 0))
    else:
        _read_member(group, type, member_key.member_id, body)
    return True


def _remove(group: ShareGroup, type: int, member_id: str) -> None:
    if type == MEMBER_TARGET:
        group.targets.pop(member_id, None)
    elif member_id in group.members:
        group.remove(group.members[member_id])


def _read_state(group: ShareGroup, value: ShareGroupStatePartitionMetadataValue) -> None:
    group.initializing = {
        topic.topic_id: SharedTopic(topic.topic_name, frozenset(topic.partitions))
        for topic in value.initializing_topics
    }
    group.initialized = {
        topic.topic_id: SharedTopic(topic.topic_name, frozenset(topic.partitions)) for topic in value.initialized_topics
    }
    group.deleting = {topic.topic_id: topic.topic_name for topic in value.deleting_topics}


def _read_member(group: ShareGroup, type: int, member_id: str, body: Reader) -> None:
    if type == MEMBER_TARGET:
        group.targets[member_id] = _partitions(ShareGroupTargetAssignmentMemberValue.read(body, 0).topic_partitions)
        return
    member = group.members.get(member_id)
    if type == MEMBER:
        if member is None:
            member = group.members[member_id] = ShareGroupMember(member_id)
        settings = ShareGroupMemberMetadataValue.read(body, 0)
        member.rack_id = settings.rack_id
        member.client_id = settings.client_id
        member.client_host = settings.client_host
        member.topic_names = frozenset(settings.subscribed_topic_names)
    elif member is not None:
        current = ShareGroupCurrentMemberAssignmentValue.read(body, 0)
        member.epoch = current.member_epoch
        member.previous_epoch = current.previous_member_epoch
        member.assigned = _partitions(current.assigned_partitions)


def _partitions(topics: Iterable[_Topic]) -> dict[UUID, frozenset[int]]:
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics}
