"""The states of partitions and replicas on the controller, and the elections that they lead to.

Java: ZkPartitionStateMachine, ZkReplicaStateMachine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pykclient import errors
from pykclient.log_context import PrefixLogger
from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.controller.controller_channel_manager import ControllerBrokerRequestBatch
from pykclient.testing.controller.controller_context import (
    NONE,
    ApiError,
    ControllerContext,
    PartitionAndReplica,
    PartitionState,
    ReplicaState,
)
from pykclient.testing.coordination.coordination_client import KafkaCoordinationClient
from pykclient.testing.coordination.znodes import (
    NO_LEADER,
    RECOVERED,
    RECOVERING,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
)
from pykclient.types import TopicPartition


class ElectionResult(NamedTuple):
    """The result of an election.

    ``leader_and_isr`` is None if no replica can be elected. ``recipients`` must be informed.
    """

    leader_and_isr: LeaderAndIsr | None
    recipients: tuple[int, ...]


#: Elects a leader for one partition, given its current state.
ElectionStrategy = Callable[["ControllerContext", "TopicPartition", LeaderAndIsr], ElectionResult]


def _first_in_sync(
    context: ControllerContext, topic_partition: TopicPartition, state: LeaderAndIsr, candidates: Iterable[int]
) -> int | None:
    """Return the first of these replicas that is live and in the ISR."""
    return next((id for id in candidates if id in state.isr and context.is_replica_online(id, topic_partition)), None)


def _in_sync_leader(
    context: ControllerContext,
    topic_partition: TopicPartition,
    state: LeaderAndIsr,
    candidates: Iterable[int],
    recipients: tuple[int, ...],
) -> ElectionResult:
    """Elect the first of these replicas that is live and in the ISR."""
    leader = _first_in_sync(context, topic_partition, state, candidates)
    return ElectionResult(None if leader is None else state.new_leader(leader), recipients)


def leader_for_offline(unclean: Callable[[str], bool]) -> ElectionStrategy:
    """Return the rule for new and offline partitions: the first live replica in the ISR.

    If there is none in the ISR, and ``unclean`` is true for the topic, it is the first live replica.
    """

    def elect(context: ControllerContext, topic_partition: TopicPartition, state: LeaderAndIsr) -> ElectionResult:
        assignment = context.replicas(topic_partition)
        live = tuple(id for id in assignment if context.is_replica_online(id, topic_partition))
        in_sync = tuple(id for id in state.isr if context.is_replica_online(id, topic_partition))
        leader = _first_in_sync(context, topic_partition, state, live)
        if leader is not None:
            return ElectionResult(state.new_leader_and_isr(leader, in_sync), live)
        if live and not in_sync and unclean(topic_partition.topic):
            # Records that only others had are lost (KIP-704).
            recovering = state.new_leader_and_isr(live[0], live[:1])._replace(leader_recovery_state=RECOVERING)
            return ElectionResult(recovering, live)
        return ElectionResult(None, live)

    return elect


def leader_for_reassign(
    context: ControllerContext, topic_partition: TopicPartition, state: LeaderAndIsr
) -> ElectionResult:
    """Elect a leader for a partition whose leader is dead or not among its new replicas."""
    target = context.assignment(topic_partition).target_replicas
    return _in_sync_leader(context, topic_partition, state, target, target)


def leader_for_preferred_replica(
    context: ControllerContext, topic_partition: TopicPartition, state: LeaderAndIsr
) -> ElectionResult:
    """Elect the first replica of the assignment if it is live and in sync."""
    assignment = context.replicas(topic_partition)
    return _in_sync_leader(context, topic_partition, state, assignment[:1], assignment)


def leader_for_controlled_shutdown(
    context: ControllerContext, topic_partition: TopicPartition, state: LeaderAndIsr
) -> ElectionResult:
    """Elect a leader for a partition whose leader is about to stop; the old one also leaves the ISR."""
    assignment = context.replicas(topic_partition)
    live = tuple(
        id for id in assignment if context.is_replica_online(id, topic_partition, include_shutting_down_brokers=True)
    )
    leader = _first_in_sync(context, topic_partition, state, assignment)
    if leader is None:
        return ElectionResult(None, live)
    isr = tuple(id for id in state.isr if id not in context.shutting_down_broker_ids)
    return ElectionResult(state.new_leader_and_isr(leader, isr), live)


def leader_is(id: int) -> ElectionStrategy:
    """Return a rule that elects a given replica if it is live and in sync.

    It serves a fault that moves leaders for no reason.
    """

    def elect(context: ControllerContext, topic_partition: TopicPartition, state: LeaderAndIsr) -> ElectionResult:
        assignment = context.replicas(topic_partition)
        return _in_sync_leader(context, topic_partition, state, (id,) if id in assignment else (), assignment)

    return elect


class StateChangeFailedError(errors.KafkaError):
    """A partition cannot change its state, because no replica can be elected (Java: StateChangeFailedException)."""


#: The result of an election: the new state, or the reason for the failure.
ElectionOutcome = LeaderAndIsr | StateChangeFailedError


@dataclass(eq=False, repr=False)
class ControllerPart:
    """Base of the parts of a controller, with the components that they share. Thread: loop."""

    _broker: BrokerContext
    _context: ControllerContext
    _store: KafkaCoordinationClient
    _request_batch: ControllerBrokerRequestBatch
    _log: PrefixLogger = field(init=False)

    def __post_init__(self) -> None:
        self._log = self._broker.log_context.logger(type(self).__module__)


@dataclass(eq=False, repr=False)
class PartitionStateMachine(ControllerPart):
    """Changes partitions' states; the table is in ``partition_state``. Thread: loop.

    NON_EXISTENT -> NEW sends nothing. NEW -> ONLINE makes the first live replica the leader, and all live ones the ISR.
    ONLINE, OFFLINE -> ONLINE is an election, by the rule for the occasion; the replicas get LEADER_AND_ISR, all brokers
    get UPDATE_METADATA. Other transitions only change the state.
    """

    _leader_for_offline: ElectionStrategy

    def startup(self) -> None:
        """Derive the states from the known leaders, then elect missing leaders."""
        context = self._context
        for topic_partition in context.all_partitions():
            leader = context.leader(topic_partition)
            if leader is None:
                state = PartitionState.NEW
            elif context.is_replica_online(leader, topic_partition):
                state = PartitionState.ONLINE
            else:
                state = PartitionState.OFFLINE
            context.partition_states[topic_partition] = state
        self.trigger_online_partition_state_change()

    def trigger_online_partition_state_change(
        self, topics: Iterable[str] | None = None
    ) -> Mapping[TopicPartition, ElectionOutcome]:
        """Try to elect leaders for all partitions without one, or for those of some topics."""
        context = self._context
        partitions = [
            topic_partition
            for topic_partition in context.partitions_in_states(PartitionState.OFFLINE, PartitionState.NEW)
            if not context.is_topic_queued_up_for_deletion(topic_partition.topic)
            and (topics is None or topic_partition.topic in topics)
        ]
        return self.handle_state_changes(partitions, PartitionState.ONLINE, self._leader_for_offline)

    def handle_state_changes(
        self, partitions: Sequence[TopicPartition], target: str, strategy: ElectionStrategy | None = None
    ) -> Mapping[TopicPartition, ElectionOutcome]:
        """Change the states of partitions; return the election results for ONLINE.

        Without a ``strategy``, the rule for offline partitions applies.

        Raises:
            IllegalStateError: the table does not have a transition.
            ControllerMovedError: another broker is the controller.
        """
        if not partitions:
            return {}
        outcomes: dict[TopicPartition, ElectionOutcome] = {}
        with self._request_batch.batch():
            if target == PartitionState.ONLINE:
                new = [tp for tp in partitions if self._context.partition_states.get(tp) == PartitionState.NEW]
                others = [tp for tp in partitions if self._context.partition_states.get(tp) != PartitionState.NEW]
                outcomes.update(self._initialize_leader_and_isr(new))
                outcomes.update(self._elect_leaders(others, strategy or self._leader_for_offline))
            else:
                for topic_partition in partitions:
                    self._context.move_partition(topic_partition, target)
        return outcomes

    def _initialize_leader_and_isr(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, ElectionOutcome]:
        """Elect the first leader of each partition."""
        context = self._context
        outcomes: dict[TopicPartition, ElectionOutcome] = {}
        initial: dict[TopicPartition, LeaderIsrAndControllerEpoch] = {}
        for topic_partition in partitions:
            live = tuple(
                id for id in context.replicas(topic_partition) if context.is_replica_online(id, topic_partition)
            )
            if live:
                state = LeaderAndIsr(live[0], 0, live, RECOVERED, 0)
                initial[topic_partition] = LeaderIsrAndControllerEpoch(state, context.epoch)
            else:
                outcomes[topic_partition] = StateChangeFailedError(
                    f"none of the replicas {context.replicas(topic_partition)} of {topic_partition} is alive"
                )
        made = self._store.create_partition_states(initial, context.epoch_version)
        for topic_partition, info in initial.items():
            if topic_partition not in made:
                outcomes[topic_partition] = StateChangeFailedError(f"{topic_partition} has a state already")
                continue
            context.leadership[topic_partition] = info
            self._request_batch.add_leader_and_isr_request_for_brokers(
                info.leader_and_isr.isr, topic_partition, is_new=True
            )
            context.move_partition(topic_partition, PartitionState.ONLINE)
            outcomes[topic_partition] = info.leader_and_isr
        return outcomes

    def _elect_leaders(
        self, partitions: Sequence[TopicPartition], strategy: ElectionStrategy
    ) -> dict[TopicPartition, ElectionOutcome]:
        context = self._context
        outcomes: dict[TopicPartition, ElectionOutcome] = {}
        elected: dict[TopicPartition, LeaderAndIsr] = {}
        recipients: dict[TopicPartition, tuple[int, ...]] = {}
        states = self._store.partition_states(partitions)
        for topic_partition in partitions:
            current = states.get(topic_partition)
            if current is None:
                outcomes[topic_partition] = StateChangeFailedError(f"{topic_partition} never had a leader")
                continue
            result = strategy(context, topic_partition, current.leader_and_isr)
            if result.leader_and_isr is None:
                outcomes[topic_partition] = StateChangeFailedError(
                    f"no leader can be elected for {topic_partition}: replicas {context.replicas(topic_partition)}, "
                    f"in sync {current.leader_and_isr.isr}, alive {context.live_broker_ids}"
                )
                continue
            elected[topic_partition] = result.leader_and_isr
            recipients[topic_partition] = result.recipients
        # Nothing else writes between the read and this, as both are in one event. A stale controller's write fails as a
        # whole.
        updated, _ = self._store.update_leader_and_isr(elected, context.epoch, context.epoch_version)
        for topic_partition, state in updated.items():
            context.leadership[topic_partition] = LeaderIsrAndControllerEpoch(state, context.epoch)
            self._request_batch.add_leader_and_isr_request_for_brokers(
                recipients[topic_partition], topic_partition, is_new=False
            )
            context.move_partition(topic_partition, PartitionState.ONLINE)
            outcomes[topic_partition] = state
            self._log.info(
                "Controller: %s is led by %d from epoch %d on, in sync %s",
                topic_partition,
                state.leader,
                state.leader_epoch,
                state.isr,
            )
        return outcomes


class ReplicaStateMachine(ControllerPart):
    """Changes replicas' states; the table is in ``replica_state``. Thread: loop.

    NEW and ONLINE send LEADER_AND_ISR to the replica. OFFLINE sends STOP_REPLICA and removes it from the ISR, of which
    the others are informed. DELETION_STARTED sends STOP_REPLICA with deletion. NON_EXISTENT removes it from the
    assignment. Other transitions only change the state.
    """

    def startup(self) -> None:
        """Derive the states from the live brokers, and inform them. Dead replicas leave their ISRs."""
        context = self._context
        online, offline = [], []
        for replica in context.replicas_for_partitions(context.all_partitions()):
            if context.is_replica_online(replica.replica, replica.topic_partition):
                context.replica_states[replica] = ReplicaState.ONLINE
                online.append(replica)
            else:
                # A deletion cannot rely on what happened to it before this controller.
                context.replica_states[replica] = ReplicaState.DELETION_INELIGIBLE
                offline.append(replica)
        self.handle_state_changes(online, ReplicaState.ONLINE, all_of=context.live_broker_ids)
        # Replicas that died with the last controller, or while there was none, are still in the ISRs.
        self.handle_state_changes(offline, ReplicaState.OFFLINE)

    def handle_state_changes(
        self, replicas: Iterable[PartitionAndReplica], target: str, *, all_of: Iterable[int] = ()
    ) -> None:
        """Change the states of replicas; the brokers in ``all_of`` are told that they have no other replicas.

        Raises:
            IllegalStateError: the table does not have a transition.
            ControllerMovedError: another broker is the controller.
        """
        replicas = list(replicas)
        all_of = list(all_of)
        if not replicas and not all_of:
            return
        with self._request_batch.batch():
            self._request_batch.set_full(all_of)
            if target == ReplicaState.OFFLINE:
                self._move_to_offline(replicas)
            else:
                for replica in replicas:
                    self._move(replica, target)

    def _move(self, replica: PartitionAndReplica, target: str) -> None:
        context = self._context
        topic_partition, id = replica
        current = context.replica_state(replica)
        context.move_replica(replica, target)
        if target == ReplicaState.NEW or (target == ReplicaState.ONLINE and current != ReplicaState.NEW):
            if topic_partition in context.leadership:
                self._request_batch.add_leader_and_isr_request_for_brokers(
                    (id,), topic_partition, target == ReplicaState.NEW
                )
        elif target == ReplicaState.DELETION_STARTED:
            self._request_batch.add_stop_replica_request(id, topic_partition, delete_partition=True)
        elif target == ReplicaState.NON_EXISTENT:
            assignment = context.assignment(topic_partition)
            without = (tuple(other for other in ids if other != id) for ids in assignment)
            context.put_assignment(topic_partition, ReplicaAssignment(*without))

    def _move_to_offline(self, replicas: list[PartitionAndReplica]) -> None:
        context = self._context
        by_broker: dict[int, list[PartitionAndReplica]] = {}
        for replica in replicas:
            context.move_replica(replica, ReplicaState.OFFLINE)
            self._request_batch.add_stop_replica_request(
                replica.replica, replica.topic_partition, delete_partition=False
            )
            by_broker.setdefault(replica.replica, []).append(replica)
        for id, gone in by_broker.items():
            self._remove_replica_from_isr(id, gone)

    def _remove_replica_from_isr(self, id: int, replicas: list[PartitionAndReplica]) -> None:
        """Remove replicas from ISRs. The last one stays, even if it is dead: no other replica has all its records."""
        context = self._context
        all_brokers = context.live_or_shutting_down_broker_ids
        shrunk: dict[TopicPartition, LeaderAndIsr] = {}
        states = self._store.partition_states([replica.topic_partition for replica in replicas])
        for topic_partition, current in states.items():
            state = current.leader_and_isr
            if id not in state.isr:
                continue
            shrunk[topic_partition] = state.new_leader_and_isr(
                NO_LEADER if id == state.leader else state.leader,
                state.isr if len(state.isr) == 1 else tuple(other for other in state.isr if other != id),
            )
        updated, _ = self._store.update_leader_and_isr(shrunk, context.epoch, context.epoch_version)
        for topic_partition, current in states.items():
            changed = updated.get(topic_partition)
            context.leadership[topic_partition] = (
                current if changed is None else LeaderIsrAndControllerEpoch(changed, context.epoch)
            )
            if context.is_topic_queued_up_for_deletion(topic_partition.topic):
                continue
            recipients = [other for other in context.replicas(topic_partition) if other != id]
            self._request_batch.add_leader_and_isr_request_for_brokers(recipients, topic_partition, is_new=False)
        for replica in replicas:
            if replica.topic_partition not in states:
                self._request_batch.add_update_metadata_request_for_brokers(all_brokers, (replica.topic_partition,))


# Java: ElectionType.
PREFERRED: Final = 0

UNCLEAN: Final = 1


@dataclass(eq=False, repr=False)
class ReplicaElector:
    """Makes the preferred replica the leader, or a replica that is not in sync. Thread: loop."""

    _context: ControllerContext
    _partition_state_machine: PartitionStateMachine

    def elect_leaders(
        self, partitions: Collection[TopicPartition] | None, election_type: int
    ) -> Mapping[TopicPartition, ApiError]:
        """Elect leaders of ``partitions``, or of all; return the error of each."""
        context = self._context
        outcomes: dict[TopicPartition, ApiError] = {}
        electable: list[TopicPartition] = []
        for topic_partition in context.all_partitions() if partitions is None else partitions:
            leader = context.leader(topic_partition)
            if leader is None:
                outcomes[topic_partition] = errors.UnknownTopicOrPartitionError.code, self._missing(topic_partition)
            elif context.is_topic_queued_up_for_deletion(topic_partition.topic):
                outcomes[topic_partition] = errors.InvalidTopicError.code, "The topic is being deleted"
            elif self._is_needed(topic_partition, leader, election_type):
                electable.append(topic_partition)
            else:
                outcomes[topic_partition] = (
                    errors.ElectionNotNeededError.code,
                    "Leader election not needed for topic partition.",
                )
        strategy = leader_for_preferred_replica if election_type == PREFERRED else leader_for_offline(_always)
        failure = (
            errors.PreferredLeaderNotAvailableError
            if election_type == PREFERRED
            else errors.EligibleLeadersNotAvailableError
        )
        for topic_partition, outcome in self._partition_state_machine.handle_state_changes(
            electable, PartitionState.ONLINE, strategy
        ).items():
            outcomes[topic_partition] = NONE if isinstance(outcome, LeaderAndIsr) else (failure.code, str(outcome))
        return outcomes

    def _missing(self, topic_partition: TopicPartition) -> str:
        if topic_partition.topic not in self._context.assignments:
            return f"No such topic as {topic_partition.topic}"
        return f"No such partition as {topic_partition}"

    def _is_needed(self, topic_partition: TopicPartition, leader: int, election_type: int) -> bool:
        if election_type == PREFERRED:
            return self._context.replicas(topic_partition)[0] != leader
        return not self._context.is_live_broker(leader)

    def move_leader(self, topic_partition: TopicPartition, broker_id: int) -> bool:
        """Make another in-sync replica the leader; return False if that is impossible."""
        if self._context.leader(topic_partition) == broker_id:
            return True
        outcomes = self._partition_state_machine.handle_state_changes(
            [topic_partition], PartitionState.ONLINE, leader_is(broker_id)
        )
        return isinstance(outcomes[topic_partition], LeaderAndIsr)

    def rebalance(self) -> None:
        """Elect preferred replicas that are in sync and do not lead."""
        context = self._context
        partitions = [
            topic_partition
            for topic_partition, info in context.leadership.items()
            if info.leader_and_isr.leader != context.replicas(topic_partition)[0]
            and context.replicas(topic_partition)[0] in info.leader_and_isr.isr
            and context.is_replica_online(context.replicas(topic_partition)[0], topic_partition)
            and topic_partition not in context.partitions_being_reassigned
            and not context.is_topic_queued_up_for_deletion(topic_partition.topic)
        ]
        self._partition_state_machine.handle_state_changes(
            partitions, PartitionState.ONLINE, leader_for_preferred_replica
        )


def _always(topic: str) -> bool:  # noqa: ARG001 - an unclean election was asked for, whatever the topic says
    return True
