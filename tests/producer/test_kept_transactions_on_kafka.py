"""Transactions that a producer leaves open, and an admin client ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pykclient import KafkaAdminClient, KafkaProducer
from pykclient.admin import Admin
from pykclient.aio import AIOKafkaProducer
from pykclient.errors import IllegalStateError, InvalidTxnStateError, KafkaError, ProducerFencedError
from tests.kafka.cluster import KafkaCluster
from tests.producer.test_transactions_on_kafka import committed_values, generation as generation, transactional
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually


def kept(servers: str, transactional_id: str, topic: str, *values: bytes) -> tuple[int, int]:
    """Leave a transaction with these values open, and return its producer id and epoch."""
    producer = transactional(servers, transactional_id, linger_ms=30_000)
    producer.begin_transaction()
    futures = [producer.send(topic, value) for value in values]
    identity = producer.producer_id_and_epoch
    producer.close(keep_transaction=True)  # sends what lingers
    assert all(future.succeeded() for future in futures)
    return identity


def check_both_ends(servers: str, topic: str) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        first, second = kept(servers, f"{topic}-1", topic, b"a", b"b"), kept(servers, f"{topic}-2", topic, b"c")
        aborted = kept(servers, f"{topic}-3", topic, b"d")
        for _ in range(3):  # may be repeated
            ends = admin.end_transactions({f"{topic}-1": first, f"{topic}-2": second}, True)
            assert set(ends.all()) == {f"{topic}-1", f"{topic}-2"}
        admin.end_transaction(f"{topic}-3", *aborted, False)
        with pytest.raises((InvalidTxnStateError, ProducerFencedError)):
            admin.end_transaction(f"{topic}-3", *aborted, True)
        assert sorted(committed_values(servers, topic, 3)) == [b"a", b"b", b"c"]
        admin.fence_producers([f"{topic}-1"]).all()
        with pytest.raises(KafkaError):  # whether it was committed is no longer known
            admin.end_transaction(f"{topic}-1", *first, True)


def test_kept_transactions_are_ended_by_an_admin_client(any_kafka: AnyKafka, topic: str) -> None:
    check_both_ends(any_kafka.bootstrap_servers, topic)


def test_every_generation_ends_kept_transactions(kafka: KafkaCluster, generation: int, topic: str) -> None:
    check_both_ends(kafka.bootstrap_servers, topic)


def test_kafka_admin_client_ends_kept_transaction(any_kafka: AnyKafka, topic: str) -> None:
    servers = any_kafka.bootstrap_servers
    identity = kept(servers, topic, topic, b"a")
    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        admin.end_transaction(topic, *identity, True)
    finally:
        admin.close()
    assert committed_values(servers, topic, 1) == [b"a"]


def test_producer_for_asyncio_keeps_its_transaction(any_kafka: AnyKafka, topic: str) -> None:
    servers = any_kafka.bootstrap_servers

    async def keep() -> tuple[int, int]:
        producer: AIOKafkaProducer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=topic)
        await producer.start()
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"a")
        identity = producer.producer_id_and_epoch
        await producer.stop(keep_transaction=True)
        return identity

    identity = asyncio.run(keep())
    with Admin(bootstrap_servers=servers) as admin:
        admin.end_transaction(topic, *identity, True)
    assert committed_values(servers, topic, 1) == [b"a"]


def test_the_next_producer_aborts_a_kept_transaction(any_kafka: AnyKafka, topic: str) -> None:
    servers = any_kafka.bootstrap_servers
    identity = kept(servers, topic, topic, b"lost")
    with transactional(servers, topic) as producer, Admin(bootstrap_servers=servers) as admin:
        with pytest.raises(KafkaError):
            admin.end_transaction(topic, *identity, True)
        with producer.transaction():
            producer.send(topic, b"new")
    assert committed_values(servers, topic, 1) == [b"new"]


def test_close_aborts_the_transaction_by_default(any_kafka: AnyKafka, topic: str) -> None:
    servers = any_kafka.bootstrap_servers
    producer = transactional(servers, topic)
    producer.begin_transaction()
    producer.send(topic, b"lost")
    producer.close()
    with Admin(bootstrap_servers=servers) as admin:
        eventually(lambda: admin.describe_transactions([topic])[topic].state.value == "CompleteAbort", 30, "the abort")


def test_producer_id_needs_init_transactions(any_kafka: AnyKafka, topic: str) -> None:
    servers = any_kafka.bootstrap_servers
    with (
        KafkaProducer[Any, Any](bootstrap_servers=servers) as without,
        pytest.raises(IllegalStateError, match="no transactional"),
    ):
        without.producer_id_and_epoch  # noqa: B018
    with (
        KafkaProducer[Any, Any](bootstrap_servers=servers, transactional_id=topic) as early,
        pytest.raises(IllegalStateError, match="init_transactions"),
    ):
        early.producer_id_and_epoch  # noqa: B018
