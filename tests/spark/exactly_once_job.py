"""A job with an exactly-once sink whose processes die at chosen points. It is restarted until it ends.

    python -m tests.spark.exactly_once_job FOLDER BOOTSTRAP_SERVERS SOURCE TARGET MODE POINTS [MASTER]

Copies SOURCE to TARGET in micro-batches. MODE is the option ``exactlyOnceMode``. POINTS are separated by commas; each
of them is met once, and noted in FOLDER:

- ``task-rows``, ``task-end``: a worker dies after its first rows, or before it reports its transaction;
- ``executor-rows``, ``executor-end``: the same with the executor, if MASTER is that of a cluster;
- ``task-commit``: a worker dies before it commits its transaction, if it is its own;
- ``opened``, ``deciding``, ``decided``, ``ending``, ``ended``, ``done``: the driver dies, with its JVM;
- ``zombie``: the JVM dies, and the process that commits goes on five seconds later.

With tasks that commit their own rows, ``deciding`` is met after the tasks, before the driver looks for tokens.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from pykclient.spark import KafkaDataSource, transactions as rules
from pykclient.spark.options import WriteOptions
from pykclient.spark.sink_driver import SinkDriver
from pykclient.spark.transactional_writer import (
    CommittingStreamWriter,
    TokenMessage,
    TransactionalStreamWriter,
    TransactionMessage,
)
from pykclient.spark.transactions import Producer, Steps, T
from tests.spark import session
from tests.spark.crashing_job import first_to_make

JOB, FOLDER, POINTS = "EXACTLY_ONCE_JOB", "EXACTLY_ONCE_FOLDER", "EXACTLY_ONCE_POINTS"

#: The second micro-batch is the first one in which the driver dies.
FIRST_BATCH = 1


def meet(point: str) -> None:
    """Die here, if this point is to be met and was not yet."""
    if point in os.environ[POINTS].split(",") and first_to_make(Path(os.environ[FOLDER]) / point):
        if point.startswith("executor"):
            os.kill(executor(), signal.SIGKILL)
        elif not point.startswith("task"):
            os.killpg(int(os.environ[JOB]), signal.SIGKILL)
        if point == "zombie":
            time.sleep(5)
            return
        os.kill(os.getpid(), signal.SIGKILL)


def executor() -> int:
    """Return the process id of the executor that this worker belongs to."""
    pid = os.getpid()
    while b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


class DyingDriver(SinkDriver):
    def _write(self, request: rules.Write) -> Producer:
        entry = request.entry
        assert entry is not None
        watched = entry.batch >= FIRST_BATCH
        if watched and entry.state == rules.BY_TASKS:
            meet("zombie")
            meet("ended")
            written = super()._write(request)
            meet("done")
            return written
        if watched and entry.state == rules.DECIDED:
            meet("deciding")
            meet("zombie")
        elif watched and entry.state == rules.DONE:
            meet("ended")
        written = super()._write(request)
        if watched and entry.state == rules.DECIDED:
            meet("decided")
        elif watched and entry.state == rules.DONE:
            meet("done")
        return written

    def _end(self, request: rules.End) -> dict[str, str]:
        super()._end(rules.End(request.transactions[:1], request.commit))
        meet("ending")
        return super()._end(request)

    def run(self, steps: Steps[T], commit_task: Any = None) -> T:
        def dying(request: rules.CommitTask) -> None:
            meet("task-commit")
            commit_task(request)

        return super().run(steps, commit_task and dying)


def dying_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        half = batch.num_rows // 2
        yield batch.slice(0, half)
        if half:
            meet("task-rows")
            meet("executor-rows")
        yield batch.slice(half)


class DyingWriter(TransactionalStreamWriter):
    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        meet("opened")
        return state

    def _driver(self) -> SinkDriver:
        return DyingDriver(self._config, self._options.transactional_id_prefix, self._options.ledger_topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TransactionMessage:
        message = super().write(dying_batches(iterator))
        if message.transaction is not None:
            meet("task-end")
            meet("executor-end")
        return message


class DyingCommittingWriter(CommittingStreamWriter):
    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        meet("opened")
        return state

    def _driver(self) -> SinkDriver:
        return DyingDriver(self._config, self._options.transactional_id_prefix, self._options.ledger_topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TokenMessage:
        message = super().write(dying_batches(iterator))
        if message.token is not None:
            meet("task-end")
            meet("executor-end")
        return message

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
        if batchId >= FIRST_BATCH:
            meet("deciding")
        super().commit(messages, batchId)


class DyingDataSource(KafkaDataSource):
    def streamWriter(self, schema: StructType, overwrite: bool) -> DyingWriter | DyingCommittingWriter:
        options = WriteOptions.parse(self.options, streaming=True)
        return (DyingCommittingWriter if options.by_task else DyingWriter)(options, schema, overwrite)


def main(
    folder: Path,
    bootstrap_servers: str,
    source: str,
    target: str,
    mode: str,
    points: str,
    master: str = "local[2,4]",
) -> None:
    names = {JOB: str(os.getpid()), FOLDER: str(folder), POINTS: points}
    os.environ.update(names)
    settings = {
        **session.settings(folder),
        "spark.master": master,
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        **{f"spark.executorEnv.{name}": value for name, value in names.items()},
    }
    spark = SparkSession.builder.config(map=dict(settings)).getOrCreate()
    spark.dataSource.register(DyingDataSource)
    stream = spark.readStream.format("pykclient").options(
        **{
            "kafka.bootstrap.servers": bootstrap_servers,
            "subscribe": source,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "400",
            "minRecordsPerTask": "0",
        }
    )
    sink = (
        stream.load()
        .select("value")
        .writeStream.format("pykclient")
        .options(
            **{
                "kafka.bootstrap.servers": bootstrap_servers,
                "topic": target,
                "delivery": "exactly-once",
                "transactionalIdPrefix": target,
                "ledgerTopic": f"{target}-ledger",
                "checkpointLocation": str(folder / "checkpoint"),
                "exactlyOnceMode": mode,
                **({"deterministicPartitioning": "true"} if mode == "task" else {}),
            }
        )
    )
    query = sink.trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()
    print("DONE")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
