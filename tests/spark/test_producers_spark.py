"""Producers in tasks: foreachPartition, foreachBatch and mapInArrow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from pykclient import KafkaConsumer, KafkaProducer, TopicPartition
from pykclient.errors import TopicAuthorizationError
from pykclient.spark import KafkaDataSource, shared_producer, write_arrow
from pykclient.testing import EmbeddedCluster
from tests.spark.test_writer_spark import lines, read, save
from tests.support.any_kafka import AnyKafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


@pytest.fixture(autouse=True, scope="module")
def _registered(spark: SparkSession) -> None:
    spark.dataSource.register(KafkaDataSource)


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster


def test_user_functions_write_rows(spark: SparkSession, any_kafka: AnyKafka, topic: str, tmp_path: Path) -> None:
    """In three ways, one after another."""
    any_kafka.create_topic(topic)
    servers = any_kafka.bootstrap_servers
    producer = shared_producer(bootstrap_servers=servers)

    def write_rows(rows: Iterator[Row]) -> None:
        with producer as p:
            for row in rows:
                p.send(topic, value=row.value.encode(), key=str(os.getpid()).encode())

    def write_batch(batch: DataFrame, number: int) -> None:
        write = write_arrow({"bootstrap.servers": servers}, topic)
        written = batch.mapInArrow(write, write.schema).collect()
        assert sum(row.records for row in written) == 3
        assert batch.count() == 3
        save(batch, servers, topic=topic)

    spark.range(0, 4, 1, 4).selectExpr("concat('partition', id) as value").foreachPartition(write_rows)
    source = tmp_path / "source"
    source.mkdir()
    lines(source, "1", ["a", "b", "c"])
    query = (
        spark.readStream.text(str(source))
        .writeStream.foreachBatch(write_batch)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    (records,) = read(servers, topic).values()
    assert {value for key, value, _ in records if key} == {b"partition%d" % number for number in range(4)}
    assert sorted(value or b"" for key, value, _ in records if not key) == [b"a", b"a", b"b", b"b", b"c", b"c"]
    assert len(records) == 10


def test_worker_keeps_its_producer(spark: SparkSession, cluster: EmbeddedCluster) -> None:
    """Across tasks and queries: each worker has requested one producer id."""
    cluster.create_topic("shared")
    producer = shared_producer(bootstrap_servers=cluster.bootstrap_servers)

    def write(rows: Iterator[Row]) -> None:
        with producer as p:
            for row in rows:
                p.send("shared", value=b"%d" % row.id, key=b"%d" % os.getpid())

    for _ in range(2):
        spark.range(0, 8, 1, 4).foreachPartition(write)
    (records,) = read(cluster.bootstrap_servers, "shared").values()
    assert sorted(int(value or b"-1") for _, value, _ in records) == sorted([*range(8), *range(8)])
    workers = {key for key, _, _ in records}
    assert len(cluster.requests_of("InitProducerId")) == len(workers)
    assert len(workers) < 8  # two for eight tasks, unless one had to be replaced


def test_transaction_per_partition_writes_all_rows_or_none(
    spark: SparkSession, any_kafka: AnyKafka, topic: str
) -> None:
    any_kafka.create_topic(topic)
    servers = any_kafka.bootstrap_servers

    def written(failing: int | None) -> set[int]:
        """Write 40 rows in four tasks, one of which may fail halfway; return the rows that readers see."""

        def write(rows: Iterator[Row]) -> None:
            from pyspark import TaskContext

            context = TaskContext.get()
            assert context is not None
            number = context.partitionId()
            with KafkaProducer[bytes, bytes](
                bootstrap_servers=servers, transactional_id=f"{topic}-{number}"
            ) as producer:
                producer.init_transactions()
                with producer.transaction():
                    for place, row in enumerate(rows):
                        producer.send(topic, b"%d" % row.id).get(30)
                        if number == failing and place == 4:
                            raise OSError("the task fails")

        if failing is None:
            spark.range(0, 40, 1, 4).foreachPartition(write)
        else:
            # Spark 4.1 does not translate the error of an RDD's job.
            with pytest.raises((PySparkException, Py4JJavaError), match="the task fails"):
                spark.range(0, 40, 1, 4).foreachPartition(write)
        with KafkaConsumer[bytes, bytes](
            bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level="read_committed"
        ) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            end = consumer.end_offsets([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]
            seen: list[int] = []
            while consumer.position(TopicPartition(topic, 0)) < end:
                for records in consumer.poll(1_000).values():
                    seen += [int(record.value or b"") for record in records]
        assert not seen or len(seen) % 10 == 0
        return set(seen)

    first = written(failing=2)
    assert not first & set(range(20, 30))
    assert written(failing=None) == set(range(40))


def test_failing_user_function_reports_unwritten_records(spark: SparkSession, cluster: EmbeddedCluster) -> None:
    cluster.create_topic("denied")
    cluster.faults.answer("Produce", TopicAuthorizationError, times=None)
    config = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": "hush"}
    write = write_arrow(config, "denied")
    written = spark.range(0, 5, 1, 1).selectExpr("'secret' as value").mapInArrow(write, write.schema)
    with pytest.raises(PySparkException, match=r"5 of 5 records of Spark partition 0 .* not written") as raised:
        written.collect()
    assert "secret" not in str(raised.value)
    assert "hush" not in str(raised.value)
