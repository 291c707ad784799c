"""OffsetForLeaderEpoch: the end of a leader epoch (KIP-101, KIP-320)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pykclient.errors import (
    BrokerError,
    TopicAuthorizationError,
)
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from pykclient.testing import acls
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.OFFSET_FOR_LEADER_EPOCH
VERSIONS = (0, 4)

_EpochEndOffset = OffsetForLeaderEpochResponse.EpochEndOffset


def handle(broker: Broker, request: Request) -> None:
    """Respond if this broker leads. A request without a current epoch is not fenced."""
    body = cast(OffsetForLeaderEpochRequest, request.body)
    auth = broker.auth
    names = {topic.topic for topic in body.topics}
    authorized = names
    if not auth.authorize(request, acls.CLUSTER_ACTION, acls.CLUSTER, acls.CLUSTER_NAME):
        authorized = auth.filter(request, acls.DESCRIBE, acls.TOPIC, names)
    request.respond(
        OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=[
                        _end_offset(broker, TopicPartition(topic.topic, one.partition), one)
                        if topic.topic in authorized
                        else _EpochEndOffset(partition=one.partition, error_code=TopicAuthorizationError.code)
                        for one in topic.partitions
                    ],
                )
                for topic in body.topics
            ]
        )
    )


def _end_offset(
    broker: Broker, topic_partition: TopicPartition, one: OffsetForLeaderEpochRequest.OffsetForLeaderPartition
) -> OffsetForLeaderEpochResponse.EpochEndOffset:
    try:
        found = broker.replica_manager.get_partition_or_raise(topic_partition).last_offset_for_leader_epoch(
            one.current_leader_epoch, one.leader_epoch, fetch_only_from_leader=True
        )
    except BrokerError as error:
        return _EpochEndOffset(partition=one.partition, error_code=error.code)
    if found is None:
        return _EpochEndOffset(partition=one.partition)
    return _EpochEndOffset(partition=one.partition, leader_epoch=found.leader_epoch, end_offset=found.offset)


def error_response(
    body: OffsetForLeaderEpochRequest,
    code: int,
    message: str | None = None,  # noqa: ARG001
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_EpochEndOffset(partition=one.partition, error_code=code) for one in topic.partitions],
            )
            for topic in body.topics
        ]
    )
