"""A share consumer without a thread, for use on an event loop's thread: its deciding side."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pykclient.aio.errors import ConsumerStoppedError
from pykclient.aio.steps_runner import StepsRunner
from pykclient.clock import FOREVER_MS
from pykclient.consumer.application_events import ApplicationCall, Transmit
from pykclient.consumer.share.share_consumer import ShareConsumer
from pykclient.consumer.share.share_consumer_components import ShareConsumerComponents
from pykclient.errors import ConcurrentModificationError, IllegalStateError, KafkaError

if TYPE_CHECKING:
    from types import TracebackType

    from pykclient.aio.loop_environment import LoopEnvironment
    from pykclient.aio.loop_waits import LoopWaits
    from pykclient.config.share_consumer_config import ShareConsumerConfig
    from pykclient.consumer.application_events import Asked
    from pykclient.consumer.subscription_state import SubscriptionState


class _Call:
    """A context manager around a call of the application. Thread: the loop's."""

    __slots__ = ("_is_sole", "_method", "_owner", "_task")

    def __init__(self, owner: ThreadlessShareConsumer, method: str, is_sole: bool) -> None:
        self._owner = owner
        self._method = method
        self._is_sole = is_sole
        self._task = asyncio.current_task()

    def __enter__(self) -> None:
        owner = self._owner
        owner.refuse_in_callback(self._method, self._task)
        if self._is_sole:
            if owner.sole_call is not None:
                raise ConcurrentModificationError(
                    f"{self._method}() was called during {owner.sole_call}() of another task: only one task at a time "
                    "can read from a share consumer, as each call accepts the records of the last one. Create a "
                    "consumer for each task, or have one task read and others process the records"
                )
            owner.sole_call = self._method
        owner.callers.append(self._task)

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        owner = self._owner
        owner.callers.remove(self._task)
        if self._is_sole:
            owner.sole_call = None
        owner.call_ended()


class ThreadlessShareConsumer(StepsRunner):
    """Decides for a share consumer, in the turns of a LoopDriver and in the calls of the application.

    Heartbeats and acknowledgements go on all the time. The member joins the group, takes over assignments and fetches
    only in calls for records, because fetched records are locked. Implements Decider. Thread: the loop's.
    """

    def __init__(
        self,
        config: ShareConsumerConfig,
        environment: LoopEnvironment,
        subscriptions: SubscriptionState,
        waits: LoopWaits,
    ) -> None:
        self.components = components = ShareConsumerComponents(config, environment, subscriptions=subscriptions)
        super().__init__(components.client, environment.clock, waits, config["retry.backoff.ms"])
        self.consumer = ShareConsumer(components)
        #: The task that closes the consumer.
        self.closing: asyncio.Task[object] | None = None
        self.is_closed = False
        #: The call in progress that reads records or changes the membership.
        self.sole_call: str | None = None
        #: The tasks of all calls in progress.
        self.callers: list[asyncio.Task[Any] | None] = []
        self._ending: str | None = None  # why calls that wait must end
        self._log = components.log_context.logger(__name__)
        self._retry_backoff_ms: int = config["retry.backoff.ms"]

    # --- turns -----------------------------------------------------------------------------------------------------

    def step(self, now_ms: int) -> int:
        """Do everything that is due; return within how many ms to be called again."""
        if self.is_closed:
            return FOREVER_MS
        wait_ms = self._client.managers.poll(now_ms)
        try:
            self.components.metadata.maybe_throw_any_exception()
        except KafkaError as error:
            self.note_error(error)
        return wait_ms

    def round_failed(self, error: Exception, now_ms: int) -> int:  # noqa: ARG002 - the driver's interface
        """Start again with new connections after an exception that may have struck anywhere; return a backoff in ms."""
        self._log.error("An unexpected error; connecting anew", exc_info=error)
        self.consumer.recover(in_middle=True)
        self.note_error(error)
        return self._retry_backoff_ms

    def fail(self, error: BaseException) -> None:
        """Close because of an exception that ends the program, such as SystemExit of a metrics reporter."""
        self._log.error("Closing, as %r ends the program", error)
        self._ending = self._ending or f"the consumer has closed, because of {error!r}"
        self.interrupt(ConsumerStoppedError(self._ending))
        self.release()

    # --- calls -----------------------------------------------------------------------------------------------------

    def call(self, method: str, *, is_sole: bool = False) -> _Call:
        """Return a context manager for a call; ``is_sole`` is for calls that must not overlap with others of that kind.

        Entering it raises IllegalStateError in an acknowledgement commit callback, and ConcurrentModificationError if
        sole calls overlap.
        """
        return _Call(self, method, is_sole)

    def call_ended(self) -> None:
        """Send what a call has left, and let others go on that wait for it."""
        if self.callers or self._ending is not None or self._clock.now_ms() >= self._client.managers.due_ms:
            self.driver.wake()

    def _do(self, asked: Asked) -> Any:
        is_wait = not isinstance(asked, (ApplicationCall, Transmit))
        if is_wait and self._ending is not None and asyncio.current_task() is not self.closing:
            raise ConsumerStoppedError(self._ending)
        return super()._do(asked)

    def is_run_by(self, task: asyncio.Task[Any] | None) -> bool:
        """Return True if ``task`` closes the consumer."""
        return task is not None and task is self.closing

    def refuse_in_callback(self, method: str, task: asyncio.Task[Any] | None) -> None:
        """Raise IllegalStateError if an acknowledgement commit callback makes a call."""
        if task is not None and (task in self.callers or task is self.closing):
            raise IllegalStateError(
                f"{method}() cannot be called by an acknowledgement commit callback, as another call waits for the "
                "callback: call it when that call has returned"
            )

    # --- closing ---------------------------------------------------------------------------------------------------

    def stop(self, reason: str) -> None:
        """Let waiting calls end. ``reason`` is the text of their error."""
        self._ending = self._ending or reason
        self.interrupt(ConsumerStoppedError(self._ending))
        self.driver.wake()

    async def close(self, timeout_ms: int, *, is_sound: bool) -> KafkaError | None:  # noqa: ARG002 - as any consumer
        """Send acknowledgements, leave the group, and close, within ``timeout_ms``; return the first error."""
        if self.is_closed:  # by ``fail``: no answer will come
            timeout_ms = 0
        await self._waits.until(lambda: not self.callers, timeout_ms)
        try:
            return await self.run(self.consumer.close(timeout_ms))
        finally:
            self.release()

    def release(self) -> None:
        """Close the connections at once, without leaving the group."""
        if not self.is_closed:
            self._ending = self._ending or "the consumer has closed"
            self.is_closed = True
            self._client.close()
            self.driver.wake()

    def report(self) -> str:
        """Return why nothing happens, for the text of an error."""
        return self._client.connection_report() or "no answer came"
