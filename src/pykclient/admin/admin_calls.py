"""All calls of an admin client in progress (Java: KafkaAdminClient.AdminClientRunnable)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from pykclient.admin.api import ANY_BROKER, CONTROLLER
from pykclient.clock import FOREVER_MS
from pykclient.errors import DisconnectError, IllegalStateError, KafkaError

if TYPE_CHECKING:
    from pykclient.admin.admin_call import AdminCall, Attempt
    from pykclient.admin.admin_metadata import AdminMetadata
    from pykclient.clock import Clock
    from pykclient.log_context import LogContext
    from pykclient.network.kafka_client import KafkaClient
    from pykclient.types import Node


class AdminCalls:
    """Decides what to send for the calls in progress. It never waits.

    A driver alternates between ``step`` and polls of the network client. The calls complete in both.

    Thread: one at a time, the driver's; ``submit`` and ``initiate_close``: any.
    """

    def __init__(
        self,
        client: KafkaClient,
        metadata: AdminMetadata,
        clock: Clock,
        retry_backoff_ms: int,
        log_context: LogContext,
    ) -> None:
        self._client = client
        self._metadata = metadata
        self._clock = clock
        self._retry_backoff_ms = retry_backoff_ms
        self._log = log_context.logger(__name__)
        self._submitted: deque[AdminCall[Any, Any]] = deque()  # any thread
        self._abandoned: deque[AdminCall[Any, Any]] = deque()  # any thread
        self._calls: list[AdminCall[Any, Any]] = []
        self._unsent: list[Attempt] = []
        self._closing: KafkaError | None = None  # the error of calls that are not done
        self.is_closed = False

    def submit(self, call: AdminCall[Any, Any]) -> None:
        """Begin a call with the next step."""
        self._submitted.append(call)

    def abandon(self, call: AdminCall[Any, Any]) -> None:
        """End a call that nobody waits for any more, with the next step."""
        self._abandoned.append(call)

    @property
    def is_closing(self) -> bool:
        return self._closing is not None

    # --- deciding ----------------------------------------------------------------------------------------------------

    def step(self, now_ms: int) -> int:
        """Send what is due. Return the milliseconds until the next step is due, if nothing arrives before."""
        while self._submitted:
            self._calls.append(self._submitted.popleft())
        while self._abandoned:
            self._abandoned.popleft().fail(KafkaError("the call was interrupted"))
        if self._closing is not None:
            self._close(self._closing)
            return 0
        self._raise_fatal_error()
        wait_ms = self._retry_backoff_ms if self._unsent else FOREVER_MS
        for call in self._calls:
            left_ms = call.deadline.at_ms - now_ms
            if left_ms <= 0:
                self._log.debug("%s has timed out", call.name)
                call.time_out(self._client.connection_report(), self._metadata.uses_controllers)
                continue
            if call.wants_metadata:
                call.wants_metadata = False
                self._metadata.request_update(False)
            attempts, next_ms = call.poll(now_ms)
            self._unsent += attempts
            wait_ms = min(wait_ms, next_ms, left_ms)
        wait_ms = min(wait_ms, self._send(now_ms))
        self._calls = [call for call in self._calls if not call.is_done]
        return wait_ms

    def _raise_fatal_error(self) -> None:
        """Fail all calls if metadata cannot be had at all: authentication has failed, or no version is shared."""
        try:
            self._metadata.maybe_throw_fatal_exception()
        except KafkaError as error:
            for call in self._calls:
                call.fail(error)

    def _send(self, now_ms: int) -> int:
        """Send requests to nodes that are ready. Return how long to wait for the others at most."""
        wait_ms = FOREVER_MS
        unsent, self._unsent = self._unsent, []
        for attempt in unsent:
            if not attempt.is_current:
                continue
            node = self._node(attempt, now_ms)
            if node is not None and self._client.ready(node, now_ms):
                self._send_to(node, attempt, now_ms)
                continue
            if node is None:
                wait_ms = min(wait_ms, self._retry_backoff_ms)
            else:
                wait_ms = min(wait_ms, self._client.poll_delay_ms(node, now_ms))
                error = self._client.authentication_error(node)
                if error is not None:
                    attempt.fail(error, now_ms)
                    continue
                if attempt.request.destination != ANY_BROKER and self._client.connection_failed(node):
                    self._metadata.request_update(False)
                    attempt.fail(DisconnectError(f"{node} cannot be reached"), now_ms)
                    wait_ms = 0  # its call knows when it is due again
                    continue
            self._unsent.append(attempt)
        return wait_ms

    def _node(self, attempt: Attempt, now_ms: int) -> Node | None:
        """Return the node for a request, or None if it is not known (yet)."""
        cluster = self._metadata.fetch()
        if cluster.is_bootstrap_configured or not cluster.nodes:
            self._request_metadata(now_ms)
            return None
        destination = attempt.request.destination
        is_for_any = destination == ANY_BROKER
        if is_for_any and not self._metadata.uses_controllers:
            return self._client.least_loaded_node(now_ms).node
        # Of the controllers, only the active one serves requests.
        is_for_controller = is_for_any or destination == CONTROLLER
        node = cluster.controller if is_for_controller else cluster.node_by_id(destination)
        if node is None:
            self._request_metadata(now_ms)
        return node

    def _request_metadata(self, now_ms: int) -> None:
        """Have the network client ask for metadata, unless it is about to."""
        if not self._metadata.update_requested and self._metadata.time_to_next_update(now_ms) > 0:
            self._metadata.request_update(False)

    def _send_to(self, node: Node, attempt: Attempt, now_ms: int) -> None:
        request = self._client.new_client_request(
            node.id_string, attempt.request.builder, now_ms, True, None, attempt.on_complete
        )
        attempt.is_sent = True
        self._client.send(request, now_ms)

    # --- ending ------------------------------------------------------------------------------------------------------

    def initiate_close(self, error: KafkaError | None = None) -> None:
        """Fail all calls with the next step, and close the connections. Later calls are refused."""
        self._closing = error or IllegalStateError("the admin client was closed during the call")

    def _close(self, error: KafkaError) -> None:
        for call in self._calls:
            call.fail(error)
        self._calls = []
        self._unsent = []
        if not self.is_closed:
            self.is_closed = True
            self._client.close()

    def fail(self, error: BaseException) -> None:
        """Fail all calls and close, because of an exception that no step may follow."""
        failure = KafkaError(f"the admin client failed: {type(error).__name__}: {error}")
        failure.__cause__ = error
        self._close(failure)

    def round_failed(self, error: Exception, now_ms: int) -> int:
        """Fail all calls because of an unexpected exception in a step or poll; return the backoff in ms."""
        self._log.error("An unexpected error ended all calls in progress", exc_info=error)
        failure = KafkaError(f"an unexpected error ended the call: {type(error).__name__}: {error}")
        failure.__cause__ = error
        for call in self._calls:
            call.fail(failure)
        self.recover()
        return self._retry_backoff_ms

    def recover(self) -> None:
        """Start again after an exception that has ended a step or a poll anywhere: drop all connections."""
        self._client.drop_connections()
        self._unsent = []
        for call in self._calls:
            call.recover()
        self._calls = [call for call in self._calls if not call.is_done]
