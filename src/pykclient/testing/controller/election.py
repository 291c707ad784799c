"""Leader election: one rule for each occasion (Java: Election, PartitionLeaderElectionAlgorithms)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pykclient.testing.coordination.znodes import LeaderAndIsr

if TYPE_CHECKING:
    from pykclient.testing.controller.controller_context import ControllerContext
    from pykclient.types import TopicPartition


class ElectionResult(NamedTuple):
    """The result of an election.

    ``leader_and_isr`` is None if no replica can be elected. ``recipients`` must be informed.
    """

    leader_and_isr: LeaderAndIsr | None
    recipients: tuple[int, ...]


#: Elects a leader for one partition, given its current state.
ElectionStrategy = Callable[["ControllerContext", "TopicPartition", LeaderAndIsr], ElectionResult]


def offline_partition_leader_election(
    assignment: Sequence[int], isr: Collection[int], live_replicas: Collection[int], unclean: bool
) -> int | None:
    """Return the first live replica in the ISR; if there is none and ``unclean`` is set, the first live replica."""
    for id in assignment:
        if id in live_replicas and id in isr:
            return id
    if unclean:
        for id in assignment:
            if id in live_replicas:
                return id
    return None


def reassign_partition_leader_election(
    reassignment: Sequence[int], isr: Collection[int], live_replicas: Collection[int]
) -> int | None:
    return next((id for id in reassignment if id in live_replicas and id in isr), None)


def preferred_replica_partition_leader_election(
    assignment: Sequence[int], isr: Collection[int], live_replicas: Collection[int]
) -> int | None:
    """Return the first replica of the assignment if it is live and in sync, else None."""
    preferred = assignment[0] if assignment else None
    return preferred if preferred in live_replicas and preferred in isr else None


def controlled_shutdown_partition_leader_election(
    assignment: Sequence[int],
    isr: Collection[int],
    live_replicas: Collection[int],
    shutting_down_brokers: Collection[int],
) -> int | None:
    return next(
        (id for id in assignment if id in live_replicas and id in isr and id not in shutting_down_brokers), None
    )


def leader_for_offline(unclean: Callable[[str], bool]) -> ElectionStrategy:
    """Return the rule for new and offline partitions.

    ``unclean`` says for which topics any live replica may be elected.
    """

    def elect(context: ControllerContext, topic_partition: TopicPartition, state: LeaderAndIsr) -> ElectionResult:
        assignment = context.replicas(topic_partition)
        live = tuple(id for id in assignment if context.is_replica_online(id, topic_partition))
        in_sync = tuple(id for id in state.isr if context.is_replica_online(id, topic_partition))
        leader = offline_partition_leader_election(
            assignment, state.isr, live, not in_sync and unclean(topic_partition.topic)
        )
        if leader is None:
            return ElectionResult(None, live)
        if leader in state.isr:
            return ElectionResult(state.new_leader_and_isr(leader, in_sync), live)
        return ElectionResult(state.new_recovering_leader_and_isr(leader, (leader,)), live)

    return elect


def leader_for_reassign(
    context: ControllerContext, topic_partition: TopicPartition, state: LeaderAndIsr
) -> ElectionResult:
    """Elect a leader for a partition whose leader is dead or not among its new replicas."""
    target = context.assignment(topic_partition).target_replicas
    live = tuple(id for id in target if context.is_replica_online(id, topic_partition))
    leader = reassign_partition_leader_election(target, state.isr, live)
    return ElectionResult(None if leader is None else state.new_leader(leader), target)


def leader_for_preferred_replica(
    context: ControllerContext, topic_partition: TopicPartition, state: LeaderAndIsr
) -> ElectionResult:
    assignment = context.replicas(topic_partition)
    live = tuple(id for id in assignment if context.is_replica_online(id, topic_partition))
    leader = preferred_replica_partition_leader_election(assignment, state.isr, live)
    return ElectionResult(None if leader is None else state.new_leader(leader), assignment)


def leader_for_controlled_shutdown(
    context: ControllerContext, topic_partition: TopicPartition, state: LeaderAndIsr
) -> ElectionResult:
    """Elect a leader for a partition whose leader is about to stop; the old one also leaves the ISR."""
    assignment = context.replicas(topic_partition)
    live = tuple(
        id for id in assignment if context.is_replica_online(id, topic_partition, include_shutting_down_brokers=True)
    )
    leaving = context.shutting_down_broker_ids
    leader = controlled_shutdown_partition_leader_election(assignment, state.isr, live, leaving)
    if leader is None:
        return ElectionResult(None, live)
    isr = tuple(id for id in state.isr if id not in leaving)
    return ElectionResult(state.new_leader_and_isr(leader, isr), live)


def leader_is(id: int) -> ElectionStrategy:
    """Return a rule that elects a given replica if it is live and in sync.

    It serves a fault that moves leaders for no reason.
    """

    def elect(context: ControllerContext, topic_partition: TopicPartition, state: LeaderAndIsr) -> ElectionResult:
        assignment = context.replicas(topic_partition)
        if id in assignment and id in state.isr and context.is_replica_online(id, topic_partition):
            return ElectionResult(state.new_leader(id), assignment)
        return ElectionResult(None, assignment)

    return elect
