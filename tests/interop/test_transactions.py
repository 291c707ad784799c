"""Transactions of other clients, as our consumer reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from confluent_kafka import Producer

from pykclient import KafkaConsumer, TopicPartition
from tests.interop.clients import JAVA_CLIENT
from tests.support.any_kafka import AnyKafka
from tests.support.java import run_java

#: For each transaction: true if it was committed, and its values.
Transactions = Sequence[tuple[bool, Sequence[bytes]]]

TRANSACTIONS: Transactions = [
    (True, [b"a1", b"a2"]),
    (False, [b"b1", b"b2", b"b3"]),
    (True, [b"c1"]),
    (False, [b"d1"]),
    (False, [b"e1"]),
    (True, [b"f%d" % i for i in range(200)]),
    (False, [b"g1"]),
]


def by_java(any_kafka: AnyKafka, topic: str, transactions: Transactions) -> None:
    lines = [
        "\t".join(("commit" if committed else "abort", ",".join(value.hex() for value in values)))
        for committed, values in transactions
    ]
    run_java(JAVA_CLIENT, "transactions", any_kafka.bootstrap_servers, topic, stdin="\n".join(lines).encode())


def by_confluent(any_kafka: AnyKafka, topic: str, transactions: Transactions) -> None:
    producer = Producer({"bootstrap.servers": any_kafka.bootstrap_servers, "transactional.id": topic, "log_level": 2})
    producer.init_transactions(20)
    for committed, values in transactions:
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value)
        assert producer.flush(20) == 0
        if committed:
            producer.commit_transaction(20)
        else:
            producer.abort_transaction(20)


@pytest.mark.parametrize("write", [by_java, by_confluent])
def test_only_read_uncommitted_sees_aborted_records(
    any_kafka: AnyKafka, topic: str, write: Callable[[AnyKafka, str, Transactions], None]
) -> None:
    any_kafka.create_topic(topic)
    write(any_kafka, topic, TRANSACTIONS)
    everything = [value for _, values in TRANSACTIONS for value in values]
    committed = [value for kept, values in TRANSACTIONS if kept for value in values]
    tp = TopicPartition(topic, 0)
    end = len(everything) + len(TRANSACTIONS)  # each transaction ends with a marker, which takes an offset
    for level, expected in (("read_uncommitted", everything), ("read_committed", committed)):
        with KafkaConsumer[bytes, bytes](
            bootstrap_servers=any_kafka.bootstrap_servers, isolation_level=level, consumer_timeout_ms=20_000
        ) as consumer:
            consumer.assign([tp])
            consumer.seek_to_beginning()
            assert [next(consumer).value for _ in expected] == expected
            while consumer.position(tp) < end:  # the consumer skips markers and aborted records
                assert not consumer.poll(100)
            assert consumer.position(tp) == consumer.end_offsets([tp])[tp] == end


def test_open_transaction_blocks_read_committed(any_kafka: AnyKafka, topic: str) -> None:
    any_kafka.create_topic(topic)
    by_confluent(any_kafka, topic, [(True, [b"before"])])
    producer = Producer(
        {"bootstrap.servers": any_kafka.bootstrap_servers, "transactional.id": f"{topic}-2", "log_level": 2}
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    assert producer.flush(20) == 0
    tp = TopicPartition(topic, 0)
    with KafkaConsumer[bytes, bytes](
        bootstrap_servers=any_kafka.bootstrap_servers, isolation_level="read_committed", consumer_timeout_ms=20_000
    ) as consumer:
        consumer.assign([tp])
        consumer.seek_to_beginning()
        assert next(consumer).value == b"before"
        assert consumer.end_offsets([tp]) == {tp: 2}  # the last stable offset: after the marker of "before"
        assert consumer.poll(300) == {}
        assert consumer.position(tp) == 2
        producer.commit_transaction(20)
        assert next(consumer).value == b"open"
