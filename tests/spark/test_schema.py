"""Columns in Spark's schema, and their conversion."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from inspect import signature
from itertools import combinations
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pykclient.errors import KafkaError
from pykclient.record import arrow
from pykclient.spark.options import ReadOptions
from pykclient.spark.schema import COLUMNS, SparkBatches, arrow_schema, ddl

TYPES: dict[str, Any] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}

SUBSETS = [names for count in range(1, len(TYPES) + 1) for names in combinations(TYPES, count)]

#: Spark 4.1 has no such argument, and UTC by itself.
IN_UTC: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}


def test_arrow_schema_of_every_column_subset_equals_sparks() -> None:
    assert len(SUBSETS) == 255
    for names in SUBSETS:
        spark_schema = StructType([StructField(name, TYPES[name]) for name in names])
        assert arrow_schema(names).equals(to_arrow_schema(spark_schema, **IN_UTC), check_metadata=True)


def test_ddl_contains_sparks_type_names() -> None:
    assert list(COLUMNS) == list(TYPES)
    assert ddl(("key", "timestampType")) == "`key` binary, `timestampType` int"
    for name, type in TYPES.items():
        assert COLUMNS[name].replace(" ", "") == type.simpleString()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, list(COLUMNS)[:-1]),
        ({"includeHeaders": "true"}, list(COLUMNS)),
        ({"columns": "value,offset"}, ["value", "offset"]),
    ],
)
def test_options_select_the_columns(options: dict[str, str], expected: list[str]) -> None:
    given = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t", **options}
    parsed = ReadOptions.parse(given, streaming=False)
    assert list(parsed.column_names) == expected


def polled(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Return rows as ``poll_arrow`` does, with defaults for the other columns."""
    defaults = {
        "topic": "t",
        "partition": 0,
        "offset": 0,
        "timestamp": 0,
        "timestamp_type": 0,
        "key": None,
        "value": b"",
        "headers": [],
        "leader_epoch": None,
    }
    return pa.RecordBatch.from_pylist([{**defaults, **row} for row in rows], schema=arrow.schema())


def converted(rows: list[dict[str, Any]], names: tuple[str, ...] = tuple(COLUMNS)) -> list[dict[str, Any]]:
    batch = SparkBatches(names).convert(polled(rows))
    batch.validate(full=True)
    assert batch.schema.equals(arrow_schema(names), check_metadata=True)
    found: list[dict[str, Any]] = batch.to_pylist()
    return found


def test_all_columns_are_converted() -> None:
    moment = datetime(2026, 11, 21, 20, 0, 0, 123_000, UTC)
    row = {"topic": "t", "partition": 3, "offset": 1 << 40, "timestamp": moment, "key": b"k", "value": None}
    headers = [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]
    assert converted([{**row, "timestamp_type": 1, "headers": headers}]) == [
        {**row, "timestampType": 1, "headers": headers}
    ]


def test_only_selected_columns_are_requested() -> None:
    batches = SparkBatches(("value", "timestampType"))
    assert batches.source_columns == ["value", "timestamp_type"]
    assert converted([{"value": b"v"}], ("value", "timestampType")) == [{"value": b"v", "timestampType": 0}]


def test_headers_of_records_without_headers_are_null() -> None:
    some = [{"key": "h", "value": b"x"}]
    rows = [{"headers": headers} for headers in ([], some, [], some + some)]
    assert [row["headers"] for row in converted(rows, ("headers",))] == [None, some, None, some + some]
    assert converted([{"headers": []}] * 3, ("headers",)) == [{"headers": None}] * 3


def test_missing_timestamp_is_minus_one_millisecond() -> None:
    rows = converted([{"timestamp": None, "timestamp_type": -1}, {"timestamp": 5}], ("timestamp", "timestampType"))
    assert [row["timestampType"] for row in rows] == [-1, 0]
    assert [row["timestamp"].timestamp() for row in rows] == [-0.001, 0.005]


def test_timestamp_out_of_sparks_range_is_an_error() -> None:
    with pytest.raises(KafkaError, match=r"out of Spark.s range.*option columns"):
        converted([{"timestamp": pa.scalar((1 << 63) // 1000 + 1, pa.int64()).cast(pa.timestamp("ms", "UTC"))}])


def test_topics_are_converted_for_one_or_many_topics() -> None:
    batches = SparkBatches(("topic",))
    rng = random.Random(1)
    for names in (["a"], ["a"], ["bcd"], ["a", "bcd"], ["é"], ["a"]):
        for count in (1, 5, 3, 100):
            topics = [rng.choice(names) for _ in range(count)]
            batch = batches.convert(polled([{"topic": name} for name in topics]))
            batch.validate(full=True)
            assert batch["topic"].to_pylist() == topics
