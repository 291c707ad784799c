"""Records waiting to be sent: one queue of batches per partition (Java: RecordAccumulator)."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, TypeVar

from pykclient.clock import FOREVER_MS, HERE, Clock
from pykclient.errors import IllegalStateError, KafkaError
from pykclient.log_context import LogContext
from pykclient.network.exponential_backoff import ExponentialBackoff
from pykclient.network.failures import raise_if_of_signal_handler
from pykclient.network.metadata import Cluster
from pykclient.producer.batch_register import (
    AccumulatorConfig,
    AppendResult,
    AppendRowsResult,
    BatchRegister,
    NodeLatencyStats,
    NodeQueues,
    PartitionQueue,
    TopicInfo,
    WaitingQueues,
)
from pykclient.producer.buffer_pool import BufferPool, Loan, RowBacklog
from pykclient.producer.future import OnDelivery, ProducerBatch, ProduceRequestResult
from pykclient.producer.outbox import FULL, Drain, Lender, Outbox, StickyPartitionInfo, drain_queues
from pykclient.producer.sender_thread import SenderThread
from pykclient.record import CompressionRatioEstimator, CompressionType, MemoryRecordsBuilder
from pykclient.record.memory_records_builder import BORROWED_AT_ONCE
from pykclient.record.record_batch import (
    CURRENT_MAGIC_VALUE,
    MAX_INT32,
    NO_SEQUENCE,
    estimate_size_in_bytes_upper_bound,
)
from pykclient.types import Header, TopicPartition

if TYPE_CHECKING:
    from pykclient.network.metadata import MetadataSnapshot
    from pykclient.producer.transactions.producer_id_manager import ProducerIdManager
    from pykclient.record.record_batch import Buffer
    from pykclient.record.row_columns import RowRun

#: The partitioner of a topic learns the queue lengths after one in this many queues has changed. With few partitions
#: that is after each change; with thousands it is not worthwhile for each batch.
_CHANGES_THAT_MATTER = 64


class PartitionLoad:
    """Tells partitioners the lengths of their queues, and excludes nodes that accept no requests.

    Thread: io, but for ``look``, which any thread may call.
    """

    def __init__(self, unavailable_after_ms: int) -> None:
        """``unavailable_after_ms`` is ``partitioner.availability.timeout.ms``; 0 excludes no node."""
        self._unavailable_after_ms = unavailable_after_ms
        #: True if ``update`` must be told of each attempt to send to a node.
        self.excludes_nodes = unavailable_after_ms > 0
        self._node_stats: dict[int, NodeLatencyStats] = {}

    def look(self, info: TopicInfo, cluster: Cluster) -> None:
        """Update the topic's partitioner with the queue lengths, if enough of them have changed.

        Java does so for all topics before each request; this client does when a partition must be chosen.
        """
        unavailable_after_ms = self._unavailable_after_ms
        queues = info.queues
        is_known = cluster is info.balanced_for and info.changes * _CHANGES_THAT_MATTER < len(queues)
        if is_known and not unavailable_after_ms:  # a node may become slow without any change to a queue
            return
        info.changes = 0
        info.balanced_for = cluster
        if len(queues) < len(cluster.partitions_for_topic(info.partitioner.topic)):
            # Use no load until every partition has had a batch: a partition without a queue would never be chosen.
            info.partitioner.update_partition_load_stats(None, [], len(queues))
            return
        queue_sizes: list[int] = []
        partition_ids: list[int] = []
        all_queues = list(queues.values())  # copied in one step, because other threads may add queues
        for queue in all_queues:
            leader = cluster.leader_for(queue.topic_partition)
            if leader is None:
                continue
            stats = self._node_stats.get(leader.id) if unavailable_after_ms else None
            if stats is None or stats.ready_time_ms - stats.drain_time_ms <= unavailable_after_ms:
                queue_sizes.append(len(queue.batches))
                partition_ids.append(queue.topic_partition.partition)
        info.partitioner.update_partition_load_stats(queue_sizes, partition_ids, len(all_queues))

    def update(self, node_id: int, now_ms: int, can_drain: bool) -> None:
        """Record that ``node_id`` had data to send at ``now_ms``, and whether it could accept a request."""
        stats = self._node_stats.get(node_id)
        if stats is None:
            stats = self._node_stats[node_id] = NodeLatencyStats(now_ms)
        if can_drain:
            stats.drain_time_ms = now_ms
        stats.ready_time_ms = now_ms


T = TypeVar("T")


#: The largest uncompressed size of a batch, unless one record is larger: far below the limit up to which consumers
#: decompress (max.decompressed.batch.bytes). A batch may also take at most this part of ``buffer.memory``.
_MAX_UNCOMPRESSED_SIZE = 32 * 1024 * 1024
_PART_FOR_ONE_BATCH = 4


class RecordAccumulator:
    """Collects records in batches, finds the nodes with batches that are due, and drains these batches.

    ``append``, ``append_rows``, ``flush`` and ``close``: any thread. All else: io, the sender's. Order of locks: a
    queue's lock, then ``_lock`` or the pool's lock. No thread waits for memory while it holds one of them.

    A signal handler may raise an exception anywhere in a method that any thread may call. CPython runs signal handlers
    only after calls and backward jumps. A batch is therefore published by consecutive statements without a call.
    """

    def __init__(
        self,
        config: AccumulatorConfig,
        buffer_pool: BufferPool,
        clock: Clock,
        log_context: LogContext,
        id_manager: ProducerIdManager | None = None,
        rng: random.Random | None = None,
        sender_thread: SenderThread | None = None,
        row_backlog: RowBacklog | None = None,
    ) -> None:
        """``row_backlog`` limits what ``append_rows`` queues; None sets no limit but the memory."""
        self._log = log_context.logger(__name__)
        self.sender_thread = sender_thread or SenderThread()
        self._config = config
        self._batch_size = config.batch_size
        self._max_rows_batch_size = max(config.batch_size, config.max_rows_batch_size)
        self._compression_type = config.compression.type
        self.is_compressed = self._compression_type is not CompressionType.NONE
        self._pool = buffer_pool
        self._lender = Lender(buffer_pool)
        #: Makes the memory of completed batches available to threads that wait for some.
        self.memory_returned = buffer_pool.loans_returned
        self.backlog = row_backlog
        self._max_uncompressed_size = min(_MAX_UNCOMPRESSED_SIZE, buffer_pool.total_memory // _PART_FOR_ONE_BATCH)
        self._clock = clock
        self._rng = rng or random.Random()
        self.id_manager = id_manager
        #: Mute a partition while one of its batches is in flight.
        self.is_ordered = config.guarantee_message_order
        self._is_transactional = id_manager is not None and id_manager.is_transactional
        self._lock = threading.Lock()  # guards: additions to _topics and queues
        self._closed = False
        #: A token for each flush in progress. Its owner adds and removes it without a call in between.
        self._flushes: dict[object, None] = {}
        self._topics: dict[str, TopicInfo] = {}  # only grows, like TopicInfo.queues, until a forced close replaces it
        #: The queues with batches, and when the sender must look at them.
        self.waiting = WaitingQueues(config.linger_ms, config.delivery_timeout_ms)
        #: All batches without a result. The sender completes and requeues batches through it.
        self.register = BatchRegister(
            config,
            self._queue_of,
            self.waiting,
            buffer_pool,
            ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, self._rng),
            id_manager,
            self.sender_thread,
            row_backlog,
        )
        #: Appends the records of the compiled ``send``.
        self.outbox = Outbox(
            buffer_pool,
            self.waiting,
            self.register.incomplete,
            clock,
            self.sender_thread,
            self._lender,
            ProducerBatch,
            batch_size=self._batch_size,
            linger_ms=config.linger_ms,
            max_uncompressed_size=self._max_uncompressed_size,
            compression=config.compression,
            is_transactional=self._is_transactional,
        )
        self.outbox.topics = self._topics
        # Used by the sender only.
        self.load = PartitionLoad(config.partition_availability_timeout_ms)
        self.delivery_timeout_ms = config.delivery_timeout_ms
        self.linger_ms = config.linger_ms
        #: Drained batches that could not be closed, with the error; the sender fails them.
        self.unsendable: list[tuple[ProducerBatch, Exception]] = []

    @property
    def held(self) -> dict[ProducerBatch, None]:
        """The batches in the sender's hands."""
        return self.register.held

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
        """Append a record to its partition's open batch, or to a new one; wait for memory up to ``max_block_ms``.

        If ``partition`` is None, the built-in partitioner chooses. With ``abort_on_new_batch``, a record that needs a
        new batch is not appended (KIP-480). Nor is it if the thread must not wait for memory.
        """
        record = (timestamp_ms, key, value, headers, on_delivery)
        info, future, wake = self._append_to_open_batch(topic, partition, cluster, ProducerBatch.try_append, record)
        if future is not None:
            return future, False, False
        if abort_on_new_batch:
            return None, wake, True
        size = estimate_size_in_bytes_upper_bound(CURRENT_MAGIC_VALUE, self._config.compression, key, value, headers)
        future, wake_for_new = self.append_with_new_batch(
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
        """Append as many rows as fit into one batch; otherwise like ``append``.

        A new batch may be larger than ``batch.size``: its rows are there already, so no record waits for it to fill.
        """
        most = self._batch_size
        if topic not in self.register.topics_with_small_batches:
            most = self._max_rows_batch_size
        # The sticky partition changes after twice the batch size or one batch, see update_partition_info.
        appended = (run, MAX_INT32 if partition is not None else max(2 * self._batch_size, most))
        try_append = ProducerBatch.try_append_rows
        wake = False
        info = self._topics.get(topic) if run.has_filled_batch else None
        if info is None:
            info, taken, wake = self._append_to_open_batch(topic, partition, cluster, try_append, appended)
            if taken is not None:
                return taken, False, False
        if abort_on_new_batch:
            return None, wake, True
        size = run.size_of_next(self._batch_size, most)
        taken, wake_for_new = self.append_with_new_batch(
            topic, info, partition, cluster, try_append, appended, size, max_block_ms, self._limit(topic, cluster)
        )
        return taken, wake or wake_for_new, False

    @property
    def missing_bytes(self) -> int:
        """The number of bytes that must be free for the last append that must not wait."""
        return self._pool.missing_bytes

    def _limit(self, topic: str, cluster: Cluster) -> int:
        """Return how many bytes of rows may be queued, or 0 if memory is the only limit.

        That is a batch for each partition of the topic, and as many requests as may be in flight to a broker: when a
        response arrives, the next request finds its batches in the queues.
        """
        limit = self._config.max_queued_rows
        if self.backlog is None or limit >= self._pool.total_memory or self.sender_thread.is_current:
            return 0  # the sender's thread cannot wait for itself
        limit += (cluster.partition_count_for_topic(topic) or 0) * self._batch_size
        return limit if limit < self._pool.total_memory else 0

    def _append_to_open_batch(
        self,
        topic: str,
        partition: int | None,
        cluster: Cluster,
        try_append: Callable[..., T | None],
        appended: tuple[Any, ...],
    ) -> tuple[TopicInfo, T | None, bool]:
        """Append to the open batch; return the topic, the result, and True if the sender must be woken.

        The result is that of ``try_append(batch, *appended)``; None if there is no open batch, or no room in it. The
        sender must be woken if this call found the batch to be full.
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
                return info, result, result is None and self.waiting.changed(queue, FULL)
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
        """Append to the last batch; return None if it has no room. The caller holds the queue's lock."""
        self._check_open()
        last = queue.batches[-1]
        result = try_append(last, *appended)
        if result is None:
            last.close_for_record_appends()
        elif sticky is not None:
            # The batch is open, so the switch is postponed until the next batch; see update_partition_info.
            info.partitioner.update_partition_info(sticky, last.appended_bytes, cluster, False)
        return result

    def append_with_new_batch(
        self,
        topic: str,
        info: TopicInfo,
        partition: int | None,
        cluster: Cluster,
        try_append: Callable[..., T | None],
        appended: tuple[Any, ...],
        size: int,
        max_block_ms: int,
        limit: int = 0,
    ) -> tuple[T | None, bool]:
        """Append to a new batch, or to one that another thread has added meanwhile.

        Return the result, and True if the sender must be woken; None if the thread must not wait for memory, see
        ``BufferPool``. ``size`` is an upper bound for a batch with only the first record. With ``limit``, wait until at
        most so many bytes of rows are queued.
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
                    if sticky is not None and sticky.produced_bytes >= self._batch_size:
                        # Before taking memory for this partition, make a switch that an open batch had postponed.
                        with HERE.mark, queue.lock:
                            if self._partition_changed(queue, info, sticky, cluster):
                                continue
                    capacity = self.outbox.capacity_of_next_batch(queue)
                    if capacity > size:  # noqa: PLR1730 - max() is a call
                        size = capacity
                    to_borrow = self._expected_to_borrow(topic, size) if self.is_compressed else 0
                    if limit and self.backlog is not None and not loan.queued:
                        max_block_ms = self.backlog.enter(loan, size + to_borrow, limit, max_block_ms)
                        continue  # the partition may have changed during a wait
                    buffer = self._pool.allocate(loan, size, max_block_ms, to_borrow)
                    if buffer is None:
                        return None, False
                now_ms = self._clock.now_ms()
                with HERE.mark, queue.lock:
                    if (
                        sticky is not None
                        and (sticky.produced_bytes >= self._batch_size or info.partitioner.sticky is not sticky)
                        and self._partition_changed(queue, info, sticky, cluster)
                    ):
                        continue
                    if self._closed or self._is_transactional:
                        self._check_open()
                    if queue.batches and queue.batches[-1].is_open:
                        result = self._try_append(queue, info, sticky, cluster, try_append, appended)
                        if result is not None:
                            return result, False
                    batch = ProducerBatch(
                        queue.topic_partition,
                        self._builder(topic, buffer),
                        now_ms,
                        False,
                        self._clock,
                        self.sender_thread,
                    )
                    result = try_append(batch, *appended)
                    if result is None:
                        raise IllegalStateError(f"a new batch of {size} bytes has no room for its first record")
                    self._publish(queue, batch, loan)
                    is_full = batch.is_full
                    if sticky is not None:
                        info.partitioner.update_partition_info(sticky, batch.estimated_size_in_bytes, cluster, is_full)
                    is_due = is_full or len(queue.batches) > 1
                    return result, self.waiting.needs_wakeup(queue, FULL if is_due else now_ms + self.linger_ms)
        finally:
            if loan.queued and self.backlog is not None and not loan.belongs_to_batch:
                self.backlog.leave(loan)
            if loan.size and not loan.belongs_to_batch:
                self._pool.returned.append(loan)  # one call into C, so it completes before a signal handler can run
                self._pool.take_in_returned()

    def _check_open(self) -> None:
        """Check that a record may be appended. The caller holds the queue's lock, so see ``await_appends``."""
        if self._closed:
            raise KafkaError("the producer was closed while a send was in progress")
        manager = self.id_manager
        if manager is not None and manager.is_transactional:
            manager.maybe_fail_with_error()

    def await_appends(self) -> None:
        """Wait for the threads that are appending a record right now.

        Called after a change that makes ``_check_open`` refuse records: then no more are added. Thread: io.
        """
        for queue in self._all_queues():
            with HERE.mark, queue.lock:
                pass  # a thread that was allowed to append has done it by now

    def _publish(self, queue: PartitionQueue, batch: ProducerBatch, loan: Loan) -> None:
        """Add a new batch to its queue. The caller holds the queue's lock.

        From then on the batch owns its memory, ``flush`` waits for the batch, and the sender will check its queue.
        There is no call between the statements, so a signal handler sees either all of this or nothing.
        """
        batches, changed = queue.batches, self.waiting.changed_queues
        self.register.incomplete[batch] = None
        batch.loan = loan
        loan.belongs_to_batch = True
        batches += (batch,)
        changed += (queue,)

    def _expected_to_borrow(self, topic: str, size: int) -> int:
        """Return how many bytes a batch of ``size`` bytes will first borrow for records that are not compressed yet."""
        ratio = CompressionRatioEstimator.estimation(topic, self._compression_type)
        return int(min(size / ratio - size, BORROWED_AT_ONCE * size, self._max_uncompressed_size)) if ratio < 1 else 0

    def _partition_changed(
        self, queue: PartitionQueue, info: TopicInfo, sticky: StickyPartitionInfo, cluster: Cluster
    ) -> bool:
        """Return whether the record needs another partition: another thread switched, or a postponed switch is due."""
        partitioner = info.partitioner
        # The partitioner switches after a batch's worth of bytes.
        if sticky.produced_bytes >= self._batch_size and partitioner.sticky is sticky and queue.all_batches_full():
            partitioner.update_partition_info(sticky, 0, cluster, True)
        return partitioner.sticky is not sticky

    def _builder(self, topic: str, buffer: bytearray) -> MemoryRecordsBuilder:
        size = len(buffer)
        is_compressed = self.is_compressed
        if not is_compressed and size >= self._batch_size:
            return MemoryRecordsBuilder(buffer, write_limit=size)  # the usual batch, which borrows nothing
        builder = MemoryRecordsBuilder(
            buffer,
            compression=self._config.compression,
            write_limit=max(size, self._batch_size),
            lender=self._lender,
            max_uncompressed_size=max(self._max_uncompressed_size, size),
        )
        if not is_compressed:
            return builder
        builder.set_estimated_compression_ratio(CompressionRatioEstimator.estimation(topic, self._compression_type))
        builder.borrow_ahead()
        return builder

    def _add_topic(self, topic: str) -> TopicInfo:
        with HERE.mark, self._lock:
            info = self._topics.get(topic)
            if info is None:
                look_at_load = self.load.look if self._config.enable_adaptive_partitioning else None
                info = self._topics[topic] = TopicInfo(topic, self._batch_size, self._rng, look_at_load)
            return info

    def _add_queue(self, topic: str, info: TopicInfo, partition: int) -> PartitionQueue:
        with HERE.mark, self._lock:
            queue = info.queues.get(partition)
            if queue is None:
                # A float equals its int as a dict key, but no request could carry its batches.
                number = index(partition)
                queue = info.queues[number] = PartitionQueue(TopicPartition(topic, number), info)
            return queue

    def _all_queues(self) -> list[PartitionQueue]:
        with HERE.mark, self._lock:
            return [queue for info in self._topics.values() for queue in info.queues.values()]

    def close_open_batch(self, topic: str, partition: int) -> None:
        """Close the partition's open batch for appends: the next record starts another."""
        queue = self.get_queue(topic, partition)
        if queue is not None:
            with HERE.mark, queue.lock:
                if queue.batches:
                    queue.batches[-1].close_for_record_appends()
                    self.waiting.changed(queue, FULL)

    # --- which nodes are due -----------------------------------------------------------------------------------

    def look_at_all(self) -> None:
        """Check all queues in the next round of the sender, because an exception ended this round early."""
        self.waiting.rebuild(self._all_queues())

    def queued_batches(self) -> list[ProducerBatch]:
        """Return the batches in all queues."""
        batches: list[ProducerBatch] = []
        for queue in self._all_queues():
            with HERE.mark, queue.lock:
                batches += queue.batches
        return batches

    @property
    def sends_all(self) -> bool:
        """True if no batch lingers: memory is short, a flush or a transaction's end is pending, or it is closed."""
        if self._closed or self._flushes or self._pool.queued:
            return True
        if self.backlog is not None and self.backlog.is_awaited:
            return True
        manager = self.id_manager
        return manager is not None and self._is_transactional and manager.is_completing

    def delay_of_rest_ms(self, snapshot: MetadataSnapshot, drained: Iterable[NodeQueues], now_ms: int) -> int:
        """Return the ms until a batch is due that the last drain of the nodes left behind."""
        waiting = self.waiting
        if waiting.changed_queues:
            waiting.file(snapshot)
        delay_ms = FOREVER_MS
        for of_node in drained:
            if of_node.has_due_rest:
                return 0
            if of_node.waiting:
                delay_ms = min(delay_ms, of_node.delay_ms(now_ms, False))
        return delay_ms

    @property
    def has_undrained(self) -> bool:
        """True if any batch waits in a queue.

        After ``close``, False is final: a thread adds a batch while it holds the queue's lock, and first checks whether
        the accumulator is closed.
        """
        for queue in self._all_queues():
            with HERE.mark, queue.lock:
                if queue.batches:
                    return True
        return False

    # --- handing over ------------------------------------------------------------------------------------------

    def drain(self, of_node: NodeQueues, max_size: int, now_ms: int) -> list[ProducerBatch]:
        """Drain, number and close one batch per partition of a node, up to ``max_size`` bytes.

        ``of_node`` then tells whether batches that are due are left behind.
        """
        drain = Drain(of_node, max_size, now_ms)
        of_node.has_due_rest = False
        drain_queues(self, drain)
        self.waiting.served(of_node, drain.queues)
        return drain.ready

    def drain_queue(self, queue: PartitionQueue, drain: Drain) -> bool:
        """Drain the first batch of ``queue`` if it may be sent now; return False if the request has no room for it."""
        waiting = self.waiting
        if queue.topic_partition in waiting.muted:
            return True
        manager = self.id_manager
        batches = queue.batches
        with HERE.mark, queue.lock:
            if not batches:
                return True
            first = batches[0]
            if first.retry_backoff_ms and first.backoff_end_ms > drain.now_ms:
                return True
            if drain.ready and drain.size + first.estimated_size_in_bytes > drain.max_size:
                drain.of_node.has_due_rest = True
                return False  # a single batch may be larger: compression can be worse than estimated
            if manager is not None and manager.should_stop_drain(first):
                return True  # Java stops here, so that one such partition blocks the whole node
            self.register.take(first)
            batches.popleft()
            if batches:
                waiting.changed(queue)
                if len(batches) > 1 or batches[0].is_full:
                    drain.of_node.has_due_rest = True
        drain.queues.append(queue)
        if self.is_ordered:
            waiting.mute(queue, first)
        try:
            # No other thread touches a drained batch. A numbered one may have been written under its number.
            if manager is not None and first.base_sequence == NO_SEQUENCE:
                manager.number(first, drain.now_ms)
            first.close()
        except Exception as error:  # noqa: BLE001 - a codec's, or no memory for it
            self.fail_to_close(first, error)
            return True
        if self.is_compressed:
            self.learn_ratio(first)
        queue.last_batch_bytes = size = first.size_in_bytes
        drain.size += size
        first.drained_ms = max(first.drained_ms, drain.now_ms)
        drain.ready.append(first)
        return True

    def learn_ratio(self, batch: ProducerBatch) -> None:
        """Update the expected compression ratio of the batch's topic with that of the batch, which is closed."""
        CompressionRatioEstimator.update_estimation(
            batch.topic_partition.topic, self._compression_type, batch.compression_ratio
        )

    def fail_to_close(self, batch: ProducerBatch, error: Exception) -> None:
        """Let the sender fail ``batch``, unless a signal handler raised ``error``."""
        raise_if_of_signal_handler(error)
        # Otherwise the batch would be neither queued nor in flight, and never complete, like those drained before it.
        self.unsendable.append((batch, error))

    def _queue_of(self, topic_partition: TopicPartition) -> PartitionQueue:
        topic, partition = topic_partition
        info = self._topics.get(topic) or self._add_topic(topic)
        return info.queues.get(partition) or self._add_queue(topic, info, partition)

    def get_queue(self, topic: str, partition: int) -> PartitionQueue | None:
        info = self._topics.get(topic)
        return None if info is None else info.queues.get(partition)

    # --- expiring ----------------------------------------------------------------------------------------------

    def expired_batches(self, now_ms: int, timeout_ms: int | None = None) -> list[ProducerBatch]:
        """Remove and return the queued batches whose delivery.timeout.ms has passed, in order.

        ``timeout_ms`` replaces delivery.timeout.ms. The next expiry becomes that of the other waiting batches.
        """
        if timeout_ms is None:
            timeout_ms = self.delivery_timeout_ms
        waiting = self.waiting
        expired: list[ProducerBatch] = []
        waiting.next_expiry_ms = FOREVER_MS
        for queue in self._all_queues():
            if not queue.batches:
                continue
            with HERE.mark, queue.lock:
                while queue.batches and queue.batches[0].has_reached_delivery_timeout(timeout_ms, now_ms):
                    batch = queue.batches[0]
                    self.register.take(batch)
                    queue.batches.popleft()
                    batch.abort_record_appends()
                    expired.append(batch)
            waiting.changed(queue)
        waiting.take_in()  # computes the next expiry
        return expired

    # --- flushing and closing ----------------------------------------------------------------------------------

    @property
    def has_incomplete(self) -> bool:
        """True if any batch has no result yet."""
        return bool(self.register.incomplete)

    def flush(self, timeout_ms: int, wake_sender: Callable[[], object]) -> bool:
        """Make all batches due, and wait for the current ones and for those they are split into.

        Call ``wake_sender`` once all batches are due. Return False if ``timeout_ms`` passes first.
        """
        deadline_ms = self._clock.now_ms() + timeout_ms
        token = object()
        try:
            self._flushes[token] = None
            wake_sender()
            results = self.incomplete_results()
            return all(result.await_all_dependents(max(0, deadline_ms - self._clock.now_ms())) for result in results)
        finally:
            del self._flushes[token]

    def incomplete_results(self) -> list[ProduceRequestResult]:
        """Return the results of the batches that have not completed.

        Waiting for results, unlike waiting for batches, does not keep the records' memory.
        """
        return [batch.produce_future for batch in [*self.register.incomplete]]

    def begin_flush(self) -> object:
        """Make all batches due until ``end_flush`` is called with the token that this returns."""
        token = object()
        self._flushes[token] = None
        return token

    def end_flush(self, token: object) -> None:
        del self._flushes[token]

    def abort_incomplete_batches(self, error: Exception) -> None:
        """Fail all incomplete batches with ``error``. Call ``close`` first, so that no batch is added."""
        self.await_appends()
        self.register.abort(error)
        with HERE.mark, self._lock:
            self._topics = {}
            self.outbox.topics = self._topics

    def fail_after_fork(self, error: Exception) -> None:
        """Fail the futures of the parent's batches in a forked child, without taking a lock."""
        for batch in list(self.register.incomplete):
            batch.produce_future.fail_after_fork(error)

    def close(self) -> None:
        """Accept no more records; threads waiting in ``append`` stop waiting."""
        self._closed = True
        self.outbox.is_closed = True
        self._pool.close()
        if self.backlog is not None:
            self.backlog.close()
