"""AddOffsetsToTxn: add a group's offsets to a transaction (KIP-98)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from pykclient.errors import InvalidProducerEpochError, ProducerFencedError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from pykclient.testing import acls
from pykclient.testing.transaction.transaction_metadata import ProducerIdAndEpoch
from pykclient.topic_names import GROUP_METADATA_TOPIC_NAME
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY: Final = ApiKeys.ADD_OFFSETS_TO_TXN
VERSIONS: Final = (0, 4)

#: From this version on, clients know PRODUCER_FENCED.
_TELLS_FENCED: Final = 2

#: The generation of transactions in which producers send this request.
_CLIENT_VERSION: Final = 0


def handle(broker: Broker, request: Request) -> None:
    """Add the partition of __consumer_offsets that stores the group."""
    body = cast(AddOffsetsToTxnRequest, request.body)
    broker.auth.check_transactional_id(request, acls.WRITE, body.transactional_id)
    broker.auth.check_group(request, acls.READ, body.group_id)

    def respond(error_code: int) -> None:
        if error_code == ProducerFencedError.code and request.api_version < _TELLS_FENCED:
            error_code = InvalidProducerEpochError.code
        request.respond(AddOffsetsToTxnResponse(error_code=error_code))

    offsets = TopicPartition(GROUP_METADATA_TOPIC_NAME, broker.group_coordinator.partition_for(body.group_id))
    try:
        broker.transaction_coordinator.add_partitions(
            body.transactional_id,
            ProducerIdAndEpoch(body.producer_id, body.producer_epoch),
            [offsets],
            _CLIENT_VERSION,
            respond,
        )
    except ProducerFencedError as error:
        respond(error.code)


def error_response(body: AddOffsetsToTxnRequest, code: int, message: str | None = None) -> AddOffsetsToTxnResponse:  # noqa: ARG001
    return AddOffsetsToTxnResponse(error_code=code)
