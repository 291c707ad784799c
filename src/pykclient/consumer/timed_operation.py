"""A call of the application that a request manager completes in time (Java: TimedRequestState)."""

from __future__ import annotations

from typing import Generic, TypeVar

from pykclient.consumer.request_future import RequestFuture
from pykclient.errors import KafkaTimeoutError

T = TypeVar("T")


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
