"""The producer id, its epoch, and the sequence numbers that make retries safe (KIP-98, KIP-360).

Each record of a partition has a number; the broker refuses gaps and drops what it has seen. So a batch can be sent
again without being written twice, and batches in flight cannot overtake each other. Java: TransactionManager.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

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
)
from pykclient.log_context import LogContext
from pykclient.network.client_request import ClientResponse, RequestBuilder
from pykclient.producer import transaction_state as state
from pykclient.producer.future import NO_OFFSET
from pykclient.producer.producer_batch import ProducerBatch
from pykclient.producer.txn_partition_map import (
    NO_LAST_ACKED_SEQUENCE_NUMBER,
    NO_PRODUCER_ID_AND_EPOCH,
    ProducerIdAndEpoch,
    TxnPartitionMap,
)
from pykclient.record.record_batch import NO_SEQUENCE
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.producer.produce_response import PartitionResponse
    from pykclient.protocol.messages.init_producer_id import InitProducerIdResponse

#: A broker may have forgotten a producer of which it heard nothing for longer. It is told to by
#: ``producer.id.expiration.ms``, a day by default, and what a rest costs is one round trip.
REST_MS = 60_000

_MAX_EPOCH = (1 << 15) - 1
_NO_TIMEOUT_MS = (1 << 31) - 1
_NO_IN_FLIGHT_REQUEST = -1

#: After these the producer cannot go on; any other failure of a batch concerns that batch only.
_FATAL_ERRORS = (
    ClusterAuthorizationError,
    TransactionalIdAuthorizationError,
    ProducerFencedError,
    UnsupportedVersionError,
    InvalidPidMappingError,
)


class InitProducerIdHandler:
    """Asks for a producer id, and takes the answer in (Java: TransactionManager.InitProducerIdHandler). Thread: io."""

    __slots__ = ("_manager", "retry_not_before_ms")

    def __init__(self, manager: TransactionManager) -> None:
        self._manager = manager
        self.retry_not_before_ms = 0

    def request_builder(self) -> RequestBuilder:
        from pykclient.protocol.messages.init_producer_id import InitProducerIdRequest

        return RequestBuilder(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TIMEOUT_MS))

    def on_complete(self, response: ClientResponse) -> None:
        self._manager.handle_init_producer_id(self, response)


class TransactionManager:
    """Sequence numbers per partition, and what to do when they no longer fit what the broker expects.

    Thread: io, but for ``maybe_fail_with_error``, which any thread may call.
    """

    __slots__ = ("__dict__", "__weakref__", "_state")  # a slot for what C looks up with each record

    def __init__(self, log_context: LogContext, retry_backoff_ms: int) -> None:
        self._log = log_context.logger(__name__)
        self._retry_backoff_ms = retry_backoff_ms
        self._partitions = TxnPartitionMap(log_context)
        self._state = state.UNINITIALIZED
        self.last_error: Exception | None = None
        self.producer_id_and_epoch = NO_PRODUCER_ID_AND_EPOCH
        self._pending_requests: deque[InitProducerIdHandler] = deque()
        self._in_flight_correlation_id = _NO_IN_FLIGHT_REQUEST
        # A batch that was given up after it was sent may have been written or not, so its partition's next number is
        # unknown until all in flight are answered. The value is the number that follows that batch.
        self._unresolved: dict[TopicPartition, int] = {}
        # What is in flight to these is numbered anew at the next bump of the epoch.
        self._partitions_to_rewrite: set[TopicPartition] = set()
        self._epoch_bump_required = False

    # --- state -------------------------------------------------------------------------------------------------

    @property
    def is_transactional(self) -> bool:
        """False until transactions come."""
        return False

    @property
    def is_completing(self) -> bool:
        """Whether a transaction is being ended, so that all batches are due."""
        return False

    @property
    def current_state(self) -> str:
        return self._state

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id_and_epoch.is_valid

    @property
    def has_fatal_error(self) -> bool:
        return self._state == state.FATAL_ERROR

    @property
    def has_abortable_error(self) -> bool:
        return self._state == state.ABORTABLE_ERROR

    def maybe_fail_with_error(self) -> None:
        """Raise what made this producer unusable, if anything did."""
        if self._state == state.FATAL_ERROR:
            raise KafkaError(
                f"this producer cannot go on after: {self.last_error!r}; close it and make a new one"
            ) from self.last_error

    def transition_to_fatal_error(self, error: Exception) -> None:
        self._log.error("The producer has failed permanently: %r", error)
        self._transition_to(state.FATAL_ERROR, error)

    def transition_to_abortable_error(self, error: Exception) -> None:
        self._transition_to(state.ABORTABLE_ERROR, error)

    def transition_to_uninitialized(self) -> None:
        """Ask for a producer id again when there is something to send."""
        self._transition_to(state.UNINITIALIZED)

    def _transition_to(self, target: str, error: Exception | None = None) -> None:
        state.check_move(self._state, target)
        self._log.debug("Transition from state %s to %s", self._state, target)
        self.last_error = error
        self._state = target

    # --- getting an id -----------------------------------------------------------------------------------------

    def bump_idempotent_epoch_and_reset_id_if_needed(self) -> None:
        """Do the bump that a failure asked for; ask for an id where there is none."""
        if self._epoch_bump_required and self.has_producer_id:
            self._bump_epoch()
        if self._state == state.UNINITIALIZED and not self.has_producer_id:
            self._transition_to(state.INITIALIZING)
            self._pending_requests.append(InitProducerIdHandler(self))

    @property
    def is_about_to_bump_epoch(self) -> bool:
        """Return whether the next round begins with a bump of the epoch, which needs no answer from a broker."""
        return self._epoch_bump_required and self.has_producer_id

    def _bump_epoch(self) -> None:
        """The idempotent producer raises its epoch by itself: nobody else uses its id (KIP-360)."""
        self._epoch_bump_required = False
        producer_id, epoch = self.producer_id_and_epoch
        if epoch == _MAX_EPOCH:
            # What is in flight gets its numbers when the new id is there. Java numbers it under "no id" at once, and so
            # sends it as if there were no idempotence: a retry of that can be written twice.
            self._set_producer_id_and_epoch(NO_PRODUCER_ID_AND_EPOCH)
            self._transition_to(state.UNINITIALIZED)
        else:
            self._set_producer_id_and_epoch(ProducerIdAndEpoch(producer_id, epoch + 1))
            self._rewrite_partitions()

    def _rewrite_partitions(self) -> None:
        for topic_partition in self._partitions_to_rewrite:
            entry = self._partitions.get_or_create(topic_partition)
            entry.start_sequences_at_beginning(self.producer_id_and_epoch)
            self._unresolved.pop(topic_partition, None)
        self._partitions_to_rewrite.clear()

    def request_idempotent_epoch_bump_for_partition(self, topic_partition: TopicPartition) -> None:
        self._epoch_bump_required = True
        self._partitions_to_rewrite.add(topic_partition)

    def _set_producer_id_and_epoch(self, value: ProducerIdAndEpoch) -> None:
        self._log.info("The producer id is %d with epoch %d", *value)
        self.producer_id_and_epoch = value

    def next_request(self) -> InitProducerIdHandler | None:
        """What to send next to a broker other than batches, taken from the queue."""
        if not self._pending_requests or self._state == state.FATAL_ERROR:
            return None
        return self._pending_requests.popleft()

    def retry(self, handler: InitProducerIdHandler, not_before_ms: int) -> None:
        """Put it back for another try."""
        handler.retry_not_before_ms = not_before_ms
        self._pending_requests.appendleft(handler)

    @property
    def has_in_flight_request(self) -> bool:
        return self._in_flight_correlation_id != _NO_IN_FLIGHT_REQUEST

    def set_in_flight_correlation_id(self, correlation_id: int) -> None:
        self._in_flight_correlation_id = correlation_id

    def authentication_failed(self, error: AuthenticationError) -> None:
        """No broker can be asked for an id."""
        if self._state == state.INITIALIZING:
            self._pending_requests.clear()
            self.transition_to_abortable_error(error)

    def handle_init_producer_id(self, handler: InitProducerIdHandler, response: ClientResponse) -> None:
        """Take the answer to the request for a producer id in."""
        if response.correlation_id != self._in_flight_correlation_id:
            self.transition_to_fatal_error(IllegalStateError("more than one request for a producer id was in flight"))
            return
        self._in_flight_correlation_id = _NO_IN_FLIGHT_REQUEST
        not_before_ms = response.received_ms + self._retry_backoff_ms
        if response.authentication_error is not None:
            self.authentication_failed(response.authentication_error)
        elif response.disconnected:
            self._log.debug("Disconnected from node %s while asking for a producer id", response.destination)
            self.retry(handler, not_before_ms)
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
                self._log.debug("Asking for a producer id again after %r", error)
                self.retry(handler, not_before_ms)
            elif isinstance(error, ClusterAuthorizationError):
                self.transition_to_abortable_error(error)
            else:
                self.transition_to_fatal_error(error)

    # --- numbers -----------------------------------------------------------------------------------------------

    def is_send_to_partition_allowed(self, topic_partition: TopicPartition) -> bool:  # noqa: ARG002 - transactions'
        return self._state != state.FATAL_ERROR

    def should_stop_drain(self, first: ProducerBatch) -> bool:
        """Return whether sequence numbers forbid to send ``first``, the next batch of its partition, now.

        A batch that would need numbers over 2^31 - 1 waits until nothing of its partition is in flight, and asks for a
        new epoch then, which starts from 0.
        """
        topic_partition = first.topic_partition
        if not self.is_send_to_partition_allowed(topic_partition) or not self.has_producer_id:
            return True
        entry = self._partitions.get_or_create(topic_partition)
        in_flight = entry.in_flight
        if not first.has_sequence:
            if in_flight and (
                # A batch of a new epoch starts at sequence 0, so those of the old one must be through.
                entry.producer_id_and_epoch != self.producer_id_and_epoch
                # The very first batch goes alone, and the first after a rest. A broker that knows nothing of this
                # producer, or has forgotten it, takes any sequence number: if the first batch failed and the second was
                # taken, the first could not be written any more (KAFKA-14359, which the Java client lives with).
                or not entry.is_known_to_broker
            ):
                return True
            # While it is unknown whether an expired batch was written, the next number is unknown.
            if self.has_unresolved_sequence(topic_partition):
                return True
            if entry.has_sequences_for(first):
                return False
            if not in_flight:
                self._log.info("%s has used up its sequence numbers; starting from 0 in a new epoch", topic_partition)
                self.request_idempotent_epoch_bump_for_partition(topic_partition)
            return True
        # A retry: only the one that is next by sequence may go, which leaves one request in flight.
        expected = in_flight[0].base_sequence if in_flight else NO_SEQUENCE
        return expected not in (NO_SEQUENCE, first.base_sequence)

    def number(self, batch: ProducerBatch, now_ms: int) -> None:
        """Number a batch that is sent for the first time, and track it from now on."""
        entry = self._partitions.get_or_create(batch.topic_partition)
        if not entry.in_flight:
            if entry.producer_id_and_epoch != self.producer_id_and_epoch:
                entry.start_sequences_at_beginning(self.producer_id_and_epoch)
            elif now_ms - entry.last_numbered_ms >= REST_MS:
                entry.is_known_to_broker = False
        entry.last_numbered_ms = now_ms
        producer_id, producer_epoch = self.producer_id_and_epoch
        batch.set_producer_state(producer_id, producer_epoch, entry.next_sequence, self.is_transactional)
        entry.increment_sequence(batch.record_count)
        entry.add_in_flight_batch(batch)

    def sequence_number(self, topic_partition: TopicPartition) -> int:
        """The base sequence of the partition's next batch."""
        return self._partitions.get_or_create(topic_partition).next_sequence

    def has_inflight_batches(self, topic_partition: TopicPartition) -> bool:
        return bool(self._partitions.get_or_create(topic_partition).in_flight)

    def add_in_flight_batch(self, batch: ProducerBatch) -> None:
        if not batch.has_sequence:
            raise IllegalStateError(f"{batch} has no sequence number to be tracked by")
        self._partitions.get(batch.topic_partition).add_in_flight_batch(batch)

    def remove_in_flight_batch(self, batch: ProducerBatch) -> None:
        entry = self._partitions.find(batch.topic_partition)
        if entry is not None:
            entry.remove_in_flight_batch(batch)

    def first_in_flight_sequence(self, topic_partition: TopicPartition) -> int:
        """The lowest base sequence in flight, NO_SEQUENCE without any."""
        in_flight = self._partitions.get_or_create(topic_partition).in_flight
        return in_flight[0].base_sequence if in_flight else NO_SEQUENCE

    def last_acked_sequence(self, topic_partition: TopicPartition) -> int:
        entry = self._partitions.find(topic_partition)
        return NO_LAST_ACKED_SEQUENCE_NUMBER if entry is None else entry.last_acked_sequence

    def last_acked_offset(self, topic_partition: TopicPartition) -> int:
        entry = self._partitions.find(topic_partition)
        return NO_OFFSET if entry is None else entry.last_acked_offset

    # --- outcomes ----------------------------------------------------------------------------------------------

    def handle_completed_batch(self, batch: ProducerBatch, base_offset: int) -> None:
        # The numbers may have been forgotten while the answered batch was on its way: start a new entry then.
        entry = self._partitions.get_or_create(batch.topic_partition)
        # Of one that was given up this is the late answer, and it may be about numbers of an epoch that is past.
        if entry.producer_id_and_epoch == (batch.producer_id, batch.producer_epoch) and not (
            batch.is_done and batch.sequence_has_been_reset
        ):
            entry.last_acked_sequence = max(entry.last_acked_sequence, batch.last_sequence)
            entry.is_known_to_broker = True
        if base_offset != NO_OFFSET:
            entry.last_acked_offset = max(entry.last_acked_offset, base_offset + batch.record_count - 1)
        entry.remove_in_flight_batch(batch)

    def handle_failed_batch(self, batch: ProducerBatch, error: Exception, refused: bool) -> None:
        """Settle what becomes of the numbers of a batch that failed for good.

        ``refused``: it is surely not in the log, so its numbers leave a gap, which a new epoch closes. Where that is
        not sure, batches behind it may be in the log already, and must not get other numbers before they are answered.
        Nor must a batch before it: a retry of what may be in the log would be written again under another number. Java
        bumps the epoch at once.
        """
        if isinstance(error, _FATAL_ERRORS):
            self.transition_to_fatal_error(error)
        self.remove_in_flight_batch(batch)
        if self.has_fatal_error or not batch.has_sequence:
            return
        if isinstance(error, OutOfOrderSequenceError):
            self._log.error(
                "The broker refused %r as out of order (producer id %d, epoch %d, sequence %d): records are missing "
                "in the log",
                batch,
                batch.producer_id,
                batch.producer_epoch,
                batch.base_sequence,
            )
            # A broker remembers the last five batches only. An earlier attempt may have been written before these, and
            # so may the batches behind it.
            refused = batch.attempts == 0 and not batch.may_be_written
        if refused and not self._partitions.get_or_create(batch.topic_partition).has_in_flight_before(batch):
            self.request_idempotent_epoch_bump_for_partition(batch.topic_partition)
        else:
            self.mark_sequence_unresolved(batch)

    def can_retry(self, batch: ProducerBatch, error: Exception, response: PartitionResponse) -> bool:
        """Whether ``batch`` may be sent again; asks for a bump of the epoch where its numbers no longer fit."""
        topic_partition = batch.topic_partition
        if isinstance(error, InvalidProducerEpochError) and batch.sequence_has_been_reset:
            return True  # this was its attempt under the old epoch, which the new one has overtaken
        if isinstance(error, UnknownProducerIdError):
            # Without the log's start offset it cannot be told what was lost: ask until it is known. A batch that was
            # numbered anew meanwhile only fails for its old number.
            if response.log_start_offset != NO_OFFSET and not batch.sequence_has_been_reset:
                self.request_idempotent_epoch_bump_for_partition(topic_partition)
            return True
        if isinstance(error, OutOfOrderSequenceError):
            if batch.may_be_written and not batch.sequence_has_been_reset:
                # The broker compares whole batches, so to it a part of one that it has is no duplicate. Under another
                # number it would be written again. Java does that.
                return False
            unresolved = self._unresolved.get(topic_partition)
            if unresolved is None:
                is_next = batch.base_sequence == self.last_acked_sequence(topic_partition) + 1
                if is_next and not batch.sequence_has_been_reset:
                    # Nothing before it is missing here, so the broker lost what it had acknowledged.
                    self.request_idempotent_epoch_bump_for_partition(topic_partition)
            elif batch.base_sequence == unresolved == self.first_in_flight_sequence(topic_partition):
                # It follows directly on the batch that failed, and nothing before that is open: so it was not written.
                self.request_idempotent_epoch_bump_for_partition(topic_partition)
            return True
        return isinstance(error, RetriableError)

    # --- unresolved sequences ----------------------------------------------------------------------------------

    @property
    def has_unresolved_sequences(self) -> bool:
        return bool(self._unresolved)

    def has_unresolved_sequence(self, topic_partition: TopicPartition) -> bool:
        """Whether its next number is unknown, or about to change: a number given out now would be changed in flight."""
        return topic_partition in self._unresolved or topic_partition in self._partitions_to_rewrite

    def mark_sequence_unresolved(self, batch: ProducerBatch) -> None:
        """It is unknown whether ``batch`` was written: number no further batches until it is clear."""
        topic_partition = batch.topic_partition
        following = batch.last_sequence + 1
        self._unresolved[topic_partition] = max(following, self._unresolved.get(topic_partition, 0))

    def maybe_resolve_sequences(self) -> None:
        """With nothing left in flight it is known whether numbers are missing; if so, start over in a new epoch."""
        for topic_partition in list(self._unresolved):
            if self.has_inflight_batches(topic_partition):
                continue
            next_sequence = self.sequence_number(topic_partition)
            last_acked = self.last_acked_sequence(topic_partition)
            if next_sequence != last_acked + 1:
                self._log.info(
                    "%s: sequence %d was acknowledged last, and %d is next: numbering from 0 in a new epoch",
                    topic_partition,
                    last_acked,
                    next_sequence,
                )
                self.request_idempotent_epoch_bump_for_partition(topic_partition)
            del self._unresolved[topic_partition]
