"""Drives the calls of an admin client on the threads that wait for them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from pykclient.errors import IllegalStateError
from pykclient.network.signal_errors import raise_if_of_signal_handler
from pykclient.reentry import HERE, ensure_not_interrupting

if TYPE_CHECKING:
    from pykclient.admin.admin_call import AdminCall
    from pykclient.admin.admin_calls import AdminCalls
    from pykclient.clock import Signal
    from pykclient.network.environment import Environment
    from pykclient.network.kafka_client import KafkaClient

#: After a pause of this length, connections may have been lost that nobody has polled.
_STALE_MS = 100
#: A waiting thread looks this often whether the lease is free: the driver that should have woken it may have been
#: interrupted.
_LONGEST_WAIT_MS = 500


class AdminDriver:
    """Lets one of the threads that wait for a call drive all calls.

    A thread that waits takes the lease if it is free: it steps the calls and polls the network until its own call is
    done. Then it gives the lease up, and wakes another one that waits. No thread of its own is needed, and a call does
    not cross from one thread to another.

    An exception of a signal handler may end a cycle anywhere. The next driver finds it unfinished, and has the calls
    start again with new connections, unless only the wait for the network was interrupted. Thread: any.
    """

    def __init__(self, calls: AdminCalls, client: KafkaClient, environment: Environment) -> None:
        self._calls = calls
        self._client = client
        self._clock = environment.clock
        self._get_ident = environment.get_ident
        self._lock = threading.Lock()  # guards: _waiting, and taking the lease, which is _holder
        self._holder: int | None = None
        self._waiting: dict[AdminCall[Any, Any], Signal] = {}
        self._is_unfinished = False
        self._last_poll_ms = self._clock.now_ms()

    def complete(self, call: AdminCall[Any, Any], name: str) -> None:
        """Run ``call`` until it is done. ``name`` is the method that the application has called.

        Raises:
            IllegalStateError: a signal handler or a ``__del__`` has interrupted a call of the same thread.
        """
        self._ensure_not_nested(name)
        signal = self._clock.new_signal()
        call.on_done = signal.set
        try:
            with HERE.mark, self._lock:
                self._waiting[call] = signal
            self._calls.submit(call)
            if self._holder is not None:
                self._client.wakeup()
            while not call.is_done:
                if not self._drive(call):
                    signal.wait(_LONGEST_WAIT_MS)
        finally:
            with HERE.mark, self._lock:
                self._waiting.pop(call, None)
            if not call.is_done:
                self._calls.abandon(call)

    def close(self, timeout_ms: int, name: str) -> None:
        """Fail the calls in progress and close the connections. Wait at most ``timeout_ms`` for a call that drives."""
        self._ensure_not_nested(name)
        deadline_ms = self._clock.now_ms() + timeout_ms
        self._calls.initiate_close()
        self._client.wakeup()
        signal = self._clock.new_signal()
        while not self._calls.is_closed:
            ident = self._get_ident()
            try:
                if self._take(ident):
                    self._calls.step(self._clock.now_ms())
            finally:
                if self._holder == ident:
                    self._holder = None
            left_ms = deadline_ms - self._clock.now_ms()
            if self._calls.is_closed or left_ms <= 0:
                return
            signal.wait(min(left_ms, 5))

    def _ensure_not_nested(self, name: str) -> None:
        ensure_not_interrupting(name)
        if self._holder == self._get_ident():
            raise IllegalStateError(
                f"{name} was called by a signal handler or a __del__ while this thread was inside another call to this "
                "client, and would wait for itself. Set a flag there, and make the call outside"
            )

    def _take(self, ident: int) -> bool:
        """Take the lease if it is free. The caller gives it up even if an exception ends this method."""
        with HERE.mark, self._lock:
            if self._holder is None:
                self._holder = ident
        return self._holder == ident

    def _wake_next(self) -> None:
        """Have another thread that waits take the lease, which this one has given up."""
        with HERE.mark, self._lock:
            following = next((signal for call, signal in self._waiting.items() if not call.is_done), None)
        if following is not None:
            following.set()

    def _drive(self, call: AdminCall[Any, Any]) -> bool:
        """Drive until ``call`` is done. Return False, and do nothing, if another thread drives."""
        ident = self._get_ident()
        try:
            if not self._take(ident):
                return False
            self._begin()
            while not call.is_done:
                self._cycle(call)
        finally:
            if self._holder == ident:
                self._holder = None  # no call before this, so that no exception can prevent it
                self._wake_next()
        return True

    def _begin(self) -> None:
        if self._is_unfinished and not self._client.end_interrupted_wait():
            self._calls.recover()
        self._is_unfinished = False

    def _cycle(self, call: AdminCall[Any, Any]) -> None:
        """Step the calls once, and wait for the network unless ``call`` is done."""
        self._is_unfinished = True
        now_ms = self._clock.now_ms()
        try:
            if now_ms - self._last_poll_ms >= _STALE_MS and not self._calls.is_closed:
                self._client.poll(0, now_ms)  # notice connections that the brokers have closed meanwhile
            wait_ms = self._calls.step(now_ms)
            if not (call.is_done or self._calls.is_closed):
                self._client.poll(wait_ms, now_ms)
        except Exception as error:  # noqa: BLE001 - the calls of other threads must not hang
            raise_if_of_signal_handler(error)
            self._clock.sleep_ms(self._calls.round_failed(error, now_ms))
        self._last_poll_ms = self._clock.now_ms()
        self._is_unfinished = False
