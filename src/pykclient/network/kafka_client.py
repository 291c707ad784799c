"""The network client's interface to producers and consumers (Java: KafkaClient)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import UUID

from pykclient.errors import AuthenticationError, IllegalStateError
from pykclient.network.client_request import ClientRequest, ClientResponse, RequestBuilder
from pykclient.types import Node

if TYPE_CHECKING:
    from pykclient.clock import Signal


class IdentifiedTelemetry(Protocol):
    """The part of a client's telemetry that has the client instance id. Thread: any."""

    @property
    def client_instance_id(self) -> UUID | None:
        """The client instance id that a broker assigned; None before the first subscription."""

    def adopt(self, client_instance_id: UUID) -> UUID:
        """Adopt the id that a broker assigned in another request; return the id in use."""

    def awaited(self, signal: Signal) -> AbstractContextManager[None]:
        """Set ``signal`` as soon as there is an id, and connect to a broker if there is no connection."""


def enabled(telemetry: IdentifiedTelemetry | None) -> IdentifiedTelemetry:
    """Return the telemetry of a client.

    Raises:
        IllegalStateError: it is disabled.
    """
    if telemetry is None:
        raise IllegalStateError(
            "telemetry is disabled, so brokers give this client no id: set enable.metrics.push=true"
        )
    return telemetry


class LeastLoadedNode(NamedTuple):
    """The best node for a request that any node can serve, or None; and whether any node is ready."""

    node: Node | None
    at_least_one_connection_ready: bool

    @property
    def has_node_available_or_connection_ready(self) -> bool:
        return self.node is not None or self.at_least_one_connection_ready


class KafkaClient(Protocol):
    """Asynchronous requests and responses over one connection per node.

    Implementations: NetworkClient, and MockClient in tests. Thread: owner, but for ``wakeup`` and ``initiate_close``.
    """

    #: When a poll last looked for responses, before it completed them.
    last_io_ms: int

    def is_ready(self, node: Node, now_ms: int) -> bool:
        """Return True if a request can be sent to ``node`` now; never start a connection."""

    def ready(self, node: Node, now_ms: int) -> bool:
        """Return ``is_ready``; without a connection, start one if the backoff has passed."""

    def connection_delay_ms(self, node: Node, now_ms: int) -> int:
        """Return how many milliseconds to wait before the next attempt to connect to ``node``."""

    def poll_delay_ms(self, node: Node, now_ms: int) -> int:
        """Return the rest of the throttle time of ``node`` in milliseconds, or else ``connection_delay_ms``."""

    def connection_failed(self, node: Node) -> bool:
        """Return True if the connection was lost and no new one is being made."""

    def authentication_error(self, node: Node) -> AuthenticationError | None:
        """Return the error if authentication with ``node`` failed, else None."""

    def send(self, request: ClientRequest, now_ms: int) -> None:
        """Queue ``request``.

        Raises:
            IllegalStateError: the node is not ready.
            DisconnectError: the client is closing.
        """

    def poll(self, timeout_ms: int, now_ms: int) -> list[ClientResponse]:
        """Read, write and wait at most ``timeout_ms`` for I/O.

        Return the responses, whose callbacks have already run.
        """

    def begin_poll(self, timeout_ms: int, now_ms: int) -> int:
        """Do the part of ``poll`` before its wait: send a metadata request that is due, connect to resolved hosts.

        Return how many milliseconds the driver may wait for I/O, at most ``timeout_ms``. A driver with a wait of its
        own, such as an event loop, calls this, waits, does the I/O with ``Selectable.poll(0)``, and calls ``end_poll``.

        Raises:
            DisconnectError: the client is closing.
        """

    def end_poll(self, now_ms: int) -> list[ClientResponse]:
        """Do the part of ``poll`` after its I/O: match responses, note lost connections, find what timed out.

        Return the responses, whose callbacks have already run.
        """

    def disconnect(self, node_id: str) -> None:
        """Drop the connection. The next poll completes its requests in flight as disconnected."""

    def close_node(self, node_id: str) -> None:
        """Drop the connection and forget its requests in flight (Java: close(nodeId))."""

    def end_interrupted_wait(self) -> bool:
        """Return True, once, if an exception ended ``poll`` while it waited, for example one of a signal handler.

        The next poll continues from there. An exception at any other point may have interrupted an operation halfway,
        and requires ``drop_connections``.
        """

    def drop_connections(self) -> None:
        """Drop all connections and forget all requests, whatever their state, without running any callback."""

    def least_loaded_node(self, now_ms: int) -> LeastLoadedNode:
        """Return the node with the fewest requests in flight; connected nodes come first."""

    def in_flight_request_count(self, node_id: str | None = None) -> int:
        """Return the number of requests in flight, to one node or in total."""

    def is_idle(self) -> bool:
        """Return True if no request is in flight and no connection is being made: no poll has anything to wait for."""

    def has_ready_nodes(self, now_ms: int) -> bool:
        """Return whether any connection is ready and not throttled."""

    def wakeup(self) -> None:
        """End a poll that is waiting, or else the next one at once. Thread: any."""

    def new_client_request(
        self,
        node_id: str,
        request_builder: RequestBuilder,
        created_ms: int,
        expect_response: bool,
        request_timeout_ms: int | None = None,
        callback: Callable[[ClientResponse], None] | None = None,
    ) -> ClientRequest:
        """Return a request with the next correlation id. The default timeout is ``request.timeout.ms``."""

    @property
    def telemetry(self) -> IdentifiedTelemetry | None:
        """The telemetry of the client; None if ``enable.metrics.push`` is off."""

    def connection_report(self) -> str:
        """Return which addresses cannot be reached and why, for error messages; empty if none."""

    def explain(self, now_ms: int) -> list[str]:
        """Return a line for each node: its connection, its requests in flight and its last failure. Thread: any."""

    @property
    def is_unreachable(self) -> bool:
        """True if the last attempt to connect has failed for every known node."""

    def initiate_close(self) -> None:
        """Refuse further requests and end the current poll. Thread: any."""

    @property
    def active(self) -> bool:
        """False after ``initiate_close`` or ``close``."""

    def close(self) -> None:
        """Close all connections."""
