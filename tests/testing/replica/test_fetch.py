"""Fetches: waits, limits, isolation, epochs, racks, old versions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from pykclient.errors import ConfigError
from pykclient.protocol.messages.fetch import FetchRequest, FetchResponse
from pykclient.record import (
    Compression,
    CompressionType,
    ControlRecordType,
    EndTransactionMarker,
    MemoryRecords,
    MemoryRecordsBuilder,
)
from pykclient.testing.handlers.records import handle_fetch
from pykclient.testing.log.log_types import AppendOrigin
from pykclient.testing.replica.partition import is_rack_aware
from tests.testing.handlers.refusals import refused
from tests.testing.replica.harness import TP, ReplicaCluster, batch, values

OFFSET_OUT_OF_RANGE = 1
NOT_LEADER_OR_FOLLOWER = 6
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75
UNSUPPORTED_COMPRESSION_TYPE = 76
UNKNOWN_TOPIC_ID = 100

BATCH = batch(b"x" * 1_000)


@pytest.fixture
def cluster() -> ReplicaCluster:
    cluster = ReplicaCluster(3)
    cluster.create(partitions=3)
    return cluster


def fill(cluster: ReplicaCluster, *counts: int) -> None:
    """Append the given number of batches, about a kilobyte each, to each partition."""
    for index, count in enumerate(counts):
        for _ in range(count):
            cluster.send(1, cluster.produce_request({index: BATCH}))
    cluster.run()


def sizes(response: FetchResponse) -> dict[int, int]:
    return {
        data.partition_index: sum(map(len, data.records or ()))  # type: ignore[arg-type]
        for topic in response.responses
        for data in topic.partitions
    }


# --- waiting ---------------------------------------------------------------------------------------------------------


def test_fetch_waits_for_records(cluster: ReplicaCluster) -> None:
    waiting = cluster.fetch(1, max_wait_ms=1_000, partitions=(0, 1, 2))
    cluster.run(500)
    assert not waiting.answered
    cluster.produce(1, b"a", tp=TP._replace(partition=1))
    cluster.run()
    assert values(waiting.data(1).records) == [b"a"]
    assert values(waiting.data(0).records) == []


def test_fetch_wait_is_limited(cluster: ReplicaCluster) -> None:
    waiting = cluster.fetch(1, max_wait_ms=1_000)
    cluster.run(999)
    assert not waiting.answered
    cluster.run(1)
    assert waiting.data().error_code == 0
    assert waiting.data().high_watermark == 0


def test_uncommitted_records_do_not_end_the_wait(cluster: ReplicaCluster) -> None:
    for id in (2, 3):
        cluster.broker(id).pause()
    waiting = cluster.fetch(1, max_wait_ms=10_000)
    cluster.produce(1, b"a", acks=1)
    cluster.run(100)
    assert not waiting.answered
    for id in (2, 3):
        cluster.broker(id).resume()
    cluster.run()
    assert values(waiting.data().records) == [b"a"]


def test_min_bytes_counts_all_partitions(cluster: ReplicaCluster) -> None:
    fill(cluster, 1)
    waiting = cluster.fetch(1, max_wait_ms=10_000, min_bytes=3 * len(BATCH), partitions=(0, 1, 2))
    fill(cluster, 0, 1)
    assert not waiting.answered
    fill(cluster, 0, 0, 1)
    assert sizes(waiting.fetched) == {0: len(BATCH), 1: len(BATCH), 2: len(BATCH)}


def test_fetch_returns_all_partitions_of_one_produce_request(cluster: ReplicaCluster) -> None:
    waiting = cluster.fetch(1, max_wait_ms=10_000, partitions=(0, 1, 2))
    cluster.broker(2).pause()
    cluster.broker(3).pause()
    cluster.send(1, cluster.produce_request({0: BATCH, 1: BATCH, 2: BATCH}))
    cluster.run()
    cluster.broker(2).resume()
    cluster.broker(3).resume()
    cluster.run()
    assert sizes(waiting.fetched) == dict.fromkeys((0, 1, 2), len(BATCH))


def test_error_ends_the_wait(cluster: ReplicaCluster) -> None:
    waiting = cluster.fetch(1, max_wait_ms=10_000, partitions=(0, 1), leader_epoch=0)
    cluster.elect(2, tp=TP)
    assert waiting.data(0).error_code == FENCED_LEADER_EPOCH
    assert waiting.data(0).current_leader.leader_id == 2
    stopped = cluster.fetch(1, max_wait_ms=10_000, partitions=(1,))
    cluster.stop_replica(1, TP._replace(partition=1))
    assert stopped.data(1).error_code == NOT_LEADER_OR_FOLLOWER


def test_killed_broker_sends_no_responses(cluster: ReplicaCluster) -> None:
    waiting = cluster.fetch(1, max_wait_ms=1_000)
    cluster.kill(1)
    cluster.run(5_000)
    assert not waiting.answered


# --- bounds ----------------------------------------------------------------------------------------------------------


def test_first_batch_is_returned_whatever_its_size(cluster: ReplicaCluster) -> None:
    fill(cluster, 2, 2)
    reply = cluster.fetch(1, max_bytes=1, partition_max_bytes=1, partitions=(0, 1))
    assert sizes(reply.fetched) == {0: len(BATCH), 1: 0}


def test_partition_max_bytes_bounds_each_partition(cluster: ReplicaCluster) -> None:
    fill(cluster, 5, 5)
    reply = cluster.fetch(1, partition_max_bytes=2 * len(BATCH) + 100, partitions=(0, 1))
    assert sizes(reply.fetched) == {0: 2 * len(BATCH), 1: 2 * len(BATCH)}


def test_max_bytes_bounds_all_partitions_together(cluster: ReplicaCluster) -> None:
    fill(cluster, 2, 2, 2)
    reply = cluster.fetch(1, max_bytes=3 * len(BATCH) + 10, partitions=(0, 1, 2))
    assert sizes(reply.fetched) == {0: 2 * len(BATCH), 1: len(BATCH), 2: 0}


def test_broker_limits_response_size_too() -> None:
    cluster = ReplicaCluster(1, fetch_max_bytes=2_500)
    cluster.create([1])
    fill(cluster, 5)
    assert sizes(cluster.fetch(1).fetched) == {0: 2 * len(BATCH)}


def test_only_the_oldest_versions_get_partial_batches(cluster: ReplicaCluster) -> None:
    fill(cluster, 1)
    assert len(old_fetch(cluster, 2, max_bytes=500)) < len(BATCH)
    assert len(old_fetch(cluster, 3, max_bytes=500)) > 500


# --- what may be seen ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [-1, 3, 1_000])
def test_offset_outside_the_log_is_out_of_range(cluster: ReplicaCluster, offset: int) -> None:
    cluster.produce(1, b"a", b"b")
    cluster.run()
    data = cluster.fetch(1, offset, max_wait_ms=1_000).data()
    assert data.error_code == OFFSET_OUT_OF_RANGE
    assert data.high_watermark == -1


def test_offset_above_the_high_watermark_returns_nothing_yet(cluster: ReplicaCluster) -> None:
    for id in (2, 3):
        cluster.broker(id).pause()
    cluster.produce(1, b"a", b"b", acks=1)
    data = cluster.fetch(1, 1).data()
    assert (data.error_code, values(data.records)) == (0, [])


def test_deleted_records_are_out_of_range(cluster: ReplicaCluster) -> None:
    fill(cluster, 3)
    cluster.log(1).maybe_increment_log_start_offset(2)
    assert cluster.fetch(1, 1).data().error_code == OFFSET_OUT_OF_RANGE
    assert cluster.fetch(1, 2).data().log_start_offset == 2


def test_read_committed_ends_before_open_transactions(cluster: ReplicaCluster) -> None:
    transaction: dict[str, Any] = {"is_transactional": True, "producer_id": 1, "producer_epoch": 0}

    def append(data: bytes) -> None:
        cluster.broker(1).replica_manager.append_records(
            1_000,
            -1,
            {TP: data},
            lambda _: None,
            origin=AppendOrigin.COORDINATOR,
            verifications={TP: cluster.partition(1).start_transaction_verification(1, 0, 0)},
        )
        cluster.run()

    append(batch(b"before"))
    append(batch(b"aborted", base_sequence=0, **transaction))
    append(batch(b"after"))
    committed = cluster.fetch(1, isolation_level=1).data()
    assert values(committed.records) == [b"before"]
    assert (committed.last_stable_offset, committed.high_watermark) == (1, 3)
    assert values(cluster.fetch(1).data().records) == [b"before", b"aborted", b"after"]
    assert cluster.fetch(1).data().aborted_transactions is None
    assert committed.aborted_transactions == []

    waiting = cluster.fetch(1, 1, isolation_level=1, max_wait_ms=10_000)
    assert not waiting.answered
    builder = MemoryRecordsBuilder(is_control_batch=True, **transaction)
    builder.append_end_txn_marker(1_700_000_000_000, EndTransactionMarker(ControlRecordType.ABORT, 0))
    append(bytes(builder.build()))
    data = waiting.data()
    assert data.last_stable_offset == 4
    assert data.aborted_transactions is not None
    assert [(txn.producer_id, txn.first_offset) for txn in data.aborted_transactions] == [(1, 1)]


# --- epochs ----------------------------------------------------------------------------------------------------------


def test_stale_reader_epochs_are_fenced(cluster: ReplicaCluster) -> None:
    cluster.elect(1)
    fenced = cluster.fetch(1, leader_epoch=0, max_wait_ms=1_000)
    assert fenced.data().error_code == FENCED_LEADER_EPOCH
    assert (fenced.data().current_leader.leader_id, fenced.data().current_leader.leader_epoch) == (1, 1)
    assert [node.node_id for node in fenced.fetched.node_endpoints] == [1]
    assert cluster.fetch(1, leader_epoch=2).data().error_code == UNKNOWN_LEADER_EPOCH
    assert cluster.fetch(1, leader_epoch=1).data().error_code == 0


def test_diverging_reader_gets_the_diverging_epoch(cluster: ReplicaCluster) -> None:
    fill(cluster, 2)
    cluster.elect(1)
    fill(cluster, 1)
    data = cluster.fetch(1, 3, last_fetched_epoch=0, max_wait_ms=1_000).data()
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 2)
    assert values(data.records) == []
    assert cluster.fetch(1, 2, last_fetched_epoch=0).data().diverging_epoch.epoch == -1
    assert cluster.fetch(1, 2, last_fetched_epoch=5).data().error_code == OFFSET_OUT_OF_RANGE


def test_unknown_topics_and_partitions_have_errors(cluster: ReplicaCluster) -> None:
    unknown = cluster.fetch(1, topic_id=UUID(int=99), max_wait_ms=1_000)
    assert unknown.data().error_code == UNKNOWN_TOPIC_ID
    assert unknown.fetched.responses[0].topic_id == UUID(int=99)
    waiting = cluster.fetch(1, partitions=(0, 9), max_wait_ms=1_000)
    assert not waiting.answered  # as in Kafka
    cluster.run(1_000)
    assert (waiting.data(0).error_code, waiting.data(9).error_code) == (0, 3)


def test_recreated_topic_does_not_serve_the_old_id(cluster: ReplicaCluster) -> None:
    fill(cluster, 1)
    cluster.partition(1).topic_id = UUID(int=8)
    assert cluster.fetch(1).data().error_code == UNKNOWN_TOPIC_ID


# --- racks (KIP-392) -------------------------------------------------------------------------------------------------

RACKS = {1: "north", 2: "south", 3: "south"}
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def test_consumer_is_sent_to_a_replica_in_its_rack() -> None:
    cluster = ReplicaCluster(3, racks=RACKS, replica_selector_class=RACK_AWARE)
    cluster.create()
    cluster.produce(1, b"a")
    cluster.run(600)
    reply = cluster.fetch(1, rack="south", max_wait_ms=1_000)
    preferred = reply.data().preferred_read_replica
    assert preferred in (2, 3)
    assert values(reply.data().records) == []
    assert reply.data().high_watermark == 1
    assert values(cluster.fetch(preferred, rack="south").data().records) == [b"a"]
    for rack in ("north", "elsewhere", ""):
        local = cluster.fetch(1, rack=rack)
        assert (local.data().preferred_read_replica, values(local.data().records)) == (-1, [b"a"])


def test_only_replicas_with_the_offset_are_preferred() -> None:
    cluster = ReplicaCluster(3, racks=RACKS, replica_selector_class=RACK_AWARE)
    cluster.create()
    cluster.run()
    cluster.elect(1, isr=[1])
    assert cluster.fetch(1, rack="south").data().preferred_read_replica == -1


def test_follower_serves_new_records_to_consumers_at_once() -> None:
    cluster = ReplicaCluster(3, racks=RACKS, replica_selector_class=RACK_AWARE)
    cluster.create()
    cluster.run(100)
    waiting = cluster.fetch(2, rack="south", max_wait_ms=1_000)
    cluster.produce(1, b"a")
    cluster.run()
    assert values(waiting.data().records) == [b"a"]


def test_only_new_fetch_versions_may_read_followers(cluster: ReplicaCluster) -> None:
    cluster.produce(1, b"a")
    cluster.run(600)
    assert values(cluster.fetch(2).data().records) == [b"a"]
    partition = FetchRequest.FetchPartition(partition=0, partition_max_bytes=1_000)
    body = FetchRequest(max_bytes=1_000, topics=[FetchRequest.FetchTopic(topic="topic", partitions=[partition])])
    assert respond(cluster, 2, body, 10).responses[0].partitions[0].error_code == NOT_LEADER_OR_FOLLOWER
    assert respond(cluster, 2, body, 11).responses[0].partitions[0].error_code == 0


def test_replica_selectors_are_found_by_name() -> None:
    assert not is_rack_aware(None)
    assert not is_rack_aware("LeaderSelector")
    assert is_rack_aware("a.b.RackAwareReplicaSelector")
    with pytest.raises(ConfigError, match="RandomSelector"):
        is_rack_aware("RandomSelector")


# --- old versions ----------------------------------------------------------------------------------------------------


def respond(cluster: ReplicaCluster, id: int, body: FetchRequest, version: int) -> FetchResponse:
    """Return a broker's response in an old version, encoded and decoded."""
    answers: list[FetchResponse] = []
    request = SimpleNamespace(
        body=body,
        api_version=version,
        respond=answers.append,
        client_id="old",
        client_host="127.0.0.1",
        advertised=lambda node: node,
    )
    handle_fetch(cluster.broker(id), request, body)  # type: ignore[arg-type]
    return answers[0]


def old_fetch(cluster: ReplicaCluster, version: int, offset: int = 0, max_bytes: int = 1 << 20) -> bytes:
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    body = FetchRequest(max_bytes=1 << 30, topics=[FetchRequest.FetchTopic(topic="topic", partitions=[partition])])
    [data] = respond(cluster, 1, body, version).responses[0].partitions
    assert data.error_code == 0
    return b"".join(data.records or ())  # type: ignore[arg-type]


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (12, 2)])
def test_old_versions_get_old_formats(cluster: ReplicaCluster, version: int, magic: int) -> None:
    cluster.produce(1, b"a", b"b")
    cluster.produce(1, b"c")
    cluster.run()
    found = MemoryRecords(old_fetch(cluster, version))
    assert {part.magic for part in found.batches()} == {magic}
    assert [(record.offset, record.value) for record in found.records()] == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_zstd_is_refused_for_old_versions(cluster: ReplicaCluster) -> None:
    data = batch(b"a" * 100, compression=Compression.of(CompressionType.ZSTD))
    cluster.send(1, cluster.produce_request({0: data}))
    cluster.run()
    partition = FetchRequest.FetchPartition(partition=0, partition_max_bytes=1_000)
    body = FetchRequest(max_bytes=1_000, topics=[FetchRequest.FetchTopic(topic="topic", partitions=[partition])])
    assert respond(cluster, 1, body, 3).responses[0].partitions[0].error_code == UNSUPPORTED_COMPRESSION_TYPE


def test_error_response_echoes_partitions() -> None:
    body = FetchRequest(
        topics=[FetchRequest.FetchTopic(topic="t", partitions=[FetchRequest.FetchPartition(partition=4)])]
    )
    response = refused(body, 7)
    assert response.error_code == 7
    assert response.responses[0].partitions[0].error_code == 7
