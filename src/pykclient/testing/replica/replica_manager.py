"""All replicas of a broker: appends, reads and leadership (Java: ReplicaManager)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from pykclient import topic_names
from pykclient.errors import (
    BrokerError,
    CorruptRecordError,
    InvalidRequiredAcksError,
    InvalidTopicError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
    UnknownServerError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.produce import ProduceResponse
from pykclient.protocol.wire import ZERO_UUID
from pykclient.testing import broker_state
from pykclient.testing.delayed_operation import DelayedOperationPurgatory
from pykclient.testing.log.log_types import AppendOrigin
from pykclient.testing.log.log_validator import RecordValidationError
from pykclient.testing.replica.alter_partition_manager import AlterPartitionManager
from pykclient.testing.replica.delayed_delete_records import DelayedDeleteRecords, DeleteRecordsResult
from pykclient.testing.replica.delayed_fetch import DelayedFetch
from pykclient.testing.replica.delayed_produce import DelayedProduce
from pykclient.testing.replica.disk_queue import DiskQueue
from pykclient.testing.replica.fetch_params import FetchParams, FetchPartitionData, PartitionFetch
from pykclient.testing.replica.fetch_session import FetchManager
from pykclient.testing.replica.partition import Partition
from pykclient.testing.replica.replica_fetcher_manager import ReplicaFetcherManager
from pykclient.testing.replica.replica_selector import ReplicaSelector, replica_selector
from pykclient.testing.replica.replica_state_changes import ReplicaStateChanges

if TYPE_CHECKING:
    from pykclient.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
    from pykclient.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
    from pykclient.record.record_batch import Buffer
    from pykclient.testing.broker import Broker
    from pykclient.testing.event_loop import TimerHandle
    from pykclient.testing.log.producer_state_entry import VerificationState
    from pykclient.testing.log.unified_log import UnifiedLog
    from pykclient.types import TopicPartition

_FIRST_FETCH_WITH_DIVERGING_EPOCH: Final = 12


_NO_VERIFICATIONS: Final[Mapping[TopicPartition, VerificationState | None]] = {}

#: With all other errors of an append, the response contains the log's start.
_WITHOUT_LOG_START_OFFSET: Final = (
    CorruptRecordError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)

PartitionResponse = ProduceResponse.PartitionProduceResponse


class ReplicaManager:
    """The partitions of a broker by name, the operations that wait for them, and the fetchers of its followers.

    An append or a fetch can complete waiting operations. They are checked after the current request is done with all
    its partitions (``complete_delayed``), so that a fetch gets everything that one produce request wrote. Thread: loop.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._loop = broker.loop
        self.log = broker.log_context.logger(__name__)
        self.broker_id = broker.id
        config = broker.config
        #: The epoch of the last known controller.
        self.controller_epoch = 0
        self.replica_lag_time_max_ms = config.get_int("replica.lag.time.max.ms")
        self._checkpoint_interval_ms = config.get_int("replica.high.watermark.checkpoint.interval.ms")
        self.replica_selector: ReplicaSelector | None = replica_selector(config["replica.selector.class"])
        newest_fetch = broker.cluster.profile.max_version(ApiKeys.FETCH) or 0
        #: Before Kafka 2.7, followers requested the ends of epochs.
        self.truncates_on_fetch: bool = newest_fetch >= _FIRST_FETCH_WITH_DIVERGING_EPOCH
        self._partitions: dict[TopicPartition, Partition] = {}
        self.fetch_manager = FetchManager(broker, config.get_int("max.incremental.fetch.session.cache.slots"))
        self.alter_partition_manager = AlterPartitionManager(broker)
        self.replica_fetcher_manager = ReplicaFetcherManager(broker, self)
        self.disk_queue = DiskQueue(broker)
        self._state_changes = ReplicaStateChanges(broker, self, self._partitions)
        self._delayed_produces = DelayedOperationPurgatory(broker)
        self._delayed_fetches = DelayedOperationPurgatory(broker)
        self.delayed_share_fetches = DelayedOperationPurgatory(broker)
        self._delayed_delete_records = DelayedOperationPurgatory(broker)
        self._changed: dict[TopicPartition, None] = {}
        self._completing = False
        self._timers: dict[str, TimerHandle] = {}

    # --- life --------------------------------------------------------------------------------------------------------

    def startup(self) -> None:
        self._later("isr-expiration", max(1, self.replica_lag_time_max_ms // 2), self._maybe_shrink_isrs)
        self._later("highwatermark-checkpoint", self._checkpoint_interval_ms, self._checkpoint_periodically)

    def shutdown(self) -> None:
        """Stop everything. Save the high watermarks unless the broker was killed."""
        self.replica_fetcher_manager.shutdown()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for purgatory in (
            self._delayed_produces,
            self._delayed_fetches,
            self.delayed_share_fetches,
            self._delayed_delete_records,
        ):
            purgatory.shutdown()
        self.disk_queue.clear()
        if self._broker.state == broker_state.SHUTTING_DOWN:
            self.checkpoint_high_watermarks()

    def _later(self, name: str, delay_ms: int, callback: Callable[[], None]) -> None:
        self._timers[name] = self._broker.call_later(delay_ms, callback)

    def _maybe_shrink_isrs(self) -> None:
        self._later("isr-expiration", max(1, self.replica_lag_time_max_ms // 2), self._maybe_shrink_isrs)
        for partition in self._partitions.values():
            if partition.is_leader:
                partition.maybe_shrink_isr()

    def _checkpoint_periodically(self) -> None:
        self._later("highwatermark-checkpoint", self._checkpoint_interval_ms, self._checkpoint_periodically)
        self.checkpoint_high_watermarks()

    def checkpoint_high_watermarks(self) -> None:
        """Save the high watermarks for the next start."""
        if not self._broker.disk.offline:
            checkpoint = self._broker.disk.high_watermarks
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
        return self._broker.metadata_cache.alive_broker(broker_id) is not None

    def racks(self) -> dict[int, str | None]:
        """Return the racks of the live brokers."""
        return {node.id: node.rack for node in self._broker.metadata_cache.alive_brokers()}

    def get_or_create_log(self, topic_partition: TopicPartition, topic_id: UUID) -> UnifiedLog:
        """Return the log, with the high watermark that was last saved.

        Raises:
            KafkaStorageError: the disk failed.
        """
        log = self._broker.log_manager.get_or_create_log(topic_partition, topic_id)
        log.update_high_watermark(self._broker.disk.high_watermarks.get(topic_partition, 0))
        return log

    # --- finding them ------------------------------------------------------------------------------------------------

    def partition(self, topic_partition: TopicPartition) -> Partition | None:
        """Return the broker's replica, or None if it has none."""
        return self._partitions.get(topic_partition)

    def get_partition_or_error(self, topic_partition: TopicPartition) -> tuple[Partition | None, int]:
        """Return the replica, or the error code for the response."""
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            return partition, 0
        if self._broker.metadata_cache.partition_info(topic_partition) is not None:
            return None, NotLeaderOrFollowerError.code
        return None, UnknownTopicOrPartitionError.code

    def get_partition_or_raise(self, topic_partition: TopicPartition) -> Partition:
        """Return the replica.

        Raises:
            KafkaStorageError: its disk is offline.
            NotLeaderOrFollowerError: other brokers have the partition.
            UnknownTopicOrPartitionError: no known broker has the partition.
        """
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            if self._broker.disk.offline:
                raise KafkaStorageError(f"the log of {topic_partition} is on a disk that is offline")
            return partition
        if self._broker.metadata_cache.partition_info(topic_partition) is not None:
            raise NotLeaderOrFollowerError(f"broker {self.broker_id} has no replica of {topic_partition}")
        raise UnknownTopicOrPartitionError(f"broker {self.broker_id} knows of no {topic_partition}")

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of a topic, which LEADER_AND_ISR may have announced before UPDATE_METADATA."""
        name = self._broker.metadata_cache.topic_name(topic_id)
        return self._state_changes.topic_name(topic_id) if name is None else name

    def current_leader(self, topic_partition: TopicPartition) -> tuple[int, int]:
        """Return the id and epoch of the leader, as far as this broker knows; -1 for each that is unknown."""
        partition = self._partitions.get(topic_partition)
        if partition is not None and partition.leader_replica_id is not None:
            return partition.leader_replica_id, partition.leader_epoch
        info = self._broker.metadata_cache.partition_info(topic_partition)
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
        """Append to partitions that this broker leads, and call ``respond`` when the records are as safe as required.

        ``required_acks``: 0 and 1 mean the leader's log, -1 means all in-sync replicas, within ``timeout_ms``. A slow
        disk delays all of this. ``verifications`` are the tokens of transactions' first records, and
        ``transaction_version`` is the generation of transactions that markers belong to.
        """
        if required_acks not in (-1, 0, 1):
            error = InvalidRequiredAcksError(f"acks can be 0, 1 or -1 (all), not {required_acks}")
            respond({topic_partition: _failed(topic_partition, error) for topic_partition in entries})
            return
        self.disk_queue.submit(
            self._append_records,
            timeout_ms,
            required_acks,
            entries,
            respond,
            origin,
            verifications,
            transaction_version,
        )

    def _append_records(
        self,
        timeout_ms: int,
        required_acks: int,
        entries: Mapping[TopicPartition, Buffer],
        respond: Callable[[dict[TopicPartition, PartitionResponse]], None],
        origin: str,
        verifications: Mapping[TopicPartition, VerificationState | None],
        transaction_version: int,
    ) -> None:
        responses: dict[TopicPartition, PartitionResponse] = {}
        pending: dict[TopicPartition, int] = {}
        for topic_partition, records in entries.items():
            try:
                partition = self.get_partition_or_raise(topic_partition)
                info = partition.append_records_to_leader(
                    records, origin, required_acks, verifications.get(topic_partition), transaction_version
                )
            except BrokerError as error:
                responses[topic_partition] = failed = _failed(topic_partition, error)
                if not isinstance(error, _WITHOUT_LOG_START_OFFSET):
                    failed.log_start_offset = self._log_start_offset(topic_partition)
                continue
            except RecordValidationError as error:
                responses[topic_partition] = refused = _refused(topic_partition, error)
                refused.log_start_offset = self._log_start_offset(topic_partition)
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
                raise UnknownTopicIdError(
                    f"{fetch.topic_partition} has topic id {partition.topic_id}, not {fetch.topic_id}"
                )
            if self.replica_selector is not None and params.client_metadata is not None:
                preferred = partition.find_preferred_read_replica(params.client_metadata, fetch.fetch_offset)
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
        except BrokerError as error:
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
                    raise InvalidTopicError(f"records of {topic_partition.topic} cannot be deleted")
                partition = self.get_partition_or_raise(topic_partition)
                low_watermark = partition.delete_records_on_leader(offset)
            except BrokerError as error:
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

    # --- leadership --------------------------------------------------------------------------------------------------

    def check_controller(self, controller_id: int, controller_epoch: int, broker_epoch: int) -> None:
        """Fence requests of old controllers, and record the controller's epoch.

        Raises:
            StaleBrokerEpochError: the request is meant for an earlier registration of this broker.
            ControllerMovedError: there is a newer controller.
        """
        self._state_changes.check_controller(controller_id, controller_epoch, broker_epoch)

    def check_order(self, controller_epoch: int, broker_epoch: int, correlation_id: int) -> None:
        """Fence requests of the controller that its later requests have overtaken.

        Raises:
            ControllerMovedError: a later request was received first.
        """
        self._state_changes.check_order(controller_epoch, broker_epoch, correlation_id)

    def become_leader_or_follower(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        """Handle LEADER_AND_ISR: lead, follow, or change the ISR."""
        response = self._state_changes.become_leader_or_follower(request)
        self.complete_delayed()
        return response

    def stop_replicas(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Handle STOP_REPLICA: stop following, or delete."""
        response = self._state_changes.stop_replicas(request)
        self.complete_delayed()
        return response


def _failed(topic_partition: TopicPartition, error: BrokerError) -> PartitionResponse:
    # The client gets the text of an expected error. The text of a bug in the broker goes only to the log.
    message = None if isinstance(error, UnknownServerError) else str(error)
    return PartitionResponse(
        index=topic_partition.partition, error_code=error.code, base_offset=-1, error_message=message
    )


def _refused(topic_partition: TopicPartition, error: RecordValidationError) -> PartitionResponse:
    """Return the response for a batch of which some records are invalid; nothing was appended (KIP-467)."""
    cause = error.error
    return PartitionResponse(
        index=topic_partition.partition,
        error_code=cause.code,
        base_offset=-1,
        record_errors=[
            ProduceResponse.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in error.record_errors
        ],
        error_message=str(cause),
    )
