"""Topics that are deleted, recreated and enlarged while clients use them."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import KafkaError as ConfluentError, KafkaException

from pykclient import KafkaConsumer, KafkaProducer
from pykclient.errors import KafkaError, KafkaTimeoutError
from pykclient.types import TopicPartition
from tests.chaos.verifier import ConsumerWorkload, ProducerWorkload, delivered, read_back, verify
from tests.support.any_kafka import AnyKafka, StartKafka
from tests.support.wait import eventually

pytestmark = pytest.mark.slow

QUICK: dict[str, Any] = {"retry_backoff_ms": 20, "metadata_max_age_ms": 300}


def add_partitions(any_kafka: AnyKafka, topic: str, total: int) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": any_kafka.bootstrap_servers, "log_level": 0})
    admin.create_partitions([NewPartitions(topic, total)])[topic].result(20)


def make_anew(any_kafka: AnyKafka, topic: str) -> None:
    any_kafka.delete_topic(topic)
    try:
        any_kafka.create_topic(topic)
    except KafkaException as error:
        # The client under test has requested the topic's metadata meanwhile, which recreated the topic.
        if error.args[0].code() != ConfluentError.TOPIC_ALREADY_EXISTS:
            raise


def test_producer_writes_to_a_recreated_topic(any_kafka: AnyKafka, topic: str) -> None:
    """A recreated topic has another id.

    The broker refuses records for the old id, and the producer retries with the new one.
    """
    any_kafka.create_topic(topic)
    p: KafkaProducer[bytes, bytes] = KafkaProducer(bootstrap_servers=any_kafka.bootstrap_servers, linger_ms=0, **QUICK)
    with p:
        for number in range(20):
            p.send(topic, b"old %d" % number).get(20)
        make_anew(any_kafka, topic)
        futures = [p.send(topic, b"new %d" % number, partition=0) for number in range(50)]
        assert [future.get(20).offset for future in futures] == list(range(50))
    log = read_back(any_kafka.bootstrap_servers, topic)[0]
    assert [record.value for record in log] == [b"new %d" % number for number in range(50)]


def test_records_for_a_deleted_topic_expire_with_its_name(any_kafka: AnyKafka, topic: str) -> None:
    """Records fail after their delivery timeout with a reason that names the topic; other topics are not delayed."""
    other = any_kafka.create_topic(f"{topic}-other")
    any_kafka.create_topic(topic)
    # Metadata requests may create the deleted topic again, but without partition 2.
    p: KafkaProducer[bytes, bytes] = KafkaProducer(
        bootstrap_servers=any_kafka.bootstrap_servers,
        delivery_timeout_ms=4000,
        request_timeout_ms=2000,
        linger_ms=0,
        retry_backoff_ms=20,  # and the metadata is not requested again before the topic's error
    )
    add_partitions(any_kafka, topic, 3)
    with p:
        p.send(topic, b"x", partition=2).get(20)
        any_kafka.delete_topic(topic)
        future = p.send(topic, b"x", partition=2)
        assert p.send(other, b"y").get(30).offset == 0
        with pytest.raises(KafkaError, match=topic):
            future.get(30)
        assert p.send(other, b"y").get(30).offset == 1


def test_consumer_resets_its_position_in_a_recreated_topic(any_kafka: AnyKafka, topic: str) -> None:
    """Positions of the old topic do not apply to the new one, so the reset policy decides."""
    any_kafka.create_topic(topic)
    tp = TopicPartition(topic, 0)
    c: KafkaConsumer[bytes, bytes] = KafkaConsumer(
        bootstrap_servers=any_kafka.bootstrap_servers, auto_offset_reset="earliest", fetch_max_wait_ms=100, **QUICK
    )
    p: KafkaProducer[bytes, bytes] = KafkaProducer(bootstrap_servers=any_kafka.bootstrap_servers, **QUICK)
    with c, p:
        for number in range(20):
            p.send(topic, b"old %d" % number)
        p.flush(20)
        c.assign([tp])
        values: list[bytes | None] = []

        def read(count: int) -> bool:
            values.extend(record.value for records in c.poll(timeout_ms=100).values() for record in records)
            return len(values) >= count

        eventually(lambda: read(20), 30.0, "the old records", every_s=0)
        make_anew(any_kafka, topic)
        for number in range(5):
            p.send(topic, b"new %d" % number, partition=0).get(20)
        eventually(lambda: read(25), 30.0, "the new records", every_s=0)
        assert values[20:] == [b"new %d" % number for number in range(5)]
        assert c.position(tp) == 5


def test_clients_use_partitions_that_are_added_under_load(any_kafka: AnyKafka, topic: str, group_id: str) -> None:
    """The group takes over new partitions after the next metadata update, and the producer uses them."""
    any_kafka.create_topic(topic)
    servers = any_kafka.bootstrap_servers
    quick: dict[str, Any] = {"metadata_max_age_ms": 300}
    with ConsumerWorkload(servers, topic, group_id=group_id, **quick) as reader:
        with ProducerWorkload(servers, topic, **quick) as load:
            load.await_acknowledged(100)
            reader.await_more(50)
            add_partitions(any_kafka, topic, 4)
            p: KafkaProducer[bytes, bytes] = KafkaProducer(bootstrap_servers=servers)
            with p:
                for partition in range(1, 4):
                    p.send(topic, b"%d:0:" % partition, partition=partition).get(20)
            eventually(lambda: len(reader.assigned) == 4, 30.0, "the new partitions are assigned")
            load.await_acknowledged_more(100)
            eventually(lambda: load.producer.partitions_for(topic) == set(range(4)), 30.0, "the producer knows them")
        assert load.failures == []
        verify(servers, load)
        reader.await_reached(read_back(servers, topic, 4))


def test_error_about_a_missing_topic_names_topic_time_and_reason(start_kafka: StartKafka, topic: str) -> None:
    """If brokers do not create topics, the error names the topic, the time and the broker's reason."""
    with start_kafka({"auto.create.topics.enable": "false"}) as any_kafka:
        p: KafkaProducer[bytes, bytes] = KafkaProducer(
            bootstrap_servers=any_kafka.bootstrap_servers, max_block_ms=700, retry_backoff_max_ms=150
        )
        with p:
            start = time.monotonic()
            with pytest.raises(KafkaTimeoutError) as failed:
                p.send(topic, b"x")
            assert time.monotonic() - start < 30.0, "no default, which is a minute"
            for part in (repr(topic), "0.7 s", "does not know this topic"):
                assert part in str(failed.value)
            any_kafka.create_topic(topic)
            assert delivered(p, topic, b"x").offset == 0
        c: KafkaConsumer[bytes, bytes] = KafkaConsumer(
            bootstrap_servers=any_kafka.bootstrap_servers, group_id="group", auto_offset_reset="earliest", **QUICK
        )
        with c:  # a subscription also finds a topic that is created later
            late = f"{topic}-late"
            c.subscribe([topic, late])
            read: list[str] = []

            def reads(*topics: str) -> bool:
                read.extend(record.topic for records in c.poll(timeout_ms=100).values() for record in records)
                return set(read) == set(topics)

            eventually(lambda: reads(topic), 30.0, "the topic that exists", every_s=0)
            any_kafka.create_topic(late)
            other: KafkaProducer[bytes, bytes] = KafkaProducer(bootstrap_servers=any_kafka.bootstrap_servers)
            with other:
                other.send(late, b"y").get(20)
            eventually(lambda: reads(topic, late), 30.0, "the topic that came late", every_s=0)
