"""LeaveGroup: a member leaves, or an administrator removes several (KIP-345)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from pykclient.testing import acls

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.LEAVE_GROUP
VERSIONS = (0, 5)

#: From this version on, a request may have several members.
_BATCHED = 3


def handle(broker: Broker, request: Request) -> None:
    """Respond immediately."""
    body = cast(LeaveGroupRequest, request.body)
    broker.auth.check_group(request, acls.READ, body.group_id)
    if request.api_version >= _BATCHED:
        request.respond(LeaveGroupResponse(members=broker.group_coordinator.leave_group(body.group_id, body.members)))
        return
    leaving = LeaveGroupRequest.MemberIdentity(member_id=body.member_id)
    (left,) = broker.group_coordinator.leave_group(body.group_id, [leaving])
    request.respond(LeaveGroupResponse(error_code=left.error_code))


def error_response(body: LeaveGroupRequest, code: int, message: str | None = None) -> LeaveGroupResponse:  # noqa: ARG001
    return LeaveGroupResponse(error_code=code)
