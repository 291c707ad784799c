"""Positions that belong to one topic, not to an earlier or later topic of the same name."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import confluent_kafka
import pytest

from pykclient import KafkaConsumer, TopicPartition
from pykclient.errors import NoOffsetForPartitionError
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually


def produce(kafka: AnyKafka, topic: str, values: list[str]) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    for value in values:
        producer.produce(topic, value.encode(), partition=0)
    assert producer.flush(30) == 0


@pytest.fixture
def consumer(any_kafka: AnyKafka) -> Iterator[KafkaConsumer]:
    with KafkaConsumer(
        bootstrap_servers=any_kafka.bootstrap_servers, auto_offset_reset="none", allow_auto_create_topics=False
    ) as made:
        yield made


def id_of(consumer: KafkaConsumer, topic: str) -> uuid.UUID:
    found = consumer.describe_topics(topics=[topic])[topic].topic_id
    assert found is not None
    return found


def create_again(kafka: AnyKafka, topic: str) -> None:
    kafka.delete_topic(topic)
    kafka.create_topic(topic)
    produce(kafka, topic, [f"new {number}" for number in range(20)])


def values(consumer: KafkaConsumer, count: int) -> list[str]:
    """Return the values of the next records."""
    found: list[str] = []

    def is_enough() -> bool:
        found.extend(_poll(consumer))
        return len(found) >= count

    eventually(is_enough, 30, f"{count} records")
    return found


def _poll(consumer: KafkaConsumer) -> list[str]:
    return [bytes(record.value or b"").decode() for records in consumer.poll(100).values() for record in records]


def test_describe_topics_returns_ids_and_partitions(any_kafka: AnyKafka, topic: str, consumer: KafkaConsumer) -> None:
    any_kafka.create_topic(topic, 2)
    (description,) = consumer.describe_topics(topics=[topic, f"{topic}-missing"]).values()
    assert (description.name, description.is_internal) == (topic, False)
    assert description.partitions == consumer.list_topics(topics=[topic])[topic]
    assert sorted(info.partition for info in description.partitions) == [0, 1]
    assert consumer.describe_topics()[topic] == description
    assert consumer.describe_topics(topics=[]) == {}
    any_kafka.delete_topic(topic)
    any_kafka.create_topic(topic)
    assert id_of(consumer, topic) != description.topic_id


@pytest.mark.parametrize("offset", [5, 0, 15, 20, 30])
def test_old_topic_id_reads_new_topic(any_kafka: AnyKafka, topic: str, consumer: KafkaConsumer, offset: int) -> None:
    """A recreated topic has no record for a position in the old one, whatever its offsets are."""
    any_kafka.create_topic(topic)
    produce(any_kafka, topic, ["old"] * 40)
    tp = TopicPartition(topic, 0)
    consumer.assign([tp])
    consumer.seek(tp, offset, topic_id=id_of(consumer, topic))
    assert values(consumer, 1)[0] == "old"
    consumer.seek(tp, offset, topic_id=id_of(consumer, topic))
    create_again(any_kafka, topic)

    def is_new() -> bool:
        # Records fetched before the topic was deleted may be returned.
        return bool(set(_poll(consumer)) - {"old"})

    for _ in range(2):  # until the application seeks
        with pytest.raises(NoOffsetForPartitionError) as caught:
            eventually(is_new, 30, "no record of the new topic")
        assert caught.value.partitions == {tp}
    consumer.seek(tp, 10)
    assert values(consumer, 10) == [f"new {number}" for number in range(10, 20)]
    consumer.seek(tp, 3, topic_id=id_of(consumer, topic))
    assert values(consumer, 17) == [f"new {number}" for number in range(3, 20)]


def test_a_seek_with_a_topic_id_drops_records_of_the_deleted_topic(
    any_kafka: AnyKafka, topic: str, consumer: KafkaConsumer
) -> None:
    """Records of the deleted topic are not returned, even if their offsets match."""
    any_kafka.create_topic(topic)
    produce(any_kafka, topic, ["old"] * 10)
    tp = TopicPartition(topic, 0)
    consumer.assign([tp])
    consumer.seek(tp, 0)
    assert consumer.poll(30_000, max_records=1)
    consumer.seek(tp, 4)
    consumer.prefetch()
    create_again(any_kafka, topic)
    consumer.seek(tp, 4, topic_id=id_of(consumer, topic))
    assert values(consumer, 16) == [f"new {number}" for number in range(4, 20)]
