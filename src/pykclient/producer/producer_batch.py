"""A batch of records for one partition, and the tables of its states (Java: ProducerBatch).

A batch waits in its partition's queue (QUEUED) until the sender drains it (DRAINED). It is SENT once the network client
has a request with it, and ANSWERED once the response arrives or is known not to. Then the sender puts it back into the
queue for a retry, or completes, fails or splits it (DONE). A batch that fails while the network client still has it is
GIVEN_UP: the client may be writing its memory, so this is freed after the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from pykclient.errors import IllegalStateError
from pykclient.producer.future import FutureRecordMetadata, ProduceRequestResult
from pykclient.producer.outbox import SUCCEEDED, BatchState
from pykclient.record import MemoryRecords, MemoryRecordsBuilder
from pykclient.record.record_batch import (
    NO_SEQUENCE,
    RECORD_BATCH_OVERHEAD,
    estimate_size_in_bytes_upper_bound,
    increment_sequence,
)
from pykclient.types import Header

if TYPE_CHECKING:
    from pykclient.producer.outbox import Loan
    from pykclient.record.record_batch import Buffer
    from pykclient.record.row_columns import RowRun


ABORTED = "ABORTED"  # by the client: a forced close, or a fatal error
FAILED = "FAILED"  # refused by the broker, or expired
SPLIT = "SPLIT"  # its records are in other batches now

#: The results that may still be reported for a batch in a final state. A batch that was aborted or expired in flight
#: may get a late response, which changes nothing for its records. After a success, nothing may be reported.
_LATE_REPORTS = {
    ABORTED: frozenset((FAILED, SUCCEEDED)),
    FAILED: frozenset((FAILED, SUCCEEDED)),
    SPLIT: frozenset[str](),
    SUCCEEDED: frozenset[str](),
}


class RowsInBatch(NamedTuple):
    """Consecutive records of a batch: their result, the index of the first, and their number."""

    result: ProduceRequestResult
    place: int
    rows: int


class ProducerBatch(BatchState):
    """Records that are sent, retried and completed together.

    Application threads fill a batch while they hold its queue's lock. After the drain it belongs to the sender.
    """

    __slots__ = ()
    result_type = ProduceRequestResult
    future_type = FutureRecordMetadata
    loan: Loan | None
    produce_future: ProduceRequestResult

    # --- filling -----------------------------------------------------------------------------------------------

    def try_append_rows(self, run: RowRun, max_bytes: int) -> RowsInBatch | None:
        """Append as many rows as fit; return None if none does. The caller holds the queue's lock.

        The row that reaches ``max_bytes``, uncompressed, is the last.
        """
        if not self.is_open:
            return None
        before = self._builder.uncompressed_bytes_written
        count, largest = self._builder.try_append_rows(run.rows, run.indices, run.first, run.stop, max_bytes)
        appended_bytes = self._builder.uncompressed_bytes_written - before
        run.first += count
        if run.first < run.stop and appended_bytes < max_bytes:
            self.is_open = False  # later appends need not find out again
            run.has_filled_batch = not self.record_count
        if not count:
            return None
        self.appended_bytes = appended_bytes
        self.max_record_size = max(self.max_record_size, largest)
        return RowsInBatch(self.produce_future, self._builder.num_records - count, count)

    def close_for_record_appends(self) -> None:
        """Accept no more records.

        This does not close the builder: closing compresses, which the sender does later, without holding the queue's
        lock.
        """
        self.is_open = False

    def abort_record_appends(self) -> None:
        """Accept no more records and drop those appended. Their futures must still be completed."""
        self.is_open = False
        if not self._builder.is_closed:  # a closed builder accepts none, and its bytes may be in flight
            self._builder.abort()

    # --- sending -----------------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        return self._builder.is_closed

    def reset_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Renumber the closed batch; the next ``close`` computes its CRC again."""
        self.sequence_has_been_reset = True
        self._builder.reopen_and_rewrite_producer_state(
            producer_id, producer_epoch, base_sequence, self._builder.is_transactional
        )
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence

    @property
    def last_sequence(self) -> int:
        return increment_sequence(self.base_sequence, self.record_count - 1)

    @property
    def has_sequence(self) -> bool:
        return self.base_sequence != NO_SEQUENCE

    def reenqueued(self, now_ms: int, retry_backoff_ms: int) -> None:
        """Record that the batch is requeued, to be sent after ``retry_backoff_ms`` at the earliest."""
        self.attempts += 1
        self.retry_backoff_ms = retry_backoff_ms
        self.last_attempt_ms = max(self.last_attempt_ms, now_ms)
        self.in_retry = True

    def stays_before(self, other: ProducerBatch) -> bool:
        """Return whether ``other``, which is being requeued, belongs behind this queued batch.

        It does if this batch was requeued too, and precedes ``other`` by sequence or, without one, by age.
        """
        if other.has_sequence:
            return self.has_sequence and self.base_sequence < other.base_sequence
        was_sent = self.attempts > 0 or self.is_split_batch
        return was_sent and self.created_ms < other.created_ms

    def expiry_ms(self, delivery_timeout_ms: int) -> int:
        """Return when the batch expires: ``delivery.timeout.ms`` after its first record was appended.

        Retries and splits do not postpone that. The sender fails an expired batch in its next step, in its queue
        (``RecordAccumulator.expired_batches``) as well as in flight (``BatchRegister.expired_in_flight``);
        ``WaitingQueues.next_expiry_ms`` is when the first of all batches expires.
        """
        return self.created_ms + delivery_timeout_ms

    def has_reached_delivery_timeout(self, delivery_timeout_ms: int, now_ms: int) -> bool:
        return now_ms >= self.expiry_ms(delivery_timeout_ms)

    def maybe_update_leader_epoch(self, latest: int | None) -> None:
        """Record the leader epoch, and the attempt in which it was first seen."""
        if latest is not None and (self.current_leader_epoch is None or self.current_leader_epoch < latest):
            self._attempts_when_leader_last_changed = self.attempts
            self.current_leader_epoch = latest

    @property
    def backoff_end_ms(self) -> int:
        """The time until which a retry must wait; 0 if it need not wait."""
        if not self.retry_backoff_ms or self.has_leader_changed_for_the_ongoing_retry:
            return 0
        return self.last_attempt_ms + self.retry_backoff_ms

    @property
    def has_leader_changed_for_the_ongoing_retry(self) -> bool:
        """True if the leader has changed since the last attempt, so that the retry needs no backoff (KIP-951)."""
        return self.attempts >= 1 and self.attempts == self._attempts_when_leader_last_changed

    # --- ending ------------------------------------------------------------------------------------------------

    @property
    def is_done(self) -> bool:
        return self.final_state is not None

    def _decided_before(self, final_state: str) -> bool:
        """Return False if the result may still be reported for a batch that has one, and changes nothing.

        Raises:
            IllegalStateError: nothing may follow the result that was decided before.
        """
        before = self.final_state
        if before is not None and final_state not in _LATE_REPORTS[before]:
            raise IllegalStateError(f"{self} cannot become {final_state}: its final state is {before}")
        return False

    def publish(self, defers: bool = False) -> bool:
        """Complete the futures with the decided result, and call their callbacks, unless that has been done.

        With ``defers``, call no callbacks; return False if there are some, so that another call must follow.
        """
        result = self.produce_future
        return result.settled or result.done(defers)

    # --- splitting ---------------------------------------------------------------------------------------------

    def split(self, split_batch_size: int) -> list[ProducerBatch]:
        """Return closed batches of about ``split_batch_size`` bytes with the same records, in order.

        This batch does not change; see ``hand_over_to``. If it has sequence numbers, the parts share them, so that to
        the broker they are still the same write.

        Raises:
            IllegalStateError: the batch has no records.
        """
        # The size of a part is an estimate, so all records might fit into one part again. The batch would then be sent
        # and refused until it expires, as can happen in Java. So a part gets half of the records at most.
        most = (self.record_count + 1) // 2
        parts: list[ProducerBatch] = []
        part: ProducerBatch | None = None
        for record_batch in MemoryRecords(self.records).batches():
            for record in record_batch.records():
                fields = (record.timestamp, record.key, record.value, record.headers)
                if part is None or part.record_count == most or part.try_append(*fields, None) is None:
                    part = self._empty_part(record.key, record.value, record.headers, split_batch_size)
                    parts.append(part)
                    part.try_append(*fields, None)
        if not parts:
            raise IllegalStateError(f"{self} has no records to split")
        sequence = self.base_sequence
        for part in parts:
            part.may_be_written = self.may_be_written or self.attempts > 0
            if self.has_sequence:
                part.set_producer_state(self.producer_id, self.producer_epoch, sequence, self._builder.is_transactional)
                sequence = increment_sequence(sequence, part.record_count)
            # A requeued part may be the last of its queue and have room left. A record appended to it would get a
            # sequence number that the next batch gets too, and the broker would drop one of them as a duplicate.
            part.close()
        return parts

    def hand_over_to(self, parts: list[ProducerBatch]) -> None:
        """Move the futures of the records to ``parts``, which ``split`` returned."""
        places: list[tuple[int, ProduceRequestResult]] = []
        place = 0
        for part in parts:
            places.append((place, part.produce_future))
            place += part.record_count
        result = self.produce_future
        result.parts = places
        self.final_state = SPLIT
        result.split(places)

    def _empty_part(
        self, key: Buffer | None, value: Buffer | None, headers: Sequence[Header], batch_size: int
    ) -> ProducerBatch:
        builder = self._builder
        limit = max(
            batch_size, estimate_size_in_bytes_upper_bound(builder.magic, builder.compression, key, value, headers)
        )
        part = MemoryRecordsBuilder(magic=builder.magic, compression=builder.compression, write_limit=limit)
        return ProducerBatch(
            self.topic_partition, part, self.created_ms, True, self._clock, self.produce_future.sender_thread
        )

    @property
    def max_record_batch_size(self) -> int:
        """The size of a batch that contains only the largest record."""
        return self.max_record_size + RECORD_BATCH_OVERHEAD

    def __repr__(self) -> str:
        return f"ProducerBatch({self.topic_partition}, {self.record_count} records)"
