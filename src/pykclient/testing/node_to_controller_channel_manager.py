"""A broker's requests to the current controller (Java: NodeToControllerChannelManagerImpl)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from pykclient.errors import IllegalStateError, NotControllerError
from pykclient.testing.inter_broker_send_thread import InterBrokerSendThread, RequestAndCompletionHandler

if TYPE_CHECKING:
    from pykclient.network.client_request import ClientResponse, RequestBuilder
    from pykclient.protocol.message import Message
    from pykclient.testing.broker import Broker
    from pykclient.testing.event_loop import TimerHandle
    from pykclient.types import Node


class NodeToControllerQueueItem:
    """A request for the controller, with two callbacks, of which one is called once. Thread: loop."""

    __slots__ = ("created_ms", "on_complete", "on_timeout", "request")

    def __init__(
        self,
        created_ms: int,
        request: RequestBuilder,
        on_complete: Callable[[ClientResponse], None],
        on_timeout: Callable[[], None],
    ) -> None:
        self.created_ms = created_ms
        self.request = request
        self.on_complete = on_complete
        self.on_timeout = on_timeout


class NodeToControllerRequestThread(InterBrokerSendThread):
    """Sends the queued requests, one after the other, to the controller that the metadata cache names.

    If that broker is not the controller or unreachable, it is forgotten, and the request returns to the head of the
    queue, for the controller that the cache names next. Without a controller the thread waits for the next
    UPDATE_METADATA.

    Thread: loop.
    """

    def __init__(self, broker: Broker, purpose: str, request_timeout_ms: int, retry_timeout_ms: int) -> None:
        super().__init__(broker, purpose, request_timeout_ms)
        self._retry_timeout_ms = retry_timeout_ms
        self._queue: deque[NodeToControllerQueueItem] = deque()
        self._active_controller: Node | None = None
        self._expiry: TimerHandle | None = None

    def shutdown(self) -> None:
        super().shutdown()
        self._queue.clear()
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def enqueue(self, item: NodeToControllerQueueItem) -> None:
        """Queue a request.

        Raises:
            IllegalStateError: the thread was not started.
        """
        if not self._running:
            raise IllegalStateError("a request for the controller was sent while its channel is not open")
        self._queue.append(item)
        self._arm_expiry()
        self.wakeup()

    def on_metadata_update(self) -> None:
        """Check whether the cache names a controller now."""
        if self._queue and self._active_controller is None:
            self.wakeup()

    def do_work(self) -> None:
        if self._active_controller is None:
            cache = self._broker.metadata_cache
            controller_id = cache.controller_id
            if controller_id is not None:
                self._active_controller = cache.alive_broker(controller_id)
        self.poll_once()

    def generate_requests(self) -> Iterable[RequestAndCompletionHandler]:
        self._expire(self._broker.loop.now_ms)
        controller = self._active_controller
        if controller is None or not self._queue or self._unsent or self._network_client.has_in_flight_requests():
            return ()
        item = self._queue.popleft()
        now_ms = self._broker.loop.now_ms
        return (
            RequestAndCompletionHandler(
                now_ms, controller, item.request, lambda response: self._handle_response(item, response)
            ),
        )

    def _handle_response(self, item: NodeToControllerQueueItem, response: ClientResponse) -> None:
        if response.authentication_error is not None:
            self._log.error("The controller refused this broker: %s", response.authentication_error)
            self._maybe_disconnect_and_update_controller()
            item.on_complete(response)
        elif response.build_error is not None:
            item.on_complete(response)
        elif response.disconnected:
            self._active_controller = None
            self._queue.appendleft(item)
        elif contains_error(response.response_body, NotControllerError.code):
            self._maybe_disconnect_and_update_controller()
            self._queue.appendleft(item)
        else:
            item.on_complete(response)
        if self._queue:
            self._arm_expiry()
            self.wakeup()

    def _maybe_disconnect_and_update_controller(self) -> None:
        if self._active_controller is not None:
            # The reconnect backoff also prevents a tight loop if the cache lags behind.
            self._network_client.disconnect(self._active_controller.id_string)
            self._active_controller = None

    # --- giving up -------------------------------------------------------------------------------------------------

    def _expire(self, now_ms: int) -> None:
        expired = [item for item in self._queue if now_ms - item.created_ms >= self._retry_timeout_ms]
        for item in expired:
            self._queue.remove(item)
        for item in expired:
            if self._running:  # the previous response may have completed the broker's shutdown
                item.on_timeout()

    def _arm_expiry(self) -> None:
        if self._expiry is None and self._queue:
            oldest_ms = min(item.created_ms for item in self._queue)
            delay_ms = max(1, oldest_ms + self._retry_timeout_ms - self._broker.loop.now_ms)
            self._expiry = self._broker.call_later(delay_ms, self._on_expiry)

    def _on_expiry(self) -> None:
        self._expiry = None
        if self._running:
            self._expire(self._broker.loop.now_ms)
            self._arm_expiry()


class NodeToControllerChannelManager:
    """The broker's channel to the controller, for ALTER_PARTITION, producer ids, controlled shutdown and new topics.

    Thread: loop.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        retry_timeout_ms = broker.config.get_int("request.timeout.ms")
        request_timeout_ms = min(broker.config.get_int("controller.socket.timeout.ms"), retry_timeout_ms)
        self.request_thread = NodeToControllerRequestThread(
            broker, "to-controller", request_timeout_ms, retry_timeout_ms
        )

    def startup(self) -> None:
        self._broker.metadata_cache.add_listener(self._on_metadata_update)
        self.request_thread.startup()

    def shutdown(self) -> None:
        self.request_thread.shutdown()

    def send_request(
        self,
        request: RequestBuilder,
        on_complete: Callable[[ClientResponse], None],
        on_timeout: Callable[[], None] = lambda: None,
    ) -> None:
        """Send ``request`` to the controller within ``request.timeout.ms``, including the time to find it.

        ``on_complete`` may also get an error that the controller does not know the API or this broker. Responses saying
        that the broker was not the controller are not passed on.
        """
        self.request_thread.enqueue(
            NodeToControllerQueueItem(self._broker.loop.now_ms, request, on_complete, on_timeout)
        )

    def _on_metadata_update(self, topics: Collection[str]) -> None:  # noqa: ARG002 - the listener's signature
        self.request_thread.on_metadata_update()


def contains_error(message: Message | None, code: int) -> bool:
    """Return whether a response has ``code`` at its top, or for one of its topics (Java:
    AbstractResponse.errorCounts).
    """
    if message is None:
        return False
    if getattr(message, "error_code", 0) == code:
        return True
    for field in ("topics", "partitions", "responses", "replica_election_results", "results"):
        elements = getattr(message, field, None)
        if isinstance(elements, list) and any(contains_error(element, code) for element in elements):
            return True
    return False
