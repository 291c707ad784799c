"""Moving partitions to other brokers (Java: KafkaController.onPartitionReassignment, KIP-455)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from pykclient.errors import (
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    NoReassignmentInProgressError,
    NotControllerError,
    UnknownTopicOrPartitionError,
)
from pykclient.testing.controller import partition_state, replica_state
from pykclient.testing.controller.controller_context import PartitionAndReplica
from pykclient.testing.controller.election import leader_for_reassign
from pykclient.testing.coordination.znodes import LeaderIsrAndControllerEpoch, ReplicaAssignment

if TYPE_CHECKING:
    from pykclient.testing.controller.controller_context import ControllerContext
    from pykclient.testing.controller.kafka_controller import KafkaController
    from pykclient.types import TopicPartition

#: An error code and its text; (0, None) means success.
ApiError = tuple[int, str | None]

NONE: ApiError = (0, None)


class PartitionReassigner:
    """Adds the new replicas, waits until they are in sync, then removes the others.

    Each step is written to the coordination service before it is executed, so that another controller can continue
    there. Thread: loop.
    """

    def __init__(self, controller: KafkaController, context: ControllerContext) -> None:
        self._controller = controller
        self._context = context

    # --- requests ----------------------------------------------------------------------------------------------------

    def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        respond: Callable[[ApiError, Mapping[TopicPartition, ApiError]], None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> None:
        """Move partitions to brokers, or cancel a move (None). ``respond`` gets an error for all, or one for each."""
        not_controller: ApiError = (NotControllerError.code, None)
        self._controller.put(
            "ApiPartitionReassignment",
            lambda: self._process(reassignments, respond, allow_replication_factor_change),
            lambda: respond(not_controller, {}),
        )

    def _process(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        respond: Callable[[ApiError, Mapping[TopicPartition, ApiError]], None],
        allow_replication_factor_change: bool,
    ) -> None:
        if not self._controller.is_active:
            respond((NotControllerError.code, None), {})
            return
        outcomes = {
            tp: self._alter(tp, target, allow_replication_factor_change) for tp, target in reassignments.items()
        }
        respond(NONE, outcomes)

    def _alter(
        self, topic_partition: TopicPartition, target: Sequence[int] | None, allow_replication_factor_change: bool
    ) -> ApiError:
        context = self._context
        current = context.assignment(topic_partition)
        topic, index = topic_partition
        if topic not in context.assignments or context.is_topic_queued_up_for_deletion(topic):
            return UnknownTopicOrPartitionError.code, f"Unable to find a topic named {topic}."
        if not current.replicas:
            return UnknownTopicOrPartitionError.code, f"Unable to find partition {topic}:{index}."
        if target is not None:
            try:
                self._controller.admin_manager.validate_manual_assignment(target, None)
            except InvalidReplicaAssignmentError as error:
                return error.code, str(error)
            count = len(current.origin_replicas)
            if len(target) != count and not allow_replication_factor_change:
                message = f"The replication factor is changed from {count} to {len(target)}"
                return InvalidReplicationFactorError.code, message
            if current != ReplicaAssignment(tuple(target)):
                self._on_partition_reassignment(topic_partition, current.reassign_to(tuple(target)))
        elif current.is_being_reassigned:
            self._on_partition_reassignment(topic_partition, current.reassign_to(current.origin_replicas))
        else:
            return NoReassignmentInProgressError.code, None
        return NONE

    def in_progress(self, partitions: Collection[TopicPartition] | None) -> dict[TopicPartition, ReplicaAssignment]:
        """Return the moves in progress, of ``partitions`` or of all."""
        context = self._context
        return {
            topic_partition: context.assignment(topic_partition)
            for topic_partition in context.partitions_being_reassigned
            if partitions is None or topic_partition in partitions
        }

    # --- going on ----------------------------------------------------------------------------------------------------

    def resume_all(self) -> None:
        """Continue the moves that a previous controller started."""
        for topic_partition in list(self._context.partitions_being_reassigned):
            self._on_partition_reassignment(topic_partition, self._context.assignment(topic_partition))

    def resume_for(self, broker_ids: Collection[int]) -> None:
        """Continue the moves to brokers that have returned."""
        for topic_partition in list(self._context.partitions_being_reassigned):
            assignment = self._context.assignment(topic_partition)
            if any(id in broker_ids for id in assignment.target_replicas):
                self._on_partition_reassignment(topic_partition, assignment)

    def maybe_complete(self, topic_partition: TopicPartition) -> None:
        """Complete a move if the changed ISR allows it."""
        if topic_partition in self._context.partitions_being_reassigned:
            assignment = self._context.assignment(topic_partition)
            if self._is_complete(topic_partition, assignment):
                self._on_partition_reassignment(topic_partition, assignment)

    def _is_complete(self, topic_partition: TopicPartition, assignment: ReplicaAssignment) -> bool:
        if not assignment.is_being_reassigned:
            return True
        info = self._context.leadership.get(topic_partition)
        return info is not None and set(assignment.target_replicas) <= set(info.leader_and_isr.isr)

    def _on_partition_reassignment(self, topic_partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        controller, context = self._controller, self._context
        controller.topic_deletion_manager.mark_topics_ineligible_for_deletion(
            [topic_partition.topic], "a reassignment is in progress"
        )
        self._update_current(topic_partition, assignment)
        adding = [PartitionAndReplica(topic_partition, id) for id in assignment.adding_replicas]
        machine = controller.replica_state_machine
        if not self._is_complete(topic_partition, assignment):
            self._update_leader_epoch_and_send_request(topic_partition, assignment)
            fresh = [r for r in adding if context.replica_state(r) == replica_state.NON_EXISTENT]
            machine.handle_state_changes(fresh, replica_state.NEW)
            return
        machine.handle_state_changes(adding, replica_state.ONLINE)
        completed = ReplicaAssignment(assignment.target_replicas)
        context.put_assignment(topic_partition, completed)
        self._move_leader_if_required(topic_partition, completed)
        self._stop_removed_replicas(topic_partition, assignment.removing_replicas)
        self._write(topic_partition, completed)
        context.partitions_being_reassigned.pop(topic_partition, None)
        controller.send_update_metadata(context.live_or_shutting_down_broker_ids, [topic_partition])
        controller.topic_deletion_manager.resume_deletion_for_topics([topic_partition.topic])

    def _update_current(self, topic_partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        current = self._context.assignment(topic_partition)
        if current != assignment:
            self._context.put_assignment(topic_partition, assignment)
            self._write(topic_partition, assignment)
            # Replicas that an earlier move was adding, and that this one does not want.
            unneeded = [id for id in current.replicas if id not in assignment.replicas]
            self._stop_removed_replicas(topic_partition, unneeded)
        self._context.partitions_being_reassigned[topic_partition] = None

    def _write(self, topic_partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        self._context.put_assignment(topic_partition, assignment)
        topic = topic_partition.topic
        self._controller.store.set_topic_assignment(
            topic, self._context.topic_assignment(topic), self._context.epoch_version
        )

    def _move_leader_if_required(self, topic_partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        leader = self._context.leader(topic_partition)
        if leader in assignment.replicas and self._context.is_replica_online(leader, topic_partition):
            self._update_leader_epoch_and_send_request(topic_partition, assignment)
        else:
            self._controller.partition_state_machine.handle_state_changes(
                [topic_partition], partition_state.ONLINE, leader_for_reassign
            )

    def _update_leader_epoch_and_send_request(
        self, topic_partition: TopicPartition, assignment: ReplicaAssignment
    ) -> None:
        """Start a new epoch of the same leader, so that all replicas accept the new assignment."""
        controller, context = self._controller, self._context
        info = context.leadership.get(topic_partition)
        if info is None:
            return
        state = info.leader_and_isr.new_epoch()
        updated, _ = controller.store.update_leader_and_isr(
            {topic_partition: state}, context.epoch, context.epoch_version
        )
        if topic_partition not in updated:
            return
        info = context.leadership[topic_partition] = LeaderIsrAndControllerEpoch(
            updated[topic_partition], context.epoch
        )
        batch = controller.request_batch
        batch.new_batch()
        batch.add_leader_and_isr_request_for_brokers(
            assignment.origin_replicas, topic_partition, info, assignment, is_new=False
        )
        batch.add_leader_and_isr_request_for_brokers(
            assignment.adding_replicas, topic_partition, info, assignment, is_new=True
        )
        batch.send_requests_to_brokers(context.epoch)

    def _stop_removed_replicas(self, topic_partition: TopicPartition, ids: Sequence[int]) -> None:
        removed = [PartitionAndReplica(topic_partition, id) for id in ids]
        for state in (
            replica_state.OFFLINE,
            replica_state.DELETION_STARTED,
            # Do not wait for the broker to delete it.
            replica_state.DELETION_SUCCESSFUL,
            replica_state.NON_EXISTENT,
        ):
            self._controller.replica_state_machine.handle_state_changes(removed, state)
