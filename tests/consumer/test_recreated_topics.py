"""Topics that are deleted and recreated under the same name while being read: embedded, and on real Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykclient.consumer.kafka_consumer import KafkaConsumer
from pykclient.errors import (
    KafkaTimeoutError,
    LogTruncationError,
    NoOffsetForPartitionError,
    UnknownTopicOrPartitionError,
)
from pykclient.producer.kafka_producer import KafkaProducer
from pykclient.testing import EmbeddedCluster
from pykclient.types import OffsetAndMetadata, TopicPartition
from tests.support.any_kafka import AnyKafka

Consumer = KafkaConsumer[bytes, bytes]
NewConsumer = Callable[..., Consumer]

METHODS = pytest.mark.parametrize("method", ["subscribe", "assign"])


@pytest.fixture
def consume(any_kafka: AnyKafka, topic: str, group_id: str) -> Iterator[NewConsumer]:
    """A factory of consumers of the test's topics, closed after the test."""
    made: list[Consumer] = []

    def make(method: str = "subscribe", *topics: str, **settings: Any) -> Consumer:
        consumer: Consumer = KafkaConsumer(
            bootstrap_servers=any_kafka.bootstrap_servers,
            **{
                "group_id": group_id,
                "auto_offset_reset": "earliest",
                "allow_auto_create_topics": False,
                "metadata_max_age_ms": 1_000,
                **settings,
            },
        )
        made.append(consumer)
        names = topics or (topic,)
        if method == "subscribe":
            consumer.subscribe(names)
        else:
            consumer.assign([TopicPartition(name, 0) for name in names])
        return consumer

    yield make
    for consumer in made:
        consumer.close(timeout_ms=2_000)


def produce(servers: str, topic: str, *values: bytes, partition: int = 0) -> None:
    with KafkaProducer(bootstrap_servers=servers) as producer:
        futures = [producer.send(topic, value, partition=partition) for value in values]
        for future in futures:
            future.get(30)


def numbered(prefix: str, count: int) -> list[bytes]:
    return [f"{prefix}{number}".encode() for number in range(count)]


def read(consumer: Consumer, count: int, topic: str | None = None) -> list[bytes]:
    """Return values until ``count`` of them are from ``topic``, for at most 30 s."""
    values: list[bytes] = []
    end = time.monotonic() + 30
    while len(values) < count and time.monotonic() < end:
        for tp, records in consumer.poll(200).items():
            if topic in (None, tp.topic):
                values += [record.value or b"" for record in records]
    return values


def create_again(kafka: AnyKafka, topic: str, partitions: int = 1) -> None:
    kafka.delete_topic(topic)
    kafka.create_topic(topic, partitions)


@METHODS
@pytest.mark.parametrize("count", [10, 100])
def test_reading_continues_at_the_start_of_the_new_topic(
    any_kafka: AnyKafka, topic: str, consume: NewConsumer, method: str, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The new topic is read and committed from its beginning, even if it has a record at the old position."""
    servers, tp = any_kafka.bootstrap_servers, TopicPartition(topic, 0)
    any_kafka.create_topic(topic)
    produce(servers, topic, *numbered("old", 60))
    consumer = consume(method)
    assert len(read(consumer, 60)) == 60
    consumer.commit()
    create_again(any_kafka, topic)
    produce(servers, topic, *numbered("new", count))
    assert read(consumer, count) == numbered("new", count)
    warnings = [record.message for record in caplog.records if "created again" in record.message]
    assert len(warnings) == 1
    assert f"{tp}: 60" in warnings[0]
    assert "auto.offset.reset=earliest" in warnings[0]
    consumer.commit()
    assert consumer.committed(tp) == count
    consumer.close()
    produce(servers, topic, b"last")
    assert read(consume(method), 1) == [b"last"]


def test_removed_partitions_are_unassigned(any_kafka: AnyKafka, topic: str, consume: NewConsumer) -> None:
    """Partitions that the new topic does not have are no longer assigned."""
    servers = any_kafka.bootstrap_servers
    any_kafka.create_topic(topic, 2)
    for partition in range(2):
        produce(servers, topic, *numbered("old", 5), partition=partition)
    consumer = consume("subscribe", group_id=None)
    assert len(read(consumer, 10)) == 10
    create_again(any_kafka, topic)
    produce(servers, topic, *numbered("new", 7))
    assert read(consumer, 7) == numbered("new", 7)
    assert consumer.assignment() == {TopicPartition(topic, 0)}


@METHODS
def test_poll_raises_without_reset_policy(any_kafka: AnyKafka, topic: str, consume: NewConsumer, method: str) -> None:
    servers, tp = any_kafka.bootstrap_servers, TopicPartition(topic, 0)
    any_kafka.create_topic(topic)
    produce(servers, topic, *numbered("old", 5))
    consumer = consume(method, auto_offset_reset="none")
    if method == "subscribe":
        with pytest.raises(NoOffsetForPartitionError):
            read(consumer, 1)
    consumer.seek(tp, 0)
    assert len(read(consumer, 5)) == 5
    create_again(any_kafka, topic)
    produce(servers, topic, *numbered("new", 7))
    for _ in range(2):
        with pytest.raises(NoOffsetForPartitionError, match=topic):
            read(consumer, 1)
    consumer.seek(tp, 2)
    assert read(consumer, 5) == numbered("new", 7)[2:]


def test_an_offset_of_the_deleted_topic_is_not_committed_in_the_new_one(
    any_kafka: AnyKafka, topic: str, consume: NewConsumer
) -> None:
    """The commit is refused although the consumer has not noticed that the topic was recreated."""
    servers, tp = any_kafka.bootstrap_servers, TopicPartition(topic, 0)
    any_kafka.create_topic(topic)
    produce(servers, topic, *numbered("old", 5))
    consumer = consume("assign", metadata_max_age_ms=300_000)
    assert len(read(consumer, 5)) == 5
    create_again(any_kafka, topic)
    produce(servers, topic, *numbered("new", 100))
    with pytest.raises(UnknownTopicOrPartitionError, match=f"{tp} .*created again"):
        consumer.commit({tp: OffsetAndMetadata(5)}, timeout_ms=30_000)
    consumer.close()
    other = consume("assign")
    assert other.committed(tp) is None
    assert read(other, 100) == numbered("new", 100)


@METHODS
def test_close_does_not_wait_for_a_deleted_topic(
    any_kafka: AnyKafka, topic: str, consume: NewConsumer, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    servers, kept = any_kafka.bootstrap_servers, f"{topic}-kept"
    for name in (topic, kept):
        any_kafka.create_topic(name)
        produce(servers, name, *numbered("v", 5))
    consumer = consume(method, topic, kept, metadata_max_age_ms=300_000)
    assert len(read(consumer, 10)) == 10
    any_kafka.delete_topic(topic)
    consumer.close()
    assert "Not committed in the time there was" not in caplog.text
    assert consume("assign", kept).committed(TopicPartition(kept, 0)) == 5


def test_a_deleted_topic_does_not_stop_the_group(any_kafka: AnyKafka, topic: str, consume: NewConsumer) -> None:
    """Other topics' partitions are still read, without waiting for max.poll.interval.ms, which is five minutes."""
    servers, kept = any_kafka.bootstrap_servers, f"{topic}-kept"
    for name in (topic, kept):
        any_kafka.create_topic(name)
        produce(servers, name, *numbered("v", 5))
    consumer = consume("subscribe", topic, kept)
    assert len(read(consumer, 10)) == 10
    any_kafka.delete_topic(topic)
    end = time.monotonic() + 30
    while TopicPartition(topic, 0) in consumer.assignment() and time.monotonic() < end:
        consumer.poll(200)
    assert consumer.assignment() <= {TopicPartition(kept, 0)}
    produce(servers, kept, b"last")
    assert read(consumer, 1) == [b"last"]
    consumer.close()
    assert consume("assign", kept).committed(TopicPartition(kept, 0)) == 6


def test_a_topic_with_fewer_partitions_does_not_stop_the_group(
    any_kafka: AnyKafka, topic: str, consume: NewConsumer
) -> None:
    servers = any_kafka.bootstrap_servers
    any_kafka.create_topic(topic, 3)
    for partition in range(3):
        produce(servers, topic, *numbered("old", 3), partition=partition)
    consumer = consume("subscribe")
    assert len(read(consumer, 9)) == 9
    create_again(any_kafka, topic, 2)
    for partition in range(2):
        produce(servers, topic, *numbered("new", 3), partition=partition)
    assert sorted(read(consumer, 6)) == sorted(numbered("new", 3) * 2)
    assert consumer.assignment() == {TopicPartition(topic, 0), TopicPartition(topic, 1)}


def test_commit_to_a_missing_topic_fails(any_kafka: AnyKafka, topic: str, consume: NewConsumer) -> None:
    """The commit fails at once, the error names the topic, and the topic is not created."""
    any_kafka.create_topic(topic)
    consumer = consume("assign", allow_auto_create_topics=True)
    missing = TopicPartition(f"{topic}-missing", 0)
    with pytest.raises(UnknownTopicOrPartitionError, match=str(missing)):
        consumer.commit({missing: 1, TopicPartition(topic, 0): 2}, timeout_ms=30_000)
    assert consumer.committed(TopicPartition(topic, 0)) == 2
    assert missing.topic not in consumer.topics()


def test_committed_epoch_of_a_deleted_topic_resets_the_position() -> None:
    """A group starts with an offset and epoch of the deleted topic, as committed by clients that commit by name."""
    with EmbeddedCluster() as cluster:
        servers, tp = cluster.bootstrap_servers, TopicPartition("t", 0)
        cluster.create_topic("t", partitions=1)
        produce(servers, "t", *numbered("new", 10))
        settings: dict[str, Any] = {
            "bootstrap_servers": servers,
            "group_id": "g",
            "auto_offset_reset": "earliest",
            "metadata_max_age_ms": 1_000,
        }
        with KafkaConsumer(enable_auto_commit=False, **settings) as consumer:
            consumer.assign([tp])
            consumer.commit({tp: OffsetAndMetadata(60, "", 4)})
        with KafkaConsumer("t", **settings) as consumer:
            assert read(consumer, 10) == numbered("new", 10)


@METHODS
@pytest.mark.parametrize("release", [None, "2.7"])
def test_lower_leader_epoch_of_a_recreated_topic_is_accepted(method: str, release: str | None) -> None:
    """Leader epochs restart with a recreated topic, so its metadata is not stale; Kafka 2.7 has no topic ids."""
    settings: dict[str, Any] = {} if release is None else {"release": release}
    with EmbeddedCluster(brokers=3, **settings) as cluster:
        servers, tp = cluster.bootstrap_servers, TopicPartition("t", 0)
        cluster.create_topic("t", partitions=1, replication_factor=3)
        for leader in (2, 3, 1, 2):
            cluster.move_leader(tp, leader)
        produce(servers, "t", *numbered("old", 60))
        with KafkaConsumer(
            bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest", metadata_max_age_ms=1_000
        ) as consumer:
            if method == "subscribe":
                consumer.subscribe(["t"])
            else:
                consumer.assign([tp])
            assert len(read(consumer, 60)) == 60
            cluster.delete_topic("t")
            cluster.create_topic("t", partitions=1, replication_factor=3)
            produce(servers, "t", *numbered("new", 10))
            assert read(consumer, 10) == numbered("new", 10)


@pytest.mark.parametrize("reset", ["earliest", "none"])
def test_unreached_committed_epoch_is_explained_and_reset(
    any_kafka: AnyKafka, topic: str, group_id: str, reset: str
) -> None:
    """The Java client reads nothing of such a partition any more."""
    any_kafka.create_topic(topic)
    tp = TopicPartition(topic, 0)
    produce(any_kafka.bootstrap_servers, topic, b"0", b"1", b"2")
    settings = {
        "bootstrap_servers": any_kafka.bootstrap_servers,
        "group_id": group_id,
        "enable_auto_commit": False,
        "auto_offset_reset": reset,
    }
    with KafkaConsumer[bytes, bytes](settings) as consumer:
        consumer.commit({tp: OffsetAndMetadata(1, "", 7)})
    with KafkaConsumer[bytes, bytes](settings) as consumer:
        consumer.assign([tp])
        with pytest.raises(KafkaTimeoutError, match=r"metadata has leader epoch 0, but a commit, .* had epoch 7"):
            consumer.position(tp, timeout_ms=500)
        assert "the leader is unknown: metadata has leader epoch 0" in consumer.explain()
    with KafkaConsumer[bytes, bytes](settings, metadata_max_age_ms=1_000) as consumer:
        consumer.assign([tp])
        if reset == "none":
            with pytest.raises(LogTruncationError, match="an unknown offset"):
                consumer.poll(30_000)
        else:
            assert [record.value for record in consumer.poll(30_000)[tp]] == [b"0", b"1", b"2"]
