"""The register of batches that have no result yet: where each one is, and what each of its transitions entails."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pykclient.errors import IllegalStateError, check_move
from pykclient.producer.outbox import (
    ANSWERED,
    DONE,
    DRAINED,
    GIVEN_UP,
    MOVES,
    NO_OFFSET,
    NO_TIMESTAMP,
    QUEUED,
    SENT,
    SUCCEEDED,
)
from pykclient.producer.producer_batch import ABORTED, FAILED, SPLIT, ProducerBatch
from pykclient.record import CompressionRatioEstimator
from pykclient.reentry import HERE

if TYPE_CHECKING:
    from collections import deque

    from pykclient.network.exponential_backoff import ExponentialBackoff
    from pykclient.producer.buffer_pool import BufferPool, Loan, RowBacklog
    from pykclient.producer.sender_thread import SenderThread
    from pykclient.producer.transactions.producer_id_manager import ProducerIdManager
    from pykclient.producer.waiting_queues import AccumulatorConfig, PartitionQueue, WaitingQueues
    from pykclient.types import TopicPartition


class BatchRegister:
    """Performs the state transitions of batches, with their effects on sequences, memory, muting, queues and results.

    A batch that has left its queue is either ``held`` by the sender (DRAINED, ANSWERED) or in flight (SENT, GIVEN_UP).
    A batch leaves the held ones only in the last statement of its next transition. So after an exception in the middle
    of one it is still held, and ``held`` lists all batches that the exception has left without a next step. Each effect
    may be repeated.

    Thread: io, but for ``incomplete``, to which any thread adds new batches.
    """

    __slots__ = (
        "_backlog",
        "_batch_size",
        "_compression_type",
        "_in_flight",
        "_pool",
        "_queue_of",
        "_retry_backoff",
        "_thread",
        "_waiting",
        "held",
        "id_manager",
        "incomplete",
        "is_ordered",
        "results",
        "returned",
        "topics_with_small_batches",
    )

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
        expired.sort(key=_age)
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

    def _put_into_queue(self, batch: ProducerBatch) -> None:
        queue = self._queue_of(batch.topic_partition)
        with HERE.mark, queue.lock:
            check_move("a batch", MOVES, batch.state, QUEUED)
            self._insert_first(queue.batches, batch)
            batch.state = QUEUED
        self._queued_again(queue, batch)

    def _queued_again(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        if self.is_ordered:
            self._waiting.unmute(queue, batch)
        self._waiting.changed(queue)
        del self.held[batch]

    def _insert_first(self, batches: deque[ProducerBatch], batch: ProducerBatch) -> None:
        """Insert a batch at the front, but behind requeued batches that were sent before it.

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
        batches.insert(position, batch)

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
        if self.id_manager is None or batch.has_sequence:
            self._put_into_queue(batch)
            return
        queue = self._queue_of(batch.topic_partition)
        with HERE.mark, queue.lock:
            check_move("a batch", MOVES, batch.state, QUEUED)
            queue.batches.insert(sum(other.has_sequence for other in queue.batches), batch)
            batch.state = QUEUED
        self._queued_again(queue, batch)


_HELD = frozenset((DRAINED, ANSWERED))


def _age(batch: ProducerBatch) -> int:
    return batch.created_ms
