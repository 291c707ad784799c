"""Calls of the application's code, which request managers decide on and drivers make (Java: BackgroundEvent)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

#: Called with the exception of the application's code, or None.
Outcome = Callable[[Exception | None], object]


class ApplicationEvents:
    """Calls to make outside the I/O lease, in the order in which they were added. Thread: application.

    ``application_code`` is entered around code that may use the consumer.
    """

    __slots__ = ("_application_code", "_queue")

    def __init__(self, application_code: AbstractContextManager[None] | None = None) -> None:
        self._application_code: AbstractContextManager[None] = application_code or nullcontext()
        self._queue: deque[tuple[Callable[[], object], Outcome, bool]] = deque()

    def __bool__(self) -> bool:
        return bool(self._queue)

    def add(self, call: Callable[[], object], done: Outcome, *, uses_consumer: bool = True) -> None:
        """Have ``call()`` made, and its outcome reported to ``done``, which may raise."""
        self._queue.append((call, done, uses_consumer))

    def run(self) -> None:
        """Make the calls, and report the outcome of each. Raises what ``done`` raises."""
        while self._queue:
            call, done, uses_consumer = self._queue.popleft()
            failure: Exception | None = None
            try:
                with self._application_code if uses_consumer else nullcontext():
                    call()
            except Exception as error:  # noqa: BLE001 - the application's code; whoever added it handles the error
                failure = error
            done(failure)
