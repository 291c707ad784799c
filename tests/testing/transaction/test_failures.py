"""Transactions whose coordinator, leaders or producers fail, on virtual time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pykclient.errors import InvalidProducerEpochError, ProducerFencedError, UnstableOffsetCommitError
from pykclient.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from pykclient.protocol.messages.end_txn import EndTxnResponse
from pykclient.protocol.messages.produce import ProduceResponse
from pykclient.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from pykclient.types import TopicPartition
from tests.testing.transaction.harness import (
    ABORT,
    COMMIT,
    OFFSETS,
    TOPIC,
    TP0,
    TP1,
    TRANSACTIONS,
    Producer,
    TransactionHarness,
)

FENCED = (ProducerFencedError.code, InvalidProducerEpochError.code)
BOTH = pytest.mark.parametrize("version", [0, 2])


def started(cluster: TransactionHarness, transactional_id: str = "txn", timeout_ms: int = 60_000) -> Producer:
    producer = Producer(cluster, transactional_id, timeout_ms)
    assert producer.init() == 0
    return producer


def kill(cluster: TransactionHarness, tp: TopicPartition) -> int:
    """Kill the leader of a partition, and wait for another one."""
    former = cluster.leader(tp)
    cluster.cluster.kill_broker(former)
    cluster.run_until(lambda: cluster.cluster.leader(tp) not in (None, former), "another leader")
    return former


def move(cluster: TransactionHarness, tp: TopicPartition) -> int:
    """Let another broker lead a partition, and wait until it does."""
    former = cluster.leader(tp)
    assert cluster.cluster.move_leader(tp, min(set(cluster.cluster.isr(tp)) - {former}))
    cluster.run_until(lambda: cluster.cluster.leader(tp) not in (None, former), "another leader")
    return former


@pytest.mark.parametrize("version", [0, 1, 2])
def test_transactions_are_all_or_nothing(version: int) -> None:
    cluster = TransactionHarness(version)
    producer = started(cluster)
    for number in range(4):
        for partition in (0, 1):
            assert producer.write(b"%d" % number, partition) == 0
        assert producer.end(number % 2 == 0) == 0
    cluster.run_until(lambda: cluster.is_stable(TP0, TP1), "all markers are written")
    for tp in (TP0, TP1):
        assert cluster.committed(tp) == [b"0", b"2"]
        assert cluster.markers(tp) == 4
    assert producer.epoch == (4 if version == 2 else 0)


@BOTH
@pytest.mark.parametrize("committed", [COMMIT, ABORT])
@pytest.mark.parametrize("fail", [kill, move])
def test_new_coordinator_writes_markers_of_a_decided_transaction(
    version: int, committed: bool, fail: Callable[[TransactionHarness, TopicPartition], int]
) -> None:
    cluster = TransactionHarness(version)
    producer = started(cluster)
    for partition in (0, 1):
        assert producer.write(b"a", partition) == 0
    cluster.cluster.faults.drop_requests("WriteTxnMarkers", times=None, party=f"broker-{cluster.leader(TRANSACTIONS)}")
    assert producer.end(committed) == 0
    cluster.run_for(100)
    assert not cluster.is_stable(TP0)
    assert cluster.markers(TP0) == 0
    fail(cluster, TRANSACTIONS)
    cluster.run_until(lambda: cluster.is_stable(TP0, TP1), "all markers are written")
    for tp in (TP0, TP1):
        assert cluster.committed(tp) == ([b"a"] if committed else [])
    cluster.run_until_state("txn", "CompleteCommit" if committed else "CompleteAbort")
    assert producer.write(b"b") == 0
    assert producer.end(COMMIT) == 0
    cluster.run_until(lambda: cluster.committed(TP0)[-1:] == [b"b"], "the next transaction")


@BOTH
@pytest.mark.parametrize("fail", [kill, move])
def test_open_transaction_continues_with_another_coordinator(
    version: int, fail: Callable[[TransactionHarness, TopicPartition], int]
) -> None:
    cluster = TransactionHarness(version)
    producer = started(cluster)
    assert producer.write(b"a") == 0
    fail(cluster, TRANSACTIONS)
    assert producer.write(b"b", 1) == 0
    assert producer.end(COMMIT) == 0
    cluster.run_until(lambda: cluster.is_stable(TP0, TP1), "all markers are written")
    assert (cluster.committed(TP0), cluster.committed(TP1)) == ([b"a"], [b"b"])


@BOTH
def test_coordinator_death_before_replication_gives_one_outcome(version: int) -> None:
    """The producer does not know the outcome, asks the new coordinator, and gets the same one as all readers."""
    cluster = TransactionHarness(version)
    producer = started(cluster)
    assert producer.write(b"a") == 0
    former = cluster.leader(TRANSACTIONS)
    for other in {1, 2, 3} - {former}:
        cluster.cluster.faults.cut(former, other)
    asked = producer.end_later(COMMIT)
    cluster.run_for(100)
    assert not asked.done
    cluster.cluster.kill_broker(former)
    cluster.cluster.faults.heal()
    cluster.run_until(lambda: cluster.cluster.leader(TRANSACTIONS) not in (None, former), "another coordinator")
    cluster.run_until(lambda: cluster.cluster.leader(TP0) not in (None, former), "another leader")
    assert producer.end(COMMIT) == 0
    cluster.run_until(lambda: cluster.is_stable(TP0), "the marker is written")
    assert cluster.committed(TP0) == [b"a"]
    assert cluster.markers(TP0) == 1


@BOTH
@pytest.mark.parametrize("committed", [COMMIT, ABORT])
def test_markers_wait_for_a_leader(version: int, committed: bool) -> None:
    cluster = TransactionHarness(version)
    cluster.create_topic("alone", assignment=[[_not_coordinating(cluster)]])
    alone = TopicPartition("alone", 0)
    producer = started(cluster)
    assert producer.write(b"a") == 0
    _write_to(cluster, producer, alone)
    former = cluster.leader(alone)
    cluster.cluster.kill_broker(former)
    cluster.run_for(2_000)
    assert producer.end(committed) == 0
    cluster.run_until(lambda: cluster.is_stable(TP0), "the marker of the partition that has a leader")
    cluster.run_for(5_000)
    assert cluster.metadata("txn").state.name == ("PrepareCommit" if committed else "PrepareAbort")
    assert list(cluster.metadata("txn").topic_partitions) == [alone]
    cluster.cluster.start_broker(former)
    cluster.run_until_state("txn", "CompleteCommit" if committed else "CompleteAbort")
    assert cluster.is_stable(alone)
    assert cluster.markers(TP0) == 1


def _not_coordinating(cluster: TransactionHarness) -> int:
    used = {cluster.leader(TRANSACTIONS), cluster.leader(OFFSETS), cluster.controller_id}
    return min({1, 2, 3} - {cluster.leader(TRANSACTIONS)} - (used if len(used) < 3 else set()))


def _write_to(cluster: TransactionHarness, producer: Producer, tp: TopicPartition) -> None:
    """Produce to another topic than the producer's own."""
    request = producer.produce_request(0, b"x", sequence=0)
    request.topic_data[0].name = tp.topic
    if not producer.v2:
        assert producer.add(0, tp.topic) == 0
    answer = cluster.ask(request, ProduceResponse, cluster.leader(tp), producer.produce_version)
    assert answer.responses[0].partition_responses[0].error_code == 0


@BOTH
def test_partitions_of_deleted_topics_need_no_marker(version: int) -> None:
    cluster = TransactionHarness(version)
    producer = started(cluster)
    assert producer.write(b"a") == 0
    cluster.ask(DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=10_000), DeleteTopicsResponse, version=5)
    cluster.settle()
    cluster.run_for(1_000)
    assert producer.end(COMMIT) == 0
    cluster.run_until_state("txn", "CompleteCommit")


@BOTH
@pytest.mark.parametrize("committed", [COMMIT, ABORT])
def test_lost_marker_response_does_no_harm(version: int, committed: bool) -> None:
    cluster = TransactionHarness(version)
    producer = started(cluster)
    assert producer.write(b"a") == 0
    lost = cluster.cluster.faults.drop_responses("WriteTxnMarkers", times=2, disconnect=True, party="broker-*")
    assert producer.end(committed) == 0
    assert producer.write(b"b") == 0
    assert producer.end(COMMIT) == 0
    cluster.run_until_state("txn", "CompleteCommit")
    assert lost.hits == 2
    cluster.run_until(lambda: cluster.is_stable(TP0), "all markers are replicated")
    assert cluster.committed(TP0) == ([b"a", b"b"] if committed else [b"b"])


@BOTH
def test_open_transactions_time_out(version: int) -> None:
    cluster = TransactionHarness(version)
    slow = started(cluster, "slow", 5_000)
    patient = started(cluster, "patient", 60_000)
    assert slow.write(b"slow") == 0
    assert patient.write(b"patient", 1) == 0
    cluster.run_for(4_000)
    assert cluster.metadata("slow").state.name == "Ongoing"
    cluster.run_for(4_000)
    assert cluster.metadata("slow").state.name == "CompleteAbort"
    assert cluster.metadata("patient").state.name == "Ongoing"
    assert cluster.is_stable(TP0)
    assert cluster.committed(TP0) == []
    assert slow.write(b"late") in FENCED
    # Kafka takes an abort in the old epoch for a retry, as each transaction bumps the epoch.
    assert slow.end(COMMIT) in (*FENCED, 48)
    assert slow.init() == 0
    assert slow.write(b"again") == 0
    assert slow.end(COMMIT) == 0
    assert patient.end(COMMIT) == 0
    cluster.run_until(lambda: cluster.is_stable(TP0, TP1), "all markers are written")
    assert (cluster.committed(TP0), cluster.committed(TP1)) == ([b"again"], [b"patient"])


@BOTH
def test_failed_fence_is_retried_in_the_same_epoch(version: int) -> None:
    cluster = TransactionHarness(version, **{"request.timeout.ms": 2_000, "zookeeper.session.timeout.ms": 20_000})
    producer = started(cluster, timeout_ms=3_000)
    assert producer.write(b"a") == 0
    epoch = producer.epoch
    coordinator = cluster.leader(TRANSACTIONS)
    others = {1, 2, 3} - {coordinator}
    cluster.run_for(2_900)
    for other in others:
        cluster.cluster.faults.cut(coordinator, other)
    cluster.run_until(lambda: cluster.metadata("txn").pending_state is not None, "the abort begins")
    for other in others:
        cluster.cluster.kill_broker(other)
    cluster.cluster.faults.heal()
    cluster.run_until(lambda: cluster.metadata("txn").pending_state is None, "the abort has failed")
    assert cluster.metadata("txn").state.name == "Ongoing"
    for other in sorted(others):
        cluster.restart(other)
    cluster.run_until_state("txn", "CompleteAbort")
    assert cluster.metadata("txn").producer_epoch == epoch + 1
    assert cluster.committed(TP0) == []


@BOTH
def test_new_producer_fences_the_old_one(version: int) -> None:
    cluster = TransactionHarness(version)
    old = started(cluster)
    assert old.write(b"old") == 0
    new = started(cluster)
    assert new.producer_id == old.producer_id
    assert new.epoch > old.epoch
    assert old.write(b"zombie") in FENCED
    assert old.write(b"zombie", 1) in FENCED
    assert old.end(COMMIT) in FENCED
    assert new.write(b"new") == 0
    assert new.end(COMMIT) == 0
    cluster.run_until(lambda: cluster.is_stable(TP0, TP1), "all markers are written")
    assert (cluster.committed(TP0), cluster.committed(TP1)) == ([b"new"], [])


@BOTH
def test_late_request_does_not_reopen_a_transaction(version: int) -> None:
    """The question whether the transaction has the partition reaches the coordinator after the abort."""
    cluster = TransactionHarness(version)
    producer = started(cluster, timeout_ms=2_000)
    assert producer.write(b"a", 1) == 0
    if not producer.v2:
        assert producer.add(0) == 0
    held = cluster.cluster.faults.hold("AddPartitionsToTxn", party="broker-*")
    late = cluster.send(producer.produce_request(0, b"late"), cluster.leader(TP0), producer.produce_version)
    cluster.run_until_state("txn", "CompleteAbort")
    assert not late.done
    held.release()
    cluster.run_until(lambda: late.done, "a response to the late request")
    assert isinstance(late.response, ProduceResponse)
    assert late.response.responses[0].partition_responses[0].error_code == InvalidProducerEpochError.code
    cluster.run_for(10_000)
    assert cluster.is_stable(TP0, TP1)
    assert cluster.committed(TP0) == []
    assert cluster.metadata("txn").state.name == "CompleteAbort"


@BOTH
def test_restarted_brokers_know_open_and_aborted_transactions(version: int) -> None:
    cluster = TransactionHarness(version)
    aborting, open_one = started(cluster, "aborting"), started(cluster, "open")
    assert aborting.write(b"aborted") == 0
    assert open_one.write(b"open") == 0
    assert aborting.end(ABORT) == 0
    cluster.run_until_state("aborting", "CompleteAbort")
    cluster.run_for(1_000)
    before = [cluster.log(TP0, id).log_end_offset for id in (1, 2, 3)]
    assert before == [3, 3, 3]
    for id in (1, 2, 3):
        cluster.cluster.kill_broker(id)
        cluster.run_for(1_000)
        cluster.restart(id)
    assert cluster.log(TP0).last_stable_offset == 1
    assert open_one.end(COMMIT) == 0
    cluster.run_until(lambda: cluster.is_stable(TP0), "the marker is written")
    assert cluster.committed(TP0) == [b"open"]
    again = started(cluster, "aborting")
    assert again.producer_id == aborting.producer_id
    assert again.epoch > aborting.epoch - (version == 2)


@BOTH
def test_new_leaders_know_open_transactions(version: int) -> None:
    cluster = TransactionHarness(version)
    producer = started(cluster)
    assert producer.write(b"a") == 0
    move(cluster, TP0)
    assert not cluster.is_stable(TP0)
    assert cluster.log(TP0).last_stable_offset == 0
    assert producer.write(b"b") == 0
    kill(cluster, TP0)
    assert producer.write(b"c") == 0
    assert producer.end(ABORT) == 0
    cluster.run_until(lambda: cluster.is_stable(TP0), "the marker is written")
    assert cluster.committed(TP0) == []
    move(cluster, TP0)
    assert cluster.committed(TP0) == []


@BOTH
@pytest.mark.parametrize("committed", [COMMIT, ABORT])
@pytest.mark.parametrize("fail", [kill, move])
def test_transactional_offsets_survive_the_group_coordinator(
    version: int, committed: bool, fail: Callable[[TransactionHarness, TopicPartition], int]
) -> None:
    cluster = TransactionHarness(version)
    producer = started(cluster)
    assert producer.send_offset(3) == 0
    assert producer.end(COMMIT) == 0
    cluster.run_until(lambda: cluster.offset() == (0, 3), "the first commit")
    assert producer.send_offset(7) == 0
    assert cluster.offset(stable=False) == (0, 3)
    assert cluster.offset() == (UnstableOffsetCommitError.code, -1)
    fail(cluster, OFFSETS)
    assert cluster.offset() == (UnstableOffsetCommitError.code, -1)
    assert cluster.offset(stable=False) == (0, 3)
    assert producer.end(committed) == 0
    expected = 7 if committed else 3
    cluster.run_until_state("txn", "CompleteCommit" if committed else "CompleteAbort")
    assert cluster.offset() == (0, expected)
    fail(cluster, OFFSETS)
    assert cluster.offset() == (0, expected)


@BOTH
def test_former_coordinator_is_fenced(version: int) -> None:
    cluster = TransactionHarness(version)
    producer = started(cluster)
    move(cluster, TRANSACTIONS)
    assert producer.write(b"a") == 0
    assert producer.end(COMMIT) == 0
    cluster.run_until_state("txn", "CompleteCommit")
    assert producer.write(b"b") == 0
    marker = WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch + (version == 2),
        transaction_result=ABORT,
        coordinator_epoch=0,
        transaction_version=version,
        topics=[WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])],
    )
    leader = cluster.leader(TP0)
    answer = cluster.ask_as_broker(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse, leader)
    assert answer.markers[0].topics[0].partitions[0].error_code == 52
    assert producer.end(COMMIT) == 0
    cluster.run_until(lambda: cluster.is_stable(TP0), "the marker is written")
    assert cluster.committed(TP0) == [b"a", b"b"]


def test_marker_of_an_earlier_transaction_is_refused() -> None:
    """With version 2, a marker that arrives late cannot end the next transaction of its producer."""
    cluster = TransactionHarness(2)
    producer = started(cluster)
    assert producer.write(b"a") == 0
    assert producer.end(COMMIT) == 0
    cluster.run_until_state("txn", "CompleteCommit")
    assert producer.write(b"b") == 0
    late = WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        transaction_result=COMMIT,
        coordinator_epoch=0,
        transaction_version=2,
        topics=[WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])],
    )
    answer = cluster.ask_as_broker(WriteTxnMarkersRequest(markers=[late]), WriteTxnMarkersResponse, cluster.leader(TP0))
    assert answer.markers[0].topics[0].partitions[0].error_code == InvalidProducerEpochError.code
    assert not cluster.is_stable(TP0)


def test_exhausted_epochs_get_a_new_producer_id() -> None:
    """A producer gets a new id in time, and a retry of the request that brought it gets the same one."""
    cluster = TransactionHarness(2)
    producer = started(cluster)
    first_id = producer.producer_id
    cluster.metadata("txn").producer_epoch = producer.epoch = (1 << 15) - 3
    assert producer.write(b"a") == 0
    assert producer.end(COMMIT) == 0
    assert (producer.producer_id, producer.epoch) == (first_id, (1 << 15) - 2)
    assert producer.write(b"b") == 0
    request = producer.end_request(COMMIT)
    assert producer.end(COMMIT) == 0
    assert producer.producer_id != first_id
    assert producer.epoch == 0
    cluster.run_until_state("txn", "CompleteCommit")
    retry = cluster.ask(request, EndTxnResponse, cluster.leader(TRANSACTIONS), 5)
    assert (retry.error_code, retry.producer_id, retry.producer_epoch) == (0, producer.producer_id, 0)
    assert producer.write(b"c") == 0
    assert producer.end(COMMIT) == 0
    cluster.run_until(lambda: cluster.is_stable(TP0), "all markers are written")
    assert cluster.committed(TP0) == [b"a", b"b", b"c"]


@BOTH
def test_producer_in_the_last_epoch_can_be_fenced(version: int) -> None:
    cluster = TransactionHarness(version)
    producer = started(cluster)
    first_id = producer.producer_id
    cluster.metadata("txn").producer_epoch = producer.epoch = (1 << 15) - 2
    assert producer.write(b"a") == 0
    other = started(cluster)
    assert (other.producer_id, other.epoch) == (first_id + 1, 0)
    assert cluster.is_stable(TP0)
    assert cluster.committed(TP0) == []
    assert producer.write(b"b") in (*FENCED, 49)
    assert other.write(b"c") == 0
    assert other.end(COMMIT) == 0
    cluster.run_until(lambda: cluster.is_stable(TP0), "the marker is written")
    assert cluster.committed(TP0) == [b"c"]


def test_idle_transactional_ids_expire() -> None:
    settings = {
        "transactional.id.expiration.ms": 60_000,
        "transaction.remove.expired.transaction.cleanup.interval.ms": 10_000,
    }
    cluster = TransactionHarness(2, **settings)
    idle, busy = started(cluster, "idle"), started(cluster, "busy", 600_000)
    assert idle.write(b"a") == 0
    assert idle.end(COMMIT) == 0
    assert busy.write(b"b") == 0

    def known() -> list[str]:
        coordinator = cluster.broker(cluster.coordinator()).transaction_coordinator
        return [metadata.transactional_id for metadata in coordinator.list_transactions()]

    cluster.run_for(50_000)
    assert known() == ["idle", "busy"]
    cluster.run_for(30_000)
    assert known() == ["busy"]
    move(cluster, TRANSACTIONS)
    cluster.run_until(lambda: known() == ["busy"], "the new coordinator has loaded")
    assert idle.end(COMMIT) == 49
    again = started(cluster, "idle")
    assert again.producer_id != idle.producer_id
    assert again.epoch == 0


def test_decision_needs_enough_replicas() -> None:
    cluster = TransactionHarness(2, **{"replica.lag.time.max.ms": 1_000})
    producer = started(cluster)
    assert producer.write(b"a") == 0
    coordinator = cluster.leader(TRANSACTIONS)
    others = sorted({1, 2, 3} - {coordinator})
    for other in others:
        cluster.cluster.kill_broker(other)
    cluster.run_until(lambda: cluster.cluster.isr(TRANSACTIONS) == [coordinator], "the coordinator is alone")
    refused = producer.end_later(COMMIT)
    cluster.run_until(lambda: refused.done, "a response")
    assert isinstance(refused.response, EndTxnResponse)
    assert refused.response.error_code == 15
    assert cluster.metadata("txn").state.name == "Ongoing"
    for other in others:
        cluster.restart(other)
    assert producer.end(COMMIT) == 0
    cluster.run_until(lambda: cluster.is_stable(TP0), "the marker is written")
    assert cluster.committed(TP0) == [b"a"]


def test_same_schedule_gives_the_same_history() -> None:
    def history() -> list[tuple[int, int]]:
        cluster = TransactionHarness(2)
        producers = [started(cluster, f"txn-{number}") for number in range(3)]
        for producer in producers:
            for partition in (0, 1):
                assert producer.write(b"x", partition) == 0
        kill(cluster, TRANSACTIONS)
        for producer in producers:
            assert producer.end(COMMIT) == 0
        cluster.run_until(lambda: cluster.is_stable(TP0, TP1), "all markers are written")
        return [(record.api_key, record.broker_id) for record in cluster.cluster.history]

    assert history() == history()
