"""A streaming job in Spark: JSON, windows with a watermark, exactly once into Parquet, across a restart.

    python -m examples.spark_streaming [--bootstrap-servers HOST:PORT]

Each run reads the available records and ends (AvailableNow). The second run continues where the first one stopped: the
checkpoint has the offsets, the open windows, and the names of the result's files. So a run that dies can be repeated.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from examples.spark_jobs import FLIGHT, first_days, read_topic, run, write_flights
from pykclient.spark import KafkaDataSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def delays_by_window(records: DataFrame) -> DataFrame:
    """Return the number of flights of each carrier in every three hours, and their average delay in minutes."""
    flights = records.select("timestamp", f.from_json(f.col("value").cast("string"), FLIGHT).alias("flight"))
    return (
        # Records of different partitions have no common order. Those that are later than this are dropped.
        flights.withWatermark("timestamp", "12 hours")
        .groupBy(f.window("timestamp", "3 hours"), f.col("flight.carrier").alias("carrier"))
        .agg(f.count("*").alias("flights"), f.avg("flight.delay").alias("minutes_late"))
        .select("window.start", "carrier", "flights", f.round("minutes_late", 1).alias("minutes_late"))
    )


def run_once(spark: SparkSession, bootstrap_servers: str, topic: str, folder: Path) -> None:
    records = (
        spark.readStream.format("pykclient")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 700)  # for several micro-batches; Spark 4.1 has no limits
        .load()
    )
    query = (
        delays_by_window(records)
        .writeStream.format("parquet")
        .outputMode("append")  # a window is written once, after the watermark has passed it
        .option("path", str(folder / "delays"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
    rows = sum(progress["numInputRows"] for progress in batches)
    print(f"{rows} flights in {len(batches)} micro-batches, to offsets {batches[-1]['sources'][0]['endOffset']}")


def check(spark: SparkSession, bootstrap_servers: str, topic: str, folder: Path) -> None:
    """Compare the written windows with the result of a batch job."""
    written = spark.read.parquet(str(folder / "delays"))
    expected = delays_by_window(read_topic(spark, bootstrap_servers, topic))
    wrong = written.exceptAll(expected).count()
    windows = written.select("start").distinct().count()
    print(f"{windows} windows are complete; {wrong} rows are wrong or doubled")


def main(spark: SparkSession, bootstrap_servers: str, topic: str) -> None:
    spark.dataSource.register(KafkaDataSource)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_flights(bootstrap_servers, topic, first_days(1, 2))
        run_once(spark, bootstrap_servers, topic, folder)
        write_flights(bootstrap_servers, topic, first_days(3, 3))
        run_once(spark, bootstrap_servers, topic, folder)
        check(spark, bootstrap_servers, topic, folder)


if __name__ == "__main__":
    run(main)
