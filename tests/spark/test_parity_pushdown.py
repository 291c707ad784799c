"""Pushed filters: the rows are the built-in source's, the plan shows them, and less is fetched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.kafka.cluster import KafkaCluster
from tests.spark.parity import BEGUN_MS, BUILTIN, OURS, Kinds, load, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pykclient.testing import EmbeddedCluster

_ENABLED = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def enabled(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(_ENABLED, "true")
    yield
    spark.conf.unset(_ENABLED)


@pytest.mark.usefixtures("enabled")
@pytest.mark.parametrize(
    "clause",
    [
        f"timestamp > timestamp_millis({BEGUN_MS + 20_000}) AND timestamp <= timestamp_millis({BEGUN_MS + 30_000})",
        "topic LIKE '%d' AND partition <> 1 AND offset BETWEEN 20 AND 40",
        "partition = 0 AND offset >= 37 AND value IS NOT NULL",
    ],
)
def test_rows_equal_the_builtin_sources(spark: SparkSession, kafka: KafkaCluster, kinds: Kinds, clause: str) -> None:
    options = {"subscribe": f"{kinds.timed},{kinds.transactional},{kinds.deleted},{kinds.compacted}"}
    theirs = load(spark, kafka, BUILTIN, options).where(clause)
    ours = load(spark, kafka, OURS, {**options, "filterPushdown": True}).where(clause)
    rows = rows_of(theirs)
    assert rows
    assert rows_of(ours) == rows


#: A clause, how many rows it keeps, and what share of the topic may be fetched for them.
_SHARES = {
    "timestamp": (f"timestamp > timestamp_millis({BEGUN_MS + 1979})", 80, 0.05),
    "partition": ("partition IN (1, 7)", 2000, 0.26),
    "offset": ("offset >= 1900", 400, 0.08),
    "topic": ("topic = 'another'", 0, 0.0),
}


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedCluster]:
    """Four partitions of 2,000 records of 500 bytes, a millisecond apart, in small batches."""
    from confluent_kafka import Producer

    from pykclient.testing import EmbeddedCluster

    with EmbeddedCluster(brokers=1) as cluster:
        cluster.create_topic("much", partitions=4)
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "batch.size": 5000, "log_level": 0}
        producer = Producer(settings)
        for number in range(2000):
            for partition in range(4):
                producer.produce("much", b"x" * 500, partition=partition, timestamp=BEGUN_MS + number)
        assert producer.flush(60) == 0
        yield cluster


def fetched_bytes(cluster: EmbeddedCluster, after: int = 0) -> int:
    """Return the number of bytes fetched since this request number."""
    responses: list[Any] = [request.response for request in cluster.requests_of("FETCH", after=after)]
    return sum(
        len(partition.records or b"")
        for response in responses
        if response is not None
        for topic in response.responses
        for partition in topic.partitions
    )


@pytest.mark.usefixtures("enabled")
@pytest.mark.parametrize("share", _SHARES)
def test_pushdown_reduces_fetched_bytes(spark: SparkSession, embedded: EmbeddedCluster, share: str) -> None:
    clause, rows, most = _SHARES[share]
    options = {"kafka.bootstrap.servers": embedded.bootstrap_servers, "subscribe": "much", "filterPushdown": "true"}
    before = embedded.requests[-1].number
    frame = spark.read.format(OURS).options(**options).load().where(clause)
    assert frame.count() == rows
    assert fetched_bytes(embedded, after=before) <= most * 4 * 2000 * 520
