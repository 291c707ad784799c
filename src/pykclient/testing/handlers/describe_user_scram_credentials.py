"""DescribeUserScramCredentials: which users have credentials for which mechanisms (KIP-554)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from pykclient.errors import DuplicateResourceError, ResourceNotFoundError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from pykclient.testing import acls
from pykclient.testing.handlers.alter_user_scram_credentials import MECHANISM_NAMES

if TYPE_CHECKING:
    from pykclient.network.authenticator.scram_formatter import ScramCredential
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY: Final = ApiKeys.DESCRIBE_USER_SCRAM_CREDENTIALS
VERSIONS: Final = (0, 0)

_NUMBERS: Final = {name: number for number, name in MECHANISM_NAMES.items()}

_Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult


def handle(broker: Broker, request: Request) -> None:
    body = cast(DescribeUserScramCredentialsRequest, request.body)
    broker.auth.check_cluster(request, acls.DESCRIBE)
    known = broker.cluster.config.credentials.scram_users()
    asked = list(known) if not body.users else [user.name for user in body.users]
    results = []
    for user in dict.fromkeys(asked):
        if asked.count(user) > 1:
            results.append(_failed(user, DuplicateResourceError.code, "Cannot describe SCRAM credentials twice"))
        elif user not in known:
            results.append(_failed(user, ResourceNotFoundError.code, "Attempt to describe a user that does not exist"))
        else:
            results.append(_Result(user=user, credential_infos=_infos(known[user])))
    request.respond(DescribeUserScramCredentialsResponse(results=results))


def _infos(credentials: dict[str, ScramCredential]) -> list[DescribeUserScramCredentialsResponse.CredentialInfo]:
    return [
        DescribeUserScramCredentialsResponse.CredentialInfo(
            mechanism=_NUMBERS[mechanism], iterations=credential.iterations
        )
        for mechanism, credential in sorted(credentials.items())
    ]


def _failed(user: str, code: int, message: str) -> _Result:
    return _Result(user=user, error_code=code, error_message=message)


def error_response(
    body: DescribeUserScramCredentialsRequest,  # noqa: ARG001 - as all handlers
    code: int,
    message: str | None = None,
) -> DescribeUserScramCredentialsResponse:
    return DescribeUserScramCredentialsResponse(error_code=code, error_message=message)
