"""The calls of an application that sends records in transactions, and which of them are allowed when.

Java: the synchronized methods of TransactionManager.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from pykclient.errors import (
    IllegalStateError,
    InvalidProducerEpochError,
    KafkaError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    UnsupportedVersionError,
)
from pykclient.log_context import LogContext
from pykclient.producer import transaction_state as state
from pykclient.producer.prepared_txn_state import PreparedTxnState
from pykclient.producer.transaction_manager import TransactionManager
from pykclient.producer.transactional_request_result import PendingCall, TransactionalRequestResult
from pykclient.reentry import HERE
from pykclient.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from pykclient.clock import Clock
    from pykclient.producer.sender_thread import SenderThread

#: The calls of the application, as its errors name them.
INIT = "init_transactions()"
BEGIN = "begin_transaction()"
SEND = "send()"
SEND_OFFSETS = "send_offsets_to_transaction()"
PREPARE = "prepare_transaction()"
COMPLETE = "complete_transaction()"
COMMIT = "commit_transaction()"
ABORT = "abort_transaction()"

#: The calls, by the names of their metrics.
CALLS = {
    INIT: "init",
    BEGIN: "begin",
    SEND_OFFSETS: "send-offsets",
    PREPARE: "prepare",
    COMMIT: "commit",
    ABORT: "abort",
}

#: For each state in which a call breaks a rule: the rule.
_RULES = {
    state.UNINITIALIZED: "call init_transactions() first, once for each producer",
    state.INITIALIZING: "init_transactions() has not completed",
    state.READY: "there is no transaction: begin_transaction() begins one",
    state.IN_TRANSACTION: "a transaction is open: commit_transaction() or abort_transaction() ends it",
    state.PREPARING_TRANSACTION: "prepare_transaction() is in progress",
    state.PREPARED_TRANSACTION: (
        "the transaction is prepared: only complete_transaction(), commit_transaction() or abort_transaction() may "
        "follow"
    ),
    state.COMMITTING_TRANSACTION: "commit_transaction() is in progress",
    state.ABORTING_TRANSACTION: "abort_transaction() is in progress",
}


class TransactionalSettings(NamedTuple):
    """The settings of a transactional producer. Times are in milliseconds."""

    transactional_id: str
    transaction_timeout_ms: int
    retry_backoff_ms: int
    two_phase_commit: bool = False


class TxnOffsets(NamedTuple):
    """A call of ``send_offsets_to_transaction``."""

    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    group: ConsumerGroupMetadata
    result: TransactionalRequestResult


class TransactionalCalls(TransactionManager):
    """The rules for the application's transactional calls, and the operations that they ask for.

    A call leaves an operation here, which the sender begins in its next round.

    Thread: any, but for ``_transition_to``: io.
    """

    __slots__ = ()

    is_transactional = True

    def __init__(
        self, log_context: LogContext, settings: TransactionalSettings, clock: Clock, thread: SenderThread
    ) -> None:
        super().__init__(log_context, settings.retry_backoff_ms)
        self.transactional_id = settings.transactional_id
        self.transaction_timeout_ms = settings.transaction_timeout_ms
        self._two_phase_commit = settings.two_phase_commit
        self._clock = clock
        self._thread = thread
        self._lock = threading.Lock()  # guards: _pending, additions to _offsets, changes of _state, last_error
        #                              and the three attributes of two-phase commit that follow _pending
        self._pending: PendingCall | None = None
        self._keeps_prepared = False  # for init_transactions()
        self._found_none = False  # init_transactions() was to keep a prepared transaction, and there was none
        self._prepared_state = PreparedTxnState()  # of the transaction begun or found last
        self._offsets: deque[TxnOffsets] = deque()
        self._begun_ms = 0
        self._is_v2 = False

    def begin_init(self, keep_prepared_txn: bool = False) -> TransactionalRequestResult:
        """Begin to get a producer id. Return the result, that of the pending call if there is one.

        Raises:
            IllegalStateError: the producer has an id already, or ``keep_prepared_txn`` is True without two-phase
                commit, or differs from that of the pending call.
            KafkaError: the producer has failed permanently.
        """
        if keep_prepared_txn:
            self._check_two_phase_commit("init_transactions(keep_prepared_txn=True)")
        with HERE.mark, self._lock:
            if self._pending is None and self._state == state.UNINITIALIZED:
                self._keeps_prepared = keep_prepared_txn
            elif self._keeps_prepared != keep_prepared_txn and self._is_initializing():
                raise IllegalStateError(
                    f"init_transactions(keep_prepared_txn={self._keeps_prepared}) has timed out or was interrupted, "
                    "and goes on. Call it again with the same argument, or close the producer"
                )
            return self._begun(INIT, state.UNINITIALIZED)

    def begin_transaction(self) -> None:
        """Open a transaction.

        Raises:
            IllegalStateError: there is no producer id, a transaction is open, or the last call timed out.
            KafkaError: the producer has failed permanently.
        """
        with HERE.mark, self._lock:
            self._check_pending(BEGIN)
            if self._state != state.READY:
                raise self._refusal_of(BEGIN)
            self._begun_ms = self._clock.now_ms()
            self._prepared_state = PreparedTxnState()
            self._found_none = False
            self._move(state.IN_TRANSACTION)

    def begin_prepare(self) -> TransactionalRequestResult:
        """Begin to prepare the transaction. Return the result, that of the pending call if there is one.

        Raises:
            IllegalStateError: two-phase commit is not enabled, there is no transaction, or another call timed out.
            UnsupportedVersionError: the cluster has only the first generation of transactions.
            TransactionAbortableError: the transaction can only be aborted.
            KafkaError: the producer has failed permanently.
        """
        self._check_two_phase_commit(PREPARE)
        if self._state == state.IN_TRANSACTION and not self._is_v2:
            raise needs_second_generation()
        return self._begin(PREPARE, state.IN_TRANSACTION)

    @property
    def prepared_state(self) -> PreparedTxnState:
        """The state of the prepared transaction; empty if there is none. It is kept until the next one begins."""
        return self._prepared_state

    @property
    def is_prepared(self) -> bool:
        """True if the transaction is prepared, and its commit or abort has not begun."""
        return self._state == state.PREPARED_TRANSACTION

    @property
    def awaits_decision(self) -> bool:
        """True if the application knows that the transaction is prepared, and has not called for its end."""
        return self.is_prepared and self._pending is None

    def begin_complete(self, prepared_state: PreparedTxnState) -> TransactionalRequestResult | None:
        """Begin to commit if ``prepared_state`` is that of the prepared transaction, else to abort.

        Return the result, that of the pending call if there is one; None if ``init_transactions`` was to keep a
        prepared transaction and found none, so that there is nothing to complete.

        Raises:
            IllegalStateError: two-phase commit is not enabled, no transaction is prepared, or another call timed out.
            KafkaError: the producer has failed permanently.
        """
        self._check_two_phase_commit(COMPLETE)
        committed = self._prepared_state == prepared_state
        with HERE.mark, self._lock:
            if self._pending is None:
                if self._found_none and self._state == state.READY:
                    return None
                if self._state != state.PREPARED_TRANSACTION:
                    raise self._refusal_of(COMPLETE)
            return self._begun(COMMIT if committed else ABORT, state.PREPARED_TRANSACTION)

    def _is_initializing(self) -> bool:
        return self._pending is not None and self._pending.result.operation == INIT

    def _check_two_phase_commit(self, call: str) -> None:
        if not self._two_phase_commit:
            raise IllegalStateError(f"{call} needs two-phase commit: set transaction.two.phase.commit.enable=True")

    def begin_commit(self) -> TransactionalRequestResult:
        """Begin to commit. Return the result, that of the pending call if there is one.

        Raises:
            IllegalStateError: there is no transaction, or another call timed out.
            TransactionAbortableError: the transaction can only be aborted.
            KafkaError: the producer has failed permanently.
        """
        return self._begin(COMMIT, state.IN_TRANSACTION, state.PREPARED_TRANSACTION)

    def begin_abort(self) -> TransactionalRequestResult:
        """Begin to abort. Return the result, that of the pending call if there is one.

        A call of ``prepare_transaction`` that timed out ends with this.

        Raises:
            IllegalStateError: there is no transaction, or another call timed out.
            KafkaError: the producer has failed permanently.
        """
        sources = (state.IN_TRANSACTION, state.PREPARING_TRANSACTION, state.PREPARED_TRANSACTION, state.ABORTABLE_ERROR)
        with HERE.mark, self._lock:
            pending = self._pending
            if pending is None or pending.result.operation != PREPARE or self._state not in sources:
                return self._begun(ABORT, *sources)
            self._pending = None
            result = self._begun(ABORT, *sources)
        pending.result.fail(TransactionAbortedError("the transaction was aborted"))
        return result

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> TransactionalRequestResult:
        """Begin to add the offsets of a group to the transaction.

        Raises:
            IllegalStateError: there is no transaction, or another call timed out.
            TransactionAbortableError: the transaction can only be aborted.
            KafkaError: the producer has failed permanently.
        """
        with HERE.mark, self._lock:
            self._check_pending(SEND_OFFSETS)
            if self._state != state.IN_TRANSACTION:
                raise self._refusal_of(SEND_OFFSETS)
            result = TransactionalRequestResult(SEND_OFFSETS, self._clock, self._thread)
            self._offsets.append(TxnOffsets(dict(offsets), group, result))
            return result

    def acknowledge(self, result: TransactionalRequestResult) -> None:
        """Note that the application has seen the result: other calls are allowed again."""
        with HERE.mark, self._lock:
            if self._pending is not None and self._pending.result is result:
                self._pending = None

    def send_failed(self, error: Exception) -> None:
        """Note that a record did not get into a batch: without it, the transaction can only be aborted. Thread: any."""
        with HERE.mark, self._lock:
            if self._state == state.IN_TRANSACTION:
                self._move(state.ABORTABLE_ERROR, error)

    def maybe_fail_with_error(self, call: str = SEND) -> None:
        """Raise the reason why nothing can be sent now, if there is one. ``call`` is for the text. Thread: any.

        Raises:
            IllegalStateError: there is no transaction.
            TransactionAbortableError: the transaction can only be aborted.
            KafkaError: the producer has failed permanently.
        """
        if self._state != state.IN_TRANSACTION:
            raise self._refusal_of(call)

    def _begin(self, call: str, *sources: str) -> TransactionalRequestResult:
        with HERE.mark, self._lock:
            return self._begun(call, *sources)

    def _begun(self, call: str, *sources: str) -> TransactionalRequestResult:
        """Leave a call to the sender. The caller holds the lock."""
        pending = self._pending
        if pending is not None and pending.result.operation == call:
            return pending.result
        self._check_pending(call)
        if self._state not in sources:
            raise self._refusal_of(call)
        result = TransactionalRequestResult(call, self._clock, self._thread)
        self._pending = PendingCall(result)  # the last statement: from now on the sender goes on with it
        return result

    def _check_pending(self, call: str) -> None:
        if self._pending is not None:
            earlier = self._pending.result.operation
            raise IllegalStateError(
                f"{call} must wait: {earlier} has timed out or was interrupted, and goes on. Call {earlier} again for "
                "its result, or close the producer"
            )

    @property
    def refuses_records(self) -> bool:
        return self._state != state.IN_TRANSACTION

    def _refusal_of(self, call: str) -> KafkaError:
        """Return the error of a call that the state does not allow."""
        current, error = self._state, self.last_error
        if current == state.FATAL_ERROR and error is not None:
            return self._fatal(error)
        if current == state.ABORTABLE_ERROR and error is not None:
            return self._abortable(error)
        if call == INIT:
            return IllegalStateError(f"{INIT} was called before: it is called once, before the first transaction")
        if call == COMPLETE and current in {state.READY, state.IN_TRANSACTION}:
            return IllegalStateError(
                f"{COMPLETE} is not possible now: no transaction is prepared. Call {PREPARE} first, or "
                "init_transactions(keep_prepared_txn=True) to find the prepared transaction of an earlier producer"
            )
        return IllegalStateError(f"{call} is not possible now: {_RULES.get(current, current)}")

    def _fatal(self, error: Exception) -> KafkaError:
        """Return the error of a call after the fatal ``error``."""
        if isinstance(error, ProducerFencedError):
            raised: KafkaError = ProducerFencedError(str(error))
        else:
            remedy = f"{INIT} aborts the open transaction"
            if self._prepared_state.has_transaction():
                remedy = (
                    f"init_transactions(keep_prepared_txn=True) and {COMPLETE} end the prepared transaction "
                    f"{self._prepared_state}"
                )
            raised = KafkaError(
                f"the producer has failed permanently after {error!r}; close it and create a new one, whose {remedy}"
            )
        raised.__cause__ = error
        return raised

    def _abortable(self, error: Exception) -> KafkaError:
        """Return the error of a call that is not possible because of ``error``, after which one can only abort."""
        message = f"the transaction can only be aborted, because of {error!r}. Call {ABORT}"
        kind = InvalidProducerEpochError if isinstance(error, InvalidProducerEpochError) else TransactionAbortableError
        raised = kind(message)
        raised.__cause__ = error
        return raised

    def _move(self, target: str, error: Exception | None = None) -> None:
        """Change the state. The caller holds the lock."""
        state.check_move(self._state, target)
        self._enter(target, error)

    def _transition_to(self, target: str, error: Exception | None = None) -> None:
        source = self._state
        with HERE.mark, self._lock:
            self._move(target, error)
        self._log.debug("Transition from state %s to %s", source, target)


def needs_second_generation() -> UnsupportedVersionError:
    return UnsupportedVersionError(
        "two-phase commit needs the second generation of transactions, in which each transaction has its own epoch "
        "(KIP-890): set the feature transaction.version of the cluster to 2, or "
        "transaction.two.phase.commit.enable=False"
    )
