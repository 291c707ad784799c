"""The guard that admits one thread at a time to a consumer (Java: ClassicKafkaConsumer.acquire).

It also keeps out processes other than the one that created the consumer.

A signal handler or a destructor may run between any two instructions. So a call may come from inside another one, and
an exception may interrupt any of the guard's own steps. The guard recognizes both by the frames of the calls: each
entry stores the frame of the method that entered, and an entry whose frame has ended is stale and does not count.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType, TracebackType

from pykclient.errors import ConcurrentModificationError, IllegalStateError, KafkaError, UseAfterForkError
from pykclient.network.environment import SYSTEM_ENVIRONMENT, Environment
from pykclient.pacing import SHORT_PAUSE_MS

_HOLDER = "holder"
#: Methods of loops, which applications do not call themselves.
_LOOPS = {"_iterate": "the loop over its records", "_lists": "the loop over its records", "_batches": "iter_arrow()"}


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
