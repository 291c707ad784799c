"""Parts that the Spark examples share: a session, a cluster, and a topic with real data."""

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

#: The number of flights from New York on each of the first days of 2013.
FLIGHTS_OF_DAYS = (842, 943, 914)

#: The schema of a record's JSON value, for ``from_json``.
FLIGHT = "carrier string, aircraft string, delay int"


def session() -> SparkSession:
    """Create a local session with two task slots."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # so that workers find the same packages
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
    """Return the flights from one day of January 2013 to another (1 to 3), in the order of their planned departure."""
    start, stop = sum(FLIGHTS_OF_DAYS[: first - 1]), sum(FLIGHTS_OF_DAYS[:last])
    flights = itertools.islice(read_flights(data_folder() / "flights.csv.zip"), start, stop)
    return sorted(flights, key=lambda flight: flight.departs)


def write_flights(bootstrap_servers: str, topic: str, flights: Iterable[Flight]) -> None:
    """Send each flight as JSON, with the aircraft as the key and the planned departure as the timestamp."""
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
    """Return a whole topic as a batch."""
    return (
        spark.read.format("pykclient")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .options(**{name: str(value) for name, value in options.items()})
        .load()
    )


def run(job: Callable[[SparkSession, str, str], None]) -> None:
    """Call ``job(spark, bootstrap_servers, topic)`` on the command line's cluster, by default an embedded one."""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--bootstrap-servers", metavar="HOST:PORT", help="your cluster")
    parser.add_argument("--kafka", choices=KINDS, default="embedded", help="the cluster to start without one of yours")
    parser.add_argument("--topic", help="default: a new one; further topics have this name with a suffix")
    options = parser.parse_args()
    with open_cluster(options.bootstrap_servers, options.kafka, PARTITIONS) as cluster:
        spark = session()
        try:
            job(spark, cluster.bootstrap_servers, options.topic or f"flights-{uuid.uuid4().hex[:8]}")
        finally:
            spark.stop()
