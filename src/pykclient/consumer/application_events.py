"""Requests of a consumer's parts to its driver: calls of the application's code, and waits (Java: BackgroundEvent)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar

from pykclient.clock import FOREVER_MS, Timer
from pykclient.errors import (
    IllegalArgumentError,
    IllegalStateError,
    InvalidGroupIdError,
    KafkaError,
    WakeupError,
)

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.clock import Clock
    from pykclient.consumer.async_consumer_metrics import AsyncConsumerMetrics
    from pykclient.consumer.network_client_delegate import NetworkClientDelegate
    from pykclient.consumer.request_future import RequestFuture
    from pykclient.network.metadata import Metadata

T = TypeVar("T")

#: Errors that the calling program causes itself, call by call.
_CALLERS_ERRORS = (IllegalArgumentError, IllegalStateError, InvalidGroupIdError, WakeupError)


class ApplicationCall:
    """A call of the application's code: a listener, a callback, an assignor or an interceptor. Thread: application."""

    __slots__ = ("function", "uses_consumer")

    def __init__(self, function: Callable[[], Any], *, uses_consumer: bool = True) -> None:
        self.function = function
        self.uses_consumer = uses_consumer  # at a point where calls of the consumer are safe


class Round:
    """One round of sending and receiving. Thread: application.

    It waits until anything happens or the timer expires, but not at all if ``is_done()``. ``wakeup`` is False if
    ``KafkaConsumer.wakeup`` must not end it. With ``for_records``, an empty response to a fetch does not end it, as the
    fetch is sent again.
    """

    __slots__ = ("for_records", "is_done", "timer", "wakeup")

    def __init__(
        self,
        timer: Timer,
        is_done: Callable[[], bool] | None = None,
        *,
        wakeup: bool = True,
        for_records: bool = False,
    ) -> None:
        self.for_records = for_records
        self.timer = timer
        self.is_done = is_done
        self.wakeup = wakeup


class Wait:
    """Rounds until ``is_done()`` or until the timer expires. The result is ``is_done()``. Thread: application."""

    __slots__ = ("is_done", "timer", "wakeup")

    def __init__(self, timer: Timer, is_done: Callable[[], bool], *, wakeup: bool = True) -> None:
        self.timer = timer
        self.is_done = is_done
        self.wakeup = wakeup


class Transmit:
    """Send the requests that are due, without waiting and without completing any. Thread: application."""

    __slots__ = ()


#: What an operation may ask for.
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
            future.give_up(KafkaError("the call that waited for this was interrupted"))
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
    """Wait until a broker has given the client an id for its metrics, and return it; None if the timer expires first.

    Raises:
        IllegalStateError: telemetry is disabled.
    """
    from pykclient.network.telemetry.client_instance_id import enabled

    telemetry = enabled(client.telemetry)
    with telemetry.awaited(clock.new_signal()):
        if telemetry.client_instance_id is None:
            metadata.request_update(False)  # connects to a broker, if there is no connection yet
            yield Wait(timer, lambda: telemetry.client_instance_id is not None)
    return telemetry.client_instance_id


class RepeatedErrors:
    """Notices that calls raise the same error again and again, so that a program that only logs it does not spin.

    For example, each poll raises the error that has ended a membership for good. Thread: application.
    """

    __slots__ = ("_last", "_next_ms", "_pause_ms")

    def __init__(self, pause_ms: int) -> None:
        self._pause_ms = pause_ms if pause_ms > 0 else 1
        self._last: tuple[type[BaseException], str] | None = None
        self._next_ms = 0

    def pause_ms(self, error: BaseException, now_ms: int) -> int:
        """Return for how long to wait before ``error`` is raised: 0, unless the last call has just raised the same."""
        if not isinstance(error, KafkaError) or isinstance(error, _CALLERS_ERRORS):
            return 0
        this = type(error), str(error)
        pause_ms = max(0, self._next_ms - now_ms) if this == self._last else 0
        self._last = this
        self._next_ms = now_ms + pause_ms + self._pause_ms
        return pause_ms


class ApplicationEvents:
    """A queue of steps, to be run outside the I/O lease in the order in which they were added. Thread: application."""

    __slots__ = ("metrics", "queue")

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
