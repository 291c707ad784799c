"""Queries return the same rows with and without filter pushdown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.embedded_kafka import EmbeddedKafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: 2026-03-29T01:00:00Z, when clocks in Berlin go from two to three.
CHANGE_MS = 1_774_746_000_000

CLAUSES = (
    "timestamp > '2026-03-29 01:00:00.002'",
    "timestamp > '2026-03-29 01:00:00.0019'",
    "timestamp >= '2026-03-29 01:00:00.002'",
    "timestamp >= '2026-03-29 01:00:00.002001'",
    "timestamp < '2026-03-29 01:00:00.002'",
    "timestamp < '2026-03-29 01:00:00.002001'",
    "timestamp <= '2026-03-29 01:00:00.001999'",
    "timestamp = '2026-03-29 01:00:00.002'",
    "timestamp = '2026-03-29 01:00:00.0021'",
    "timestamp <> '2026-03-29 01:00:00.002'",
    "timestamp IN ('2026-03-29 01:00:00.001', '2026-03-29 01:00:00.003')",
    "timestamp BETWEEN '2026-03-29 01:00:00.001' AND '2026-03-29 01:00:00.002999'",
    "timestamp > timestamp_millis(1774746000002)",
    "timestamp > TIMESTAMP_NTZ '2026-03-29 01:00:00.001'",
    "date(timestamp) = '2026-03-29'",
    "timestamp >= date '2026-03-29'",
    "timestamp > current_timestamp() + interval 1 hour",
    "timestamp > '2026-03-29 01:00:00.001' OR partition = 1",
    "NOT (timestamp > '2026-03-29 01:00:00.001')",
    "hour(timestamp) = 1",
    "partition = 1",
    "partition <> 1",
    "partition IN (0, 2, 7)",
    "partition NOT IN (0, 2)",
    "partition > 0 AND partition <= 1.5",
    "partition + 1 = 2",
    "offset >= 1 AND offset < 3",
    "offset > 1.5",
    "offset = 2 AND partition = 0",
    "offset IN (0, 3)",
    "offset = 9223372036854775807",
    "offset IS NULL",
    "topic = 'TOPIC'",
    "topic <> 'TOPIC'",
    "topic LIKE 'pushed%'",
    "topic LIKE '%down'",
    "topic LIKE '%-of-%'",
    "topic NOT LIKE 'pushed%'",
    "upper(topic) = 'X'",
    "topic IN ('TOPIC', 'x') AND offset < 2 AND timestamp >= '2026-03-29 01:00:00'",
    "topic > 'a'",
    "value = X'32'",
    "timestamp > NULL",
    "partition IN (NULL, 1)",
    "partition <=> 1",
)


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(brokers=1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def filled(kafka: EmbeddedKafka) -> str:
    """Create three partitions with records a millisecond apart, out of order, and one an hour earlier."""
    from confluent_kafka import Producer

    topic = kafka.create_topic("pushed-of-filters-down", 3)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    for partition, after_ms in enumerate([(0, 1, 2, 3, 4), (4, 0, 3, 1, 2), (-3_600_000, 2)]):
        for number, milliseconds in enumerate(after_ms):
            producer.produce(topic, str(number), partition=partition, timestamp=CHANGE_MS + milliseconds)
    assert producer.flush(30.0) == 0
    return topic


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_rows_are_the_same_without_pushdown(spark: SparkSession, kafka: EmbeddedKafka, filled: str, zone: str) -> None:
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": filled}
    clauses = [each.replace("TOPIC", filled) for each in CLAUSES if zone == "UTC" or "timestamp" in each]
    before = spark.conf.get("spark.sql.session.timeZone")
    assert before is not None
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        plain = spark.read.format("pykclient").options(**given).load()
        answers = plain.selectExpr("partition", "offset", *(f"({clause})" for clause in clauses)).collect()
        assert len(answers) == 12
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
        for index, clause in enumerate(clauses, 2):
            pushed = spark.read.format("pykclient").options(**given, filterPushdown="true").load().where(clause)
            found = [(row.partition, row.offset) for row in pushed.select("partition", "offset").collect()]
            assert sorted(found) == sorted((row[0], row[1]) for row in answers if row[index]), clause
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
