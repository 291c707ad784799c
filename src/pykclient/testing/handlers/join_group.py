"""JoinGroup: become a member, or stay one during a rebalance."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from pykclient.testing import acls
from pykclient.testing.group.group_join import JoinAttempt

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.JOIN_GROUP
VERSIONS = (0, 9)

#: From this version on, an error response has no protocol, instead of one with an empty name.
_NULLABLE_PROTOCOL = 7


def handle(broker: Broker, request: Request) -> None:
    """Respond once all members have joined, or the time for that is over."""
    body = cast(JoinGroupRequest, request.body)
    broker.auth.check_group(request, acls.READ, body.group_id)

    def respond(response: JoinGroupResponse) -> None:
        if response.error_code and request.api_version >= _NULLABLE_PROTOCOL:
            response.protocol_name = None
        request.respond(response)

    # Java's notation of addresses.
    client_host = f"/{request.client_host}"
    attempt = JoinAttempt(body, request.api_version, request.client_id or "", client_host, respond)
    broker.group_coordinator.join_group(attempt)


def error_response(body: JoinGroupRequest, code: int, message: str | None = None) -> JoinGroupResponse:  # noqa: ARG001
    return JoinGroupResponse(member_id=body.member_id, error_code=code)
