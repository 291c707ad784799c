"""Fetching committed offsets (after Java's ConsumerCoordinatorTest)."""

from __future__ import annotations

from typing import Any

import pytest

from pykclient.consumer.application_driver import NOTHING, PollResult, UnsentRequest
from pykclient.consumer.coordinator.commit_request_manager import CommittedOffsets
from pykclient.errors import (
    GroupAuthorizationError,
    KafkaError,
    KafkaTimeoutError,
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
    answer,
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
    """Return the committed offsets, or None if they are not known in time."""
    try:
        found: CommittedOffsets = group.coordinator.committed([TP0, TP1], group.timer(timeout_ms))
        return found
    except KafkaTimeoutError as error:
        assert f"the lookup of committed offsets was not done within {timeout_ms} ms" in str(error)  # noqa: PT017
        return None


def start(group: GroupHarness) -> None:
    """Start the new partitions, polling until their committed offsets are known."""
    for _ in range(5):
        if group.coordinator.start_new_partitions():
            return
        group.step()
    raise AssertionError("the committed offsets are not known")


def test_committed_offsets_are_fetched(group: GroupHarness) -> None:
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


def test_empty_lookup_returns_at_once(group: GroupHarness) -> None:
    assert group.coordinator.committed([], group.timer()) == {}


@pytest.mark.parametrize("version", [1, 5, 7])
def test_old_request_versions_are_supported(group: GroupHarness, version: int) -> None:
    group.client.set_api_versions(9, 1, version)
    sent: list[Any] = []
    partition = OffsetFetchResponse.OffsetFetchResponsePartition(
        partition_index=0, committed_offset=5, committed_leader_epoch=3, metadata="note"
    )
    topics = [OffsetFetchResponse.OffsetFetchResponseTopic(name="test", partitions=[partition])]
    group.client.prepare_response(OffsetFetchResponse(topics=topics), noting(sent))
    assert fetch(group) == {TP0: AT_5}
    assert (sent[0].group_id, sent[0].require_stable) == (GROUP, version >= 7)


def test_group_error_in_the_oldest_version_is_raised(group: GroupHarness) -> None:
    group.client.set_api_versions(9, 1, 1)
    partition = OffsetFetchResponse.OffsetFetchResponsePartition(partition_index=0, error_code=30)
    topics = [OffsetFetchResponse.OffsetFetchResponseTopic(name="test", partitions=[partition])]
    group.prepare(OffsetFetchResponse(topics=topics))
    with pytest.raises(GroupAuthorizationError):
        fetch(group)


def test_topics_without_known_ids_are_requested_by_name(group: GroupHarness) -> None:
    sent: list[Any] = []
    other = TopicPartition("unknown", 0)
    answer = committed({other: AT_5})
    answer.groups[0].topics[0].name = "unknown"
    group.client.prepare_response(answer, noting(sent))
    assert group.coordinator.committed([other], group.timer()) == {other: AT_5}
    assert sent[0].groups[0].topics[0].name == "unknown"


@pytest.mark.parametrize("error", [LOAD_IN_PROGRESS, NOT_COORDINATOR])
def test_retriable_error_is_retried(group: GroupHarness, error: int) -> None:
    group.prepare(committed({}, error=error))
    if error == NOT_COORDINATOR:
        group.prepare(find_coordinator(group.node))
    group.prepare(committed({TP0: AT_5}))
    assert fetch(group) == {TP0: AT_5}


@pytest.mark.parametrize("error", [88, 100])
def test_unstable_partitions_are_asked_for_again(group: GroupHarness, error: int) -> None:
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
def test_fatal_error_is_raised(group: GroupHarness, response: OffsetFetchResponse, raised: type[Exception]) -> None:
    group.prepare(response)
    with pytest.raises(raised):
        fetch(group)


def test_late_response_is_reused_by_the_next_call(group: GroupHarness) -> None:
    assert fetch(group, 0) is None
    assert fetch(group, 0) is None
    assert len(group.client.requests) == 1
    group.client.respond(committed({TP0: AT_5}))
    assert fetch(group, 0) == {TP0: AT_5}


def test_pending_request_is_not_shared_by_other_partitions(group: GroupHarness) -> None:
    assert fetch(group, 0) is None
    with pytest.raises(KafkaTimeoutError):
        group.coordinator.committed([TP0], group.timer(0))
    assert len(group.client.requests) == 2


def test_earlier_response_is_not_reused_after_a_commit(group: GroupHarness) -> None:
    """A response from before a commit is not reused after it.

    committed() once returned the response to a poll's earlier request.
    """
    assert fetch(group, 0) is None
    group.client.respond(committed({TP0: OffsetAndMetadata(-1)}))
    group.client.prepare_response(commit({TP0: 0}))
    group.coordinator.commit_sync({TP0: AT_5}, group.timer())
    group.client.prepare_response(committed({TP0: AT_5}))
    assert fetch(group) == {TP0: AT_5}


def test_new_partitions_start_at_their_committed_offset(group: GroupHarness) -> None:
    group.prepare(committed({TP0: AT_5, TP1: OffsetAndMetadata(-1)}))
    start(group)
    position = group.subscriptions.position(TP0)
    assert position is not None
    assert (position.offset, position.offset_epoch) == (5, 3)
    assert group.subscriptions.initializing_partitions() == {TP1}


def test_new_partitions_do_not_start_without_a_response(group: GroupHarness) -> None:
    assert not group.coordinator.start_new_partitions()


def test_response_for_a_revoked_partition_is_ignored(group: GroupHarness) -> None:
    assert not group.coordinator.start_new_partitions()
    group.step()
    group.client.prepare_response(committed({TP0: AT_5}))
    request = group.client.requests[0]
    group.client.respond_to_request(request, committed({TP0: AT_5, TP1: AT_5}))
    group.subscriptions.unsubscribe()
    group.subscriptions.assign_from_user([TP0])
    start(group)
    assert group.subscriptions.assigned_partitions() == {TP0}


class Offsets:
    """The manager alone. Nothing is sent; the tests answer its requests."""

    def __init__(self, group: GroupHarness) -> None:
        self.clock = group.clock
        self.manager = group.coordinator._committed

    def poll(self) -> list[UnsentRequest]:
        return list(self.manager.poll(self.clock.now_ms()).requests)

    def request(self) -> UnsentRequest:
        (request,) = self.poll()
        return request

    def waits_ms(self) -> int:
        """Poll without a request; return how long to wait for one."""
        result: PollResult = self.manager.poll(self.clock.now_ms())
        assert not result.requests
        return result.wait_ms


@pytest.fixture
def offsets(group: GroupHarness) -> Offsets:
    return Offsets(group)


BOTH = {TP0: AT_5, TP1: AT_5}


class TestStates:
    """The waits of lookups, and the callers that get their outcome."""

    def test_idle_manager_has_nothing_to_do(self, offsets: Offsets) -> None:
        assert offsets.manager.poll(offsets.clock.now_ms()) is NOTHING

    def test_lookup_is_retried_with_growing_backoff(self, offsets: Offsets) -> None:
        future = offsets.manager.fetch([TP0], 10_000)
        pauses = []
        for _ in range(3):
            answer(offsets.request(), committed({}, error=LOAD_IN_PROGRESS))
            pauses.append(offsets.waits_ms())
            offsets.clock.advance(pauses[-1])
        assert 0 < pauses[0] < pauses[1] < pauses[2] < 600
        answer(offsets.request(), committed({TP0: AT_5}))
        assert future.value == {TP0: AT_5}
        assert offsets.manager.poll(offsets.clock.now_ms()) is NOTHING

    def test_lookup_times_out_and_keeps_the_late_response(self, offsets: Offsets) -> None:
        future = offsets.manager.fetch([TP0], 500)
        request = offsets.request()
        assert 450 <= offsets.waits_ms() <= 500
        offsets.clock.advance(500)
        assert offsets.poll() == []
        assert isinstance(future.exception, KafkaTimeoutError)
        answer(request, committed({TP0: AT_5}))
        assert offsets.manager.fetch([TP0], 500).value == {TP0: AT_5}, "the next call gets the late response"

    def test_lookup_without_waiting_calls_ends(self, offsets: Offsets) -> None:
        assert not offsets.manager.start_new_partitions()
        answer(offsets.request(), committed({}, error=LOAD_IN_PROGRESS))
        offsets.clock.advance(1_000)
        assert offsets.poll() == []
        assert not offsets.manager.start_new_partitions()
        assert offsets.request()

    def test_call_reuses_the_request_of_a_poll(self, group: GroupHarness, offsets: Offsets) -> None:
        assert not offsets.manager.start_new_partitions()
        request = offsets.request()
        future = offsets.manager.fetch([TP0, TP1], 500)
        assert offsets.poll() == []
        answer(request, committed(BOTH))
        assert future.value == BOTH
        assert group.subscriptions.initializing_partitions() == {TP0, TP1}

    def test_response_to_a_forgotten_request_is_ignored(self, group: GroupHarness, offsets: Offsets) -> None:
        assert not offsets.manager.start_new_partitions()
        old = offsets.request()
        offsets.manager.forget()
        assert not offsets.manager.start_new_partitions()
        answer(old, committed({TP0: OffsetAndMetadata(1), TP1: OffsetAndMetadata(1)}))
        assert not offsets.manager.start_new_partitions()
        answer(offsets.request(), committed(BOTH))
        assert offsets.manager.start_new_partitions()
        position = group.subscriptions.position(TP0)
        assert position is not None
        assert position.offset == 5

    def test_stable_offsets_do_not_wait_for_others(self, group: GroupHarness, offsets: Offsets) -> None:
        assert not offsets.manager.start_new_partitions()
        answer(offsets.request(), committed({TP0: AT_5}, partition_errors={TP1: 88}))
        assert not offsets.manager.start_new_partitions()
        assert group.subscriptions.initializing_partitions() == {TP1}

    def test_lookup_waits_for_the_coordinator(self, group: GroupHarness, offsets: Offsets) -> None:
        group.coordinator.lookup.mark_unknown("test")
        future = offsets.manager.fetch([TP0], 5_000)
        assert offsets.poll() == []
        (lookup,) = group.coordinator.lookup.poll(group.clock.now_ms()).requests
        answer(lookup, find_coordinator(group.node))
        answer(offsets.request(), committed({TP0: AT_5}))
        assert future.value == {TP0: AT_5}

    def test_fatal_coordinator_lookup_error_fails_the_call(self, group: GroupHarness, offsets: Offsets) -> None:
        group.coordinator.lookup.mark_unknown("test")
        future = offsets.manager.fetch([TP0], 5_000)
        offsets.poll()
        (lookup,) = group.coordinator.lookup.poll(group.clock.now_ms()).requests
        answer(lookup, find_coordinator(group.node, 30))
        offsets.poll()
        assert isinstance(future.exception, GroupAuthorizationError)

    def test_abandoned_lookup_is_not_retried(self, offsets: Offsets) -> None:
        future = offsets.manager.fetch([TP0], 5_000)
        answer(offsets.request(), committed({}, error=LOAD_IN_PROGRESS))
        future.give_up(KafkaError("test"))
        offsets.clock.advance(1_000)
        assert offsets.poll() == []

    def test_reset_forgets_requests_in_flight(self, offsets: Offsets) -> None:
        offsets.manager.fetch([TP0], 5_000)
        offsets.request()
        offsets.manager.reset()
        assert offsets.manager.poll(offsets.clock.now_ms()) is NOTHING
        offsets.manager.fetch([TP0], 5_000)
        assert offsets.request()
