"""What the Spark examples share: a session, a cluster to run on, and some real data in a topic."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import uuid
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from examples.clusters import KINDS, open_cluster
from examples.flights import Flight, data_folder, read_flights
from pykclient import KafkaProducer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 3

#: How many flights left New York on each of the first days of 2013.
FLIGHTS_OF_DAYS = (842, 943, 914)

#: What the JSON of a record's value holds, for ``from_json``.
FLIGHT = "carrier string, aircraft string, delay int"


def session() -> SparkSession:
    """Spark in this process, with two threads for tasks."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's workers run what this runs
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.log.level", "ERROR")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )


def first_days(first: int, last: int) -> list[Flight]:
    """The flights from one day of January 2013 to another (1 to 3), in the order they were planned for."""
    start, stop = sum(FLIGHTS_OF_DAYS[: first - 1]), sum(FLIGHTS_OF_DAYS[:last])
    flights = itertools.islice(read_flights(data_folder() / "flights.csv.zip"), start, stop)
    return sorted(flights, key=lambda flight: flight.departs)


def write_flights(bootstrap_servers: str, topic: str, flights: Iterable[Flight]) -> None:
    """Each flight as JSON, keyed by aircraft, at the time it was planned for."""
    with KafkaProducer[bytes, bytes](bootstrap_servers=bootstrap_servers, acks="all") as producer:
        for flight in flights:
            value = {"carrier": flight.carrier, "aircraft": flight.aircraft, "delay": flight.delay}
            producer.send(
                topic,
                key=flight.aircraft.encode() or None,
                value=json.dumps(value).encode(),
                timestamp_ms=int(datetime.fromisoformat(flight.departs).timestamp() * 1000),
            )


def read_topic(spark: SparkSession, bootstrap_servers: str, topic: str, **options: object) -> DataFrame:
    """All of a topic, as a batch."""
    return (
        spark.read.format("pykclient")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .options(**{name: str(value) for name, value in options.items()})
        .load()
    )


def run(job: Callable[[SparkSession, str, str], None]) -> None:
    """Call ``job(spark, bootstrap_servers, topic)`` as the command line says: by default on an embedded cluster."""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--bootstrap-servers", metavar="HOST:PORT", help="a cluster of yours")
    parser.add_argument("--kafka", choices=KINDS, default="embedded", help="which cluster to start, if none is named")
    parser.add_argument("--topic", help="default: a new one; others are made beside it with longer names")
    options = parser.parse_args()
    with open_cluster(options.bootstrap_servers, options.kafka, PARTITIONS) as cluster:
        spark = session()
        try:
            job(spark, cluster.bootstrap_servers, options.topic or f"flights-{uuid.uuid4().hex[:8]}")
        finally:
            spark.stop()
