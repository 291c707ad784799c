"""Over which connection LeaveGroup goes, and when it is sent again."""

from __future__ import annotations

from typing import Any

import pytest

from pykclient.consumer.application_driver import NOTHING, UnsentRequest
from pykclient.consumer.coordinator.classic_membership import LeaveGroupRequestManager
from pykclient.consumer.coordinator.group_member import MemberContext
from pykclient.consumer.coordinator.membership import PREPARING_REBALANCE, UNJOINED, Generation
from pykclient.consumer.values import GroupMembershipOperation
from pykclient.errors import DisconnectError, IllegalGenerationError, KafkaError
from tests.consumer.coordinator.harness import UNKNOWN_MEMBER_ID, GroupHarness, answer, leave, message_of

FIRST = Generation(1, "m", "range")


class Leaving:
    """The manager of a stable member whose coordinator is known. Nothing is sent."""

    def __init__(self, **settings: Any) -> None:
        self.group = GroupHarness(**settings)
        self.group.find_coordinator()
        self.clock = self.group.clock
        self.coordinator = self.group.coordinator.lookup
        self.membership = self.group.member.membership
        self.is_joining = self.is_join_in_flight = False
        context = MemberContext(
            self.group.coordinator.config,
            self.group.coordinator.log_context,
            self.group.network,
            self.membership,
            self.coordinator,
            self.clock,
            self.membership._retry_backoff,
            self.group.member._consumer,
            self.group.metrics,
            self.group.coordinator.listeners,
        )
        self.manager = LeaveGroupRequestManager(
            context, self.membership, lambda: self.is_joining, lambda: self.is_join_in_flight
        )
        self.membership.begin_rebalance()
        self.membership.joined(FIRST)
        self.membership.synced(FIRST)

    def rejoin(self) -> None:
        """Have a JoinGroup in flight, which the coordinator holds back."""
        self.membership.begin_rebalance()
        assert self.membership.state is PREPARING_REBALANCE
        self.is_joining = self.is_join_in_flight = True

    def poll(self) -> list[UnsentRequest]:
        return list(self.manager.poll(self.clock.now_ms()).requests)

    def request(self) -> UnsentRequest:
        (request,) = self.poll()
        return request


@pytest.fixture
def leaving() -> Leaving:
    return Leaving()


def test_idle_manager_has_nothing_to_do(leaving: Leaving) -> None:
    assert leaving.manager.poll(leaving.clock.now_ms()) is NOTHING


def test_member_leaves_with_a_reason(leaving: Leaving) -> None:
    future = leaving.manager.leave(GroupMembershipOperation.DEFAULT, "test", lost_because="why")
    assert future is not None
    assert leaving.membership.state is UNJOINED
    assert leaving.membership.lost_because == "why"
    request = leaving.request()
    assert request.node == leaving.group.coordinator_node
    (member,) = message_of(request).members
    assert (member.member_id, member.reason) == ("m", "test")
    assert leaving.poll() == []
    answer(request, leave())
    assert future.succeeded
    assert leaving.manager.poll(leaving.clock.now_ms()) is NOTHING
    assert leaving.manager.leave(GroupMembershipOperation.DEFAULT, "test") is None, "there is no membership any more"


def test_coordinator_error_fails_the_leave(leaving: Leaving) -> None:
    future = leaving.manager.leave(GroupMembershipOperation.DEFAULT, "test")
    answer(leaving.request(), leave(UNKNOWN_MEMBER_ID))
    assert future is not None
    assert future.failed
    assert leaving.poll() == []


@pytest.mark.parametrize(
    ("instance_id", "operation", "leaves"),
    [
        (None, GroupMembershipOperation.DEFAULT, True),
        (None, GroupMembershipOperation.REMAIN_IN_GROUP, False),
        ("i", GroupMembershipOperation.DEFAULT, False),
        ("i", GroupMembershipOperation.LEAVE_GROUP, True),
        ("i", GroupMembershipOperation.REMAIN_IN_GROUP, False),
    ],
)
def test_static_member_leaves_only_when_told(instance_id: str | None, operation: str, leaves: bool) -> None:
    leaving = Leaving(group={"group_instance_id": instance_id})
    assert (leaving.manager.leave(operation, "test") is not None) is leaves
    assert leaving.membership.state is UNJOINED


def test_member_with_a_refused_generation_still_leaves(leaving: Leaving) -> None:
    membership = leaving.membership
    assert membership.reset_if_unchanged(membership.generation, IllegalGenerationError(), "ILLEGAL_GENERATION")
    assert leaving.membership.state is UNJOINED
    assert leaving.manager.leave(GroupMembershipOperation.DEFAULT, "test") is not None
    (member,) = message_of(leaving.request()).members
    assert member.member_id == "m"
    assert leaving.membership.generation.member_id == ""


def test_leave_without_a_coordinator_sends_nothing(leaving: Leaving) -> None:
    leaving.coordinator.mark_unknown("test")
    assert leaving.manager.leave(GroupMembershipOperation.DEFAULT, "test") is None
    assert leaving.membership.state is UNJOINED


def test_lost_connection_fails_the_leave(leaving: Leaving) -> None:
    future = leaving.manager.leave(GroupMembershipOperation.DEFAULT, "test")
    leaving.request().future.raise_error(DisconnectError("lost"))
    assert future is not None
    assert future.failed
    assert leaving.coordinator.unknown
    assert leaving.poll() == []


def test_a_member_that_joins_leaves_over_another_connection(leaving: Leaving) -> None:
    leaving.rejoin()
    leaving.manager.leave(GroupMembershipOperation.DEFAULT, "test")
    assert leaving.request().node == leaving.coordinator.broker


def test_lost_second_connection_moves_leave_behind_the_join(leaving: Leaving) -> None:
    leaving.rejoin()
    leaving.manager.leave(GroupMembershipOperation.DEFAULT, "test")
    leaving.request().future.raise_error(DisconnectError("lost"))
    assert not leaving.coordinator.unknown
    assert leaving.request().node == leaving.group.coordinator_node


def test_lost_leave_is_retried_after_backoff_on_close(leaving: Leaving) -> None:
    leaving.rejoin()
    future = leaving.manager.leave(GroupMembershipOperation.DEFAULT, "test", is_closing=True)
    assert future is not None
    leaving.request().future.raise_error(DisconnectError("lost"))
    assert 0 < leaving.manager.poll(leaving.clock.now_ms()).wait_ms <= 120
    leaving.clock.advance(120)
    again = leaving.request()
    assert again.node == leaving.coordinator.broker
    again.future.raise_error(DisconnectError("lost again"))
    leaving.is_joining = False
    leaving.clock.advance(1_000)
    last = leaving.request()
    assert last.node == leaving.group.coordinator_node, "which is free now"
    answer(last, leave())
    assert future.succeeded


def test_unexpected_error_ends_the_leave(leaving: Leaving) -> None:
    leaving.rejoin()
    future = leaving.manager.leave(GroupMembershipOperation.DEFAULT, "test", is_closing=True)
    leaving.request().future.raise_error(KafkaError("test"))
    assert future is not None
    assert future.failed
    assert leaving.poll() == []


def test_interrupted_leave_is_sent_again(leaving: Leaving) -> None:
    leaving.manager.leave(GroupMembershipOperation.DEFAULT, "test")
    leaving.request()
    leaving.manager.reset()
    assert leaving.request()


def test_leave_is_repeated_if_it_overtook_a_join_that_succeeds(leaving: Leaving) -> None:
    leaving.rejoin()
    future = leaving.manager.leave(GroupMembershipOperation.DEFAULT, "test", is_closing=True)
    assert future is not None
    answer(leaving.request(), leave())
    assert not future.is_done, "JoinGroup may have arrived after LeaveGroup"
    assert leaving.poll() == []
    leaving.manager.joined_after_leaving("m")
    leaving.is_joining = leaving.is_join_in_flight = False
    again = leaving.request()
    assert again.node == leaving.group.coordinator_node
    (member,) = message_of(again).members
    assert (member.member_id, member.reason) == ("m", "test")
    answer(again, leave(UNKNOWN_MEMBER_ID))
    assert future.succeeded, "a member that is not there has left"
    assert leaving.poll() == []


def test_leave_is_repeated_if_the_join_is_answered_first(leaving: Leaving) -> None:
    leaving.rejoin()
    future = leaving.manager.leave(GroupMembershipOperation.DEFAULT, "test")
    assert future is not None
    first = leaving.request()
    leaving.manager.joined_after_leaving("m")
    leaving.is_joining = leaving.is_join_in_flight = False
    answer(first, leave())
    assert not future.is_done
    answer(leaving.request(), leave())
    assert future.succeeded


def test_leave_that_was_in_order_is_not_repeated(leaving: Leaving) -> None:
    future = leaving.manager.leave(GroupMembershipOperation.DEFAULT, "test")
    request = leaving.request()
    leaving.manager.joined_after_leaving("m")
    answer(request, leave())
    assert future is not None
    assert future.succeeded
    assert leaving.poll() == []


def test_join_of_the_next_membership_keeps_its_connection(leaving: Leaving) -> None:
    leaving.manager.leave(GroupMembershipOperation.DEFAULT, "unsubscribed")
    request = leaving.request()
    leaving.rejoin()  # subscribed again, before LeaveGroup is answered
    answer(request, leave())
    assert not leaving.coordinator.unknown


def test_a_refused_join_ends_the_wait_for_it(leaving: Leaving) -> None:
    leaving.rejoin()
    future = leaving.manager.leave(GroupMembershipOperation.DEFAULT, "test")
    answer(leaving.request(), leave())
    leaving.is_joining = leaving.is_join_in_flight = False
    assert leaving.poll() == []
    assert future is not None
    assert future.succeeded


def test_the_wait_for_an_overtaken_join_is_bounded(leaving: Leaving) -> None:
    leaving.rejoin()
    future = leaving.manager.leave(GroupMembershipOperation.DEFAULT, "test", is_closing=True)
    answer(leaving.request(), leave())
    assert future is not None
    assert 0 < leaving.manager.poll(leaving.clock.now_ms()).wait_ms <= 1_000
    leaving.clock.advance(1_000)
    assert leaving.poll() == []
    assert future.succeeded
    leaving.manager.joined_after_leaving("m")
    assert leaving.request(), "it leaves even so"
