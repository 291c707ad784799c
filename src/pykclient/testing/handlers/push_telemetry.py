"""PushTelemetry: metrics of a client for the receiver (KIP-714)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pykclient.errors import UnsupportedVersionError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.PUSH_TELEMETRY
VERSIONS = PushTelemetryRequest.VERSIONS


def handle(broker: Broker, request: Request) -> None:
    """Pass the metrics to the receiver. Without one, the API is not offered."""
    body = cast(PushTelemetryRequest, request.body)
    receiver = broker.cluster.telemetry
    if receiver is None:
        raise UnsupportedVersionError
    receiver.push(
        request.header.client_id or "",
        body.client_instance_id,
        body.subscription_id,
        body.compression_type,
        bytes(body.metrics),
        is_last=body.terminating,
    )
    request.respond(PushTelemetryResponse())


def error_response(
    body: PushTelemetryRequest,  # noqa: ARG001
    code: int,
    message: str | None = None,  # noqa: ARG001
) -> PushTelemetryResponse:
    return PushTelemetryResponse(error_code=code)
