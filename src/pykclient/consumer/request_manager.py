"""Request managers, which decide what to send, and the futures of their requests.

Java: RequestManager, PollResult, UnsentRequest, RequestFuture, RequestManagers, TimedRequestState.

``begins_with`` and ``ends_with`` do what is due a little earlier or later, at a time when the application is awake. An
idle consumer is called again and again with the same timeout. If its heartbeats and commits leave when a call
begins, the process does not have to wake up for them. As they then become due about when a later call ends, they stay
there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, cast

from pykclient.clock import FOREVER_MS
from pykclient.errors import IllegalStateError, KafkaTimeoutError, RetriableError

if TYPE_CHECKING:
    from pykclient.network.client_request import ClientResponse, RequestBuilder
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
        return isinstance(self.exception, RetriableError)

    @property
    def value(self) -> T:
        """The result.

        Raises:
            IllegalStateError: the future has not succeeded.
        """
        if not self.succeeded:
            raise IllegalStateError("the request has not succeeded, so it has no value")
        return cast("T", self._value)

    @property
    def exception(self) -> Exception:
        """The error.

        Raises:
            IllegalStateError: the future has not failed.
        """
        if self._error is None:
            raise IllegalStateError("the request has not failed, so it has no error")
        return self._error

    def complete(self, value: T) -> None:
        """Complete the future with ``value``.

        Raises:
            IllegalStateError: it is done already.
        """
        if self._value is not _INCOMPLETE:
            if self._is_given_up:
                return
            raise IllegalStateError("the request is done already")
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
            raise IllegalStateError("the request is done already") from error
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


class Connections(Protocol):
    """Reports unreachable addresses: a NetworkClientDelegate."""

    def connection_report(self) -> str: ...


def timeout_error(client: Connections, what: str, timeout_ms: int, reason: Exception | str | None) -> KafkaTimeoutError:
    """Return the error for an operation of the application that timed out."""
    why = client.connection_report() or reason or "no answer came; the brokers may be overloaded or paused"
    error = KafkaTimeoutError(f"{what} was not done within {timeout_ms} ms: {why}")
    error.__cause__ = reason if isinstance(reason, Exception) else None
    return error


class RequestManagers:
    """Polls managers in the order in which they were added, and passes their requests to ``send``.

    ``send(request, is_background)`` queues a request. Thread: the holder of the I/O lease.
    """

    __slots__ = ("_all", "_background", "_send", "due_ms")

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

    __slots__ = ("deadline_ms", "future", "in_flight", "last_error", "timeout_ms")

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
        error = KafkaTimeoutError(f"{what} within {self.timeout_ms} ms: {reason}")
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
