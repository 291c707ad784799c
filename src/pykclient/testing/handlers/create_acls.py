"""CreateAcls: add access control lists; all brokers share them (KIP-140)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from pykclient.errors import BrokerError, ConfigError, InvalidRequestError, SecurityDisabledError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from pykclient.testing import acls

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY: Final = ApiKeys.CREATE_ACLS
VERSIONS: Final = (0, 3)

_Creation = CreateAclsRequest.AclCreation
_Result = CreateAclsResponse.AclCreationResult


def handle(broker: Broker, request: Request) -> None:
    """Respond with the result of each. An ACL that exists already is a success."""
    body = cast(CreateAclsRequest, request.body)
    auth = broker.auth
    auth.check_cluster(request, acls.ALTER)
    if auth.authorizer is None:
        raise SecurityDisabledError("No Authorizer is configured.")
    broker.check_controller_is_reachable()
    results = []
    for creation in body.creations:
        try:
            broker.cluster.acls.add(_binding(creation))
            results.append(_Result(error_message=None))
        except BrokerError as error:
            results.append(_Result(error_code=error.code, error_message=str(error)))
    request.respond(CreateAclsResponse(results=results))


def _binding(creation: _Creation) -> acls.AclBinding:
    """Return the ACL.

    Raises:
        InvalidRequestError: a part of it is not valid.
    """
    resource_type, name = creation.resource_type, creation.resource_name
    if resource_type == acls.CLUSTER and name != acls.CLUSTER_NAME:
        raise InvalidRequestError(f"The only valid name for the CLUSTER resource is {acls.CLUSTER_NAME}")
    if not name:
        raise InvalidRequestError("Invalid empty resource name")
    if resource_type not in acls.SUPPORTED_OPERATIONS:
        raise InvalidRequestError(f"Invalid resourceType {resource_type}")
    if creation.resource_pattern_type not in (acls.LITERAL, acls.PREFIXED):
        raise InvalidRequestError(f"Invalid patternType {creation.resource_pattern_type}")
    if creation.operation not in acls.OPERATIONS.values():
        raise InvalidRequestError(f"Invalid operation {creation.operation}")
    if creation.permission_type not in (acls.ALLOW, acls.DENY):
        raise InvalidRequestError(f"Invalid permissionType {creation.permission_type}")
    try:
        acls.check_principal(creation.principal)
    except ConfigError as error:
        raise InvalidRequestError(str(error)) from None
    return acls.AclBinding(
        resource_type,
        name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def error_response(body: CreateAclsRequest, code: int, message: str | None = None) -> CreateAclsResponse:
    return CreateAclsResponse(results=[_Result(error_code=code, error_message=message) for _ in body.creations])
