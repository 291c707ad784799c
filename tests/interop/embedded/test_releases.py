"""All clients on brokers that emulate older releases. They fall back, and lose only features that did not exist yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pykclient import KafkaConsumer, KafkaProducer, TopicPartition
from pykclient.errors import UnsupportedVersionError
from pykclient.testing import EmbeddedCluster
from pykclient.testing.release_profiles import ReleaseProfile
from tests.interop.clients import PEERS, Java, Ours, Sample
from tests.interop.embedded.members import MEMBERS, share_and_take_over
from tests.kafka import artifacts

AT = 1_700_000_000_000
OLD = ("0.10.0", "0.10.1", "0.10.2")
RELEASES = [release for release in ReleaseProfile.releases() if release not in OLD]
SAMPLES = [Sample(b"k%d" % i, b"value %d" % i * 10, (), AT + i) for i in range(50)]


@pytest.fixture(scope="module")
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def broker(release: str) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1, release=release) as broker:
        yield broker


def codecs(release: str) -> list[str]:
    """Return the codecs of a release; zstd came with 2.1 (KIP-110)."""
    known = ["none", "gzip", "snappy", "lz4"]
    return known if release.startswith(("0.", "1.", "2.0")) else [*known, "zstd"]


@pytest.mark.parametrize("release", RELEASES, indirect=True)
def test_transactions_work_with_every_release_since_0_11(broker: EmbeddedCluster, topic: str, group_id: str) -> None:
    broker.create_topic(topic)
    source = TopicPartition(topic, 0)
    servers = broker.bootstrap_servers
    with KafkaProducer[bytes, bytes](bootstrap_servers=servers, transactional_id=topic) as producer:
        producer.init_transactions()
        for number in range(3):
            producer.begin_transaction()
            producer.send(topic, b"%d" % number)
            producer.send_offsets_to_transaction({source: number}, group_id)
            if number == 1:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    with KafkaConsumer[bytes, bytes](
        topic,
        bootstrap_servers=servers,
        group_id=group_id,
        isolation_level="read_committed",
        consumer_timeout_ms=20_000,
    ) as consumer:
        assert next(consumer).value == b"2"  # the group's offset is 2, that of the aborted record
        assert consumer.committed(source) == 2


@pytest.mark.parametrize("release", RELEASES, indirect=True)
def test_records_round_trip_with_every_release_since_0_11(
    broker: EmbeddedCluster, release: str, topic: str, group_id: str
) -> None:
    broker.create_topic(topic)
    expected = []
    for codec in codecs(release):
        with KafkaProducer[bytes, bytes](
            bootstrap_servers=broker.bootstrap_servers, compression_type=codec
        ) as producer:
            for i in range(50):
                value = b"%s %d" % (codec.encode(), i)
                producer.send(topic, value, headers=[("h", b"1")], timestamp_ms=AT + i)
                expected.append((value, (("h", b"1"),), AT + i))
    settings: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers, "auto_offset_reset": "earliest"}
    with KafkaConsumer[bytes, bytes](topic, group_id=group_id, consumer_timeout_ms=20_000, **settings) as consumer:
        records = [next(consumer) for _ in expected]
        consumer.commit()
        assert consumer.committed(TopicPartition(topic, 0)) == len(expected)
        assert consumer.end_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): len(expected)}
    assert [(record.value, tuple(record.headers), record.timestamp) for record in records] == expected


@pytest.mark.parametrize("release", OLD, indirect=True)
def test_older_releases_are_refused_with_a_reason(broker: EmbeddedCluster, topic: str) -> None:
    """Releases before 2.1 are refused with a reason; current Java clients do not support them either."""
    broker.create_topic(topic)
    with (
        KafkaProducer[bytes, bytes](bootstrap_servers=broker.bootstrap_servers) as producer,
        pytest.raises(UnsupportedVersionError, match=r"PRODUCE|INIT_PRODUCER_ID"),
    ):
        producer.send(topic, b"v").get(10)


@pytest.mark.parametrize("release", ["0.10.0", "0.10.2", "0.11", "1.1", "2.1", "2.4", "2.8", "3.9"], indirect=True)
@pytest.mark.parametrize("peer", ["confluent-kafka", "kafka-python", "aiokafka"])
def test_others_round_trip_records(broker: EmbeddedCluster, release: str, topic: str, peer: str) -> None:
    topics = {f"{topic}-{codec}": codec for codec in codecs(release)}
    client = PEERS[peer]
    for name in topics:
        broker.create_topic(name)
    client.write(broker.bootstrap_servers, {name: (codec, SAMPLES) for name, codec in topics.items()})
    for name, rows in client.read(broker.bootstrap_servers, dict.fromkeys(topics, len(SAMPLES))).items():
        assert [row.content for row in rows] == SAMPLES, name
    if not release.startswith("0.10."):
        for rows in Ours().read(broker.bootstrap_servers, dict.fromkeys(topics, len(SAMPLES))).values():
            assert [row.content for row in rows] == SAMPLES


@pytest.mark.java
@pytest.mark.parametrize(
    ("release", "version"),
    [("1.1", "2.1.1"), ("1.1", "3.9.1"), ("2.1", artifacts.KAFKA_VERSION), ("4.3", "2.1.1")],
    indirect=["release"],
)
def test_clients_of_java_old_and_new(broker: EmbeddedCluster, release: str, topic: str, version: str) -> None:
    """Current clients support releases since 2.1, and clients since 2.1 support current brokers (KIP-896)."""
    topics = {f"{topic}-{codec}": codec for codec in codecs(release)}
    for name in topics:
        broker.create_topic(name)
    client = Java(version)
    client.write(broker.bootstrap_servers, {name: (codec, SAMPLES) for name, codec in topics.items()})
    for name, rows in client.read(broker.bootstrap_servers, dict.fromkeys(topics, len(SAMPLES))).items():
        assert [row.content for row in rows] == SAMPLES, name


@pytest.mark.parametrize("release", ["0.10.0", "0.11", "2.1", "2.8"], indirect=True)
@pytest.mark.parametrize("peer", sorted(MEMBERS))
def test_others_share_groups(broker: EmbeddedCluster, topic: str, group_id: str, peer: str) -> None:
    broker.create_topic(topic, 4)
    share_and_take_over(peer, broker.bootstrap_servers, topic, group_id)


@pytest.mark.parametrize("release", ["0.10.0", "0.10.2"], indirect=True)
def test_fixed_release_works_without_api_versions(broker: EmbeddedCluster, release: str, topic: str) -> None:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition as Partition

    broker.create_topic(topic)
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap_servers,
        "api.version.request": False,
        "broker.version.fallback": "0.9.0" if release == "0.10.0" else release,
        "log_level": 2,
    }
    producer = Producer(settings)
    for i in range(20):
        producer.produce(topic, b"%d" % i)
    assert producer.flush(20) == 0
    consumer = Consumer({**settings, "group.id": "unused"})
    consumer.assign([Partition(topic, 0, OFFSET_BEGINNING)])
    try:
        found: list[bytes | None] = []
        while len(found) < 20:
            messages = consumer.consume(20, 10)
            assert messages
            found += [message.value() for message in messages]
    finally:
        consumer.close()
    assert found == [b"%d" % i for i in range(20)]


@pytest.mark.parametrize("message_format", ["0.9.0", "0.10.0"])
def test_records_in_old_formats_survive_their_leader(topic: str, message_format: str) -> None:
    """Records in old formats survive a leader change, although followers find no leader epochs in them."""
    tp = TopicPartition(topic, 0)
    with EmbeddedCluster(brokers=3, release="2.1") as cluster:
        configs = {"message.format.version": message_format, "min.insync.replicas": "2"}
        cluster.create_topic(topic, 1, 3, configs=configs)
        with KafkaProducer[bytes, bytes](
            bootstrap_servers=cluster.bootstrap_servers,
            enable_idempotence=False,
            acks="all",
            max_in_flight_requests_per_connection=1,
        ) as producer:
            for number in range(2):
                futures = [producer.send(topic, b"%d" % i) for i in range(100 * number, 100 * number + 100)]
                for future in futures:
                    future.get(20)
                leader = cluster.state().partitions[tp].leader
                assert leader is not None
                cluster.kill(leader)
                producer.send(topic, b"after").get(20)
                cluster.restart(leader)
        with KafkaConsumer[bytes, bytes](
            bootstrap_servers=cluster.bootstrap_servers, consumer_timeout_ms=20_000
        ) as consumer:
            consumer.assign([tp])
            consumer.seek_to_beginning()
            found = [next(consumer).value for _ in range(202)]
    assert [value for value in found if value != b"after"] == [b"%d" % i for i in range(200)]
