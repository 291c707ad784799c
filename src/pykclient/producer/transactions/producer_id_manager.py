"""The producer id of an idempotent producer, its epoch, and the sequence numbers of each partition (KIP-98, KIP-360).

Java: TransactionManager, TxnPartitionMap.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from pykclient import errors
from pykclient.errors import (
    AuthenticationError,
    ClusterAuthorizationError,
    IllegalStateError,
    InvalidPidMappingError,
    InvalidProducerEpochError,
    KafkaError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    RetriableError,
    TransactionalIdAuthorizationError,
    UnknownProducerIdError,
    UnsupportedVersionError,
    check_move,
)
from pykclient.log_context import LogContext
from pykclient.network.client_request import ClientResponse, RequestBuilder
from pykclient.network.failures import idempotence_denied
from pykclient.producer.future import ProducerBatch
from pykclient.producer.outbox import NO_OFFSET, REST_MS, SUCCEEDED, TxnPartitionState
from pykclient.producer.transactions import transaction_state as state
from pykclient.record.record_batch import MAX_INT32, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.producer.outbox import Outbox
    from pykclient.protocol.messages.init_producer_id import InitProducerIdResponse

NO_LAST_ACKED_SEQUENCE_NUMBER = -1


class ProducerIdAndEpoch(NamedTuple):
    """The producer's id, assigned by the cluster, and the epoch that fences earlier users of the id."""

    producer_id: int
    epoch: int

    @property
    def is_valid(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID


NO_PRODUCER_ID_AND_EPOCH = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def _order(batch: ProducerBatch) -> tuple[int, int, int]:
    return batch.producer_id, batch.producer_epoch, batch.base_sequence


class TxnPartitionEntry(TxnPartitionState):
    """The sequence numbers of one partition. Thread: io."""

    __slots__ = ()

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.producer_id_and_epoch = NO_PRODUCER_ID_AND_EPOCH
        #: The base sequence of the next batch; 2^31 if all are used up. It never wraps around within an epoch.
        self.next_sequence = 0
        #: The sequence of the last acknowledged record; ``next_sequence - 1`` if nothing is in flight.
        self.last_acked_sequence = NO_LAST_ACKED_SEQUENCE_NUMBER
        #: The last acknowledged offset. It tells records lost by the broker from records removed by retention.
        self.last_acked_offset = NO_OFFSET
        #: True if the broker acknowledged a batch of this epoch recently, and so detects missing sequence numbers.
        self.is_known_to_broker = False
        self.last_numbered_ms = 0
        #: Batches drained but not completed, by sequence: responses may arrive in another order.
        self.in_flight: list[ProducerBatch] = []

    def has_sequences_for(self, batch: ProducerBatch) -> bool:
        """Return whether the epoch has enough sequence numbers left for the records of ``batch``.

        Numbers that wrapped around to 0 would compare wrongly with those of earlier batches in flight. If one of these
        is a retry, Java fails records that were written.
        """
        return self.next_sequence + batch.record_count - 1 <= MAX_INT32

    def add_in_flight_batch(self, batch: ProducerBatch) -> None:
        insort(self.in_flight, batch, key=_order)

    def remove_in_flight_batch(self, batch: ProducerBatch) -> None:
        if batch in self.in_flight:
            self.in_flight.remove(batch)

    def has_in_flight_before(self, batch: ProducerBatch) -> bool:
        """Return whether a batch with a lower sequence than ``batch`` is in flight."""
        return bool(self.in_flight) and _order(self.in_flight[0]) < _order(batch)

    def start_sequences_at_beginning(self, producer_id_and_epoch: ProducerIdAndEpoch) -> None:
        """Renumber the batches in flight from 0, with the new id and epoch."""
        sequence = 0
        for batch in self.in_flight:
            batch.reset_producer_state(*producer_id_and_epoch, sequence)
            sequence += batch.record_count
        self.in_flight.sort(key=_order)
        self.producer_id_and_epoch = producer_id_and_epoch
        self.next_sequence = sequence
        self.last_acked_sequence = NO_LAST_ACKED_SEQUENCE_NUMBER
        self.is_known_to_broker = False


class TxnPartitionMap(dict[TopicPartition, TxnPartitionEntry]):
    """The partitions written to with the current producer id. A look-up creates a missing entry. Thread: io."""

    __slots__ = ()

    def __missing__(self, topic_partition: TopicPartition) -> TxnPartitionEntry:
        entry = self[topic_partition] = TxnPartitionEntry(topic_partition)
        return entry

    def track(self, numbered: Iterable[ProducerBatch]) -> None:
        """Make ``numbered`` the batches in flight, and do not reuse their sequence numbers."""
        for entry in self.values():
            entry.in_flight = []
        for batch in numbered:
            entry = self[batch.topic_partition]
            entry.add_in_flight_batch(batch)
            if entry.producer_id_and_epoch == (batch.producer_id, batch.producer_epoch):
                entry.next_sequence = max(entry.next_sequence, batch.last_sequence + 1)


_MAX_EPOCH = (1 << 15) - 1
_NO_TIMEOUT_MS = (1 << 31) - 1

#: Errors after which the producer has failed permanently. Any other error affects only the batch that failed.
FATAL_ERRORS = (
    ClusterAuthorizationError,
    TransactionalIdAuthorizationError,
    ProducerFencedError,
    UnsupportedVersionError,
    InvalidPidMappingError,
)


class ProducerIdManager:
    """Gets a producer id, numbers batches by partition, and bumps the epoch when a broker's numbers no longer match.

    Thread: io, but for ``maybe_fail_with_error``, which any thread may call.
    """

    #: True if the batches are parts of transactions.
    is_transactional = False

    def __init__(self, log_context: LogContext, retry_backoff_ms: int) -> None:
        self._log = log_context.logger(type(self).__module__)
        self._partitions = TxnPartitionMap()
        self.producer_id_and_epoch = NO_PRODUCER_ID_AND_EPOCH
        # A batch that failed after it was sent may or may not have been written. The partition's next sequence is
        # unknown until no batch is in flight. The value is the sequence that follows the failed batch.
        self._unresolved: dict[TopicPartition, int] = {}
        # Partitions whose numbers must start again in a new epoch. Batches in flight to them then get new numbers.
        self._partitions_to_rewrite: set[TopicPartition] = set()
        self._retry_backoff_ms = retry_backoff_ms
        self._state: str = state.UNINITIALIZED
        self._outbox: Outbox | None = None
        self.last_error: Exception | None = None
        #: The next request for a producer id is sent at this time, unless the one in flight has its outcome earlier.
        self.retry_not_before_ms = 0

    # --- state -------------------------------------------------------------------------------------------------

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id_and_epoch.is_valid

    def _set_producer_id_and_epoch(self, value: ProducerIdAndEpoch) -> None:
        self._log.info("The producer id is %d with epoch %d", *value)
        self.producer_id_and_epoch = value

    @property
    def current_state(self) -> str:
        return self._state

    @property
    def numbers_as_usual(self) -> bool:
        """True if ``number`` and ``handle_completed_batch`` are the usual ones, which the compiled form stands for."""
        kind = type(self)
        return (kind.number, kind.handle_completed_batch) == _USUAL

    @property
    def entries(self) -> dict[TopicPartition, TxnPartitionEntry]:
        """The sequence numbers of each partition."""
        return self._partitions

    @property
    def is_settled(self) -> bool:
        """True if there is a producer id, no error, and no partition whose numbers must be looked at."""
        return self._state == state.READY and not self._unresolved and not self._partitions_to_rewrite

    @property
    def has_fatal_error(self) -> bool:
        return self._state == state.FATAL_ERROR

    @property
    def has_abortable_error(self) -> bool:
        return self._state == state.ABORTABLE_ERROR

    def maybe_fail_with_error(self) -> None:
        """Raise the error that made this producer unusable, if there is one.

        Raises:
            KafkaError: the producer has failed permanently.
        """
        if self._state == state.FATAL_ERROR:
            raise KafkaError(
                f"the producer has failed permanently after {self.last_error!r}; close it and create a new one"
            ) from self.last_error

    def transition_to_fatal_error(self, error: Exception) -> None:
        self._log.error("The producer has failed permanently: %r", error)
        self._transition_to(state.FATAL_ERROR, error)

    def transition_to_abortable_error(self, error: Exception) -> None:
        self._transition_to(state.ABORTABLE_ERROR, error)

    def transition_to_uninitialized(self) -> None:
        """Return to the initial state, so that the next batch requests a producer id again."""
        self._transition_to(state.UNINITIALIZED)

    def _transition_to(self, target: str, error: Exception | None = None) -> None:
        check_move("a producer id", state.MOVES, self._state, target)
        self._log.debug("Transition from state %s to %s", self._state, target)
        self._enter(target, error)

    def _enter(self, target: str, error: Exception | None) -> None:
        """Be in the state ``target``. Interrupted anywhere, this leaves records to the Python ``send``."""
        outbox = self._outbox
        if outbox is not None:
            outbox.refuses = True
        self.last_error = error
        self._state = target
        if outbox is not None:
            outbox.refuses = self.refuses_records

    @property
    def refuses_records(self) -> bool:
        """True if ``maybe_fail_with_error`` may raise."""
        return self._state == state.FATAL_ERROR

    def update_outbox(self, outbox: Outbox) -> None:
        """Set ``outbox.refuses``, now and whenever it changes."""
        self._outbox = outbox
        outbox.refuses = self.refuses_records

    @property
    def is_completing(self) -> bool:
        """True while a transaction ends: all of its batches are due."""
        return False

    def send_failed(self, error: Exception) -> None:
        """Record that a record was not appended, which matters only to a transaction. Thread: any."""

    # --- getting an id -----------------------------------------------------------------------------------------

    def bump_idempotent_epoch_and_reset_id_if_needed(self) -> None:
        """Bump the epoch if a failure requires it, and begin to request a producer id if there is none."""
        if self.is_about_to_bump_epoch:
            self._bump_epoch()
        if self._state == state.UNINITIALIZED and not self.has_producer_id:
            self.retry_not_before_ms = 0
            self._transition_to(state.INITIALIZING)

    @property
    def is_about_to_bump_epoch(self) -> bool:
        """True if the next round starts with an epoch bump, which needs no response from a broker."""
        return bool(self._partitions_to_rewrite) and self.has_producer_id

    def _bump_epoch(self) -> None:
        """Bump the epoch locally: an idempotent producer shares its id with no other producer (KIP-360)."""
        producer_id, epoch = self.producer_id_and_epoch
        if epoch == _MAX_EPOCH:
            # Batches in flight get new numbers once the new id arrives. Java numbers them under "no id" at once. It so
            # sends them without idempotence, and a retry can be written twice.
            self._set_producer_id_and_epoch(NO_PRODUCER_ID_AND_EPOCH)
            self._transition_to(state.UNINITIALIZED)
        else:
            self._set_producer_id_and_epoch(ProducerIdAndEpoch(producer_id, epoch + 1))
            self._rewrite_partitions()

    def request_epoch_bump(self, topic_partition: TopicPartition) -> None:
        """Bump the epoch in the next round, and renumber the partition's batches in flight from 0."""
        self._partitions_to_rewrite.add(topic_partition)

    @property
    def needs_id(self) -> bool:
        """True if a producer id must be requested before batches can be sent."""
        return self._state == state.INITIALIZING

    def init_producer_id_request(self) -> RequestBuilder:
        """Return the request for a producer id (Java: TransactionManager.InitProducerIdHandler)."""
        from pykclient.protocol.messages.init_producer_id import InitProducerIdRequest

        return RequestBuilder(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TIMEOUT_MS))

    def authentication_failed(self, error: AuthenticationError) -> None:
        """Handle a failed authentication with the broker to be asked for a producer id."""
        if self._state == state.INITIALIZING:
            self.transition_to_abortable_error(error)

    def handle_init_producer_id(self, response: ClientResponse) -> None:
        """Handle the response to the request for a producer id."""
        if self._state != state.INITIALIZING:
            # The outcome of an earlier request came late. Java fails.
            self._log.debug("Ignoring the response to a second request for a producer id")
            return
        self.retry_not_before_ms = response.received_ms + self._retry_backoff_ms
        if response.authentication_error is not None:
            self.authentication_failed(response.authentication_error)
        elif response.disconnected:
            self._log.debug("Disconnected from node %s while requesting a producer id", response.destination)
        elif response.build_error is not None:
            self.transition_to_fatal_error(response.build_error)
        else:
            body: InitProducerIdResponse = response.response_body
            error = errors.for_code(body.error_code)
            if error is None:
                self._set_producer_id_and_epoch(ProducerIdAndEpoch(body.producer_id, body.producer_epoch))
                self._rewrite_partitions()
                self._transition_to(state.READY)
            elif isinstance(error, RetriableError):
                self._log.debug("Requesting a producer id again after %r", error)
            elif isinstance(error, ClusterAuthorizationError):
                self.transition_to_abortable_error(idempotence_denied(self._log.principal))
            else:
                self.transition_to_fatal_error(error)

    def _rewrite_partitions(self) -> None:
        """Number the batches in flight of the partitions with a gap from 0, in the new epoch."""
        for topic_partition in self._partitions_to_rewrite:
            entry = self._partitions[topic_partition]
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
        entry = self._partitions[topic_partition]
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
        entry = self._partitions[batch.topic_partition]
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
        return self._partitions[topic_partition].next_sequence

    def has_inflight_batches(self, topic_partition: TopicPartition) -> bool:
        return bool(self._partitions[topic_partition].in_flight)

    def add_in_flight_batch(self, batch: ProducerBatch) -> None:
        if not batch.has_sequence:
            raise IllegalStateError(f"{batch} has no sequence number")
        if batch.topic_partition not in self._partitions:
            raise IllegalStateError(f"no sequence numbers were assigned for {batch.topic_partition}")
        self._partitions[batch.topic_partition].add_in_flight_batch(batch)

    def remove_in_flight_batch(self, batch: ProducerBatch) -> None:
        entry = self._partitions.get(batch.topic_partition)
        if entry is not None:
            entry.remove_in_flight_batch(batch)

    def is_in_flight(self, batch: ProducerBatch) -> bool:
        """Return whether ``batch`` is tracked as in flight."""
        entry = self._partitions.get(batch.topic_partition)
        return entry is not None and batch in entry.in_flight

    def first_in_flight_sequence(self, topic_partition: TopicPartition) -> int:
        """Return the lowest base sequence in flight, NO_SEQUENCE if nothing is in flight."""
        in_flight = self._partitions[topic_partition].in_flight
        return in_flight[0].base_sequence if in_flight else NO_SEQUENCE

    def last_acked_sequence(self, topic_partition: TopicPartition) -> int:
        entry = self._partitions.get(topic_partition)
        return NO_LAST_ACKED_SEQUENCE_NUMBER if entry is None else entry.last_acked_sequence

    def last_acked_offset(self, topic_partition: TopicPartition) -> int:
        entry = self._partitions.get(topic_partition)
        return NO_OFFSET if entry is None else entry.last_acked_offset

    # --- outcomes ----------------------------------------------------------------------------------------------

    def handle_completed_batch(self, batch: ProducerBatch, base_offset: int) -> None:
        """Record that ``batch`` is written at ``base_offset``, or NO_OFFSET if the broker no longer knows it."""
        # The partition's entry may have been removed while the batch was in flight; create a new one then.
        entry = self._partitions[batch.topic_partition]
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
        if refused and not self._partitions[batch.topic_partition].has_in_flight_before(batch):
            self.request_epoch_bump(batch.topic_partition)
        else:
            self.mark_sequence_unresolved(batch)

    def can_retry(self, batch: ProducerBatch, error: Exception, log_start_offset: int) -> bool:
        """Return whether ``batch`` may be retried; request an epoch bump if its numbers no longer fit."""
        topic_partition = batch.topic_partition
        if isinstance(error, InvalidProducerEpochError) and batch.sequence_has_been_reset:
            return True  # the attempt used the old epoch; the batch now has the new one
        if isinstance(error, UnknownProducerIdError):
            # Without the log start offset it is unknown what was lost: retry until the broker reports it. A batch that
            # was renumbered meanwhile fails only because of its old number.
            if log_start_offset != NO_OFFSET and not batch.sequence_has_been_reset:
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

    # --- unresolved sequences ----------------------------------------------------------------------------------

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

    # --- batches -----------------------------------------------------------------------------------------------

    def is_send_to_partition_allowed(self, topic_partition: TopicPartition) -> bool:  # noqa: ARG002 - transactions'
        return self._state != state.FATAL_ERROR

    def handle_failed_batch(self, batch: ProducerBatch, error: Exception, refused: bool) -> None:
        """Update the state and the partition's sequence numbers after a batch has failed permanently.

        ``refused``: the batch is certainly not in the log.
        """
        if isinstance(error, FATAL_ERRORS):
            self.transition_to_fatal_error(error)
        if batch.has_sequence and not self.has_fatal_error:
            self._leave_gap(batch, error, refused)
        self.remove_in_flight_batch(batch)

    def recover(self, numbered: list[ProducerBatch]) -> None:
        """Track ``numbered``, all incomplete batches with numbers, after an exception in the middle of a step."""
        self._partitions.track(numbered)
        self.retry_not_before_ms = 0


#: As they are in the source: a test, or an instrumentation, may replace them later.
_USUAL = (ProducerIdManager.number, ProducerIdManager.handle_completed_batch)
