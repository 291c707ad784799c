"""Detecting calls that interrupt their own thread.

A signal handler, or a ``__del__`` that the garbage collector runs, can interrupt a thread between two instructions
while that thread holds a lock. If it calls the client again, the call cannot wait for that lock, nor for another thread
that needs it: the interrupted code continues only after the call has returned.

So code that holds a lock also holds its thread's mark (``with HERE.mark, lock:``), and calls that take locks or wait
for other threads refuse to run on a thread that holds its mark. The mark is a lock that only its own thread takes. It
is implemented in C, so no exception can come between taking the mark and the block, or leave the mark taken. A thread
never holds its mark while it waits for something other than a lock, nor while it runs code of the application.
"""

from __future__ import annotations

import threading

from pykclient.errors import IllegalStateError


class _Here(threading.local):
    """The state of the current thread."""

    def __init__(self) -> None:
        self.mark = threading.RLock()


HERE = _Here()


def is_interrupting() -> bool:
    """Return True if the current call interrupts code of this thread that holds a lock."""
    owned: bool = HERE.mark._is_owned()  # type: ignore[attr-defined]
    return owned


def ensure_not_interrupting(call: str) -> None:
    """Check that ``call``, the name of a method, does not interrupt code of this thread that holds a lock.

    Raises:
        IllegalStateError: it does, and waiting would never end.
    """
    if HERE.mark._is_owned():  # type: ignore[attr-defined]
        raise interrupting(call)


def interrupting(call: str) -> IllegalStateError:
    """Return the error for ``call``, the name of a method, which interrupts code of this thread that holds a lock."""
    return IllegalStateError(
        f"{call} was called by a signal handler or a __del__ while this thread was inside another call to a client and "
        "held a lock, so it would wait for itself. Set a flag there, or raise an exception, and make the call outside"
    )
