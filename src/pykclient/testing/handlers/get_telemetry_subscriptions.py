"""GetTelemetrySubscriptions: the metrics that the receiver wants (KIP-714)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pykclient.errors import UnsupportedVersionError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from pykclient.testing.telemetry import ACCEPTED, MAX_BYTES

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.GET_TELEMETRY_SUBSCRIPTIONS
VERSIONS = GetTelemetrySubscriptionsRequest.VERSIONS


def handle(broker: Broker, request: Request) -> None:
    """Respond with the subscription. Without a receiver, the API is not offered."""
    body = cast(GetTelemetrySubscriptionsRequest, request.body)
    receiver = broker.cluster.telemetry
    if receiver is None:
        raise UnsupportedVersionError
    request.respond(
        GetTelemetrySubscriptionsResponse(
            client_instance_id=receiver.new_instance(body.client_instance_id),
            subscription_id=receiver.subscription_id,
            accepted_compression_types=[codec.id for codec in ACCEPTED],
            push_interval_ms=receiver.interval_ms,
            telemetry_max_bytes=MAX_BYTES,
            delta_temporality=receiver.is_delta,
            requested_metrics=receiver.prefixes,
        )
    )


def error_response(
    body: GetTelemetrySubscriptionsRequest,  # noqa: ARG001
    code: int,
    message: str | None = None,  # noqa: ARG001
) -> GetTelemetrySubscriptionsResponse:
    return GetTelemetrySubscriptionsResponse(error_code=code)
