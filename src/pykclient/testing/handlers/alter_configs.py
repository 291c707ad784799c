"""AlterConfigs: replace all settings of a topic. IncrementalAlterConfigs is preferable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from pykclient.errors import BrokerError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from pykclient.testing import acls
from pykclient.testing.controller.config_manager import SET, AlterConfigOp, ConfigResource
from pykclient.testing.handlers.describe_configs import check_resource

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.ALTER_CONFIGS
VERSIONS = AlterConfigsRequest.VERSIONS

Result = AlterConfigsResponse.AlterConfigsResourceResponse


def handle(broker: Broker, request: Request) -> None:
    """Respond, from the controller, once the settings are stored. Brokers learn of them a moment later."""
    body = cast(AlterConfigsRequest, request.body)

    denied: list[tuple[ConfigResource, BrokerError | None]] = []
    resources = []
    for resource in body.resources:
        try:
            check_resource(broker, request, acls.ALTER_CONFIGS, resource.resource_type, resource.resource_name)
            resources.append(resource)
        except BrokerError as error:
            denied.append((ConfigResource(resource.resource_type, resource.resource_name), error))

    def respond(outcomes: Sequence[tuple[ConfigResource, BrokerError | None]]) -> None:
        request.respond(AlterConfigsResponse(responses=[_result(*outcome) for outcome in (*outcomes, *denied)]))

    changes = [
        (
            ConfigResource(resource.resource_type, resource.resource_name),
            [AlterConfigOp(config.name, SET, config.value) for config in resource.configs],
            True,
        )
        for resource in resources
    ]
    broker.controller.config_manager.alter(changes, body.validate_only, respond)


def _result(resource: ConfigResource, error: BrokerError | None) -> Result:
    return Result(
        resource_type=resource.type,
        resource_name=resource.name,
        error_code=0 if error is None else error.code,
        error_message=None if error is None else str(error),
    )


def error_response(body: AlterConfigsRequest, code: int, message: str | None = None) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[
            Result(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in body.resources
        ]
    )
