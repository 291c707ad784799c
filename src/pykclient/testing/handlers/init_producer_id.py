"""InitProducerId: an id for an idempotent producer (KIP-98, KIP-360)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pykclient.errors import InvalidRequestError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.INIT_PRODUCER_ID
VERSIONS = InitProducerIdRequest.VERSIONS

_NO_PRODUCER_ID, _NO_PRODUCER_EPOCH = -1, -1


def handle(broker: Broker, request: Request) -> None:
    """Respond with a new id, once the controller has given this broker a block of ids.

    A producer without a transactional id increments its epoch itself, so its current id does not matter.
    """
    body = cast(InitProducerIdRequest, request.body)
    if (body.producer_id == _NO_PRODUCER_ID) != (body.producer_epoch == _NO_PRODUCER_EPOCH):
        raise InvalidRequestError("a producer id and its epoch are given together, or neither of them")
    if body.transactional_id is not None:
        raise InvalidRequestError(
            f"transactional.id={body.transactional_id!r} cannot be served: this cluster has no transactions yet"
        )

    def respond(error_code: int, producer_id: int) -> None:
        if error_code:
            request.respond(error_response(body, error_code))
        else:
            request.respond(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))

    broker.producer_id_manager.generate_producer_id(respond)


def error_response(body: InitProducerIdRequest, code: int, message: str | None = None) -> InitProducerIdResponse:  # noqa: ARG001
    return InitProducerIdResponse(error_code=code, producer_id=_NO_PRODUCER_ID, producer_epoch=_NO_PRODUCER_EPOCH)
