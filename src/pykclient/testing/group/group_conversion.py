"""Groups that change their protocol while they have members (KIP-848).

Java: ConsumerGroup.fromClassicGroup, ClassicGroup.fromConsumerGroup, and their callers in GroupMetadataManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.errors import RemoteProtocolError
from pykclient.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from pykclient.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from pykclient.protocol.wire import Reader, Writer
from pykclient.testing.group.consumer_group import ConsumerGroup
from pykclient.testing.group.consumer_group_member import (
    STABLE,
    ClassicProtocol,
    ConsumerGroupMember,
    CurrentAssignment,
    Partitions,
)
from pykclient.testing.group.group_metadata import CONSUMER_PROTOCOL_TYPE, GroupMetadata
from pykclient.testing.group.member_metadata import MemberMetadata

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

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
