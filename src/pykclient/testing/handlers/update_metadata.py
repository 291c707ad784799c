"""UpdateMetadata: the controller's knowledge of brokers, topics and leaders, sent to every broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.UPDATE_METADATA
VERSIONS = (5, 8)
BROKER_ONLY = True


def handle(broker: Broker, request: Request) -> None:
    """Replace the broker's metadata.

    Requests of an old controller, those meant for the broker before a restart, and those that the controller's later
    requests have overtaken are rejected.
    """
    body = cast(UpdateMetadataRequest, request.body)
    broker.replica_manager.check_controller(body.controller_id, body.controller_epoch, body.broker_epoch)
    broker.replica_manager.check_order(body.controller_epoch, body.broker_epoch, request.header.correlation_id)
    broker.metadata_cache.update_metadata(body)
    request.respond(UpdateMetadataResponse())


def error_response(body: UpdateMetadataRequest, code: int, message: str | None = None) -> UpdateMetadataResponse:  # noqa: ARG001
    return UpdateMetadataResponse(error_code=code)
