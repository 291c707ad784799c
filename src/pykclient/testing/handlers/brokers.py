"""Requests that only brokers and the controller send to each other."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, cast

from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from pykclient.protocol.messages.alter_partition import AlterPartitionRequest
from pykclient.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from pykclient.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from pykclient.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from pykclient.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from pykclient.testing.handlers import serves
from pykclient.types import TopicPartition

if TYPE_CHECKING:
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
