"""Requests to nodes and their outcomes, and those that wait for their responses.

Java: ClientRequest, ClientResponse, InFlightRequests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct, error as struct_error
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from pykclient.clock import FOREVER_MS
from pykclient.errors import IllegalStateError, ProtocolError, RemoteProtocolError
from pykclient.metrics import Tally
from pykclient.network.frames import NetworkSend
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.headers import encode_request, encode_response, parse_response

if TYPE_CHECKING:
    from pykclient.errors import AuthenticationError, KafkaError
    from pykclient.network.frames import Frame
    from pykclient.protocol.message import Request, Response
    from pykclient.protocol.wire import BytesLike

#: The position of the correlation id in the frame of a request, after its size, API key and version.
CORRELATION_ID_AT: Final = 8
#: The frame of a response begins with its size and the correlation id.
_HEAD: Final = Struct(">ii")
_CORRELATION_ID: Final = Struct(">i")
#: Larger ids and epochs are left to Python code, which knows what follows the largest.
_LARGEST_NUMBER: Final = (1 << 31) - (1 << 24)


class RepeatableRequest(NamedTuple):
    """A request that a poller sends again after each usual response.

    ``response`` is the frame of that, with the correlation id of the request in flight, which was sent ``age_ms`` ago.
    ``request`` is the frame to send, which has an epoch at ``epoch_at``. The next one has ``correlation_id`` and
    ``epoch``; each number grows by 1 with each request.
    """

    response: bytes
    request: bytes
    epoch_at: int
    correlation_id: int
    epoch: int
    age_ms: int


class Repetitions(NamedTuple):
    """The number of times that a poller has repeated a request, and the total size of the frames.

    ``since_ms`` is the time since the last one, the others are times from requests to their responses.
    """

    repeats: int
    size_bytes: int
    since_ms: int
    total_ms: int
    least_ms: int
    most_ms: int

    @property
    def latencies_ms(self) -> Tally:
        """The times from requests to their responses."""
        tally = Tally()
        tally.count, tally.total = self.repeats, self.total_ms
        tally.smallest, tally.largest = self.least_ms, self.most_ms
        return tally

    @property
    def throttle_times_ms(self) -> Tally:
        """The throttle times in the responses: zeros, because they were empty."""
        tally = Tally.of(0)
        tally.count = self.repeats
        return tally


class UsualResponse:
    """The response to each request of one kind while nothing changes, as bytes.

    An idle client gets the same bytes for each fetch, heartbeat and commit. Parsing them, ending the application's wait
    and starting it again would take most of its time. Thread: owner.
    """

    def __init__(self) -> None:
        self._version = -1
        #: The bytes after the correlation id.
        self.content = b""

    def expect(self, body: Response, version: int) -> bool:
        """Make ``body`` the usual response, unless it throttles the client; return whether it now is."""
        if getattr(body, "throttle_time_ms", 0):
            return False
        self._version, self.content = version, encode_response(body, version, 0).getvalue()[8:]
        return True

    def matches(self, version: int, frame: Frame) -> bool:
        """Return whether the response in ``frame``, which begins with the correlation id, is the usual one."""
        return version == self._version and frame[4:] == self.content


class Repetition(Protocol):
    """Creates the same request again, apart from its correlation id and an epoch. Thread: owner."""

    def next_frame(self, request: ClientRequest, version: int, correlation_id: int) -> bytes:
        """Return the frame that follows ``request``, whose response was the usual one."""

    def template(self, request: ClientRequest, version: int) -> tuple[bytes, int, int] | None:
        """Return the next frame without its numbers, the position of the epoch in it, and the epoch of ``request``.

        None if the request would not be sent again.
        """

    def repeated(self, request: ClientRequest, done: Repetitions, now_ms: int) -> None:
        """Record that a poller has repeated the request by itself."""


class Shortcut(NamedTuple):
    """The way of the ``usual`` response to a request: it is not parsed, and a wait goes on.

    ``handle(request, now_ms)`` returns True if the response is handled, and so has no ClientResponse; False if it must
    be parsed. With ``repetition`` the request is sent again at once, if it is the only one in flight to its node.
    """

    usual: UsualResponse
    handle: Callable[[ClientRequest, int], bool]
    repetition: Repetition | None = None


class RequestBuilder:
    """Builds a request in a version that client and node support (Java: AbstractRequest.Builder).

    This class wraps a complete message. Subclass it and override ``build`` if the content depends on the version. Any
    exception from ``build`` becomes the ``build_error`` of the response. With a ``shortcut``, the usual response is not
    parsed. Thread: owner.
    """

    __slots__ = ("api_key", "latest_allowed_version", "message", "oldest_allowed_version")

    shortcut: Shortcut | None = None

    def __init__(self, message: Request, min_version: int | None = None, max_version: int | None = None) -> None:
        self.message = message
        self.api_key = api_key = message.API_KEY
        oldest, latest = ApiKeys.versions(api_key)
        self.oldest_allowed_version = oldest if min_version is None else min_version
        self.latest_allowed_version = latest if max_version is None else max_version

    def build(self, version: int) -> Request:  # noqa: ARG002 - for subclasses
        """Return the request for ``version``, which is in the allowed range."""
        return self.message

    def encode(self, version: int, correlation_id: int, client_id: str | None) -> Sequence[BytesLike]:
        """Return the frame of the request for ``version`` as buffers, which must not change until they are sent."""
        return encode_request(self.build(version), version, correlation_id, client_id).buffers()

    def parse_response(self, frame: BytesLike, version: int) -> Response:
        """Return the response in ``frame``, which begins with the correlation id.

        Raises:
            RemoteProtocolError: the bytes are not such a response.
        """
        return parse_response(frame, self.api_key, version)[1]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self.message).__name__})"


class ClientRequest:
    """A request for a node. ``callback`` gets the ClientResponse on the polling thread. Thread: owner."""

    def __init__(
        self,
        destination: str,
        request_builder: RequestBuilder,
        correlation_id: int,
        client_id: str | None,
        created_ms: int,
        expect_response: bool,
        request_timeout_ms: int,
        callback: Callable[[ClientResponse], None] | None = None,
    ) -> None:
        self.destination = destination
        self.request_builder = request_builder
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.created_ms = created_ms
        self.expect_response = expect_response
        self.request_timeout_ms = request_timeout_ms
        self.callback = callback

    @property
    def api_key(self) -> int:
        return self.request_builder.api_key

    def __repr__(self) -> str:
        return (
            f"ClientRequest({self.request_builder!r}, destination={self.destination}, "
            f"correlation_id={self.correlation_id}, created_ms={self.created_ms})"
        )


class ClientResponse(NamedTuple):
    """The outcome of a ClientRequest.

    Exactly one of these is set. ``response_body`` is the response. ``disconnected`` is True if the connection was lost
    (``timed_out`` too, if this client closed it). ``build_error`` is the reason why the request could not be built, and
    so was never sent; UnsupportedVersionError means that the node supports no suitable version. All are empty for a
    request that expects no response. Thread: owner.
    """

    api_key: int
    api_version: int
    correlation_id: int
    callback: Callable[[ClientResponse], None] | None
    destination: str
    created_ms: int
    received_ms: int
    disconnected: bool = False
    timed_out: bool = False
    build_error: KafkaError | None = None
    authentication_error: AuthenticationError | None = None
    response_body: Any = None

    @property
    def has_response(self) -> bool:
        return self.response_body is not None

    @property
    def request_latency_ms(self) -> int:
        """Return the time from the creation of the request to its outcome."""
        return self.received_ms - self.created_ms

    def on_complete(self) -> None:
        """Pass this response to its request's callback, if there is one."""
        if self.callback is not None:
            self.callback(self)

    def __repr__(self) -> str:
        return (
            f"ClientResponse(api_key={self.api_key}, api_version={self.api_version}, "
            f"correlation_id={self.correlation_id}, destination={self.destination}, "
            f"disconnected={self.disconnected}, timed_out={self.timed_out}, "
            f"body={type(self.response_body).__name__})"
        )


class InFlightRequest:
    """A request that was passed to the selector.

    Internal requests are the network client's own. Thread: owner.
    """

    __slots__ = ("api_version", "is_internal", "request", "send", "send_ms", "throttle_ms")

    def __init__(
        self, request: ClientRequest, api_version: int, is_internal: bool, send: NetworkSend, send_ms: int
    ) -> None:
        self.request = request
        self.api_version = api_version
        self.is_internal = is_internal
        self.send = send
        self.send_ms = send_ms
        self.throttle_ms = 0

    def is_expired(self, now_ms: int) -> bool:
        """Return whether the response is overdue.

        Time during which the node throttled the client does not count.
        """
        return now_ms - self.send_ms - self.throttle_ms > self.request.request_timeout_ms

    def description(self, now_ms: int) -> str:
        """Return what was requested and when, for the log."""
        request = self.request
        created_ms, sent_ms = now_ms - request.created_ms, now_ms - self.send_ms
        name = ApiKeys.name_of(request.api_key)
        return f"{name}, id {request.correlation_id}, created {created_ms} ms and sent {sent_ms} ms ago"

    def handle_usual(self, shortcut: Shortcut, frame: Frame, now_ms: int) -> bool:
        """Handle the response in ``frame`` if it is the usual one; return whether it is handled."""
        request = self.request
        return (
            shortcut.usual.matches(self.api_version, frame)
            and int.from_bytes(frame[:4], "big") == request.correlation_id
            and shortcut.handle(request, now_ms)
        )

    def repeat(self, repetition: Repetition, correlation_id: int, now_ms: int) -> None:
        """Make this the same request again, and ``send`` its frame. The last one must be completely sent."""
        request = self.request
        self.send = NetworkSend(
            request.destination, (repetition.next_frame(request, self.api_version, correlation_id),)
        )
        self.send_ms = request.created_ms = now_ms
        self.throttle_ms = 0
        request.correlation_id = correlation_id

    def repeatable(self, correlation_id: int, now_ms: int) -> RepeatableRequest | None:
        """Return the arguments with which a poller repeats this by itself; the next request has ``correlation_id``."""
        request = self.request
        shortcut = request.request_builder.shortcut
        if shortcut is None or shortcut.repetition is None or correlation_id >= _LARGEST_NUMBER:
            return None
        template = shortcut.repetition.template(request, self.api_version)
        if template is None or template[2] >= _LARGEST_NUMBER:
            return None
        frame, epoch_at, epoch = template
        content = shortcut.usual.content
        response = _HEAD.pack(len(content) + 4, request.correlation_id) + content
        return RepeatableRequest(response, frame, epoch_at, correlation_id, epoch + 1, now_ms - request.created_ms)

    def repeated(self, done: Repetitions, correlation_id: int, now_ms: int) -> int:
        """Record what a poller has done from ``correlation_id`` on; return how often it has repeated this."""
        request = self.request
        shortcut = request.request_builder.shortcut
        if done.repeats and shortcut is not None and shortcut.repetition is not None:
            request.correlation_id = correlation_id + done.repeats - 1
            shortcut.repetition.repeated(request, done, now_ms)
            self.send_ms = request.created_ms = now_ms - done.since_ms
            self.throttle_ms = 0
        return done.repeats

    def parse(self, frame: Frame) -> Response:
        """Return the response in ``frame``.

        Raises:
            RemoteProtocolError: it is the response to another request, or unreadable.
        """
        request = self.request
        api_key, version = request.request_builder.api_key, self.api_version
        try:
            (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
        except struct_error:  # it is too short even for that
            correlation_id = int.from_bytes(frame, "big", signed=True)
        if correlation_id != request.correlation_id:
            raise RemoteProtocolError(
                f"it responded to request {correlation_id}, but the response to request {request.correlation_id} "
                f"({ApiKeys.name_of(api_key)} v{version}) was due"
            )
        try:
            return request.request_builder.parse_response(frame, version)
        except ProtocolError as error:
            name = ApiKeys.name_of(api_key)
            raise RemoteProtocolError(f"its {name} v{version} response is unreadable: {error}") from error

    def response(
        self, now_ms: int, body: object = None, *, disconnected: bool = False, timed_out: bool = False
    ) -> ClientResponse:
        """Return the outcome of the request."""
        request = self.request
        return ClientResponse(
            request.request_builder.api_key,
            self.api_version,
            request.correlation_id,
            request.callback,
            request.destination,
            request.created_ms,
            now_ms,
            disconnected,
            timed_out,
            None,
            None,
            body,
        )


class InFlightRequests:
    """The requests in flight, in one queue per node, because nodes respond in order. Thread: owner,
    but for ``of_node``.
    """

    def __init__(self, max_in_flight_requests_per_connection: int) -> None:
        #: By node id, requests that were sent again, and may be again if they are still in flight.
        self.repeated: dict[str, InFlightRequest] = {}
        self._max_per_connection = max_in_flight_requests_per_connection
        self._queues: dict[str, deque[InFlightRequest]] = {}
        #: The number of requests to all nodes.
        self.total = 0

    def add(self, in_flight: InFlightRequest) -> None:
        node_id = in_flight.request.destination
        queue = self._queues.get(node_id)
        if queue is None:
            queue = self._queues[node_id] = deque()
        queue.append(in_flight)
        self.total += 1

    def complete_next(self, node_id: str) -> InFlightRequest:
        """Remove and return the oldest request to a node. The node's next response belongs to it."""
        queue = self._queues.get(node_id)
        if not queue:
            raise IllegalStateError(f"no request to node {node_id} is waiting for a response")
        self.total -= 1
        return queue.popleft()

    def peek_next(self, node_id: str) -> InFlightRequest | None:
        """Return the oldest request to a node, without removing it."""
        queue = self._queues.get(node_id)
        return queue[0] if queue else None

    def complete_sent(self, send: NetworkSend) -> InFlightRequest:
        """Remove and return the request in ``send``, which expects no response."""
        queue = self._queues.get(send.destination_id, deque())
        for in_flight in queue:
            if in_flight.send is send:
                queue.remove(in_flight)
                self.total -= 1
                return in_flight
        raise IllegalStateError(f"no request to node {send.destination_id} belongs to {send!r}")

    def can_send_more(self, node_id: str) -> bool:
        """Return whether the last request is completely sent and the limit is not reached."""
        queue = self._queues.get(node_id)
        return not queue or (queue[-1].send.completed and len(queue) < self._max_per_connection)

    def of_node(self, node_id: str) -> list[InFlightRequest]:
        """Return the requests to a node, oldest first. Thread: any."""
        queue = self._queues.get(node_id)
        return list(queue.copy()) if queue else []

    def count(self, node_id: str) -> int:
        queue = self._queues.get(node_id)
        return len(queue) if queue else 0

    def clear_all(self, node_id: str) -> list[InFlightRequest]:
        """Remove and return all requests to a node, oldest first."""
        cleared = self._queues.pop(node_id, None)
        if not cleared:
            return []
        self.total -= len(cleared)
        return list(cleared)

    @property
    def next_timeout_ms(self) -> int:
        """The time until which no request is overdue; ``FOREVER_MS`` if none is in flight."""
        times = [
            in_flight.send_ms + in_flight.throttle_ms + in_flight.request.request_timeout_ms
            for queue in self._queues.values()
            for in_flight in queue
        ]
        return min(times, default=FOREVER_MS)

    def timed_out_requests(self, now_ms: int) -> list[InFlightRequest]:
        """Return the oldest overdue request of each node."""
        timed_out: list[InFlightRequest] = []
        if self.total:
            for queue in self._queues.values():
                for in_flight in queue:  # not only the oldest, because each request may have its own timeout
                    if in_flight.is_expired(now_ms):
                        timed_out.append(in_flight)
                        break
        return timed_out

    def increment_throttle_time(self, node_id: str, throttle_ms: int) -> None:
        for in_flight in self._queues.get(node_id, ()):
            in_flight.throttle_ms += throttle_ms
