"""ListGroups: the groups that this broker coordinates (KIP-518, KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from pykclient.testing import acls
from pykclient.testing.group.consumer_group import ConsumerGroup
from pykclient.testing.group.share_group import ShareGroup

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.group.group_metadata_manager import Group
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.LIST_GROUPS
VERSIONS = (0, 5)

_CLASSIC: Final = "classic"
_CONSUMER: Final = "consumer"
_SHARE: Final = "share"


def handle(broker: Broker, request: Request) -> None:
    """Respond immediately. An empty filter matches everything; filters ignore case."""
    body = cast(ListGroupsRequest, request.body)
    states = {state.lower() for state in body.states_filter}
    types = {type.lower() for type in body.types_filter}
    auth = broker.auth
    sees_all = auth.authorize(request, acls.DESCRIBE, acls.CLUSTER, acls.CLUSTER_NAME)
    groups = [
        ListGroupsResponse.ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            group_state=group.state.name,
            group_type=_type_of(group),
        )
        for group in broker.group_coordinator.list_groups()
        if (sees_all or auth.authorize(request, acls.DESCRIBE, acls.GROUP, group.group_id))
        and (not states or group.state.name.lower() in states)
        and (not types or _type_of(group) in types)
    ]
    request.respond(ListGroupsResponse(groups=groups))


def _type_of(group: Group) -> str:
    if isinstance(group, ShareGroup):
        return _SHARE
    return _CONSUMER if isinstance(group, ConsumerGroup) else _CLASSIC


def error_response(body: ListGroupsRequest, code: int, message: str | None = None) -> ListGroupsResponse:  # noqa: ARG001
    return ListGroupsResponse(error_code=code)
