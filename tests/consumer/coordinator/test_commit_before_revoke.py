"""The automatic commit before partitions are given up, which both group protocols do in the same way."""

from __future__ import annotations

from typing import Any

import pytest

from pykclient.errors import FencedInstanceIdError
from pykclient.protocol.messages.offset_commit import OffsetCommitRequest
from tests.consumer.coordinator.harness import (
    GROUP_AUTHORIZATION_FAILED,
    LOAD_IN_PROGRESS,
    NONE,
    TP0,
    GroupHarness,
    commit,
    noting,
)
from tests.consumer.coordinator.test_consumer_membership_manager import Member

REBALANCE_MS, BACKOFF_MS = 4_000, 100


class Revoking:
    """A member that owns a partition at position 42, which it is about to give up."""

    def __init__(self, protocol: str) -> None:
        settings: dict[str, Any] = {"group_instance_id": "i", "rebalance_timeout_ms": REBALANCE_MS}
        if protocol == "consumer":
            member = Member(auto_commit_interval_ms=10**9, group=settings)
            member.join(TP0)
            self.group = member.group
            self.group.seek(TP0, 42)
            member.assign()
        else:
            self.group = GroupHarness(auto_commit_interval_ms=10**9, group=settings)
            self.group.subscribe()
            self.group.join(TP0)
            self.group.seek(TP0, 42)
            self.group.coordinator.request_rejoin("test")
        self.group.listener.told.clear()

    def poll(self, timeout_ms: int = 0) -> None:
        self.group.coordinator.poll(self.group.timer(timeout_ms))
        self.group.step()

    def commits(self) -> list[Any]:
        """Return the commits in flight."""
        requests = [self.group.client.requests[index] for index in range(len(self.group.client.requests))]
        builders = [request.request_builder for request in requests]
        bodies = [builder.build(builder.latest_allowed_version) for builder in builders]
        return [body for body in bodies if isinstance(body, OffsetCommitRequest)]

    def answer(self, error: int) -> None:
        """Answer the commit in flight, and let the application poll."""
        self.group.client.respond(commit({TP0: error}), lambda body: isinstance(body, OffsetCommitRequest))
        self.poll()
        self.poll()

    @property
    def is_revoked(self) -> bool:
        return ("revoked", [TP0]) in self.group.listener.told


@pytest.fixture(params=["classic", "consumer"])
def member(request: pytest.FixtureRequest) -> Revoking:
    return Revoking(request.param)


def test_partitions_are_revoked_after_their_positions_are_committed(member: Revoking) -> None:
    member.poll()
    member.poll()
    (request,) = member.commits()
    assert request.topics[0].partitions[0].committed_offset == 42
    assert not member.group.subscriptions.is_fetchable(TP0), "records would be after the committed position"
    assert not member.is_revoked
    member.answer(NONE)
    assert member.is_revoked


def test_commit_is_repeated_after_a_backoff_if_the_error_may_pass(member: Revoking) -> None:
    member.poll()
    member.answer(LOAD_IN_PROGRESS)
    assert not member.is_revoked
    member.group.clock.advance(BACKOFF_MS)
    member.poll()
    while member.commits():  # a periodic one may be among them
        member.answer(NONE)
    assert member.is_revoked


def test_commit_that_fails_for_good_does_not_keep_partitions(
    member: Revoking, caplog: pytest.LogCaptureFixture
) -> None:
    member.poll()
    member.answer(GROUP_AUTHORIZATION_FAILED)
    assert member.is_revoked
    assert "Giving up partitions without a commit, which failed" in caplog.text


def test_commit_without_an_answer_keeps_partitions_until_the_rebalance_timeout(
    member: Revoking, caplog: pytest.LogCaptureFixture
) -> None:
    member.poll()
    member.group.clock.advance(REBALANCE_MS - 1_000)
    member.poll()
    assert not member.is_revoked
    member.group.clock.advance(1_000)
    for _ in range(3):
        member.poll()
    assert member.is_revoked
    assert "without a commit, which took longer than max.poll.interval.ms" in caplog.text


def test_member_that_is_fenced_between_two_attempts_gives_up_partitions_and_raises_in_the_next_poll(
    member: Revoking, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[Any] = []

    def fence(body: Any) -> bool:
        if not isinstance(body, OffsetCommitRequest):
            return False
        member.group.coordinator._commits.is_fenced = True  # by the answer to a commit of the application
        return noting(sent)(body)

    member.group.client.prepare_response(commit({TP0: LOAD_IN_PROGRESS}), fence)
    member.poll(2 * BACKOFF_MS)
    assert len(sent) == 1
    assert member.is_revoked
    assert "Giving up partitions without a commit, which failed" in caplog.text
    with pytest.raises(FencedInstanceIdError, match="'i'"):
        member.poll()
