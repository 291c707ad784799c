"""Streaming queries in Spark: their micro-batches and rows, with and without failures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import confluent_kafka
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.functions import expr

from pykclient.spark.stream_reader import HAS_READ_LIMITS
from tests.spark import session
from tests.spark.releases import needs_read_limits
from tests.spark.test_exactly_once_spark import standalone_cluster as standalone_cluster
from tests.spark.topics import add_partitions, delete_records, numbers, produce
from tests.support.any_kafka import AnyKafka
from tests.support.embedded_kafka import EmbeddedKafka
from tests.support.wait import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class Sink:
    """A function for foreachBatch that keeps the values of each micro-batch."""

    def __init__(self) -> None:
        self.batches: dict[int, list[int]] = {}

    def __call__(self, batch: DataFrame, number: int) -> None:
        rows = [int(bytes(row.value)) for row in batch.select("value").collect()]
        assert number not in self.batches or sorted(self.batches[number]) == sorted(rows), (
            "a repeated batch is the same"
        )
        self.batches[number] = rows

    @property
    def values(self) -> list[int]:
        return sorted(value for batch in self.batches.values() for value in batch)


def stream(spark: SparkSession, kafka: AnyKafka, **options: object) -> DataFrame:
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "startingOffsets": "earliest", **options}
    return spark.readStream.format("pykclient").options(**{k: str(v) for k, v in given.items()}).load()


def start(frame: DataFrame, sink: Sink, checkpoint: Path, *, available_now: bool = False) -> StreamingQuery:
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    return (writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime="0 seconds")).start()


def run(frame: DataFrame, sink: Sink, checkpoint: Path) -> StreamingQuery:
    """Run a query to the current end of the topics."""
    query = start(frame, sink, checkpoint, available_now=True)
    assert query.awaitTermination(60)
    return query


@pytest.fixture(scope="module")
def embedded() -> Iterator[AnyKafka]:
    with EmbeddedKafka(brokers=3) as cluster:
        yield cluster


@needs_read_limits
def test_limited_batches_reach_the_end(spark: SparkSession, kafka: AnyKafka, topic: str, tmp_path: Path) -> None:
    kafka.create_topic(topic, 3)
    produce(kafka, topic, {0: numbers(0, 400), 1: numbers(400, 200)})
    sink = Sink()
    query = run(stream(spark, kafka, subscribe=topic, maxOffsetsPerTrigger=210), sink, tmp_path)
    assert sink.values == list(range(600))
    assert [len(batch) for batch in sink.batches.values()] == [210, 210, 180]
    progress = [batch["sources"][0] for batch in map(dict, query.recentProgress) if batch["numInputRows"]]
    ends = [{"0": 140, "1": 70, "2": 0}, {"0": 280, "1": 140, "2": 0}, {"0": 400, "1": 200, "2": 0}]
    assert [offsets(one["endOffset"]) for one in progress] == [{topic: end} for end in ends]
    assert [offsets(one["startOffset"]) for one in progress] == [None, {topic: ends[0]}, {topic: ends[1]}]
    assert [offsets(one["latestOffset"]) for one in progress] == [{topic: ends[2]}] * 3


def offsets(text: object) -> object:
    """Return the offsets of a query's progress, which may be text or parsed."""
    return json.loads(text) if isinstance(text, str) else text


@needs_read_limits
def test_restarts_read_each_record_once(spark: SparkSession, kafka: AnyKafka, topic: str, tmp_path: Path) -> None:
    """Into Parquet, with more records and a new partition in between."""

    def run_to_parquet() -> None:
        frame = stream(spark, kafka, subscribe=topic, maxOffsetsPerTrigger=100, startingOffsets="earliest")
        writer = frame.selectExpr("CAST(value AS STRING) AS value").writeStream.format("parquet")
        places = {"path": str(tmp_path / "rows"), "checkpointLocation": str(tmp_path / "checkpoint")}
        assert writer.options(**places).trigger(availableNow=True).start().awaitTermination(60)

    kafka.create_topic(topic, 2)
    produce(kafka, topic, {0: numbers(0, 150)})
    run_to_parquet()
    add_partitions(kafka, topic, 3)
    produce(kafka, topic, {1: numbers(150, 20), 2: numbers(170, 30)})
    run_to_parquet()
    rows = spark.read.parquet(str(tmp_path / "rows")).collect()
    assert sorted(int(row.value) for row in rows) == list(range(200))


def test_running_query_follows_new_topics(spark: SparkSession, kafka: AnyKafka, topic: str, tmp_path: Path) -> None:
    """From the latest offsets on: only later records, and new topics and partitions from their start."""
    first, second = f"{topic}-1", f"{topic}-2"
    kafka.create_topic(first, 1)
    produce(kafka, first, {0: numbers(0, 10)})
    sink = Sink()
    query = start(stream(spark, kafka, subscribePattern=f"^{topic}", startingOffsets="latest"), sink, tmp_path)
    try:
        eventually(lambda: 0 in sink.batches, 60.0, "the first, empty micro-batch")
        produce(kafka, first, {0: numbers(10, 10)})
        eventually(lambda: sink.values == list(range(10, 20)), 60.0, "what came")
        kafka.create_topic(second, 1)
        produce(kafka, second, {0: numbers(20, 5)})
        add_partitions(kafka, first, 2)
        produce(kafka, first, {1: numbers(25, 5)})
        eventually(lambda: sink.values == list(range(10, 30)), 60.0, "what came to a new topic and a new partition")
    finally:
        query.stop()
    assert sink.batches[0] == []
    assert query.exception() is None


def test_query_failing_in_its_first_batch_misses_nothing(
    spark: SparkSession, kafka: AnyKafka, topic: str, tmp_path: Path
) -> None:
    """From the latest offsets on. The checkpoint has only the end of that micro-batch."""

    def fail(batch: DataFrame, number: int) -> None:
        raise ValueError(f"micro-batch {number} of {batch.count()} rows fails")

    kafka.create_topic(topic, 2)
    produce(kafka, topic, {0: numbers(0, 10)})
    frame = stream(spark, kafka, subscribe=topic, startingOffsets="latest")
    writer = frame.writeStream.foreachBatch(fail).option("checkpointLocation", str(tmp_path))
    with pytest.raises(StreamingQueryException, match="micro-batch 0 of 0 rows fails"):
        writer.trigger(availableNow=True).start().awaitTermination(60)
    produce(kafka, topic, {0: numbers(10, 10), 1: numbers(20, 10)})
    sink = Sink()
    run(frame, sink, tmp_path)
    if not HAS_READ_LIMITS:  # in Spark 4.1 a run has one micro-batch, which was the first one again
        run(frame, sink, tmp_path)
    assert sink.batches[0] == []
    assert sink.values == list(range(10, 30))


def test_deleted_topic_is_a_loss(spark: SparkSession, embedded: AnyKafka, topic: str, tmp_path: Path) -> None:
    stays, goes = f"{topic}-1", f"{topic}-2"
    for name in (stays, goes):
        embedded.create_topic(name, 1)
    produce(embedded, stays, {0: numbers(0, 10)})
    produce(embedded, goes, {0: numbers(10, 10)})
    sink = Sink()
    both = {"subscribePattern": f"^{topic}"}
    run(stream(spark, embedded, **both), sink, tmp_path)
    embedded.delete_topic(goes)
    produce(embedded, stays, {0: numbers(20, 10)})
    with pytest.raises(StreamingQueryException, match=rf"Records may be lost: {goes}-0 does not exist any more"):
        run(stream(spark, embedded, **both), sink, tmp_path)
    assert sink.values == list(range(20))
    run(stream(spark, embedded, **both, failOnDataLoss=False), sink, tmp_path)
    assert sink.values == list(range(30))


def test_unread_deleted_records_are_a_loss(spark: SparkSession, kafka: AnyKafka, topic: str, tmp_path: Path) -> None:
    kafka.create_topic(topic, 1)
    produce(kafka, topic, {0: numbers(0, 10)})
    sink = Sink()
    run(stream(spark, kafka, subscribe=topic), sink, tmp_path)
    produce(kafka, topic, {0: numbers(10, 20)})
    delete_records(kafka, topic, 0, before=20)
    options = {"subscribe": topic}
    with pytest.raises(StreamingQueryException, match=rf"{topic}-0.*failOnDataLoss"):
        run(stream(spark, kafka, **options), sink, tmp_path)
    run(stream(spark, kafka, **options, failOnDataLoss=False), sink, tmp_path)
    assert sink.values == [*range(10), *range(20, 30)]


def test_killed_broker_loses_and_repeats_nothing(
    spark: SparkSession, embedded: AnyKafka, topic: str, tmp_path: Path
) -> None:
    embedded.create_topic(topic, 3)
    sink = Sink()
    limits = {"maxOffsetsPerTrigger": 300} if HAS_READ_LIMITS else {}
    query = start(stream(spark, embedded, subscribe=topic, **limits), sink, tmp_path)
    try:
        produce(embedded, topic, {partition: numbers(1000 * partition, 300) for partition in range(3)})
        eventually(lambda: len(sink.values) == 900, 60.0, "what came before")
        killed = embedded.leader_of(topic, 1)
        embedded.brokers[killed].kill()
        embedded.await_leader(topic, 1, other_than=killed)
        produce(embedded, topic, {partition: numbers(1000 * partition + 300, 300) for partition in range(3)})
        eventually(lambda: len(sink.values) >= 1800, 90.0, "what came after")
    finally:
        query.stop()
        embedded.make_healthy()
    assert query.exception() is None
    assert sink.values == [1000 * partition + number for partition in range(3) for number in range(600)]


def test_batch_options_are_refused_for_streams(
    spark: SparkSession, kafka: AnyKafka, topic: str, tmp_path: Path
) -> None:
    frame = stream(spark, kafka, subscribe=topic, endingOffsets="latest")
    with pytest.raises(StreamingQueryException, match="option endingOffsets is not for streaming queries"):
        run(frame, Sink(), tmp_path)


@needs_read_limits
def test_two_streams_are_joined(spark: SparkSession, embedded: AnyKafka, topic: str, tmp_path: Path) -> None:
    """Rows that come in different micro-batches find each other by the join's state, also after a restart."""
    orders, payments = (embedded.create_topic(f"{topic}-{name}", 2) for name in ("orders", "payments"))
    produce(embedded, orders, {0: numbers(0, 30), 1: numbers(30, 30)})
    produce(embedded, payments, {0: numbers(20, 20)})

    def side(name: str, column: str) -> DataFrame:
        rows = stream(spark, embedded, subscribe=name, maxOffsetsPerTrigger=40)
        return rows.selectExpr(f"CAST(value AS string) AS {column}", f"timestamp AS {column}_time")

    joined = side(orders, "paid").join(side(payments, "payment"), expr("paid = payment"))
    sink, checkpoint = Sink(), tmp_path / "checkpoint"
    run(joined.selectExpr("CAST(paid AS binary) AS value"), sink, checkpoint)
    assert sink.values == list(range(20, 40))
    produce(embedded, payments, {1: [*numbers(0, 20), *numbers(40, 25)]})
    produce(embedded, orders, {1: numbers(60, 5)})
    run(joined.selectExpr("CAST(paid AS binary) AS value"), sink, checkpoint)
    assert sink.values == list(range(65))


@needs_read_limits
@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_backlog_in_two_executors_is_fetched_once(
    embedded: AnyKafka, topic: str, tmp_path: Path, standalone_cluster: str
) -> None:
    """Partitions change executors in each micro-batch, and connections stay."""
    partitions, per_batch, batches = 4, 100, 10
    embedded.create_topic(topic, partitions)
    values = [f"{number:06}" * 160 for number in range(partitions * per_batch * batches)]
    small = {"bootstrap.servers": embedded.bootstrap_servers, "batch.num.messages": 10, "enable.idempotence": True}
    producer = confluent_kafka.Producer(small)
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions)
    assert producer.flush(60) == 0
    with embedded.proxies() as proxies:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "tests.spark.two_executors_job", str(tmp_path), standalone_cluster),
                *(embedded.proxied_bootstrap_servers, topic, str(partitions * per_batch)),
            ],
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
            env={**os.environ, **session.environment()},
        )
        fetched = sum(each.response_bytes for each in proxies.values())
        connections = sum(each.accepted for each in proxies.values())
    assert done.returncode == 0, done.stderr[-6000:]
    found, count, executors = json.loads(done.stdout.splitlines()[-1])
    assert found == sorted(values)
    assert (count, executors) == (batches, 2)
    assert connections <= 3 * len(proxies) * 3  # for each broker of the driver and two executors, and to look it up
    assert fetched <= 1.5 * sum(map(len, values))
