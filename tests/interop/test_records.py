"""Every codec and unusual records, written by one client and read by another, byte for byte."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from pykclient import KafkaConsumer, KafkaProducer, TopicPartition
from tests.interop.clients import CREATE_TIME, LOG_APPEND_TIME, PEERS, Ours, Read, Sample
from tests.kafka.cluster import KafkaCluster
from tests.kafka.tools import console_consumer, console_producer, dump_log
from tests.support.any_kafka import REAL, AnyKafka

ANY_PEER = [pytest.param(name, marks=[pytest.mark.java] if name == "java" else []) for name in PEERS]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
AT = 1_700_000_000_000

ODD = [
    Sample(b"key", b"value", (), AT),
    Sample(None, b"no key", (), AT + 1),
    Sample(b"deleted", None, (), AT - 1),  # earlier than the first record: a negative delta in the batch
    Sample(None, None, (), AT),
    Sample(b"", b"", (), AT + 86_400_000),
    Sample(b"h", b"one header", (("name", b"value"),), AT),
    Sample(b"h", b"null header", (("null", None),), AT),
    Sample(b"h", b"empty header", (("empty", b""),), AT),
    Sample(b"h", b"twice", (("same", b"1"), ("same", b"2"), ("other", b"3"), ("same", b"1")), AT),
    Sample(b"h", b"unicode", (("ключ-鍵-🔑", "значение".encode()), ("", b"no name")), AT),
    Sample(b"h", bytes(range(256)), (("binary", bytes(range(256))),), AT),
    Sample(bytes(200), b"long key", (), 0),  # the epoch itself
]
LARGE = [
    Sample(b"large", random.Random(1).randbytes(900_000), (), AT),
    Sample(b"small between", b"x", (), AT),
    Sample(b"repetitive", b"0123456789abcdef" * 56_250, (("h", bytes(1000)),), AT),
]
MANY = [Sample(b"k%d" % (i % 100), b"value number %d" % i * (i % 7), (), AT + i) for i in range(3000)]
ALL = [*ODD, *LARGE, *MANY]


@pytest.fixture(scope="module")
def ours_by_codec(any_kafka: AnyKafka) -> Iterator[dict[str, str]]:
    """Records that we wrote: the topic of each codec, with one partition each."""
    topics = {codec: f"ours-{codec}-{uuid.uuid4().hex[:8]}" for codec in CODECS}
    for topic in topics.values():
        any_kafka.create_topic(topic)
    Ours().write(any_kafka.bootstrap_servers, {topic: (codec, ALL) for codec, topic in topics.items()})
    yield topics
    for topic in topics.values():
        any_kafka.delete_topic(topic)


@pytest.fixture(scope="module")
def appended(any_kafka: AnyKafka) -> tuple[str, int]:
    """A topic with LogAppendTime, and the timestamp that the broker gave our one record."""
    topic = any_kafka.create_topic(
        f"appended-{uuid.uuid4().hex[:8]}", config={"message.timestamp.type": "LogAppendTime"}
    )
    with KafkaProducer[bytes, bytes](bootstrap_servers=any_kafka.bootstrap_servers, compression_type="lz4") as producer:
        metadata = producer.send(topic, b"value", timestamp_ms=AT).get(10)
    assert metadata.timestamp > AT
    return topic, metadata.timestamp


@pytest.mark.parametrize("peer", ANY_PEER)
def test_other_clients_read_our_records(
    any_kafka: AnyKafka, ours_by_codec: dict[str, str], appended: tuple[str, int], peer: str
) -> None:
    counts = {topic: len(ALL) for topic in ours_by_codec.values()} | {appended[0]: 1}
    found = PEERS[peer].read(any_kafka.bootstrap_servers, counts)
    for codec, topic in ours_by_codec.items():
        assert_equal(found[topic], ALL, codec)
    assert_appended(found[appended[0]], appended[1])


def test_log_append_time_of_the_broker_is_read(any_kafka: AnyKafka, appended: tuple[str, int]) -> None:
    """The broker replaces the producer's time only in the batch header, so readers must take it from there."""
    topic, at = appended
    assert_appended(Ours().read(any_kafka.bootstrap_servers, {topic: 1})[topic], at)


def assert_appended(rows: list[Read], at: int) -> None:
    assert [(row.value, row.timestamp_type, row.timestamp_ms) for row in rows] == [(b"value", LOG_APPEND_TIME, at)]


@pytest.mark.parametrize("peer", ANY_PEER)
def test_we_read_records_of_other_clients(any_kafka: AnyKafka, topic: str, peer: str) -> None:
    client = PEERS[peer]
    samples = [sample for sample in ALL if client.can_write(sample) and sample.timestamp_ms]
    topics = {f"{topic}-{codec}": codec for codec in CODECS}
    for name in topics:
        any_kafka.create_topic(name)
    client.write(any_kafka.bootstrap_servers, {name: (codec, samples) for name, codec in topics.items()})
    found = Ours().read(any_kafka.bootstrap_servers, dict.fromkeys(topics, len(samples)))
    for name, codec in topics.items():
        assert_equal(found[name], samples, codec)


def assert_equal(found: list[Read], samples: list[Sample], codec: str) -> None:
    assert [row.offset for row in found] == list(range(len(samples))), codec
    for row, sample in zip(found, samples, strict=True):
        assert row.content == sample, codec
        assert row.timestamp_type == CREATE_TIME


@pytest.mark.parametrize("any_kafka", [REAL], indirect=True)
def test_broker_stores_our_batches_unchanged(kafka: KafkaCluster, ours_by_codec: dict[str, str]) -> None:
    """Kafka's own tool checks lengths and checksums, and prints the codec."""
    segments = {
        codec: str(*(kafka.brokers[1].data / f"{topic}-0").glob("*.log")) for codec, topic in ours_by_codec.items()
    }
    output = dump_log(Path(",".join(segments.values())))
    for codec, segment in segments.items():
        lines = output.partition(f"Dumping {segment}\n")[2].partition("Dumping ")[0].splitlines()
        batches = [line for line in lines if line.startswith("baseOffset: ")]
        assert batches
        assert all(f"compresscodec: {codec}" in line and "isvalid: true" in line for line in batches)


def test_all_clients_find_the_same_offsets(any_kafka: AnyKafka, topic: str) -> None:
    """We and kafka-python get the same offsets for timestamps, beginnings and ends."""
    import kafka as kafka_python

    any_kafka.create_topic(topic)
    Ours().write(any_kafka.bootstrap_servers, {topic: ("gzip", MANY)})
    asked = [AT - 5, AT, AT + 1500, AT + 2999, AT + 3000]
    theirs = kafka_python.KafkaConsumer(bootstrap_servers=any_kafka.bootstrap_servers)
    try:
        tp = kafka_python.TopicPartition(topic, 0)
        expected = [theirs.offsets_for_times({tp: at})[tp] for at in asked]
        expected_ends = theirs.beginning_offsets([tp])[tp], theirs.end_offsets([tp])[tp]
    finally:
        theirs.close()
    with KafkaConsumer[bytes, bytes](bootstrap_servers=any_kafka.bootstrap_servers) as ours:
        our_tp = TopicPartition(topic, 0)
        found = [ours.offsets_for_times({our_tp: at})[our_tp] for at in asked]
        found_ends = ours.beginning_offsets([our_tp])[our_tp], ours.end_offsets([our_tp])[our_tp]
    assert [row and tuple(row) for row in found] == [row and tuple(row) for row in expected]
    assert found_ends == expected_ends == (0, 3000)


@pytest.mark.java
def test_console_tools_exchange_records_with_us(any_kafka: AnyKafka, topic: str) -> None:
    any_kafka.create_topic(topic)
    console_producer(any_kafka.bootstrap_servers, topic, "a:1\nü:2\n".encode(), "--reader-property", "parse.key=true",
                     "--reader-property", "key.separator=:", "--compression-codec", "snappy")  # fmt: skip
    with KafkaProducer[bytes, bytes](
        bootstrap_servers=any_kafka.bootstrap_servers, compression_type="zstd"
    ) as producer:
        producer.send(topic, b"drei", "ß".encode(), [("h", b"1")])
    rows = Ours().read(any_kafka.bootstrap_servers, {topic: 3})[topic]
    assert [(row.key, row.value) for row in rows] == [(b"a", b"1"), ("ü".encode(), b"2"), ("ß".encode(), b"drei")]
    lines = console_consumer(any_kafka.bootstrap_servers, topic, 3, "--formatter-property", "print.key=true",
                             "--formatter-property", "print.headers=true")  # fmt: skip
    assert lines == [line.encode() for line in ("NO_HEADERS\ta\t1", "NO_HEADERS\tü\t2", "h:1\tß\tdrei")]
