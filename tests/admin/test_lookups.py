"""Finding coordinators and leaders: in one request, from old brokers one by one, and again when they have moved."""

from __future__ import annotations

from typing import Any

import pytest

from pykclient import errors
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from pykclient.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from pykclient.protocol.messages.describe_quorum import DescribeQuorumResponse
from pykclient.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from pykclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykclient.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from pykclient.types import OffsetAndMetadata, TopicPartition
from tests.admin.harness import LOST, cluster, typed


def coordinators(nodes: dict[str, int], codes: dict[str, int] | None = None) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        coordinators=[
            FindCoordinatorResponse.Coordinator(
                key=key, node_id=node, host="h", port=1, error_code=(codes or {}).get(key, 0)
            )
            for key, node in nodes.items()
        ]
    )


def deleted(codes: dict[str, int]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeleteGroupsResponse.DeletableGroupResult(group_id=group, error_code=code) for group, code in codes.items()
        ]
    )


def leaders(topic: str, ids: list[int], code: int = 0) -> MetadataResponse:
    return MetadataResponse(
        topics=[
            MetadataResponse.MetadataResponseTopic(
                name=topic,
                error_code=code,
                partitions=[
                    MetadataResponse.MetadataResponsePartition(partition_index=index, leader_id=leader)
                    for index, leader in enumerate(ids)
                ],
            )
        ]
    )


def test_group_calls_follow_coordinator_to_new_broker() -> None:
    moved = {"b": 2}

    def answer(node: int, request: Any) -> Any:
        if isinstance(request, FindCoordinatorRequest):
            asked = {key: moved.get(key, 1) for key in request.coordinator_keys}
            return coordinators(asked, {"c": errors.GroupAuthorizationError.code})
        if node == 2 and moved["b"] == 2:
            moved["b"] = 3
            return deleted({"b": errors.NotCoordinatorError.code})
        return deleted(dict.fromkeys(request.groups_names, 0))

    admin, brokers = typed(answer)
    with admin:
        results = admin.delete_groups(["a", "b", "c"])
    assert set(results.succeeded) == {"a", "b"}
    assert isinstance(results.failed["c"], errors.GroupAuthorizationError)
    sent = [
        (node, request.groups_names) for node, request in brokers.received if isinstance(request, DeleteGroupsRequest)
    ]
    assert sorted(sent) == [(1, ["a"]), (2, ["b"]), (3, ["b"])]
    asked = [request.coordinator_keys for request in brokers.requests_of(FindCoordinatorRequest)]
    assert asked == [["a", "b", "c"], ["b"]]


def test_unavailable_coordinator_is_looked_up_again() -> None:
    codes = [errors.CoordinatorNotAvailableError.code, errors.CoordinatorNotAvailableError.code, 0]

    def answer(_node: int, request: Any) -> Any:
        if isinstance(request, FindCoordinatorRequest):
            return coordinators({"a": 1}, {"a": codes.pop(0)})
        return deleted({"a": 0})

    admin, _ = typed(answer)
    with admin:
        admin.delete_groups(["a"]).all()
    assert not codes


def test_group_missing_after_lost_response_counts_as_deleted() -> None:
    answers = [LOST, deleted({"a": errors.GroupIdNotFoundError.code})]

    def answer(_node: int, request: Any) -> Any:
        return coordinators({"a": 1}) if isinstance(request, FindCoordinatorRequest) else answers.pop(0)

    admin, _ = typed(answer)
    with admin:
        admin.delete_groups(["a"]).all()


def test_old_brokers_are_asked_for_one_group_at_a_time() -> None:
    def answer(_node: int, request: Any) -> Any:
        if isinstance(request, FindCoordinatorRequest):
            assert not request.coordinator_keys
            return FindCoordinatorResponse(node_id=1, host="h", port=1, error_message=None)
        assert not request.groups
        kind = OffsetFetchResponse.OffsetFetchResponsePartition
        partition = kind(partition_index=0, committed_offset=7, metadata="")
        return OffsetFetchResponse(
            topics=[OffsetFetchResponse.OffsetFetchResponseTopic(name="t", partitions=[partition])]
        )

    admin, brokers = typed(answer)
    brokers.set_api_versions(ApiKeys.FIND_COORDINATOR, 0, 3)
    brokers.set_api_versions(ApiKeys.OFFSET_FETCH, 1, 7)
    with admin:
        results = admin.list_group_offsets(["a", "b"]).all()
    assert results == {group: {TopicPartition("t", 0): OffsetAndMetadata(7, "", -1)} for group in ("a", "b")}
    for kind in (FindCoordinatorRequest, OffsetFetchRequest):
        assert len(brokers.requests_of(kind)) == 2


def test_partition_calls_follow_leader_to_new_broker() -> None:
    led = [1, 2, -1]

    def answer(node: int, request: Any) -> Any:
        if isinstance(request, MetadataRequest):
            return leaders("t", led)
        results = []
        for partition in request.topics[0].partitions:
            has_moved = partition.partition_index == 1 and node == 2
            code = errors.NotLeaderOrFollowerError.code if has_moved else 0
            if has_moved:
                led[1] = led[2] = 3
            results.append(
                DeleteRecordsResponse.DeleteRecordsPartitionResult(
                    partition_index=partition.partition_index, low_watermark=5, error_code=code
                )
            )
        topic = DeleteRecordsResponse.DeleteRecordsTopicResult(name="t", partitions=results)
        return DeleteRecordsResponse(topics=[topic])

    admin, brokers = typed(answer)
    with admin:
        deleted_before = admin.delete_records({TopicPartition("t", index): 5 for index in range(3)})
    assert deleted_before.all() == {TopicPartition("t", index): 5 for index in range(3)}
    nodes = [node for node, request in brokers.received if isinstance(request, DeleteRecordsRequest)]
    assert nodes[:2] == [1, 2]
    assert set(nodes[2:]) == {3}


def test_controller_client_follows_active_controller() -> None:
    def answer(node: int, _request: Any) -> Any:
        if node == 1:
            return DescribeQuorumResponse(error_code=errors.NotLeaderOrFollowerError.code)
        partition = DescribeQuorumResponse.PartitionData(leader_id=2)
        return DescribeQuorumResponse(
            topics=[DescribeQuorumResponse.TopicData(topic_name="__cluster_metadata", partitions=[partition])]
        )

    admin, brokers = typed(answer, bootstrap_controllers="localhost:9093")
    brokers.prepare_metadata_update(cluster(controller=2))
    with admin:
        assert admin.describe_metadata_quorum().leader_id == 2
        sent = len(brokers.received)
        with pytest.raises(errors.UnsupportedEndpointTypeError, match="create_topics is served by brokers only"):
            admin.create_topics(["a"])
    assert [node for node, _ in brokers.received[:sent]] == [1, 2]
    assert len(brokers.received) == sent


def test_unknown_topic_fails_within_seconds() -> None:
    admin, brokers = typed(lambda _node, _request: leaders("t", [], errors.UnknownTopicOrPartitionError.code))
    start_ms = brokers.mock_clock.now_ms()
    with admin:
        results = admin.delete_records({TopicPartition("t", 0): 5})
    assert isinstance(results.failed[TopicPartition("t", 0)], errors.UnknownTopicOrPartitionError)
    assert 1_000 < brokers.mock_clock.now_ms() - start_ms < 5_000
