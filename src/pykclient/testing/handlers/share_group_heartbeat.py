"""ShareGroupHeartbeat: join, keep and leave a share group (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from pykclient.testing import acls

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.SHARE_GROUP_HEARTBEAT
VERSIONS = (1, 1)


def handle(broker: Broker, request: Request) -> None:
    """Respond when all that the response tells is in the log."""
    body = cast(ShareGroupHeartbeatRequest, request.body)
    auth = broker.auth
    auth.check_group(request, acls.READ, body.group_id)
    for topic in body.subscribed_topic_names or ():
        auth.check_topic(request, acls.DESCRIBE, topic)
    # Java's notation of addresses.
    client_host = f"/{request.client_host}"
    broker.group_coordinator.share_group_heartbeat(body, request.client_id or "", client_host, request.respond)


def error_response(
    body: ShareGroupHeartbeatRequest,  # noqa: ARG001 - as all handlers
    code: int,
    message: str | None = None,
) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=code, error_message=message)
