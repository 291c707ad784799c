"""Streams side by side: the same micro-batches, from the same offsets to the same, with the same rows in them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kafka.cluster import KafkaCluster
from tests.spark.parity import BEGUN_MS, BUILTIN, FORMATS, OURS, Kinds, rows_of
from tests.spark.releases import needs_read_limits
from tests.spark.topics import add_partitions, numbers, produce

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = needs_read_limits

#: Of a micro-batch: offsets at its beginning and its end, and its rows.
Batch = tuple[dict[str, Any] | None, dict[str, Any], list[tuple[Any, ...]]]


def run(
    spark: SparkSession, kafka: KafkaCluster, format: str, checkpoint: Path, options: dict[str, Any]
) -> list[Batch]:
    """The micro-batches that take a stream to the end of what is there."""
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "startingOffsets": "earliest", **options}
    texts = {name: json.dumps(v) if isinstance(v, dict) else str(v) for name, v in given.items()}
    rows: dict[int, list[tuple[Any, ...]]] = {}

    def keep(batch: DataFrame, number: int) -> None:
        rows[number] = rows_of(batch)

    stream = spark.readStream.format(format).options(**texts).load()
    writer = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(100)
    finally:
        query.stop()
    sources = {progress.batchId: progress.sources[0] for progress in query.recentProgress}
    return [
        (_offsets(sources[number].startOffset), _offsets(sources[number].endOffset) or {}, batch)
        for number, batch in rows.items()
        if batch
    ]


def _offsets(text: str | None) -> dict[str, Any] | None:
    return json.loads(text) if text and text != "null" else None


#: What both are asked for.
_STREAMS: dict[str, Callable[[Kinds], dict[str, Any]]] = {
    "in shares of what there is": lambda kinds: {
        "subscribe": f"{kinds.codecs},{kinds.timed},{kinds.deleted}",
        "maxOffsetsPerTrigger": 613,
        "minPartitions": 5,
    },
    "committed, with headers": lambda kinds: {
        "subscribePattern": f"^{kinds.prefix}-(transactional|headers|empty)$",
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": 40,
    },
    "from a timestamp on": lambda kinds: {
        "assign": {kinds.timed: [0, 1, 2]},
        "startingTimestamp": BEGUN_MS + 11_000,
        "startingOffsetsByTimestampStrategy": "latest",
        "maxOffsetsPerTrigger": 50,
    },
}


@pytest.mark.parametrize("stream", _STREAMS)
def test_micro_batches(spark: SparkSession, kafka: KafkaCluster, kinds: Kinds, tmp_path: Path, stream: str) -> None:
    options = _STREAMS[stream](kinds)
    theirs, ours = (run(spark, kafka, format, tmp_path / format, options) for format in FORMATS)
    assert len(theirs) >= 2
    assert ours == theirs


def test_a_query_moves_from_one_to_the_other_and_back(
    spark: SparkSession, kafka: KafkaCluster, kinds: Kinds, topic: str, tmp_path: Path
) -> None:
    """Four times on one checkpoint, with more records and another partition in between: nothing lost, nothing twice."""
    kafka.create_topic(topic, 2)
    read: list[tuple[Any, ...]] = []
    written = 0
    for number, format in enumerate(itertools.islice(itertools.cycle([BUILTIN, OURS]), 4)):
        if number == 2:
            add_partitions(kafka, topic, 11)
        partitions = 2 if number < 2 else 11
        produce(kafka, topic, {0: numbers(written, 30), partitions - 1: numbers(written + 30, 20)})
        written += 50
        batches = run(spark, kafka, format, tmp_path, {"subscribe": topic, "maxOffsetsPerTrigger": 35})
        assert len(batches) == 2
        assert set(batches[-1][1][topic]) == set(map(str, range(partitions)))
        read += itertools.chain.from_iterable(rows for _, _, rows in batches)
    assert sorted(int(row[1]) for row in read) == list(range(written))
