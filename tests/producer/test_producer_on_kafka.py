"""Records written to real Kafka with every producer setting, and read back by another client."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from typing import Any

import pytest

from pykclient.errors import KafkaError, RecordTooLargeError
from pykclient.producer.kafka_producer import KafkaProducer
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually

Read = tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]], int]


def read_all(bootstrap_servers: str, topic: str, count: int, timeout_s: float = 30.0) -> list[Read]:
    """Read all records with confluent-kafka, in log order: (partition, offset, key, value, headers, timestamp)."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": topic, "enable.auto.commit": False})
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        records: list[Read] = []

        def complete() -> bool:
            for message in consumer.consume(5000, 0.3):
                assert message.error() is None
                place = (message.partition(), message.offset())
                records.append(
                    (*place, message.key(), message.value(), message.headers() or [], message.timestamp()[1])  # type: ignore[arg-type]
                )
            return len(records) >= count

        eventually(complete, timeout_s, f"{count} records of {topic}")
        assert not consumer.consume(1, 0.3)
        return sorted(records, key=lambda record: record[:2])
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_round_trip_with_every_codec(any_kafka: AnyKafka, topic: str, codec: str) -> None:
    any_kafka.create_topic(topic, partitions=2)
    rng = random.Random(codec)
    sent = [
        (
            None if index % 7 == 0 else b"key-%d" % (index % 13),
            None if index % 11 == 0 else rng.choice([bytes(300), rng.randbytes(rng.randrange(300))]),
            [("n", b"%d" % index), ("null", None)][: index % 3],
            1_700_000_000_000 + index,
        )
        for index in range(2000)
    ]
    with KafkaProducer[Any, Any](bootstrap_servers=any_kafka.bootstrap_servers, compression_type=codec) as producer:
        futures = [
            producer.send(topic, value, key, headers, index % 2, timestamp)
            for index, (key, value, headers, timestamp) in enumerate(sent)
        ]
        offsets = [(future.get(30).partition, future.get(0).offset) for future in futures]
    expected = [
        (*place, key, value, headers, timestamp)
        for place, (key, value, headers, timestamp) in zip(offsets, sent, strict=True)
    ]
    assert read_all(any_kafka.bootstrap_servers, topic, len(sent)) == sorted(expected, key=lambda record: record[:2])


@pytest.mark.parametrize("acks", ["all", 1, 0])
@pytest.mark.parametrize("in_flight", [1, 5])
def test_every_acks_keeps_the_order(any_kafka: AnyKafka, topic: str, acks: str | int, in_flight: int) -> None:
    any_kafka.create_topic(topic)
    with KafkaProducer[Any, Any](
        bootstrap_servers=any_kafka.bootstrap_servers,
        acks=acks,
        max_in_flight_requests_per_connection=in_flight,
        batch_size=1000,
    ) as producer:
        futures = [producer.send(topic, b"%d" % index) for index in range(3000)]
        producer.flush(30)
        assert all(future.succeeded() for future in futures)
        assert [future.get(0).offset for future in futures] == ([-1] * 3000 if acks == 0 else list(range(3000)))
    written = read_all(any_kafka.bootstrap_servers, topic, 3000)
    assert [record[3] for record in written] == [b"%d" % n for n in range(3000)]


def test_idempotent_batches_have_sequence_numbers(any_kafka: AnyKafka, topic: str) -> None:
    any_kafka.create_topic(topic)
    with KafkaProducer[Any, Any](bootstrap_servers=any_kafka.bootstrap_servers, linger_ms=0) as producer:
        for index in range(50):
            producer.send(topic, b"%d" % index).get(20)
        manager = producer._id_manager
        assert manager is not None
        assert manager.has_producer_id
        assert manager.sequence_number(producer.send(topic, b"last").get(20).topic_partition) == 51
    assert len(read_all(any_kafka.bootstrap_servers, topic, 51)) == 51


def test_a_new_topic_is_created_and_partitions_are_used(any_kafka: AnyKafka, topic: str) -> None:
    with KafkaProducer[Any, Any](bootstrap_servers=any_kafka.bootstrap_servers) as producer:
        assert producer.partitions_for(topic) == {0}
        assert producer.send(topic, b"v").get(20).offset == 0
        assert producer.bootstrap_connected()


def test_records_without_keys_spread_over_all_partitions(any_kafka: AnyKafka, topic: str) -> None:
    any_kafka.create_topic(topic, partitions=4)
    # Adaptive partitioning would send less to a slow broker, and under load any broker may be slow.
    settings = {"batch.size": 2000, "partitioner.adaptive.partitioning.enable": False}
    with KafkaProducer[Any, Any](settings, bootstrap_servers=any_kafka.bootstrap_servers) as producer:
        for _ in range(20_000):
            producer.send(topic, bytes(100))
    counts: dict[int, int] = defaultdict(int)
    for record in read_all(any_kafka.bootstrap_servers, topic, 20_000):
        counts[record[0]] += 1
    assert len(counts) == 4
    assert min(counts.values()) > 3500


def test_keys_go_to_same_partition_as_with_kafka_python(any_kafka: AnyKafka, topic: str) -> None:
    from kafka.partitioner.default import murmur2 as their_murmur2

    any_kafka.create_topic(topic, partitions=5)
    with KafkaProducer[Any, Any](bootstrap_servers=any_kafka.bootstrap_servers) as producer:
        futures = {key: producer.send(topic, b"v", key) for key in (b"key-%d" % n for n in range(200))}
        for key, future in futures.items():
            assert future.get(20).partition == (their_murmur2(key) & 0x7FFFFFFF) % 5


def test_metadata_has_log_append_time(any_kafka: AnyKafka, topic: str) -> None:
    any_kafka.create_topic(topic, config={"message.timestamp.type": "LogAppendTime"})
    with KafkaProducer[Any, Any](bootstrap_servers=any_kafka.bootstrap_servers) as producer:
        assert producer.send(topic, b"v", timestamp_ms=5).get(20).timestamp > 1_000_000_000_000


def test_an_error_names_the_brokers_limit_and_the_batch_size(any_kafka: AnyKafka, topic: str) -> None:
    any_kafka.create_topic(topic, config={"max.message.bytes": 2000})
    with KafkaProducer[Any, Any](bootstrap_servers=any_kafka.bootstrap_servers) as producer:
        said = (
            rf"a record for topic '{topic}' is too large: its batch takes 50\d\d bytes, more than max\.message\.bytes"
        )
        with pytest.raises(RecordTooLargeError, match=said):
            producer.send(topic, bytes(5000)).get(20)
        assert producer.send(topic, b"small").get(20).offset == 0


def test_a_batch_that_the_broker_finds_too_large_is_split(any_kafka: AnyKafka, topic: str) -> None:
    """With a topic limit below batch.size and many full batches, all records arrive once and in order."""
    any_kafka.create_topic(topic, config={"max.message.bytes": 4000})
    rng = random.Random(3)
    values = [b"%d" % index + rng.randbytes(500) for index in range(500)]
    with KafkaProducer[Any, Any](
        bootstrap_servers=any_kafka.bootstrap_servers, batch_size=16_000, compression_type="lz4", linger_ms=20
    ) as producer:
        futures = [producer.send(topic, value) for value in values]
        assert [future.get(60).offset for future in futures] == list(range(500))
        assert producer.metrics()["producer-metrics"]["batch-split-total"] > 0
    assert [record[3] for record in read_all(any_kafka.bootstrap_servers, topic, 500)] == values


def test_an_invalid_timestamp_fails_its_batch(any_kafka: AnyKafka, topic: str) -> None:
    any_kafka.create_topic(topic, config={"message.timestamp.before.max.ms": 1000})
    with KafkaProducer[Any, Any](bootstrap_servers=any_kafka.bootstrap_servers, linger_ms=50) as producer:
        good = producer.send(topic, b"good")
        bad = producer.send(topic, b"bad", timestamp_ms=1)
        assert "imestamp" in str(bad.add_both(lambda _: None) and _error(bad))
        assert "its batch contains an invalid record" in str(_error(good))
        assert producer.send(topic, b"later").get(20).offset == 0


def _error(future: Any) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        future.get(20)
    return caught.value


def test_futures_can_be_awaited_in_asyncio(any_kafka: AnyKafka, topic: str) -> None:
    any_kafka.create_topic(topic)

    async def main(producer: KafkaProducer[Any, Any]) -> list[int]:
        sent = [producer.send(topic, b"%d" % index) for index in range(100)]
        return [(await future).offset for future in sent]

    with KafkaProducer[Any, Any](bootstrap_servers=any_kafka.bootstrap_servers) as producer:
        assert asyncio.run(main(producer)) == list(range(100))


def test_idle_producer_does_not_spin(any_kafka: AnyKafka, topic: str) -> None:
    """The sender runs only a few rounds while nothing happens; it does not spin."""
    any_kafka.create_topic(topic)
    with KafkaProducer[Any, Any](bootstrap_servers=any_kafka.bootstrap_servers) as producer:
        producer.send(topic, b"v").get(20)
        rounds = 0
        step = producer._sender.step

        def counting(now_ms: int, **keywords: bool) -> int:
            nonlocal rounds
            rounds += 1
            return step(now_ms, **keywords)

        producer._sender.step = counting  # type: ignore[method-assign]
        producer._sender.wakeup()
        eventually(lambda: rounds > 0)
        threading_wait(0.5)
        assert rounds < 10


def threading_wait(seconds: float) -> None:
    import threading

    threading.Event().wait(seconds)
