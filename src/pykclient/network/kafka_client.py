"""The client as producer and consumer see it (Java: KafkaClient)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from pykclient.errors import AuthenticationError
from pykclient.network.client_request import ClientRequest, ClientResponse, RequestBuilder
from pykclient.types import Node


class LeastLoadedNode(NamedTuple):
    """The node to ask when any will do, or None; and whether any node at all could be spoken to."""

    node: Node | None
    at_least_one_connection_ready: bool

    @property
    def has_node_available_or_connection_ready(self) -> bool:
        return self.node is not None or self.at_least_one_connection_ready


class KafkaClient(Protocol):
    """Asynchronous requests and responses over one connection per node.

    Implementations: NetworkClient, and MockClient in tests. Thread: owner, but for ``wakeup`` and ``initiate_close``.
    """

    def is_ready(self, node: Node, now_ms: int) -> bool:
        """Whether a request can be sent to ``node`` at once; never starts a connection."""

    def ready(self, node: Node, now_ms: int) -> bool:
        """As ``is_ready``; where there is no connection, start one if its backoff has passed."""

    def connection_delay_ms(self, node: Node, now_ms: int) -> int:
        """How long to wait before trying ``node`` again, by the state of its connection."""

    def poll_delay_ms(self, node: Node, now_ms: int) -> int:
        """As ``connection_delay_ms``, but the throttle time for a connection that is throttled."""

    def connection_failed(self, node: Node) -> bool:
        """Whether the connection was lost and not started again."""

    def authentication_error(self, node: Node) -> AuthenticationError | None:
        """The error, if authentication with ``node`` failed."""

    def send(self, request: ClientRequest, now_ms: int) -> None:
        """Queue ``request``; raises IllegalStateError where its node is not ready."""

    def poll(self, timeout_ms: int, now_ms: int) -> list[ClientResponse]:
        """Read and write what can be, waiting at most ``timeout_ms``; callbacks have run when this returns."""

    def disconnect(self, node_id: str) -> None:
        """Drop the connection; its pending requests are answered as disconnected by the next poll."""

    def close_node(self, node_id: str) -> None:
        """Drop the connection and forget its pending requests (Java: close(nodeId))."""

    def end_interrupted_wait(self) -> bool:
        """Return True, once, if an exception (such as a signal handler's) ended ``poll`` while it waited.

        The next poll goes on from there. An exception anywhere else may have left anything half done, so that
        ``drop_connections`` is called for.
        """

    def drop_connections(self) -> None:
        """Drop all connections and forget all requests, whatever state they are in, without calling anybody."""

    def least_loaded_node(self, now_ms: int) -> LeastLoadedNode:
        """The node with the fewest requests in flight, connected ones first."""

    def in_flight_request_count(self, node_id: str | None = None) -> int:
        """Requests without an answer yet, of one node or of all."""

    def has_in_flight_requests(self, node_id: str | None = None) -> bool:
        """Whether ``in_flight_request_count`` is not 0."""

    def has_ready_nodes(self, now_ms: int) -> bool:
        """Whether any connection is ready and not throttled."""

    def wakeup(self) -> None:
        """End a poll that is waiting. Thread: any."""

    def new_client_request(
        self,
        node_id: str,
        request_builder: RequestBuilder,
        created_ms: int,
        expect_response: bool,
        request_timeout_ms: int | None = None,
        callback: Callable[[ClientResponse], None] | None = None,
    ) -> ClientRequest:
        """A request with the next correlation id; without a timeout it gets ``request.timeout.ms``."""

    def connection_report(self) -> str:
        """Which addresses could not be reached and why, for error messages; empty when none."""

    def initiate_close(self) -> None:
        """Refuse further requests and end the current poll. Thread: any."""

    @property
    def active(self) -> bool:
        """False once ``initiate_close`` or ``close`` was called."""

    def close(self) -> None:
        """Close all connections."""
