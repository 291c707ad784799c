"""A partition accepts or refuses producers' batches by their sequence numbers, epochs and transactions."""

from __future__ import annotations

import pytest

from pykclient.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from pykclient.testing.log.log_types import AbortedTxn, AppendOrigin, FetchIsolation
from tests.testing.log.support import TP, LogBox, batch, marker, values

_MAX_SEQUENCE = (1 << 31) - 1


def send(box: LogBox, sequence: int, count: int = 1, *, epoch: int = 0, id: int = 7) -> range:
    return box.append(batch(values(count), producer=(id, epoch, sequence)))


def send_txn(box: LogBox, sequence: int, *, id: int = 7, epoch: int = 0) -> range:
    return box.append(batch(producer=(id, epoch, sequence), transactional=True))


def end_txn(box: LogBox, *, id: int = 7, epoch: int = 0, commit: bool = True, coordinator_epoch: int = 0) -> range:
    return box.append(
        marker(id, epoch, commit=commit, coordinator_epoch=coordinator_epoch), origin=AppendOrigin.COORDINATOR
    )


def test_last_five_batches_are_recognized_as_duplicates() -> None:
    box = LogBox()
    offsets = [send(box, sequence, 2) for sequence in range(0, 14, 2)]
    for index in (2, 3, 4, 5, 6):
        info = box.log.append_as_leader(batch(values(2), producer=(7, 0, 2 * index)), 0)
        assert info.duplicate
        assert (info.first_offset, info.last_offset) == (offsets[index][0], offsets[index][-1])
    with pytest.raises(OutOfOrderSequenceError):
        send(box, 2, 2)
    assert box.log.log_end_offset == 14


def test_partial_batch_is_not_a_duplicate() -> None:
    box = LogBox()
    send(box, 0, 3)
    with pytest.raises(OutOfOrderSequenceError):
        send(box, 0, 2)
    with pytest.raises(OutOfOrderSequenceError):
        send(box, 2, 1)
    assert send(box, 3) == range(3, 4)


def test_sequence_gaps_are_refused_without_effect() -> None:
    box = LogBox()
    send(box, 0)
    with pytest.raises(OutOfOrderSequenceError, match="sequence 2 after 0"):
        send(box, 2)
    assert send(box, 1) == range(1, 2)


def test_unknown_producer_may_start_at_any_sequence() -> None:
    box = LogBox()
    assert send(box, 41) == range(1)
    with pytest.raises(OutOfOrderSequenceError):
        send(box, 41 + 2)
    assert send(box, 42) == range(1, 2)


def test_sequences_wrap_around() -> None:
    box = LogBox()
    send(box, _MAX_SEQUENCE - 1, 2)
    send(box, 0, 2)
    assert box.log.append_as_leader(batch(values(2), producer=(7, 0, _MAX_SEQUENCE - 1)), 0).first_offset == 0
    box = LogBox()
    send(box, _MAX_SEQUENCE - 1, 4)
    assert send(box, 2) == range(4, 5)
    assert box.log.append_as_leader(batch(values(4), producer=(7, 0, _MAX_SEQUENCE - 1)), 0).duplicate


def test_new_epoch_starts_at_sequence_0_and_fences_the_old_one() -> None:
    box = LogBox()
    send(box, 0)
    with pytest.raises(OutOfOrderSequenceError, match="instead of 0"):
        send(box, 1, epoch=1)
    send(box, 0, epoch=1)
    with pytest.raises(InvalidProducerEpochError):
        send(box, 1, epoch=0)
    # A batch of the old epoch is not taken for a duplicate either.
    with pytest.raises(InvalidProducerEpochError):
        send(box, 0, epoch=0)
    assert send(box, 1, epoch=1) == range(2, 3)


def test_follower_accepts_what_the_leader_accepted() -> None:
    box = LogBox()
    for offset, (epoch, sequence) in enumerate(((0, 0), (0, 7), (2, 3), (1, 9))):
        box.log.append_as_follower(batch(base_offset=offset, epoch=0, producer=(7, epoch, sequence)))
    assert box.log.log_end_offset == 4


def test_restart_restores_producers_by_replay() -> None:
    box = LogBox()
    for sequence in range(4):
        send(box, sequence)
    box.open()
    for sequence in range(4):
        assert box.log.append_as_leader(batch(producer=(7, 0, sequence)), 0).first_offset == sequence
    assert send(box, 4) == range(4, 5)


def test_snapshot_contains_only_the_last_batch() -> None:
    box = LogBox()
    for sequence in range(4):
        send(box, sequence)
    assert box.log.producer_state.loaded_offset == 0
    box.log.close()
    box.open()
    assert box.log.producer_state.loaded_offset == 4
    assert box.log.append_as_leader(batch(producer=(7, 0, 3)), 0).duplicate
    with pytest.raises(OutOfOrderSequenceError):
        send(box, 2)
    assert box.log.truncate_to(3)
    assert box.log.producer_state.loaded_offset == 0
    assert box.log.append_as_leader(batch(producer=(7, 0, 1)), 0).duplicate


def test_snapshot_does_not_change_after_it_was_taken() -> None:
    box = LogBox()
    send(box, 0)
    box.log.close()
    box.open()
    for sequence in (1, 2):
        send(box, sequence)
    box.log.truncate_to(1)
    with pytest.raises(OutOfOrderSequenceError, match="sequence 3 after 0"):
        send(box, 3)
    assert send(box, 1) == range(1, 2)


def test_expired_producers_are_not_loaded() -> None:
    box = LogBox()
    send(box, 0)
    send_txn(box, 0, id=8)
    box.log.close()
    box.clock.advance(86_400_000)
    box.open()
    assert [entry.producer_id for entry in box.log.active_producers] == [8]


def test_old_snapshots_are_deleted() -> None:
    box = LogBox({"internal.segment.bytes": "300"})
    snapshots = box.disk.directory(TP).producer_snapshots
    for sequence in range(20):
        send(box, sequence)
        box.log.close()
        box.open()
        assert set(snapshots) <= {sequence, sequence + 1, *(segment.base_offset for segment in box.log.segments)}
    box.log.truncate_to(7)
    assert max(snapshots) == 7
    assert send(box, 7) == range(7, 8)


def test_truncation_reverts_sequences() -> None:
    box = LogBox({"internal.segment.bytes": "200"})
    for sequence in range(6):
        send(box, sequence)
    assert len(box.log.segments) > 2
    for end in (5, 3, 1):
        box.log.truncate_to(end)
        with pytest.raises(OutOfOrderSequenceError):
            send(box, end + 1)
        assert box.log.append_as_leader(batch(producer=(7, 0, end - 1)), 0).duplicate
    box.log.truncate_to(0)
    assert not box.log.active_producers
    assert send(box, 9) == range(1)


def test_idle_producers_expire() -> None:
    box = LogBox()
    send(box, 0)
    send_txn(box, 0, id=8)
    box.clock.advance(86_400_000)
    box.log.remove_expired_producers()
    assert [entry.producer_id for entry in box.log.active_producers] == [8]
    assert send(box, 5) == range(2, 3)


def test_open_transactions_hold_the_last_stable_offset() -> None:
    box = LogBox()
    send_txn(box, 0, id=7)
    send_txn(box, 0, id=8)
    box.append()
    assert (box.log.high_watermark, box.log.last_stable_offset) == (3, 0)
    end_txn(box, id=7)
    assert box.log.last_stable_offset == 1
    end_txn(box, id=8, commit=False)
    assert box.log.last_stable_offset == 5
    info = box.log.read(0, 10_000, FetchIsolation.TXN_COMMITTED)
    assert info.aborted_transactions == [AbortedTxn(8, 1, 4, 5)]
    assert box.log.read(0, 10_000).aborted_transactions is None


def test_transaction_is_open_until_its_marker_is_replicated() -> None:
    box = LogBox()
    send_txn(box, 0)
    box.log.append_as_leader(marker(7, 0, commit=True), 0, AppendOrigin.COORDINATOR)
    assert (box.log.high_watermark, box.log.log_end_offset, box.log.last_stable_offset) == (1, 2, 0)
    box.log.update_high_watermark(1)
    assert box.log.last_stable_offset == 0
    box.log.update_high_watermark(2)
    assert box.log.last_stable_offset == 2


def test_read_returns_its_aborted_transactions() -> None:
    box = LogBox({"internal.segment.bytes": "250"})
    expected = []
    for id in range(10, 16):
        first = send_txn(box, 0, id=id)[0]
        last = end_txn(box, id=id, commit=False)[0]
        expected.append(AbortedTxn(id, first, last, last + 1))
        send_txn(box, 0, id=id + 100)
        end_txn(box, id=id + 100)
    assert len(box.log.segments) > 3
    assert box.log.collect_aborted_txns(0, 100) == expected
    for offset in range(24):
        info = box.log.read(offset, 1, FetchIsolation.TXN_COMMITTED)
        assert info.aborted_transactions == [
            txn for txn in expected if txn.last_offset >= offset and txn.first_offset < info.next_offset
        ]
    box.open()
    assert box.log.collect_aborted_txns(0, 100) == expected
    box.log.truncate_to(expected[3].last_offset)
    assert box.log.collect_aborted_txns(0, 100) == expected[:3]
    box.log.update_high_watermark(100)
    assert box.log.last_stable_offset == expected[3].first_offset


def test_transaction_refuses_wrong_states_and_epochs() -> None:
    box = LogBox()
    send_txn(box, 0)
    with pytest.raises(InvalidTxnStateError):
        send(box, 1)
    assert box.log.last_stable_offset == 0
    end_txn(box, coordinator_epoch=3)
    with pytest.raises(TransactionCoordinatorFencedError):
        end_txn(box, coordinator_epoch=2)
    # A marker of a later epoch fences the producer, and sequences restart.
    end_txn(box, epoch=1, coordinator_epoch=3)
    with pytest.raises(InvalidProducerEpochError):
        send(box, 1)
    with pytest.raises(InvalidProducerEpochError):
        end_txn(box, coordinator_epoch=3)
    assert send(box, 0, epoch=1) == range(3, 4)


def test_transaction_survives_a_restart() -> None:
    for in_order in (False, True):
        box = LogBox()
        box.append()
        send_txn(box, 0)
        if in_order:
            box.log.close()
        box.open()
        box.log.update_high_watermark(2)
        assert box.log.last_stable_offset == 1
        end_txn(box)
        assert box.log.last_stable_offset == 3


def test_deletion_may_cut_an_open_transaction() -> None:
    box = LogBox()
    send_txn(box, 0)
    box.append()
    box.log.maybe_increment_log_start_offset(1)
    assert box.log.last_stable_offset == 1
    end_txn(box)
    assert box.log.last_stable_offset == 3
