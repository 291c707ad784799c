"""Requests that were sent and wait for their responses (Java: InFlightRequests)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from struct import Struct, error as struct_error
from typing import Final

from pykclient.clock import FOREVER_MS, Clock
from pykclient.errors import IllegalStateError, ProtocolError, RemoteProtocolError
from pykclient.network.api_versions import parse_api_versions_response
from pykclient.network.client_request import (
    ClientRequest,
    ClientResponse,
    RepeatableRequest,
    Repetition,
    Repetitions,
    Shortcut,
)
from pykclient.network.frames import Frame, NetworkSend
from pykclient.network.selectable import Selectable
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.message import Response

#: The frame of a response begins with its size and the correlation id.
_HEAD: Final = Struct(">ii")
_CORRELATION_ID: Final = Struct(">i")
#: Larger ids and epochs are left to Python code, which knows what follows the largest.
_LARGEST_NUMBER: Final = (1 << 31) - (1 << 24)


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
            if api_key == ApiKeys.API_VERSIONS:
                return parse_api_versions_response(frame, version)[1]
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

    __slots__ = ("_max_per_connection", "_queues", "repeated", "total")

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

    def poll(self, selector: Selectable, timeout_ms: int, correlation_id: int, clock: Clock) -> int:
        """Poll, and have the poller repeat requests by itself meanwhile, if it can; return the next correlation id.

        It sends each request again when its usual response comes, with ``correlation_id`` and those after it, and the
        wait goes on without any Python code.
        """
        now_ms = clock.now_ms()
        repeating: list[tuple[InFlightRequest, Callable[[], Repetitions]]] = []
        try:
            for node_id, in_flight in list(self.repeated.items()):
                if self.peek_next(node_id) is not in_flight:
                    del self.repeated[node_id]
                elif self.count(node_id) == 1 and (request := in_flight.repeatable(correlation_id, now_ms)) is not None:
                    end = selector.repeat(node_id, request)
                    if end is not None:
                        repeating.append((in_flight, end))
            selector.poll(timeout_ms)
        finally:
            now_ms = clock.now_ms()
            repeats = [in_flight.repeated(end(), correlation_id, now_ms) for in_flight, end in repeating]
        return correlation_id + max(repeats, default=0)

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
