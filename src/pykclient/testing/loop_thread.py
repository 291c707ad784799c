"""The thread of a cluster with sockets."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from pykclient.errors import IllegalStateError, KafkaTimeoutError
from pykclient.testing.event_loop import EventLoop

T = TypeVar("T")

#: The maximum wait for the loop's thread to begin a call; normally it takes milliseconds.
_CALL_TIMEOUT_S = 30.0

#: The interval at which conditions are checked without events in the cluster, because they may be about other things.
_LOOK_INTERVAL_MS = 20


class Poller(Protocol):
    """The sockets on which the thread waits. Thread: loop, except for ``wakeup``."""

    def poll(self, timeout_ms: int) -> None:
        """Do the I/O that is possible; wait at most ``timeout_ms`` for some."""

    def wakeup(self) -> None:
        """End the wait. Thread: any, also after ``close``."""

    def close(self) -> None:
        """Close the sockets. ``poll`` is not called again."""


class _Call(Generic[T]):
    """A call that another thread has submitted, and its result."""

    __slots__ = ("_function", "done", "error", "result")

    result: T  # set if the call succeeded

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self.done = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self._function()
        except BaseException as error:  # noqa: BLE001 - raised in the thread that asked
            self.error = error
        self.done.set()


class _Waiter:
    """A condition that a thread waits for."""

    __slots__ = ("done", "error", "predicate")

    def __init__(self, predicate: Callable[[], bool]) -> None:
        self.predicate = predicate
        self.done = threading.Event()
        self.error: BaseException | None = None

    def check(self) -> bool:
        try:
            if not self.predicate():
                return False
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            self.error = error
        self.done.set()
        return True

    def give_up(self, error: Exception) -> None:
        self.error = error
        self.done.set()


class LoopThread:
    """Runs an event loop and its sockets on a daemon thread. Other threads submit calls and conditions.

    ``open_poller`` is called on that thread. The main thread could be interrupted by Ctrl-C between opening a socket
    and storing it. Thread: any.
    """

    def __init__(self, loop: EventLoop, open_poller: Callable[[], Poller], name: str) -> None:
        self._loop = loop
        self._opening = _Call(open_poller)
        self._poller: Poller | None = None  # set by the loop's thread
        self._calls: deque[_Call[Any]] = deque()
        self._waiters: list[_Waiter] = []  # the loop's thread only
        self._stopping = False
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread. Raise what opening the poller raised."""
        self._thread.start()
        self._await(self._opening)

    def stop(self, timeout_s: float) -> None:
        """End the thread.

        Raises:
            KafkaTimeoutError: the thread is stuck.
        """
        if self.is_current:
            raise IllegalStateError("a hook cannot end the cluster that it runs in")
        self._stopping = True
        self._wakeup()
        if not self._thread.is_alive():
            return  # or it was interrupted while starting, and ends at once
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise KafkaTimeoutError(f"the thread {self._thread.name} did not end within {timeout_s:.0f} s")

    @property
    def running(self) -> bool:
        return self._thread.is_alive() and not self._stopping

    @property
    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def call(self, function: Callable[[], T]) -> T:
        """Call ``function`` on the loop's thread; return its result, or raise its exception.

        On that thread itself, call it directly.
        """
        if self.is_current:
            return function()
        if not self.running:
            raise IllegalStateError("the cluster does not run")
        call = _Call(function)
        self._calls.append(call)
        if self._ended and call in self._calls:
            raise IllegalStateError("the cluster does not run")  # it ended between the two lines above
        self._wakeup()
        return self._await(call)

    def wait_for(self, predicate: Callable[[], bool], timeout_ms: int) -> bool:
        """Wait until ``predicate`` returns true; return False after ``timeout_ms``.

        It is called on the loop's thread after events.
        """
        if self.is_current:
            raise IllegalStateError("a hook must not wait: the cluster stands still while it runs")
        waiter = _Waiter(predicate)

        def begin() -> None:
            if not waiter.check():
                self._waiters.append(waiter)

        self.call(begin)
        try:
            waiter.done.wait(timeout_ms / 1000)
        finally:  # also after Ctrl-C: the condition must not be checked any more
            if not waiter.done.is_set():
                self._abandon(waiter)
        if waiter.error is not None:
            raise waiter.error
        return waiter.done.is_set()

    def _abandon(self, waiter: _Waiter) -> None:
        def remove() -> None:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

        if self.running:
            self.call(remove)

    def _await(self, call: _Call[T]) -> T:
        if not call.done.wait(_CALL_TIMEOUT_S):
            raise KafkaTimeoutError(f"a call to the cluster's thread got no response within {_CALL_TIMEOUT_S:.0f} s")
        if call.error is not None:
            raise call.error
        return call.result

    def _wakeup(self) -> None:
        # Before the thread has a poller, it has not checked anything yet, so there is nothing to wake it for.
        if self._poller is not None:
            self._poller.wakeup()

    def _run(self) -> None:
        self._opening.run()
        try:
            if self._opening.error is None:
                self._poller = self._opening.result
                self._serve(self._poller)
        finally:
            self._ended = True
            while self._calls:
                self._calls.popleft().run()
            for waiter in self._waiters:
                waiter.give_up(IllegalStateError("the cluster was closed while a thread waited for a call to it"))
            if self._poller is not None:
                self._poller.close()

    def _serve(self, poller: Poller) -> None:
        loop, calls = self._loop, self._calls
        while not self._stopping:
            while calls:
                calls.popleft().run()
            timeout_ms = loop.run_due()
            if self._waiters:
                self._waiters = [waiter for waiter in self._waiters if not waiter.check()]
            if self._waiters:
                timeout_ms = min(timeout_ms, _LOOK_INTERVAL_MS)
            poller.poll(0 if calls else timeout_ms)
