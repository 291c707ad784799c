"""The methods that the public consumers have in common, and the guard that admits one thread at a time.

The guard is Java's ClassicKafkaConsumer.acquire, for one thread in the process that created the consumer.

A signal handler or a destructor may run between any two instructions. So a call may come from inside another one, and
an exception may interrupt any of the guard's own steps. The guard recognizes both by the frames of the calls: each
entry stores the frame of the method that entered, and an entry whose frame has ended is stale and does not count.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, Self, TypeVar

from pykclient import explanation
from pykclient.clock import Timer
from pykclient.consumer import consumer_arguments
from pykclient.consumer.application_driver import RequestFuture
from pykclient.errors import ConcurrentModificationError, IllegalStateError, KafkaError, UseAfterForkError
from pykclient.metrics import SubscribedMetrics
from pykclient.network.environment import SYSTEM_ENVIRONMENT, Environment
from pykclient.pacing import SHORT_PAUSE_MS
from pykclient.types import ConsumerRecord, K, V

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.clock import Clock
    from pykclient.consumer.application_driver import ApplicationDriver, Steps
    from pykclient.metrics import Metrics

_HOLDER = "holder"
#: Methods of loops, which applications do not call themselves.
_LOOPS = {"iterate": "the loop over its records", "lists": "the loop over its records", "batches": "iter_arrow()"}


class _Entry:
    """A call in progress. ``outer`` is the call whose callback made this one."""

    __slots__ = ("calls_back", "frame", "outer", "thread_id")

    def __init__(self, frame: FrameType, thread_id: int) -> None:
        self.frame = frame
        self.thread_id = thread_id
        self.outer: _Entry | None = None
        self.calls_back = False  # while a callback of the application runs, at a point where calls are safe

    @property
    def method(self) -> str:
        """The name of the call, as an application knows it."""
        name = self.frame.f_code.co_name
        return _LOOPS.get(name, f"{name}()")

    @property
    def is_stale(self) -> bool:
        """True if the call has ended without leaving the guard, because an exception interrupted its last step."""
        try:
            self.frame.clear()  # does nothing to a frame except raise if it is executing
        except RuntimeError:
            return False
        return True


class ApplicationCode:
    """A context manager around callbacks of the application, which may call the consumer. Thread: application."""

    __slots__ = ("_guard",)

    def __init__(self, guard: ThreadGuard) -> None:
        self._guard = guard

    def __enter__(self) -> None:
        self._guard.set_calls_back(True)

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._guard.set_calls_back(False)


class ThreadGuard:
    """A context manager around each public method. Callbacks of the application may enter it again.

    It never waits. A second thread gets an error, because no order of the calls would be right. So does a signal
    handler or destructor that interrupts a call of the same thread, because the consumer may be in any state.

    ``recover(in_middle)`` runs at the start of a call. ``in_middle`` is True if the last call ended with an exception
    that the consumer did not raise itself, and that may have struck anywhere. It is False if there are only leftovers,
    as ``has_leftovers`` reports. Thread: any.
    """

    def __init__(self, environment: Environment = SYSTEM_ENVIRONMENT, name: str = "KafkaConsumer") -> None:
        self.name = name  # of the client's class
        self._clock = environment.clock
        self._get_ident = environment.get_ident
        # The innermost entry under its one key: ``setdefault`` enters and finds out who else is inside, in one step.
        self._held: dict[str, _Entry] = {}
        # True from the first to the last step of a call, so that an exception anywhere in between leaves it True.
        self._is_broken = False
        self._is_intruded = False
        # The thread and method of the last call: after it has left, it still has to return its records.
        self._last_thread_id = 0
        self._last_code: CodeType | None = None
        self._pid = os.getpid()
        self.application_code = ApplicationCode(self)
        self.recover: Callable[[bool], object] = lambda _: None
        self.has_leftovers: Callable[[], bool] = lambda: False
        self.closed = False

    @property
    def forked(self) -> bool:
        """True in a child process, where the consumer is a copy whose locks may never be released."""
        return os.getpid() != self._pid

    def check_process(self) -> None:
        """Raise UseAfterForkError in a child process."""
        if os.getpid() != self._pid:
            raise UseAfterForkError(
                f"this {self.name} was made in process {self._pid} and is used in its child {os.getpid()}: sockets "
                f"and group membership belong to the parent; make a consumer in each process, after the fork"
            )

    def check_open(self) -> None:
        """Raise IllegalStateError if the consumer is closed, and UseAfterForkError in a child process.

        This is all that methods need which only read values that are replaced as a whole: any thread may call them, and
        signal handlers too.
        """
        self.check_process()
        if self.closed:
            self._clock.sleep_ms(SHORT_PAUSE_MS)
            raise IllegalStateError(f"this {self.name} is closed")

    def check_not_interrupting(self) -> None:
        """Raise IllegalStateError if a signal handler or destructor interrupts a call of this thread.

        For methods that any thread may call, but which take locks that the interrupted call may hold.
        """
        holder = self._holder()
        if holder is not None and holder.thread_id == self._get_ident() and not holder.calls_back:
            raise self._interrupting(holder)

    @property
    def is_nested(self) -> bool:
        """True if a callback of another call made the current call."""
        holder = self._held.get(_HOLDER)
        return holder is not None and holder.outer is not None

    @property
    def present_call(self) -> str | None:
        """The name of the call in progress, and of its thread; None without one. Thread: any."""
        holder = self._held.get(_HOLDER)
        return None if holder is None else f"{holder.method} in {_thread_name(holder.thread_id)}"

    def require_outermost(self) -> None:
        """Raise IllegalStateError if a callback made the current call."""
        entry = self._held.get(_HOLDER)
        if entry is not None and entry.outer is not None:
            inner, outer = entry.method, entry.outer.method
            raise IllegalStateError(
                f"{inner} cannot be called by a rebalance listener or commit callback, as it runs inside of "
                f"{outer}: call it when {outer} has returned, or raised what the callback raised"
            )

    def set_calls_back(self, value: bool) -> None:
        """Allow or forbid that callbacks of the current call use the consumer."""
        holder = self._held.get(_HOLDER)
        if holder is not None:
            holder.calls_back = value

    def _holder(self) -> _Entry | None:
        """Return the innermost call in progress."""
        holder = self._held.get(_HOLDER)
        while holder is not None and holder.is_stale:
            holder = holder.outer
        return holder

    def __enter__(self) -> object:
        """Enter the guard, and recover from an interrupted call. Return the call whose callback made this one, or None.

        Raises:
            ConcurrentModificationError: another thread is inside.
            UseAfterForkError: this is a forked child process.
            IllegalStateError: the consumer is closed, or a signal handler or destructor interrupts a call.
        """
        if os.getpid() != self._pid:
            self.check_process()
        if self.closed:
            self.check_open()
        entry = _Entry(sys._getframe(1), self._get_ident())
        while (found := self._held.setdefault(_HOLDER, entry)) is not entry:
            if self._enter_inside(entry, found):
                break
        if entry.outer is None:
            if self._is_broken:
                self.recover(True)
            elif self.has_leftovers():
                self._check_not_returning(entry)
                self.recover(False)
            self._is_broken = True
        return entry.outer

    def _check_not_returning(self, entry: _Entry) -> None:
        """Leave, and raise an error, if the last call is about to return its leftovers.

        That call has left the guard and marks its records as returned in its last step. It is another thread's, or a
        signal handler has interrupted it. Recovering in between would return the same records again.
        """
        is_same_thread = self._last_thread_id == entry.thread_id
        frame = entry.frame.f_back if is_same_thread else sys._current_frames().get(self._last_thread_id)
        while frame is not None:
            if frame.f_code is self._last_code and getattr(frame.f_locals.get("self"), "_guard", None) is self:
                del self._held[_HOLDER]
                if is_same_thread:
                    error = self._interrupting(_Entry(frame, entry.thread_id))
                    self._is_intruded = False  # the interrupted call has done all but this
                    raise error
                raise self._concurrent(entry.thread_id, self._last_thread_id)
            frame = frame.f_back

    def _enter_inside(self, entry: _Entry, found: _Entry) -> bool:
        """Enter while ``found`` is inside; return False if that has left meanwhile, so that this has to try again."""
        holder = self._holder()
        if holder is None:
            if self._held.get(_HOLDER) is not found:
                return False  # a call of another thread, which still has to return its records
            self._is_broken = True  # the last call was interrupted while it left
        elif holder.thread_id != entry.thread_id:
            raise self._concurrent(entry.thread_id, holder.thread_id)
        elif not holder.calls_back:
            raise self._interrupting(holder)
        entry.outer = holder
        self._held[_HOLDER] = entry
        return True

    def _concurrent(self, thread_id: int, holder_id: int) -> ConcurrentModificationError:
        return ConcurrentModificationError(
            f"{self.name} is not safe for use by several threads: {_thread_name(thread_id)} called it while "
            f"{_thread_name(holder_id)} is inside; another thread may call only wakeup(), explain(), metrics() and "
            "methods that just read, such as assignment()"
        )

    def _interrupting(self, holder: _Entry) -> IllegalStateError:
        # The error may end the interrupted call anywhere, and may be caught and wrapped on its way.
        self._is_intruded = True
        return IllegalStateError(
            f"this {self.name} is in the middle of {holder.method} in the same thread, and can be called neither by "
            f"a signal handler or destructor that interrupts it, nor by its interceptors and deserializers: call "
            f"wakeup(), which is always safe, and do the rest when {holder.method} has ended"
        )

    def __exit__(
        self, _type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        is_sound = not self._is_intruded and (error is None or _is_own(error, traceback))
        frame = sys._getframe(1)
        entry = self._held.get(_HOLDER)
        while entry is not None and entry.frame is not frame:
            entry = entry.outer  # inner ones are stale
        if entry is None:
            return
        # No call from here on, so that either all of these steps are done or none.
        if entry.outer is None:
            self._is_broken = not is_sound
            self._is_intruded = False
            self._last_thread_id = entry.thread_id
            self._last_code = frame.f_code
            del self._held[_HOLDER]
        else:
            self._held[_HOLDER] = entry.outer


def _is_own(error: BaseException, traceback: TracebackType | None) -> bool:
    """Return True if the consumer raised ``error`` itself. A signal handler's error may strike anywhere."""
    if not isinstance(error, KafkaError):
        return False
    while traceback is not None:
        if not traceback.tb_frame.f_globals.get("__name__", "").startswith("pykclient."):
            return False
        traceback = traceback.tb_next
    return True


def _thread_name(thread_id: int | None) -> str:
    for thread in threading.enumerate():
        if thread.ident == thread_id:
            return f"thread {thread.name!r} (id {thread_id})"
    return f"a thread that has ended (id {thread_id})"


class OffsetCommitFuture:
    """The future of an asynchronous commit, which completes inside later calls of the consumer.

    It cannot be waited on; use ``commit()`` to wait. Thread: application.
    """

    __slots__ = ("_future",)

    def __init__(self, future: RequestFuture[None]) -> None:
        self._future = future

    @property
    def is_done(self) -> bool:
        return self._future.is_done

    @property
    def exception(self) -> Exception | None:
        """The error, or None if there is none."""
        return self._future.exception if self._future.failed else None

    @property
    def value(self) -> None:
        """None: a commit has no result."""
        return

    def succeeded(self) -> bool:
        return self._future.succeeded

    def failed(self) -> bool:
        return self._future.failed

    def retriable(self) -> bool:
        """Return whether the commit failed with an error that allows a retry."""
        return self._future.failed and self._future.is_retriable

    def add_callback(self, callback: Callable[[None], object]) -> OffsetCommitFuture:
        """Call ``callback(None)`` on success."""
        self._future.add_listener(callback)
        return self

    def add_errback(self, errback: Callable[[Exception], object]) -> OffsetCommitFuture:
        """Call ``errback(error)`` on failure."""
        self._future.add_listener(None, errback)
        return self


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

    def recover(self, in_middle: bool) -> None: ...

    def has_leftovers(self) -> bool: ...


class FaceComponents(Protocol):
    """The parts that both public consumers take: ConsumerComponents or ShareConsumerComponents."""

    @property
    def config(self) -> Mapping[str, Any]: ...

    @property
    def guard(self) -> ThreadGuard: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def driver(self) -> ApplicationDriver: ...


class RunSteps(Protocol):
    """Runs steps to their end."""

    def __call__(self, steps: Steps[T]) -> T: ...


class ConsumerFace(SubscribedMetrics, ABC, Generic[K, V]):
    """The base class of the public consumers. Thread: as the subclass says."""

    #: False for a consumer inside of one that gives no warning.
    _warns_unclosed = True
    _guard: ThreadGuard
    _clock: Clock
    _consumer: ConsumerDelegate
    _default_timeout_ms: int
    _run: RunSteps
    _iterator: Iterator[ConsumerRecord[K, V]] | None

    @abstractmethod
    def _loop(self) -> Iterator[ConsumerRecord[K, V]]:
        """Return the iterator of a loop over all records."""

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        if type(self).__next__ is not ConsumerFace.__next__:  # a subclass or an instrumentation has replaced it
            return self
        return self._loop()

    @abstractmethod
    def _explain(self) -> str:
        """Return the page of ``explain``."""

    def __repr__(self) -> str:
        state = " closed" if self._guard.closed else ""
        ids = f"client_id={self._consumer.client_id} group_id={self._consumer.group_id}"
        return f"<{self._guard.name} {ids}{state}>"

    #: What ``pickle``'s error adds.
    _where_to_make_it = ""

    def _attach(self, consumer: ConsumerDelegate, components: FaceComponents) -> None:
        """Take the parts that the consumer is made of."""
        self._guard = guard = components.guard
        self._clock = components.clock
        self._default_timeout_ms = components.config["default.api.timeout.ms"]
        self._iterator = None
        self._consumer = consumer
        self._run = components.driver.run
        guard.recover = consumer.recover
        guard.has_leftovers = consumer.has_leftovers
        explanation.opened(self)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} cannot be pickled, as its connections belong to this process: make it in the function that runs "
            f"elsewhere{self._where_to_make_it}"
        )

    def _timer(self, timeout_ms: float | None) -> Timer:
        return Timer(
            self._clock, self._default_timeout_ms if timeout_ms is None else consumer_arguments.milliseconds(timeout_ms)
        )

    def subscription(self) -> set[str] | None:
        """Return the topics subscribed to, or None if there are none. Thread: any."""
        self._guard.check_open()
        return self._consumer.subscription() or None

    def __next__(self) -> ConsumerRecord[K, V]:
        """Return the next record, as a loop does.

        Raises:
            StopIteration: no record arrived for ``consumer.timeout.ms``; a later call may find one.
        """
        if self._iterator is None:
            self._iterator = self._loop()
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
        """Return the client instance id, by which brokers identify this client's metrics (KIP-714).

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
        """Return a report of what the consumer is doing and waiting for.

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

    def _is_gone(self) -> bool:
        """Return True if there is nothing to close: it is closed, or belongs to the parent process."""
        if self._guard.forked:
            self._guard.closed = True  # the connections and the membership belong to the parent
        return self._guard.closed

    def _close(self, close: Callable[[], Steps[Exception | None]], abort: Callable[[], Steps[Any]]) -> Exception | None:
        """Run the steps of ``close``, and return its error. If an exception ends them, run those of ``abort``.

        The caller is inside of the guard.
        """
        try:
            failure = self._run(close())
        except BaseException:
            # Ctrl-C, or a signal handler that raises: whoever interrupts the wait does not want to wait for the next
            # step instead. If another exception strikes here, another call of close() does the rest.
            self._consumer.recover(in_middle=True)
            self._run(abort())
            self._guard.closed = True
            explanation.closed(self)
            raise
        self._iterator = None
        self._guard.closed = True
        explanation.closed(self)
        return failure

    def __enter__(self) -> Self:
        return self

    @staticmethod
    def _exit(error_type: type[BaseException] | None) -> tuple[bool, int | None]:
        """Return whether an error ends a block, and the time to close within: half a second if the program ends.

        A generator that is closed because its caller leaves a loop exits the block normally.
        """
        is_error = error_type is not None and not issubclass(error_type, GeneratorExit)
        is_ending = is_error and error_type is not None and not issubclass(error_type, Exception)
        return is_error, ENDING_TIMEOUT_MS if is_ending else None

    def __del__(self) -> None:
        consumer = getattr(self, "_consumer", None)
        if consumer is None or self._guard.closed or self._guard.forked:
            return
        try:
            consumer.abandon()
        finally:
            if self._warns_unclosed:
                warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)
