"""The sender's thread, and the threads that drive the sender.

Some code must not block on the sender's thread, and none may wait for a thread that has failed (SenderThread).

Whoever holds the lease may step the sender and poll the network client (SenderDriver). A thread that waits for a record
takes the lease if it is free, and drives until its result is there, so that no record crosses from one thread to
another and back. The sender's thread drives at all other times. When nothing is in flight and nothing is due, it gives
the lease up and parks.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from pykclient.clock import Clock
from pykclient.errors import KafkaError
from pykclient.log_context import LogContext
from pykclient.network.kafka_client import KafkaClient
from pykclient.producer.outbox import new_lock

#: While callers drive, the sender's thread checks this often whether they have left anything undone.
_CHECK_MS = 5
#: It does so for this long after the last of them.
_CHECKS_FOR_MS = 100
#: What a caller has left is nobody's after this time. Between ``send`` and ``get`` a caller holds no lease either.
_GRACE_MS = 2
#: A caller steps the sender this often: a thread that should have woken it may have been interrupted.
_LONGEST_POLL_MS = 500
#: After a pause of this length, connections may have been lost that nobody has polled.
_STALE_MS = 100


class Awaited(Protocol):
    """A result that a thread waits for."""

    @property
    def completed(self) -> bool: ...


class DrivenSender(Protocol):
    """The part of a Sender that its driver uses; see there. Thread: the lease's holder."""

    @property
    def has_incomplete(self) -> bool: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def is_completing_transaction(self) -> bool: ...
    def call_listeners(self) -> None: ...
    def fail(self, error: BaseException) -> None: ...
    def recover(self, now_ms: int) -> None: ...
    def round_failed(self, error: Exception, now_ms: int) -> int: ...
    def step(self, now_ms: int, *, is_borrowed: bool = False) -> int: ...


class SenderThread:
    """Tracks which thread is the sender's or drives it, and the failure of the sender's. Thread: any."""

    #: The thread that drives the sender now, and so holds the lease; the holder ends that with ``del``. ``take`` and
    #: ``del`` are each a single step, which neither another thread nor a signal handler can divide.
    holder: int | None = None

    __slots__ = (
        "__dict__",
        "_wakeup",
        "current_ident",
        "driver",
        "failure",
        "ident",
        "interruption",
        "killed_by",
        "results",
        "results_lock",
    )

    def __init__(
        self,
        get_ident: Callable[[], int] = threading.get_ident,
        killed_by: tuple[type[BaseException], ...] = (),
        wakeup: Callable[[], object] = bool,
    ) -> None:
        """Create it for a thread that has not started.

        ``killed_by`` are exceptions that stand for the end of the process: after one of them no code runs. ``wakeup``
        ends the sender's wait for the network; by default it does nothing.
        """
        self._wakeup = wakeup
        #: Returns the id of the current thread.
        self.current_ident = get_ident
        #: The sender's thread; None before it starts and after it has ended.
        self.ident: int | None = None
        self.killed_by = killed_by
        #: Lets threads of the application drive the sender; None until the sender's thread runs.
        self.driver: SenderDriver | None = None
        #: Batches completed on threads of the application: the sender's thread calls their listeners.
        self.results: deque[Any] = deque()
        #: Guards the results of batches: see ProduceRequestResult.
        self.results_lock = new_lock()
        #: An exception that struck while a thread of the application was handling a response, until it is raised there.
        self.interruption: Exception | None = None
        #: The exception that ended the thread; None if it is running or was closed.
        self.failure: BaseException | None = None

    def wakeup(self) -> None:
        """Make the thread that drives the sender step it at once."""
        if self.driver is not None:
            self.driver.wakeup()
        else:
            self._wakeup()

    def take(self, ident: int) -> bool:
        """Make ``ident`` the holder of the lease, if that is free; return True if it holds the lease."""
        holder: int = self.__dict__.setdefault("holder", ident)
        return holder == ident

    def begin(self) -> None:
        """Make the current thread the sender's."""
        self.ident = self.current_ident()

    def end(self) -> None:
        """Forget the sender's thread, which is ending: the system may reuse its identifier."""
        self.ident = None

    @property
    def is_current(self) -> bool:
        """True on the sender's thread or one that drives the sender, which must not wait for the sender.

        The call comes from a callback, a ``__del__`` that the garbage collector runs there, or a signal handler.
        """
        ident = self.current_ident()
        return ident in (self.ident, self.holder)

    @property
    def is_borrowed(self) -> bool:
        """True on a thread other than the sender's, which must not run listeners."""
        return self.ident is not None and self.current_ident() != self.ident

    def explain(self, error: KafkaError) -> KafkaError:
        """Return the thread's failure if it has failed, else ``error``."""
        failure = self.failure
        if failure is None:
            return error
        explained = KafkaError(
            f"the producer's I/O thread ended because application code raised {failure!r} in it, so it can send no "
            "more records. Close the producer and create a new one"
        )
        explained.__cause__ = failure
        return explained

    def ensure_alive(self) -> None:
        """Raise the failure of the thread, if it has failed.

        Raises:
            KafkaError: the thread has failed.
        """
        if self.failure is not None:
            raise self.explain(KafkaError())


class SenderDriver:
    """Drives a Sender on its own thread, and on threads of the application that wait for it.

    An exception of a signal handler may end a caller's step or poll anywhere. The next driver finds it unfinished, and
    has the sender start again.

    Thread: ``run`` and ``run_once`` belong to the sender's thread; any thread may call the others.
    """

    def __init__(
        self,
        sender: DrivenSender,
        client: KafkaClient,
        thread: SenderThread,
        clock: Clock,
        log_context: LogContext,
        lends: bool = False,
    ) -> None:
        """Create the driver. ``lends``: threads of the application may drive, as a step or poll runs no code of it."""
        self._sender = sender
        self._client = client
        self._thread = thread
        self._clock = clock
        self._log = log_context.logger(__name__)
        self._lends = lends
        self._signal = clock.new_signal()  # ends the rest of the sender's thread
        self._news = True  # a step is due, whatever the time is
        self._stepped_by: int | None = None  # the caller that has stepped in ``send``, if nothing happened since
        self._is_parked = False  # the last cycle left nothing that needs a driver before _next_step_ms
        self._is_unfinished = False  # a cycle is running, or an exception has ended it
        self._next_step_ms = 0
        self._last_cycle_ms = 0
        self._last_poll_ms = clock.now_ms()
        self._last_waiter: int | None = None  # the thread that last waited for a result

    # --- the lease ---------------------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """Make a driver step the sender at once: the driver that waits for the network, or the parked thread."""
        self._news = True
        # A driver that gives up the lease in between looks at _news afterwards.
        if self._thread.holder is None:
            self._signal.set()
        else:
            self._client.wakeup()

    def wakeup_for_flush(self) -> None:
        """Make a step due, for a thread that is about to wait for all batches."""
        self._news = True
        if not self._lends or self._thread.holder is not None:
            self._thread.wakeup()

    # --- the sender's thread -----------------------------------------------------------------------------------

    def run(self) -> None:
        """Drive the sender until it is closed.

        An exception that is not an Exception, such as SystemExit raised by a plugin, ends the thread: all remaining
        records fail, and later ones are refused.
        """
        thread = self._thread
        thread.begin()
        thread.driver = self
        try:
            self._log.debug("The producer's I/O thread starts")
            while not self._sender.is_closed:
                self.run_once()
            while not thread.take(thread.current_ident()):  # a caller is closing the sender
                self._signal.wait(_CHECK_MS)
            self._log.debug("The producer's I/O thread ends")
        except thread.killed_by:
            raise
        except BaseException as error:  # noqa: BLE001 - nothing else would fail the waiting records
            self._sender.fail(error)
        finally:
            thread.end()
        self._sender.call_listeners()

    def run_once(self) -> None:
        """Call the listeners of results set by callers' steps, then drive for one cycle, or park."""
        thread = self._thread
        if thread.results:
            self._sender.call_listeners()
            if self._sender.is_completing_transaction:
                self.wakeup()  # it may have waited for these callbacks
        now_ms = self._clock.now_ms()
        if thread.holder is not None or not self._is_due(now_ms) or not thread.take(thread.current_ident()):
            self._signal.wait(self._rest_ms(now_ms))
            return
        # An exception that is not an Exception ends this thread, which then still holds the lease.
        if not self._is_parked and self._client.in_flight_request_count():
            self._last_waiter = None  # that caller has left a request to others
        try:
            if thread.results:
                self._sender.call_listeners()  # a caller was faster: those of this cycle's results come after them
            self._cycle(now_ms)
        except Exception as error:  # noqa: BLE001 - the thread must go on
            self._clock.sleep_ms(self._poll_failed(error))
        del thread.holder

    def _is_due(self, now_ms: int) -> bool:
        """Return True if there is something to do that no caller is about to do."""
        if self._news or now_ms >= self._next_step_ms:
            return True
        return not self._is_parked and now_ms - self._last_cycle_ms >= _GRACE_MS

    def _rest_ms(self, now_ms: int) -> int:
        """Return for how long the sender's thread rests, unless it is woken."""
        if self._is_parked:
            return max(self._next_step_ms - now_ms, 0)
        return _CHECK_MS if now_ms - self._last_cycle_ms < _CHECKS_FOR_MS else _CHECKS_FOR_MS

    def _cycle(self, now_ms: int) -> None:
        """Step the sender; then poll the network, or park if there is nothing to wait for. The lease is held."""
        client = self._client
        self._begin_cycle(now_ms)
        if now_ms - self._last_poll_ms >= _STALE_MS:
            self._poll(0, now_ms)
        wait_ms = self._step(now_ms)
        if wait_ms > 0 and client.is_idle():
            wait_ms = client.begin_poll(wait_ms, now_ms)
            if wait_ms > 0 and client.is_idle():
                self._next_step_ms = now_ms + wait_ms
                self._is_parked = True
                self._is_unfinished = False
                return
        if not self._sender.is_closed:
            self._poll(wait_ms, now_ms)
            self._news = True  # step at once: only a step knows what the poll has changed
        self._is_unfinished = False

    # --- callers -----------------------------------------------------------------------------------------------

    def drive(self, result: Awaited, deadline_ms: int) -> bool:
        """Drive on the current thread until ``result`` is set, or until ``deadline_ms``.

        Return False, and do nothing, if another thread drives, so that the caller has to wait for it.
        """
        if not self._lends:
            return False
        thread = self._thread
        ident = thread.current_ident()
        self._last_waiter = ident
        try:
            if not thread.take(ident):
                return False
            while not result.completed and not self._sender.is_closed:
                now_ms = self._clock.now_ms()
                if now_ms >= deadline_ms:
                    break
                self._begin_cycle(now_ms)
                wait_ms = self._next_step_ms - now_ms
                if self._stepped_by != ident or self._news or wait_ms <= 0:
                    wait_ms = self._step(now_ms, is_borrowed=True)
                    if result.completed or self._sender.is_closed:
                        self._is_unfinished = False
                        break
                if thread.results:
                    self._signal.set()  # the end of a transaction waits for the callbacks
                rest_ms = deadline_ms - now_ms
                rest_ms = rest_ms if rest_ms < _LONGEST_POLL_MS else _LONGEST_POLL_MS
                self._poll(wait_ms if wait_ms < rest_ms else rest_ms, now_ms)
                self._is_unfinished = False
        finally:
            if thread.holder == ident:
                del thread.holder  # no call before this, so that no exception can prevent it
                if (
                    self._news
                    or self._is_unfinished
                    or thread.results
                    or self._sender.is_closed
                    or self._sender.has_incomplete
                    or self._client.in_flight_request_count()
                ):  # this is left to the sender's thread
                    self._signal.set()
        return True

    def step_for_send(self) -> bool:
        """Step the sender on the current thread, if it has just waited for a record and probably will again.

        Return False, and do nothing, if it has not, or if another thread drives.
        """
        thread = self._thread
        ident = thread.current_ident()
        if ident != self._last_waiter or not self._lends or thread.holder is not None:
            return False
        try:
            if not thread.take(ident):
                return False
            now_ms = self._clock.now_ms()
            self._begin_cycle(now_ms)
            if now_ms - self._last_poll_ms >= _STALE_MS:
                self._poll(0, now_ms)
            self._step(now_ms, is_borrowed=True)
            self._stepped_by = ident
            self._is_unfinished = False
        finally:
            if thread.holder == ident:
                del thread.holder
                if self._news or self._is_unfinished or thread.results or self._sender.is_closed:
                    self._signal.set()
        return True

    # --- one cycle ---------------------------------------------------------------------------------------------

    def _begin_cycle(self, now_ms: int) -> None:
        if self._is_unfinished and not self._client.end_interrupted_wait():
            self._log.info("An exception interrupted a call that was driving the sender; reconnecting")
            self._sender.recover(now_ms)
            self._thread.interruption = None  # its batches are retried, and its thread has got another exception
        if self._is_parked:
            self._is_parked = False
            if self._thread.holder != self._thread.ident:
                self._signal.set()  # from now on the sender's thread checks what callers leave
        self._last_cycle_ms = now_ms
        self._is_unfinished = True

    def _step(self, now_ms: int, *, is_borrowed: bool = False) -> int:
        self._news = False
        wait_ms = self._sender.step(now_ms, is_borrowed=is_borrowed)
        self._next_step_ms = now_ms + wait_ms
        return wait_ms

    def _poll(self, wait_ms: int, now_ms: int) -> None:
        self._stepped_by = None
        self._client.poll(wait_ms, now_ms)
        # Callbacks may have taken long since then, and responses have arrived.
        self._last_poll_ms = self._client.last_io_ms
        self._last_cycle_ms = self._clock.now_ms()
        interruption, self._thread.interruption = self._thread.interruption, None
        if interruption is not None:
            raise interruption

    def _poll_failed(self, error: Exception) -> int:
        """Clean up after a poll that failed; return for how many ms not to poll again."""
        now_ms = self._clock.now_ms()
        self._is_unfinished = False
        backoff_ms = self._sender.round_failed(error, now_ms)
        self._next_step_ms = now_ms + backoff_ms
        self._last_poll_ms = now_ms + backoff_ms  # so that a step comes first, which lets the sender be closed
        return backoff_ms
