"""ReadShareGroupStateSummary: a group coordinator looks up how far share groups have come (KIP-932, KIP-1226)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from pykclient.errors import BrokerError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)
from pykclient.testing.share.share_types import SharePartitionKey, ShareState
from pykclient.testing.share.state_requests import for_each_partition

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.READ_SHARE_GROUP_STATE_SUMMARY
VERSIONS = (0, 1)
BROKER_ONLY = True

Result = ReadShareGroupStateSummaryResponse.PartitionResult


def handle(broker: Broker, request: Request) -> None:
    """Respond immediately, or after writes in progress."""
    body = cast(ReadShareGroupStateSummaryRequest, request.body)

    def read(
        topic_id: UUID, partition: ReadShareGroupStateSummaryRequest.PartitionData, respond: Callable[[Result], None]
    ) -> None:
        def found(error: BrokerError | None, state: ShareState | None) -> None:
            result = Result(partition=partition.partition)
            if error is not None:
                result.error_code, result.error_message = error.code, str(error)
            elif state is not None:
                result.state_epoch, result.leader_epoch = state.state_epoch, state.leader_epoch
                result.start_offset = state.start_offset
                result.delivery_complete_count = state.delivery_complete_count
            respond(result)

        key = SharePartitionKey(body.group_id, topic_id, partition.partition)
        broker.share_coordinator.read_state_summary(key, found)

    def answer(results: list[tuple[UUID, list[Result]]]) -> None:
        response = ReadShareGroupStateSummaryResponse
        request.respond(
            response(results=[response.ReadStateSummaryResult(topic_id=id, partitions=found) for id, found in results])
        )

    for_each_partition(((topic.topic_id, topic.partitions) for topic in body.topics), read, answer)


def error_response(
    body: ReadShareGroupStateSummaryRequest, code: int, message: str | None = None
) -> ReadShareGroupStateSummaryResponse:
    response = ReadShareGroupStateSummaryResponse
    return response(
        results=[
            response.ReadStateSummaryResult(
                topic_id=topic.topic_id,
                partitions=[
                    Result(partition=partition.partition, error_code=code, error_message=message)
                    for partition in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )
