"""A batch job in Spark that reads a topic, parses JSON, filters by timestamp, aggregates, writes and runs SQL.

    python -m examples.spark_batch [--bootstrap-servers HOST:PORT]

The filter on ``timestamp`` is pushed down: earlier records are not fetched. Spark's own Kafka source reads all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from examples.spark_jobs import FLIGHT, first_days, read_topic, run, write_flights
from pykclient.spark import KafkaDataSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def delays_by_carrier(records: DataFrame) -> DataFrame:
    """Return the number of flights of each carrier, and their average delay in minutes."""
    flights = records.select(f.from_json(f.col("value").cast("string"), FLIGHT).alias("flight")).select("flight.*")
    return flights.groupBy("carrier").agg(
        f.count("*").alias("flights"), f.round(f.avg("delay"), 1).alias("minutes_late")
    )


def write_back(delays: DataFrame, bootstrap_servers: str, topic: str) -> None:
    """Write one record per row: the carrier as the key, and the whole row as JSON."""
    (
        delays.select(f.col("carrier").alias("key"), f.to_json(f.struct("*")).alias("value"))
        .write.format("pykclient")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("topic", topic)
        .mode("append")  # Spark's default mode is not available for Python data sources
        .save()
    )


def ask_sql(spark: SparkSession, bootstrap_servers: str, topic: str) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW delays USING pykclient "
        f"OPTIONS (kafka.bootstrap.servers '{bootstrap_servers}', subscribe '{topic}')"
    )
    worst = spark.sql(
        "SELECT CAST(key AS STRING) carrier, get_json_object(CAST(value AS STRING), '$.minutes_late') minutes "
        "FROM delays ORDER BY CAST(minutes AS DOUBLE) DESC LIMIT 3"
    )
    for row in worst.collect():
        print(f"{row.carrier} left {row.minutes} minutes late")


def main(spark: SparkSession, bootstrap_servers: str, topic: str) -> None:
    spark.dataSource.register(KafkaDataSource)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", True)
    write_flights(bootstrap_servers, topic, first_days(1, 3))
    print(f"{read_topic(spark, bootstrap_servers, topic).count()} flights in three days")
    # With this option, use the result in one query only: in others Spark would leave out the filtered rows, too.
    records = read_topic(spark, bootstrap_servers, topic, filterPushdown=True)
    third_day = records.where("timestamp >= '2013-01-03 05:00:00'")  # midnight in New York
    delays = delays_by_carrier(third_day)
    rows = delays.collect()
    print(f"{sum(row.flights for row in rows)} on the third, of {len(rows)} carriers")
    write_back(delays, bootstrap_servers, f"{topic}-delays")
    ask_sql(spark, bootstrap_servers, f"{topic}-delays")


if __name__ == "__main__":
    run(main)
