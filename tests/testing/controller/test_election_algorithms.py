"""The leader election rule for each occasion (Java: PartitionLeaderElectionAlgorithmsTest)."""

from __future__ import annotations

import pytest

from pykclient.errors import IllegalStateError
from pykclient.testing.controller.controller_context import (
    ControllerContext,
    PartitionAndReplica,
    PartitionState,
    ReplicaState,
)
from pykclient.testing.controller.state_machines import (
    ElectionStrategy,
    leader_for_controlled_shutdown,
    leader_for_offline,
    leader_for_preferred_replica,
    leader_for_reassign,
)
from pykclient.testing.coordination.znodes import RECOVERED, LeaderAndIsr, ReplicaAssignment
from pykclient.types import Node, TopicPartition


def elected(
    strategy: ElectionStrategy,
    assignment: tuple[int, ...],
    isr: tuple[int, ...],
    live: tuple[int, ...],
    leaving: tuple[int, ...] = (),
) -> int | None:
    """Return the leader that a rule elects among the replicas of an assignment."""
    context, topic_partition = ControllerContext(), TopicPartition("t", 0)
    context.add_live_brokers({id: (Node(id, "host", 9092), 1) for id in live})
    context.shutting_down_broker_ids.update(leaving)
    context.put_assignment(topic_partition, ReplicaAssignment(assignment))
    result = strategy(context, topic_partition, LeaderAndIsr(9, 1, isr, RECOVERED, 1)).leader_and_isr
    return None if result is None else result.leader


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
    assert elected(leader_for_offline(lambda _: unclean), assignment, isr, live) == leader


@pytest.mark.parametrize(
    ("reassignment", "isr", "live", "leader"),
    [((2, 4), (2, 4), (4,), 4), ((2, 4), (2,), (4,), None), ((2, 4), (4,), (2,), None), ((2, 4), (4, 2), (2, 4), 2)],
)
def test_reassignment_election_picks_the_leader(
    reassignment: tuple[int, ...], isr: tuple[int, ...], live: tuple[int, ...], leader: int | None
) -> None:
    assert elected(leader_for_reassign, reassignment, isr, live) == leader


@pytest.mark.parametrize(
    ("assignment", "isr", "live", "leader"),
    [((2, 4), (2, 4), (2, 4), 2), ((2, 4), (4,), (2, 4), None), ((2, 4), (2, 4), (4,), None), ((), (2,), (2,), None)],
)
def test_preferred_election_picks_the_leader(
    assignment: tuple[int, ...], isr: tuple[int, ...], live: tuple[int, ...], leader: int | None
) -> None:
    assert elected(leader_for_preferred_replica, assignment, isr, live) == leader


@pytest.mark.parametrize(
    ("isr", "live", "leaving", "leader"),
    [((2, 4), (2, 4), (2,), 4), ((2,), (2, 4), (2,), None), ((4,), (2,), (2,), None), ((2, 4), (2, 4), (2, 4), None)],
)
def test_shutdown_election_picks_the_leader(
    isr: tuple[int, ...], live: tuple[int, ...], leaving: tuple[int, ...], leader: int | None
) -> None:
    assert elected(leader_for_controlled_shutdown, (2, 4), isr, live, leaving) == leader


def test_state_tables_have_every_state_and_valid_moves() -> None:
    for table in (PartitionState.MOVES, ReplicaState.MOVES):
        assert all(previous in table for states in table.values() for previous in states)
    context, topic_partition = ControllerContext(), TopicPartition("t", 0)
    with pytest.raises(IllegalStateError, match="cannot go from NON_EXISTENT to ONLINE"):
        context.move_partition(topic_partition, PartitionState.ONLINE)
    context.move_partition(topic_partition, PartitionState.NEW)
    context.move_partition(topic_partition, PartitionState.ONLINE)
    with pytest.raises(IllegalStateError, match="cannot go from ONLINE to NEW"):
        context.move_partition(topic_partition, PartitionState.NEW)
    replica = PartitionAndReplica(topic_partition, 1)
    context.move_replica(replica, ReplicaState.NEW)
    with pytest.raises(IllegalStateError, match="cannot go from NEW to DELETION_STARTED"):
        context.move_replica(replica, ReplicaState.DELETION_STARTED)
