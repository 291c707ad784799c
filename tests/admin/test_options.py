"""Options of calls reach the brokers as they are given."""

from __future__ import annotations

from typing import Any

import pytest

from pykclient import errors
from pykclient.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsResponse
from pykclient.protocol.messages.api_versions import ApiVersionsResponse
from pykclient.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from pykclient.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from pykclient.protocol.messages.list_groups import ListGroupsResponse
from pykclient.protocol.messages.offset_fetch import OffsetFetchResponse
from pykclient.protocol.wire import Writer
from pykclient.types import TopicPartition
from tests.admin.harness import typed

TP = TopicPartition("t", 0)


def test_reassignment_can_require_same_replication_factor() -> None:
    def answer(_node: int, _request: Any) -> Any:
        partition = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse(partition_index=0)
        return AlterPartitionReassignmentsResponse(
            responses=[AlterPartitionReassignmentsResponse.ReassignableTopicResponse(name="t", partitions=[partition])]
        )

    admin, brokers = typed(answer)
    with admin:
        admin.alter_partition_reassignments({TP: [1]}).all()
        admin.alter_partition_reassignments({TP: [1]}, allow_replication_factor_change=False).all()
        assert [request.allow_replication_factor_change for _, request in brokers.received] == [True, False]
    with pytest.raises(errors.UnsupportedVersionError):  # a broker before Kafka 4.1
        brokers.received[-1][1].write(Writer(), 0)


def test_require_stable_waits_for_stable_offsets() -> None:
    codes = [errors.UnstableOffsetCommitError.code, 0]

    def answer(_node: int, request: Any) -> Any:
        if isinstance(request, FindCoordinatorRequest):
            coordinator = FindCoordinatorResponse.Coordinator(key="g", node_id=2, host="h", port=1)
            return FindCoordinatorResponse(coordinators=[coordinator])
        assert request.require_stable
        partition = OffsetFetchResponse.OffsetFetchResponsePartitions(
            partition_index=0, committed_offset=7, error_code=codes.pop(0)
        )
        topic = OffsetFetchResponse.OffsetFetchResponseTopics(name="t", partitions=[partition])
        return OffsetFetchResponse(groups=[OffsetFetchResponse.OffsetFetchResponseGroup(group_id="g", topics=[topic])])

    admin, _ = typed(answer)
    with admin:
        found = admin.list_group_offsets("g", require_stable=True)["g"][TP]
    assert found is not None
    assert found.offset == 7
    assert not codes


def test_list_groups_filters_by_protocol_type() -> None:
    def answer(node: int, request: Any) -> Any:
        if isinstance(request, DescribeClusterRequest):
            broker = DescribeClusterResponse.DescribeClusterBroker(broker_id=1, host="h", port=1)
            return DescribeClusterResponse(cluster_id="c", controller_id=1, brokers=[broker])
        return ListGroupsResponse(
            groups=[
                ListGroupsResponse.ListedGroup(group_id=kind or "simple", protocol_type=kind)
                for kind in ("consumer", "connect", "")
            ]
        )

    admin, _ = typed(answer)
    with admin:
        assert len(admin.list_groups()) == 3
        found = admin.list_groups(protocol_types=["connect", ""])
        assert [group.group_id for group in found] == ["connect", "simple"]
        with pytest.raises(errors.IllegalArgumentError, match="protocol_types is 'connect'"):
            admin.list_groups(protocol_types="connect")


def test_describe_features_asks_given_node() -> None:
    admin, brokers = typed(lambda node, _request: ApiVersionsResponse(finalized_features_epoch=node))
    with admin:
        assert admin.describe_features(node_id=3).finalized_epoch == 3
    assert [node for node, _ in brokers.received] == [3]
