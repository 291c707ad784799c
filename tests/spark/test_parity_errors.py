"""Ours refuses what the built-in source refuses, with an error that names the mistake."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tests.kafka.cluster import KafkaCluster
from tests.spark.parity import BEGUN_MS, BUILTIN, FORMATS, OURS, Kinds, load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Options = dict[str, Any]


def refusal(action: Callable[[], object]) -> str | None:
    """Return the error of a refused query; None if it is accepted."""
    try:
        action()
    except (PySparkException, Py4JJavaError) as error:
        return str(error)
    return None


def both_refuse(action: Callable[[str], object]) -> str:
    """Return our error, after checking that both sources refuse the query."""
    said = {name: refusal(partial(action, name)) for name in FORMATS}
    assert said[BUILTIN] is not None, "the built-in source takes it"
    ours = said[OURS]
    assert ours is not None, f"ours takes it; the built-in source says: {said[BUILTIN]}"
    return ours


#: Options that are no good whatever there is to read, and a word that our text has.
_BAD: dict[str, tuple[Options, str]] = {
    "nothing to read": ({}, "subscribe"),
    "two ways to say what": ({"subscribe": "t", "subscribePattern": "t"}, "subscribePattern"),
    "no topics": ({"subscribe": ""}, "subscribe"),
    "no pattern": ({"subscribePattern": ""}, "subscribePattern"),
    "no JSON": ({"assign": "t:0"}, "assign"),
    "a partition that is no number": ({"assign": {"t": ["first"]}}, "assign"),
    "no servers": ({"subscribe": "t", "kafka.bootstrap.servers": None}, "kafka.bootstrap.servers"),
    "auto.offset.reset": ({"subscribe": "t", "kafka.auto.offset.reset": "latest"}, "startingOffsets"),
    "key.deserializer": ({"subscribe": "t", "kafka.key.deserializer": "x.Y"}, "key.deserializer"),
    "value.deserializer": ({"subscribe": "t", "kafka.value.deserializer": "x.Y"}, "value.deserializer"),
    "enable.auto.commit": ({"subscribe": "t", "kafka.enable.auto.commit": "true"}, "enable.auto.commit"),
    "interceptor.classes": ({"subscribe": "t", "kafka.interceptor.classes": "x.Y"}, "interceptor.classes"),
    "no partitions": ({"subscribe": "t", "minPartitions": 0}, "minPartitions"),
    "no records in a partition": ({"subscribe": "t", "maxRecordsPerPartition": 0}, "maxRecordsPerPartition"),
    "a strategy that is none": (
        {"subscribe": "t", "startingTimestamp": 1, "startingOffsetsByTimestampStrategy": "earliest"},
        "startingOffsetsByTimestampStrategy",
    ),
    "words for offsets": ({"subscribe": "t", "startingOffsets": "begin"}, "startingOffsets"),
    "a timestamp in words": ({"subscribe": "t", "startingTimestamp": "yesterday"}, "startingTimestamp"),
    "a timeout in words": ({"subscribe": "t", "kafkaConsumer.pollTimeoutMs": "long"}, "kafkaConsumer.pollTimeoutMs"),
}

#: The same, in batches only.
_BAD_IN_BATCHES: dict[str, tuple[Options, str]] = {
    "begin at the end": ({"subscribe": "t", "startingOffsets": "latest"}, "startingOffsets"),
    "end at the beginning": ({"subscribe": "t", "endingOffsets": "earliest"}, "endingOffsets"),
    "begin at a partition's end": ({"assign": {"t": [0]}, "startingOffsets": {"t": {"0": -1}}}, "startingOffsets"),
    "end at a partition's beginning": ({"assign": {"t": [0]}, "endingOffsets": {"t": {"0": -2}}}, "endingOffsets"),
}

#: The same, in streams only.
_BAD_IN_STREAMS: dict[str, tuple[Options, str]] = {
    "an end": ({"subscribe": "t", "endingOffsets": "latest"}, "endingOffsets"),
    "ends by timestamp": (
        {"subscribe": "t", "endingOffsetsByTimestamp": {"t": {"0": 1}}},
        "endingOffsetsByTimestamp",
    ),
    "more at least than at most": (
        {"subscribe": "t", "minOffsetsPerTrigger": 20, "maxOffsetsPerTrigger": 10},
        "minOffsetsPerTrigger",
    ),
}


@pytest.mark.parametrize("case", [*_BAD, *_BAD_IN_BATCHES])
def test_both_sources_refuse_bad_batch_options(spark: SparkSession, case: str) -> None:
    options, word = {**_BAD, **_BAD_IN_BATCHES}[case]
    assert word in both_refuse(lambda name: _nowhere(spark.read, name, options).count())


@pytest.mark.parametrize("case", ["nothing to read", "enable.auto.commit", *_BAD_IN_STREAMS])
def test_both_sources_refuse_bad_stream_options(spark: SparkSession, case: str) -> None:
    options, word = {**_BAD, **_BAD_IN_STREAMS}[case]

    def start(format: str) -> None:
        stream = _nowhere(spark.readStream, format, options)
        query = stream.writeStream.format("noop").trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(60)
        finally:
            query.stop()

    assert word in both_refuse(start)


def _nowhere(reader: Any, format: str, options: Options) -> DataFrame:
    """Options for a broker that does not exist: errors must come before any request."""
    given = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "kafka.default.api.timeout.ms": 2000,
        "kafka.request.timeout.ms": 1500,
        **options,
    }
    texts = {name: json.dumps(v) if isinstance(v, dict) else str(v) for name, v in given.items() if v is not None}
    frame: DataFrame = reader.format(format).options(**texts).load()
    return frame


#: What only the topics tell, and a word that our text has.
_BAD_FOR_TOPICS: dict[str, tuple[Callable[[Kinds], Options], str]] = {
    "offsets for a part of the partitions": (
        lambda kinds: {"subscribe": kinds.timed, "startingOffsets": {kinds.timed: {"0": 0}}},
        "partition",
    ),
    "offsets for partitions that are not read": (
        lambda kinds: {"assign": {kinds.timed: [0]}, "startingOffsets": {kinds.timed: {"0": 0, "1": 0}}},
        "partition",
    ),
    "ends before it begins": (
        lambda kinds: {
            "assign": {kinds.timed: [0]},
            "startingOffsets": {kinds.timed: {"0": 9}},
            "endingOffsets": {kinds.timed: {"0": 7}},
        },
        "",
    ),
    "begins and ends of different partitions": (
        lambda kinds: {
            "assign": {kinds.timed: [0, 1]},
            "startingOffsets": {kinds.timed: {"0": 1, "1": 1}},
            "endingOffsets": {kinds.timed: {"0": 7}},
        },
        "partition",
    ),
    "no record so late": (
        lambda kinds: {"assign": {kinds.timed: [0]}, "startingTimestamp": BEGUN_MS + 50_000},
        "startingOffsetsByTimestampStrategy",
    ),
    "records that are gone": (
        lambda kinds: {"assign": {kinds.deleted: [0]}, "startingOffsets": {kinds.deleted: {"0": 3}}},
        "failOnDataLoss",
    ),
    "a topic that is not there": (
        lambda kinds: {"subscribe": f"{kinds.prefix}-missing"},
        "missing",
    ),
}


@pytest.mark.parametrize("case", _BAD_FOR_TOPICS)
def test_both_sources_refuse_options_that_do_not_fit(
    spark: SparkSession, kafka: KafkaCluster, kinds: Kinds, case: str
) -> None:
    options, word = _BAD_FOR_TOPICS[case]
    assert word in both_refuse(lambda name: load(spark, kafka, name, options(kinds)).count())


def test_both_sources_refuse_a_schema_of_the_user(spark: SparkSession) -> None:
    def read(format: str) -> None:
        options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
        spark.read.format(format).schema("value string").options(**options).load().count()

    assert "value" in both_refuse(read)


#: Frames and options that no sink takes, and a word that our text has.
_BAD_TO_WRITE: dict[str, tuple[str, Options, str]] = {
    "nowhere to": ("SELECT 'v' AS value", {}, "topic"),
    "no topic in a row": ("SELECT 'v' AS value, CAST(NULL AS STRING) AS topic", {}, "topic"),
    "no value": ("SELECT 'k' AS key", {"topic": "t"}, "value"),
    "a value that is no bytes": ("SELECT 1 AS value", {"topic": "t"}, "value"),
    "a key that is no bytes": ("SELECT 1 AS key, 'v' AS value", {"topic": "t"}, "key"),
    "a partition that is no int": ("SELECT 'v' AS value, 1L AS partition", {"topic": "t"}, "partition"),
    "headers that are none": ("SELECT 'v' AS value, 'h' AS headers", {"topic": "t", "includeHeaders": True}, "headers"),
    "key.serializer": ("SELECT 'v' AS value", {"topic": "t", "kafka.key.serializer": "x.Y"}, "key.serializer"),
    "value.serializer": ("SELECT 'v' AS value", {"topic": "t", "kafka.value.serializer": "x.Y"}, "value.serializer"),
    "no servers": ("SELECT 'v' AS value", {"topic": "t", "kafka.bootstrap.servers": None}, "kafka.bootstrap.servers"),
}


@pytest.mark.parametrize("case", _BAD_TO_WRITE)
def test_both_sinks_refuse_bad_writes(spark: SparkSession, kafka: KafkaCluster, topic: str, case: str) -> None:
    query, options, word = _BAD_TO_WRITE[case]
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, **options}
    texts = {name: topic if name == "topic" else str(value) for name, value in given.items() if value is not None}

    def write(format: str) -> None:
        spark.sql(query).write.format(format).options(**texts).mode("append").save()

    assert word in both_refuse(write)


def test_both_sinks_refuse_overwrite(spark: SparkSession, kafka: KafkaCluster, topic: str) -> None:
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic}

    def write(format: str) -> None:
        spark.sql("SELECT 'v' AS value").write.format(format).options(**options).mode("overwrite").save()

    both_refuse(write)
