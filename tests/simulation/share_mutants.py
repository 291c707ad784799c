"""Deliberate faults of share groups, which their simulation must catch.

python -m tests.simulation.share_mutants [--seeds 100] [NAME ...]
"""

from __future__ import annotations

import sys

from tests.support.mutants import simulate
from tests.testing.share.mutants import MUTANTS as SHARE_MUTANTS

_SECONDS = 900

#: Others need transactions, old requests or exact offsets: only unit tests have those.
_NAMES = (
    "the delivery count is not raised",
    "the start offset is one too far",
    "a lock never expires",
    "an acknowledged record is delivered again by a new leader",
    "an acknowledgement is answered before it is written",
    "a new coordinator forgets changes since the last snapshot",
    "records that were acquired are missing after a change of leaders",
)

MUTANTS = tuple(mutant for mutant in SHARE_MUTANTS if mutant.name in _NAMES)


if __name__ == "__main__":
    sys.exit(simulate(MUTANTS, "tests.simulation.share_mutants", "tests.simulation.share_groups", _SECONDS))
