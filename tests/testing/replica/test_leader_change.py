"""Leader changes: the records that followers keep and truncate, and the records that are never lost."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from pykclient.errors import ControllerMovedError, StaleBrokerEpochError
from pykclient.testing.replica.fetch_session import FetchSessionCache
from pykclient.testing.replica.replica_fetcher import FETCHING
from pykclient.types import TopicPartition
from tests.testing.replica.harness import TP, ReplicaCluster, Reply


@pytest.fixture(params=["4.3", "2.6"], ids=["by diverging epochs", "by OffsetsForLeaderEpoch"])
def cluster(request: pytest.FixtureRequest) -> ReplicaCluster:
    cluster = ReplicaCluster(3, release=request.param, min_insync_replicas=2)
    assert cluster.broker(1).replica_manager.truncates_on_fetch == (request.param == "4.3")
    cluster.create()
    cluster.run()
    return cluster


def same_logs(cluster: ReplicaCluster, ids: tuple[int, ...] = (1, 2, 3), tp: TopicPartition = TP) -> bool:
    return all(cluster.values(id, tp) == cluster.values(ids[0], tp) for id in ids)


def test_deposed_leader_truncates_unreplicated_records(cluster: ReplicaCluster) -> None:
    cluster.produce(1, b"committed")
    cluster.run()
    for id in (2, 3):
        cluster.broker(id).pause()
    lost = cluster.produce(1, b"never acknowledged")
    cluster.run(10)
    cluster.broker(1).pause()
    for id in (2, 3):
        cluster.broker(id).resume()
    cluster.elect(2, isr=[2, 3])
    cluster.broker(1).resume()
    kept = cluster.produce(2, b"new")
    cluster.run(2_000)
    assert kept.produced().base_offset == 1
    assert lost.produced().error_code == 6
    assert same_logs(cluster)
    assert cluster.values(1) == [b"committed", b"new"]
    assert cluster.partition(2).isr == {1, 2, 3}


def test_divergent_epochs_are_truncated_one_by_one(cluster: ReplicaCluster) -> None:
    """KIP-279: brokers 1 and 2 led alternately and wrote without knowing of each other's epochs."""
    cluster.produce(1, b"shared")
    cluster.run()

    def write_alone(id: int, *values: bytes) -> None:
        for other in (1, 2, 3):
            if other != id and not cluster.broker(other).paused:
                cluster.broker(other).pause()
        if cluster.broker(id).paused:
            cluster.broker(id).resume()
        known = cluster.registrations[TP]
        known.leader, known.isr = id, [id]
        known.leader_epoch += 1
        known.partition_epoch += 1
        cluster.send_leader_and_isr([TP], to=[id])
        for value in values:
            cluster.produce(id, value, acks=1)
        cluster.run(1)

    write_alone(1, b"1a", b"1b")
    write_alone(2, b"2a")
    write_alone(1, b"1c")
    write_alone(2, b"2b", b"2c", b"2d")
    assert cluster.values(1) == [b"shared", b"1a", b"1b", b"1c"]
    assert cluster.values(2) == [b"shared", b"2a", b"2b", b"2c", b"2d"]
    for id in (1, 3):
        cluster.broker(id).resume()
    cluster.elect(2)
    cluster.run(2_000)
    assert cluster.values(2) == [b"shared", b"2a", b"2b", b"2c", b"2d"]
    assert same_logs(cluster)


def test_reelected_leader_forgets_former_follower_offsets(cluster: ReplicaCluster) -> None:
    """A follower may have truncated records of the old leader for the leader in between."""
    cluster.produce(1, b"committed")
    cluster.run(10)
    cluster.broker(3).pause()
    cluster.produce(1, b"of two")
    cluster.run(10)
    assert cluster.partition(1).remote_replicas[2].log_end_offset == 2
    cluster.broker(1).pause()
    cluster.broker(3).resume()
    cluster.elect(3, to=(2, 3))
    cluster.run(100)
    assert cluster.values(2) == [b"committed"]
    cluster.broker(2).pause()
    cluster.broker(1).resume()
    cluster.elect(1, isr=[1, 2])
    cluster.run(10)
    assert cluster.partition(1).high_watermark == 1
    cluster.broker(2).resume()
    cluster.run(1_000)
    assert same_logs(cluster)
    assert cluster.partition(1).high_watermark == 2


def test_unclean_leader_truncates_followers(cluster: ReplicaCluster) -> None:
    cluster.broker(3).pause()
    cluster.elect(1, isr=[1, 2])
    for value in (b"a", b"b", b"c"):
        cluster.produce(1, value)
    cluster.run()
    for id in (1, 2):
        cluster.broker(id).pause()
    cluster.broker(3).resume()
    known = cluster.registrations[TP]
    known.leader, known.isr, known.leader_epoch, known.partition_epoch = 3, [3], 2, 2
    cluster.send_leader_and_isr([TP], to=[3])
    cluster.produce(3, b"only", acks=1)
    for id in (1, 2):
        cluster.broker(id).resume()
    cluster.send_leader_and_isr([TP])
    cluster.run(2_000)
    assert cluster.values(3) == [b"only"]
    assert same_logs(cluster)


def test_killed_broker_catches_up(cluster: ReplicaCluster) -> None:
    cluster.produce(1, b"a")
    cluster.run(10)
    cluster.kill(1)
    cluster.elect(2, isr=[2, 3])
    cluster.produce(2, b"b")
    cluster.run(500)
    cluster.start(1)
    cluster.send_leader_and_isr([TP])
    cluster.run(500)
    assert cluster.values(1) == [b"a", b"b"]
    assert cluster.partition(2).isr == {1, 2, 3}
    assert cluster.log(1).high_watermark == 2


def test_restarted_leader_reads_its_high_watermark_checkpoint() -> None:
    cluster = ReplicaCluster(3, replica_high_watermark_checkpoint_interval_ms=1_000)
    cluster.create()
    cluster.produce(1, b"a")
    cluster.run(1_000)
    cluster.produce(1, b"b")
    cluster.run(10)
    cluster.kill(1)
    cluster.start(1)
    cluster.leader_and_isr(1, [TP])
    assert cluster.log(1).high_watermark == 1
    assert cluster.log(1).log_end_offset == 2
    cluster.run(1_000)
    assert cluster.log(1).high_watermark == 2


def test_follower_with_a_deleted_offset_restarts_at_the_log_start() -> None:
    cluster = ReplicaCluster(2, replica_lag_time_max_ms=1_000)
    cluster.create([1, 2])
    for value in (b"a", b"b"):
        cluster.produce(1, value)
    cluster.run()
    cluster.broker(2).pause()
    for value in (b"c", b"d", b"e"):
        cluster.produce(1, value)
    cluster.run(3_000)
    cluster.log(1).maybe_increment_log_start_offset(4)
    cluster.broker(2).resume()
    cluster.run(1_000)
    assert cluster.log(2).log_start_offset == 4
    assert cluster.log(2).log_end_offset == 5
    assert cluster.values(2) == [b"e"]
    assert cluster.partition(1).isr == {1, 2}


def test_followers_delete_records_with_the_leader() -> None:
    cluster = ReplicaCluster(3)
    cluster.create()
    for value in (b"a", b"b", b"c"):
        cluster.produce(1, value)
    cluster.run(600)
    results: list[object] = []
    manager = cluster.broker(1).replica_manager
    manager.delete_records(
        1_000, {TP: 2}, lambda found: results.extend((r.low_watermark, r.error_code) for r in found.values())
    )
    assert not results
    cluster.run(1_000)
    assert results == [(2, 0)]
    assert [cluster.log(id).log_start_offset for id in (1, 2, 3)] == [2, 2, 2]


def test_delete_records_reports_errors() -> None:
    cluster = ReplicaCluster(2)
    cluster.create([1, 2])
    cluster.produce(1, b"a")
    cluster.run()
    results: dict[object, tuple[int, int]] = {}

    def delete(id: int, offset: int) -> tuple[int, int]:
        cluster.broker(id).replica_manager.delete_records(
            300,
            {TP: offset},
            lambda found: results.update({tp: (r.low_watermark, r.error_code) for tp, r in found.items()}),
        )
        cluster.run(300)
        return results.pop(TP)

    assert delete(1, 2) == (-1, 1)
    assert delete(2, 1) == (-1, 6)
    cluster.broker(2).pause()
    assert delete(1, -1) == (-1, 7)


# --- the controller --------------------------------------------------------------------------------------------------


def test_deposed_controllers_are_refused() -> None:
    cluster = ReplicaCluster(1)
    cluster.controller_epoch = 5
    cluster.create([1])
    cluster.controller_epoch = 4
    with pytest.raises(ControllerMovedError, match="epoch 4"):
        cluster.leader_and_isr(1, [TP])
    with pytest.raises(ControllerMovedError):
        cluster.stop_replica(1)
    assert cluster.broker(1).replica_manager.controller_epoch == 5


def test_requests_with_an_old_broker_epoch_are_refused() -> None:
    cluster = ReplicaCluster(1)
    cluster.create([1])
    manager = cluster.broker(1).replica_manager
    with pytest.raises(StaleBrokerEpochError):
        manager.state_changes.check_controller(1, 9, cluster.broker(1).epoch - 1)
    assert manager.controller_epoch == 1


def test_repeated_state_changes_nothing() -> None:
    cluster = ReplicaCluster(3)
    cluster.create()
    cluster.produce(1, b"a")
    cluster.run()
    state = cluster.partition(1).state
    fetcher = cluster.broker(2).replica_manager.replica_fetcher_manager.fetcher(1)
    assert fetcher is not None
    fetch_state = fetcher.fetch_state(TP)
    cluster.send_leader_and_isr([TP])
    assert cluster.partition(1).state is state
    assert fetcher.fetch_state(TP) is fetch_state


def test_log_of_another_topic_id_is_not_adopted() -> None:
    cluster = ReplicaCluster(1)
    cluster.create([1])
    cluster.topic_ids["topic"] = UUID(int=8)
    cluster.registrations[TP].leader_epoch = 1
    response = cluster.leader_and_isr(1, [TP])
    assert response.topics[0].partition_errors[0].error_code == 103


def test_broker_that_is_not_a_replica_refuses() -> None:
    cluster = ReplicaCluster(2)
    cluster.create([1])
    response = cluster.leader_and_isr(2, [TP])
    assert response.topics[0].partition_errors[0].error_code == 3
    assert cluster.broker(2).replica_manager.partition(TP) is None


def test_stop_replica_deletes_or_only_stops() -> None:
    cluster = ReplicaCluster(2)
    cluster.create([1, 2])
    cluster.produce(1, b"a")
    cluster.run()
    fetchers = cluster.broker(2).replica_manager.replica_fetcher_manager
    cluster.elect(1)
    cluster.run()
    old = cluster.stop_replica(2, leader_epoch=0)
    assert old.partition_errors[0].error_code == 74
    cluster.stop_replica(2, leader_epoch=1, delete=False)
    fetcher = fetchers.fetcher(1)
    assert fetcher is None or fetcher.fetch_state(TP) is None
    assert cluster.values(2) == [b"a"]
    cluster.stop_replica(2, leader_epoch=-2)
    assert cluster.broker(2).replica_manager.partition(TP) is None
    assert cluster.broker(2).disk.directories == {}


def test_group_coordinator_is_told_its_partitions() -> None:
    cluster = ReplicaCluster(2)
    tp = TopicPartition("__consumer_offsets", 0)
    cluster.create([1, 2], topic=tp.topic)
    cluster.elect(2, tp=tp)
    cluster.elect(1, tp=tp)
    cluster.stop_replica(1, tp)
    assert cluster.coordinator_events(1) == [
        ("elected", 0, 0),
        ("resigned", 0, 1),
        ("elected", 0, 2),
        ("resigned", 0, -1),
    ]
    assert cluster.coordinator_events(2) == [("elected", 0, 1), ("resigned", 0, 2)]


# --- followers and their leader --------------------------------------------------------------------------------------


def test_follower_retries_until_the_leader_knows_its_role(cluster: ReplicaCluster) -> None:
    known = cluster.registrations[TP]
    known.leader, known.leader_epoch, known.partition_epoch = 2, 1, 1
    cluster.send_leader_and_isr([TP], to=[3, 1])
    cluster.run(250)
    cluster.send_leader_and_isr([TP], to=[2])
    reply = cluster.produce(2, b"a")
    cluster.run(200)
    assert reply.produced().error_code == 0
    assert same_logs(cluster)


def test_follower_reaches_a_returning_leader(cluster: ReplicaCluster) -> None:
    cluster.kill(1)
    cluster.run(3_000)
    cluster.start(1)
    cluster.elect(1)
    reply = cluster.produce(1, b"a")
    cluster.run(2_000)
    assert reply.produced().error_code == 0


def test_fetcher_has_one_request_in_flight_and_does_not_poll(cluster: ReplicaCluster) -> None:
    cluster.run(5_000)
    steps = cluster.loop.steps
    cluster.run(10_000)
    # Two followers each fetch every 500 ms: a request, a response, and the work on both sides.
    assert cluster.loop.steps - steps < 2 * 20 * 8


def test_dropped_fetch_session_is_reopened(cluster: ReplicaCluster) -> None:
    cluster.run(600)
    fetch_manager = cluster.broker(1).replica_manager.fetch_manager
    assert len(fetch_manager.cache) == 2
    fetch_manager.cache = FetchSessionCache(1_000)
    reply = cluster.produce(1, b"a")
    cluster.run(10)
    assert reply.produced().error_code == 0
    cluster.run(600)
    assert len(fetch_manager.cache) == 2


# --- nothing that was acknowledged is lost ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_records_on_two_replicas_survive_one_failure(cluster: ReplicaCluster, seed: int) -> None:
    rng = random.Random(seed)
    acknowledged: list[bytes] = []
    replies: list[tuple[bytes, Reply]] = []
    down: int | None = None
    number = 0

    def elect() -> None:
        known = cluster.registrations[TP]
        alive = [id for id in known.isr if id != down]
        assert alive, "with two in sync, one can always go"
        cluster.elect(rng.choice(alive), isr=alive if down in known.isr else known.isr)

    for _ in range(40):
        for _ in range(rng.randrange(4)):
            leader = cluster.registrations[TP].leader
            if leader != down:
                number += 1
                value = b"%d" % number
                replies.append((value, cluster.produce(leader, value)))
        cluster.run(rng.choice((0, 1, 5, 300)))
        action = rng.random()
        if action < 0.3:
            if down is not None:
                cluster.start(down)
                down = None
                cluster.send_leader_and_isr([TP])
                cluster.run(600)
            elif len(cluster.registrations[TP].isr) == 3:
                down = rng.choice((1, 2, 3))
                cluster.kill(down)
                elect()
        elif action < 0.5:
            elect()
    if down is not None:
        cluster.start(down)
        cluster.send_leader_and_isr([TP])
    cluster.run(3_000)
    for value, reply in replies:
        if reply.answered and reply.produced().error_code == 0:
            acknowledged.append(value)
    stored = cluster.values(cluster.registrations[TP].leader)
    assert acknowledged
    assert set(acknowledged) <= set(stored)
    assert [value for value in stored if value in acknowledged] == acknowledged
    assert same_logs(cluster)
    assert cluster.partition(cluster.registrations[TP].leader).isr == {1, 2, 3}
    for id in (1, 2, 3):
        fetchers = cluster.broker(id).replica_manager.replica_fetcher_manager
        for other in (1, 2, 3):
            fetcher = fetchers.fetcher(other)
            state = None if fetcher is None else fetcher.fetch_state(TP)
            assert state is None or state.state == FETCHING
