"""Running the steps of a client's operations on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeVar

from pykclient.aio.loop_waits import one_iteration
from pykclient.consumer.application_events import ApplicationCall, Asked, RepeatedErrors, Round, Steps, Transmit
from pykclient.errors import KafkaError

if TYPE_CHECKING:
    from pykclient.aio.loop_driver import LoopDriver
    from pykclient.aio.loop_waits import LoopWaits
    from pykclient.clock import Clock, Timer
    from pykclient.consumer.network_client_delegate import NetworkClientDelegate

T = TypeVar("T")


class StepsRunner:
    """Runs steps as coroutines: a wait ends after a turn of the driver, and calls of the application are awaited.

    Thread: the loop's.
    """

    def __init__(self, client: NetworkClientDelegate, clock: Clock, waits: LoopWaits, retry_backoff_ms: int) -> None:
        #: Set before the first turn.
        self.driver: LoopDriver
        #: The error that the next call for records raises. Until then no rebalance and no lookup of positions begins.
        self.failure: Exception | None = None
        self._client = client
        self._clock = clock
        self._waits = waits
        self._is_advancing = False  # in a turn, or just before one
        self._num_waiting = 0  # operations
        self._repeated = RepeatedErrors(retry_backoff_ms)
        self._interruption: Exception | None = None  # for them to raise

    def note_error(self, error: Exception) -> None:
        """Have an error raised by the operations that wait, or else by the next call for records."""
        if not self.interrupt(error):
            self.failure = self.failure or error

    def interrupt(self, error: Exception) -> bool:
        """Have an error raised by the operations that wait; return whether there are any."""
        if self._num_waiting:
            self._interruption = error
        return self._num_waiting > 0

    def raise_failure(self) -> None:
        """Raise an error that has occurred since the last call, once."""
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    def wake_if_due(self) -> None:
        """Have a turn soon if there is something to send."""
        if self._clock.now_ms() >= self._client.managers.due_ms:
            self.driver.wake()

    async def run_call(self, steps: Steps[T]) -> T:
        """Run the steps of a call of the application. If the last call has just raised the same error, wait first."""
        try:
            return await self.run(steps)
        except KafkaError as error:
            await self.rest_if_repeated(error)
            raise

    async def rest_if_repeated(self, error: KafkaError) -> None:
        """Wait for ``retry.backoff.ms`` if the last call has just raised the same error."""
        pause_ms = self._repeated.pause_ms(error, self._clock.now_ms())
        if pause_ms > 0:
            await self._waits.until(lambda: False, pause_ms)

    async def run(self, steps: Steps[T], awaited: Awaitable[Any] | None = None) -> T:
        """Do what ``steps`` ask for, and return their result. Raises what they raise.

        If the task is cancelled, CancelledError is raised in the steps. ``awaited`` is what they wait for already.
        """
        value: Any = awaited
        error: BaseException | None = None
        while True:
            try:
                if isawaitable(value):
                    value = await value
            except asyncio.CancelledError as raised:
                error = raised if _is_cancelled() else _awaited_something_cancelled(raised)
            except BaseException as raised:  # noqa: BLE001 - the steps handle it, or raise it again
                error = raised
            try:
                if error is None:
                    asked = steps.send(value)
                else:
                    thrown, error = error, None
                    asked = steps.throw(thrown)
            except StopIteration as end:
                result: T = end.value
                return result
            try:
                value = self._do(asked)
            except Exception as raised:  # noqa: BLE001 - as above
                value, error = None, raised
            else:
                # Steps may ask again and again for what never takes time, for example without a retry backoff.
                if self.driver.is_overdue and not isawaitable(value):
                    value = _after_an_iteration(value)

    def _do(self, asked: Asked) -> Any:
        """Do what steps ask for; return an awaitable if that takes time."""
        if isinstance(asked, ApplicationCall):
            return asked.function()
        if isinstance(asked, Transmit):
            return self.wake_if_due()
        if not self._is_advancing:  # otherwise a turn does this
            self._client.managers.poll(self._clock.now_ms())  # now, as steps look for what is not answered yet
            self.driver.wake()
        timer = asked.timer
        timer.update()
        if isinstance(asked, Round):
            if timer.expired or (asked.is_done is not None and asked.is_done()):
                return None
            turns = self.driver.turns
            return self._wait(lambda: self.driver.turns != turns, timer)
        if asked.is_done() or timer.expired:
            return asked.is_done()
        return self._wait(asked.is_done, timer)

    async def _wait(self, is_done: Callable[[], bool], timer: Timer) -> bool:
        """Wait until ``is_done()`` or until the timer expires; return ``is_done()``.

        Raises:
            Exception: an error for the application has come up, such as one of the metadata.
        """
        self._num_waiting += 1
        try:
            await self._waits.until(lambda: self._interruption is not None or is_done(), timer.remaining_ms)
            error = self._interruption
        finally:
            self._num_waiting -= 1
            if not self._num_waiting:
                self._interruption = None
        timer.update()
        if error is not None and not is_done():
            raise error
        return is_done()


async def _after_an_iteration(value: T) -> T:
    """Let the loop run, and return ``value``."""
    await one_iteration()
    return value


def _is_cancelled() -> bool:
    """Return whether the present task is to be cancelled, and not only something that it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _awaited_something_cancelled(raised: asyncio.CancelledError) -> KafkaError:
    """Return an error in its place: the steps would end in the middle, and the next turn would begin them again."""
    error = KafkaError(
        "a rebalance listener or callback awaited something that was cancelled, such as a task that it has cancelled "
        "itself: catch asyncio.CancelledError there"
    )
    error.__cause__ = raised
    return error
