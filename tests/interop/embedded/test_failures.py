"""Other clients survive failures of embedded brokers as they survive those of real ones."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from pykclient import TopicPartition
from pykclient.testing import EmbeddedCluster
from tests.interop.embedded.members import MEMBERS, Member
from tests.support.wait import eventually

COUNT = 2_000

pytestmark = pytest.mark.timeout(120)


def open_sockets() -> list[socket.socket]:
    # Compare types: isinstance() asks the object for its class, and a weak proxy of a dead object raises.
    return [thing for thing in gc.get_objects() if type(thing) is socket.socket and thing.fileno() >= 0]


@pytest.fixture
def forgotten_sockets_closed() -> Iterator[None]:
    """Close the sockets of refused connections, which kafka-python leaks."""
    before = open_sockets()
    yield
    for forgotten in open_sockets():
        if forgotten not in before:
            forgotten.close()


@pytest.fixture
def cluster(forgotten_sockets_closed: None) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3, config={"min.insync.replicas": 2, "offsets.topic.num.partitions": 1}) as cluster:
        yield cluster


def confluent_writes(servers: str, topic: str, pause: Callable[[int], None]) -> None:
    from confluent_kafka import Producer

    errors = []
    producer = Producer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "retry.backoff.ms": 20, "log_level": 0}
    )
    for i in range(COUNT):
        producer.produce(topic, b"%d" % i, partition=0, on_delivery=lambda error, _: errors.append(error))
        producer.poll(0)
        pause(i)
    assert producer.flush(60) == 0
    assert errors == [None] * COUNT


def kafka_python_writes(servers: str, topic: str, pause: Callable[[int], None]) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=servers, enable_idempotence=True, retry_backoff_ms=20)
    try:
        futures = []
        for i in range(COUNT):
            futures.append(producer.send(topic, b"%d" % i, partition=0))
            pause(i)
        for future in futures:
            future.get(60)
    finally:
        producer.close(10)


def aiokafka_writes(servers: str, topic: str, pause: Callable[[int], None]) -> None:
    async def main() -> None:
        from aiokafka import AIOKafkaProducer

        async with AIOKafkaProducer(
            bootstrap_servers=servers, enable_idempotence=True, retry_backoff_ms=20
        ) as producer:
            futures = []
            for i in range(COUNT):
                futures.append(await producer.send(topic, b"%d" % i, partition=0))
                await asyncio.to_thread(pause, i)
            await asyncio.gather(*futures)

    asyncio.run(main())


WRITERS = {"confluent-kafka": confluent_writes, "kafka-python": kafka_python_writes, "aiokafka": aiokafka_writes}


@pytest.mark.parametrize("peer", sorted(WRITERS))
def test_records_survive_broker_deaths(cluster: EmbeddedCluster, topic: str, group_id: str, peer: str) -> None:
    """Each broker dies once, also as coordinator.

    Idempotent records are in the log once each and in order, and a group member reads all of them.
    """
    cluster.create_topic(topic, 1, 3)
    servers = cluster.bootstrap_servers
    deaths = threading.Thread(target=each_dies, args=(cluster, topic), daemon=True)

    def pause(i: int) -> None:
        if i == COUNT // 10:
            deaths.start()
        if i % 20 == 0 and deaths.is_alive():
            deaths.join(0.05)

    with Member(MEMBERS[peer](servers, topic, group_id)) as member:
        eventually(lambda: member.error or member.assigned, 30.0, "an assignment")
        WRITERS[peer](servers, topic, pause)
        deaths.join(60)
        assert not deaths.is_alive()
        eventually(lambda: member.error or len(set(member.values)) == COUNT, 60.0, "all records")
    values = [record.value for record in cluster.log(TopicPartition(topic, 0))]
    assert values == [b"%d" % i for i in range(COUNT)]


def each_dies(cluster: EmbeddedCluster, topic: str) -> None:
    tp = TopicPartition(topic, 0)
    for broker in cluster.broker_ids:

        def led_by_another(dead: int = broker) -> bool:
            return cluster.state().partitions[tp].leader not in (None, dead)

        cluster.kill(broker)
        cluster.wait_for(led_by_another, 20_000, "another leader")
        cluster.restart(broker)
        cluster.wait_for(lambda: len(cluster.state().partitions[tp].isr) == 3, 20_000, "all replicas in sync")
