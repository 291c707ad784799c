"""OffsetDelete: remove a group's offsets of some topics (KIP-496)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from pykclient.errors import TopicAuthorizationError, UnknownTopicOrPartitionError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from pykclient.testing import acls
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.OFFSET_DELETE
VERSIONS = (0, 0)


def handle(broker: Broker, request: Request) -> None:
    """Respond once the tombstones are on all in-sync replicas."""
    body = cast(OffsetDeleteRequest, request.body)
    broker.auth.check_group(request, acls.DELETE, body.group_id)
    authorized = broker.auth.filter(request, acls.READ, acls.TOPIC, (topic.name for topic in body.topics))
    partition_info = broker.metadata_cache.partition_info
    asked = [TopicPartition(topic.name, one.partition_index) for topic in body.topics for one in topic.partitions]
    known = [tp for tp in asked if tp.topic in authorized and partition_info(tp) is not None]

    def respond(error_codes: Mapping[TopicPartition, int]) -> None:
        denied, unknown = TopicAuthorizationError.code, UnknownTopicOrPartitionError.code
        request.respond(
            OffsetDeleteResponse(
                topics=[
                    OffsetDeleteResponse.OffsetDeleteResponseTopic(
                        name=topic.name,
                        partitions=[
                            OffsetDeleteResponse.OffsetDeleteResponsePartition(
                                partition_index=one.partition_index,
                                error_code=denied
                                if topic.name not in authorized
                                else error_codes.get(TopicPartition(topic.name, one.partition_index), unknown),
                            )
                            for one in topic.partitions
                        ],
                    )
                    for topic in body.topics
                ]
            )
        )

    broker.group_coordinator.delete_offsets(body.group_id, known, respond)


def error_response(body: OffsetDeleteRequest, code: int, message: str | None = None) -> OffsetDeleteResponse:  # noqa: ARG001
    return OffsetDeleteResponse(error_code=code)
