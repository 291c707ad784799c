"""Metadata, DescribeCluster and DescribeTopicPartitions in all versions; existing, missing and new topics."""

from __future__ import annotations

import uuid

import pytest

from pykclient.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from pykclient.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from pykclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykclient.protocol.wire import ZERO_UUID
from pykclient.types import TopicPartition
from tests.testing.controller.harness import A_WHILE_MS, ClusterHarness

UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, REPLICA_NOT_AVAILABLE, INVALID_TOPIC, UNKNOWN_TOPIC_ID = 3, 5, 9, 17, 100

Wanted = MetadataRequest.MetadataRequestTopic
Topic = MetadataResponse.MetadataResponseTopic


@pytest.fixture
def cluster() -> ClusterHarness:
    cluster = ClusterHarness(3, racks={1: "a", 2: "b", 3: "c"})
    cluster.create_topic("t", assignment=[[2, 3], [3, 2]])
    return cluster


def ask(
    cluster: ClusterHarness,
    *names: str,
    broker_id: int = 1,
    version: int = 13,
    auto_create: bool = False,
    topics: list[Wanted] | None = None,
) -> MetadataResponse:
    wanted = [Wanted(name=name) for name in names] if topics is None else topics
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=auto_create or version < 4)
    return cluster.ask(request, MetadataResponse, broker_id, version)


class TestMetadata:
    @pytest.mark.parametrize("version", range(14))
    def test_every_version(self, cluster: ClusterHarness, version: int) -> None:
        response = ask(cluster, "t", version=version)
        assert [broker.node_id for broker in response.brokers] == [1, 2, 3]
        assert [broker.rack for broker in response.brokers] == (["a", "b", "c"] if version >= 1 else [None] * 3)
        assert response.controller_id == (1 if version >= 1 else -1)
        assert response.cluster_id == (cluster.cluster.config.cluster_id if version >= 2 else None)
        (topic,) = response.topics
        assert (topic.name, topic.error_code) == ("t", 0)
        assert topic.topic_id == (cluster.controller.context.topic_id("t") if version >= 10 else ZERO_UUID)
        leaders = {partition.partition_index: partition.leader_id for partition in topic.partitions}
        assert leaders == {0: 2, 1: 3}
        assert [partition.replica_nodes for partition in topic.partitions] == [[2, 3], [3, 2]]
        assert [partition.isr_nodes for partition in topic.partitions] == [[2, 3], [3, 2]]
        assert [partition.leader_epoch for partition in topic.partitions] == ([0, 0] if version >= 7 else [-1, -1])

    @pytest.mark.parametrize("version", range(14))
    def test_null_requests_all_topics_and_empty_list_none(self, cluster: ClusterHarness, version: int) -> None:
        everything = MetadataRequest(topics=None if version >= 1 else [], allow_auto_topic_creation=True)
        response = cluster.ask(everything, MetadataResponse, 2, version)
        assert [topic.name for topic in response.topics] == ["t"]
        if version >= 1:
            nothing = MetadataRequest(topics=[], allow_auto_topic_creation=True)
            assert cluster.ask(nothing, MetadataResponse, 2, version).topics == []

    @pytest.mark.parametrize("version", range(4, 14))
    def test_missing_and_invalid_topics_have_error_codes(self, cluster: ClusterHarness, version: int) -> None:
        codes = {topic.name: topic.error_code for topic in ask(cluster, "no", "a b", "t", version=version).topics}
        assert codes == {"no": UNKNOWN_TOPIC, "a b": INVALID_TOPIC, "t": 0}
        assert not cluster.controller.store.topic_exists("no")

    def test_metadata_by_topic_id(self, cluster: ClusterHarness) -> None:
        topic_id, unknown = cluster.controller.context.topic_id("t"), uuid.UUID(int=77)
        for version in (12, 13):
            wanted = [Wanted(name=None, topic_id=topic_id), Wanted(name=None, topic_id=unknown)]
            found, missing = ask(cluster, topics=wanted, version=version).topics
            assert (found.name, found.error_code, len(found.partitions)) == ("t", 0, 2)
            assert (missing.name, missing.topic_id, missing.error_code) == (None, unknown, UNKNOWN_TOPIC_ID)
        refused = ask(cluster, topics=[Wanted(name="t", topic_id=topic_id)], version=11)
        assert [topic.error_code for topic in refused.topics] == [42]

    def test_authorized_operations_are_returned_only_on_request(self, cluster: ClusterHarness) -> None:
        for version in range(8, 14):
            request = MetadataRequest(
                topics=[Wanted(name="t")],
                allow_auto_topic_creation=True,
                include_topic_authorized_operations=True,
                include_cluster_authorized_operations=version <= 10,
            )
            response = cluster.ask(request, MetadataResponse, 1, version)
            assert response.topics[0].topic_authorized_operations > 0
            assert (response.cluster_authorized_operations > 0) == (version <= 10)
            assert ask(cluster, "t", version=version).topics[0].topic_authorized_operations < 0

    @pytest.mark.parametrize("version", range(14))
    def test_partition_without_leader_is_reported(self, cluster: ClusterHarness, version: int) -> None:
        cluster.create_topic("alone", assignment=[[3]])
        cluster.cluster.kill_broker(3)
        cluster.run_for(A_WHILE_MS)
        response = ask(cluster, "t", "alone", version=version)
        assert [broker.node_id for broker in response.brokers] == [1, 2]
        topics = {topic.name: topic for topic in response.topics}
        (alone,) = topics["alone"].partitions
        assert (alone.error_code, alone.leader_id) == (LEADER_NOT_AVAILABLE, -1)
        first = topics["t"].partitions[0]
        assert first.leader_id == 2
        if version == 0:
            assert (first.error_code, first.replica_nodes) == (REPLICA_NOT_AVAILABLE, [2])
        else:
            assert (first.error_code, first.replica_nodes, first.isr_nodes) == (0, [2, 3], [2])
            assert alone.isr_nodes == [3]
        if version >= 5:
            assert (first.offline_replicas, alone.offline_replicas) == ([3], [3])

    @pytest.mark.parametrize("broker_id", [1, 2])
    def test_metadata_request_creates_a_topic_once(self, cluster: ClusterHarness, broker_id: int) -> None:
        def codes() -> dict[str | None, int]:
            answer = ask(cluster, "new", "a b", broker_id=broker_id, auto_create=True)
            return {topic.name: topic.error_code for topic in answer.topics}

        assert codes() == {"new": UNKNOWN_TOPIC, "a b": INVALID_TOPIC}
        assert codes() == {"new": UNKNOWN_TOPIC, "a b": INVALID_TOPIC}, "asked for twice, it is made once"
        cluster.run_until(lambda: codes() == {"new": 0, "a b": INVALID_TOPIC}, "it is there")
        assert cluster.controller.store.all_topics() == ["new", "t"]
        assert len(cluster.cluster.history.matching(api="CREATE_TOPICS", party=f"broker-{broker_id}")) == 1

    def test_internal_topic_is_created_with_its_config(self, cluster: ClusterHarness) -> None:
        ask(cluster, "__consumer_offsets", broker_id=2, auto_create=True)
        cluster.run_until(lambda: cluster.controller.store.topic_exists("__consumer_offsets"), "it is made")
        cluster.settle()
        (topic,) = ask(cluster, "__consumer_offsets").topics
        assert (topic.is_internal, len(topic.partitions)) == (True, 4)
        config = cluster.controller.store.topic_config("__consumer_offsets")
        assert config["cleanup.policy"] == "compact"
        assert not ask(cluster, "t").topics[0].is_internal

    def test_no_topic_is_created_if_auto_creation_is_disabled(self) -> None:
        cluster = ClusterHarness(1, auto_create_topics_enable=False)
        assert ask(cluster, "new", auto_create=True).topics[0].error_code == UNKNOWN_TOPIC
        cluster.run_for(A_WHILE_MS)
        assert cluster.controller.store.all_topics() == []

    def test_frozen_broker_returns_old_metadata(self, cluster: ClusterHarness) -> None:
        cache = cluster.broker(1).metadata_cache
        cache.freeze()
        cluster.controller.elector.move_leader(TopicPartition("t", 0), 3)
        cluster.settle()
        assert ask(cluster, "t", broker_id=1).topics[0].partitions[0].leader_id == 2
        assert ask(cluster, "t", broker_id=2).topics[0].partitions[0].leader_id == 3
        cache.thaw()
        assert ask(cluster, "t", broker_id=1).topics[0].partitions[0].leader_id == 3


class TestDescribeCluster:
    @pytest.mark.parametrize("version", range(3))
    def test_every_version(self, cluster: ClusterHarness, version: int) -> None:
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        response = cluster.ask(request, DescribeClusterResponse, 2, version)
        assert (response.error_code, response.controller_id) == (0, 1)
        assert response.cluster_id == cluster.cluster.config.cluster_id
        assert [(broker.broker_id, broker.rack) for broker in response.brokers] == [(1, "a"), (2, "b"), (3, "c")]
        assert response.cluster_authorized_operations > 0

    def test_controller_endpoints_are_refused(self, cluster: ClusterHarness) -> None:
        for endpoint_type, code in ((2, 114), (7, 115)):
            request = DescribeClusterRequest(endpoint_type=endpoint_type)
            assert cluster.ask(request, DescribeClusterResponse, 2).error_code == code


class TestDescribeTopicPartitions:
    def page(
        self, cluster: ClusterHarness, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
    ) -> tuple[list[tuple[str | None, list[int]]], tuple[str, int] | None, list[int]]:
        request = DescribeTopicPartitionsRequest(
            topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=None
            if cursor is None
            else DescribeTopicPartitionsRequest.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
        )
        response = cluster.ask(request, DescribeTopicPartitionsResponse, 2)
        next_cursor = response.next_cursor
        return (
            [(topic.name, [partition.partition_index for partition in topic.partitions]) for topic in response.topics],
            None if next_cursor is None else (next_cursor.topic_name, next_cursor.partition_index),
            [topic.error_code for topic in response.topics],
        )

    def test_all_topics_are_described_at_once(self, cluster: ClusterHarness) -> None:
        cluster.create_topic("a", 3)
        assert self.page(cluster) == ([("a", [0, 1, 2]), ("t", [0, 1])], None, [0, 0])
        assert self.page(cluster, "t", "no", "a b") == (
            [("a b", []), ("no", []), ("t", [0, 1])],
            None,
            [INVALID_TOPIC, UNKNOWN_TOPIC, 0],
        )

    @pytest.mark.parametrize("limit", [1, 2, 3, 4, 5])
    def test_topics_are_described_page_by_page(self, cluster: ClusterHarness, limit: int) -> None:
        cluster.create_topic("a", 3)
        seen: list[tuple[str | None, int]] = []
        cursor: tuple[str, int] | None = None
        for _ in range(10):
            topics, cursor, _ = self.page(cluster, limit=limit, cursor=cursor)
            page = [(name, index) for name, indexes in topics for index in indexes]
            assert 0 < len(page) <= limit
            seen += page
            if cursor is None:
                break
        assert seen == [("a", 0), ("a", 1), ("a", 2), ("t", 0), ("t", 1)]

    def test_an_invalid_cursor_is_refused(self, cluster: ClusterHarness) -> None:
        assert self.page(cluster, "t", cursor=("a", 0))[2] == [42]
        assert self.page(cluster, "t", cursor=("t", -1))[2] == [42]
