"""DescribeAcls: the access control lists that match a filter (KIP-140)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from pykclient.errors import SecurityDisabledError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from pykclient.testing import acls

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY: Final = ApiKeys.DESCRIBE_ACLS
VERSIONS: Final = (0, 3)

Response = DescribeAclsResponse


def handle(broker: Broker, request: Request) -> None:
    """Respond with the ACLs, grouped by resource."""
    body = cast(DescribeAclsRequest, request.body)
    auth = broker.auth
    auth.check_cluster(request, acls.DESCRIBE)
    if auth.authorizer is None:
        raise SecurityDisabledError("No Authorizer is configured on the broker")
    wanted = acls.AclBindingFilter(
        body.resource_type_filter,
        body.resource_name_filter,
        body.pattern_type_filter,
        body.principal_filter,
        body.host_filter,
        body.operation,
        body.permission_type,
    )
    resources: dict[tuple[int, str, int], Response.DescribeAclsResource] = {}
    for acl in auth.authorizer.acls(wanted):
        key = acl.resource_type, acl.resource_name, acl.pattern_type
        if key not in resources:
            resources[key] = Response.DescribeAclsResource(
                resource_type=acl.resource_type, resource_name=acl.resource_name, pattern_type=acl.pattern_type
            )
        resources[key].acls.append(
            Response.AclDescription(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
            )
        )
    request.respond(Response(error_message=None, resources=list(resources.values())))


def error_response(
    body: DescribeAclsRequest,  # noqa: ARG001 - as all handlers
    code: int,
    message: str | None = None,
) -> DescribeAclsResponse:
    return Response(error_code=code, error_message=message)
