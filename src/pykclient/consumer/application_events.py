"""The application's code that request managers have to be run, and the driver runs (Java: BackgroundEvent)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

T = TypeVar("T")


class ApplicationCall:
    """A call of the application's code: a listener, a callback, an assignor or an interceptor. Thread: application."""

    __slots__ = ("function", "uses_consumer")

    def __init__(self, function: Callable[[], Any], *, uses_consumer: bool = True) -> None:
        self.function = function
        self.uses_consumer = uses_consumer  # at a point where calls of the consumer are safe


#: A step of a manager that needs the application. It yields calls, and at each yield gets the call's return value or
#: exception. So the driver decides how a call is made.
Steps = Generator[ApplicationCall, Any, T]


class ApplicationEvents:
    """Steps to run outside the I/O lease, in the order in which they were added. Thread: application.

    ``application_code`` is entered around calls that may use the consumer.
    """

    __slots__ = ("_application_code", "_queue")

    def __init__(self, application_code: AbstractContextManager[None] | None = None) -> None:
        self._application_code: AbstractContextManager[None] = application_code or nullcontext()
        self._queue: deque[Steps[None]] = deque()

    def __bool__(self) -> bool:
        return bool(self._queue)

    def add(self, steps: Steps[None]) -> None:
        self._queue.append(steps)

    def clear(self) -> None:
        """Drop all steps, without running them."""
        self._queue.clear()

    def run(self) -> None:
        """Run all steps. Raises what they raise."""
        while self._queue:
            self.run_steps(self._queue.popleft())

    def run_steps(self, steps: Steps[T]) -> T:
        """Make the calls that ``steps`` yields, and return its result. Raises what it raises."""
        try:
            call = next(steps)
            while True:
                try:
                    with self._application_code if call.uses_consumer else nullcontext():
                        value = call.function()
                except Exception as error:  # noqa: BLE001 - the application's code; the steps handle it
                    call = steps.throw(error)
                else:
                    call = steps.send(value)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            steps.close()
