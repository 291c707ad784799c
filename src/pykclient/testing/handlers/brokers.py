"""Requests that only brokers and the controller send to each other.

Among them are those for the state of share groups, which leaders of partitions keep at a share coordinator (KIP-932).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

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
from pykclient.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from pykclient.protocol.messages.read_share_group_state import ReadShareGroupStateRequest, ReadShareGroupStateResponse
from pykclient.protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)
from pykclient.protocol.messages.stop_replica import StopReplicaRequest
from pykclient.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from pykclient.protocol.messages.write_share_group_state import (
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)
from pykclient.testing.broker import Broker
from pykclient.testing.handlers import serves
from pykclient.testing.request_channel import Request
from pykclient.testing.share.in_flight_records import SharePartitionKey, ShareState, ShareUpdate, state_batches_of
from pykclient.testing.share.persister import for_each_partition


def _check_order(
    broker: Broker, request: Request, body: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest
) -> None:
    changes = broker.replica_manager.state_changes
    changes.check_order(body.controller_epoch, body.broker_epoch, request.header.correlation_id)


# --- LEADER_AND_ISR --------------------------------------------------------------------------------------------------


# the controller is of the same release as this broker
@serves(ApiKeys.LEADER_AND_ISR, (5, 7), is_broker_only=True)
def handle_leader_and_isr(broker: Broker, request: Request, body: LeaderAndIsrRequest) -> None:
    _check_order(broker, request, body)
    request.respond(broker.replica_manager.state_changes.become_leader_or_follower(body))


# --- STOP_REPLICA ----------------------------------------------------------------------------------------------------


# the controller is of the same release as this broker
@serves(ApiKeys.STOP_REPLICA, (3, 4), is_broker_only=True)
def handle_stop_replica(broker: Broker, request: Request, body: StopReplicaRequest) -> None:
    _check_order(broker, request, body)
    request.respond(broker.replica_manager.state_changes.stop_replicas(body))


# --- UpdateMetadata --------------------------------------------------------------------------------------------------


@serves(ApiKeys.UPDATE_METADATA, (5, 8), is_broker_only=True)
def handle_update_metadata(broker: Broker, request: Request, body: UpdateMetadataRequest) -> None:
    """Replace the broker's metadata.

    Requests of an old controller, those meant for the broker before a restart, and those that the controller's later
    requests have overtaken are rejected.
    """
    changes = broker.replica_manager.state_changes
    changes.check_controller(body.controller_id, body.controller_epoch, body.broker_epoch)
    _check_order(broker, request, body)
    broker.metadata_cache.update_metadata(body)
    request.respond(UpdateMetadataResponse())


# --- AlterPartition --------------------------------------------------------------------------------------------------


@serves(ApiKeys.ALTER_PARTITION, (3, 3), is_broker_only=True)
def handle_alter_partition(broker: Broker, request: Request, body: AlterPartitionRequest) -> None:
    """Respond once the new state is stored or rejected."""
    controller = broker.controller
    controller.handle(request, lambda: controller.alter_partition_handler.alter_partitions(body, request.respond))


# --- ControlledShutdown ----------------------------------------------------------------------------------------------


@serves(ApiKeys.CONTROLLED_SHUTDOWN, ControlledShutdownRequest.VERSIONS, is_broker_only=True)
def handle_controlled_shutdown(broker: Broker, request: Request, body: ControlledShutdownRequest) -> None:
    """Respond with the partitions that could not be moved."""

    def process() -> None:
        remaining = [
            ControlledShutdownResponse.RemainingPartition(topic_name=topic, partition_index=index)
            for topic, index in broker.controller.controlled_shutdown(body.broker_id, body.broker_epoch)
        ]
        request.respond(ControlledShutdownResponse(remaining_partitions=remaining))

    broker.controller.handle(request, process)


# --- AllocateProducerIds ---------------------------------------------------------------------------------------------


@serves(ApiKeys.ALLOCATE_PRODUCER_IDS, AllocateProducerIdsRequest.VERSIONS, is_broker_only=True)
def handle_allocate_producer_ids(broker: Broker, request: Request, body: AllocateProducerIdsRequest) -> None:
    """Respond once the allocation is stored."""

    def process() -> None:
        first, length = broker.controller.allocate_producer_ids(body.broker_id, body.broker_epoch)
        request.respond(AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=length))

    broker.controller.handle(request, process)


# --- the state of share groups ---------------------------------------------------------------------------------------


def _handle_each(
    request: Request,
    body: Any,
    result_of_topic: Callable[..., Any],
    handle: Callable[[SharePartitionKey, Any, Callable[..., None]], None],
) -> None:
    """Call ``handle`` with each share partition of a request, and respond when the result of the last one is there.

    ``handle`` gets the partition's key, its part of the request, and the callback for an error, or for the fields of
    the result.
    """
    response_class: Any = ApiKeys.message_class(body.API_KEY, request=False)

    def handle_one(topic_id: UUID, partition: Any, respond: Callable[[Any], None]) -> None:
        def handled(error: BrokerError | None, **fields: Any) -> None:
            if error is not None:
                fields = {"error_code": error.code, "error_message": str(error)}
            respond(response_class.PartitionResult(partition=partition.partition, **fields))

        handle(SharePartitionKey(body.group_id, topic_id, partition.partition), partition, handled)

    def answer(results: list[tuple[UUID, list[Any]]]) -> None:
        topics = [result_of_topic(topic_id=topic_id, partitions=found) for topic_id, found in results]
        request.respond(response_class(results=topics))

    for_each_partition(((topic.topic_id, topic.partitions) for topic in body.topics), handle_one, answer)


@serves(ApiKeys.INITIALIZE_SHARE_GROUP_STATE, (0, 0), is_broker_only=True)
def handle_initialize_share_group_state(
    broker: Broker, request: Request, body: InitializeShareGroupStateRequest
) -> None:
    """Respond when the new state is on all in-sync replicas."""

    def initialize(
        key: SharePartitionKey, asked: InitializeShareGroupStateRequest.PartitionData, respond: Callable[..., None]
    ) -> None:
        broker.share_coordinator.initialize_state(key, asked.state_epoch, asked.start_offset, respond)

    _handle_each(request, body, InitializeShareGroupStateResponse.InitializeStateResult, initialize)


@serves(ApiKeys.READ_SHARE_GROUP_STATE, (0, 0), is_broker_only=True)
def handle_read_share_group_state(broker: Broker, request: Request, body: ReadShareGroupStateRequest) -> None:
    """Respond when the leader epochs are on all in-sync replicas, so that earlier leaders are fenced."""

    def read(
        key: SharePartitionKey, asked: ReadShareGroupStateRequest.PartitionData, respond: Callable[..., None]
    ) -> None:
        def found(error: BrokerError | None, state: ShareState | None) -> None:
            if error is not None or state is None:
                respond(error)
                return
            batches = [ReadShareGroupStateResponse.StateBatch(**batch._asdict()) for batch in state.batches]
            respond(None, state_epoch=state.state_epoch, start_offset=state.start_offset, state_batches=batches)

        broker.share_coordinator.read_state(key, asked.leader_epoch, found)

    _handle_each(request, body, ReadShareGroupStateResponse.ReadStateResult, read)


@serves(ApiKeys.READ_SHARE_GROUP_STATE_SUMMARY, (0, 1), is_broker_only=True)
def handle_read_share_group_state_summary(
    broker: Broker, request: Request, body: ReadShareGroupStateSummaryRequest
) -> None:
    """Respond immediately, or after writes in progress."""

    def read(key: SharePartitionKey, _: object, respond: Callable[..., None]) -> None:
        def found(error: BrokerError | None, state: ShareState | None) -> None:
            if error is not None or state is None:
                respond(error)
                return
            respond(
                None,
                state_epoch=state.state_epoch,
                leader_epoch=state.leader_epoch,
                start_offset=state.start_offset,
                delivery_complete_count=state.delivery_complete_count,
            )

        broker.share_coordinator.read_state_summary(key, found)

    _handle_each(request, body, ReadShareGroupStateSummaryResponse.ReadStateSummaryResult, read)


@serves(ApiKeys.WRITE_SHARE_GROUP_STATE, (0, 1), is_broker_only=True)
def handle_write_share_group_state(broker: Broker, request: Request, body: WriteShareGroupStateRequest) -> None:
    """Respond when the changes are on all in-sync replicas."""

    def write(
        key: SharePartitionKey, asked: WriteShareGroupStateRequest.PartitionData, respond: Callable[..., None]
    ) -> None:
        update = ShareUpdate(
            asked.state_epoch,
            asked.leader_epoch,
            asked.start_offset,
            asked.delivery_complete_count,
            state_batches_of(asked),
        )
        broker.share_coordinator.write_state(key, update, respond)

    _handle_each(request, body, WriteShareGroupStateResponse.WriteStateResult, write)


@serves(ApiKeys.DELETE_SHARE_GROUP_STATE, (0, 0), is_broker_only=True)
def handle_delete_share_group_state(broker: Broker, request: Request, body: DeleteShareGroupStateRequest) -> None:
    """Respond when the tombstones are on all in-sync replicas."""

    def delete(key: SharePartitionKey, _: object, respond: Callable[..., None]) -> None:
        broker.share_coordinator.delete_state(key, respond)

    _handle_each(request, body, DeleteShareGroupStateResponse.DeleteStateResult, delete)
