"""Batches of both sources have the same rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.kafka.cluster import KafkaCluster
from tests.spark.parity import BEGUN_MS, OURS, Kinds, both, load, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def counts(rows: list[tuple[Any, ...]]) -> dict[str, int]:
    """Return the number of rows of each kind of topic."""
    return dict(Counter(row[2].rsplit("-", 1)[1] for row in rows))


def test_both_sources_read_the_same_rows_from_any_log(spark: SparkSession, kafka: KafkaCluster, kinds: Kinds) -> None:
    rows = both(spark, kafka, subscribe=",".join(kinds.all), includeHeaders=True)
    found = counts(rows)
    compacted = found.pop("compacted")
    assert found == {
        "headers": 12,
        "timed": 102,
        "appended": 20,
        "codecs": 1500,
        "deleted": 95,
        "transactional": 2 * (10 + 11 + 1 + 12 + 30 + 13 + 5) + 14,
    }
    assert 0 < compacted < 100
    headers = {tuple(row[7] or ()) for row in rows if row[2] == kinds.headers}
    assert (("twice", b"1"), ("other", b"x"), ("twice", b"2"), ("twice", None)) in headers
    assert {row[6] for row in rows if row[2] == kinds.appended} == {1}


def test_read_committed_ends_at_open_transaction(spark: SparkSession, kafka: KafkaCluster, kinds: Kinds) -> None:
    """Up to the open transaction, in small tasks. Some contain only markers and aborted records."""
    topics = f"{kinds.transactional},{kinds.compacted},{kinds.timed}"
    options = {"kafka.isolation.level": "read_committed", "minPartitions": 16, "maxRecordsPerPartition": 25}
    found = counts(both(spark, kafka, subscribe=topics, **options))
    assert found["transactional"] == 2 * (10 + 1 + 12 + 13)
    assert found["timed"] == 102


def test_each_task_alone_has_the_rows_of_its_range(spark: SparkSession, kafka: KafkaCluster, kinds: Kinds) -> None:
    """Ours applies maxRecordsPerPartition even without minPartitions, which the built-in does not in batches."""
    whole = {"subscribe": f"{kinds.compacted},{kinds.transactional}", "includeHeaders": True}
    split = {**whole, "maxRecordsPerPartition": 9}
    frame = load(spark, kafka, OURS, split)
    assert rows_of(frame) == rows_of(load(spark, kafka, OURS, whole))
    assert frame.rdd.getNumPartitions() >= 178 / 9


#: What both are asked for, given the topics, and how many rows there are of which kind.
_CHOICES: dict[str, tuple[Callable[[Kinds], dict[str, Any]], dict[str, int]]] = {
    "a pattern found anywhere in a name": (
        lambda kinds: {"subscribePattern": f"{kinds.prefix[3:]}-(timed|deleted|empty)$"},
        {"timed": 102, "deleted": 95},
    ),
    "partitions by number": (
        lambda kinds: {"assign": {kinds.timed: [2, 0], kinds.deleted: [1], kinds.empty: [0]}},
        {"timed": 52},
    ),
    "offsets by partition": (
        lambda kinds: {
            "assign": {kinds.timed: [0, 1], kinds.transactional: [0]},
            "startingOffsets": {kinds.timed: {"0": 7, "1": -2}, kinds.transactional: {"0": 15}},
            "endingOffsets": {kinds.timed: {"0": 9, "1": -1}, kinds.transactional: {"0": 37}},
        },
        {"timed": 52, "transactional": 20},
    ),
    "ends within what was aborted": (
        lambda kinds: {
            "assign": {kinds.transactional: [1]},
            "startingOffsets": {kinds.transactional: {"1": 12}},
            "endingOffsets": {kinds.transactional: {"1": 60}},
            "kafka.isolation.level": "read_committed",
        },
        {"transactional": 13},
    ),
    "within gaps of a compacted log": (
        lambda kinds: {
            "subscribe": kinds.compacted,
            "startingOffsets": {kinds.compacted: {"0": 1}},
            "endingOffsets": {kinds.compacted: {"0": 30}},
        },
        {},
    ),
    "an empty range": (
        lambda kinds: {
            "assign": {kinds.timed: [0]},
            "startingOffsets": {kinds.timed: {"0": 20}},
            "endingOffsets": {kinds.timed: {"0": 20}},
        },
        {},
    ),
    "between timestamps": (
        lambda kinds: {
            "subscribe": f"{kinds.timed},{kinds.deleted}",
            "startingTimestamp": BEGUN_MS + 5_000,
            "startingOffsetsByTimestampStrategy": "latest",
            "endingTimestamp": BEGUN_MS + 20_000,
        },
        {"timed": 31},
    ),
    "timestamps between records, and after the last": (
        lambda kinds: {
            "subscribe": f"{kinds.timed},{kinds.empty}",
            "startingTimestamp": BEGUN_MS + 40_001,
            "startingOffsetsByTimestampStrategy": "latest",
        },
        {"timed": 18},
    ),
    "timestamps by partition": (
        lambda kinds: {
            "assign": {kinds.timed: [0, 1, 2]},
            "startingOffsetsByTimestamp": {
                kinds.timed: {"0": BEGUN_MS, "1": BEGUN_MS + 30_000, "2": BEGUN_MS + 60_000}
            },
            "startingOffsetsByTimestampStrategy": "latest",
            "endingOffsetsByTimestamp": {
                kinds.timed: {"0": BEGUN_MS + 10_000, "1": BEGUN_MS + 90_000, "2": BEGUN_MS + 90_000}
            },
        },
        {"timed": 30},
    ),
    "a timestamp wins over timestamps and offsets": (
        lambda kinds: {
            "assign": {kinds.timed: [0]},
            "startingTimestamp": BEGUN_MS + 45_000,
            "startingOffsetsByTimestamp": {kinds.timed: {"0": BEGUN_MS + 10_000}},
            "startingOffsets": {kinds.timed: {"0": 20}},
            "endingTimestamp": BEGUN_MS + 47_000,
            "endingOffsetsByTimestamp": {kinds.timed: {"0": BEGUN_MS + 49_000}},
            "endingOffsets": {kinds.timed: {"0": 50}},
        },
        {"timed": 2},
    ),
    "timestamps win over offsets": (
        lambda kinds: {
            "assign": {kinds.timed: [0]},
            "startingOffsetsByTimestamp": {kinds.timed: {"0": BEGUN_MS + 10_000}},
            "startingOffsets": {kinds.timed: {"0": 20}},
            "endingOffsetsByTimestamp": {kinds.timed: {"0": BEGUN_MS + 15_000}},
            "endingOffsets": {kinds.timed: {"0": 50}},
        },
        {"timed": 5},
    ),
    "what is lost, where that is no failure": (
        lambda kinds: {
            "subscribe": kinds.deleted,
            "startingOffsets": {kinds.deleted: {"0": 3, "1": 0, "2": 50}},
            "failOnDataLoss": False,
        },
        {"deleted": 45},
    ),
    "options in any case, few bytes at a time": (
        lambda kinds: {
            "SUBSCRIBE": kinds.codecs,
            "startingoffsets": "EARLIEST",
            "INCLUDEHEADERS": "True",
            "kafka.max.partition.fetch.bytes": 1000,
            "kafka.fetch.max.bytes": 2000,
            "minpartitions": "11",
        },
        {"codecs": 1500},
    ),
}


@pytest.mark.parametrize("choice", _CHOICES)
def test_options_agree(spark: SparkSession, kafka: KafkaCluster, kinds: Kinds, choice: str) -> None:
    options, wanted = _CHOICES[choice]
    found = counts(both(spark, kafka, **options(kinds)))
    assert found == (wanted or found)
