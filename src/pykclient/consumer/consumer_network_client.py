"""A network client with futures that two threads share (Java: ConsumerNetworkClient)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from pykclient.clock import FOREVER_MS, Clock, Timer
from pykclient.consumer.request_future import RequestFuture
from pykclient.consumer.request_manager import UnsentRequest
from pykclient.consumer.request_managers import RequestManagers
from pykclient.consumer.unsent_requests import UnsentRequests
from pykclient.errors import DisconnectError, KafkaTimeoutError, WakeupError
from pykclient.log_context import LogContext
from pykclient.network.client_request import ClientRequest, ClientResponse, RequestBuilder
from pykclient.network.connection_failures import shown_node, shown_node_id
from pykclient.network.environment import SYSTEM_ENVIRONMENT, Environment
from pykclient.network.kafka_client import KafkaClient
from pykclient.network.metadata import Metadata
from pykclient.types import Node

#: The longest time that a poll blocks, so that requests queued by another thread do not wait longer.
MAX_POLL_TIMEOUT_MS = 5000


class _Completion:
    """The callback of a ClientRequest, which keeps its outcome until listeners can run. Thread: any."""

    __slots__ = ("_error", "_queue", "_response", "future", "is_background", "thread_id")

    def __init__(self, queue: deque[Any], future: RequestFuture[ClientResponse], is_background: bool) -> None:
        self.thread_id: int | None = None  # the thread that runs it
        self.future = future
        self.is_background = is_background
        self._queue = queue
        self._response: ClientResponse | None = None
        self._error: Exception | None = None

    def on_complete(self, response: ClientResponse) -> None:
        """Store the outcome. The client calls this in poll, under the lock; listeners run later and without it."""
        self._response = response
        self._queue.append(self)

    def on_failure(self, error: Exception) -> None:
        self._error = error
        self._queue.append(self)

    @property
    def has_outcome(self) -> bool:
        return self._response is not None or self._error is not None

    @property
    def is_queued(self) -> bool:
        return self in self._queue

    def fire(self) -> None:
        response = self._response
        if self._error is not None or response is None:
            self.future.raise_error(self._error or DisconnectError("the request was cancelled"))
        elif response.authentication_error is not None:
            self.future.raise_error(response.authentication_error)
        elif response.disconnected:
            why = "no answer came in time" if response.timed_out else "the connection was lost"
            self.future.raise_error(
                DisconnectError(f"a request to {shown_node_id(response.destination)} failed: {why}")
            )
        elif response.build_error is not None:
            self.future.raise_error(response.build_error)
        else:
            self.future.complete(response)


class _Action:
    """A function to call between completions. Thread: application."""

    __slots__ = ("fire", "thread_id")

    def __init__(self, fire: Callable[[], object]) -> None:
        self.fire = fire
        self.thread_id: int | None = None


class ConsumerNetworkClient:
    """Queues requests, sends them during polls, and completes their futures outside the lock.

    Two threads use this client. The application thread polls and blocks in it. The heartbeat thread queues requests
    with ``background=True`` and then calls ``poll_background``, which never waits; if the application thread is inside
    ``poll``, that thread sends them. Listeners of background requests may run on either thread. All others run on the
    application thread only, so consumer code outside the heartbeat needs no locks against them.

    The lock is also the I/O lease of ``managers``: both threads poll them and complete their requests while they hold
    it. The heartbeat thread does so only for managers that run in the background; other responses that it reads wait
    in one queue for the application's thread.

    Lock order: a coordinator's lock may be held while requests are queued (``send``), never while polling. The lock
    here is held while the network is polled. Under it, no other lock of the consumer is taken except the metadata's.

    Thread: any, as described above.
    """

    def __init__(
        self,
        log_context: LogContext,
        client: KafkaClient,
        metadata: Metadata,
        clock: Clock,
        retry_backoff_ms: int,
        request_timeout_ms: int,
        max_poll_timeout_ms: int,
        environment: Environment = SYSTEM_ENVIRONMENT,
    ) -> None:
        self._log = log_context.logger(__name__)
        self._client = client
        self._metadata = metadata
        self._clock = clock
        self._retry_backoff_ms = retry_backoff_ms
        self.default_request_timeout_ms = request_timeout_ms
        self._max_poll_timeout_ms = min(max_poll_timeout_ms, MAX_POLL_TIMEOUT_MS)
        self._unsent = UnsentRequests()
        # guards: _client, _is_broken, managers, _unassigned, _answered
        self._lock = environment.new_reentrant_lock()
        self._get_ident = environment.get_ident
        # Filled under the lock by the polling thread, emptied outside it.
        self.managers = RequestManagers(self._send_of_manager)
        self._unassigned: deque[tuple[UnsentRequest, int, _Completion]] = deque()  # with the time of arrival
        self._answered: deque[_Completion] = deque()  # requests of managers
        self._completed: deque[_Completion | _Action] = deque()
        self._completed_background: deque[_Completion | _Action] = deque()
        self._pending_disconnects: deque[Node] = deque()
        self._pending_connects: deque[Node] = deque()
        self._polling_thread_id: int | None = None
        self._background_unsent = False
        self._wakeup = False
        self._wakeup_disabled = False
        # All incomplete requests, so that none is forgotten if an exception strikes in the middle.
        self._outstanding: dict[_Completion, None] = {}
        self._is_broken = False  # guarded by _lock: True if an exception has interrupted _client

    # --- sending ---------------------------------------------------------------------------------------------------

    def send(
        self,
        node: Node,
        request_builder: RequestBuilder,
        request_timeout_ms: int | None = None,
        *,
        background: bool = False,
    ) -> RequestFuture[ClientResponse]:
        """Queue a request for the next ``poll``, or for the one in progress, and return its future.

        ``request_timeout_ms`` starts now and includes the time in the queue. The future fails with DisconnectError if
        the connection is lost, or with KafkaTimeoutError if the request could not be sent in time.
        """
        queue = self._completed_background if background else self._completed
        completion = _Completion(queue, RequestFuture(), background)
        request = self._client.new_client_request(
            node.id_string,
            request_builder,
            self._clock.now_ms(),
            True,
            self.default_request_timeout_ms if request_timeout_ms is None else request_timeout_ms,
            completion.on_complete,
        )
        self._outstanding[completion] = None
        self._unsent.put(node, request, completion.on_failure)
        if background:
            self._background_unsent = True
        self._wake_other_poller()
        return completion.future

    def _send_of_manager(self, unsent: UnsentRequest, is_background: bool) -> None:
        completion = _Completion(self._answered, unsent.future, is_background)
        self._unassigned.append((unsent, self._clock.now_ms(), completion))

    def _assign(self, now_ms: int) -> bool:
        """Queue the managers' requests at their nodes. Return False if some need a node and none can be connected to.

        A request stays with the least loaded node that was chosen for it, and fails if the connection does.
        """
        waiting = self._unassigned
        for _ in range(len(waiting)):
            unsent, since_ms, completion = entry = waiting.popleft()
            timeout_ms = self.default_request_timeout_ms if unsent.timeout_ms is None else unsent.timeout_ms
            node = unsent.node or self._client.least_loaded_node(now_ms).node
            if node is not None:
                request = self._client.new_client_request(
                    node.id_string, unsent.builder, since_ms, True, timeout_ms, completion.on_complete
                )
                self._unsent.put(node, request, completion.on_failure)
            elif now_ms - since_ms > timeout_ms:
                completion.on_failure(KafkaTimeoutError(f"a request could not be sent within {timeout_ms} ms"))
            else:
                waiting.append(entry)
        return not waiting

    def _wake_other_poller(self) -> None:
        # The poller sets its id before it checks for unsent requests, and this thread queues the request before it
        # reads the id. So either the poller sees the request, or this thread sees the poller. A thread need not wake
        # itself.
        poller = self._polling_thread_id
        if poller is not None and poller != self._get_ident():
            self._client.wakeup()

    def run_in_application(self, action: Callable[[], object]) -> None:
        """Call ``action`` in a poll of the application thread: the one in progress, or else the next.

        For listeners of background requests whose work belongs to the application thread.
        """
        self._completed.append(_Action(action))
        self._wake_other_poller()

    def wakeup(self) -> None:
        """Make the poll in progress, or else the next one, raise WakeupError. Safe in a signal handler."""
        self._wakeup = True
        self._client.wakeup()

    def disable_wakeups(self) -> None:
        """Ignore wakeups from now on, for closing."""
        self._wakeup_disabled = True

    def maybe_trigger_wakeup(self) -> None:
        """Raise WakeupError if ``wakeup`` was called since it was last raised."""
        if self._wakeup and not self._wakeup_disabled:
            self._wakeup = False
            raise WakeupError("wakeup() was called")

    def disconnect_async(self, node: Node) -> None:
        """Close the connection to ``node`` in the next poll, which fails its requests."""
        self._pending_disconnects.append(node)
        self._wake_other_poller()

    def try_connect(self, node: Node) -> None:
        """Connect in the next poll if the backoff allows, so that an old failure no longer counts against the node."""
        self._pending_connects.append(node)
        self._wake_other_poller()

    # --- polling ---------------------------------------------------------------------------------------------------

    def poll(self, timer: Timer, should_block: Callable[[], bool] | None = None, disable_wakeup: bool = False) -> None:
        """Poll the network once, and wait until something happens or the timer expires.

        ``should_block`` is called last before waiting; False means that the caller's condition is already met. Raises
        the error that metadata has for the application. Thread: application.

        Raises:
            WakeupError: ``wakeup`` was called.
        """
        self._fire(self._completed_background)
        self._fire(self._completed)
        timer.update()
        with self._lock:
            self._is_broken = True
            self._complete_answered()
            wait_ms = self.managers.poll(timer.now_ms)
            self._poll_network(timer, should_block, wait_ms)
            self._complete_answered()
            self._is_broken = False
            if not disable_wakeup:
                # After the disconnects, so that their futures complete with the next poll in any case.
                self.maybe_trigger_wakeup()
            self._is_broken = True
            self._try_send(timer.now_ms)
            self._fail_expired_requests(timer.now_ms)
            self._unsent.clean()
            self._is_broken = False
        if self._background_unsent:
            # The heartbeat thread may have queued requests after the last check and before the lock was free. It relies
            # on this thread to send them, and the application may not poll again for minutes.
            self.transmit_sends()
        self._fire(self._completed_background)
        self._fire(self._completed)
        self._metadata.maybe_throw_any_exception()

    def poll_future(self, future: RequestFuture[Any], timer: Timer | None = None, disable_wakeup: bool = False) -> bool:
        """Poll until ``future`` is done or the timer expires, and return whether it is done. Thread: application."""
        if timer is None:
            timer = Timer(self._clock, FOREVER_MS)
        while True:
            self.poll(timer, future.should_block, disable_wakeup)
            if future.is_done or timer.expired:
                return future.is_done

    def poll_no_wakeup(self) -> None:
        """Poll without waiting and without raising WakeupError. Thread: application."""
        self.poll(Timer(self._clock, 0), None, disable_wakeup=True)

    def poll_background(self) -> int | None:
        """Poll managers that run in the background, send and receive without waiting, and complete their requests.

        Return the milliseconds until the next call is due, or None if the application's thread holds the lease, or
        was interrupted while it did. Thread: heartbeat.
        """
        wait_ms = None
        if self._lock.acquire(blocking=False):
            try:
                if not self._is_broken:
                    timer = Timer(self._clock, 0)
                    wait_ms = self.managers.poll(timer.now_ms, background=True)
                    self._poll_network(timer, None)
                    self._complete_answered(background=True)
                    self._try_send(timer.now_ms)
                    self._fail_expired_requests(timer.now_ms)
            finally:
                self._lock.release()
        self._fire(self._completed_background)
        return wait_ms

    def transmit_sends(self, *, if_any: bool = False) -> None:
        """Send requests where that needs no waiting. Raises nothing and completes nothing. Thread: application.

        With ``if_any``, leave the network alone if there is no request, sent or not.
        """
        now_ms = self._clock.now_ms()
        with self._lock:
            self._is_broken = True
            self.managers.poll(now_ms)
            if not if_any or self.has_pending_requests():
                self._try_send(now_ms)
                self._client.poll(0, now_ms)
            self._is_broken = False

    # --- recovery from exceptions ------------------------------------------------------------------------------------

    def end_interrupted_wait(self) -> bool:
        """Return True if the exception that ended the last call struck while it waited for the network.

        In that case no step was interrupted halfway, and connections and requests remain valid. Thread: application.
        """
        with self._lock:
            if not self._is_broken or not self._client.end_interrupted_wait():
                return False
            self._is_broken = False
            return True

    def reset(self) -> None:
        """Drop all connections and fail all requests, in whatever state an exception has left them.

        A request whose completion was interrupted also fails, for listeners that were not called yet. Thread:
        application.
        """
        error = DisconnectError(
            "the connection was closed, because an exception interrupted the call that was using it"
        )
        with self._lock:
            self._client.drop_connections()
            self._unsent.clear()
            self._pending_disconnects.clear()
            self._pending_connects.clear()
            self._unassigned.clear()
            self._answered.clear()
            self.managers.reset()
            for completion in list(self._outstanding):
                if not completion.has_outcome:
                    completion.on_failure(error)
            self._is_broken = False
        me = self._get_ident()
        for completion in list(self._outstanding):
            # Neither queued for completion nor being completed by the heartbeat thread: the exception interrupted it
            # here.
            if not completion.is_queued and completion.thread_id in (None, me):
                completion.future.give_up(error)
                self._outstanding.pop(completion, None)
        self._fire(self._completed_background)
        self._fire(self._completed)

    def await_metadata_update(self, timer: Timer) -> bool:
        """Request metadata and poll until it arrives. Return False if the timer expires first. Thread: application."""
        version = self._metadata.request_update(False)
        while True:
            self.poll(timer)
            if self._metadata.update_version > version:
                return True
            if timer.expired:
                return False

    def ensure_fresh_metadata(self, timer: Timer) -> bool:
        """Await a metadata update if one is due; otherwise return True."""
        if self._metadata.update_requested or self._metadata.time_to_next_update(timer.now_ms) == 0:
            return self.await_metadata_update(timer)
        return True

    def await_pending_requests(self, node: Node, timer: Timer) -> bool:
        """Poll until ``node`` has no requests in flight. Return False if the timer expires. Thread: application."""
        while self.has_pending_requests(node) and timer.not_expired:
            self.poll(timer)
        return not self.has_pending_requests(node)

    def _poll_network(
        self, timer: Timer, should_block: Callable[[], bool] | None, longest_wait_ms: int = FOREVER_MS
    ) -> None:
        """Poll the network client once, under the lock."""
        self._polling_thread_id = self._get_ident()
        try:
            self._handle_pending_disconnects()
            while self._pending_connects:
                self._client.ready(self._pending_connects.popleft(), timer.now_ms)
            timeout_ms = self._try_send(timer.now_ms)
            # Completions may have been queued since they last ran; waiting would delay them.
            is_done = self._completed or self._completed_background or self._answered
            if is_done or (should_block is not None and not should_block()):
                timeout_ms = 0
            else:
                timeout_ms = min(timeout_ms, timer.remaining_ms, longest_wait_ms)
                if not self._client.in_flight_request_count():
                    # No response will end the wait, and nodes may come out of their connection backoff.
                    timeout_ms = min(timeout_ms, self._retry_backoff_ms)
            self._client.poll(timeout_ms, timer.now_ms)
        finally:
            self._polling_thread_id = None
        timer.update()
        # Before anything calls client.ready() again, which clears failures.
        self._check_disconnects(timer.now_ms)

    def _try_send(self, now_ms: int) -> int:
        """Pass requests for ready nodes to the client; return the longest wait that the other nodes' backoff allows."""
        poll_delay_ms = self._max_poll_timeout_ms
        self._background_unsent = False
        client = self._client
        if self._unassigned and not self._assign(now_ms):
            poll_delay_ms = min(poll_delay_ms, self._retry_backoff_ms)
        for node in self._unsent.nodes():
            poll_delay_ms = min(poll_delay_ms, client.poll_delay_ms(node, now_ms))
            while client.ready(node, now_ms):
                request = self._unsent.pop(node)
                if request is None:
                    break
                client.send(request, now_ms)
        return poll_delay_ms

    def _check_disconnects(self, now_ms: int) -> None:
        # The client reports the requests that it has sent. These are requests that it does not have yet.
        for node in self._unsent.nodes():
            if self._client.connection_failed(node):
                error = self._client.authentication_error(node)
                for request, _ in self._unsent.remove(node):
                    _disconnected(request, now_ms, error).on_complete()

    def _handle_pending_disconnects(self) -> None:
        while self._pending_disconnects:
            node = self._pending_disconnects.popleft()
            for _, fail in self._unsent.remove(node):
                fail(DisconnectError(f"the connection to {shown_node(node)} was closed before the request was sent"))
            self._client.disconnect(node.id_string)

    def _fail_expired_requests(self, now_ms: int) -> None:
        for request, fail in self._unsent.remove_expired(now_ms):
            fail(KafkaTimeoutError(f"a request could not be sent within {request.request_timeout_ms} ms"))

    def _complete_answered(self, *, background: bool = False) -> None:
        """Complete requests of managers; with ``background``, only those of managers that run in the background."""
        for _ in range(len(self._answered)):
            completion = self._answered.popleft()
            if completion.is_background or not background:
                completion.fire()
            else:
                self._answered.append(completion)

    def _fire(self, queue: deque[_Completion | _Action]) -> None:
        if not queue:
            return
        me = self._get_ident()
        while queue:
            try:
                completion = queue.popleft()
            except IndexError:  # the other thread took the last one
                break
            completion.thread_id = me
            completion.fire()
            if isinstance(completion, _Completion):
                self._outstanding.pop(completion, None)
        # The other thread may be waiting for this completion.
        self._wake_other_poller()

    # --- nodes and connections -------------------------------------------------------------------------------------

    def least_loaded_node(self, *, background: bool = False) -> Node | None:
        """Return the node to use when any will do, or None if no connection is possible now.

        The heartbeat thread does not wait for a poll in progress: it gets None, and the application thread sends
        instead.
        """
        if not background:
            with self._lock:
                return self._client.least_loaded_node(self._clock.now_ms()).node
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return self._client.least_loaded_node(self._clock.now_ms()).node
        finally:
            self._lock.release()

    def has_ready_nodes(self, now_ms: int) -> bool:
        with self._lock:
            return self._client.has_ready_nodes(now_ms)

    def is_unavailable(self, node: Node) -> bool:
        """Return whether ``node`` is disconnected and in its backoff.

        Without the lock: these are single lookups, and the heartbeat thread must not wait for a blocked poll.
        """
        return self._client.connection_failed(node) and self._client.connection_delay_ms(node, self._clock.now_ms()) > 0

    def maybe_throw_auth_failure(self, node: Node) -> None:
        """Raise the AuthenticationError of the connection to ``node``, if it has one."""
        error = self._client.authentication_error(node)
        if error is not None:
            raise error

    def pending_request_count(self, node: Node | None = None) -> int:
        """Return the number of requests without a response, sent or not, of one node or of all."""
        with self._lock:
            in_flight = self._client.in_flight_request_count(None if node is None else node.id_string)
            unassigned = sum(1 for unsent, _, _ in self._unassigned if node is None or unsent.node == node)
        return self._unsent.request_count(node) + unassigned + in_flight

    def has_pending_requests(self, node: Node | None = None) -> bool:
        if node is None:
            # Single lookups need no lock.
            return self._client.has_in_flight_requests() or bool(self._unassigned) or not self._unsent.is_empty
        return self.pending_request_count(node) > 0

    def connection_report(self) -> str:
        """Return which addresses could not be reached and why; empty if there are none."""
        return self._client.connection_report()

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            self._client.close()


def _disconnected(request: ClientRequest, now_ms: int, error: Any) -> ClientResponse:
    builder = request.request_builder
    return ClientResponse(
        builder.api_key,
        builder.latest_allowed_version,
        request.correlation_id,
        request.callback,
        request.destination,
        request.created_ms,
        now_ms,
        disconnected=True,
        authentication_error=error,
    )
