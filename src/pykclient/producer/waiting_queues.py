"""The queues of partitions, and which of them have batches: by the node they go to, and when they are due.

Java checks all partitions for each request. With thousands of partitions, that takes longer than the request. Here the
sender checks a queue only after a change: a new batch, a full batch, a batch that was drained or requeued, or new
metadata.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Container, Iterable
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from pykclient.clock import FOREVER_MS
from pykclient.network.metadata import Cluster
from pykclient.producer.future import FutureRecordMetadata
from pykclient.producer.outbox import FULL, MOST_OUTDATED, QueuesOfNode, QueueState, file_queues
from pykclient.producer.partitioner.partitioners import BuiltInPartitioner
from pykclient.producer.producer_batch import ProducerBatch, RowsInBatch
from pykclient.record import Compression
from pykclient.reentry import HERE
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.network.metadata import MetadataSnapshot
    from pykclient.producer.producer_batch import ProducerBatch
    from pykclient.types import Node, TopicPartition

#: The future; True if the sender has a new batch or a full one to see to; True if the record was not appended, because
#: it would have started a new batch and the caller asked to choose the partition again in that case. A plain tuple,
#: because one is created per record.
AppendResult = tuple[FutureRecordMetadata | None, bool, bool]

#: The same for rows; the first element tells which rows were appended.
AppendRowsResult = tuple[RowsInBatch | None, bool, bool]


class AccumulatorConfig:
    """The settings of a RecordAccumulator. Times are in milliseconds."""

    __slots__ = (
        "batch_size",
        "compression",
        "delivery_timeout_ms",
        "enable_adaptive_partitioning",
        "guarantee_message_order",
        "linger_ms",
        "max_queued_rows",
        "max_rows_batch_size",
        "partition_availability_timeout_ms",
        "retry_backoff_max_ms",
        "retry_backoff_ms",
    )

    def __init__(
        self,
        batch_size: int,
        compression: Compression,
        linger_ms: int,
        retry_backoff_ms: int,
        retry_backoff_max_ms: int,
        delivery_timeout_ms: int,
        enable_adaptive_partitioning: bool = False,
        partition_availability_timeout_ms: int = 0,
        guarantee_message_order: bool = False,
        max_rows_batch_size: int = 0,
        max_queued_rows: int = 0,
    ) -> None:
        self.batch_size = batch_size
        #: The maximum size in bytes of a batch of ``send_batch``.
        self.max_rows_batch_size = max(batch_size, max_rows_batch_size)
        #: How many bytes ``send_batch`` may queue, apart from a batch for each partition.
        self.max_queued_rows = max_queued_rows
        self.compression = compression
        self.linger_ms = linger_ms
        self.retry_backoff_ms = retry_backoff_ms
        self.retry_backoff_max_ms = retry_backoff_max_ms
        self.delivery_timeout_ms = delivery_timeout_ms
        self.enable_adaptive_partitioning = enable_adaptive_partitioning
        self.partition_availability_timeout_ms = partition_availability_timeout_ms
        #: Mute a partition while one of its batches is in flight, so that retries cannot reorder its batches.
        self.guarantee_message_order = guarantee_message_order


class PartitionQueue(QueueState):
    """The batches of one partition, oldest first; only the last may be open."""

    __slots__ = ("node",)
    batches: deque[ProducerBatch]
    topic_info: TopicInfo

    def __init__(self, topic_partition: TopicPartition, topic_info: TopicInfo) -> None:
        super().__init__(topic_partition, deque())
        self.topic_info = topic_info
        # The sender's notes, see WaitingQueues: the node the queue was last filed under, and when its first batch is
        # due.
        self.node: QueuesOfNode | None = None
        self.due_ms = FOREVER_MS
        # The partition's leader according to ``snapshot``: looking it up costs as much as a batch's other lookups.
        self.snapshot = None
        self.leader = None
        self.leader_epoch = None

    def all_batches_full(self) -> bool:
        return not self.batches or self.batches[-1].is_full


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

    __slots__ = (
        "_snapshot",
        "_unfiled",
        "changed_queues",
        "delivery_timeout_ms",
        "leaderless",
        "linger_ms",
        "muted",
        "next_expiry_ms",
        "next_look_ms",
        "nodes",
    )

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
