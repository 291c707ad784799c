"""The clients of this process that can explain what they are doing, and a signal that makes them do so."""

from __future__ import annotations

import _thread
import logging
import os
import signal
import sys
import weakref
from collections import deque
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from pykclient.clock import SYSTEM_CLOCK
from pykclient.errors import IllegalArgumentError
from pykclient.log_context import LoggedProblem

if TYPE_CHECKING:
    from datetime import datetime

#: Attempts to copy a set of clients that other threads change.
_ATTEMPTS = 10


class Explainable(Protocol):
    """A client that describes its own state."""

    def explain(self) -> str: ...

    def metrics(self, raw: bool = False) -> dict[Any, Any]: ...


_open: weakref.WeakSet[Explainable] = weakref.WeakSet()


def opened(client: Explainable) -> None:
    """Include ``client`` in ``explain_clients``, as long as it exists."""
    _open.add(client)


def closed(client: Explainable) -> None:
    """Leave ``client`` out of ``explain_clients``."""
    _open.discard(client)


def open_clients() -> list[Explainable]:
    """Return the open producers and consumers of this process. Thread: any."""
    for _ in range(_ATTEMPTS):
        try:
            return list(_open)
        except RuntimeError:  # another thread has added a client meanwhile
            continue
    return []


def explain_clients() -> str:
    """Return the explanations of all open producers and consumers of this process.

    Thread: any, but not a signal handler, which may interrupt a client that holds a lock; see ``explain_on_signal``.
    """
    texts = []
    for client in open_clients():
        try:
            texts.append(client.explain())
        except Exception as error:  # noqa: BLE001 - one client's failure must not hide the others
            texts.append(f"{client!r} could not be explained: {type(error).__name__}: {error}\n")
    at = _local_time(SYSTEM_CLOCK.wall_ms())
    if not texts:
        return f"pykclient, {at}, process {os.getpid()}: no open producer or consumer\n"
    return "\n".join([f"pykclient, {at}, process {os.getpid()}:\n", *texts])


def _local_time(wall_ms: int) -> datetime:
    from datetime import datetime  # whose import costs more than most clients ever use

    return datetime.fromtimestamp(wall_ms // 1000)


def explain_on_signal(signum: int | None = None, file: TextIO | None = None) -> None:
    """Write the explanations of all open clients to ``file`` when this process receives ``signum``.

    The default is SIGUSR1 and standard error. The text is written by a thread of its own, so it is also written while
    the main thread waits in a client. Call this from the main thread, as ``signal.signal``. It replaces the handler of
    the signal.

    Raises:
        IllegalArgumentError: this system has no SIGUSR1, so the signal must be named.
    """
    if signum is None:
        signum = getattr(signal, "SIGUSR1", None)
        if signum is None:
            raise IllegalArgumentError("this system has no SIGUSR1: name another signal, such as signal.SIGBREAK")

    def write() -> None:
        out = sys.stderr if file is None else file
        out.write(explain_clients())
        out.flush()

    def handle(_signum: int, _frame: FrameType | None) -> None:
        # Not threading.Thread: its start() takes locks, which the interrupted code may hold.
        _thread.start_new_thread(write, ())

    signal.signal(signum, handle)


def shown_duration(duration_ms: float) -> str:
    """Format a duration: ``12 ms``, ``1.2 s``, ``3 min 5 s``, ``2 h 4 min``."""
    if duration_ms < 999.5:
        return f"{max(duration_ms, 0):.0f} ms"
    seconds = duration_ms / 1_000
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def shown_size(size_bytes: float) -> str:
    """Format a size: ``512 bytes``, ``1.5 KiB``, ``32 MiB``."""
    if size_bytes < 1024:
        return f"{size_bytes:.0f} bytes"
    for unit in ("KiB", "MiB"):
        size_bytes /= 1024
        if size_bytes < 1024:
            return f"{size_bytes:.3g} {unit}"
    return f"{size_bytes / 1024:.3g} GiB"


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return a number and its noun: ``1 batch``, ``1,200 records``."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def page(name: str, sections: Sequence[tuple[str, str | list[str]]], problems: deque[LoggedProblem]) -> str:
    """Format a client's report: its name, titled lines, and its last warnings and errors."""
    lines = [name]
    for title, content in sections:
        if isinstance(content, str):
            lines.append(f"  {title}: {content}")
        else:
            lines.append(f"  {title}:")
            lines += [f"    {line}" for line in content]
    recent = list(problems.copy())
    if recent:
        lines.append("  Last warnings and errors:")
        for problem in recent:
            at = _local_time(problem.wall_ms).time()
            lines.append(f"    {at} {logging.getLevelName(problem.level)} {problem.message}")
    else:
        lines.append("  Last warnings and errors: none")
    return "\n".join(lines) + "\n"
