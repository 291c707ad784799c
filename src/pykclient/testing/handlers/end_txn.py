"""EndTxn: commit or abort a transaction (KIP-98, KIP-890)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from pykclient.errors import InvalidProducerEpochError, ProducerFencedError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from pykclient.testing import acls
from pykclient.testing.transaction.transaction_metadata import ProducerIdAndEpoch

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY: Final = ApiKeys.END_TXN
VERSIONS: Final = (0, 5)

#: From this version on, clients know PRODUCER_FENCED.
_TELLS_FENCED: Final = 2
#: From this version on, the end of a transaction bumps the producer's epoch.
_BUMPS_EPOCH: Final = 5


def handle(broker: Broker, request: Request) -> None:
    """Respond when the decision is in the log of the coordinator. The markers follow."""
    body = cast(EndTxnRequest, request.body)
    broker.auth.check_transactional_id(request, acls.WRITE, body.transactional_id)
    bumps_epoch = request.api_version >= _BUMPS_EPOCH

    def respond(error_code: int, producer: ProducerIdAndEpoch) -> None:
        if error_code == ProducerFencedError.code and request.api_version < _TELLS_FENCED:
            error_code = InvalidProducerEpochError.code
        response = EndTxnResponse(error_code=error_code)
        if bumps_epoch:
            response.producer_id, response.producer_epoch = producer
        request.respond(response)

    broker.transaction_coordinator.end_transaction(
        body.transactional_id,
        ProducerIdAndEpoch(body.producer_id, body.producer_epoch),
        body.committed,
        2 if bumps_epoch else 0,
        respond,
    )


def error_response(body: EndTxnRequest, code: int, message: str | None = None) -> EndTxnResponse:  # noqa: ARG001
    return EndTxnResponse(error_code=code)
