"""AlterClientQuotas (KIP-546)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.errors import BrokerError, InvalidRequestError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from pykclient.testing import acls

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.quotas import Quotas
    from pykclient.testing.server.request_channel import Request

API_KEY: Final = ApiKeys.ALTER_CLIENT_QUOTAS
VERSIONS: Final = (0, 1)

_Response = AlterClientQuotasResponse


def handle(broker: Broker, request: Request) -> None:
    body = request.body
    assert isinstance(body, AlterClientQuotasRequest)
    broker.auth.check_cluster(request, acls.ALTER_CONFIGS)
    entries = []
    for entry in body.entries:
        try:
            _alter(broker.quotas, entry, body.validate_only)
        except BrokerError as error:
            entries.append(_entry(entry, error.code, str(error)))
        else:
            entries.append(_entry(entry, 0, None))
    request.respond(_Response(entries=entries))


def _alter(quotas: Quotas, entry: AlterClientQuotasRequest.EntryData, validate_only: bool) -> None:
    entity = {part.entity_type: part.entity_name for part in entry.entity}
    changes = {op.key: None if op.remove else op.value for op in entry.ops}
    if len(entity) < len(entry.entity) or len(changes) < len(entry.ops):
        raise InvalidRequestError("a part of the entity or a quota is named twice")
    if validate_only:
        quotas.check(entity, changes)
    else:
        quotas.alter(entity, changes)


def _entry(
    entry: AlterClientQuotasRequest.EntryData, code: int, message: str | None
) -> AlterClientQuotasResponse.EntryData:
    return _Response.EntryData(
        error_code=code,
        error_message=message,
        entity=[
            _Response.EntityData(entity_type=part.entity_type, entity_name=part.entity_name) for part in entry.entity
        ],
    )


def error_response(body: AlterClientQuotasRequest, code: int, message: str | None = None) -> AlterClientQuotasResponse:
    return _Response(entries=[_entry(entry, code, message) for entry in body.entries])
