"""The thread that a cluster runs on when it is used through sockets."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from pykclient.errors import IllegalStateError, KafkaTimeoutError
from pykclient.testing.event_loop import EventLoop

T = TypeVar("T")

#: The longest wait for the loop's thread to get to a call; it is busy for milliseconds at most.
_CALL_TIMEOUT_S = 30.0

#: How often conditions are looked at although nothing happens in the cluster: they may be about something else as well.
_LOOK_INTERVAL_MS = 20


class Poller(Protocol):
    """Where the thread waits: the sockets. Thread: loop, but for ``wakeup``."""

    def poll(self, timeout_ms: int) -> None:
        """Do what I/O can be done, waiting at most ``timeout_ms`` for some."""

    def wakeup(self) -> None:
        """End the wait. Thread: any, and also after ``close``."""

    def close(self) -> None:
        """Close the sockets; nothing is polled any more."""


class _Call(Generic[T]):
    """Something that another thread wants done on the loop's, and what came of it."""

    __slots__ = ("_function", "done", "error", "result")

    result: T  # set when it is done without an error

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
    """A condition that some thread waits for."""

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
    """Runs an event loop and its sockets on a daemon thread; other threads hand in calls and conditions.

    ``open_poller`` is called on that thread. Ctrl-C only strikes the main thread, where it could fall between a socket
    and the line that remembers it. Thread: any.
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
        """Start the thread; raises what opening the poller raised."""
        self._thread.start()
        self._await(self._opening)

    def stop(self, timeout_s: float) -> None:
        """End the thread; KafkaTimeoutError if it is stuck."""
        if self.is_current:
            raise IllegalStateError("a hook cannot end the cluster that it runs in")
        self._stopping = True
        self._wakeup()
        if not self._thread.is_alive():
            return  # or it was interrupted while it started, and ends at once
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
        """What ``function`` returns or raises on the loop's thread; at once if this is it."""
        if self.is_current:
            return function()
        if not self.running:
            raise IllegalStateError("the cluster does not run")
        call = _Call(function)
        self._calls.append(call)
        if self._ended and call in self._calls:
            raise IllegalStateError("the cluster does not run")  # it ended between the two lines before
        self._wakeup()
        return self._await(call)

    def wait_for(self, predicate: Callable[[], bool], timeout_ms: int) -> bool:
        """Wait until ``predicate``, asked on the loop's thread after whatever happens there, is true."""
        if self.is_current:
            raise IllegalStateError("a hook must not wait: the cluster stands still while it runs")
        waiter = _Waiter(predicate)

        def begin() -> None:
            if not waiter.check():
                self._waiters.append(waiter)

        self.call(begin)
        try:
            waiter.done.wait(timeout_ms / 1000)
        finally:  # after Ctrl-C, too: who does not wait any more is not to be asked any more
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
            raise KafkaTimeoutError(f"a call to the cluster's thread was not answered within {_CALL_TIMEOUT_S:.0f} s")
        if call.error is not None:
            raise call.error
        return call.result

    def _wakeup(self) -> None:
        # Before it has a poller the thread has not looked at anything yet that it could be woken for.
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
                waiter.give_up(IllegalStateError("the cluster was closed while somebody waited for something in it"))
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
