"""Runs the tests of a module, and then the simulation, against one mutation of it."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.random_mutants import cpu_limit
from tests.random_mutants.mutations import SOURCES, Mutation
from tests.support.mutants import copy_sources, environment_of, first_failing_schedule

_ROOT = Path(__file__).parents[2]
_TESTS = _ROOT / "tests"

#: Tests that other tests wait for; a mutation that takes longer has made something wait without end.
_UNIT_SECONDS = 1200
_SIMULATION_SECONDS = 7200

#: Tests that say nothing: they failed without a mutation, or not when run again.
_LEFT_OUT: list[str] = []

UNIT = "unit test"
SIMULATION = "simulation"
NOTHING = ""


class Outcome(NamedTuple):
    """The kind of test that noticed a mutation (UNIT, SIMULATION or NOTHING), and its words."""

    caught_by: str
    how: str


def unit_tests_of(module: str) -> list[list[str]]:
    """Return the test files of a module under src/pykclient, in groups: its own, those that import it, its area's."""
    area, name = module.split("/", 1)[0], module.rsplit("/", 1)[-1]
    files = sorted(path for path in (_TESTS / area).rglob("test_*.py") if "java" not in path.parts)
    imported = re.compile(rf"pykclient\.{module.replace('/', '.')}\b")
    own = [path for path in files if path.stem == f"test_{name}"]
    importing = [path for path in files if path not in own and imported.search(path.read_text(encoding="utf-8"))]
    others = [path for path in files if path not in own and path not in importing]
    return [[str(path.relative_to(_ROOT)) for path in group] for group in (own, importing, others) if group]


def run(mutation: Mutation, schedules: int) -> Outcome:
    """Return what notices ``mutation``: the unit tests first, as they are fast, and then so many schedules."""
    with tempfile.TemporaryDirectory() as name:
        sources = copy_sources(Path(name))
        path = sources / "pykclient" / f"{mutation.module}.py"
        path.write_bytes(mutation.apply((SOURCES / f"{mutation.module}.py").read_bytes()))
        for group in unit_tests_of(mutation.module):
            failed = _failed_test(sources, group)
            if failed is not None:
                return Outcome(UNIT, failed)
        if schedules:
            found = first_failing_schedule(sources, schedules, _SIMULATION_SECONDS)
            if found is not None:
                return Outcome(SIMULATION, found)
    return Outcome(NOTHING, "")


def _failed_test(sources: Path, tests: list[str]) -> str | None:
    """Return the first test that fails, that fails alone as well, and that passes without the mutation."""
    while (failed := _pytest(sources, tests)) is not None:
        if "::" not in failed:
            return failed
        if _pytest(SOURCES.parent, [failed]) is not None:
            print(f"left out, as it fails without a mutation: {failed}", flush=True)
        elif _pytest(sources, [failed]) is not None:
            return failed
        _LEFT_OUT.append(failed)  # a busy machine is no mutation, either
    return None


def _pytest(sources: Path, tests: list[str]) -> str | None:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=no", "--timeout=60"]
    command += ["--hypothesis-profile", "fresh"]
    command += ["-p", cpu_limit.__name__, "-m", "not kafka and not java and not spark and not slow"]
    if len(tests) > 1 or "::" not in tests[0]:
        command += [f"--deselect={test}" for test in _LEFT_OUT]
    try:
        done = subprocess.run(
            [*command, *tests],
            cwd=_ROOT,
            env=environment_of(sources),
            capture_output=True,
            text=True,
            check=False,
            timeout=_UNIT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"not done after {_UNIT_SECONDS} s"
    if done.returncode in (0, 5):  # 5: all of them are left out
        return None
    found = re.search(r"^(?:FAILED|ERROR) (tests/\S+?\.py(?:::.+?)?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return found.group(1) if found else f"pytest ended with {done.returncode}: {(done.stdout + done.stderr)[-200:]}"
