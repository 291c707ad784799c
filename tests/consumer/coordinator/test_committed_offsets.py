"""Fetching committed offsets (after Java's ConsumerCoordinatorTest)."""

from __future__ import annotations

from typing import Any

import pytest

from pykclient.errors import (
    GroupAuthorizationError,
    KafkaError,
    TopicAuthorizationError,
)
from pykclient.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from pykclient.types import OffsetAndMetadata, TopicPartition
from tests.consumer.coordinator.harness import (
    GROUP,
    LOAD_IN_PROGRESS,
    NOT_COORDINATOR,
    TP0,
    TP1,
    GroupHarness,
    commit,
    committed,
    find_coordinator,
    noting,
)
from tests.consumer.responses import topic_id

AT_5 = OffsetAndMetadata(5, "note", 3)


@pytest.fixture
def group() -> GroupHarness:
    h = GroupHarness()
    h.subscriptions.assign_from_user([TP0, TP1])
    h.find_coordinator()
    return h


def fetch(group: GroupHarness, timeout_ms: int = 10_000) -> dict[TopicPartition, OffsetAndMetadata | None] | None:
    return group.coordinator.fetch_committed_offsets([TP0, TP1], group.timer(timeout_ms))


def test_the_request_and_the_answer(group: GroupHarness) -> None:
    sent: list[OffsetFetchRequest] = []
    group.client.prepare_response(committed({TP0: AT_5, TP1: OffsetAndMetadata(-1)}), noting(sent))
    assert fetch(group) == {TP0: AT_5, TP1: None}
    (asked,) = sent[0].groups
    assert asked.topics is not None
    assert (asked.group_id, asked.topics[0].topic_id, asked.topics[0].partition_indexes) == (
        GROUP,
        topic_id("test"),
        [0, 1],
    )
    assert sent[0].require_stable


def test_nothing_asked(group: GroupHarness) -> None:
    assert group.coordinator.fetch_committed_offsets([], group.timer()) == {}


@pytest.mark.parametrize("version", [1, 5, 7])
def test_old_versions(group: GroupHarness, version: int) -> None:
    group.client.set_api_versions(9, 1, version)
    sent: list[Any] = []
    partition = OffsetFetchResponse.OffsetFetchResponsePartition(
        partition_index=0, committed_offset=5, committed_leader_epoch=3, metadata="note"
    )
    topics = [OffsetFetchResponse.OffsetFetchResponseTopic(name="test", partitions=[partition])]
    group.client.prepare_response(OffsetFetchResponse(topics=topics), noting(sent))
    assert fetch(group) == {TP0: AT_5}
    assert (sent[0].group_id, sent[0].require_stable) == (GROUP, version >= 7)


def test_an_error_of_the_group_in_the_oldest_version(group: GroupHarness) -> None:
    group.client.set_api_versions(9, 1, 1)
    partition = OffsetFetchResponse.OffsetFetchResponsePartition(partition_index=0, error_code=30)
    topics = [OffsetFetchResponse.OffsetFetchResponseTopic(name="test", partitions=[partition])]
    group.prepare(OffsetFetchResponse(topics=topics))
    with pytest.raises(GroupAuthorizationError):
        fetch(group)


def test_topics_go_by_name_where_ids_are_not_known(group: GroupHarness) -> None:
    sent: list[Any] = []
    other = TopicPartition("unknown", 0)
    answer = committed({other: AT_5})
    answer.groups[0].topics[0].name = "unknown"
    group.client.prepare_response(answer, noting(sent))
    assert group.coordinator.fetch_committed_offsets([other], group.timer()) == {other: AT_5}
    assert sent[0].groups[0].topics[0].name == "unknown"


@pytest.mark.parametrize("error", [LOAD_IN_PROGRESS, NOT_COORDINATOR])
def test_what_may_pass_is_repeated(group: GroupHarness, error: int) -> None:
    group.prepare(committed({}, error=error))
    if error == NOT_COORDINATOR:
        group.prepare(find_coordinator(group.node))
    group.prepare(committed({TP0: AT_5}))
    assert fetch(group) == {TP0: AT_5}


@pytest.mark.parametrize("error", [88, 100])
def test_partitions_that_are_not_ready(group: GroupHarness, error: int) -> None:
    group.prepare(committed({}, partition_errors={TP0: error}), committed({TP0: AT_5}))
    assert fetch(group) == {TP0: AT_5}


@pytest.mark.parametrize(
    ("response", "raised"),
    [
        (committed({}, error=30), GroupAuthorizationError),
        (committed({}, error=-1), KafkaError),
        (committed({}, partition_errors={TP0: 29}), TopicAuthorizationError),
        (committed({}, partition_errors={TP0: 3}), KafkaError),
        (committed({}, partition_errors={TP0: -1}), KafkaError),
    ],
)
def test_what_does_not_pass_is_raised(
    group: GroupHarness, response: OffsetFetchResponse, raised: type[Exception]
) -> None:
    group.prepare(response)
    with pytest.raises(raised):
        fetch(group)


def test_an_answer_that_comes_late_is_for_the_next_call(group: GroupHarness) -> None:
    assert fetch(group, 0) is None
    assert fetch(group, 0) is None
    assert len(group.client.requests) == 1
    group.client.respond(committed({TP0: AT_5}))
    assert fetch(group, 0) == {TP0: AT_5}


def test_but_not_for_another_question(group: GroupHarness) -> None:
    assert fetch(group, 0) is None
    assert group.coordinator.fetch_committed_offsets([TP0], group.timer(0)) is None
    assert len(group.client.requests) == 2


def test_nor_after_a_commit(group: GroupHarness) -> None:
    """A response from before a commit is not reused after it.

    committed() once returned the response to a poll's earlier request.
    """
    assert fetch(group, 0) is None
    group.client.respond(committed({TP0: OffsetAndMetadata(-1)}))
    group.client.prepare_response(commit({TP0: 0}))
    assert group.coordinator.commit_offsets_sync({TP0: AT_5}, group.timer())
    group.client.prepare_response(committed({TP0: AT_5}))
    assert fetch(group) == {TP0: AT_5}


def test_new_partitions_start_at_their_committed_offset(group: GroupHarness) -> None:
    group.prepare(committed({TP0: AT_5, TP1: OffsetAndMetadata(-1)}))
    assert group.coordinator.init_with_committed_offsets_if_needed(group.timer())
    position = group.subscriptions.position(TP0)
    assert position is not None
    assert (position.offset, position.offset_epoch) == (5, 3)
    assert group.subscriptions.initializing_partitions() == {TP1}


def test_not_without_an_answer(group: GroupHarness) -> None:
    assert not group.coordinator.init_with_committed_offsets_if_needed(group.timer(0))


def test_a_partition_that_was_taken_away_meanwhile(group: GroupHarness) -> None:
    assert not group.coordinator.init_with_committed_offsets_if_needed(group.timer(0))
    group.client.prepare_response(committed({TP0: AT_5}))
    request = group.client.requests[0]
    group.client.respond_to_request(request, committed({TP0: AT_5, TP1: AT_5}))
    group.subscriptions.unsubscribe()
    group.subscriptions.assign_from_user([TP0])
    assert group.coordinator.init_with_committed_offsets_if_needed(group.timer())
    assert group.subscriptions.assigned_partitions() == {TP0}
