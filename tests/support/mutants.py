"""Deliberate faults. Each is put into a copy of the sources, against which the simulation runs."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_ROOT = Path(__file__).parents[2]

#: The CPU time after which a schedule counts as endless.
_SCHEDULE_SECONDS = 20
#: The time for the last schedule, which may begin just before the limit on a busy machine. Beyond it, something waits
#: without using the CPU.
_LAST_SCHEDULE_SECONDS = 600


class Mutant(NamedTuple):
    name: str
    module: str  # under src/pykclient
    before: str
    after: str
    #: More arguments for the simulation, which choose its schedules.
    arguments: tuple[str, ...] = ()
    #: The module that runs the schedules.
    simulation: str = "tests.simulation"


def with_fault(mutant: Mutant, directory: Path) -> Path:
    """Copy ``src`` into ``directory``, put the fault into the copy, and return the copy.

    Raises SystemExit if the sources do not contain the mutant's place exactly once.
    """
    sources = copy_sources(directory)
    path = sources / "pykclient" / f"{mutant.module}.py"
    text = path.read_text(encoding="utf-8")
    if text.count(mutant.before) != 1:
        raise SystemExit(f"{mutant.name}: {path.name} contains that place {text.count(mutant.before)} times")
    path.write_text(text.replace(mutant.before, mutant.after), encoding="utf-8")
    return sources


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


def escaped(mutants: Iterable[Mutant], *tests: str, limit_s: int = 300) -> list[str]:
    """Run ``tests`` (arguments of pytest) with one fault after another; return the names of those that none catches."""
    names = []
    for mutant in mutants:
        with tempfile.TemporaryDirectory() as directory:
            environment = environment_of(with_fault(mutant, Path(directory)))
            command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not kafka"]
            command += ["--hypothesis-profile", "fresh", *tests]
            done = subprocess.run(command, env=environment, capture_output=True, check=False, timeout=limit_s)
        is_caught = done.returncode == 1
        print(f"{mutant.name}: {'caught' if is_caught else 'ESCAPED'}", flush=True)
        if not is_caught:
            names.append(mutant.name)
    return names


def simulate(mutants: Iterable[Mutant], module: str, simulation: str, limit_s: int) -> int:
    """Run a simulation with one fault after another, as the arguments of ``python -m module`` say.

    Return the status of the program: 1 if a fault escapes.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=100, help="how many to try for each")
    options = parser.parse_args()
    status = 0
    for mutant in mutants:
        if options.names and mutant.name not in options.names:
            continue
        with tempfile.TemporaryDirectory() as name:
            sources = with_fault(mutant, Path(name))
            caught = first_failing_schedule(sources, options.seeds, limit_s, simulation)
        status |= caught is None
        print(f"{mutant.name}: {caught or 'ESCAPED'}", flush=True)
    return status


def first_failing_schedule(
    sources: Path,
    schedules: int,
    limit_s: int,
    simulation: str = "tests.simulation",
    arguments: tuple[str, ...] = (),
) -> str | None:
    """Run up to so many schedules against ``sources``; return the line that names the first one that fails.

    ``simulation`` is the module to run.

    Return None if none fails within ``limit_s`` seconds. A schedule that fails without the fault as well says nothing
    about it, and is passed over.
    """
    first = 1
    while first <= schedules:
        count = schedules - first + 1
        many = ("--seed", first, "--count", count, "--stop", "--seconds", limit_s)
        found = _failure(sources, simulation, *arguments, *many, limit_s=limit_s)
        seed = re.match(r"seed (\d+): ", found or "")
        if seed is None:
            return found
        if _failure(_ROOT / "src", simulation, *arguments, "--seed", seed[1], limit_s=limit_s) is None:
            return found
        first = int(seed[1]) + 1
    return None


def _failure(sources: Path, simulation: str, *arguments: object, limit_s: int) -> str | None:
    """Return the first line of the simulation that begins with "seed", or else the end of what it says on stderr."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", simulation, *map(str, arguments), "--limit", str(_SCHEDULE_SECONDS)],
            cwd=sources.parent,
            env=environment_of(sources),
            capture_output=True,
            text=True,
            check=False,
            timeout=limit_s + _LAST_SCHEDULE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return "seed ?: a schedule waits without end"
    found = re.search(r"^seed .*", done.stdout, re.MULTILINE)
    return found.group() if found else (done.stderr[-300:] or None)
