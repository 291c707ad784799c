"""A partition accepts the first records of a transaction only with a token that is still valid."""

from __future__ import annotations

import pytest

from pykclient.errors import (
    ConcurrentTransactionsError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
)
from pykclient.record.control_record import ControlRecordType, EndTransactionMarker
from pykclient.record.memory_records_builder import MemoryRecordsBuilder
from pykclient.testing.log.broker_disk import BrokerDisk
from pykclient.testing.log.log_config import LogConfig
from pykclient.testing.log.log_segment import MemoryBudget
from pykclient.testing.log.log_types import AppendOrigin
from pykclient.testing.log.producer_state_manager import VerificationState
from pykclient.testing.log.unified_log import UnifiedLog
from pykclient.types import TopicPartition
from tests.support.mock_clock import MockClock

PRODUCER = 7


class Log:
    """A log that verifies transactions, with one transactional producer."""

    def __init__(self, *, verifies: bool = True) -> None:
        self.clock = MockClock()
        self.disk = BrokerDisk(MemoryBudget(1 << 20), "disk")
        self.log = UnifiedLog(
            self.disk.directory(TopicPartition("topic", 0)),
            LogConfig(),
            self.clock,
            producer_id_expiration_ms=1_000,
            verifies_transactions=verifies,
        )

    def verify(self, epoch: int = 0, sequence: int = 0) -> VerificationState | None:
        return self.log.start_transaction_verification(PRODUCER, epoch, sequence)

    def append(
        self,
        token: VerificationState | None,
        epoch: int = 0,
        sequence: int = 0,
        origin: str = AppendOrigin.CLIENT,
        *,
        transactional: bool = True,
    ) -> None:
        builder = MemoryRecordsBuilder(
            producer_id=PRODUCER, producer_epoch=epoch, base_sequence=sequence, is_transactional=transactional
        )
        builder.append(self.clock.wall_ms(), None, b"x")
        self.log.append_as_leader(builder.build(), 0, origin, token)

    def mark(self, epoch: int = 0, transaction_version: int = 0) -> None:
        builder = MemoryRecordsBuilder(
            producer_id=PRODUCER, producer_epoch=epoch, is_transactional=True, is_control_batch=True
        )
        builder.append_end_txn_marker(self.clock.wall_ms(), EndTransactionMarker(ControlRecordType.ABORT, 0))
        self.log.append_as_leader(builder.build(), 0, AppendOrigin.COORDINATOR, transaction_version=transaction_version)

    @property
    def is_stable(self) -> bool:
        """True if no transaction is open, once everything is replicated."""
        self.log.update_high_watermark(self.log.log_end_offset)
        return self.log.producer_state.first_unstable_offset is None


@pytest.mark.parametrize("origin", [AppendOrigin.CLIENT, AppendOrigin.COORDINATOR])
def test_first_transactional_records_need_a_token(origin: str) -> None:
    log = Log()
    with pytest.raises(InvalidTxnStateError):
        log.append(None, origin=origin)
    token = log.verify()
    with pytest.raises(InvalidTxnStateError):
        log.append(None, origin=origin)
    with pytest.raises(InvalidTxnStateError):
        log.append(VerificationState(0, 0, 0), origin=origin)
    assert log.is_stable
    log.append(token, origin=origin)
    assert not log.is_stable
    assert log.verify() is None
    log.append(None, sequence=1, origin=origin)


def test_marker_invalidates_tokens() -> None:
    log = Log()
    token = log.verify()
    log.mark()
    with pytest.raises(InvalidTxnStateError):
        log.append(token)
    assert log.is_stable
    log.append(log.verify())


def test_open_transaction_covers_only_its_epoch() -> None:
    log = Log()
    log.append(log.verify())
    with pytest.raises(InvalidTxnStateError):
        log.append(None, epoch=1)
    token = log.verify(epoch=1)
    assert token is not None
    log.append(token, epoch=1)


def test_nontransactional_records_need_no_token() -> None:
    log = Log()
    log.append(None, transactional=False)
    log.append(None, sequence=1, transactional=False)


def test_verification_can_be_disabled() -> None:
    log = Log(verifies=False)
    assert log.verify() is None
    log.append(None)
    assert not log.is_stable


def test_followers_and_restarted_logs_need_no_token() -> None:
    log = Log()
    log.append(log.verify())
    follower = Log()
    for batch in log.log.batches(0, 1):
        follower.log.append_as_follower(batch.buffer)
    assert not follower.is_stable


def test_first_waiting_batch_must_be_appended_first() -> None:
    log = Log()
    token = log.verify(sequence=0)
    assert log.verify(sequence=1) is token
    with pytest.raises(OutOfOrderSequenceError):
        log.append(token, sequence=1)
    log.append(token, sequence=0)
    log.append(token, sequence=1)


def test_new_epoch_starts_its_own_sequence() -> None:
    log = Log()
    token = log.verify(sequence=5)
    assert log.verify(epoch=1, sequence=2) is token
    assert log.verify(epoch=0, sequence=0) is token
    with pytest.raises(OutOfOrderSequenceError):
        log.append(token, epoch=1, sequence=3)


def test_unused_tokens_expire() -> None:
    log = Log()
    token = log.verify()
    log.clock.advance(1_001)
    log.log.remove_expired_producers()
    with pytest.raises(InvalidTxnStateError):
        log.append(token)


def test_marker_of_version_2_increments_the_epoch() -> None:
    log = Log()
    log.append(log.verify())
    with pytest.raises(InvalidProducerEpochError):
        log.mark(epoch=0, transaction_version=2)
    assert not log.is_stable
    log.mark(epoch=1, transaction_version=2)
    assert log.is_stable
    log.mark(epoch=1, transaction_version=2)  # a retry
    with pytest.raises(InvalidProducerEpochError):
        log.mark(epoch=0, transaction_version=2)


def test_last_epoch_is_not_incremented() -> None:
    log = Log()
    last = (1 << 15) - 1
    log.append(log.verify(last), last)
    log.mark(last, transaction_version=2)
    assert log.is_stable


def test_transaction_waits_for_the_previous_marker() -> None:
    log = Log()
    log.append(log.verify(epoch=0), epoch=0)
    with pytest.raises(ConcurrentTransactionsError):
        log.log.start_transaction_verification(PRODUCER, 1, 0, bumps_epoch=True)
    log.mark(epoch=1, transaction_version=2)
    token = log.log.start_transaction_verification(PRODUCER, 1, 0, bumps_epoch=True)
    log.append(token, epoch=1)
    assert log.log.start_transaction_verification(PRODUCER, 1, 1, bumps_epoch=True) is None
