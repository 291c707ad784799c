"""The batches that have no result yet: the queues in which they wait, when they are due, and where each one is.

Java checks all partitions for each request. With thousands of partitions, that takes longer than the request. Here the
sender checks a queue only after a change: a new batch, a full batch, a batch that was drained or requeued, or new
metadata. One register makes all transitions of a batch.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Container, Iterable
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from pykclient.clock import FOREVER_MS, HERE
from pykclient.errors import IllegalArgumentError, IllegalStateError, check_move
from pykclient.network.metadata import Cluster
from pykclient.producer.future import ABORTED, FAILED, SPLIT, FutureRecordMetadata, ProducerBatch, RowsInBatch
from pykclient.producer.outbox import (
    ANSWERED,
    DONE,
    DRAINED,
    FULL,
    GIVEN_UP,
    MOST_OUTDATED,
    MOVES,
    NO_OFFSET,
    NO_TIMESTAMP,
    QUEUED,
    SENT,
    SUCCEEDED,
    QueueState,
    StickyPartitionInfo,
    StickyState,
    file_queues,
)
from pykclient.record import Compression, CompressionRatioEstimator
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.network.exponential_backoff import ExponentialBackoff
    from pykclient.network.metadata import MetadataSnapshot
    from pykclient.producer.buffer_pool import BufferPool, Loan, RowBacklog
    from pykclient.producer.sender_thread import SenderThread
    from pykclient.producer.transactions.producer_id_manager import ProducerIdManager
    from pykclient.types import Node


#: The future, or None; True if the sender has a new batch or a full one to see to; True if the record was not appended,
#: because it would have started a new batch and the caller asked to choose the partition again in that case. A plain
#: tuple, because one is created per record.
AppendResult = tuple[FutureRecordMetadata | None, bool, bool]

#: The same for rows; the first element tells which rows were appended.
AppendRowsResult = tuple[RowsInBatch | None, bool, bool]


class AccumulatorConfig(NamedTuple):
    """The settings of a RecordAccumulator. Times are in milliseconds."""

    batch_size: int
    compression: Compression
    linger_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    delivery_timeout_ms: int
    enable_adaptive_partitioning: bool = False
    partition_availability_timeout_ms: int = 0
    #: Mute a partition while one of its batches is in flight, so that retries cannot reorder its batches.
    guarantee_message_order: bool = False
    #: The maximum size in bytes of a batch of ``send_batch``, if that is more than ``batch_size``.
    max_rows_batch_size: int = 0
    #: How many bytes ``send_batch`` may queue, apart from a batch for each partition.
    max_queued_rows: int = 0


class PartitionQueue(QueueState):
    """The batches of one partition, oldest first; only the last may be open."""

    __slots__ = ("node",)
    batches: deque[ProducerBatch]

    def __init__(self, topic_partition: TopicPartition, topic_info: TopicInfo) -> None:
        super().__init__(topic_partition, deque())
        self.topic_info = topic_info
        # The sender's notes, see WaitingQueues: the node the queue was last filed under, and when its first batch is
        # due.
        self.node: NodeQueues | None = None
        self.due_ms = FOREVER_MS
        # The partition's leader according to ``snapshot``: looking it up costs as much as a batch's other lookups.
        self.snapshot: MetadataSnapshot | None = None
        self.leader: Node | None = None
        self.leader_epoch: int | None = None

    def all_batches_full(self) -> bool:
        return not self.batches or self.batches[-1].is_full


class PartitionLoadStats(NamedTuple):
    """Partition ids and running sums of weights: ``ids[i]`` owns the numbers from ``sums[i-1]`` up to ``sums[i]``."""

    sums: list[int]
    ids: list[int]


class BuiltInPartitioner(StickyState):
    """The sticky partitioner of one topic.

    The accumulator reads the current partition without a lock, takes the lock of that partition's queue, and then
    checks that ``sticky`` is still the same: another thread may have switched in between. Statistics are replaced as a
    whole, so any thread may read them. Thread: any.
    """

    __slots__ = ("_look_at_load", "_rng", "_sticky_batch_size", "load_stats", "topic")

    def __init__(
        self,
        topic: str,
        sticky_batch_size: int,
        rng: random.Random | None = None,
        look_at_load: Callable[[Cluster], None] | None = None,
    ) -> None:
        """``look_at_load`` is called before a partition is chosen, to update ``load_stats``."""
        if sticky_batch_size < 1:
            raise IllegalArgumentError(f"sticky_batch_size must be at least 1, but is {sticky_batch_size}")
        self.topic = topic
        self._sticky_batch_size = sticky_batch_size
        self._rng = rng or random.Random()
        self._look_at_load = look_at_load
        self.load_stats: PartitionLoadStats | None = None
        self.sticky = None

    def next_partition(self, cluster: Cluster) -> int:
        """Return a partition drawn at random, weighted by load if that is known.

        Otherwise all partitions with a leader are equally likely, or all partitions if none has a leader.
        """
        if self._look_at_load is not None:
            self._look_at_load(cluster)
        stats = self.load_stats
        if stats is not None:
            return stats.ids[bisect_right(stats.sums, int(self._rng.random() * stats.sums[-1]))]
        candidates = cluster.available_partitions_for_topic(self.topic) or cluster.partitions_for_topic(self.topic)
        return candidates[int(self._rng.random() * len(candidates))].partition

    def peek_current_partition_info(self, cluster: Cluster) -> StickyPartitionInfo:
        """Return the current partition; the first caller chooses it.

        Two threads may both find none. The second assignment wins; the first thread notices under the queue lock and
        starts again.
        """
        info = self.sticky
        if info is None:
            info = self.sticky = StickyPartitionInfo(self.next_partition(cluster))
        return info

    def update_partition_info(
        self, info: StickyPartitionInfo, appended_bytes: int, cluster: Cluster, enable_switch: bool = True
    ) -> None:
        """Count ``appended_bytes``, and switch after a batch's worth of bytes.

        The caller holds the partition's queue lock.

        The caller disables the switch while a batch is open: leaving a half-full batch would send two small batches
        instead of a full one. After twice the batch size, the partition changes in any case.
        """
        info.produced_bytes += appended_bytes
        produced = info.produced_bytes
        if produced >= self._sticky_batch_size and (enable_switch or produced >= self._sticky_batch_size * 2):
            self.sticky = StickyPartitionInfo(self.next_partition(cluster))

    def update_partition_load_stats(
        self, queue_sizes: list[int] | None, partition_ids: list[int], partition_count: int
    ) -> None:
        """Compute weights from the queue lengths of the usable partitions: a longer queue gets fewer records.

        ``partition_count`` counts all partitions of the topic, also those excluded because they have no leader or a
        slow one. A weight is the longest length plus one, minus the partition's own length, so lengths 0, 3, 1 get
        weights 4, 1, 3. All partitions are equally likely if there are no queue lengths, or if none is excluded and the
        lengths are equal.
        """
        if not queue_sizes or partition_count < 2:
            self.load_stats = None
            return
        longest = max(queue_sizes)
        if min(queue_sizes) == longest and len(queue_sizes) == partition_count:
            self.load_stats = None
            return
        sums: list[int] = []
        total = 0
        for size in queue_sizes:
            total += longest + 1 - size
            sums.append(total)
        self.load_stats = PartitionLoadStats(sums, partition_ids)


class TopicInfo:
    """A topic's partitioner and queues. ``queues`` only grows, so reading it needs no lock."""

    __slots__ = ("balanced_for", "changes", "partitioner", "queues")

    def __init__(
        self,
        topic: str,
        batch_size: int,
        rng: random.Random,
        look_at_load: Callable[[TopicInfo, Cluster], None] | None,
    ) -> None:
        """``look_at_load`` tells the partitioner the lengths of the queues; None disables load tracking."""
        look = None if look_at_load is None else partial(look_at_load, self)
        self.partitioner = BuiltInPartitioner(topic, batch_size, rng, look)
        self.queues: dict[int, PartitionQueue] = {}
        #: The cluster for which the partitioner was last told, and the number of queue changes since. The number is an
        #: estimate: the sender counts without a lock.
        self.balanced_for: Cluster | None = None
        self.changes = 0


class NodeLatencyStats:
    """The times when a node last had data to send, and when it could last accept it."""

    __slots__ = ("drain_time_ms", "ready_time_ms")

    def __init__(self, now_ms: int) -> None:
        self.ready_time_ms = now_ms
        self.drain_time_ms = now_ms


_AT_ONCE = 0


class NodeQueues:
    """The queues with batches for one node. Thread: io, but for ``is_blocked``, which any thread may read."""

    __slots__ = ("_muted", "due", "has_due_rest", "is_blocked", "node", "numbers", "waiting")

    def __init__(self, node: Node, muted: Container[TopicPartition]) -> None:
        self.node = node
        #: In the order of draining; a drained queue goes to the back.
        self.waiting: dict[PartitionQueue, None] = {}
        #: True if the node could take no request at the last check. A change of that ends the sender's wait.
        self.is_blocked = False
        #: True if the last drain left batches that are due.
        self.has_due_rest = False
        self._muted = muted
        # A heap of (due time, unique number, queue). An entry that differs from the queue's own due time is outdated.
        self.due: list[tuple[int, int, PartitionQueue]] = []
        self.numbers = count()

    def file(self, queue: PartitionQueue, due_ms: int) -> None:
        """Add ``queue``, whose first batch is due at ``due_ms``, or update its due time."""
        self.waiting.setdefault(queue)
        if queue.node is self and queue.due_ms == due_ms:
            return
        queue.node = self
        queue.due_ms = due_ms
        if due_ms == FOREVER_MS:
            return
        heappush(self.due, (due_ms, next(self.numbers), queue))
        self.drop_outdated()

    def drop_outdated(self) -> None:
        """Rebuild the heap if most of its entries are outdated."""
        if len(self.due) > 2 * len(self.waiting) + MOST_OUTDATED:
            filed = (queue for queue in self.waiting if queue.due_ms < FOREVER_MS)
            self.due = [(queue.due_ms, next(self.numbers), queue) for queue in filed]
            heapify(self.due)

    def remove(self, queue: PartitionQueue) -> None:
        del self.waiting[queue]
        queue.due_ms = FOREVER_MS

    def delay_ms(self, now_ms: int, send_all: bool) -> int:
        """Return in how many ms a batch is due; with ``send_all`` no batch lingers."""
        if send_all and any(self._may_go(queue, now_ms) for queue in self.waiting):
            return 0
        due = self.due
        while due:
            due_ms, _, queue = due[0]
            if queue.node is self and queue.due_ms == due_ms:
                return due_ms - now_ms if due_ms > now_ms else 0
            heappop(due)
        return FOREVER_MS

    def _may_go(self, queue: PartitionQueue, now_ms: int) -> bool:
        batches = queue.batches
        return bool(batches) and queue.topic_partition not in self._muted and batches[0].backoff_end_ms <= now_ms


class WaitingQueues:
    """All queues with batches, by the leader of their partition.

    ``next_expiry_ms`` is when the first batch without a result expires (``ProducerBatch.expiry_ms``), queued or sent.

    Thread: io, but for ``changed``, ``needs_wakeup`` and ``changed_queues``, which any thread may use.
    """

    def __init__(self, linger_ms: int, delivery_timeout_ms: int) -> None:
        self.linger_ms = linger_ms
        self.delivery_timeout_ms = delivery_timeout_ms
        self._snapshot: MetadataSnapshot | None = None
        #: Queues that the sender must check. Any thread may add one.
        self.changed_queues: deque[PartitionQueue] = deque()
        self._unfiled: dict[PartitionQueue, None] = {}
        self.nodes: dict[int, NodeQueues] = {}
        #: Queues with batches whose partition has no leader.
        self.leaderless: dict[PartitionQueue, None] = {}
        #: Partitions to which the sender sends nothing, with the batch in flight that mutes each of them.
        self.muted: dict[TopicPartition, ProducerBatch] = {}
        #: No batch expires before this time, waiting or in flight: each was first in its queue before it was drained.
        self.next_expiry_ms = FOREVER_MS
        #: The latest time of the sender's next check; FOREVER_MS during a check.
        self.next_look_ms = FOREVER_MS

    def changed(self, queue: PartitionQueue, due_ms: int = FULL) -> bool:
        """Make the sender check ``queue`` before its next request: its first batch is due at ``due_ms``.

        Return True if the sender must be woken for it.
        """
        self.changed_queues.append(queue)
        return self.needs_wakeup(queue, due_ms)

    def needs_wakeup(self, queue: PartitionQueue, due_ms: int) -> bool:
        """Return True if the sender must be woken for a changed queue, whose first batch is due at ``due_ms``.

        It need not be woken for what it will find by itself. Before the sender checks the changed queues, it clears
        ``next_look_ms`` and the marks of blocked nodes. So a change by a thread that saw the old ones is always found.
        """
        node = queue.node
        return due_ms < self.next_look_ms and (node is None or not node.is_blocked)

    def expect_look(self) -> bool:
        """Announce an imminent wakeup of the sender; return True if one was announced before.

        Until the sender starts its check, only full batches are a reason to wake it again.
        """
        was_expected = self.next_look_ms == _AT_ONCE
        self.next_look_ms = _AT_ONCE
        return was_expected

    def begin_look(self) -> None:
        """Start a check. From now on, each thread that changes a queue wakes the sender."""
        self.next_look_ms = FOREVER_MS
        for of_node in self.nodes.values():
            of_node.is_blocked = False

    def take_in(self) -> None:
        """Collect the changed queues, and record when their batches expire. This needs no metadata."""
        changed = self.changed_queues
        while changed:
            queue = changed.popleft()
            self._unfiled[queue] = None
            with HERE.mark, queue.lock:
                if queue.batches:
                    self.note_expiry(queue.batches[0])

    def note_expiry(self, batch: ProducerBatch) -> None:
        """Record when a queued or in-flight batch expires."""
        self.next_expiry_ms = min(self.next_expiry_ms, batch.expiry_ms(self.delivery_timeout_ms))

    def rebuild(self, queues: Iterable[PartitionQueue]) -> None:
        """Rebuild the index from all ``queues`` after an unexpected exception."""
        self._unfiled = {}
        self.nodes = {}
        self.leaderless = {}
        self.changed_queues.extend(queues)

    def file(self, snapshot: MetadataSnapshot) -> None:
        """Update the queues that have changed; with new metadata, update all."""
        changed = self.changed_queues
        while changed:
            self._unfiled[changed.popleft()] = None
        if snapshot is not self._snapshot:
            self._snapshot = snapshot
            for of_node in self.nodes.values():
                self._unfiled.update(of_node.waiting)
            self._unfiled.update(self.leaderless)
            self.leaderless = {}
            self.nodes = {}
        if self._unfiled:
            unfiled, self._unfiled = self._unfiled, {}
            file_queues(self, unfiled, snapshot)

    def mute(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Send nothing from ``queue`` until ``batch`` is unmuted; this keeps order with one request in flight."""
        self.muted[queue.topic_partition] = batch
        self.changed(queue)

    def unmute(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Unmute the partition, if ``batch`` mutes it."""
        if self.muted.get(queue.topic_partition) is batch:
            del self.muted[queue.topic_partition]
            self.changed(queue)

    def served(self, of_node: NodeQueues, queues: Iterable[PartitionQueue]) -> None:
        """Record that a batch was drained from each of ``queues``.

        Queues with more batches go to the back when they are filed again.
        """
        for queue in queues:
            del of_node.waiting[queue]
            queue.due_ms = FOREVER_MS
            queue.topic_info.changes += 1

    def file_queue(self, queue: PartitionQueue, snapshot: MetadataSnapshot) -> None:
        """Update one queue, which has changed."""
        topic_partition = queue.topic_partition
        queue.topic_info.changes += 1
        if queue.snapshot is not snapshot:
            queue.snapshot = snapshot
            queue.leader = snapshot.cluster.leader_for(topic_partition)
            queue.leader_epoch = snapshot.leader_epoch_for(topic_partition)
        with HERE.mark, queue.lock:
            batches = queue.batches
            if not batches:
                self._remove(queue)
                return
            first = batches[0]
            self.note_expiry(first)
            if first.current_leader_epoch != queue.leader_epoch:
                first.maybe_update_leader_epoch(queue.leader_epoch)
            due_ms = first.backoff_end_ms if first.retry_backoff_ms else 0
            if self.linger_ms and len(batches) == 1 and not first.is_full:
                due_ms = max(due_ms, first.last_attempt_ms + self.linger_ms)
        leader = queue.leader
        if leader is None:
            self._remove(queue)
            self.leaderless[queue] = None
            return
        of_node = self.nodes.get(leader.id)
        if of_node is None:
            of_node = self.nodes[leader.id] = NodeQueues(leader, self.muted)
        of_node.file(queue, FOREVER_MS if topic_partition in self.muted else due_ms)

    def _remove(self, queue: PartitionQueue) -> None:
        self.leaderless.pop(queue, None)
        of_node = queue.node
        if of_node is not None and queue in of_node.waiting:
            of_node.remove(queue)


class BatchRegister:
    """Performs the state transitions of batches, with their effects on sequences, memory, muting, queues and results.

    A batch that has left its queue is either ``held`` by the sender (DRAINED, ANSWERED) or in flight (SENT, GIVEN_UP).
    A batch leaves the held ones only in the last statement of its next transition. So after an exception in the middle
    of one it is still held, and ``held`` lists all batches that the exception has left without a next step. Each effect
    may be repeated.

    Thread: io, but for ``incomplete``, to which any thread adds new batches.
    """

    def __init__(
        self,
        config: AccumulatorConfig,
        queue_of: Callable[[TopicPartition], PartitionQueue],
        waiting: WaitingQueues,
        pool: BufferPool,
        retry_backoff: ExponentialBackoff,
        id_manager: ProducerIdManager | None,
        thread: SenderThread,
        row_backlog: RowBacklog | None = None,
    ) -> None:
        self._backlog = row_backlog
        self._batch_size = config.batch_size
        self._compression_type = config.compression.type
        self.is_ordered = config.guarantee_message_order
        self._queue_of = queue_of
        self._waiting = waiting
        self._pool = pool
        self._retry_backoff = retry_backoff
        self._thread = thread
        #: Batches completed on threads of the application: the sender's thread calls their listeners.
        self.results = thread.results
        #: Loans that the pool takes back.
        self.returned = pool.returned
        self.id_manager = id_manager
        #: Batches without a result. Any thread may change a dict safely; copy it before iterating.
        self.incomplete: dict[ProducerBatch, None] = {}
        #: Batches in the sender's hands. Empty between two steps of the sender, unless an exception ended one early.
        self.held: dict[ProducerBatch, None] = {}
        #: Topics whose broker has refused a batch larger than ``batch.size``. Only grows.
        self.topics_with_small_batches: set[str] = set()
        self._in_flight: dict[ProducerBatch, None] = {}

    # --- out of the queue and on their way ---------------------------------------------------------------------

    def take(self, batch: ProducerBatch) -> None:
        """Hold ``batch``, which the caller is about to remove from its queue. The caller holds the queue's lock."""
        if batch.state != QUEUED:
            check_move("a batch", MOVES, batch.state, DRAINED)
        loan = batch.loan
        if loan is not None and loan.queued and self._backlog is not None:
            self._backlog.leave(loan)
        self.held[batch] = None
        batch.state = DRAINED

    def reclaim(self, batch: ProducerBatch) -> None:
        """Remove a held batch from its queue, in case an exception left it there."""
        queue = self._queue_of(batch.topic_partition)
        with HERE.mark, queue.lock:
            if batch in queue.batches:
                queue.batches.remove(batch)
            if batch.state == QUEUED:
                self.take(batch)

    def sent(self, batches: Iterable[ProducerBatch]) -> None:
        """Record that the network client gets a request with ``batches``, and may read their memory from now on."""
        for batch in batches:
            if batch.state != DRAINED:
                check_move("a batch", MOVES, batch.state, SENT)
            self._in_flight[batch] = None
            batch.state = SENT
            del self.held[batch]

    def answered(self, batches: Iterable[ProducerBatch]) -> None:
        """Hold ``batches`` again, after the outcome of their request. The network client no longer has them.

        Those of them that are not in flight do not change.
        """
        for batch in batches:
            if batch not in self._in_flight:
                continue
            if batch.state != SENT:
                check_move("a batch", MOVES, batch.state, ANSWERED)
            self.held[batch] = None
            batch.state = ANSWERED
            del self._in_flight[batch]

    # --- waiting too long --------------------------------------------------------------------------------------

    @property
    def has_in_flight(self) -> bool:
        """True while the network client has a request with a batch, even an abandoned one."""
        return bool(self._in_flight)

    def in_flight(self) -> list[ProducerBatch]:
        """Return the batches in flight. Thread: any."""
        return list(self._in_flight.copy())

    def expired_in_flight(self, delivery_timeout_ms: int, now_ms: int) -> list[ProducerBatch]:
        """Return the batches in flight whose delivery.timeout.ms has passed, oldest first.

        The next expiry of the waiting batches becomes that of these too.
        """
        expired: list[ProducerBatch] = []
        for batch in self._in_flight:
            if batch.state != SENT:
                continue
            if batch.has_reached_delivery_timeout(delivery_timeout_ms, now_ms):
                expired.append(batch)
            self._waiting.note_expiry(batch)  # an expired one too: it has not failed yet
        expired.sort(key=attrgetter("created_ms"))
        return expired

    # --- back to the queue -------------------------------------------------------------------------------------

    def requeue(self, batch: ProducerBatch, now_ms: int) -> None:
        """Requeue a held batch for a retry: at the front, or with idempotence at its place by sequence."""
        # The backoff has a random part. Draw it once, so that it stays the same during this retry.
        batch.reenqueued(now_ms, self._retry_backoff.backoff(batch.attempts))
        self._put_into_queue(batch)

    def split(self, big: ProducerBatch) -> int:
        """Split a held batch that the broker found too large, and queue the parts; return their number (KIP-126)."""
        # The estimated ratio was too low: do not estimate below the ratio that the batch really reached.
        ratio = max(1.0, big.compression_ratio)
        CompressionRatioEstimator.set_estimation(big.topic_partition.topic, self._compression_type, ratio)
        target = self._batch_size
        if big.estimated_size_in_bytes > target:
            self.topics_with_small_batches.add(big.topic_partition.topic)
        if big.is_split_batch:
            target = max(big.max_record_batch_size, big.estimated_size_in_bytes // 2)
        parts = big.split(target)
        manager = self.id_manager
        for part in parts:
            self.take(part)
            self.incomplete[part] = None
        big.hand_over_to(parts)
        if manager is not None:
            manager.remove_in_flight_batch(big)
            for part in parts:
                manager.add_in_flight_batch(part)
        for part in reversed(parts):
            self._put_into_queue(part)
        self.conclude(big)
        return len(parts)

    def _put_into_queue(self, batch: ProducerBatch, *, is_unnumbered: bool = False) -> None:
        """Put a held batch into its queue again; if it never got its number, behind those that have one."""
        queue = self._queue_of(batch.topic_partition)
        with HERE.mark, queue.lock:
            check_move("a batch", MOVES, batch.state, QUEUED)
            if is_unnumbered:
                place = sum(other.has_sequence for other in queue.batches)
            else:
                place = self._place_of_retry(queue.batches, batch)
            queue.batches.insert(place, batch)
            batch.state = QUEUED
        if self.is_ordered:
            self._waiting.unmute(queue, batch)
        self._waiting.changed(queue)
        del self.held[batch]

    def _place_of_retry(self, batches: deque[ProducerBatch], batch: ProducerBatch) -> int:
        """Return the place of a batch at the front, but behind requeued batches that were sent before it.

        Several requests in flight may fail and return in any order. The broker accepts numbered batches in one order
        only. Expiry checks only the first batch, so that must be the oldest. Java puts batches without numbers in front
        of all others, and so fails those behind them late.
        """
        manager = self.id_manager
        if manager is not None:
            if not batch.has_sequence:
                raise IllegalStateError(f"{batch} is requeued without a sequence number")
            if not manager.has_inflight_batches(batch.topic_partition):
                raise IllegalStateError(f"{batch} is requeued, but is not tracked as in flight")
        position = 0
        while position < len(batches) and batches[position].stays_before(batch):
            position += 1
        return position

    # --- results -----------------------------------------------------------------------------------------------

    def succeed(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int) -> bool:
        """Complete a held batch with success; return False if it was abandoned before, so its records stay failed.

        Also that late success counts for the sequence numbers. The caller calls ``BufferPool.take_in_returned`` after
        the last batch of a response, so that it takes the pool's lock once.
        """
        is_first = batch.decide(SUCCEEDED, base_offset, log_append_time_ms)
        if self.id_manager is not None:
            self.id_manager.handle_completed_batch(batch, base_offset)
        self.conclude(batch, self.returned.append)
        return is_first

    def fail(
        self,
        batch: ProducerBatch,
        error: Exception,
        error_for: Callable[[int], Exception] | None = None,
        *,
        refused: bool = False,
    ) -> bool:
        """Fail all records of a batch that is held or in flight; return False if it was abandoned before.

        ``error_for`` returns the error of a record by its index in the batch; by default all get ``error``.
        ``refused``: the batch is certainly not in the log.
        """
        is_first = batch.decide(FAILED, NO_OFFSET, NO_TIMESTAMP, error_for or (lambda _index: error))
        manager = self.id_manager
        # An exception may have ended an earlier call. A transaction must not miss the failure of any batch.
        if manager is not None and (is_first or manager.is_transactional or manager.is_in_flight(batch)):
            manager.handle_failed_batch(batch, error, refused)
        self.conclude(batch)
        return is_first

    def abort(self, error: Exception) -> None:
        """Fail all incomplete batches with ``error``, wherever they are."""
        for batch in [*self.incomplete]:
            queue = self._queue_of(batch.topic_partition)
            with HERE.mark, queue.lock:
                batch.abort_record_appends()
                if batch in queue.batches:
                    if batch.state == QUEUED:
                        self.take(batch)
                    queue.batches.remove(batch)
                    self._waiting.changed(queue)
            if not batch.is_done:  # done if the sender's thread ended while it completed the batch
                batch.decide(ABORTED, NO_OFFSET, NO_TIMESTAMP, lambda _index: error)
            if self.id_manager is not None and batch.has_sequence:
                # Otherwise the partition would wait forever for this batch before it starts a new id or epoch.
                self.id_manager.remove_in_flight_batch(batch)
            self.conclude(batch)

    def abort_undrained(self, error: Exception) -> None:
        """Fail the queued batches that were never sent, with ``error``. Those that wait for a retry stay."""
        for batch in [*self.incomplete]:
            queue = self._queue_of(batch.topic_partition)
            with HERE.mark, queue.lock:
                if batch.state != QUEUED or batch.has_sequence:
                    continue
                batch.abort_record_appends()
                self.take(batch)
                queue.batches.remove(batch)
                self._waiting.changed(queue)
            batch.decide(ABORTED, NO_OFFSET, NO_TIMESTAMP, lambda _index: error)
            self.conclude(batch)

    def conclude_again(self, batch: ProducerBatch, error: Exception) -> None:
        """Conclude a held batch whose result was decided before the exception ``error`` struck."""
        manager = self.id_manager
        if batch.final_state not in {SUCCEEDED, SPLIT}:
            self.fail(batch, error)
            return
        if manager is not None:
            if batch.final_state == SUCCEEDED:
                manager.handle_completed_batch(batch, batch.produce_future.base_offset)
            else:
                manager.remove_in_flight_batch(batch)
        parts = batch.produce_future.parts
        if parts is not None:
            batch.produce_future.split(parts)
        self.conclude(batch)

    def client_closed(self) -> None:
        """Free the memory of abandoned batches, once the network client is closed."""
        given_up = [batch for batch in self._in_flight if batch.is_done]
        self.answered(given_up)
        for batch in given_up:
            self.conclude(batch)

    def conclude(self, batch: ProducerBatch, deallocate: Callable[[Loan], object] | None = None) -> None:
        """Publish the decided result of a batch, and free its memory unless the network client may still read it.

        ``deallocate`` takes the memory; by default the pool does, at once.
        """
        deallocate = deallocate or self._pool.deallocate
        is_held = batch.state in _HELD
        if is_held:
            borrowed: Loan | None = batch.borrowed
            if borrowed is not None:
                deallocate(borrowed)
            if batch.loan is not None:
                deallocate(batch.loan)
        elif batch.state == SENT:
            batch.state = GIVEN_UP
        thread = self._thread
        result = batch.produce_future
        if result.settled or result.done(bool(result.listeners) and thread.is_borrowed):
            # Only after the callbacks: a flush that starts while they run must still find the batch.
            self.incomplete.pop(batch, None)
        else:
            self.results.append(batch)
        if is_held:
            if self.is_ordered:
                self._waiting.unmute(self._queue_of(batch.topic_partition), batch)
            batch.state = DONE
            self.held.pop(batch, None)

    def call_listeners(self) -> None:
        """Call the listeners of batches that were completed on other threads. Thread: the sender's own."""
        results = self.results
        while results:
            batch = results[0]
            batch.publish()
            self.incomplete.pop(batch, None)
            del results[0]

    # --- starting again ----------------------------------------------------------------------------------------

    def hold_all(self, queued_batches: Callable[[], list[ProducerBatch]]) -> list[ProducerBatch]:
        """Hold all batches that are not queued, after an exception that may have interrupted a transition.

        The network client has forgotten all of its requests. Return the incomplete batches that have sequence numbers.
        """
        known = [
            *self.held,
            *self._in_flight,
            *self.incomplete,
        ]  # first, so that a new batch is not taken for a lost one
        queued = dict.fromkeys(queued_batches())
        for batch in known:
            if batch.state == DONE:
                self.held.pop(batch, None)
            elif batch.state != QUEUED or batch not in queued or batch in self.held:
                if batch.state in {SENT, GIVEN_UP}:
                    batch.state = ANSWERED
                self.held[batch] = None
                self.reclaim(batch)
        self._in_flight.clear()
        return [batch for batch in {**queued, **self.held} if batch.has_sequence and not batch.is_done]

    def put_back(self, batch: ProducerBatch) -> None:
        """Put a drained but unsent batch back into its queue. This does not count as an attempt."""
        self._put_into_queue(batch, is_unnumbered=self.id_manager is not None and not batch.has_sequence)


_HELD = frozenset((DRAINED, ANSWERED))
