"""An idle member: usual responses do not end the application's wait, and requests leave when a call begins."""

from __future__ import annotations

from typing import Any

import pytest

from pykclient.consumer.application_driver import UnsentRequest, ends_with
from pykclient.consumer.coordinator.consumer_rebalance import ConsumerMembershipManager
from pykclient.consumer.coordinator.membership import Generation
from pykclient.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from tests.consumer.coordinator.harness import (
    LOAD_IN_PROGRESS,
    REBALANCE_IN_PROGRESS,
    TP0,
    GroupHarness,
    commit,
    heartbeat,
    receive,
)

CLASSIC_INTERVAL_MS, INTERVAL_MS = 3_000, 5_000


class Classic:
    """The heartbeats of a stable member by the classic protocol."""

    interval_ms = CLASSIC_INTERVAL_MS

    def __init__(self) -> None:
        self.group = GroupHarness()
        self.group.find_coordinator()
        self.membership: Any = self.group.member.membership
        self.manager: Any = self.group.member.heartbeats
        self.membership.begin_rebalance()
        self.membership.joined(Generation(1, "m", "range"))
        self.membership.synced(Generation(1, "m", "range"))

    def beat(self) -> UnsentRequest:
        self.group.clock.advance(self.interval_ms)
        (request,) = self.manager.poll(self.group.clock.now_ms()).requests
        found: UnsentRequest = request
        return found

    def response(self, error: int = 0) -> Any:
        return heartbeat(error)

    def receive(self, *, error: int = 0, **settings: Any) -> bool:
        return receive(self.group, self.beat(), self.response(error), **settings)


class Consumer(Classic):
    """The same by the consumer protocol."""

    interval_ms = INTERVAL_MS

    def __init__(self) -> None:
        self.group = GroupHarness(group={"group_protocol": "consumer"})
        self.group.find_coordinator()
        member = self.group.coordinator.member
        assert isinstance(member, ConsumerMembershipManager)
        self.membership = member.membership
        self.manager = member.heartbeats
        self.membership.begin_joining()
        (request,) = self.manager.poll(self.group.clock.now_ms()).requests
        assignment = ConsumerGroupHeartbeatResponse.Assignment(topic_partitions=[])
        assert not receive(self.group, request, self.response(assignment=assignment))
        self.membership.reconciled(self.membership.incarnation, self.membership.target)
        (request,) = self.manager.poll(self.group.clock.now_ms()).requests
        assert not receive(self.group, request, self.response(epoch=2))
        assert self.membership.state.name == "STABLE"

    def response(self, error: int = 0, epoch: int = 3, **fields: Any) -> Any:
        return ConsumerGroupHeartbeatResponse(
            error_code=error, member_epoch=epoch, heartbeat_interval_ms=INTERVAL_MS, **fields
        )


@pytest.fixture(params=[Classic, Consumer])
def member(request: pytest.FixtureRequest) -> Classic:
    made: Classic = request.param()
    return made


def test_repeated_heartbeat_responses_are_not_parsed(member: Classic) -> None:
    assert not member.receive(), "the first one is parsed"
    before = member.group.metric("heartbeat-total")
    for _ in range(3):
        assert member.receive()
        assert not member.membership.heartbeat_in_flight
        wait_ms = member.manager.poll(member.group.clock.now_ms()).wait_ms
        assert member.interval_ms - 50 < wait_ms <= member.interval_ms
    assert member.group.metric("heartbeat-total") == before + 3
    assert member.group.metric("heartbeat-response-time-max") == 5


def test_unparsed_responses_keep_the_session_alive(member: Classic) -> None:
    for _ in range(10):  # for longer than session.timeout.ms
        member.receive()
    assert member.membership.state.name == "STABLE"
    assert not member.group.coordinator.lookup.unknown


def test_changed_response_is_parsed(member: Classic) -> None:
    member.receive()
    assert not member.receive(error=LOAD_IN_PROGRESS)
    member.group.clock.advance(1_000)
    member.receive()
    assert member.receive()
    assert not member.receive(error=LOAD_IN_PROGRESS), "an error never becomes the usual response"


def test_call_waiting_for_something_else_parses_every_response(member: Classic) -> None:
    member.receive()
    assert not member.receive(waits=False)
    assert member.receive()


@pytest.mark.parametrize("throttle_time_ms", [0, 100])
def test_throttled_response_is_parsed_each_time(member: Classic, throttle_time_ms: int) -> None:
    """The client must wait for as long as it says."""
    response = member.response()
    response.throttle_time_ms = throttle_time_ms
    assert not receive(member.group, member.beat(), response)
    assert receive(member.group, member.beat(), response) == (not throttle_time_ms)


def test_epoch_of_a_throttled_response_is_kept() -> None:
    """The usual response stays that of the epoch before, until one of the new epoch comes without a throttle time."""
    member = Consumer()
    member.receive()
    throttled = member.response(epoch=4)
    throttled.throttle_time_ms = 100
    assert not receive(member.group, member.beat(), throttled)
    assert not receive(member.group, member.beat(), member.response(epoch=4))
    assert receive(member.group, member.beat(), member.response(epoch=4))
    assert member.membership.generation.generation_id == 4


def test_a_late_response_is_parsed(member: Classic) -> None:
    """The next heartbeat is due already, so a wait that went on would delay it."""
    member.receive()
    request = member.beat()
    member.group.clock.advance(member.interval_ms)
    assert not receive(member.group, request, member.response())


def test_wait_ends_when_the_next_heartbeat_is_due(member: Classic) -> None:
    """Nothing else would end it: the response does not."""
    member.group.clock.advance(member.interval_ms)
    result = member.manager.poll(member.group.clock.now_ms())
    assert result.requests
    assert member.interval_ms - 50 < result.wait_ms <= member.interval_ms
    assert member.interval_ms - 50 < member.membership.time_to_next_event(member.group.clock.now_ms())


def test_rebalance_error_is_parsed_each_time() -> None:
    member = Classic()
    member.receive()
    assert member.receive()
    assert not member.receive(error=REBALANCE_IN_PROGRESS)
    assert member.membership.rejoin_needed
    assert not member.receive(error=REBALANCE_IN_PROGRESS), "each time, as this member does not rejoin"


def test_new_epoch_or_assignment_is_parsed() -> None:
    member = Consumer()
    member.receive()
    assert member.receive()
    assert not receive(member.group, member.beat(), member.response(epoch=4))
    assert member.membership.generation.generation_id == 4
    assert receive(member.group, member.beat(), member.response(epoch=4))
    assignment = ConsumerGroupHeartbeatResponse.Assignment(topic_partitions=[])
    assert not receive(member.group, member.beat(), member.response(epoch=4, assignment=assignment))
    assert not receive(member.group, member.beat(), member.response(epoch=4, assignment=assignment))


def test_earlier_epoch_is_parsed() -> None:
    member = Consumer()
    member.receive()
    request = member.beat()
    member.membership.generation = Generation(9, "m", None)  # as after joining again
    assert not receive(member.group, request, member.response())


def test_a_heartbeat_that_is_due_at_once_ends_the_wait() -> None:
    """The member has reconciled while the last one was in flight, and has to report that."""
    member = Consumer()
    member.receive()
    request = member.beat()
    member.membership._due_ms = 0
    assert not receive(member.group, request, member.response())
    assert member.manager.poll(member.group.clock.now_ms()).requests


# --- in time with the application's calls ---------------------------------------------------------------------------


def poll_heartbeat(member: Classic, now_ms: int, call_ms: int) -> None:
    """Begin a call of ``poll`` that waits for ``call_ms`` at most."""
    member.group.coordinator.heartbeat_thread.start()
    member.group.coordinator._poll_heartbeat(now_ms, call_ms, is_called=True)


def due_at_once(member: Classic, early_ms: int, call_ms: int) -> bool:
    """Return whether a heartbeat that is due in ``early_ms`` leaves when a call of the application begins."""
    member.receive()
    left_ms = member.manager.poll(member.group.clock.now_ms()).wait_ms
    member.group.clock.advance(left_ms - early_ms)
    now_ms = member.group.clock.now_ms()
    poll_heartbeat(member, now_ms, call_ms)
    requests = member.manager.poll(now_ms).requests
    for request in requests:
        receive(member.group, request, member.response())
    return bool(requests)


def test_heartbeat_due_during_a_call_is_sent_first(member: Classic) -> None:
    assert due_at_once(member, 400, 1_000)
    assert not due_at_once(member, 995, 1_000), "the next call is early enough"
    assert not due_at_once(member, 400, 300), "so is that"
    assert not due_at_once(member, member.interval_ms // 2, 10_000), "much too early"
    assert not due_at_once(member, 400, 0), "the application does not wait"


def test_heartbeat_in_flight_sends_no_early_heartbeat(member: Classic) -> None:
    member.receive()
    member.beat()
    member.group.clock.advance(member.interval_ms - 400)
    now_ms = member.group.clock.now_ms()
    poll_heartbeat(member, now_ms, 1_000)
    assert not member.manager.poll(now_ms).requests


def test_commit_due_during_a_call_is_sent_first() -> None:
    commits = Commits()
    commits.after_interval()
    commits.group.clock.advance(800)
    assert not commits.manager.maybe_auto_commit_async(commits.group.clock.now_ms(), 150)
    assert commits.manager.maybe_auto_commit_async(commits.group.clock.now_ms(), 1_000)
    assert commits.manager.time_to_next_auto_commit() > 900, "its interval begins anew"
    commits.group.clock.advance(500)
    assert not commits.manager.maybe_auto_commit_async(commits.group.clock.now_ms(), 1_000), "much too early"


def test_heartbeats_are_sent_only_at_the_start_of_calls() -> None:
    """From the first heartbeat on, none needs a wait that ends in the middle of a call."""
    member = Classic()
    member.group.clock.auto_tick_ms = 0
    waits = []
    for _ in range(30):
        left_ms = 1_000
        while left_ms:
            now_ms = member.group.clock.now_ms()
            poll_heartbeat(member, now_ms, left_ms)
            result = member.manager.poll(now_ms)
            for request in result.requests:
                receive(member.group, request, member.response())
            wait_ms = left_ms if ends_with(result.wait_ms, left_ms) else result.wait_ms
            waits.append(wait_ms)
            member.group.clock.advance(wait_ms)
            left_ms -= wait_ms
        member.group.clock.advance(1)
    assert waits == [1_000] * 30
    assert member.group.metric("heartbeat-total") >= 9


# --- commits ---------------------------------------------------------------------------------------------------------


class Commits:
    """The automatic commits of a consumer that assigns its partitions itself."""

    def __init__(self, **settings: Any) -> None:
        self.group = GroupHarness(auto_commit_interval_ms=1_000, **settings)
        self.group.subscriptions.assign_from_user([TP0])
        self.group.find_coordinator()
        self.group.seek(TP0, 7)
        self.manager: Any = self.group.coordinator._commits

    def request(self) -> UnsentRequest:
        (request,) = self.manager.poll(self.group.clock.now_ms()).requests
        found: UnsentRequest = request
        return found

    def after_interval(self, error: int = 0, **settings: Any) -> bool:
        self.group.clock.advance(1_000)
        assert self.manager.maybe_auto_commit_async(self.group.clock.now_ms())
        return receive(self.group, self.request(), commit({TP0: error}), **settings)


def test_repeated_commit_responses_are_not_parsed() -> None:
    commits = Commits()
    assert not commits.after_interval(), "the first response is parsed"
    for _ in range(3):
        assert commits.after_interval()
        assert not commits.manager.awaits_answers
    assert commits.group.metric("commit-total") == 4
    commits.group.seek(TP0, 8)
    assert commits.after_interval(), "the response has no offsets"


def test_a_failed_commit_is_parsed_and_repeated_soon() -> None:
    commits = Commits()
    commits.after_interval()
    for _ in range(2):
        assert not commits.after_interval(LOAD_IN_PROGRESS)
        assert commits.manager.time_to_next_auto_commit() <= 100


def test_awaited_commit_ends_the_wait() -> None:
    commits = Commits()
    commits.after_interval()
    assert commits.after_interval()
    for begin in (
        commits.manager.auto_commit_async,
        lambda: commits.manager.commit_async(commits.manager.consumed()),
    ):
        future = begin()
        assert not receive(commits.group, commits.request(), commit({TP0: 0}))
        commits.group.driver.run(commits.group.coordinator.events.steps())
        assert future.succeeded


def test_interceptors_see_each_commit() -> None:
    class Interceptor:
        def __init__(self) -> None:
            self.told = 0

        def on_commit(self, _offsets: object) -> None:
            self.told += 1

    interceptor = Interceptor()
    commits = Commits(interceptors=[interceptor])
    for _ in range(3):
        assert not commits.after_interval()
        commits.group.driver.run(commits.group.coordinator.events.steps())
    assert interceptor.told == 3


def test_a_long_response_is_parsed_each_time() -> None:
    """It would have to be kept in memory."""
    commits = Commits(partitions={"test": 2_000})
    partitions = [TP0._replace(partition=number) for number in range(2_000)]
    commits.group.subscriptions.assign_from_user(partitions)
    for tp in partitions:
        commits.group.seek(tp, 1)
    for _ in range(3):
        commits.group.clock.advance(1_000)
        assert commits.manager.maybe_auto_commit_async(commits.group.clock.now_ms())
        assert not receive(commits.group, commits.request(), commit(dict.fromkeys(partitions, 0)))
