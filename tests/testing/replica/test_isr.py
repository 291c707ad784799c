"""In-sync replicas and the high watermark: replicas that join and leave, and the controller's decisions (KIP-497)."""

from __future__ import annotations

import pytest

from pykclient.testing.replica.partition import Replica
from tests.testing.replica.harness import TP, ReplicaCluster

LAG_MS = 2_000


@pytest.fixture
def cluster() -> ReplicaCluster:
    cluster = ReplicaCluster(3, replica_lag_time_max_ms=LAG_MS)
    cluster.create()
    cluster.run(1_000)
    return cluster


def test_high_watermark_follows_the_slowest_isr_member(cluster: ReplicaCluster) -> None:
    cluster.broker(3).pause()
    cluster.produce(1, b"a", acks=1)
    cluster.run(10)
    assert cluster.log(2).log_end_offset == 1
    assert cluster.log(1).high_watermark == 0
    cluster.broker(3).resume()
    cluster.run()
    assert cluster.log(1).high_watermark == 1


def test_followers_get_the_high_watermark_with_the_next_response(cluster: ReplicaCluster) -> None:
    cluster.produce(1, b"a")
    cluster.run()
    cluster.run(500)
    assert [cluster.log(id).high_watermark for id in (1, 2, 3)] == [1, 1, 1]


def test_lagging_replica_leaves_the_isr(cluster: ReplicaCluster) -> None:
    cluster.broker(3).pause()
    reply = cluster.produce(1, b"a")
    cluster.run(LAG_MS - 100)
    assert not reply.answered
    assert cluster.partition(1).isr == {1, 2, 3}
    cluster.run(LAG_MS)
    assert cluster.partition(1).isr == {1, 2}
    assert reply.produced().error_code == 0
    assert cluster.registrations[TP].isr == [1, 2]


def test_silent_replica_leaves_the_isr_only_if_it_lags(cluster: ReplicaCluster) -> None:
    """As in Kafka, a replica at the leader's end offset is in sync, no matter how long it has not fetched."""
    cluster.broker(3).pause()
    cluster.run(3 * LAG_MS)
    assert cluster.partition(1).isr == {1, 2, 3}


def test_caught_up_replica_joins_the_isr(cluster: ReplicaCluster) -> None:
    cluster.broker(3).pause()
    cluster.produce(1, b"a")
    cluster.run(3 * LAG_MS)
    cluster.broker(3).resume()
    cluster.run(10)
    assert cluster.partition(1).isr == {1, 2, 3}
    assert cluster.partition(1).partition_epoch == cluster.registrations[TP].partition_epoch == 2


def test_one_request_changes_all_partitions() -> None:
    cluster = ReplicaCluster(3, replica_lag_time_max_ms=LAG_MS)
    cluster.create(partitions=5)
    cluster.run(1_000)
    cluster.broker(3).pause()
    for index in range(5):
        cluster.produce(1, b"a", tp=TP._replace(partition=index))
    cluster.run(3 * LAG_MS)
    assert len(cluster.alter_partition_requests) == 1
    [topic] = cluster.alter_partition_requests[0].topics
    assert len(topic.partitions) == 5
    assert cluster.alter_partition_requests[0].broker_epoch == cluster.broker(1).epoch
    members = topic.partitions[0].new_isr_with_epochs
    assert [(member.broker_id, member.broker_epoch) for member in members] == [
        (1, cluster.broker(1).epoch),
        (2, cluster.broker(2).epoch),
    ]


def test_removed_replica_counts_until_the_controller_agrees(cluster: ReplicaCluster) -> None:
    cluster.alter_partition_error = None
    cluster.broker(3).pause()
    reply = cluster.produce(1, b"a")
    cluster.run(3 * LAG_MS)
    assert cluster.partition(1).state.sent is not None
    assert cluster.partition(1).isr == {1, 2, 3}
    assert not reply.answered
    cluster.alter_partition_error = 0
    cluster.run(2_000)
    assert reply.produced().error_code == 0


def test_only_one_isr_change_is_in_flight(cluster: ReplicaCluster) -> None:
    cluster.alter_partition_error = None
    cluster.broker(3).pause()
    cluster.produce(1, b"a")
    cluster.run(3 * LAG_MS)
    wanted = cluster.partition(1).state.sent
    assert wanted is not None
    assert wanted.isr == (1, 2)
    cluster.broker(2).pause()
    cluster.produce(1, b"b")
    cluster.run(3 * LAG_MS)
    assert cluster.partition(1).state.sent is wanted


def test_added_replica_counts_before_the_controller_agrees(cluster: ReplicaCluster) -> None:
    """The replica may be the next leader by then."""
    cluster.elect(1, isr=[1, 2])
    cluster.alter_partition_error = None
    cluster.run(10)
    partition = cluster.partition(1)
    assert partition.state.sent is not None
    assert partition.isr == {1, 2}
    assert partition.state.maximal_isr == {1, 2, 3}
    cluster.broker(3).pause()
    reply = cluster.produce(1, b"a")
    cluster.run(10)
    assert not reply.answered
    assert cluster.log(1).high_watermark == 0


def test_nothing_is_committed_below_min_isr(cluster: ReplicaCluster) -> None:
    """KAFKA-15583: a consumer does not see records that one broker alone has if min.insync.replicas is two."""
    cluster = ReplicaCluster(3, min_insync_replicas=2, replica_lag_time_max_ms=LAG_MS)
    cluster.create()
    cluster.run(100)
    for id in (2, 3):
        cluster.broker(id).pause()
    cluster.produce(1, b"a", acks=1)
    cluster.run(3 * LAG_MS)
    assert cluster.partition(1).isr == {1}
    assert cluster.log(1).high_watermark == 0
    cluster.broker(2).resume()
    cluster.run(10)
    assert cluster.log(1).high_watermark == 1


def test_leader_alone_in_the_isr_commits_at_once(cluster: ReplicaCluster) -> None:
    for id in (2, 3):
        cluster.broker(id).pause()
    cluster.elect(1, isr=[1])
    cluster.run(3 * LAG_MS)
    reply = cluster.produce(1, b"a")
    assert reply.produced().error_code == 0
    assert cluster.log(1).high_watermark == 1


@pytest.mark.parametrize("code", [3, 42, 74, 95, 100, 108])
def test_leader_with_outdated_state_waits_for_the_controller(cluster: ReplicaCluster, code: int) -> None:
    cluster.alter_partition_error = code
    cluster.broker(3).pause()
    cluster.produce(1, b"a")
    cluster.run(10 * LAG_MS)
    assert cluster.partition(1).state.sent is not None
    assert len(cluster.alter_partition_requests) == 1
    cluster.alter_partition_error = 0
    cluster.elect(1, isr=[1, 2])
    assert cluster.partition(1).state.sent is None
    assert cluster.partition(1).isr == {1, 2}


@pytest.mark.parametrize("code", [55, 107])
def test_refused_isr_change_is_requested_again(cluster: ReplicaCluster, code: int) -> None:
    cluster.alter_partition_error = code
    cluster.broker(3).pause()
    cluster.produce(1, b"a")
    cluster.run_until(lambda: cluster.alter_partition_requests)
    cluster.run(10)
    assert cluster.partition(1).state.sent is None
    cluster.alter_partition_error = 0
    cluster.run(2 * LAG_MS)
    assert cluster.partition(1).isr == {1, 2}


def test_other_errors_are_retried(cluster: ReplicaCluster) -> None:
    cluster.alter_partition_error = -1
    cluster.broker(3).pause()
    cluster.produce(1, b"a")
    cluster.run(2 * LAG_MS)
    assert len(cluster.alter_partition_requests) > 2
    cluster.alter_partition_error = 0
    cluster.run(100)
    assert cluster.partition(1).isr == {1, 2}


def test_leader_and_isr_overrides_pending_changes(cluster: ReplicaCluster) -> None:
    cluster.alter_partition_error = None
    cluster.broker(3).pause()
    cluster.produce(1, b"a")
    cluster.run(2 * LAG_MS)
    assert cluster.partition(1).state.sent is not None
    cluster.elect(1, isr=[1, 2])
    assert cluster.partition(1).isr == {1, 2}
    cluster.alter_partition_error = 0
    cluster.run(3_000)
    assert cluster.partition(1).isr == {1, 2}
    assert cluster.partition(1).partition_epoch == cluster.registrations[TP].partition_epoch


def test_late_response_is_accepted_only_if_newer(cluster: ReplicaCluster) -> None:
    cluster.broker(3).pause()
    cluster.produce(1, b"a")
    cluster.run_until(lambda: cluster.partition(1).state.sent is not None)
    # A controller that decided before it got AlterPartition sends the same state once more.
    partition = cluster.partition(1)
    assert partition.partition_epoch == 0
    cluster.registrations[TP].partition_epoch = 0
    cluster.leader_and_isr(1, [TP])
    cluster.run(10)
    assert partition.partition_epoch == 1
    assert partition.isr == {1, 2}


def test_older_state_is_refused(cluster: ReplicaCluster) -> None:
    cluster.elect(1, isr=[1, 2])
    known = cluster.registrations[TP]
    known.leader_epoch = 0
    response = cluster.leader_and_isr(1, [TP])
    assert response.topics[0].partition_errors[0].error_code == 11
    assert cluster.partition(1).leader_epoch == 1


# --- parts -----------------------------------------------------------------------------------------------------------


def test_follower_at_a_former_leader_end_is_caught_up() -> None:
    replica = Replica(2)
    assert not replica.is_caught_up(10, 1_000, 500)
    replica.update_fetch_state(0, 0, 1_000, 10, 7)
    assert not replica.is_caught_up(10, 1_000, 500)
    # The leader has advanced to 20 since, but at time 1000 its end offset was 10.
    replica.update_fetch_state(10, 0, 1_100, 20, 7)
    assert replica.last_caught_up_time_ms == 1_000
    assert replica.is_caught_up(20, 1_500, 500)
    assert not replica.is_caught_up(20, 1_501, 500)
    replica.update_fetch_state(20, 0, 1_600, 20, 6)
    assert replica.is_caught_up(20, 99_999, 500)
    assert replica.broker_epoch == 7
