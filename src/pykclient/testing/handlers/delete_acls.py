"""DeleteAcls: remove the access control lists that match filters (KIP-140)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from pykclient.errors import SecurityDisabledError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from pykclient.testing import acls

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY: Final = ApiKeys.DELETE_ACLS
VERSIONS: Final = (0, 3)

_Result = DeleteAclsResponse.DeleteAclsFilterResult


def handle(broker: Broker, request: Request) -> None:
    """Respond with the removed ACLs of each filter. An ACL is reported for each filter that matches it."""
    body = cast(DeleteAclsRequest, request.body)
    auth = broker.auth
    auth.check_cluster(request, acls.ALTER)
    authorizer = auth.authorizer
    if authorizer is None:
        raise SecurityDisabledError("No Authorizer is configured.")
    broker.check_controller_is_reachable()
    matching = [authorizer.acls(_filter(wanted)) for wanted in body.filters]
    for acl in {acl for found in matching for acl in found}:
        broker.cluster.acls.remove(acl)
    results = [_Result(error_message=None, matching_acls=[_matching(acl) for acl in found]) for found in matching]
    request.respond(DeleteAclsResponse(filter_results=results))


def _filter(wanted: DeleteAclsRequest.DeleteAclsFilter) -> acls.AclBindingFilter:
    return acls.AclBindingFilter(
        wanted.resource_type_filter,
        wanted.resource_name_filter,
        wanted.pattern_type_filter,
        wanted.principal_filter,
        wanted.host_filter,
        wanted.operation,
        wanted.permission_type,
    )


def _matching(acl: acls.AclBinding) -> DeleteAclsResponse.DeleteAclsMatchingAcl:
    return DeleteAclsResponse.DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def error_response(body: DeleteAclsRequest, code: int, message: str | None = None) -> DeleteAclsResponse:
    return DeleteAclsResponse(filter_results=[_Result(error_code=code, error_message=message) for _ in body.filters])
