"""Writing to Kafka from Python code in Spark's tasks: row by row in ``foreachPartition``, and by columns.

    python -m examples.spark_foreach_partition [--bootstrap-servers HOST:PORT]

The first way is for code that creates single records. Spark converts each row to a Python object, which costs more than
everything after that. If Spark expressions can create the records, the second way needs no Python object per record. If
you only need to write, use ``df.write.format("pykclient")`` (examples/spark_batch.py).
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
    """Return a function for ``foreachPartition`` that writes each row's verdict to ``topic``."""
    producer = shared_producer(bootstrap_servers=bootstrap_servers, linger_ms=20)  # pickles as its configuration

    def write(rows: Iterator[Row]) -> None:
        with producer as p:  # one per worker, for all of its tasks; the end of the block waits for the records
            for row in rows:
                p.send(topic, key=row.carrier.encode(), value=verdict(row.delay).encode())

    return write


def by_columns(flights: DataFrame, bootstrap_servers: str, topic: str) -> int:
    """Write each row's verdict to ``topic``, and return the number of records."""
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
    """Return how often each verdict is in a topic."""
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
