"""DeleteShareGroupOffsets: let an empty share group forget how far it has come in topics (KIP-932)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from pykclient.errors import TopicAuthorizationError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from pykclient.protocol.wire import ZERO_UUID
from pykclient.testing import acls
from pykclient.testing.share.acknowledgements import check_enabled

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.DELETE_SHARE_GROUP_OFFSETS
VERSIONS = (0, 0)

_Topic = DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic


def handle(broker: Broker, request: Request) -> None:
    """Respond when the share coordinators have deleted the state."""
    body = cast(DeleteShareGroupOffsetsRequest, request.body)
    check_enabled(broker)
    broker.auth.check_group(request, acls.DELETE, body.group_id)
    names = [topic.topic_name for topic in body.topics]
    allowed = broker.auth.filter(request, acls.READ, acls.TOPIC, names)

    def deleted(codes: Mapping[str, int]) -> None:
        responses = []
        for name in names:
            code = codes.get(name, TopicAuthorizationError.code)
            topic_id = ZERO_UUID if code else broker.metadata_cache.topic_id(name)
            responses.append(_Topic(topic_name=name, topic_id=topic_id, error_code=code))
        request.respond(DeleteShareGroupOffsetsResponse(responses=responses))

    wanted = [name for name in names if name in allowed]
    broker.group_coordinator.delete_share_group_offsets(body.group_id, wanted, deleted)


def error_response(
    body: DeleteShareGroupOffsetsRequest,  # noqa: ARG001 - as all handlers
    code: int,
    message: str | None = None,
) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(error_code=code, error_message=message)
