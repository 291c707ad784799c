"""Transactional producers of other clients, unmodified, on three embedded brokers, in both generations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import aiokafka
import confluent_kafka
import kafka as kafka_python
import pytest
from confluent_kafka import KafkaException

from tests.interop.clients import JAVA_CLIENT, TRANSACTIONAL_COPY
from tests.support.embedded_kafka import EmbeddedKafka
from tests.support.java import run_java
from tests.support.wait import eventually

#: For each transaction: true if it is committed, and its values.
Transactions = Sequence[tuple[bool, Sequence[bytes]]]
Write = Callable[[str, str, Transactions], None]
Copy = Callable[[str, str, str, str, int], None]

TRANSACTIONS: Transactions = [
    (number % 3 != 1, [b"%d-%d" % (number, index) for index in range(10)]) for number in range(7)
]
COUNT = 40
JAVA = pytest.mark.java
#: ``tests/interop/test_transactions.py`` has the same of Java.
MORE_JAVA = (pytest.mark.java, pytest.mark.exhaustive)


@pytest.fixture(scope="module", params=[2, pytest.param(0, marks=pytest.mark.exhaustive)])
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(brokers=3, transaction_version=request.param) as cluster:
        yield cluster


def _confluent_producer(servers: str, transactional_id: str) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "transactional.id": transactional_id, "log_level": 0}
    )
    producer.init_transactions(30)
    return producer


def confluent(servers: str, topic: str, transactions: Transactions) -> None:
    producer = _confluent_producer(servers, topic)
    for committed, values in transactions:
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value)
        assert producer.flush(30) == 0
        (producer.commit_transaction if committed else producer.abort_transaction)(30)


def with_kafka_python(servers: str, topic: str, transactions: Transactions) -> None:
    producer = kafka_python.KafkaProducer(bootstrap_servers=servers, transactional_id=topic)
    producer.init_transactions()
    for committed, values in transactions:
        producer.begin_transaction()
        for value in values:
            producer.send(topic, value)
        producer.flush(30)
        (producer.commit_transaction if committed else producer.abort_transaction)()
    producer.close()


def with_aiokafka(servers: str, topic: str, transactions: Transactions) -> None:
    async def write() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id=topic) as producer:
            for committed, values in transactions:
                await producer.begin_transaction()
                for value in values:
                    await producer.send(topic, value)
                await producer.flush()
                await (producer.commit_transaction() if committed else producer.abort_transaction())

    asyncio.run(write())


def java(servers: str, topic: str, transactions: Transactions) -> None:
    lines = [
        "\t".join(("commit" if committed else "abort", ",".join(value.hex() for value in values)))
        for committed, values in transactions
    ]
    run_java(JAVA_CLIENT, "transactions", servers, topic, stdin="\n".join(lines).encode())


def read_by_confluent(servers: str, topic: str, count: int) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"{topic}-reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    partitions = consumer.list_topics(topic, 30).topics[topic].partitions
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in partitions])
    found: list[bytes] = []

    def all_read() -> bool:
        message = consumer.poll(0.5)
        if message is not None and not message.error():
            found.append(message.value() or b"")
        return len(found) >= count

    eventually(all_read, 30)
    assert consumer.poll(0.2) is None
    consumer.close()
    return found


def read_by_kafka_python(servers: str, topic: str, count: int) -> list[bytes]:
    consumer = kafka_python.KafkaConsumer(
        bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    consumer.assign([kafka_python.TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)])
    found: list[bytes] = []

    def all_read() -> bool:
        for records in consumer.poll(500).values():
            found.extend(record.value for record in records)
        return len(found) >= count

    eventually(all_read, 30)
    assert consumer.poll(200) == {}
    consumer.close()
    return found


@pytest.mark.parametrize("write", [confluent, with_kafka_python, with_aiokafka, pytest.param(java, marks=MORE_JAVA)])
def test_read_committed_readers_see_only_committed_records(cluster: EmbeddedKafka, topic: str, write: Write) -> None:
    cluster.create_topic(topic, 3, replication=3)
    servers = cluster.bootstrap_servers
    write(servers, topic, TRANSACTIONS)
    expected = sorted(value for committed, values in TRANSACTIONS if committed for value in values)
    assert sorted(read_by_confluent(servers, topic, len(expected))) == expected
    assert sorted(read_by_kafka_python(servers, topic, len(expected))) == expected


# --- offsets ---------------------------------------------------------------------------------------------------------


def copy_by_confluent(servers: str, group: str, source: str, target: str, count: int) -> None:
    producer = _confluent_producer(servers, group)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([source])
    done = rounds = 0
    while done < count:
        messages = [message for message in consumer.consume(7, 0.2) if not message.error()]
        if not messages:
            continue
        for committed in (False, True) if rounds % 2 else (True,):
            producer.begin_transaction()
            for message in messages:
                producer.produce(target, message.value())
            offsets = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
            (producer.commit_transaction if committed else producer.abort_transaction)(30)
        rounds += 1
        done += len(messages)
    consumer.close()


def copy_by_aiokafka(servers: str, group: str, source: str, target: str, count: int) -> None:
    async def copy() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            source,
            bootstrap_servers=servers,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            max_poll_records=7,
        )
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id=group)
        done = rounds = 0
        async with consumer, producer:
            while done < count:
                fetched = await consumer.getmany(timeout_ms=200)
                if not fetched:
                    continue
                for committed in (False, True) if rounds % 2 else (True,):
                    await producer.begin_transaction()
                    for records in fetched.values():
                        for record in records:
                            await producer.send(target, record.value)
                    offsets = {tp: records[-1].offset + 1 for tp, records in fetched.items()}
                    await producer.send_offsets_to_transaction(offsets, group)
                    await (producer.commit_transaction() if committed else producer.abort_transaction())
                rounds += 1
                done += sum(map(len, fetched.values()))

    asyncio.run(copy())


def copy_by_kafka_python(servers: str, group: str, source: str, target: str, count: int) -> None:
    consumer = kafka_python.KafkaConsumer(
        source,
        bootstrap_servers=servers,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        max_poll_records=7,
    )
    producer = kafka_python.KafkaProducer(bootstrap_servers=servers, transactional_id=group)
    producer.init_transactions()
    done = rounds = 0
    while done < count:
        fetched = consumer.poll(200)
        if not fetched:
            continue
        for committed in (False, True) if rounds % 2 else (True,):
            producer.begin_transaction()
            for records in fetched.values():
                for record in records:
                    producer.send(target, record.value)
            offsets = {
                tp: kafka_python.structs.OffsetAndMetadata(records[-1].offset + 1, "", -1)
                for tp, records in fetched.items()
            }
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            (producer.commit_transaction if committed else producer.abort_transaction)()
        rounds += 1
        done += sum(map(len, fetched.values()))
    producer.close()
    consumer.close(autocommit=False)


def copy_by_java(servers: str, group: str, source: str, target: str, count: int) -> None:
    run_java(TRANSACTIONAL_COPY, servers, group, source, target, str(count))


def committed_offsets(servers: str, group: str, topic: str) -> list[int]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": group})
    asked = [confluent_kafka.TopicPartition(topic, number) for number in range(2)]
    found = [one.offset for one in consumer.committed(asked, 30)]
    consumer.close()
    return found


@pytest.mark.parametrize(
    "copy", [copy_by_confluent, copy_by_kafka_python, copy_by_aiokafka, pytest.param(copy_by_java, marks=JAVA)]
)
def test_offsets_are_committed_with_the_records(cluster: EmbeddedKafka, topic: str, group_id: str, copy: Copy) -> None:
    """A pipeline copies each record once, although it aborts every other transaction and does it again."""
    source, target = f"{topic}-source", f"{topic}-target"
    for name in (source, target):
        cluster.create_topic(name, 2, replication=3)
    servers = cluster.bootstrap_servers
    values = [b"%d" % index for index in range(COUNT)]
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    for index, value in enumerate(values):
        producer.produce(source, value, partition=index % 2)
    assert producer.flush(30) == 0
    copy(servers, group_id, source, target, COUNT)
    assert sorted(read_by_confluent(servers, target, COUNT)) == sorted(values)
    assert committed_offsets(servers, group_id, source) == [COUNT // 2, COUNT // 2]


# --- fencing ---------------------------------------------------------------------------------------------------------


def test_second_transactional_producer_fences_the_first(cluster: EmbeddedKafka, topic: str) -> None:
    cluster.create_topic(topic, 1, replication=3)
    servers = cluster.bootstrap_servers
    first = _confluent_producer(servers, topic)
    first.begin_transaction()
    first.produce(topic, b"zombie")
    assert first.flush(30) == 0
    second = _confluent_producer(servers, topic)
    second.begin_transaction()
    second.produce(topic, b"committed")
    second.commit_transaction(30)
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(30)
    assert _error(caught.value).fatal()
    assert _error(caught.value).code() == confluent_kafka.KafkaError._FENCED
    assert read_by_confluent(servers, topic, 1) == [b"committed"]


def _error(exception: KafkaException) -> Any:
    return exception.args[0]
