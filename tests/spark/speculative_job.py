"""A job with an exactly-once sink in which one task is so slow that Spark runs it a second time, speculatively.

    python -m tests.spark.speculative_job FOLDER MASTER BOOTSTRAP_SERVERS SOURCE TARGET MODE

Copies SOURCE to TARGET. The first attempt of the first task leaves its transaction open, and does not report it before
another attempt has written the same rows; it creates the file ``slow`` in FOLDER, and the other one the file ``fast``.
With the option ``exactlyOnceMode`` MODE=task it does not commit before the other one has.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from pykclient.spark import KafkaDataSource
from pykclient.spark.options import WriteOptions
from pykclient.spark.sink_driver import SinkDriver
from pykclient.spark.transactional_writer import (
    CommittingStreamWriter,
    TokenMessage,
    TransactionalStreamWriter,
    TransactionMessage,
)
from pykclient.spark.transactions import Steps, T
from pykclient.spark.worker import task_attempt
from tests.spark import session
from tests.support.wait import eventually

FOLDER = "SPECULATIVE_FOLDER"


def wait_if_slow() -> None:
    attempt, folder = task_attempt(), Path(os.environ[FOLDER])
    if attempt.partition == 0 and attempt.attempt == 0:
        (folder / "slow").touch()
        eventually((folder / "fast").exists, 120, "a speculative attempt of the slow task")


def tell_if_fast() -> None:
    attempt, folder = task_attempt(), Path(os.environ[FOLDER])
    if attempt.partition == 0 and attempt.attempt > 0:
        (folder / "fast").touch()


class SlowWriter(TransactionalStreamWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TransactionMessage:
        message = super().write(iterator)
        wait_if_slow()
        tell_if_fast()
        return message


class SlowDriver(SinkDriver):
    def run(self, steps: Steps[T], commit_task: Any = None) -> T:
        if commit_task is not None:
            wait_if_slow()
        return super().run(steps, commit_task)


class SlowCommittingWriter(CommittingStreamWriter):
    def _driver(self) -> SinkDriver:
        return SlowDriver(self._config, self._options.transactional_id_prefix, self._options.ledger_topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TokenMessage:
        message = super().write(iterator)
        tell_if_fast()
        return message


class SlowDataSource(KafkaDataSource):
    def streamWriter(self, schema: StructType, overwrite: bool) -> SlowWriter | SlowCommittingWriter:
        options = WriteOptions.parse(self.options, streaming=True)
        return (SlowCommittingWriter if options.by_task else SlowWriter)(options, schema, overwrite)


def main(folder: Path, master: str, bootstrap_servers: str, source: str, target: str, mode: str) -> None:
    settings = {
        **session.settings(folder),
        "spark.master": master,
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executorEnv." + FOLDER: str(folder),
        "spark.speculation": "true",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.1",
    }
    spark = SparkSession.builder.config(map=dict(settings)).getOrCreate()
    spark.dataSource.register(SlowDataSource)
    servers = {"kafka.bootstrap.servers": bootstrap_servers}
    stream = spark.readStream.format("pykclient").options(
        **servers, subscribe=source, startingOffsets="earliest", minRecordsPerTask="0"
    )
    sink = stream.load().select("value").writeStream.format("pykclient").options(**servers, topic=target)
    sink = sink.options(delivery="exactly-once", transactionalIdPrefix=target, ledgerTopic=f"{target}-ledger")
    sink = sink.options(exactlyOnceMode=mode, **({"deterministicPartitioning": "true"} if mode == "task" else {}))
    sink.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
