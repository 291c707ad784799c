"""The channel between connections and a broker's request handling (Java: RequestChannel)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

from pykclient.errors import IllegalStateError
from pykclient.protocol.headers import encode_response
from pykclient.testing import history
from pykclient.types import Node

if TYPE_CHECKING:
    from pykclient.network.network_send import BytesLike
    from pykclient.protocol.headers import RequestHeader
    from pykclient.protocol.message import Request as RequestMessage, Response
    from pykclient.protocol.wire import Reader
    from pykclient.testing.broker import Broker
    from pykclient.testing.history import RequestRecord


#: The principal of a client that has not authenticated.
ANONYMOUS: Final = "User:ANONYMOUS"

_DIRECT: Final[Mapping[int, Node]] = {}


class ResponseSink(Protocol):
    """The owner of the connection on which a request arrived: a processor. Thread: loop."""

    def send_response(self, request: Request, buffers: list[BytesLike] | None, throttle_time_ms: int) -> None:
        """Send a frame, if there is one, then read the connection's next request, after the throttle time."""

    def close_connection(self, request: Request) -> None:
        """Close the connection of a request."""


class Request:
    """A request with the way back to its sender.

    ``party`` is ``broker-<id>`` or ``client:<client id>``, authenticated as ``principal``.
    ``body`` is set before a handler gets the request. ``respond`` must be called exactly once; until then nothing more
    is read from the connection. Thread: loop.
    """

    __slots__ = (
        "_answered",
        "_channel",
        "api_key",
        "body",
        "broker_id",
        "client_host",
        "client_id",
        "connection_id",
        "endpoints",
        "fate",
        "header",
        "is_from_broker",
        "is_local",
        "party",
        "principal",
        "reader",
        "received_ms",
        "record",
        "sink",
        "size_bytes",
        "uses_token",
    )

    body: RequestMessage
    record: RequestRecord

    broker_id: int
    party: str
    received_ms: int
    size_bytes: int

    def __init__(
        self,
        channel: RequestChannel,
        sink: ResponseSink,
        header: RequestHeader,
        reader: Reader,
        connection_id: str,
        party: str,
        client_host: str,
        received_ms: int,
    ) -> None:
        self._channel = channel
        self._answered = False
        self.sink = sink
        self.header = header
        self.api_key = header.api_key
        self.client_id = header.client_id
        self.reader = reader
        self.broker_id = channel.broker.id
        self.connection_id = connection_id
        self.party = party
        self.is_from_broker = party.startswith("broker-")
        self.principal: str = ANONYMOUS
        #: True if the sender has logged in by a delegation token.
        self.uses_token = False
        #: True if the application has sent the request without a connection.
        self.is_local = False
        self.client_host = client_host
        self.received_ms = received_ms
        self.size_bytes = reader.end + 4
        #: The brokers by id that the requester must reach at other addresses, through proxies.
        self.endpoints = _DIRECT
        #: A fault's decision about the response; None if there is none.
        self.fate: str | None = None

    def advertised(self, node: Node) -> Node:
        """Return a broker with the address for the requester (Kafka: of the listener on which the request arrived)."""
        return self.endpoints.get(node.id, node)

    @property
    def api_version(self) -> int:
        return self.header.api_version

    @property
    def broker(self) -> Broker:
        return self._channel.broker

    @property
    def is_privileged(self) -> bool:
        """True if the sender needs no permissions: another broker, or the application itself."""
        return self.is_local or self.is_from_broker

    @property
    def answered(self) -> bool:
        return self._answered

    def respond(self, response: Response | None, throttle_time_ms: int = 0) -> None:
        """Send the response; None if the request gets none (acks=0).

        The larger of ``throttle_time_ms`` and the client's quota delay is reported in the response, and the connection
        is muted that long (KIP-219).

        Raises:
            IllegalStateError: the request was already answered.
        """
        self._answer()
        self._channel.send_response(self, response, throttle_time_ms)

    def close_connection(self) -> None:
        """Close the connection instead of responding."""
        self._answer()
        self._channel.close_connection(self)

    def reject(self) -> None:
        """Close the connection of an invalid request, which is not added to the history."""
        self._answer()
        self.sink.close_connection(self)

    def _answer(self) -> None:
        if self._answered:
            raise IllegalStateError(f"{self!r} was answered already")
        self._answered = True

    def __repr__(self) -> str:
        return f"Request({self.header!r} from {self.party} to broker-{self.broker_id}, {self.connection_id})"


class RequestChannel:
    """The channel between the processors and a broker's ``KafkaApis``.

    Nothing is queued, because all run on one loop. But a paused broker handles requests only when it is resumed, and a
    dead one does not respond. Thread: loop.
    """

    __slots__ = ("_faults", "_history", "_quotas", "broker")

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._history = broker.history
        self._quotas = broker.quotas
        self._faults = broker.faults

    def send_request(self, request: Request) -> None:
        """Take a request from a processor."""
        broker = self.broker
        if broker.paused:
            broker.call_soon(broker.apis.handle, request)
        elif broker.alive:
            broker.apis.handle(request)

    def send_response(self, request: Request, response: Response | None, throttle_time_ms: int) -> None:
        """Pass the response to the processor, unless a fault decides otherwise."""
        broker = self.broker
        if not broker.alive:
            return
        if response is None:
            request.record.fate = history.SERVED
            request.sink.send_response(request, None, throttle_time_ms)
            return
        header = request.header
        try:
            if self._quotas.active:
                throttle_time_ms = max(throttle_time_ms, self._quotas.throttle_time_ms(request))
            if throttle_time_ms and hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = throttle_time_ms
            writer = encode_response(response, header.api_version, header.correlation_id)
        except BaseException:
            # A bug in the handler. The client should not wait in vain.
            self.close_connection(request)
            raise
        record = request.record
        record.throttle_time_ms = throttle_time_ms
        self._history.answered(record, response, writer.size)
        if request.fate is not None and self._faults.intercept_response(request):
            return
        request.sink.send_response(request, writer.buffers(), throttle_time_ms)

    def close_connection(self, request: Request) -> None:
        """Close the connection of a request."""
        request.record.fate = history.DISCONNECTED
        request.sink.close_connection(request)
