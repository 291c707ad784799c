"""Deliberate faults of share groups, which their simulation must catch.

python -m tests.simulation.share_mutants [--seeds 100] [NAME ...]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.support.mutants import first_failing_schedule, with_fault
from tests.testing.share.mutants import MUTANTS as SHARE_MUTANTS

_SECONDS = 900

#: Others need transactions, old requests, exact counts or exact offsets: only unit tests have those.
_NAMES = (
    "a lock never expires",
    "an acknowledged record is delivered again by a new leader",
    "an acknowledgement is answered before it is written",
    "a new coordinator forgets changes since the last snapshot",
    "records that were acquired are missing after a change of leaders",
)

MUTANTS = tuple(mutant for mutant in SHARE_MUTANTS if mutant.name in _NAMES)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.share_mutants")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=100, help="how many to try for each")
    options = parser.parse_args()
    escaped = 0
    for mutant in MUTANTS:
        if options.names and mutant.name not in options.names:
            continue
        with tempfile.TemporaryDirectory() as name:
            sources = with_fault(mutant, Path(name))
            caught = first_failing_schedule(sources, options.seeds, _SECONDS, "tests.simulation.share_groups")
        escaped += caught is None
        print(f"{mutant.name}: {caught or 'ESCAPED'}", flush=True)
    return int(escaped > 0)


if __name__ == "__main__":
    sys.exit(main())
