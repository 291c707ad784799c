"""The calls for transactions beside those of kafka-python, on the embedded cluster and on real Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from pykclient import TopicPartition, errors
from pykclient.admin import AbortTransactionSpec, IsolationLevel, OffsetSpec, TransactionState
from pykclient.errors import IllegalArgumentError
from tests.admin.test_admin_on_kafka import Sides, records as records, sides as sides
from tests.support.wait import eventually

pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:kafka")


@pytest.fixture
def transaction(sides: Sides, records: str) -> Iterator[str]:
    """The transactional id of an open transaction, with one record in partition 0."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": sides.servers, "transactional.id": f"id-{records}", "log_level": 0}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(records, b"open", partition=0)
    producer.flush(30)
    yield f"id-{records}"
    producer.purge()


def test_transaction_calls_equal_kafka_pythons(sides: Sides, records: str, transaction: str) -> None:
    tp = TopicPartition(records, 0)
    described = sides.equal(lambda c, m: c.describe_transactions([transaction]))[transaction]
    assert described.state is TransactionState.ONGOING
    assert described.topic_partitions == {tp}
    assert described.coordinator_id == sides.broker_id
    listed = sides.equal(lambda c, m: c.list_transactions([sides.broker_id], state_filters=["Ongoing"]))
    assert transaction in [found.transactional_id for found in listed[sides.broker_id]]
    sides.equal(lambda c, m: c.list_transactions(producer_id_filters=[described.producer_id]))
    sides.equal(lambda c, m: c.list_transactions(duration_filter_ms=3_600_000))
    states = sides.equal(lambda c, m: c.describe_producers([tp]))
    (state,) = [found for found in states[tp].active_producers if found.producer_id == described.producer_id]
    assert state.current_transaction_start_offset >= 0
    sides.equal(lambda c, m: c.describe_producers([tp], broker_id=sides.broker_id))
    sides.equal_error(lambda c, m: c.describe_transactions(["no-transaction"]))
    assert sides.equal(lambda c, m: c.find_hanging_transactions()) == []
    assert sides.ours.describe_transactions([]) == {}


@pytest.mark.usefixtures("transaction")
def test_latest_offset_of_committed_records_is_before_an_open_transaction(sides: Sides, records: str) -> None:
    tp = TopicPartition(records, 0)
    found = {
        level: sides.typed.list_offsets({tp: OffsetSpec.LATEST}, isolation_level=level)[tp].offset
        for level in IsolationLevel
    }
    assert found[IsolationLevel.READ_UNCOMMITTED] == found[IsolationLevel.READ_COMMITTED] + 1


def test_a_transaction_is_aborted_on_one_partition(sides: Sides, records: str, transaction: str) -> None:
    tp = TopicPartition(records, 0)
    typed = sides.typed
    found = typed.describe_transactions([transaction, "no-transaction"])
    assert isinstance(found.failed["no-transaction"], errors.TransactionalIdNotFoundError)
    producer_id, epoch = found[transaction].producer_id, found[transaction].producer_epoch

    def open_transactions() -> list[int]:
        state = typed.describe_producers([tp])[tp]
        return [one.producer_id for one in state.active_producers if one.current_transaction_start_offset >= 0]

    assert open_transactions() == [producer_id]
    with pytest.raises(errors.KafkaError):
        typed.abort_transaction(AbortTransactionSpec(TopicPartition(records, 9), producer_id, epoch))
    sides.ours.abort_transaction(AbortTransactionSpec(tp, producer_id, epoch))
    eventually(lambda: open_transactions() == [], 20.0, "the transaction is aborted")


def test_fence_producers_raises_epoch(sides: Sides, transaction: str) -> None:
    typed = sides.typed
    before = typed.describe_transactions([transaction])[transaction]
    fenced = typed.fence_producers([transaction, f"{transaction}-2"])
    assert set(fenced.succeeded) == {transaction, f"{transaction}-2"}
    assert fenced[transaction].producer_epoch > before.producer_epoch or (
        fenced[transaction].producer_id != before.producer_id
    )
    eventually(
        lambda: (
            typed.describe_transactions([transaction])[transaction].state
            in (TransactionState.COMPLETE_ABORT, TransactionState.EMPTY)
        ),
        20.0,
        "the transaction is aborted",
    )


def test_transaction_call_errors_name_wrong_argument(sides: Sides) -> None:
    tp = TopicPartition("t", 0)
    calls: list[tuple[str, Any]] = [
        ("transactional_ids is 'id'", lambda: sides.ours.describe_transactions("id")),
        ("there is no TransactionState 'open'", lambda: sides.ours.list_transactions(state_filters=["open"])),
        ("a producer id is 'x'", lambda: sides.typed.list_transactions(producer_ids=["x"])),  # type: ignore[list-item]
        ("spec is", lambda: sides.ours.abort_transaction((tp, 1, 1))),  # type: ignore[arg-type]
        ("producer_epoch of spec", lambda: sides.ours.abort_transaction(AbortTransactionSpec(tp, 1, 1 << 20))),
    ]
    for message, call in calls:
        with pytest.raises(IllegalArgumentError) as caught:
            call()
        assert message in str(caught.value)
