"""librdkafka's mock brokers, an independent implementation of the broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from pykclient import KafkaConsumer, KafkaProducer, TopicPartition
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.api_table import API_TABLE

#: The newest usable versions. The brokers offer newer ones of these APIs, but then read and write them without their
#: compact lengths. librdkafka itself uses older versions, so it does not notice.
SOUND = {ApiKeys.JOIN_GROUP: 5, ApiKeys.HEARTBEAT: 3, ApiKeys.LEAVE_GROUP: 1, ApiKeys.SYNC_GROUP: 3}


@pytest.fixture(scope="module")
def mock_brokers() -> Iterator[str]:
    host = confluent_kafka.Producer({"test.mock.num.brokers": 3, "log_level": 2})
    brokers = host.list_topics(timeout=10).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    host.flush(1)  # keeps ``host``, and so the brokers, alive until here


@pytest.mark.parametrize("acks", ["all", 1])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_survive_a_round_trip_through_a_mock_broker(
    mock_brokers: str, topic: str, codec: str, acks: Any
) -> None:
    settings = {"compression_type": codec, "acks": acks, "enable_idempotence": acks == "all", "linger_ms": 5}
    with KafkaProducer[bytes, bytes](bootstrap_servers=mock_brokers, **settings) as producer:
        futures = [producer.send(topic, b"%d" % i, b"k%d" % i, [("h", b"1")], timestamp_ms=i + 1) for i in range(1000)]
    sent = {(f.get(0).partition, f.get(0).offset): i for i, f in enumerate(futures)}
    with KafkaConsumer[bytes, bytes](
        topic, bootstrap_servers=mock_brokers, auto_offset_reset="earliest", consumer_timeout_ms=20_000
    ) as consumer:
        for _ in range(1000):
            record = next(consumer)
            i = sent.pop((record.partition, record.offset))
            assert (record.key, record.value, record.timestamp) == (b"k%d" % i, b"%d" % i, i + 1)
            assert list(record.headers) == [("h", b"1")]
    assert not sent


def test_group_of_one_reads(mock_brokers: str, topic: str, group_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for api, latest in SOUND.items():
        name, oldest, _, _, *rest = API_TABLE[api]
        monkeypatch.setitem(API_TABLE, api, (name, oldest, latest, latest, *rest))
    with KafkaProducer[bytes, bytes](bootstrap_servers=mock_brokers) as producer:
        count = len(producer.partitions_for(topic))
        for i in range(10 * count):
            producer.send(topic, b"%d" % i, partition=i % count)
    settings: dict[str, Any] = {
        "bootstrap_servers": mock_brokers,
        "group_id": group_id,
        "auto_offset_reset": "earliest",
        "consumer_timeout_ms": 20_000,
    }
    tps = [TopicPartition(topic, number) for number in range(count)]
    with KafkaConsumer[bytes, bytes](topic, **settings) as first:
        seen = [next(first).value for _ in range(7 * count)]
        assert first.assignment() == set(tps)
        positions = {tp: first.position(tp) for tp in tps}
    with KafkaConsumer[bytes, bytes](**settings) as second:
        second.assign(tps)  # the brokers never respond to a second member
        assert {tp: second.committed(tp) or 0 for tp in tps} == positions
        seen += [next(second).value for _ in range(3 * count)]
    assert sorted(int(value or b"") for value in seen) == list(range(10 * count))


@pytest.mark.parametrize("round_trip_ms", [0, 200])
def test_producer_works_with_slow_brokers(topic: str, round_trip_ms: int) -> None:
    """The producer works with a delay of every response, the only fault that the Python interface can inject."""
    host = confluent_kafka.Producer({"test.mock.num.brokers": 1, "test.mock.broker.rtt": round_trip_ms, "log_level": 2})
    (broker,) = host.list_topics(timeout=20).brokers.values()
    with KafkaProducer[bytes, bytes](bootstrap_servers=f"{broker.host}:{broker.port}") as producer:
        futures = [producer.send(topic, b"%d" % i, partition=0) for i in range(2000)]
        producer.flush(30)
        assert [f.get(0).offset for f in futures] == list(range(2000))
    host.flush(1)
