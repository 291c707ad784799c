"""The transactional methods of an application: which are allowed, what they leave to do, and their results."""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, Self, final

from pykclient.clock import HERE, ensure_not_interrupting
from pykclient.errors import (
    IllegalArgumentError,
    IllegalStateError,
    InvalidProducerEpochError,
    KafkaError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    UnsupportedVersionError,
    check_move,
)
from pykclient.log_context import LogContext
from pykclient.producer.transactions import transaction_state as state
from pykclient.producer.transactions.producer_id_manager import ProducerIdManager
from pykclient.record.record_batch import MAX_INT64, NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from pykclient.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from pykclient.clock import Clock, Signal
    from pykclient.producer.sender_thread import SenderThread

_TEXT: Final = re.compile("([0-9]{1,19}):([0-9]{1,5})")
_MAX_EPOCH: Final = (1 << 15) - 1


@final
class PreparedTxnState:
    """Identifies a prepared transaction: the producer id and epoch that its records were written with.

    ``str(state)`` is a text for your database, such as "4711:3"; ``PreparedTxnState(text)`` is that state again.
    Without a text, or with an empty one, it identifies no transaction. Immutable. Thread: any.

    Raises:
        IllegalArgumentError: the text is not that of a prepared state.
    """

    __slots__ = ("epoch", "producer_id")

    producer_id: int
    epoch: int

    def __init__(self, text: str | None = None) -> None:
        producer_id, epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        if text:
            match = _TEXT.fullmatch(text) if type(text) is str else None
            if match is not None:
                producer_id, epoch = int(match[1]), int(match[2])
            if match is None or producer_id > MAX_INT64 or epoch > _MAX_EPOCH:
                raise IllegalArgumentError(
                    f"{text!r} is not a prepared state: that is the text of a PreparedTxnState, a producer id and an "
                    'epoch such as "4711:3"'
                )
        object.__setattr__(self, "producer_id", producer_id)
        object.__setattr__(self, "epoch", epoch)

    @classmethod
    def of(cls, producer_id: int, epoch: int) -> Self:
        """Return the state with this producer id and epoch; a negative id means no transaction."""
        return cls(f"{producer_id}:{epoch}" if producer_id >= 0 else None)

    def has_transaction(self) -> bool:
        """Return True unless this state is empty."""
        return self.producer_id != NO_PRODUCER_ID

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.epoch}" if self.has_transaction() else ""

    def __repr__(self) -> str:
        return f"PreparedTxnState({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PreparedTxnState):
            return NotImplemented
        return (self.producer_id, self.epoch) == (other.producer_id, other.epoch)

    def __hash__(self) -> int:
        return hash((self.producer_id, self.epoch))

    def __reduce__(self) -> tuple[type[PreparedTxnState], tuple[str]]:
        return PreparedTxnState, (str(self),)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a PreparedTxnState cannot be changed: {name} = {value!r}")


#: A waiting thread wakes the sender this often: a signal handler may have interrupted the thread that should have.
_LONGEST_WAIT_MS = 500


class TransactionalRequestResult:
    """The result of one transactional call, set once by the sender.

    ``operation`` is the call, such as ``"commit_transaction()"``. Setting the result again does nothing.

    Thread: any.
    """

    def __init__(self, operation: str, clock: Clock, thread: SenderThread) -> None:
        self.operation = operation
        #: The error that the call failed with; None if it succeeded or is still going on.
        self.error: Exception | None = None
        #: The time in milliseconds that the call took, and when it ended; 0 while it is going on.
        self.duration_ms = self.completed_ms = 0
        #: True once the result is set.
        self.completed = False
        self._clock = clock
        self._created_ms = clock.now_ms()
        self._thread = thread
        self._waiting: list[Signal] = []  # one for each thread in ``await_until``

    def done(self) -> None:
        """Set the result: the call succeeded."""
        self._complete(None)

    def fail(self, error: Exception) -> None:
        """Set the result: the call failed with ``error``."""
        self._complete(error)

    def _complete(self, error: Exception | None) -> None:
        if not self.completed:
            self.error = error
            self.completed_ms = self._clock.now_ms()
            self.duration_ms = self.completed_ms - self._created_ms
            # A waiting thread adds its signal before it reads ``completed``. So either its signal is found below, or
            # it sees that the result is set.
            self.completed = True
        for signal in [*self._waiting]:
            signal.set()

    def await_until(self, deadline_ms: int) -> bool:
        """Drive or await the sender until the result is set; return False after ``deadline_ms``.

        The caller has made sure that its thread may wait (``check_thread``).
        """
        driver = self._thread.driver
        if driver is not None and not self.completed:
            driver.drive(self, deadline_ms)
        if self.completed:
            return True
        clock = self._clock
        signal = clock.new_signal()
        try:
            self._waiting.append(signal)
            while not self.completed:
                remaining_ms = deadline_ms - clock.now_ms()
                if remaining_ms <= 0:
                    return False
                if not signal.wait(min(remaining_ms, _LONGEST_WAIT_MS)):
                    self._thread.wakeup()
        finally:
            self._waiting = [other for other in self._waiting if other is not signal]
        return True

    def check_thread(self) -> None:
        """Check that the current thread may wait for the sender.

        Raises:
            KafkaError: this is the sender's thread, which would wait for itself.
        """
        if self._thread.is_current:
            raise KafkaError(
                f"{self.operation} was called by a callback or a signal handler on the sender's thread: it would wait "
                "for itself. Call it on another thread"
            )
        ensure_not_interrupting(self.operation)


class PendingCall:
    """A call that changes the state; the sender begins it. Another call of the same kind waits for its result."""

    def __init__(self, result: TransactionalRequestResult) -> None:
        self.result = result
        self.is_begun = False
        self.has_ended = False  # the coordinator has ended the transaction, and only a new epoch is missing

    @property
    def has_succeeded(self) -> bool:
        """True once the call has ended without an error. ``prepare_transaction`` has a result to be fetched."""
        return self.result.completed and self.result.error is None and self.result.operation != PREPARE

    def fail(self, error: Exception) -> None:
        """Set an error as the result, unless the transaction has already ended."""
        if self.has_ended:
            self.result.done()
        else:
            self.result.fail(error)


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


class TransactionalCalls(ProducerIdManager):
    """The rules for the application's transactional calls, and the operations that they request.

    A call leaves an operation here, which the sender begins in its next round.

    Thread: any, but for ``_transition_to``: io.
    """

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

        A call that timed out or was interrupted, and has succeeded since, need not be repeated before this. In Java it
        must be.

        Raises:
            IllegalStateError: there is no producer id, a transaction is open, or the last call timed out and is going
                on, or has failed.
            KafkaError: the producer has failed permanently.
        """
        with HERE.mark, self._lock:
            pending = self._pending
            if pending is not None and pending.has_succeeded and self._state == state.READY:
                self._pending = None
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
        """Record that the application has seen the result. Other calls are allowed again."""
        with HERE.mark, self._lock:
            if self._pending is not None and self._pending.result is result:
                self._pending = None

    def send_failed(self, error: Exception) -> None:
        """Record that a record was not appended, so the transaction can only be aborted. Thread: any."""
        with HERE.mark, self._lock:
            if self._state == state.IN_TRANSACTION:
                self._move(state.ABORTABLE_ERROR, error)

    def maybe_fail_with_error(self, call: str = SEND) -> None:
        """Raise the error that prevents sending now, if any. ``call`` is named in its text. Thread: any.

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
        self._pending = PendingCall(result)  # the last statement: from now on the sender continues it
        return result

    def _check_pending(self, call: str) -> None:
        if self._pending is not None:
            earlier = self._pending.result.operation
            raise IllegalStateError(
                f"{call} must wait: {earlier} has begun, and its result has not been returned. Call {earlier} again "
                "for its result if it timed out or was interrupted, or close the producer"
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
        check_move("a producer id", state.MOVES, self._state, target)
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
