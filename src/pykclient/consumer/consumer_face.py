"""The methods that the public consumers have in common."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

from pykclient.clock import Timer
from pykclient.consumer import consumer_arguments
from pykclient.metrics.subscribed_metrics import SubscribedMetrics
from pykclient.types import ConsumerRecord, K, V

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.clock import Clock
    from pykclient.consumer.application_events import Steps
    from pykclient.consumer.thread_guard import ThreadGuard
    from pykclient.metrics.metrics import Metrics

T = TypeVar("T")

#: The default bound of close().
DEFAULT_CLOSE_TIMEOUT_MS = 30_000

#: The bound of leaving a ``with`` block that ends by KeyboardInterrupt or SystemExit.
ENDING_TIMEOUT_MS = 500


class ConsumerDelegate(Protocol):
    """The part of the implementation of a consumer that the common methods use."""

    @property
    def client_id(self) -> str: ...

    @property
    def group_id(self) -> str | None: ...

    @property
    def metrics(self) -> Metrics: ...

    def subscription(self) -> set[str]: ...

    def wakeup(self) -> None: ...

    def client_instance_id(self, timer: Timer) -> Steps[UUID | None]: ...

    def abandon(self) -> None: ...


class RunSteps(Protocol):
    """Runs steps to their end."""

    def __call__(self, steps: Steps[T]) -> T: ...


class ConsumerFace(SubscribedMetrics, ABC, Generic[K, V]):
    """The base class of the public consumers. Thread: as the subclass says."""

    _guard: ThreadGuard
    _clock: Clock
    _consumer: ConsumerDelegate
    _default_timeout_ms: int
    _run: RunSteps
    _iterator: Iterator[ConsumerRecord[K, V]] | None

    @abstractmethod
    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]: ...

    @abstractmethod
    def _explain(self) -> str:
        """Return the page of ``explain``."""

    def __repr__(self) -> str:
        state = " closed" if self._guard.closed else ""
        ids = f"client_id={self._consumer.client_id} group_id={self._consumer.group_id}"
        return f"<{self._guard.name} {ids}{state}>"

    def _timer(self, timeout_ms: float | None) -> Timer:
        return Timer(
            self._clock, self._default_timeout_ms if timeout_ms is None else consumer_arguments.milliseconds(timeout_ms)
        )

    def subscription(self) -> set[str] | None:
        """Return the topics subscribed to, or None if there are none."""
        with self._guard:
            return self._consumer.subscription() or None

    def __next__(self) -> ConsumerRecord[K, V]:
        """Return the next record, as a loop does.

        Raises:
            StopIteration: no record arrived for ``consumer.timeout.ms``; a later call may find one.
        """
        if self._iterator is None:
            self._iterator = iter(self)
        try:
            # Not next(): a signal handler may run between a call and the use of its result.
            for record in self._iterator:
                return record
        except BaseException:  # the iterator ends with any exception, but the consumer remains usable
            self._iterator = None
            raise
        self._iterator = None
        raise StopIteration

    def _registry(self, call: str) -> Metrics:  # noqa: ARG002
        self._guard.check_process()
        self._guard.check_not_interrupting()
        return self._consumer.metrics

    def client_instance_id(self, timeout_ms: float | None = None) -> UUID | None:
        """Return the id that a broker has given to this client, by which its pushed metrics are known (KIP-714).

        Waits at most ``timeout_ms`` milliseconds (default: ``default.api.timeout.ms``); 0 does not wait. Return None if
        there is no id by then, for example as the brokers have no receiver for metrics.

        Raises:
            IllegalStateError: telemetry is disabled (``enable.metrics.push=false``), or a callback makes this call.
            IllegalArgumentError: ``timeout_ms`` is negative, or not a number.
            WakeupError: ``wakeup`` was called.
        """
        with self._guard:
            self._guard.require_outermost()
            return self._run(self._consumer.client_instance_id(self._timer(timeout_ms)))

    def explain(self) -> str:
        """Return a page of text on what the consumer is doing and waiting for.

        It names the call in progress, the membership in the group, each partition, the connections with their requests
        in flight, and the last warnings and errors. May be called from any thread; ``pykclient.explain_on_signal``
        prints it on a signal.

        Raises:
            IllegalStateError: called by a signal handler or destructor that interrupts another call of this thread.
            UseAfterForkError: this is a forked child process.
        """
        self._guard.check_process()
        self._guard.check_not_interrupting()
        return self._explain()

    def wakeup(self) -> None:
        """Make the call in progress in another thread, or else the next call that waits, raise WakeupError.

        May be called from any thread and from signal handlers.
        """
        self._guard.check_process()
        self._consumer.wakeup()

    def __enter__(self) -> Self:
        return self

    def __del__(self) -> None:
        consumer = getattr(self, "_consumer", None)
        if consumer is None or self._guard.closed or self._guard.forked:
            return
        try:
            consumer.abandon()
        finally:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)
