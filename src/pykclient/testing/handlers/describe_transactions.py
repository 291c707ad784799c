"""DescribeTransactions: the states of transactional ids (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from pykclient.errors import BrokerError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from pykclient.testing import acls

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY: Final = ApiKeys.DESCRIBE_TRANSACTIONS
VERSIONS: Final = (0, 0)

_State = DescribeTransactionsResponse.TransactionState


def handle(broker: Broker, request: Request) -> None:
    body = cast(DescribeTransactionsRequest, request.body)
    request.respond(
        DescribeTransactionsResponse(
            transaction_states=[
                _describe(broker, request, transactional_id) for transactional_id in body.transactional_ids
            ]
        )
    )


def _describe(broker: Broker, request: Request, transactional_id: str) -> _State:
    try:
        broker.auth.check_transactional_id(request, acls.DESCRIBE, transactional_id)
        metadata = broker.transaction_coordinator.describe_transaction(transactional_id)
    except BrokerError as error:
        return _State(transactional_id=transactional_id, error_code=error.code)
    topics: dict[str, list[int]] = {}
    for topic, partition in metadata.topic_partitions:
        if broker.auth.authorize(request, acls.DESCRIBE, acls.TOPIC, topic):
            topics.setdefault(topic, []).append(partition)
    return _State(
        transactional_id=transactional_id,
        transaction_state=metadata.state.name,
        transaction_timeout_ms=metadata.txn_timeout_ms,
        transaction_start_time_ms=metadata.txn_start_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        topics=[
            DescribeTransactionsResponse.TopicData(topic=topic, partitions=partitions)
            for topic, partitions in topics.items()
        ],
    )


def error_response(
    body: DescribeTransactionsRequest,
    code: int,
    message: str | None = None,  # noqa: ARG001 - as all handlers
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            _State(transactional_id=transactional_id, error_code=code) for transactional_id in body.transactional_ids
        ]
    )
