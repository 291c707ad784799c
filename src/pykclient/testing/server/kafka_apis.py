"""The dispatch of requests to handlers (Java: KafkaApis)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from pykclient.errors import BrokerError, RemoteProtocolError, UnknownServerError, UnsupportedVersionError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.headers import RequestHeader
from pykclient.protocol.message import Request as RequestMessage, Response
from pykclient.protocol.wire import BytesLike, Reader
from pykclient.testing.broker import Broker
from pykclient.testing.faults import Faults
from pykclient.testing.handlers import ApiVersionManager, handler
from pykclient.testing.handlers.cluster_metadata import unsupported_version_response
from pykclient.testing.request_channel import History, Request, RequestRecord


class KafkaApis:
    """Decodes a request, adds it to the history, applies faults, and calls the handler.

    An exception from a handler becomes a response. A BrokerError gives its code. Anything else is a bug in the cluster:
    it is logged, kept in the loop's ``failure``, and answered with UNKNOWN_SERVER_ERROR. A request that cannot be
    decoded closes its connection. Thread: loop.
    """

    def __init__(self, broker: Broker, faults: Faults, history: History) -> None:
        self._broker = broker
        self._log = broker.log_context.logger(__name__)
        self._history = history
        self._faults = faults
        self._loop = broker.loop
        self._versions = ApiVersionManager.of(broker)

    def handle(self, request: Request) -> None:
        """Handle a request that has arrived."""
        header = request.header
        api_key, version = header.api_key, header.api_version
        request_class = ApiKeys.message_class(api_key)
        unsupported = not self._versions.is_api_enabled(api_key, version, request.is_from_broker)
        try:
            if not unsupported:
                request.body = request_class.read(request.reader, version)
            elif api_key == ApiKeys.API_VERSIONS:
                # The only version whose response every client can read (KIP-511).
                header.api_version = 0
                request.body = request_class()
            else:
                raise UnsupportedVersionError(f"{ApiKeys.name_of(api_key)} v{version} is not served here")
        except (RemoteProtocolError, UnsupportedVersionError) as error:
            # As in Java: a peer with other versions could not even read an error.
            self._log.info("Closing connection %s of %s: %s", request.connection_id, request.party, error)
            request.reject()
            return
        request.record = self._history.add(request, version)
        if self._faults.controls and self._faults.intercept(request):
            return
        if unsupported:
            request.respond(unsupported_version_response(self._versions))
        else:
            self.dispatch(request)

    def dispatch(self, request: Request) -> None:
        """Call the handler, possibly for a request that a fault has held back."""
        if not self._broker.alive:
            return
        api_handler = handler(request.api_key)
        assert api_handler is not None, "a version of it is enabled"
        try:
            api_handler.handle(self._broker, request, request.body)
        except BrokerError as error:
            self.respond_error(request, error)
        except Exception as error:  # noqa: BLE001 - a defect in one handler must not take the other connections along
            self._log.exception("Handling %r failed", request)
            if self._loop.failure is None:
                self._loop.failure = error
            self.respond_error(request, UnknownServerError(f"the broker failed at {ApiKeys.name_of(request.api_key)}"))

    def respond_error(self, request: Request, error: BrokerError) -> None:
        """Respond with an error wherever the API has a field for it; if it has none, close the connection."""
        if request.answered:
            return
        api_handler = handler(request.api_key)
        assert api_handler is not None, "a version of it is enabled"
        response = api_handler.error_response(request.body, error.code, str(error))
        if response is None:
            request.close_connection()
            return
        with contextlib.suppress(UnsupportedVersionError):  # this version has no field for it
            request.respond(response)


#: The client id of these requests.
CLIENT_ID = "embedded-cluster"


class LocalRequest:
    """A request without a connection, in its newest version, to which no fault applies.

    Thread: loop.
    """

    def __init__(self, broker: Broker, message: RequestMessage, on_response: Callable[[Response | None], None]) -> None:
        """Prepare the request. ``on_response`` gets the response, or None if the broker closes the connection."""
        self._on_response = on_response
        api_handler = handler(message.API_KEY)
        assert api_handler is not None, "only requests that brokers serve are sent this way"
        header = RequestHeader(message.API_KEY, api_handler.versions[1], 0, CLIENT_ID)
        name = f"local-{ApiKeys.name_of(message.API_KEY)}"
        request = Request(
            broker.request_channel,
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
        request.record = RequestRecord(0, request, request.api_version, broker.loop.wall_ms)
        broker.request_channel.handler.dispatch(request)

    def send_response(self, request: Request, buffers: list[BytesLike] | None, throttle_time_ms: int) -> None:  # noqa: ARG002
        """Deliver the response. The interface also passes it encoded."""
        self._on_response(request.record.response)

    def close_connection(self, request: Request) -> None:  # noqa: ARG002
        self._on_response(None)
