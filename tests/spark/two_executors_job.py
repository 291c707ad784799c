"""A stream that catches up in a cluster of executors.

    python -m tests.spark.two_executors_job FOLDER MASTER BOOTSTRAP_SERVERS TOPIC ROWS_PER_TRIGGER

Prints JSON: the rows' values, the number of micro-batches, and the number of executors that have run tasks.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pykclient.spark import KafkaDataSource
from tests.spark import session


def with_executor(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add a column with the directory of the executor that runs the task."""
    for batch in batches:
        yield pa.record_batch({"value": batch["value"], "executor": [os.getcwd()] * batch.num_rows})


def main(folder: Path, master: str, bootstrap_servers: str, topic: str, per_trigger: str) -> None:
    settings = {
        **session.settings(folder),
        "spark.master": master,
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.locality.wait": "0",
    }
    spark = SparkSession.builder.config(map=dict(settings)).getOrCreate()
    spark.dataSource.register(KafkaDataSource)
    found: list[tuple[str, str]] = []
    batches: set[int] = set()

    def keep(batch: DataFrame, number: int) -> None:
        batches.add(number)
        rows = batch.select("value").mapInArrow(with_executor, "value binary, executor string").collect()
        found.extend((bytes(row.value).decode(), row.executor) for row in rows)

    options = {"kafka.bootstrap.servers": bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}
    limits = {"maxOffsetsPerTrigger": per_trigger, "minRecordsPerTask": "0"}
    stream = spark.readStream.format("pykclient").options(**options, **limits).load()
    writer = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()
    print(json.dumps([sorted(value for value, _ in found), len(batches), len({executor for _, executor in found})]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
