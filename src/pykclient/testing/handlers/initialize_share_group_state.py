"""InitializeShareGroupState: a group coordinator begins or resets the state of share partitions (KIP-932)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from pykclient.errors import BrokerError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)
from pykclient.testing.share.share_types import SharePartitionKey
from pykclient.testing.share.state_requests import for_each_partition

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.INITIALIZE_SHARE_GROUP_STATE
VERSIONS = (0, 0)
BROKER_ONLY = True

Result = InitializeShareGroupStateResponse.PartitionResult


def handle(broker: Broker, request: Request) -> None:
    """Respond when the new state is on all in-sync replicas."""
    body = cast(InitializeShareGroupStateRequest, request.body)

    def initialize(
        topic_id: UUID, partition: InitializeShareGroupStateRequest.PartitionData, respond: Callable[[Result], None]
    ) -> None:
        def written(error: BrokerError | None) -> None:
            result = Result(partition=partition.partition)
            if error is not None:
                result.error_code, result.error_message = error.code, str(error)
            respond(result)

        key = SharePartitionKey(body.group_id, topic_id, partition.partition)
        broker.share_coordinator.initialize_state(key, partition.state_epoch, partition.start_offset, written)

    def answer(results: list[tuple[UUID, list[Result]]]) -> None:
        response = InitializeShareGroupStateResponse
        request.respond(
            response(results=[response.InitializeStateResult(topic_id=id, partitions=found) for id, found in results])
        )

    for_each_partition(((topic.topic_id, topic.partitions) for topic in body.topics), initialize, answer)


def error_response(
    body: InitializeShareGroupStateRequest, code: int, message: str | None = None
) -> InitializeShareGroupStateResponse:
    response = InitializeShareGroupStateResponse
    return response(
        results=[
            response.InitializeStateResult(
                topic_id=topic.topic_id,
                partitions=[
                    Result(partition=partition.partition, error_code=code, error_message=message)
                    for partition in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )
