"""Queries that move between Spark's own source and this one with their checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark import builtin
from tests.spark.releases import needs_read_limits
from tests.spark.topics import add_partitions, numbers, produce
from tests.support.any_kafka import AnyKafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.skipif(not builtin.has_builtin(), reason="this Spark's own source is not to be had")


def logged_ends(checkpoint: Path) -> list[object]:
    """Return the ends of micro-batches, which Spark stores before it reads them."""
    files = sorted(
        (path for path in (checkpoint / "offsets").iterdir() if path.name.isdigit()), key=lambda p: int(p.name)
    )
    return [json.loads(path.read_text().splitlines()[2]) for path in files]


@needs_read_limits
@pytest.mark.parametrize("order", [("kafka", "pykclient", "kafka"), ("pykclient", "kafka", "pykclient")], ids="-".join)
def test_a_query_moves_there_and_back(
    spark: SparkSession, kafka: AnyKafka, topic: str, tmp_path: Path, order: tuple[str, ...]
) -> None:
    """With more records each time, a partition that is new to the second source, and limited micro-batches."""
    kafka.create_topic(topic, 2)
    other = kafka.create_topic(f"{topic}-11", 11)  # partitions in order of number, not of text
    for place, source in enumerate(order):
        if place == 1:
            add_partitions(kafka, topic, 3)
        fresh = numbers(100 * place, 100)
        produce(kafka, topic, {0: fresh[:50], (2 if place else 1): fresh[50:90]})
        produce(kafka, other, {10: fresh[90:]})
        options = {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "subscribe": f"{other},{topic}",
            "startingOffsets": "earliest" if place == 0 else "latest",  # which only a new query heeds
            "maxOffsetsPerTrigger": "60",
        }
        rows = spark.readStream.format(source).options(**options).load().selectExpr("CAST(value AS STRING) AS value")
        writer = rows.writeStream.format("parquet").option("path", str(tmp_path / "rows"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        assert writer.start().awaitTermination(60)
    found = spark.read.parquet(str(tmp_path / "rows")).collect()
    assert sorted(int(row.value) for row in found) == list(range(300))
    ends = logged_ends(tmp_path / "checkpoint")
    assert ends[-1] == {
        topic: {"0": 150, "1": 40, "2": 80},
        other: {str(partition): 30 if partition == 10 else 0 for partition in range(11)},
    }


def test_query_keeps_counts(spark: SparkSession, kafka: AnyKafka, topic: str, tmp_path: Path) -> None:
    """Counts continue, whichever source has read the rows."""
    kafka.create_topic(topic, 1)
    counts: dict[str, int] = {}

    def keep(batch: DataFrame, _: int) -> None:
        counts.update({row.value: row["count"] for row in batch.collect()})

    for source in ("kafka", "pykclient", "kafka"):
        produce(kafka, topic, {0: ["a", "b", "a"]})
        options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic}
        rows = spark.readStream.format(source).options(**options, startingOffsets="earliest").load()
        counted = rows.groupBy(rows.value.cast("string").alias("value")).count()
        writer = counted.writeStream.outputMode("update").option("checkpointLocation", str(tmp_path)).foreachBatch(keep)
        assert writer.trigger(availableNow=True).start().awaitTermination(60)
    assert counts == {"a": 6, "b": 3}
