"""Five clients behind one interface: write these records, read that many."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tests.kafka import artifacts
from tests.support.java import run_java

JAVA_CLIENT = Path(__file__).with_name("JavaClient.java")
TRANSACTIONAL_COPY = Path(__file__).with_name("TransactionalCopy.java")

CREATE_TIME, LOG_APPEND_TIME = 0, 1

#: How long a fetch waits for data; a fetch of the previous topic delays the next one by as much.
FETCH_WAIT_MS = 20


class Sample(NamedTuple):
    """A record to write."""

    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None


class Read(NamedTuple):
    """A record as a client returned it."""

    partition: int
    offset: int
    timestamp_type: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def content(self) -> Sample:
        return Sample(self.key, self.value, self.headers, self.timestamp_ms)


class Client(Protocol):
    """A client that writes records and reads them back.

    ``write`` keeps the order and returns once all records are acknowledged. ``read`` starts at the beginning of a
    topic. Both take many topics at once, because the Java program would otherwise start once per topic.
    """

    #: False for samples that ``write`` refuses although Kafka and the other clients allow them.
    def can_write(self, sample: Sample) -> bool: ...

    def write(self, bootstrap_servers: str, topics: dict[str, tuple[str, Sequence[Sample]]]) -> None:
        """Write to ``topics``, which maps a topic's name to the codec and the records."""

    def read(self, bootstrap_servers: str, topics: dict[str, int]) -> dict[str, list[Read]]:
        """Read from ``topics``, which maps a topic's name to its number of records."""
        ...


class Ours:
    def can_write(self, sample: Sample) -> bool:
        return True

    def write(self, bootstrap_servers: str, topics: dict[str, tuple[str, Sequence[Sample]]]) -> None:
        from pykclient import KafkaProducer

        for topic, (codec, samples) in topics.items():
            with KafkaProducer[bytes, bytes](
                bootstrap_servers=bootstrap_servers, compression_type=codec, linger_ms=20
            ) as producer:
                futures = [
                    producer.send(topic, s.value, s.key, list(s.headers), timestamp_ms=s.timestamp_ms) for s in samples
                ]
                producer.flush(30)
                for future in futures:
                    future.get(0)

    def read(self, bootstrap_servers: str, topics: dict[str, int]) -> dict[str, list[Read]]:
        from pykclient import KafkaConsumer, TopicPartition

        found: dict[str, list[Read]] = {}
        with KafkaConsumer[bytes, bytes](
            bootstrap_servers=bootstrap_servers, fetch_max_wait_ms=FETCH_WAIT_MS, consumer_timeout_ms=20_000
        ) as consumer:
            for topic, count in topics.items():
                partitions = [TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic)]
                consumer.assign(partitions)
                consumer.seek_to_beginning()
                rows = found[topic] = []
                while len(rows) < count:
                    r = next(consumer)
                    assert r.topic == topic
                    rows.append(
                        Read(r.partition, r.offset, r.timestamp_type, r.timestamp, r.key, r.value, tuple(r.headers))
                    )
        return found


class Confluent:
    def can_write(self, sample: Sample) -> bool:
        return True

    def write(self, bootstrap_servers: str, topics: dict[str, tuple[str, Sequence[Sample]]]) -> None:
        from confluent_kafka import Producer

        for topic, (codec, samples) in topics.items():
            producer = Producer(
                {"bootstrap.servers": bootstrap_servers, "compression.type": codec, "linger.ms": 20, "log_level": 2}
            )
            errors: list[Any] = []
            for s in samples:
                producer.produce(
                    topic,
                    s.value,
                    s.key,
                    headers=list(s.headers),
                    timestamp=s.timestamp_ms or 0,
                    on_delivery=partial(_note, errors),
                )
            assert producer.flush(30) == 0
            assert errors == [None] * len(samples)

    def read(self, bootstrap_servers: str, topics: dict[str, int]) -> dict[str, list[Read]]:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        settings = {"bootstrap.servers": bootstrap_servers, "group.id": "unused", "log_level": 2}
        consumer = Consumer({**settings, "fetch.wait.max.ms": FETCH_WAIT_MS})
        found: dict[str, list[Read]] = {}
        try:
            for topic, count in topics.items():
                numbers = consumer.list_topics(topic, 10).topics[topic].partitions
                consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in numbers])
                rows = found[topic] = []
                while len(rows) < count:
                    messages = consumer.consume(count - len(rows), 20)
                    assert messages, f"{topic}: {count - len(rows)} records are missing"
                    for m in messages:
                        assert m.error() is None, m.error()
                        kind, at = m.timestamp()
                        partition, offset = m.partition(), m.offset()
                        assert partition is not None
                        assert offset is not None
                        headers: Any = m.headers() or []
                        rows.append(Read(partition, offset, kind - 1, at, m.key(), m.value(), tuple(headers)))
        finally:
            consumer.close()
        return found


class KafkaPython:
    def can_write(self, sample: Sample) -> bool:
        something = sample.key is not None or sample.value is not None
        return something and all(value is not None for _, value in sample.headers)

    def write(self, bootstrap_servers: str, topics: dict[str, tuple[str, Sequence[Sample]]]) -> None:
        from kafka import KafkaProducer

        for topic, (codec, samples) in topics.items():
            producer = KafkaProducer(
                bootstrap_servers=bootstrap_servers,
                compression_type=None if codec == "none" else codec,
                linger_ms=20,
                max_request_size=2 << 20,
            )
            try:
                futures = [
                    producer.send(topic, s.value, s.key, list(s.headers), timestamp_ms=s.timestamp_ms) for s in samples
                ]
                for future in futures:
                    future.get(30)
            finally:
                producer.close()

    def read(self, bootstrap_servers: str, topics: dict[str, int]) -> dict[str, list[Read]]:
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(bootstrap_servers=bootstrap_servers, consumer_timeout_ms=20_000)
        found: dict[str, list[Read]] = {}
        try:
            for topic, count in topics.items():
                consumer.assign([TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic)])
                consumer.seek_to_beginning()
                rows = found[topic] = []
                while len(rows) < count:
                    r = next(consumer)
                    rows.append(
                        Read(r.partition, r.offset, r.timestamp_type, r.timestamp, r.key, r.value, tuple(r.headers))
                    )
        finally:
            consumer.close()
        return found


class Aiokafka:
    def can_write(self, sample: Sample) -> bool:
        return sample.key is not None or sample.value is not None

    def write(self, bootstrap_servers: str, topics: dict[str, tuple[str, Sequence[Sample]]]) -> None:
        asyncio.run(self._write(bootstrap_servers, topics))

    async def _write(self, bootstrap_servers: str, topics: dict[str, tuple[str, Sequence[Sample]]]) -> None:
        from aiokafka import AIOKafkaProducer

        for topic, (codec, samples) in topics.items():
            async with AIOKafkaProducer(
                bootstrap_servers=bootstrap_servers,
                compression_type=None if codec == "none" else codec,
                linger_ms=20,
                max_request_size=2 << 20,
            ) as producer:
                futures = [
                    await producer.send(
                        topic, s.value, s.key, timestamp_ms=s.timestamp_ms, headers=[(n, v) for n, v in s.headers]
                    )
                    for s in samples
                ]
                await asyncio.gather(*futures)

    def read(self, bootstrap_servers: str, topics: dict[str, int]) -> dict[str, list[Read]]:
        return asyncio.run(self._read(bootstrap_servers, topics))

    async def _read(self, bootstrap_servers: str, topics: dict[str, int]) -> dict[str, list[Read]]:
        from aiokafka import AIOKafkaConsumer

        found: dict[str, list[Read]] = {}
        for topic, count in topics.items():
            async with AIOKafkaConsumer(
                topic, bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest"
            ) as consumer:
                rows = found[topic] = []
                while len(rows) < count:
                    r = await asyncio.wait_for(consumer.getone(), 20)
                    rows.append(
                        Read(r.partition, r.offset, r.timestamp_type, r.timestamp, r.key, r.value, tuple(r.headers))
                    )
        return found


class Java:
    """Kafka's own client, current or of an old release."""

    def __init__(self, kafka_version: str = artifacts.KAFKA_VERSION) -> None:
        self._kafka_version = kafka_version

    def can_write(self, sample: Sample) -> bool:
        return True

    def write(self, bootstrap_servers: str, topics: dict[str, tuple[str, Sequence[Sample]]]) -> None:
        lines = [
            "\t".join(
                (
                    codec,
                    topic,
                    "-" if s.timestamp_ms is None else str(s.timestamp_ms),
                    _hex(s.key),
                    _hex(s.value),
                    ",".join(f"{name.encode().hex()}={_hex(value)}" for name, value in s.headers),
                )
            )
            for topic, (codec, samples) in topics.items()
            for s in samples
        ]
        run_java(
            JAVA_CLIENT,
            *("write", bootstrap_servers),
            stdin="\n".join(lines).encode(),
            kafka_version=self._kafka_version,
        )

    def read(self, bootstrap_servers: str, topics: dict[str, int]) -> dict[str, list[Read]]:
        lines = "\n".join(f"{topic}\t{count}" for topic, count in topics.items())
        found: dict[str, list[Read]] = {topic: [] for topic in topics}
        output = run_java(
            JAVA_CLIENT, "read", bootstrap_servers, stdin=lines.encode(), kafka_version=self._kafka_version
        )
        for line in output.decode().splitlines():
            topic, partition, offset, kind, timestamp, key, value, headers = line.split("\t")
            pairs = [header.split("=") for header in headers.split(",") if header]
            found[topic].append(
                Read(
                    int(partition),
                    int(offset),
                    int(kind),
                    int(timestamp),
                    _bytes(key),
                    _bytes(value),
                    tuple((bytes.fromhex(name).decode(), _bytes(text)) for name, text in pairs),
                )
            )
        return found


PEERS: dict[str, Client] = {
    "confluent-kafka": Confluent(),
    "kafka-python": KafkaPython(),
    "aiokafka": Aiokafka(),
    "java": Java(),
}


def _note(errors: list[Any], error: object, _message: object) -> None:
    errors.append(error)


def _hex(data: bytes | None) -> str:
    return "-" if data is None else data.hex()


def _bytes(text: str) -> bytes | None:
    return None if text == "-" else bytes.fromhex(text)
