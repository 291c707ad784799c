"""CPU times of Spark's JVM, of all processes below it, and of the broker (Linux)."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import NamedTuple

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PR_SET_CHILD_SUBREAPER = 36


def keep_orphans() -> None:
    """Become the parent of processes below this one whose parent ends.

    Spark's daemon may end before its Python workers, whose CPU time would be lost with them. As nobody waits for them
    here, their times can be read even when they have ended.

    Raises:
        OSError: the system cannot do that.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "this process cannot become the parent of orphans")


class Cpu(NamedTuple):
    """CPU seconds, in user and kernel mode.

    ``python_s`` is that of all processes below the JVM. Besides Python they are commands like ``chmod``, which Hadoop
    runs for each file of a checkpoint.
    """

    jvm_s: float
    python_s: float
    broker_s: float

    def since(self, before: Cpu) -> Cpu:
        return Cpu(*(now - then for now, then in zip(self, before, strict=True)))


class _Times(NamedTuple):
    name: str
    parent: int
    own_s: float
    ended_children_s: float


def _times() -> dict[int, _Times]:
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text()
        except OSError:  # the process has ended
            continue
        fields = text[text.rindex(")") + 2 :].split()
        own, ended = (sum(map(int, fields[at : at + 2])) / _TICKS_PER_S for at in (11, 13))
        name = text[text.index("(") + 1 : text.rindex(")")]
        found[int(folder.name)] = _Times(name, int(fields[1]), own, ended)
    return found


def cpu(jvm: int, broker: int | None) -> Cpu:
    """Return the CPU times of these process ids so far.

    After ``keep_orphans``, Python processes that have lost their parent count, too. Others that run Python below this
    process must not begin or end meanwhile.
    """
    times = _times()
    children: dict[int, list[int]] = {}
    for id, found in times.items():
        children.setdefault(found.parent, []).append(id)
    python_s = times[jvm].ended_children_s
    orphans = [id for id in children.get(os.getpid(), []) if id != jvm and times[id].name.startswith("python")]
    below = [*children.get(jvm, []), *orphans]
    for id in below:
        python_s += times[id].own_s + times[id].ended_children_s
        below += children.get(id, [])
    return Cpu(times[jvm].own_s, python_s, times[broker].own_s if broker in times else 0.0)
