"""The waits of the application's thread, and wakeups that end them (Java: NetworkClientDelegate, WakeupTrigger)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from pykclient.clock import Timer
from pykclient.consumer.application_events import RepeatedErrors, Round, Transmit, Wait
from pykclient.consumer.due_times import ends_with
from pykclient.errors import WakeupError

if TYPE_CHECKING:
    from types import GeneratorType

    from pykclient.clock import Clock
    from pykclient.consumer.application_events import Asked, Steps
    from pykclient.consumer.network_client_delegate import NetworkClientDelegate
    from pykclient.network.metadata import Metadata

T = TypeVar("T")


class ApplicationDriver:
    """Runs the request managers and the network until what a call waits for has happened.

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

        With ``for_records``, a fetch whose response is empty is sent again, and the wait goes on.

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
        """Send requests where that needs no waiting. Raises nothing and completes nothing.

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
