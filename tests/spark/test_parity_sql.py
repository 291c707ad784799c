"""Tables and views of Spark's SQL, with the built-in source and with ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.kafka.cluster import KafkaCluster
from tests.spark.parity import BUILTIN, FORMATS, OURS, Kinds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUERY = """
SELECT partition, count(*) AS count, min(offset) AS first, CAST(max(CAST(value AS STRING)) AS STRING) AS last
FROM {name} WHERE partition <> 2 GROUP BY partition ORDER BY partition
"""


@pytest.fixture
def names(spark: SparkSession) -> Iterator[dict[str, str]]:
    found = {format: f"in_sql_{format}" for format in FORMATS}
    yield found
    for name in found.values():
        spark.sql(f"DROP VIEW IF EXISTS {name}")
        spark.sql(f"DROP TABLE IF EXISTS {name}_table")


def test_views_agree(spark: SparkSession, kafka: KafkaCluster, kinds: Kinds, names: dict[str, str]) -> None:
    found = {}
    for format, name in names.items():
        spark.sql(f"""
            CREATE TEMPORARY VIEW {name} USING {format}
            OPTIONS ('kafka.bootstrap.servers' '{kafka.bootstrap_servers}', subscribe '{kinds.timed}')
        """)
        found[format] = spark.sql(_QUERY.format(name=name)).collect()
    theirs, ours = found.values()
    assert [row["count"] for row in theirs] == [50, 50]
    assert ours == theirs


def test_tables_agree(spark: SparkSession, kafka: KafkaCluster, kinds: Kinds, names: dict[str, str]) -> None:
    """Spark passes a table's options to its own sources only. With ours, queries give them."""
    options = f"'kafka.bootstrap.servers' '{kafka.bootstrap_servers}', subscribe '{kinds.timed}'"
    for format, name in names.items():
        spark.sql(f"CREATE TABLE {name}_table USING {format} OPTIONS ({options})")
    theirs = spark.sql(_QUERY.format(name=f"{names[BUILTIN]}_table")).collect()
    given = options.replace("' '", "' = '").replace("subscribe '", "subscribe = '")
    ours = spark.sql(_QUERY.format(name=f"{names[OURS]}_table WITH ({given})")).collect()
    assert [row["count"] for row in theirs] == [50, 50]
    assert ours == theirs
