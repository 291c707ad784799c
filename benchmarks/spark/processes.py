"""CPU times of Spark's JVM, of all Python processes below it, and of the broker (Linux)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Cpu(NamedTuple):
    """CPU seconds, in user and kernel mode."""

    jvm_s: float
    python_s: float
    broker_s: float

    def since(self, before: Cpu) -> Cpu:
        return Cpu(*(now - then for now, then in zip(self, before, strict=True)))


class _Times(NamedTuple):
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
        found[int(folder.name)] = _Times(int(fields[1]), own, ended)
    return found


def cpu(jvm: int, broker: int | None) -> Cpu:
    """Return the CPU times of these process ids so far. All child processes of the JVM run Python."""
    times = _times()
    children: dict[int, list[int]] = {}
    for id, found in times.items():
        children.setdefault(found.parent, []).append(id)
    python_s = times[jvm].ended_children_s
    below = list(children.get(jvm, []))
    for id in below:
        python_s += times[id].own_s + times[id].ended_children_s
        below += children.get(id, [])
    return Cpu(times[jvm].own_s, python_s, times[broker].own_s if broker in times else 0.0)
