"""The data source in Spark: discovery, columns, options, planning and reading."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.types import BinaryType, StructField, StructType

import pykclient.spark
from pykclient.errors import ConfigError
from pykclient.spark import KafkaDataSource
from pykclient.spark.batch_reader import KafkaBatchReader, KafkaBatchReaderWithPushdown
from tests.spark.topics import numbers, produce
from tests.support.any_kafka import AnyKafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KAFKA = {"kafka.bootstrap.servers": "127.0.0.1:1"}
BASIC = {**KAFKA, "subscribe": "a"}


def test_every_public_name_exists() -> None:
    assert {name for name in pykclient.spark.__all__ if getattr(pykclient.spark, name) is not None} <= set(
        dir(pykclient.spark)
    )
    with pytest.raises(AttributeError, match="no attribute 'KafkaSource'"):
        _ = pykclient.spark.KafkaSource


def test_spark_finds_the_source_without_loading_a_client() -> None:
    """Spark imports the module in its first Python process, whichever data source is used."""
    program = """
import pyspark.sql.datasource, sys
before = set(sys.modules)
import pyspark_pykclient
assert pyspark_pykclient.DefaultSource.name() == "pykclient"
heavy = {"pyarrow", "pykclient.consumer", "pykclient.network", "pykclient.producer", "pykclient.record"}
print(heavy & (set(sys.modules) - before))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, "key value topic partition offset timestamp timestampType"),
        ({"includeHeaders": "true"}, "key value topic partition offset timestamp timestampType headers"),
        ({"columns": "offset,value"}, "offset value"),
    ],
)
def test_schema_has_the_requested_columns(options: dict[str, str], names: str) -> None:
    schema = KafkaDataSource({**BASIC, **options}).schema()
    assert [part.split("`")[0] for part in schema.removeprefix("`").split(", `")] == names.split()


@pytest.mark.parametrize("options", [{"startingOffsets": "latest"}, {"endingOffsets": "latest"}])
def test_load_accepts_options_of_only_streams_or_only_batches(options: dict[str, str]) -> None:
    assert KafkaDataSource({**BASIC, **options}).schema()


def test_error_common_to_stream_and_batch_is_reported_once() -> None:
    with pytest.raises(ConfigError, match=r"^unknown option 'subscribed'; did you mean 'subscribe'\?$"):
        KafkaDataSource({**KAFKA, "subscribed": "a"}).schema()


def test_different_errors_of_stream_and_batch_are_both_reported() -> None:
    options = {**BASIC, "startingOffsets": "latest", "endingOffsets": "latest"}
    with pytest.raises(
        ConfigError, match=r"startingOffsets.* \(read as a batch\); .*endingOffsets.* \(read as a stream"
    ):
        KafkaDataSource(options).schema()


@pytest.mark.parametrize(
    ("spark_pushes", "option", "apart", "pushes"),
    [
        (False, "true", True, False),  # without pushdown, Spark fails every read by a reader that supports it
        (True, "true", False, True),
        (True, "false", True, False),
        (True, None, True, True),
        (True, None, False, False),  # the filters of one query would apply to others
    ],
)
def test_filters_are_pushed_if_safe_or_requested(
    monkeypatch: pytest.MonkeyPatch, spark_pushes: bool, option: str | None, apart: bool, pushes: bool
) -> None:
    pushing = "pyspark.sql.worker.data_source_pushdown_filters"
    if spark_pushes:
        monkeypatch.setitem(sys.modules, pushing, sys)
    else:
        monkeypatch.delitem(sys.modules, pushing, raising=False)
    monkeypatch.setattr("pykclient.spark.batch_reader.keeps_filters_apart", lambda: apart)
    source = KafkaDataSource(BASIC if option is None else {**BASIC, "filterPushdown": option})
    reader = source.reader(StructType([StructField("value", BinaryType())]))
    assert type(reader) is (KafkaBatchReaderWithPushdown if pushes else KafkaBatchReader)


def load(spark: SparkSession, kafka: AnyKafka, schema: str | None = None, **options: object) -> DataFrame:
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "fetchOffset.numRetries": 1, **options}
    reader = spark.read.format("pykclient").options(**{name: str(value) for name, value in given.items()})
    return (reader.schema(schema) if schema else reader).load()


def values(frame: DataFrame) -> list[int]:
    return sorted(int(bytes(row.value)) for row in frame.select("value").collect())


@pytest.fixture(scope="module")
def filled(kafka: AnyKafka) -> str:
    """Create a topic of three partitions with the numbers 0 to 29, ten in each."""
    topic = kafka.create_topic("filled-for-the-data-source", 3)
    produce(kafka, topic, {partition: numbers(10 * partition, 10) for partition in range(3)})
    return topic


def test_batch_reads_between_given_offsets(spark: SparkSession, kafka: AnyKafka, filled: str) -> None:
    """The source is not registered: Spark finds it."""
    frame = load(
        spark,
        kafka,
        ASSIGN=f'{{"{filled}":[0,2]}}',  # options in any case
        startingOffsets=f'{{"{filled}":{{"0":8,"2":-2}}}}',
        endingOffsets=f'{{"{filled}":{{"0":-1,"2":3}}}}',
        minPartitions=4,
    )
    assert values(frame) == [8, 9, 20, 21, 22]
    assert frame.rdd.getNumPartitions() == 4


def test_schema_selects_columns(spark: SparkSession, kafka: AnyKafka, filled: str) -> None:
    frame = load(spark, kafka, "offset BIGINT, value BINARY", subscribe=filled)
    assert frame.columns == ["offset", "value"]
    assert values(frame) == list(range(30))
    with pytest.raises(
        AnalysisException, match="'value' has the type binary in the format pykclient, but string in the schema"
    ):
        load(spark, kafka, "value STRING", subscribe=filled).collect()


def test_sql_reads_a_view(spark: SparkSession, kafka: AnyKafka, filled: str) -> None:
    spark.sql(
        f"""CREATE OR REPLACE TEMPORARY VIEW filled USING pykclient OPTIONS (
            'kafka.bootstrap.servers' = '{kafka.bootstrap_servers}', subscribe = '{filled}', includeHeaders = 'true')"""
    )
    found = spark.sql("SELECT partition, count(*) AS n, max(headers) AS h FROM filled GROUP BY 1 ORDER BY 1").collect()
    assert [tuple(row) for row in found] == [(0, 10, None), (1, 10, None), (2, 10, None)]


@pytest.fixture
def pushdown(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.usefixtures("pushdown")
def test_filters_reduce_what_is_fetched(spark: SparkSession, kafka: AnyKafka, filled: str) -> None:
    def loaded() -> DataFrame:
        return load(spark, kafka, subscribe=filled, minRecordsPerTask=0, filterPushdown=True)

    narrow = loaded().where("partition IN (1, 2) AND offset >= 5 AND value <> X'3135'")
    assert narrow.rdd.getNumPartitions() == 2
    assert values(narrow) == [16, 17, 18, 19, 25, 26, 27, 28, 29]
    frame = loaded()
    late = frame.where(frame.timestamp > datetime.now(UTC) + timedelta(hours=1))
    assert late.rdd.getNumPartitions() == 1
    assert values(late) == []


@pytest.mark.usefixtures("pushdown")
def test_filters_of_one_query_do_not_affect_another(spark: SparkSession, kafka: AnyKafka, filled: str) -> None:
    """It would, in this Spark, if filters were pushed down without the option."""
    frame = load(spark, kafka, subscribe=filled)
    one = frame.where("partition = 1")
    assert values(one) == list(range(10, 20))
    assert values(frame) == list(range(30))
    assert values(one.union(frame.where("partition = 2"))) == list(range(10, 30))


def test_wrong_options_raise_on_load(spark: SparkSession, kafka: AnyKafka, filled: str) -> None:
    with pytest.raises(AnalysisException, match=r"unknown option 'startingoffset'; did you mean 'startingOffsets'\?"):
        load(spark, kafka, subscribe=filled, startingOffset="earliest")
    with pytest.raises(AnalysisException, match="does not exist, or the principal may not describe it"):
        load(spark, kafka, subscribe="no-such-topic").collect()
