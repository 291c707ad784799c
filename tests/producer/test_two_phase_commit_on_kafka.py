"""Two-phase commit (KIP-939) on embedded and on real brokers. Only embedded ones can keep a prepared transaction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pykclient import KafkaConsumer, KafkaProducer, PreparedTxnState, TopicPartition
from pykclient.admin import Admin
from pykclient.errors import (
    IllegalStateError,
    KafkaError,
    ProducerFencedError,
    TransactionalIdAuthorizationError,
    UnsupportedVersionError,
)
from pykclient.testing.embedded_cluster import EmbeddedCluster
from tests.kafka.cluster import KafkaCluster
from tests.support.any_kafka import EMBEDDED, REAL, AnyKafka
from tests.support.embedded_kafka import EmbeddedKafka
from tests.support.wait import eventually

ALLOWED = {
    "unstable.api.versions.enable": "true",
    "transaction.two.phase.commit.enable": "true",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
}


@pytest.fixture(scope="module", params=[EMBEDDED, REAL])
def allowing(request: pytest.FixtureRequest) -> Iterator[AnyKafka]:
    """One broker that allows two-phase commits."""
    with (KafkaCluster if request.param == "real" else EmbeddedKafka)(1, ALLOWED) as running:
        yield running


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedCluster]:
    """Three brokers that allow two-phase commits."""
    with EmbeddedCluster(brokers=3, config=ALLOWED) as cluster:
        yield cluster


def producer_of(servers: str, transactional_id: str, **settings: Any) -> KafkaProducer[Any, Any]:
    """Return a producer that has not called ``init_transactions``."""
    return KafkaProducer(
        bootstrap_servers=servers,
        transactional_id=transactional_id,
        transaction_two_phase_commit_enable=True,
        linger_ms=0,
        **settings,
    )


def started(servers: str, transactional_id: str, *, keep_prepared_txn: bool = False) -> KafkaProducer[Any, Any]:
    producer = producer_of(servers, transactional_id)
    producer.init_transactions(keep_prepared_txn=keep_prepared_txn)
    return producer


def committed(servers: str, topic: str, count: int) -> list[bytes]:
    """Read ``count`` committed records from the start of partition 0, and what follows them without a wait."""
    with KafkaConsumer[Any, Any](
        bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        found: list[bytes] = []

        def complete() -> bool:
            found.extend(record.value or b"" for records in consumer.poll(200).values() for record in records)
            return len(found) >= count

        eventually(complete, 60, f"{count} committed records")
        return found


# --- embedded and real -----------------------------------------------------------------------------------------------


def test_prepared_transactions_are_completed(allowing: AnyKafka, topic: str) -> None:
    allowing.create_topic(topic)
    with started(allowing.bootstrap_servers, topic) as producer:
        states = []
        for number in range(4):
            producer.begin_transaction()
            producer.send(topic, b"%d" % number)
            state = producer.prepare_transaction()
            states.append(state)
            assert committed(allowing.bootstrap_servers, topic, 0) == [b"0", b"2"][: (number + 1) // 2]
            with pytest.raises(IllegalStateError, match="the transaction is prepared"):
                producer.send(topic, b"late")
            producer.complete_transaction(state if number % 2 == 0 else PreparedTxnState(str(states[0])))
        assert len(set(states)) == 4
        producer.begin_transaction()
        empty = producer.prepare_transaction()
        producer.complete_transaction(empty)
        producer.begin_transaction()
        assert producer.prepare_transaction() not in {*states, empty}
        producer.abort_transaction()
    assert committed(allowing.bootstrap_servers, topic, 2) == [b"0", b"2"]


def test_a_prepared_transaction_does_not_time_out(allowing: AnyKafka, topic: str) -> None:
    allowing.create_topic(topic)
    with (
        started(allowing.bootstrap_servers, topic) as producer,
        KafkaProducer[Any, Any](
            bootstrap_servers=allowing.bootstrap_servers, transactional_id=f"{topic}-late", transaction_timeout_ms=1_000
        ) as other,
        Admin(bootstrap_servers=allowing.bootstrap_servers) as admin,
    ):
        producer.begin_transaction()
        producer.send(topic, b"prepared")
        state = producer.prepare_transaction()
        other.init_transactions()
        other.begin_transaction()
        other.send(topic, b"late").get(30)

        def state_of(transactional_id: str) -> str:
            return admin.describe_transactions([transactional_id])[transactional_id].state.name

        eventually(lambda: state_of(f"{topic}-late") == "COMPLETE_ABORT", 60, "the other transaction is aborted")
        described = admin.describe_transactions([topic])[topic]
        assert described.state.name == "ONGOING"
        assert PreparedTxnState(f"{described.producer_id}:{described.producer_epoch}") == state
        with pytest.raises(KafkaError):
            other.commit_transaction()
        producer.complete_transaction(state)
    assert committed(allowing.bootstrap_servers, topic, 1) == [b"prepared"]


def test_init_without_keep_aborts_prepared_transaction(allowing: AnyKafka, topic: str) -> None:
    allowing.create_topic(topic)
    with started(allowing.bootstrap_servers, topic) as first:
        first.begin_transaction()
        first.send(topic, b"lost")
        state = first.prepare_transaction()
        with started(allowing.bootstrap_servers, topic) as second:
            with pytest.raises(ProducerFencedError, match=r"prepared transaction .* is left to that producer"):
                first.complete_transaction(state)
            second.begin_transaction()
            second.send(topic, b"kept")
            second.complete_transaction(second.prepare_transaction())
    assert committed(allowing.bootstrap_servers, topic, 1) == [b"kept"]


@pytest.mark.kafka
@pytest.mark.timeout(180)
@pytest.mark.parametrize("allowing", ["real"], indirect=True)
def test_real_brokers_cannot_keep_a_prepared_transaction(allowing: AnyKafka, topic: str) -> None:
    """Kafka 4.3.1 refuses it, whatever is configured. When this fails, the rest of this file can run on real Kafka."""
    with producer_of(allowing.bootstrap_servers, topic) as producer:
        with pytest.raises(UnsupportedVersionError, match="refuse keep_prepared_txn=True"):
            producer.init_transactions(keep_prepared_txn=True)
        producer.init_transactions()
        producer.begin_transaction()
        producer.abort_transaction()


# --- the next producer -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_stored", [True, False], ids=["stored", "not stored"])
def test_next_producer_completes_prepared_transaction(embedded: EmbeddedCluster, topic: str, is_stored: bool) -> None:
    embedded.create_topic(topic)
    servers = embedded.bootstrap_servers
    stored = ""
    with started(servers, topic) as first:  # close() leaves what is prepared
        first.begin_transaction()
        first.send_batch(topic, [b"1", b"2"], partition=0)
        state = first.prepare_transaction()
        if is_stored:
            stored = str(state)
    with started(servers, topic, keep_prepared_txn=True) as second:
        with pytest.raises(IllegalStateError, match="the transaction is prepared"):
            second.begin_transaction()
        second.complete_transaction(PreparedTxnState(stored))
        with second.transaction():
            second.send(topic, b"3")
    assert committed(servers, topic, 1 + 2 * is_stored) == [b"1", b"2", b"3"][2 * (not is_stored) :]
    with started(servers, topic, keep_prepared_txn=True) as third:
        third.complete_transaction(PreparedTxnState(stored))  # there is nothing left to complete
        with third.transaction():
            third.send(topic, b"4")
    assert committed(servers, topic, 2)[-1] == b"4"


def test_only_latest_producer_completes_prepared_transaction(embedded: EmbeddedCluster, topic: str) -> None:
    embedded.create_topic(topic)
    servers = embedded.bootstrap_servers
    with started(servers, topic) as first:
        first.begin_transaction()
        first.send(topic, b"1")
        state = first.prepare_transaction()
        with started(servers, topic, keep_prepared_txn=True) as second:
            with pytest.raises(ProducerFencedError, match=r"prepared transaction .* is left to that"):
                first.complete_transaction(PreparedTxnState())
            with started(servers, topic, keep_prepared_txn=True) as third:
                with pytest.raises(ProducerFencedError, match=r"prepared transaction .* is left to that"):
                    second.complete_transaction(PreparedTxnState())
                third.complete_transaction(state)
                # The epoch is above all that were given out, so that none of the others can go on.
                with Admin(bootstrap_servers=servers) as admin:
                    assert admin.describe_transactions([topic])[topic].producer_epoch == state.epoch + 3
    assert committed(servers, topic, 1) == [b"1"]


def test_a_prepared_transaction_outlives_its_coordinator(topic: str) -> None:
    """The successor's epoch, which is not yet that of the records, is in the log of the coordinator."""
    with EmbeddedCluster(config=ALLOWED) as cluster:
        cluster.create_topic(topic)
        servers = cluster.bootstrap_servers
        with started(servers, topic) as first:
            first.begin_transaction()
            first.send(topic, b"1")
            state = first.prepare_transaction()
        with started(servers, topic, keep_prepared_txn=True) as second:
            cluster.kill(1)
            cluster.restart(1)
            with started(servers, topic, keep_prepared_txn=True) as third:
                cluster.kill(1)
                cluster.restart(1)
                with pytest.raises(ProducerFencedError):
                    second.complete_transaction(state)
                third.complete_transaction(state)
        assert committed(servers, topic, 1) == [b"1"]


def test_an_operator_can_abort_a_prepared_transaction(embedded: EmbeddedCluster, topic: str) -> None:
    embedded.create_topic(topic)
    servers = embedded.bootstrap_servers
    with started(servers, topic) as first:
        first.begin_transaction()
        first.send(topic, b"1")
        state = first.prepare_transaction()
    with started(servers, topic, keep_prepared_txn=True) as second, Admin(bootstrap_servers=servers) as admin:
        admin.force_terminate_transaction(topic)
        with pytest.raises(ProducerFencedError):
            second.complete_transaction(state)
        assert admin.describe_transactions([topic])[topic].state.name in {"PREPARE_ABORT", "COMPLETE_ABORT", "EMPTY"}
    with started(servers, topic, keep_prepared_txn=True) as third:
        third.complete_transaction(state)
        with third.transaction():
            third.send(topic, b"2")
    assert committed(servers, topic, 1) == [b"2"]


def test_error_in_transaction_block_keeps_prepared_transaction(embedded: EmbeddedCluster, topic: str) -> None:
    embedded.create_topic(topic)
    with started(embedded.bootstrap_servers, topic) as producer:
        state = PreparedTxnState()

        def stores() -> None:
            nonlocal state
            with producer.transaction():
                producer.send(topic, b"1")
                state = producer.prepare_transaction()
                raise OSError("the database does not answer")

        with pytest.raises(OSError, match="does not answer") as raised:
            stores()
        assert "The transaction is prepared, and was not aborted" in raised.value.__notes__[0]
        producer.complete_transaction(state)
        assert committed(embedded.bootstrap_servers, topic, 1) == [b"1"]
        with producer.transaction():
            producer.send(topic, b"2")
            producer.prepare_transaction()
    assert committed(embedded.bootstrap_servers, topic, 2) == [b"1", b"2"]


# --- what the brokers do not allow -----------------------------------------------------------------------------------


def test_brokers_without_unstable_versions_are_refused(topic: str) -> None:
    with EmbeddedCluster() as cluster, producer_of(cluster.bootstrap_servers, topic) as producer:
        refused = pytest.raises(UnsupportedVersionError, match=r"unstable\.api\.versions\.enable=true")
        with refused:
            producer.init_transactions()


def test_brokers_without_two_phase_setting_are_refused(topic: str) -> None:
    config = {"unstable.api.versions.enable": True}
    with EmbeddedCluster(config=config) as cluster, producer_of(cluster.bootstrap_servers, topic) as producer:
        refused = pytest.raises(TransactionalIdAuthorizationError, match="must also have that setting")
        with refused:
            producer.init_transactions()
