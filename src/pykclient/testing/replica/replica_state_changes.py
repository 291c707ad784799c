"""The controller's instructions to a broker's replicas (Java: ReplicaManager, ZooKeeper mode)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.errors import (
    BrokerError,
    ControllerMovedError,
    FencedLeaderEpochError,
    InconsistentTopicIdError,
    StaleBrokerEpochError,
    UnknownTopicOrPartitionError,
)
from pykclient.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from pykclient.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from pykclient.protocol.wire import ZERO_UUID
from pykclient.testing.replica.partition import Partition
from pykclient.testing.replica.replica_fetcher_manager import InitialFetchState
from pykclient.types import Node, TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.testing.broker import Broker
    from pykclient.testing.replica.replica_manager import ReplicaManager

    LeaderAndIsrState = LeaderAndIsrRequest.LeaderAndIsrPartitionState

_NO_EPOCH: Final = -1
_FULL: Final = 2  # a type of LEADER_AND_ISR: it names all replicas of this broker (KIP-866)


class ReplicaStateChanges:
    """Handles LEADER_AND_ISR and STOP_REPLICA.

    Both are fenced three times. A request is rejected if its controller was deposed, if it was meant for the broker
    before a restart, or if its state is older than the partition's. Thread: loop.
    """

    def __init__(self, broker: Broker, manager: ReplicaManager, partitions: dict[TopicPartition, Partition]) -> None:
        self._broker = broker
        self._manager = manager
        self._partitions = partitions
        self._topics: dict[UUID, set[TopicPartition]] = {}
        #: The controller's epoch, the broker's epoch and the correlation id of the controller's latest request.
        self._latest: tuple[int, int, int] = (_NO_EPOCH, _NO_EPOCH, 0)
        self._log = broker.log_context.logger(__name__)

    def check_controller(self, controller_id: int, controller_epoch: int, broker_epoch: int) -> None:
        """Check and record the epoch of the controller that sent a request.

        Raises:
            StaleBrokerEpochError: the request is meant for an earlier registration of this broker.
            ControllerMovedError: there is a newer controller.
        """
        if broker_epoch != _NO_EPOCH and broker_epoch < self._broker.epoch:
            raise StaleBrokerEpochError(
                f"controller {controller_id} means broker epoch {broker_epoch}, it is {self._broker.epoch}"
            )
        if controller_epoch < self._manager.controller_epoch:
            raise ControllerMovedError(
                f"controller {controller_id} has epoch {controller_epoch}, the latest is "
                f"{self._manager.controller_epoch}"
            )
        self._manager.controller_epoch = controller_epoch

    def check_order(self, controller_epoch: int, broker_epoch: int, correlation_id: int) -> None:
        """Check that the controller has sent no later request, and record this one.

        A controller that gets no response in time sends its request again over another connection, and goes on after
        the response to that. The first request may still be under way. If it is to delete a replica, and the topic has
        been created again since, it would delete a replica of the new topic: such requests do not have topic ids.

        Raises:
            ControllerMovedError: a later request has overtaken this one.
        """
        request = (controller_epoch, broker_epoch, correlation_id)
        if request < self._latest:
            raise ControllerMovedError(
                f"request {correlation_id} of the controller comes after its request {self._latest[-1]}"
            )
        self._latest = request

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of a topic of which this broker has replicas."""
        topic = self._topics.get(topic_id)
        return None if topic is None else next(iter(topic)).topic

    # --- LEADER_AND_ISR ----------------------------------------------------------------------------------------------

    def become_leader_or_follower(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        """Apply what is possible, and report the result of each partition. Raises as ``check_controller``."""
        self.check_controller(request.controller_id, request.controller_epoch, request.broker_epoch)
        if request.type == _FULL and not self._broker.disk.offline:
            self._delete_strays(request)
        leaders: list[tuple[Partition, LeaderAndIsrState]] = []
        followers: list[tuple[Partition, LeaderAndIsrState]] = []
        errors: dict[UUID, dict[TopicPartition, int]] = {}
        for topic in request.topic_states:
            of_topic = errors.setdefault(topic.topic_id, {})
            for state in topic.partition_states:
                topic_partition = TopicPartition(topic.topic_name, state.partition_index)
                of_topic[topic_partition] = 0
                try:
                    partition = self._accept(topic_partition, topic.topic_id, state)
                except BrokerError as error:
                    self._log.debug("LEADER_AND_ISR of %s is refused: %s", topic_partition, error)
                    of_topic[topic_partition] = error.code
                    continue
                (leaders if state.leader == self._broker.id else followers).append((partition, state))
        nodes = {
            leader.broker_id: Node(leader.broker_id, leader.host_name, leader.port) for leader in request.live_leaders
        }
        failed = self._make_leaders(leaders) | self._make_followers(followers, nodes)
        for of_topic in errors.values():
            for topic_partition in failed.keys() & of_topic.keys():
                of_topic[topic_partition] = failed[topic_partition]
        return LeaderAndIsrResponse(
            topics=[
                LeaderAndIsrResponse.LeaderAndIsrTopicError(
                    topic_id=topic_id,
                    partition_errors=[
                        LeaderAndIsrResponse.LeaderAndIsrPartitionError(
                            topic_name=name, partition_index=index, error_code=code
                        )
                        for (name, index), code in of_topic.items()
                    ],
                )
                for topic_id, of_topic in errors.items()
            ]
        )

    def _accept(self, topic_partition: TopicPartition, topic_id: UUID, state: LeaderAndIsrState) -> Partition:
        """Return the partition for a state; create it if necessary.

        Raises:
            ControllerMovedError: the state is older than the known one.
            InconsistentTopicIdError: this broker still has the log of another topic with that name.
            UnknownTopicOrPartitionError: the broker is no replica of the partition.
        """
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            if ZERO_UUID not in (topic_id, partition.topic_id) and topic_id != partition.topic_id:
                raise InconsistentTopicIdError(f"{topic_partition} has topic id {partition.topic_id}, not {topic_id}")
            known = partition.leader_epoch, partition.partition_epoch
            if (state.leader_epoch, state.partition_epoch) < known:
                raise ControllerMovedError(
                    f"{topic_partition} has leader epoch {known[0]} and partition epoch {known[1]} already, "
                    f"not {state.leader_epoch} and {state.partition_epoch}"
                )
        if self._broker.id not in state.replicas:
            raise UnknownTopicOrPartitionError(f"broker {self._broker.id} is no replica of {topic_partition}")
        if partition is None:
            partition = self._partitions[topic_partition] = Partition(topic_partition, topic_id, self._manager)
            self._topics.setdefault(topic_id, set()).add(topic_partition)
        return partition

    def _make_leaders(self, leaders: list[tuple[Partition, LeaderAndIsrState]]) -> dict[TopicPartition, int]:
        self._manager.replica_fetcher_manager.remove_fetcher_for_partitions(
            [partition.topic_partition for partition, _ in leaders]
        )
        failed: dict[TopicPartition, int] = {}
        followers: dict[int, None] = {}
        for partition, state in leaders:
            topic_partition = partition.topic_partition
            try:
                is_new = partition.make_leader(state)
            except BrokerError as error:
                self._log.error("Cannot lead %s: %s", topic_partition, error)
                failed[topic_partition] = error.code
                continue
            self._manager.partition_changed(topic_partition)
            followers |= dict.fromkeys(partition.remote_replicas)
            if is_new:
                self._log.info("Leader of %s in epoch %d, ISR %s", topic_partition, state.leader_epoch, state.isr)
                coordinator = self._broker.coordinators.get(topic_partition.topic)
                if coordinator is not None:
                    coordinator.on_election(topic_partition.partition, state.leader_epoch)
        self._manager.end_waits_of_followers(followers)
        return failed

    def _make_followers(
        self, followers: list[tuple[Partition, LeaderAndIsrState]], nodes: dict[int, Node]
    ) -> dict[TopicPartition, int]:
        failed: dict[TopicPartition, int] = {}
        changed: list[tuple[Partition, LeaderAndIsrState]] = []
        for partition, state in followers:
            topic_partition = partition.topic_partition
            was_leader = partition.is_leader
            try:
                if partition.make_follower(state):
                    changed.append((partition, state))
            except BrokerError as error:
                self._log.error("Cannot follow %s: %s", topic_partition, error)
                failed[topic_partition] = error.code
                continue
            # Operations that wait for the leader would wait here in vain.
            self._manager.partition_changed(topic_partition)
            if was_leader:
                self._log.info("Follower of %s in epoch %d", topic_partition, state.leader_epoch)
                self._broker.share_partition_manager.on_resignation(topic_partition)
                coordinator = self._broker.coordinators.get(topic_partition.topic)
                if coordinator is not None:
                    coordinator.on_resignation(topic_partition.partition, state.leader_epoch)
        fetchers = self._manager.replica_fetcher_manager
        fetchers.remove_fetcher_for_partitions([partition.topic_partition for partition, _ in changed])
        to_fetch = {}
        for partition, state in changed:
            leader = nodes.get(state.leader) or self._broker.metadata_cache.alive_broker(state.leader)
            if leader is not None and partition.log is not None:
                to_fetch[partition.topic_partition] = InitialFetchState(
                    partition.topic_id, leader, state.leader_epoch, partition.log.high_watermark
                )
        fetchers.add_fetcher_for_partitions(to_fetch)
        return failed

    def _delete_strays(self, request: LeaderAndIsrRequest) -> None:
        """Delete the remains of topics that were deleted or moved while this broker was down."""
        wanted = {
            TopicPartition(topic.topic_name, state.partition_index): topic.topic_id
            for topic in request.topic_states
            for state in topic.partition_states
        }
        for log in self._broker.log_manager.all_logs:
            topic_id = wanted.get(log.topic_partition)
            if topic_id is None or log.topic_id not in (None, topic_id):
                self._stop_replica(log.topic_partition, _NO_EPOCH, delete=True)

    # --- STOP_REPLICA ------------------------------------------------------------------------------------------------

    def stop_replicas(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Stop following, and delete where requested. Raises as ``check_controller``."""
        self.check_controller(request.controller_id, request.controller_epoch, request.broker_epoch)
        errors: dict[TopicPartition, int] = {}
        for topic in request.topic_states:
            for state in topic.partition_states:
                topic_partition = TopicPartition(topic.topic_name, state.partition_index)
                errors[topic_partition] = 0
                try:
                    self._stop_replica(topic_partition, state.leader_epoch, delete=state.delete_partition)
                except BrokerError as error:
                    self._log.debug("STOP_REPLICA of %s is refused: %s", topic_partition, error)
                    errors[topic_partition] = error.code
        return StopReplicaResponse(
            partition_errors=[
                StopReplicaResponse.StopReplicaPartitionError(
                    topic_name=topic_partition.topic, partition_index=topic_partition.partition, error_code=code
                )
                for topic_partition, code in errors.items()
            ]
        )

    def _stop_replica(self, topic_partition: TopicPartition, leader_epoch: int, *, delete: bool) -> None:
        """Stop one replica.

        Raises:
            FencedLeaderEpochError: the partition has a newer leader than the request knows.
            KafkaStorageError: the disk failed.
        """
        partition = self._partitions.get(topic_partition)
        if partition is not None and leader_epoch >= 0 and leader_epoch < partition.leader_epoch:
            raise FencedLeaderEpochError(f"{topic_partition} has leader epoch {partition.leader_epoch} already")
        self._manager.replica_fetcher_manager.remove_fetcher_for_partitions([topic_partition])
        coordinator = self._broker.coordinators.get(topic_partition.topic)
        if partition is not None and partition.is_leader:
            self._broker.share_partition_manager.on_resignation(topic_partition)
            if coordinator is not None:
                coordinator.on_resignation(topic_partition.partition, leader_epoch)
        if delete:
            if partition is not None:
                self._forget(partition)
            self._broker.log_manager.async_delete(topic_partition)
            self._log.info("%s is deleted", topic_partition)
        self._manager.partition_changed(topic_partition)

    def _forget(self, partition: Partition) -> None:
        del self._partitions[partition.topic_partition]
        topic = self._topics[partition.topic_id]
        topic.discard(partition.topic_partition)
        if not topic:
            del self._topics[partition.topic_id]
        partition.delete()
