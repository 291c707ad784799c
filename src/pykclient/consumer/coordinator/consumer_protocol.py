"""The encoding of subscriptions and assignments, which the coordinator passes on undecoded (Java: ConsumerProtocol).

A version prefix of two bytes, then the fields. Newer versions only add fields at the end, so an unknown version is
decoded as the newest known one.
"""

from __future__ import annotations

from collections.abc import Iterable

from pykclient.consumer.assignors.consumer_partition_assignor import Assignment, Subscription
from pykclient.errors import RemoteProtocolError
from pykclient.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from pykclient.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from pykclient.protocol.wire import BytesLike, Reader, Writer
from pykclient.types import TopicPartition

PROTOCOL_TYPE = "consumer"

#: 1 added owned partitions (KIP-429), 2 the generation id, 3 the rack (KIP-881).
HIGHEST_VERSION = ConsumerProtocolSubscription.VERSIONS[1]


def _read_version(reader: Reader) -> int:
    version = reader.int16()
    if version < 0:
        raise RemoteProtocolError(f"version {version} of the consumer protocol does not exist")
    return min(version, HIGHEST_VERSION)


def _numbers_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for tp in partitions:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    return by_topic


def _partitions(
    topics: Iterable[ConsumerProtocolSubscription.TopicPartition | ConsumerProtocolAssignment.TopicPartition],
) -> list[TopicPartition]:
    partitions = [TopicPartition(topic.topic, number) for topic in topics for number in topic.partitions]
    for tp in partitions:
        if tp.partition < 0:
            raise RemoteProtocolError(f"topic {tp.topic!r} cannot have a partition {tp.partition}")
    return partitions


def serialize_subscription(subscription: Subscription, version: int = HIGHEST_VERSION) -> bytes:
    """Encode the metadata of a JoinGroup request."""
    owned = _numbers_by_topic(sorted(subscription.owned_partitions))
    message = ConsumerProtocolSubscription(
        topics=sorted(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=[
            ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in owned.items()
        ],
        generation_id=subscription.generation_id,
        rack_id=subscription.rack_id,
    )
    return _prefixed(message, version)


def deserialize_subscription(buffer: BytesLike) -> Subscription:
    """Decode another member's subscription.

    Raises:
        RemoteProtocolError: the bytes are not a subscription.
    """
    reader = Reader(buffer)
    message = ConsumerProtocolSubscription.read(reader, _read_version(reader))
    return Subscription(
        message.topics,
        message.user_data,
        _partitions(message.owned_partitions),
        message.generation_id,
        message.rack_id or None,
    )


def serialize_assignment(assignment: Assignment, version: int = HIGHEST_VERSION) -> bytes:
    """Encode the assignment of a SyncGroup request."""
    assigned = _numbers_by_topic(assignment.partitions)
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in assigned.items()
        ],
        user_data=assignment.user_data,
    )
    return _prefixed(message, version)


def deserialize_assignment(buffer: BytesLike) -> Assignment:
    """Decode an assignment from the leader.

    Raises:
        RemoteProtocolError: the bytes are not an assignment.
    """
    reader = Reader(buffer)
    message = ConsumerProtocolAssignment.read(reader, _read_version(reader))
    return Assignment(_partitions(message.assigned_partitions), message.user_data)


def _prefixed(message: ConsumerProtocolSubscription | ConsumerProtocolAssignment, version: int) -> bytes:
    version = min(version, HIGHEST_VERSION)
    writer = Writer()
    writer.int16(version)
    message.write(writer, version)
    return writer.getvalue()
