"""Requests: their way from connections to a broker's handlers and back (Java: RequestChannel), and their history."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from heapq import merge
from typing import Any, Final, Protocol

from pykclient.argument_values import shown
from pykclient.errors import BrokerError, IllegalArgumentError, IllegalStateError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.headers import RequestHeader, encode_response
from pykclient.protocol.message import Message, Request as RequestMessage, Response
from pykclient.protocol.wire import BytesLike, Reader
from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.event_loop import EventLoop
from pykclient.types import Node

#: The principal of a client that has not authenticated.
ANONYMOUS: Final = "User:ANONYMOUS"

_DIRECT: Final[Mapping[int, Node]] = {}


#: Outcomes of requests. A handled request goes from RECEIVED to ANSWERED or, if it gets no response, to SERVED.
RECEIVED: Final = "RECEIVED"

SERVED: Final = "SERVED"

ANSWERED: Final = "ANSWERED"

HELD: Final = "HELD"

REQUEST_DROPPED: Final = "REQUEST_DROPPED"

RESPONSE_DROPPED: Final = "RESPONSE_DROPPED"

DISCONNECTED: Final = "DISCONNECTED"

#: The maximum number of bytes of kept requests and responses, which refer to the records in them.
_MAX_BYTES: Final = 16 * 1024 * 1024


class RequestRecord:
    """A request of ``party``, which authenticated as ``principal``. Both times are in milliseconds.

    Thread: loop; any, once there is a response.
    """

    def __init__(self, number: int, request: Request, api_version: int, wall_ms: int) -> None:
        self.number = number
        self.time_ms = request.received_ms
        self.wall_ms = wall_ms
        self.broker_id = request.broker_id
        self.party = request.party
        self.principal = request.principal
        self.client_id = request.client_id
        self.api_key = request.api_key
        self.api_version = api_version
        self.body: Message = request.body
        self.size_bytes = request.size_bytes
        self.kept_bytes = 0
        self.response: Response | None = None
        self.answered_ms: int | None = None
        self.throttle_time_ms = 0
        self.fate = RECEIVED

    @property
    def api(self) -> str:
        """The API's name, such as ``PRODUCE``."""
        return ApiKeys.name_of(self.api_key)

    @property
    def error_codes(self) -> set[int]:
        """The error codes anywhere in the response, except 0."""
        return set() if self.response is None else set(_error_codes(self.response))

    def __lt__(self, other: RequestRecord) -> bool:
        return self.number < other.number

    def __repr__(self) -> str:
        errors = f", errors {sorted(self.error_codes)}" if self.error_codes else ""
        return (
            f"RequestRecord({self.time_ms} ms: {self.api} v{self.api_version} from {self.party} "
            f"to broker-{self.broker_id}, {self.fate}{errors})"
        )


class History:
    """The latest requests, limited in number and bytes. Requests of clients and of brokers are limited separately.

    Counts include discarded records. Thread: loop.
    """

    def __init__(self, loop: EventLoop, size: int = 10_000) -> None:
        self._loop = loop
        self._clients = _Records(size)
        self._brokers = _Records(size)
        #: The number of all requests of clients and brokers, including discarded ones.
        self.total = 0
        #: The number of client requests by API key.
        self.counts: Counter[int] = Counter()

    def add(self, request: Request, api_version: int) -> RequestRecord:
        """Add a received request."""
        self.total += 1
        record = RequestRecord(self.total, request, api_version, self._loop.clock.wall_ms())
        if request.is_from_broker:
            self._brokers.add(record)
        else:
            self.counts[record.api_key] += 1
            self._clients.add(record)
        return record

    def answered(self, record: RequestRecord, response: Response, size_bytes: int) -> None:
        """Add the response to a request."""
        record.response = response
        record.answered_ms = self._loop.clock.now_ms()
        record.fate = ANSWERED
        records = self._brokers if record.party.startswith("broker-") else self._clients
        records.grow(record, size_bytes)

    def __iter__(self) -> Iterator[RequestRecord]:
        """Iterate over all kept records, oldest first."""
        return merge(list(self._brokers.records), list(self._clients.records))

    def __len__(self) -> int:
        return len(self._brokers.records) + len(self._clients.records)

    def matching(
        self,
        *,
        api: int | str | None = None,
        client_id: str | None = None,
        broker: int | Node | None = None,
        party: str | None = None,
        after: int = 0,
    ) -> list[RequestRecord]:
        """Return the records of an API (key or name), a client, a broker, a party.

        Without a party, only clients' are returned.

        ``after`` is the ``number`` of a record; only later ones are returned.
        """
        if party is not None and not isinstance(party, str):
            raise IllegalArgumentError(f"party is {shown(party)}; it must be a str such as 'broker-1'")
        key = api_key_of(api) if api is not None else None
        broker_id = broker.id if isinstance(broker, Node) else broker
        records = self._brokers if party is not None and party.startswith("broker-") else self._clients
        return [
            record
            for record in list(records.records)
            if record.number > after
            and (key is None or record.api_key == key)
            and (client_id is None or record.client_id == client_id)
            and (broker_id is None or record.broker_id == broker_id)
            and (party is None or record.party == party)
        ]

    def clear(self) -> None:
        """Remove all records, and reset the counts."""
        self._clients.clear()
        self._brokers.clear()
        self.counts.clear()


class _Records:
    """Records with limits on their number and bytes. Thread: loop."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._bytes = 0
        self.records: deque[RequestRecord] = deque()

    def add(self, record: RequestRecord) -> None:
        self.records.append(record)
        self.grow(record, record.size_bytes)

    def grow(self, record: RequestRecord, size_bytes: int) -> None:
        """Add to the size of a record, if it is still kept."""
        records = self.records
        if not records or record.number < records[0].number:
            return
        record.kept_bytes += size_bytes
        self._bytes += size_bytes
        while records and (len(records) > self._size or self._bytes > _MAX_BYTES):
            self._bytes -= records.popleft().kept_bytes

    def clear(self) -> None:
        self.records.clear()
        self._bytes = 0


def api_key_of(api: int | str) -> int:
    """Return the key of an API given by key or by name, such as ``PRODUCE``, ``Produce`` or ``init_producer_id``.

    Raises:
        IllegalArgumentError: there is no such API.
    """
    if isinstance(api, int) and not isinstance(api, bool):
        return api
    if not isinstance(api, str):
        raise IllegalArgumentError(f"api is {shown(api)}; it must be the key or the name of an API, such as 'PRODUCE'")
    wanted = api.replace("_", "").lower()
    for key in ApiKeys.all():
        if ApiKeys.name_of(key).replace("_", "").lower() == wanted:
            return key
    names = ", ".join(ApiKeys.name_of(key) for key in ApiKeys.all())
    raise IllegalArgumentError(f"there is no API {shown(api)}; there are {names}")


def _error_codes(message: Message) -> Iterator[int]:
    for name in message.__slots__:
        value: Any = getattr(message, name)
        if name.endswith("error_code"):
            if value:
                yield value
        elif isinstance(value, list):
            for element in value:
                if not hasattr(element, "write"):
                    break
                yield from _error_codes(element)


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
        self.answered = False
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
    def is_privileged(self) -> bool:
        """True if the sender needs no permissions: another broker, or the application itself."""
        return self.is_local or self.is_from_broker

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

    def respond_error(self, error: BrokerError) -> None:
        """Respond with an error, unless there is a response already."""
        self._channel.handler.respond_error(self, error)

    def handle_soon(self) -> None:
        """Continue with a request that was held back."""
        self._channel.broker.call_soon(self._channel.handler.dispatch, self)

    def reject(self) -> None:
        """Close the connection of an invalid request, which is not added to the history."""
        self._answer()
        self.sink.close_connection(self)

    def _answer(self) -> None:
        if self.answered:
            raise IllegalStateError(f"{self!r} was answered already")
        self.answered = True

    def __repr__(self) -> str:
        return f"Request({self.header!r} from {self.party} to broker-{self.broker_id}, {self.connection_id})"


class RequestHandler(Protocol):
    """A broker's ``KafkaApis``. Thread: loop."""

    def handle(self, request: Request) -> None:
        """Handle a request that has arrived."""

    def dispatch(self, request: Request) -> None:
        """Call the handler, possibly for a request that a fault has held back."""

    def respond_error(self, request: Request, error: BrokerError) -> None:
        """Respond with an error wherever the API has a field for it; if it has none, close the connection."""


class Throttle(Protocol):
    """The client quotas of a cluster. Thread: loop."""

    @property
    def active(self) -> bool:
        """True if there is any quota."""

    def throttle_time_ms(self, request: Request) -> int:
        """Count a request, and return how long its connection must wait for the next."""


@dataclass(eq=False, repr=False)
class RequestChannel:
    """The channel between the processors and a broker's ``KafkaApis``, its ``handler``.

    Nothing is queued, because all run on one loop. But a paused broker handles requests only when it is resumed, and a
    dead one does not respond. Thread: loop.
    """

    broker: BrokerContext
    handler: RequestHandler
    _history: History
    _quotas: Throttle

    def send_request(self, request: Request) -> None:
        """Take a request from a processor."""
        broker = self.broker
        if broker.paused:
            broker.call_soon(self.handler.handle, request)
        elif broker.alive:
            self.handler.handle(request)

    def send_response(self, request: Request, response: Response | None, throttle_time_ms: int) -> None:
        """Pass the response to the processor, unless a fault has decided otherwise (``request.fate``)."""
        broker = self.broker
        if not broker.alive:
            return
        if response is None:
            request.record.fate = SERVED
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
        if request.fate is None:
            request.sink.send_response(request, writer.buffers(), throttle_time_ms)
            return
        record.fate = request.fate
        if request.fate == DISCONNECTED:
            request.sink.close_connection(request)

    def close_connection(self, request: Request) -> None:
        """Close the connection of a request."""
        request.record.fate = DISCONNECTED
        request.sink.close_connection(request)
