"""Brokers die, pause, hand over and return under a producer and a group. No record is lost or duplicated."""

from __future__ import annotations

import functools
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pykclient import KafkaConsumer, KafkaProducer
from pykclient.errors import KafkaTimeoutError
from pykclient.types import TopicPartition
from tests.chaos.verifier import ConsumerWorkload, ProducerWorkload, is_full, verify
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually

pytestmark = pytest.mark.slow


def test_producer_and_consumer_survive_leader_kills(any_cluster: AnyKafka, topic: str, group_id: str) -> None:
    """SIGKILL hits the broker that leads a partition and coordinates the group, while both are busy."""
    any_cluster.create_topic(topic, assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    servers = any_cluster.bootstrap_servers
    with ConsumerWorkload(servers, topic, group_id=group_id) as reader:
        with ProducerWorkload(servers, topic, partitions=3, acks="all") as load:
            load.await_acknowledged(300)
            reader.await_more(300)
            victim = coordinator_of(any_cluster, group_id)
            any_cluster.brokers[victim].kill()
            load.await_every_partition()
            reader.await_more(300)
            with load.gently():
                any_cluster.brokers[victim].start()
            load.await_every_partition()
        assert load.failures == []
        reader.await_reached(verify(servers, load))


def test_rolling_restart_under_load(any_cluster: AnyKafka, topic: str, group_id: str) -> None:
    """Brokers restart in turn, with five requests in flight, uncompressed and with lz4, read by a group of two."""
    servers = any_cluster.bootstrap_servers
    plain, packed = (any_cluster.create_topic(f"{topic}-{codec}", partitions=4) for codec in ("none", "lz4"))
    settings: dict[str, Any] = {"max_in_flight_requests_per_connection": 5, "linger_ms": 0, "batch_size": 1000}
    with (
        ConsumerWorkload(servers, plain, group_id=group_id) as reader,
        ConsumerWorkload(servers, plain, group_id=group_id) as second,
    ):
        with (
            ProducerWorkload(servers, plain, 4, compression_type="none", **settings) as load,
            ProducerWorkload(servers, packed, 4, compression_type="lz4", **settings) as packed_load,
        ):
            for broker in any_cluster.brokers.values():
                load.await_every_partition()
                packed_load.await_every_partition()
                broker.stop()
                load.await_every_partition()
                packed_load.await_every_partition()
                with load.gently(), packed_load.gently():
                    broker.start()
                    eventually(lambda: not any_cluster.out_of_sync(), 30.0, "every replica in sync")
        assert load.failures == packed_load.failures == []
        verify(servers, packed_load)
        reader.await_reached(verify(servers, load), second)


def test_leader_moves_under_load(any_cluster: AnyKafka, topic: str, group_id: str) -> None:
    """Leaders move by reassignment to a broker that had no replica, and by election, back and forth."""
    any_cluster.create_topic(topic, assignment=[[1, 2]])
    servers = any_cluster.bootstrap_servers
    with ConsumerWorkload(servers, topic, group_id=group_id) as reader:
        with ProducerWorkload(servers, topic, linger_ms=0) as load:
            for leader in (2, 3, 1, 2):
                load.await_acknowledged_more(200)
                any_cluster.move_leader(topic, 0, leader)
            load.await_acknowledged_more(200)
        assert load.failures == []
        reader.await_reached(verify(servers, load))


def test_leader_paused_longer_than_a_request_may_take(any_cluster: AnyKafka, topic: str, group_id: str) -> None:
    """A resumed broker finds the requests of both attempts in its sockets, and must write only one."""
    any_cluster.create_topic(topic, assignment=[[1, 2, 3]])
    servers = any_cluster.bootstrap_servers
    leader = any_cluster.brokers[1]
    settings: dict[str, Any] = {"request_timeout_ms": 1000, "socket_connection_setup_timeout_ms": 1000}
    with ConsumerWorkload(servers, topic, group_id=group_id, fetch_max_wait_ms=200, **settings) as reader:
        with ProducerWorkload(servers, topic, delivery_timeout_ms=60_000, **settings) as load:
            load.await_acknowledged(200)
            reader.await_more(100)
            expired = request_timeouts(load)
            leader.pause()
            try:
                eventually(lambda: request_timeouts(load) > expired, 30.0, "a request timed out")
            finally:
                leader.resume()
            load.await_acknowledged_more(200)
            # This time long enough for the others to elect another leader; the old one resumes deposed.
            leader.pause()
            try:
                load.await_acknowledged_more(300)
            finally:
                leader.resume()
            load.await_acknowledged_more(200)
        assert load.failures == []
        reader.await_reached(verify(servers, load))


def request_timeouts(load: ProducerWorkload) -> float:
    """Return how many of the producer's requests timed out; each costs a retry."""
    return float(load.producer.metrics()["producer-metrics"]["record-retry-total"])


@pytest.mark.parametrize("pause_s", [None, 2.5], ids=["killed", "killed while paused"])
def test_whole_cluster_down_with_records_buffered(any_cluster: AnyKafka, topic: str, pause_s: float | None) -> None:
    """A producer delivers once the brokers are back, unless delivery.timeout.ms expires; then the error says why.

    With ``pause_s`` the brokers are paused before the records are sent and killed ``pause_s`` seconds later, while they
    are still paused. 2.5 s are longer than request.timeout.ms, so the first requests have timed out by then.
    """
    any_cluster.create_topic(topic, partitions=2)
    servers = any_cluster.bootstrap_servers
    # By default a client that has lost all brokers discards its topics, and send() then waits until a broker is back.
    shared: dict[str, Any] = {"bootstrap_servers": servers, "linger_ms": 0, "metadata_recovery_strategy": "none"}
    patient: KafkaProducer[bytes, bytes] = KafkaProducer(**shared)
    impatient: KafkaProducer[bytes, bytes] = KafkaProducer(**shared, delivery_timeout_ms=4000, request_timeout_ms=2000)
    with patient, impatient:
        assert patient.send(topic, b"0", partition=0).get(20).offset == 0
        assert impatient.send(topic, b"0", partition=1).get(20).offset == 0
        with ThreadPoolExecutor(3) as pool:
            if pause_s is None:
                list(pool.map(lambda broker: broker.kill(), any_cluster.brokers.values()))
            else:
                list(pool.map(lambda broker: broker.pause(), any_cluster.brokers.values()))
            kept = [patient.send(topic, b"%d" % number, partition=0) for number in range(1, 200)]
            given_up = [impatient.send(topic, b"%d" % number, partition=1) for number in range(1, 20)]
            if pause_s is not None:
                time.sleep(pause_s)
                list(pool.map(lambda broker: broker.kill(), any_cluster.brokers.values()))
        with pytest.raises(KafkaTimeoutError) as failed:
            given_up[0].get(20)  # delivery.timeout.ms is two minutes by default
        assert f"{topic}-1 expired" in str(failed.value)
        assert "delivery.timeout.ms" in str(failed.value)
        assert "could not be reached" in str(failed.value)
        for future in given_up[1:]:  # a thread that waits has its own result before the later ones are there
            with pytest.raises(KafkaTimeoutError):
                future.get(20)
        assert not any(future.done() for future in kept)
        any_cluster.make_healthy()
        assert [future.get(60).offset for future in kept] == list(range(1, 200))
        # The impatient producer continues as well, although it does not know whether the expired records were written.
        last = impatient.send(topic, b"20", partition=1).get(20)
        for producer in (patient, impatient):
            eventually(functools.partial(is_full, producer), 30.0, "all memory is back")
    consumer: KafkaConsumer[bytes, bytes] = KafkaConsumer(bootstrap_servers=servers)
    with consumer:
        assert consumer.end_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 200}
        assert consumer.end_offsets([TopicPartition(topic, 1)]) == {TopicPartition(topic, 1): last.offset + 1}


def coordinator_of(cluster: AnyKafka, group_id: str) -> int:
    """Return the broker that coordinates a group."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    described = admin.describe_consumer_groups([group_id])[group_id].result(20)
    return int(described.coordinator.id)
