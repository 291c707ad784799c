"""Producers that are not closed: at exit and after a fork.

A forked child has the producer's memory but not its thread, and locks that the thread held stay locked forever. So
before the child runs any code of its own, its copies of producers are marked: they refuse every call without touching a
lock.

When the interpreter exits, it closes the producers that are still open, within ``EXIT_TIMEOUT_S`` in total. That is
long enough for records in flight to a healthy cluster, and too short to delay a program whose cluster is down.
"""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Any, Protocol

from pykclient import explanation
from pykclient.clock import SYSTEM_CLOCK

EXIT_TIMEOUT_S = 0.8


class Closable(Protocol):
    """The methods of a producer that this module uses."""

    def close(self, timeout: float | None = None) -> None: ...

    def refuse_after_fork(self) -> None: ...

    def explain(self) -> str: ...

    def metrics(self, raw: bool = False) -> dict[Any, Any]: ...


_open: weakref.WeakSet[Closable] = weakref.WeakSet()


def opened(client: Closable) -> None:
    """Register ``client`` until ``closed`` is called."""
    _open.add(client)
    explanation.opened(client)


def closed(client: Closable) -> None:
    _open.discard(client)
    explanation.closed(client)


def _close_all() -> None:
    deadline_ms = SYSTEM_CLOCK.now_ms() + int(EXIT_TIMEOUT_S * 1000)
    for client in list(_open):
        client.close(max(0, deadline_ms - SYSTEM_CLOCK.now_ms()) / 1000)


def _refuse_all() -> None:
    for client in list(_open):
        client.refuse_after_fork()
        explanation.closed(client)
    _open.clear()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_refuse_all)
