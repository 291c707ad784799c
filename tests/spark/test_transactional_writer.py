"""The exactly-once sink without Spark: pickled writers, tasks, commits, restarts."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from pykclient.admin import Admin
from pykclient.errors import ConfigError, KafkaError
from pykclient.record.row_columns import BytesColumn
from pykclient.spark import transactional_writer
from pykclient.spark.options import WriteOptions
from pykclient.spark.sink_driver import SinkDriver
from pykclient.spark.transactional_task import content_of
from pykclient.spark.transactional_writer import (
    CommittingStreamWriter,
    TransactionalStreamWriter,
    TransactionalWriter,
    TransactionMessage,
)
from pykclient.spark.transactions import DECIDED, DONE, Entry
from pykclient.spark.worker import TaskAttempt
from tests.producer.test_transactions_on_kafka import committed_values
from tests.support.any_kafka import AnyKafka

SCHEMA = StructType([StructField("value", BinaryType())])


BY_TASK = {"exactlyOnceMode": "task", "deterministicPartitioning": "true"}


class Query:
    """A streaming query: it runs micro-batches as Spark does, in one process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, servers: str, topic: str, **more: str) -> None:
        self.monkeypatch = monkeypatch
        self.id = uuid.uuid4().hex
        self.ledger = f"{topic}-ledger"
        self.options = {
            "kafka.bootstrap.servers": servers,
            "topic": topic,
            "delivery": "exactly-once",
            "transactionalIdPrefix": topic,
            "ledgerTopic": self.ledger,
            "checkpointLocation": f"/checkpoints/{topic}",
            **{name.replace("__", "."): value for name, value in more.items()},
        }

    def writer(self) -> TransactionalStreamWriter | CommittingStreamWriter:
        options = WriteOptions.parse(self.options, streaming=True)
        return (CommittingStreamWriter if options.by_task else TransactionalStreamWriter)(options, SCHEMA, False)

    @staticmethod
    def forget() -> None:
        """Close what Spark's processes on the driver keep, as their end does."""
        for kept in transactional_writer._kept.values():
            kept.driver.close()
        transactional_writer._kept.clear()

    def planned(self) -> bytes:
        """Return the writer as Spark sends it to the tasks, after a restart of the process that plans."""
        self.forget()
        return pickle.dumps(self.writer())

    def task(self, planned: bytes, batch: int, partition: int, values: list[bytes], attempt: int = 0) -> Any:
        """Run one task, and return its message as it reaches the driver."""
        running = TaskAttempt(partition, attempt, self.id, batch)
        self.monkeypatch.setattr(transactional_writer, "task_attempt", lambda: running)
        message = pickle.loads(planned).write(iter([pa.record_batch({"value": values})]))
        return pickle.loads(pickle.dumps(message))

    def tasks(self, batch: int, *values: list[bytes]) -> list[Any]:
        planned = self.planned()
        return [self.task(planned, batch, partition, each) for partition, each in enumerate(values)]

    def run(self, batch: int, *values: list[bytes]) -> None:
        self.writer().commit(self.tasks(batch, *values), batch)

    def driver(self) -> SinkDriver:
        return SinkDriver(
            {"bootstrap.servers": self.options["kafka.bootstrap.servers"]},
            self.options["transactionalIdPrefix"],
            self.ledger,
        )

    def entry(self) -> Entry:
        with self.driver() as driver:
            entry = driver.entry()
        assert entry is not None
        return entry

    def open_transactions(self) -> list[str]:
        with self.driver() as driver:
            return [each.transactional_id for each in driver.open_transactions()]


@pytest.fixture
def query(monkeypatch: pytest.MonkeyPatch, any_kafka: AnyKafka, topic: str) -> Query:
    any_kafka.create_topic(topic, partitions=2)
    return Query(monkeypatch, any_kafka.bootstrap_servers, topic)


def committed(query: Query, count: int) -> list[bytes]:
    return sorted(committed_values(query.options["kafka.bootstrap.servers"], query.options["topic"], count))


def test_batches_are_committed_in_order(query: Query) -> None:
    query.run(0, [b"a", b"b"], [b"c"])
    query.run(1, [], [b"d"])
    query.run(2, [])
    query.run(3, [b"e"])
    assert committed(query, 5) == [b"a", b"b", b"c", b"d", b"e"]
    entry = query.entry()
    assert (entry.state, entry.done, entry.content.rows, entry.owner.query) == (DONE, 3, 1, query.id)
    assert query.open_transactions() == []


def test_committed_batch_is_not_written_again(query: Query) -> None:
    query.run(0, [b"a"], [b"b"])
    query.run(0, [b"b"], [b"a"])
    with pytest.raises(KafkaError, match=r"committed with 2 rows, in .*from offset 0 to .*, and now has 3"):
        query.run(0, [b"b"], [b"a", b"c"])
    query.run(1, [b"c"])
    with pytest.raises(KafkaError, match="the checkpoint is older"):
        query.run(0, [b"b"], [b"a"])
    assert committed(query, 3) == [b"a", b"b", b"c"]


def test_undecided_rows_are_aborted_at_the_next_start(query: Query) -> None:
    query.tasks(0, [b"lost"], [b"too"], [b"and", b"this"])
    assert len(query.open_transactions()) == 3
    query.planned()
    assert query.open_transactions() == []
    query.run(0, [b"a"])
    assert committed(query, 1) == [b"a"]


def test_decided_batch_is_finished_at_the_next_start(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    query.run(0, [b"a"])
    messages = query.tasks(1, [b"b"], [b"c"], [b"d"])
    end, ended = Admin.end_transactions, []

    def end_one(admin: Admin, transactions: Any, commit: bool, **more: Any) -> Any:
        ended.append(end(admin, dict([next(iter(transactions.items()))]), commit, **more))
        raise KafkaError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Admin, "end_transactions", end_one)
        with pytest.raises(KafkaError, match="killed"):
            query.writer().commit(messages, 1)
        query.writer().abort(messages, 1)  # as Spark calls it; the decision stands
    assert len(ended) == 1
    assert query.entry().state == DECIDED
    query.run(1, [b"b"], [b"c"], [b"d"])  # written again by nobody
    assert query.entry().state == DONE
    assert committed(query, 4) == [b"a", b"b", b"c", b"d"]


def test_earlier_driver_decides_nothing(query: Query) -> None:
    messages = query.tasks(0, [b"a"], [b"b"])
    query.planned()
    with pytest.raises(KafkaError, match="another driver"):
        query.writer().commit(messages, 0)
    query.run(0, [b"a"], [b"b"])
    assert committed(query, 2) == [b"a", b"b"]


def test_transactions_timed_out_before_the_decision_commit_nothing(query: Query) -> None:
    messages = query.tasks(0, [b"a"], [b"b"])
    with Admin(bootstrap_servers=query.options["kafka.bootstrap.servers"]) as admin:
        admin.fence_producers([messages[1].transaction.id]).all()  # as the coordinator does it
    with pytest.raises(KafkaError, match="1 of its 2 transactions are not open"):
        query.writer().commit(messages, 0)
    assert query.open_transactions() == []
    query.run(0, [b"a"], [b"b"])
    assert committed(query, 2) == [b"a", b"b"]


def decided(
    query: Query, monkeypatch: pytest.MonkeyPatch, batch: int = 0, values: Sequence[list[bytes]] = ([b"a"], [b"b"])
) -> list[TransactionMessage]:
    """Run a batch up to its decision, and no further."""
    messages = query.tasks(batch, *values)

    def die(*_: Any, **__: Any) -> Any:
        raise KafkaError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Admin, "end_transactions", die)
        with pytest.raises(KafkaError, match="killed"):
            query.writer().commit(messages, batch)
    return messages


def test_decided_batch_without_open_transactions_is_repeated(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = decided(query, monkeypatch)
    with Admin(bootstrap_servers=query.options["kafka.bootstrap.servers"]) as admin:
        admin.fence_producers([message.transaction.id for message in messages if message.transaction]).all()
    query.run(0, [b"a"], [b"b"])
    assert committed(query, 2) == [b"a", b"b"]


def test_partly_committed_batch_fails_with_its_offsets(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = decided(query, monkeypatch)
    with Admin(bootstrap_servers=query.options["kafka.bootstrap.servers"]) as admin:
        admin.fence_producers([messages[0].transaction.id if messages[0].transaction else ""]).all()
    for _ in range(2):
        with pytest.raises(KafkaError, match=r"committed in part.*-0-0 \(1 rows: .*offset \d to \d"):
            query.planned()


def test_other_query_with_the_prefix_is_refused(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    query.run(0, [b"a"])
    messages = query.tasks(1, [b"b"])
    servers, topic = query.options["kafka.bootstrap.servers"], query.options["topic"]
    other = Query(monkeypatch, servers, topic, checkpointLocation="/elsewhere")
    with pytest.raises(KafkaError, match="belongs to another query, with the checkpoint /checkpoints"):
        other.tasks(0, [b"x"])
    query.writer().commit(messages, 1)  # the first one is not disturbed
    other.id = query.id  # the same query, with its checkpoint moved
    other.run(2, [b"c"])
    assert other.entry().owner == ("/elsewhere", query.id)
    assert committed(query, 3) == [b"a", b"b", b"c"]


def test_commit_aborts_attempts_that_spark_did_not_accept(query: Query) -> None:
    planned = query.planned()
    taken = query.task(planned, 0, 0, [b"a"])
    query.task(planned, 0, 0, [b"a"], attempt=1)
    assert len(query.open_transactions()) == 2
    query.writer().commit([taken], 0)
    assert query.open_transactions() == []
    assert committed(query, 1) == [b"a"]


def test_failed_tasks_abort_the_batch(query: Query) -> None:
    planned = query.planned()
    message = query.task(planned, 0, 0, [b"a"])
    with pytest.raises(KafkaError, match="not written"):
        query.task(planned, 0, 1, [b"x" * 2_000_000])
    assert len(query.open_transactions()) == 1
    query.writer().abort([message, None], 0)
    assert query.open_transactions() == []
    query.run(0, [b"a"])
    assert committed(query, 1) == [b"a"]


def job(query: Query, *values: list[bytes]) -> tuple[TransactionalWriter, list[Any]]:
    """Run the tasks of a batch query, and return its writer and their messages."""
    options = {name: value for name, value in query.options.items() if name != "checkpointLocation"}
    writer = TransactionalWriter(WriteOptions.parse(options, streaming=False), SCHEMA, False)
    planned = pickle.dumps(writer)
    query.monkeypatch.setattr(query, "id", None)
    messages = [query.task(planned, -1, partition, each) for partition, each in enumerate(values)]
    return pickle.loads(planned), messages


def test_batch_query_writes_all_or_nothing(query: Query) -> None:
    writer, messages = job(query, [b"a"], [b"b"])
    writer.commit(messages)
    job(query, [b"lost"])
    writer, messages = job(query, [b"c"], [], [b"a"])
    writer.commit(messages)
    assert committed(query, 4) == [b"a", b"a", b"b", b"c"]
    assert query.entry().done == 1


def test_of_two_batch_queries_at_once_with_one_prefix_the_later_one_is_committed(query: Query) -> None:
    earlier, messages = job(query, [b"lost"], [b"too"])
    later, of_later = job(query, [b"a"], [b"b"])
    later.commit(of_later)
    with pytest.raises(KafkaError, match="another driver has opened"):
        earlier.commit(messages)
    assert committed(query, 2) == [b"a", b"b"]
    assert query.open_transactions() == []


def test_batch_query_that_commits_while_another_one_writes_fails_both(query: Query) -> None:
    """Each notices the other, so neither is committed, and both have to be run again."""
    jobs = [job(query, [b"lost"], [b"too"]), job(query, [b"lost"], [b"too"])]
    for writer, messages in jobs:
        with pytest.raises(KafkaError, match="another driver has opened"):
            writer.commit(messages)
    writer, messages = job(query, [b"a"], [b"b"])
    writer.commit(messages)
    assert committed(query, 2) == [b"a", b"b"]
    assert query.open_transactions() == []


class Doubling:
    """Encodes a column by writing each value twice."""

    def encode_rows(
        self, batch: pa.RecordBatch, topic: str, part: str, others: frozenset[str], first_row: int = 0
    ) -> BytesColumn:
        del topic, part, others, first_row
        return BytesColumn.of([2 * value for value in batch.column("value").to_pylist()])


def test_content_of_typed_columns_is_that_of_their_bytes() -> None:
    typed, plain = (pa.record_batch({"value": values}) for values in ([b"a", b"b"], [b"bb", b"aa"]))
    assert content_of("t", typed, value=Doubling()) == content_of("t", plain, value="value")
    assert content_of("t", typed, value="value") != content_of("t", plain, value="value")
    assert content_of("t", plain, value="value") != content_of("u", plain, value="value")


# --- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"transactionalIdPrefix": ""}, "needs the option transactionalIdPrefix"),
        ({"checkpointLocation": ""}, "needs checkpointLocation"),
        ({"delivery": "twice"}, "must be at-least-once or exactly-once"),
        ({"delivery": "at-least-once"}, "option transactionalIdPrefix needs delivery=exactly-once"),
        ({"kafka.transaction.timeout.ms": "60000"}, "60000 ms. is shorter than restartBudget"),
        ({"restartBudget": "20m"}, "shorter than restartBudget"),
        ({"exactlyOnceMode": "token"}, "must be driver or task, not 'token'"),
        ({"exactlyOnceMode": "task"}, "needs deterministicPartitioning=true"),
        ({"exactlyOnceMode": "task", "deterministicPartitioning": "false"}, "needs deterministicPartitioning=true"),
        ({"deterministicPartitioning": "true"}, "needs exactlyOnceMode=task"),
        ({**BY_TASK, "restartBudget": "1m"}, "restartBudget has no meaning"),
        ({"delivery": "at-least-once", "transactionalIdPrefix": "", **BY_TASK}, "needs delivery=exactly-once"),
        ({"kafka.acks": "1"}, "acks"),
        ({"kafka.transactional.id": "x"}, "kafka.transactional.id is not supported"),
    ],
)
def test_wrong_options_are_refused_on_the_driver(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, str], says: str
) -> None:
    query = Query(monkeypatch, "localhost:9092", "orders")
    with pytest.raises(ConfigError, match=says):
        WriteOptions.parse({**query.options, **change}, streaming=True)


def test_batch_query_whose_tasks_commit_their_rows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(monkeypatch, "localhost:9092", "orders", **BY_TASK)
    with pytest.raises(ConfigError, match="exactlyOnceMode=task is for streaming queries"):
        WriteOptions.parse(query.options, streaming=False)
