"""A KafkaClient whose responses a test prepares (Java: MockClient)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from pykclient.clock import Clock
from pykclient.errors import AuthenticationError, IllegalStateError, KafkaError, UnsupportedVersionError
from pykclient.network.client_request import ClientRequest, ClientResponse, RequestBuilder
from pykclient.network.kafka_client import IdentifiedTelemetry, LeastLoadedNode
from pykclient.network.metadata import Metadata
from pykclient.protocol.api_keys import ApiKeys
from pykclient.types import Node

#: Returns whether a request is the one that a response was prepared for.
RequestMatcher = Callable[[Any], bool]

DEFAULT_REQUEST_TIMEOUT_MS = 5000


def any_request(_request: Any) -> bool:
    return True


class _FutureResponse:
    __slots__ = ("body", "disconnected", "matcher", "node", "unsupported")

    def __init__(
        self, node: Node | None, matcher: RequestMatcher, body: Any, disconnected: bool, unsupported: bool
    ) -> None:
        self.node = node
        self.matcher = matcher
        self.body = body
        self.disconnected = disconnected
        self.unsupported = unsupported


class _Connection:
    """A connection: DISCONNECTED until ready() is called, then connected unless unreachable or backing off."""

    __slots__ = (
        "backing_off_until_ms",
        "connected",
        "ready_delayed_until_ms",
        "throttled_until_ms",
        "unreachable_until_ms",
    )

    def __init__(self) -> None:
        self.connected = False
        self.throttled_until_ms = 0
        self.ready_delayed_until_ms = 0
        self.backing_off_until_ms = 0
        self.unreachable_until_ms = 0

    def is_ready(self, now_ms: int) -> bool:
        return self.connected and now_ms >= self.throttled_until_ms

    def is_backing_off(self, now_ms: int) -> bool:
        return now_ms < self.backing_off_until_ms

    def ready(self, now_ms: int) -> bool:
        if self.is_backing_off(now_ms) or now_ms < self.unreachable_until_ms:
            return False
        if not self.connected:
            if now_ms < self.ready_delayed_until_ms:
                return False
            self.connected = True
        return self.is_ready(now_ms)

    def connection_delay_ms(self, now_ms: int) -> int:
        if self.connected:
            return (1 << 63) - 1
        return max(0, self.backing_off_until_ms - now_ms, self.ready_delayed_until_ms - now_ms)

    def poll_delay_ms(self, now_ms: int) -> int:
        if self.connected and now_ms < self.throttled_until_ms:
            return self.throttled_until_ms - now_ms
        return self.connection_delay_ms(now_ms)


class MockClient:
    """A client without a network, whose responses a test prepares.

    ``send`` matches requests, in order, with the responses of ``prepare_response``. A request without one stays in
    ``requests`` until ``respond``. The next ``poll`` delivers the responses. When the metadata needs an update,
    ``poll`` applies a response from ``prepare_metadata_update``.

    Responses are message objects; keyword arguments mark unsupported versions and disconnects. Thread: owner.
    """

    def __init__(self, clock: Clock, metadata: Metadata | None = None, nodes: list[Node] | None = None) -> None:
        self.clock = clock
        self.metadata = metadata
        self.last_io_ms = clock.now_ms()
        self._static_nodes = list(nodes or ())
        self._correlation_id = 0
        self._connections: dict[str, _Connection] = {}
        self._pending_authentication_errors: dict[str, tuple[int, AuthenticationError]] = {}
        self._authentication_errors: dict[str, AuthenticationError] = {}
        self._metadata_updates: deque[Any] = deque()
        self._last_metadata_update: Any = None
        self._future_responses: deque[_FutureResponse] = deque()
        self._active = True
        self.requests: deque[ClientRequest] = deque()
        self.responses: deque[ClientResponse] = deque()
        self.api_versions: dict[int, tuple[int, int]] = {}
        self.telemetry: IdentifiedTelemetry | None = None
        self.wakeup_hook: Callable[[], None] | None = None

    # --- KafkaClient -----------------------------------------------------------------------------------------------

    def is_ready(self, node: Node, now_ms: int) -> bool:
        return self._connection(node.id_string).is_ready(now_ms)

    def ready(self, node: Node, now_ms: int) -> bool:
        return self._connection(node.id_string).ready(now_ms)

    def explain(self, now_ms: int) -> list[str]:
        return [f"a mock, {len(self.requests)} requests in flight at {now_ms}"]

    def connection_delay_ms(self, node: Node, now_ms: int) -> int:
        return self._connection(node.id_string).connection_delay_ms(now_ms)

    def poll_delay_ms(self, node: Node, now_ms: int) -> int:
        return self._connection(node.id_string).poll_delay_ms(now_ms)

    def connection_failed(self, node: Node) -> bool:
        return self._connection(node.id_string).is_backing_off(self.clock.now_ms())

    def authentication_error(self, node: Node) -> AuthenticationError | None:
        return self._authentication_errors.get(node.id_string)

    def send(self, request: ClientRequest, now_ms: int) -> None:
        node_id = request.destination
        if not self._connection(node_id).is_ready(now_ms):
            raise IllegalStateError(f"cannot send {request!r}: its node is not ready")
        pending = self._pending_authentication_errors.pop(node_id, None)
        if pending is not None:
            backoff_ms, error = pending
            self._authentication_errors[node_id] = error
            self._back_off(node_id, backoff_ms)
            self.responses.append(self._response(request, disconnected=True, authentication_error=error))
            return
        for future in self._future_responses:
            if future.node is not None and future.node.id_string != node_id:
                continue
            self._future_responses.remove(future)
            self.responses.append(self._meet(request, future))
            return
        self.requests.append(request)

    def poll(self, timeout_ms: int, now_ms: int) -> list[ClientResponse]:
        self.begin_poll(timeout_ms, now_ms)
        return self.end_poll(now_ms)

    def begin_poll(self, timeout_ms: int, now_ms: int) -> int:
        return 0 if self.responses else timeout_ms

    def end_poll(self, now_ms: int) -> list[ClientResponse]:
        self.last_io_ms = self.clock.now_ms()
        self._time_out_requests(now_ms)
        if self.metadata is not None and self.metadata.update_requested and self.least_loaded_node(now_ms).node:
            self._update_metadata_if_prepared()
        delivered: list[ClientResponse] = []
        while self.responses:
            response = self.responses.popleft()
            response.on_complete()
            delivered.append(response)
        return delivered

    def disconnect(self, node_id: str) -> None:
        """Disconnect a node; the next poll completes its pending requests as disconnected, oldest first."""
        for request in [request for request in self.requests if request.destination == node_id]:
            self.requests.remove(request)
            self.responses.append(self._response(request, disconnected=True))
        self._connection(node_id).connected = False

    def close_node(self, node_id: str) -> None:
        """Close a connection, and drop its requests."""
        for request in [request for request in self.requests if request.destination == node_id]:
            self.requests.remove(request)
        self._connections.pop(node_id, None)

    def end_interrupted_wait(self) -> bool:
        return False

    def drop_connections(self) -> None:
        self.requests.clear()
        self.responses.clear()
        self._connections.clear()

    def least_loaded_node(self, now_ms: int) -> LeastLoadedNode:
        ready = any(connection.is_ready(now_ms) for connection in self._connections.values())
        for node in self._nodes():
            connection = self._connection(node.id_string)
            if not connection.is_backing_off(now_ms) and now_ms >= connection.unreachable_until_ms:
                return LeastLoadedNode(node, ready)
        return LeastLoadedNode(None, ready)

    def in_flight_request_count(self, node_id: str | None = None) -> int:
        return len([request for request in self.requests if node_id is None or request.destination == node_id])

    def is_idle(self) -> bool:
        is_updating = self.metadata is not None and self.metadata.update_requested
        return not (self.requests or self.responses or is_updating)

    def has_ready_nodes(self, now_ms: int) -> bool:
        return any(connection.is_ready(now_ms) for connection in self._connections.values())

    def wakeup(self) -> None:
        if self.wakeup_hook is not None:
            self.wakeup_hook()

    def new_client_request(
        self,
        node_id: str,
        request_builder: RequestBuilder,
        created_ms: int,
        expect_response: bool,
        request_timeout_ms: int | None = None,
        callback: Callable[[ClientResponse], None] | None = None,
    ) -> ClientRequest:
        self._correlation_id += 1
        timeout_ms = DEFAULT_REQUEST_TIMEOUT_MS if request_timeout_ms is None else request_timeout_ms
        return ClientRequest(
            node_id,
            request_builder,
            self._correlation_id - 1,
            "mockClientId",
            created_ms,
            expect_response,
            timeout_ms,
            callback,
        )

    @property
    def is_unreachable(self) -> bool:
        return False

    def connection_report(self) -> str:
        return ""

    def initiate_close(self) -> None:
        self._active = False

    @property
    def active(self) -> bool:
        return self._active

    def close(self) -> None:
        self._active = False
        if self.metadata is not None:
            self.metadata.close()

    # --- preparing -------------------------------------------------------------------------------------------------

    def prepare_response(self, body: Any, matcher: RequestMatcher = any_request, *, disconnected: bool = False) -> None:
        """Complete the next request, to any node, with ``body``; the request must satisfy ``matcher``."""
        self.prepare_response_from(body, None, matcher, disconnected=disconnected)

    def prepare_response_from(
        self, body: Any, node: Node | None, matcher: RequestMatcher = any_request, *, disconnected: bool = False
    ) -> None:
        """Like ``prepare_response``, for the next request to ``node``."""
        self._future_responses.append(_FutureResponse(node, matcher, body, disconnected, False))

    def prepare_unsupported_version_response(self, matcher: RequestMatcher = any_request) -> None:
        """Complete the next request as one whose version its node does not support."""
        self._future_responses.append(_FutureResponse(None, matcher, None, False, True))

    def prepare_metadata_update(self, response: Any) -> None:
        """Use ``response`` for the next metadata update that the client needs."""
        self._metadata_updates.append(response)

    def update_metadata(self, response: Any) -> None:
        """Apply ``response`` to the metadata at once."""
        assert self.metadata is not None
        self._last_metadata_update = response
        self.metadata.update_with_current_request_version(response, False, self.clock.now_ms())

    def create_pending_authentication_error(self, node: Node, backoff_ms: int) -> None:
        """Fail the authentication of the connection that the next request to ``node`` uses."""
        self._pending_authentication_errors[node.id_string] = (backoff_ms, AuthenticationError("authentication failed"))

    def authentication_failed(self, node: Node, backoff_ms: int) -> None:
        self._pending_authentication_errors.pop(node.id_string, None)
        self._authentication_errors[node.id_string] = AuthenticationError("authentication failed")
        self._back_off(node.id_string, backoff_ms)

    def set_unreachable(self, node: Node, duration_ms: int) -> None:
        self.disconnect(node.id_string)
        connection = self._connection(node.id_string)
        connection.unreachable_until_ms = self.clock.now_ms() + duration_ms

    def backoff(self, node: Node, duration_ms: int) -> None:
        self._back_off(node.id_string, duration_ms)

    def throttle(self, node: Node, duration_ms: int) -> None:
        self._connection(node.id_string).throttled_until_ms = self.clock.now_ms() + duration_ms

    def delay_ready(self, node: Node, duration_ms: int) -> None:
        self._connection(node.id_string).ready_delayed_until_ms = self.clock.now_ms() + duration_ms

    def set_api_versions(self, api_key: int, min_version: int, max_version: int) -> None:
        """Limit the versions that all nodes support; by default they support every version of the request."""
        self.api_versions[api_key] = (min_version, max_version)

    # --- answering what was sent -----------------------------------------------------------------------------------

    def respond(self, body: Any, matcher: RequestMatcher = any_request, *, disconnected: bool = False) -> None:
        """Complete the oldest request, which must satisfy ``matcher``."""
        if not self.requests:
            raise IllegalStateError("no request is waiting for a response")
        self.respond_to_request(self.requests[0], body, matcher, disconnected=disconnected)

    def respond_from(
        self, body: Any, node: Node, matcher: RequestMatcher = any_request, *, disconnected: bool = False
    ) -> None:
        """Complete the oldest request to ``node`` that satisfies ``matcher``."""
        for request in self.requests:
            if request.destination == node.id_string and matcher(self._build(request)):
                self.respond_to_request(request, body, disconnected=disconnected)
                return
        raise IllegalStateError(f"no matching request to {node} is waiting for a response")

    def respond_to_request(
        self,
        request: ClientRequest,
        body: Any,
        matcher: RequestMatcher = any_request,
        *,
        disconnected: bool = False,
    ) -> None:
        message = self._build(request)
        if not matcher(message):
            raise IllegalStateError(f"the request is not the expected one: {message!r}")
        self.requests.remove(request)
        self.responses.append(self._response(request, disconnected=disconnected, body=body))

    @property
    def has_pending_responses(self) -> bool:
        return bool(self.responses or self._future_responses)

    def has_pending_metadata_updates(self) -> bool:
        return bool(self._metadata_updates)

    def prepared_response_count(self) -> int:
        return len(self._future_responses)

    def reset(self) -> None:
        """Discard all connections, requests and prepared responses."""
        self._connections.clear()
        self.requests.clear()
        self.responses.clear()
        self._future_responses.clear()
        self._metadata_updates.clear()
        self._authentication_errors.clear()
        self._pending_authentication_errors.clear()

    # --- inside ----------------------------------------------------------------------------------------------------

    def _nodes(self) -> list[Node]:
        return list(self.metadata.fetch().nodes) if self.metadata is not None else self._static_nodes

    def _connection(self, node_id: str) -> _Connection:
        return self._connections.setdefault(node_id, _Connection())

    def _back_off(self, node_id: str, duration_ms: int) -> None:
        connection = self._connection(node_id)
        connection.connected = False
        connection.backing_off_until_ms = self.clock.now_ms() + duration_ms

    def _version(self, request: ClientRequest) -> int:
        builder = request.request_builder
        oldest, latest = builder.oldest_allowed_version, builder.latest_allowed_version
        node_oldest, node_latest = self.api_versions.get(request.api_key, (oldest, latest))
        if min(latest, node_latest) < max(oldest, node_oldest):
            raise UnsupportedVersionError(f"no version of API {request.api_key} in common with the mock node")
        return min(latest, node_latest)

    def _build(self, request: ClientRequest) -> Any:
        return request.request_builder.build(self._version(request))

    def _meet(self, request: ClientRequest, future: _FutureResponse) -> ClientResponse:
        mismatch: UnsupportedVersionError | None = None
        try:
            message = self._build(request)
        except KafkaError as error:
            return self._response(request, build_error=error)
        if not future.matcher(message):
            raise IllegalStateError(f"the request is not the one that a response was prepared for: {message!r}")
        if future.unsupported:
            mismatch = UnsupportedVersionError(f"API {request.api_key} is not supported by the mock node")
        return self._response(request, disconnected=future.disconnected, build_error=mismatch, body=future.body)

    def _response(
        self,
        request: ClientRequest,
        *,
        disconnected: bool = False,
        timed_out: bool = False,
        build_error: KafkaError | None = None,
        authentication_error: AuthenticationError | None = None,
        body: Any = None,
    ) -> ClientResponse:
        try:
            version = self._version(request)
        except UnsupportedVersionError:
            version = request.request_builder.latest_allowed_version
        return ClientResponse(
            request.api_key,
            version,
            request.correlation_id,
            request.callback,
            request.destination,
            request.created_ms,
            self.clock.now_ms(),
            disconnected,
            timed_out,
            build_error,
            authentication_error,
            None if disconnected else body,
        )

    def _time_out_requests(self, now_ms: int) -> None:
        for request in list(self.requests):
            if now_ms - request.created_ms > request.request_timeout_ms:
                self.disconnect(request.destination)

    def _update_metadata_if_prepared(self) -> None:
        assert self.metadata is not None
        if self._metadata_updates:
            self._last_metadata_update = self._metadata_updates.popleft()
        if self._last_metadata_update is not None:
            self.metadata.update_with_current_request_version(self._last_metadata_update, False, self.clock.now_ms())


#: What a script returns if there is no response yet, or none because the connection breaks.
SILENT: Final = None
LOST: Final = "LOST"


@cache
def _name(api_key: int) -> str:
    """Return the name of an API's request class, of which a request may be a faster variant."""
    return ApiKeys.message_class(api_key).__name__


class ScriptedBrokers(MockClient):
    """Brokers whose responses a script decides: when a request is sent, and in each poll until it has a response.

    The script is the handler in ``overrides`` for the name of the request's class, else the method of that name behind
    an underscore, called with the id of the node and the request. It returns the response, SILENT or LOST.
    ``received`` lists the requests in order, with the ids of their nodes; ``names`` are the names of their classes.
    A poll that receives nothing takes time. Thread: owner.
    """

    def __init__(self, clock: Clock, metadata: Metadata) -> None:
        super().__init__(clock, metadata)
        self.received: list[tuple[int, Any]] = []
        self.overrides: dict[str, Callable[[int, Any], Any]] = {}
        self._asked_about: set[int] = set()
        #: How long the request in question has waited.
        self.waited_ms = 0

    @property
    def names(self) -> list[str]:
        return [_name(message.API_KEY) for _, message in self.received]

    def requests_of(self, kind: type[Any]) -> list[Any]:
        return [message for _, message in self.received if isinstance(message, kind)]

    def describe(self) -> Any:
        """Return the metadata that the client gets when it needs an update; None to use a prepared one."""

    def answer(self, node_id: int, message: Any) -> Any:
        name = _name(message.API_KEY)
        handler = self.overrides.get(name) or getattr(self, f"_{name}")
        return handler(node_id, message)

    def send(self, request: ClientRequest, now_ms: int) -> None:
        super().send(request, now_ms)
        if request in self.requests:
            self._ask(request, 0)

    def poll(self, timeout_ms: int, now_ms: int) -> list[ClientResponse]:
        self.ask_again(now_ms)
        delivered = super().poll(timeout_ms, now_ms)
        if not delivered:
            self.clock.sleep_ms(min(timeout_ms, 100))
        return delivered

    def ask_again(self, now_ms: int) -> None:
        """Ask the script about the requests without a response; update the metadata if that is needed."""
        assert self.metadata is not None
        if self.metadata.update_requested and (described := self.describe()) is not None:
            self.metadata.update_with_current_request_version(described, False, now_ms)
        for request in list(self.requests):
            self._ask(request, now_ms - request.created_ms)

    def _ask(self, request: ClientRequest, waited_ms: int) -> None:
        try:
            message = self._build(request)
        except UnsupportedVersionError as error:
            self.requests.remove(request)
            self.responses.append(self._response(request, build_error=error))
            return
        if request.correlation_id not in self._asked_about:
            self._asked_about.add(request.correlation_id)
            self.received.append((int(request.destination), message))
        self.waited_ms = waited_ms
        answer = self.answer(int(request.destination), message)
        if answer is not SILENT:
            self.respond_to_request(request, None if answer == LOST else answer, disconnected=answer == LOST)
