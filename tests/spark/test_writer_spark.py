"""The sink in Spark: batches and streams are written, or raise clear errors."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from pykclient import KafkaConsumer, TopicPartition
from pykclient.errors import TopicAuthorizationError
from pykclient.spark import KafkaDataSource
from pykclient.testing import EmbeddedCluster
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

#: Key, value and headers of a record.
Read = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]


@pytest.fixture(autouse=True, scope="module")
def _registered(spark: SparkSession) -> None:
    spark.dataSource.register(KafkaDataSource)


@pytest.fixture(scope="module")
def brokers() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(3, config={"auto.create.topics.enable": False, "min.insync.replicas": 1}) as cluster:
        yield cluster


@pytest.fixture
def cluster(brokers: EmbeddedCluster) -> Iterator[EmbeddedCluster]:
    yield brokers
    brokers.faults.clear()


def read(servers: str, topic: str, partitions: int = 1) -> dict[int, list[Read]]:
    """Return all records of a topic, by partition."""
    found: dict[int, list[Read]] = {number: [] for number in range(partitions)}
    tps = [TopicPartition(topic, number) for number in found]
    with KafkaConsumer[bytes, bytes](bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(tps)
        count = sum(consumer.end_offsets(tps).values())
        while sum(map(len, found.values())) < count:
            for records in consumer.poll(1000).values():
                for record in records:
                    headers = [(name, value) for name, value in record.headers]
                    found[record.partition].append((record.key, record.value, headers))
    return found


def save(rows: DataFrame, servers: str, **options: str) -> None:
    more = {name.replace("__", "."): value for name, value in options.items()}
    rows.write.format("pykclient").option("kafka.bootstrap.servers", servers).options(**more).mode("append").save()


def test_batch_with_all_columns_is_written(spark: SparkSession, any_kafka: AnyKafka, topic: str) -> None:
    """To two topics. Other columns are left out."""
    names = [f"{topic}-{number}" for number in range(2)]
    for name in names:
        any_kafka.create_topic(name, partitions=3)
    rows = spark.range(0, 90, 1, 3).selectExpr(
        "if(id % 2 = 0, cast(id as string), null) as key",
        "if(id % 10 = 0, null, cast(concat('v', id) as binary)) as value",
        f"concat('{topic}-', id % 2) as topic",
        "if(id % 4 < 2, cast(id % 3 as int), null) as partition",
        "if(id % 5 = 0, array(named_struct('key', 'h', 'value', cast(cast(id as string) as binary))), null) as headers",
        "id as ignored",
    )
    save(rows, any_kafka.bootstrap_servers)
    by_hand = {row.id: row for row in rows.selectExpr("*", "ignored as id").collect()}
    seen = set()
    for number, name in enumerate(names):
        for partition, records in read(any_kafka.bootstrap_servers, name, 3).items():
            for key, value, headers in records:
                id = int(key or (value or b"v-1")[1:])
                seen.add(id)
                row = by_hand[id]
                assert row.topic == name == f"{topic}-{number}"
                assert row.partition in {None, partition}
                assert (key and key.decode(), value) == (row.key, row.value and bytes(row.value))
                assert headers == [(each.key, bytes(each.value)) for each in row.headers or []]
    assert seen == set(range(90))


def test_unwritable_rows_are_explained_without_data(spark: SparkSession, cluster: EmbeddedCluster) -> None:
    """On the driver if possible, in one line with advice and without data."""
    cluster.create_topic("refused")
    cases: list[tuple[list[str], dict[str, str], str]] = [
        (["id as value"], {"topic": "refused"}, "'value' is of type bigint and must be string or binary"),
        (["'secret' as value"], {}, "neither the option topic nor a column 'topic'"),
        (["'secret' as value"], {"topic": "refused", "kafka__acks": "some"}, "acks"),
        (["'secret' as value"], {"topik": "refused"}, "topic"),
        (
            ["'secret' as value", "if(id = 3, null, 'refused') as topic"],
            {},
            "Spark partition 0 (attempt 1) could not be written",
        ),
        (["'secret' as value", "if(id = 3, null, 'refused') as topic"], {}, "row 3 (counted from 0) has a null topic"),
        (["repeat('secret', 200000) as value"], {"topic": "refused"}, "kafka.max.request.size"),
        (["'secret' as value"], {"topic": "nowhere", "kafka__max__block__ms": "300"}, "check that the topic exists"),
    ]
    for columns, options, says in cases:
        with pytest.raises(PySparkException) as raised:
            save(spark.range(0, 5, 1, 1).selectExpr(*columns), cluster.bootstrap_servers, **options)
        said = str(raised.value)
        assert says in said, said
        assert "secretsecret" not in said


def test_overwrite_of_a_topic_is_refused(spark: SparkSession) -> None:
    rows = spark.range(1).selectExpr("'x' as value").write.format("pykclient").option("topic", "orders")
    with pytest.raises(PySparkException, match=r'cannot be overwritten; write with mode\("append"\)'):
        rows.option("kafka.bootstrap.servers", "localhost:1").mode("overwrite").save()


def test_broker_death_repeats_no_rows(spark: SparkSession, cluster: EmbeddedCluster) -> None:
    """No row is lost, and none is written twice, as no task is repeated."""
    cluster.create_topic("survives", partitions=6, replication_factor=3)

    def kill() -> None:
        eventually(lambda: len(cluster.requests_of("Produce")) > before + 3, 60)
        cluster.kill(2)

    before = len(cluster.requests_of("Produce"))
    killer = threading.Thread(target=kill)
    killer.start()
    try:
        rows = spark.range(0, 200_000, 1, 4).selectExpr("cast(id as string) as value")
        save(rows, cluster.bootstrap_servers, topic="survives", kafka__linger__ms="0", kafka__batch__size="16384")
    finally:
        killer.join()
        cluster.restart(2)
    found = read(cluster.bootstrap_servers, "survives", 6)
    assert sorted(int(value or b"-1") for records in found.values() for _, value, _ in records) == list(range(200_000))


# --- streams ---------------------------------------------------------------------------------------------------------


def lines(folder: Path, name: str, texts: list[str]) -> None:
    (folder / f"{name}.part").write_text("\n".join(texts))
    os.rename(folder / f"{name}.part", folder / f"{name}.txt")


def test_failed_stream_resumes(spark: SparkSession, cluster: EmbeddedCluster, tmp_path: Path) -> None:
    """The next run repeats the failed micro-batch from the checkpoint."""
    cluster.create_topic("streamed", partitions=2)
    source = tmp_path / "source"
    source.mkdir()

    def run() -> None:
        query = (
            spark.readStream.option("pathGlobFilter", "*.txt")
            .text(str(source))
            .selectExpr("value", "value as key")
            .writeStream.format("pykclient")
            .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
            .option("topic", "streamed")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(60)

    lines(source, "1", ["a", "b"])
    run()
    lines(source, "2", ["c", "d"])
    cluster.faults.answer("Produce", TopicAuthorizationError, times=None)
    with pytest.raises(StreamingQueryException) as raised:
        run()
    assert "of Spark partition 0 (attempt 1) were not written to Kafka" in str(raised.value)
    assert "ACLs WRITE and DESCRIBE" in str(raised.value)
    cluster.faults.clear()
    run()
    found = [value for records in read(cluster.bootstrap_servers, "streamed", 2).values() for _, value, _ in records]
    assert sorted(value for value in found if value) == [b"a", b"b", b"c", b"d"]
