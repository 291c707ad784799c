"""Results of ``poll_arrow``, used by polars, DuckDB and pandas and sent back from there."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from pykclient import KafkaConsumer, KafkaProducer
from pykclient.types import Header
from tests.support.any_kafka import AnyKafka

COUNT = 2000
TIME_MS = 1_600_000_000_000


def value(row: int) -> bytes | None:
    """Return a value; some are longer than the 12 bytes that fit into a view."""
    return None if row % 7 == 0 else b"%d" % row if row % 2 else b"value of many bytes %d" % row


def key(row: int) -> bytes | None:
    return b"key %d" % row if row % 3 else None


def headers(row: int) -> list[Header]:
    return [("name", b"%d" % row), ("none", None)] if row % 4 == 0 else []


@pytest.fixture
def producer(any_kafka: AnyKafka) -> Iterator[KafkaProducer[Any, Any]]:
    settings: dict[str, Any] = {"linger_ms": 5, "compression_type": "lz4"}
    with KafkaProducer(bootstrap_servers=any_kafka.bootstrap_servers, **settings) as producer:
        yield producer


@pytest.fixture
def filled(any_kafka: AnyKafka, topic: str, producer: KafkaProducer[Any, Any]) -> str:
    """A topic with records in one partition."""
    any_kafka.create_topic(topic, partitions=1)
    for row in range(COUNT):
        producer.send(topic, value(row), key(row), headers(row), timestamp_ms=TIME_MS + row)
    producer.flush(20)
    return topic


def take(cluster: AnyKafka, topic: str, **arguments: Any) -> list[pa.RecordBatch]:
    """Return all records, in several batches."""
    batches: list[pa.RecordBatch] = []
    with KafkaConsumer(topic, bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        while sum(batch.num_rows for batch in batches) < COUNT:
            batches.append(consumer.poll_arrow(20_000, max_records=900, **arguments))
            assert batches[-1].num_rows, "nothing came"
    return batches


@pytest.mark.parametrize("binary_view", [False, True])
def test_all_columns_reach_the_libraries(any_kafka: AnyKafka, filled: str, binary_view: bool) -> None:
    batches = take(any_kafka, filled, binary_view=binary_view)
    expected = [
        {
            "topic": filled,
            "partition": 0,
            "offset": row,
            "timestamp": datetime.fromtimestamp((TIME_MS + row) / 1000, UTC),
            "timestamp_type": 0,
            "key": key(row),
            "value": value(row),
            "headers": [{"key": name, "value": content} for name, content in headers(row)],
            "leader_epoch": 0,
        }
        for row in range(COUNT)
    ]
    assert pl.concat([pl.DataFrame(batch) for batch in batches]).to_dicts() == expected

    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        connection.register("records", pa.Table.from_batches(batches))
        assert pa.table(connection.sql('select * from records order by "offset"')).to_pylist() == expected

    frame = pd.concat([batch.to_pandas() for batch in batches])
    assert frame["topic"].eq(filled).all()
    assert frame["timestamp"].iloc[5] == pd.Timestamp(TIME_MS + 5, unit="ms", tz="UTC")
    for column in ("offset", "key", "value"):
        assert frame[column].tolist() == [row[column] for row in expected]
    assert [len(each) for each in frame["headers"]] == [len(headers(row)) for row in range(COUNT)]


def test_empty_poll_has_the_same_types(any_kafka: AnyKafka, topic: str) -> None:
    """An empty result has the same types as one with records."""
    any_kafka.create_topic(topic, partitions=1)
    with KafkaConsumer(topic, bootstrap_servers=any_kafka.bootstrap_servers) as consumer:
        nothing = consumer.poll_arrow(0, binary_view=True)
    frame = pl.DataFrame(nothing)
    assert frame.is_empty()
    assert frame.schema["value"] == pl.Binary()
    assert frame.schema["timestamp"] == pl.Datetime("ms", "UTC")
    assert nothing.to_pandas().empty
    with duckdb.connect() as connection:
        connection.register("records", pa.Table.from_batches([nothing]))
        assert connection.sql("select key, value, headers from records").fetchall() == []


def test_libraries_copy_topics(any_kafka: AnyKafka, filled: str, producer: KafkaProducer[Any, Any]) -> None:
    """Records are polled, processed by each of the three libraries, and sent."""
    columns = ["key", "value", "timestamp", "headers"]
    batches = take(any_kafka, filled, columns=columns, binary_view=True)
    records = pa.Table.from_batches(batches)
    frame = pl.concat([pl.DataFrame(batch) for batch in batches], rechunk=False)
    # pyarrow cannot select rows of view types, so pandas cannot either.
    pandas = pa.Table.from_batches(take(any_kafka, filled, columns=columns)).to_pandas(types_mapper=pd.ArrowDtype)
    kept = [row for row in range(COUNT) if key(row) is not None]
    with duckdb.connect() as connection:
        connection.register("records", records)
        for name, data in {
            "polars": frame.filter(pl.col("key").is_not_null()),
            "duckdb": connection.sql("select * from records where key is not null order by timestamp"),
            "pandas": pandas.dropna(subset="key"),
        }.items():
            target = f"{filled}-{name}"
            any_kafka.create_topic(target, partitions=1)
            future = producer.send_batch(target, data, key="key", timestamp="timestamp", headers="headers")
            assert future.get(20).num_rows == len(kept)
            with KafkaConsumer(
                target, bootstrap_servers=any_kafka.bootstrap_servers, auto_offset_reset="earliest"
            ) as consumer:
                found = [next(consumer) for _ in kept]
            assert [(record.value, record.key, record.timestamp, list(record.headers)) for record in found] == [
                (value(row), key(row), TIME_MS + row, headers(row)) for row in kept
            ]
