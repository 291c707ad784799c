"""Streams of both sources have the same micro-batches, with the same offsets and rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kafka.cluster import KafkaCluster
from tests.spark.parity import BEGUN_MS, FORMATS, Kinds, rows_of
from tests.spark.releases import needs_read_limits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = needs_read_limits

#: Of a micro-batch: offsets at its beginning and its end, and its rows.
Batch = tuple[dict[str, Any] | None, dict[str, Any], list[tuple[Any, ...]]]


def run(
    spark: SparkSession, kafka: KafkaCluster, format: str, checkpoint: Path, options: dict[str, Any]
) -> list[Batch]:
    """Return the micro-batches of a stream up to the current end."""
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
def test_micro_batches_equal_sparks(
    spark: SparkSession, kafka: KafkaCluster, kinds: Kinds, tmp_path: Path, stream: str
) -> None:
    options = _STREAMS[stream](kinds)
    theirs, ours = (run(spark, kafka, format, tmp_path / format, options) for format in FORMATS)
    assert len(theirs) >= 2
    assert ours == theirs
