"""The heartbeats of a classic member, and the effect of each response."""

from __future__ import annotations

import pytest

from pykclient.consumer.application_driver import NOTHING, UnsentRequest
from pykclient.consumer.coordinator.classic_membership import HeartbeatRequestManager
from pykclient.consumer.coordinator.membership import COMPLETING_REBALANCE, STABLE, UNJOINED, Generation
from pykclient.errors import DisconnectError, FencedInstanceIdError
from pykclient.protocol.messages.leave_group import LeaveGroupRequest
from tests.consumer.coordinator.harness import (
    FENCED_INSTANCE_ID,
    GROUP_AUTHORIZATION_FAILED,
    ILLEGAL_GENERATION,
    LOAD_IN_PROGRESS,
    NOT_COORDINATOR,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    GroupHarness,
    answer,
    heartbeat,
    message_of,
)

INTERVAL_MS, SESSION_MS, POLL_MS = 3_000, 10_000, 60_000
FIRST = Generation(1, "m", "range")


class Heartbeats:
    """The manager of a stable member whose coordinator is known. Nothing is sent."""

    def __init__(self) -> None:
        self.group = GroupHarness()
        self.group.find_coordinator()
        self.clock = self.group.clock
        self.coordinator = self.group.coordinator.lookup
        self.membership = self.group.member.membership
        self.manager: HeartbeatRequestManager = self.group.member.heartbeats
        self.membership.begin_rebalance()
        self.membership.joined(FIRST)
        self.membership.synced(FIRST)

    def poll(self) -> list[UnsentRequest]:
        return list(self.manager.poll(self.clock.now_ms()).requests)

    def waits_ms(self) -> int:
        """Poll without a request; return how long to wait for one."""
        result = self.manager.poll(self.clock.now_ms())
        assert not result.requests
        return result.wait_ms

    def beat(self) -> UnsentRequest:
        self.clock.advance(INTERVAL_MS)
        (request,) = self.poll()
        return request


@pytest.fixture
def heartbeats() -> Heartbeats:
    return Heartbeats()


def test_no_heartbeats_are_sent_before_joining() -> None:
    group = GroupHarness()
    group.find_coordinator()
    assert group.member.heartbeats.poll(group.clock.now_ms() + SESSION_MS) is NOTHING
    group.member.membership.begin_rebalance()
    assert group.member.heartbeats.poll(group.clock.now_ms() + SESSION_MS) is NOTHING


def test_one_heartbeat_is_sent_per_interval(heartbeats: Heartbeats) -> None:
    assert INTERVAL_MS - 50 < heartbeats.waits_ms() <= INTERVAL_MS
    heartbeats.clock.advance(2_000)
    assert 950 < heartbeats.waits_ms() <= 1_000, "also from one poll to the next"
    heartbeats.clock.advance(1_000)
    (request,) = heartbeats.poll()
    message = message_of(request)
    assert (message.generation_id, message.member_id) == (1, "m")
    assert request.node == heartbeats.group.coordinator_node
    assert heartbeats.poll() == [], "one at a time"
    answer(request, heartbeat())
    assert INTERVAL_MS - 50 < heartbeats.waits_ms() <= INTERVAL_MS
    assert heartbeats.group.metric("heartbeat-total") == 1


def test_heartbeats_continue_while_others_join(heartbeats: Heartbeats) -> None:
    heartbeats.membership.begin_rebalance()
    heartbeats.membership.joined(Generation(2, "m", "range"))
    assert heartbeats.membership.state is COMPLETING_REBALANCE
    assert heartbeats.beat()


def test_no_heartbeats_are_sent_without_a_coordinator(heartbeats: Heartbeats) -> None:
    """An overdue heartbeat must not end the waits of polls that cannot send it."""
    heartbeats.coordinator.mark_unknown("test")
    heartbeats.clock.advance(INTERVAL_MS)
    assert heartbeats.manager.poll(heartbeats.clock.now_ms()) is NOTHING


@pytest.mark.parametrize("error", [NOT_COORDINATOR, LOAD_IN_PROGRESS, 30, -1])
def test_failed_heartbeat_is_retried_with_growing_backoff(heartbeats: Heartbeats, error: int) -> None:
    request = heartbeats.beat()
    pauses = []
    for _ in range(3):
        answer(request, heartbeat(error))
        assert heartbeats.coordinator.unknown is (error == NOT_COORDINATOR)
        if error == NOT_COORDINATOR:
            return
        pauses.append(heartbeats.waits_ms())
        heartbeats.clock.advance(pauses[-1])
        (request,) = heartbeats.poll()
    assert 0 < pauses[0] < pauses[1] < pauses[2] < 600
    answer(request, heartbeat())
    assert heartbeats.waits_ms() > 2_000
    assert heartbeats.membership.state is STABLE


def test_fatal_refusal_is_logged_once(heartbeats: Heartbeats, caplog: pytest.LogCaptureFixture) -> None:
    """The member keeps trying until its session expires, and the log must say why it is lost then."""
    request = heartbeats.beat()
    for _ in range(3):
        answer(request, heartbeat(GROUP_AUTHORIZATION_FAILED))
        heartbeats.clock.advance(heartbeats.waits_ms())
        (request,) = heartbeats.poll()
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "READ on group 'a-group'" in line
    assert "session.timeout.ms=10000" in line
    answer(request, heartbeat())
    answer(heartbeats.beat(), heartbeat(GROUP_AUTHORIZATION_FAILED))
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 2


def test_loading_coordinator_causes_no_warning(heartbeats: Heartbeats, caplog: pytest.LogCaptureFixture) -> None:
    answer(heartbeats.beat(), heartbeat(LOAD_IN_PROGRESS))
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_lost_connection_marks_the_coordinator_unknown(heartbeats: Heartbeats) -> None:
    heartbeats.beat().future.raise_error(DisconnectError("lost"))
    assert heartbeats.coordinator.unknown
    assert not heartbeats.membership.heartbeat_in_flight


def test_silent_coordinator_is_marked_unknown(heartbeats: Heartbeats) -> None:
    heartbeats.beat()
    heartbeats.clock.advance(SESSION_MS - INTERVAL_MS)
    assert heartbeats.poll() == []
    assert heartbeats.coordinator.unknown
    assert heartbeats.membership.state is STABLE


def test_rebalance_error_requests_a_rejoin(heartbeats: Heartbeats) -> None:
    answer(heartbeats.beat(), heartbeat(REBALANCE_IN_PROGRESS))
    assert heartbeats.membership.rejoin_needed
    assert heartbeats.membership.state is STABLE
    assert heartbeats.beat(), "the member keeps sending heartbeats until it joins"


@pytest.mark.parametrize("error", [ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID])
def test_fatal_error_ends_membership(heartbeats: Heartbeats, error: int) -> None:
    answer(heartbeats.beat(), heartbeat(error))
    assert heartbeats.membership.state is UNJOINED
    assert heartbeats.membership.generation.member_id == ("m" if error == ILLEGAL_GENERATION else "")
    assert isinstance(heartbeats.manager.failure, FencedInstanceIdError) is (error == FENCED_INSTANCE_ID)
    assert heartbeats.manager.poll(heartbeats.clock.now_ms() + SESSION_MS) is NOTHING


@pytest.mark.parametrize("error", [ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID])
def test_response_to_an_old_generation_is_ignored(heartbeats: Heartbeats, error: int) -> None:
    request = heartbeats.beat()
    heartbeats.membership.begin_rebalance()
    heartbeats.membership.joined(Generation(2, "m", "range"))
    answer(request, heartbeat(error))
    assert heartbeats.membership.state is COMPLETING_REBALANCE
    assert heartbeats.manager.failure is None


def test_member_that_does_not_poll_leaves(heartbeats: Heartbeats, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(POLL_MS // INTERVAL_MS - 1):
        answer(heartbeats.beat(), heartbeat())
    heartbeats.clock.advance(INTERVAL_MS)
    assert heartbeats.poll() == []
    assert heartbeats.membership.state is UNJOINED
    assert "max.poll.interval.ms" in caplog.text
    (request,) = heartbeats.group.member.leaving.poll(heartbeats.clock.now_ms()).requests
    assert isinstance(message_of(request), LeaveGroupRequest)


def test_polls_keep_the_member_in_the_group(heartbeats: Heartbeats) -> None:
    for _ in range(2 * POLL_MS // INTERVAL_MS):
        answer(heartbeats.beat(), heartbeat())
        heartbeats.membership.poll_heartbeat(heartbeats.clock.now_ms())
    assert heartbeats.membership.state is STABLE


def test_an_interrupted_heartbeat_is_repeated(heartbeats: Heartbeats) -> None:
    heartbeats.beat()
    heartbeats.manager.reset()
    assert heartbeats.waits_ms() <= 120
    heartbeats.clock.advance(120)
    assert heartbeats.poll()
