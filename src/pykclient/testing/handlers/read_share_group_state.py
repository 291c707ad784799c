"""ReadShareGroupState: new partition leaders load the progress of share groups (KIP-932)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from pykclient.errors import BrokerError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.read_share_group_state import (
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
)
from pykclient.testing.share.share_types import SharePartitionKey, ShareState
from pykclient.testing.share.state_requests import for_each_partition

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.READ_SHARE_GROUP_STATE
VERSIONS = (0, 0)
BROKER_ONLY = True

Result = ReadShareGroupStateResponse.PartitionResult


def handle(broker: Broker, request: Request) -> None:
    """Respond when the leader epochs are on all in-sync replicas, so that earlier leaders are fenced."""
    body = cast(ReadShareGroupStateRequest, request.body)

    def read(
        topic_id: UUID, partition: ReadShareGroupStateRequest.PartitionData, respond: Callable[[Result], None]
    ) -> None:
        def found(error: BrokerError | None, state: ShareState | None) -> None:
            result = Result(partition=partition.partition)
            if error is not None:
                result.error_code, result.error_message = error.code, str(error)
            elif state is not None:
                result.state_epoch, result.start_offset = state.state_epoch, state.start_offset
                result.state_batches = [
                    ReadShareGroupStateResponse.StateBatch(
                        first_offset=first, last_offset=last, delivery_state=delivery_state, delivery_count=count
                    )
                    for first, last, delivery_state, count in state.batches
                ]
            respond(result)

        key = SharePartitionKey(body.group_id, topic_id, partition.partition)
        broker.share_coordinator.read_state(key, partition.leader_epoch, found)

    def answer(results: list[tuple[UUID, list[Result]]]) -> None:
        response = ReadShareGroupStateResponse
        request.respond(
            response(results=[response.ReadStateResult(topic_id=id, partitions=found) for id, found in results])
        )

    for_each_partition(((topic.topic_id, topic.partitions) for topic in body.topics), read, answer)


def error_response(
    body: ReadShareGroupStateRequest, code: int, message: str | None = None
) -> ReadShareGroupStateResponse:
    response = ReadShareGroupStateResponse
    return response(
        results=[
            response.ReadStateResult(
                topic_id=topic.topic_id,
                partitions=[
                    Result(partition=partition.partition, error_code=code, error_message=message)
                    for partition in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )
