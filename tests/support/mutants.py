"""Deliberate faults. Each is put into a copy of the sources, and a command that should detect it is run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_ROOT = Path(__file__).parents[2]


class Mutant(NamedTuple):
    name: str
    module: str  # under src/pykclient
    before: str
    after: str


def first_failure(mutant: Mutant, module: str, arguments: Sequence[str], timeout_s: float) -> str | None:
    """Return the first line of ``python -m module`` that begins with "seed", or None if there is no such line.

    Raises SystemExit if the sources do not contain the mutant's place exactly once.
    """
    with tempfile.TemporaryDirectory() as name:
        sources = copy_sources(Path(name))
        path = sources / "pykclient" / f"{mutant.module}.py"
        text = path.read_text(encoding="utf-8")
        if text.count(mutant.before) != 1:
            raise SystemExit(f"{mutant.name}: {path.name} contains that place {text.count(mutant.before)} times")
        path.write_text(text.replace(mutant.before, mutant.after), encoding="utf-8")
        return first_line_of_failure(sources, module, arguments, timeout_s)


def copy_sources(directory: Path) -> Path:
    """Copy ``src`` into ``directory``, and return the copy."""
    sources = directory / "src"
    shutil.copytree(_ROOT / "src", sources, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    return sources


def environment_of(sources: Path) -> dict[str, str]:
    """Return the environment in which Python runs ``sources`` without the compiled twins, which have no fault."""
    return {
        **os.environ,
        "PYKCLIENT_IMPL": "python",
        "PYTHONPATH": os.pathsep.join((str(sources), str(_ROOT))),
    }


def first_line_of_failure(sources: Path, module: str, arguments: Sequence[str], timeout_s: float) -> str | None:
    """Run ``python -m module`` on a copy of the sources; return its first line that begins with "seed", if any."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            cwd=sources.parent,
            env=environment_of(sources),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        return "seed ?: a schedule has no end"
    found = re.search(r"^seed .*", done.stdout, re.MULTILINE)
    return found.group() if found else (done.stderr[-300:] or None)
