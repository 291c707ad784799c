"""DescribeCluster: the live brokers and the controller (KIP-700)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from pykclient.errors import MismatchedEndpointTypeError, UnsupportedEndpointTypeError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from pykclient.testing.handlers.metadata import cluster_authorized_operations

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.DESCRIBE_CLUSTER
VERSIONS = DescribeClusterRequest.VERSIONS

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


def handle(broker: Broker, request: Request) -> None:
    """Respond with this broker's knowledge. Requests for a quorum's controllers are rejected."""
    body = cast(DescribeClusterRequest, request.body)
    if body.endpoint_type == _CONTROLLERS:
        raise MismatchedEndpointTypeError(
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        )
    if body.endpoint_type != _BROKERS:
        raise UnsupportedEndpointTypeError(f"Unsupported endpoint type {body.endpoint_type}")
    snapshot = broker.metadata_cache.snapshot
    response = DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=-1 if snapshot.controller_id is None else snapshot.controller_id,
        brokers=[
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=node.id, host=node.host, port=node.port, rack=node.rack
            )
            for node in map(request.advertised, snapshot.alive_brokers.values())
        ],
    )
    if body.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_authorized_operations(broker, request)
    request.respond(response)


def error_response(body: DescribeClusterRequest, code: int, message: str | None = None) -> DescribeClusterResponse:  # noqa: ARG001
    return DescribeClusterResponse(error_code=code, error_message=message)
