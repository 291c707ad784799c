"""LEADER_AND_ISR: the controller's decision which replicas lead and which follow."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.LEADER_AND_ISR
VERSIONS = (5, 7)  # the controller is of the same release as this broker
BROKER_ONLY = True


def handle(broker: Broker, request: Request) -> None:
    body = cast(LeaderAndIsrRequest, request.body)
    broker.replica_manager.check_order(body.controller_epoch, body.broker_epoch, request.header.correlation_id)
    request.respond(broker.replica_manager.become_leader_or_follower(body))


def error_response(body: LeaderAndIsrRequest, code: int, message: str | None = None) -> LeaderAndIsrResponse:  # noqa: ARG001
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
