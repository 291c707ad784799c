"""The deletion of topics, even while some of their replicas are unreachable (Java: TopicDeletionManager)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pykclient.testing.controller import partition_state, replica_state
from pykclient.testing.controller.controller_context import PartitionAndReplica

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.controller.controller_context import ControllerContext
    from pykclient.testing.controller.partition_state_machine import PartitionStateMachine
    from pykclient.testing.controller.replica_state_machine import ReplicaStateMachine
    from pykclient.testing.coordination.kafka_coordination_client import KafkaCoordinationClient
    from pykclient.types import TopicPartition


class TopicDeletionManager:
    """Deletes topics that are marked for deletion, once all their replicas are reachable.

    All brokers forget the topic immediately; its replicas are stopped, then deleted. If a replica's broker is down, or
    a replica is being reassigned, the deletion halts until that is over. Thread: loop.
    """

    def __init__(
        self,
        broker: Broker,
        context: ControllerContext,
        store: KafkaCoordinationClient,
        partition_state_machine: PartitionStateMachine,
        replica_state_machine: ReplicaStateMachine,
        send_metadata_update: Callable[[Iterable[TopicPartition]], None],
        on_topic_deleted: Callable[[str], None],
    ) -> None:
        self._log = broker.log_context.logger(__name__)
        self._context = context
        self._store = store
        self._partition_state_machine = partition_state_machine
        self._replica_state_machine = replica_state_machine
        self._send_metadata_update = send_metadata_update
        self._on_topic_deleted = on_topic_deleted

    def init(self, topics: Iterable[str], ineligible: Iterable[str]) -> None:
        """Take over the marked topics from a previous controller; ``ineligible`` topics have unreachable replicas."""
        self._context.topics_to_be_deleted.update(dict.fromkeys(topics))
        self.mark_topics_ineligible_for_deletion(ineligible, "out of reach, or being reassigned")

    def enqueue_topics_for_deletion(self, topics: Iterable[str]) -> None:
        self._context.topics_to_be_deleted.update(dict.fromkeys(topics))
        self.resume_deletions()

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
        movable = (replica_state.OFFLINE, replica_state.DELETION_STARTED)
        self._replica_state_machine.handle_state_changes(
            [replica for replica in failed if context.replica_state(replica) in movable],
            replica_state.DELETION_INELIGIBLE,
        )
        topics = dict.fromkeys(replica.topic_partition.topic for replica in failed)
        self.mark_topics_ineligible_for_deletion(topics, "a replica failed to delete")
        self.resume_deletions()

    def complete_replica_deletion(self, replicas: Iterable[PartitionAndReplica]) -> None:
        """Handle replicas that were deleted."""
        context = self._context
        deleted = [replica for replica in replicas if context.replica_state(replica) == replica_state.DELETION_STARTED]
        self._replica_state_machine.handle_state_changes(deleted, replica_state.DELETION_SUCCESSFUL)
        self.resume_deletions()

    def resume_deletions(self) -> None:
        """Take the next possible step for each topic that must be deleted."""
        context = self._context
        retry: list[str] = []
        eligible: list[str] = []
        for topic in list(context.topics_to_be_deleted):
            states = [context.replica_state(replica) for replica in context.replicas_for_topic(topic)]
            if states and all(state == replica_state.DELETION_SUCCESSFUL for state in states):
                self._complete_delete_topic(topic)
                continue
            started = replica_state.DELETION_STARTED in states
            halted = topic in context.topics_ineligible_for_deletion
            if not started and not halted:
                if replica_state.DELETION_INELIGIBLE in states:
                    retry.append(topic)
                eligible.append(topic)
        self._replica_state_machine.handle_state_changes(
            [
                replica
                for topic in retry
                for replica in context.replicas_in_state(topic, replica_state.DELETION_INELIGIBLE)
            ],
            replica_state.OFFLINE,
        )
        if eligible:
            self._on_topic_deletion(eligible)

    def _complete_delete_topic(self, topic: str) -> None:
        context = self._context
        self._replica_state_machine.handle_state_changes(context.replicas_for_topic(topic), replica_state.NON_EXISTENT)
        self._store.delete_topic(topic, context.epoch_version)
        context.remove_topic(topic)
        self._log.info("Controller: topic %s is deleted", topic)
        self._on_topic_deleted(topic)

    def _on_topic_deletion(self, topics: list[str]) -> None:
        context = self._context
        unseen = [topic for topic in topics if topic not in context.topics_with_deletion_started]
        partitions = [partition for topic in unseen for partition in context.partitions_for_topic(topic)]
        self._partition_state_machine.handle_state_changes(partitions, partition_state.OFFLINE)
        self._partition_state_machine.handle_state_changes(partitions, partition_state.NON_EXISTENT)
        context.topics_with_deletion_started.update(dict.fromkeys(unseen))
        # Brokers stop serving the topics now, before their replicas are deleted.
        self._send_metadata_update([partition for topic in topics for partition in context.partitions_for_topic(topic)])
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
                elif state != replica_state.DELETION_SUCCESSFUL:
                    alive.append(replica)
        machine = self._replica_state_machine
        machine.handle_state_changes(
            [replica for replica in dead if context.replica_state(replica) == replica_state.OFFLINE],
            replica_state.DELETION_INELIGIBLE,
        )
        machine.handle_state_changes(alive, replica_state.OFFLINE)
        machine.handle_state_changes(alive, replica_state.DELETION_STARTED)
        self.mark_topics_ineligible_for_deletion(
            dict.fromkeys(replica.topic_partition.topic for replica in dead), "brokers are down"
        )
