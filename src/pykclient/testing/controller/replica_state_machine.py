"""The replica state machine (Java: ZkReplicaStateMachine)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pykclient.testing.controller import replica_state
from pykclient.testing.controller.controller_context import PartitionAndReplica
from pykclient.testing.coordination.znodes import NO_LEADER, LeaderIsrAndControllerEpoch

if TYPE_CHECKING:
    from pykclient.testing.controller.controller_channel_manager import ControllerBrokerRequestBatch
    from pykclient.testing.controller.controller_context import ControllerContext
    from pykclient.testing.coordination.kafka_coordination_client import KafkaCoordinationClient
    from pykclient.testing.coordination.znodes import LeaderAndIsr
    from pykclient.types import TopicPartition


class ReplicaStateMachine:
    """Changes replicas' states; the table is in ``replica_state``. Thread: loop.

    NEW and ONLINE send LEADER_AND_ISR to the replica. OFFLINE sends STOP_REPLICA and removes it from the ISR, of which
    the others are informed. DELETION_STARTED sends STOP_REPLICA with deletion. NON_EXISTENT removes it from the
    assignment. Other transitions only change the state.
    """

    def __init__(
        self,
        context: ControllerContext,
        store: KafkaCoordinationClient,
        request_batch: ControllerBrokerRequestBatch,
    ) -> None:
        self._context = context
        self._store = store
        self._request_batch = request_batch

    def startup(self) -> None:
        """Derive the states from the live brokers, and inform them. Dead replicas leave their ISRs."""
        context = self._context
        online, offline = [], []
        for replica in context.replicas_for_partitions(context.all_partitions()):
            if context.is_replica_online(replica.replica, replica.topic_partition):
                context.replica_states[replica] = replica_state.ONLINE
                online.append(replica)
            else:
                # A deletion cannot rely on what happened to it before this controller.
                context.replica_states[replica] = replica_state.DELETION_INELIGIBLE
                offline.append(replica)
        self.handle_state_changes(online, replica_state.ONLINE, all_of=context.live_broker_ids)
        # Replicas that died with the last controller, or while there was none, are still in the ISRs.
        self.handle_state_changes(offline, replica_state.OFFLINE)

    def handle_state_changes(
        self, replicas: Iterable[PartitionAndReplica], target: str, *, all_of: Iterable[int] = ()
    ) -> None:
        """Change the states of replicas; the brokers in ``all_of`` learn that they have no other replicas.

        Raises:
            IllegalStateError: the table does not have a transition.
            ControllerMovedError: another broker is the controller.
        """
        replicas = list(replicas)
        all_of = list(all_of)
        if not replicas and not all_of:
            return
        self._request_batch.new_batch()
        try:
            self._request_batch.set_full(all_of)
            if target == replica_state.OFFLINE:
                self._move_to_offline(replicas)
            else:
                for replica in replicas:
                    self._move(replica, target)
            self._request_batch.send_requests_to_brokers(self._context.epoch)
        finally:
            self._request_batch.clear()

    def _move(self, replica: PartitionAndReplica, target: str) -> None:
        context = self._context
        topic_partition, id = replica
        current = context.replica_state(replica)
        context.move_replica(replica, target)
        info = context.leadership.get(topic_partition)
        if target == replica_state.NEW or (target == replica_state.ONLINE and current != replica_state.NEW):
            if info is not None:
                self._request_batch.add_leader_and_isr_request_for_brokers(
                    (id,), topic_partition, info, context.assignment(topic_partition), target == replica_state.NEW
                )
        elif target == replica_state.DELETION_STARTED:
            self._request_batch.add_stop_replica_request_for_brokers((id,), topic_partition, delete_partition=True)
        elif target == replica_state.NON_EXISTENT:
            assignment = context.assignment(topic_partition)
            context.put_assignment(
                topic_partition,
                assignment._replace(
                    replicas=tuple(other for other in assignment.replicas if other != id),
                    adding_replicas=tuple(other for other in assignment.adding_replicas if other != id),
                    removing_replicas=tuple(other for other in assignment.removing_replicas if other != id),
                ),
            )

    def _move_to_offline(self, replicas: list[PartitionAndReplica]) -> None:
        context = self._context
        by_broker: dict[int, list[PartitionAndReplica]] = {}
        for replica in replicas:
            context.move_replica(replica, replica_state.OFFLINE)
            self._request_batch.add_stop_replica_request_for_brokers(
                (replica.replica,), replica.topic_partition, delete_partition=False
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
            info = current if changed is None else LeaderIsrAndControllerEpoch(changed, context.epoch)
            context.leadership[topic_partition] = info
            if context.is_topic_queued_up_for_deletion(topic_partition.topic):
                continue
            recipients = [other for other in context.replicas(topic_partition) if other != id]
            self._request_batch.add_leader_and_isr_request_for_brokers(
                recipients, topic_partition, info, context.assignment(topic_partition), is_new=False
            )
        for replica in replicas:
            if replica.topic_partition not in states:
                self._request_batch.add_update_metadata_request_for_brokers(all_brokers, (replica.topic_partition,))
