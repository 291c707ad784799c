"""Requests from one broker to others (Java: InterBrokerSendThread)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from pykclient.network.client_request import ClientRequest, ClientResponse, RequestBuilder
from pykclient.types import Node

if TYPE_CHECKING:
    from pykclient.errors import AuthenticationError
    from pykclient.testing.broker import Broker
    from pykclient.testing.event_loop import TimerHandle


class RequestAndCompletionHandler(NamedTuple):
    """A request for a node, and the callback for its outcome."""

    created_ms: int
    destination: Node
    request: RequestBuilder
    handler: Callable[[ClientResponse], None]


class UnsentRequests:
    """Requests that wait for a connection, by node, in order. Thread: loop."""

    __slots__ = ("_unsent",)

    def __init__(self) -> None:
        self._unsent: dict[Node, deque[ClientRequest]] = {}

    def put(self, node: Node, request: ClientRequest) -> None:
        self._unsent.setdefault(node, deque()).append(request)

    def requests(self, node: Node) -> deque[ClientRequest]:
        """Return the queue of ``node``, from which the caller may remove requests."""
        return self._unsent.get(node) or deque()

    def remove(self, node: Node) -> deque[ClientRequest]:
        return self._unsent.pop(node, None) or deque()

    def remove_all_timed_out(self, now_ms: int) -> list[ClientRequest]:
        expired = []
        for requests in self._unsent.values():
            while requests and now_ms - requests[0].created_ms >= requests[0].request_timeout_ms:
                expired.append(requests.popleft())
        return expired

    def clean(self) -> None:
        """Remove the empty queues."""
        for node in [node for node, requests in self._unsent.items() if not requests]:
            del self._unsent[node]

    def nodes(self) -> list[Node]:
        return list(self._unsent)

    def __iter__(self) -> Iterator[ClientRequest]:
        for requests in self._unsent.values():
            yield from requests

    def __bool__(self) -> bool:
        return any(self._unsent.values())


class InterBrokerSendThread:
    """Sends the requests that ``generate_requests`` yields as soon as their nodes are ready, and reports each outcome.

    Java has a polling thread here. This is an actor: ``wakeup`` schedules one ``do_work`` on the loop. It is called
    when there is something to send and when the network has news; a timer replaces the timeout of the poll. A request
    that is not sent in time, or whose node is unreachable, completes as disconnected. Thread: loop.
    """

    def __init__(self, broker: Broker, purpose: str, request_timeout_ms: int) -> None:
        self._broker = broker
        self._log = broker.log_context.logger(__name__)
        self._purpose = purpose
        self._request_timeout_ms = request_timeout_ms
        self._unsent = UnsentRequests()
        self._connecting: set[str] = set()  # ids of nodes that requests wait for, except those in backoff
        #: The deadline of each unanswered request by correlation id, oldest first.
        self._deadlines_ms: dict[int, int] = {}
        self._running = False
        self._scheduled = False
        self._timer: TimerHandle | None = None
        self._timer_ms = 0

    def startup(self) -> None:
        self._network_client, selector = self._broker.new_network_client(self._purpose)
        selector.on_news = self.wakeup
        self._running = True

    def shutdown(self) -> None:
        """Discard everything, without completing the requests in flight."""
        if not self._running:
            return
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._network_client.close()

    def generate_requests(self) -> Iterable[RequestAndCompletionHandler]:
        """Return the requests to send now."""
        raise NotImplementedError

    def has_unsent_requests(self) -> bool:
        return bool(self._unsent)

    def wakeup(self) -> None:
        """Schedule ``do_work``."""
        if self._running and not self._scheduled:
            self._scheduled = True
            self._broker.call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        if self._running:
            self.do_work()

    def do_work(self) -> None:
        """Do one round: send, receive, and time out requests."""
        self.poll_once()

    def poll_once(self) -> None:
        client = self._network_client
        for generated in self.generate_requests():
            request = client.new_client_request(
                generated.destination.id_string,
                generated.request,
                generated.created_ms,
                True,
                self._request_timeout_ms,
                self._completion(generated.handler),
            )
            self._deadlines_ms[request.correlation_id] = generated.created_ms + self._request_timeout_ms
            self._unsent.put(generated.destination, request)
        if not self._running:
            return  # a completion handler has stopped the broker
        now_ms = self._broker.loop.now_ms
        wait_ms = self._send_requests(now_ms) if self._unsent else self._request_timeout_ms
        client.poll(0, now_ms)
        if not self._running:
            return
        if self._unsent:
            self._check_disconnects(now_ms)
            self._fail_expired_requests(now_ms)
            self._unsent.clean()
            if self._unsent:
                # The poll may have established a connection.
                wait_ms = min(wait_ms, self._send_requests(now_ms))
        # If nothing is in flight, a leftover timer does no harm. A timer per request would fill the loop's heap.
        if self._deadlines_ms:
            oldest_ms = next(iter(self._deadlines_ms.values()))
            self._wait(min(wait_ms, oldest_ms + 1 - now_ms), now_ms)

    def _completion(self, handler: Callable[[ClientResponse], None]) -> Callable[[ClientResponse], None]:
        def complete(response: ClientResponse) -> None:
            self._deadlines_ms.pop(response.correlation_id, None)
            handler(response)

        return complete

    def _wait(self, wait_ms: int, now_ms: int) -> None:
        """Do work again in ``wait_ms`` at the latest."""
        due_ms = now_ms + max(1, wait_ms)
        if self._timer is not None:
            if self._timer.active and self._timer_ms <= due_ms:
                return
            self._timer.cancel()
        self._timer_ms = due_ms
        self._timer = self._broker.call_later(due_ms - now_ms, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.wakeup()

    def _send_requests(self, now_ms: int) -> int:
        """Send what is possible; return the milliseconds until the rest must be checked again."""
        client = self._network_client
        wait_ms = self._request_timeout_ms
        for node in self._unsent.nodes():
            requests = self._unsent.requests(node)
            while requests:
                can_connect = client.can_connect(node, now_ms)
                if client.ready(node, now_ms):
                    self._connecting.discard(node.id_string)
                    client.send(requests.popleft(), now_ms)
                else:
                    if can_connect or not client.connection_failed(node):
                        self._connecting.add(node.id_string)
                    wait_ms = min(wait_ms, client.connection_delay_ms(node, now_ms))
                    break
        return wait_ms

    def _check_disconnects(self, now_ms: int) -> None:
        # The network client completes requests in flight when their connection is lost; this is about unsent ones.
        # During a backoff they wait for the next attempt: if they failed at once, they would be sent again at once.
        client = self._network_client
        for node in self._unsent.nodes():
            if node.id_string in self._connecting and client.connection_failed(node):
                self._connecting.discard(node.id_string)
                error = client.authentication_error(node)
                for request in self._unsent.remove(node):
                    self._complete_with_disconnect(request, now_ms, error)

    def _fail_expired_requests(self, now_ms: int) -> None:
        for request in self._unsent.remove_all_timed_out(now_ms):
            self._log.debug("Not sent within %d ms: %r", request.request_timeout_ms, request)
            self._complete_with_disconnect(request, now_ms, None)

    @staticmethod
    def _complete_with_disconnect(request: ClientRequest, now_ms: int, error: AuthenticationError | None) -> None:
        ClientResponse(
            request.api_key,
            request.request_builder.latest_allowed_version,
            request.correlation_id,
            request.callback,
            request.destination,
            now_ms,
            now_ms,
            disconnected=True,
            authentication_error=error,
        ).on_complete()
