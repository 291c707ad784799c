"""Requests to a broker from inside the process: the application's access to the cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.headers import RequestHeader
from pykclient.protocol.wire import Reader
from pykclient.testing.server.request_channel import Request

if TYPE_CHECKING:
    from pykclient.network.network_send import BytesLike
    from pykclient.protocol.message import Request as RequestMessage
    from pykclient.protocol.message import Response
    from pykclient.testing.broker import Broker

#: The client id of these requests.
CLIENT_ID = "embedded-cluster"


class LocalRequest:
    """A request without a connection, in its newest version, to which no fault applies.

    Thread: loop.
    """

    __slots__ = ("_on_response",)

    def __init__(self, broker: Broker, message: RequestMessage, on_response: Callable[[Response | None], None]) -> None:
        """Prepare the request. ``on_response`` gets the response, or None if the broker closes the connection."""
        self._on_response = on_response
        version = broker.apis.api_version_manager.latest_version(message.API_KEY)
        header = RequestHeader(message.API_KEY, version, 0, CLIENT_ID)
        name = f"local-{ApiKeys.name_of(message.API_KEY)}"
        request = Request(
            broker.apis.request_channel,
            self,
            header,
            Reader(b""),
            name,
            f"client:{CLIENT_ID}",
            broker.node.host,
            broker.loop.now_ms,
        )
        request.is_local = True
        request.body = message
        broker.apis.serve(request)

    def send_response(self, request: Request, buffers: list[BytesLike] | None, throttle_time_ms: int) -> None:  # noqa: ARG002
        """Deliver the response. The interface also passes it encoded."""
        self._on_response(request.record.response)

    def close_connection(self, request: Request) -> None:  # noqa: ARG002
        self._on_response(None)
