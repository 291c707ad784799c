"""Groups with the sticky assignors: the schedules of other simulations, with more members and partitions.

A failure prints the schedule, which can be run with ``tests.simulation.world.run``.
"""

from __future__ import annotations

from itertools import count, islice

import pytest

from pykclient.consumer.sticky_assignor import CooperativeStickyAssignor
from tests.simulation.schedule import make_with_sticky_members
from tests.simulation.seeds import first_of_sample
from tests.simulation.world import failure

pytest.importorskip("pyarrow")  # some applications of a schedule read columns


@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param(12, id="sample", marks=pytest.mark.timeout(600)),
        pytest.param(3_000, id="all", marks=[pytest.mark.exhaustive, pytest.mark.slow, pytest.mark.timeout(7_200)]),
    ],
)
def test_many_schedules_pass_with_sticky_members(wanted: int) -> None:
    first = first_of_sample()
    for schedule in map(make_with_sticky_members, range(first, first + wanted)):
        why = failure(schedule)
        assert why is None, f"{why}\n{schedule}"


def test_partition_that_moves_without_revocation_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CooperativeStickyAssignor, "adjust", lambda self, assignment, owned: assignment)
    schedules = map(make_with_sticky_members, count(1))
    cooperative = (each for each in schedules if each.settings.assignor == "cooperative-sticky")
    found = next(filter(None, map(failure, islice(cooperative, 100))), "nothing")
    assert "still owns it" in found
