"""DescribeClientQuotas (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pykclient.errors import InvalidRequestError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from pykclient.testing import acls
from pykclient.testing.server.quotas import CLIENT_ID, USER, Entity

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY: Final = ApiKeys.DESCRIBE_CLIENT_QUOTAS
VERSIONS: Final = (0, 1)

#: The ways to match a component of the filter: a name, the default entity, or any.
_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2

_Response = DescribeClientQuotasResponse


def handle(broker: Broker, request: Request) -> None:
    body = request.body
    assert isinstance(body, DescribeClientQuotasRequest)
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
        _entry(entity, values)
        for entity, values in broker.quotas.entities.items()
        if _matches(dict(entity), components, body.strict)
    ]
    request.respond(_Response(entries=entries))


def _matches(
    entity: Mapping[str, str | None],
    components: Mapping[str, DescribeClientQuotasRequest.ComponentData],
    strict: bool,
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


def _entry(entity: Entity, values: Mapping[str, float]) -> DescribeClientQuotasResponse.EntryData:
    return _Response.EntryData(
        entity=[_Response.EntityData(entity_type=type, entity_name=name) for type, name in sorted(entity)],
        values=[_Response.ValueData(key=key, value=value) for key, value in sorted(values.items())],
    )


def error_response(
    body: DescribeClientQuotasRequest,  # noqa: ARG001
    code: int,
    message: str | None = None,
) -> DescribeClientQuotasResponse:
    return _Response(error_code=code, error_message=message, entries=None)
