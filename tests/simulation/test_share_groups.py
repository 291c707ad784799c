"""Share groups under faults. A failure prints its seed; see ``tests.simulation.share_groups``."""

from __future__ import annotations

from functools import partial

import pytest

from tests.simulation.seeds import failure_of, first_of_sample
from tests.simulation.share_groups import make, run


#: In the third one, a request whose connection is reset acquires records, which its response has much later. In the
#: last one, a member that hangs returns a record that another one has accepted meanwhile.
@pytest.mark.parametrize("seed", [1, 2, 402, 3_194, 750_924_128_154])
def test_each_record_is_accepted_and_stays_accepted(seed: int) -> None:
    run(make(seed))


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_many_schedules_pass_with_share_groups() -> None:
    first = first_of_sample()
    for seed in range(first, first + 2_000):
        why = failure_of(partial(run, make(seed)))
        assert why is None, f"seed {seed}: {why}\n{make(seed)}"


def test_same_seed_gives_the_same_history() -> None:
    seed = next(seed for seed in range(1, 100) if len(make(seed).steps) >= 8)
    assert run(make(seed)).history == run(make(seed)).history
