"""The in-sync replicas of a partition, and the high watermark that follows from them (Java: Partition; KIP-497)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.errors import for_code
from pykclient.testing.replica.alter_partition_manager import AlterPartitionItem
from pykclient.testing.replica.partition_state import LeaderAndIsr, PartitionState

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.testing.log.unified_log import UnifiedLog
    from pykclient.testing.replica.replica import Replica
    from pykclient.testing.replica.replica_manager import ReplicaManager
    from pykclient.types import TopicPartition

_UNKNOWN_TOPIC_OR_PARTITION: Final = 3
_INVALID_REQUEST: Final = 42
_OPERATION_NOT_ATTEMPTED: Final = 55
_FENCED_LEADER_EPOCH: Final = 74
_INVALID_UPDATE_VERSION: Final = 95
_UNKNOWN_TOPIC_ID: Final = 100
_INELIGIBLE_REPLICA: Final = 107
_NEW_LEADER_ELECTED: Final = 108

#: The controller has newer state, and will send it with LEADER_AND_ISR; until then the change stays pending.
_AWAIT_CONTROLLER: Final = frozenset(
    {
        _UNKNOWN_TOPIC_OR_PARTITION,
        _INVALID_REQUEST,
        _FENCED_LEADER_EPOCH,
        _INVALID_UPDATE_VERSION,
        _UNKNOWN_TOPIC_ID,
        _NEW_LEADER_ELECTED,
    }
)
#: The controller did not change anything and will not.
_REFUSED: Final = frozenset({_OPERATION_NOT_ATTEMPTED, _INELIGIBLE_REPLICA})


class PartitionIsr:
    """A leader's view of its followers, and the changes it requests. The base class of ``Partition``.

    Thread: loop.
    """

    __slots__ = (
        "_manager",
        "is_leader",
        "leader_epoch",
        "leader_epoch_start_offset",
        "log",
        "partition_epoch",
        "remote_replicas",
        "state",
        "topic_partition",
    )

    topic_id: UUID

    def __init__(self, topic_partition: TopicPartition, manager: ReplicaManager) -> None:
        self._manager = manager
        self.topic_partition = topic_partition
        self.log: UnifiedLog | None = None
        self.is_leader = False
        self.leader_epoch = -1
        #: The end of the log when this broker became leader; None for a follower.
        self.leader_epoch_start_offset: int | None = None
        self.partition_epoch = -1
        self.remote_replicas: dict[int, Replica] = {}
        self.state = PartitionState.committed(frozenset())

    @property
    def isr(self) -> frozenset[int]:
        """The in-sync replicas that the controller has confirmed; empty on a follower."""
        return self.state.isr

    @property
    def high_watermark(self) -> int:
        """The end of what consumers see; -1 without a log."""
        return -1 if self.log is None else self.log.high_watermark

    def update_isr(self, isr: frozenset[int]) -> None:
        """Take over the ISR from LEADER_AND_ISR; a pending request is obsolete."""
        self.state = self.state.commit(isr)

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

    # --- who is in sync ----------------------------------------------------------------------------------------------

    def _maybe_expand_isr(self, replica: Replica) -> None:
        """Ask to add a follower that has all committed records, and all records from before this leader's epoch."""
        log = self.log
        start = self.leader_epoch_start_offset
        if log is None or start is None or self.state.is_inflight:
            return
        if replica.log_end_offset < log.high_watermark or replica.log_end_offset < start:
            return
        isr = (*sorted(self.state.isr), replica.broker_id)
        wanted = LeaderAndIsr(self._manager.broker_id, self.leader_epoch, isr, self.partition_epoch)
        self.state = self.state.expand(replica.broker_id, wanted)
        self._submit(self.state)

    def maybe_shrink_isr(self) -> None:
        """Ask to remove followers that were not caught up for ``replica.lag.time.max.ms``."""
        log = self.log
        if not self.is_leader or log is None or self.state.is_inflight:
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
        isr = tuple(id for id in sorted(self.state.isr) if id not in late)
        wanted = LeaderAndIsr(self._manager.broker_id, self.leader_epoch, isr, self.partition_epoch)
        self.state = self.state.shrink(wanted)
        self._manager.log.info("%s: %s lag behind %d", self.topic_partition, sorted(late), end)
        self._submit(self.state)

    def _submit(self, proposed: PartitionState) -> None:
        wanted = proposed.sent
        if wanted is None:
            return

        def listener(answer: LeaderAndIsr | None, error_code: int) -> None:
            self._handle_alter_partition(proposed, answer, error_code)

        epochs = {id: replica.broker_epoch for id, replica in self.remote_replicas.items()}
        epochs[self._manager.broker_id] = self._manager.broker_epoch
        item = AlterPartitionItem(self.topic_partition, self.topic_id, wanted, epochs, listener)
        if not self._manager.alter_partition_manager.submit(item):
            # A request from before the last LEADER_AND_ISR is still in flight.
            self.state = proposed.last_committed

    def _handle_alter_partition(self, proposed: PartitionState, answer: LeaderAndIsr | None, error_code: int) -> None:
        if answer is not None:
            # LEADER_AND_ISR may have arrived first, and may have been made before or after this change; the larger
            # epoch is the later state. The epochs are equal if a change whose response was lost is requested again.
            oldest = self.partition_epoch + (self.state is not proposed)
            if answer.leader_epoch != self.leader_epoch or answer.partition_epoch < oldest:
                return
            self.state = self.state.commit(frozenset(answer.isr))
            self.partition_epoch = answer.partition_epoch
            self._manager.log.info("%s: in-sync replicas are %s", self.topic_partition, sorted(answer.isr))
            self.maybe_increment_leader_hw()
            self._manager.partition_changed(self.topic_partition)
            self._manager.complete_delayed()
        elif self.state is not proposed:
            return
        elif error_code in _REFUSED:
            self.state = proposed.last_committed
        elif error_code not in _AWAIT_CONTROLLER:
            self._manager.log.debug("%s: %s", self.topic_partition, for_code(error_code))
            self._submit(proposed)
