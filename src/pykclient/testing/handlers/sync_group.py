"""SyncGroup: get the member's assignment; the leader's request contains the assignments of all."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pykclient.errors import InconsistentGroupProtocolError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from pykclient.testing import acls

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.SYNC_GROUP
VERSIONS = (0, 5)

#: From this version on, a member names its protocol (KIP-559).
_NAMES_PROTOCOL = 5


def handle(broker: Broker, request: Request) -> None:
    """Respond once the leader's assignment is stored."""
    body = cast(SyncGroupRequest, request.body)
    broker.auth.check_group(request, acls.READ, body.group_id)
    if request.api_version >= _NAMES_PROTOCOL and (body.protocol_type is None or body.protocol_name is None):
        raise InconsistentGroupProtocolError("protocol type and name belong into a SyncGroup request")
    broker.group_coordinator.sync_group(body, request.respond)


def error_response(body: SyncGroupRequest, code: int, message: str | None = None) -> SyncGroupResponse:  # noqa: ARG001
    return SyncGroupResponse(error_code=code)
