"""Other clients, unmodified, on three embedded brokers: all read what each writes, and groups and producers work."""

from __future__ import annotations

import pytest

from tests.interop.clients import JAVA_CLIENT, PEERS, Sample
from tests.interop.embedded.members import MEMBERS, share_and_take_over
from tests.kafka.tools import run_tool
from tests.support.embedded_kafka import EmbeddedKafka
from tests.support.java import run_java

AT = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
JAVA = pytest.param("java", marks=pytest.mark.java)
NAMES = [*(name for name in PEERS if name != "java"), JAVA]

SAMPLES = [
    *(Sample(b"k%d" % i, b"value %d" % i * 20, (("h", b"%d" % i),), AT + i) for i in range(200)),
    Sample(b"k", None, (), AT + 1000),
    Sample(b"big", b"x" * 400_000, (), AT + 1001),
]


@pytest.mark.parametrize("writer", NAMES)
def test_every_client_reads_records_of_every_client(cluster: EmbeddedKafka, topic: str, writer: str) -> None:
    """Every client reads what one wrote, with every codec, in three partitions on three brokers."""
    topics = {f"{topic}-{codec}": codec for codec in CODECS}
    for name in topics:
        cluster.create_topic(name, 3, replication=3)
    client = PEERS[writer]
    samples = [sample for sample in SAMPLES if client.can_write(sample)]
    client.write(cluster.bootstrap_servers, {name: (codec, samples) for name, codec in topics.items()})
    for reader in PEERS:
        if reader == "java" and writer != "java":
            continue  # once is enough: starting Java takes a second
        found = PEERS[reader].read(cluster.bootstrap_servers, dict.fromkeys(topics, len(samples)))
        for rows in found.values():
            assert sorted(row.content for row in rows) == sorted(samples), reader
            assert len({(row.partition, row.offset) for row in rows}) == len(samples)
            assert len({row.partition for row in rows}) == 3
            for partition in range(3):
                offsets = [row.offset for row in rows if row.partition == partition]
                assert offsets == list(range(len(offsets)))


# --- groups -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("peer", sorted(MEMBERS))
def test_members_share_and_one_takes_over(cluster: EmbeddedKafka, topic: str, group_id: str, peer: str) -> None:
    cluster.create_topic(topic, 4, replication=3)
    share_and_take_over(peer, cluster.bootstrap_servers, topic, group_id)


@pytest.mark.java
def test_java_consumer_group_reads_all_records(cluster: EmbeddedKafka, topic: str, group_id: str) -> None:
    cluster.create_topic(topic, 3, replication=3)
    servers = cluster.bootstrap_servers
    samples = [Sample(b"%d" % i, b"v") for i in range(60)]
    PEERS["java"].write(servers, {topic: ("zstd", samples)})
    seen = run_java(JAVA_CLIENT, "group", servers, group_id, topic, b"v".hex()).decode().splitlines()
    assert len(seen) == len(set(seen)) == 60
    described = run_tool(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", servers, "--describe", "--group", group_id),
    ).decode()
    assert (
        sum(line.split()[1] == topic and line.split()[5] == "0" for line in described.splitlines() if topic in line)
        == 3
    )


# --- producers --------------------------------------------------------------------------------------------------------


def test_idempotent_producers_of_other_clients_write_in_order(cluster: EmbeddedKafka, topic: str) -> None:
    from confluent_kafka import Producer
    from kafka import KafkaProducer

    cluster.create_topic(topic, 1, replication=3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "log_level": 2})
    for i in range(2_000):
        producer.produce(topic, b"%d" % i)
    assert producer.flush(30) == 0
    theirs = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, enable_idempotence=True)
    try:
        for i in range(2_000, 3_000):
            theirs.send(topic, b"%d" % i)
        theirs.flush(30)
    finally:
        theirs.close()
    rows = PEERS["confluent-kafka"].read(cluster.bootstrap_servers, {topic: 3_000})[topic]
    assert [row.value for row in rows] == [b"%d" % i for i in range(3_000)]


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_kafka_python_producer_writes_with_any_acks(cluster: EmbeddedKafka, topic: str, acks: int | str) -> None:
    from kafka import KafkaProducer

    cluster.create_topic(topic, 1, replication=3)
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks=acks, enable_idempotence=False)
    try:
        for i in range(5):
            producer.send(topic, b"%d" % i).get(20)
    finally:
        producer.close()
    rows = PEERS["kafka-python"].read(cluster.bootstrap_servers, {topic: 5})[topic]
    assert [(row.offset, row.value) for row in rows] == [(i, b"%d" % i) for i in range(5)]
