"""Exactly-once pipelines under faults. A failure prints its seed; see ``tests.simulation.pipeline``."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.simulation.pipeline import make, run
from tests.simulation.seeds import failure_of, first_of_sample

_ROOT = Path(__file__).parents[2]


#: In the last one, a broker is slow to write a marker of the first generation.
@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5, 6, 866_308_287_245])
def test_each_record_is_processed_once(seed: int) -> None:
    run(make(seed))


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_many_schedules_pass_with_transactions() -> None:
    first = first_of_sample()
    for seed in range(first, first + 3_000):
        why = failure_of(partial(run, make(seed)))
        assert why is None, f"seed {seed}: {why}\n{make(seed)}"


def test_same_seed_gives_the_same_history_in_every_process() -> None:
    seeds = [seed for seed in range(1, 40) if len(make(seed).steps) >= 8][:2]
    code = f"from tests.simulation.pipeline import make, run\nfor seed in {seeds}: print(run(make(seed)).history)"
    environment = {**os.environ, "PYTHONHASHSEED": "1"}  # changes the order of sets of strings
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=_ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert [run(make(seed)).history for seed in seeds] == done.stdout.split()
