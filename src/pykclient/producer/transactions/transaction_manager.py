"""The transactions of a producer with a transactional.id (Java: TransactionManager)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pykclient.errors import (
    AuthenticationError,
    AuthorizationError,
    IllegalStateError,
    InvalidTxnStateError,
    KafkaError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    RetriableError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionalIdAuthorizationError,
    UnknownProducerIdError,
)
from pykclient.explanation import counted, shown_duration
from pykclient.log_context import LogContext
from pykclient.network.failures import transactional_id_denied
from pykclient.producer.future import ProducerBatch
from pykclient.producer.transactions import transaction_state as state, transaction_steps as steps
from pykclient.producer.transactions.producer_id_manager import FATAL_ERRORS, ProducerIdAndEpoch
from pykclient.producer.transactions.transaction_steps import TransactionDialogue
from pykclient.producer.transactions.transactional_calls import (
    ABORT,
    COMMIT,
    INIT,
    PREPARE,
    PreparedTxnState,
    TransactionalCalls,
    TransactionalSettings,
    TxnOffsets,
    needs_second_generation,
)
from pykclient.protocol.api_keys import ApiKeys
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.clock import Clock
    from pykclient.network.cluster_connection_states import ApiVersions
    from pykclient.network.exponential_backoff import ExponentialBackoff
    from pykclient.producer.sender_thread import SenderThread
    from pykclient.producer.transactions.transaction_steps import Outcome, TxnStep
    from pykclient.protocol.messages.end_txn import EndTxnResponse
    from pykclient.protocol.messages.init_producer_id import InitProducerIdResponse

_FIRST_INIT_VERSION_WITH_EPOCH = 3
#: The finalized level of the feature from which on transactions are of the second generation (KIP-890).
_TRANSACTION_VERSION = "transaction.version"
_FIRST_VERSION_OF_V2 = 2

#: How often the end of a transaction is tried again after the answer that it is not open: for two seconds in all.
_END_RETRIES = 20


class TransactionManager(TransactionalCalls):
    """The state of a transaction; decides the next request to its coordinators.

    The sender begins a call of the application in its next round. From then on each round derives the next step from
    the state. So an exception of a signal handler that ends a round loses nothing: the next round derives the same
    step.

    Thread: io
    """

    def __init__(
        self,
        log_context: LogContext,
        settings: TransactionalSettings,
        api_versions: ApiVersions,
        backoff: ExponentialBackoff,
        clock: Clock,
        thread: SenderThread,
    ) -> None:
        super().__init__(log_context, settings, clock, thread)
        self._api_versions = api_versions
        self.dialogue = TransactionDialogue(self._log, backoff)
        # The transaction that is open.
        self._is_started = False  # the coordinator may know of it
        self._partitions_in_transaction: set[TopicPartition] = set()
        #: Partitions with batches to send that are still to be added to the transaction, in its first generation.
        self.new_partitions: set[TopicPartition] = set()
        self._groups_in_transaction: set[str] = set()
        self._end_refusals = 0  # successive answers to EndTxn that the transaction is not open
        self._needs_epoch_bump = False  # after the end of the transaction, as a batch of it has left a gap
        self._can_bump_epoch = False  # the coordinator can give this producer a new epoch (KIP-360)
        self._features_epoch = -1

    # --- states ------------------------------------------------------------------------------------------------

    def transition_to_fatal_error(self, error: Exception) -> None:
        """Fail permanently, and fail all waiting calls."""
        if self._state != state.FATAL_ERROR:
            super().transition_to_fatal_error(error)
        self._fail_calls(self._fatal(error) if isinstance(error, ProducerFencedError) else error)

    def transition_to_abortable_error(self, error: Exception) -> None:
        """Allow only an abort, unless one has already begun."""
        if self._state in state.SENDING:
            self._log.info("The transaction can only be aborted: %r", error)
            self._transition_to(state.ABORTABLE_ERROR, error)
        if self._state == state.ABORTABLE_ERROR:
            self._fail_calls(self._abortable(self.last_error or error))

    def _fail_calls(self, error: Exception) -> None:
        """Fail the calls that wait. An abort continues unless the error is fatal."""
        self._fail_offsets(error)
        pending = self._pending
        if pending is not None and (pending.result.operation != ABORT or self._state == state.FATAL_ERROR):
            pending.fail(error)

    def _too_long(self) -> str:
        """Return that the coordinator has aborted the transaction, if it has been open for too long; else nothing."""
        open_for_ms = self._clock.now_ms() - self._begun_ms
        if self._state not in state.ONGOING or open_for_ms < self.transaction_timeout_ms or self._two_phase_commit:
            return ""
        return (
            f"its transaction was open for {open_for_ms / 1000} s, longer than transaction.timeout.ms = "
            f"{self.transaction_timeout_ms}, so the coordinator has aborted it"
        )

    def _fence(self, error: Exception) -> None:
        """Fail permanently: the coordinator has given this producer's epoch up."""
        why = self._too_long() or "another producer with the same transactional.id has started"
        loss = "Nothing of its open transaction is committed. " if self._state in state.ONGOING else ""
        if self._prepared_state.has_transaction():
            loss = f"Its prepared transaction {self._prepared_state} is left to that producer. "
        fenced = ProducerFencedError(
            f"the producer with transactional.id {self.transactional_id!r} (producer id "
            f"{self.producer_id_and_epoch.producer_id}, epoch {self.producer_id_and_epoch.epoch}) is fenced: {why}. "
            f"{loss}Close this producer"
        )
        fenced.__cause__ = error
        self.transition_to_fatal_error(fenced)

    def explain(self, now_ms: int) -> str:
        """Return a line about the transaction and the producer id. Thread: any."""
        current, id = self.current_state, self.producer_id_and_epoch
        line = f"transactional.id {self.transactional_id!r}, {current}"
        if current in state.ONGOING:
            line += f", begun {shown_duration(now_ms - self._begun_ms)} ago"
            line += "" if self._two_phase_commit else f" (transaction.timeout.ms={self.transaction_timeout_ms})"
            line += f", {counted(len(self._partitions_in_transaction.copy()), 'partition')}"
        if id.is_valid:
            line += f"; producer id {id.producer_id}, epoch {id.epoch}"
        if self.last_error is not None:
            line += f"; {type(self.last_error).__name__}: {self.last_error}"
        return line

    @property
    def must_end_for_close(self) -> bool:
        """True if an open, unprepared transaction must end before the producer closes.

        A prepared one is left to the next producer, as the decision to commit it may be made already.
        """
        return self._state in state.ONGOING and (not self.is_prepared or self.has_calls_left)

    @property
    def has_calls_left(self) -> bool:
        """True while the sender has work for a call or for the end of a transaction."""
        pending = self._pending
        if bool(self._offsets) or (pending is not None and not pending.result.completed):
            return True
        return self._state in state.FLUSHING or self._state == state.INITIALIZING

    @property
    def only_collects(self) -> bool:
        """True while a transaction is open, and no request to a coordinator is needed."""
        return (
            self._state == state.IN_TRANSACTION
            and self._pending is None
            and not (self._offsets or self.new_partitions)
            and self.dialogue.is_idle
        )

    @property
    def is_completing(self) -> bool:
        """True while a transaction is being prepared or ends: all of its batches are due."""
        return self._state in state.FLUSHING

    @property
    def refuses_batches(self) -> bool:
        """True in a state in which unsent batches fail."""
        return self._state in state.REFUSING

    @property
    def is_v2(self) -> bool:
        """True if transactions are of the second generation (KIP-890)."""
        return self._is_v2

    @property
    def undrained_error(self) -> Exception | None:
        """The error for batches that will not be sent; None while they may be sent."""
        if self._state == state.ABORTING_TRANSACTION:
            return TransactionAbortedError("the record was not sent, because its transaction was aborted")
        return self.last_error if self._state == state.ABORTABLE_ERROR else None

    # --- rounds of the sender ----------------------------------------------------------------------------------

    def begin_pending(self) -> bool:
        """Begin the application's pending call, if any; return whether there was one."""
        if self._state in state.SETTLING:
            self._settle_calls()
        pending = self._pending
        if pending is None or pending.is_begun:
            return False
        result = pending.result
        sources, target = _MOVE_OF[result.operation]
        if self._state in sources:
            self._transition_to(target)
        elif self._state != target and not result.completed:  # an error came in between
            result.fail(self._refusal_of(result.operation))
        pending.is_begun = True
        return True

    def _settle_calls(self) -> None:
        """Set the results that follow from the state, if an exception has kept an earlier round from doing it."""
        pending, error = self._pending, self.last_error
        if self._state == state.READY and pending is not None and pending.is_begun:
            pending.result.done()
        elif self._state == state.PREPARED_TRANSACTION:
            if pending is not None and pending.result.operation in {INIT, PREPARE}:
                pending.result.done()
        elif self._state == state.ABORTABLE_ERROR and error is not None:
            self._fail_calls(self._abortable(error))
        elif self._state == state.FATAL_ERROR and error is not None:
            self._fail_calls(self._fatal(error))

    def known_producer(self) -> ProducerIdAndEpoch:
        """Return the producer id and epoch. Thread: any.

        Raises:
            IllegalStateError: there is none yet.
        """
        found = self.producer_id_and_epoch
        if not found.is_valid:
            raise IllegalStateError("there is no producer id: init_transactions() gets one")
        return found

    def begin_abort_for_close(self) -> None:
        """Abort a transaction that the application has left open."""
        if self._pending is not None and not self._pending.is_begun:
            return
        if self._state in {state.IN_TRANSACTION, state.PREPARING_TRANSACTION, state.ABORTABLE_ERROR}:
            self._log.info("Aborting the open transaction, because the producer closes")
            self._transition_to(state.ABORTING_TRANSACTION)

    def close(self, error: Exception) -> None:
        """Fail the calls that wait, because nothing will complete them."""
        if self.is_prepared:
            self._log.info("The prepared transaction %s is left to the next producer", self._prepared_state)
        self._fail_offsets(error)
        if self._pending is not None:
            self._pending.fail(error)

    def handle_answer(self, now_ms: int) -> None:
        """Handle the response that has arrived, if there is one. An interrupted call can be repeated."""
        step, response = self.dialogue.in_flight, self.dialogue.unhandled
        if step is None or response is None:
            return
        if response.disconnected and step.changes_transaction:
            self._request_lost()
        outcome = self._checked_outcome(step, self.dialogue.outcome(step, response))
        if outcome.action == steps.DONE:
            step.on_success(response.response_body)
        else:
            self._handle_failure(step, outcome)
        self.dialogue.handled(step, outcome, now_ms)

    def _checked_outcome(self, step: TxnStep, outcome: Outcome) -> Outcome:
        """Return the outcome, or the lookup of the coordinator if the answer may come from a former one.

        In the second generation the leaders of partitions tell the coordinator of a transaction. A broker that was
        paused, and has not noticed that it is no longer the coordinator, knows nothing of it and refuses to end it.
        """
        if not isinstance(step, steps.EndTxnStep):
            return outcome
        if not (self._is_v2 and isinstance(outcome.error, InvalidTxnStateError)):
            self._end_refusals = 0
            return outcome
        if self._end_refusals >= _END_RETRIES or self._too_long():
            return outcome
        self._end_refusals += 1
        return steps.Outcome(steps.FIND_COORDINATOR, outcome.error)

    def _handle_failure(self, step: TxnStep, outcome: Outcome) -> None:
        action, error = outcome
        assert error is not None
        if action == steps.FENCED or (action == steps.FATAL and self._is_ended_by_another(step, error)):
            self._fence(error)
        elif action == steps.FATAL:
            self.transition_to_fatal_error(self._explained(step, outcome))
        elif action == steps.REFUSED:
            self._init_refused(self._explained(step, outcome))
        elif action == steps.ABORTABLE:
            if self._state == state.INITIALIZING:
                self._init_refused(error)
                return
            if isinstance(error, UnknownProducerIdError):
                self._gap_left()
            offsets = self._offsets[0] if self._offsets else None
            if offsets is not None and step.is_about_offsets:
                offsets.result.fail(error)  # the error itself, of the call that caused it
            self.transition_to_abortable_error(error)

    def _is_ended_by_another(self, step: TxnStep, error: Exception) -> bool:
        """Return whether the coordinator has ended the transaction before this producer could.

        In the second generation it takes this producer's epoch for that of a retry until its successor has another one.
        Until then it refuses the end of the transaction, which it has aborted, because of its state.
        """
        is_refused = isinstance(step, steps.EndTxnStep) and isinstance(error, InvalidTxnStateError)
        return is_refused and self._is_v2 and not self._too_long()

    def _explained(self, step: TxnStep, outcome: Outcome) -> Exception:
        """Return the error of a failed step, with its cause and what to do."""
        action, error = outcome
        assert error is not None
        if isinstance(error, InvalidTxnStateError) and (too_long := self._too_long()):
            late = InvalidTxnStateError(f"{too_long}. Close this producer")
            late.__cause__ = error
            return late
        if isinstance(step, steps.InitProducerIdStep) and (explained := step.explained(action, error)) is not None:
            return explained
        if isinstance(error, TransactionalIdAuthorizationError):
            return transactional_id_denied(self._log.principal, self.transactional_id, f"({step!r})")
        if isinstance(error, (AuthorizationError, AuthenticationError)):
            named: KafkaError = type(error)(f"{step!r} for transactional.id {self.transactional_id!r}: {error}")
            named.__cause__ = error
            return named
        return error

    def _init_refused(self, error: Exception) -> None:
        """Give up the request for a producer id: the application may call ``init_transactions`` again."""
        if self._state == state.INITIALIZING:
            self._transition_to(state.ABORTABLE_ERROR, error)
        if self._state == state.ABORTABLE_ERROR:
            if self._pending is not None:
                self._pending.fail(error)
            self._transition_to(state.UNINITIALIZED)

    def authentication_failed(self, error: AuthenticationError) -> None:
        """Handle a failed authentication with the broker to be asked."""
        self.transition_to_fatal_error(error)

    def next_step(self, now_ms: int, is_flushed: bool) -> TxnStep | None:
        """Return the next request, or None if there is none or one is in flight.

        ``is_flushed``: no batch of the transaction is incomplete or in flight, so it may end.
        """
        if self.dialogue.is_waiting(now_ms):
            return None
        step = self._derive_step(is_flushed)
        if step is None:
            return None
        first = self.dialogue.first_step(step)
        first.principal = self._log.principal
        return first

    def _derive_step(self, is_flushed: bool) -> TxnStep | None:
        current, producer = self._state, self.producer_id_and_epoch
        if current == state.INITIALIZING:
            two_phases = None
            if self._two_phase_commit:
                keeps_prepared = self._keeps_prepared and not producer.is_valid  # else this bumps the epoch
                two_phases = steps.KEEP_PREPARED if keeps_prepared else steps.ABORT_PREPARED
            return steps.InitProducerIdStep(
                self.transactional_id, self.transaction_timeout_ms, producer, self._initialized, two_phases
            )
        if current in state.SENDING:
            if self.new_partitions:
                partitions = frozenset(self.new_partitions)
                return steps.AddPartitionsStep(
                    self.transactional_id, producer, partitions, lambda _: self._partitions_added(partitions)
                )
            if self._offsets:
                return self._offsets_step(self._offsets[0], producer)
        if current == state.PREPARING_TRANSACTION and is_flushed:
            self._prepared()
            return None
        if current in state.COMPLETING and is_flushed:
            if not (self._is_started or self._prepared_state.has_transaction()):
                self._log.debug("The transaction ends without a request, because nothing was sent in it")
                self._ended(None)
                return self._derive_step(is_flushed) if self._state == state.INITIALIZING else None
            committed = current == state.COMMITTING_TRANSACTION
            if not self._is_started:
                # Nothing was sent in the prepared transaction. An abort still gives the next one another epoch, without
                # which both would have the same prepared state. InitProducerId would do so too, but a producer that was
                # replaced would abort the transaction of its successor with it.
                committed = False
            return steps.EndTxnStep(self.transactional_id, producer, committed, self._is_v2, self._ended)
        return None

    def _offsets_step(self, offsets: TxnOffsets, producer: ProducerIdAndEpoch) -> TxnStep:
        group = offsets.group
        group_id = group.group_id or ""
        if not self._is_v2 and group_id not in self._groups_in_transaction:
            return steps.AddOffsetsStep(
                self.transactional_id, producer, group_id, lambda _: self._group_added(group_id)
            )
        self._is_started = True
        return steps.TxnOffsetCommitStep(
            self.transactional_id,
            producer,
            offsets.offsets,
            group,
            self._is_v2,
            lambda _: self._offsets_added(offsets),
        )

    # --- results -----------------------------------------------------------------------------------------------

    def _initialized(self, body: InitProducerIdResponse) -> None:
        if self._state == state.INITIALIZING:
            keeps_prepared = self._keeps_prepared and not self.has_producer_id
            self._partitions.clear()
            self._set_producer_id_and_epoch(ProducerIdAndEpoch(body.producer_id, body.producer_epoch))
            self._update_version()
            self._can_bump_epoch = self._coordinator_bumps_epochs()
            self._needs_epoch_bump = False
            if self._two_phase_commit and not self._is_v2:
                self.transition_to_fatal_error(needs_second_generation())
                return
            ongoing = PreparedTxnState.of(body.ongoing_txn_producer_id, body.ongoing_txn_producer_epoch)
            if keeps_prepared and ongoing.has_transaction():
                self._log.info("An earlier producer has left the prepared transaction %s", ongoing)
                self._begun_ms = self._clock.now_ms()
                self._is_started = True
                self._prepared_state = ongoing
                self._transition_to(state.PREPARED_TRANSACTION)
            else:
                self._found_none = keeps_prepared
                self._transition_to(state.READY)
        self._settle_calls()

    def _prepared(self) -> None:
        """Note that all records and offsets of the transaction are written."""
        self._prepared_state = PreparedTxnState.of(*self.producer_id_and_epoch)
        self._transition_to(state.PREPARED_TRANSACTION)
        self._settle_calls()

    def _partitions_added(self, partitions: Iterable[TopicPartition]) -> None:
        self._is_started = True
        self._partitions_in_transaction.update(partitions)
        self.new_partitions.difference_update(partitions)

    def _group_added(self, group_id: str) -> None:
        self._is_started = True
        self._groups_in_transaction.add(group_id)

    def _offsets_added(self, offsets: TxnOffsets) -> None:
        if self._offsets and self._offsets[0] is offsets:
            offsets.result.done()
            self._offsets.popleft()

    def _ended(self, body: EndTxnResponse | None) -> None:
        """Note that the transaction has ended. In the second generation, the response has the next epoch."""
        if self._state in state.COMPLETING:
            if body is not None and body.producer_id >= 0:
                self._partitions.clear()
                self._needs_epoch_bump = False
                self.producer_id_and_epoch = ProducerIdAndEpoch(body.producer_id, body.producer_epoch)
            was_v2 = self._is_v2
            self._update_version()
            if self._is_v2 and not was_v2:
                # Partitions of an old transaction must not count as parts of one of the new generation.
                self._needs_epoch_bump = True
            self._is_started = False
            self._partitions_in_transaction.clear()
            self.new_partitions.clear()
            self._groups_in_transaction.clear()
            self._fail_offsets(TransactionAbortedError("the transaction was aborted"))
            if self._pending is not None and self._pending.is_begun:
                self._pending.has_ended = True
            self._transition_to(state.INITIALIZING if self._needs_epoch_bump else state.READY)
        self._settle_calls()

    def _fail_offsets(self, error: Exception) -> None:
        while self._offsets:
            self._offsets[0].result.fail(error)
            self._offsets.popleft()

    def _update_version(self) -> None:
        """Take over the generation of transactions that the brokers have agreed on."""
        if self._api_versions.finalized_features_epoch > self._features_epoch:
            info = self._api_versions.finalized_features_info
            self._features_epoch = info.finalized_features_epoch
            self._is_v2 = info.finalized_features.get(_TRANSACTION_VERSION, 0) >= _FIRST_VERSION_OF_V2
            self._log.debug("Transactions are of generation %d", 2 if self._is_v2 else 1)

    # --- batches -----------------------------------------------------------------------------------------------

    def is_send_to_partition_allowed(self, topic_partition: TopicPartition) -> bool:
        """Return whether the partition is part of the transaction, so that its batches may be sent.

        If it is not, it becomes one: at once in the second generation, with a request in the first.
        """
        if self._state == state.FATAL_ERROR:
            return False
        if topic_partition in self._partitions_in_transaction:
            return True
        if self._state not in state.SENDING:
            return False
        if self._is_v2:
            self._is_started = True
            self._partitions_in_transaction.add(topic_partition)
            return True
        self.new_partitions.add(topic_partition)
        return False

    def add_partitions_of(self, batches: Iterable[ProducerBatch]) -> None:
        """Add the partitions of ``batches`` with the next request."""
        self.new_partitions |= {batch.topic_partition for batch in batches} - self._partitions_in_transaction

    def request_epoch_bump(self, topic_partition: TopicPartition) -> None:
        """Allow only an abort: the partition's sequence has a gap, which needs a new epoch."""
        self._gap_left()
        self.transition_to_abortable_error(
            KafkaError(f"the sequence numbers of {topic_partition} no longer match those of the broker")
        )

    def _gap_left(self) -> None:
        """Note that the next transaction needs another epoch. In the second generation it gets one anyway."""
        if self._is_v2 or self._needs_epoch_bump:
            return
        self._needs_epoch_bump = True
        if not self._coordinator_bumps_epochs():
            self.transition_to_fatal_error(
                KafkaError(
                    "a batch of the transaction failed after it was sent, and brokers older than 2.5 cannot give this "
                    "producer a new epoch (KIP-360)"
                )
            )

    def _coordinator_bumps_epochs(self) -> bool:
        """Return False if the coordinator is too old to give this producer a new epoch (KIP-360)."""
        key = steps.CoordinatorKey(steps.TRANSACTION, self.transactional_id)
        coordinator = self.dialogue.coordinator(key)
        versions = None if coordinator is None else self._api_versions.get(coordinator.id_string)
        init = None if versions is None else versions.api_version(ApiKeys.INIT_PRODUCER_ID)
        return init is None or init.max_version >= _FIRST_INIT_VERSION_WITH_EPOCH

    def _request_lost(self) -> None:
        """Request another epoch before the next transaction, because a request of this one got no response.

        A slow broker may process it after its repetition. In the first generation all transactions have the same epoch,
        so the end of this transaction could end the next one in its middle, and offsets of this one could replace later
        ones. Java takes that risk. In the second generation each transaction has an epoch of its own.
        """
        if self._can_bump_epoch and not self._is_v2:
            self._needs_epoch_bump = True

    def handle_failed_batch(self, batch: ProducerBatch, error: Exception, refused: bool) -> None:  # noqa: ARG002
        """Allow only an abort, or fail permanently, after a batch of the transaction failed."""
        current = self.producer_id_and_epoch
        if not batch.has_sequence or current == (batch.producer_id, batch.producer_epoch):  # else of an earlier one
            self._note_failed_batch(batch, error)
        # Last: an exception of a signal handler before this has the failure handled again.
        self.remove_in_flight_batch(batch)

    def _note_failed_batch(self, batch: ProducerBatch, error: Exception) -> None:
        if batch.has_sequence:
            self._gap_left()
        if self.has_fatal_error:
            return
        if isinstance(error, ProducerFencedError):
            self._fence(error)
        elif isinstance(error, FATAL_ERRORS):
            self.transition_to_fatal_error(error)
        elif isinstance(error, RetriableError):
            exhausted = TransactionAbortableError(f"records of the transaction were not written in time: {error}")
            exhausted.__cause__ = error
            self.transition_to_abortable_error(exhausted)
        else:
            self.transition_to_abortable_error(error)

    def can_retry(self, batch: ProducerBatch, error: Exception, log_start_offset: int) -> bool:  # noqa: ARG002
        """Return whether ``batch`` may be retried."""
        if isinstance(error, OutOfOrderSequenceError):
            if isinstance(error, UnknownProducerIdError) or batch.may_be_written:
                return False
            # An earlier batch in flight may still be written.
            return batch.base_sequence != self.last_acked_sequence(batch.topic_partition) + 1
        return isinstance(error, RetriableError)

    def maybe_resolve_sequences(self) -> None:
        """Do nothing: after a failed batch the transaction is aborted, and the next one starts from 0."""

    def recover(self, numbered: list[ProducerBatch]) -> None:
        """Track ``numbered``, all incomplete batches with numbers, after an exception in the middle of a step."""
        super().recover(numbered)
        if self._state in state.ONGOING and not self.dialogue.is_idle:
            self._request_lost()
        self.dialogue.drop()

    def bump_idempotent_epoch_and_reset_id_if_needed(self) -> None:
        """Do nothing: only ``init_transactions`` requests a producer id."""


#: For each call: the states in which the sender begins it, and the next state.
_MOVE_OF: dict[str, tuple[frozenset[str], str]] = {
    INIT: (frozenset((state.UNINITIALIZED,)), state.INITIALIZING),
    PREPARE: (frozenset((state.IN_TRANSACTION,)), state.PREPARING_TRANSACTION),
    COMMIT: (frozenset((state.IN_TRANSACTION, state.PREPARED_TRANSACTION)), state.COMMITTING_TRANSACTION),
    ABORT: (
        frozenset(
            (
                state.IN_TRANSACTION,
                state.PREPARING_TRANSACTION,
                state.PREPARED_TRANSACTION,
                state.ABORTABLE_ERROR,
            )
        ),
        state.ABORTING_TRANSACTION,
    ),
}
