"""AllocateProducerIds: a broker requests a block of unused producer ids from the controller (KIP-730)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.ALLOCATE_PRODUCER_IDS
VERSIONS = AllocateProducerIdsRequest.VERSIONS
BROKER_ONLY = True


def handle(broker: Broker, request: Request) -> None:
    """Respond once the allocation is stored."""
    body = cast(AllocateProducerIdsRequest, request.body)

    def respond(code: int, first: int, length: int) -> None:
        request.respond(AllocateProducerIdsResponse(error_code=code, producer_id_start=first, producer_id_len=length))

    broker.controller.allocate_producer_ids(body.broker_id, body.broker_epoch, respond)


def error_response(
    body: AllocateProducerIdsRequest,  # noqa: ARG001
    code: int,
    message: str | None = None,  # noqa: ARG001
) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(error_code=code)
