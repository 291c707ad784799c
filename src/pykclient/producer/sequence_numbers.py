"""The sequence numbers that make retries safe, and what is known about them at the brokers (KIP-98, KIP-360).

Each record of a partition has a sequence number. The broker refuses gaps and drops duplicates. So a retried batch is
not written twice, and batches in flight cannot overtake each other. Java: part of TransactionManager.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from pykclient.errors import (
    IllegalStateError,
    InvalidProducerEpochError,
    OutOfOrderSequenceError,
    RetriableError,
    UnknownProducerIdError,
)
from pykclient.log_context import LogContext
from pykclient.producer.future import NO_OFFSET
from pykclient.producer.producer_batch import SUCCEEDED, ProducerBatch
from pykclient.producer.txn_partition_map import (
    NO_LAST_ACKED_SEQUENCE_NUMBER,
    NO_PRODUCER_ID_AND_EPOCH,
    ProducerIdAndEpoch,
    TxnPartitionMap,
)
from pykclient.record.record_batch import NO_PRODUCER_ID, NO_SEQUENCE
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.producer.produce_messages import PartitionResponse

#: After this pause, assume that the broker may have forgotten the producer. Brokers forget after
#: ``producer.id.expiration.ms``, a day by default. Assuming it too early costs one round trip.
REST_MS = 60_000


class SequenceNumbers(ABC):
    """Assigns sequence numbers per partition, and notices when they no longer match what the broker expects.

    Subclasses decide which partitions may be sent to, and what a gap in the numbers leads to. Thread: io.
    """

    __slots__ = ("__dict__", "__weakref__")

    #: True if the batches are parts of transactions.
    is_transactional = False

    def __init__(self, log_context: LogContext) -> None:
        self._log = log_context.logger(type(self).__module__)
        self._partitions = TxnPartitionMap()
        self.producer_id_and_epoch = NO_PRODUCER_ID_AND_EPOCH
        # A batch that failed after it was sent may or may not have been written. The partition's next sequence is
        # unknown until no batch is in flight. The value is the sequence that follows the failed batch.
        self._unresolved: dict[TopicPartition, int] = {}
        # Partitions whose numbers must start again in a new epoch. Batches in flight to them then get new numbers.
        self._partitions_to_rewrite: set[TopicPartition] = set()

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id_and_epoch.is_valid

    def _set_producer_id_and_epoch(self, value: ProducerIdAndEpoch) -> None:
        self._log.info("The producer id is %d with epoch %d", *value)
        self.producer_id_and_epoch = value

    # --- for subclasses ------------------------------------------------------------------------------------------

    @abstractmethod
    def is_send_to_partition_allowed(self, topic_partition: TopicPartition) -> bool:
        """Return whether batches of the partition may be sent now."""

    @abstractmethod
    def request_epoch_bump(self, topic_partition: TopicPartition) -> None:
        """Note that the partition's numbers have a gap, and must start again in a new epoch."""

    def _rewrite_partitions(self) -> None:
        """Number the batches in flight of the partitions with a gap from 0, in the new epoch."""
        for topic_partition in self._partitions_to_rewrite:
            entry = self._partitions.entries[topic_partition]
            entry.start_sequences_at_beginning(self.producer_id_and_epoch)
            self._unresolved.pop(topic_partition, None)
        self._partitions_to_rewrite.clear()

    # --- numbers -----------------------------------------------------------------------------------------------

    def should_stop_drain(self, first: ProducerBatch) -> bool:
        """Return whether sequence numbers forbid sending ``first``, the next batch of its partition, now.

        A batch that would need sequence numbers above 2^31 - 1 waits until no batch of its partition is in flight. It
        then requests a new epoch, which starts at 0.
        """
        topic_partition = first.topic_partition
        producer_id_and_epoch = self.producer_id_and_epoch
        if producer_id_and_epoch.producer_id == NO_PRODUCER_ID or not self.is_send_to_partition_allowed(
            topic_partition
        ):
            return True
        entry = self._partitions.entries[topic_partition]
        in_flight = entry.in_flight
        if first.base_sequence == NO_SEQUENCE:
            if in_flight and (
                # A batch of a new epoch starts at sequence 0, so all batches of the old epoch must have completed.
                entry.producer_id_and_epoch != producer_id_and_epoch
                # The very first batch is sent alone, and so is the first after a pause. A broker that does not know
                # this producer, or has forgotten it, accepts any sequence. If the first batch failed and the second was
                # accepted, the first could no longer be written (KAFKA-14359, not fixed in Java). In a transaction it
                # would just be aborted.
                or not (entry.is_known_to_broker or self.is_transactional)
            ):
                return True
            # Until it is known whether a failed batch was written, the next sequence is unknown. One assigned now would
            # change while its batch is in flight.
            if topic_partition in self._unresolved or topic_partition in self._partitions_to_rewrite:
                return True
            if entry.has_sequences_for(first):
                return False
            if not in_flight:
                self._log.info("%s has used up its sequence numbers; starting from 0 in a new epoch", topic_partition)
                self.request_epoch_bump(topic_partition)
            return True
        # Retries are sent in order of sequence, with one request in flight.
        expected = in_flight[0].base_sequence if in_flight else NO_SEQUENCE
        return expected not in (NO_SEQUENCE, first.base_sequence)

    def number(self, batch: ProducerBatch, now_ms: int) -> None:
        """Assign sequence numbers to a batch that is sent for the first time, and track it as in flight."""
        entry = self._partitions.entries[batch.topic_partition]
        if not entry.in_flight:
            if entry.producer_id_and_epoch != self.producer_id_and_epoch:
                entry.start_sequences_at_beginning(self.producer_id_and_epoch)
            elif now_ms - entry.last_numbered_ms >= REST_MS:
                entry.is_known_to_broker = False
        entry.last_numbered_ms = now_ms
        producer_id, producer_epoch = self.producer_id_and_epoch
        batch.set_producer_state(producer_id, producer_epoch, entry.next_sequence, self.is_transactional)
        entry.next_sequence += batch.record_count
        if entry.in_flight:
            entry.add_in_flight_batch(batch)
        else:
            entry.in_flight.append(batch)

    def sequence_number(self, topic_partition: TopicPartition) -> int:
        """Return the base sequence of the partition's next batch."""
        return self._partitions.entries[topic_partition].next_sequence

    def has_inflight_batches(self, topic_partition: TopicPartition) -> bool:
        return bool(self._partitions.entries[topic_partition].in_flight)

    def add_in_flight_batch(self, batch: ProducerBatch) -> None:
        if not batch.has_sequence:
            raise IllegalStateError(f"{batch} has no sequence number")
        self._partitions.get(batch.topic_partition).add_in_flight_batch(batch)

    def remove_in_flight_batch(self, batch: ProducerBatch) -> None:
        entry = self._partitions.find(batch.topic_partition)
        if entry is not None:
            entry.remove_in_flight_batch(batch)

    def is_in_flight(self, batch: ProducerBatch) -> bool:
        """Return whether ``batch`` is tracked as in flight."""
        entry = self._partitions.find(batch.topic_partition)
        return entry is not None and batch in entry.in_flight

    def first_in_flight_sequence(self, topic_partition: TopicPartition) -> int:
        """Return the lowest base sequence in flight, NO_SEQUENCE if nothing is in flight."""
        in_flight = self._partitions.entries[topic_partition].in_flight
        return in_flight[0].base_sequence if in_flight else NO_SEQUENCE

    def last_acked_sequence(self, topic_partition: TopicPartition) -> int:
        entry = self._partitions.find(topic_partition)
        return NO_LAST_ACKED_SEQUENCE_NUMBER if entry is None else entry.last_acked_sequence

    def last_acked_offset(self, topic_partition: TopicPartition) -> int:
        entry = self._partitions.find(topic_partition)
        return NO_OFFSET if entry is None else entry.last_acked_offset

    # --- outcomes ----------------------------------------------------------------------------------------------

    def handle_completed_batch(self, batch: ProducerBatch, base_offset: int) -> None:
        """Note that ``batch`` is written, from ``base_offset`` on; NO_OFFSET if the broker no longer knows where."""
        # The partition's entry may have been removed while the batch was in flight; create a new one then.
        entry = self._partitions.entries[batch.topic_partition]
        # For a batch that had already failed this is the late response, and its sequence may belong to an old epoch.
        is_late = batch.final_state != SUCCEEDED
        if entry.producer_id_and_epoch == (batch.producer_id, batch.producer_epoch) and not (
            is_late and batch.sequence_has_been_reset
        ):
            last_sequence = batch.base_sequence + batch.record_count - 1  # numbers never wrap
            acked = entry.last_acked_sequence
            entry.last_acked_sequence = last_sequence if last_sequence > acked else acked
            entry.is_known_to_broker = True
        last_offset = base_offset + batch.record_count - 1
        if base_offset != NO_OFFSET and last_offset > entry.last_acked_offset:
            entry.last_acked_offset = last_offset
        in_flight = entry.in_flight
        if in_flight and in_flight[0] is batch:
            del in_flight[0]
        else:
            entry.remove_in_flight_batch(batch)

    def _leave_gap(self, batch: ProducerBatch, error: Exception, refused: bool) -> None:
        """Note that nothing more is sent under the numbers of ``batch``, which has failed permanently.

        ``refused``: the batch is certainly not in the log. Its numbers then leave a gap, which a new epoch closes.

        If that is not certain, later batches may already be in the log, and must not be renumbered before their
        responses arrive. The same holds for an earlier batch: it may be in the log, and a retry under another number
        would write it again. Java bumps the epoch at once.
        """
        if isinstance(error, OutOfOrderSequenceError):
            self._log.error(
                "The broker refused %r as out of order (producer id %d, epoch %d, sequence %d): records are missing "
                "in the log",
                batch,
                batch.producer_id,
                batch.producer_epoch,
                batch.base_sequence,
            )
            # A broker remembers only the last five batches. An earlier attempt may have been written before those, and
            # so may the batches behind this one.
            refused = batch.attempts == 0 and not batch.may_be_written
        if refused and not self._partitions.entries[batch.topic_partition].has_in_flight_before(batch):
            self.request_epoch_bump(batch.topic_partition)
        else:
            self.mark_sequence_unresolved(batch)

    def can_retry(self, batch: ProducerBatch, error: Exception, response: PartitionResponse) -> bool:
        """Return whether ``batch`` may be retried; request an epoch bump if its numbers no longer fit."""
        topic_partition = batch.topic_partition
        if isinstance(error, InvalidProducerEpochError) and batch.sequence_has_been_reset:
            return True  # the attempt used the old epoch; the batch now has the new one
        if isinstance(error, UnknownProducerIdError):
            # Without the log start offset it is unknown what was lost: retry until the broker reports it. A batch that
            # was renumbered meanwhile fails only because of its old number.
            if response.log_start_offset != NO_OFFSET and not batch.sequence_has_been_reset:
                self.request_epoch_bump(topic_partition)
            return True
        if isinstance(error, OutOfOrderSequenceError):
            if batch.may_be_written and not batch.sequence_has_been_reset:
                # The broker compares whole batches, so it does not recognize a part of a known batch as a duplicate. A
                # retry under another number would write the records again. Java does that.
                return False
            unresolved = self._unresolved.get(topic_partition)
            if unresolved is None:
                is_next = batch.base_sequence == self.last_acked_sequence(topic_partition) + 1
                if is_next and not batch.sequence_has_been_reset:
                    # All earlier batches were acknowledged, so the broker has lost acknowledged records.
                    self.request_epoch_bump(topic_partition)
            elif batch.base_sequence == unresolved == self.first_in_flight_sequence(topic_partition):
                # This batch directly follows the failed one and is the first in flight, so the failed batch was not
                # written.
                self.request_epoch_bump(topic_partition)
            return True
        return isinstance(error, RetriableError)

    def recover(self, numbered: list[ProducerBatch]) -> None:
        """Track ``numbered``, all incomplete batches with numbers, after an exception in the middle of a step."""
        self._partitions.track(numbered)

    # --- unresolved sequences ----------------------------------------------------------------------------------

    @property
    def has_unresolved_sequences(self) -> bool:
        return bool(self._unresolved)

    def mark_sequence_unresolved(self, batch: ProducerBatch) -> None:
        """Stop numbering the partition's batches until it is known whether ``batch`` was written."""
        topic_partition = batch.topic_partition
        following = batch.last_sequence + 1
        self._unresolved[topic_partition] = max(following, self._unresolved.get(topic_partition, 0))

    def maybe_resolve_sequences(self) -> None:
        """Request an epoch bump for each unresolved partition where nothing is in flight and numbers are missing."""
        for topic_partition in list(self._unresolved):
            if self.has_inflight_batches(topic_partition):
                continue
            next_sequence = self.sequence_number(topic_partition)
            last_acked = self.last_acked_sequence(topic_partition)
            if next_sequence != last_acked + 1:
                self._log.info(
                    "%s: the last acknowledged sequence is %d, but the next is %d: numbering from 0 in a new epoch",
                    topic_partition,
                    last_acked,
                    next_sequence,
                )
                self.request_epoch_bump(topic_partition)
            del self._unresolved[topic_partition]
