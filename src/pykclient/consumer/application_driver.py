"""The thread that calls a consumer: its waits, and the steps that its parts ask it to take.

Java: BackgroundEvent, and for waits and wakeups NetworkClientDelegate and WakeupTrigger.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from pykclient.clock import FOREVER_MS, Timer
from pykclient.consumer.request_manager import ends_with
from pykclient.errors import KafkaError, WakeupError
from pykclient.pacing import RepeatedErrors

if TYPE_CHECKING:
    from types import GeneratorType
    from uuid import UUID

    from pykclient.clock import Clock
    from pykclient.consumer.kafka_consumer_metrics import AsyncConsumerMetrics
    from pykclient.consumer.network_client_delegate import NetworkClientDelegate
    from pykclient.consumer.request_manager import RequestFuture
    from pykclient.network.metadata import Metadata

T = TypeVar("T")


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
            raise WakeupError("wakeup() was called")

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
