"""Transactions on real and embedded brokers of both generations, read back by confluent-kafka."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pykclient import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from pykclient.admin import Admin, FeatureUpdate, UpdateFeatureType
from pykclient.errors import (
    CommitFailedError,
    IllegalStateError,
    InvalidProducerEpochError,
    KafkaError,
    ProducerFencedError,
    RecordTooLargeError,
    TransactionAbortableError,
    TransactionAbortedError,
)
from pykclient.producer.transactions.transaction_steps import TRANSACTION, CoordinatorKey
from pykclient.types import ConsumerGroupMetadata
from tests.kafka.cluster import KafkaCluster
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually


def committed_values(bootstrap_servers: str, topic: str, count: int, timeout_s: float = 30.0) -> list[bytes]:
    """Read a topic to its end with confluent-kafka and read_committed: ``count`` values, by partition and offset."""
    from confluent_kafka import Consumer, TopicPartition as TheirPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": topic,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([TheirPartition(topic, partition, 0) for partition in partitions])
        found: list[tuple[int, int, bytes]] = []

        def complete() -> bool:
            for message in consumer.consume(5000, 0.3):
                assert message.error() is None
                found.append((message.partition(), message.offset(), message.value()))  # type: ignore[arg-type]
            return len(found) >= count

        eventually(complete, timeout_s, f"{count} committed records of {topic}")
        assert not consumer.consume(1, 0.3)
        return [value for _, _, value in sorted(found)]
    finally:
        consumer.close()


def transactional(servers: str, transactional_id: str, **settings: Any) -> KafkaProducer[Any, Any]:
    """Return a producer that has called ``init_transactions``."""
    producer: KafkaProducer[Any, Any] = KafkaProducer(
        bootstrap_servers=servers, transactional_id=transactional_id, **{"linger_ms": 0, **settings}
    )
    producer.init_transactions()
    return producer


@pytest.fixture(
    scope="module",  # a change takes seconds
    params=[2, 1, pytest.param(0, marks=pytest.mark.exhaustive)],
    ids=lambda version: f"transaction.version={version}",
)
def generation(request: pytest.FixtureRequest, kafka: KafkaCluster) -> Iterator[int]:
    """Real Kafka with a finalized transaction.version."""
    version: int = request.param
    set_transaction_version(kafka, version)
    yield version
    set_transaction_version(kafka, 2)


def set_transaction_version(kafka: KafkaCluster, version: int) -> None:
    """Finalize a transaction.version, unless it is the current one, and wait until a broker tells it."""
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:

        def current() -> int:
            return admin.describe_features().finalized.get("transaction.version", (0, 0))[1]

        if (before := current()) == version:
            return
        kind = UpdateFeatureType.UPGRADE if version > before else UpdateFeatureType.SAFE_DOWNGRADE
        assert not admin.update_features({"transaction.version": FeatureUpdate(version, kind)}).failed
        eventually(lambda: current() == version, 30, f"transaction.version={version}")


# --- committed and aborted -------------------------------------------------------------------------------------------


def commit_and_abort(servers: str, topic: str) -> None:
    with transactional(servers, topic) as producer:
        for number in range(6):
            producer.begin_transaction()
            futures = [producer.send(topic, b"%d-%02d" % (number, index), partition=index % 2) for index in range(20)]
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                assert all(future.succeeded() for future in futures)
        with pytest.raises(IllegalStateError, match="there is no transaction"):
            producer.send(topic, b"outside")


def check_committed(servers: str, topic: str) -> None:
    expected = [b"%d-%02d" % (number, index) for number in (0, 2, 4) for index in range(20)]
    assert sorted(committed_values(servers, topic, 60)) == expected
    with KafkaConsumer[Any, Any](
        bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        ours: list[bytes] = []

        def complete() -> bool:
            ours.extend(record.value or b"" for records in consumer.poll(300).values() for record in records)
            return len(ours) >= 60

        eventually(complete, 30, "60 committed records")
        assert sorted(ours) == expected


def test_only_committed_records_are_read(any_kafka: AnyKafka, topic: str) -> None:
    any_kafka.create_topic(topic, partitions=2)
    commit_and_abort(any_kafka.bootstrap_servers, topic)
    check_committed(any_kafka.bootstrap_servers, topic)


def test_transactions_work_with_every_generation_of_the_protocol(
    kafka: KafkaCluster, generation: int, topic: str
) -> None:
    kafka.create_topic(topic, partitions=2)
    commit_and_abort(kafka.bootstrap_servers, topic)
    check_committed(kafka.bootstrap_servers, topic)


def test_transaction_version_may_change_between_transactions(kafka: KafkaCluster, topic: str) -> None:
    kafka.create_topic(topic)
    set_transaction_version(kafka, 1)
    with transactional(kafka.bootstrap_servers, topic) as producer:
        seen = []
        for number, version in enumerate((1, 2, 2, 1, 1, 2)):
            set_transaction_version(kafka, version)
            with producer.transaction():
                producer.send(topic, b"%d" % number)
            seen.append(producer._components.transactions.is_v2)  # type: ignore[union-attr]
            # The features come with the next connection.
            producer._components.client.close_node("1")
    assert committed_values(kafka.bootstrap_servers, topic, 6) == [b"%d" % number for number in range(6)]
    assert len(set(seen)) == 2


def test_context_manager_commits_or_aborts(any_kafka: AnyKafka, topic: str) -> None:
    any_kafka.create_topic(topic)
    with transactional(any_kafka.bootstrap_servers, topic, linger_ms=60_000) as producer:
        with producer.transaction():
            producer.send(topic, b"1")
        unsent: list[Any] = []

        def fail() -> None:
            with producer.transaction():
                unsent.append(producer.send(topic, b"2"))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert isinstance(unsent[0].exception, TransactionAbortedError)
        with pytest.raises(TransactionAbortableError) as raised, producer.transaction():
            producer.send(topic, bytes(2_000_000), partition=0)
        assert isinstance(raised.value.__cause__, RecordTooLargeError)
        with producer.transaction():
            producer.send(topic, b"3")
    assert committed_values(any_kafka.bootstrap_servers, topic, 2) == [b"1", b"3"]


def test_send_batch_and_callbacks_work_in_transactions(any_kafka: AnyKafka, topic: str) -> None:
    any_kafka.create_topic(topic, partitions=3)
    heard: list[Exception | None] = []
    with transactional(any_kafka.bootstrap_servers, topic) as producer:
        with pytest.raises(IllegalStateError, match="there is no transaction"):
            producer.send_batch(topic, [b"outside"])
        with producer.transaction():
            batch = producer.send_batch(topic, [b"%03d" % index for index in range(500)])
            for index in range(500, 600):
                producer.send(topic, b"%03d" % index, on_delivery=lambda error, _: heard.append(error))
        assert batch.succeeded()
        assert heard == [None] * 100  # callbacks have run when the commit returns
    assert sorted(committed_values(any_kafka.bootstrap_servers, topic, 600)) == [b"%03d" % i for i in range(600)]


# --- offsets ---------------------------------------------------------------------------------------------------------


def test_offsets_are_committed_with_the_transaction(any_kafka: AnyKafka, topic: str) -> None:
    any_kafka.create_topic(topic, partitions=2)
    tp = TopicPartition(topic, 0)
    with (
        transactional(any_kafka.bootstrap_servers, topic) as producer,
        KafkaConsumer[Any, Any](bootstrap_servers=any_kafka.bootstrap_servers, group_id=topic) as reader,
    ):
        producer.begin_transaction()
        producer.send_offsets_to_transaction({tp: OffsetAndMetadata(5, "note")}, topic)
        producer.abort_transaction()
        assert reader.committed(tp) is None
        with producer.transaction():
            producer.send_offsets_to_transaction({tp: 7}, topic)
            producer.send_offsets_to_transaction({tp: OffsetAndMetadata(8, "note")}, ConsumerGroupMetadata(topic))
        assert reader.committed(tp) == 8


def test_offsets_of_stale_group_member_are_refused(any_kafka: AnyKafka, topic: str) -> None:
    any_kafka.create_topic(topic)
    servers = any_kafka.bootstrap_servers
    tp = TopicPartition(topic, 0)
    with (
        transactional(servers, topic) as producer,
        KafkaConsumer[Any, Any](topic, bootstrap_servers=servers, group_id=topic) as consumer,
    ):

        def assigned() -> bool:
            consumer.poll(100)
            return bool(consumer.assignment())

        eventually(assigned, 30)
        with producer.transaction():
            producer.send(topic, b"1")
            producer.send_offsets_to_transaction({tp: 1}, consumer.group_metadata())
        assert consumer.committed(tp) == 1
        stale = consumer.group_metadata()._replace(generation_id=consumer.group_metadata().generation_id - 1)

        def commit_stale() -> None:
            with producer.transaction():
                producer.send(topic, b"2")
                producer.send_offsets_to_transaction({tp: 2}, stale)

        with pytest.raises(CommitFailedError, match=r"has rebalanced .*[^.]\. Abort the transaction"):
            commit_stale()
        assert consumer.committed(tp) == 1
    assert committed_values(servers, topic, 1) == [b"1"]


# --- zombies ---------------------------------------------------------------------------------------------------------


def fence(servers: str, topic: str) -> None:
    with transactional(servers, topic) as zombie, transactional(servers, f"{topic}-other") as bystander:
        zombie.begin_transaction()
        zombie.send(topic, b"zombie").get(20)
        with transactional(servers, topic) as successor:  # aborts the zombie's transaction
            with successor.transaction():
                successor.send(topic, b"successor")
            zombie.send(topic, b"zombie again")
            with pytest.raises((ProducerFencedError, InvalidProducerEpochError)):
                zombie.commit_transaction()
            with pytest.raises(ProducerFencedError):
                zombie.abort_transaction()
            with pytest.raises(ProducerFencedError, match="Close this producer"):
                zombie.begin_transaction()
            with successor.transaction(), bystander.transaction():
                successor.send(topic, b"successor 2")
                bystander.send(topic, b"bystander")
    assert sorted(committed_values(servers, topic, 3)) == [b"bystander", b"successor", b"successor 2"]


def test_a_zombie_is_fenced(any_kafka: AnyKafka, topic: str) -> None:
    any_kafka.create_topic(topic)
    fence(any_kafka.bootstrap_servers, topic)


def test_a_zombie_is_fenced_in_every_generation(kafka: KafkaCluster, generation: int, topic: str) -> None:
    kafka.create_topic(topic)
    fence(kafka.bootstrap_servers, topic)


def test_a_zombie_that_only_commits_offsets_is_fenced(any_kafka: AnyKafka, topic: str) -> None:
    any_kafka.create_topic(topic)
    servers = any_kafka.bootstrap_servers
    tp = TopicPartition(topic, 0)
    with transactional(servers, topic) as zombie:
        zombie.begin_transaction()
        with transactional(servers, topic) as successor, successor.transaction():
            successor.send_offsets_to_transaction({tp: 9}, topic)
        with pytest.raises(ProducerFencedError):
            zombie.send_offsets_to_transaction({tp: 1}, topic)
    with KafkaConsumer[Any, Any](bootstrap_servers=servers, group_id=topic) as reader:
        assert reader.committed(tp) == 9


def test_a_transaction_that_is_open_for_too_long_is_aborted(kafka: KafkaCluster, generation: int, topic: str) -> None:
    """The first generation fences the producer; in the second, an abort is enough to go on."""
    kafka.create_topic(topic)
    servers = kafka.bootstrap_servers
    with transactional(servers, topic, transaction_timeout_ms=100) as producer:
        producer.begin_transaction()
        producer.send(topic, b"late").get(20)

        def aborted() -> bool:
            try:
                producer.send(topic, b"later").get(20)
            except KafkaError:
                return True
            return False

        eventually(aborted, 30, "the coordinator has aborted the transaction")
        with pytest.raises(InvalidProducerEpochError, match="can only be aborted"):
            producer.commit_transaction()
        if generation < 2:
            with pytest.raises(ProducerFencedError, match=r"longer than transaction\.timeout\.ms = 100"):
                producer.abort_transaction()
        else:
            producer.abort_transaction()
            with producer.transaction():
                producer.send(topic, b"after")
    with transactional(servers, topic) as producer, producer.transaction():
        producer.send(topic, b"new")
    expected = [b"new"] if generation < 2 else [b"after", b"new"]
    assert committed_values(servers, topic, len(expected)) == expected


# --- failures of brokers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.exhaustive)])
def test_a_broker_that_dies_during_transactions(any_cluster: AnyKafka, topic: str, kills: int) -> None:
    """The coordinator is killed, and then each other broker; each transaction is committed once."""
    any_cluster.create_topic(topic, partitions=3)
    any_cluster.create_topic(f"{topic}-in")
    source = TopicPartition(f"{topic}-in", 0)
    committed: list[bytes] = []
    with transactional(any_cluster.bootstrap_servers, topic) as producer:
        number = 0

        def run(count: int) -> None:
            nonlocal number
            for _ in range(count):
                values = [b"%03d-%d" % (number, partition) for partition in range(3)]
                number += 1
                with producer.transaction():
                    for partition, value in enumerate(values):
                        producer.send(topic, value, partition=partition)
                    producer.send_offsets_to_transaction({source: number}, topic)
                committed.extend(values)

        run(5)
        manager = producer._components.transactions
        assert manager is not None
        coordinator = manager.dialogue.coordinator(CoordinatorKey(TRANSACTION, topic))
        assert coordinator is not None
        brokers = sorted(any_cluster.brokers.values(), key=lambda broker: broker.id != coordinator.id)
        for broker in brokers[:kills]:
            producer.begin_transaction()
            producer.send(topic, b"aborted", partition=0)
            broker.kill()
            producer.abort_transaction()
            run(5)
            broker.start()
            any_cluster.make_healthy()
    assert sorted(committed_values(any_cluster.bootstrap_servers, topic, len(committed))) == sorted(committed)
    with KafkaConsumer[Any, Any](bootstrap_servers=any_cluster.bootstrap_servers, group_id=topic) as reader:
        assert reader.committed(source) == 5 + 5 * kills


def test_close_aborts_the_open_transaction(any_kafka: AnyKafka, topic: str) -> None:
    any_kafka.create_topic(topic)
    servers = any_kafka.bootstrap_servers
    producer = transactional(servers, topic)
    producer.begin_transaction()
    future = producer.send(topic, b"open")
    producer.close()
    assert future.done()
    with transactional(servers, f"{topic}-2") as other, other.transaction():
        other.send(topic, b"next")
    assert committed_values(servers, topic, 1) == [b"next"]  # read_committed does not wait for the first one
