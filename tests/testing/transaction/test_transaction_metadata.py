"""The states of a transactional id, its transitions in two steps, and its records."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from pykclient.errors import IllegalStateError, ProducerFencedError, UnsupportedVersionError, check_move
from pykclient.testing.transaction import transaction_metadata as transaction_log
from pykclient.testing.transaction.transaction_metadata import (
    BY_ID,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    MAX_EPOCH,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARE_EPOCH_FENCE,
    TRANSITIONS,
    TransactionMetadata,
    TransactionState,
)
from pykclient.types import TopicPartition

TP0, TP1 = TopicPartition("topic", 0), TopicPartition("topic", 1)

#: Each edge with what causes it.
EDGES = [
    (EMPTY, EMPTY),  # InitProducerId
    (EMPTY, ONGOING),  # a partition is added
    (EMPTY, PREPARE_ABORT),  # an abort without any partition
    (EMPTY, DEAD),  # the id expires
    (ONGOING, ONGOING),
    (ONGOING, PREPARE_COMMIT),
    (ONGOING, PREPARE_ABORT),
    (ONGOING, PREPARE_EPOCH_FENCE),  # a timeout, or another producer
    (PREPARE_EPOCH_FENCE, PREPARE_ABORT),
    (PREPARE_COMMIT, COMPLETE_COMMIT),
    (PREPARE_ABORT, COMPLETE_ABORT),
    *product((COMPLETE_COMMIT, COMPLETE_ABORT), (EMPTY, ONGOING, PREPARE_ABORT, DEAD)),
]


def metadata(state: TransactionState = EMPTY, epoch: int = 3, **values: Any) -> TransactionMetadata:
    partitions = () if state is EMPTY else (TP0, TP1)
    return TransactionMetadata(
        "txn", 1000, 60_000, 5, producer_epoch=epoch, state=state, topic_partitions=dict.fromkeys(partitions), **values
    )


@pytest.mark.parametrize(("state", "to"), list(product(TRANSITIONS, TRANSITIONS)))
def test_only_listed_transitions_are_allowed(state: TransactionState, to: TransactionState) -> None:
    if (state, to) in EDGES:
        check_move("a transactional id", TRANSITIONS, state, to)
    else:
        with pytest.raises(IllegalStateError):
            check_move("a transactional id", TRANSITIONS, state, to)


def test_only_one_transition_is_pending() -> None:
    one = metadata(ONGOING)
    transit = one.prepare_add_partitions([TP1], 10, 0)
    assert one.state is ONGOING
    with pytest.raises(IllegalStateError):
        one.prepare_add_partitions([TP1], 10, 0)
    one.complete_transition_to(transit)
    with pytest.raises(IllegalStateError):
        one.complete_transition_to(transit)


def test_unfitting_transition_is_not_applied() -> None:
    one, other = metadata(), metadata(epoch=9)
    one.prepare_increment_producer_epoch(60_000, None, 10)
    with pytest.raises(IllegalStateError):
        one.complete_transition_to(other.prepare_add_partitions([TP0], 10, 0))
    two = metadata(epoch=2)
    transit = two.prepare_increment_producer_epoch(60_000, None, 10)
    ahead = metadata(epoch=9)
    ahead.prepare_increment_producer_epoch(60_000, None, 10)
    with pytest.raises(IllegalStateError, match="go back"):
        ahead.complete_transition_to(transit)


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("committed", [True, False])
def test_transaction_passes_all_states(version: int, committed: bool) -> None:
    one = metadata()
    one.complete_transition_to(one.prepare_add_partitions([TP1, TP0], 10, version))
    one.complete_transition_to(one.prepare_add_partitions([TP0], 20, version))
    assert (one.state, one.txn_start_ms, one.txn_last_update_ms) == (ONGOING, 10, 20)
    assert list(one.topic_partitions) == [TP0, TP1]
    prepared = PREPARE_COMMIT if committed else PREPARE_ABORT
    one.complete_transition_to(one.prepare_abort_or_commit(prepared, version, -1, 30, no_partition_added=False))
    assert (one.state, one.producer_epoch) == (prepared, 4 if version == 2 else 3)
    assert list(one.topic_partitions) == [TP0, TP1]
    complete = one.prepare_complete(40)
    one.remove_partition(TP0)
    one.complete_transition_to(complete)
    assert one.state is (COMPLETE_COMMIT if committed else COMPLETE_ABORT)
    assert (one.producer_epoch, one.topic_partitions) == (4 if version == 2 else 3, {})
    one.complete_transition_to(one.prepare_add_partitions([TP1], 50, version))
    assert (one.txn_start_ms, list(one.topic_partitions)) == (50, [TP1])


def test_partitions_are_removed_only_while_markers_are_written() -> None:
    one = metadata(ONGOING)
    with pytest.raises(IllegalStateError):
        one.remove_partition(TP0)


def test_continuing_producer_increments_its_epoch() -> None:
    one = metadata()
    one.complete_transition_to(one.prepare_increment_producer_epoch(1_000, 3, 10))
    assert (one.producer_epoch, one.last_producer_epoch, one.txn_timeout_ms) == (4, 3, 1_000)
    one.complete_transition_to(one.prepare_increment_producer_epoch(1_000, 3, 20))  # a retry
    assert (one.producer_epoch, one.last_producer_epoch) == (4, 3)
    for stale in (2, 5):
        with pytest.raises(ProducerFencedError):
            one.prepare_increment_producer_epoch(1_000, stale, 30)
    one.complete_transition_to(one.prepare_increment_producer_epoch(1_000, None, 30))  # another producer
    assert (one.producer_epoch, one.last_producer_epoch) == (5, -1)
    with pytest.raises(ProducerFencedError):
        one.prepare_increment_producer_epoch(1_000, 4, 40)


def test_failed_fence_is_repeated_in_its_epoch() -> None:
    one = metadata(ONGOING)
    assert one.prepare_fence_producer_epoch().producer_epoch == 4
    one.pending_state, one.producer_epoch, one.has_failed_epoch_fence = None, 4, True
    assert one.prepare_fence_producer_epoch().producer_epoch == 4
    last = metadata(ONGOING, MAX_EPOCH)
    assert last.prepare_fence_producer_epoch().producer_epoch == MAX_EPOCH
    last.pending_state = None
    transit = last.prepare_abort_or_commit(PREPARE_ABORT, 2, -1, 10, no_partition_added=False)
    assert transit.producer_epoch == MAX_EPOCH
    last.pending_state = None
    with pytest.raises(IllegalStateError, match="epoch 32768"):
        last.prepare_abort_or_commit(PREPARE_COMMIT, 2, -1, 10, no_partition_added=False)


def test_new_producer_id_applies_after_the_markers() -> None:
    one = metadata(ONGOING, MAX_EPOCH - 1)
    one.complete_transition_to(one.prepare_abort_or_commit(PREPARE_COMMIT, 2, 2000, 10, no_partition_added=False))
    assert (one.producer_id, one.next_producer_id, one.producer_epoch) == (1000, 2000, MAX_EPOCH)
    one.complete_transition_to(one.prepare_complete(20))
    assert (one.producer_id, one.prev_producer_id, one.next_producer_id, one.producer_epoch) == (2000, 1000, -1, 0)


def test_expired_id_is_never_completed() -> None:
    one = metadata(COMPLETE_COMMIT)
    transit = one.prepare_dead()
    with pytest.raises(IllegalStateError):
        one.complete_transition_to(transit)


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("state", [state for state in BY_ID.values() if state is not PREPARE_EPOCH_FENCE])
def test_records_are_read_as_they_were_written(state: TransactionState, version: int) -> None:
    one = metadata(state, prev_producer_id=999, next_producer_id=2000, txn_start_ms=7, client_transaction_version=2)
    one.state = ONGOING if state is DEAD else state
    assert transaction_log.read_key(transaction_log.key_to_bytes("txn")) == "txn"
    value = transaction_log.value_to_bytes(one, version)
    assert value[:2] == (b"\x00\x01" if version else b"\x00\x00")
    found = transaction_log.read_value("txn", value)
    for name in ("state", "producer_id", "producer_epoch", "txn_timeout_ms", "txn_start_ms", "txn_last_update_ms"):
        assert getattr(found, name) == getattr(one, name), name
    assert found.topic_partitions == one.topic_partitions
    told = (found.prev_producer_id, found.next_producer_id, found.client_transaction_version)
    assert told == ((999, 2000, 2) if version else (-1, -1, 0))


def test_unreadable_log_entries_are_recognized() -> None:
    assert transaction_log.read_key(b"\x00\x07\x00\x01x") is None
    value = bytearray(
        transaction_log.value_to_bytes(metadata().prepare_increment_producer_epoch(1, None, 2), transaction_version=0)
    )
    value[2 + 8 + 2 + 4] = 77
    with pytest.raises(UnsupportedVersionError):
        transaction_log.read_value("txn", bytes(value))
