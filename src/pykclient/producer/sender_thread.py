"""The identity and the failure of the sender's thread, and who drives the sender.

Some code must not block on the sender's thread, and none may wait for a thread that has failed.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from pykclient.errors import KafkaError
from pykclient.producer.outbox import new_lock


class Awaited(Protocol):
    """A result that a thread waits for."""

    @property
    def completed(self) -> bool: ...


class CallersDriver(Protocol):
    """The part of a SenderDriver that threads of the application use."""

    def drive(self, result: Awaited, deadline_ms: int) -> bool:
        """Drive the sender until ``result`` is set or ``deadline_ms``; return False if another thread drives."""

    def wakeup(self) -> None: ...


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
        self.driver: CallersDriver | None = None
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
