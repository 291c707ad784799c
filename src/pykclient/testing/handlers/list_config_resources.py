"""ListConfigResources: the resources that have settings (KIP-1142)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pykclient.errors import UnsupportedVersionError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from pykclient.testing import acls
from pykclient.testing.controller.config_manager import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.LIST_CONFIG_RESOURCES
VERSIONS = ListConfigResourcesRequest.VERSIONS

_SUPPORTED = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)


def handle(broker: Broker, request: Request) -> None:
    """Respond with this broker's knowledge. Version 0 is only for client metrics, of which there are none."""
    body = cast(ListConfigResourcesRequest, request.body)
    broker.auth.check_cluster(request, acls.DESCRIBE_CONFIGS)
    types = (CLIENT_METRICS,) if request.api_version == 0 else tuple(body.resource_types) or _SUPPORTED
    if not set(types) <= set(_SUPPORTED):
        raise UnsupportedVersionError
    request.respond(
        ListConfigResourcesResponse(
            config_resources=[
                ListConfigResourcesResponse.ConfigResource(resource_name=resource.name, resource_type=resource.type)
                for resource in broker.controller.config_manager.list_resources(types)
            ]
        )
    )


def error_response(
    body: ListConfigResourcesRequest,  # noqa: ARG001
    code: int,
    message: str | None = None,  # noqa: ARG001
) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(error_code=code)
