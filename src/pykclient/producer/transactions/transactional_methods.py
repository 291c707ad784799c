"""The transactional methods of a producer (Java: KafkaProducer)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from types import NoneType, TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from pykclient.argument_values import shown
from pykclient.errors import IllegalArgumentError, IllegalStateError, KafkaError, KafkaTimeoutError, ProducerFencedError
from pykclient.producer import record_arguments
from pykclient.producer.future import milliseconds
from pykclient.producer.transactions.producer_id_manager import ProducerIdAndEpoch
from pykclient.producer.transactions.transactional_calls import PreparedTxnState
from pykclient.record.record_batch import MAX_INT64
from pykclient.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from pykclient.pacing import RepeatedErrors
    from pykclient.producer.producer_components import ProducerComponents
    from pykclient.producer.sender_thread import SenderDriver
    from pykclient.producer.transactions.transaction_manager import TransactionManager
    from pykclient.producer.transactions.transactional_calls import TransactionalRequestResult

NO_TRANSACTIONS = (
    "this producer has no transactional.id: set one, a name that no other producer uses at the same time, to send "
    "records in transactions"
)

_OFFSETS = (
    "offsets must map TopicPartition to OffsetAndMetadata or int, or be a list of objects with topic, partition and "
    "offset"
)

#: The note of an error in ``with producer.transaction()`` after which the transaction stays prepared.
LEFT_PREPARED = (
    "The transaction is prepared, and was not aborted: it may be committed in your database. Call "
    "complete_transaction() with the state that is stored there"
)

#: Time that ``with producer.transaction()`` waits for the abort when KeyboardInterrupt or SystemExit leaves its block.
_ENDING_TIMEOUT_S = 0.5

P = ParamSpec("P")
T = TypeVar("T")


def _rests(
    method: Callable[Concatenate[TransactionalMethods, P], T],
) -> Callable[Concatenate[TransactionalMethods, P], T]:
    """Make a method wait before it raises the same error as the last call: a program may repeat it without end."""

    @wraps(method)
    def resting(self: TransactionalMethods, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(self, *args, **kwargs)
        except KafkaError as error:
            self._rest(self._repeated_calls.pause_ms(error, self._components.clock.now_ms()))
            raise

    return resting


class TransactionalMethods:
    """The transactional methods of a KafkaProducer. Thread: any."""

    __slots__ = ()

    if TYPE_CHECKING:
        _components: ProducerComponents
        _driver: SenderDriver
        _max_block_ms: int
        _repeated_calls: RepeatedErrors

        def _ensure_usable(self) -> None: ...

        def _rest(self, duration_ms: int) -> None: ...

    @_rests
    def init_transactions(self, timeout: float | None = None, *, keep_prepared_txn: bool = False) -> None:
        """Get a producer id. Call this once, before the first transaction.

        This fences earlier producers with the same ``transactional.id``, and aborts the transaction that one of them
        has left open. Blocks until the transaction coordinator has done so.

        With ``keep_prepared_txn``, a transaction that was left open is not aborted: it is prepared now, and
        ``complete_transaction`` must follow. That needs ``transaction.two.phase.commit.enable``, and brokers that
        implement it.

        ``timeout`` is in seconds; None means ``max.block.ms``. After a KafkaTimeoutError, call this again to wait on.

        Raises:
            IllegalStateError: the producer has no ``transactional.id``, or this was called before; or
                ``keep_prepared_txn`` is True without two-phase commit.
            UnsupportedVersionError: the brokers do not allow two-phase commit, or cannot keep a prepared transaction.
                In the second case you may call this again without ``keep_prepared_txn``.
            KafkaTimeoutError: the coordinator did not respond in time.
            TransactionalIdAuthorizationError: not authorized for the ``transactional.id``. You may call this again.
            KafkaError: the producer has failed permanently.
        """
        manager, timeout_ms = self._transactional_call(timeout)
        self._await_result(manager, manager.begin_init(keep_prepared_txn), timeout_ms)

    @_rests
    def begin_transaction(self) -> None:
        """Begin a transaction: all records sent until it ends are part of it.

        Raises:
            IllegalStateError: the producer has no ``transactional.id``, ``init_transactions`` was not called, or a
                transaction is open.
            ProducerFencedError: another producer with the same ``transactional.id`` has started.
            KafkaError: the producer has failed permanently.
        """
        self._usable_transactions().begin_transaction()

    @_rests
    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | Iterable[Any],
        group_metadata: ConsumerGroupMetadata | str,
        timeout: float | None = None,
    ) -> None:
        """Commit the offsets of a consumer group as part of the transaction.

        ``offsets`` maps partitions to the offset of the next record to read, as OffsetAndMetadata or int. A list of
        objects with ``topic``, ``partition`` and ``offset`` is accepted as well, as in confluent-kafka.
        ``group_metadata`` is the result of ``KafkaConsumer.group_metadata()``: with it, the broker refuses offsets of a
        consumer that has lost its partitions (KIP-447). The id of a group does not protect against that.

        ``timeout`` is in seconds; None means ``max.block.ms``. After a KafkaTimeoutError the call continues:
        ``commit_transaction`` waits for it, and ``abort_transaction`` ends it.

        Raises:
            IllegalStateError: there is no transaction.
            IllegalArgumentError: an argument has the wrong type or value.
            CommitFailedError: the consumer is no longer a member of the group's current generation. Abort.
            KafkaTimeoutError: the coordinators did not respond in time.
            TransactionAbortableError: the transaction can only be aborted.
            KafkaError: the producer has failed permanently.
        """
        manager, timeout_ms = self._transactional_call(timeout)
        group = checked_group(group_metadata)
        checked = checked_offsets(offsets)
        if checked:
            self._await_result(manager, manager.send_offsets(checked, group), timeout_ms)

    @_rests
    def prepare_transaction(self, timeout: float | None = None) -> PreparedTxnState:
        """Send all remaining records, and prepare the transaction for a two-phase commit (KIP-939).

        Once this returns, all records and offsets of the transaction are written, and no more can be added. It never
        times out. Store the returned state in your database, together with your other changes; then call
        ``complete_transaction``. If this process ends before that, the next producer completes the transaction: see
        docs/transactions.md.

        ``timeout`` is in seconds; None means ``max.block.ms``. After a KafkaTimeoutError, call this again to wait on,
        or ``abort_transaction``.

        Raises:
            IllegalStateError: ``transaction.two.phase.commit.enable`` is False, or there is no transaction.
            KafkaTimeoutError: the records were not acknowledged in time.
            TransactionAbortableError: a record, or the transaction, has failed. Call ``abort_transaction``.
            KafkaError: the producer has failed permanently.
        """
        manager, timeout_ms = self._transactional_call(timeout)
        self._await_result(manager, manager.begin_prepare(), timeout_ms)
        return manager.prepared_state

    @_rests
    def complete_transaction(self, prepared_state: PreparedTxnState, timeout: float | None = None) -> None:
        """Commit the prepared transaction if ``prepared_state`` is its state, and abort it otherwise (KIP-939).

        Pass the state that your database has. If it has the state of this transaction, your other changes are
        committed there, so this commits. If it has none (``PreparedTxnState()``), or that of an earlier transaction,
        they are not, so this aborts. After ``init_transactions(keep_prepared_txn=True)`` without a prepared
        transaction this does nothing.

        ``timeout`` is in seconds; None means ``max.block.ms``. After a KafkaTimeoutError, call this again to wait on.

        Raises:
            IllegalStateError: ``transaction.two.phase.commit.enable`` is False, or no transaction is prepared.
            IllegalArgumentError: ``prepared_state`` is not a PreparedTxnState.
            KafkaTimeoutError: the end of the transaction was not acknowledged in time.
            ProducerFencedError: another producer with the same ``transactional.id`` has started. It completes the
                transaction.
            KafkaError: the producer has failed permanently.
        """
        manager, timeout_ms = self._transactional_call(timeout)
        result = manager.begin_complete(checked_prepared_state(prepared_state))
        if result is not None:
            self._await_result(manager, result, timeout_ms)

    @_rests
    def commit_transaction(self, timeout: float | None = None) -> None:
        """Send all remaining records, and commit the transaction.

        Once this returns, all records of the transaction are acknowledged, their callbacks have run, and consumers
        with ``isolation.level=read_committed`` read them.

        ``timeout`` is in seconds; None means ``max.block.ms``. After a KafkaTimeoutError it is unknown whether the
        transaction is committed. Call this again to wait on.

        Raises:
            IllegalStateError: there is no transaction.
            KafkaTimeoutError: the records or the commit were not acknowledged in time.
            TransactionAbortableError: a record, or the transaction, has failed. Call ``abort_transaction``.
            ProducerFencedError: another producer with the same ``transactional.id`` has started, or the transaction
                was open for longer than ``transaction.timeout.ms``.
            KafkaError: the producer has failed permanently.
        """
        manager, timeout_ms = self._transactional_call(timeout)
        self._await_result(manager, manager.begin_commit(), timeout_ms)

    @_rests
    def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort the transaction: consumers with ``isolation.level=read_committed`` never read its records.

        Records that were not sent yet fail with TransactionAbortedError; this waits for those in flight.

        ``timeout`` is in seconds; None means ``max.block.ms``. After a KafkaTimeoutError, call this again to wait on.

        Raises:
            IllegalStateError: there is no transaction.
            KafkaTimeoutError: the abort was not acknowledged in time.
            ProducerFencedError: another producer with the same ``transactional.id`` has started, or the transaction
                was open for longer than ``transaction.timeout.ms``. Nothing of it is committed.
            KafkaError: the producer has failed permanently.
        """
        manager, timeout_ms = self._transactional_call(timeout)
        self._await_result(manager, manager.begin_abort(), timeout_ms)

    @property
    def producer_id_and_epoch(self) -> ProducerIdAndEpoch:
        """The producer id and epoch by which brokers know the current transaction, as after ``begin_transaction``.

        ``Admin.end_transaction`` takes both. The end of a transaction changes the epoch, and sometimes the id.

        Raises:
            IllegalStateError: the producer has no ``transactional.id``, or ``init_transactions`` has not completed.
        """
        if self._components.transactions is None:
            raise IllegalStateError(NO_TRANSACTIONS)
        return self._components.transactions.known_producer()

    def transaction(self) -> Transaction:
        """Return a context manager for one transaction.

        It begins a transaction, and commits it when the block ends. If the block or the commit raises, it aborts,
        unless the transaction is prepared. An error of that abort is added to the exception as a note, except that
        ProducerFencedError is raised instead of another KafkaError::

            with producer.transaction():
                producer.send("orders", b"1")
                producer.send("payments", b"2")
        """
        return Transaction(self)

    @property
    def _awaits_decision(self) -> bool:
        transactions = self._components.transactions
        return transactions is not None and transactions.awaits_decision

    # --- how a call waits ----------------------------------------------------------------------------------------

    def _usable_transactions(self) -> TransactionManager:
        """Return the manager, if a transactional call is possible."""
        self._ensure_usable()
        components = self._components
        components.sender_thread.ensure_alive()
        if components.transactions is None:
            raise IllegalStateError(NO_TRANSACTIONS)
        return components.transactions

    def _transactional_call(self, timeout: float | None) -> tuple[TransactionManager, int]:
        """Check that a transactional call is possible; return the manager, and the timeout of the call in ms."""
        manager = self._usable_transactions()
        return manager, self._max_block_ms if timeout is None else milliseconds(timeout)

    def _await_result(self, manager: TransactionManager, result: TransactionalRequestResult, timeout_ms: int) -> None:
        """Wait for the result of a call, and raise its error."""
        result.check_thread()
        self._driver.wakeup_for_flush()
        components = self._components
        if not result.await_until(components.clock.now_ms() + timeout_ms):
            raise timed_out(result, manager, components, timeout_ms)
        manager.acknowledge(result)
        components.producer_metrics.record_transactional(result.operation, result.duration_ms, result.completed_ms)
        if result.error is not None:
            raise result.error


def timed_out(
    result: TransactionalRequestResult, manager: TransactionManager, components: ProducerComponents, waited_ms: int
) -> KafkaTimeoutError:
    """Return the error for a call that timed out after ``waited_ms``."""
    causes = "; ".join(
        str(cause) for cause in (manager.dialogue.last_error, components.client.connection_report()) if cause
    )
    return KafkaTimeoutError(
        f"{result.operation} did not complete within {max(0, waited_ms) / 1000} s{': ' + causes if causes else ''}. "
        "It goes on; call it again to wait for it, or close the producer"
    )


class Transaction:
    """The context manager of one transaction; see ``KafkaProducer.transaction``. Thread: owner."""

    def __init__(self, producer: TransactionalMethods) -> None:
        self._producer = producer

    def __enter__(self) -> None:
        self._producer.begin_transaction()

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self._abort(error)
            return
        try:
            self._producer.commit_transaction()
        except KafkaTimeoutError:
            raise  # the commit continues, and may succeed
        except KafkaError as failure:
            self._abort(failure)
            raise

    def _abort(self, error: BaseException) -> None:
        """Abort because of ``error``, which an error of the abort must not hide unless it is worse."""
        if self._producer._awaits_decision:
            error.add_note(LEFT_PREPARED)
            return
        try:
            self._producer.abort_transaction(None if isinstance(error, Exception) else _ENDING_TIMEOUT_S)
        except KafkaError as failure:
            note_failed_abort(failure, error)


def note_failed_abort(failure: KafkaError, error: BaseException) -> None:
    """Add an abort's error as a note to the error that caused the abort, or raise it if it is more severe.

    A producer that another one has fenced may only see this when it aborts: its records fail with
    InvalidProducerEpochError, after which a program would go on (KIP-1050).

    Raises:
        ProducerFencedError: the producer is fenced, and ``error`` is another error of the client.
    """
    was_known = isinstance(error, ProducerFencedError) or not isinstance(error, KafkaError)
    if isinstance(failure, ProducerFencedError) and not was_known:
        raise failure
    error.add_note(f"The transaction could not be aborted: {failure!r}")


def checked_prepared_state(given: object) -> PreparedTxnState:
    """Return a prepared state.

    Raises:
        IllegalArgumentError: it is something else.
    """
    if not isinstance(given, PreparedTxnState):
        raise IllegalArgumentError(
            f"prepared_state is {shown(given)}; it must be a PreparedTxnState: the one that "
            "prepare_transaction() returned, or PreparedTxnState(text) with its text from your database"
        )
    return given


def checked_group(given: object) -> ConsumerGroupMetadata:
    """Return a group's metadata.

    Raises:
        IllegalArgumentError: it is neither that nor the id of a group.
    """
    if isinstance(given, str):
        given = ConsumerGroupMetadata(given)
    if not isinstance(given, ConsumerGroupMetadata):
        raise IllegalArgumentError(
            f"group_metadata is {shown(given)}; it must be KafkaConsumer.group_metadata(), or a group's id"
        )
    if not given.group_id:
        raise IllegalArgumentError("group_metadata has no group id: the consumer has no group.id")
    if given.generation_id > 0 and not given.member_id:
        raise IllegalArgumentError("group_metadata has a generation, but no member id")
    return given


def checked_offsets(offsets: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return offsets by partition.

    Raises:
        IllegalArgumentError: they are malformed, or an offset is negative.
    """
    return dict(_checked_position(partition, position) for partition, position in _positions(offsets))


def _positions(offsets: object) -> list[tuple[Any, Any]]:
    """Return pairs of a partition and its position, which may be one object."""
    if isinstance(offsets, Mapping):
        return list(offsets.items())
    if isinstance(offsets, (list, tuple, set, frozenset)):
        return [(given, given) for given in offsets]
    raise IllegalArgumentError(_OFFSETS)


def _checked_position(partition: Any, position: Any) -> tuple[TopicPartition, OffsetAndMetadata]:
    try:
        topic, number = partition if isinstance(partition, tuple) else (partition.topic, partition.partition)
        offset = position if isinstance(position, int) else position.offset
        metadata = getattr(position, "metadata", None) or ""
        epoch = getattr(position, "leader_epoch", None)
    except (AttributeError, TypeError, ValueError) as error:
        raise IllegalArgumentError(_OFFSETS) from error
    tp = TopicPartition(record_arguments.checked_topic(topic), record_arguments.checked_partition(number))
    if type(offset) is not int or not 0 <= offset <= MAX_INT64:
        raise IllegalArgumentError(f"the offset of {tp} is {shown(offset)}; it must be an int from 0 on")
    if type(metadata) is not str or not isinstance(epoch, (int, NoneType)):
        raise IllegalArgumentError(_OFFSETS)
    return tp, OffsetAndMetadata(offset, metadata, -1 if epoch is None else epoch)
