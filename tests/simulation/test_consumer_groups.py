"""Groups of the consumer protocol (KIP-848): the schedules of other simulations, with more members and partitions.

To reproduce a failure: ``python -m tests.simulation --consumer-groups --seed <seed> --shrink``.
"""

from __future__ import annotations

from itertools import count, islice

import pytest

from tests.simulation.schedule import make_with_consumer_groups
from tests.simulation.seeds import first_of_sample
from tests.simulation.world import failure


@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param(20, id="sample"),
        pytest.param(3_000, id="all", marks=[pytest.mark.exhaustive, pytest.mark.slow, pytest.mark.timeout(7_200)]),
    ],
)
def test_many_schedules(wanted: int) -> None:
    first = first_of_sample()
    schedules = map(make_with_consumer_groups, count(first))
    of_groups = (schedule for schedule in schedules if schedule.settings.group_protocol == "consumer")
    for schedule in islice(of_groups, wanted):
        why = failure(schedule)
        assert why is None, f"seed {schedule.seed}: {why}\n{schedule}"
