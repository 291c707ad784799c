"""ExpireDelegationToken: the end of a token, now or soon (KIP-48)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY: Final = ApiKeys.EXPIRE_DELEGATION_TOKEN
VERSIONS: Final = (0, 2)

#: In place of a time.
_NEVER: Final = -1


def handle(broker: Broker, request: Request) -> None:
    body = cast(ExpireDelegationTokenRequest, request.body)
    broker.auth.check_token_request(request)
    broker.check_controller_is_reachable()
    tokens = broker.cluster.delegation_tokens
    expiry_ms = tokens.expire(bytes(body.hmac), request.principal, body.expiry_time_period_ms)
    request.respond(ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry_ms))


def error_response(
    body: ExpireDelegationTokenRequest,  # noqa: ARG001 - as all handlers
    code: int,
    message: str | None = None,  # noqa: ARG001 - no field for it
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=_NEVER)
