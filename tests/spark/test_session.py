"""The session that all Spark tests share."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_workers_run_this_interpreter(spark: SparkSession) -> None:
    def executable(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        list(batches)
        yield pa.record_batch({"executable": [sys.executable]})

    rows = spark.range(1, numPartitions=1).mapInArrow(executable, "executable string").collect()
    assert [row.executable for row in rows] == [sys.executable]


def test_session_keeps_the_ctrl_c_handler(spark: SparkSession) -> None:
    """Other tests run in this process, too."""
    assert spark.version
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
