"""The partitions with waiting batches, by the node they go to, and when their batches are due.

Java checks all partitions for each request. With thousands of partitions, that takes longer than the request. Here the
sender checks a queue only after a change: a new batch, a full batch, a batch that was drained or requeued, or new
metadata.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from pykclient.clock import FOREVER_MS
from pykclient.producer.batch_walks import MOST_OUTDATED, file_queues
from pykclient.reentry import HERE

if TYPE_CHECKING:
    from pykclient.network.metadata import MetadataSnapshot
    from pykclient.producer.accumulator_state import PartitionQueue
    from pykclient.producer.producer_batch import ProducerBatch
    from pykclient.types import Node, TopicPartition

#: The due time of a full batch: before all others.
FULL = -1

_AT_ONCE = 0


class NodeQueues:
    """The queues with batches for one node. Thread: io, but for ``is_blocked``, which any thread may read."""

    __slots__ = ("_due", "_muted", "_numbers", "has_due_rest", "is_blocked", "node", "waiting")

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
        self._due: list[tuple[int, int, PartitionQueue]] = []
        self._numbers = count()

    def file(self, queue: PartitionQueue, due_ms: int) -> None:
        """Add ``queue``, whose first batch is due at ``due_ms``, or update its due time."""
        self.waiting.setdefault(queue)
        if queue.node is self and queue.due_ms == due_ms:
            return
        queue.node = self
        queue.due_ms = due_ms
        if due_ms == FOREVER_MS:
            return
        heappush(self._due, (due_ms, next(self._numbers), queue))
        self.drop_outdated()

    def drop_outdated(self) -> None:
        """Rebuild the heap if most of its entries are outdated."""
        if len(self._due) > 2 * len(self.waiting) + MOST_OUTDATED:
            filed = (queue for queue in self.waiting if queue.due_ms < FOREVER_MS)
            self._due = [(queue.due_ms, next(self._numbers), queue) for queue in filed]
            heapify(self._due)

    def remove(self, queue: PartitionQueue) -> None:
        del self.waiting[queue]
        queue.due_ms = FOREVER_MS

    def delay_ms(self, now_ms: int, send_all: bool) -> int:
        """Return in how many ms a batch is due; with ``send_all`` no batch lingers."""
        if send_all and any(self._may_go(queue, now_ms) for queue in self.waiting):
            return 0
        due = self._due
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

    Thread: io, but for ``changed``, ``needs_wakeup`` and ``changed_queues``, which any thread may use.
    """

    __slots__ = (
        "_delivery_timeout_ms",
        "_linger_ms",
        "_snapshot",
        "_unfiled",
        "changed_queues",
        "leaderless",
        "muted",
        "next_expiry_ms",
        "next_look_ms",
        "nodes",
    )

    def __init__(self, linger_ms: int, delivery_timeout_ms: int) -> None:
        self._linger_ms = linger_ms
        self._delivery_timeout_ms = delivery_timeout_ms
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
        """Start a check: from now on, each thread that changes a queue wakes the sender."""
        self.next_look_ms = FOREVER_MS
        for of_node in self.nodes.values():
            of_node.is_blocked = False

    def take_in(self) -> None:
        """Collect the queues that have changed, and note when their batches expire. This needs no metadata."""
        changed = self.changed_queues
        while changed:
            queue = changed.popleft()
            self._unfiled[queue] = None
            with HERE.mark, queue.lock:
                if queue.batches:
                    expiry_ms = queue.batches[0].created_ms + self._delivery_timeout_ms
                    self.next_expiry_ms = min(self.next_expiry_ms, expiry_ms)

    def rebuild(self, queues: Iterable[PartitionQueue]) -> None:
        """Forget the index, which an exception may have left in any state, and check ``queues``, which are all."""
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
        """End the mute for ``batch``, if it mutes its partition."""
        if self.muted.get(queue.topic_partition) is batch:
            del self.muted[queue.topic_partition]
            self.changed(queue)

    def served(self, of_node: NodeQueues, queues: Iterable[PartitionQueue]) -> None:
        """Note that a batch was drained from each of ``queues``.

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
            expiry_ms = first.created_ms + self._delivery_timeout_ms
            self.next_expiry_ms = min(self.next_expiry_ms, expiry_ms)
            if first.current_leader_epoch != queue.leader_epoch:
                first.maybe_update_leader_epoch(queue.leader_epoch)
            due_ms = first.backoff_end_ms if first.retry_backoff_ms else 0
            if self._linger_ms and len(batches) == 1 and not first.is_full:
                due_ms = max(due_ms, first.last_attempt_ms + self._linger_ms)
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
