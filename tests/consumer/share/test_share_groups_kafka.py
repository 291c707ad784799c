"""Share groups when something goes wrong: nothing is lost, and the consumer says what happened."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from pykclient import AcknowledgeType, KafkaProducer, KafkaShareConsumer
from pykclient.errors import InvalidRecordStateError, KafkaError
from pykclient.types import TopicIdPartition
from tests.consumer.share.share_groups import Consumer, Outcomes, Record, numbers, polls, produce, read, set_group
from tests.support.any_kafka import EMBEDDED, REAL, AnyKafka
from tests.support.embedded_kafka import EmbeddedKafka

Join = Callable[..., Consumer]

_EMBEDDED = {"group.share.heartbeat.interval.ms": 200}


@pytest.fixture(scope="module", params=[EMBEDDED, REAL])
def brokers(request: pytest.FixtureRequest) -> Iterator[AnyKafka]:
    """One broker, embedded or real."""
    if request.param == "real":
        yield request.getfixturevalue("kafka")
        return
    with EmbeddedKafka(1, _EMBEDDED) as embedded:
        yield embedded


@pytest.fixture
def join(topic: str, group_id: str) -> Iterator[Join]:
    """A factory of members of the test's group on a cluster, closed after the test."""
    made: list[Consumer] = []

    def start(cluster: AnyKafka, **settings: object) -> Consumer:
        consumer: Consumer = KafkaShareConsumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": group_id,
                "share.acknowledgement.mode": "explicit",
                **settings,
            },
            topic,
        )
        made.append(consumer)
        return consumer

    yield start
    for consumer in made:
        consumer.close()


def accept(_: Record) -> AcknowledgeType:
    return AcknowledgeType.ACCEPT


def test_expired_lock_delivers_records_again(brokers: AnyKafka, topic: str, group_id: str, join: Join) -> None:
    brokers.create_topic(topic)
    set_group(brokers, group_id, record_lock_duration_ms=1_000)
    produce(brokers, topic, 5)
    slow, other = join(brokers), join(brokers)
    outcomes = Outcomes()
    slow.set_acknowledgement_commit_callback(outcomes)
    records = read(slow, 5)
    assert slow.acquisition_lock_timeout_ms() == 1_000
    again = read(other, 5, accept)
    assert {record.delivery_count for record in again} == {2}
    for record in records:
        slow.acknowledge(record)
    (error,) = slow.commit_sync().values()
    assert isinstance(error, InvalidRecordStateError)
    assert outcomes.offsets(InvalidRecordStateError) == list(range(5))
    assert set(other.commit_sync().values()) == {None}
    # Kafka confirms what comes after other members have finished the records.
    produce(brokers, topic, 5, first=5)
    late = read(slow, 5)
    assert numbers(read(other, 5, accept)) == list(range(5, 10))
    assert set(other.commit_sync().values()) == {None}
    for record in late:
        slow.acknowledge(record)
    assert set(slow.commit_sync().values()) == {None}


def test_a_record_is_given_up_after_its_last_delivery(brokers: AnyKafka, topic: str, group_id: str, join: Join) -> None:
    brokers.create_topic(topic)
    set_group(brokers, group_id)
    produce(brokers, topic, 2)
    consumer = join(brokers)
    counts: list[int] = []
    for _, records in polls(consumer):
        for record in records:
            is_bad = record.value == b"0"
            consumer.acknowledge(record, AcknowledgeType.RELEASE if is_bad else AcknowledgeType.ACCEPT)
            counts += [record.delivery_count or 0] if is_bad else []
        if len(counts) == 5:
            break
    assert counts == [1, 2, 3, 4, 5]
    consumer.commit_sync()
    produce(brokers, topic, 1, first=2)
    assert numbers(read(consumer, 1, accept)) == [2]


def test_aborted_records_are_not_delivered(brokers: AnyKafka, topic: str, group_id: str, join: Join) -> None:
    brokers.create_topic(topic)
    set_group(brokers, group_id, isolation_level="read_committed")
    with KafkaProducer(bootstrap_servers=brokers.bootstrap_servers, transactional_id=topic) as producer:
        producer.init_transactions()
        for number in range(6):
            producer.begin_transaction()
            producer.send(topic, b"%d" % number)
            if number % 2:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    consumer = join(brokers)
    assert numbers(read(consumer, 3, accept)) == [1, 3, 5]
    assert set(consumer.commit_sync().values()) == {None}


DYING = """
import os, signal, sys
from pykclient import KafkaShareConsumer
consumer = KafkaShareConsumer(sys.argv[3], bootstrap_servers=sys.argv[1], group_id=sys.argv[2])
count = 0
while count < 10:
    count += sum(map(len, consumer.poll(1000).values()))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_records_of_a_killed_member_are_delivered_again(
    brokers: AnyKafka, topic: str, group_id: str, join: Join
) -> None:
    brokers.create_topic(topic)
    set_group(brokers, group_id)
    produce(brokers, topic, 10)
    command = [sys.executable, "-c", DYING, brokers.bootstrap_servers, group_id, topic]
    assert subprocess.run(command, timeout=60, check=False).returncode == -9
    start = time.monotonic()
    records = read(join(brokers), 10, accept)
    assert numbers(records) == list(range(10))
    assert {record.delivery_count for record in records} == {2}
    assert time.monotonic() - start < 25, "the end of the connection released the locks, which last 30 s"


@pytest.mark.slow
@pytest.mark.exhaustive
def test_nothing_is_lost_while_brokers_restart(any_cluster: AnyKafka, topic: str, group_id: str, join: Join) -> None:
    """Each record is processed at least once, and once its acknowledgement succeeded, it does not come again."""
    any_cluster.create_topic(topic, partitions=3)
    set_group(any_cluster, group_id, record_lock_duration_ms=5_000, heartbeat_interval_ms=500)
    members = [join(any_cluster) for _ in range(3)]
    produce(any_cluster, topic, 300, partitions=3)
    acknowledged: Counter[tuple[int, int]] = Counter()

    def acknowledged_offsets(offsets: dict[TopicIdPartition, set[int]], error: KafkaError | None) -> None:
        if error is None:
            acknowledged.update((tip.partition, offset) for tip, some in offsets.items() for offset in some)

    for member in members:
        member.set_acknowledgement_commit_callback(acknowledged_offsets)
    seen: set[int] = set()
    produced = 300
    for rounds, (member, records) in enumerate(polls(*members, timeout_s=120), 1):
        seen.update(numbers(records))
        for record in records:
            member.acknowledge(record)
        member.commit_sync(5_000)
        if rounds in (6, 12):
            any_cluster.brokers[1 + rounds // 6].restart()
            produce(any_cluster, topic, 150, first=produced, partitions=3)
            produced += 150
        if produced == 600 and len(seen) == 600 and len(acknowledged) >= 600:
            break
    assert seen == set(range(600))
    assert max(acknowledged.values()) == 1


def test_a_batch_of_the_log_exceeds_the_limit_of_locks(
    brokers: AnyKafka, topic: str, group_id: str, join: Join
) -> None:
    brokers.create_topic(topic)
    set_group(brokers, group_id, partition_max_record_locks=100)
    with KafkaProducer(bootstrap_servers=brokers.bootstrap_servers, linger_ms=60_000) as producer:
        for number in range(200):
            producer.send(topic, b"%d" % number)
    consumer = join(brokers, max_poll_records=500)
    first = next(records for _, records in polls(consumer) if records)
    assert len(first) == 200, "the batch stays whole"
