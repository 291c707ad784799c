"""ListTransactions: the transactional ids that this broker coordinates (KIP-664, KIP-994)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, cast

from pykclient.errors import InvalidRegularExpressionError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from pykclient.testing import acls
from pykclient.testing.transaction.transaction_state import BY_NAME, DEAD

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request
    from pykclient.testing.transaction.transaction_metadata import TransactionMetadata

API_KEY: Final = ApiKeys.LIST_TRANSACTIONS
VERSIONS: Final = (0, 2)


def handle(broker: Broker, request: Request) -> None:
    """Respond with the transactional ids that all filters let pass. Unknown states are named, and match nothing."""
    body = cast(ListTransactionsRequest, request.body)
    now_ms = broker.loop.wall_ms
    pattern = _pattern(body.transactional_id_pattern)
    producer_ids = frozenset(body.producer_id_filters)
    states = {BY_NAME[name] for name in body.state_filters if name in BY_NAME}

    def is_wanted(metadata: TransactionMetadata) -> bool:
        if metadata.state is DEAD:
            return False
        return (
            broker.auth.authorize(request, acls.DESCRIBE, acls.TRANSACTIONAL_ID, metadata.transactional_id)
            and (not producer_ids or metadata.producer_id in producer_ids)
            and (not body.state_filters or metadata.state in states)
            and (body.duration_filter < 0 or now_ms - metadata.txn_start_ms > body.duration_filter)
            and (pattern is None or pattern.fullmatch(metadata.transactional_id) is not None)
        )

    request.respond(
        ListTransactionsResponse(
            unknown_state_filters=[name for name in body.state_filters if name not in BY_NAME],
            transaction_states=[
                ListTransactionsResponse.TransactionState(
                    transactional_id=metadata.transactional_id,
                    producer_id=metadata.producer_id,
                    transaction_state=metadata.state.name,
                )
                for metadata in broker.transaction_coordinator.list_transactions()
                if is_wanted(metadata)
            ],
        )
    )


def _pattern(text: str | None) -> re.Pattern[str] | None:
    if not text:
        return None
    try:
        return re.compile(text)
    except re.error as error:
        raise InvalidRegularExpressionError(f"{text!r} is not a regular expression: {error}") from error


def error_response(body: ListTransactionsRequest, code: int, message: str | None = None) -> ListTransactionsResponse:  # noqa: ARG001
    return ListTransactionsResponse(error_code=code)
