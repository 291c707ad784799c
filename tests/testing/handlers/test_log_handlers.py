"""Requests about logs: old versions, and an error in each field that can hold one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pykclient.errors import UnknownTopicOrPartitionError
from pykclient.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from pykclient.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from pykclient.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from pykclient.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from pykclient.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from pykclient.protocol.messages.produce import ProduceRequest, ProduceResponse
from pykclient.testing import EmbeddedCluster
from tests.testing.handlers.raw_client import RawClient
from tests.testing.handlers.refusals import refused
from tests.testing.log.support import batch, values

_UNKNOWN_TOPIC = UnknownTopicOrPartitionError.code
_STORAGE_ERROR = 56


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1, release="2.8") as cluster:
        yield cluster


@pytest.fixture
def client(cluster: EmbeddedCluster) -> Iterator[RawClient]:
    with RawClient(cluster.bootstrap_servers) as client:
        yield client


def _produce(topic: str, data: bytes) -> ProduceRequest:
    partition = ProduceRequest.PartitionProduceData(index=0, records=data)
    return ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[partition])]
    )


def test_list_offsets_version_0_returns_segment_offsets(cluster: EmbeddedCluster, client: RawClient) -> None:
    cluster.create_topic("segments", configs={"segment.ms": 1000})
    for time_ms in (0, 500, 2000, 4000):
        data = batch(values(2), timestamps=[time_ms] * 2)
        (answer,) = client.ask(_produce("segments", data), 7, ProduceResponse).responses
        assert answer.partition_responses[0].error_code == 0

    def offsets(timestamp: int, max_num_offsets: int = 10) -> tuple[int, list[int]]:
        one = ListOffsetsRequest.ListOffsetsPartition(
            partition_index=0, timestamp=timestamp, max_num_offsets=max_num_offsets
        )
        topic = ListOffsetsRequest.ListOffsetsTopic(name="segments", partitions=[one])
        (found,) = client.ask(ListOffsetsRequest(replica_id=-1, topics=[topic]), 0, ListOffsetsResponse).topics
        return found.partitions[0].error_code, found.partitions[0].old_style_offsets

    assert offsets(-1) == (0, [8, 6, 4, 0])
    assert offsets(-1, 2) == (0, [8, 6])
    assert offsets(-2) == (0, [0])
    assert offsets(5) == (0, [])
    assert offsets(-3) == (35, [])


def test_describe_log_dirs_returns_sizes(cluster: EmbeddedCluster, client: RawClient) -> None:
    cluster.create_topic("sized", partitions=2)
    data = batch(values(3))
    client.ask(_produce("sized", data), 7, ProduceResponse)

    def ask(request: DescribeLogDirsRequest) -> DescribeLogDirsResponse.DescribeLogDirsResult:
        (result,) = client.ask(request, 2, DescribeLogDirsResponse).results
        return result

    topic = DescribeLogDirsRequest.DescribableLogDirTopic(topic="sized", partitions=[0])
    (one,) = ask(DescribeLogDirsRequest(topics=[topic])).topics
    assert [(found.partition_index, found.partition_size, found.offset_lag) for found in one.partitions] == [
        (0, len(data), 0)
    ]
    everything = {found.name: found for found in ask(DescribeLogDirsRequest(topics=None)).topics}
    assert sorted(found.partition_index for found in everything["sized"].partitions) == [0, 1]
    assert not ask(DescribeLogDirsRequest(topics=[])).topics


def test_missing_topics_have_error_codes(client: RawClient) -> None:
    topic = DescribeProducersRequest.TopicRequest(name="nowhere", partition_indexes=[0, 1])
    (described,) = client.ask(DescribeProducersRequest(topics=[topic]), 0, DescribeProducersResponse).topics
    assert [one.error_code for one in described.partitions] == [_UNKNOWN_TOPIC] * 2
    partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=0)
    deletion = DeleteRecordsRequest(
        topics=[DeleteRecordsRequest.DeleteRecordsTopic(name="nowhere", partitions=[partition])], timeout_ms=1000
    )
    for version in (0, 1, 2):
        (deleted,) = client.ask(deletion, version, DeleteRecordsResponse).topics
        assert (deleted.partitions[0].error_code, deleted.partitions[0].low_watermark) == (_UNKNOWN_TOPIC, -1)


def test_offline_disk_returns_storage_errors(cluster: EmbeddedCluster, client: RawClient) -> None:
    cluster.create_topic("offline")
    disk = cluster.disk(1)
    disk.offline = True
    try:
        (result,) = client.ask(DescribeLogDirsRequest(topics=None), 2, DescribeLogDirsResponse).results
        assert (result.error_code, result.topics) == (_STORAGE_ERROR, [])
        one = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
        topic = ListOffsetsRequest.ListOffsetsTopic(name="offline", partitions=[one])
        (found,) = client.ask(ListOffsetsRequest(replica_id=-1, topics=[topic]), 5, ListOffsetsResponse).topics
        assert found.partitions[0].error_code == _STORAGE_ERROR
    finally:
        disk.offline = False


def test_error_response_echoes_partitions() -> None:
    offsets = refused(
        ListOffsetsRequest(
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(
                    name="a", partitions=[ListOffsetsRequest.ListOffsetsPartition(partition_index=3)]
                )
            ]
        ),
        7,
    )
    assert [(one.partition_index, one.error_code, one.offset) for one in offsets.topics[0].partitions] == [(3, 7, -1)]
    epochs = refused(
        OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                    topic="a", partitions=[OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=3)]
                )
            ]
        ),
        7,
    )
    assert [(one.partition, one.error_code, one.end_offset) for one in epochs.topics[0].partitions] == [(3, 7, -1)]
    deleted = refused(
        DeleteRecordsRequest(
            topics=[
                DeleteRecordsRequest.DeleteRecordsTopic(
                    name="a", partitions=[DeleteRecordsRequest.DeleteRecordsPartition(partition_index=3)]
                )
            ]
        ),
        7,
    )
    assert [(one.partition_index, one.error_code, one.low_watermark) for one in deleted.topics[0].partitions] == [
        (3, 7, -1)
    ]
    producers = refused(
        DescribeProducersRequest(topics=[DescribeProducersRequest.TopicRequest(name="a", partition_indexes=[3])]),
        7,
        "late",
    )
    assert [(one.partition_index, one.error_code, one.error_message) for one in producers.topics[0].partitions] == [
        (3, 7, "late")
    ]
    assert refused(DescribeLogDirsRequest(), 7).error_code == 7
