"""AlterPartitionReassignments: start or cancel moving partitions to other brokers (KIP-455)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from pykclient.testing import acls
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.controller.partition_reassigner import ApiError
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.ALTER_PARTITION_REASSIGNMENTS
VERSIONS = AlterPartitionReassignmentsRequest.VERSIONS

Response = AlterPartitionReassignmentsResponse
Result = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse


def handle(broker: Broker, request: Request) -> None:
    """Respond, from the controller, once the moves are stored. They complete later."""
    body = cast(AlterPartitionReassignmentsRequest, request.body)
    broker.auth.check_cluster(request, acls.ALTER)
    wanted: dict[TopicPartition, Sequence[int] | None] = {
        TopicPartition(topic.name, partition.partition_index): partition.replicas
        for topic in body.topics
        for partition in topic.partitions
    }

    def respond(error: ApiError, outcomes: Mapping[TopicPartition, ApiError]) -> None:
        code, message = error
        response = Response(
            allow_replication_factor_change=body.allow_replication_factor_change,
            error_code=code,
            error_message=message,
        )
        topics: dict[str, Response.ReassignableTopicResponse] = {}
        for (topic, index), (partition_code, partition_message) in outcomes.items():
            if topic not in topics:
                topics[topic] = Response.ReassignableTopicResponse(name=topic)
            topics[topic].partitions.append(
                Result(partition_index=index, error_code=partition_code, error_message=partition_message)
            )
        response.responses = list(topics.values())
        request.respond(response)

    broker.controller.reassigner.alter_partition_reassignments(
        wanted, respond, allow_replication_factor_change=body.allow_replication_factor_change
    )


def error_response(
    body: AlterPartitionReassignmentsRequest, code: int, message: str | None = None
) -> AlterPartitionReassignmentsResponse:
    return Response(
        allow_replication_factor_change=body.allow_replication_factor_change,
        error_code=code,
        error_message=message,
        responses=[
            Response.ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    Result(partition_index=partition.partition_index, error_code=code, error_message=message)
                    for partition in topic.partitions
                ],
            )
            for topic in body.topics
        ],
    )
