"""Offset commits and the handling of each response (after Java's ConsumerCoordinatorTest)."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from pykclient.clock import FOREVER_MS
from pykclient.consumer.application_driver import NOTHING, UnsentRequest
from pykclient.consumer.coordinator.commit_request_manager import CommitRequestManager
from pykclient.consumer.coordinator.membership import STABLE, UNJOINED
from pykclient.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    GroupAuthorizationError,
    IllegalArgumentError,
    KafkaError,
    KafkaTimeoutError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    RetriableCommitFailedError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
    WakeupError,
)
from pykclient.types import OffsetAndMetadata, TopicPartition
from tests.consumer.coordinator.harness import (
    FENCED_INSTANCE_ID,
    ILLEGAL_GENERATION,
    LOAD_IN_PROGRESS,
    MEMBER,
    NONE,
    NOT_COORDINATOR,
    REBALANCE_IN_PROGRESS,
    TP0,
    TP1,
    UNKNOWN_MEMBER_ID,
    GroupHarness,
    answer,
    commit,
    find_coordinator,
    join,
    leave,
    message_of,
    noting,
    sync,
)
from tests.consumer.responses import metadata_response, topic_id

OFFSETS = {TP0: OffsetAndMetadata(5, "note", 3)}


class Called(list[tuple[dict[TopicPartition, OffsetAndMetadata], Exception | None]]):
    def __call__(self, offsets: dict[TopicPartition, OffsetAndMetadata], error: Exception | None) -> None:
        self.append((offsets, error))


@pytest.fixture
def group() -> GroupHarness:
    h = GroupHarness()
    h.subscribe()
    h.join(TP0)
    return h


@pytest.fixture
def alone() -> GroupHarness:
    """Return a consumer that commits offsets but assigns its partitions manually."""
    h = GroupHarness()
    h.subscriptions.assign_from_user([TP0])
    h.find_coordinator()
    return h


class TestSync:
    def test_commit_request_has_offsets_and_membership(self, group: GroupHarness) -> None:
        sent: list[Any] = []
        group.client.prepare_response(commit({TP0: 0}), noting(sent))
        group.coordinator.commit_sync(OFFSETS, group.timer())
        (request,) = sent
        assert (request.group_id, request.member_id, request.generation_id_or_member_epoch) == ("a-group", MEMBER, 1)
        assert request.topics[0].topic_id == topic_id("test")
        (partition,) = request.topics[0].partitions
        assert (partition.committed_offset, partition.committed_metadata, partition.committed_leader_epoch) == (
            5,
            "note",
            3,
        )
        assert group.metric("commit-total") == 1

    def test_topics_without_known_ids_are_sent_by_name(self, group: GroupHarness) -> None:
        sent: list[Any] = []
        other = TopicPartition("unknown", 0)
        group.client.prepare_response(commit({other: 0, TP0: 0}), noting(sent))
        group.coordinator.commit_sync({other: OffsetAndMetadata(1), **OFFSETS}, group.timer())
        assert {topic.name for topic in sent[0].topics} == {"unknown", "test"}

    def test_commit_without_a_membership_has_no_generation(self, alone: GroupHarness) -> None:
        sent: list[Any] = []
        alone.client.prepare_response(commit({TP0: 0}), noting(sent))
        alone.coordinator.commit_sync(OFFSETS, alone.timer())
        assert (sent[0].member_id, sent[0].generation_id_or_member_epoch, sent[0].group_instance_id) == ("", -1, None)

    def test_empty_commit_sends_no_request(self, group: GroupHarness) -> None:
        group.coordinator.commit_sync({}, group.timer())
        assert not group.client.requests

    @pytest.mark.parametrize("error", [LOAD_IN_PROGRESS, 3, 100, 7])
    def test_retriable_error_is_retried(self, alone: GroupHarness, error: int) -> None:
        alone.prepare(commit({TP0: error}))
        if error == 7:  # REQUEST_TIMED_OUT: another coordinator may do better
            alone.prepare(find_coordinator(alone.node))
        alone.prepare(commit({TP0: 0}))
        alone.coordinator.commit_sync(OFFSETS, alone.timer())

    def test_commit_moves_to_the_new_coordinator(self, group: GroupHarness) -> None:
        group.prepare(commit({TP0: NOT_COORDINATOR}), find_coordinator(group.node), commit({TP0: 0}))
        group.coordinator.commit_sync(OFFSETS, group.timer())

    def test_commit_is_retried_after_a_lost_connection(self, group: GroupHarness) -> None:
        group.client.prepare_response(None, disconnected=True)
        group.prepare(find_coordinator(group.node), commit({TP0: 0}))
        group.coordinator.commit_sync(OFFSETS, group.timer())

    def test_commit_times_out_with_the_last_error(self, group: GroupHarness) -> None:
        for _ in range(10):
            group.prepare(commit({TP0: LOAD_IN_PROGRESS}))
        with pytest.raises(KafkaTimeoutError, match=r"the commit was not done within 500 ms: .*loading"):
            group.coordinator.commit_sync(OFFSETS, group.timer(500))

    @pytest.mark.parametrize(
        ("error", "raised"),
        [
            (12, OffsetMetadataTooLargeError),
            (30, GroupAuthorizationError),
            (29, TopicAuthorizationError),
            (-1, KafkaError),
        ],
    )
    def test_fatal_error_is_raised(self, group: GroupHarness, error: int, raised: type[Exception]) -> None:
        group.prepare(commit({TP0: error}))
        with pytest.raises(raised):
            group.coordinator.commit_sync(OFFSETS, group.timer())

    def test_negative_offsets_are_refused(self, group: GroupHarness) -> None:
        with pytest.raises(IllegalArgumentError, match="negative"):
            group.coordinator.commit_sync({TP0: OffsetAndMetadata(-1)}, group.timer())

    def test_wakeup_interrupts_a_sync_commit(self, group: GroupHarness) -> None:
        group.driver.wakeup()
        with pytest.raises(WakeupError):
            group.coordinator.commit_sync(OFFSETS, group.timer())

    def test_interceptors_see_committed_offsets(self) -> None:
        heard: list[Any] = []

        class Interceptor:
            def on_commit(self, offsets: object) -> None:
                heard.append(offsets)

        group = GroupHarness(interceptors=[Interceptor()])
        group.subscriptions.assign_from_user([TP0])
        group.find_coordinator()
        group.prepare(commit({TP0: 0}))
        group.coordinator.commit_sync(OFFSETS, group.timer())
        assert heard == [OFFSETS]


class Commits:
    """The manager of a consumer that assigns its partitions itself. Nothing is sent; the tests answer its requests."""

    def __init__(self, *, knows_coordinator: bool = True, **settings: Any) -> None:
        self.group = GroupHarness(**settings)
        self.group.subscriptions.assign_from_user([TP0, TP1])
        if knows_coordinator:
            self.group.find_coordinator()
        self.clock = self.group.clock
        self.events = self.group.coordinator.events
        self.manager: CommitRequestManager = self.group.coordinator._commits

    def poll(self) -> list[UnsentRequest]:
        return list(self.manager.poll(self.clock.now_ms()).requests)

    def request(self) -> UnsentRequest:
        (request,) = self.poll()
        return request

    def waits_ms(self) -> int:
        """Poll without a request; return how long to wait for one."""
        result = self.manager.poll(self.clock.now_ms())
        assert not result.requests
        return result.wait_ms


def at(offset: int) -> dict[TopicPartition, OffsetAndMetadata]:
    return {TP0: OffsetAndMetadata(offset)}


class TestStates:
    """The waits and outcomes of commits."""

    def test_idle_manager_has_nothing_to_do(self) -> None:
        commits = Commits()
        assert commits.manager.poll(commits.clock.now_ms()) is NOTHING

    def test_commits_are_sent_in_order_and_completed_by_events(self) -> None:
        commits, called = Commits(), Called()
        futures = [commits.manager.commit_async(at(number), called) for number in (1, 2)]
        first, second = commits.poll()
        assert [message_of(one).topics[0].partitions[0].committed_offset for one in (first, second)] == [1, 2]
        assert first.node == commits.group.coordinator_node
        answer(second, commit({TP0: 0}))
        answer(first, commit({TP0: 12}))
        assert not any(future.is_done for future in futures)
        assert not called
        commits.group.driver.run(commits.events.steps())
        assert [offsets[TP0].offset for offsets, _ in called] == [2, 1]
        assert (futures[0].failed, futures[1].succeeded) == (True, True)
        assert commits.poll() == []
        assert commits.manager.poll(commits.clock.now_ms()) is NOTHING

    def test_backoff_grows_after_each_failure(self) -> None:
        commits = Commits()
        future = commits.manager.commit_sync(at(1), 10_000)
        pauses = []
        for _ in range(3):
            answer(commits.request(), commit({TP0: LOAD_IN_PROGRESS}))
            pauses.append(commits.waits_ms())
            commits.clock.advance(pauses[-1])
        assert 0 < pauses[0] < pauses[1] < pauses[2] < 600
        answer(commits.request(), commit({TP0: 0}))
        assert future.succeeded

    def test_deadline_starts_with_the_first_poll(self) -> None:
        commits = Commits()
        future = commits.manager.commit_sync(at(1), 500)
        commits.clock.advance(10_000)
        request = commits.request()
        assert 450 <= commits.waits_ms() <= 500
        commits.clock.advance(500)
        assert commits.poll() == []
        assert isinstance(future.exception, KafkaTimeoutError)
        answer(request, commit({TP0: 0}))  # too late to matter
        assert future.failed

    def test_backoff_ends_at_the_deadline(self) -> None:
        commits = Commits()
        commits.manager.commit_sync(at(1), 60)
        answer(commits.request(), commit({TP0: LOAD_IN_PROGRESS}))
        assert commits.waits_ms() <= 60

    def test_abandoned_commit_is_not_retried(self) -> None:
        commits = Commits()
        future = commits.manager.commit_sync(at(1), 10_000)
        request = commits.request()
        future.give_up(WakeupError("test"))
        answer(request, commit({TP0: LOAD_IN_PROGRESS}))
        commits.clock.advance(1_000)
        assert commits.poll() == []
        assert commits.manager.poll(commits.clock.now_ms()) is NOTHING

    def test_failed_lookup_fails_async_commits_only(self) -> None:
        commits, called = Commits(knows_coordinator=False), Called()
        synchronous = commits.manager.commit_sync(at(2), 10_000)
        commits.manager.commit_async(at(1), called)
        assert commits.poll() == []
        lookup = commits.group.coordinator.lookup
        (request,) = lookup.poll(commits.clock.now_ms()).requests
        answer(request, find_coordinator(commits.group.node, LOAD_IN_PROGRESS))
        assert commits.poll() == []
        commits.group.driver.run(commits.events.steps())
        assert isinstance(called[0][1], RetriableCommitFailedError)
        assert not synchronous.is_done, "it waits for the next lookup"
        commits.clock.advance(1_000)
        (request,) = lookup.poll(commits.clock.now_ms()).requests
        answer(request, find_coordinator(commits.group.node))
        answer(commits.request(), commit({TP0: 0}))
        assert synchronous.succeeded

    def test_commit_times_out_without_a_coordinator(self) -> None:
        commits = Commits(knows_coordinator=False)
        future = commits.manager.commit_sync(at(1), 100)
        commits.poll()
        (request,) = commits.group.coordinator.lookup.poll(commits.clock.now_ms()).requests
        answer(request, find_coordinator(commits.group.node, LOAD_IN_PROGRESS))
        commits.clock.advance(101)
        commits.poll()
        with pytest.raises(KafkaTimeoutError, match=r"the commit was not done within 100 ms: .*loading"):
            raise future.exception

    def test_fatal_lookup_error_fails_the_commit(self) -> None:
        commits = Commits(knows_coordinator=False)
        future = commits.manager.commit_sync(at(1), 10_000)
        commits.poll()
        (request,) = commits.group.coordinator.lookup.poll(commits.clock.now_ms()).requests
        answer(request, find_coordinator(commits.group.node, 30))
        assert commits.poll() == []
        assert isinstance(future.exception, GroupAuthorizationError)

    def test_unknown_topic_waits_for_newer_metadata(self) -> None:
        commits = Commits()
        future = commits.manager.commit_sync(at(1), 10_000)
        answer(commits.request(), commit({TP0: 3}))
        commits.clock.advance(5_000)
        assert commits.waits_ms() <= 5_000
        assert commits.group.metadata.update_requested
        commits.group.client.update_metadata(metadata_response({"test": 2}))
        answer(commits.request(), commit({TP0: 3}))
        commits.group.client.update_metadata(metadata_response({}, errors={"test": 3}))
        assert commits.poll() == []
        assert isinstance(future.exception, UnknownTopicOrPartitionError)
        assert "deleted" in str(future.exception)

    def test_empty_commit_waits_for_async_commits(self) -> None:
        commits = Commits()
        commits.manager.commit_async(at(1))
        future = commits.manager.commit_sync({}, 10_000)
        request = commits.request()
        assert not future.is_done
        answer(request, commit({TP0: 0}))
        assert commits.poll() == []
        assert future.succeeded

    def test_reset_drops_requests_in_flight_and_sends_the_rest(self) -> None:
        commits, called = Commits(), Called()
        commits.manager.commit_async(at(1), called)
        commits.request()
        commits.manager.commit_async(at(2), called)
        commits.manager.commit_sync(at(3), 10_000)
        commits.manager.reset()
        answer(commits.request(), commit({TP0: 0}))
        commits.group.driver.run(commits.events.steps())
        assert [(offsets[TP0].offset, type(error)) for offsets, error in called] == [
            (1, RetriableCommitFailedError),
            (2, type(None)),
        ]

    def test_interrupted_auto_commit_does_not_block_the_rebalance(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A rebalance that waits for the commit goes on, wherever a signal handler raises."""
        commits = Commits(auto_commit_interval_ms=1_000)
        commits.group.seek(TP0, 7)
        future = commits.manager.auto_commit_async()
        request = commits.request()

        def interrupt(*_: object) -> None:
            monkeypatch.undo()
            raise KeyboardInterrupt

        monkeypatch.setattr(commits.manager, "_auto_committed", interrupt)
        with pytest.raises(KeyboardInterrupt):
            answer(request, commit({TP0: 0}))
        commits.manager.reset()
        assert future.is_done
        assert commits.manager.poll(commits.clock.now_ms()) is NOTHING

    def test_repeated_event_calls_back_once(self) -> None:
        commits, called = Commits(), Called()
        commits.manager.commit_async(at(1), called)
        answer(commits.request(), commit({TP0: 0}))
        commits.events.queue *= 2
        commits.group.driver.run(commits.events.steps())
        assert len(called) == 1

    def test_automatic_commits(self) -> None:
        commits = Commits(auto_commit_interval_ms=1_000)
        commits.group.seek(TP0, 7)
        assert not commits.manager.maybe_auto_commit_async(commits.clock.now_ms())
        commits.clock.advance(1_000)
        assert commits.manager.maybe_auto_commit_async(commits.clock.now_ms())
        assert not commits.manager.maybe_auto_commit_async(commits.clock.now_ms())
        request = commits.request()
        assert message_of(request).topics[0].partitions[0].committed_offset == 7
        answer(request, commit({TP0: LOAD_IN_PROGRESS}))
        assert commits.manager.time_to_next_auto_commit() <= 100, "after a failure the next one is soon"
        assert not commits.events


UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID = 3, 100


@pytest.mark.parametrize("error", [UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID])
class TestDeletedTopic:
    """A partition unknown to the coordinator and absent from newer metadata was deleted."""

    OTHER = TopicPartition("other", 0)

    def member(self, **settings: Any) -> GroupHarness:
        """Return a member that owns one partition of each of two topics and has positions."""
        group = GroupHarness(partitions={"test": 2, "other": 1}, **settings)
        group.subscribe("test", "other")
        group.join(TP0, self.OTHER)
        group.seek(TP0, 100)
        group.seek(self.OTHER, 7)
        return group

    @staticmethod
    def delete_topic(group: GroupHarness) -> None:
        """Update the metadata to one without the topic."""
        group.client.prepare_metadata_update(metadata_response({"other": 1}, errors={"test": 3}))

    def test_commit_to_deleted_topic_fails_at_once(self, error: int) -> None:
        group = self.member()
        self.delete_topic(group)
        group.prepare(commit({TP0: error, self.OTHER: 0}))
        start_ms = group.clock.now_ms()
        with pytest.raises(UnknownTopicOrPartitionError, match=r"test-0.*deleted"):
            group.coordinator.commit_sync(group.subscriptions.all_consumed(), group.timer(60_000))
        assert group.clock.now_ms() - start_ms < 1_000

    def test_commit_is_retried_while_metadata_has_the_topic(self, error: int) -> None:
        group = self.member()
        for _ in range(3):
            group.prepare(commit({TP0: error}))
        group.prepare(commit({TP0: 0}))
        group.coordinator.commit_sync(OFFSETS, group.timer())
        assert group.client.prepared_response_count() == 0

    def test_other_topics_are_committed_beside_a_deleted_topic(self, error: int) -> None:
        group = self.member(auto_commit_interval_ms=1_000)
        self.delete_topic(group)
        group.coordinator.request_rejoin("test")
        sent: list[Any] = []
        group.client.prepare_response(commit({TP0: error, self.OTHER: 0}), noting(sent))
        group.client.prepare_response(commit({self.OTHER: 0}), noting(sent))
        group.prepare(join(2), sync(self.OTHER))
        start_ms = group.clock.now_ms()
        while not group.coordinator.poll(group.timer(60_000)):
            assert group.clock.now_ms() - start_ms < 1_000
        ids = [{topic.topic_id for topic in request.topics} for request in sent]
        assert ids == [{topic_id("test"), topic_id("other")}, {topic_id("other")}]
        assert group.member.membership.generation.generation_id == 2
        assert group.subscriptions.assigned_partitions() == {self.OTHER}

    def test_close_does_not_wait_for_the_deleted_topic(self, error: int, caplog: pytest.LogCaptureFixture) -> None:
        group = self.member(auto_commit_interval_ms=60_000)
        self.delete_topic(group)
        group.prepare(commit({TP0: error, self.OTHER: 0}), leave())
        start_ms = group.clock.now_ms()
        group.coordinator.close(group.timer(30_000))
        assert group.clock.now_ms() - start_ms < 1_000
        assert group.client.prepared_response_count() == 0
        assert "test-0" in caplog.text

    def test_automatic_commits_skip_a_deleted_topic_until_it_returns(
        self, error: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO")
        group = self.member(auto_commit_interval_ms=1_000)
        sent: list[Any] = []

        def auto_commit(answer: dict[TopicPartition, int]) -> set[TopicPartition]:
            group.clock.advance(1_000)
            group.client.prepare_response(commit(answer), noting(sent))
            group.coordinator.poll(group.timer(0))
            group.coordinator.poll(group.timer(0))
            names = {topic_id(name): name for name in ("test", "other")}
            return {
                TopicPartition(names[topic.topic_id], one.partition_index)
                for topic in sent[-1].topics
                for one in topic.partitions
            }

        self.delete_topic(group)
        assert auto_commit({TP0: error, self.OTHER: 0}) == {TP0, self.OTHER}
        group.member.membership.take_join_prepare()
        group.client.update_metadata(metadata_response({"other": 1}, errors={"test": 3}))
        group.member.protocol._assignment_snapshot = None  # without a rebalance in between
        assert auto_commit({self.OTHER: 0}) == {self.OTHER}
        assert auto_commit({self.OTHER: 0}) == {self.OTHER}
        assert caplog.text.count("No longer committing test-0: 100") == 1
        group.client.update_metadata(metadata_response({"test": 2, "other": 1}))
        assert auto_commit({TP0: 0, self.OTHER: 0}) == {TP0, self.OTHER}


class TestTopicCreatedAgain:
    """An offset is committed only to the topic that it belongs to, never to a later one of the same name."""

    def committed_ids(self, group: GroupHarness) -> list[Any]:
        sent: list[Any] = []
        group.client.prepare_response(commit({TP0: 0}), noting(sent))
        group.coordinator.commit_sync(OFFSETS, group.timer())
        return [topic.topic_id for topic in sent[0].topics]

    def test_commit_uses_the_topic_id_of_the_position(self, group: GroupHarness) -> None:
        group.seek(TP0, 5)
        assert self.committed_ids(group) == [topic_id("test")]
        new_id = uuid.uuid4()
        group.client.update_metadata(metadata_response({"test": 2}, ids={"test": new_id}))
        with pytest.raises(UnknownTopicOrPartitionError, match="test-0"):
            group.coordinator.commit_sync(OFFSETS, group.timer())
        group.seek(TP0, 5)
        answer = commit({TP0: 0})
        answer.topics[0].topic_id = new_id
        sent: list[Any] = []
        group.client.prepare_response(answer, noting(sent))
        group.coordinator.commit_sync(OFFSETS, group.timer())
        assert sent[0].topics[0].topic_id == new_id

    def test_waiting_commit_keeps_the_old_topic_id(self, group: GroupHarness) -> None:
        """A commit that waits for the coordinator keeps the old topic's id, even if the position is in the new one."""
        called = Called()
        group.seek(TP0, 5)
        start_background_lookup(group)
        group.coordinator.commit_async(OFFSETS, called)
        group.client.update_metadata(metadata_response({"test": 2}, ids={"test": uuid.uuid4()}))
        group.seek(TP0, 0)
        group.client.respond(find_coordinator(group.node))
        in_another_thread(group.network.poll_background)
        group.step()
        group.coordinator.poll(group.timer(0))
        assert isinstance(called[0][1], RetriableCommitFailedError)
        assert not [request for request in group.client.requests if request.request_builder.api_key == 8]


class TestMembershipEnded:
    def test_unknown_member_error_gives_hints(self, group: GroupHarness) -> None:
        group.prepare(commit({TP0: UNKNOWN_MEMBER_ID}))
        with pytest.raises(CommitFailedError) as raised:
            group.coordinator.commit_sync(OFFSETS, group.timer())
        text = str(raised.value)
        for hint in ("a-group", "max.poll.records", "max.poll.interval.ms", "session.timeout.ms", "poll()"):
            assert hint in text
        assert "Its generation was 1, and is none now" in text
        assert group.member.membership.state is UNJOINED
        assert not group.member.membership.generation.has_member_id

    def test_illegal_generation_keeps_the_member_id(self, group: GroupHarness) -> None:
        group.prepare(commit({TP0: ILLEGAL_GENERATION}))
        with pytest.raises(CommitFailedError):
            group.coordinator.commit_sync(OFFSETS, group.timer())
        assert group.member.membership.generation.member_id == MEMBER

    @pytest.mark.parametrize("error", [UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_INSTANCE_ID])
    def test_new_rebalance_is_kept_after_a_failed_commit(self, group: GroupHarness, error: int) -> None:
        called = Called()
        group.coordinator.commit_async(OFFSETS, called)
        committing = group.client.requests[0]
        group.coordinator.request_rejoin("test")
        group.prepare(join(2), sync(TP0))
        assert group.coordinator.poll(group.timer())
        group.coordinator.request_rejoin("again")
        group.coordinator.poll(group.timer(0))
        group.client.respond_to_request(committing, commit({TP0: error}))
        group.step()
        group.coordinator.poll(group.timer(0))
        assert isinstance(called[0][1], RebalanceInProgressError)
        assert group.member.membership.generation.generation_id == 2

    def test_commit_during_a_rebalance_asks_for_a_poll(self, group: GroupHarness) -> None:
        group.prepare(commit({TP0: REBALANCE_IN_PROGRESS}))
        with pytest.raises(RebalanceInProgressError, match=r"poll\(\)"):
            group.coordinator.commit_sync(OFFSETS, group.timer())
        assert group.member.membership.state is STABLE
        assert group.coordinator.rejoin_needed_or_pending()

    def test_commit_of_a_fenced_static_member_raises(self) -> None:
        group = GroupHarness(group={"group_instance_id": "i"})
        group.subscribe()
        group.join(TP0)
        group.prepare(commit({TP0: FENCED_INSTANCE_ID}))
        with pytest.raises(FencedInstanceIdError, match="'i'"):
            group.coordinator.commit_sync(OFFSETS, group.timer())

    def test_commit_while_joining_is_refused(self, group: GroupHarness) -> None:
        group.coordinator.request_rejoin("test")
        group.coordinator.poll(group.timer(0))
        with pytest.raises(RebalanceInProgressError):
            group.coordinator.commit_sync(OFFSETS, group.timer())

    def test_commit_after_max_poll_interval_explains_the_limit(self, group: GroupHarness) -> None:
        """The error says which limit was exceeded, by how much, and which settings matter.

        This is the most common complaint of users.
        """
        for _ in range(19):
            group.beat()
        group.clock.advance(3_001)
        group.thread.run_once()
        group.thread.run_once()
        with pytest.raises(CommitFailedError) as raised:
            group.coordinator.commit_sync(OFFSETS, group.timer())
        text = str(raised.value)
        assert "poll() was not called for 60." in text
        assert "max.poll.interval.ms=60000" in text
        assert "max.poll.records, now 500" in text
        assert "Its generation was 1, and is none now" in text

    def test_late_response_of_a_former_generation_is_explained(self, group: GroupHarness) -> None:
        """A commit in a former generation is refused after the member has joined the next one."""
        called = Called()
        group.coordinator.commit_async(OFFSETS, called)
        committing = group.client.requests[0]
        group.coordinator.request_rejoin("test")
        group.prepare(join(2), sync(TP0))
        assert group.coordinator.poll(group.timer())
        group.client.respond_to_request(committing, commit({TP0: ILLEGAL_GENERATION}))
        group.step()
        group.coordinator.poll(group.timer(0))
        assert "generation 1" in str(called[0][1])
        assert "Its generation was 1, and is none now" in str(called[0][1])

    def test_commit_before_joining_is_refused(self) -> None:
        group = GroupHarness()
        group.subscribe()
        group.find_coordinator()
        with pytest.raises(CommitFailedError, match="has not joined yet"):
            group.coordinator.commit_sync(OFFSETS, group.timer())


def start_background_lookup(group: GroupHarness) -> None:
    """Start a coordinator lookup as the heartbeat thread does when the coordinator is lost."""
    group.step()
    group.coordinator.lookup.mark_unknown("test")
    group.network.poll_background()
    assert len(group.client.requests) == 1


def in_another_thread(action: Callable[[], object]) -> None:
    thread = threading.Thread(target=action)
    thread.start()
    thread.join()


class TestAsync:
    def test_callbacks_run_in_order_inside_polls_only(self, group: GroupHarness) -> None:
        called = Called()
        group.prepare(commit({TP0: 0}), commit({TP0: 0}))
        group.coordinator.commit_async({TP0: OffsetAndMetadata(1)}, called)
        assert called == []
        group.coordinator.commit_async({TP0: OffsetAndMetadata(2)}, called)
        group.coordinator.poll(group.timer(0))
        assert [offsets[TP0].offset for offsets, error in called if error is None] == [1, 2]

    def test_failed_callback_is_logged(self, group: GroupHarness, caplog: pytest.LogCaptureFixture) -> None:
        def fail(_offsets: object, _error: object) -> None:
            raise ZeroDivisionError("mine")

        called = Called()
        group.prepare(commit({TP0: 0}), commit({TP0: 0}))
        group.coordinator.commit_async(OFFSETS, fail)
        group.coordinator.commit_async(OFFSETS, called)
        group.coordinator.poll(group.timer(0))
        assert len(called) == 1
        assert "ZeroDivisionError: mine" in caplog.text

    def test_sync_commit_runs_after_async_callbacks(self, group: GroupHarness) -> None:
        called = Called()
        group.prepare(commit({TP0: 0}), commit({TP0: 0}))
        group.coordinator.commit_async(OFFSETS, called)
        group.coordinator.commit_sync(OFFSETS, group.timer())
        assert len(called) == 1

    def test_empty_sync_commit_waits_for_async_commits(self, group: GroupHarness) -> None:
        called = Called()
        group.coordinator.commit_async(OFFSETS, called)
        with pytest.raises(KafkaTimeoutError):
            group.coordinator.commit_sync({}, group.timer(300))
        group.client.respond(commit({TP0: 0}))
        group.coordinator.commit_sync({}, group.timer())
        assert len(called) == 1

    def test_failed_async_commit_is_not_retried(self, group: GroupHarness) -> None:
        called = Called()
        group.prepare(commit({TP0: LOAD_IN_PROGRESS}))
        future = group.coordinator.commit_async(OFFSETS, called)
        group.coordinator.poll(group.timer(0))
        assert isinstance(called[0][1], RetriableCommitFailedError)
        assert future.failed
        assert not group.client.requests

    def test_fatal_errors_reach_the_callback_unchanged(self, group: GroupHarness) -> None:
        called = Called()
        group.prepare(commit({TP0: 12}))
        group.coordinator.commit_async(OFFSETS, called)
        group.coordinator.poll(group.timer(0))
        assert isinstance(called[0][1], OffsetMetadataTooLargeError)

    def test_without_callback_failures_are_logged(self, group: GroupHarness, caplog: pytest.LogCaptureFixture) -> None:
        group.prepare(commit({TP0: 12}))
        group.coordinator.commit_async(OFFSETS)
        group.coordinator.poll(group.timer(0))
        assert "Commit of test-0: 5 failed" in caplog.text

    def test_async_commit_waits_for_the_coordinator(self) -> None:
        group = GroupHarness()
        group.subscriptions.assign_from_user([TP0, TP1])
        called = Called()
        futures = [group.coordinator.commit_async({tp: OffsetAndMetadata(1)}, called) for tp in (TP0, TP1)]
        assert not any(future.is_done for future in futures)
        group.client.respond(find_coordinator(group.node))
        group.prepare(commit({TP0: 0}), commit({TP1: 0}))
        for _ in range(4):
            group.coordinator.poll(group.timer(0))
        assert [list(offsets) for offsets, _ in called] == [[TP0], [TP1]]
        assert all(future.succeeded for future in futures)

    def test_async_commit_fails_without_a_coordinator(self) -> None:
        group = GroupHarness()
        group.subscriptions.assign_from_user([TP0])
        called = Called()
        group.coordinator.commit_async(OFFSETS, called)
        group.client.respond(find_coordinator(group.node, LOAD_IN_PROGRESS))
        for _ in range(3):
            group.coordinator.poll(group.timer(0))
        assert isinstance(called[0][1], RetriableCommitFailedError)

    @pytest.mark.parametrize("found", [True, False])
    def test_async_commit_uses_the_heartbeat_lookup(self, group: GroupHarness, found: bool) -> None:
        called = Called()
        start_background_lookup(group)
        future = group.coordinator.commit_async(OFFSETS, called)
        assert len(group.client.requests) == 1
        group.client.respond(find_coordinator(group.node, NONE if found else LOAD_IN_PROGRESS))
        in_another_thread(group.network.poll_background)
        # State that only the application's thread may touch is unchanged.
        assert group.coordinator.lookup.failures == (0 if found else 1)
        assert not future.is_done
        assert not group.network.has_pending_requests()
        if found:
            group.prepare(commit({TP0: 0}))
        for _ in range(3):
            group.coordinator.poll(group.timer(0))
        assert future.is_done
        assert [type(error) for _, error in called] == [type(None) if found else RetriableCommitFailedError]

    @pytest.mark.parametrize("later", ["async", "sync"])
    def test_later_commit_does_not_overtake_a_waiting_one(self, group: GroupHarness, later: str) -> None:
        start_background_lookup(group)
        group.coordinator.commit_async({TP0: OffsetAndMetadata(1)})
        group.client.respond(find_coordinator(group.node))
        in_another_thread(group.network.poll_background)
        sent: list[Any] = []
        group.client.prepare_response(commit({TP0: 0}), noting(sent))
        group.client.prepare_response(commit({TP0: 0}), noting(sent))
        if later == "async":
            group.coordinator.commit_async({TP0: OffsetAndMetadata(2)})
        else:
            group.coordinator.commit_sync({TP0: OffsetAndMetadata(2)}, group.timer())
        assert [request.topics[0].partitions[0].committed_offset for request in sent] == [1, 2]

    def test_close_waits_for_the_heartbeat_lookup(self, group: GroupHarness) -> None:
        called = Called()
        start_background_lookup(group)
        group.coordinator.commit_async(OFFSETS, called)
        group.client.respond(find_coordinator(group.node))
        in_another_thread(group.network.poll_background)
        group.prepare(commit({TP0: 0}), leave())
        group.coordinator.close(group.timer())
        assert called == [(OFFSETS, None)]
        assert group.client.prepared_response_count() == 0

    def test_fenced_async_commit_is_raised_by_poll(self) -> None:
        group = GroupHarness(group={"group_instance_id": "i"})
        group.subscribe()
        group.join(TP0)
        group.prepare(commit({TP0: FENCED_INSTANCE_ID}))
        group.coordinator.commit_async(OFFSETS)
        with pytest.raises(FencedInstanceIdError):
            group.coordinator.poll(group.timer(0))

    def test_close_runs_pending_commit_callbacks(self, alone: GroupHarness) -> None:
        called = Called()
        alone.prepare(commit({TP0: 0}))
        alone.coordinator.commit_async(OFFSETS, called)
        assert called == []
        alone.coordinator.close(alone.timer())
        assert called == [(OFFSETS, None)]


class TestAuto:
    def member(self, interval_ms: int = 1_000) -> GroupHarness:
        group = GroupHarness(auto_commit_interval_ms=interval_ms)
        group.subscribe()
        group.join(TP0)
        group.seek(TP0, 100)
        return group

    def test_positions_are_committed_after_the_interval(self) -> None:
        group = self.member()
        group.coordinator.poll(group.timer(0))
        assert not group.client.requests
        sent: list[Any] = []
        group.clock.advance(1_000)
        group.client.prepare_response(commit({TP0: 0}), noting(sent))
        group.coordinator.poll(group.timer(0))
        assert sent[0].topics[0].partitions[0].committed_offset == 100
        group.coordinator.poll(group.timer(0))
        assert not group.client.requests
        assert group.coordinator.time_to_next_poll() <= 1_000

    def test_overdue_commit_does_not_end_waits_without_a_coordinator(self) -> None:
        """A poll cannot commit then, so a wait of 0 ms would make it spin."""
        group = self.member()
        group.clock.advance(1_000)
        group.coordinator.lookup.mark_unknown("lost by the test")
        assert group.coordinator.time_to_next_poll() == FOREVER_MS

    def test_auto_commit_retries_soon_after_retriable_error(self) -> None:
        group = self.member(2_000)
        group.clock.advance(2_001)
        group.prepare(commit({TP0: LOAD_IN_PROGRESS}))
        group.coordinator.poll(group.timer(0))
        group.coordinator.poll(group.timer(0))
        group.clock.advance(150)
        group.prepare(commit({TP0: 0}))
        group.coordinator.poll(group.timer(0))
        assert group.client.prepared_response_count() == 0

    def test_partitions_without_a_position_are_not_committed(self) -> None:
        group = GroupHarness(auto_commit_interval_ms=1_000)
        group.subscribe()
        group.join(TP0, TP1)
        group.seek(TP1, 3)
        group.clock.advance(1_001)
        sent: list[Any] = []
        group.client.prepare_response(commit({TP1: 0}), noting(sent))
        group.coordinator.poll(group.timer(0))
        assert [partition.partition_index for partition in sent[0].topics[0].partitions] == [1]

    def test_close_commits_positions(self) -> None:
        group = self.member()
        sent: list[Any] = []
        group.client.prepare_response(commit({TP0: 0}), noting(sent))
        group.coordinator.close(group.timer(200))
        assert sent[0].topics[0].partitions[0].committed_offset == 100

    def test_close_after_an_application_error_does_not_commit(self) -> None:
        group = self.member()
        sent: list[Any] = []
        group.client.prepare_response(commit({TP0: 0}), noting(sent))
        with pytest.raises(AttributeError):  # the prepared response meets a LeaveGroup request
            group.coordinator.close(group.timer(200), auto_commit=False)
        assert type(sent[0]).__name__ == "LeaveGroupRequest"

    def test_failed_commit_on_close_is_only_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        group = self.member()
        group.prepare(commit({TP0: 12}))
        group.coordinator.close(group.timer(200))
        assert "last automatic commit of test-0: 100 failed" in caplog.text
