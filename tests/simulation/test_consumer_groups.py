"""Groups of the consumer protocol (KIP-848): the schedules of other simulations, with more members and partitions.

To reproduce a failure: ``python -m tests.simulation --consumer-groups --seed <seed> --shrink``.
"""

from __future__ import annotations

from itertools import count, islice
from typing import Any

import pytest

from pykclient.consumer.coordinator import consumer_rebalance
from pykclient.consumer.coordinator.group_member import RebalanceListenerInvoker
from tests.simulation.schedule import make_with_consumer_groups
from tests.simulation.seeds import first_of_sample
from tests.simulation.world import failure

pytest.importorskip("pyarrow")  # some applications of a schedule read columns


@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param(10, id="sample", marks=pytest.mark.timeout(600)),
        pytest.param(3_000, id="all", marks=[pytest.mark.exhaustive, pytest.mark.slow, pytest.mark.timeout(7_200)]),
    ],
)
def test_many_schedules_pass_with_consumer_groups(wanted: int) -> None:
    first = first_of_sample()
    schedules = map(make_with_consumer_groups, count(first))
    of_groups = (schedule for schedule in schedules if schedule.settings.group_protocol == "consumer")
    for schedule in islice(of_groups, wanted):
        why = failure(schedule)
        assert why is None, f"seed {schedule.seed}: {why}\n{schedule}"


def _first_failure() -> str:
    schedules = map(make_with_consumer_groups, count(1))
    of_groups = (schedule for schedule in schedules if schedule.settings.group_protocol == "consumer")
    return next(filter(None, map(failure, islice(of_groups, 100))), "nothing")


def test_lost_partitions_reported_as_revoked_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    invoke = RebalanceListenerInvoker.invoke

    def revoke(self: Any, what: str, partitions: Any) -> Any:
        return invoke(self, "revoked" if what == "lost" else what, partitions)

    monkeypatch.setattr(RebalanceListenerInvoker, "invoke", revoke)
    assert "were lost, and are reported as revoked" in _first_failure()


def test_needlessly_revoked_partitions_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every assignment takes everything from a member, and gives it back."""
    begin = consumer_rebalance._Reconciliation.__init__

    def begin_eagerly(self: Any, incarnation: Any, assignment: Any, partitions: Any, owned: Any) -> None:
        begin(self, incarnation, assignment, partitions, owned)
        self.revoked, self.added = sorted(owned), list(partitions)

    monkeypatch.setattr(consumer_rebalance._Reconciliation, "__init__", begin_eagerly)
    assert "which its coordinator has left to it" in _first_failure()
