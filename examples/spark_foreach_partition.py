"""Python code in Spark's tasks that writes to Kafka: a producer in ``foreachPartition``, and the same by columns.

    python -m examples.spark_foreach_partition [--bootstrap-servers HOST:PORT]

The first is for code that makes records one by one. Spark hands it each row as a Python object, which costs more than
all that comes after. Where expressions of Spark can make the records, the second does without a Python object per
record; and where nothing but the writing is left, ``df.write.format("pykclient")`` does (examples/spark_batch.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from examples.spark_jobs import FLIGHT, first_days, read_topic, run, write_flights
from pykclient.spark import KafkaDataSource, shared_producer, write_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

LATE_MINUTES = 15


def verdict(delay: int | None) -> str:
    if delay is None:
        return "cancelled"
    return "late" if delay > LATE_MINUTES else "on time"


def row_by_row(bootstrap_servers: str, topic: str) -> Callable[[Iterator[Row]], None]:
    """For ``foreachPartition``."""
    producer = shared_producer(bootstrap_servers=bootstrap_servers, linger_ms=20)  # pickles as its configuration

    def write(rows: Iterator[Row]) -> None:
        with producer as p:  # the worker's own, for all of its tasks; the block's end waits for the records
            for row in rows:
                p.send(topic, key=row.carrier.encode(), value=verdict(row.delay).encode())

    return write


def by_columns(flights: DataFrame, bootstrap_servers: str, topic: str) -> int:
    """The same; returns how many records were written."""
    records = flights.select(
        f.col("carrier").alias("key"),
        f.when(f.col("delay").isNull(), "cancelled")
        .when(f.col("delay") > LATE_MINUTES, "late")
        .otherwise("on time")
        .alias("value"),
    )
    write = write_arrow({"bootstrap.servers": bootstrap_servers}, topic=topic)
    return sum(task.records for task in records.mapInArrow(write, write.schema).collect())


def count(spark: SparkSession, bootstrap_servers: str, topic: str) -> dict[str, int]:
    """How often each verdict is in a topic."""
    verdicts = read_topic(spark, bootstrap_servers, topic).groupBy(f.col("value").cast("string").alias("verdict"))
    return {row.verdict: row["count"] for row in verdicts.count().orderBy("verdict").collect()}


def main(spark: SparkSession, bootstrap_servers: str, topic: str) -> None:
    spark.dataSource.register(KafkaDataSource)
    write_flights(bootstrap_servers, topic, first_days(1, 1))
    values = read_topic(spark, bootstrap_servers, topic).select(
        f.from_json(f.col("value").cast("string"), FLIGHT).alias("flight")
    )
    flights = values.select("flight.*")

    flights.foreachPartition(row_by_row(bootstrap_servers, f"{topic}-rows"))
    print(f"row by row: {count(spark, bootstrap_servers, f'{topic}-rows')}")
    written = by_columns(flights, bootstrap_servers, f"{topic}-columns")
    print(f"by columns: {count(spark, bootstrap_servers, f'{topic}-columns')}, {written} in all")


if __name__ == "__main__":
    run(main)
