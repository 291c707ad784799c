"""The partitions that a batch reader plans, without a cluster."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence

import pytest
from pyspark.sql.datasource import DataSourceReader, EqualTo, Filter, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pykclient.errors import ConfigError
from pykclient.spark.batch_reader import (
    KafkaBatchReader,
    KafkaBatchReaderWithPushdown,
    KafkaInputPartition,
    checked_columns,
    input_partitions,
)
from pykclient.spark.filters import Bounds
from pykclient.spark.options import ReadOptions
from pykclient.spark.ranges import OffsetRange
from pykclient.spark.schema import COLUMNS
from pykclient.types import TopicPartition

A0, A1, A2 = (TopicPartition("a", partition) for partition in range(3))


class Cluster:
    """Stands in for a KafkaOffsetReader."""

    def __init__(self) -> None:
        self.ranges = [OffsetRange(A0, 0, 5), OffsetRange(A1, 0, 5)]
        self.bounds: Bounds | None = None
        self.closed = False

    def batch_ranges(self, bounds: Bounds | None) -> list[OffsetRange]:
        self.bounds = bounds
        return self.ranges if bounds is None else bounds.apply(self.ranges)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr("pykclient.spark.offset_reader.KafkaOffsetReader", lambda options: made)
    return made


def parsed(**options: object) -> ReadOptions:
    given: Mapping[str, object] = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "a", **options}
    return ReadOptions.parse({name: str(value) for name, value in given.items()}, streaming=False)


def ranges_of(partitions: Sequence[InputPartition]) -> list[list[OffsetRange]]:
    assert all(isinstance(partition, KafkaInputPartition) for partition in partitions)
    return [list(partition.ranges) for partition in partitions if isinstance(partition, KafkaInputPartition)]


def test_offsets_are_requested_once_and_the_connection_is_closed(cluster: Cluster) -> None:
    partitions = KafkaBatchReader(parsed(), ("value",)).partitions()
    assert ranges_of(partitions) == [cluster.ranges]
    assert cluster.closed


def test_the_connection_is_closed_after_an_error(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(bounds: Bounds | None) -> list[OffsetRange]:
        raise ConfigError("no")

    monkeypatch.setattr(cluster, "batch_ranges", fail)
    with pytest.raises(ConfigError, match="no"):
        KafkaBatchReader(parsed(), ("value",)).partitions()
    assert cluster.closed


def test_empty_read_plans_a_partition_without_ranges(cluster: Cluster) -> None:
    """Spark would replace an empty list by a partition of its own."""
    cluster.ranges = []
    reader = KafkaBatchReader(parsed(), ("value",))
    (partition,) = reader.partitions()
    assert list(reader.read(partition)) == []


def test_filters_bound_the_ranges_and_spark_applies_them_too(cluster: Cluster) -> None:
    reader = KafkaBatchReaderWithPushdown(parsed(), ("value",))
    filters: list[Filter] = [EqualTo(("partition",), 1), EqualTo(("value",), b"x")]
    assert list(reader.pushFilters(filters)) == filters
    assert ranges_of(reader.partitions()) == [[OffsetRange(A1, 0, 5)]]
    assert pickle.loads(pickle.dumps(reader)).task.bounds == cluster.bounds == Bounds.of(filters)


def test_only_the_pushdown_reader_has_push_filters() -> None:
    assert KafkaBatchReader.pushFilters is DataSourceReader.pushFilters


def test_task_unpickles_few_modules(cluster: Cluster) -> None:
    reader = KafkaBatchReader(parsed(), ("key", "value"))
    reader.partitions()
    pickled = pickle.dumps(reader)
    assert len(pickled) < 1000
    assert b"subscribe" not in pickled
    task = pickle.loads(pickled).task
    assert task.columns == ("key", "value")
    assert task.consumer_config["bootstrap.servers"] == "127.0.0.1:1"
    assert len(pickle.dumps(KafkaInputPartition((OffsetRange(A0, 0, 5),)))) < 250


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        ({}, [[10, 2000, 10]]),
        ({"minRecordsPerTask": 1000}, [[2000], [10, 10]]),
        ({"minRecordsPerTask": 0}, [[10], [2000], [10]]),
        ({"maxRecordsPerPartition": 1000}, [[10], [1000], [1000], [10]]),
        ({"minPartitions": 4}, [[10], [1000], [1000], [10]]),
    ],
)
def test_large_ranges_are_split_and_small_ones_share_a_task(options: dict[str, object], tasks: list[list[int]]) -> None:
    ranges = [OffsetRange(A0, 0, 10), OffsetRange(A1, 0, 2000), OffsetRange(A2, 5, 15)]
    planned = input_partitions(parsed(**options), ranges)
    assert [[each.size for each in shared] for shared in ranges_of(planned)] == tasks


HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
TYPES: dict[str, DataType] = {
    "headers": ArrayType(HEADER),
    "timestampType": IntegerType(),
    "timestamp": TimestampType(),
    "offset": LongType(),
    "partition": IntegerType(),
    "topic": StringType(),
    "value": BinaryType(),
    "key": BinaryType(),
}


def test_schema_may_name_our_columns_in_any_order() -> None:
    assert set(TYPES) == set(COLUMNS)
    schema = StructType([StructField(name, type) for name, type in TYPES.items()])
    assert checked_columns(schema) == tuple(TYPES)


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        (StructField("valu", BinaryType()), "pykclient has no column 'valu', which the schema names"),
        (
            StructField("value", StringType()),
            "'value' has the type binary in the format pykclient, but string in the schema",
        ),
        (StructField("headers", ArrayType(StringType())), "binary>> in the format pykclient, but array<string> in"),
        (StructField("offset", IntegerType()), "'offset' has the type bigint in the format pykclient, but int in"),
        (
            StructField("value", BinaryType(), nullable=False),
            "'value' is NOT NULL in the schema, but nullable in the format",
        ),
    ],
)
def test_schema_with_foreign_columns_is_refused(field: StructField, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        checked_columns(StructType([StructField("key", BinaryType()), field]))


def test_a_schema_without_columns_is_refused() -> None:
    with pytest.raises(ConfigError, match="The schema has no columns; leave it out or choose from: key, value, "):
        checked_columns(StructType([]))
