"""What happens to producers that nobody closes: at exit, after a fork.

A forked child has the producer's memory but not its thread, and locks that the thread held stay locked forever. So the
child's copies are marked before the child runs any code of its own, and refuse every call without touching a lock.

At exit of the interpreter, producers that are still open are closed within ``EXIT_TIMEOUT_S`` together: long enough
for records that are on their way to a healthy cluster, too short to hold up a program whose cluster is gone.
"""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Protocol

from pykclient.clock import SYSTEM_CLOCK

EXIT_TIMEOUT_S = 0.8


class Closable(Protocol):
    """A producer, as seen from here."""

    def close(self, timeout: float | None = None) -> None: ...

    def refuse_after_fork(self) -> None: ...


_open: weakref.WeakSet[Closable] = weakref.WeakSet()


def opened(client: Closable) -> None:
    """Watch over ``client`` until ``closed``."""
    _open.add(client)


def closed(client: Closable) -> None:
    _open.discard(client)


def _close_all() -> None:
    deadline_ms = SYSTEM_CLOCK.now_ms() + int(EXIT_TIMEOUT_S * 1000)
    for client in list(_open):
        client.close(max(0, deadline_ms - SYSTEM_CLOCK.now_ms()) / 1000)


def _refuse_all() -> None:
    for client in list(_open):
        client.refuse_after_fork()
    _open.clear()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_refuse_all)
