"""The steps of a rebalance: what leads from one to the next, and what the application is asked to do."""

from __future__ import annotations

from typing import Any

import pytest

from pykclient.consumer.application_driver import NOTHING, PollResult, UnsentRequest
from pykclient.consumer.coordinator import classic_rebalance
from pykclient.consumer.coordinator.classic_rebalance import (
    ASSIGNING,
    COMMITTING,
    DISTRIBUTING,
    ELECTED,
    JOINED,
    JOINING,
    PREPARING,
    READY,
    RESTING,
    SYNCING,
    ClassicMembershipManager,
    RebalanceStep,
)
from pykclient.errors import (
    AuthenticationError,
    DisconnectError,
    GroupAuthorizationError,
    KafkaError,
    WakeupError,
)
from pykclient.protocol.messages.join_group import JoinGroupRequest
from pykclient.protocol.messages.sync_group import SyncGroupRequest
from pykclient.types import TopicPartition
from tests.consumer.coordinator.harness import (
    LOAD_IN_PROGRESS,
    MEMBER,
    NOT_COORDINATOR,
    REBALANCE_IN_PROGRESS,
    TOPIC,
    TP0,
    TP1,
    UNKNOWN_MEMBER_ID,
    GroupHarness,
    answer,
    commit,
    find_coordinator,
    join,
    message_of,
    sync,
)
from tests.consumer.responses import metadata_response

REBALANCE_MS = 60_000


class Rebalance:
    """A subscribed consumer whose coordinator is known. Nothing is sent; the tests answer the manager's requests."""

    def __init__(self, **settings: Any) -> None:
        self.group = GroupHarness(**settings)
        self.group.subscribe()
        self.group.find_coordinator()
        self.clock = self.group.clock
        self.coordinator = self.group.coordinator
        self.manager: ClassicMembershipManager = self.group.member
        self.told = self.group.listener.told

    @property
    def step(self) -> RebalanceStep:
        return self.manager._step

    def advance(self) -> None:
        """Do what ``poll()`` of the application does."""
        self.manager.advance(self.clock.now_ms())
        self.group.driver.run(self.group.member.events.steps())

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

    def sends_join(self) -> UnsentRequest:
        self.advance()
        request = self.request()
        assert self.step is JOINING
        return request

    def sends_sync(self, **response: Any) -> UnsentRequest:
        answer(self.sends_join(), join(**response))
        request = self.request()
        assert self.step is SYNCING
        return request

    def join(self, *partitions: TopicPartition, generation: int = 1) -> None:
        answer(self.sends_sync(generation=generation), sync(*partitions))
        self.advance()
        assert self.step is RESTING


@pytest.fixture
def rebalance() -> Rebalance:
    return Rebalance()


def test_rebalance_begins_only_inside_a_poll(rebalance: Rebalance) -> None:
    assert rebalance.coordinator.rejoin_needed_or_pending()
    assert rebalance.manager.poll(rebalance.clock.now_ms()) is NOTHING


def test_follower_joins_and_syncs_without_assignments(rebalance: Rebalance) -> None:
    joining = rebalance.sends_join()
    assert isinstance(message_of(joining), JoinGroupRequest)
    assert joining.timeout_ms == REBALANCE_MS + 5_000
    assert rebalance.manager.poll(rebalance.clock.now_ms()) is NOTHING
    answer(joining, join(7))
    assert rebalance.step is JOINED
    syncing = rebalance.request()
    message = message_of(syncing)
    assert isinstance(message, SyncGroupRequest)
    assert (message.generation_id, message.assignments) == (7, [])
    assert rebalance.manager.is_joining
    answer(syncing, sync(TP0))
    assert rebalance.step is ASSIGNING
    assert rebalance.poll() == []
    assert rebalance.told == [], "the application is told by its own poll"
    rebalance.advance()
    assert rebalance.told == [("assigned", [TP0])]
    assert not rebalance.coordinator.rejoin_needed_or_pending()


def test_leader_assigns_partitions_to_all_members(rebalance: Rebalance) -> None:
    answer(rebalance.sends_join(), join(subscriptions={MEMBER: [TOPIC], "member-2": [TOPIC]}))
    assert rebalance.step is ELECTED
    assert rebalance.waits_ms() == 0
    assert rebalance.step is DISTRIBUTING
    assert rebalance.poll() == []
    rebalance.advance()
    message = message_of(rebalance.request())
    given = {one.member_id: classic_rebalance.deserialize_assignment(one.assignment) for one in message.assignments}
    assert {member: one.partitions for member, one in given.items()} == {MEMBER: [TP0], "member-2": [TP1]}


def test_leader_waits_for_metadata_of_all_topics(rebalance: Rebalance) -> None:
    answer(rebalance.sends_join(), join(subscriptions={MEMBER: [TOPIC], "member-2": ["other"]}))
    assert rebalance.group.metadata.update_requested
    assert REBALANCE_MS - 100 < rebalance.waits_ms() <= REBALANCE_MS
    rebalance.group.client.update_metadata(metadata_response({TOPIC: 2, "other": 1}))
    rebalance.poll()
    rebalance.advance()
    assert len(message_of(rebalance.request()).assignments) == 2


def test_metadata_arriving_after_the_assignment_causes_a_rebalance(rebalance: Rebalance) -> None:
    """The leader once took it for what the assignor had seen, and a topic that was created then was never read."""
    answer(rebalance.sends_join(), join(subscriptions={MEMBER: [TOPIC]}))
    rebalance.poll()
    rebalance.advance()
    rebalance.group.metadata.request_update(False)
    rebalance.group.client.update_metadata(metadata_response({TOPIC: 3}))
    answer(rebalance.request(), sync(TP0, TP1))
    rebalance.group.member.protocol.metadata_updated()
    rebalance.advance()
    assert rebalance.step is RESTING
    assert rebalance.coordinator.rejoin_needed_or_pending()


def test_leader_rejoins_if_topic_metadata_is_missing(rebalance: Rebalance, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    answer(rebalance.sends_join(), join(subscriptions={MEMBER: [TOPIC], "member-2": ["other"]}))
    rebalance.clock.advance(REBALANCE_MS)
    assert rebalance.poll() == []
    assert f"no metadata of its topics within {REBALANCE_MS} ms" in caplog.text
    rebalance.clock.advance(1_000)
    rebalance.sends_join()


def test_retriable_failures_pause_longer_and_longer(rebalance: Rebalance) -> None:
    request = rebalance.sends_join()
    pauses = []
    for _ in range(3):
        answer(request, join(error=LOAD_IN_PROGRESS))
        rebalance.advance()
        pauses.append(rebalance.waits_ms())
        rebalance.clock.advance(pauses[-1])
        request = rebalance.request()
    assert 0 < pauses[0] < pauses[1] < pauses[2] < 600


@pytest.mark.parametrize("error", [UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS])
def test_join_errors_without_backoff_are_retried_at_once(rebalance: Rebalance, error: int) -> None:
    answer(rebalance.sends_join(), join(error=error))
    rebalance.sends_join()


@pytest.mark.parametrize("sync_fails", [False, True])
def test_a_fatal_failure_is_raised_once(rebalance: Rebalance, sync_fails: bool) -> None:
    if sync_fails:
        answer(rebalance.sends_sync(), sync(error=30))
    else:
        answer(rebalance.sends_join(), join(error=30))
    assert rebalance.manager.needs_application
    with pytest.raises(GroupAuthorizationError):
        rebalance.advance()
    rebalance.sends_join()


@pytest.mark.parametrize("sync_fails", [False, True])
def test_lost_coordinator_is_looked_up_before_rejoining(rebalance: Rebalance, sync_fails: bool) -> None:
    request = rebalance.sends_sync() if sync_fails else rebalance.sends_join()
    request.future.raise_error(DisconnectError("lost"))
    assert rebalance.coordinator.lookup.unknown
    rebalance.clock.advance(1_000)
    rebalance.advance()
    assert rebalance.poll() == []
    (lookup,) = rebalance.coordinator.lookup.poll(rebalance.clock.now_ms()).requests
    answer(lookup, find_coordinator(rebalance.group.node))
    assert rebalance.request().node == rebalance.group.coordinator_node


def test_failed_coordinator_lookup_is_raised(rebalance: Rebalance) -> None:
    answer(rebalance.sends_join(), join(error=NOT_COORDINATOR))
    rebalance.clock.advance(1_000)
    rebalance.advance()
    rebalance.poll()
    (lookup,) = rebalance.coordinator.lookup.poll(rebalance.clock.now_ms()).requests
    lookup.future.raise_error(AuthenticationError("wrong password"))
    rebalance.poll()
    with pytest.raises(AuthenticationError):
        rebalance.advance()


def test_membership_that_ends_before_joining_restarts_the_rebalance(rebalance: Rebalance) -> None:
    """Partitions are given up before JoinGroup, also if they must be only after everything else is ready."""
    rebalance.join(TP0)
    rebalance.coordinator.request_rejoin("test")
    rebalance.advance()
    assert rebalance.step is READY
    rebalance.group.member.membership.reset_and_rejoin("test")
    assert rebalance.waits_ms() == 0
    assert rebalance.step is RESTING
    rebalance.sends_join()


def test_membership_that_ends_before_the_callback_discards_the_assignment(rebalance: Rebalance) -> None:
    answer(rebalance.sends_sync(), sync(TP0))
    rebalance.group.member.membership.reset_and_rejoin("test")
    rebalance.advance()
    assert rebalance.told == []
    assert rebalance.step is RESTING
    assert rebalance.coordinator.rejoin_needed_or_pending()


def test_join_response_after_leaving_is_ignored(rebalance: Rebalance) -> None:
    joining = rebalance.sends_join()
    rebalance.manager.stop()
    rebalance.group.member.leaving.leave("default", "test")
    assert rebalance.manager.is_joining, "until the response arrives"
    answer(joining, join(1))
    assert rebalance.step is RESTING
    assert rebalance.poll() == []


@pytest.mark.parametrize("sync_is_interrupted", [False, True])
def test_reset_forgets_requests_in_flight_and_rejoins(rebalance: Rebalance, sync_is_interrupted: bool) -> None:
    if sync_is_interrupted:
        rebalance.sends_sync()
    else:
        rebalance.sends_join()
    rebalance.manager.reset()
    assert rebalance.step is RESTING
    assert rebalance.coordinator.rejoin_needed_or_pending()


@pytest.mark.parametrize("error", [WakeupError("test"), KeyboardInterrupt()])
def test_interrupted_assignment_callback_is_repeated(rebalance: Rebalance, error: BaseException) -> None:
    answer(rebalance.sends_sync(), sync(TP0))
    errors = [error]

    def once() -> None:
        if errors:
            raise errors.pop()

    rebalance.group.listener.on_assigned = once
    with pytest.raises(type(error)):
        rebalance.advance()
    assert rebalance.step is ASSIGNING
    rebalance.advance()
    assert rebalance.step is RESTING
    assert [what for what, _ in rebalance.told] == ["assigned", "assigned"]


@pytest.mark.parametrize("error", [WakeupError("test"), KeyboardInterrupt(), ValueError("test")])
def test_failed_revocation_callback_is_not_repeated(rebalance: Rebalance, error: BaseException) -> None:
    rebalance.join(TP0)
    rebalance.coordinator.request_rejoin("test")

    def fail() -> None:
        raise error

    rebalance.group.listener.on_revoked = fail
    with pytest.raises(KafkaError if isinstance(error, ValueError) else type(error)):
        rebalance.advance()
    rebalance.sends_join()
    assert [what for what, _ in rebalance.told] == ["assigned", "revoked"]


class TestCommitting:
    """Automatic commits before partitions are revoked."""

    def member(self, **settings: Any) -> Rebalance:
        rebalance = Rebalance(auto_commit_interval_ms=10**9, **settings)
        answer_commits = rebalance.coordinator._commits
        rebalance.advance()
        assert rebalance.step is COMMITTING
        rebalance.poll()
        assert answer_commits.poll(rebalance.clock.now_ms()).requests == []  # without positions there is nothing to do
        rebalance.poll()
        rebalance.advance()
        answer(rebalance.request(), join(1))
        answer(rebalance.request(), sync(TP0))
        rebalance.advance()
        rebalance.group.seek(TP0, 42)
        rebalance.coordinator.request_rejoin("test")
        rebalance.told.clear()
        return rebalance

    @staticmethod
    def commits(rebalance: Rebalance) -> UnsentRequest:
        rebalance.poll()
        result: PollResult = rebalance.coordinator._commits.poll(rebalance.clock.now_ms())
        (request,) = result.requests
        return request

    def test_offsets_are_committed_before_the_rebalance(self) -> None:
        rebalance = self.member()
        rebalance.advance()
        request = self.commits(rebalance)
        assert message_of(request).topics[0].partitions[0].committed_offset == 42
        assert not rebalance.group.subscriptions.is_fetchable(TP0), "nothing is returned meanwhile"
        assert 0 < rebalance.waits_ms() <= REBALANCE_MS
        assert rebalance.told == []
        answer(request, commit({TP0: 0}))
        assert rebalance.waits_ms() == 0
        assert rebalance.step is PREPARING
        rebalance.advance()
        assert rebalance.told == [("revoked", [TP0])]
        assert rebalance.step is READY
