"""Two-phase commits under faults. A failure prints its seed; see ``tests.simulation.two_phase_commit``."""

from __future__ import annotations

from functools import partial

import pytest

from tests.simulation.seeds import failure_of, first_of_sample
from tests.simulation.two_phase_commit import make, run


@pytest.mark.parametrize("seed", range(1, 9))
def test_kafka_has_the_same_content_as_the_databases(seed: int) -> None:
    run(make(seed))


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_many_schedules_pass_with_two_phase_commit() -> None:
    first = first_of_sample()
    for seed in range(first, first + 2_000):
        why = failure_of(partial(run, make(seed)))
        assert why is None, f"seed {seed}: {why}\n{make(seed)}"


def test_same_seed_gives_the_same_history() -> None:
    assert run(make(3)).history == run(make(3)).history
