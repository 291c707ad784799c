"""Members of different clients share a classic group's partitions, and each continues where another left off."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from confluent_kafka import Consumer as ConfluentConsumer

from pykclient import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from tests.interop.clients import JAVA_CLIENT
from tests.support.any_kafka import AnyKafka
from tests.support.java import run_java
from tests.support.wait import eventually

PARTITIONS = 4


@pytest.fixture
def topic(any_kafka: AnyKafka, topic: str) -> str:
    return any_kafka.create_topic(topic, PARTITIONS)


def write(any_kafka: AnyKafka, topic: str, *values: bytes) -> None:
    """Write each value to each partition."""
    with KafkaProducer[bytes, bytes](bootstrap_servers=any_kafka.bootstrap_servers) as producer:
        for value in values:
            for partition in range(PARTITIONS):
                producer.send(topic, value, partition=partition)


def our_member(any_kafka: AnyKafka, topic: str, group_id: str, **settings: Any) -> KafkaConsumer[bytes, bytes]:
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "heartbeat_interval_ms": 100, **settings}
    return KafkaConsumer(
        topic,
        bootstrap_servers=any_kafka.bootstrap_servers,
        group_id=group_id,
        partition_assignment_strategy="range",
        **settings,
    )


def test_confluent_and_our_member_share_a_group(any_kafka: AnyKafka, topic: str, group_id: str) -> None:
    write(any_kafka, topic, b"1")
    theirs = ConfluentConsumer(
        {
            "bootstrap.servers": any_kafka.bootstrap_servers,
            "group.id": group_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "partition.assignment.strategy": "range",
            "heartbeat.interval.ms": 100,
            "log_level": 2,
        }
    )
    seen: dict[str, list[tuple[int, bytes]]] = {"ours": [], "theirs": []}
    try:
        theirs.subscribe([topic])
        with our_member(any_kafka, topic, group_id) as ours:

            def both() -> None:
                for records in ours.poll(20).values():
                    seen["ours"] += [(r.partition, r.value or b"") for r in records]
                for message in theirs.consume(100, 0.02):
                    assert message.error() is None
                    partition = message.partition()
                    assert partition is not None
                    seen["theirs"].append((partition, message.value() or b""))

            def shared() -> bool:
                both()
                return len(ours.assignment()) == len(theirs.assignment()) == 2

            eventually(shared, 30.0, "two partitions each")
            our_partitions = {tp.partition for tp in ours.assignment()}
            their_partitions = {tp.partition for tp in theirs.assignment()}
            assert our_partitions | their_partitions == set(range(PARTITIONS))
            assert {frozenset(our_partitions), frozenset(their_partitions)} == {frozenset({0, 1}), frozenset({2, 3})}
            write(any_kafka, topic, b"2")

            def arrived() -> bool:
                both()
                found = [value for rows in seen.values() for _, value in rows]
                return found.count(b"2") == PARTITIONS

            eventually(arrived, 20.0, "the second value from each partition")
            assert {p for p, value in seen["ours"] if value == b"2"} == our_partitions
            assert {p for p, value in seen["theirs"] if value == b"2"} == their_partitions
            ours.commit()
            theirs.commit(asynchronous=False)
    finally:
        theirs.close()
    write(any_kafka, topic, b"3")
    with our_member(any_kafka, topic, group_id, consumer_timeout_ms=20_000) as successor:
        assert [next(successor).value for _ in range(PARTITIONS)] == [b"3"] * PARTITIONS


@pytest.mark.java
def test_java_and_our_member_share_a_group(any_kafka: AnyKafka, topic: str, group_id: str) -> None:
    write(any_kafka, topic, b"1")
    output: list[bytes] = []
    arguments = ("group", any_kafka.bootstrap_servers, group_id, topic, b"last".hex())
    with our_member(any_kafka, topic, group_id) as ours:
        eventually(lambda: ours.poll(50) or len(ours.assignment()) == PARTITIONS, 20.0, "all partitions")
        java = threading.Thread(target=lambda: output.append(run_java(JAVA_CLIENT, *arguments)))
        java.start()
        try:
            eventually(lambda: (ours.poll(50), len(ours.assignment()) == 2)[1], 40.0, "half of the partitions")
            half = {tp.partition for tp in ours.assignment()}
            write(any_kafka, topic, b"last")
            mine: set[int] = set()

            def arrived() -> bool:
                for tp, records in ours.poll(50).items():
                    mine.update(tp.partition for record in records if record.value == b"last")
                return mine == half

            eventually(arrived, 20.0, "the last value in our partitions")
            ours.commit()
            eventually(lambda: (ours.poll(50), not java.is_alive())[1], 40.0, "Java has left")
        finally:
            java.join(60)
        eventually(lambda: (ours.poll(50), len(ours.assignment()) == PARTITIONS)[1], 20.0, "all partitions again")
        committed = ours.committed(list(ours.assignment()))
    assert {row.offset for row in committed.values() if row} == {2}
    theirs = {int(line.split("\t")[0]) for line in output[0].decode().splitlines()}
    assert theirs | half == set(range(PARTITIONS))


def test_kafka_python_and_we_read_each_others_offsets(any_kafka: AnyKafka, topic: str, group_id: str) -> None:
    import kafka as kafka_python

    write(any_kafka, topic, b"1", b"2", b"3")
    with our_member(any_kafka, topic, group_id, consumer_timeout_ms=20_000) as ours:
        next(ours)
        tps = sorted(ours.assignment())
        ours.commit({tps[0]: OffsetAndMetadata(2, "a note, ünïcode 注"), tps[1]: 1})
    theirs = kafka_python.KafkaConsumer(
        bootstrap_servers=any_kafka.bootstrap_servers, group_id=group_id, enable_auto_commit=False
    )
    try:
        note = theirs.committed(kafka_python.TopicPartition(topic, 0), metadata=True)
        assert (note.offset, note.metadata) == (2, "a note, ünïcode 注")
        assert theirs.committed(kafka_python.TopicPartition(topic, 1)) == 1
        assert theirs.committed(kafka_python.TopicPartition(topic, 2)) is None
        theirs.assign([kafka_python.TopicPartition(topic, 3)])
        theirs.commit({kafka_python.TopicPartition(topic, 3): kafka_python.OffsetAndMetadata(3, "theirs", -1)})
    finally:
        theirs.close()
    with our_member(any_kafka, topic, group_id) as ours:
        assert ours.committed(TopicPartition(topic, 3), metadata=True) == OffsetAndMetadata(3, "theirs")
        assert ours.committed(TopicPartition(topic, 0)) == 2
