"""ControlledShutdown: a broker that is about to stop asks the controller to move its leaders."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, cast

from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.CONTROLLED_SHUTDOWN
VERSIONS = ControlledShutdownRequest.VERSIONS
BROKER_ONLY = True


def handle(broker: Broker, request: Request) -> None:
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


def error_response(
    body: ControlledShutdownRequest,  # noqa: ARG001
    code: int,
    message: str | None = None,  # noqa: ARG001
) -> ControlledShutdownResponse:
    return ControlledShutdownResponse(error_code=code)
