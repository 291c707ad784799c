"""DescribeConfigs: the settings of topics and brokers, with their sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pykclient.errors import BrokerError, NotControllerError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from pykclient.testing import acls
from pykclient.testing.controller.config_manager import GROUP, TOPIC, ConfigResource, select

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.DESCRIBE_CONFIGS
VERSIONS = (0, 4)

_FIRST_VERSION_WITH_TYPES = 3

Result = DescribeConfigsResponse.DescribeConfigsResult


def handle(broker: Broker, request: Request) -> None:
    """Respond once the broker has contact with the coordination service, which stores the settings."""
    body = cast(DescribeConfigsRequest, request.body)

    def process() -> None:
        results = [_describe(broker, request, resource, body) for resource in body.resources]
        request.respond(DescribeConfigsResponse(results=results))

    broker.controller.put(
        "DescribeConfigs", process, lambda: request.respond(error_response(body, NotControllerError.code))
    )


def _describe(
    broker: Broker,
    request: Request,
    resource: DescribeConfigsRequest.DescribeConfigsResource,
    body: DescribeConfigsRequest,
) -> Result:
    result = Result(resource_type=resource.resource_type, resource_name=resource.resource_name)
    try:
        check_resource(broker, request, acls.DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name)
        entries = broker.controller.config_manager.describe(
            ConfigResource(resource.resource_type, resource.resource_name), documentation=body.include_documentation
        )
    except BrokerError as error:
        result.error_code = error.code
        result.error_message = str(error)
        return result
    result.configs = select(entries, resource.configuration_keys)
    for entry in result.configs:
        if not body.include_synonyms:
            entry.synonyms = []
        if request.api_version < _FIRST_VERSION_WITH_TYPES:
            entry.config_type = 0
            entry.documentation = ""
    return result


def check_resource(broker: Broker, request: Request, operation: int, resource_type: int, name: str) -> None:
    """Check that a client may describe or alter the settings of a resource.

    Raises:
        AuthorizationError: it may not.
    """
    if resource_type == TOPIC:
        broker.auth.check_topic(request, operation, name)
    elif resource_type == GROUP:
        broker.auth.check_group(request, operation, name)
    else:
        broker.auth.check_cluster(request, operation)


def error_response(body: DescribeConfigsRequest, code: int, message: str | None = None) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[
            Result(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in body.resources
        ]
    )
