"""All replicas of a broker: appends, reads, leadership, and the controller's instructions (Java: ReplicaManager)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import UUID

from pykclient import errors, topic_names
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from pykclient.protocol.messages.produce import ProduceResponse
from pykclient.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from pykclient.protocol.wire import ZERO_UUID
from pykclient.record.record_batch import Buffer
from pykclient.testing import broker_context
from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.delayed_operation import DelayedOperation, DelayedOperationPurgatory
from pykclient.testing.inter_broker_requests import NodeToControllerChannelManager
from pykclient.testing.log.broker_disk import BrokerDisk, DiskQueue
from pykclient.testing.log.log_manager import LogManager
from pykclient.testing.log.log_types import AppendOrigin, FetchIsolation, LogAppendInfo
from pykclient.testing.log.log_validator import RecordValidationError
from pykclient.testing.log.producer_state_manager import VerificationState
from pykclient.testing.log.unified_log import UnifiedLog
from pykclient.testing.metadata_cache import MetadataCache
from pykclient.testing.replica.fetch_session import (
    UNKNOWN_OFFSET,
    FetchManager,
    FetchParams,
    FetchPartitionData,
    PartitionFetch,
)
from pykclient.testing.replica.partition import AlterPartitionManager, Partition, is_rack_aware
from pykclient.testing.replica.replica_fetcher import InitialFetchState, ReplicaFetcherManager
from pykclient.types import Node, TopicPartition

LeaderAndIsrState = LeaderAndIsrRequest.LeaderAndIsrPartitionState

_NO_EPOCH: Final = -1

_FULL: Final = 2  # a type of LEADER_AND_ISR: it names all replicas of this broker (KIP-866)


class Coordinator(Protocol):
    """A coordinator whose state is in the partitions of an internal topic that its broker leads. Thread: loop."""

    def on_election(self, partition: int, epoch: int) -> None:
        """Take over a partition that its broker leads from ``epoch`` on."""

    def on_resignation(self, partition: int, epoch: int) -> None:
        """Give up a partition. ``epoch`` is negative if the partition was deleted."""


@dataclass(eq=False, repr=False)
class ReplicaStateChanges:
    """Handles LEADER_AND_ISR and STOP_REPLICA.

    Both are fenced three times. A request is rejected if its controller was deposed, if it was meant for the broker
    before a restart, or if its state is older than the partition's. Thread: loop.
    """

    _broker: BrokerContext
    _manager: ReplicaManager
    _disk: BrokerDisk
    _metadata_cache: MetadataCache
    _log_manager: LogManager
    _partitions: dict[TopicPartition, Partition]
    #: The controller's epoch, the broker's epoch and the correlation id of the controller's latest request.
    _latest: tuple[int, int, int] = (_NO_EPOCH, _NO_EPOCH, 0)

    def __post_init__(self) -> None:
        self._log = self._manager.log

    def check_controller(self, controller_id: int, controller_epoch: int, broker_epoch: int) -> None:
        """Check and record the epoch of the controller that sent a request.

        Raises:
            StaleBrokerEpochError: the request is meant for an earlier registration of this broker.
            ControllerMovedError: there is a newer controller.
        """
        if broker_epoch != _NO_EPOCH and broker_epoch < self._broker.epoch:
            raise errors.StaleBrokerEpochError(
                f"controller {controller_id} means broker epoch {broker_epoch}, it is {self._broker.epoch}"
            )
        if controller_epoch < self._manager.controller_epoch:
            raise errors.ControllerMovedError(
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
            raise errors.ControllerMovedError(
                f"request {correlation_id} of the controller comes after its request {self._latest[-1]}"
            )
        self._latest = request

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of a topic of which this broker has replicas."""
        return next((tp.topic for tp, partition in self._partitions.items() if partition.topic_id == topic_id), None)

    # --- LEADER_AND_ISR ----------------------------------------------------------------------------------------------

    def become_leader_or_follower(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        """Apply as much as possible, and report the result of each partition. Raises as ``check_controller``."""
        self.check_controller(request.controller_id, request.controller_epoch, request.broker_epoch)
        if request.type == _FULL and not self._disk.offline:
            self._delete_strays(request)
        leaders: list[tuple[Partition, LeaderAndIsrState]] = []
        followers: list[tuple[Partition, LeaderAndIsrState]] = []
        codes: dict[UUID, dict[TopicPartition, int]] = {}
        for topic in request.topic_states:
            of_topic = codes.setdefault(topic.topic_id, {})
            for state in topic.partition_states:
                topic_partition = TopicPartition(topic.topic_name, state.partition_index)
                of_topic[topic_partition] = 0
                try:
                    partition = self._accept(topic_partition, topic.topic_id, state)
                except errors.BrokerError as error:
                    self._log.debug("LEADER_AND_ISR of %s is refused: %s", topic_partition, error)
                    of_topic[topic_partition] = error.code
                    continue
                (leaders if state.leader == self._broker.id else followers).append((partition, state))
        nodes = {
            leader.broker_id: Node(leader.broker_id, leader.host_name, leader.port) for leader in request.live_leaders
        }
        failed = self._make_leaders(leaders) | self._make_followers(followers, nodes)
        for of_topic in codes.values():
            for topic_partition in failed.keys() & of_topic.keys():
                of_topic[topic_partition] = failed[topic_partition]
        self._manager.complete_delayed()
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
                for topic_id, of_topic in codes.items()
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
                raise errors.InconsistentTopicIdError(
                    f"{topic_partition} has topic id {partition.topic_id}, not {topic_id}"
                )
            known = partition.leader_epoch, partition.partition_epoch
            if (state.leader_epoch, state.partition_epoch) < known:
                raise errors.ControllerMovedError(
                    f"{topic_partition} has leader epoch {known[0]} and partition epoch {known[1]} already, "
                    f"not {state.leader_epoch} and {state.partition_epoch}"
                )
        if self._broker.id not in state.replicas:
            raise errors.UnknownTopicOrPartitionError(f"broker {self._broker.id} is no replica of {topic_partition}")
        if partition is None:
            partition = self._partitions[topic_partition] = Partition(topic_partition, topic_id, self._manager)
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
            except errors.BrokerError as error:
                self._log.error("Cannot lead %s: %s", topic_partition, error)
                failed[topic_partition] = error.code
                continue
            self._manager.partition_changed(topic_partition)
            followers |= dict.fromkeys(partition.remote_replicas)
            if is_new:
                self._log.info("Leader of %s in epoch %d, ISR %s", topic_partition, state.leader_epoch, state.isr)
                coordinator = self._manager.coordinators.get(topic_partition.topic)
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
            except errors.BrokerError as error:
                self._log.error("Cannot follow %s: %s", topic_partition, error)
                failed[topic_partition] = error.code
                continue
            # Operations that wait for the leader would wait here in vain.
            self._manager.partition_changed(topic_partition)
            if was_leader:
                self._log.info("Follower of %s in epoch %d", topic_partition, state.leader_epoch)
                self._resign(topic_partition, state.leader_epoch)
        fetchers = self._manager.replica_fetcher_manager
        fetchers.remove_fetcher_for_partitions([partition.topic_partition for partition, _ in changed])
        to_fetch = {}
        for partition, state in changed:
            leader = nodes.get(state.leader) or self._metadata_cache.alive_broker(state.leader)
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
        for log in self._log_manager.all_logs:
            topic_id = wanted.get(log.topic_partition)
            if topic_id is None or log.topic_id not in (None, topic_id):
                self._stop_replica(log.topic_partition, _NO_EPOCH, delete=True)

    # --- STOP_REPLICA ------------------------------------------------------------------------------------------------

    def stop_replicas(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Stop following, and delete where requested. Raises as ``check_controller``."""
        self.check_controller(request.controller_id, request.controller_epoch, request.broker_epoch)
        codes: dict[TopicPartition, int] = {}
        for topic in request.topic_states:
            for state in topic.partition_states:
                topic_partition = TopicPartition(topic.topic_name, state.partition_index)
                codes[topic_partition] = 0
                try:
                    self._stop_replica(topic_partition, state.leader_epoch, delete=state.delete_partition)
                except errors.BrokerError as error:
                    self._log.debug("STOP_REPLICA of %s is refused: %s", topic_partition, error)
                    codes[topic_partition] = error.code
        self._manager.complete_delayed()
        return StopReplicaResponse(
            partition_errors=[
                StopReplicaResponse.StopReplicaPartitionError(
                    topic_name=topic_partition.topic, partition_index=topic_partition.partition, error_code=code
                )
                for topic_partition, code in codes.items()
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
            raise errors.FencedLeaderEpochError(f"{topic_partition} has leader epoch {partition.leader_epoch} already")
        self._manager.replica_fetcher_manager.remove_fetcher_for_partitions([topic_partition])
        if partition is not None and partition.is_leader:
            self._resign(topic_partition, leader_epoch)
        if delete:
            if partition is not None:
                del self._partitions[topic_partition]
                partition.delete()
            self._log_manager.async_delete(topic_partition)
            self._log.info("%s is deleted", topic_partition)
        self._manager.partition_changed(topic_partition)

    def _resign(self, topic_partition: TopicPartition, leader_epoch: int) -> None:
        self._manager.on_resignation(topic_partition)
        coordinator = self._manager.coordinators.get(topic_partition.topic)
        if coordinator is not None:
            coordinator.on_resignation(topic_partition.partition, leader_epoch)


_FIRST_FETCH_WITH_DIVERGING_EPOCH: Final = 12

_NO_VERIFICATIONS: Final[Mapping[TopicPartition, VerificationState | None]] = {}

#: With all other errors of an append, the response contains the log's start.
_WITHOUT_LOG_START_OFFSET: Final = (
    errors.CorruptRecordError,
    errors.KafkaStorageError,
    errors.NotLeaderOrFollowerError,
    errors.RecordBatchTooLargeError,
    errors.RecordTooLargeError,
    errors.UnknownTopicOrPartitionError,
)

PartitionResponse = ProduceResponse.PartitionProduceResponse


_REQUEST_TIMED_OUT: Final = 7


@dataclass(eq=False)
class DelayedProduce(DelayedOperation):
    """Completes when each written partition has its records on all in-sync replicas, or never can.

    ``pending`` is the offset that the high watermark must reach. Thread: loop.
    """

    _manager: ReplicaManager
    _responses: dict[TopicPartition, PartitionResponse]
    _pending: dict[TopicPartition, int]
    _respond: Callable[[dict[TopicPartition, PartitionResponse]], None]

    def try_complete(self, key: Hashable | None) -> bool:
        pending = self._pending
        for topic_partition in (key,) if isinstance(key, TopicPartition) else list(pending):
            required_offset = pending.get(topic_partition)
            if required_offset is None:
                continue
            partition = self._manager.partition(topic_partition)
            if partition is None:
                enough, error_code = False, self._manager.error_without_replica(topic_partition).code
            else:
                enough, error_code = partition.check_enough_replicas_reach_offset(required_offset)
            if enough or error_code:
                if error_code:
                    self._fail(topic_partition, error_code)
                del pending[topic_partition]
        return not pending and self.force_complete()

    def _fail(self, topic_partition: TopicPartition, error_code: int) -> None:
        response = self._responses[topic_partition]
        response.error_code = error_code
        response.base_offset = UNKNOWN_OFFSET

    def on_expiration(self) -> None:
        for topic_partition in self._pending:
            self._fail(topic_partition, _REQUEST_TIMED_OUT)

    def on_complete(self) -> None:
        self._respond(self._responses)


FetchResults = list[tuple[PartitionFetch, FetchPartitionData]]


class DelayedFetch(DelayedOperation):
    """Completes when ``min_bytes`` are readable, when a partition has an error, or when the maximum wait expires.

    Only partitions that have changed are checked, and read again at the end, so a session over many partitions waits at
    no cost. If consumers read from followers, a follower learns of a higher high watermark immediately (KIP-392). Any
    key that is not a partition ends the wait. Thread: loop.
    """

    def __init__(
        self,
        params: FetchParams,
        results: FetchResults,
        manager: ReplicaManager,
        respond: Callable[[FetchResults], None],
    ) -> None:
        super().__init__(params.max_wait_ms)
        self._params = params
        self._manager = manager
        self._respond = respond
        self._results = {result[0].topic_partition: result for result in results}
        # The partitions to read at the end: those that changed, and those with records, which limit the others' share.
        self._changed = {fetch.topic_partition for fetch, data in results if data.size_in_bytes}
        # The bytes that can be read from them.
        self._bytes = {key: self._results[key][1].size_in_bytes for key in self._changed}
        self._tells_high_watermarks = params.is_from_follower and manager.is_rack_aware

    def try_complete(self, key: Hashable | None) -> bool:
        if key is None:
            # The available data has just been read, and was not enough.
            return False
        if not isinstance(key, TopicPartition):
            return self.force_complete()
        self._changed.add(key)
        fetch, told = self._results[key]
        params = self._params
        partition = self._manager.partition(key)
        if partition is None or (self._tells_high_watermarks and partition.high_watermark > told.high_watermark):
            return self.force_complete()
        if params.min_bytes <= 1 and fetch.current_leader_epoch in (-1, partition.leader_epoch):
            readable = partition.is_leader or (params.rack_id is not None and not params.is_from_follower)
            # An offset beyond the log's end is an error to report.
            end = partition.end_offset(params.isolation)
            if readable and end <= fetch.fetch_offset <= partition.end_offset(FetchIsolation.LOG_END):
                return False
            return self.force_complete()
        try:
            data = partition.fetch_records(params, fetch, fetch.max_bytes, min_one_message=True, update=False)
        except errors.BrokerError:
            return self.force_complete()
        if data.diverging_epoch is not None:
            return self.force_complete()
        self._bytes[key] = data.size_in_bytes
        return sum(self._bytes.values()) >= params.min_bytes and self.force_complete()

    def on_complete(self) -> None:
        results = self._results
        # In the order of the request: the first partitions get what ``max_bytes`` allows.
        again = [fetch for key, (fetch, _) in results.items() if key in self._changed]
        for result in self._manager.read_from_log(self._params, again, update=False):
            results[result[0].topic_partition] = result
        self._respond(list(results.values()))


@dataclass(slots=True)
class DeleteRecordsResult:
    """The low watermark of a partition (-1 with an error), and the ``requested_offset`` it must reach.

    Thread: loop.
    """

    low_watermark: int
    error_code: int = 0
    requested_offset: int = -1

    def fail(self, error_code: int) -> None:
        self.error_code = error_code
        self.low_watermark = -1


@dataclass(eq=False)
class DelayedDeleteRecords(DelayedOperation):
    """Completes when each partition's low watermark has reached the requested offset. Thread: loop."""

    _manager: ReplicaManager
    _results: dict[TopicPartition, DeleteRecordsResult]
    _respond: Callable[[dict[TopicPartition, DeleteRecordsResult]], None]

    def __post_init__(self) -> None:
        self._pending = {topic_partition for topic_partition, result in self._results.items() if not result.error_code}

    def try_complete(self, key: Hashable | None) -> bool:  # noqa: ARG002 - there are few of these
        for topic_partition in list(self._pending):
            result = self._results[topic_partition]
            try:
                result.low_watermark = self._manager.get_partition_or_raise(topic_partition).low_watermark()
            except errors.BrokerError as error:
                result.fail(error.code)
            if result.error_code or result.low_watermark >= result.requested_offset:
                self._pending.discard(topic_partition)
        return not self._pending and self.force_complete()

    def on_expiration(self) -> None:
        for topic_partition in self._pending:
            self._results[topic_partition].fail(_REQUEST_TIMED_OUT)

    def on_complete(self) -> None:
        self._respond(self._results)


def _ignore(topic_partition: TopicPartition) -> None:
    pass


class ReplicaManager:
    """The partitions of a broker by name, the operations that wait for them, and the fetchers of its followers.

    An append or a fetch can complete waiting operations. They are checked after the current request is done with all
    its partitions (``complete_delayed``), so that a fetch gets everything that one produce request wrote. Thread: loop.
    """

    def __init__(
        self,
        broker: BrokerContext,
        disk: BrokerDisk,
        metadata_cache: MetadataCache,
        log_manager: LogManager,
        controller: NodeToControllerChannelManager,
    ) -> None:
        self._broker = broker
        self._disk = disk
        self._metadata_cache = metadata_cache
        self._log_manager = log_manager
        self._loop = broker.loop
        self.log = broker.log_context.logger(__name__)
        self.broker_id = broker.id
        config = broker.config
        #: The coordinators by the topics that they store their state in. The broker adds them.
        self.coordinators: dict[str, Coordinator] = {}
        #: Called with each partition that this broker led, and does not lead any more.
        self.on_resignation: Callable[[TopicPartition], None] = _ignore
        #: The epoch of the last known controller.
        self.controller_epoch = 0
        self.replica_lag_time_max_ms = config.get_int("replica.lag.time.max.ms")
        #: True if followers serve consumers in their racks (KIP-392).
        self.is_rack_aware = is_rack_aware(config["replica.selector.class"])
        newest_fetch = broker.profile.max_version(ApiKeys.FETCH) or 0
        #: Before Kafka 2.7, followers requested the ends of epochs.
        self.truncates_on_fetch: bool = newest_fetch >= _FIRST_FETCH_WITH_DIVERGING_EPOCH
        self._partitions: dict[TopicPartition, Partition] = {}
        self.fetch_manager = FetchManager(broker, config.get_int("max.incremental.fetch.session.cache.slots"))
        self.alter_partition_manager = AlterPartitionManager(broker, controller)
        self.replica_fetcher_manager = ReplicaFetcherManager(broker, self)
        self.disk_queue = DiskQueue(broker, disk)
        #: Handles the instructions of the controller, and fences those of old ones.
        self.state_changes = ReplicaStateChanges(broker, self, disk, metadata_cache, log_manager, self._partitions)
        self._delayed_produces = DelayedOperationPurgatory(broker)
        self._delayed_fetches = DelayedOperationPurgatory(broker)
        self.delayed_share_fetches = DelayedOperationPurgatory(broker)
        self._delayed_delete_records = DelayedOperationPurgatory(broker)
        self._changed: dict[TopicPartition, None] = {}
        self._completing = False

    # --- life --------------------------------------------------------------------------------------------------------

    def startup(self) -> None:
        interval_ms = self._broker.config.get_int("replica.high.watermark.checkpoint.interval.ms")
        self._broker.every(max(1, self.replica_lag_time_max_ms // 2), self._maybe_shrink_isrs)
        self._broker.every(interval_ms, self.checkpoint_high_watermarks)

    def shutdown(self) -> None:
        """Stop everything. Save the high watermarks unless the broker was killed."""
        self.replica_fetcher_manager.shutdown()
        for purgatory in (
            self._delayed_produces,
            self._delayed_fetches,
            self.delayed_share_fetches,
            self._delayed_delete_records,
        ):
            purgatory.shutdown()
        self.disk_queue.clear()
        if self._broker.state == broker_context.SHUTTING_DOWN:
            self.checkpoint_high_watermarks()

    def _maybe_shrink_isrs(self) -> None:
        for partition in self._partitions.values():
            if partition.is_leader:
                partition.maybe_shrink_isr()

    def checkpoint_high_watermarks(self) -> None:
        """Save the high watermarks for the next start."""
        if not self._disk.offline:
            checkpoint = self._disk.high_watermarks
            for topic_partition, partition in self._partitions.items():
                if partition.log is not None:
                    checkpoint[topic_partition] = partition.log.high_watermark

    # --- for partitions ----------------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        return self._loop.clock.now_ms()

    @property
    def broker_epoch(self) -> int:
        return self._broker.epoch

    def is_alive(self, broker_id: int) -> bool:
        """Return whether a broker is alive, according to the last metadata."""
        return self._metadata_cache.alive_broker(broker_id) is not None

    def racks(self) -> dict[int, str | None]:
        """Return the racks of the live brokers."""
        return {node.id: node.rack for node in self._metadata_cache.alive_brokers()}

    def get_or_create_log(self, topic_partition: TopicPartition, topic_id: UUID) -> UnifiedLog:
        """Return the log, with the high watermark that was last saved.

        Raises:
            KafkaStorageError: the disk failed.
        """
        log = self._log_manager.get_or_create_log(topic_partition, topic_id)
        log.update_high_watermark(self._disk.high_watermarks.get(topic_partition, 0))
        return log

    # --- finding them ------------------------------------------------------------------------------------------------

    def partition(self, topic_partition: TopicPartition) -> Partition | None:
        """Return the broker's replica, or None if it has none."""
        return self._partitions.get(topic_partition)

    def error_without_replica(self, topic_partition: TopicPartition) -> errors.BrokerError:
        """Return the error of a request for a partition of which this broker has no replica."""
        if self._metadata_cache.partition_info(topic_partition) is not None:
            return errors.NotLeaderOrFollowerError(f"broker {self.broker_id} has no replica of {topic_partition}")
        return errors.UnknownTopicOrPartitionError(f"broker {self.broker_id} knows of no {topic_partition}")

    def get_partition_or_raise(self, topic_partition: TopicPartition) -> Partition:
        """Return the replica.

        Raises:
            KafkaStorageError: its disk is offline.
            NotLeaderOrFollowerError: other brokers have the partition.
            UnknownTopicOrPartitionError: no known broker has the partition.
        """
        partition = self._partitions.get(topic_partition)
        if partition is None:
            raise self.error_without_replica(topic_partition)
        if self._disk.offline:
            raise errors.KafkaStorageError(f"the log of {topic_partition} is on a disk that is offline")
        return partition

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of a topic, which LEADER_AND_ISR may have announced before UPDATE_METADATA."""
        name = self._metadata_cache.topic_name(topic_id)
        return self.state_changes.topic_name(topic_id) if name is None else name

    def current_leader(self, topic_partition: TopicPartition) -> tuple[int, int]:
        """Return the id and epoch of the leader, as far as this broker knows; -1 for each that is unknown."""
        partition = self._partitions.get(topic_partition)
        if partition is not None and partition.leader_replica_id is not None:
            return partition.leader_replica_id, partition.leader_epoch
        info = self._metadata_cache.partition_info(topic_partition)
        return (-1, -1) if info is None else (info.leader, info.leader_epoch)

    # --- writing -----------------------------------------------------------------------------------------------------

    def append_records(
        self,
        timeout_ms: int,
        required_acks: int,
        entries: Mapping[TopicPartition, Buffer],
        respond: Callable[[dict[TopicPartition, PartitionResponse]], None],
        *,
        origin: str = AppendOrigin.CLIENT,
        verifications: Mapping[TopicPartition, VerificationState | None] = _NO_VERIFICATIONS,
        transaction_version: int = 0,
    ) -> None:
        """Append to partitions that this broker leads; call ``respond`` when ``acks`` is satisfied.

        ``required_acks``: 0 and 1 mean the leader's log, -1 means all in-sync replicas, within ``timeout_ms``. A slow
        disk delays all of this. ``verifications`` are the tokens of transactions' first records, and
        ``transaction_version`` is the generation of transactions that markers belong to.
        """
        if required_acks not in (-1, 0, 1):
            error = errors.InvalidRequiredAcksError(f"acks can be 0, 1 or -1 (all), not {required_acks}")
            respond({topic_partition: failed_partition(topic_partition, error) for topic_partition in entries})
            return

        def append(partition: Partition, records: Buffer) -> LogAppendInfo:
            token = verifications.get(partition.topic_partition)
            return partition.append_records_to_leader(records, origin, required_acks, token, transaction_version)

        self.disk_queue.submit(self._append_records, timeout_ms, required_acks, entries, respond, append)

    def _append_records(
        self,
        timeout_ms: int,
        required_acks: int,
        entries: Mapping[TopicPartition, Buffer],
        respond: Callable[[dict[TopicPartition, PartitionResponse]], None],
        append: Callable[[Partition, Buffer], LogAppendInfo],
    ) -> None:
        responses: dict[TopicPartition, PartitionResponse] = {}
        pending: dict[TopicPartition, int] = {}
        for topic_partition, records in entries.items():
            try:
                info = append(self.get_partition_or_raise(topic_partition), records)
            except (errors.BrokerError, RecordValidationError) as error:
                responses[topic_partition] = failed = failed_partition(topic_partition, error)
                if not isinstance(error, _WITHOUT_LOG_START_OFFSET):
                    failed.log_start_offset = self._log_start_offset(topic_partition)
                continue
            self._changed[topic_partition] = None
            responses[topic_partition] = PartitionResponse(
                index=topic_partition.partition,
                base_offset=info.first_or_last_offset_of_first_batch,
                log_append_time_ms=info.log_append_time,
                log_start_offset=info.log_start_offset,
            )
            pending[topic_partition] = info.last_offset + 1
        if required_acks == -1 and pending:
            operation = DelayedProduce(timeout_ms, self, responses, pending, respond)
            self._delayed_produces.try_complete_else_watch(operation, pending)
        else:
            respond(responses)
        self.complete_delayed()

    def _log_start_offset(self, topic_partition: TopicPartition) -> int:
        """Return the start of the log if this broker leads the partition, else -1."""
        partition = self._partitions.get(topic_partition)
        if partition is None or partition.log is None or not partition.is_leader:
            return -1
        return partition.log.log_start_offset

    # --- reading -----------------------------------------------------------------------------------------------------

    def fetch_messages(
        self,
        params: FetchParams,
        fetches: Sequence[PartitionFetch],
        respond: Callable[[list[tuple[PartitionFetch, FetchPartitionData]]], None],
    ) -> None:
        """Read for a consumer or a follower; call ``respond`` when ``min_bytes`` are available or time is up.

        A follower's fetch shows its progress, which can move the high watermark.
        """
        results = self.read_from_log(params, fetches, update=True)
        if params.max_wait_ms <= 0 or not fetches or self._is_enough(params, results):
            respond(results)
        else:
            operation = DelayedFetch(params, results, self, respond)
            keys: list[Hashable] = [fetch.topic_partition for fetch in fetches]
            if params.is_from_follower:
                keys.append(params.replica_id)
            self._delayed_fetches.try_complete_else_watch(operation, keys)
        self.complete_delayed()

    @staticmethod
    def _is_enough(params: FetchParams, results: list[tuple[PartitionFetch, FetchPartitionData]]) -> bool:
        size = 0
        for _, data in results:
            if data.error_code or data.diverging_epoch is not None or data.preferred_read_replica is not None:
                return True
            size += data.size_in_bytes
        return size >= params.min_bytes

    def read_from_log(
        self, params: FetchParams, fetches: Sequence[PartitionFetch], *, update: bool
    ) -> list[tuple[PartitionFetch, FetchPartitionData]]:
        """Read what is available, up to ``max_bytes`` in total.

        The first batch is returned even if it is larger (KIP-74).
        """
        left = params.max_bytes
        min_one_message = not params.hard_max_bytes
        results = []
        for fetch in fetches:
            data = self._read(params, fetch, min(left, fetch.max_bytes), min_one_message=min_one_message, update=update)
            size = data.size_in_bytes
            if size:
                min_one_message = False
                left = max(0, left - size)
            results.append((fetch, data))
        return results

    def _read(
        self, params: FetchParams, fetch: PartitionFetch, max_bytes: int, *, min_one_message: bool, update: bool
    ) -> FetchPartitionData:
        try:
            partition = self.get_partition_or_raise(fetch.topic_partition)
            # The topic was deleted and recreated: the request is for the old one.
            if fetch.topic_id is not partition.topic_id and ZERO_UUID != fetch.topic_id != partition.topic_id:
                raise errors.UnknownTopicIdError(
                    f"{fetch.topic_partition} has topic id {partition.topic_id}, not {fetch.topic_id}"
                )
            if self.is_rack_aware and params.rack_id is not None:
                preferred = partition.find_preferred_read_replica(params.rack_id, fetch.fetch_offset)
                if preferred is not None:
                    snapshot = partition.local_log_or_raise()
                    return FetchPartitionData(
                        0,
                        snapshot.high_watermark,
                        snapshot.last_stable_offset,
                        snapshot.log_start_offset,
                        preferred_read_replica=preferred,
                    )
            return partition.fetch_records(params, fetch, max_bytes, min_one_message=min_one_message, update=update)
        except errors.BrokerError as error:
            return FetchPartitionData(error.code)

    # --- deleting ----------------------------------------------------------------------------------------------------

    def delete_records(
        self,
        timeout_ms: int,
        offsets: Mapping[TopicPartition, int],
        respond: Callable[[dict[TopicPartition, DeleteRecordsResult]], None],
        *,
        is_internal: bool = False,
    ) -> None:
        """Raise the starts of logs to ``offsets`` (-1: the high watermark); respond when all replicas have done so.

        Only brokers themselves may do so for internal topics (``is_internal``).
        """
        results: dict[TopicPartition, DeleteRecordsResult] = {}
        for topic_partition, offset in offsets.items():
            try:
                if topic_names.is_internal(topic_partition.topic) and not is_internal:
                    raise errors.InvalidTopicError(f"records of {topic_partition.topic} cannot be deleted")
                partition = self.get_partition_or_raise(topic_partition)
                low_watermark = partition.delete_records_on_leader(offset)
            except errors.BrokerError as error:
                results[topic_partition] = DeleteRecordsResult(-1, error.code)
            else:
                requested = partition.local_log_or_raise().high_watermark if offset < 0 else offset
                results[topic_partition] = DeleteRecordsResult(low_watermark, 0, requested)
                self._changed[topic_partition] = None
        operation = DelayedDeleteRecords(timeout_ms, self, results, respond)
        self._delayed_delete_records.try_complete_else_watch(operation, offsets)
        self.complete_delayed()

    # --- what waits --------------------------------------------------------------------------------------------------

    def partition_changed(self, topic_partition: TopicPartition) -> None:
        """Make the next ``complete_delayed`` check the operations that wait for a partition."""
        self._changed[topic_partition] = None

    def complete_delayed(self) -> None:
        """Complete the waiting operations that recent changes allow to complete."""
        changed = self._changed
        if self._completing or not changed:
            return
        self._completing = True
        try:
            while changed:
                topic_partition, _ = changed.popitem()
                self._delayed_produces.check_and_complete(topic_partition)
                self._delayed_fetches.check_and_complete(topic_partition)
                self.delayed_share_fetches.check_and_complete(topic_partition)
                self._delayed_delete_records.check_and_complete(topic_partition)
        finally:
            self._completing = False

    def end_waits_of_followers(self, broker_ids: Iterable[int]) -> None:
        """Answer the waiting fetches of followers, so that their next fetches include new partitions.

        In Kafka a new partition waits until the follower's fetch of other partitions ends, half a second at most.
        """
        for broker_id in broker_ids:
            self._delayed_fetches.check_and_complete(broker_id)


def failed_partition(
    topic_partition: TopicPartition, error: errors.BrokerError | RecordValidationError
) -> PartitionResponse:
    """Return the response for a batch that was not appended, perhaps because some of its records are invalid."""
    cause, record_errors = (
        (error.error, error.record_errors) if isinstance(error, RecordValidationError) else (error, [])
    )
    return PartitionResponse(
        index=topic_partition.partition,
        error_code=cause.code,
        base_offset=-1,
        record_errors=[
            ProduceResponse.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in record_errors
        ],
        # The client gets the text of an expected error. The text of a bug in the broker goes only to the log.
        error_message=None if isinstance(cause, errors.UnknownServerError) else str(cause),
    )
