"""Configurations and quotas: describe and alter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from pykclient.errors import BrokerError, InvalidRequestError, UnsupportedVersionError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from pykclient.protocol.messages.alter_configs import AlterConfigsRequest
from pykclient.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from pykclient.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from pykclient.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from pykclient.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from pykclient.testing import acls
from pykclient.testing.broker import Broker
from pykclient.testing.controller.config_manager import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    SET,
    TOPIC,
    AlterConfigOp,
    ConfigResource,
    select,
)
from pykclient.testing.handlers import serves
from pykclient.testing.quotas import CLIENT_ID, USER, Entity, Quotas
from pykclient.testing.request_channel import Request

# --- DescribeConfigs -------------------------------------------------------------------------------------------------

_FIRST_VERSION_WITH_TYPES = 3

_DescribeConfigsResult = DescribeConfigsResponse.DescribeConfigsResult


@serves(ApiKeys.DESCRIBE_CONFIGS, (0, 4))
def handle_describe_configs(broker: Broker, request: Request, body: DescribeConfigsRequest) -> None:
    """Respond once the broker has contact with the coordination service, which stores the settings."""

    def process() -> None:
        results = [_describe(broker, request, resource, body) for resource in body.resources]
        request.respond(DescribeConfigsResponse(results=results))

    broker.controller.handle(request, process, on_any_broker=True)


def _describe(
    broker: Broker,
    request: Request,
    resource: DescribeConfigsRequest.DescribeConfigsResource,
    body: DescribeConfigsRequest,
) -> _DescribeConfigsResult:
    result = _DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
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


# --- AlterConfigs, IncrementalAlterConfigs ---------------------------------------------------------------------------


@serves(ApiKeys.ALTER_CONFIGS, AlterConfigsRequest.VERSIONS)
def handle_alter_configs(broker: Broker, request: Request, body: AlterConfigsRequest) -> None:
    """Respond once the settings are stored. Brokers learn of them a moment later."""
    _alter_resources(broker, request, body, lambda config: AlterConfigOp(config.name, SET, config.value))


@serves(ApiKeys.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest.VERSIONS)
def handle_incremental_alter_configs(broker: Broker, request: Request, body: IncrementalAlterConfigsRequest) -> None:
    """Respond once the settings are stored. Brokers learn of them a moment later."""
    _alter_resources(
        broker, request, body, lambda config: AlterConfigOp(config.name, config.config_operation, config.value)
    )


def _alter_resources(
    broker: Broker,
    request: Request,
    body: AlterConfigsRequest | IncrementalAlterConfigsRequest,
    operation: Callable[[Any], AlterConfigOp],
) -> None:
    response_class: Any = ApiKeys.message_class(body.API_KEY, request=False)
    replaces_all = isinstance(body, AlterConfigsRequest)
    manager = broker.controller.config_manager
    asked = Counter((each.resource_type, each.resource_name) for each in body.resources)

    def process() -> None:
        results = []
        for each in body.resources:
            resource = ConfigResource(each.resource_type, each.resource_name)
            result = response_class.AlterConfigsResourceResponse(
                resource_type=resource.type, resource_name=resource.name, error_message=None
            )
            try:
                check_resource(broker, request, acls.ALTER_CONFIGS, resource.type, resource.name)
                if asked[resource] > 1:
                    raise InvalidRequestError("Error due to duplicate config resources")
                manager.alter(
                    resource, [operation(config) for config in each.configs], replaces_all, body.validate_only
                )
            except BrokerError as error:
                result.error_code, result.error_message = error.code, str(error)
            results.append(result)
        request.respond(response_class(responses=results))

    broker.controller.handle(request, process, on_any_broker=True)


# --- ListConfigResources ---------------------------------------------------------------------------------------------

_SUPPORTED = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)


@serves(ApiKeys.LIST_CONFIG_RESOURCES, ListConfigResourcesRequest.VERSIONS)
def handle_list_config_resources(broker: Broker, request: Request, body: ListConfigResourcesRequest) -> None:
    """Respond with this broker's metadata. Version 0 is only for client metrics, of which there are none."""
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


# --- DescribeClientQuotas (KIP-546) ----------------------------------------------------------------------------------

#: The ways to match a component of the filter: a name, the default entity, or any.
_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2


@serves(ApiKeys.DESCRIBE_CLIENT_QUOTAS, (0, 1), entries=None)
def handle_describe_client_quotas(broker: Broker, request: Request, body: DescribeClientQuotasRequest) -> None:
    broker.auth.check_cluster(request, acls.DESCRIBE_CONFIGS)
    components: dict[str, DescribeClientQuotasRequest.ComponentData] = {}
    for component in body.components:
        if component.entity_type not in {CLIENT_ID, USER} or component.match_type not in {_EXACT, _DEFAULT, _SPECIFIED}:
            raise InvalidRequestError(
                f"entities here are {CLIENT_ID} and {USER}, and match types 0 to 2, not {component.entity_type!r} and "
                f"{component.match_type}"
            )
        if component.entity_type in components:
            raise InvalidRequestError(f"{component.entity_type} is in the filter twice")
        components[component.entity_type] = component
    entries = [
        _described_entry(entity, values)
        for entity, values in broker.quotas.entities.items()
        if _matches(dict(entity), components, body.strict)
    ]
    request.respond(DescribeClientQuotasResponse(entries=entries))


def _matches(
    entity: Mapping[str, str | None], components: Mapping[str, DescribeClientQuotasRequest.ComponentData], strict: bool
) -> bool:
    if strict and set(entity) != set(components):
        return False
    for entity_type, component in components.items():
        if entity_type not in entity:
            return False
        name = entity[entity_type]
        if component.match_type == _EXACT and (name is None or name != component.match):
            return False
        if component.match_type == _DEFAULT and name is not None:
            return False
    return True


def _described_entry(entity: Entity, values: Mapping[str, float]) -> DescribeClientQuotasResponse.EntryData:
    return DescribeClientQuotasResponse.EntryData(
        entity=[
            DescribeClientQuotasResponse.EntityData(entity_type=type, entity_name=name) for type, name in sorted(entity)
        ],
        values=[DescribeClientQuotasResponse.ValueData(key=key, value=value) for key, value in sorted(values.items())],
    )


# --- AlterClientQuotas (KIP-546) -------------------------------------------------------------------------------------


def refuse_alter_client_quotas(
    body: AlterClientQuotasRequest, code: int, message: str | None = None
) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(entries=[_altered_entry(entry, code, message) for entry in body.entries])


@serves(ApiKeys.ALTER_CLIENT_QUOTAS, (0, 1), refuse=refuse_alter_client_quotas)
def handle_alter_client_quotas(broker: Broker, request: Request, body: AlterClientQuotasRequest) -> None:
    broker.auth.check_cluster(request, acls.ALTER_CONFIGS)
    entries = []
    for entry in body.entries:
        try:
            _alter(broker.quotas, entry, body.validate_only)
        except BrokerError as error:
            entries.append(_altered_entry(entry, error.code, str(error)))
        else:
            entries.append(_altered_entry(entry, 0, None))
    request.respond(AlterClientQuotasResponse(entries=entries))


def _alter(quotas: Quotas, entry: AlterClientQuotasRequest.EntryData, validate_only: bool) -> None:
    entity = {part.entity_type: part.entity_name for part in entry.entity}
    changes = {op.key: None if op.remove else op.value for op in entry.ops}
    if len(entity) < len(entry.entity) or len(changes) < len(entry.ops):
        raise InvalidRequestError("a part of the entity or a quota is named twice")
    if validate_only:
        quotas.check(entity, changes)
    else:
        quotas.alter(entity, changes)


def _altered_entry(
    entry: AlterClientQuotasRequest.EntryData, code: int, message: str | None
) -> AlterClientQuotasResponse.EntryData:
    return AlterClientQuotasResponse.EntryData(
        error_code=code,
        error_message=message,
        entity=[
            AlterClientQuotasResponse.EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
            for part in entry.entity
        ],
    )
