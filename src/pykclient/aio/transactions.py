"""The transactional methods of the producer for asyncio, with aiokafka's names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pykclient.errors import IllegalStateError, KafkaError, KafkaTimeoutError
from pykclient.producer import record_arguments
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
    from pykclient.aio.loop_driver import LoopDriver
    from pykclient.aio.loop_waits import LoopWaits
    from pykclient.aio.threadless_producer import ThreadlessProducer
    from pykclient.producer.transactions.producer_id_manager import ProducerIdAndEpoch
    from pykclient.producer.transactions.transaction_manager import TransactionManager
    from pykclient.producer.transactions.transactional_calls import PreparedTxnState, TransactionalRequestResult
    from pykclient.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition


class TransactionalCoroutines:
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
        """Commit the offsets of a consumer group with the transaction, and only with it.

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
        ``complete_transaction``. If this call is cancelled, it goes on: await it again for its result, or await
        ``abort_transaction``.

        Raises:
            Exception: those of ``KafkaProducer.prepare_transaction``.
        """
        manager, timeout_ms = self._transactional_call(timeout)
        await self._result(manager, manager.begin_prepare(), timeout_ms)
        return manager.prepared_state

    async def complete_transaction(self, prepared_state: PreparedTxnState, timeout: float | None = None) -> None:
        """Commit the prepared transaction if ``prepared_state`` is its state, and abort it otherwise (KIP-939).

        Pass the state that your database has. After ``start(keep_prepared_txn=True)`` without a prepared transaction
        this does nothing. If this call is cancelled, it goes on: await it again for its result.

        Raises:
            Exception: those of ``KafkaProducer.complete_transaction``.
        """
        manager, timeout_ms = self._transactional_call(timeout)
        result = manager.begin_complete(checked_prepared_state(prepared_state))
        if result is not None:
            await self._result(manager, result, timeout_ms)

    async def commit_transaction(self, timeout: float | None = None) -> None:
        """Send all remaining records, and commit the transaction.

        If this call is cancelled, the commit goes on: await it again for its result.

        Raises:
            Exception: those of ``KafkaProducer.commit_transaction``.
        """
        manager, timeout_ms = self._transactional_call(timeout)
        await self._result(manager, manager.begin_commit(), timeout_ms)

    async def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort the transaction: consumers with ``isolation.level=read_committed`` never read its records.

        If this call is cancelled, the abort goes on: await it again for its result.

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
        return manager, producer.max_block_ms if timeout is None else record_arguments.milliseconds(timeout)

    async def _result(self, manager: TransactionManager, result: TransactionalRequestResult, timeout_ms: int) -> None:
        """Wait for the result of a call, and raise its error."""
        self._driver.wake()
        components = self._usable().components
        if not await self._waits.until(lambda: result.completed, timeout_ms):
            raise timed_out(result, manager, components, timeout_ms)
        manager.acknowledge(result)
        components.producer_metrics.record_transactional(result.operation, result.duration_ms, result.completed_ms)
        if result.error is not None:
            raise result.error


class AsyncTransaction:
    """The context manager of one transaction; see ``AIOKafkaProducer.transaction``. Thread: the loop's."""

    __slots__ = ("_producer",)

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
            raise  # the commit goes on, and may succeed
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
