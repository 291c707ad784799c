"""AlterUserScramCredentials: users for SCRAM, without a restart (KIP-554)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from pykclient.errors import (
    BrokerError,
    DuplicateResourceError,
    ResourceNotFoundError,
    UnacceptableCredentialError,
    UnsupportedSaslMechanismError,
)
from pykclient.network.authenticator import scram_formatter
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from pykclient.testing import acls
from pykclient.testing.security import UserCredentials

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY: Final = ApiKeys.ALTER_USER_SCRAM_CREDENTIALS
VERSIONS: Final = (0, 0)

#: The mechanisms by their numbers in the protocol.
MECHANISM_NAMES: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}

#: The most iterations that brokers accept.
_MAX_ITERATIONS: Final = 16_384

_Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
_Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
_Change = _Deletion | _Upsertion
_Result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


def handle(broker: Broker, request: Request) -> None:
    """Change each user as a whole: either all changes to it are made, or none."""
    body = cast(AlterUserScramCredentialsRequest, request.body)
    broker.auth.check_cluster(request, acls.ALTER)
    changes: dict[str, list[_Change]] = {}
    for change in _changes(body):
        changes.setdefault(change.name, []).append(change)
    results = []
    for user, of_user in changes.items():
        try:
            _alter(broker.cluster.config.credentials, user, of_user)
            results.append(_Result(user=user))
        except BrokerError as error:
            results.append(_Result(user=user, error_code=error.code, error_message=str(error)))
    request.respond(AlterUserScramCredentialsResponse(results=results))


def _changes(body: AlterUserScramCredentialsRequest) -> list[_Change]:
    return [*body.deletions, *body.upsertions]


def _alter(credentials: UserCredentials, user: str, changes: list[_Change]) -> None:
    if not user:
        raise UnacceptableCredentialError("Username must not be empty")
    if len({change.mechanism for change in changes}) < len(changes):
        raise DuplicateResourceError("A user credential cannot be altered twice in the same request")
    for change in changes:
        mechanism = MECHANISM_NAMES.get(change.mechanism)
        if mechanism is None:
            raise UnsupportedSaslMechanismError("Unknown SCRAM mechanism")
        if isinstance(change, _Deletion):
            if credentials.scram(user, mechanism) is None:
                raise ResourceNotFoundError("Attempt to delete a user credential that does not exist")
        elif change.iterations < scram_formatter.MIN_ITERATIONS:
            raise UnacceptableCredentialError("Too few iterations")
        elif change.iterations > _MAX_ITERATIONS:
            raise UnacceptableCredentialError("Too many iterations")
    for change in changes:
        mechanism = MECHANISM_NAMES[change.mechanism]
        if isinstance(change, _Deletion):
            credentials.delete_scram(user, mechanism)
        else:
            kept = scram_formatter.credential(mechanism, change.salted_password, change.salt, change.iterations)
            credentials.set_scram(user, mechanism, kept)


def error_response(
    body: AlterUserScramCredentialsRequest, code: int, message: str | None = None
) -> AlterUserScramCredentialsResponse:
    users = dict.fromkeys(change.name for change in _changes(body))
    return AlterUserScramCredentialsResponse(
        results=[_Result(user=user, error_code=code, error_message=message) for user in users]
    )
