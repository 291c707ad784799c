"""OffsetCommit: store a group's positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from pykclient.errors import (
    BrokerError,
    TopicAuthorizationError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from pykclient.testing import acls
from pykclient.testing.group.group_offsets import CommittedOffset
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.OFFSET_COMMIT
VERSIONS = (0, 10)

#: From this version on, topics are named by their ids (KIP-848).
_TOPIC_IDS = 10

ResponseTopic = OffsetCommitResponse.OffsetCommitResponseTopic
ResponsePartition = OffsetCommitResponse.OffsetCommitResponsePartition


def handle(broker: Broker, request: Request) -> None:
    """Answered when the offsets are on all in-sync replicas. What does not exist is refused."""
    body = cast(OffsetCommitRequest, request.body)
    auth = broker.auth
    auth.check_group(request, acls.READ, body.group_id)
    use_topic_ids = request.api_version >= _TOPIC_IDS
    unknown = (UnknownTopicIdError if use_topic_ids else UnknownTopicOrPartitionError).code
    cache = broker.metadata_cache
    wall_ms = broker.loop.wall_ms
    expire_ms = wall_ms + body.retention_time_ms if body.retention_time_ms >= 0 else -1
    names: list[str | None] = []
    denied: set[str] = set()
    no_partition = UnknownTopicOrPartitionError.code
    offsets: dict[TopicPartition, CommittedOffset] = {}
    for topic in body.topics:
        name = cache.topic_name(topic.topic_id) if use_topic_ids else topic.name
        if name is not None and not cache.contains(name):
            name = None
        names.append(name)
        if name is None:
            continue
        if not auth.authorize(request, acls.READ, acls.TOPIC, name):
            denied.add(name)
            continue
        topic_id = cache.topic_id(name)
        for one in topic.partitions:
            tp = TopicPartition(name, one.partition_index)
            if cache.partition_info(tp) is None:
                continue
            offsets[tp] = CommittedOffset(
                one.committed_offset,
                one.committed_leader_epoch,
                one.committed_metadata or "",
                wall_ms,
                expire_ms,
                topic_id,
            )

    def error_code(name: str | None, index: int, error_codes: Mapping[TopicPartition, int]) -> int:
        if name is None:
            return unknown
        if name in denied:
            return TopicAuthorizationError.code
        return error_codes.get(TopicPartition(name, index), no_partition)

    def respond(error_codes: Mapping[TopicPartition, int]) -> None:
        request.respond(
            OffsetCommitResponse(
                topics=[
                    ResponseTopic(
                        name=topic.name,
                        topic_id=topic.topic_id,
                        partitions=[
                            ResponsePartition(
                                partition_index=one.partition_index,
                                error_code=error_code(name, one.partition_index, error_codes),
                            )
                            for one in topic.partitions
                        ],
                    )
                    for topic, name in zip(body.topics, names, strict=True)
                ]
            )
        )

    try:
        broker.group_coordinator.commit_offsets(body, request.api_version, offsets, respond)
    except BrokerError as error:
        respond(dict.fromkeys(offsets, error.code))


def error_response(body: OffsetCommitRequest, code: int, message: str | None = None) -> OffsetCommitResponse:  # noqa: ARG001
    return OffsetCommitResponse(
        topics=[
            ResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    ResponsePartition(partition_index=one.partition_index, error_code=code) for one in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )
