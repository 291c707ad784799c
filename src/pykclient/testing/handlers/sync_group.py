"""SyncGroup: hand in the assignment as the leader, and get one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.SYNC_GROUP
VERSIONS = (0, 5)


def handle(broker: Broker, request: Request) -> None:
    """Answered when the leader's assignment is stored."""
    broker.group_coordinator.sync_group(cast(SyncGroupRequest, request.body), request.respond)


def error_response(body: SyncGroupRequest, code: int, message: str | None = None) -> SyncGroupResponse:  # noqa: ARG001
    return SyncGroupResponse(error_code=code)
