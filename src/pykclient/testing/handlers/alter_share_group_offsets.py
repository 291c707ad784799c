"""AlterShareGroupOffsets: let an empty share group go on from other offsets (KIP-932)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from pykclient.errors import TopicAuthorizationError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from pykclient.testing import acls
from pykclient.testing.share.acknowledgements import check_enabled
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.ALTER_SHARE_GROUP_OFFSETS
VERSIONS = (0, 0)

_Topic = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic
_Partition = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition


def handle(broker: Broker, request: Request) -> None:
    """Respond when the share coordinators have reset the state."""
    body = cast(AlterShareGroupOffsetsRequest, request.body)
    check_enabled(broker)
    broker.auth.check_group(request, acls.READ, body.group_id)
    allowed = broker.auth.filter(request, acls.READ, acls.TOPIC, {topic.topic_name for topic in body.topics})
    offsets = {
        TopicPartition(topic.topic_name, partition.partition_index): partition.start_offset
        for topic in body.topics
        if topic.topic_name in allowed
        for partition in topic.partitions
    }

    def altered(codes: Mapping[TopicPartition, int]) -> None:
        denied = TopicAuthorizationError.code
        responses = [
            _Topic(
                topic_name=topic.topic_name,
                topic_id=broker.metadata_cache.topic_id(topic.topic_name),
                partitions=[
                    _Partition(
                        partition_index=each.partition_index,
                        error_code=codes.get(TopicPartition(topic.topic_name, each.partition_index), denied),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in body.topics
        ]
        request.respond(AlterShareGroupOffsetsResponse(responses=responses))

    broker.group_coordinator.alter_share_group_offsets(body.group_id, offsets, altered)


def error_response(
    body: AlterShareGroupOffsetsRequest,  # noqa: ARG001 - as all handlers
    code: int,
    message: str | None = None,
) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(error_code=code, error_message=message)
