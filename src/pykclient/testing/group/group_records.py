"""The records of __consumer_offsets, equal to Kafka's (Java: GroupCoordinatorRecordHelpers and its serde).

A key begins with its type, a value with its version, two bytes each. A record without a value is a tombstone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pykclient.errors import IllegalStateError, UnsupportedVersionError
from pykclient.protocol.message import DataMessage
from pykclient.protocol.messages.group_metadata_key import GroupMetadataKey
from pykclient.protocol.messages.group_metadata_value import GroupMetadataValue
from pykclient.protocol.messages.offset_commit_key import OffsetCommitKey
from pykclient.protocol.messages.offset_commit_value import OffsetCommitValue
from pykclient.protocol.wire import BytesLike, Reader, Writer
from pykclient.testing.group.group_metadata import GroupMetadata, MemberMetadata
from pykclient.testing.group.group_offsets import CommittedOffset
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
    offset = CommittedOffset(
        read.offset, read.leader_epoch, read.metadata, read.commit_timestamp, read.expire_timestamp, read.topic_id
    )
    offset.record_offset = record_offset
    return offset


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
