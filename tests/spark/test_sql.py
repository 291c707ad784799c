"""Statements of docs/spark.md about SQL and about reused plans: views, tables, and the result of ``load``."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

from pykclient.errors import ConfigError
from pykclient.spark import KafkaDataSource
from tests.spark import builtin
from tests.spark.topics import numbers, produce
from tests.support.any_kafka import EMBEDDED, AnyKafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


on_embedded = pytest.mark.parametrize("any_kafka", [EMBEDDED], indirect=True)


class Shop:
    """A topic that grows, and unique names for SQL."""

    def __init__(self, spark: SparkSession, kafka: AnyKafka, topic: str) -> None:
        self.spark = spark
        self.kafka = kafka
        self.topic = topic
        self.options = f"kafka.bootstrap.servers '{kafka.bootstrap_servers}', subscribe '{topic}'"
        self.given = f"kafka.bootstrap.servers = '{kafka.bootstrap_servers}', subscribe = '{topic}'"
        self.name = f"t_{uuid.uuid4().hex[:8]}"

    def sell(self, count: int) -> None:
        produce(self.kafka, self.topic, {0: numbers(0, count)})

    def count(self, what: str) -> int:
        (row,) = self.spark.sql(f"SELECT count(*) AS n FROM {what}").collect()
        return int(row.n)


@pytest.fixture
def shop(spark: SparkSession, any_kafka: AnyKafka, topic: str) -> Iterator[Shop]:
    any_kafka.create_topic(topic, 1)
    spark.dataSource.register(KafkaDataSource)
    shop = Shop(spark, any_kafka, topic)
    shop.sell(3)
    yield shop
    spark.sql(f"DROP VIEW IF EXISTS {shop.name}v")
    spark.sql(f"DROP TABLE IF EXISTS {shop.name}")


@on_embedded
def test_view_keeps_the_rows_of_its_first_read(shop: Shop) -> None:
    """Spark keeps its plan. If a later release plans again, this test fails and the page must change."""
    create = f"CREATE OR REPLACE TEMPORARY VIEW {shop.name}v USING pykclient OPTIONS ({shop.options})"
    shop.spark.sql(create)
    assert shop.count(f"{shop.name}v") == 3
    shop.sell(2)
    assert shop.count(f"{shop.name}v") == 3
    shop.spark.sql(create)
    assert shop.count(f"{shop.name}v") == 5


@on_embedded
def test_loaded_frame_is_planned_once(shop: Shop) -> None:
    """Unlike Spark's own source, which looks up offsets in every query."""

    def load(format: str) -> DataFrame:
        options = {"kafka.bootstrap.servers": shop.kafka.bootstrap_servers, "subscribe": shop.topic}
        return shop.spark.read.format(format).options(**options).load()

    ours = load("pykclient")
    theirs = load("kafka") if builtin.has_builtin() else None
    assert ours.count() == 3
    assert theirs is None or theirs.count() == 3
    shop.sell(2)
    assert ours.count() == 3
    assert ours.where("partition = 0").count() == 3
    assert theirs is None or theirs.count() == 5
    assert load("pykclient").count() == 5


@pytest.mark.parametrize(
    "columns", ["", "(value BINARY, key BINARY)"], ids=["columns of ours", "columns of the table's"]
)
@on_embedded
def test_table_has_current_rows(shop: Shop, columns: str) -> None:
    shop.spark.sql(f"CREATE TABLE {shop.name} {columns} USING pykclient COMMENT 'sales' TBLPROPERTIES ('owned' = 'by')")
    assert len(shop.spark.table(shop.name).columns) == (2 if columns else 7)
    assert shop.count(f"{shop.name} WITH ({shop.given})") == 3
    shop.sell(2)
    assert shop.count(f"{shop.name} WITH ({shop.given})") == 5


@on_embedded
def test_table_options_select_columns_and_are_checked(shop: Shop) -> None:
    shop.spark.sql(f"CREATE TABLE {shop.name} USING pykclient OPTIONS ({shop.options}, columns 'offset,value')")
    assert shop.spark.table(shop.name).columns == ["offset", "value"]
    with pytest.raises(AnalysisException, match="unknown option 'startingoffset'; did you mean 'startingOffsets'"):
        shop.spark.sql(f"CREATE TABLE {shop.name}2 USING pykclient OPTIONS ({shop.options}, startingOffset 'earliest')")


@on_embedded
def test_table_error_says_where_options_belong(shop: Shop) -> None:
    shop.spark.sql(f"CREATE TABLE {shop.name} USING pykclient OPTIONS ({shop.options})")
    with pytest.raises(AnalysisException, match=r"servers must be set, .*:9092\. There are no options at all.*WITH"):
        shop.count(shop.name)


@on_embedded
def test_a_table_is_written_with_options_in_the_query(shop: Shop) -> None:
    shop.spark.sql(f"CREATE TABLE {shop.name} (key BINARY, value BINARY) USING pykclient")
    servers = f"kafka.bootstrap.servers = '{shop.kafka.bootstrap_servers}'"
    shop.spark.sql(
        f"INSERT INTO {shop.name} WITH ({servers}, topic = '{shop.topic}') VALUES (NULL, X'01'), (X'02', NULL)"
    )
    assert shop.count(f"{shop.name} WITH ({shop.given})") == 5


def test_hint_appears_only_without_options() -> None:
    with pytest.raises(ConfigError, match=r"must be set, to addresses such as host:9092$"):
        KafkaDataSource({"subscribe": "t"}).schema()
    with pytest.raises(ConfigError, match=r"SELECT \.\.\. FROM t WITH"):
        KafkaDataSource({}).schema()
