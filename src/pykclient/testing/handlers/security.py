"""Authentication and access: SASL, SCRAM credentials, delegation tokens and ACLs."""

from __future__ import annotations

from typing import Final

from pykclient import errors
from pykclient.network.authenticator import scram
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from pykclient.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from pykclient.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from pykclient.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from pykclient.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from pykclient.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from pykclient.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from pykclient.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from pykclient.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from pykclient.testing import acls
from pykclient.testing.broker import Broker
from pykclient.testing.delegation_tokens import DelegationToken
from pykclient.testing.handlers import serves
from pykclient.testing.inter_broker_requests import grouped
from pykclient.testing.request_channel import Request
from pykclient.testing.security import UserCredentials

# --- SaslHandshake ---------------------------------------------------------------------------------------------------


@serves(ApiKeys.SASL_HANDSHAKE, (0, 1))
def handle_sasl_handshake(broker: Broker, request: Request, body: object) -> None:
    raise errors.IllegalSaslStateError("SaslHandshake request received on a connection that does not authenticate now")


# --- SaslAuthenticate ------------------------------------------------------------------------------------------------


@serves(ApiKeys.SASL_AUTHENTICATE, (0, 2))
def handle_sasl_authenticate(broker: Broker, request: Request, body: object) -> None:
    raise errors.IllegalSaslStateError(
        "SaslAuthenticate request received on a connection that does not authenticate now"
    )


# --- AlterUserScramCredentials ---------------------------------------------------------------------------------------

#: The mechanisms by their numbers in the protocol.
MECHANISM_NAMES: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}

#: The most iterations that brokers accept.
_MAX_ITERATIONS: Final = 16_384

_Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion


_Change = _Deletion | AlterUserScramCredentialsRequest.ScramCredentialUpsertion

_AlterUserScramCredentialsResult = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


def refuse_alter_user_scram_credentials(
    body: AlterUserScramCredentialsRequest, code: int, message: str | None = None
) -> AlterUserScramCredentialsResponse:
    users = dict.fromkeys(change.name for change in _changes(body))
    return AlterUserScramCredentialsResponse(
        results=[_AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message) for user in users]
    )


@serves(ApiKeys.ALTER_USER_SCRAM_CREDENTIALS, (0, 0), refuse=refuse_alter_user_scram_credentials)
def handle_alter_user_scram_credentials(
    broker: Broker, request: Request, body: AlterUserScramCredentialsRequest
) -> None:
    """Change each user as a whole: either all changes to it are made, or none."""
    broker.auth.check_cluster(request, acls.ALTER)
    results = []
    for user, of_user in grouped((change.name, change) for change in _changes(body)).items():
        try:
            _alter(broker.cluster.config.credentials, user, of_user)
            results.append(_AlterUserScramCredentialsResult(user=user))
        except errors.BrokerError as error:
            results.append(_AlterUserScramCredentialsResult(user=user, error_code=error.code, error_message=str(error)))
    request.respond(AlterUserScramCredentialsResponse(results=results))


def _changes(body: AlterUserScramCredentialsRequest) -> list[_Change]:
    return [*body.deletions, *body.upsertions]


def _alter(credentials: UserCredentials, user: str, changes: list[_Change]) -> None:
    if not user:
        raise errors.UnacceptableCredentialError("Username must not be empty")
    if len({change.mechanism for change in changes}) < len(changes):
        raise errors.DuplicateResourceError("A user credential cannot be altered twice in the same request")
    for change in changes:
        mechanism = MECHANISM_NAMES.get(change.mechanism)
        if mechanism is None:
            raise errors.UnsupportedSaslMechanismError("Unknown SCRAM mechanism")
        if isinstance(change, _Deletion):
            if credentials.scram(user, mechanism) is None:
                raise errors.ResourceNotFoundError("Attempt to delete a user credential that does not exist")
        elif change.iterations < scram.MIN_ITERATIONS:
            raise errors.UnacceptableCredentialError("Too few iterations")
        elif change.iterations > _MAX_ITERATIONS:
            raise errors.UnacceptableCredentialError("Too many iterations")
    for change in changes:
        mechanism = MECHANISM_NAMES[change.mechanism]
        if isinstance(change, _Deletion):
            credentials.delete_scram(user, mechanism)
        else:
            kept = scram.credential(mechanism, change.salted_password, change.salt, change.iterations)
            credentials.set_scram(user, mechanism, kept)


# --- DescribeUserScramCredentials ------------------------------------------------------------------------------------

_NUMBERS: Final = {name: number for number, name in MECHANISM_NAMES.items()}


@serves(ApiKeys.DESCRIBE_USER_SCRAM_CREDENTIALS, (0, 0))
def handle_describe_user_scram_credentials(
    broker: Broker, request: Request, body: DescribeUserScramCredentialsRequest
) -> None:
    broker.auth.check_cluster(request, acls.DESCRIBE)
    known = broker.cluster.config.credentials.scram_users()
    asked = list(known) if not body.users else [user.name for user in body.users]
    results = []
    for user in dict.fromkeys(asked):
        result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult(user=user)
        if asked.count(user) > 1:
            result.error_code = errors.DuplicateResourceError.code
            result.error_message = "Cannot describe SCRAM credentials twice"
        elif user not in known:
            result.error_code = errors.ResourceNotFoundError.code
            result.error_message = "Attempt to describe a user that does not exist"
        else:
            result.credential_infos = [
                DescribeUserScramCredentialsResponse.CredentialInfo(
                    mechanism=_NUMBERS[mechanism], iterations=credential.iterations
                )
                for mechanism, credential in sorted(known[user].items())
            ]
        results.append(result)
    request.respond(DescribeUserScramCredentialsResponse(results=results))


# --- CreateDelegationToken -------------------------------------------------------------------------------------------

#: From this version on, responses tell who asked for the token (KIP-373).
_REQUESTERS_FROM: Final = 3


@serves(ApiKeys.CREATE_DELEGATION_TOKEN, (0, 3))
def handle_create_delegation_token(broker: Broker, request: Request, body: CreateDelegationTokenRequest) -> None:
    requester = owner = request.principal
    if body.owner_principal_name:
        owner = f"{body.owner_principal_type}:{body.owner_principal_name}"
    broker.auth.check_token_request(request)
    if owner != requester and not broker.auth.authorize(request, acls.CREATE_TOKENS, acls.USER, owner):
        raise errors.DelegationTokenAuthorizationError("Delegation Token authorization failed.")
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


# --- RenewDelegationToken, ExpireDelegationToken ---------------------------------------------------------------------

#: In place of a time.
_NEVER: Final = -1


@serves(ApiKeys.RENEW_DELEGATION_TOKEN, (0, 2), expiry_timestamp_ms=_NEVER)
@serves(ApiKeys.EXPIRE_DELEGATION_TOKEN, (0, 2), expiry_timestamp_ms=_NEVER)
def handle_renew_or_expire_delegation_token(
    broker: Broker, request: Request, body: RenewDelegationTokenRequest | ExpireDelegationTokenRequest
) -> None:
    broker.auth.check_token_request(request)
    broker.check_controller_is_reachable()
    tokens, hmac = broker.cluster.delegation_tokens, bytes(body.hmac)
    if isinstance(body, RenewDelegationTokenRequest):
        expiry_ms = tokens.renew(hmac, request.principal, body.renew_period_ms)
        request.respond(RenewDelegationTokenResponse(expiry_timestamp_ms=expiry_ms))
    else:
        expiry_ms = tokens.expire(hmac, request.principal, body.expiry_time_period_ms)
        request.respond(ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry_ms))


# --- DescribeDelegationToken -----------------------------------------------------------------------------------------

_Described = DescribeDelegationTokenResponse.DescribedDelegationToken

_Renewer = DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer


@serves(ApiKeys.DESCRIBE_DELEGATION_TOKEN, (0, 3))
def handle_describe_delegation_token(broker: Broker, request: Request, body: DescribeDelegationTokenRequest) -> None:
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


# --- DescribeAcls ----------------------------------------------------------------------------------------------------


@serves(ApiKeys.DESCRIBE_ACLS, (0, 3))
def handle_describe_acls(broker: Broker, request: Request, body: DescribeAclsRequest) -> None:
    """Respond with the ACLs, grouped by resource."""
    auth = broker.auth
    auth.check_cluster(request, acls.DESCRIBE)
    if auth.authorizer is None:
        raise errors.SecurityDisabledError("No Authorizer is configured on the broker")
    found = grouped(
        (
            (acl.resource_type, acl.resource_name, acl.pattern_type),
            DescribeAclsResponse.AclDescription(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission_type
            ),
        )
        for acl in auth.authorizer.matching(_filter(body))
    )
    resources = [
        DescribeAclsResponse.DescribeAclsResource(
            resource_type=resource_type, resource_name=name, pattern_type=pattern_type, acls=described
        )
        for (resource_type, name, pattern_type), described in found.items()
    ]
    request.respond(DescribeAclsResponse(error_message=None, resources=resources))


# --- CreateAcls ------------------------------------------------------------------------------------------------------


_CreateAclsResult = CreateAclsResponse.AclCreationResult


@serves(ApiKeys.CREATE_ACLS, (0, 3))
def handle_create_acls(broker: Broker, request: Request, body: CreateAclsRequest) -> None:
    """Respond with the result of each. An ACL that exists already is a success."""
    auth = broker.auth
    auth.check_cluster(request, acls.ALTER)
    if auth.authorizer is None:
        raise errors.SecurityDisabledError("No Authorizer is configured.")
    broker.check_controller_is_reachable()
    results = []
    for creation in body.creations:
        try:
            broker.cluster.acls.add(_binding(creation))
            results.append(_CreateAclsResult(error_message=None))
        except errors.BrokerError as error:
            results.append(_CreateAclsResult(error_code=error.code, error_message=str(error)))
    request.respond(CreateAclsResponse(results=results))


def _binding(creation: CreateAclsRequest.AclCreation) -> acls.AclBinding:
    """Return the ACL.

    Raises:
        InvalidRequestError: a part of it is not valid.
    """
    resource_type, name = creation.resource_type, creation.resource_name
    if resource_type == acls.CLUSTER and name != acls.CLUSTER_NAME:
        raise errors.InvalidRequestError(f"The only valid name for the CLUSTER resource is {acls.CLUSTER_NAME}")
    if not name:
        raise errors.InvalidRequestError("Invalid empty resource name")
    if resource_type not in acls.SUPPORTED_OPERATIONS:
        raise errors.InvalidRequestError(f"Invalid resourceType {resource_type}")
    if creation.resource_pattern_type not in (acls.LITERAL, acls.PREFIXED):
        raise errors.InvalidRequestError(f"Invalid patternType {creation.resource_pattern_type}")
    if creation.operation not in acls.OPERATIONS.values():
        raise errors.InvalidRequestError(f"Invalid operation {creation.operation}")
    if creation.permission_type not in (acls.ALLOW, acls.DENY):
        raise errors.InvalidRequestError(f"Invalid permissionType {creation.permission_type}")
    try:
        acls.check_principal(creation.principal)
    except errors.ConfigError as error:
        raise errors.InvalidRequestError(str(error)) from None
    return acls.AclBinding(
        resource_type,
        name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


# --- DeleteAcls ------------------------------------------------------------------------------------------------------

_DeleteAclsResult = DeleteAclsResponse.DeleteAclsFilterResult


@serves(ApiKeys.DELETE_ACLS, (0, 3))
def handle_delete_acls(broker: Broker, request: Request, body: DeleteAclsRequest) -> None:
    """Respond with the removed ACLs of each filter. An ACL is reported for each filter that matches it."""
    auth = broker.auth
    auth.check_cluster(request, acls.ALTER)
    authorizer = auth.authorizer
    if authorizer is None:
        raise errors.SecurityDisabledError("No Authorizer is configured.")
    broker.check_controller_is_reachable()
    matching = [authorizer.matching(_filter(wanted)) for wanted in body.filters]
    for acl in {acl for found in matching for acl in found}:
        broker.cluster.acls.remove(acl)
    described = DeleteAclsResponse.DeleteAclsMatchingAcl
    results = [
        _DeleteAclsResult(
            error_message=None, matching_acls=[described(error_message=None, **acl._asdict()) for acl in found]
        )
        for found in matching
    ]
    request.respond(DeleteAclsResponse(filter_results=results))


def _filter(wanted: DescribeAclsRequest | DeleteAclsRequest.DeleteAclsFilter) -> acls.AclBindingFilter:
    return acls.AclBindingFilter(
        wanted.resource_type_filter,
        wanted.resource_name_filter,
        wanted.pattern_type_filter,
        wanted.principal_filter,
        wanted.host_filter,
        wanted.operation,
        wanted.permission_type,
    )
