"""Requests that only brokers and the controller send to each other.

Among them are those for the state of share groups, which leaders of partitions keep at a share coordinator (KIP-932).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, cast

from pykclient.errors import BrokerError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from pykclient.protocol.messages.alter_partition import AlterPartitionRequest
from pykclient.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from pykclient.protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
)
from pykclient.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)
from pykclient.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from pykclient.protocol.messages.read_share_group_state import ReadShareGroupStateRequest, ReadShareGroupStateResponse
from pykclient.protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)
from pykclient.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from pykclient.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from pykclient.protocol.messages.write_share_group_state import (
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)
from pykclient.testing.handlers import serves
from pykclient.testing.share.in_flight_records import SharePartitionKey, ShareState, ShareUpdate, StateBatch
from pykclient.testing.share.persister import for_each_partition
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.testing.broker import Broker
    from pykclient.testing.request_channel import Request

# --- LEADER_AND_ISR --------------------------------------------------------------------------------------------------


def refuse_leader_and_isr(body: LeaderAndIsrRequest, code: int, message: str | None = None) -> LeaderAndIsrResponse:
    return LeaderAndIsrResponse(
        error_code=code,
        topics=[
            LeaderAndIsrResponse.LeaderAndIsrTopicError(
                topic_id=topic.topic_id,
                partition_errors=[
                    LeaderAndIsrResponse.LeaderAndIsrPartitionError(
                        partition_index=state.partition_index, error_code=code
                    )
                    for state in topic.partition_states
                ],
            )
            for topic in body.topic_states
        ],
    )


# the controller is of the same release as this broker
@serves(ApiKeys.LEADER_AND_ISR, (5, 7), is_broker_only=True, refuse=refuse_leader_and_isr)
def handle_leader_and_isr(broker: Broker, request: Request) -> None:
    body = cast(LeaderAndIsrRequest, request.body)
    broker.replica_manager.check_order(body.controller_epoch, body.broker_epoch, request.header.correlation_id)
    request.respond(broker.replica_manager.become_leader_or_follower(body))


# --- STOP_REPLICA ----------------------------------------------------------------------------------------------------


def refuse_stop_replica(body: StopReplicaRequest, code: int, message: str | None = None) -> StopReplicaResponse:
    return StopReplicaResponse(
        error_code=code,
        partition_errors=[
            StopReplicaResponse.StopReplicaPartitionError(
                topic_name=topic.topic_name, partition_index=state.partition_index, error_code=code
            )
            for topic in body.topic_states
            for state in topic.partition_states
        ],
    )


# the controller is of the same release as this broker
@serves(ApiKeys.STOP_REPLICA, (3, 4), is_broker_only=True, refuse=refuse_stop_replica)
def handle_stop_replica(broker: Broker, request: Request) -> None:
    body = cast(StopReplicaRequest, request.body)
    broker.replica_manager.check_order(body.controller_epoch, body.broker_epoch, request.header.correlation_id)
    request.respond(broker.replica_manager.stop_replicas(body))


# --- UpdateMetadata --------------------------------------------------------------------------------------------------


@serves(ApiKeys.UPDATE_METADATA, (5, 8), is_broker_only=True)
def handle_update_metadata(broker: Broker, request: Request) -> None:
    """Replace the broker's metadata.

    Requests of an old controller, those meant for the broker before a restart, and those that the controller's later
    requests have overtaken are rejected.
    """
    body = cast(UpdateMetadataRequest, request.body)
    broker.replica_manager.check_controller(body.controller_id, body.controller_epoch, body.broker_epoch)
    broker.replica_manager.check_order(body.controller_epoch, body.broker_epoch, request.header.correlation_id)
    broker.metadata_cache.update_metadata(body)
    request.respond(UpdateMetadataResponse())


# --- AlterPartition --------------------------------------------------------------------------------------------------


@serves(ApiKeys.ALTER_PARTITION, AlterPartitionRequest.VERSIONS, is_broker_only=True)
def handle_alter_partition(broker: Broker, request: Request) -> None:
    """Respond once the new state is stored or rejected."""
    body = cast(AlterPartitionRequest, request.body)
    broker.controller.alter_partition_handler.alter_partitions(body, request.api_version, request.respond)


# --- ControlledShutdown ----------------------------------------------------------------------------------------------


@serves(ApiKeys.CONTROLLED_SHUTDOWN, ControlledShutdownRequest.VERSIONS, is_broker_only=True)
def handle_controlled_shutdown(broker: Broker, request: Request) -> None:
    """Respond with the partitions that could not be moved."""
    body = cast(ControlledShutdownRequest, request.body)

    def respond(code: int, remaining: Collection[TopicPartition]) -> None:
        request.respond(
            ControlledShutdownResponse(
                error_code=code,
                remaining_partitions=[
                    ControlledShutdownResponse.RemainingPartition(topic_name=topic, partition_index=index)
                    for topic, index in remaining
                ],
            )
        )

    broker.controller.controlled_shutdown(body.broker_id, body.broker_epoch, respond)


# --- AllocateProducerIds ---------------------------------------------------------------------------------------------


@serves(ApiKeys.ALLOCATE_PRODUCER_IDS, AllocateProducerIdsRequest.VERSIONS, is_broker_only=True)
def handle_allocate_producer_ids(broker: Broker, request: Request) -> None:
    """Respond once the allocation is stored."""
    body = cast(AllocateProducerIdsRequest, request.body)

    def respond(code: int, first: int, length: int) -> None:
        request.respond(AllocateProducerIdsResponse(error_code=code, producer_id_start=first, producer_id_len=length))

    broker.controller.allocate_producer_ids(body.broker_id, body.broker_epoch, respond)


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
