"""The state of share groups, which leaders of partitions keep at a share coordinator (KIP-932)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from pykclient.errors import BrokerError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
)
from pykclient.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)
from pykclient.protocol.messages.read_share_group_state import ReadShareGroupStateRequest, ReadShareGroupStateResponse
from pykclient.protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)
from pykclient.protocol.messages.write_share_group_state import (
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)
from pykclient.testing.handlers import serves
from pykclient.testing.share.in_flight_records import SharePartitionKey, ShareState, ShareUpdate, StateBatch
from pykclient.testing.share.persister import for_each_partition

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.testing.broker import Broker
    from pykclient.testing.request_channel import Request

# --- InitializeShareGroupState ---------------------------------------------------------------------------------------

_InitializeShareGroupStateResult = InitializeShareGroupStateResponse.PartitionResult


@serves(ApiKeys.INITIALIZE_SHARE_GROUP_STATE, (0, 0), is_broker_only=True)
def handle_initialize_share_group_state(broker: Broker, request: Request) -> None:
    """Respond when the new state is on all in-sync replicas."""
    body = cast(InitializeShareGroupStateRequest, request.body)

    def initialize(
        topic_id: UUID,
        partition: InitializeShareGroupStateRequest.PartitionData,
        respond: Callable[[_InitializeShareGroupStateResult], None],
    ) -> None:
        def written(error: BrokerError | None) -> None:
            result = _InitializeShareGroupStateResult(partition=partition.partition)
            if error is not None:
                result.error_code, result.error_message = error.code, str(error)
            respond(result)

        key = SharePartitionKey(body.group_id, topic_id, partition.partition)
        broker.share_coordinator.initialize_state(key, partition.state_epoch, partition.start_offset, written)

    def answer(results: list[tuple[UUID, list[_InitializeShareGroupStateResult]]]) -> None:
        response = InitializeShareGroupStateResponse
        request.respond(
            response(results=[response.InitializeStateResult(topic_id=id, partitions=found) for id, found in results])
        )

    for_each_partition(((topic.topic_id, topic.partitions) for topic in body.topics), initialize, answer)


# --- ReadShareGroupState ---------------------------------------------------------------------------------------------

_ReadShareGroupStateResult = ReadShareGroupStateResponse.PartitionResult


@serves(ApiKeys.READ_SHARE_GROUP_STATE, (0, 0), is_broker_only=True)
def handle_read_share_group_state(broker: Broker, request: Request) -> None:
    """Respond when the leader epochs are on all in-sync replicas, so that earlier leaders are fenced."""
    body = cast(ReadShareGroupStateRequest, request.body)

    def read(
        topic_id: UUID,
        partition: ReadShareGroupStateRequest.PartitionData,
        respond: Callable[[_ReadShareGroupStateResult], None],
    ) -> None:
        def found(error: BrokerError | None, state: ShareState | None) -> None:
            result = _ReadShareGroupStateResult(partition=partition.partition)
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

    def answer(results: list[tuple[UUID, list[_ReadShareGroupStateResult]]]) -> None:
        response = ReadShareGroupStateResponse
        request.respond(
            response(results=[response.ReadStateResult(topic_id=id, partitions=found) for id, found in results])
        )

    for_each_partition(((topic.topic_id, topic.partitions) for topic in body.topics), read, answer)


# --- ReadShareGroupStateSummary --------------------------------------------------------------------------------------

_ReadShareGroupStateSummaryResult = ReadShareGroupStateSummaryResponse.PartitionResult


@serves(ApiKeys.READ_SHARE_GROUP_STATE_SUMMARY, (0, 1), is_broker_only=True)
def handle_read_share_group_state_summary(broker: Broker, request: Request) -> None:
    """Respond immediately, or after writes in progress."""
    body = cast(ReadShareGroupStateSummaryRequest, request.body)

    def read(
        topic_id: UUID,
        partition: ReadShareGroupStateSummaryRequest.PartitionData,
        respond: Callable[[_ReadShareGroupStateSummaryResult], None],
    ) -> None:
        def found(error: BrokerError | None, state: ShareState | None) -> None:
            result = _ReadShareGroupStateSummaryResult(partition=partition.partition)
            if error is not None:
                result.error_code, result.error_message = error.code, str(error)
            elif state is not None:
                result.state_epoch, result.leader_epoch = state.state_epoch, state.leader_epoch
                result.start_offset = state.start_offset
                result.delivery_complete_count = state.delivery_complete_count
            respond(result)

        key = SharePartitionKey(body.group_id, topic_id, partition.partition)
        broker.share_coordinator.read_state_summary(key, found)

    def answer(results: list[tuple[UUID, list[_ReadShareGroupStateSummaryResult]]]) -> None:
        response = ReadShareGroupStateSummaryResponse
        request.respond(
            response(results=[response.ReadStateSummaryResult(topic_id=id, partitions=found) for id, found in results])
        )

    for_each_partition(((topic.topic_id, topic.partitions) for topic in body.topics), read, answer)


# --- WriteShareGroupState --------------------------------------------------------------------------------------------

_WriteShareGroupStateResult = WriteShareGroupStateResponse.PartitionResult


@serves(ApiKeys.WRITE_SHARE_GROUP_STATE, (0, 1), is_broker_only=True)
def handle_write_share_group_state(broker: Broker, request: Request) -> None:
    """Respond when the changes are on all in-sync replicas."""
    body = cast(WriteShareGroupStateRequest, request.body)

    def write(
        topic_id: UUID,
        partition: WriteShareGroupStateRequest.PartitionData,
        respond: Callable[[_WriteShareGroupStateResult], None],
    ) -> None:
        def written(error: BrokerError | None) -> None:
            result = _WriteShareGroupStateResult(partition=partition.partition)
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

    def answer(results: list[tuple[UUID, list[_WriteShareGroupStateResult]]]) -> None:
        response = WriteShareGroupStateResponse
        request.respond(
            response(results=[response.WriteStateResult(topic_id=id, partitions=found) for id, found in results])
        )

    for_each_partition(((topic.topic_id, topic.partitions) for topic in body.topics), write, answer)


# --- DeleteShareGroupState -------------------------------------------------------------------------------------------

_DeleteShareGroupStateResult = DeleteShareGroupStateResponse.PartitionResult


@serves(ApiKeys.DELETE_SHARE_GROUP_STATE, (0, 0), is_broker_only=True)
def handle_delete_share_group_state(broker: Broker, request: Request) -> None:
    """Respond when the tombstones are on all in-sync replicas."""
    body = cast(DeleteShareGroupStateRequest, request.body)

    def delete(
        topic_id: UUID,
        partition: DeleteShareGroupStateRequest.PartitionData,
        respond: Callable[[_DeleteShareGroupStateResult], None],
    ) -> None:
        def written(error: BrokerError | None) -> None:
            result = _DeleteShareGroupStateResult(partition=partition.partition)
            if error is not None:
                result.error_code, result.error_message = error.code, str(error)
            respond(result)

        key = SharePartitionKey(body.group_id, topic_id, partition.partition)
        broker.share_coordinator.delete_state(key, written)

    def answer(results: list[tuple[UUID, list[_DeleteShareGroupStateResult]]]) -> None:
        response = DeleteShareGroupStateResponse
        request.respond(
            response(results=[response.DeleteStateResult(topic_id=id, partitions=found) for id, found in results])
        )

    for_each_partition(((topic.topic_id, topic.partitions) for topic in body.topics), delete, answer)
