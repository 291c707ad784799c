"""Group members and readers of replicas while their coordinator or broker is down."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pykclient import KafkaConsumer, KafkaProducer
from pykclient.errors import KafkaError, KafkaTimeoutError
from pykclient.types import OffsetAndMetadata, TopicPartition
from tests.chaos.test_brokers import coordinator_of
from tests.chaos.verifier import ProducerWorkload, verify
from tests.support.any_kafka import EMBEDDED, REAL, AnyKafka
from tests.support.calls import counted_calls
from tests.support.embedded_kafka import EmbeddedKafka
from tests.support.wait import eventually

pytestmark = pytest.mark.slow

HEARTBEATS = "kafka-coordinator-heartbeat-thread"


def heartbeats() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(HEARTBEATS)]


@pytest.fixture(params=[EMBEDDED, REAL])
def slow_to_notice(request: pytest.FixtureRequest) -> Iterator[AnyKafka]:
    """Three brokers that need some seconds to notice a dead one, as real brokers do."""
    if request.param == "real":
        yield request.getfixturevalue("kafka_cluster")
        return
    with EmbeddedKafka(3, {"zookeeper.session.timeout.ms": "3000"}) as cluster:
        yield cluster


def test_commit_succeeds_while_the_coordinator_changes(slow_to_notice: AnyKafka, topic: str, group_id: str) -> None:
    """commit() retries until another broker has taken over; the heartbeat thread keeps the member in the group."""
    slow_to_notice.create_topic(topic)
    servers = slow_to_notice.bootstrap_servers
    tp = TopicPartition(topic, 0)
    c: KafkaConsumer[bytes, bytes] = KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group_id,
        session_timeout_ms=20_000,
        heartbeat_interval_ms=200,
        enable_auto_commit=False,
    )
    with c:

        def joined() -> bool:
            c.poll(timeout_ms=100)
            return bool(c.assignment())

        eventually(joined, 30.0, "a member", every_s=0)
        member = c.group_metadata()
        (thread,) = heartbeats()
        coordinator = coordinator_of(slow_to_notice, group_id)
        slow_to_notice.brokers[coordinator].kill()
        start = time.monotonic()
        with counted_calls() as calls:
            with pytest.raises(KafkaTimeoutError, match="commit"):  # the failover takes longer than this
                c.commit({tp: 1}, timeout_ms=500)
            assert time.monotonic() - start < 30.0, "no default, which is a minute"
            c.commit({tp: OffsetAndMetadata(7)}, timeout_ms=60_000)
        took_s = time.monotonic() - start
        # The consumer makes 10,000 calls per second; a core has time for a million.
        assert calls.of(threading.current_thread()) < 60_000 * (took_s + 0.5)
        assert c.committed(tp) == 7
        assert coordinator_of(slow_to_notice, group_id) != coordinator
        assert c.group_metadata() == member, "still the same member of the same generation"
        assert heartbeats() == [thread]
        c.commit({tp: 8})
        c.poll(timeout_ms=100)
        assert c.assignment() == {tp}
        assert c.group_metadata() == member


def test_consumer_continues_from_leader_after_closest_replica_dies(any_cluster: AnyKafka, topic: str) -> None:
    """KIP-392: a consumer of a follower in its own rack continues from the leader, without a gap or a repeat."""
    any_cluster.create_topic(topic, assignment=[[1, 2, 3]])
    servers = any_cluster.bootstrap_servers
    tp = TopicPartition(topic, 0)
    c: KafkaConsumer[bytes, bytes] = KafkaConsumer(
        bootstrap_servers=servers,
        client_rack="rack-3",
        auto_offset_reset="earliest",
        metadata_max_age_ms=1000,
        request_timeout_ms=5000,
        fetch_max_wait_ms=100,
    )
    offsets: list[int] = []
    with c:
        c.assign([tp])

        def read(count: int) -> bool:
            offsets.extend(record.offset for records in c.poll(timeout_ms=100).values() for record in records)
            return len(offsets) >= count

        def from_follower() -> bool:
            read(0)
            return c._consumer.components.subscriptions.preferred_read_replica(tp) == 3

        with ProducerWorkload(servers, topic) as load:
            eventually(from_follower, 30.0, "reads from the replica in its rack", every_s=0)
            read(len(offsets) + 100)
            any_cluster.brokers[3].kill()
            goal = len(offsets) + 300
            eventually(lambda: read(goal), 30.0, "reads on from the leader", every_s=0)
            load.await_acknowledged_more(50)
        (log,) = verify(servers, load).values()
        eventually(lambda: read(len(log)), 30.0, "all of it", every_s=0)
        assert offsets == [record.offset for record in log]


def test_dead_leaders_of_unread_partitions_do_not_delay_others(any_cluster: AnyKafka, topic: str) -> None:
    """One partition's only broker is paused; the consumer keeps reading the other partitions."""
    any_cluster.create_topic(topic, assignment=[[1], [2], [3]], config={"min.insync.replicas": 1})
    servers = any_cluster.bootstrap_servers
    partitions = [TopicPartition(topic, partition) for partition in range(3)]
    settings: dict[str, Any] = {"bootstrap_servers": servers, "request_timeout_ms": 2000}
    c: KafkaConsumer[bytes, bytes] = KafkaConsumer(**settings, auto_offset_reset="earliest", fetch_max_wait_ms=100)
    p: KafkaProducer[bytes, bytes] = KafkaProducer(**settings, linger_ms=0)
    read: dict[TopicPartition, int] = dict.fromkeys(partitions, 0)
    with c, p:
        c.assign(partitions)

        def reads(*wanted: tuple[int, int]) -> bool:
            for tp, records in c.poll(timeout_ms=100).items():
                assert records[0].offset == read[tp]
                read[tp] += len(records)
            return all(read[partitions[partition]] >= count for partition, count in wanted)

        def send(*numbers: int) -> None:
            for number in numbers:
                p.send(topic, b"x", partition=number).get(20)

        send(0, 1, 2)
        eventually(lambda: reads((0, 1), (1, 1), (2, 1)), 30.0, "one record each", every_s=0)
        any_cluster.brokers[3].pause()
        try:
            for count in range(2, 6):
                send(0, 1)
                eventually(lambda count=count: reads((0, count), (1, count)), 30.0, "reads on", every_s=0)  # type: ignore[misc]
        finally:
            any_cluster.brokers[3].resume()
        eventually(lambda: _sent(p, topic), 30.0, "the paused broker leads again")
        eventually(lambda: reads((2, 2)), 30.0, "and is read", every_s=0)


def _sent(p: KafkaProducer[bytes, bytes], topic: str) -> bool:
    try:
        p.send(topic, b"x", partition=2).get(10)
    except KafkaError:
        return False
    return True
