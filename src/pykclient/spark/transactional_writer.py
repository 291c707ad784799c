"""The exactly-once sink for Spark (``delivery=exactly-once``): writers for streams and for batches.

Spark creates a stream's writer twice for each micro-batch: in the process that plans the tasks, and in the one that
commits. Only the first one pickles it, for the tasks. So pickling opens the batch, and tasks report to the second one
what was found. A batch query pickles its only writer.

The driver commits the rows of all tasks; or with ``exactlyOnceMode=task`` each task commits its own.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from pykclient.clock import SYSTEM_CLOCK
from pykclient.errors import ConfigError, KafkaError
from pykclient.spark.sink_driver import BrokerLimits, SinkDriver
from pykclient.spark.transactional_task import CommittingLease, RepeatedRows, TransactionalLease
from pykclient.spark.transactions import (
    REPEATS,
    CommitTask,
    Content,
    Opened,
    Owner,
    Producer,
    Ranges,
    Token,
    Transaction,
    abort_batch,
    attempt_ids,
    check_token,
    commit_batch,
    commit_task,
    complete_batch,
    find_token,
    needs_token,
    open_batch,
    task_role,
    tokens_topic,
    transactional_id,
)
from pykclient.spark.worker import TaskAttempt, task_attempt
from pykclient.spark.writer import Messages, Writing

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pykclient.spark.options import WriteOptions

_logger = logging.getLogger(__name__)

#: The part of the transaction timeout within which a batch can be decided.
_DECIDABLE = 0.75

#: The most queries whose clients a process keeps.
_MOST_KEPT = 8


@dataclass
class _Kept:
    """The state that one of Spark's processes on the driver keeps for the next micro-batch of a query. Thread: owner.

    ``opened`` is the ledger's producer when this process opened its last batch.
    """

    driver: SinkDriver
    limits: BrokerLimits | None = None
    opened: Producer | None = None


#: By the ledger, the prefix and the configuration; the one that was used last comes last.
_kept: dict[tuple[str, ...], _Kept] = {}


@dataclass
class TransactionMessage(WriterCommitMessage):
    """The result of a task: its transaction if it wrote rows, or the content that it did not write again.

    ``opened`` is what the driver knew when it opened the batch, at ``opened_ms`` of the driver's monotonic clock; None
    if the task has no transaction that times out. Thread: owner.
    """

    opened: Opened
    opened_ms: int | None
    query: str | None
    transaction: Transaction | None
    repeated: Content | None


@dataclass
class TokenMessage(WriterCommitMessage):
    """The result of a task that commits its own rows: its token, or the content of a batch that is done.

    Both are None if the task has no rows. ``opened`` is what the driver knew when it opened the batch. Thread: owner.
    """

    opened: Opened
    query: str
    token: Token | None
    repeated: Content | None


class _ExactlyOnce(Writing):
    """Base of all writers. Thread: owner."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        self._opened: Opened | None = None
        self._opened_ms = 0
        self._two_phase = False

    def __getstate__(self) -> dict[str, Any]:
        """Open the batch: Spark pickles the writer for the tasks. Raises KafkaError if that is not possible."""
        if self._opened is None:
            budget_ms = None if self._options.by_task else self._options.restart_budget_ms
            with self._clients() as kept:
                if kept.limits is None:
                    kept.limits = kept.driver.broker_limits()
                self._two_phase = kept.limits.two_phase_commit and not self._options.by_task
                _check_timeout(self._config, budget_ms, kept.limits.transaction_max_timeout_ms, self._two_phase)
                self._opened = kept.driver.run(
                    open_batch(self._owner(None), kept.opened, by_tasks=self._options.by_task)
                )
                self._opened_ms = SYSTEM_CLOCK.now_ms()
                kept.opened = self._opened.producer
        return self.__dict__

    def _owner(self, query: str | None) -> Owner:
        return Owner(self._options.checkpoint, query) if self._options.streaming else Owner("", "")

    def _driver(self) -> SinkDriver:
        return SinkDriver(self._config, self._options.transactional_id_prefix, self._options.ledger_topic)

    @contextlib.contextmanager
    def _clients(self) -> Iterator[_Kept]:
        """Yield the clients of the query's last micro-batch in this process, or new ones. After an error close them."""
        options = self._options
        settings = (f"{key}={value}" for key, value in sorted(self._config.items()))
        place = (options.ledger_topic, options.transactional_id_prefix, options.checkpoint, *settings)
        kept = _kept.pop(place, None) or _Kept(self._driver())
        try:
            yield kept
            kept.driver.end()
        except BaseException:
            kept.driver.close()
            raise
        _kept[place] = kept
        while len(_kept) > _MOST_KEPT:
            _kept.pop(next(iter(_kept))).driver.close()

    def _repeated(self, batches: Iterator[pa.RecordBatch]) -> Content:
        """Return the content of rows that are not written again."""
        rows = RepeatedRows()
        self._execute(batches, lambda: rows)
        return rows.content


class _ByDriver(_ExactlyOnce):
    """Base of the writers whose driver commits the rows of all tasks. Thread: owner."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TransactionMessage:
        """Write one task's rows, in a worker. Raises KafkaError if some were not written."""
        opened, attempt, options = self._opened, task_attempt(), self._options
        assert opened is not None  # this object was pickled
        if options.streaming and task_role(opened, _query_of(attempt), attempt.batch) == REPEATS:
            return TransactionMessage(opened, None, attempt.query, None, self._repeated(iterator))
        lease: TransactionalLease | None = None

        def begin() -> TransactionalLease:
            nonlocal lease
            id = transactional_id(options.transactional_id_prefix, attempt.partition, attempt.attempt)
            lease = TransactionalLease(self._config, id, two_phase=self._two_phase)
            return lease

        self._execute(iterator, begin)
        if lease is None:
            return TransactionMessage(opened, None, attempt.query, None, None)
        opened_ms = None if lease.is_two_phase else self._opened_ms
        return TransactionMessage(opened, opened_ms, attempt.query, lease.transaction, None)

    def commit(self, messages: Messages, batchId: int | None = None) -> None:  # noqa: N803
        """Commit the rows of all tasks. ``batchId`` is None in a batch query. Raises KafkaError if that failed.

        A stream then repeats the micro-batch.
        """
        results = [message for message in messages if isinstance(message, TransactionMessage)]
        if not results:
            return
        opened = results[0].opened
        number = opened.entry.done + 1 if batchId is None else batchId
        transactions = [result.transaction for result in results if result.transaction is not None]
        repeated = [result.repeated for result in results if result.repeated is not None]
        with self._clients() as kept:
            owner = self._owner(results[0].query)
            content = Content.total(repeated) if repeated else None
            late_ms = self._late_ms([result.opened_ms for result in results if result.opened_ms is not None])
            kept.driver.run(
                commit_batch(opened, owner, number, transactions, content, lambda: SYSTEM_CLOCK.now_ms() > late_ms)
            )
        rows = sum(transaction.rows for transaction in transactions)
        _logger.info("Batch %d to Kafka is committed: %d rows by %d tasks", number, rows, len(transactions))

    def _late_ms(self, opened_ms: Sequence[int]) -> float:
        """Return when it is too late to decide: a restart still needs some time before transactions time out.

        They have begun after the batch was opened, by a process of the same machine, which has the same monotonic
        clock. Brokers and executors have others.
        """
        return min(opened_ms, default=math.inf) + _DECIDABLE * int(self._config["transaction.timeout.ms"])

    def abort(self, messages: Messages, batchId: int | None = None) -> None:  # noqa: ARG002, N803
        """Abort the transactions of the tasks that succeeded, because others have failed permanently."""
        results = [message for message in messages if isinstance(message, TransactionMessage)]
        transactions = [result.transaction for result in results if result.transaction is not None]
        with self._clients() as kept:
            kept.driver.run(abort_batch(transactions, begun=len(results) == len(messages)))


class TransactionalWriter(_ByDriver, DataSourceArrowWriter):
    """Writes a batch query: all of its rows, or none of them. Thread: owner."""


class TransactionalStreamWriter(_ByDriver, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a streaming query, each of them exactly once. Thread: owner."""


class CommittingStreamWriter(_ExactlyOnce, DataSourceStreamArrowWriter):
    """Writes micro-batches whose tasks commit their own rows, each of them exactly once. Thread: owner."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TokenMessage:
        """Write one task's rows, in a worker, and commit them. Raises KafkaError if that is not known to be done."""
        opened, attempt, options = self._opened, task_attempt(), self._options
        assert opened is not None  # this object was pickled
        query, batch, partition = _query_of(attempt), attempt.batch, attempt.partition
        prefix = options.transactional_id_prefix
        if task_role(opened, query, batch) == REPEATS:
            return TokenMessage(opened, query, None, self._repeated(iterator))
        if needs_token(opened, batch, attempt.attempt):
            with self._clients() as kept:
                found = kept.driver.run(find_token(opened, query, batch, partition))
            if found is not None:
                check_token(opened, found, self._repeated(iterator))
                return TokenMessage(opened, query, found, None)
        own, others = attempt_ids(prefix, partition, attempt.attempt)
        lease: CommittingLease | None = None

        def decide(commit: Callable[[CommitTask], None], content: Content, written: Ranges) -> Token:
            token = Token(query, batch, partition, content, written)
            with self._clients() as kept:
                return kept.driver.run(commit_task(opened, token, others), commit)

        def begin() -> CommittingLease:
            nonlocal lease
            lease = CommittingLease(self._config, own, tokens_topic(options.ledger_topic), prefix, decide)
            return lease

        self._execute(iterator, begin)
        return TokenMessage(opened, query, None if lease is None else lease.token, None)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        """Record that the micro-batch is done. Raises KafkaError if others have written in it, or another driver runs.

        The rows are committed in any case. If this fails, the query repeats the micro-batch, and writes nothing again.
        """
        results = [message for message in messages if isinstance(message, TokenMessage)]
        if not results:
            return
        opened = results[0].opened
        tokens = [result.token for result in results if result.token is not None]
        repeated = [result.repeated for result in results if result.repeated is not None]
        content = Content.total(repeated) if repeated else None
        with self._clients() as kept:
            kept.driver.run(complete_batch(opened, self._owner(results[0].query), batchId, tokens, content))
        rows = sum(token.content.rows for token in tokens)
        _logger.info("Batch %d to Kafka is done: %d rows by %d tasks", batchId, rows, len(tokens))

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        """Log that tasks have failed permanently. What others have committed stays, and is not written again."""
        committed = [message for message in messages if isinstance(message, TokenMessage) and message.token is not None]
        _logger.warning(
            "Batch %d to Kafka is not complete. Rows that %d of its %d tasks have committed are not written again when "
            "the query repeats it",
            batchId,
            len(committed),
            len(messages),
        )


def _query_of(attempt: TaskAttempt) -> str:
    if attempt.query is None or attempt.batch < 0:
        raise KafkaError("this version of Spark does not tell tasks their query and micro-batch")
    return attempt.query


def _check_timeout(config: dict[str, Any], budget_ms: int | None, most_ms: int | None, two_phase: bool) -> None:
    """Raise ConfigError if brokers do not allow the transaction timeout that the query needs."""
    wanted = int(config["transaction.timeout.ms"])
    if two_phase or most_ms is None or wanted <= most_ms:
        return
    if budget_ms is None:
        enough = "longer than a task takes"
    else:
        enough = "at least the restartBudget" if most_ms >= budget_ms else f"restartBudget too, which is {budget_ms} ms"
    raise ConfigError(
        f"option kafka.transaction.timeout.ms ({wanted} ms) is longer than the {most_ms} ms that brokers allow "
        f"(transaction.max.timeout.ms): raise that, or lower the option; it must be {enough}",
        key="kafka.transaction.timeout.ms",
    )
