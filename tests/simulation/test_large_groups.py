"""Large groups by both protocols become stable. Nothing moves in vain, and members that keep their partitions go on."""

from __future__ import annotations

import pytest

from pykclient.testing.simulation.checks import InvariantError
from tests.simulation.large_groups import LargeGroup
from tests.simulation.seeds import first_of_sample

PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@PROTOCOLS
def test_groups_of_ten_members_pass(protocol: str) -> None:
    LargeGroup(first_of_sample(), protocol, members=10, partitions=66).run()


def test_needlessly_moved_partitions_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LargeGroup, "assignor", "range")
    with pytest.raises(InvariantError, match="came back"):
        LargeGroup(1, "classic", members=4, partitions=12).run()


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(1_200)
@PROTOCOLS
def test_groups_of_a_hundred_members_pass(protocol: str) -> None:
    LargeGroup(1, protocol, members=100, partitions=1_000).run()
