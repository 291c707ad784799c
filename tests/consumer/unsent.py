"""Answers to the requests of a manager, without a network."""

from __future__ import annotations

from typing import Any

from pykclient.consumer.application_driver import UnsentRequest
from pykclient.network.client_request import ClientResponse


def message(request: UnsentRequest) -> Any:
    """Return the request as it would be sent, in its latest version."""
    return request.builder.build(request.builder.latest_allowed_version)


def respond(request: UnsentRequest, body: Any, *, received_ms: int = 0) -> None:
    """Complete the request with a response of its latest version."""
    node_id = "-1" if request.node is None else request.node.id_string
    builder = request.builder
    request.future.complete(
        ClientResponse(
            builder.api_key, builder.latest_allowed_version, 0, None, node_id, 0, received_ms, response_body=body
        )
    )
