"""The leader election rule for each occasion (Java: PartitionLeaderElectionAlgorithmsTest)."""

from __future__ import annotations

import pytest

from pykclient.errors import IllegalStateError
from pykclient.testing.controller.controller_context import PartitionState, ReplicaState
from pykclient.testing.controller.state_machines import (
    controlled_shutdown_partition_leader_election,
    offline_partition_leader_election,
    preferred_replica_partition_leader_election,
    reassign_partition_leader_election,
)


@pytest.mark.parametrize(
    ("assignment", "isr", "live", "unclean", "leader"),
    [
        ((2, 4), (2, 4), (4,), False, 4),
        ((2, 4), (2,), (4,), False, None),
        ((2, 4), (2,), (4,), True, 4),
        ((2, 4), (2, 4), (2, 4), True, 2),
        ((4, 2), (2,), (2, 4), True, 2),
        ((2, 4), (), (4,), False, None),
        ((2, 4), (2, 4), (), True, None),
    ],
)
def test_offline_election_picks_the_leader(
    assignment: tuple[int, ...], isr: tuple[int, ...], live: tuple[int, ...], unclean: bool, leader: int | None
) -> None:
    assert offline_partition_leader_election(assignment, isr, live, unclean) == leader


@pytest.mark.parametrize(
    ("reassignment", "isr", "live", "leader"),
    [((2, 4), (2, 4), (4,), 4), ((2, 4), (2,), (4,), None), ((2, 4), (4,), (2,), None), ((2, 4), (4, 2), (2, 4), 2)],
)
def test_reassignment_election_picks_the_leader(
    reassignment: tuple[int, ...], isr: tuple[int, ...], live: tuple[int, ...], leader: int | None
) -> None:
    assert reassign_partition_leader_election(reassignment, isr, live) == leader


@pytest.mark.parametrize(
    ("assignment", "isr", "live", "leader"),
    [((2, 4), (2, 4), (2, 4), 2), ((2, 4), (4,), (2, 4), None), ((2, 4), (2, 4), (4,), None), ((), (2,), (2,), None)],
)
def test_preferred_election_picks_the_leader(
    assignment: tuple[int, ...], isr: tuple[int, ...], live: tuple[int, ...], leader: int | None
) -> None:
    assert preferred_replica_partition_leader_election(assignment, isr, live) == leader


@pytest.mark.parametrize(
    ("isr", "live", "leaving", "leader"),
    [((2, 4), (2, 4), (2,), 4), ((2,), (2, 4), (2,), None), ((4,), (2,), (2,), None), ((2, 4), (2, 4), (2, 4), None)],
)
def test_shutdown_election_picks_the_leader(
    isr: tuple[int, ...], live: tuple[int, ...], leaving: tuple[int, ...], leader: int | None
) -> None:
    assert controlled_shutdown_partition_leader_election((2, 4), isr, live, leaving) == leader


def test_state_tables_have_every_state_and_valid_moves() -> None:
    for table in (PartitionState.VALID_PREVIOUS_STATES, ReplicaState.VALID_PREVIOUS_STATES):
        assert all(previous in table for states in table.values() for previous in states)
    with pytest.raises(IllegalStateError, match="cannot become NEW, as it is ONLINE"):
        PartitionState.check_move("t-0", PartitionState.ONLINE, PartitionState.NEW)
    with pytest.raises(IllegalStateError, match="cannot become ONLINE, as it is NON_EXISTENT"):
        PartitionState.check_move("t-0", PartitionState.NON_EXISTENT, PartitionState.ONLINE)
    with pytest.raises(IllegalStateError, match="cannot become DELETION_STARTED, as it is ONLINE"):
        ReplicaState.check_move("t-0", ReplicaState.ONLINE, ReplicaState.DELETION_STARTED)
