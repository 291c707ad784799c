"""Transactions of a producer against mock coordinators: the order of requests, and what each error leads to."""

from __future__ import annotations

from typing import Any

import pytest

from pykclient.errors import (
    BrokerError,
    ClusterAuthorizationError,
    CommitFailedError,
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupAuthorizationError,
    IllegalGenerationError,
    IllegalStateError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    InvalidTxnTimeoutError,
    KafkaError,
    NotCoordinatorError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    RecordTooLargeError,
    TopicAuthorizationError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionalIdAuthorizationError,
    UnknownMemberIdError,
    UnknownProducerIdError,
    UnknownServerError,
)
from pykclient.producer.transactions import transaction_state as state
from pykclient.types import ConsumerGroupMetadata, OffsetAndMetadata
from tests.producer.harness import DELIVERY_TIMEOUT_MS, TP0, TP1, TRANSACTION_TIMEOUT_MS
from tests.producer.transaction_harness import LOST, PRODUCER_ID, TransactionHarness

TEMPORARY: list[type[BrokerError] | str] = [
    LOST,
    NotCoordinatorError,
    CoordinatorNotAvailableError,
    CoordinatorLoadInProgressError,
    ConcurrentTransactionsError,
]


@pytest.fixture(params=[True, False], ids=["v2", "v1"])
def h(request: pytest.FixtureRequest) -> TransactionHarness:
    """A producer with an id, of either generation."""
    harness = TransactionHarness(v2=request.param)
    harness.init()
    return harness


@pytest.fixture
def v1() -> TransactionHarness:
    harness = TransactionHarness(v2=False)
    harness.init()
    return harness


@pytest.fixture
def v2() -> TransactionHarness:
    harness = TransactionHarness(v2=True)
    harness.init()
    return harness


# --- the order of requests -------------------------------------------------------------------------------------------


def test_init_finds_the_coordinator_and_gets_an_id() -> None:
    h = TransactionHarness()
    h.complete(h.transactions.begin_init())
    assert h.log == [("FindCoordinator", 1, "payments"), ("InitProducerId", -1, -1)]
    assert h.transactions.producer_id_and_epoch == (PRODUCER_ID, 0)
    assert h.transactions.current_state == state.READY


def test_v2_adds_partitions_implicitly_and_bumps_epoch_at_end(v2: TransactionHarness) -> None:
    for epoch in range(3):
        futures = v2.begin(TP0, TP1)
        v2.commit()
        assert sorted(v2.log[:2]) == [("Produce", 13, 0, epoch, 0), ("Produce", 13, 1, epoch, 0)]
        assert v2.log[2:] == [("EndTxn", "commit", epoch)]
        assert [future.get(0).partition for future in futures] == [0, 1]
        v2.log.clear()


def test_v1_adds_partitions_first_and_keeps_its_epoch(v1: TransactionHarness) -> None:
    for sequence in range(2):
        v1.begin(TP0, TP1)
        v1.commit()
        assert v1.log[0] == ("AddPartitionsToTxn", 0, 1)
        assert sorted(v1.log[1:3]) == [("Produce", 11, 0, 0, sequence), ("Produce", 11, 1, 0, sequence)]
        assert v1.log[3:] == [("EndTxn", "commit", 0)]
        v1.log.clear()


def test_v1_adds_later_partition_by_separate_request(v1: TransactionHarness) -> None:
    v1.begin(TP0)
    v1.rounds()
    v1.append(TP1)
    v1.append(TP0)
    v1.commit()
    assert [entry for entry in v1.log if entry[0] == "AddPartitionsToTxn"] == [
        ("AddPartitionsToTxn", 0),
        ("AddPartitionsToTxn", 1),
    ]


def test_v1_adds_group_before_committing_offsets(v1: TransactionHarness) -> None:
    v1.begin()
    v1.send_offsets()
    v1.send_offsets()
    v1.commit()
    commit = ("TxnOffsetCommit", 4, "g", 3, "m")
    assert v1.log == [
        ("AddOffsetsToTxn", "g"),
        ("FindCoordinator", 0, "g"),
        commit,
        commit,
        ("EndTxn", "commit", 0),
    ]


def test_v1_adds_groups_to_each_transaction(v1: TransactionHarness) -> None:
    for _ in range(2):
        v1.begin()
        v1.send_offsets()
        v1.commit()
        assert [name for name in v1.names() if name != "FindCoordinator"] == [
            "AddOffsetsToTxn",
            "TxnOffsetCommit",
            "EndTxn",
        ]


def test_a_commit_waits_for_offsets_whose_call_timed_out(h: TransactionHarness) -> None:
    h.held = {"TxnOffsetCommit"}
    h.begin(TP0)
    offsets = h.transactions.send_offsets({TP0: OffsetAndMetadata(7)}, ConsumerGroupMetadata("g"))
    h.rounds()
    result = h.transactions.begin_commit()
    h.rounds()
    assert "EndTxn" not in [entry[0] for entry in h.log]
    h.held = set()
    h.complete(result, 400)  # the request times out, and is sent again
    assert (offsets.completed, offsets.error) == (True, None)
    assert h.names()[-2:] == ["TxnOffsetCommit", "EndTxn"]


def test_a_commit_waits_for_offsets_that_are_retried(h: TransactionHarness) -> None:
    h.fail("TxnOffsetCommit", *[CoordinatorLoadInProgressError] * 20)
    h.begin(TP0)
    offsets = h.transactions.send_offsets({TP0: OffsetAndMetadata(7)}, ConsumerGroupMetadata("g"))
    h.rounds()
    assert not offsets.completed
    h.complete(h.transactions.begin_commit(), 2_000)
    assert (offsets.completed, offsets.error) == (True, None)
    assert h.names()[-2:] == ["TxnOffsetCommit", "EndTxn"]


def test_abort_ends_timed_out_send_offsets(h: TransactionHarness) -> None:
    h.fail("TxnOffsetCommit", *[CoordinatorLoadInProgressError] * 100)
    h.begin(TP0)
    offsets = h.transactions.send_offsets({TP0: OffsetAndMetadata(7)}, ConsumerGroupMetadata("g"))
    h.rounds()
    h.abort()
    assert isinstance(offsets.error, TransactionAbortedError)


def test_v2_commits_offsets_without_adding_group(v2: TransactionHarness) -> None:
    v2.begin()
    v2.send_offsets(ConsumerGroupMetadata("g"))
    v2.abort()
    assert v2.log == [("FindCoordinator", 0, "g"), ("TxnOffsetCommit", 5, "g", -1, ""), ("EndTxn", "abort", 0)]


def test_a_transaction_without_records_needs_no_request(h: TransactionHarness) -> None:
    h.begin()
    h.commit()
    h.begin()
    h.abort()
    assert not h.log


def test_transaction_requests_are_sent_one_at_a_time(v1: TransactionHarness) -> None:
    v1.held = {"AddPartitionsToTxn"}
    v1.begin(TP0)
    v1.rounds()
    result = v1.transactions.send_offsets({}, ConsumerGroupMetadata("g"))
    v1.rounds()
    assert v1.client.in_flight_request_count() == 1
    v1.held = set()
    v1.complete(result)
    assert v1.names() == ["AddPartitionsToTxn", "Produce", "AddOffsetsToTxn", "FindCoordinator", "TxnOffsetCommit"]


def test_a_commit_waits_for_all_records(h: TransactionHarness) -> None:
    h.held = {"Produce"}
    h.begin(TP0)
    result = h.transactions.begin_commit()
    h.rounds()
    assert "EndTxn" not in [entry[0] for entry in h.log]
    h.held = set()
    h.complete(result)
    assert h.log[-1][:2] == ("EndTxn", "commit")


def test_call_completes_as_soon_as_its_response_is_read(h: TransactionHarness) -> None:
    """No further round of the sender is needed, so a caller that drives returns at once."""
    h.held = {"EndTxn"}
    h.begin(TP0)
    result = h.transactions.begin_commit()
    h.rounds()
    (request,) = h.requests()
    h.held = set()
    h._answer(request)
    assert not result.completed
    h.client.poll(0, h.clock.now_ms())
    assert result.completed
    assert h.transactions.current_state == state.READY


def test_a_commit_does_not_linger() -> None:
    h = TransactionHarness(linger_ms=60_000)
    h.init()
    (future,) = h.begin(TP0)
    h.rounds()
    assert not h.log
    h.commit()
    assert future.succeeded()


def test_abort_drops_unsent_records_and_waits_for_others(h: TransactionHarness) -> None:
    h.held = {"Produce"}
    (sent,) = h.begin(TP0)
    h.rounds()
    unsent = h.append(TP1)
    result = h.transactions.begin_abort()
    h.rounds()
    assert isinstance(unsent.exception, TransactionAbortedError)
    assert not sent.done()
    assert "EndTxn" not in [entry[0] for entry in h.log]
    h.held = set()
    h.complete(result)
    assert sent.succeeded()
    assert h.log[-1][:2] == ("EndTxn", "abort")
    assert h.pool.available_memory == h.pool.total_memory


def test_an_upgrade_takes_effect_with_the_next_transaction(v1: TransactionHarness) -> None:
    v1.begin(TP0)
    v1.rounds()
    v1.set_generation(True)
    v1.append(TP1)
    v1.commit()
    assert v1.names()[-2:] == ["EndTxn", "InitProducerId"]
    assert not [entry for entry in v1.log if entry[0] == "Produce" and entry[1] > 11]
    assert v1.transactions.producer_id_and_epoch == (PRODUCER_ID, 1)
    v1.begin(TP0)
    v1.commit()
    assert v1.log == [("Produce", 13, 0, 1, 0), ("EndTxn", "commit", 1)]


def test_a_downgrade_takes_effect_with_the_next_transaction(v2: TransactionHarness) -> None:
    v2.begin(TP0)
    v2.set_generation(False)
    v2.commit()
    assert v2.names() == ["Produce", "EndTxn"]
    v2.begin(TP0)
    v2.commit()
    assert v2.names() == ["AddPartitionsToTxn", "Produce", "EndTxn"]


# --- errors that pass ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", TEMPORARY, ids=str)
@pytest.mark.parametrize(
    "name", ["FindCoordinator", "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"]
)
def test_temporary_errors_are_retried(name: str, error: type[BrokerError] | str) -> None:
    h = TransactionHarness(v2=False)
    h.fail(name, error, error)
    h.complete(h.transactions.begin_init())
    (future,) = h.begin(TP0)
    h.rounds(20)
    h.send_offsets()
    h.commit()
    assert future.succeeded()
    assert [entry for entry in h.log if entry[0] == "EndTxn"][-1] == ("EndTxn", "commit", 0)
    lookups = sum(entry[:2] == ("FindCoordinator", 1) for entry in h.log)
    if name in {"InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn"}:
        is_lost = error in {LOST, NotCoordinatorError, CoordinatorNotAvailableError}
        assert lookups == (3 if is_lost else 1), h.log


def test_v1_gets_a_new_epoch_after_a_request_without_a_response(v1: TransactionHarness) -> None:
    """The request may arrive late. With the same epoch, it would end the next transaction in its middle."""
    v1.fail("EndTxn", LOST)
    v1.begin(TP0)
    v1.commit()
    assert v1.names()[2:] == ["EndTxn", "FindCoordinator", "EndTxn", "InitProducerId"]
    v1.begin(TP0)
    v1.commit()
    assert ("Produce", 11, 0, 1, 0) in v1.log
    assert ("EndTxn", "commit", 1) in v1.log
    assert "InitProducerId" not in [entry[0] for entry in v1.log]


def test_v2_keeps_epoch_after_lost_response(v2: TransactionHarness) -> None:
    v2.fail("EndTxn", LOST)
    v2.begin(TP0)
    v2.commit()
    assert "InitProducerId" not in [entry[0] for entry in v2.log[2:]]


def test_old_brokers_keep_epoch_after_lost_response() -> None:
    h = TransactionHarness(v2=False, init_version=2)
    h.init()
    h.log.clear()
    h.fail("EndTxn", LOST)
    h.begin(TP0)
    h.commit()
    assert "InitProducerId" not in [entry[0] for entry in h.log]
    h.begin(TP0)
    h.commit()


@pytest.mark.parametrize("error", [ProducerFencedError, TransactionalIdAuthorizationError])
def test_commit_succeeds_even_if_new_epoch_is_refused(v1: TransactionHarness, error: type[BrokerError]) -> None:
    v1.fail("EndTxn", LOST)
    v1.fail("InitProducerId", error)
    v1.begin(TP0)
    v1.commit()
    assert [entry[:2] for entry in v1.log[-2:]] == [("EndTxn", "commit"), ("InitProducerId", PRODUCER_ID)]
    with pytest.raises(KafkaError) as raised:
        v1.begin(TP0)
    assert "Nothing of its open transaction" not in str(raised.value)


def test_retries_back_off(v2: TransactionHarness) -> None:
    v2.begin(TP0)
    v2.fail("EndTxn", *[CoordinatorLoadInProgressError] * 10)
    started_ms = v2.clock.now_ms()
    v2.commit()
    assert v2.clock.now_ms() - started_ms >= 10 * 50


def test_coordinator_on_dead_broker_is_looked_up_again(v2: TransactionHarness) -> None:
    from tests.producer.harness import nodes

    v2.begin(TP0)
    v2.rounds()
    v2.client.set_unreachable(nodes(2)[1], 300)
    v2.client.backoff(nodes(2)[1], 300)
    v2.commit()
    assert "FindCoordinator" in v2.names()


# --- errors that end the transaction ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [RecordTooLargeError, InvalidTxnStateError, InvalidProducerEpochError, OutOfOrderSequenceError]
)
def test_failed_record_allows_only_abort(h: TransactionHarness, error: type[BrokerError]) -> None:
    h.fail("Produce", error)
    (future,) = h.begin(TP0)
    h.rounds()
    assert isinstance(future.exception, error)
    expected = InvalidProducerEpochError if error is InvalidProducerEpochError else TransactionAbortableError
    for call in (
        h.transactions.begin_commit,
        h.transactions.maybe_fail_with_error,
        lambda: h.transactions.send_offsets({}, ConsumerGroupMetadata("g")),
    ):
        with pytest.raises(expected, match=r"can only be aborted, because of .*Call abort_transaction\(\)"):
            call()
    h.log.clear()
    h.abort()
    assert h.names() == (["EndTxn"] if h.transactions.is_v2 else ["EndTxn", "InitProducerId"])
    (future,) = h.begin(TP0)
    h.commit()
    assert future.succeeded()
    assert h.log[-2] == ("Produce", 13 if h.transactions.is_v2 else 11, 0, 1, 0)


def test_error_during_commit_is_raised_by_commit(h: TransactionHarness) -> None:
    h.fail("Produce", TopicAuthorizationError)
    h.begin(TP0, TP1)
    with pytest.raises(TransactionAbortableError, match="is not authorized for WRITE"):
        h.commit()
    h.abort()
    assert h.log[-1][:2] in {("EndTxn", "abort"), ("InitProducerId", PRODUCER_ID)}
    assert not [entry for entry in h.log if entry[:2] == ("EndTxn", "commit")]


@pytest.mark.parametrize("is_v2", [True, False])
def test_expired_record_allows_only_abort(is_v2: bool) -> None:
    h = TransactionHarness(v2=is_v2, delivery_timeout_ms=DELIVERY_TIMEOUT_MS // 3)
    h.init()
    h.held = {"Produce"}
    (future,) = h.begin(TP0)
    h.rounds()
    h.clock.advance(DELIVERY_TIMEOUT_MS // 3)
    h.rounds()
    assert future.exception is not None
    result = h.transactions.begin_abort()
    h.rounds()
    assert "EndTxn" not in h.names()  # the broker may still write it
    h.held = set()
    h.complete(result)
    h.begin(TP0)
    h.commit()


@pytest.mark.parametrize(
    ("name", "error", "raised"),
    [
        ("AddPartitionsToTxn", TopicAuthorizationError, TransactionAbortableError),
        ("AddPartitionsToTxn", UnknownProducerIdError, TransactionAbortableError),
        ("AddOffsetsToTxn", GroupAuthorizationError, GroupAuthorizationError),
        ("TxnOffsetCommit", GroupAuthorizationError, GroupAuthorizationError),
        ("TxnOffsetCommit", UnknownMemberIdError, CommitFailedError),
        ("TxnOffsetCommit", IllegalGenerationError, CommitFailedError),
        ("TxnOffsetCommit", FencedInstanceIdError, FencedInstanceIdError),
        ("TxnOffsetCommit", TransactionAbortableError, TransactionAbortableError),
        ("EndTxn", TransactionAbortableError, TransactionAbortableError),
        ("EndTxn", UnknownProducerIdError, TransactionAbortableError),
    ],
)
def test_abortable_errors_allow_abort(
    v1: TransactionHarness, name: str, error: type[BrokerError], raised: type[KafkaError]
) -> None:
    v1.fail(name, error)
    v1.begin(TP0)

    def rest() -> None:
        v1.send_offsets()
        v1.commit()

    with pytest.raises(raised):
        rest()
    assert v1.transactions.current_state == state.ABORTABLE_ERROR
    v1.abort()
    (future,) = v1.begin(TP1)
    v1.commit()
    assert future.succeeded()


@pytest.mark.parametrize("error", [ProducerFencedError, InvalidProducerEpochError])
@pytest.mark.parametrize(
    "name", ["InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"]
)
def test_a_fenced_producer_can_only_be_closed(name: str, error: type[BrokerError]) -> None:
    h = TransactionHarness(v2=False)
    h.fail(name, error)

    def all_calls() -> None:
        h.complete(h.transactions.begin_init())
        h.begin(TP0)
        h.rounds()
        h.send_offsets()
        h.commit()

    with pytest.raises(ProducerFencedError, match=r"another producer with the same transactional\.id has started"):
        all_calls()
    for call in (h.transactions.begin_transaction, h.transactions.begin_abort, h.transactions.maybe_fail_with_error):
        with pytest.raises(ProducerFencedError, match="Close this producer"):
            call()


def test_fencing_error_names_exceeded_transaction_timeout(h: TransactionHarness) -> None:
    h.begin(TP0)
    h.rounds()
    h.clock.advance(TRANSACTION_TIMEOUT_MS)
    h.fail("EndTxn", ProducerFencedError)
    with pytest.raises(ProducerFencedError, match=r"longer than transaction\.timeout\.ms = 60000"):
        h.commit()


def test_transaction_ended_for_successor_is_fenced() -> None:
    """Until the successor has its epoch, the coordinator refuses the state and not the epoch."""
    h = TransactionHarness(v2=True)
    h.init()
    h.begin(TP0)
    h.rounds()
    h.fail("EndTxn", *[InvalidTxnStateError] * 21)
    with pytest.raises(ProducerFencedError, match=r"another producer with the same transactional\.id has started"):
        h.commit()
    with pytest.raises(ProducerFencedError):
        h.transactions.begin_abort()


def test_refusal_of_former_coordinator_is_retried() -> None:
    """A broker that was paused may still take itself for the coordinator."""
    h = TransactionHarness(v2=True)
    h.init()
    for _ in range(2):
        h.begin(TP0)
        h.rounds()
        h.names()
        h.fail("EndTxn", *[InvalidTxnStateError] * 15)
        h.commit()
        assert h.names() == ["EndTxn", "FindCoordinator"] * 15 + ["EndTxn"]


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("FindCoordinator", TransactionalIdAuthorizationError),
        ("InitProducerId", InvalidTxnTimeoutError),
        ("AddPartitionsToTxn", InvalidTxnStateError),
        ("AddOffsetsToTxn", TransactionalIdAuthorizationError),
        ("TxnOffsetCommit", TransactionalIdAuthorizationError),
        ("EndTxn", InvalidTxnStateError),
        ("EndTxn", UnknownServerError),
    ],
)
def test_all_calls_raise_a_fatal_error(name: str, error: type[BrokerError]) -> None:
    h = TransactionHarness(v2=False)
    h.fail(name, error)

    def all_calls() -> None:
        h.complete(h.transactions.begin_init())
        h.begin(TP0)
        h.rounds()
        h.send_offsets()
        h.commit()

    with pytest.raises(KafkaError, match=error.__name__ if name == "AddPartitionsToTxn" else None) as raised:
        all_calls()
    assert isinstance(raised.value, error) or name == "AddPartitionsToTxn"
    assert h.transactions.has_fatal_error
    with pytest.raises(KafkaError, match="failed permanently"):
        h.transactions.begin_abort()


@pytest.mark.parametrize("error", [TransactionalIdAuthorizationError, ClusterAuthorizationError])
def test_init_can_be_repeated_after_authorization_error(error: type[BrokerError]) -> None:
    h = TransactionHarness()
    h.fail("InitProducerId", error)
    with pytest.raises(error):
        h.init()
    h.init()
    h.begin(TP0)
    h.commit()


def test_refused_abort_is_fatal(h: TransactionHarness) -> None:
    h.begin(TP0)
    h.rounds()
    h.fail("EndTxn", TransactionAbortableError)
    with pytest.raises(TransactionAbortableError):
        h.abort()
    assert h.transactions.has_fatal_error


def test_sequence_gap_is_fatal_with_old_brokers() -> None:
    h = TransactionHarness(v2=False, init_version=2)
    h.init()
    h.fail("Produce", RecordTooLargeError)
    h.begin(TP0)
    h.rounds()
    with pytest.raises(KafkaError, match=r"brokers older than 2\.5"):
        h.transactions.begin_abort()


# --- rules -----------------------------------------------------------------------------------------------------------


def test_calls_before_init_are_refused() -> None:
    h = TransactionHarness()
    for call in (h.transactions.begin_transaction, h.transactions.begin_commit, h.transactions.begin_abort):
        with pytest.raises(IllegalStateError, match=r"call init_transactions\(\) first"):
            call()
    with pytest.raises(IllegalStateError, match=r"send\(\) is not possible now: call init_transactions\(\) first"):
        h.append()


def test_calls_without_transaction_are_refused(h: TransactionHarness) -> None:
    for call in (h.transactions.begin_commit, h.transactions.begin_abort):
        with pytest.raises(IllegalStateError, match=r"there is no transaction: begin_transaction\(\) begins one"):
            call()
    with pytest.raises(IllegalStateError, match=r"send\(\) is not possible now: there is no transaction"):
        h.append()
    with pytest.raises(IllegalStateError, match=r"init_transactions\(\) was called before"):
        h.transactions.begin_init()


def test_begin_inside_transaction_is_refused(h: TransactionHarness) -> None:
    h.begin()
    with pytest.raises(IllegalStateError, match="a transaction is open"):
        h.transactions.begin_transaction()


def test_a_call_that_timed_out_can_be_repeated_and_no_other_made(h: TransactionHarness) -> None:
    h.held = {"EndTxn"}
    h.begin(TP0)
    result = h.transactions.begin_commit()
    h.rounds()
    assert not result.completed
    for call in (h.transactions.begin_abort, h.transactions.begin_transaction):
        with pytest.raises(IllegalStateError, match=r"Call commit_transaction\(\) again for its result"):
            call()
    with pytest.raises(IllegalStateError, match="in progress"):
        h.append()
    assert h.transactions.begin_commit() is result
    h.held = set()
    h.rounds(300)  # the request times out, and is sent again
    assert result.completed
    with pytest.raises(IllegalStateError, match=r"Call commit_transaction\(\) again"):
        h.transactions.begin_abort()  # the application may believe that it was not committed
    h.complete(h.transactions.begin_commit())
    h.transactions.begin_transaction()


def test_call_succeeding_after_timeout_need_not_be_repeated(h: TransactionHarness) -> None:
    for end in (h.transactions.begin_commit, h.transactions.begin_abort):
        h.begin(TP0)
        result = end()
        h.rounds()
        assert result.completed
        h.transactions.begin_transaction()
        h.complete(h.transactions.begin_abort())


def test_call_failing_after_timeout_must_be_repeated(h: TransactionHarness) -> None:
    h.begin(TP0)
    result = h.transactions.begin_commit()
    h.transactions.transition_to_abortable_error(RuntimeError("no"))
    h.rounds()
    assert result.completed
    assert result.error is not None
    with pytest.raises(IllegalStateError, match=r"Call commit_transaction\(\) again for its result"):
        h.transactions.begin_transaction()


def test_no_record_gets_into_a_transaction_that_ends(h: TransactionHarness) -> None:
    h.held = {"EndTxn"}
    h.begin(TP0)
    h.transactions.begin_commit()
    h.append()  # the sender has not begun to commit, so this is part of the transaction
    h.rounds()
    with pytest.raises(IllegalStateError, match=r"commit_transaction\(\) is in progress"):
        h.append()
    assert not h.accumulator.has_incomplete


# --- closing ---------------------------------------------------------------------------------------------------------


def test_close_aborts_the_open_transaction(h: TransactionHarness) -> None:
    (future,) = h.begin(TP0)
    h.sender.initiate_close()
    h.rounds(20)
    assert h.sender.is_closed
    assert future.succeeded()
    assert h.log[-1][:2] == ("EndTxn", "abort")


def test_close_waits_for_a_commit(h: TransactionHarness) -> None:
    h.begin(TP0)
    result = h.transactions.begin_commit()
    h.sender.initiate_close()
    h.rounds(20)
    assert h.sender.is_closed
    assert (result.completed, result.error) == (True, None)
    assert h.log[-1][:2] == ("EndTxn", "commit")


def test_close_stops_waiting_after_transaction_timeout(h: TransactionHarness) -> None:
    h.held = {"EndTxn"}
    h.begin(TP0)
    h.rounds()
    h.sender.initiate_close()
    h.rounds()
    h.clock.advance(TRANSACTION_TIMEOUT_MS)
    h.rounds(150)
    assert h.sender.is_closed


def test_forced_close_fails_waiting_calls(h: TransactionHarness) -> None:
    h.held = {"EndTxn"}
    h.begin(TP0)
    result = h.transactions.begin_commit()
    h.rounds()
    h.sender.force_close()
    h.sender.step(h.clock.now_ms())
    assert h.sender.is_closed
    assert result.completed
    assert isinstance(result.error, KafkaError)


def test_transactions_leave_no_memory_or_state_behind(h: TransactionHarness) -> None:
    """Many transactions with errors in between leave no memory and no bookkeeping behind."""
    for number in range(12):
        if number % 3 == 1:
            h.fail("Produce", RecordTooLargeError)
        h.begin(TP0, TP1)
        h.rounds(3)
        failed: Any = h.transactions.current_state == state.ABORTABLE_ERROR
        if failed or number % 4 == 3:
            h.abort()
        else:
            h.commit()
    assert h.pool.available_memory == h.pool.total_memory
    assert not h.accumulator.register.held
    assert not h.accumulator.has_incomplete
