"""Where records wait to be sent: one queue of batches per partition (Java: RecordAccumulator)."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, TypeVar

from pykclient.clock import FOREVER_MS, Clock
from pykclient.errors import IllegalStateError, KafkaError
from pykclient.log_context import LogContext
from pykclient.network.cluster import Cluster
from pykclient.network.exponential_backoff import ExponentialBackoff
from pykclient.producer.accumulator_state import (
    AccumulatorConfig,
    AppendResult,
    AppendRowsResult,
    PartitionQueue,
    ReadyCheckResult,
    TopicInfo,
)
from pykclient.producer.buffer_pool import BorrowedMemory, BufferPool, Loan
from pykclient.producer.future import OnDelivery, ProduceRequestResult
from pykclient.producer.partition_load import PartitionLoad
from pykclient.producer.partitioner.built_in import BuiltInPartitioner, StickyPartitionInfo
from pykclient.producer.producer_batch import ProducerBatch
from pykclient.producer.sender_thread import SenderThread
from pykclient.producer.waiting_queues import FULL, WaitingQueues
from pykclient.record import CompressionRatioEstimator, CompressionType, MemoryRecordsBuilder
from pykclient.record.memory_records_builder import BORROWED_AT_ONCE
from pykclient.record.record_batch import (
    CURRENT_MAGIC_VALUE,
    MAX_INT32,
    estimate_size_in_bytes_upper_bound,
)
from pykclient.reentry import HERE
from pykclient.types import Header, Node, TopicPartition

if TYPE_CHECKING:
    from pykclient.network.metadata_snapshot import MetadataSnapshot
    from pykclient.producer.transaction_manager import TransactionManager
    from pykclient.record.record_batch import Buffer
    from pykclient.record.row_columns import RowRun

T = TypeVar("T")

_BACKOFF_MULTIPLIER = 2
_BACKOFF_JITTER = 0.2

#: What a batch takes at least of ``buffer.memory``, unless ``batch.size`` is less.
_SMALLEST_CAPACITY = 4096

#: What a batch holds uncompressed at most, unless one record is larger: far below what consumers unpack, see
#: max.decompressed.batch.bytes. And the part of ``buffer.memory`` that it may take.
_MAX_UNCOMPRESSED_SIZE = 32 * 1024 * 1024
_PART_FOR_ONE_BATCH = 4


class RecordAccumulator:
    """Gathers records into batches, says which nodes they are due for, and hands them over.

    ``append``, ``append_rows``, ``flush`` and ``close``: any thread. All else: io, the sender's.
    Locks, in the order in which they may be taken: a queue's lock; then ``_lock``. The pool is never called under one.

    A signal handler may raise anywhere in what any thread may call. A batch is therefore published in one run of
    statements without a call, as CPython runs signal handlers only after calls and backward jumps.
    """

    __slots__ = ("__dict__", "__weakref__", "_closed", "_topics")  # slots for what C looks up with each record

    def __init__(
        self,
        config: AccumulatorConfig,
        buffer_pool: BufferPool,
        clock: Clock,
        log_context: LogContext,
        transaction_manager: TransactionManager | None = None,
        rng: random.Random | None = None,
        sender_thread: SenderThread | None = None,
    ) -> None:
        self._log = log_context.logger(__name__)
        self.sender_thread = sender_thread or SenderThread()
        self._config = config
        self._batch_size = config.batch_size
        self._compression_type = config.compression.type
        self._pool = buffer_pool
        self._max_uncompressed_size = min(_MAX_UNCOMPRESSED_SIZE, buffer_pool.total_memory // _PART_FOR_ONE_BATCH)
        self._clock = clock
        self._rng = rng or random.Random()
        self._transaction_manager = transaction_manager
        self._retry_backoff = ExponentialBackoff(
            config.retry_backoff_ms, _BACKOFF_MULTIPLIER, config.retry_backoff_max_ms, _BACKOFF_JITTER, self._rng
        )
        self._lock = threading.Lock()  # guards: additions to _topics and queues
        self._closed = False
        #: A token for each flush under way. Its owner adds and removes it by itself, without a call in between.
        self._flushes: dict[object, None] = {}
        #: Batches whose fate is not known yet. Dicts are safe to change from any thread; copy before iterating.
        self._incomplete: dict[ProducerBatch, None] = {}
        self._topics: dict[str, TopicInfo] = {}  # only grows, like TopicInfo.queues, until a close by force replaces it
        self._waiting = WaitingQueues(config.linger_ms, config.delivery_timeout_ms)
        # The sender's own.
        self._load = PartitionLoad(config.partition_availability_timeout_ms)
        self.delivery_timeout_ms = config.delivery_timeout_ms
        self.linger_ms = config.linger_ms
        #: Whether the last drain left batches behind that are due as well.
        self.has_due_rest = False
        #: What the last drains took out and could not close, and why; the sender fails it.
        self.unsendable: list[tuple[ProducerBatch, Exception]] = []

    # --- appending ---------------------------------------------------------------------------------------------

    def append(
        self,
        topic: str,
        partition: int | None,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[Header],
        on_delivery: OnDelivery | None,
        max_block_ms: int,
        cluster: Cluster,
        abort_on_new_batch: bool = False,
    ) -> AppendResult:
        """Add a record to the open batch of its partition, or to a new one; waits for memory up to ``max_block_ms``.

        With ``partition`` None the built-in partitioner chooses. With ``abort_on_new_batch`` a record that needs a new
        batch is not appended (KIP-480).
        """
        record = (timestamp_ms, key, value, headers, on_delivery)
        info, future, wake = self._append_to_open_batch(topic, partition, cluster, ProducerBatch.try_append, record)
        if future is not None:
            return future, False, False
        if abort_on_new_batch:
            return None, wake, True
        size = estimate_size_in_bytes_upper_bound(CURRENT_MAGIC_VALUE, self._config.compression, key, value, headers)
        future, wake_for_new = self._append_with_new_batch(
            topic, info, partition, cluster, ProducerBatch.try_append, record, size, max_block_ms
        )
        return future, wake or wake_for_new, False

    def append_rows(
        self,
        topic: str,
        partition: int | None,
        run: RowRun,
        max_block_ms: int,
        cluster: Cluster,
        abort_on_new_batch: bool = False,
    ) -> AppendRowsResult:
        """``append`` for many: as many of the rows as one batch takes."""
        # A sticky partition is left at the latest after twice a batch's size, see update_partition_info.
        appended = (run, MAX_INT32 if partition is not None else 2 * self._batch_size)
        try_append = ProducerBatch.try_append_rows
        wake = False
        info = self._topics.get(topic) if run.has_filled_batch else None
        if info is None:
            info, taken, wake = self._append_to_open_batch(topic, partition, cluster, try_append, appended)
            if taken is not None:
                return taken, False, False
        if abort_on_new_batch:
            return None, wake, True
        size = run.size_of_next(self._batch_size)
        taken, wake_for_new = self._append_with_new_batch(
            topic, info, partition, cluster, try_append, appended, size, max_block_ms
        )
        return taken, wake or wake_for_new, False

    def _append_to_open_batch(
        self,
        topic: str,
        partition: int | None,
        cluster: Cluster,
        try_append: Callable[..., T | None],
        appended: tuple[Any, ...],
    ) -> tuple[TopicInfo, T | None, bool]:
        """What ``try_append(batch, *appended)`` says of the open batch; None where there is none, or no room in it.

        Then, whether to wake the sender, for a batch that turned out to be full.
        """
        info = self._topics.get(topic)
        if info is None:
            info = self._add_topic(topic)
        sticky = None
        number = partition
        if number is None:
            sticky = info.partitioner.sticky
            if sticky is None:
                sticky = info.partitioner.peek_current_partition_info(cluster)
            number = sticky.partition
        queue = info.queues.get(number)
        if queue is None:
            queue = self._add_queue(topic, info, number)
        with HERE.mark, queue.lock:
            # Another thread may have switched partitions while this one waited for the lock.
            if queue.batches and (sticky is None or info.partitioner.sticky is sticky):
                result = self._try_append(queue, info, sticky, cluster, try_append, appended)
                return info, result, result is None and self._waiting.changed(queue, FULL)
        return info, None, False

    def _try_append(
        self,
        queue: PartitionQueue,
        info: TopicInfo,
        sticky: StickyPartitionInfo | None,
        cluster: Cluster,
        try_append: Callable[..., T | None],
        appended: tuple[Any, ...],
    ) -> T | None:
        """Append to the last batch; None where it has no room. Needs the queue's lock."""
        if self._closed:
            raise KafkaError("the producer was closed while a send was in progress")
        last = queue.batches[-1]
        result = try_append(last, *appended)
        if result is None:
            last.close_for_record_appends()
        elif sticky is not None:
            # The batch is open, so the switch waits for the next one; see update_partition_info.
            info.partitioner.update_partition_info(sticky, last.appended_bytes, cluster, False)
        return result

    def _append_with_new_batch(
        self,
        topic: str,
        info: TopicInfo,
        partition: int | None,
        cluster: Cluster,
        try_append: Callable[..., T | None],
        appended: tuple[Any, ...],
        size: int,
        max_block_ms: int,
    ) -> tuple[T, bool]:
        """Append with a new batch, unless another thread makes one first; and whether to wake the sender for it.

        ``size`` is what the first record takes alone in a batch, at most.
        """
        loan = Loan()
        try:
            while True:
                sticky = None
                number = partition
                if number is None:
                    sticky = info.partitioner.peek_current_partition_info(cluster)
                    number = sticky.partition
                queue = info.queues.get(number) or self._add_queue(topic, info, number)
                buffer = loan.buffer
                if buffer is None:
                    # The switch that an open batch had put off is due now, before memory is taken for this partition.
                    with HERE.mark, queue.lock:
                        if self._partition_changed(queue, info, sticky, cluster):
                            continue
                    size = max(size, self._capacity_of_next_batch(queue))
                    buffer = self._pool.allocate(loan, size, max_block_ms, self._expected_to_borrow(topic, size))
                now_ms = self._clock.now_ms()
                with HERE.mark, queue.lock:
                    if self._partition_changed(queue, info, sticky, cluster):
                        continue
                    if self._closed:
                        raise KafkaError("the producer was closed while a send was in progress")
                    if queue.batches:
                        result = self._try_append(queue, info, sticky, cluster, try_append, appended)
                        if result is not None:
                            return result, False
                    batch = ProducerBatch(
                        queue.topic_partition,
                        self._builder(topic, buffer),
                        now_ms,
                        buffer,
                        self._clock,
                        self.sender_thread,
                    )
                    result = try_append(batch, *appended)
                    if result is None:
                        raise IllegalStateError(f"a new batch of {size} bytes has no room for its first record")
                    self._publish(queue, batch, loan)
                    info.partitioner.update_partition_info(
                        sticky, batch.estimated_size_in_bytes, cluster, batch.is_full
                    )
                    is_due = len(queue.batches) > 1 or batch.is_full
                    return result, self._waiting.needs_wakeup(queue, FULL if is_due else now_ms + self.linger_ms)
        finally:
            if loan.size:
                self._pool.returned.append(loan)  # a call into C: it is done before a signal handler can run
                self._pool.take_in_returned()

    def _publish(self, queue: PartitionQueue, batch: ProducerBatch, loan: Loan) -> None:
        """Put a new batch into its queue. Needs the queue's lock.

        From here on the batch owns its buffer, ``flush`` waits for it, and the sender will look at its queue: all or
        nothing, as there is no call between these statements.
        """
        batches, changed = queue.batches, self._waiting.changed_queues
        self._incomplete[batch] = None
        batches += (batch,)
        changed += (queue,)
        loan.size = 0

    def _expected_to_borrow(self, topic: str, size: int) -> int:
        """Return what a batch of ``size`` bytes will borrow at first for records that are not compressed yet."""
        if self._compression_type is CompressionType.NONE:
            return 0
        ratio = CompressionRatioEstimator.estimation(topic, self._compression_type)
        return int(min(size / ratio - size, BORROWED_AT_ONCE * size, self._max_uncompressed_size)) if ratio < 1 else 0

    def _capacity_of_next_batch(self, queue: PartitionQueue) -> int:
        """``batch.size``; where memory runs short, not much more than the partition's last batch had, so that memory
        lasts for more of the partitions than would fit into it with a whole batch each."""
        # Batches with a codec borrow ahead until half is left, which does not mean that memory runs short.
        part = 2 if self._compression_type is CompressionType.NONE else 4
        if self._pool.available_memory * part >= self._pool.total_memory:
            return self._batch_size
        return min(max(2 * queue.last_batch_bytes, _SMALLEST_CAPACITY), self._batch_size)

    @staticmethod
    def _partition_changed(
        queue: PartitionQueue, info: TopicInfo, sticky: StickyPartitionInfo | None, cluster: Cluster
    ) -> bool:
        """Whether the record must go elsewhere: another thread switched, or the switch that was put off is due now."""
        if sticky is None:
            return False
        partitioner = info.partitioner
        if partitioner.sticky is sticky and queue.all_batches_full():
            partitioner.update_partition_info(sticky, 0, cluster, True)
        return partitioner.sticky is not sticky

    def _builder(self, topic: str, buffer: bytearray) -> MemoryRecordsBuilder:
        builder = MemoryRecordsBuilder(
            buffer,
            compression=self._config.compression,
            write_limit=len(buffer),
            memory=None if self._compression_type is CompressionType.NONE else BorrowedMemory(self._pool),
            max_uncompressed_size=max(self._max_uncompressed_size, len(buffer)),
        )
        builder.set_estimated_compression_ratio(CompressionRatioEstimator.estimation(topic, self._compression_type))
        builder.borrow_ahead()
        return builder

    def _add_topic(self, topic: str) -> TopicInfo:
        with HERE.mark, self._lock:
            info = self._topics.get(topic)
            if info is None:
                look_at_load = self._load.look if self._config.enable_adaptive_partitioning else None
                info = self._topics[topic] = TopicInfo(topic, self._batch_size, self._rng, look_at_load)
            return info

    def _add_queue(self, topic: str, info: TopicInfo, partition: int) -> PartitionQueue:
        with HERE.mark, self._lock:
            queue = info.queues.get(partition)
            if queue is None:
                # A whole float would be the same key as its int, and no request could carry its batches.
                number = index(partition)
                queue = info.queues[number] = PartitionQueue(TopicPartition(topic, number), info)
            return queue

    def _all_queues(self) -> list[PartitionQueue]:
        with HERE.mark, self._lock:
            return [queue for info in self._topics.values() for queue in info.queues.values()]

    # --- which nodes are due -----------------------------------------------------------------------------------

    def expect_look(self) -> bool:
        """Whoever calls this wakes the sender right after; whether somebody has done so already. Thread: any."""
        return self._waiting.expect_look()

    def begin_look(self) -> None:
        """The sender begins a round: from now on it does not see by itself what is appended."""
        self._waiting.begin_look()

    def end_look(self, next_look_ms: int) -> None:
        """The sender looks again at ``next_look_ms`` at the latest: no need to wake it for what is due later."""
        self._waiting.next_look_ms = next_look_ms

    def ready(self, snapshot: MetadataSnapshot, now_ms: int) -> ReadyCheckResult:
        """The nodes that lead a partition with a batch to send.

        A batch is due when it is full or has others behind it, has lingered, memory is short, a flush or the close is
        under way; and when its partition is not muted and its retry backoff has passed.
        """
        waiting = self._waiting
        waiting.file(snapshot)
        result = ReadyCheckResult()
        result.unknown_leader_topics.update(queue.topic_partition.topic for queue in waiting.leaderless)
        send_all = (
            self._closed
            or bool(self._flushes)
            or self._pool.queued > 0
            or (self._transaction_manager is not None and self._transaction_manager.is_completing)
        )
        for node_id, of_node in waiting.nodes.items():
            delay_ms = of_node.delay_ms(now_ms, send_all)
            if delay_ms <= 0:
                result.ready_nodes[node_id] = of_node.node
            elif delay_ms < result.next_ready_check_delay_ms:
                result.next_ready_check_delay_ms = delay_ms
        return result

    def delay_of_rest_ms(self, snapshot: MetadataSnapshot, nodes: Iterable[int], now_ms: int) -> int:
        """How long until something is due for ``nodes`` that the last drain has left behind."""
        if self.has_due_rest:
            return 0
        waiting = self._waiting
        waiting.file(snapshot)
        of_nodes = [waiting.nodes[node_id] for node_id in nodes if node_id in waiting.nodes]
        return min((of_node.delay_ms(now_ms, False) for of_node in of_nodes), default=FOREVER_MS)

    @property
    def has_undrained(self) -> bool:
        """True if any batch waits.

        After ``close`` the answer is final once it is False: a thread that adds a batch does so under the queue's lock,
        and looks there first whether the accumulator is closed.
        """
        for queue in self._all_queues():
            with HERE.mark, queue.lock:
                if queue.batches:
                    return True
        return False

    def update_node_latency_stats(self, node_id: int, now_ms: int, can_drain: bool) -> None:
        """Note that ``node_id`` had data to send, and whether it could take it."""
        of_node = self._waiting.nodes.get(node_id)
        if of_node is not None:
            of_node.is_blocked = not can_drain
        self._load.update(node_id, now_ms, can_drain)

    # --- handing over ------------------------------------------------------------------------------------------

    def drain(
        self, snapshot: MetadataSnapshot, nodes: Iterable[Node], max_size: int, now_ms: int
    ) -> dict[int, list[ProducerBatch]]:
        """For each node a batch of each partition that it leads, up to ``max_size`` bytes; closed and numbered."""
        self.has_due_rest = False
        return {node.id: self._drain_batches_for_one_node(snapshot, node, max_size, now_ms) for node in nodes}

    def _drain_batches_for_one_node(
        self, snapshot: MetadataSnapshot, node: Node, max_size: int, now_ms: int
    ) -> list[ProducerBatch]:
        ready: list[ProducerBatch] = []
        manager = self._transaction_manager
        waiting = self._waiting
        waiting.file(snapshot)
        of_node = waiting.nodes.get(node.id)
        if of_node is None:
            return ready
        size = 0
        drained_queues: list[PartitionQueue] = []
        for queue in of_node.waiting:
            topic_partition = queue.topic_partition
            if topic_partition in waiting.muted:
                continue
            with HERE.mark, queue.lock:
                if not queue.batches:
                    continue
                first = queue.batches[0]
                if first.backoff_end_ms > now_ms:
                    continue
                if ready and size + first.estimated_size_in_bytes > max_size:
                    self.has_due_rest = True
                    break  # alone it may be larger: compression can turn out worse than estimated
                if manager is not None and manager.should_stop_drain(first):
                    continue  # Java ends the round here, so that one such partition holds up all of the node
                queue.batches.popleft()
                if queue.batches:
                    waiting.changed(queue)
                    if len(queue.batches) > 1 or queue.batches[0].is_full:
                        self.has_due_rest = True
            drained_queues.append(queue)
            try:
                self._prepare(first, now_ms)
            except Exception as error:  # noqa: BLE001 - a codec's, or no memory for it
                # Neither queued nor in flight, it would wait for ever; and so would those drained before it.
                self.unsendable.append((first, error))
                continue
            queue.last_batch_bytes = first.estimated_size_in_bytes
            size += queue.last_batch_bytes
            first.drained(now_ms)
            ready.append(first)
        waiting.served(of_node, drained_queues)
        return ready

    def _prepare(self, batch: ProducerBatch, now_ms: int) -> None:
        """Number and close a batch that was taken out of its queue, where no other thread touches it."""
        manager = self._transaction_manager
        if manager is not None and not batch.has_sequence:  # one that has a number may have been written under it
            manager.number(batch, now_ms)
        batch.close()
        if self._compression_type is not CompressionType.NONE:
            CompressionRatioEstimator.update_estimation(
                batch.topic_partition.topic, self._compression_type, batch.compression_ratio
            )

    def mute_partition(self, topic_partition: TopicPartition) -> None:
        """Send nothing to it until it is unmuted (one request in flight, order guaranteed)."""
        self._waiting.muted.add(topic_partition)
        self._waiting.changed(self._queue_of(topic_partition))

    def unmute_partition(self, topic_partition: TopicPartition) -> None:
        self._waiting.muted.discard(topic_partition)
        self._waiting.changed(self._queue_of(topic_partition))

    # --- taking back -------------------------------------------------------------------------------------------

    def reenqueue(self, batch: ProducerBatch, now_ms: int) -> None:
        """Put a batch back in front to be sent again; with idempotence, to its place by sequence."""
        # Drawn once: whoever asks in the same retry gets the same answer, although it has a random part.
        batch.reenqueued(now_ms, self._retry_backoff.backoff(batch.attempts))
        queue = self._queue_of(batch.topic_partition)
        with HERE.mark, queue.lock:
            self._insert_first(queue.batches, batch)
        self._waiting.changed(queue)

    def split_and_reenqueue(self, big: ProducerBatch) -> int:
        """Put a batch that the broker found too large back as smaller ones; returns how many (KIP-126)."""
        # The estimate let it grow too large: do not estimate below what it really reached.
        ratio = max(1.0, big.compression_ratio)
        CompressionRatioEstimator.set_estimation(big.topic_partition.topic, self._compression_type, ratio)
        target = self._batch_size
        if big.is_split_batch:
            target = max(big.max_record_batch_size, big.estimated_size_in_bytes // 2)
        parts = big.split(target)
        queue = self._queue_of(big.topic_partition)
        self._incomplete.update(dict.fromkeys(parts))
        for part in reversed(parts):
            with HERE.mark, queue.lock:
                if self._transaction_manager is not None:
                    self._transaction_manager.add_in_flight_batch(part)
                self._insert_first(queue.batches, part)
        self._waiting.changed(queue)
        return len(parts)

    def _insert_first(self, batches: deque[ProducerBatch], batch: ProducerBatch) -> None:
        """In front, but behind those that were sent before it and are back already.

        Several requests in flight that all fail come back in any order. The broker takes numbered batches in one order
        only, and expiry looks at the first batch alone, so that must be the oldest. Java puts batches without numbers
        in front of all others, and fails those behind them late.
        """
        manager = self._transaction_manager
        if manager is not None:
            if not batch.has_sequence:
                raise IllegalStateError(f"{batch} was sent and is put back without a sequence number")
            if not manager.has_inflight_batches(batch.topic_partition):
                raise IllegalStateError(f"{batch} is put back but not known as in flight")
        position = 0
        while position < len(batches) and batches[position].stays_before(batch):
            position += 1
        batches.insert(position, batch)

    def _queue_of(self, topic_partition: TopicPartition) -> PartitionQueue:
        topic, partition = topic_partition
        info = self._topics.get(topic) or self._add_topic(topic)
        return info.queues.get(partition) or self._add_queue(topic, info, partition)

    def get_queue(self, topic: str, partition: int) -> PartitionQueue | None:
        info = self._topics.get(topic)
        return None if info is None else info.queues.get(partition)

    def built_in_partitioner(self, topic: str) -> BuiltInPartitioner:
        return self._topics[topic].partitioner

    # --- expiring ----------------------------------------------------------------------------------------------

    @property
    def next_expiry_time_ms(self) -> int:
        """No batch that waits expires before."""
        return self._waiting.next_expiry_ms

    def expired_batches(self, now_ms: int) -> list[ProducerBatch]:
        """Take out the waiting batches whose delivery.timeout.ms has passed, in the order of sending."""
        waiting = self._waiting
        waiting.take_in()
        expired: list[ProducerBatch] = []
        if now_ms < waiting.next_expiry_ms:
            return expired
        waiting.next_expiry_ms = FOREVER_MS
        for queue in self._all_queues():
            if not queue.batches:
                continue
            with HERE.mark, queue.lock:
                while queue.batches and queue.batches[0].has_reached_delivery_timeout(self.delivery_timeout_ms, now_ms):
                    batch = queue.batches.popleft()
                    batch.abort_record_appends()
                    expired.append(batch)
            waiting.changed(queue)
        waiting.take_in()  # which finds out when the next one will expire
        return expired

    # --- completing --------------------------------------------------------------------------------------------

    def stranded_batches(self) -> list[ProducerBatch]:
        """Return the incomplete batches that are neither in a queue nor in flight: nobody would ever see to them.

        There are none between two rounds of the sender, unless the last one was broken off by an exception.
        """
        stranded = []
        for batch in [*self._incomplete]:
            queue = self._queue_of(batch.topic_partition)
            with queue.lock:
                if not batch.in_flight and batch not in queue.batches:
                    stranded.append(batch)
        return stranded

    def complete_batch(self, batch: ProducerBatch) -> None:
        """Note that the fate of ``batch`` is known: flush need not wait for it."""
        self._incomplete.pop(batch, None)

    def deallocate(self, batch: ProducerBatch) -> None:
        """Give its memory back to the pool, once. A batch whose request may still be being written keeps it."""
        if batch.in_flight:
            raise IllegalStateError(f"{batch} is in flight and cannot give its memory back")
        batch.give_back_memory()
        buffer, batch.buffer = batch.buffer, None
        if buffer is not None:
            self._pool.deallocate(buffer, batch.initial_capacity)

    def complete_and_deallocate_batch(self, batch: ProducerBatch) -> None:
        self.complete_batch(batch)
        self.deallocate(batch)

    @property
    def has_incomplete(self) -> bool:
        return bool(self._incomplete)

    # --- flushing and closing ----------------------------------------------------------------------------------

    @property
    def flush_in_progress(self) -> bool:
        """True while any thread is inside ``flush``."""
        return bool(self._flushes)

    def flush(self, timeout_ms: int, wake_sender: Callable[[], object]) -> bool:
        """Make all batches due, and wait for those there are now and what they are split into.

        ``wake_sender`` is called once all batches are due. Return False when ``timeout_ms`` ran out.
        """
        deadline_ms = self._clock.now_ms() + timeout_ms
        token = object()
        try:
            self._flushes[token] = None
            wake_sender()
            # Results, not batches: waiting must not keep the records' memory.
            results: list[ProduceRequestResult] = [batch.produce_future for batch in [*self._incomplete]]
            return all(result.await_all_dependents(max(0, deadline_ms - self._clock.now_ms())) for result in results)
        finally:
            del self._flushes[token]

    def abort_incomplete_batches(self, error: Exception) -> None:
        """Fail all that is not complete with ``error``; needs ``close`` first, so that nothing is added."""
        for queue in self._all_queues():
            with HERE.mark, queue.lock:
                pass  # a thread that found the accumulator open has added its batch now
        self.abort_batches(error)
        with HERE.mark, self._lock:
            self._topics = {}

    def fail_after_fork(self, error: Exception) -> None:
        """In a forked child, where the locks cannot be relied on: let nobody wait for the parent's batches."""
        for batch in list(self._incomplete):
            batch.produce_future.fail_after_fork(error)

    def abort_batches(self, error: Exception) -> None:
        """Fail all that is not complete with ``error``."""
        self._abort([*self._incomplete], error, undrained_only=False)

    def abort_undrained_batches(self, error: Exception) -> None:
        """Fail what was never handed to the sender."""
        self._abort([*self._incomplete], error, undrained_only=True)

    def _abort(self, batches: Sequence[ProducerBatch], error: Exception, undrained_only: bool) -> None:
        for batch in batches:
            queue = self._queue_of(batch.topic_partition)
            with HERE.mark, queue.lock:
                if undrained_only and (batch.has_sequence or batch not in queue.batches):
                    continue
                batch.abort_record_appends()
                if batch in queue.batches:
                    queue.batches.remove(batch)
                    self._waiting.changed(queue)
            if not batch.is_done:  # it is where the sender's thread was ended in the middle of completing it
                batch.abort(error)
            if self._transaction_manager is not None and batch.has_sequence:
                # Or its partition would wait for ever for its answer before it begins a new id or epoch.
                self._transaction_manager.remove_in_flight_batch(batch)
            if batch.in_flight:
                # The network client may be writing its buffer: the response, or the connection's end, gives it back.
                self.complete_batch(batch)
            else:
                self.complete_and_deallocate_batch(batch)

    def close(self) -> None:
        """Take no more records; ends the waiting of threads inside ``append``."""
        self._closed = True
        self._pool.close()
