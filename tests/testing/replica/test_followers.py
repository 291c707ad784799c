"""Followers whose leader, connection or disk fails."""

from __future__ import annotations

from uuid import UUID

import pytest

from pykclient.errors import (
    CorruptRecordError,
    FencedLeaderEpochError,
    IllegalStateError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    StaleBrokerEpochError,
    UnknownServerError,
)
from pykclient.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from pykclient.protocol.messages.fetch import FetchRequest
from pykclient.testing.faults import DISCONNECT
from pykclient.testing.log.log_types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from pykclient.testing.replica.partition import PartitionState
from pykclient.testing.replica.replica_fetcher import (
    FETCHING,
    OUT_OF_RANGE,
    TRUNCATING,
    PartitionFetchState,
    ReplicaFetcherThread,
    offset_truncation_state,
)
from pykclient.types import TopicPartition
from tests.testing.replica.harness import TP, PartitionRegistration, ReplicaCluster, batch

FOLLOWER = "broker-2"


@pytest.fixture
def cluster() -> ReplicaCluster:
    cluster = ReplicaCluster(2)
    cluster.create([1, 2])
    cluster.run(100)
    return cluster


def fetcher(cluster: ReplicaCluster, id: int = 2, leader: int = 1) -> ReplicaFetcherThread:
    found = cluster.broker(id).replica_manager.replica_fetcher_manager.fetcher(leader)
    assert found is not None
    return found


def test_failing_leader_is_retried(cluster: ReplicaCluster) -> None:
    control = cluster.cluster.faults.answer("FETCH", UnknownServerError, times=3, party=FOLLOWER)
    cluster.produce(1, b"wakes the fetch that waits", acks=1)
    reply = cluster.produce(1, b"a")
    cluster.run(250)
    assert not reply.answered
    cluster.run(100)
    assert reply.produced().error_code == 0
    control.remove()


@pytest.mark.parametrize("verdict", [DISCONNECT, CorruptRecordError])
def test_broken_connection_is_reopened(cluster: ReplicaCluster, verdict: object) -> None:
    cluster.cluster.faults.control("FETCH", lambda _: verdict, times=2, party=FOLLOWER)  # type: ignore[arg-type, return-value]
    reply = cluster.produce(1, b"a")
    cluster.run(2_000)
    assert reply.produced().error_code == 0


def test_unanswered_request_is_abandoned() -> None:
    cluster = ReplicaCluster(2, request_timeout_ms=2_000)
    cluster.create([1, 2])
    cluster.cluster.faults.drop_responses("FETCH", times=1, party=FOLLOWER)
    cluster.produce(1, b"answers the fetch that waits")
    cluster.run(10)
    reply = cluster.produce(1, b"a")
    cluster.run(1_900)
    assert not reply.answered
    cluster.run(2_500)
    assert reply.produced().error_code == 0


def test_fenced_follower_waits_for_the_controller(cluster: ReplicaCluster) -> None:
    known = cluster.registrations[TP]
    known.leader_epoch, known.partition_epoch = 1, 1
    cluster.send_leader_and_isr([TP], to=[1])
    cluster.run(1_000)
    assert fetcher(cluster).fetch_state(TP) is None
    cluster.send_leader_and_isr([TP], to=[2])
    reply = cluster.produce(1, b"a")
    cluster.run(200)
    assert reply.produced().error_code == 0


def test_new_partition_does_not_wait_for_others(cluster: ReplicaCluster) -> None:
    """A new partition completes the follower's pending fetch, which waits for records of its other partitions."""
    cluster.create([1, 2], topic="new")
    reply = cluster.produce(1, b"a", tp=TopicPartition("new", 0))
    cluster.run(1)
    assert reply.produced().error_code == 0


def test_fetchers_of_former_leaders_are_closed(cluster: ReplicaCluster) -> None:
    for leader in (2, 1, 2, 1):
        cluster.elect(leader)
        cluster.run(50)
    assert cluster.broker(1).replica_manager.replica_fetcher_manager.fetcher(2) is None
    assert len(cluster.broker(1)._clients) == 0
    assert len(cluster.broker(2)._clients) == 1


def test_failed_partition_does_not_block_others() -> None:
    cluster = ReplicaCluster(2)
    cluster.create([1, 2], partitions=2)
    cluster.run(100)
    other = TP._replace(partition=1)
    # Make the log diverge from the leader's in a way that only a bug could cause.
    cluster.log(2, other).append_as_follower(batch(b"not the leader's", partition_leader_epoch=0))
    first, second = cluster.produce(1, b"a"), cluster.produce(1, b"b", tp=other)
    cluster.run(400)
    assert first.produced().error_code == 0
    assert not second.answered


def test_log_starting_inside_a_batch_is_copied_whole() -> None:
    cluster = ReplicaCluster(2)
    cluster.create([1, 2])
    cluster.run(100)
    cluster.kill(2)
    cluster.elect(1, isr=[1])
    cluster.produce(1, b"a", b"b", b"c")
    cluster.run(10)
    cluster.log(1).maybe_increment_log_start_offset(1)
    cluster.start(2)
    cluster.send_leader_and_isr([TP])
    cluster.run(1_000)
    log = cluster.log(2)
    assert (log.log_start_offset, log.log_end_offset) == (1, 3)
    assert cluster.partition(1).isr == {1, 2}


@pytest.mark.parametrize("error", [NotLeaderOrFollowerError, FencedLeaderEpochError, UnknownServerError])
def test_list_offsets_errors_are_retried(error: type[Exception]) -> None:
    cluster = ReplicaCluster(2)
    cluster.create([1, 2])
    cluster.run(100)
    cluster.broker(2).pause()
    cluster.elect(1, isr=[1])
    cluster.produce(1, b"a", b"b")
    cluster.produce(1, b"c")
    cluster.log(1).maybe_increment_log_start_offset(2)
    cluster.cluster.faults.answer("LIST_OFFSETS", error, party=FOLLOWER)  # type: ignore[arg-type]
    cluster.broker(2).resume()
    cluster.send_leader_and_isr([TP])
    cluster.run(1_000)
    if error is FencedLeaderEpochError:
        assert fetcher(cluster).fetch_state(TP) is None
    else:
        assert cluster.values(2) == [b"c"]


@pytest.mark.parametrize("error", [NotLeaderOrFollowerError, FencedLeaderEpochError])
def test_epoch_end_errors_are_retried(error: type[Exception]) -> None:
    cluster = ReplicaCluster(2, release="2.6")
    cluster.create([1, 2])
    cluster.produce(1, b"a")
    cluster.run(100)
    cluster.cluster.faults.answer("OFFSET_FOR_LEADER_EPOCH", error, party=FOLLOWER)  # type: ignore[arg-type]
    cluster.elect(1)
    cluster.produce(1, b"b")
    cluster.run(1_000)
    if error is FencedLeaderEpochError:
        assert fetcher(cluster).fetch_state(TP) is None
    else:
        assert cluster.values(2) == [b"a", b"b"]


def test_requests_are_retried_after_disconnects() -> None:
    for api, release in (("OFFSET_FOR_LEADER_EPOCH", "2.6"), ("LIST_OFFSETS", "4.3")):
        cluster = ReplicaCluster(2, release=release)
        cluster.create([1, 2])
        cluster.produce(1, b"a")
        cluster.run(100)
        cluster.broker(2).pause()
        cluster.cluster.faults.drop_requests(api, disconnect=True, party=FOLLOWER)
        cluster.elect(1, isr=[1])
        cluster.produce(1, b"b")
        if release == "4.3":
            cluster.log(1).maybe_increment_log_start_offset(2)
        cluster.broker(2).resume()
        cluster.send_leader_and_isr([TP])
        cluster.run(2_000)
        assert cluster.log(2).log_end_offset == 2
        assert cluster.partition(1).isr == {1, 2}


def test_leader_refuses_a_fetch_of_a_nonreplica(cluster: ReplicaCluster) -> None:
    request = FetchRequest(
        replica_state=FetchRequest.ReplicaState(replica_id=9),
        topics=[
            FetchRequest.FetchTopic(
                topic_id=cluster.topic_ids["topic"], partitions=[FetchRequest.FetchPartition(partition=0)]
            )
        ],
    )
    assert cluster.send(1, request).data().error_code == 6


# --- disks and logs --------------------------------------------------------------------------------------------------


def test_offline_disk_is_a_storage_error(cluster: ReplicaCluster) -> None:
    cluster.broker(1).disk.offline = True
    assert cluster.produce(1, b"a").produced().error_code == 56
    assert cluster.fetch(1).data().error_code == 56
    manager = cluster.broker(1).replica_manager
    with pytest.raises(KafkaStorageError):
        manager.get_partition_or_raise(TP)
    manager.checkpoint_high_watermarks()
    assert TP not in cluster.broker(1).disk.high_watermarks


def test_replica_on_an_offline_disk_is_reported_to_the_controller() -> None:
    cluster = ReplicaCluster(2)
    cluster.create([1, 2], topic="known")
    for id in (1, 2):
        cluster.broker(id).disk.offline = True
    cluster.topic_ids["new"] = UUID(int=77)
    tp = TopicPartition("new", 0)
    cluster.registrations[tp] = PartitionRegistration([1, 2])
    for id in (1, 2):
        response = cluster.leader_and_isr(id, [tp])
        assert response.topics[0].partition_errors[0].error_code == 56


def test_restarted_broker_does_not_adopt_the_log_of_another_topic(cluster: ReplicaCluster) -> None:
    for id in (1, 2):
        cluster.kill(id)
        cluster.start(id)
    cluster.topic_ids["topic"] = UUID(int=8)
    for id in (1, 2):
        response = cluster.leader_and_isr(id, [TP])
        assert response.topics[0].partition_errors[0].error_code == 103


def test_clean_shutdown_saves_the_high_watermark(cluster: ReplicaCluster) -> None:
    cluster.produce(1, b"a")
    cluster.run()
    broker = cluster.broker(1)
    broker._shut_down()
    assert broker.disk.high_watermarks[TP] == 1


# --- offsets ---------------------------------------------------------------------------------------------------------


def test_new_leader_hides_its_end_offset_until_it_is_committed(cluster: ReplicaCluster) -> None:
    cluster.produce(1, b"a")
    cluster.run(1)
    partition = cluster.partition(2)
    assert cluster.log(2).high_watermark == 0
    cluster.kill(1)
    cluster.elect(2, isr=[1, 2])

    def offset(timestamp: int, isolation: int | None = 0) -> int | None:
        found = partition.fetch_offset_for_timestamp(timestamp, isolation, -1, fetch_only_from_leader=True)
        return None if found is None else found.offset

    with pytest.raises(OffsetNotAvailableError):
        offset(LATEST_TIMESTAMP)
    with pytest.raises(OffsetNotAvailableError):
        offset(1_700_000_000_000)
    assert offset(EARLIEST_TIMESTAMP) == 0
    assert offset(LATEST_TIMESTAMP, None) == 1
    cluster.elect(2, isr=[2])
    assert offset(LATEST_TIMESTAMP) == 1
    assert offset(LATEST_TIMESTAMP, 1) == 1
    assert offset(1_700_000_000_000) == 0
    assert offset(1_700_000_000_001) is None


def test_commit_below_min_isr_is_reported_as_not_enough_replicas() -> None:
    cluster = ReplicaCluster(3, min_insync_replicas=2)
    cluster.create()
    cluster.produce(1, b"a")
    cluster.run()
    partition = cluster.partition(1)
    assert partition.check_enough_replicas_reach_offset(1) == (True, 0)
    assert partition.check_enough_replicas_reach_offset(2) == (False, 0)
    cluster.elect(1, isr=[1])
    assert partition.check_enough_replicas_reach_offset(1) == (True, 20)
    assert cluster.partition(2).check_enough_replicas_reach_offset(1) == (False, 6)


def test_truncation_offset_follows_epochs_of_the_leader() -> None:
    cluster = ReplicaCluster(1)
    cluster.create([1])
    for _ in range(3):
        cluster.produce(1, b"a", b"b")
        cluster.elect(1)
    log = cluster.log(1)  # two records in each of the epochs 0, 1 and 2
    assert offset_truncation_state(log, -1, 4) == (4, True)
    assert offset_truncation_state(log, 1, 3) == (3, True)
    assert offset_truncation_state(log, 1, 9) == (4, True)
    assert offset_truncation_state(log, 2, 100) == (6, True)
    # For an epoch later than all local ones, only the leader's end offset counts.
    assert offset_truncation_state(log, 7, 5) == (5, True)


def test_invalid_fetch_state_changes_are_refused() -> None:
    state = PartitionFetchState(UUID(int=1), 0, 0, -1, TRUNCATING)
    with pytest.raises(IllegalStateError, match="Truncating to OutOfRange"):
        state.move(OUT_OF_RANGE)
    state.move(FETCHING)
    state.move(OUT_OF_RANGE)
    with pytest.raises(IllegalStateError):
        state.move(TRUNCATING)


# --- the controller's channel ----------------------------------------------------------------------------------------


def test_isr_change_survives_a_refused_request(cluster: ReplicaCluster) -> None:
    answers = [
        AlterPartitionResponse(error_code=StaleBrokerEpochError.code),
        AlterPartitionResponse(),  # does not contain the partition
    ]
    usual = cluster.alter_partition

    def alter_partition(request: AlterPartitionRequest) -> AlterPartitionResponse:
        return answers.pop(0) if answers else usual(request)

    cluster.alter_partition = alter_partition  # type: ignore[method-assign]
    cluster.elect(1, isr=[1])
    cluster.run(1_000)
    assert cluster.partition(1).isr == {1, 2}
    assert len(cluster.alter_partition_requests) == 3


def test_changes_during_a_request_are_sent_with_the_next() -> None:
    cluster = ReplicaCluster(2)
    cluster.create([1, 2], partitions=2)
    cluster.run(100)
    other = TP._replace(partition=1)
    cluster.broker(2).pause()
    cluster.elect(1, isr=[1])
    cluster.elect(1, isr=[1], tp=other)
    manager = cluster.broker(1).replica_manager
    partition, second = cluster.partition(1), cluster.partition(1, other)
    partition._maybe_expand_isr(partition.remote_replicas[2])
    for found in (partition, second):
        found.remote_replicas[2].log_end_offset = 0
    partition._maybe_expand_isr(partition.remote_replicas[2])
    cluster.settle()
    assert len(cluster.alter_partition_requests) == 1
    second._maybe_expand_isr(second.remote_replicas[2])
    cluster.settle()
    assert len(cluster.alter_partition_requests) == 1
    # A second request while the first is in flight, as after a LEADER_AND_ISR, which clears the in-flight state.
    partition.state = PartitionState(frozenset({1}), frozenset({1}))
    partition._maybe_expand_isr(partition.remote_replicas[2])
    assert partition.state.sent is None
    cluster.run(10)
    assert len(cluster.alter_partition_requests) == 2
    assert manager.partition(other) is second
    assert partition.isr == second.isr == {1, 2}
