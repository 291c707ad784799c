"""InitProducerId: the id and epoch of an idempotent or transactional producer (KIP-98, KIP-360, KIP-939)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pykclient.errors import InvalidProducerEpochError, InvalidRequestError, ProducerFencedError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from pykclient.testing import acls
from pykclient.testing.transaction.transaction_coordinator import NO_PRODUCER, InitProducerId
from pykclient.testing.transaction.transaction_metadata import ProducerIdAndEpoch

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.INIT_PRODUCER_ID
VERSIONS = InitProducerIdRequest.VERSIONS
#: The version with two-phase commit.
UNSTABLE_VERSION = 6

#: From this version on, clients know PRODUCER_FENCED.
_TELLS_FENCED = 4


def handle(broker: Broker, request: Request) -> None:
    """Respond with an id and epoch, of a transactional id or of a new producer.

    A producer without a transactional id increments its epoch itself, so its current id does not matter.
    """
    body = cast(InitProducerIdRequest, request.body)
    auth = broker.auth
    if body.transactional_id is not None:
        auth.check_transactional_id(request, acls.WRITE, body.transactional_id)
        if body.enable2_pc:
            auth.check_transactional_id(request, acls.TWO_PHASE_COMMIT, body.transactional_id)
    elif not auth.authorize_by_resource_type(request, acls.WRITE, acls.TOPIC):  # enough since KIP-679
        auth.check_cluster(request, acls.IDEMPOTENT_WRITE)
    given = ProducerIdAndEpoch(body.producer_id, body.producer_epoch)
    if (given.producer_id == NO_PRODUCER.producer_id) != (given.epoch == NO_PRODUCER.epoch):
        raise InvalidRequestError("a producer id and its epoch are given together, or neither of them")

    def respond(error_code: int, producer: ProducerIdAndEpoch, ongoing: ProducerIdAndEpoch) -> None:
        if error_code == ProducerFencedError.code and request.api_version < _TELLS_FENCED:
            error_code = InvalidProducerEpochError.code
        request.respond(
            InitProducerIdResponse(
                error_code=error_code,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                ongoing_txn_producer_id=ongoing.producer_id,
                ongoing_txn_producer_epoch=ongoing.epoch,
            )
        )

    broker.transaction_coordinator.init_producer_id(
        InitProducerId(
            body.transactional_id,
            body.transaction_timeout_ms,
            None if given == NO_PRODUCER else given,
            body.enable2_pc,
            body.keep_prepared_txn,
        ),
        respond,
    )


def error_response(body: InitProducerIdRequest, code: int, message: str | None = None) -> InitProducerIdResponse:  # noqa: ARG001
    return InitProducerIdResponse(
        error_code=code, producer_id=NO_PRODUCER.producer_id, producer_epoch=NO_PRODUCER.epoch
    )
