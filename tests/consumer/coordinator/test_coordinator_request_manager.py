"""The lookup of the coordinator: when it starts, what each response leads to, and how long the next one waits."""

from __future__ import annotations

import pytest

from pykclient.clock import FOREVER_MS
from pykclient.consumer.application_driver import NOTHING, UnsentRequest
from pykclient.consumer.coordinator.classic_membership import SESSION_EXPIRED
from pykclient.consumer.coordinator.coordinator_request_manager import CoordinatorRequestManager
from pykclient.consumer.coordinator.membership import Generation
from pykclient.errors import (
    AuthenticationError,
    CoordinatorNotAvailableError,
    DisconnectError,
    GroupAuthorizationError,
    RemoteProtocolError,
)
from pykclient.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from pykclient.types import Node
from tests.consumer.coordinator.harness import (
    COORDINATOR_NOT_AVAILABLE,
    GROUP,
    GROUP_AUTHORIZATION_FAILED,
    LOAD_IN_PROGRESS,
    GroupHarness,
    answer,
    find_coordinator,
    message_of,
)

BROKER = Node(7, "broker7", 9092)
COORDINATOR = Node(2**31 - 1 - 7, "broker7", 9092)


class Lookup:
    """A CoordinatorRequestManager, and the requests that it returns. Nothing is sent."""

    def __init__(self) -> None:
        self.group = GroupHarness()
        self.clock = self.group.clock
        self.membership = self.group.member.membership
        self.manager: CoordinatorRequestManager = self.group.coordinator.lookup

    def asks(self) -> UnsentRequest | None:
        """Poll, and return the request if there is one."""
        requests = self.manager.poll(self.clock.now_ms()).requests
        assert len(requests) <= 1
        return requests[0] if requests else None

    def asked(self) -> UnsentRequest:
        request = self.asks()
        assert request is not None
        return request

    def waits_ms(self) -> int:
        """Poll without a request; return how long to wait for one."""
        result = self.manager.poll(self.clock.now_ms())
        assert not result.requests
        return result.wait_ms

    def fail(self) -> None:
        answer(self.asked(), find_coordinator(BROKER, COORDINATOR_NOT_AVAILABLE))

    def find(self) -> None:
        self.manager.look_up()
        answer(self.asked(), find_coordinator(BROKER))

    def join(self) -> None:
        """Make this a member that expects its assignment."""
        self.membership.begin_rebalance()
        self.membership.joined(Generation(1, "m", "range"))


@pytest.fixture
def lookup() -> Lookup:
    return Lookup()


def test_coordinator_is_looked_up_on_demand(lookup: Lookup) -> None:
    assert lookup.manager.poll(lookup.clock.now_ms()) is NOTHING
    assert lookup.manager.unknown


def test_one_lookup_at_a_time_finds_the_coordinator(lookup: Lookup) -> None:
    lookup.manager.look_up()
    request = lookup.asked()
    message = message_of(request)
    assert isinstance(message, FindCoordinatorRequest)
    assert message.coordinator_keys == [GROUP]
    assert lookup.manager.poll(lookup.clock.now_ms()) is NOTHING, "one lookup at a time"
    answer(request, find_coordinator(BROKER))
    assert (lookup.manager.node, lookup.manager.broker) == (COORDINATOR, BROKER)
    assert lookup.manager.is_settled
    assert lookup.manager.poll(lookup.clock.now_ms()) is NOTHING
    lookup.manager.mark_unknown("it has moved")
    assert lookup.manager.poll(lookup.clock.now_ms()) is NOTHING, "nobody needs it now"


def test_members_always_look_up_the_coordinator(lookup: Lookup) -> None:
    lookup.join()
    lookup.find()
    lookup.manager.mark_unknown("no answer")
    assert lookup.asks() is not None


def test_backoff_grows_until_the_coordinator_is_found(lookup: Lookup) -> None:
    lookup.manager.look_up()
    pauses = []
    for _ in range(6):
        lookup.fail()
        pauses.append(lookup.waits_ms())
        assert lookup.asks() is None
        lookup.clock.advance(pauses[-1])
    assert 70 <= pauses[0] <= 120
    assert pauses[0] < pauses[1] < pauses[2] < pauses[3]
    assert max(pauses) <= 1_200
    lookup.find()
    lookup.manager.mark_unknown("it has moved")
    lookup.manager.look_up()
    lookup.fail()
    assert lookup.waits_ms() <= 120, "another lookup begins with a short pause"


def test_each_failure_requests_metadata_and_is_counted(lookup: Lookup) -> None:
    lookup.group.client.update_metadata(lookup.group.client._last_metadata_update)
    assert not lookup.group.metadata.update_requested
    lookup.manager.look_up()
    lookup.fail()
    assert lookup.group.metadata.update_requested
    assert lookup.manager.failures == 1
    assert isinstance(lookup.manager.last_error, CoordinatorNotAvailableError)


def test_unreachable_brokers_back_off_the_lookup(lookup: Lookup) -> None:
    lookup.group.client.set_unreachable(lookup.group.node, 10_000)
    lookup.manager.look_up()
    assert 0 < lookup.waits_ms() <= 120
    assert "no broker can be connected to" in str(lookup.manager.last_error)


def test_lost_connection_fails_the_lookup(lookup: Lookup) -> None:
    lookup.manager.look_up()
    lookup.asked().future.raise_error(DisconnectError("lost"))
    assert 0 < lookup.waits_ms() < FOREVER_MS
    assert not lookup.manager.is_settled


@pytest.mark.parametrize("joined", [True, False])
def test_a_fatal_error_is_raised_once_and_the_lookups_go_on(lookup: Lookup, joined: bool) -> None:
    if joined:
        lookup.join()
    else:
        lookup.manager.look_up()
    answer(lookup.asked(), find_coordinator(BROKER, GROUP_AUTHORIZATION_FAILED))
    assert lookup.manager.is_settled
    with pytest.raises(GroupAuthorizationError, match="a-group"):
        lookup.manager.raise_fatal_error()
    lookup.manager.raise_fatal_error()
    lookup.clock.advance(lookup.waits_ms())
    assert lookup.asks() is not None


def test_outdated_fatal_error_is_not_raised(lookup: Lookup) -> None:
    lookup.manager.look_up()
    lookup.asked().future.raise_error(AuthenticationError("wrong password"))
    lookup.clock.advance(lookup.waits_ms())
    lookup.find()
    lookup.manager.raise_fatal_error()


def test_unreachable_coordinator_is_looked_up_again_after_a_backoff(lookup: Lookup) -> None:
    """After a broker has failed, it is still named as the coordinator for a while."""
    lookup.group.client.backoff(COORDINATOR, 10_000)
    lookup.manager.look_up()
    pauses = []
    for _ in range(3):
        answer(lookup.asked(), find_coordinator(BROKER))
        assert lookup.manager.unknown
        pauses.append(lookup.waits_ms())
        lookup.clock.advance(pauses[-1])
    assert 0 < pauses[0] < pauses[1] < pauses[2]
    assert lookup.manager.failures == 3


def test_response_about_several_groups_is_refused(lookup: Lookup) -> None:
    lookup.manager.look_up()
    response = find_coordinator(BROKER)
    response.coordinators = [*response.coordinators, FindCoordinatorResponse.Coordinator()]
    answer(lookup.asked(), response)
    with pytest.raises(RemoteProtocolError, match="named 2"):
        lookup.manager.raise_fatal_error()


def test_found_coordinator_restarts_the_session_and_wakes_heartbeats(lookup: Lookup) -> None:
    lookup.join()
    seen = lookup.membership.signals
    lookup.clock.advance(10_001)
    answer(lookup.asked(), find_coordinator(BROKER))
    assert lookup.membership.signals > seen
    assert lookup.membership.next_action(lookup.clock.now_ms())[0] != SESSION_EXPIRED


def test_an_interrupted_lookup_is_sent_again(lookup: Lookup) -> None:
    lookup.manager.look_up()
    assert lookup.asks() is not None
    assert lookup.asks() is None
    lookup.manager.reset()
    assert lookup.asks() is not None


def test_background_lookup_failure_is_raised_in_application(lookup: Lookup) -> None:
    lookup.join()
    answer(lookup.asked(), find_coordinator(BROKER, LOAD_IN_PROGRESS))
    assert not lookup.manager.is_settled
    lookup.clock.advance(lookup.waits_ms())
    lookup.asked().future.raise_error(AuthenticationError("wrong password"))
    with pytest.raises(AuthenticationError):
        lookup.group.coordinator.ensure_coordinator_ready(lookup.group.timer())
