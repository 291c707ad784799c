"""DeleteGroups: delete empty groups with all their offsets (KIP-229)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from pykclient.errors import BrokerError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from pykclient.testing import acls

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.DELETE_GROUPS
VERSIONS = (0, 2)

Result = DeleteGroupsResponse.DeletableGroupResult


def handle(broker: Broker, request: Request) -> None:
    """Respond once the tombstones are on all in-sync replicas."""
    body = cast(DeleteGroupsRequest, request.body)
    # A name that occurs twice gets one result.
    error_codes: dict[str, int | None] = dict.fromkeys(body.groups_names)

    def deleted(group_id: str, error_code: int) -> None:
        error_codes[group_id] = error_code
        if None not in error_codes.values():
            request.respond(
                DeleteGroupsResponse(
                    results=[Result(group_id=name, error_code=code or 0) for name, code in error_codes.items()]
                )
            )

    if not error_codes:
        request.respond(DeleteGroupsResponse())
    for group_id in list(error_codes):
        try:
            broker.auth.check_group(request, acls.DELETE, group_id)
            broker.group_coordinator.delete_group(group_id, partial(deleted, group_id))
        except BrokerError as error:
            deleted(group_id, error.code)


def error_response(body: DeleteGroupsRequest, code: int, message: str | None = None) -> DeleteGroupsResponse:  # noqa: ARG001
    return DeleteGroupsResponse(results=[Result(group_id=name, error_code=code) for name in body.groups_names])
