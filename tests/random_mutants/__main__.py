"""Draws mutations and says which of them the tests notice.

python -m tests.random_mutants [--draw 30] [--seed N] [--schedules 2000] [--jobs 1] [--slice 0:10] [--list]
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tests.random_mutants.explained import EXPLAINED
from tests.random_mutants.mutations import AREAS, Mutation, draw
from tests.random_mutants.trial import Outcome, run

_EXPLAINED = "explained"


def main() -> int:
    """Return 0 if at least four of five mutations were caught, explained ones aside."""
    parser = argparse.ArgumentParser(prog="python -m tests.random_mutants")
    parser.add_argument("--draw", type=int, default=30, help="how many mutations")
    parser.add_argument("--seed", type=int, help="a fresh one without")
    parser.add_argument("--areas", nargs="*", default=list(AREAS), choices=AREAS, help="packages to draw from")
    parser.add_argument("--schedules", type=int, default=2000, help="of the simulation, for what unit tests miss")
    parser.add_argument("--jobs", type=int, default=1, help="mutations at a time")
    parser.add_argument("--slice", default=":", metavar="FIRST:END", help="these of the draw alone")
    parser.add_argument("--list", action="store_true", help="print the draw, and run nothing")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    first, _, end = options.slice.partition(":")
    drawn = draw(seed, options.draw, options.areas)[int(first or 0) : int(end) if end else None]
    print(f"{len(drawn)} mutations of seed {seed}", flush=True)
    if options.list:
        for mutation in drawn:
            print(mutation)
        return 0
    return _report(drawn, options.schedules, options.jobs)


def _report(drawn: list[Mutation], schedules: int, jobs: int) -> int:
    explained = {entry.key: entry.why for entry in EXPLAINED}
    found: Counter[str] = Counter()
    print("| mutation | caught by |\n| --- | --- |", flush=True)
    with ThreadPoolExecutor(jobs) as pool:
        for mutation, outcome in zip(drawn, pool.map(partial(_outcome, explained, schedules), drawn), strict=True):
            found[outcome.caught_by or "ESCAPED"] += 1
            by = f"{outcome.caught_by}: {outcome.how}" if outcome.caught_by else "ESCAPED"
            print(f"| {_cell(str(mutation))} | {_cell(by)} |", flush=True)
    print(", ".join(f"{count} {by}" for by, count in found.most_common()))
    judged = sum(found.values()) - found[_EXPLAINED]
    caught = judged - found["ESCAPED"]
    print(f"caught: {caught} of {judged}" + (f" ({100 * caught // judged} %)" if judged else ""))
    return 0 if caught * 5 >= judged * 4 else 1


def _outcome(explained: dict[tuple[str, str, str, str], str], schedules: int, mutation: Mutation) -> Outcome:
    """An explained mutation is not run: nothing can notice it."""
    if mutation.key in explained:
        return Outcome(_EXPLAINED, explained[mutation.key])
    return run(mutation, schedules)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
