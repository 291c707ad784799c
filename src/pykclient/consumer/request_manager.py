"""The interface of request managers (Java: RequestManager, PollResult, UnsentRequest)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from pykclient.clock import FOREVER_MS
from pykclient.consumer.request_future import RequestFuture
from pykclient.errors import KafkaTimeoutError

if TYPE_CHECKING:
    from pykclient.network.client_request import ClientResponse, RequestBuilder
    from pykclient.types import Node


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
    """The requests to send now, and the milliseconds until the manager must be polled again, if nothing arrives."""

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
        """The work of the manager: if it is false, ``poll`` would return NOTHING, and need not be called."""

    def poll(self, now_ms: int) -> PollResult:
        """Return the requests that are due at ``now_ms``, and how long to wait for the next. Raises nothing."""

    def reset(self) -> None:
        """Forget the requests in flight after an exception that may have struck anywhere, in this object too.

        Their futures never complete. The manager fails what the application still waits for.
        """


class Connections(Protocol):
    """Knows which addresses could not be reached: a NetworkClientDelegate."""

    def connection_report(self) -> str: ...


def timeout_error(client: Connections, what: str, timeout_ms: int, reason: Exception | str | None) -> KafkaTimeoutError:
    """Return the error of an operation of the application whose time is over."""
    why = client.connection_report() or reason or "no answer came; the brokers may be overloaded or paused"
    error = KafkaTimeoutError(f"{what} was not done within {timeout_ms} ms: {why}")
    error.__cause__ = reason if isinstance(reason, Exception) else None
    return error
