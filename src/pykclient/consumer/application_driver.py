"""Request managers, which decide what to send, the network client that sends it, and the driver that waits.

Java: RequestManager, PollResult, UnsentRequest, RequestFuture, RequestManagers, TimedRequestState, BackgroundEvent, and
for waits and wakeups NetworkClientDelegate and WakeupTrigger.

``begins_with`` and ``ends_with`` do what is due a little earlier or later, at a time when the application is awake. An
idle consumer is called again and again with the same timeout. If its heartbeats and commits leave when a call
begins, the process does not have to wake up for them. As they then become due about when a later call ends, they stay
there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar, cast

from pykclient import errors
from pykclient.clock import FOREVER_MS, Timer
from pykclient.network.environment import SYSTEM_ENVIRONMENT, Environment
from pykclient.network.failures import shown_node, shown_node_id
from pykclient.pacing import RepeatedErrors

if TYPE_CHECKING:
    from types import GeneratorType
    from uuid import UUID

    from pykclient.clock import Clock
    from pykclient.consumer.consumer_metrics import AsyncConsumerMetrics
    from pykclient.network.client_request import ClientResponse, RequestBuilder
    from pykclient.network.kafka_client import IdentifiedTelemetry, KafkaClient
    from pykclient.network.metadata import Metadata
    from pykclient.types import Node

T = TypeVar("T")
S = TypeVar("S")
_INCOMPLETE: Any = object()


class RequestFuture(Generic[T]):
    """A future value or error.

    The future does not wait by itself: a driver polls the network until it is done. Listeners run exactly once, on the
    thread that completes the future.

    Thread: any. One thread completes it. A listener that is added at the same time is taken from the queue by whichever
    of the two threads comes first, so it is neither lost nor called twice.
    """

    __slots__ = ("_dependents", "_error", "_is_given_up", "_listeners", "_value")

    def __init__(self) -> None:
        self._value: Any = _INCOMPLETE
        self._error: Exception | None = None
        self._is_given_up = False
        self._dependents: tuple[RequestFuture[Any], ...] = ()  # futures that the listeners complete
        self._listeners: deque[tuple[Callable[[T], object] | None, Callable[[Exception], object] | None]] = deque()

    @property
    def is_done(self) -> bool:
        return self._value is not _INCOMPLETE

    @property
    def succeeded(self) -> bool:
        return self._value is not _INCOMPLETE and self._error is None

    @property
    def failed(self) -> bool:
        return self._error is not None

    @property
    def is_retriable(self) -> bool:
        """Return whether the error is retriable.

        Raises:
            IllegalStateError: there is no error.
        """
        return isinstance(self.exception, errors.RetriableError)

    @property
    def value(self) -> T:
        """The result.

        Raises:
            IllegalStateError: the future has not succeeded.
        """
        if not self.succeeded:
            raise errors.IllegalStateError("the request has not succeeded, so it has no value")
        return cast("T", self._value)

    @property
    def exception(self) -> Exception:
        """The error.

        Raises:
            IllegalStateError: the future has not failed.
        """
        if self._error is None:
            raise errors.IllegalStateError("the request has not failed, so it has no error")
        return self._error

    def complete(self, value: T) -> None:
        """Complete the future with ``value``.

        Raises:
            IllegalStateError: it is done already.
        """
        if self._value is not _INCOMPLETE:
            if self._is_given_up:
                return
            raise errors.IllegalStateError("the request is done already")
        self._value = value
        self._fire()

    def raise_error(self, error: Exception) -> None:
        """Complete the future with ``error`` (Java: raise).

        Raises:
            IllegalStateError: it is done already.
        """
        if self._value is not _INCOMPLETE:
            if self._is_given_up:
                return
            raise errors.IllegalStateError("the request is done already") from error
        # The error is set first: a thread that sees the future done must see the error.
        self._error = error
        self._value = None
        self._fire()

    def settle(self: RequestFuture[None], error: Exception | None) -> None:
        """Complete the future with ``error``, or with success if that is None.

        Raises:
            IllegalStateError: it is done already.
        """
        if error is None:
            self.complete(None)
        else:
            self.raise_error(error)

    def add_listener(
        self,
        on_success: Callable[[T], object] | None = None,
        on_failure: Callable[[Exception], object] | None = None,
    ) -> None:
        """Call one of the two functions when the future is done, possibly at once."""
        self._listeners.append((on_success, on_failure))
        if self._value is not _INCOMPLETE:
            self._fire()

    def compose(
        self,
        on_success: Callable[[T, RequestFuture[S]], object],
        on_failure: Callable[[Exception, RequestFuture[S]], object] | None = None,
    ) -> RequestFuture[S]:
        """Return a new future. The functions get it as their second argument and complete it.

        By default the error is passed on.
        """
        composed: RequestFuture[S] = RequestFuture()
        self._dependents += (composed,)
        if on_failure is None:
            self.add_listener(lambda value: on_success(value, composed), composed.raise_error)
        else:
            self.add_listener(lambda value: on_success(value, composed), lambda error: on_failure(error, composed))
        return composed

    def chain(self, future: RequestFuture[T]) -> None:
        """Complete ``future`` with the outcome of this one."""
        self._dependents += (future,)
        self.add_listener(future.complete, future.raise_error)

    def give_up(self, error: Exception) -> None:
        """Fail with ``error`` if an exception has prevented completion.

        That is this future or, if it is done, the futures that its listeners were to complete. Later outcomes of such a
        future are ignored.
        """
        if self._value is _INCOMPLETE:
            self._is_given_up = True
            self.raise_error(error)
        else:
            self._fire()
        for future in self._dependents:
            future.give_up(error)

    def _fire(self) -> None:
        listeners = self._listeners
        while listeners:
            try:
                on_success, on_failure = listeners.popleft()
            except IndexError:  # the other thread took the last one
                return
            if self._error is not None:
                if on_failure is not None:
                    on_failure(self._error)
            elif on_success is not None:
                on_success(cast("T", self._value))

    @classmethod
    def success(cls, value: T) -> RequestFuture[T]:
        """Return a future that is done with ``value``."""
        future: RequestFuture[T] = RequestFuture()
        future.complete(value)
        return future

    @classmethod
    def failure(cls, error: Exception) -> RequestFuture[T]:
        """Return a future that is done with ``error``."""
        future: RequestFuture[T] = RequestFuture()
        future.raise_error(error)
        return future


class UnsentRequest:
    """A request that a manager wants to send.

    Without a ``node`` it goes to the least loaded one. ``timeout_ms`` (default: ``request.timeout.ms``) starts when the
    manager returns the request, and includes the time in the queue. ``future`` fails with DisconnectError if the
    connection is lost, and with KafkaTimeoutError if the request cannot be sent in time. Thread: that of the manager.
    """

    __slots__ = ("builder", "future", "node", "timeout_ms")

    def __init__(self, builder: RequestBuilder, node: Node | None = None, timeout_ms: int | None = None) -> None:
        self.builder = builder
        self.node = node
        self.timeout_ms = timeout_ms
        self.future: RequestFuture[ClientResponse] = RequestFuture()


class PollResult:
    """The requests to send now, and the milliseconds until the next poll if nothing arrives."""

    __slots__ = ("requests", "wait_ms")

    def __init__(self, wait_ms: int = FOREVER_MS, requests: Sequence[UnsentRequest] = ()) -> None:
        self.wait_ms = wait_ms
        self.requests = requests


#: The result of a manager that has nothing to send and waits for nothing but responses.
NOTHING = PollResult()


class RequestManager(Protocol):
    """A part of the consumer that decides which requests to send, and handles their responses.

    A method that gives the manager something to do calls ``RequestManagers.poll_soon``.

    A manager never waits and never calls the application. Its methods run on the thread that holds the I/O lease, and
    so do the listeners of its requests' futures. Without ``runs_in_background``, that is always the application's
    thread.
    """

    @property
    def runs_in_background(self) -> bool:
        """Return whether the heartbeat thread also polls this manager. A constant of the class."""

    @property
    def pending(self) -> object:
        """The pending work. If it is false, ``poll`` would return NOTHING and need not be called."""

    def poll(self, now_ms: int) -> PollResult:
        """Return the requests that are due at ``now_ms``, and how long to wait for the next. Raises nothing."""

    def reset(self) -> None:
        """Forget the requests in flight after an unexpected exception, possibly raised in this object.

        Their futures never complete. The manager fails what the application still waits for.
        """


def timeout_error(
    client: NetworkClientDelegate, what: str, timeout_ms: int, reason: Exception | str | None
) -> errors.KafkaTimeoutError:
    """Return the error for an operation of the application that timed out."""
    why = client.connection_report() or reason or "no answer came; the brokers may be overloaded or paused"
    error = errors.KafkaTimeoutError(f"{what} was not done within {timeout_ms} ms: {why}")
    error.__cause__ = reason if isinstance(reason, Exception) else None
    return error


class RequestManagers:
    """Polls managers in the order in which they were added, and passes their requests to ``send``.

    ``send(request, is_background)`` queues a request. Thread: the holder of the I/O lease.
    """

    def __init__(self, send: Callable[[UnsentRequest, bool], object]) -> None:
        self._send = send
        self._all: tuple[RequestManager, ...] = ()
        self._background: tuple[RequestManager, ...] = ()
        #: When a manager may have something to do.
        self.due_ms = 0

    def add(self, *managers: RequestManager) -> None:
        self._all += managers
        self._background += tuple(manager for manager in managers if manager.runs_in_background)

    def poll(self, now_ms: int, *, background: bool = False) -> int:
        """Queue the requests that are due, and return the milliseconds until a manager must be polled again.

        With ``background``, poll only the managers that run in the background.
        """
        wait_ms = FOREVER_MS
        for manager in self._background if background else self._all:
            if not manager.pending:
                continue
            result = manager.poll(now_ms)
            if result is not NOTHING:
                wait_ms = min(wait_ms, result.wait_ms)
                for request in result.requests:
                    self._send(request, manager.runs_in_background)
        if not background:
            self.due_ms = now_ms + wait_ms
        return wait_ms

    def poll_soon(self) -> None:
        """Make managers due, after the application has given one of them work."""
        #: When a manager may have something to do.
        self.due_ms = 0

    def reset(self) -> None:
        """Reset all managers."""
        for manager in self._all:
            manager.reset()


class TimedOperation(Generic[T]):
    """The future of a call, and its deadline, ``timeout_ms`` after the first ``is_over``.

    A subclass adds the state between attempts. Thread: that of the manager.
    """

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self.deadline_ms: int | None = None
        self.future: RequestFuture[T] = RequestFuture()
        self.in_flight = False
        self.last_error: Exception | None = None  # of an attempt

    def is_over(self, now_ms: int) -> bool:
        """Return whether the deadline has passed. The first call starts the time, and allows one attempt."""
        if self.deadline_ms is None:
            self.deadline_ms = now_ms + self.timeout_ms
            return False
        return now_ms >= self.deadline_ms

    def left_ms(self, now_ms: int) -> int:
        """Return the milliseconds until the deadline."""
        return self.timeout_ms if self.deadline_ms is None else self.deadline_ms - now_ms

    def complete(self, value: T) -> None:
        """Complete the future, unless its caller has given it up."""
        if not self.future.is_done:
            self.future.complete(value)

    def fail(self, error: Exception) -> None:
        """Fail the future, unless its caller has given it up."""
        if not self.future.is_done:
            self.future.raise_error(error)

    def time_out(self, what: str, reason: object) -> None:
        """Fail the future with KafkaTimeoutError, because of ``reason`` or else of the last attempt's error."""
        error = errors.KafkaTimeoutError(f"{what} within {self.timeout_ms} ms: {reason}")
        error.__cause__ = self.last_error
        self.fail(error)


#: The part of a wait by which it may be longer, and the part of an interval by which it may be shorter.
_PARTS_OF_WAIT: Final = 16
_PARTS_OF_INTERVAL: Final = 3


def ends_with(wait_ms: int, remaining_ms: int) -> bool:
    """Return whether a wait of ``wait_ms`` should extend to the call's end in ``remaining_ms``.

    That is so if it is due later, or so little earlier that the next call can do it, a sixteenth of ``wait_ms`` late
    at most.
    """
    return remaining_ms <= wait_ms + wait_ms // _PARTS_OF_WAIT


def begins_with(wait_ms: int, remaining_ms: int, interval_ms: int) -> bool:
    """Return whether to do now what is due in ``wait_ms``, during the call.

    That is so if it is early by a third of its interval at most.
    """
    # The rest is ``not ends_with(wait_ms, remaining_ms)``, without its call.
    return wait_ms <= interval_ms // _PARTS_OF_INTERVAL and remaining_ms > wait_ms + wait_ms // _PARTS_OF_WAIT


#: The longest time that a poll waits.
MAX_POLL_TIMEOUT_MS = 5000


class _Pending:
    """A request from its arrival to the completion of its future. Thread: the holder of the lease."""

    __slots__ = ("_answered", "_error", "_response", "created_ms", "is_background", "timeout_ms", "unsent")

    def __init__(
        self, unsent: UnsentRequest, created_ms: int, timeout_ms: int, is_background: bool, answered: deque[_Pending]
    ) -> None:
        self.unsent = unsent
        self.created_ms = created_ms
        self.timeout_ms = timeout_ms
        self.is_background = is_background
        self._answered = answered
        self._response: ClientResponse | None = None
        self._error: Exception | None = None

    def on_complete(self, response: ClientResponse) -> None:
        """Store the response. The client calls this in its poll; listeners run after it."""
        self._response = response
        self._answered.append(self)

    def fail(self, error: Exception) -> None:
        self._error = error
        self._answered.append(self)

    def complete(self) -> None:
        """Complete the future of the request."""
        future, response, error = self.unsent.future, self._response, self._error
        if response is not None:
            error = response.authentication_error or response.build_error
            if error is None and response.disconnected:
                why = "no answer came in time" if response.timed_out else "the connection was lost"
                error = errors.DisconnectError(f"a request to {shown_node_id(response.destination)} failed: {why}")
            if error is None:
                future.complete(response)
                return
        future.raise_error(error or errors.DisconnectError("the request was cancelled"))


class NetworkClientDelegate:
    """Sends the requests of managers, and completes them.

    ``lease`` is the I/O lease. Whoever holds it may poll the managers and the network, and completes requests while
    holding it. The heartbeat thread takes it only if it is free. It completes only the requests of managers that run in
    the background; other responses that it reads wait in one queue for the application's thread. The lease is taken
    before all other locks of the consumer.

    Thread: the holder of the lease; for ``add``, ``wakeup``, ``disconnect_async`` and ``try_connect``: any.
    """

    def __init__(
        self,
        client: KafkaClient,
        clock: Clock,
        retry_backoff_ms: int,
        request_timeout_ms: int,
        max_poll_timeout_ms: int,
        environment: Environment = SYSTEM_ENVIRONMENT,
    ) -> None:
        self._client = client
        #: The client that holds the connections. Thread: see there.
        self.network = client
        self._clock = clock
        self._retry_backoff_ms = retry_backoff_ms
        self.default_request_timeout_ms = request_timeout_ms
        self._max_poll_timeout_ms = min(max_poll_timeout_ms, MAX_POLL_TIMEOUT_MS)
        # guards: all that follows, except that any thread fills the deques marked so
        self.lease = environment.new_reentrant_lock()
        self.managers = RequestManagers(self.add)
        self._arrived: deque[_Pending] = deque()  # any thread
        self._unsent: dict[Node | None, deque[_Pending]] = {}  # None: for the least loaded node
        #: Requests to be completed. Only this class changes it.
        self.answered: deque[_Pending] = deque()
        #: Return whether the last connection to a node failed or was lost. Needs no lease: it is a single lookup.
        self.connection_failed = client.connection_failed
        self._pending_disconnects: deque[Node] = deque()  # any thread
        self._pending_connects: deque[Node] = deque()  # any thread
        self._pending_closes: deque[Node] = deque()  # any thread
        #: Records the time between polls, and until requests are sent; None with the classic group protocol.
        self.metrics: AsyncConsumerMetrics | None = None
        #: True while the holder of the lease is at work, and after an exception has interrupted it.
        self.is_broken = False
        #: True while the application waits for records, so that fetches with empty responses are sent again.
        self.awaits_records = False
        #: True while the application waits for records and has no partitions, so that no fetch waits for a connection.
        self.awaits_partitions = False

    def add(self, unsent: UnsentRequest, is_background: bool) -> None:
        """Queue a request. The next poll sends it if its node is ready."""
        timeout_ms = self.default_request_timeout_ms if unsent.timeout_ms is None else unsent.timeout_ms
        self._arrived.append(_Pending(unsent, self._clock.now_ms(), timeout_ms, is_background, self.answered))

    def disconnect_async(self, node: Node) -> None:
        """Close the connection to ``node`` in the next poll, which fails its requests."""
        self._pending_disconnects.append(node)

    def close_async(self, node: Node) -> None:
        """Close the connection to ``node`` before the next requests are sent, and drop those that it has."""
        self._pending_closes.append(node)

    def try_connect(self, node: Node) -> None:
        """Connect in the next poll if the backoff allows, so that an old failure no longer counts against the node."""
        self._pending_connects.append(node)

    def wakeup(self) -> None:
        """End the wait of the poll in progress, or else of the next. Safe in a signal handler."""
        self._client.wakeup()

    @property
    def telemetry(self) -> IdentifiedTelemetry | None:
        """The telemetry of the client; None if ``enable.metrics.push`` is off. Thread: any."""
        return self._client.telemetry

    def explain(self, now_ms: int) -> list[str]:
        """Return a line for each broker. Thread: any."""
        return self._client.explain(now_ms)

    # --- polling ---------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: int, now_ms: int, *, background: bool = False) -> int:
        """Send requests, wait for the network, and complete requests; return the time after the wait.

        Does not wait if there are requests to complete. With ``background``, complete only requests of managers that
        run in the background.
        """
        self._client.poll(self._send_all(timeout_ms, now_ms), now_ms)
        now_ms = self._clock.now_ms()
        self._complete_all(now_ms, background=background)
        return now_ms

    def begin_poll(self, timeout_ms: int, now_ms: int) -> int:
        """Run the part of ``poll`` before its wait; return the wait's limit, at most ``timeout_ms``.

        For a driver that waits itself, such as an event loop: it does the I/O and calls ``end_poll``.
        """
        return self._client.begin_poll(self._send_all(timeout_ms, now_ms), now_ms)

    def end_poll(self, now_ms: int) -> list[ClientResponse]:
        """Run the part of ``poll`` after its I/O; return the responses."""
        responses = self._client.end_poll(now_ms)
        self._complete_all(now_ms)
        return responses

    def _send_all(self, timeout_ms: int, now_ms: int) -> int:
        """Send requests where that needs no waiting; return how long a poll may wait, at most ``timeout_ms``."""
        client = self._client
        if self.metrics is not None:
            self.metrics.record_poll(now_ms)
        if self._arrived or self._pending_closes:
            self._take_arrived()  # a disconnect fails them too
        while self._pending_disconnects:
            self._disconnect(self._pending_disconnects.popleft())
        while self._pending_connects:
            client.ready(self._pending_connects.popleft(), now_ms)
        timeout_ms = min(timeout_ms, self.try_send(now_ms) if self._unsent else self._max_poll_timeout_ms)
        if self.answered:
            timeout_ms = 0
        elif not (self.awaits_partitions or client.in_flight_request_count()):
            # No response will end the wait, and nodes may come out of their connection backoff.
            timeout_ms = min(timeout_ms, self._retry_backoff_ms)
        return timeout_ms

    def _complete_all(self, now_ms: int, *, background: bool = False) -> None:
        if self._unsent:
            self._check_disconnects()  # before ready() is called again, which clears failures
        if self.answered:
            self.complete_answered(background=background)
        if self._unsent or self._arrived:
            self.try_send(now_ms)

    def poll_background(self) -> int | None:
        """Poll managers that run in the background, send and receive without waiting, and complete their requests.

        Return the milliseconds until the next call is due, or None if the application's thread holds the lease, or
        was interrupted while it did. Thread: heartbeat.
        """
        if not self.lease.acquire(blocking=False):
            return None
        try:
            if self.is_broken:
                return None  # the application's next call repairs it
            now_ms = self._clock.now_ms()
            wait_ms = self.managers.poll(now_ms, background=True)
            self.poll(0, now_ms, background=True)
            return wait_ms
        finally:
            self.lease.release()

    def transmit(self, now_ms: int) -> None:
        """Send requests that need no waiting, and complete none.

        Also move on connections that are being made, and read ahead what nodes have sent meanwhile.
        """
        may_read = self._client.in_flight_request_count() > 0
        self.try_send(now_ms)
        if may_read or self._unsent:  # otherwise there is nothing but what was just sent
            self._client.poll(0, now_ms)

    def complete_answered(self, *, background: bool = False) -> None:
        """Complete requests; with ``background``, only those of managers that run in the background."""
        for _ in range(len(self.answered)):
            pending = self.answered.popleft()
            if pending.is_background or not background:
                pending.complete()
            else:
                self.answered.append(pending)

    def try_send(self, now_ms: int) -> int:
        """Pass requests for ready nodes to the client; return the longest wait that the other nodes' backoff allows."""
        self._take_arrived()
        wait_ms = self._max_poll_timeout_ms
        unsent = self._unsent
        if not unsent:
            return wait_ms
        if not self._choose_node(now_ms):
            wait_ms = min(wait_ms, self._retry_backoff_ms)
        client = self._client
        for node in list(unsent):
            if node is None:
                continue
            queue = unsent[node]
            while queue:
                if not client.ready(node, now_ms):
                    wait_ms = min(wait_ms, client.poll_delay_ms(node, now_ms))
                    break
                pending = queue.popleft()
                request = client.new_client_request(
                    node.id_string,
                    pending.unsent.builder,
                    pending.created_ms,
                    True,
                    pending.timeout_ms,
                    pending.on_complete,
                )
                client.send(request, now_ms)
                if self.metrics is not None:
                    self.metrics.record_sent(now_ms - pending.created_ms, now_ms)
        self._fail_expired(now_ms)
        self._unsent = {node: queue for node, queue in unsent.items() if queue}
        return wait_ms

    def _take_arrived(self) -> None:
        while self._pending_closes:  # first: the requests that arrive are to take a new connection
            node = self._pending_closes.popleft()
            self._unsent.pop(node, None)
            self._client.close_node(node.id_string)
        while self._arrived:
            pending = self._arrived.popleft()
            self._unsent.setdefault(pending.unsent.node, deque()).append(pending)

    def _choose_node(self, now_ms: int) -> bool:
        """Give the requests for any node to the least loaded one; return False if none can be connected to.

        They stay with the node, and fail if the connection to it does.
        """
        if None in self._unsent:
            node = self._client.least_loaded_node(now_ms).node
            if node is None:
                return False
            self._unsent.setdefault(node, deque()).extend(self._unsent.pop(None))
        return True

    def _fail_expired(self, now_ms: int) -> None:
        for queue in self._unsent.values():
            while queue and now_ms - queue[0].created_ms > queue[0].timeout_ms:
                pending = queue.popleft()
                pending.fail(errors.KafkaTimeoutError(f"a request could not be sent within {pending.timeout_ms} ms"))

    def _check_disconnects(self) -> None:
        # The client reports the requests that it has sent. These are requests that it does not have yet.
        for node in list(self._unsent):
            if node is not None and self.connection_failed(node):
                error = self._client.authentication_error(node) or errors.DisconnectError(
                    f"a request to {shown_node_id(node.id_string)} failed: the connection was lost"
                )
                for pending in self._unsent.pop(node):
                    pending.fail(error)

    def _disconnect(self, node: Node) -> None:
        why = f"the connection to {shown_node(node)} was closed before the request was sent"
        for pending in self._unsent.pop(node, ()):
            pending.fail(errors.DisconnectError(why))
        self._client.disconnect(node.id_string)

    # --- recovery from exceptions ------------------------------------------------------------------------------------

    def end_interrupted_wait(self) -> bool:
        """Return True if the last call was interrupted while it waited for the network.

        In that case no step was interrupted halfway, and connections and requests remain valid. Thread: application.
        """
        with self.lease:
            if not self.is_broken or not self._client.end_interrupted_wait():
                return False
            self.is_broken = False
            return True

    def reset(self) -> None:
        """Drop all connections and requests after an unexpected exception. Thread: application."""
        with self.lease:
            self._client.drop_connections()
            for queue in (
                self._arrived,
                self.answered,
                self._pending_disconnects,
                self._pending_connects,
                self._pending_closes,
            ):
                queue.clear()
            self._unsent = {}
            self.managers.reset()
            self.is_broken = False

    # --- nodes and connections -------------------------------------------------------------------------------------

    def is_unavailable(self, node: Node) -> bool:
        """Return whether ``node`` is disconnected and in its backoff. Needs no lease: these are single lookups."""
        return self.connection_failed(node) and self._client.connection_delay_ms(node, self._clock.now_ms()) > 0

    def maybe_throw_auth_failure(self, node: Node) -> None:
        """Raise the AuthenticationError of the connection to ``node``, if it has one."""
        error = self._client.authentication_error(node)
        if error is not None:
            raise error

    def has_ready_nodes(self, now_ms: int) -> bool:
        with self.lease:
            return self._client.has_ready_nodes(now_ms)

    def least_loaded_node(self) -> Node | None:
        """Return the node to use when any will do, or None if no connection is possible now."""
        with self.lease:
            return self._client.least_loaded_node(self._clock.now_ms()).node

    def unsent_request_count(self) -> int:
        """Return the approximate number of unsent requests. Needs no lease."""
        return len(self._arrived) + sum(map(len, list(self._unsent.values())))

    def pending_request_count(self, node: Node | None = None) -> int:
        """Return the number of requests without a response, sent or not, of one node or of all."""
        with self.lease:
            nodes = [pending.unsent.node for pending in list(self._arrived)]
            nodes += [of for of, queue in self._unsent.items() for _ in queue]
            in_flight = self._client.in_flight_request_count(None if node is None else node.id_string)
            return in_flight + (len(nodes) if node is None else nodes.count(node))

    def has_pending_requests(self, node: Node | None = None) -> bool:
        """Return whether requests have no response yet. Without a node, this needs no lease."""
        if node is None:
            return self._client.in_flight_request_count() > 0 or bool(self._arrived) or bool(self._unsent)
        return self.pending_request_count(node) > 0

    @property
    def is_unreachable(self) -> bool:
        """True if the last attempts to connect to all known nodes have failed."""
        return self._client.is_unreachable

    def connection_report(self) -> str:
        """Return which addresses could not be reached and why; empty if there are none."""
        return self._client.connection_report()

    def close(self) -> None:
        """Close all connections."""
        with self.lease:
            self._client.close()


class ApplicationCall(NamedTuple):
    """A call of the application's code: a listener, a callback, an assignor or an interceptor. Thread: application.

    With ``uses_consumer``, it is at a point where calls of the consumer are safe.
    """

    function: Callable[[], Any]
    uses_consumer: bool = True


class Round(NamedTuple):
    """One round of sending and receiving. Thread: application.

    It waits until anything happens or the timer expires, but not at all if ``is_done()``. ``wakeup`` is False if
    ``KafkaConsumer.wakeup`` must not end it. With ``for_records``, an empty response to a fetch does not end it, as the
    fetch is sent again.
    """

    timer: Timer
    is_done: Callable[[], bool] | None = None
    wakeup: bool = True
    for_records: bool = False


class Wait(NamedTuple):
    """Rounds until ``is_done()`` or until the timer expires. The result is ``is_done()``. Thread: application."""

    timer: Timer
    is_done: Callable[[], bool]
    wakeup: bool = True


class Transmit:
    """Send the requests that are due, without waiting and without completing any. Thread: application."""


#: The requests that an operation may yield.
Asked = ApplicationCall | Round | Wait | Transmit
#: An operation that needs the application's code or has to wait. It yields calls and waits, and at each yield gets the
#: result or the exception. So the operation reads from top to bottom, and the driver decides how it calls and waits.
Steps = Generator[Asked, Any, T]


def result_of(future: RequestFuture[T], clock: Clock) -> Steps[T]:
    """Wait until a manager has completed ``future``, and return its value or raise its error.

    The manager ends the wait in time. If anything else ends it, the future is given up.
    """
    try:
        yield Wait(Timer(clock, FOREVER_MS), lambda: future.is_done)
    finally:
        if not future.is_done:
            future.give_up(errors.KafkaError("the call that waited for this was interrupted"))
    if future.failed:
        raise future.exception
    return future.value


def metadata_update(metadata: Metadata, timer: Timer) -> Steps[bool]:
    """Request metadata and wait for it. Return False if the timer expires first."""
    version = metadata.request_update(False)
    found: bool = yield Wait(timer, lambda: metadata.update_version > version)
    return found


def client_instance_id(
    client: NetworkClientDelegate, metadata: Metadata, clock: Clock, timer: Timer
) -> Steps[UUID | None]:
    """Wait until a broker has assigned a client instance id, and return it; None if the timer expires first.

    Raises:
        IllegalStateError: telemetry is disabled.
    """
    from pykclient.network.kafka_client import enabled

    telemetry = enabled(client.telemetry)
    with telemetry.awaited(clock.new_signal()):
        if telemetry.client_instance_id is None:
            metadata.request_update(False)  # connects to a broker, if there is no connection yet
            yield Wait(timer, lambda: telemetry.client_instance_id is not None)
    return telemetry.client_instance_id


class ApplicationEvents:
    """A queue of steps, to be run outside the I/O lease in the order in which they were added. Thread: application."""

    def __init__(self) -> None:
        #: The steps. Only this class changes it.
        self.queue: deque[Steps[None]] = deque()
        self.metrics: AsyncConsumerMetrics | None = None

    def __len__(self) -> int:
        return len(self.queue)

    def __bool__(self) -> bool:
        return bool(self.queue)

    def add(self, steps: Steps[None]) -> None:
        self.queue.append(steps if self.metrics is None else self.metrics.measured(steps))

    def clear(self) -> None:
        """Drop all steps, without running them."""
        self.queue.clear()

    def steps(self) -> Steps[None]:
        """Run all steps in the queue. Raises what they raise; the remaining steps stay in the queue."""
        while self.queue:
            yield from self.queue.popleft()


class ApplicationDriver:
    """Runs the request managers and the network until a call's condition holds.

    ``application_code`` is entered around calls of the application's code that may use the consumer.

    Thread: application; ``wakeup``: any.
    """

    def __init__(
        self,
        client: NetworkClientDelegate,
        metadata: Metadata,
        clock: Clock,
        application_code: AbstractContextManager[None] | None = None,
        retry_backoff_ms: int = 100,
    ) -> None:
        self._client = client
        self._metadata = metadata
        self._clock = clock
        self._application_code: AbstractContextManager[None] = application_code or nullcontext()
        #: True from ``wakeup`` until that is raised.
        self.is_woken = False
        self._wakeup_disabled = False
        self._repeated = RepeatedErrors(retry_backoff_ms)

    def wakeup(self) -> None:
        """Make the step in progress, or else the next one, raise WakeupError. Safe in a signal handler."""
        self.is_woken = True
        self._client.awaits_records = False  # in this order; see step
        self._client.wakeup()

    def disable_wakeups(self) -> None:
        """Ignore wakeups from now on, for closing."""
        self._wakeup_disabled = True

    def maybe_trigger_wakeup(self) -> None:
        """Raise WakeupError if ``wakeup`` was called since it was last raised."""
        if self.is_woken and not self._wakeup_disabled:
            self.is_woken = False
            raise errors.WakeupError("wakeup() was called")

    def step(
        self,
        timer: Timer,
        is_done: Callable[[], bool] | None = None,
        *,
        wakeup: bool = True,
        for_records: bool = False,
    ) -> None:
        """Run once: wait until something happens or the timer expires, unless ``is_done()``.

        With ``for_records``, a fetch whose response is empty is sent again, and the wait continues.

        Raises:
            WakeupError: ``wakeup`` was called; not with ``wakeup=False``.
            KafkaError: metadata has an error for the application.
        """
        client, deadline_ms = self._client, timer.deadline_ms
        timer.now_ms = now_ms = max(timer.now_ms, self._clock.now_ms())
        with client.lease:
            client.is_broken = True
            if client.answered:
                client.complete_answered()
            wait_ms = client.managers.poll(now_ms)
            remaining_ms = deadline_ms - now_ms if now_ms < deadline_ms else 0
            if wait_ms > remaining_ms or (for_records and ends_with(wait_ms, remaining_ms)):
                wait_ms = remaining_ms
            if is_done is not None and is_done():
                wait_ms = 0
            if for_records:
                # A wakeup that comes earlier is seen here. A later one takes this back before it ends the wait. So no
                # wakeup is lost because it arrives together with an empty response.
                client.awaits_records = True
                if self.is_woken:
                    client.awaits_records = False
            timer.now_ms = max(now_ms, client.poll(wait_ms, now_ms))
            client.awaits_records = client.is_broken = False
        if wakeup and self.is_woken:
            self.maybe_trigger_wakeup()
        self._metadata.maybe_throw_any_exception()

    def transmit(self, *, if_any: bool = False) -> None:
        """Send requests that need no waiting. Raises nothing and completes nothing.

        With ``if_any``, do nothing if no manager is due and there is no request, sent or not.
        """
        client = self._client
        now_ms = self._clock.now_ms()
        if if_any and now_ms < client.managers.due_ms and not client.has_pending_requests():
            return
        with client.lease:
            client.is_broken = True
            client.managers.poll(now_ms)
            client.transmit(now_ms)
            client.is_broken = False

    def run_until(self, is_done: Callable[[], bool], timer: Timer, *, wakeup: bool = True) -> bool:
        """Run until ``is_done()`` or until the timer expires, at least once; return ``is_done()``.

        Raises:
            KafkaError: an error of ``step``.
        """
        while not is_done():
            self.step(timer, is_done, wakeup=wakeup)
            if timer.expired:
                return is_done()
        return True

    # --- steps -----------------------------------------------------------------------------------------------------

    def run(self, steps: Steps[T]) -> T:
        """Do what ``steps`` ask for, and return their result. Raises what they raise.

        An exception that ends a call or a wait, also one of a signal handler, is raised in the steps. If the last call
        has just raised the same error, this one first waits for ``retry.backoff.ms``.
        """
        generator: GeneratorType[Asked, Any, T] = steps  # type: ignore[assignment]
        value: Any = None
        error: BaseException | None = None
        while True:
            try:
                if error is None:
                    asked = steps.send(value)
                else:
                    raised, error = error, None
                    asked = steps.throw(raised)
                value = self._do(asked)
            except StopIteration as end:
                if generator.gi_frame is None:
                    result: T = end.value
                    return result
                error = end  # of the application's code
            except BaseException as raised:
                if generator.gi_frame is None:  # the steps have ended with it
                    pause_ms = self._repeated.pause_ms(raised, self._clock.now_ms())
                    if pause_ms > 0 and not self._wakeup_disabled:
                        self.run_until(lambda: False, Timer(self._clock, pause_ms))
                    raise
                error = raised

    def _do(self, asked: Asked) -> Any:
        if isinstance(asked, Round):
            return self.step(asked.timer, asked.is_done, wakeup=asked.wakeup, for_records=asked.for_records)
        if isinstance(asked, Wait):
            return self.run_until(asked.is_done, asked.timer, wakeup=asked.wakeup)
        if isinstance(asked, Transmit):
            return self.transmit(if_any=True)
        if asked.uses_consumer:
            with self._application_code:
                return asked.function()
        return asked.function()
