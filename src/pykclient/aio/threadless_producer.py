"""A producer without threads, and its transactions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pykclient.errors import IllegalStateError, KafkaError, KafkaTimeoutError
from pykclient.pacing import PacedCoroutines
from pykclient.producer import open_producers
from pykclient.producer.buffer_pool import BufferPool
from pykclient.producer.future import FutureRecordMetadata, milliseconds
from pykclient.producer.interceptors import InterceptedDelivery
from pykclient.producer.kafka_producer import KafkaProducer
from pykclient.producer.partitioner.hashing import POSITIVE, murmur2
from pykclient.producer.producer_components import ProducerComponents
from pykclient.producer.transactions.transactional_calls import SEND_OFFSETS
from pykclient.producer.transactions.transactional_methods import (
    LEFT_PREPARED,
    NO_TRANSACTIONS,
    checked_group,
    checked_offsets,
    checked_prepared_state,
    note_failed_abort,
    timed_out,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.aio.loop_driver import LoopDriver, LoopEnvironment, LoopWaits
    from pykclient.config.producer_config import ProducerConfig
    from pykclient.producer.columns import ColumnSenderContext
    from pykclient.producer.future import RowsInBatch
    from pykclient.producer.transactions.producer_id_manager import ProducerIdAndEpoch
    from pykclient.producer.transactions.transaction_manager import TransactionManager
    from pykclient.producer.transactions.transactional_calls import PreparedTxnState, TransactionalRequestResult
    from pykclient.record.row_columns import RowRun
    from pykclient.types import ConsumerGroupMetadata, Headers, OffsetAndMetadata, TopicPartition


class ThreadlessComponents(ProducerComponents):
    """The components of a producer that must not wait for memory. Creating them starts no thread."""

    def _row_backlog(self, pool: BufferPool) -> None:
        """Set no limit but the memory for rows: ``AIOKafkaProducer.send_columns`` gives way after each window."""

    def _before_wait_for_memory(self) -> bool:
        """Have the driver send what holds the memory, and leave the wait to the caller: return False."""
        self.client.wakeup()
        return False


class ThreadlessProducer(KafkaProducer[Any, Any]):
    """Appends an AIOKafkaProducer's records to batches, by the rules of KafkaProducer.

    It never blocks: an append that would have to wait for memory or the topic's metadata does nothing, and can be
    repeated. Thread: the loop's.
    """

    def __init__(self, config: ProducerConfig, environment: LoopEnvironment) -> None:
        self._begin(config, ThreadlessComponents(config, environment))
        self.components = self._components
        self.topic_wait = self._topic_wait
        self.interceptors = self._interceptors
        self.max_block_ms = self._max_block_ms
        #: Has the driver's next turn in the next iteration of the loop.
        self.wake_driver: Callable[[], object] = self._sender.wakeup

    @property
    def refusal(self) -> KafkaError | None:
        """The error that every call must raise; None while the producer is usable."""
        return None if self._refusal is None else self._refused()

    def knows(self, topic: str, partition: int | None) -> bool:
        """Return True if the topic, and the partition if one is given, are in the metadata."""
        count = self._metadata.fetch().partition_count_for_topic(topic)
        return count is not None and (partition is None or partition < count)

    def append(
        self,
        topic: str,
        value: object,
        key: object,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: InterceptedDelivery | None = None,
        serialized: tuple[bytes | None, bytes | None] | None = None,
    ) -> FutureRecordMetadata | int | None:
        """Append a record. If it would have to wait, return its partition for the next call; None if any will do.

        ``serialized`` has its key and value as bytes, if there are serializers.

        Raises:
            Exception: the record is refused, also for reasons that ``send`` reports with its future.
        """
        record = self._do_send(topic, value, key, headers, partition, timestamp_ms, on_delivery, serialized)
        if isinstance(record, FutureRecordMetadata) and record.exception is not None:
            raise record.exception
        return record

    def _find_topic(self, topic: str, partition: int | None, max_block_ms: int) -> None:
        """Return None: the AIOKafkaProducer waits for the metadata."""

    def append_run(self, topic: str, partition: int, run: RowRun) -> RowsInBatch | None:
        """Append the rows of ``run`` to a batch of their own; return their positions, or None if it had to wait.

        Raises:
            KafkaError: the producer hit a fatal error, or is closed.
        """
        if self._id_manager is not None:
            self._id_manager.maybe_fail_with_error()
        accumulator = self._accumulator
        accumulator.close_open_batch(topic, partition)
        taken, _, _ = accumulator.append_rows(topic, partition, run, self._max_block_ms, self._metadata.fetch())
        if taken is None:
            return None
        accumulator.close_open_batch(topic, partition)
        self._sender.wakeup()
        return taken

    def partition_of_batch(self, topic: str) -> int:
        """Choose a partition for a batch, as for a record without a key. The topic must be in the metadata."""
        cluster = self._metadata.fetch()
        count = cluster.partition_count_for_topic(topic) or 1
        chosen = None
        if self._partitioner is not None:
            chosen = self._partition(topic, None, None, None, None, cluster, count)
        if chosen is None:  # each batch is one of its own, so nothing is gained by staying with a partition
            infos = cluster.available_partitions_for_topic(topic) or cluster.partitions_for_topic(topic)
            chosen = self._environment.new_rng().choice(infos).partition
        return chosen

    def partition_of_key(self, topic: str, key: bytes | None) -> int | None:
        """Return the partition of a record's serialized key; None if its batch or the partitioner chooses."""
        if key is None or self._ignore_keys or self._partitioner is not None:  # which may count its calls
            return None
        return (murmur2(key) & POSITIVE) % (self._metadata.fetch().partition_count_for_topic(topic) or 1)

    def note_failure(self, error: Exception) -> None:
        """Record that a record or row was not appended, so a transaction can only be aborted."""
        self._note_in_transaction(error)

    def failed(self, error: Exception, topic: str, partition: int | None, headers: Headers) -> None:
        """Count a record that failed before it could be appended, and tell the interceptors."""
        self._components.producer_metrics.record_error()
        self.note_failure(error)
        self._note_failure(error, topic, partition, headers)

    def column_sender_context(self, topic: str) -> ColumnSenderContext:
        """Return the context for a ColumnSender. Rows of a partition that is not in the metadata fail."""
        return self._column_sender_context(topic)

    def _wake_sender(self) -> None:
        self._accumulator.waiting.expect_look()
        self.wake_driver()

    def _rest(self, duration_ms: int) -> None:
        """Do nothing: the AIOKafkaProducer waits, and lets the loop run."""

    # --- closing ---------------------------------------------------------------------------------------------------

    def initiate_close(self, *, keep_transaction: bool = False) -> None:
        """Accept no more records. The driver sends the remaining ones, and then closes the connections."""
        self._refuse_as_closed()
        self._sender.initiate_close(keep_transaction=keep_transaction)

    def force_close(self) -> None:
        """Accept no more records, and have the driver fail the remaining ones in its next turn."""
        self._refuse_as_closed()
        self._sender.force_close()

    def abandon(self) -> None:
        """Close as ``initiate_close``, but without taking a lock: for a destructor. Thread: any."""
        self._refuse_as_closed()
        self._sender.abandon()

    def _refuse_as_closed(self) -> None:
        self._refuse("the producer is closed")
        open_producers.closed(self)

    def close(self, timeout: float | None = None, *, keep_transaction: bool = False) -> None:  # noqa: ARG002
        """Refuse further calls. Called when the interpreter exits, when no loop can send what is left."""
        self._refuse_as_closed()

    def __del__(self) -> None:
        """Do nothing: the AIOKafkaProducer warns."""


class TransactionalCoroutines(PacedCoroutines):
    """The transactional methods of an AIOKafkaProducer. ``start`` calls ``init_transactions``. Thread: the loop's."""

    if TYPE_CHECKING:
        _waits: LoopWaits
        _driver: LoopDriver

        def _usable(self) -> ThreadlessProducer: ...

    async def init_transactions(self, timeout: float | None = None) -> None:
        """Get a producer id, as ``KafkaProducer.init_transactions`` does. ``start`` has called this already.

        Raises:
            Exception: those of ``KafkaProducer.init_transactions``.
        """
        manager, timeout_ms = self._transactional_call(timeout)
        await self._result(manager, manager.begin_init(), timeout_ms)

    async def begin_transaction(self) -> None:
        """Begin a transaction: all records sent until it ends are part of it.

        Raises:
            Exception: those of ``KafkaProducer.begin_transaction``.
        """
        manager, _ = self._transactional_call(None)
        manager.begin_transaction()

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | Iterable[Any],
        group_id: ConsumerGroupMetadata | str,
        timeout: float | None = None,
    ) -> None:
        """Commit the offsets of a consumer group as part of the transaction.

        ``group_id`` may be the metadata of a group, which protects against a consumer that was left behind.

        Raises:
            Exception: those of ``KafkaProducer.send_offsets_to_transaction``.
        """
        manager, timeout_ms = self._transactional_call(timeout)
        manager.maybe_fail_with_error(SEND_OFFSETS)  # before the arguments are checked, as in aiokafka
        group, checked = checked_group(group_id), checked_offsets(offsets)
        if checked:
            await self._result(manager, manager.send_offsets(checked, group), timeout_ms)

    async def prepare_transaction(self, timeout: float | None = None) -> PreparedTxnState:
        """Send all remaining records, and prepare the transaction for a two-phase commit (KIP-939).

        Return the state to store in your database, together with your other changes; then await
        ``complete_transaction``. If this call is cancelled, it continues: await it again for its result, or
        await ``abort_transaction``.

        Raises:
            Exception: those of ``KafkaProducer.prepare_transaction``.
        """
        manager, timeout_ms = self._transactional_call(timeout)
        await self._result(manager, manager.begin_prepare(), timeout_ms)
        return manager.prepared_state

    async def complete_transaction(self, prepared_state: PreparedTxnState, timeout: float | None = None) -> None:
        """Commit the prepared transaction if ``prepared_state`` is its state, and abort it otherwise (KIP-939).

        Pass the state that your database has. After ``start(keep_prepared_txn=True)`` without a prepared transaction
        this does nothing. If this call is cancelled, the operation continues: await it again for its result.

        Raises:
            Exception: those of ``KafkaProducer.complete_transaction``.
        """
        manager, timeout_ms = self._transactional_call(timeout)
        result = manager.begin_complete(checked_prepared_state(prepared_state))
        if result is not None:
            await self._result(manager, result, timeout_ms)

    async def commit_transaction(self, timeout: float | None = None) -> None:
        """Send all remaining records, and commit the transaction.

        If this call is cancelled, the commit continues: await it again for its result.

        Raises:
            Exception: those of ``KafkaProducer.commit_transaction``.
        """
        manager, timeout_ms = self._transactional_call(timeout)
        await self._result(manager, manager.begin_commit(), timeout_ms)

    async def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort the transaction: consumers with ``isolation.level=read_committed`` never read its records.

        If this call is cancelled, the abort continues: await it again for its result.

        Raises:
            Exception: those of ``KafkaProducer.abort_transaction``.
        """
        manager, timeout_ms = self._transactional_call(timeout)
        await self._result(manager, manager.begin_abort(), timeout_ms)

    def transaction(self) -> AsyncTransaction:
        """Return an asynchronous context manager for one transaction.

        It begins a transaction, and commits it when the block ends. If the block raises or is cancelled, or the commit
        raises, it aborts::

            async with producer.transaction():
                await producer.send("orders", b"1")
        """
        return AsyncTransaction(self)

    @property
    def producer_id_and_epoch(self) -> ProducerIdAndEpoch:
        """The producer id and epoch of the current transaction, as ``KafkaProducer.producer_id_and_epoch``.

        Raises:
            IllegalStateError: the producer has no ``transactional_id``, or is not started.
        """
        return self._transactional_call(None)[0].known_producer()

    @property
    def _awaits_decision(self) -> bool:
        return self._transactional_call(None)[0].awaits_decision

    def _transactional_call(self, timeout: float | None) -> tuple[TransactionManager, int]:
        """Check that a transactional call is possible; return the manager, and the timeout of the call in ms."""
        producer = self._usable()
        manager = producer.components.transactions
        if manager is None:
            # The text begins as aiokafka's.
            raise IllegalStateError(f"You need to configure transaction_id to use transactions: {NO_TRANSACTIONS}")
        return manager, producer.max_block_ms if timeout is None else milliseconds(timeout)

    async def _result(self, manager: TransactionManager, result: TransactionalRequestResult, timeout_ms: int) -> None:
        components = self._usable().components
        await await_result(manager, result, self._driver, self._waits, components, timeout_ms)


async def await_result(
    manager: TransactionManager,
    result: TransactionalRequestResult,
    driver: LoopDriver,
    waits: LoopWaits,
    components: ProducerComponents,
    timeout_ms: int,
) -> None:
    """Wait for the result of a transactional call, and raise its error."""
    driver.wake()
    if not await waits.until(lambda: result.completed, timeout_ms):
        raise timed_out(result, manager, components, timeout_ms)
    manager.acknowledge(result)
    components.producer_metrics.record_transactional(result.operation, result.duration_ms, result.completed_ms)
    if result.error is not None:
        raise result.error


class AsyncTransaction:
    """The context manager of one transaction; see ``AIOKafkaProducer.transaction``. Thread: the loop's."""

    def __init__(self, producer: TransactionalCoroutines) -> None:
        self._producer = producer

    async def __aenter__(self) -> None:
        await self._producer.begin_transaction()

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            await self._abort(error)
            return
        try:
            await self._producer.commit_transaction()
        except KafkaTimeoutError:
            raise  # the commit continues, and may succeed
        except KafkaError as failure:
            await self._abort(failure)
            raise

    async def _abort(self, error: BaseException) -> None:
        """Abort because of ``error``, as ``producer.transactions.Transaction`` does."""
        if self._producer._awaits_decision:
            error.add_note(LEFT_PREPARED)
            return
        try:
            await self._producer.abort_transaction()
        except KafkaError as failure:
            note_failed_abort(failure, error)
