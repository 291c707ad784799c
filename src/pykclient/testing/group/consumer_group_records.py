"""The records of consumer groups in __consumer_offsets, in Kafka's format (Java: GroupCoordinatorRecordHelpers)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

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
from pykclient.protocol.wire import BytesLike, Reader, Writer
from pykclient.testing.group.modern_groups import (
    ClassicProtocol,
    ConsumerGroup,
    ConsumerGroupMember,
    CurrentAssignment,
    Partitions,
)

if TYPE_CHECKING:
    from uuid import UUID

if TYPE_CHECKING:
    _Topic = (
        ConsumerGroupTargetAssignmentMemberValue.TopicPartition
        | ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions
    )

#: A key, and a value or None for a tombstone.
KeyValue = tuple[bytes, bytes | None]

#: The types of records, which the keys start with.
GROUP: Final = 3
MEMBER: Final = 5
TARGET: Final = 6
MEMBER_TARGET: Final = 7
MEMBER_CURRENT: Final = 8
REGEX: Final = 16
TYPES: Final = frozenset((GROUP, MEMBER, TARGET, MEMBER_TARGET, MEMBER_CURRENT, REGEX))


def _bytes(type: int, message: DataMessage) -> bytes:
    w = Writer()
    w.int16(type)
    message.write(w, 0)
    return w.getvalue()


def _value(message: DataMessage) -> bytes:
    return _bytes(0, message)


# --- writing


def group_record(group: ConsumerGroup) -> KeyValue:
    """Return the record of the group's epoch."""
    value = ConsumerGroupMetadataValue(epoch=group.group_epoch, metadata_hash=group.metadata_hash)
    return _bytes(GROUP, ConsumerGroupMetadataKey(group_id=group.group_id)), _value(value)


def member_record(group_id: str, member: ConsumerGroupMember) -> KeyValue:
    """Return the record of a member's settings."""
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
    return _member_key(group_id, member.member_id), _value(value)


def _member_key(group_id: str, member_id: str) -> bytes:
    return _bytes(MEMBER, ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id))


def target_record(group: ConsumerGroup, wall_ms: int) -> KeyValue:
    """Return the record of the target assignment's epoch, which comes after its members'."""
    value = ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=group.assignment_epoch, assignment_timestamp=wall_ms
    )
    return _bytes(TARGET, ConsumerGroupTargetAssignmentMetadataKey(group_id=group.group_id)), _value(value)


def member_target_record(group_id: str, member_id: str, target: Partitions) -> KeyValue:
    """Return the record of a member's target assignment."""
    topic = ConsumerGroupTargetAssignmentMemberValue.TopicPartition
    value = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[topic(topic_id=topic_id, partitions=sorted(numbers)) for topic_id, numbers in target.items()]
    )
    return _member_target_key(group_id, member_id), _value(value)


def _member_target_key(group_id: str, member_id: str) -> bytes:
    return _bytes(MEMBER_TARGET, ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id))


def member_current_record(group_id: str, member_id: str, current: CurrentAssignment) -> KeyValue:
    """Return the record of a member's current assignment."""
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=current.state,
        assigned_partitions=_current_topics(current.assigned),
        partitions_pending_revocation=_current_topics(current.pending_revocation),
    )
    return _member_current_key(group_id, member_id), _value(value)


def _member_current_key(group_id: str, member_id: str) -> bytes:
    return _bytes(MEMBER_CURRENT, ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id))


def _current_topics(partitions: Partitions) -> list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]:
    return [
        ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
        for topic_id, numbers in partitions.items()
    ]


def regex_record(group_id: str, regex: str, topics: Iterable[str], wall_ms: int) -> KeyValue:
    """Return the record of the topics that match a regular expression."""
    value = ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=0, timestamp=wall_ms)
    return _regex_key(group_id, regex), _value(value)


def _regex_key(group_id: str, regex: str) -> bytes:
    return _bytes(REGEX, ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex))


def member_tombstones(group_id: str, member_id: str) -> list[KeyValue]:
    """Return the records that remove a member."""
    return [
        (_member_current_key(group_id, member_id), None),
        (_member_target_key(group_id, member_id), None),
        (_member_key(group_id, member_id), None),
    ]


def group_tombstones(group: ConsumerGroup) -> list[KeyValue]:
    """Return the records that remove a group with its members."""
    return [
        *(tombstone for member_id in group.members for tombstone in member_tombstones(group.group_id, member_id)),
        *((_regex_key(group.group_id, regex), None) for regex in group.regexes),
        (_bytes(TARGET, ConsumerGroupTargetAssignmentMetadataKey(group_id=group.group_id)), None),
        (_bytes(GROUP, ConsumerGroupMetadataKey(group_id=group.group_id)), None),
    ]


def all_records(group: ConsumerGroup, wall_ms: int) -> list[KeyValue]:
    """Return records with the complete state of the group, but without tombstones for older records."""
    records = [member_record(group.group_id, member) for member in group.members.values()]
    records += [regex_record(group.group_id, regex, topics, wall_ms) for regex, topics in group.regexes.items()]
    records.append(group_record(group))
    records += [member_target_record(group.group_id, member_id, target) for member_id, target in group.targets.items()]
    records.append(target_record(group, wall_ms))
    records += [
        member_current_record(group.group_id, member.member_id, member.current) for member in group.members.values()
    ]
    return records


# --- reading


def read_into(groups: dict[str, ConsumerGroup], key: BytesLike, value: BytesLike | None, wall_ms: int) -> bool:
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
    if type == GROUP:
        _read_group(groups, ConsumerGroupMetadataKey.read(reader, 0).group_id, body, wall_ms)
    elif type == TARGET:
        group = groups.get(ConsumerGroupTargetAssignmentMetadataKey.read(reader, 0).group_id)
        if group is not None and body is not None:
            group.assignment_epoch = ConsumerGroupTargetAssignmentMetadataValue.read(body, 0).assignment_epoch
    elif type == REGEX:
        regex = ConsumerGroupRegularExpressionKey.read(reader, 0)
        topics = None if body is None else ConsumerGroupRegularExpressionValue.read(body, 0).topics
        group = groups.setdefault(regex.group_id, ConsumerGroup(regex.group_id, wall_ms))
        if topics is None:
            group.regexes.pop(regex.regular_expression, None)
        else:
            group.regexes[regex.regular_expression] = frozenset(topics)
    else:
        _read_member(groups, type, reader, body, wall_ms)
    return True


def _read_group(groups: dict[str, ConsumerGroup], group_id: str, body: Reader | None, wall_ms: int) -> None:
    if body is None:
        groups.pop(group_id, None)
        return
    value = ConsumerGroupMetadataValue.read(body, 0)
    group = groups.setdefault(group_id, ConsumerGroup(group_id, wall_ms))
    group.group_epoch = value.epoch
    group.metadata_hash = value.metadata_hash


def _read_member(
    groups: dict[str, ConsumerGroup], type: int, reader: Reader, body: Reader | None, wall_ms: int
) -> None:
    # The three keys have the same fields.
    key = ConsumerGroupMemberMetadataKey.read(reader, 0)
    group = groups.get(key.group_id)
    if body is None:
        member = None if group is None else group.members.get(key.member_id)
        if group is None:
            return
        if type == MEMBER_TARGET:
            group.targets.pop(key.member_id, None)
        elif member is not None and type == MEMBER_CURRENT:
            group.advance(member, CurrentAssignment())
        elif member is not None:
            group.remove(member)
        return
    if group is None:
        group = groups[key.group_id] = ConsumerGroup(key.group_id, wall_ms)
    if type == MEMBER_TARGET:
        group.targets[key.member_id] = _partitions(
            ConsumerGroupTargetAssignmentMemberValue.read(body, 0).topic_partitions
        )
        return
    member = group.members.get(key.member_id)
    if type == MEMBER:
        _read_settings(group, key.member_id, member, ConsumerGroupMemberMetadataValue.read(body, 0))
    elif member is not None:
        current = ConsumerGroupCurrentMemberAssignmentValue.read(body, 0)
        group.advance(
            member,
            CurrentAssignment(
                current.member_epoch,
                current.previous_member_epoch,
                current.state,
                _partitions(current.assigned_partitions),
                _partitions(current.partitions_pending_revocation),
            ),
        )


def _read_settings(
    group: ConsumerGroup,
    member_id: str,
    member: ConsumerGroupMember | None,
    value: ConsumerGroupMemberMetadataValue,
) -> None:
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


def _partitions(topics: Iterable[_Topic]) -> dict[UUID, frozenset[int]]:
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics}
