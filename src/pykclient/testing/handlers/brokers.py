"""Requests that only brokers and the controller send to each other.

Among them are those for the state of share groups, which leaders of partitions keep at a share coordinator (KIP-932).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from pykclient.errors import BrokerError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from pykclient.protocol.messages.alter_partition import AlterPartitionRequest
from pykclient.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from pykclient.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from pykclient.protocol.messages.stop_replica import StopReplicaRequest
from pykclient.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from pykclient.testing.broker import Broker
from pykclient.testing.handlers import answer_each, by_topic, serves
from pykclient.testing.request_channel import Request
from pykclient.testing.share.in_flight_records import SharePartitionKey, ShareState
from pykclient.testing.share.share_coordinator import ShareCoordinator


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


#: The method of the share coordinator for each request, and the class of a topic's results.
_OPERATIONS: Final[dict[int, tuple[Callable[..., None], str]]] = {
    ApiKeys.INITIALIZE_SHARE_GROUP_STATE: (ShareCoordinator.initialize_state, "InitializeStateResult"),
    ApiKeys.READ_SHARE_GROUP_STATE: (ShareCoordinator.read_state, "ReadStateResult"),
    ApiKeys.READ_SHARE_GROUP_STATE_SUMMARY: (ShareCoordinator.read_state_summary, "ReadStateSummaryResult"),
    ApiKeys.WRITE_SHARE_GROUP_STATE: (ShareCoordinator.write_state, "WriteStateResult"),
    ApiKeys.DELETE_SHARE_GROUP_STATE: (ShareCoordinator.delete_state, "DeleteStateResult"),
}


@serves(ApiKeys.INITIALIZE_SHARE_GROUP_STATE, (0, 0), is_broker_only=True)
@serves(ApiKeys.READ_SHARE_GROUP_STATE, (0, 0), is_broker_only=True)
@serves(ApiKeys.READ_SHARE_GROUP_STATE_SUMMARY, (0, 1), is_broker_only=True)
@serves(ApiKeys.WRITE_SHARE_GROUP_STATE, (0, 1), is_broker_only=True)
@serves(ApiKeys.DELETE_SHARE_GROUP_STATE, (0, 0), is_broker_only=True)
def handle_share_group_state(broker: Broker, request: Request, body: Any) -> None:
    """Respond when the changes of all share partitions are on all in-sync replicas.

    To read a state changes its leader epoch, so that earlier leaders are fenced.
    """
    response_class: Any = ApiKeys.message_class(body.API_KEY, request=False)
    operation, result_of_topic = _OPERATIONS[body.API_KEY]

    def start(asked: tuple[UUID, Any], answered: Callable[[tuple[UUID, Any]], None]) -> None:
        topic_id, partition = asked

        def handled(error: BrokerError | None, state: ShareState | None = None) -> None:
            result = response_class.PartitionResult(partition=partition.partition)
            if error is not None:
                result.error_code, result.error_message = error.code, str(error)
            elif state is not None:
                fields = state._asdict()
                for name in fields.keys() & set(result.__slots__):
                    setattr(result, name, fields[name])
                if hasattr(result, "state_batches"):
                    result.state_batches = [response_class.StateBatch(**each._asdict()) for each in state.batches]
            answered((topic_id, result))

        key = SharePartitionKey(body.group_id, topic_id, partition.partition)
        operation(broker.share_coordinator, key, partition, handled)

    def respond(results: list[tuple[UUID, Any]]) -> None:
        topics = by_topic(getattr(response_class, result_of_topic), results, "topic_id")
        request.respond(response_class(results=topics))

    partitions = [(topic.topic_id, partition) for topic in body.topics for partition in topic.partitions]
    answer_each(partitions, start, respond)
