"""Elections on request (Java: KafkaController.processReplicaLeaderElection)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final

from pykclient.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    InvalidTopicError,
    NotControllerError,
    PreferredLeaderNotAvailableError,
    UnknownTopicOrPartitionError,
)
from pykclient.testing.controller import partition_state
from pykclient.testing.controller.election import leader_for_offline, leader_for_preferred_replica, leader_is
from pykclient.testing.coordination.znodes import LeaderAndIsr

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.controller.controller_context import ControllerContext
    from pykclient.testing.controller.kafka_controller import KafkaController
    from pykclient.testing.controller.partition_reassigner import ApiError
    from pykclient.testing.event_loop import TimerHandle
    from pykclient.types import TopicPartition

# Java: ElectionType.
PREFERRED: Final = 0
UNCLEAN: Final = 1


class ReplicaElector:
    """Makes the preferred replica the leader, or a replica that is not in sync. Thread: loop."""

    def __init__(self, broker: Broker, controller: KafkaController, context: ControllerContext) -> None:
        self._broker = broker
        self._controller = controller
        self._context = context
        self._timer: TimerHandle | None = None

    def elect_leaders(
        self,
        partitions: Collection[TopicPartition] | None,
        election_type: int,
        respond: Callable[[int, Mapping[TopicPartition, ApiError]], None],
    ) -> None:
        """Elect leaders of ``partitions``, or of all; call ``respond`` with an error code for all, or one for each."""
        self._controller.put(
            "ReplicaLeaderElection",
            lambda: self._process(partitions, election_type, respond),
            lambda: respond(NotControllerError.code, {}),
        )

    def _process(
        self,
        partitions: Collection[TopicPartition] | None,
        election_type: int,
        respond: Callable[[int, Mapping[TopicPartition, ApiError]], None],
    ) -> None:
        context = self._context
        if not self._controller.is_active:
            respond(NotControllerError.code, {})
            return
        outcomes: dict[TopicPartition, ApiError] = {}
        electable: list[TopicPartition] = []
        for topic_partition in context.all_partitions() if partitions is None else partitions:
            leader = context.leader(topic_partition)
            if leader is None:
                outcomes[topic_partition] = UnknownTopicOrPartitionError.code, self._missing(topic_partition)
            elif context.is_topic_queued_up_for_deletion(topic_partition.topic):
                outcomes[topic_partition] = InvalidTopicError.code, "The topic is being deleted"
            elif self._is_needed(topic_partition, leader, election_type):
                electable.append(topic_partition)
            else:
                outcomes[topic_partition] = (
                    ElectionNotNeededError.code,
                    "Leader election not needed for topic partition.",
                )
        strategy = leader_for_preferred_replica if election_type == PREFERRED else leader_for_offline(_always)
        failure = PreferredLeaderNotAvailableError if election_type == PREFERRED else EligibleLeadersNotAvailableError
        for topic_partition, outcome in self._controller.partition_state_machine.handle_state_changes(
            electable, partition_state.ONLINE, strategy
        ).items():
            outcomes[topic_partition] = (0, None) if isinstance(outcome, LeaderAndIsr) else (failure.code, str(outcome))
        respond(0, outcomes)

    def _missing(self, topic_partition: TopicPartition) -> str:
        if topic_partition.topic not in self._context.assignments:
            return f"No such topic as {topic_partition.topic}"
        return f"No such partition as {topic_partition}"

    def _is_needed(self, topic_partition: TopicPartition, leader: int, election_type: int) -> bool:
        if election_type == PREFERRED:
            return self._context.replicas(topic_partition)[0] != leader
        return not self._context.is_live_broker(leader)

    def move_leader(self, topic_partition: TopicPartition, broker_id: int) -> bool:
        """Make another in-sync replica the leader.

        Return False if that is impossible, or this broker is not the controller.
        """
        if not self._controller.is_active or not self._broker.coordination.connected:
            return False
        if self._context.leader(topic_partition) == broker_id:
            return True
        outcomes = self._controller.partition_state_machine.handle_state_changes(
            [topic_partition], partition_state.ONLINE, leader_is(broker_id)
        )
        return isinstance(outcomes[topic_partition], LeaderAndIsr)

    # --- by itself ---------------------------------------------------------------------------------------------------

    def schedule_auto_leader_rebalance(self) -> None:
        """Check the balance every leader.imbalance.check.interval.seconds, if auto.leader.rebalance.enable is set."""
        if self._broker.config.get_bool("auto.leader.rebalance.enable"):
            delay_ms = self._broker.config.get_int("leader.imbalance.check.interval.seconds") * 1000
            self._timer = self._broker.call_later(delay_ms, self._on_timer)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._controller.put("AutoPreferredReplicaLeaderElection", self._rebalance)
        self.schedule_auto_leader_rebalance()

    def _rebalance(self) -> None:
        context = self._context
        if not self._controller.is_active:
            return
        partitions = [
            topic_partition
            for topic_partition, info in context.leadership.items()
            if info.leader_and_isr.leader != context.replicas(topic_partition)[0]
            and context.replicas(topic_partition)[0] in info.leader_and_isr.isr
            and context.is_replica_online(context.replicas(topic_partition)[0], topic_partition)
            and topic_partition not in context.partitions_being_reassigned
            and not context.is_topic_queued_up_for_deletion(topic_partition.topic)
        ]
        self._controller.partition_state_machine.handle_state_changes(
            partitions, partition_state.ONLINE, leader_for_preferred_replica
        )


def _always(topic: str) -> bool:  # noqa: ARG001 - an unclean election was asked for, whatever the topic says
    return True
