"""Where a broker's requests come in and its answers go out (Java: RequestChannel)."""

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
    from pykclient.protocol.message import Request as RequestMessage
    from pykclient.protocol.message import Response
    from pykclient.protocol.wire import Reader
    from pykclient.testing.broker import Broker
    from pykclient.testing.history import RequestRecord


_DIRECT: Final[Mapping[int, Node]] = {}


class ResponseSink(Protocol):
    """Who has the connection that a request came by: a processor. Thread: loop."""

    def send_response(self, request: Request, buffers: list[BytesLike] | None, throttle_time_ms: int) -> None:
        """Send a whole frame, if there is one, then read the connection's next request, after the throttle time."""

    def close_connection(self, request: Request) -> None:
        """Close the connection that the request came by."""


class Request:
    """A request and the way back to who sent it.

    ``party`` is ``broker-<id>`` or ``client:<client id>``. ``body`` is set before a handler sees the request. It is
    answered exactly once, whenever that is: until then nothing more is read from its connection. Thread: loop.
    """

    __slots__ = (
        "_answered",
        "_channel",
        "body",
        "broker_id",
        "client_host",
        "connection_id",
        "endpoints",
        "fate",
        "header",
        "party",
        "reader",
        "received_ms",
        "record",
        "sink",
        "size_bytes",
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
        self.reader = reader
        self.broker_id = channel.broker.id
        self.connection_id = connection_id
        self.party = party
        self.client_host = client_host
        self.received_ms = received_ms
        self.size_bytes = reader.end + 4
        #: Brokers by id whose addresses are others for whoever asks, as there are proxies in between.
        self.endpoints = _DIRECT
        #: What fault injection has decided about the answer; None: nothing.
        self.fate: str | None = None

    def advertised(self, node: Node) -> Node:
        """A broker as whoever asks is to reach it (Kafka: by the listener that the request came by)."""
        return self.endpoints.get(node.id, node)

    @property
    def api_key(self) -> int:
        return self.header.api_key

    @property
    def api_version(self) -> int:
        return self.header.api_version

    @property
    def client_id(self) -> str | None:
        return self.header.client_id

    @property
    def broker(self) -> Broker:
        return self._channel.broker

    @property
    def is_from_broker(self) -> bool:
        return self.party.startswith("broker-")

    @property
    def answered(self) -> bool:
        return self._answered

    def respond(self, response: Response | None, throttle_time_ms: int = 0) -> None:
        """Answer it; None: as this request wants it, with nothing (acks=0).

        ``throttle_time_ms`` and what the client's quotas demand, whichever is more, is told in the answer, and the
        connection is not read for as long (KIP-219). Raises IllegalStateError for a second answer.
        """
        self._answer()
        self._channel.send_response(self, response, throttle_time_ms)

    def close_connection(self) -> None:
        """Close the connection instead of answering."""
        self._answer()
        self._channel.close_connection(self)

    def reject(self) -> None:
        """Close the connection of a request that makes no sense; it is in no history."""
        self._answer()
        self.sink.close_connection(self)

    def _answer(self) -> None:
        if self._answered:
            raise IllegalStateError(f"{self!r} was answered already")
        self._answered = True

    def __repr__(self) -> str:
        return f"Request({self.header!r} from {self.party} to broker-{self.broker_id}, {self.connection_id})"


class RequestChannel:
    """Between the processors and a broker's ``KafkaApis``.

    Nothing is queued, as all run on one loop; but a broker that is paused handles what came when it is resumed, and a
    dead one answers nothing. Thread: loop.
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
        """Give the answer to the processor, unless fault injection wants it otherwise."""
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
            # A defect of the handler. Whoever waits for the answer should not do so for nothing.
            self.close_connection(request)
            raise
        record = request.record
        record.throttle_time_ms = throttle_time_ms
        self._history.answered(record, response, writer.size)
        if request.fate is not None and self._faults.intercept_response(request):
            return
        request.sink.send_response(request, writer.buffers(), throttle_time_ms)

    def close_connection(self, request: Request) -> None:
        """Close the connection that a request came by."""
        request.record.fate = history.DISCONNECTED
        request.sink.close_connection(request)
