"""DeleteShareGroupState: a group coordinator deletes the state of share partitions (KIP-932)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from pykclient.errors import BrokerError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
)
from pykclient.testing.share.share_types import SharePartitionKey
from pykclient.testing.share.state_requests import for_each_partition

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.DELETE_SHARE_GROUP_STATE
VERSIONS = (0, 0)
BROKER_ONLY = True

Result = DeleteShareGroupStateResponse.PartitionResult


def handle(broker: Broker, request: Request) -> None:
    """Respond when the tombstones are on all in-sync replicas."""
    body = cast(DeleteShareGroupStateRequest, request.body)

    def delete(
        topic_id: UUID, partition: DeleteShareGroupStateRequest.PartitionData, respond: Callable[[Result], None]
    ) -> None:
        def written(error: BrokerError | None) -> None:
            result = Result(partition=partition.partition)
            if error is not None:
                result.error_code, result.error_message = error.code, str(error)
            respond(result)

        key = SharePartitionKey(body.group_id, topic_id, partition.partition)
        broker.share_coordinator.delete_state(key, written)

    def answer(results: list[tuple[UUID, list[Result]]]) -> None:
        response = DeleteShareGroupStateResponse
        request.respond(
            response(results=[response.DeleteStateResult(topic_id=id, partitions=found) for id, found in results])
        )

    for_each_partition(((topic.topic_id, topic.partitions) for topic in body.topics), delete, answer)


def error_response(
    body: DeleteShareGroupStateRequest, code: int, message: str | None = None
) -> DeleteShareGroupStateResponse:
    response = DeleteShareGroupStateResponse
    return response(
        results=[
            response.DeleteStateResult(
                topic_id=topic.topic_id,
                partitions=[
                    Result(partition=partition.partition, error_code=code, error_message=message)
                    for partition in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )
