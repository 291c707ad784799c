"""The network client of the coordinator's parts that are not request managers yet (Java: ConsumerNetworkClient)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from pykclient.clock import FOREVER_MS, Clock, Timer
from pykclient.consumer.network_client_delegate import NetworkClientDelegate
from pykclient.consumer.request_future import RequestFuture
from pykclient.consumer.request_manager import UnsentRequest
from pykclient.errors import DisconnectError, WakeupError
from pykclient.network.client_request import ClientResponse, RequestBuilder
from pykclient.network.environment import SYSTEM_ENVIRONMENT, Environment
from pykclient.network.kafka_client import KafkaClient
from pykclient.network.metadata import Metadata
from pykclient.types import Node


class _Completion:
    """Keeps the outcome of a request until listeners can run without the lease. Thread: any."""

    __slots__ = ("_error", "_queue", "_response", "future", "thread_id")

    def __init__(self, queue: deque[_Completion]) -> None:
        self.thread_id: int | None = None  # the thread that runs it
        self.future: RequestFuture[ClientResponse] = RequestFuture()
        self._queue = queue
        self._response: ClientResponse | None = None
        self._error: Exception | None = None

    def on_success(self, response: ClientResponse) -> None:
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
        if self._response is not None:
            self.future.complete(self._response)
        else:
            self.future.raise_error(self._error or DisconnectError("the request was cancelled"))


class ConsumerNetworkClient(NetworkClientDelegate):
    """Adds waits, and requests whose listeners run without the lease.

    Two threads use this client. The application thread polls and blocks in it. The heartbeat thread queues requests
    with ``background=True`` and then calls ``poll_background``, which never waits; if the application thread is inside
    ``poll``, that thread sends them. Listeners of background requests may run on either thread. All others run on the
    application thread only, so consumer code outside the heartbeat needs no locks against them.

    Lock order: a coordinator's lock may be held while requests are queued (``send``), never while polling.

    Thread: any, as described above.
    """

    def __init__(
        self,
        client: KafkaClient,
        metadata: Metadata,
        clock: Clock,
        retry_backoff_ms: int,
        request_timeout_ms: int,
        max_poll_timeout_ms: int,
        environment: Environment = SYSTEM_ENVIRONMENT,
    ) -> None:
        super().__init__(client, clock, retry_backoff_ms, request_timeout_ms, max_poll_timeout_ms, environment)
        self._metadata = metadata
        self._get_ident = environment.get_ident
        # Filled under the lease by the polling thread, emptied without it.
        self._completed: deque[_Completion] = deque()
        self._completed_background: deque[_Completion] = deque()
        self._polling_thread_id: int | None = None
        self._wakeup = False
        self._wakeup_disabled = False
        # All incomplete requests, so that none is forgotten if an exception strikes in the middle.
        self._outstanding: dict[_Completion, None] = {}

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
        completion = _Completion(self._completed_background if background else self._completed)
        self._outstanding[completion] = None
        unsent = UnsentRequest(request_builder, node, request_timeout_ms)
        unsent.future.add_listener(completion.on_success, completion.on_failure)
        self.add(unsent, background)
        self._wake_other_poller()
        return completion.future

    def _wake_other_poller(self) -> None:
        # The poller sets its id before it checks for unsent requests, and this thread queues the request before it
        # reads the id. So either the poller sees the request, or this thread sees the poller. A thread need not wake
        # itself.
        poller = self._polling_thread_id
        if poller is not None and poller != self._get_ident():
            self._client.wakeup()

    def wakeup(self) -> None:
        """Make the poll in progress, or else the next one, raise WakeupError. Safe in a signal handler."""
        self._wakeup = True
        super().wakeup()

    def disable_wakeups(self) -> None:
        """Ignore wakeups from now on, for closing."""
        self._wakeup_disabled = True

    def maybe_trigger_wakeup(self) -> None:
        """Raise WakeupError if ``wakeup`` was called since it was last raised."""
        if self._wakeup and not self._wakeup_disabled:
            self._wakeup = False
            raise WakeupError("wakeup() was called")

    def disconnect_async(self, node: Node) -> None:
        super().disconnect_async(node)
        self._wake_other_poller()

    def try_connect(self, node: Node) -> None:
        super().try_connect(node)
        self._wake_other_poller()

    # --- polling ---------------------------------------------------------------------------------------------------

    def poll(self, timer: Timer, should_block: Callable[[], bool] | None = None, disable_wakeup: bool = False) -> None:
        """Poll the managers and the network once, and wait until something happens or the timer expires.

        ``should_block`` is called last before waiting; False means that the caller's condition is already met. Raises
        the error that metadata has for the application. Thread: application.

        Raises:
            WakeupError: ``wakeup`` was called.
        """
        self._fire(self._completed_background)
        self._fire(self._completed)
        timer.update()
        with self.lease:
            self.is_broken = True
            self.complete_answered()
            wait_ms = min(self.managers.poll(timer.now_ms), timer.remaining_ms)
            self._poll_network(timer, wait_ms, should_block)
            self.is_broken = False
            if not disable_wakeup:
                # After the disconnects, so that their futures complete with the next poll in any case.
                self.maybe_trigger_wakeup()
        if self._arrived:
            # The heartbeat thread may have queued requests after the last check and before the lease was free. It
            # relies on this thread to send them, and the application may not poll again for minutes.
            self.transmit_sends()
        self._fire(self._completed_background)
        self._fire(self._completed)
        self._metadata.maybe_throw_any_exception()

    def _poll_network(self, timer: Timer, wait_ms: int, should_block: Callable[[], bool] | None) -> None:
        self._polling_thread_id = self._get_ident()
        try:
            # Completions may have been queued since they last ran; waiting would delay them.
            if self._completed or self._completed_background or (should_block is not None and not should_block()):
                wait_ms = 0
            timer.update(self.poll_network(wait_ms, timer.now_ms))
        finally:
            self._polling_thread_id = None

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
        if self.lease.acquire(blocking=False):
            try:
                if not self.is_broken:
                    now_ms = self._clock.now_ms()
                    wait_ms = self.managers.poll(now_ms, background=True)
                    self.poll_network(0, now_ms, background=True)
            finally:
                self.lease.release()
        self._fire(self._completed_background)
        return wait_ms

    def transmit_sends(self, *, if_any: bool = False) -> None:
        """Send requests where that needs no waiting. Raises nothing and completes nothing. Thread: application.

        With ``if_any``, do nothing if no manager is due and there is no request, sent or not.
        """
        now_ms = self._clock.now_ms()
        if if_any and not self.managers.are_due(now_ms) and not self.has_pending_requests():
            return
        with self.lease:
            self.is_broken = True
            self.managers.poll(now_ms)
            self.transmit(now_ms)
            self.is_broken = False

    def reset(self) -> None:
        """Drop all connections and fail all requests, in whatever state an exception has left them.

        A request whose completion was interrupted also fails, for listeners that were not called yet. Thread:
        application.
        """
        super().reset()
        error = DisconnectError(
            "the connection was closed, because an exception interrupted the call that was using it"
        )
        for completion in list(self._outstanding):
            if not completion.has_outcome:
                completion.on_failure(error)
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

    def _fire(self, queue: deque[_Completion]) -> None:
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
            self._outstanding.pop(completion, None)
        # The other thread may be waiting for this completion.
        self._wake_other_poller()

    def least_loaded_node(self) -> Node | None:
        """Return the node to use when any will do, or None if no connection is possible now."""
        with self.lease:
            return self._client.least_loaded_node(self._clock.now_ms()).node
