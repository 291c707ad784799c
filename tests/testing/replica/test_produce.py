"""Produce requests: acks, min.insync.replicas, refusals, and events while they wait."""

from __future__ import annotations

from types import SimpleNamespace
from uuid import UUID

import pytest

from pykclient.protocol.messages.produce import ProduceRequest, ProduceResponse
from pykclient.record import Compression, CompressionType, MemoryRecordsBuilder
from pykclient.testing.handlers.records import handle_produce
from pykclient.testing.server.kafka_apis import LocalRequest
from tests.testing.handlers.refusals import refused
from tests.testing.replica.harness import TP, ReplicaCluster, Reply, batch, records, values

NOT_LEADER_OR_FOLLOWER = 6
REQUEST_TIMED_OUT = 7
NOT_ENOUGH_REPLICAS = 19
INVALID_REQUIRED_ACKS = 21
INVALID_TIMESTAMP = 32
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
KAFKA_STORAGE_ERROR = 56
UNSUPPORTED_COMPRESSION_TYPE = 76
INVALID_RECORD = 87
UNKNOWN_TOPIC_ID = 100


@pytest.fixture
def cluster() -> ReplicaCluster:
    cluster = ReplicaCluster(3, min_insync_replicas=2)
    cluster.create()
    return cluster


def test_acks_all_waits_for_all_in_sync_replicas(cluster: ReplicaCluster) -> None:
    first = cluster.produce(1, b"a", b"b")
    assert not first.answered
    cluster.run()
    assert first.produced().error_code == 0
    assert first.produced().base_offset == 0
    assert [cluster.values(id) for id in (1, 2, 3)] == [[b"a", b"b"]] * 3
    second = cluster.produce(1, b"c")
    cluster.run()
    assert second.produced().base_offset == 2


def test_acks_one_is_answered_at_once(cluster: ReplicaCluster) -> None:
    reply = cluster.produce(1, b"a", acks=1)
    assert reply.produced().base_offset == 0
    assert cluster.log(1).high_watermark == 0


def test_acks_zero_gets_no_response_and_errors_close_the_connection(cluster: ReplicaCluster) -> None:
    appended = cluster.produce(1, b"a", acks=0)
    assert appended.answered
    assert cluster.values(1) == [b"a"]
    elsewhere = cluster.produce(2, b"a", acks=0)
    assert elsewhere.answered
    assert elsewhere.response is None


def test_invalid_acks_are_refused(cluster: ReplicaCluster) -> None:
    reply = cluster.produce(1, b"a", acks=2)
    assert reply.produced().error_code == INVALID_REQUIRED_ACKS
    assert "2" in (reply.produced().error_message or "")
    assert cluster.values(1) == []


def test_small_isr_refuses_acks_all(cluster: ReplicaCluster) -> None:
    cluster.elect(1, isr=[1])
    refused = cluster.produce(1, b"a")
    assert refused.produced().error_code == NOT_ENOUGH_REPLICAS
    assert cluster.produce(1, b"b", acks=1).produced().error_code == 0
    assert cluster.values(1) == [b"b"]


def test_min_insync_replicas_is_capped_at_the_replica_count() -> None:
    cluster = ReplicaCluster(1, min_insync_replicas=2)
    cluster.create([1])
    assert cluster.produce(1, b"a").produced().error_code == 0


def test_request_without_followers_times_out(cluster: ReplicaCluster) -> None:
    for id in (2, 3):
        cluster.broker(id).pause()
    reply = cluster.produce(1, b"a", timeout_ms=1_500)
    cluster.run(1_400)
    assert not reply.answered
    cluster.run(100)
    assert reply.produced().error_code == REQUEST_TIMED_OUT
    assert cluster.values(1) == [b"a"]


def test_deposed_leader_answers_waiting_requests(cluster: ReplicaCluster) -> None:
    for id in (2, 3):
        cluster.broker(id).pause()
    reply = cluster.produce(1, b"a")
    cluster.elect(2)
    assert reply.produced().error_code == NOT_LEADER_OR_FOLLOWER
    assert reply.produced().current_leader.leader_id == 2
    assert reply.produced().current_leader.leader_epoch == 1
    assert isinstance(reply.response, ProduceResponse)
    [endpoint] = reply.response.node_endpoints
    assert (endpoint.node_id, endpoint.port) == (2, cluster.broker(2).node.port)


def test_deleted_partition_answers_waiting_requests(cluster: ReplicaCluster) -> None:
    for id in (2, 3):
        cluster.broker(id).pause()
    reply = cluster.produce(1, b"a")
    cluster.stop_replica(1)
    assert reply.produced().error_code == NOT_LEADER_OR_FOLLOWER


def test_follower_names_the_leader(cluster: ReplicaCluster) -> None:
    reply = cluster.produce(2, b"a")
    assert reply.produced().error_code == NOT_LEADER_OR_FOLLOWER
    assert reply.produced().current_leader.leader_id == 1


def test_unknown_topics_and_partitions_have_different_errors(cluster: ReplicaCluster) -> None:
    unknown = cluster.produce(1, b"a", topic_id=UUID(int=99))
    assert unknown.produced().error_code == UNKNOWN_TOPIC_ID
    partition = cluster.produce(1, b"a", tp=TP._replace(partition=5))
    assert partition.produced(5).error_code == 3


def test_failed_partition_does_not_fail_others(cluster: ReplicaCluster) -> None:
    reply = cluster.send(1, cluster.produce_request({0: batch(b"a"), 7: batch(b"b")}))
    cluster.run()
    assert (reply.produced(0).error_code, reply.produced(7).error_code) == (0, 3)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (batch(b"a") + batch(b"b"), INVALID_RECORD),
        (batch(b"a")[:-5], INVALID_RECORD),
        (b"", INVALID_RECORD),
        (None, INVALID_RECORD),
        (batch(b"a", magic=1), INVALID_RECORD),
        (
            batch(b"a", is_transactional=True, producer_id=1, producer_epoch=0, base_sequence=0),
            TRANSACTIONAL_ID_AUTHORIZATION_FAILED,  # the request names no transactional id
        ),
        (batch(b"a")[:-1] + b"x", 2),
    ],
)
def test_only_one_valid_batch_is_accepted(cluster: ReplicaCluster, data: bytes | None, code: int) -> None:
    reply = cluster.send(1, cluster.produce_request({0: data}, acks=1))
    assert reply.produced().error_code == code
    assert cluster.values(1) == []


def test_zstd_is_refused_for_old_versions(cluster: ReplicaCluster) -> None:
    data = batch(b"a" * 100, compression=Compression.of(CompressionType.ZSTD))
    for version, code in ((6, UNSUPPORTED_COMPRESSION_TYPE), (7, 0)):
        body = cluster.produce_request({0: data}, acks=1)
        body.topic_data[0].name = "topic"
        answers: list[ProduceResponse] = []
        request = SimpleNamespace(body=body, api_version=version, respond=answers.append, advertised=lambda node: node)
        handle_produce(cluster.broker(1), request, body)  # type: ignore[arg-type]
        assert answers[0].responses[0].partition_responses[0].error_code == code


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1)])
def test_old_versions_send_old_formats(cluster: ReplicaCluster, version: int, magic: int) -> None:
    body = cluster.produce_request({0: batch(b"a", b"b", magic=magic)}, acks=1)
    body.topic_data[0].name = "topic"
    answers: list[ProduceResponse] = []
    request = SimpleNamespace(body=body, api_version=version, respond=answers.append, advertised=lambda node: node)
    handle_produce(cluster.broker(1), request, body)  # type: ignore[arg-type]
    assert answers[0].responses[0].partition_responses[0].error_code == 0
    cluster.run()
    assert cluster.values(2) == [b"a", b"b"]
    assert {part.magic for part in cluster.log(1).batches(0, 2)} == {2}


def test_log_append_time_is_the_brokers_time() -> None:
    cluster = ReplicaCluster(1, log_message_timestamp_type="LogAppendTime")
    cluster.create([1])
    reply = cluster.produce(1, b"a")
    assert reply.produced().log_append_time_ms == cluster.clock.wall_ms()
    assert records(cluster.fetch(1).data().records)[0].timestamp == cluster.clock.wall_ms()


def test_refused_records_are_listed(cluster: ReplicaCluster) -> None:
    """The response names the refused records (KIP-467)."""
    builder = MemoryRecordsBuilder()
    builder.append(cluster.clock.wall_ms(), None, b"good")
    builder.append(cluster.clock.wall_ms() + 10 * 3_600_000, None, b"from the future")
    reply = cluster.send(1, cluster.produce_request({0: bytes(builder.build())}))
    answer = reply.produced()
    assert answer.error_code == INVALID_TIMESTAMP
    assert [error.batch_index for error in answer.record_errors] == [1]
    assert cluster.values(1) == []


def test_duplicate_gets_the_response_of_the_first(cluster: ReplicaCluster) -> None:
    data = batch(b"a", producer_id=5, producer_epoch=0, base_sequence=0)
    replies = [cluster.send(1, cluster.produce_request({0: data})) for _ in range(2)]
    cluster.run()
    assert [reply.produced().base_offset for reply in replies] == [0, 0]
    assert [reply.produced().error_code for reply in replies] == [0, 0]
    assert cluster.values(2) == [b"a"]


def test_duplicate_waits_for_the_first(cluster: ReplicaCluster) -> None:
    data = batch(b"a", producer_id=5, producer_epoch=0, base_sequence=0)
    for id in (2, 3):
        cluster.broker(id).pause()
    replies = [cluster.send(1, cluster.produce_request({0: data})) for _ in range(2)]
    cluster.run(100)
    assert not any(reply.answered for reply in replies)


# --- disks -----------------------------------------------------------------------------------------------------------


def test_full_disk_refuses_writes_until_there_is_room(cluster: ReplicaCluster) -> None:
    cluster.broker(1).disk.full = True
    reply = cluster.produce(1, b"a")
    assert reply.produced().error_code == KAFKA_STORAGE_ERROR
    assert "full" in (reply.produced().error_message or "")
    cluster.broker(1).disk.full = False
    again = cluster.produce(1, b"a")
    cluster.run()
    assert again.produced().error_code == 0


def test_follower_with_a_full_disk_leaves_and_rejoins_the_isr() -> None:
    cluster = ReplicaCluster(3, min_insync_replicas=2, replica_lag_time_max_ms=2_000)
    cluster.create()
    cluster.broker(3).disk.full = True
    reply = cluster.produce(1, b"a")
    cluster.run(1_000)
    assert not reply.answered
    cluster.run(4_000)
    assert reply.produced().error_code == 0
    assert cluster.partition(1).isr == {1, 2}
    cluster.broker(3).disk.full = False
    cluster.run(1_000)
    assert cluster.partition(1).isr == {1, 2, 3}
    assert cluster.values(3) == [b"a"]


def test_slow_disk_delays_appends_in_order(cluster: ReplicaCluster) -> None:
    cluster.broker(1).disk.write_delay_ms = 100
    order: list[str] = []
    replies: list[Reply] = []

    class Ordered(Reply):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def __call__(self, response: object) -> None:
            order.append(self.name)

    for name in ("first", "second"):
        LocalRequest(cluster.broker(1), cluster.produce_request({0: batch(name.encode())}, acks=1), Ordered(name))
    cluster.broker(1).disk.write_delay_ms = 0
    replies.append(cluster.produce(1, b"third", acks=1))
    cluster.run(99)
    assert not order
    assert not replies[0].answered
    assert not cluster.broker(1).replica_manager.disk_queue.idle
    cluster.run(1)
    assert cluster.broker(1).replica_manager.disk_queue.idle
    assert order == ["first", "second"]
    assert cluster.values(1) == [b"first", b"second", b"third"]


def test_kill_loses_pending_writes_of_a_slow_disk(cluster: ReplicaCluster) -> None:
    cluster.broker(1).disk.write_delay_ms = 100
    cluster.produce(1, b"a", acks=1)
    cluster.kill(1)
    cluster.broker(1).disk.write_delay_ms = 0
    cluster.run(200)
    cluster.start(1)
    cluster.leader_and_isr(1, [TP])
    assert cluster.values(1) == []


def test_slow_follower_delays_acks_all(cluster: ReplicaCluster) -> None:
    cluster.broker(3).disk.write_delay_ms = 50
    reply = cluster.produce(1, b"a")
    cluster.run(49)
    assert not reply.answered
    cluster.run(1)
    assert reply.produced().error_code == 0


def test_error_response_echoes_partitions() -> None:
    body = ProduceRequest(
        acks=1,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name="t", partition_data=[ProduceRequest.PartitionProduceData(index=i) for i in (0, 4)]
            )
        ],
    )
    response = refused(body, 7, "too late")
    assert response is not None
    answers = response.responses[0].partition_responses
    assert [(answer.index, answer.error_code, answer.error_message) for answer in answers] == [
        (0, 7, "too late"),
        (4, 7, "too late"),
    ]
    assert refused(ProduceRequest(acks=0), 7) is None


def test_produced_records_can_be_fetched(cluster: ReplicaCluster) -> None:
    cluster.produce(1, b"a", b"b")
    cluster.run()
    assert values(cluster.fetch(1).data().records) == [b"a", b"b"]
