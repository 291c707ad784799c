"""has_shuffle looks at Spark's physical plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from pykclient.spark import has_shuffle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHUFFLING: dict[str, Callable[[DataFrame], DataFrame]] = {
    "aggregation": lambda rows: rows.groupBy("value").count(),
    "distinct": lambda rows: rows.dropDuplicates(["value"]),
    "round-robin": lambda rows: rows.repartition(3),
    "join": lambda rows: rows.alias("a").join(rows.hint("merge").alias("b"), "value"),
}

KEEPING: dict[str, Callable[[DataFrame], DataFrame]] = {
    "projection": lambda rows: rows.selectExpr("cast(value as string) as value").where("value > '1'"),
    "literal": lambda rows: rows.selectExpr("'Exchange hashpartitioning' as value"),
    "union": lambda rows: rows.select("value").union(rows.select("value")),
    "broadcast": lambda rows: rows.join(rows.sparkSession.range(3).selectExpr("id as value"), "value"),
    "python": lambda rows: rows.mapInArrow(lambda batches: batches, rows.schema),
}


@pytest.fixture
def stream(spark: SparkSession) -> DataFrame:
    rows: DataFrame = spark.readStream.format("rate").load()
    return rows


@pytest.mark.spark
@pytest.mark.parametrize("kind", SHUFFLING)
def test_streams_with_a_shuffle_are_found(stream: DataFrame, kind: str) -> None:
    assert has_shuffle(SHUFFLING[kind](stream))


@pytest.mark.spark
@pytest.mark.parametrize("kind", KEEPING)
def test_streams_that_keep_their_partitions_are_told_apart(stream: DataFrame, kind: str) -> None:
    assert not has_shuffle(KEEPING[kind](stream))
