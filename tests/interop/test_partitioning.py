"""Equal keys go to equal partitions, whichever client sends them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pykclient import KafkaProducer
from tests.interop.clients import Java, KafkaPython, Sample
from tests.support.any_kafka import AnyKafka

KEYS = [b"", b"a", b"ab", b"abc", b"abcd", b"\xff\xfe\x80\x00", "ключ".encode(), bytes(64), bytes(65), b"x" * 1000]
KEYS += [b"key-%d" % number for number in range(100)]
PARTITIONS = 7


def ours(any_kafka: AnyKafka, topic: str, **settings: Any) -> list[int]:
    with KafkaProducer[bytes, bytes](bootstrap_servers=any_kafka.bootstrap_servers, **settings) as producer:
        return [future.get(20).partition for future in [producer.send(topic, b"v", key) for key in KEYS]]


def by_confluent(any_kafka: AnyKafka, topic: str, partitioner: str) -> list[int]:
    from confluent_kafka import Message, Producer

    settings: dict[str, Any] = {"bootstrap.servers": any_kafka.bootstrap_servers, "partitioner": partitioner}
    producer = Producer(settings | {"log_level": 2})
    chosen: dict[bytes | None, int | None] = {}

    def delivered(error: object, message: Message) -> None:
        assert error is None
        chosen[message.key() or b""] = message.partition()

    for key in KEYS:
        producer.produce(topic, b"v", key, on_delivery=delivered)
    assert producer.flush(20) == 0
    return [number for number in (chosen[key] for key in KEYS) if number is not None]


def written(topic_rows: Sequence[Any]) -> dict[bytes | None, int]:
    return {row.key: row.partition for row in topic_rows}


@pytest.mark.java
def test_partitions_equal_javas_and_kafka_pythons(any_kafka: AnyKafka, topic: str) -> None:
    """Java, kafka-python and we partition by MurmurHash2 by default."""
    samples = [Sample(key, b"v") for key in KEYS]
    found = {}
    for name, client in (("java", Java()), ("kafka-python", KafkaPython())):
        theirs = any_kafka.create_topic(f"{topic}-{name}", PARTITIONS)
        client.write(any_kafka.bootstrap_servers, {theirs: ("none", samples)})
        rows = Java().read(any_kafka.bootstrap_servers, {theirs: len(KEYS)})[theirs]
        found[name] = [written(rows)[key] for key in KEYS]
    any_kafka.create_topic(topic, PARTITIONS)
    assert ours(any_kafka, topic) == found["java"] == found["kafka-python"]


@pytest.mark.parametrize("name", ["consistent_random", "consistent", "murmur2_random", "murmur2", "fnv1a_random"])
def test_partitions_equal_librdkafkas(any_kafka: AnyKafka, topic: str, name: str) -> None:
    """``consistent_random`` (CRC32) is librdkafka's default, which a program that migrates may have to keep."""
    any_kafka.create_topic(topic, PARTITIONS)
    spreads = [index for index, key in enumerate(KEYS) if not key]  # chosen at random by some clients
    theirs, mine = by_confluent(any_kafka, topic, name), ours(any_kafka, topic, partitioner=name)
    fixed = [index for index in range(len(KEYS)) if index not in spreads]
    assert [mine[index] for index in fixed] == [theirs[index] for index in fixed]
