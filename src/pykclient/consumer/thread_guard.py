"""One thread at a time, and only in the process that made the consumer (Java: ClassicKafkaConsumer.acquire)."""

from __future__ import annotations

import os
import threading
from types import TracebackType

from pykclient.consumer.interrupt_shield import InterruptShield
from pykclient.errors import ConcurrentModificationError, IllegalStateError, UseAfterForkError
from pykclient.network.environment import SYSTEM_ENVIRONMENT, Environment


class ThreadGuard:
    """A context manager around each public method. A thread may enter again inside, as rebalance listeners do.

    Nothing waits: a second thread gets an error, as there is no order of calls that would be right. ``interrupts``
    keeps Ctrl-C away from what is inside, and from this object's own steps. Thread: any.
    """

    __slots__ = ("_depth", "_get_ident", "_interrupts", "_lock", "_owner", "_pid", "closed")

    def __init__(self, interrupts: InterruptShield, environment: Environment = SYSTEM_ENVIRONMENT) -> None:
        self._interrupts = interrupts
        self._get_ident = environment.get_ident
        self._lock = threading.Lock()  # guards: _depth; held by _owner for as long as it is inside
        self._owner: int | None = None
        self._depth = 0
        self._pid = os.getpid()
        self.closed = False

    @property
    def forked(self) -> bool:
        """Whether this is a copy in a child process, whose locks nobody may ever release."""
        return os.getpid() != self._pid

    def check_process(self) -> None:
        """Raises UseAfterForkError in a child process."""
        if os.getpid() != self._pid:
            raise UseAfterForkError(
                f"this KafkaConsumer was made in process {self._pid} and is used in its child {os.getpid()}: sockets "
                f"and group membership belong to the parent; make a consumer in each process, after the fork"
            )

    def acquire(self) -> None:
        """Enter, also after closing. Raises ConcurrentModificationError, UseAfterForkError."""
        self.check_process()
        self._interrupts.__enter__()
        try:
            me = self._get_ident()
            if self._owner != me:
                if not self._lock.acquire(blocking=False):
                    raise ConcurrentModificationError(
                        f"KafkaConsumer is not safe for use by several threads: {_name(me)} called it while "
                        f"{_name(self._owner)} is inside; only wakeup() may be called from another thread"
                    )
                self._owner = me
            self._depth += 1
        except BaseException:
            self._interrupts.__exit__(None, None, None)
            raise

    def release(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            self._lock.release()
        self._interrupts.__exit__(None, None, None)

    def __enter__(self) -> None:
        self.acquire()
        if self.closed:
            self.release()
            raise IllegalStateError("this KafkaConsumer is closed")

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.release()


def _name(thread_id: int | None) -> str:
    for thread in threading.enumerate():
        if thread.ident == thread_id:
            return f"thread {thread.name!r} (id {thread_id})"
    return f"a thread that has ended (id {thread_id})"
