"""Groups with the sticky assignors: the schedules of other simulations, with more members and partitions.

A failure prints the schedule, which can be run with ``tests.simulation.world.run``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count, islice

import pytest

from pykclient.consumer.assignors.cooperative_sticky_assignor import CooperativeStickyAssignor
from tests.simulation.schedule import Schedule, make
from tests.simulation.world import failure

#: The last one is a list, as in the default: members are eager then.
ASSIGNORS = ("cooperative-sticky", "cooperative-sticky", "sticky", "range, cooperative-sticky")


def schedules(first_seed: int) -> Iterator[Schedule]:
    for seed in count(first_seed):
        schedule = make(seed)
        settings = schedule.settings
        if settings.groups and settings.consumers:
            rng = random.Random(seed)
            settings = settings._replace(
                assignor=rng.choice(ASSIGNORS),
                consumers=max(settings.consumers, rng.randint(2, 4)),
                partitions=max(settings.partitions, rng.randint(2, 6)),
            )
            yield schedule._replace(settings=settings)


@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param(25, id="sample"),
        pytest.param(3_000, id="all", marks=[pytest.mark.exhaustive, pytest.mark.slow, pytest.mark.timeout(7_200)]),
    ],
)
def test_many_schedules(wanted: int) -> None:
    for schedule in islice(schedules(random.SystemRandom().randrange(1 << 40)), wanted):
        why = failure(schedule)
        assert why is None, f"{why}\n{schedule}"


def test_a_partition_that_moves_directly_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CooperativeStickyAssignor, "adjust", lambda self, assignment, owned: assignment)
    cooperative = (each for each in schedules(1) if each.settings.assignor == "cooperative-sticky")
    found = next(filter(None, map(failure, islice(cooperative, 100))), "nothing")
    assert "still owns it" in found
