"""STOP_REPLICA: the controller stops or deletes replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.STOP_REPLICA
VERSIONS = (3, 4)  # the controller is of the same release as this broker
BROKER_ONLY = True


def handle(broker: Broker, request: Request) -> None:
    body = cast(StopReplicaRequest, request.body)
    broker.replica_manager.check_order(body.controller_epoch, body.broker_epoch, request.header.correlation_id)
    request.respond(broker.replica_manager.stop_replicas(body))


def error_response(body: StopReplicaRequest, code: int, message: str | None = None) -> StopReplicaResponse:  # noqa: ARG001
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
