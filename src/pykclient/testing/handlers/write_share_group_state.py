"""WriteShareGroupState: partition leaders save the progress of share groups (KIP-932)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from pykclient.errors import BrokerError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.write_share_group_state import (
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)
from pykclient.testing.share.share_types import SharePartitionKey, ShareUpdate, StateBatch
from pykclient.testing.share.state_requests import for_each_partition

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.WRITE_SHARE_GROUP_STATE
VERSIONS = (0, 1)
BROKER_ONLY = True

Result = WriteShareGroupStateResponse.PartitionResult


def handle(broker: Broker, request: Request) -> None:
    """Respond when the changes are on all in-sync replicas."""
    body = cast(WriteShareGroupStateRequest, request.body)

    def write(
        topic_id: UUID, partition: WriteShareGroupStateRequest.PartitionData, respond: Callable[[Result], None]
    ) -> None:
        def written(error: BrokerError | None) -> None:
            result = Result(partition=partition.partition)
            if error is not None:
                result.error_code, result.error_message = error.code, str(error)
            respond(result)

        key = SharePartitionKey(body.group_id, topic_id, partition.partition)
        update = ShareUpdate(
            partition.state_epoch,
            partition.leader_epoch,
            partition.start_offset,
            partition.delivery_complete_count,
            [
                StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
                for batch in partition.state_batches
            ],
        )
        broker.share_coordinator.write_state(key, update, written)

    def answer(results: list[tuple[UUID, list[Result]]]) -> None:
        response = WriteShareGroupStateResponse
        request.respond(
            response(results=[response.WriteStateResult(topic_id=id, partitions=found) for id, found in results])
        )

    for_each_partition(((topic.topic_id, topic.partitions) for topic in body.topics), write, answer)


def error_response(
    body: WriteShareGroupStateRequest, code: int, message: str | None = None
) -> WriteShareGroupStateResponse:
    response = WriteShareGroupStateResponse
    return response(
        results=[
            response.WriteStateResult(
                topic_id=topic.topic_id,
                partitions=[
                    Result(partition=partition.partition, error_code=code, error_message=message)
                    for partition in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )
