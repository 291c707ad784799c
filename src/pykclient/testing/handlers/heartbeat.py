"""Heartbeat: a member's sign of life, and its way to learn of a rebalance."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pykclient.testing import acls

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.HEARTBEAT
VERSIONS = (0, 4)


def handle(broker: Broker, request: Request) -> None:
    """Respond immediately."""
    body = cast(HeartbeatRequest, request.body)
    broker.auth.check_group(request, acls.READ, body.group_id)
    broker.group_coordinator.heartbeat(body)
    request.respond(HeartbeatResponse())


def error_response(body: HeartbeatRequest, code: int, message: str | None = None) -> HeartbeatResponse:  # noqa: ARG001
    return HeartbeatResponse(error_code=code)
