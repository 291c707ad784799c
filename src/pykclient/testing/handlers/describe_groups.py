"""DescribeGroups: the state and members of classic groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pykclient.errors import BrokerError, GroupAuthorizationError, GroupIdNotFoundError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from pykclient.testing import acls
from pykclient.testing.group import group_state

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.group.group_metadata import GroupMetadata
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.DESCRIBE_GROUPS
VERSIONS = (0, 6)

#: Earlier versions describe a missing group as a dead one (KIP-1043).
_TELLS_MISSING_GROUP = 6

Described = DescribeGroupsResponse.DescribedGroup


def handle(broker: Broker, request: Request) -> None:
    """Respond immediately."""
    body = cast(DescribeGroupsRequest, request.body)
    groups = []
    for group_id in body.groups:
        if not broker.auth.authorize(request, acls.DESCRIBE, acls.GROUP, group_id):
            groups.append(Described(group_id=group_id, error_code=GroupAuthorizationError.code))
            continue
        described = _describe(broker, group_id, request.api_version)
        if body.include_authorized_operations and not described.error_code:
            described.authorized_operations = broker.auth.authorized_operations(request, acls.GROUP, group_id)
        groups.append(described)
    request.respond(DescribeGroupsResponse(groups=groups))


def _describe(broker: Broker, group_id: str, version: int) -> Described:
    dead = group_state.DEAD.name
    try:
        group = broker.group_coordinator.describe_group(group_id)
    except GroupIdNotFoundError as error:
        if version >= _TELLS_MISSING_GROUP:
            return Described(group_id=group_id, group_state=dead, error_code=error.code, error_message=str(error))
        return Described(group_id=group_id, group_state=dead)
    except BrokerError as error:
        return Described(group_id=group_id, error_code=error.code)
    # Members' metadata is shown only when the protocol is settled.
    protocol = group.protocol_name if group.state is group_state.STABLE else None
    return Described(
        group_id=group_id,
        group_state=group.state.name,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=_members(group, protocol),
    )


def _members(group: GroupMetadata, protocol: str | None) -> list[DescribeGroupsResponse.DescribedGroupMember]:
    return [
        DescribeGroupsResponse.DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=b"" if protocol is None else member.metadata(protocol),
            member_assignment=member.assignment,
        )
        for member in group.members.values()
    ]


def error_response(body: DescribeGroupsRequest, code: int, message: str | None = None) -> DescribeGroupsResponse:  # noqa: ARG001
    return DescribeGroupsResponse(groups=[Described(group_id=group_id, error_code=code) for group_id in body.groups])
