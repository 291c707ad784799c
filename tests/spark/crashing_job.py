"""A job whose Python worker dies once, and whose driver is killed while it runs. It is restarted until it ends.

    python -m tests.spark.crashing_job FOLDER BOOTSTRAP_SERVERS TOPIC SECRET

Reads numbers in micro-batches of 60 and writes them to FOLDER/rows. The worker that meets number 10 kills itself, once.
The worker that meets number 130, in the third micro-batch, says so by the file FOLDER/stuck, and gets no further while
that file is there. Spark's log of events goes to FOLDER/events; plans are printed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from tests.spark import session


def main(folder: Path, bootstrap_servers: str, topic: str, secret: str) -> None:
    events = folder / "events"
    events.mkdir(exist_ok=True)
    settings = {
        **session.settings(folder),
        "spark.master": "local[2,3]",  # a task may fail twice
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
    }
    spark = SparkSession.builder.config(map=dict(settings)).getOrCreate()
    options = {
        "kafka.bootstrap.servers": bootstrap_servers,
        "kafka.ssl.key.password": secret,
        "subscribe": topic,
        "startingOffsets": "earliest",
    }
    spark.read.format("pykclient").options(**options).load().explain(True)

    def falter(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            values = batch["value"].to_pylist()
            if b"10" in values and first_to_make(folder / "died"):
                os.kill(os.getpid(), signal.SIGKILL)
            if b"130" in values and first_to_make(folder / "was-stuck"):
                (folder / "stuck").touch()
                threading.Event().wait()  # until the driver is killed
            yield pa.record_batch({"number": [int(value) for value in values]})

    stream = spark.readStream.format("pykclient").options(**options, maxOffsetsPerTrigger="60").load()
    rows = stream.select("value").mapInArrow(falter, "number bigint").writeStream.format("parquet")
    rows = rows.option("path", str(folder / "rows")).option("checkpointLocation", str(folder / "checkpoint"))
    rows.trigger(availableNow=True).start().awaitTermination()
    found = [row.number for row in spark.read.parquet(str(folder / "rows")).collect()]
    print("FOUND", *sorted(found))
    spark.stop()


def first_to_make(path: Path) -> bool:
    """Create a file; return False if it existed."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
