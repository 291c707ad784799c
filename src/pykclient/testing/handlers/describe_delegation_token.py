"""DescribeDelegationToken: the tokens that one owns, may renew, or may see (KIP-48)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from pykclient.testing import acls
from pykclient.testing.delegation_tokens import DelegationToken

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY: Final = ApiKeys.DESCRIBE_DELEGATION_TOKEN
VERSIONS: Final = (0, 3)

#: From this version on, responses tell who asked for the tokens (KIP-373).
_REQUESTERS_FROM: Final = 3

_Described = DescribeDelegationTokenResponse.DescribedDelegationToken
_Renewer = DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer


def handle(broker: Broker, request: Request) -> None:
    body = cast(DescribeDelegationTokenRequest, request.body)
    auth = broker.auth
    auth.check_token_request(request)
    tokens = broker.cluster.delegation_tokens
    tokens.check_enabled()
    owners = None
    if body.owners is not None:
        owners = [f"{owner.principal_type}:{owner.principal_name}" for owner in body.owners]

    def is_wanted(token: DelegationToken) -> bool:
        if owners is not None and not any(map(token.belongs_to, owners)):
            return False
        return (
            token.belongs_to(request.principal)
            or auth.authorize(request, acls.DESCRIBE, acls.DELEGATION_TOKEN, token.token_id)
            or auth.authorize(request, acls.DESCRIBE_TOKENS, acls.USER, token.owner)
        )

    described = [_described(token, tokens.hmac(token.token_id)) for token in tokens.tokens(is_wanted)]
    if request.api_version < _REQUESTERS_FROM:
        for each in described:
            each.token_requester_principal_type = each.token_requester_principal_name = ""
    request.respond(DescribeDelegationTokenResponse(tokens=described))


def _described(token: DelegationToken, hmac: bytes) -> _Described:
    owner_type, _, owner_name = token.owner.partition(":")
    requester_type, _, requester_name = token.requester.partition(":")
    renewers = [renewer.partition(":") for renewer in token.renewers]
    return _Described(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp=token.issue_ms,
        expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=hmac,
        renewers=[_Renewer(principal_type=kind, principal_name=name) for kind, _, name in renewers],
    )


def error_response(
    body: DescribeDelegationTokenRequest,  # noqa: ARG001 - as all handlers
    code: int,
    message: str | None = None,  # noqa: ARG001 - no field for it
) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=code)
