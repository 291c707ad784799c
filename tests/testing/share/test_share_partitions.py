"""What the delivery of records to a share group promises, whatever happens to members and brokers."""

from __future__ import annotations

import pytest

from pykclient.errors import (
    InvalidRecordStateError,
    OffsetNotAvailableError,
    ShareSessionLimitReachedError,
    ShareSessionNotFoundError,
    UnsupportedVersionError,
)
from pykclient.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from pykclient.protocol.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from pykclient.protocol.messages.read_share_group_state import ReadShareGroupStateRequest
from pykclient.protocol.messages.share_fetch import ShareFetchResponse
from pykclient.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from pykclient.protocol.messages.write_share_group_state import WriteShareGroupStateRequest
from pykclient.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from pykclient.testing.group.modern_groups import ShareGroup
from pykclient.testing.replica.partition import Partition
from pykclient.testing.share.in_flight_records import (
    RecordState,
    SharePartitionState,
    ShareState,
    StateBatch,
)
from pykclient.types import TopicPartition
from tests.testing.share.harness import ACCEPT, GAP, GROUP, REJECT, RELEASE, RENEW, TOPIC, Acquired, ShareHarness

LOCK_MS = 30_000


@pytest.fixture
def cluster() -> ShareHarness:
    harness = ShareHarness()
    harness.join()
    return harness


# --- locks


def test_records_with_expired_locks_are_redelivered(cluster: ShareHarness) -> None:
    cluster.produce(*"abc")
    assert cluster.fetch_some() == [(0, 2, 1)]
    assert cluster.acknowledge((1, 1, [ACCEPT])) == 0
    waiting = cluster.send_fetch(max_wait_ms=60_000)
    cluster.run_for(LOCK_MS - 1_000)
    assert not waiting.done
    before_ms = cluster.clock.now_ms()
    assert [(part.first_offset, part.delivery_count) for part in _acquired(cluster.answer(waiting))] == [(0, 2), (2, 2)]
    assert cluster.clock.now_ms() - before_ms <= 1_000
    assert cluster.acknowledge((0, 0, [ACCEPT])) == 0


def _acquired(response: ShareFetchResponse) -> list[ShareFetchResponse.AcquiredRecords]:
    return [each for topic in response.responses for part in topic.partitions for each in part.acquired_records]


def test_member_cannot_acknowledge_lost_records(cluster: ShareHarness) -> None:
    cluster.produce("a")
    cluster.fetch_some()
    cluster.run_for(LOCK_MS)
    assert cluster.acknowledge((0, 0, [ACCEPT])) == InvalidRecordStateError.code
    assert cluster.stored().batches == [StateBatch(0, 0, RecordState.AVAILABLE, 1)]


def test_record_is_not_acknowledged_twice_during_the_write(cluster: ShareHarness) -> None:
    """A member may repeat a request over a new connection, before the broker is done with the first one."""
    cluster.produce("a")
    cluster.fetch_some()
    first = cluster.send_fetch((0, 0, [ACCEPT]))
    assert not first.done
    assert cluster.acknowledge((0, 0, [RELEASE])) == InvalidRecordStateError.code
    cluster.answer(first)
    assert cluster.stored().batches == [StateBatch(0, 0, RecordState.ACKNOWLEDGED, 1)]


@pytest.mark.parametrize(
    ("kind", "state"),
    [(ACCEPT, RecordState.ACKNOWLEDGED), (REJECT, RecordState.ARCHIVED), (RELEASE, RecordState.AVAILABLE)],
)
def test_record_is_not_acknowledged_twice_after_the_write(cluster: ShareHarness, kind: int, state: RecordState) -> None:
    cluster.produce(*"ab")
    cluster.fetch_some()
    assert cluster.acknowledge((1, 1, [kind])) == 0
    for again in (ACCEPT, RELEASE, REJECT):
        assert cluster.acknowledge((1, 1, [again])) == InvalidRecordStateError.code
    assert cluster.stored().batches == [StateBatch(1, 1, state, 1)]


def test_renewed_lock_lasts_its_full_time(cluster: ShareHarness) -> None:
    cluster.produce(*"ab")
    cluster.fetch_some()
    cluster.run_for(LOCK_MS - 1_000)
    assert cluster.acknowledge((1, 1, [RENEW]), renew=True) == 0
    cluster.run_for(2_000)
    assert cluster.acknowledge((0, 0, [ACCEPT])) == InvalidRecordStateError.code
    cluster.run_for(LOCK_MS - 3_000)
    assert cluster.acknowledge((1, 1, [ACCEPT])) == 0
    cluster.run_for(LOCK_MS)
    assert cluster.fetch() == [(0, 0, 2)]


def test_a_record_is_archived_after_its_last_delivery(cluster: ShareHarness) -> None:
    cluster.configure(**{"share.delivery.count.limit": "2"})
    cluster.produce(*"ab")
    assert cluster.fetch_some() == [(0, 1, 1)]
    assert cluster.fetch((0, 1, [RELEASE]), max_wait_ms=1_000) == [(0, 1, 2)]
    cluster.run_for(LOCK_MS)
    assert cluster.fetch() == []
    assert (cluster.share_partition.records.start_offset, cluster.stored().start_offset) == (2, 0)
    cluster.produce("c")
    assert cluster.fetch(max_wait_ms=1_000) == [(2, 2, 1)]


def test_group_settings_apply_to_new_records(cluster: ShareHarness) -> None:
    cluster.produce("a")
    cluster.fetch_some()
    cluster.configure(**{"share.record.lock.duration.ms": "100"})
    cluster.produce("b")
    cluster.fetch(max_wait_ms=1_000)
    cluster.run_for(100)
    assert cluster.fetch() == [(1, 1, 2)]


# --- limits


def test_number_of_in_flight_records_is_limited(cluster: ShareHarness) -> None:
    cluster.configure(**{"share.partition.max.record.locks": "3"})
    for value in "abcdef":
        cluster.produce(value)
    assert cluster.fetch_some() == [(0, 2, 1)]
    assert cluster.fetch(max_wait_ms=500) == []
    assert cluster.fetch((0, 0, [ACCEPT]), max_wait_ms=500) == [(3, 3, 1)]
    # What is released between records in flight takes no more room.
    assert cluster.fetch((2, 2, [RELEASE]), max_wait_ms=500) == [(2, 2, 2)]


def test_excess_sessions_are_refused_after_a_delay() -> None:
    cluster = ShareHarness(**{"group.share.max.share.sessions": 1})
    cluster.join()
    cluster.send_fetch()
    refused = cluster.send(cluster.fetch_request("two", 0, (), max_wait_ms=700), cluster.leader)
    before_ms = cluster.clock.now_ms()
    cluster.run_until(lambda: refused.done, "an answer")
    assert isinstance(refused.response, ShareFetchResponse)
    assert refused.response.error_code == ShareSessionLimitReachedError.code
    assert cluster.clock.now_ms() - before_ms == 700


# --- where a group begins


def test_group_starts_at_the_end_or_at_a_time(cluster: ShareHarness) -> None:
    cluster.produce("old")
    cluster.run_for(20_000)
    cluster.produce("new")
    cluster.configure(**{"share.auto.offset.reset": "by_duration:PT10S"})
    assert cluster.fetch_some() == [(1, 1, 1)]

    later = ShareHarness()
    later.produce("old")
    later.configure(**{"share.auto.offset.reset": "latest"})
    later.join()
    waiting = later.send_fetch(max_wait_ms=60_000)
    later.run_for(1_000)
    later.produce("new")
    assert [each.first_offset for each in _acquired(later.answer(waiting))] == [1]


def test_offset_for_a_time_without_records_is_retried(cluster: ShareHarness) -> None:
    cluster.produce("old")
    cluster.run_for(20_000)
    cluster.configure(**{"share.auto.offset.reset": "by_duration:PT10S"})
    (topic,) = cluster.answer(cluster.send_fetch(max_wait_ms=500)).responses
    assert topic.partitions[0].error_code == OffsetNotAvailableError.code
    cluster.produce("new")
    assert cluster.fetch_some() == [(1, 1, 1)]


# --- the end of sessions and members


def test_closed_connection_releases_its_records(cluster: ShareHarness) -> None:
    cluster.produce(*"ab")
    cluster.fetch_some()
    cluster.broker(cluster.leader).on_disconnect("another-connection")
    cluster.run_for()
    assert cluster.acknowledge((0, 0, [RENEW]), renew=True) == 0
    cluster.broker(cluster.leader).on_disconnect("test-connection")
    cluster.run_for()
    assert cluster.acknowledge((0, 0, [ACCEPT])) == ShareSessionNotFoundError.code
    assert cluster.fetch_some("two") == [(0, 1, 2)]


def test_altered_offsets_apply_to_the_next_session(cluster: ShareHarness) -> None:
    cluster.produce(*"abc")
    cluster.fetch_some()
    assert cluster.acknowledge((0, 2, [ACCEPT]), close=True) == 0
    assert cluster.beat("one", -1).error_code == 0
    request = AlterShareGroupOffsetsRequest
    partition = request.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=1)
    topic = request.AlterShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=[partition])
    answer = cluster.ask(
        request(group_id=GROUP, topics=[topic]), AlterShareGroupOffsetsResponse, cluster.group_coordinator
    )
    assert [part.error_code for each in answer.responses for part in each.partitions] == [0]
    cluster.join()
    assert cluster.fetch_some() == [(1, 2, 1)]


def test_member_without_heartbeats_is_removed(cluster: ShareHarness) -> None:
    coordinator = cluster.broker(cluster.group_coordinator).group_coordinator
    cluster.run_for(46_000)
    assert coordinator.describe_group(ShareGroup, GROUP).members == {}


def test_group_changes_once_the_log_takes_the_change(cluster: ShareHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    group = cluster.broker(cluster.group_coordinator).group_coordinator.describe_group(ShareGroup, GROUP)
    epoch = group.group_epoch
    with monkeypatch.context() as patched:
        patched.setattr(Partition, "effective_min_isr", lambda _: 99)
        assert cluster.beat("two", 0).error_code == 15  # COORDINATOR_NOT_AVAILABLE
        assert cluster.beat("one", -1).error_code == 15
        assert cluster.beat("one", epoch).error_code == 0, "it changes nothing"
        cluster.run_for(46_000)
        assert (group.group_epoch, set(group.members)) == (epoch, {"one"})
    cluster.run_for(1_000)
    assert group.members == {}


def test_cluster_without_the_feature_refuses_share_groups(cluster: ShareHarness) -> None:
    cluster.cluster.features.update("share.version", 0)
    assert cluster.beat("two", 0).error_code == UnsupportedVersionError.code
    request = cluster.fetch_request("two", 0, ())
    assert cluster.ask(request, ShareFetchResponse, cluster.leader).error_code == UnsupportedVersionError.code


# --- transactions


def test_records_of_aborted_transactions_are_not_delivered() -> None:
    cluster = ShareHarness(1, **{"transaction.partition.verification.enable": False})
    cluster.join()
    cluster.configure(**{"share.isolation.level": "read_committed"})
    cluster.produce("before")
    cluster.produce("aborted", "aborted, too", producer=(7, 0))
    cluster.produce("after")
    # The transaction is open, so what comes after it is not delivered either.
    assert cluster.fetch_some() == [(0, 0, 1)]
    assert cluster.fetch(max_wait_ms=500) == []
    marker = WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=7,
        producer_epoch=0,
        transaction_result=False,
        topics=[WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])],
    )
    cluster.ask_as_broker(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse, cluster.leader)
    # Consumers skip the marker, which is acquired as well.
    assert cluster.fetch(max_wait_ms=500) == [(3, 4, 1)]
    assert cluster.acknowledge((0, 0, [ACCEPT]), (3, 4, [ACCEPT, GAP])) == 0
    assert cluster.share_partition.records.start_offset == 5


# --- other leaders


def moved(cluster: ShareHarness) -> int:
    """Kill the partition's leader, and return it when another broker leads."""
    old = cluster.leader
    cluster.broker(old).kill()
    cluster.run_until(lambda: cluster.cluster.active_controller() is not None, "a controller")
    cluster.run_until(lambda: cluster.leader not in (old, -1), "another leader")
    cluster.settle()
    cluster.epochs.clear()
    return old


def test_new_leader_continues_from_the_stored_state(cluster: ShareHarness) -> None:
    cluster.produce(*"abcdef")
    cluster.fetch_some()
    assert cluster.acknowledge((0, 0, [ACCEPT]), (2, 2, [ACCEPT]), (3, 3, [RELEASE]), (4, 4, [REJECT])) == 0
    moved(cluster)
    # Record 1 and 5 were acquired, which only the old leader knew; 3 was delivered once.
    delivered: list[Acquired] = []
    for _ in range(3):
        delivered += cluster.fetch_some("two") if not delivered else cluster.fetch(member="two")
    assert delivered == [(1, 1, 1), (3, 3, 2), (5, 5, 1)]
    assert cluster.acknowledge((1, 1, [ACCEPT]), (3, 3, [ACCEPT]), (5, 5, [ACCEPT]), member="two") == 0
    assert (cluster.share_partition.records.start_offset, cluster.fetch(member="two")) == (6, [])


def test_answered_acknowledgement_survives_a_failover(cluster: ShareHarness) -> None:
    cluster.produce(*"abc")
    cluster.fetch_some()
    assert cluster.acknowledge((0, 1, [ACCEPT])) == 0
    cluster.broker(cluster.share_coordinator).kill()
    cluster.run_for(2_000)
    cluster.settle()
    stored = cluster.stored()
    assert stored.batches == [StateBatch(0, 1, RecordState.ACKNOWLEDGED, 1)]


def test_former_leader_writes_nothing(cluster: ShareHarness) -> None:
    cluster.produce(*"ab")
    cluster.fetch_some()
    coordinator = cluster.broker(cluster.share_coordinator).share_coordinator
    errors: list[object] = []
    state = cluster.stored()
    asked = ReadShareGroupStateRequest.PartitionData(leader_epoch=state.leader_epoch + 5)
    coordinator.read_state(cluster.key, asked, lambda error, _: errors.append(error))
    cluster.run_until(lambda: errors, "the state was read by a new leader")
    assert errors == [None]
    assert cluster.acknowledge((0, 0, [ACCEPT])) == 6  # NOT_LEADER_OR_FOLLOWER
    assert cluster.stored().batches == []
    update = WriteShareGroupStateRequest.PartitionData(
        state_epoch=state.state_epoch - 1,
        leader_epoch=-1,
        start_offset=0,
        delivery_complete_count=1,
        state_batches=[WriteShareGroupStateRequest.StateBatch(delivery_state=2, delivery_count=1)],
    )
    coordinator.write_state(cluster.key, update, errors.append)
    cluster.run_for()
    assert getattr(errors[-1], "code", 0) == 124  # FENCED_STATE_EPOCH


def test_resigning_leader_forgets_its_members(cluster: ShareHarness) -> None:
    cluster.produce("a")
    cluster.fetch_some()
    share_partition = cluster.share_partition
    manager = cluster.broker(cluster.leader).share_partition_manager
    manager.on_resignation(TopicPartition(TOPIC, 0))
    assert share_partition.state is SharePartitionState.FENCED
    assert cluster.acknowledge((0, 0, [ACCEPT])) == 3  # UNKNOWN_TOPIC_OR_PARTITION
    assert cluster.fetch_some("two") == [(0, 0, 1)]


def test_a_new_group_coordinator_knows_members_and_assignment(cluster: ShareHarness) -> None:
    before = cluster.broker(cluster.group_coordinator).group_coordinator.describe_group(ShareGroup, GROUP)
    cluster.broker(cluster.group_coordinator).kill()
    cluster.run_for(3_000)
    answers = []
    for broker in cluster.cluster.alive_brokers():
        request = ShareGroupHeartbeatRequest(group_id=GROUP, member_id="one", member_epoch=before.group_epoch)
        answers.append(cluster.ask(request, ShareGroupHeartbeatResponse, broker.id))
    (answer,) = [answer for answer in answers if not answer.error_code]
    assert answer.member_epoch == before.group_epoch


# --- the records of the state


def state_log(cluster: ShareHarness) -> tuple[int, int]:
    """Return where the log of the share partition's state begins and ends."""
    coordinator = cluster.broker(cluster.share_coordinator)
    number = coordinator.share_coordinator.storage.partition_for(cluster.key.coordinator_key)
    replica = coordinator.replica_manager.partition(TopicPartition("__share_group_state", number))
    assert replica is not None
    assert replica.log is not None
    return replica.log.log_start_offset, replica.log.log_end_offset


@pytest.fixture
def pruning() -> ShareHarness:
    """A cluster with one partition of state, which snapshots after two changes and prunes each second."""
    cluster = ShareHarness(
        1,
        **{
            "share.coordinator.state.topic.num.partitions": 1,
            "share.coordinator.snapshot.update.records.per.snapshot": 2,
            "share.coordinator.state.topic.prune.interval.ms": 1_000,
            "share.coordinator.cold.partition.snapshot.interval.ms": 3_000,
        },
    )
    cluster.join()
    return cluster


def work(cluster: ShareHarness, count: int) -> None:
    """Deliver and acknowledge records one by one."""
    for _ in range(count):
        cluster.produce("x")
        found = cluster.fetch_some()
        assert cluster.acknowledge(*[(first, last, [ACCEPT]) for first, last, _ in found]) == 0


def test_records_before_the_last_snapshots_are_deleted(pruning: ShareHarness) -> None:
    work(pruning, 12)
    pruning.run_for(2_000)
    start, end = state_log(pruning)
    assert 0 < start <= end - 1, "the last snapshot is kept"
    assert end - start <= 4
    stored = pruning.stored()
    assert stored.start_offset + stored.delivery_complete_count == 12
    coordinator = pruning.broker(1).share_coordinator
    coordinator.on_election(0, 100)  # reads what the log still has
    pruning.run_until(lambda: 0 in coordinator.storage.loaded, "the state is loaded")
    assert pruning.stored() == stored


def test_idle_share_partition_does_not_keep_old_records(pruning: ShareHarness) -> None:
    """Its snapshot is repeated while others change, and not while nothing changes."""
    coordinator = pruning.broker(1).share_coordinator
    errors: list[object] = []
    resting = pruning.key._replace(group_id="resting")
    initial = InitializeShareGroupStateRequest.PartitionData(state_epoch=1, start_offset=5)
    coordinator.initialize_state(resting, initial, errors.append)
    pruning.run_until(lambda: errors == [None], "the state is there")
    work(pruning, 12)
    pruning.run_for(1_500)
    assert state_log(pruning)[0] <= 2, "the snapshot at rest is one of the first records"
    for _ in range(4):
        work(pruning, 3)
        pruning.run_for(1_500)
    start, end = state_log(pruning)
    assert start > 10
    pruning.run_for(20_000)
    assert state_log(pruning)[1] - end <= 2
    found: list[ShareState | None] = []
    asked = ReadShareGroupStateRequest.PartitionData(leader_epoch=-1)
    coordinator.read_state(resting, asked, lambda _, state: found.append(state))
    pruning.run_until(lambda: found, "the state was read")
    assert found[0] is not None
    assert found[0].start_offset == 5
