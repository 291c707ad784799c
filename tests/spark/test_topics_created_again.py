"""Topics that are deleted and created again under their names, also with Spark's own source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from tests.spark import builtin
from tests.spark.releases import needs_read_limits
from tests.spark.topics import numbers, produce
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FORMATS = ("kafka", "pykclient") if builtin.has_builtin() else ("pykclient",)

OLD, NEW = range(2_000), range(10_000, 12_000)


def values(frame: DataFrame) -> list[int]:
    return sorted(int(bytes(row.value)) for row in frame.select("value").collect())


def options(kafka: AnyKafka, topic: str, **given: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic, **given}


def create(kafka: AnyKafka, topic: str, records: range) -> None:
    kafka.create_topic(topic, 1)
    produce(kafka, topic, {0: numbers(records.start, len(records))})


def create_again(kafka: AnyKafka, topic: str, records: range = NEW) -> None:
    kafka.delete_topic(topic)
    create(kafka, topic, records)


def start(frame: DataFrame, sink: Callable[[DataFrame, int], None], checkpoint: Path) -> StreamingQuery:
    return frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint)).start()


@needs_read_limits
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("reader", ["the query started again", "a batch"])
def test_only_records_of_the_recreated_topic_are_read(
    spark: SparkSession, kafka: AnyKafka, topic: str, tmp_path: Path, format: str, reader: str
) -> None:
    """A stream has read the first half of the old topic, and its idle consumer has fetched the second half."""
    create(kafka, topic, OLD)
    found: list[int] = []
    given = options(kafka, topic, startingOffsets="earliest", maxOffsetsPerTrigger="1000")
    frame = spark.readStream.format(format).options(**given).load()
    writer = frame.writeStream.foreachBatch(lambda batch, _: found.extend(values(batch)))
    writer = writer.option("checkpointLocation", str(tmp_path))
    query = writer.trigger(processingTime="1 hour").start()
    try:
        eventually(lambda: bool(query.recentProgress), 60.0, "the first micro-batch")
    finally:
        query.stop()
    assert found == list(OLD[:1_000])
    create_again(kafka, topic)
    if reader == "a batch":
        half = options(kafka, topic, startingOffsets=f'{{"{topic}":{{"0":1000}}}}')
        assert values(spark.read.format(format).options(**half).load()) == list(NEW[1_000:])
        return
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    assert found == [*OLD[:1_000], *NEW[1_000:]]


def again(kafka: AnyKafka, topic: str, found: dict[int, list[int]], records: range) -> Callable[[DataFrame, int], None]:
    """Return a sink that deletes and recreates the topic during its first micro-batch."""

    def sink(batch: DataFrame, number: int) -> None:
        found[number] = values(batch)
        if number == 0:
            create_again(kafka, topic, records)

    return sink


@pytest.mark.parametrize("size", [100, 1_000, 1_500], ids=["smaller", "of the same size", "larger"])
def test_running_query_fails_when_its_topic_is_created_again(
    spark: SparkSession, kafka: AnyKafka, topic: str, tmp_path: Path, size: int
) -> None:
    """Even if the offsets fit, which Spark's own source does not notice."""
    create(kafka, topic, OLD[:1_000])
    found: dict[int, list[int]] = {}
    given = options(kafka, topic, startingOffsets="earliest")
    frame = spark.readStream.format("pykclient").options(**given).load()
    query = start(frame, again(kafka, topic, found, NEW[:size]), tmp_path)
    try:
        with pytest.raises(
            StreamingQueryException, match=rf"Records may be lost: topic {topic} was deleted and created"
        ):
            query.awaitTermination(60)
    finally:
        query.stop()
    assert found == {0: list(OLD[:1_000])}


@pytest.mark.parametrize("size", [100, 1_500], ids=["smaller", "larger"])
def test_recreated_topic_is_read_from_its_beginning(
    spark: SparkSession, kafka: AnyKafka, topic: str, tmp_path: Path, size: int
) -> None:
    create(kafka, topic, OLD[:1_000])
    found: dict[int, list[int]] = {}
    given = options(kafka, topic, startingOffsets="earliest", failOnDataLoss="false")
    frame = spark.readStream.format("pykclient").options(**given).load()
    query = start(frame, again(kafka, topic, found, NEW[:size]), tmp_path)
    try:
        eventually(lambda: 1 in found or not query.isActive, 60.0, "the second micro-batch")
        produce(kafka, topic, {0: numbers(NEW[size], 10)})
        query.processAllAvailable()
    finally:
        query.stop()
    assert query.exception() is None
    assert found[1] == list(NEW[:size])
    assert sorted(value for batch in found.values() for value in batch) == [*OLD[:1_000], *NEW[: size + 10]]
