"""A partition on one broker: its log, its leader, and its in-sync replicas (Java: Partition, Replica; KIP-497)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from pykclient import errors
from pykclient.log_context import PrefixLogger
from pykclient.network.client_request import ClientResponse, RequestBuilder
from pykclient.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from pykclient.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from pykclient.record.record_batch import NO_TIMESTAMP, Buffer
from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.coordination.znodes import RECOVERED, LeaderAndIsr
from pykclient.testing.inter_broker_requests import NodeToControllerChannelManager, grouped
from pykclient.testing.log import log_types
from pykclient.testing.log.broker_disk import DiskQueue
from pykclient.testing.log.producer_state_manager import VerificationState
from pykclient.testing.log.unified_log import UnifiedLog
from pykclient.testing.replica.fetch_session import (
    NO_EPOCH,
    UNKNOWN_OFFSET,
    FetchParams,
    FetchPartitionData,
    PartitionFetch,
)
from pykclient.types import TopicPartition

#: Earlier than all times of any clock.
_NEVER_MS: Final = -(1 << 62)


@dataclass(slots=True, eq=False)
class Replica:
    """The progress of a follower according to its fetches.

    A follower is caught up at the time of a fetch from the leader's end, or of a fetch from where the leader's end was
    at the previous fetch: it had read everything there was at that time. Thread: loop.
    """

    broker_id: int
    log_start_offset: int = UNKNOWN_OFFSET
    log_end_offset: int = UNKNOWN_OFFSET
    last_fetch_leader_log_end_offset: int = 0
    last_fetch_time_ms: int = _NEVER_MS
    last_caught_up_time_ms: int = _NEVER_MS
    broker_epoch: int = -1

    def update_fetch_state(
        self, fetch_offset: int, log_start_offset: int, now_ms: int, leader_end_offset: int, broker_epoch: int
    ) -> None:
        """Record a fetch."""
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_time_ms = max(self.last_caught_up_time_ms, now_ms)
        elif fetch_offset >= self.last_fetch_leader_log_end_offset:
            self.last_caught_up_time_ms = max(self.last_caught_up_time_ms, self.last_fetch_time_ms)
        self.log_start_offset = log_start_offset
        self.log_end_offset = fetch_offset
        self.last_fetch_leader_log_end_offset = leader_end_offset
        self.last_fetch_time_ms = now_ms
        self.broker_epoch = max(self.broker_epoch, broker_epoch)

    def reset(self, now_ms: int, leader_end_offset: int, *, new_leader: bool, in_sync: bool) -> None:
        """Start a new leader epoch. Members of the ISR get time to send a fetch.

        A new leader knows nothing about its followers yet; one that stays leader keeps what it knows.
        """
        caught_up_ms = now_ms if in_sync else _NEVER_MS
        if new_leader:
            self.log_start_offset = UNKNOWN_OFFSET
            self.log_end_offset = UNKNOWN_OFFSET
            self.last_fetch_leader_log_end_offset = UNKNOWN_OFFSET
            self.last_fetch_time_ms = _NEVER_MS
            self.broker_epoch = -1
        else:
            self.last_fetch_leader_log_end_offset = leader_end_offset
            self.last_fetch_time_ms = caught_up_ms
        self.last_caught_up_time_ms = caught_up_ms

    def is_caught_up(self, leader_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        """Return whether the follower is at the leader's end, or was within the last ``max_lag_ms``."""
        return leader_end_offset == self.log_end_offset or now_ms - self.last_caught_up_time_ms <= max_lag_ms

    def __repr__(self) -> str:
        return (
            f"Replica({self.broker_id}, offsets {self.log_start_offset}..{self.log_end_offset}, "
            f"caught up at {self.last_caught_up_time_ms})"
        )


class PartitionState(NamedTuple):
    """The state of a partition's ISR.

    ``isr`` is what the controller has confirmed, ``maximal_isr`` the largest one that it may have confirmed. A record
    is committed when all of ``maximal_isr`` have it: a replica that is being added counts immediately, one that is
    being removed counts until it is removed. So whichever of them is the next leader has the record. ``sent`` is the
    requested change, as long as the controller has not confirmed it; until then, no other one is requested.
    """

    isr: frozenset[int]
    maximal_isr: frozenset[int]
    sent: LeaderAndIsr | None = None


def _committed(isr: Iterable[int]) -> PartitionState:
    """Return the state with an ISR that the controller has confirmed."""
    confirmed = frozenset(isr)
    return PartitionState(confirmed, confirmed)


_RETRY_BACKOFF_MS = 50

_ERROR_UNKNOWN_SERVER = -1

#: Called with the new state or with an error code.
Listener = Callable[[LeaderAndIsr | None, int], None]


class AlterPartitionItem(NamedTuple):
    """A requested change. ``broker_epochs`` are those of the ISR's members, -1 where unknown (KIP-903)."""

    topic_partition: TopicPartition
    topic_id: UUID
    leader_and_isr: LeaderAndIsr
    broker_epochs: dict[int, int]
    listener: Listener


class AlterPartitionManager:
    """Collects the changes that a broker's partitions request.

    One request is in flight at a time; the next one contains all changes submitted meanwhile. Thread: loop.
    """

    def __init__(self, broker: BrokerContext, controller: NodeToControllerChannelManager) -> None:
        self._broker = broker
        self._controller = controller
        self._log = broker.log_context.logger(__name__)
        self._unsent: dict[TopicPartition, AlterPartitionItem] = {}
        self._inflight: dict[TopicPartition, AlterPartitionItem] = {}
        self._scheduled = False

    def submit(self, item: AlterPartitionItem) -> bool:
        """Request a change; return False if a request for this partition is in flight already."""
        topic_partition = item.topic_partition
        if topic_partition in self._unsent or topic_partition in self._inflight:
            return False
        self._unsent[topic_partition] = item
        self._send_soon()
        return True

    def _send_soon(self) -> None:
        # Delayed, because one fetch can add a follower to many ISRs, which then change in one request.
        if self._unsent and not self._inflight and not self._scheduled:
            self._scheduled = True
            self._broker.call_soon(self._send)

    def _send(self) -> None:
        self._scheduled = False
        self._inflight, self._unsent = self._unsent, {}
        request = self._request(self._inflight)
        self._controller.send_request(RequestBuilder(request), self._on_complete, self._on_timeout)

    def _request(self, items: dict[TopicPartition, AlterPartitionItem]) -> AlterPartitionRequest:
        changes = []
        for (_, index), item in items.items():
            wanted = item.leader_and_isr
            members = [
                AlterPartitionRequest.BrokerState(broker_id=id, broker_epoch=item.broker_epochs.get(id, -1))
                for id in wanted.isr
            ]
            partition = AlterPartitionRequest.PartitionData(
                partition_index=index,
                leader_epoch=wanted.leader_epoch,
                new_isr_with_epochs=members,
                partition_epoch=wanted.partition_epoch,
            )
            changes.append((item.topic_id, partition))
        topics = [
            AlterPartitionRequest.TopicData(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in grouped(changes).items()
        ]
        return AlterPartitionRequest(broker_id=self._broker.id, broker_epoch=self._broker.epoch, topics=topics)

    def _on_timeout(self) -> None:
        self._retry("the controller was not reached in time")

    def _on_complete(self, response: ClientResponse) -> None:
        body = response.response_body
        if not isinstance(body, AlterPartitionResponse):
            self._retry(f"no answer: {response}")
        elif body.error_code:
            # For example STALE_BROKER_EPOCH: this broker is about to register again, and will know its epoch then.
            self._retry(str(errors.for_code(body.error_code)))
        else:
            self._handle(body)

    def _retry(self, reason: str) -> None:
        self._log.debug("Could not change ISRs, trying again in %d ms: %s", _RETRY_BACKOFF_MS, reason)
        self._unsent, self._inflight = {**self._inflight, **self._unsent}, {}
        self._scheduled = True
        self._broker.call_later(_RETRY_BACKOFF_MS, self._send)

    def _handle(self, body: AlterPartitionResponse) -> None:
        items, self._inflight = self._inflight, {}
        answers = {
            (topic.topic_id, partition.partition_index): partition
            for topic in body.topics
            for partition in topic.partitions
        }
        for item in items.values():
            answer = answers.get((item.topic_id, item.topic_partition.partition))
            if answer is None:
                item.listener(None, _ERROR_UNKNOWN_SERVER)
            elif answer.error_code:
                item.listener(None, answer.error_code)
            else:
                state = LeaderAndIsr(
                    answer.leader_id, answer.leader_epoch, tuple(answer.isr), RECOVERED, answer.partition_epoch
                )
                item.listener(state, 0)
        self._send_soon()


def is_rack_aware(class_name: str | None) -> bool:
    """Return whether ``replica.selector.class``, with or without its Java package, lets consumers read followers.

    Raises:
        ConfigError: the class is unknown.
    """
    simple_name = (class_name or "LeaderSelector").rpartition(".")[2]
    if simple_name not in ("RackAwareReplicaSelector", "LeaderSelector"):
        raise errors.ConfigError(
            f"replica.selector.class {class_name!r} is not known; RackAwareReplicaSelector and LeaderSelector are",
            "replica.selector.class",
        )
    return simple_name == "RackAwareReplicaSelector"


#: The controller has newer state, and will send it with LEADER_AND_ISR; until then the change stays pending.
_AWAIT_CONTROLLER: Final = frozenset(
    error.code
    for error in (
        errors.UnknownTopicOrPartitionError,
        errors.InvalidRequestError,
        errors.FencedLeaderEpochError,
        errors.InvalidUpdateVersionError,
        errors.UnknownTopicIdError,
        errors.NewLeaderElectedError,
    )
)

#: The controller did not change anything and will not.
_REFUSED: Final = frozenset({errors.OperationNotAttemptedError.code, errors.IneligibleReplicaError.code})


class ReplicaHost(Protocol):
    """The part of a broker's ``ReplicaManager`` that its partitions and their fetchers use. Thread: loop."""

    broker_id: int
    log: PrefixLogger
    replica_lag_time_max_ms: int
    alter_partition_manager: AlterPartitionManager
    disk_queue: DiskQueue
    truncates_on_fetch: bool

    @property
    def now_ms(self) -> int: ...
    @property
    def broker_epoch(self) -> int: ...

    def is_alive(self, broker_id: int) -> bool:
        """Return whether a broker is alive, according to the last metadata."""

    def racks(self) -> dict[int, str | None]:
        """Return the racks of the live brokers."""

    def partition(self, topic_partition: TopicPartition) -> Partition | None:
        """Return the broker's replica, or None if it has none."""

    def get_or_create_log(self, topic_partition: TopicPartition, topic_id: UUID) -> UnifiedLog:
        """Return the log of a partition."""

    def partition_changed(self, topic_partition: TopicPartition) -> None:
        """Make the next ``complete_delayed`` check the operations that wait for a partition."""

    def complete_delayed(self) -> None:
        """Complete the waiting operations that recent changes allow to complete."""


class Partition:
    """One replica of a partition, leader or follower, according to the last LEADER_AND_ISR.

    A leader appends what clients send, learns the followers' progress from their fetches, moves the high watermark and
    asks the controller to change the ISR. After each request, the ``ReplicaManager`` checks the operations that wait
    for any of this. Thread: loop.
    """

    def __init__(self, topic_partition: TopicPartition, topic_id: UUID, manager: ReplicaHost) -> None:
        self._manager = manager
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log: UnifiedLog | None = None
        self.is_leader = False
        self.leader_epoch = -1
        #: The end of the log when this broker became leader; None for a follower.
        self.leader_epoch_start_offset: int | None = None
        self.partition_epoch = -1
        self.leader_replica_id: int | None = None
        self.remote_replicas: dict[int, Replica] = {}
        self.state = _committed(())

    @property
    def isr(self) -> frozenset[int]:
        """The in-sync replicas that the controller has confirmed; empty on a follower."""
        return self.state.isr

    @property
    def high_watermark(self) -> int:
        """The end of what consumers see; -1 without a log."""
        return -1 if self.log is None else self.log.high_watermark

    # --- min.insync.replicas and acks=all ----------------------------------------------------------------------------

    def effective_min_isr(self) -> int:
        """``min.insync.replicas``, or the number of replicas if that is less."""
        log = self.log
        minimum: int = 1 if log is None else log.config.min_in_sync_replicas
        return min(minimum, len(self.remote_replicas) + 1)

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.state.isr) < self.effective_min_isr()

    def check_enough_replicas_reach_offset(self, required_offset: int) -> tuple[bool, int]:
        """Check whether acks=all is fulfilled for records that end before ``required_offset``.

        Return whether the wait is over, and the code of an error or 0.
        """
        log = self.log
        if not self.is_leader or log is None:
            return False, 6  # NOT_LEADER_OR_FOLLOWER
        if log.high_watermark < required_offset:
            return False, 0
        if len(self.state.maximal_isr) < self.effective_min_isr():
            return True, 20  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return True, 0

    # --- where the followers are -------------------------------------------------------------------------------------

    def update_follower_fetch_state(
        self, replica: Replica, fetch_offset: int, log_start_offset: int, broker_epoch: int
    ) -> None:
        """Record a follower's fetch: it has everything before ``fetch_offset``."""
        log = self.log
        if log is None:
            return
        previous_end = replica.log_end_offset
        previous_start = replica.log_start_offset
        replica.update_fetch_state(
            fetch_offset, log_start_offset, self._manager.now_ms, log.log_end_offset, broker_epoch
        )
        state = self.state
        if replica.broker_id not in state.isr:
            self._maybe_expand_isr(replica)
        if (previous_end != fetch_offset and self.maybe_increment_leader_hw()) or previous_start != log_start_offset:
            self._manager.partition_changed(self.topic_partition)

    def maybe_increment_leader_hw(self) -> bool:
        """Raise the high watermark to the offset that all relevant replicas have; return whether it rose.

        These are all replicas in the maximal ISR, and those about to join it, which might never catch up otherwise.
        Below min.insync.replicas the high watermark does not move (KAFKA-15583).
        """
        log = self.log
        if log is None or not self.is_leader:
            return False
        state = self.state
        end = log.log_end_offset
        new_high_watermark = end
        now_ms = self._manager.now_ms
        max_lag_ms = self._manager.replica_lag_time_max_ms
        for id, replica in self.remote_replicas.items():
            if replica.log_end_offset < new_high_watermark and (
                id in state.maximal_isr or replica.is_caught_up(end, now_ms, max_lag_ms)
            ):
                new_high_watermark = replica.log_end_offset
        if new_high_watermark <= log.high_watermark or self.is_under_min_isr:
            return False
        log.update_high_watermark(new_high_watermark)
        return True

    # --- in-sync replicas --------------------------------------------------------------------------------------------

    def _maybe_expand_isr(self, replica: Replica) -> None:
        """Ask to add a follower that has all committed records, and all records from before this leader's epoch."""
        log = self.log
        start = self.leader_epoch_start_offset
        if log is None or start is None or self.state.sent is not None:
            return
        if replica.log_end_offset < log.high_watermark or replica.log_end_offset < start:
            return
        self._request((*sorted(self.state.isr), replica.broker_id))

    def maybe_shrink_isr(self) -> None:
        """Ask to remove followers that were not caught up for ``replica.lag.time.max.ms``."""
        log = self.log
        if not self.is_leader or log is None or self.state.sent is not None:
            return
        now_ms = self._manager.now_ms
        max_lag_ms = self._manager.replica_lag_time_max_ms
        end = log.log_end_offset
        late = [
            id
            for id in self.state.isr
            if (replica := self.remote_replicas.get(id)) is not None
            and not replica.is_caught_up(end, now_ms, max_lag_ms)
        ]
        if not late:
            return
        self._manager.log.info("%s: %s lag behind %d", self.topic_partition, sorted(late), end)
        self._request(tuple(id for id in sorted(self.state.isr) if id not in late))

    def _request(self, isr: tuple[int, ...]) -> None:
        """Request another ISR."""
        wanted = LeaderAndIsr(self._manager.broker_id, self.leader_epoch, isr, RECOVERED, self.partition_epoch)
        confirmed = self.state.isr
        self.state = PartitionState(confirmed, confirmed | {*isr}, wanted)
        self._submit(self.state, wanted)

    def _submit(self, proposed: PartitionState, wanted: LeaderAndIsr) -> None:
        def listener(answer: LeaderAndIsr | None, error_code: int) -> None:
            self._handle_alter_partition(proposed, wanted, answer, error_code)

        epochs = {id: replica.broker_epoch for id, replica in self.remote_replicas.items()}
        epochs[self._manager.broker_id] = self._manager.broker_epoch
        item = AlterPartitionItem(self.topic_partition, self.topic_id, wanted, epochs, listener)
        if not self._manager.alter_partition_manager.submit(item):
            # A request from before the last LEADER_AND_ISR is still in flight.
            self.state = _committed(proposed.isr)

    def _handle_alter_partition(
        self, proposed: PartitionState, wanted: LeaderAndIsr, answer: LeaderAndIsr | None, error_code: int
    ) -> None:
        if answer is not None:
            # LEADER_AND_ISR may have arrived first, and may have been made before or after this change; the larger
            # epoch is the later state. The epochs are equal if a change whose response was lost is requested again.
            oldest = self.partition_epoch + (self.state is not proposed)
            if answer.leader_epoch != self.leader_epoch or answer.partition_epoch < oldest:
                return
            self.state = _committed(answer.isr)
            self.partition_epoch = answer.partition_epoch
            self._manager.log.info("%s: in-sync replicas are %s", self.topic_partition, sorted(answer.isr))
            self.maybe_increment_leader_hw()
            self._manager.partition_changed(self.topic_partition)
            self._manager.complete_delayed()
        elif self.state is not proposed:
            return
        elif error_code in _REFUSED:
            self.state = _committed(proposed.isr)
        elif error_code not in _AWAIT_CONTROLLER:
            self._manager.log.debug("%s: %s", self.topic_partition, errors.for_code(error_code))
            self._submit(proposed, wanted)

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
        self.state = _committed(state.isr)
        self.is_leader = True
        if is_new_epoch:
            self.leader_epoch_start_offset = log.log_end_offset
            log.leader_epoch_cache.assign(self.leader_epoch, log.log_end_offset)
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
        self.state = _committed(())
        self.is_leader = False
        self.leader_epoch_start_offset = None
        return is_new

    def _take_over(self, state: LeaderAndIsrRequest.LeaderAndIsrPartitionState) -> None:
        self.leader_replica_id = state.leader
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
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
        self.state = _committed(())

    # --- epoch checks ------------------------------------------------------------------------------------------------

    def local_log_or_raise(self) -> UnifiedLog:
        """Return the log.

        Raises:
            NotLeaderOrFollowerError: there is no replica here.
        """
        return self.local_log_with_epoch_or_raise(NO_EPOCH, require_leader=False)

    def local_log_with_epoch_or_raise(self, epoch: int, *, require_leader: bool) -> UnifiedLog:
        """Return the log, if a requester in ``epoch`` may read it.

        Raises:
            FencedLeaderEpochError: the requester's epoch is over.
            UnknownLeaderEpochError: this broker does not know the epoch yet.
            NotLeaderOrFollowerError: there is no replica here, or it is a follower and the leader is required.
        """
        if NO_EPOCH != epoch < self.leader_epoch:
            raise errors.FencedLeaderEpochError(
                f"leader epoch {epoch} of {self.topic_partition} is over, it is {self.leader_epoch}"
            )
        if epoch > self.leader_epoch:
            raise errors.UnknownLeaderEpochError(
                f"leader epoch {epoch} of {self.topic_partition} is not known here yet, {self.leader_epoch} is"
            )
        if self.log is None or (require_leader and not self.is_leader):
            role = "leader" if require_leader else "replica"
            raise errors.NotLeaderOrFollowerError(
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

    def validate_appendable(self, required_acks: int) -> UnifiedLog:
        """Return the log if it takes records now.

        Raises:
            NotLeaderOrFollowerError: another broker leads the partition.
            NotEnoughReplicasError: acks=all, and the ISR is smaller than min.insync.replicas.
        """
        log = self.local_log_with_epoch_or_raise(NO_EPOCH, require_leader=True)
        if required_acks == -1 and len(self.isr) < (needed := self.effective_min_isr()):
            raise errors.NotEnoughReplicasError(
                f"{self.topic_partition} has in-sync replicas {sorted(self.isr)}, and min.insync.replicas is {needed}"
            )
        return log

    def append_records_to_leader(
        self,
        records: Buffer,
        origin: str,
        required_acks: int,
        verification: VerificationState | None = None,
        transaction_version: int = 0,
    ) -> log_types.LogAppendInfo:
        """Append records from a client or a coordinator; see ``UnifiedLog.append_as_leader``.

        Raises:
            NotLeaderOrFollowerError: another broker leads the partition.
            NotEnoughReplicasError: acks=all, and the ISR is smaller than min.insync.replicas.
            BrokerError: the records are rejected, or the disk failed.
        """
        log = self.validate_appendable(required_acks)
        info = log.append_as_leader(records, self.leader_epoch, origin, verification, transaction_version)
        if len(self.state.maximal_isr) == 1:
            # Without followers nobody else must have the records; otherwise the followers' fetches raise the high
            # watermark.
            self.maybe_increment_leader_hw()
        return info

    def append_records_to_follower(self, records: Buffer, leader_epoch: int) -> log_types.LogAppendInfo | None:
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
        except log_types.UnexpectedAppendOffsetError as error:
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
            require_leader = params.rack_id is None
            log = self.local_log_with_epoch_or_raise(fetch.current_leader_epoch, require_leader=require_leader)
            return self._read_records(log, params, fetch, max_bytes, min_one_message=min_one_message)
        log = self.local_log_with_epoch_or_raise(fetch.current_leader_epoch, require_leader=True)
        replica = self.remote_replicas.get(params.replica_id)
        if replica is None:
            raise errors.NotLeaderOrFollowerError(
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
                    0, log.high_watermark, log.last_stable_offset, log.log_start_offset, diverging_epoch=diverging
                )
        # Before the read, so that a response never reports an end beyond the records that were read.
        high_watermark = log.high_watermark
        last_stable_offset = log.last_stable_offset
        offset = fetch.fetch_offset
        isolation = params.isolation
        at_end = offset == log.end_offset(isolation)
        if at_end and offset >= log.log_start_offset and isolation != log_types.FetchIsolation.TXN_COMMITTED:
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

    def _diverging_epoch(self, log: UnifiedLog, fetch: PartitionFetch) -> log_types.OffsetAndEpoch | None:
        """Return where the reader's log diverged from this one; None if it did not.

        Raises:
            OffsetOutOfRangeError: this log does not reach back that far.
        """
        if fetch.last_fetched_epoch == log.latest_epoch and fetch.fetch_offset <= log.log_end_offset:
            return None
        end = log.end_offset_for_epoch(fetch.last_fetched_epoch)
        if end is None:
            raise errors.OffsetOutOfRangeError(
                f"{self.topic_partition} has nothing of leader epoch {fetch.last_fetched_epoch} or before, "
                f"its log begins at {log.log_start_offset}"
            )
        if end.leader_epoch < fetch.last_fetched_epoch or end.offset < fetch.fetch_offset:
            return end
        return None

    def end_offset(self, isolation: str) -> int:
        """Return the end of the readable part of the log, or the log's start if there is no log."""
        return UNKNOWN_OFFSET if self.log is None else self.log.end_offset(isolation)

    def find_preferred_read_replica(self, rack_id: str, fetch_offset: int) -> int | None:
        """Return another broker that a consumer in a rack should read from; None if it is this one (KIP-392).

        If the leader is in another rack, it is the replica in the consumer's rack with the most records.
        """
        racks = self._manager.racks()
        if not self.is_leader or not rack_id or racks.get(self._manager.broker_id) == rack_id:
            return None
        nearby = [
            replica
            for id, replica in self.remote_replicas.items()
            if racks.get(id) == rack_id
            and id in self.isr
            and replica.log_start_offset <= fetch_offset <= replica.log_end_offset
        ]
        best = max(nearby, key=lambda it: (it.log_end_offset, it.last_caught_up_time_ms), default=None)
        return None if best is None else best.broker_id

    # --- offset lookups ----------------------------------------------------------------------------------------------

    def fetch_offset_for_timestamp(
        self, timestamp: int, isolation_level: int | None, current_leader_epoch: int, *, fetch_only_from_leader: bool
    ) -> log_types.TimestampAndOffset | None:
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
        if timestamp == log_types.LATEST_TIMESTAMP:
            found: log_types.TimestampAndOffset | None = log_types.TimestampAndOffset(
                NO_TIMESTAMP, end, self.leader_epoch
            )
        else:
            found = log.fetch_offset_by_timestamp(timestamp)
            if timestamp in (log_types.EARLIEST_TIMESTAMP, log_types.EARLIEST_LOCAL_TIMESTAMP):
                return found
            if found is not None and found.offset < end:
                return found
            found = None
        if behind:
            raise errors.OffsetNotAvailableError(
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
            raise errors.PolicyViolationError(
                f"records of {self.topic_partition} cannot be deleted: its cleanup.policy is compact without delete"
            )
        wanted = log.high_watermark if offset == UNKNOWN_OFFSET else offset
        if wanted < 0 or wanted > log.high_watermark:
            raise errors.OffsetOutOfRangeError(
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
