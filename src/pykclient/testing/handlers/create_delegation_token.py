"""CreateDelegationToken: a token for oneself, or for another user (KIP-48, KIP-373)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from pykclient.errors import DelegationTokenAuthorizationError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from pykclient.testing import acls

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY: Final = ApiKeys.CREATE_DELEGATION_TOKEN
VERSIONS: Final = (0, 3)

#: From this version on, responses tell who asked for the token (KIP-373).
_REQUESTERS_FROM: Final = 3


def handle(broker: Broker, request: Request) -> None:
    body = cast(CreateDelegationTokenRequest, request.body)
    requester = owner = request.principal
    if body.owner_principal_name:
        owner = f"{body.owner_principal_type}:{body.owner_principal_name}"
    broker.auth.check_token_request(request)
    if owner != requester and not broker.auth.authorize(request, acls.CREATE_TOKENS, acls.USER, owner):
        raise DelegationTokenAuthorizationError("Delegation Token authorization failed.")
    broker.check_controller_is_reachable()
    tokens = broker.cluster.delegation_tokens
    renewers = [f"{renewer.principal_type}:{renewer.principal_name}" for renewer in body.renewers]
    token = tokens.create(owner, requester, renewers, body.max_lifetime_ms)
    owner_type, _, owner_name = owner.partition(":")
    response = CreateDelegationTokenResponse(
        principal_type=owner_type,
        principal_name=owner_name,
        issue_timestamp_ms=token.issue_ms,
        expiry_timestamp_ms=token.expiry_ms,
        max_timestamp_ms=token.max_ms,
        token_id=token.token_id,
        hmac=tokens.hmac(token.token_id),
    )
    if request.api_version >= _REQUESTERS_FROM:
        kind, _, name = requester.partition(":")
        response.token_requester_principal_type, response.token_requester_principal_name = kind, name
    request.respond(response)


def error_response(
    body: CreateDelegationTokenRequest,  # noqa: ARG001 - as all handlers
    code: int,
    message: str | None = None,  # noqa: ARG001 - no field for it
) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(error_code=code)
