"""Two-phase commit (KIP-939) against mock coordinators: what each call sends, and what may follow it."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from pykclient.errors import (
    IllegalArgumentError,
    IllegalStateError,
    KafkaError,
    NotCoordinatorError,
    ProducerFencedError,
    RecordTooLargeError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionalIdAuthorizationError,
    UnknownServerError,
    UnsupportedVersionError,
)
from pykclient.producer.transactions import transaction_state as state
from pykclient.producer.transactions.transactional_calls import PreparedTxnState
from pykclient.producer.transactions.transactional_methods import checked_prepared_state
from pykclient.types import ConsumerGroupMetadata, OffsetAndMetadata
from tests.producer.harness import TP0, TP1, TRANSACTION_TIMEOUT_MS
from tests.producer.transaction_harness import LOST, PRODUCER_ID, TransactionHarness


def two_phases(**settings: Any) -> TransactionHarness:
    """Return a producer without an id."""
    return TransactionHarness(init_version=6, two_phase_commit=True, **settings)


@pytest.fixture
def h() -> TransactionHarness:
    """A producer with an id."""
    harness = two_phases()
    harness.init()
    return harness


@pytest.fixture
def successor() -> TransactionHarness:
    """A producer that has found the prepared transaction 13:4 of an earlier one. Its own epoch is 6."""
    harness = two_phases()
    harness.ongoing, harness.epoch = (PRODUCER_ID, 4), 5
    harness.complete(harness.transactions.begin_init(True))
    harness.log.clear()
    return harness


# --- the prepared state ----------------------------------------------------------------------------------------------


def test_a_prepared_state_is_stored_as_text() -> None:
    prepared = PreparedTxnState.of(4711, 3)
    assert (str(prepared), prepared.producer_id, prepared.epoch) == ("4711:3", 4711, 3)
    assert PreparedTxnState("4711:3") == prepared == pickle.loads(pickle.dumps(prepared))
    assert prepared.has_transaction()
    assert hash(PreparedTxnState("4711:3")) == hash(prepared)
    assert prepared not in {PreparedTxnState("4711:4"), PreparedTxnState("4712:3"), PreparedTxnState()}
    assert prepared != "4711:3"
    with pytest.raises(AttributeError, match="cannot be changed"):
        prepared.epoch = 4


@pytest.mark.parametrize("empty", [None, ""])
def test_empty_state_has_no_transaction(empty: str | None) -> None:
    nothing = PreparedTxnState(empty)
    assert nothing == PreparedTxnState() == PreparedTxnState.of(-1, -1)
    assert (str(nothing), nothing.producer_id, nothing.epoch) == ("", -1, -1)
    assert not nothing.has_transaction()


@pytest.mark.parametrize(
    "text",
    ["4711", "4711:", ":3", "4711:3:", "-1:3", "1:-1", " 1:3", "1:3\n", "1:32768", f"{1 << 63}:0", "\u0661:3", 5],
)
def test_invalid_prepared_states_are_refused(text: Any) -> None:
    with pytest.raises(IllegalArgumentError, match="is not a prepared state"):
        PreparedTxnState(text)


def test_complete_requires_prepared_txn_state() -> None:
    with pytest.raises(IllegalArgumentError, match=r"must be a PreparedTxnState: .* PreparedTxnState\(text\)"):
        checked_prepared_state("4711:3")


# --- one producer ----------------------------------------------------------------------------------------------------


def test_init_asks_for_two_phases() -> None:
    h = two_phases()
    h.complete(h.transactions.begin_init())
    assert h.log[-1] == ("InitProducerId", -1, -1, "abort")


def test_prepare_sends_the_records_and_complete_commits(h: TransactionHarness) -> None:
    futures = h.begin(TP0, TP1)
    prepared = h.prepare()
    assert prepared == PreparedTxnState.of(PRODUCER_ID, 0)
    assert all(future.succeeded() for future in futures)
    assert sorted(h.names()) == ["FindCoordinator", "Produce", "Produce"][1:]
    assert h.transactions.current_state == state.PREPARED_TRANSACTION
    assert h.transactions.is_prepared
    h.rounds()
    assert not h.log  # a prepared transaction waits
    h.complete_prepared(PreparedTxnState(str(prepared)))
    assert h.log == [("EndTxn", "commit", 0)]
    assert h.transactions.current_state == state.READY


@pytest.mark.parametrize("other", ["", "13:1", "14:0"])
def test_complete_with_other_state_aborts(h: TransactionHarness, other: str) -> None:
    h.begin(TP0)
    h.prepare()
    h.complete_prepared(PreparedTxnState(other))
    assert h.log[-1] == ("EndTxn", "abort", 0)
    assert h.transactions.current_state == state.READY


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_prepared_transaction_can_be_ended_without_its_state(h: TransactionHarness, end: str) -> None:
    h.begin(TP0)
    h.prepare()
    getattr(h, end)()
    assert h.log[-1] == ("EndTxn", end, 0)
    assert h.transactions.current_state == state.READY


def test_each_transaction_has_its_own_state(h: TransactionHarness) -> None:
    """Or the state of an earlier transaction, which the database still has, would commit a later one."""
    seen = set()
    for tps in ((TP0,), (), (), (TP1,), ()):
        h.begin(*tps)
        prepared = h.prepare()
        assert prepared not in seen
        seen.add(prepared)
        h.complete_prepared(prepared)
    assert [entry for entry in h.log if entry[0] != "Produce"] == [
        ("EndTxn", "commit" if epoch in {0, 3} else "abort", epoch) for epoch in range(5)
    ]


def test_replaced_producer_does_not_abort_successors_transaction(h: TransactionHarness) -> None:
    """InitProducerId with an old epoch would abort a transaction that a database has committed."""
    h.begin()
    prepared = h.prepare()
    h.fail("EndTxn", ProducerFencedError)
    with pytest.raises(ProducerFencedError):
        h.complete_prepared(prepared)
    h.rounds()
    assert h.log == [("EndTxn", "abort", 0)]


def test_offsets_are_written_before_a_transaction_is_prepared(h: TransactionHarness) -> None:
    h.held = {"TxnOffsetCommit"}
    h.transactions.begin_transaction()
    h.transactions.send_offsets({TP0: OffsetAndMetadata(7)}, ConsumerGroupMetadata("g", 3, "m", None))
    result = h.transactions.begin_prepare()
    h.rounds()
    assert not result.completed
    h.held = set()
    h.complete(result, 400)  # the request times out, and is sent again
    assert h.transactions.is_prepared


def test_prepare_waits_for_records_without_lingering() -> None:
    h = two_phases(linger_ms=60_000)
    h.init()
    (future,) = h.begin(TP0)
    h.held = {"Produce"}
    result = h.transactions.begin_prepare()
    h.rounds(3)
    assert not result.completed
    with pytest.raises(
        IllegalStateError, match=r"send\(\) is not possible now: prepare_transaction\(\) is in progress"
    ):
        h.append()
    h.held = set()
    h.complete(result, 400)
    assert future.succeeded()


def test_a_failed_record_cannot_be_prepared(h: TransactionHarness) -> None:
    h.fail("Produce", RecordTooLargeError)
    h.begin(TP0)
    with pytest.raises(TransactionAbortableError) as raised:
        h.prepare()
    assert isinstance(raised.value.__cause__, RecordTooLargeError)
    with pytest.raises(TransactionAbortableError, match=r"Call abort_transaction\(\)"):
        h.transactions.begin_prepare()
    h.abort()
    h.begin(TP0)
    h.complete_prepared(h.prepare())


def test_other_calls_are_refused_after_prepare(h: TransactionHarness) -> None:
    h.begin(TP0)
    h.prepare()
    manager = h.transactions
    for call in (h.append, manager.begin_transaction, manager.begin_prepare, h.send_offsets):
        with pytest.raises(IllegalStateError, match=r"the transaction is prepared: only complete_transaction\(\), "):
            call()
    with pytest.raises(IllegalStateError, match="was called before"):
        manager.begin_init()
    assert manager.is_prepared


def test_complete_needs_a_prepared_transaction(h: TransactionHarness) -> None:
    manager = h.transactions
    with pytest.raises(IllegalStateError, match=r"no transaction is prepared\. Call prepare_transaction\(\) first, or"):
        manager.begin_complete(PreparedTxnState())
    h.begin(TP0)
    with pytest.raises(IllegalStateError, match="no transaction is prepared"):
        manager.begin_complete(PreparedTxnState())
    prepared = h.prepare()
    h.complete_prepared(prepared)
    with pytest.raises(IllegalStateError, match="no transaction is prepared"):
        manager.begin_complete(prepared)
    with pytest.raises(IllegalStateError, match="there is no transaction"):
        manager.begin_prepare()


def test_a_prepare_that_timed_out_can_be_repeated(h: TransactionHarness) -> None:
    h.held = {"Produce"}
    h.begin(TP0)
    result = h.transactions.begin_prepare()
    h.rounds()
    assert h.transactions.begin_prepare() is result
    with pytest.raises(IllegalStateError, match=r"Call prepare_transaction\(\) again"):
        h.transactions.begin_commit()
    h.held = set()
    h.rounds(300)
    assert result.completed
    h.complete(h.transactions.begin_prepare())
    assert h.transactions.is_prepared


@pytest.mark.parametrize("begun", [True, False], ids=["begun", "not begun"])
def test_a_prepare_that_timed_out_can_be_aborted(h: TransactionHarness, begun: bool) -> None:
    h.held = {"Produce"}
    h.begin(TP0)
    result = h.transactions.begin_prepare()
    if begun:
        h.rounds()
        assert h.transactions.current_state == state.PREPARING_TRANSACTION
    h.held = set()
    h.complete(h.transactions.begin_abort(), 400)
    assert isinstance(result.error, TransactionAbortedError)
    assert [entry[:2] for entry in h.log if entry[0] != "Produce"] == [("EndTxn", "abort")] * begun
    assert h.transactions.current_state == state.READY


def test_prepare_completed_after_timeout_can_be_aborted(h: TransactionHarness) -> None:
    h.begin(TP0)
    h.transactions.begin_prepare()
    h.rounds()
    assert h.transactions.is_prepared
    h.abort()
    assert h.log[-1] == ("EndTxn", "abort", 0)


def test_a_complete_that_timed_out_can_be_repeated(h: TransactionHarness) -> None:
    h.begin(TP0)
    prepared = h.prepare()
    h.held = {"EndTxn"}
    result = h.transactions.begin_complete(prepared)
    h.rounds()
    assert result is not None
    assert h.transactions.begin_complete(prepared) is result
    with pytest.raises(IllegalStateError, match=r"commit_transaction\(\) has begun"):
        h.transactions.begin_complete(PreparedTxnState())  # must not say that it was aborted
    h.held = set()
    h.rounds(300)
    assert h.transactions.begin_complete(prepared) is result  # it has ended, and the application does not know
    h.complete(result)
    assert h.log[-1] == ("EndTxn", "commit", 0)


@pytest.mark.parametrize("error", [LOST, NotCoordinatorError])
def test_the_end_of_a_prepared_transaction_is_retried(h: TransactionHarness, error: Any) -> None:
    h.begin(TP0)
    prepared = h.prepare()
    h.fail("EndTxn", error, error)
    h.complete_prepared(prepared)
    assert h.log[-1] == ("EndTxn", "commit", 0)


def test_a_prepared_transaction_never_times_out(h: TransactionHarness) -> None:
    h.begin(TP0)
    prepared = h.prepare()
    h.clock.advance(10 * TRANSACTION_TIMEOUT_MS)
    h.rounds()
    assert "13:0" in str(prepared)
    assert "transaction.timeout.ms" not in h.transactions.explain(h.clock.now_ms())
    h.complete_prepared(prepared)


def test_fencing_error_names_who_decides_prepared_transaction(h: TransactionHarness) -> None:
    h.begin(TP0)
    prepared = h.prepare()
    h.clock.advance(10 * TRANSACTION_TIMEOUT_MS)
    h.fail("EndTxn", ProducerFencedError)
    with pytest.raises(ProducerFencedError, match=r"another producer .* Its prepared transaction 13:0 is left to that"):
        h.complete_prepared(prepared)


def test_fatal_error_names_fate_of_prepared_transaction(h: TransactionHarness) -> None:
    h.begin(TP0)
    prepared = h.prepare()
    h.fail("EndTxn", UnknownServerError)
    with pytest.raises(UnknownServerError):
        h.complete_prepared(prepared)
    with pytest.raises(
        KafkaError, match=r"init_transactions\(keep_prepared_txn=True\) and complete_transaction\(\) end"
    ):
        h.transactions.begin_transaction()


# --- closing ---------------------------------------------------------------------------------------------------------


def test_close_leaves_a_prepared_transaction_to_the_next_producer(h: TransactionHarness) -> None:
    h.begin(TP0)
    h.prepare()
    h.sender.initiate_close()
    h.rounds(20)
    assert h.sender.is_closed
    assert "EndTxn" not in h.names()


def test_close_waits_for_the_end_of_a_prepared_transaction(h: TransactionHarness) -> None:
    h.begin(TP0)
    result = h.transactions.begin_complete(h.prepare())
    h.sender.initiate_close()
    h.rounds(20)
    assert h.sender.is_closed
    assert result is not None
    assert (result.completed, result.error) == (True, None)
    assert h.log[-1] == ("EndTxn", "commit", 0)


def test_close_aborts_unprepared_transaction(h: TransactionHarness) -> None:
    h.held = {"Produce"}
    h.begin(TP0)
    h.transactions.begin_prepare()
    h.rounds()
    h.held = set()
    h.sender.initiate_close()
    h.rounds(400)
    assert h.sender.is_closed
    assert h.log[-1][:2] == ("EndTxn", "abort")


# --- the next producer -----------------------------------------------------------------------------------------------


def test_init_finds_a_prepared_transaction() -> None:
    h = two_phases()
    h.ongoing, h.epoch = (PRODUCER_ID, 4), 5
    h.complete(h.transactions.begin_init(True))
    assert h.log[-1] == ("InitProducerId", -1, -1, "keep")
    assert h.transactions.is_prepared
    assert h.transactions.prepared_state == PreparedTxnState("13:4")
    with pytest.raises(IllegalStateError, match="the transaction is prepared"):
        h.transactions.begin_transaction()


@pytest.mark.parametrize(("stored", "end"), [("13:4", "commit"), ("13:3", "abort"), ("", "abort")])
def test_next_producer_completes_in_its_own_epoch(successor: TransactionHarness, stored: str, end: str) -> None:
    successor.complete_prepared(PreparedTxnState(stored))
    assert successor.log == [("EndTxn", end, 6)]
    successor.begin(TP0)
    assert successor.prepare() == PreparedTxnState("13:7")


def test_complete_without_prepared_transaction_sends_nothing() -> None:
    h = two_phases()
    h.complete(h.transactions.begin_init(True))
    h.log.clear()
    h.complete_prepared(PreparedTxnState("13:4"))  # it has ended before the earlier producer died
    h.complete_prepared(PreparedTxnState())
    assert not h.log
    h.begin(TP0)
    with pytest.raises(IllegalStateError, match="no transaction is prepared"):
        h.complete_prepared(PreparedTxnState("13:4"))


def test_init_without_keep_aborts_prepared_transaction() -> None:
    h = two_phases()
    h.ongoing = (PRODUCER_ID, 4)
    h.init()
    assert h.transactions.current_state == state.READY


def test_timed_out_init_must_be_repeated_with_same_argument() -> None:
    h = two_phases()
    h.ongoing, h.held = (PRODUCER_ID, 4), {"InitProducerId"}
    result = h.transactions.begin_init(True)
    h.rounds()
    with pytest.raises(IllegalStateError, match=r"keep_prepared_txn=True.* Call it again with the same argument"):
        h.transactions.begin_init()
    h.held = set()
    h.rounds(300)
    assert result.completed
    assert h.transactions.begin_init(True) is result
    h.complete(result)
    assert h.transactions.is_prepared


# --- what the brokers do not allow -----------------------------------------------------------------------------------


def test_two_phase_calls_need_their_setting() -> None:
    h = TransactionHarness(init_version=6)
    with pytest.raises(IllegalStateError, match=r"transaction\.two\.phase\.commit\.enable=True"):
        h.transactions.begin_init(True)
    h.init()
    assert h.version_of_init == 5
    h.begin(TP0)
    with pytest.raises(IllegalStateError, match=r"^prepare_transaction.*transaction\.two\.phase\.commit\.enable=True"):
        h.transactions.begin_prepare()
    with pytest.raises(IllegalStateError, match=r"^complete_transaction.*transaction\.two\.phase\.commit\.enable=True"):
        h.transactions.begin_complete(PreparedTxnState())
    h.commit()


def test_brokers_without_init_producer_id_v6_are_refused() -> None:
    h = two_phases()
    result = h.transactions.begin_init()
    while ("FindCoordinator", 1, "payments") not in h.log:
        h.run_once()
        for request in h.requests():
            h._answer(request)
    h.client.prepare_unsupported_version_response()
    with pytest.raises(UnsupportedVersionError, match=r"unstable\.api\.versions\.enable=true and transaction\.two\."):
        h.complete(result)
    assert h.transactions.has_fatal_error


def test_init_error_explains_brokers_without_two_phase_setting() -> None:
    h = two_phases()
    h.fail("InitProducerId", TransactionalIdAuthorizationError)
    with pytest.raises(TransactionalIdAuthorizationError, match="the brokers must also have that setting, and the pri"):
        h.init()
    h.init()  # once they do


def test_keep_prepared_txn_fails_if_brokers_refuse_it() -> None:
    h = two_phases()
    h.fail("InitProducerId", UnsupportedVersionError)
    with pytest.raises(UnsupportedVersionError, match="refuse keep_prepared_txn=True"):
        h.complete(h.transactions.begin_init(True))
    h.init()  # without it
    assert h.transactions.current_state == state.READY


def test_transaction_version_1_has_no_two_phase_commit() -> None:
    h = two_phases(v2=False)
    with pytest.raises(UnsupportedVersionError, match=r"transaction\.version of the cluster to 2"):
        h.init()
    assert h.transactions.has_fatal_error


def test_a_downgrade_refuses_to_prepare(h: TransactionHarness) -> None:
    h.set_generation(False)
    h.begin(TP0)
    h.complete_prepared(h.prepare())  # the transaction had begun in the second generation
    h.begin(TP0)
    with pytest.raises(UnsupportedVersionError, match=r"transaction\.version of the cluster to 2"):
        h.transactions.begin_prepare()
    h.abort()
    with pytest.raises(KafkaError):
        h.transactions.begin_prepare()
