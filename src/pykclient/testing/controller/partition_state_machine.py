"""The partition state machine, which elects leaders (Java: ZkPartitionStateMachine)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from pykclient.errors import KafkaError
from pykclient.testing.controller import partition_state
from pykclient.testing.controller.election import ElectionStrategy, leader_for_offline
from pykclient.testing.coordination.znodes import RECOVERED, LeaderAndIsr, LeaderIsrAndControllerEpoch

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.controller.controller_channel_manager import ControllerBrokerRequestBatch
    from pykclient.testing.controller.controller_context import ControllerContext
    from pykclient.testing.coordination.kafka_coordination_client import KafkaCoordinationClient
    from pykclient.types import TopicPartition


class StateChangeFailedError(KafkaError):
    """A partition cannot change its state, because no replica can be elected (Java: StateChangeFailedException)."""


#: The result of an election: the new state, or the reason for the failure.
ElectionOutcome = LeaderAndIsr | StateChangeFailedError


class PartitionStateMachine:
    """Changes partitions' states; the table is in ``partition_state``. Thread: loop.

    NON_EXISTENT -> NEW sends nothing. NEW -> ONLINE makes the first live replica the leader, and all live ones the ISR.
    ONLINE, OFFLINE -> ONLINE is an election, by the rule for the occasion; the replicas get LEADER_AND_ISR, all brokers
    get UPDATE_METADATA. Other transitions only change the state.
    """

    def __init__(
        self,
        broker: Broker,
        context: ControllerContext,
        store: KafkaCoordinationClient,
        request_batch: ControllerBrokerRequestBatch,
        unclean_election_enabled: Callable[[str], bool],
    ) -> None:
        self._log = broker.log_context.logger(__name__)
        self._context = context
        self._store = store
        self._request_batch = request_batch
        self._leader_for_offline = leader_for_offline(unclean_election_enabled)

    def startup(self) -> None:
        """Derive the states from the known leaders, then elect missing leaders."""
        context = self._context
        for topic_partition in context.all_partitions():
            leader = context.leader(topic_partition)
            if leader is None:
                state = partition_state.NEW
            elif context.is_replica_online(leader, topic_partition):
                state = partition_state.ONLINE
            else:
                state = partition_state.OFFLINE
            context.partition_states[topic_partition] = state
        self.trigger_online_partition_state_change()

    def trigger_online_partition_state_change(
        self, topics: Iterable[str] | None = None
    ) -> Mapping[TopicPartition, ElectionOutcome]:
        """Try to elect leaders for all partitions without one, or for those of some topics."""
        context = self._context
        partitions = [
            topic_partition
            for topic_partition in context.partitions_in_states(partition_state.OFFLINE, partition_state.NEW)
            if not context.is_topic_queued_up_for_deletion(topic_partition.topic)
            and (topics is None or topic_partition.topic in topics)
        ]
        return self.handle_state_changes(partitions, partition_state.ONLINE, self._leader_for_offline)

    def handle_state_changes(
        self,
        partitions: Sequence[TopicPartition],
        target: str,
        strategy: ElectionStrategy | None = None,
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
        self._request_batch.new_batch()
        try:
            if target == partition_state.ONLINE:
                new = [tp for tp in partitions if self._context.partition_states.get(tp) == partition_state.NEW]
                others = [tp for tp in partitions if self._context.partition_states.get(tp) != partition_state.NEW]
                outcomes.update(self._initialize_leader_and_isr(new))
                outcomes.update(self._elect_leaders(others, strategy or self._leader_for_offline))
            else:
                for topic_partition in partitions:
                    self._context.move_partition(topic_partition, target)
            self._request_batch.send_requests_to_brokers(self._context.epoch)
        finally:
            self._request_batch.clear()
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
                info.leader_and_isr.isr, topic_partition, info, context.assignment(topic_partition), is_new=True
            )
            context.move_partition(topic_partition, partition_state.ONLINE)
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
            info = LeaderIsrAndControllerEpoch(state, context.epoch)
            context.leadership[topic_partition] = info
            self._request_batch.add_leader_and_isr_request_for_brokers(
                recipients[topic_partition], topic_partition, info, context.assignment(topic_partition), is_new=False
            )
            context.move_partition(topic_partition, partition_state.ONLINE)
            outcomes[topic_partition] = state
            self._log.info(
                "Controller: %s is led by %d from epoch %d on, in sync %s",
                topic_partition,
                state.leader,
                state.leader_epoch,
                state.isr,
            )
        return outcomes
