"""Changes of partitions while they are in use: in-sync replicas, reassignment and deletion.

Java: KafkaController, TopicDeletionManager.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pykclient import errors
from pykclient.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from pykclient.testing.controller.admin_manager import validate_manual_assignment
from pykclient.testing.controller.controller_context import (
    NONE,
    ApiError,
    PartitionAndReplica,
    PartitionState,
    ReplicaState,
)
from pykclient.testing.controller.state_machines import (
    ControllerPart,
    PartitionStateMachine,
    ReplicaStateMachine,
    leader_for_reassign,
)
from pykclient.testing.coordination.znodes import (
    RECOVERED,
    RECOVERING,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
)
from pykclient.testing.inter_broker_requests import grouped
from pykclient.types import TopicPartition


@dataclass(eq=False, repr=False)
class AlterPartitionHandler(ControllerPart):
    """Accepts a new ISR if it is from the current leader and based on the current state (KIP-497).

    Thread: loop.
    """

    _reassigner: PartitionReassigner

    def alter_partitions(
        self, request: AlterPartitionRequest, respond: Callable[[AlterPartitionResponse], None]
    ) -> None:
        """Handle a request; ``respond`` before reassignments go on because of it.

        Raises:
            StaleBrokerEpochError: the request is from before the broker has registered again.
        """
        context = self._context
        if context.live_broker_epochs.get(request.broker_id) != request.broker_epoch:
            raise errors.StaleBrokerEpochError
        response = AlterPartitionResponse()
        wanted = self._wanted(request, response)
        outcomes: dict[TopicPartition, LeaderAndIsr | int] = {}
        accepted: dict[TopicPartition, LeaderAndIsr] = {}
        for topic_partition, (state, epochs) in wanted.items():
            verdict = self._judge(topic_partition, state, epochs)
            if verdict is None:
                accepted[topic_partition] = state
            else:
                outcomes[topic_partition] = verdict
        updated, refused = self._store.update_leader_and_isr(accepted, context.epoch, context.epoch_version)
        for topic_partition in refused:
            outcomes[topic_partition] = errors.InvalidUpdateVersionError.code
        for topic_partition, state in updated.items():
            outcomes[topic_partition] = state
            context.leadership[topic_partition] = LeaderIsrAndControllerEpoch(state, context.epoch)
        # Also for rejected changes: the leader may have missed the state they should be based on.
        self._request_batch.send_update_metadata(context.live_or_shutting_down_broker_ids, wanted)
        self._fill(response, outcomes)
        respond(response)
        for topic_partition, outcome in outcomes.items():
            if isinstance(outcome, LeaderAndIsr):
                self._reassigner.maybe_complete(topic_partition)

    def _wanted(
        self, request: AlterPartitionRequest, response: AlterPartitionResponse
    ) -> dict[TopicPartition, tuple[LeaderAndIsr, dict[int, int]]]:
        """Return the requested states with the broker epochs of their ISRs; unknown topics go into the response."""
        wanted = {}
        for topic in request.topics:
            name = self._context.topic_names.get(topic.topic_id)
            if name is None:
                unknown = [
                    AlterPartitionResponse.PartitionData(
                        partition_index=partition.partition_index, error_code=errors.UnknownTopicIdError.code
                    )
                    for partition in topic.partitions
                ]
                response.topics.append(AlterPartitionResponse.TopicData(topic_id=topic.topic_id, partitions=unknown))
                continue
            for partition in topic.partitions:
                epochs = {member.broker_id: member.broker_epoch for member in partition.new_isr_with_epochs}
                wanted[TopicPartition(name, partition.partition_index)] = (
                    LeaderAndIsr(
                        request.broker_id,
                        partition.leader_epoch,
                        tuple(epochs),
                        partition.leader_recovery_state,
                        partition.partition_epoch,
                    ),
                    epochs,
                )
        return wanted

    def _judge(
        self, topic_partition: TopicPartition, state: LeaderAndIsr, epochs: dict[int, int]
    ) -> LeaderAndIsr | int | None:
        """Judge a requested state: None to write it, the current state if both are equal, else an error code."""
        context = self._context
        info = context.leadership.get(topic_partition)
        if info is None or context.is_topic_queued_up_for_deletion(topic_partition.topic):
            return errors.UnknownTopicOrPartitionError.code
        current = info.leader_and_isr
        if state.partition_epoch > current.partition_epoch or state.leader_epoch > current.leader_epoch:
            # The leader knows more than this controller, so this controller was replaced.
            return errors.NotControllerError.code
        if state.leader_epoch < current.leader_epoch:
            return errors.FencedLeaderEpochError.code
        if state.equals_allow_stale_partition_epoch(current):
            return current
        if state.partition_epoch < current.partition_epoch:
            return errors.InvalidUpdateVersionError.code
        if state.leader_recovery_state == RECOVERING and (
            len(state.isr) > 1 or current.leader_recovery_state == RECOVERED
        ):
            return errors.InvalidRequestError.code
        ineligible = [
            id
            for id in state.isr
            if not context.is_live_broker(id) or epochs[id] not in (-1, context.live_broker_epochs[id])
        ]
        if ineligible:
            self._log.info(
                "Controller: refused the ISR %s of %s, as %s are not eligible", state.isr, topic_partition, ineligible
            )
            return errors.IneligibleReplicaError.code
        return None

    def _fill(self, response: AlterPartitionResponse, outcomes: dict[TopicPartition, LeaderAndIsr | int]) -> None:
        results: list[tuple[str, AlterPartitionResponse.PartitionData]] = []
        for (name, index), outcome in outcomes.items():
            if isinstance(outcome, int):
                partition = AlterPartitionResponse.PartitionData(partition_index=index, error_code=outcome)
            else:
                partition = AlterPartitionResponse.PartitionData(
                    partition_index=index,
                    leader_id=outcome.leader,
                    leader_epoch=outcome.leader_epoch,
                    isr=outcome.isr,
                    leader_recovery_state=outcome.leader_recovery_state,
                    partition_epoch=outcome.partition_epoch,
                )
            results.append((name, partition))
        for name, partitions in grouped(results).items():
            topic_id = self._context.topic_id(name)
            response.topics.append(AlterPartitionResponse.TopicData(topic_id=topic_id, partitions=partitions))


@dataclass(eq=False, repr=False)
class PartitionReassigner(ControllerPart):
    """Adds the new replicas, waits until they are in sync, then removes the others.

    Each step is written to the coordination service before it is executed, so that another controller can continue
    there. Thread: loop.
    """

    _partition_state_machine: PartitionStateMachine
    _replica_state_machine: ReplicaStateMachine
    _topic_deletion_manager: TopicDeletionManager

    # --- requests ----------------------------------------------------------------------------------------------------

    def alter_partition_reassignments(
        self, reassignments: Mapping[TopicPartition, Sequence[int] | None], allow_replication_factor_change: bool
    ) -> dict[TopicPartition, ApiError]:
        """Move partitions to brokers, or cancel moves (None). Return the error of each."""
        return {tp: self._alter(tp, target, allow_replication_factor_change) for tp, target in reassignments.items()}

    def _alter(
        self, topic_partition: TopicPartition, target: Sequence[int] | None, allow_replication_factor_change: bool
    ) -> ApiError:
        context = self._context
        current = context.assignment(topic_partition)
        topic, index = topic_partition
        if topic not in context.assignments or context.is_topic_queued_up_for_deletion(topic):
            return errors.UnknownTopicOrPartitionError.code, f"Unable to find a topic named {topic}."
        if not current.replicas:
            return errors.UnknownTopicOrPartitionError.code, f"Unable to find partition {topic}:{index}."
        if target is not None:
            try:
                validate_manual_assignment(context.live_brokers, target, None)
            except errors.InvalidReplicaAssignmentError as error:
                return error.code, str(error)
            count = len(current.origin_replicas)
            if len(target) != count and not allow_replication_factor_change:
                message = f"The replication factor is changed from {count} to {len(target)}"
                return errors.InvalidReplicationFactorError.code, message
            if current != ReplicaAssignment(tuple(target)):
                self._on_partition_reassignment(topic_partition, current.reassign_to(tuple(target)))
        elif current.is_being_reassigned:
            self._on_partition_reassignment(topic_partition, current.reassign_to(current.origin_replicas))
        else:
            return errors.NoReassignmentInProgressError.code, None
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

    def resume(self, broker_ids: Collection[int] | None = None) -> None:
        """Continue the moves to brokers that have returned, or all that a previous controller started."""
        for topic_partition in list(self._context.partitions_being_reassigned):
            assignment = self._context.assignment(topic_partition)
            if broker_ids is None or any(id in broker_ids for id in assignment.target_replicas):
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
        context = self._context
        self._topic_deletion_manager.mark_topics_ineligible_for_deletion(
            [topic_partition.topic], "a reassignment is in progress"
        )
        self._update_current(topic_partition, assignment)
        adding = [PartitionAndReplica(topic_partition, id) for id in assignment.adding_replicas]
        machine = self._replica_state_machine
        if not self._is_complete(topic_partition, assignment):
            self._update_leader_epoch_and_send_request(topic_partition)
            fresh = [r for r in adding if context.replica_state(r) == ReplicaState.NON_EXISTENT]
            machine.handle_state_changes(fresh, ReplicaState.NEW)
            return
        machine.handle_state_changes(adding, ReplicaState.ONLINE)
        completed = ReplicaAssignment(assignment.target_replicas)
        context.put_assignment(topic_partition, completed)
        leader = context.leader(topic_partition)
        if leader in completed.replicas and context.is_replica_online(leader, topic_partition):
            self._update_leader_epoch_and_send_request(topic_partition)
        else:
            self._partition_state_machine.handle_state_changes(
                [topic_partition], PartitionState.ONLINE, leader_for_reassign
            )
        self._stop_removed_replicas(topic_partition, assignment.removing_replicas)
        self._write(topic_partition, completed)
        context.partitions_being_reassigned.pop(topic_partition, None)
        self._request_batch.send_update_metadata(context.live_or_shutting_down_broker_ids, [topic_partition])
        self._topic_deletion_manager.resume_deletion_for_topics([topic_partition.topic])

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
        self._store.set_topic_assignment(topic, self._context.topic_assignment(topic), self._context.epoch_version)

    def _update_leader_epoch_and_send_request(self, topic_partition: TopicPartition) -> None:
        """Start a new epoch of the same leader, so that all replicas accept the new assignment."""
        context = self._context
        info = context.leadership.get(topic_partition)
        if info is None:
            return
        state = info.leader_and_isr.new_epoch()
        updated, _ = self._store.update_leader_and_isr({topic_partition: state}, context.epoch, context.epoch_version)
        if topic_partition not in updated:
            return
        context.leadership[topic_partition] = LeaderIsrAndControllerEpoch(updated[topic_partition], context.epoch)
        batch, assignment = self._request_batch, context.assignment(topic_partition)
        with batch.batch():
            for replicas, is_new in ((assignment.origin_replicas, False), (assignment.adding_replicas, True)):
                batch.add_leader_and_isr_request_for_brokers(replicas, topic_partition, is_new)

    def _stop_removed_replicas(self, topic_partition: TopicPartition, ids: Sequence[int]) -> None:
        removed = [PartitionAndReplica(topic_partition, id) for id in ids]
        for state in (
            ReplicaState.OFFLINE,
            ReplicaState.DELETION_STARTED,
            # Do not wait for the broker to delete it.
            ReplicaState.DELETION_SUCCESSFUL,
            ReplicaState.NON_EXISTENT,
        ):
            self._replica_state_machine.handle_state_changes(removed, state)


@dataclass(eq=False, repr=False)
class TopicDeletionManager(ControllerPart):
    """Deletes topics that are marked for deletion, once all their replicas are reachable.

    All brokers forget the topic immediately; its replicas are stopped, then deleted. If a replica's broker is down, or
    a replica is being reassigned, the deletion halts until that is over. Thread: loop.
    """

    _partition_state_machine: PartitionStateMachine
    _replica_state_machine: ReplicaStateMachine
    _on_topic_deleted: Callable[[str], None]

    def init(self, topics: Iterable[str], ineligible: Iterable[str]) -> None:
        """Take over marked topics; replicas of ``ineligible`` topics are unreachable or being reassigned."""
        self._context.topics_to_be_deleted.update(dict.fromkeys(topics))
        self.mark_topics_ineligible_for_deletion(ineligible, "out of reach, or being reassigned")

    def resume_deletion_for_topics(self, topics: Iterable[str]) -> None:
        """Resume the deletion of topics after an interruption."""
        resumed = [topic for topic in topics if topic in self._context.topics_to_be_deleted]
        if resumed:
            for topic in resumed:
                self._context.topics_ineligible_for_deletion.pop(topic, None)
            self.resume_deletions()

    def mark_topics_ineligible_for_deletion(self, topics: Iterable[str], reason: str) -> None:
        """Halt the deletion of topics that are queued for it."""
        for topic in topics:
            if topic in self._context.topics_to_be_deleted:
                self._context.topics_ineligible_for_deletion[topic] = None
                self._log.info("Controller: the deletion of %s waits for its replicas: %s", topic, reason)

    def fail_replica_deletion(self, replicas: Iterable[PartitionAndReplica]) -> None:
        """Handle replicas that could not be deleted, or whose broker is gone."""
        context = self._context
        failed = [
            replica for replica in replicas if context.is_topic_queued_up_for_deletion(replica.topic_partition.topic)
        ]
        if not failed:
            return
        # A deleted replica stays deleted, whatever has happened to its broker since.
        movable = (ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED)
        self._replica_state_machine.handle_state_changes(
            [replica for replica in failed if context.replica_state(replica) in movable],
            ReplicaState.DELETION_INELIGIBLE,
        )
        topics = dict.fromkeys(replica.topic_partition.topic for replica in failed)
        self.mark_topics_ineligible_for_deletion(topics, "a replica failed to delete")
        self.resume_deletions()

    def complete_replica_deletion(self, replicas: Iterable[PartitionAndReplica]) -> None:
        """Handle replicas that were deleted."""
        context = self._context
        deleted = [replica for replica in replicas if context.replica_state(replica) == ReplicaState.DELETION_STARTED]
        self._replica_state_machine.handle_state_changes(deleted, ReplicaState.DELETION_SUCCESSFUL)
        self.resume_deletions()

    def resume_deletions(self) -> None:
        """Take the next possible step for each topic that must be deleted."""
        context = self._context
        retry: list[str] = []
        eligible: list[str] = []
        for topic in list(context.topics_to_be_deleted):
            states = [context.replica_state(replica) for replica in context.replicas_for_topic(topic)]
            if states and all(state == ReplicaState.DELETION_SUCCESSFUL for state in states):
                self._complete_delete_topic(topic)
                continue
            started = ReplicaState.DELETION_STARTED in states
            halted = topic in context.topics_ineligible_for_deletion
            if not started and not halted:
                if ReplicaState.DELETION_INELIGIBLE in states:
                    retry.append(topic)
                eligible.append(topic)
        self._replica_state_machine.handle_state_changes(
            [
                replica
                for topic in retry
                for replica in context.replicas_in_state(topic, ReplicaState.DELETION_INELIGIBLE)
            ],
            ReplicaState.OFFLINE,
        )
        if eligible:
            self._on_topic_deletion(eligible)

    def _complete_delete_topic(self, topic: str) -> None:
        context = self._context
        self._replica_state_machine.handle_state_changes(context.replicas_for_topic(topic), ReplicaState.NON_EXISTENT)
        self._store.delete_topic(topic, context.epoch_version)
        context.remove_topic(topic)
        self._log.info("Controller: topic %s is deleted", topic)
        self._on_topic_deleted(topic)

    def _on_topic_deletion(self, topics: list[str]) -> None:
        context = self._context
        unseen = [topic for topic in topics if topic not in context.topics_with_deletion_started]
        partitions = [partition for topic in unseen for partition in context.partitions_for_topic(topic)]
        self._partition_state_machine.handle_state_changes(partitions, PartitionState.OFFLINE)
        self._partition_state_machine.handle_state_changes(partitions, PartitionState.NON_EXISTENT)
        context.topics_with_deletion_started.update(dict.fromkeys(unseen))
        # Brokers stop serving the topics now, before their replicas are deleted.
        self._request_batch.send_update_metadata(
            context.live_or_shutting_down_broker_ids,
            [partition for topic in topics for partition in context.partitions_for_topic(topic)],
        )
        self._on_partition_deletion(topics)

    def _on_partition_deletion(self, topics: list[str]) -> None:
        context = self._context
        dead: list[PartitionAndReplica] = []
        alive: list[PartitionAndReplica] = []
        for topic in topics:
            for replica in context.replicas_for_topic(topic):
                state = context.replica_state(replica)
                if not context.is_replica_online(replica.replica, replica.topic_partition):
                    dead.append(replica)
                elif state != ReplicaState.DELETION_SUCCESSFUL:
                    alive.append(replica)
        machine = self._replica_state_machine
        machine.handle_state_changes(
            [replica for replica in dead if context.replica_state(replica) == ReplicaState.OFFLINE],
            ReplicaState.DELETION_INELIGIBLE,
        )
        machine.handle_state_changes(alive, ReplicaState.OFFLINE)
        machine.handle_state_changes(alive, ReplicaState.DELETION_STARTED)
        self.mark_topics_ineligible_for_deletion(
            dict.fromkeys(replica.topic_partition.topic for replica in dead), "brokers are down"
        )
