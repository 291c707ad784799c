"""A partition on one broker: its log, its leader, and the progress of its replicas (Java: Partition)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors import (
    FencedLeaderEpochError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    UnknownLeaderEpochError,
)
from pykclient.record.record_batch import NO_TIMESTAMP
from pykclient.testing.log.log_types import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    FetchIsolation,
    LogAppendInfo,
    OffsetAndEpoch,
    TimestampAndOffset,
    UnexpectedAppendOffsetError,
)
from pykclient.testing.replica.fetch_params import (
    NO_EPOCH,
    UNKNOWN_OFFSET,
    ClientMetadata,
    FetchParams,
    FetchPartitionData,
    PartitionFetch,
)
from pykclient.testing.replica.partition_isr import PartitionIsr
from pykclient.testing.replica.replica import Replica
from pykclient.testing.replica.replica_selector import ReplicaView

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.protocol.messages.leader_and_isr import LeaderAndIsrRequest
    from pykclient.record.record_batch import Buffer
    from pykclient.testing.log.producer_state_entry import VerificationState
    from pykclient.testing.log.unified_log import UnifiedLog
    from pykclient.testing.replica.replica_manager import ReplicaManager
    from pykclient.types import TopicPartition


class Partition(PartitionIsr):
    """One replica of a partition, leader or follower, according to the last LEADER_AND_ISR.

    A leader appends what clients send, learns the followers' progress from their fetches, moves the high watermark and
    asks the controller to change the ISR (``PartitionIsr``). After each request, the ``ReplicaManager`` checks the
    operations that wait for any of this. Thread: loop.
    """

    __slots__ = ("controller_epoch", "leader_replica_id", "replica_ids", "topic_id")

    def __init__(self, topic_partition: TopicPartition, topic_id: UUID, manager: ReplicaManager) -> None:
        super().__init__(topic_partition, manager)
        self.topic_id = topic_id
        self.controller_epoch = -1
        self.leader_replica_id: int | None = None
        self.replica_ids: tuple[int, ...] = ()

    # --- leader and follower ---------------------------------------------------------------------------------------

    def make_leader(self, state: LeaderAndIsrRequest.LeaderAndIsrPartitionState) -> bool:
        """Become the leader, or stay the leader with another ISR; return whether this broker is a new leader.

        Raises:
            KafkaStorageError: the disk failed.
            InconsistentTopicIdError: the log belongs to another topic.
        """
        if state.partition_epoch < self.partition_epoch or (
            self.is_leader and (state.leader_epoch, state.partition_epoch) == (self.leader_epoch, self.partition_epoch)
        ):
            return False
        log = self._create_log_if_not_exists()
        now_ms = self._manager.now_ms
        is_new_leader = not self.is_leader
        is_new_epoch = state.leader_epoch > self.leader_epoch
        # In an epoch that this broker missed, another broker may have led and made followers truncate records that this
        # broker believes they have. A stale offset would raise the high watermark to one that they have not reached.
        # Kafka's broker has this bug.
        knows_followers = not is_new_leader and state.leader_epoch <= self.leader_epoch + 1
        self._take_over(state)
        self.update_isr(frozenset(state.isr))
        self.is_leader = True
        if is_new_epoch:
            self.leader_epoch_start_offset = log.log_end_offset
            log.maybe_assign_epoch_start_offset(self.leader_epoch, log.log_end_offset)
            for replica in self.remote_replicas.values():
                replica.reset(
                    now_ms, log.log_end_offset, new_leader=not knows_followers, in_sync=replica.broker_id in self.isr
                )
        if self.maybe_increment_leader_hw():
            self._manager.partition_changed(self.topic_partition)
        return is_new_leader

    def make_follower(self, state: LeaderAndIsrRequest.LeaderAndIsrPartitionState) -> bool:
        """Become a follower; return whether the leader or its epoch is new.

        Raises:
            KafkaStorageError: the disk failed.
            InconsistentTopicIdError: the log belongs to another topic.
        """
        if state.partition_epoch < self.partition_epoch:
            return False
        self._create_log_if_not_exists()
        is_new = state.leader_epoch > self.leader_epoch or state.leader != self.leader_replica_id
        self._take_over(state)
        self.update_isr(frozenset())
        self.is_leader = False
        self.leader_epoch_start_offset = None
        return is_new

    def _take_over(self, state: LeaderAndIsrRequest.LeaderAndIsrPartitionState) -> None:
        self.controller_epoch = state.controller_epoch
        self.leader_replica_id = state.leader
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.replica_ids = tuple(state.replicas)
        followers = [id for id in state.replicas if id != self._manager.broker_id]
        known = self.remote_replicas
        self.remote_replicas = {id: known.get(id) or Replica(id) for id in followers}

    def _create_log_if_not_exists(self) -> UnifiedLog:
        if self.log is None:
            self.log = self._manager.get_or_create_log(self.topic_partition, self.topic_id)
        return self.log

    def delete(self) -> None:
        """Discard log and state: this broker no longer has a replica."""
        self.log = None
        self.is_leader = False
        self.leader_replica_id = None
        self.leader_epoch_start_offset = None
        self.remote_replicas = {}
        self.update_isr(frozenset())

    # --- who may ask -------------------------------------------------------------------------------------------------

    def local_log_or_raise(self) -> UnifiedLog:
        """Return the log.

        Raises:
            NotLeaderOrFollowerError: there is no replica here.
        """
        if self.log is None:
            raise NotLeaderOrFollowerError(f"broker {self._manager.broker_id} has no replica of {self.topic_partition}")
        return self.log

    def check_current_leader_epoch(self, epoch: int) -> None:
        """Compare the epoch of a request with this broker's.

        Raises:
            FencedLeaderEpochError: the requester's epoch is over.
            UnknownLeaderEpochError: this broker does not know the epoch yet.
        """
        if epoch == NO_EPOCH or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise FencedLeaderEpochError(
                f"leader epoch {epoch} of {self.topic_partition} is over, it is {self.leader_epoch}"
            )
        raise UnknownLeaderEpochError(
            f"leader epoch {epoch} of {self.topic_partition} is not known here yet, {self.leader_epoch} is"
        )

    def local_log_with_epoch_or_raise(self, epoch: int, *, require_leader: bool) -> UnifiedLog:
        """Return the log, if a requester in ``epoch`` may read it.

        Raises:
            FencedLeaderEpochError, UnknownLeaderEpochError: see ``check_current_leader_epoch``.
            NotLeaderOrFollowerError: there is no replica here, or it is a follower and the leader is required.
        """
        if epoch != NO_EPOCH and epoch != self.leader_epoch:
            self.check_current_leader_epoch(epoch)
        if self.log is None or (require_leader and not self.is_leader):
            role = "leader" if require_leader else "replica"
            raise NotLeaderOrFollowerError(
                f"broker {self._manager.broker_id} is no {role} of {self.topic_partition} in epoch {self.leader_epoch}"
            )
        return self.log

    # --- writing -----------------------------------------------------------------------------------------------------

    def start_transaction_verification(
        self, producer_id: int, producer_epoch: int, sequence: int, *, bumps_epoch: bool = False
    ) -> VerificationState | None:
        """Return a token for the first records of a transaction, see ``UnifiedLog``.

        Raises:
            NotLeaderOrFollowerError: another broker leads the partition.
            ConcurrentTransactionsError: the marker of the producer's last transaction has yet to arrive.
        """
        log = self.local_log_with_epoch_or_raise(NO_EPOCH, require_leader=True)
        return log.start_transaction_verification(producer_id, producer_epoch, sequence, bumps_epoch=bumps_epoch)

    def append_records_to_leader(
        self,
        records: Buffer,
        origin: str,
        required_acks: int,
        verification: VerificationState | None = None,
        transaction_version: int = 0,
    ) -> LogAppendInfo:
        """Append records from a client or a coordinator; see ``UnifiedLog.append_as_leader``.

        Raises:
            NotLeaderOrFollowerError: another broker leads the partition.
            NotEnoughReplicasError: acks=all, and the ISR is smaller than min.insync.replicas.
            BrokerError: the records are rejected, or the disk failed.
        """
        log = self.log
        if log is None or not self.is_leader:
            raise NotLeaderOrFollowerError(
                f"broker {self._manager.broker_id} does not lead {self.topic_partition} in epoch {self.leader_epoch}"
            )
        if required_acks == -1 and len(self.isr) < (needed := self.effective_min_isr()):
            raise NotEnoughReplicasError(
                f"{self.topic_partition} has in-sync replicas {sorted(self.isr)}, and min.insync.replicas is {needed}"
            )
        info = log.append_as_leader(records, self.leader_epoch, origin, verification, transaction_version)
        if len(self.state.maximal_isr) == 1:
            # Without followers nobody else must have the records; otherwise the followers' fetches raise the high
            # watermark.
            self.maybe_increment_leader_hw()
        return info

    def append_records_to_follower(self, records: Buffer, leader_epoch: int) -> LogAppendInfo | None:
        """Append records from the leader of ``leader_epoch``; return None if that epoch is over.

        Raises:
            UnexpectedAppendOffsetError, OffsetsOutOfOrderError: the records do not fit the log.
            BrokerError: the records are corrupt, or the disk failed.
        """
        log = self.log
        if self.is_leader or log is None or leader_epoch != self.leader_epoch:
            return None
        try:
            return log.append_as_follower(records, leader_epoch)
        except UnexpectedAppendOffsetError as error:
            if log.log_start_offset != log.log_end_offset or error.last_offset < log.log_end_offset:
                raise
            # The leader's log begins inside a batch, which DeleteRecords allows; but batches are only fetched as a
            # whole.
            log.truncate_fully_and_start_at(error.first_offset)
            return log.append_as_follower(records, leader_epoch)

    # --- reading -----------------------------------------------------------------------------------------------------

    def fetch_records(
        self, params: FetchParams, fetch: PartitionFetch, max_bytes: int, *, min_one_message: bool, update: bool
    ) -> FetchPartitionData:
        """Read for a follower or a consumer; with ``update``, record the follower's progress.

        Raises:
            BrokerError: this broker is not the leader, the epoch is fenced, the log does not have the offset ...
        """
        if not params.is_from_follower:
            require_leader = params.client_metadata is None
            log = self.local_log_with_epoch_or_raise(fetch.current_leader_epoch, require_leader=require_leader)
            return self._read_records(log, params, fetch, max_bytes, min_one_message=min_one_message)
        log = self.local_log_with_epoch_or_raise(fetch.current_leader_epoch, require_leader=True)
        replica = self.remote_replicas.get(params.replica_id)
        if replica is None:
            raise NotLeaderOrFollowerError(
                f"broker {params.replica_id} is no replica of {self.topic_partition} in leader epoch "
                f"{self.leader_epoch}, partition epoch {self.partition_epoch}"
            )
        data = self._read_records(log, params, fetch, max_bytes, min_one_message=min_one_message)
        if update and data.diverging_epoch is None:
            self.update_follower_fetch_state(replica, fetch.fetch_offset, fetch.log_start_offset, params.replica_epoch)
        return data

    def _read_records(
        self, log: UnifiedLog, params: FetchParams, fetch: PartitionFetch, max_bytes: int, *, min_one_message: bool
    ) -> FetchPartitionData:
        if fetch.last_fetched_epoch != NO_EPOCH:
            diverging = self._diverging_epoch(log, fetch)
            if diverging is not None:
                return FetchPartitionData(
                    0,
                    log.high_watermark,
                    log.last_stable_offset,
                    log.log_start_offset,
                    diverging_epoch=diverging,
                )
        # Before the read, so that a response never reports an end beyond the records that were read.
        high_watermark = log.high_watermark
        last_stable_offset = log.last_stable_offset
        offset = fetch.fetch_offset
        isolation = params.isolation
        if isolation == FetchIsolation.LOG_END:
            end = log.log_end_offset
        else:
            end = high_watermark if isolation == FetchIsolation.HIGH_WATERMARK else last_stable_offset
        if offset == end and offset >= log.log_start_offset and isolation != FetchIsolation.TXN_COMMITTED:
            return FetchPartitionData(0, high_watermark, last_stable_offset, log.log_start_offset)
        info = log.read(offset, max_bytes, isolation, min_one_message)
        # A reader that gets the first batch whole does not need the beginning of another one (KIP-74).
        empty = info.first_entry_incomplete and not params.hard_max_bytes
        return FetchPartitionData(
            0,
            high_watermark,
            last_stable_offset,
            log.log_start_offset,
            () if empty else info.records,
            0 if empty else info.size_in_bytes,
            info.aborted_transactions,
        )

    def _diverging_epoch(self, log: UnifiedLog, fetch: PartitionFetch) -> OffsetAndEpoch | None:
        """Return where the reader's log diverged from this one; None if it did not.

        Raises:
            OffsetOutOfRangeError: this log does not reach back that far.
        """
        if fetch.last_fetched_epoch == log.latest_epoch and fetch.fetch_offset <= log.log_end_offset:
            return None
        end = log.end_offset_for_epoch(fetch.last_fetched_epoch)
        if end is None:
            raise OffsetOutOfRangeError(
                f"{self.topic_partition} has nothing of leader epoch {fetch.last_fetched_epoch} or before, "
                f"its log begins at {log.log_start_offset}"
            )
        if end.leader_epoch < fetch.last_fetched_epoch or end.offset < fetch.fetch_offset:
            return end
        return None

    def end_offset(self, isolation: str) -> int:
        """Return the end of the readable part of the log, or the log's start if there is no log."""
        log = self.log
        if log is None:
            return UNKNOWN_OFFSET
        if isolation == FetchIsolation.LOG_END:
            return log.log_end_offset
        return log.high_watermark if isolation == FetchIsolation.HIGH_WATERMARK else log.last_stable_offset

    def find_preferred_read_replica(self, client: ClientMetadata, fetch_offset: int) -> int | None:
        """Return another broker that the consumer should read from; None if it is this one (KIP-392)."""
        selector = self._manager.replica_selector
        log = self.log
        if selector is None or not self.is_leader or log is None:
            return None
        now_ms = self._manager.now_ms
        racks = self._manager.racks()
        leader = ReplicaView(self._manager.broker_id, racks.get(self._manager.broker_id), log.log_end_offset, 0)
        replicas = [leader]
        for replica in self.remote_replicas.values():
            id = replica.broker_id
            if id in racks and id in self.isr and replica.log_start_offset <= fetch_offset <= replica.log_end_offset:
                lag_ms = now_ms - replica.last_caught_up_time_ms
                replicas.append(ReplicaView(id, racks[id], replica.log_end_offset, lag_ms))
        chosen = selector.select(client, leader, replicas)
        return None if chosen is None or chosen is leader else chosen.broker_id

    # --- questions about offsets -------------------------------------------------------------------------------------

    def last_offset_for_leader_epoch(
        self, current_leader_epoch: int, leader_epoch: int, *, fetch_only_from_leader: bool
    ) -> OffsetAndEpoch | None:
        """Return the end of ``leader_epoch``, or of the largest one below it; None if neither is known (KIP-320).

        Raises:
            FencedLeaderEpochError, UnknownLeaderEpochError, NotLeaderOrFollowerError: see
                ``local_log_with_epoch_or_raise``.
        """
        log = self.local_log_with_epoch_or_raise(current_leader_epoch, require_leader=fetch_only_from_leader)
        return log.end_offset_for_epoch(leader_epoch)

    def fetch_offset_for_timestamp(
        self, timestamp: int, isolation_level: int | None, current_leader_epoch: int, *, fetch_only_from_leader: bool
    ) -> TimestampAndOffset | None:
        """Return the first record at or after ``timestamp``, or None.

        A negative ``timestamp`` has a special meaning. Without an ``isolation_level`` the reader is a follower, which
        sees everything.

        Raises:
            OffsetNotAvailableError: a new leader's high watermark is behind the start of its epoch.
            FencedLeaderEpochError, UnknownLeaderEpochError, NotLeaderOrFollowerError: see
                ``local_log_with_epoch_or_raise``.
        """
        log = self.local_log_with_epoch_or_raise(current_leader_epoch, require_leader=fetch_only_from_leader)
        if isolation_level is None:
            end = log.log_end_offset
        else:
            end = log.last_stable_offset if isolation_level == 1 else log.high_watermark
        # A new leader learns from its followers' fetches what is committed. Until it knows everything that its
        # predecessor had committed, the end would seem to go back.
        behind = isolation_level is not None and (self.leader_epoch_start_offset or 0) > log.high_watermark
        if timestamp == LATEST_TIMESTAMP:
            found: TimestampAndOffset | None = TimestampAndOffset(NO_TIMESTAMP, end, self.leader_epoch)
        else:
            found = log.fetch_offset_by_timestamp(timestamp)
            if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
                return found
            if found is not None and found.offset < end:
                return found
            found = None
        if behind:
            raise OffsetNotAvailableError(
                f"{self.topic_partition} has a new leader, whose high watermark {log.high_watermark} has not reached "
                f"the start of its epoch, {self.leader_epoch_start_offset}"
            )
        return found

    def delete_records_on_leader(self, offset: int) -> int:
        """Raise the log's start to ``offset`` (-1: the high watermark); return the partition's new low watermark.

        Raises:
            NotLeaderOrFollowerError: another broker leads the partition.
            OffsetOutOfRangeError: ``offset`` is above the high watermark.
            PolicyViolationError: the topic is only compacted.
        """
        log = self.local_log_with_epoch_or_raise(NO_EPOCH, require_leader=True)
        if log.config.compact and not log.config.delete:
            raise PolicyViolationError(
                f"records of {self.topic_partition} cannot be deleted: its cleanup.policy is compact without delete"
            )
        wanted = log.high_watermark if offset == UNKNOWN_OFFSET else offset
        if wanted < 0 or wanted > log.high_watermark:
            raise OffsetOutOfRangeError(
                f"records of {self.topic_partition} before {wanted} cannot be deleted, the high watermark is "
                f"{log.high_watermark}"
            )
        log.maybe_increment_log_start_offset(wanted)
        return self.low_watermark()

    def low_watermark(self) -> int:
        """Return the lowest log start offset of all live replicas.

        Raises:
            NotLeaderOrFollowerError: another broker leads the partition.
        """
        log = self.local_log_with_epoch_or_raise(NO_EPOCH, require_leader=True)
        starts = [log.log_start_offset]
        starts += [
            replica.log_start_offset
            for replica in self.remote_replicas.values()
            if self._manager.is_alive(replica.broker_id)
        ]
        return min(starts)

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else f"follower of {self.leader_replica_id}"
        return (
            f"Partition({self.topic_partition}, {role} in epoch {self.leader_epoch}, {self.state}, "
            f"partition epoch {self.partition_epoch})"
        )
