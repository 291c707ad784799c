"""Coordinator lookup, join, sync, heartbeat and leave (after Java's AbstractCoordinatorTest)."""

from __future__ import annotations

from typing import Any

import pytest

from pykclient.consumer.coordinator.membership import (
    COMPLETING_REBALANCE,
    NO_GENERATION,
    PREPARING_REBALANCE,
    STABLE,
    UNJOINED,
    Generation,
)
from pykclient.consumer.values import GroupMembershipOperation
from pykclient.errors import (
    AuthenticationError,
    FencedInstanceIdError,
    GroupAuthorizationError,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    KafkaError,
    WakeupError,
)
from pykclient.protocol.messages.heartbeat import HeartbeatRequest
from pykclient.protocol.messages.join_group import JoinGroupRequest
from pykclient.protocol.messages.leave_group import LeaveGroupRequest
from pykclient.protocol.messages.sync_group import SyncGroupRequest
from tests.consumer.coordinator.harness import (
    COORDINATOR_NOT_AVAILABLE,
    FENCED_INSTANCE_ID,
    GROUP_AUTHORIZATION_FAILED,
    GROUP_MAX_SIZE_REACHED,
    ILLEGAL_GENERATION,
    LOAD_IN_PROGRESS,
    MEMBER,
    MEMBER_ID_REQUIRED,
    NOT_COORDINATOR,
    REBALANCE_IN_PROGRESS,
    TP0,
    UNKNOWN_MEMBER_ID,
    GroupHarness,
    SteppedThread,
    commit,
    find_coordinator,
    heartbeat,
    join,
    leave,
    noting,
    sync,
)


@pytest.fixture
def group() -> GroupHarness:
    h = GroupHarness()
    h.subscribe()
    return h


def is_a(kind: type) -> Any:
    return lambda request: isinstance(request, kind)


class TestFinding:
    def test_coordinator_gets_a_connection_of_its_own(self, group: GroupHarness) -> None:
        assert group.coordinator.lookup.unknown
        group.find_coordinator()
        assert not group.coordinator.lookup.unknown
        # The coordinator has its own connection, so fetches that wait at the broker do not delay heartbeats.
        assert group.coordinator_node.id == 2**31 - 1 - group.node.id
        assert group.coordinator_node.port == group.node.port

    def test_failed_lookups_are_retried_with_backoff(self, group: GroupHarness) -> None:
        group.prepare(
            find_coordinator(group.node, COORDINATOR_NOT_AVAILABLE),
            find_coordinator(group.node, LOAD_IN_PROGRESS),
            find_coordinator(group.node),
        )
        start = group.clock.now_ms()
        assert group.coordinator.ensure_coordinator_ready(group.timer())
        assert 200 <= group.clock.now_ms() - start < 1000

    def test_lookup_times_out_with_the_last_error(self, group: GroupHarness) -> None:
        for _ in range(20):
            group.prepare(find_coordinator(group.node, COORDINATOR_NOT_AVAILABLE))
        assert not group.coordinator.ensure_coordinator_ready(group.timer(300))
        assert group.coordinator.lookup.last_error is not None

    def test_lookup_without_a_broker_times_out(self, group: GroupHarness) -> None:
        group.client.set_unreachable(group.node, 100_000)
        assert not group.coordinator.ensure_coordinator_ready(group.timer(300))
        assert "no broker" in str(group.coordinator.lookup.last_error)

    def test_authorization_error_is_raised(self, group: GroupHarness) -> None:
        group.prepare(find_coordinator(group.node, GROUP_AUTHORIZATION_FAILED))
        with pytest.raises(GroupAuthorizationError, match="a-group"):
            group.coordinator.ensure_coordinator_ready(group.timer())

    def test_authentication_error_is_raised_once(self, group: GroupHarness) -> None:
        group.client.create_pending_authentication_error(group.node, 100)
        with pytest.raises(AuthenticationError):
            group.coordinator.ensure_coordinator_ready(group.timer())
        group.clock.advance(200)
        group.find_coordinator()

    def test_lost_connection_makes_the_coordinator_unknown(self, group: GroupHarness) -> None:
        group.find_coordinator()
        group.client.backoff(group.coordinator_node, 100)
        assert group.coordinator.lookup.unknown
        group.clock.advance(150)
        group.find_coordinator()

    @pytest.mark.parametrize("version", [0, 3, 4, 6])
    def test_old_and_new_lookup_versions_are_supported(self, group: GroupHarness, version: int) -> None:
        group.client.set_api_versions(10, 0, version)
        response = find_coordinator(group.node)
        if version < 4:
            response = type(response)(node_id=group.node.id, host=group.node.host, port=group.node.port)
        group.prepare(response)
        assert group.coordinator.ensure_coordinator_ready(group.timer())
        assert group.coordinator_node.id == 2**31 - 1 - group.node.id


class TestJoining:
    def test_follower_joins(self, group: GroupHarness) -> None:
        group.join(TP0)
        membership = group.member.membership
        assert membership.state is STABLE
        assert membership.generation == Generation(1, MEMBER, "range")
        assert not group.coordinator.rejoin_needed_or_pending()
        assert len(group.threads) == 1
        assert group.metric("rebalance-total") == 1
        assert group.metric("join-total") == 1
        assert group.metric("last-rebalance-seconds-ago") == 0

    def test_failed_attempts_are_not_counted_in_metrics(self, group: GroupHarness) -> None:
        """A first JoinGroup is refused with a member id. It says nothing about how long joining takes."""
        group.prepare(find_coordinator(group.node), join(-1, error=MEMBER_ID_REQUIRED), join(1))
        group.prepare(sync(error=REBALANCE_IN_PROGRESS), join(2), sync(TP0))
        assert group.coordinator.poll(group.timer())
        assert group.metric("join-total") == 2
        assert group.metric("sync-total") == 1

    def test_join_and_sync_requests_have_all_fields(self, group: GroupHarness) -> None:
        sent: list[Any] = []
        group.prepare(find_coordinator(group.node))
        group.client.prepare_response(join(7), noting(sent))
        group.client.prepare_response(sync(TP0), noting(sent))
        group.coordinator.poll(group.timer())
        joined, synced = sent
        assert isinstance(joined, JoinGroupRequest)
        assert (joined.group_id, joined.session_timeout_ms, joined.rebalance_timeout_ms) == ("a-group", 10_000, 60_000)
        assert [protocol.name for protocol in joined.protocols] == ["range"]
        assert isinstance(synced, SyncGroupRequest)
        assert (synced.generation_id, synced.member_id, synced.assignments) == (7, MEMBER, [])
        assert (synced.protocol_type, synced.protocol_name) == ("consumer", "range")

    def test_the_coordinator_may_demand_a_member_id(self, group: GroupHarness) -> None:
        seen: list[Any] = []
        group.prepare(find_coordinator(group.node), join(-1, "given", error=MEMBER_ID_REQUIRED))
        group.client.prepare_response(join(1, "given"), noting(seen))
        group.prepare(sync(TP0))
        assert group.coordinator.poll(group.timer())
        assert seen[0].member_id == "given"
        assert group.member.membership.generation.member_id == "given"

    def test_join_continues_across_polls(self, group: GroupHarness) -> None:
        group.find_coordinator()
        assert not group.coordinator.poll(group.timer(0))
        assert group.member.membership.state is PREPARING_REBALANCE
        assert len(group.client.requests) == 1
        assert not group.coordinator.poll(group.timer(0))
        assert len(group.client.requests) == 1
        group.client.respond(join(1))
        assert not group.coordinator.poll(group.timer(0))
        assert group.member.membership.state is COMPLETING_REBALANCE
        assert not group.coordinator.poll(group.timer(0))
        group.client.respond(sync(TP0))
        assert group.coordinator.poll(group.timer(0))
        assert group.member.membership.state is STABLE

    def test_a_join_request_may_take_as_long_as_the_rebalance(self, group: GroupHarness) -> None:
        group.find_coordinator()
        group.coordinator.poll(group.timer(0))
        assert group.client.requests[0].request_timeout_ms == 65_000

    @pytest.mark.parametrize("error", [NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE])
    def test_member_rejoins_through_the_new_coordinator(self, group: GroupHarness, error: int) -> None:
        group.prepare(find_coordinator(group.node), join(error=error))
        group.prepare(find_coordinator(group.node), join(2), sync(TP0))
        assert group.coordinator.poll(group.timer())
        assert group.member.membership.generation.generation_id == 2
        assert group.metric("failed-rebalance-total") == 1

    def test_loading_coordinator_is_retried_with_growing_backoff(self, group: GroupHarness) -> None:
        group.find_coordinator()
        for _ in range(3):
            group.prepare(join(error=LOAD_IN_PROGRESS))
        group.prepare(join(1), sync(TP0))
        start = group.clock.now_ms()
        assert group.coordinator.poll(group.timer())
        assert 500 < group.clock.now_ms() - start < 1200  # 100 + 200 + 400, each ±20 %

    def test_zero_timeout_polls_respect_the_backoff(self, group: GroupHarness) -> None:
        group.find_coordinator()
        group.prepare(join(error=LOAD_IN_PROGRESS))
        for _ in range(5):
            group.coordinator.poll(group.timer(0))
        assert not group.client.requests
        group.clock.advance(200)
        group.prepare(join(1), sync(TP0))
        group.coordinator.poll(group.timer())
        assert group.member.membership.state is STABLE

    @pytest.mark.parametrize("error", [UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS])
    def test_retriable_join_error_is_retried_at_once(self, group: GroupHarness, error: int) -> None:
        group.find_coordinator()
        group.prepare(join(error=error), join(2), sync(TP0))
        start = group.clock.now_ms()
        assert group.coordinator.poll(group.timer())
        assert group.clock.now_ms() - start < 100

    @pytest.mark.parametrize(
        ("error", "raised", "text"),
        [
            (GROUP_AUTHORIZATION_FAILED, GroupAuthorizationError, "a-group"),
            (GROUP_MAX_SIZE_REACHED, GroupMaxSizeReachedError, "group.max.size"),
            (FENCED_INSTANCE_ID, FencedInstanceIdError, "group.instance.id"),
            (23, InconsistentGroupProtocolError, "range"),
            (-1, KafkaError, "unexpected"),
        ],
    )
    def test_fatal_errors(self, group: GroupHarness, error: int, raised: type[Exception], text: str) -> None:
        group.find_coordinator()
        group.prepare(join(error=error))
        with pytest.raises(raised, match=text):
            group.coordinator.poll(group.timer())
        group.prepare(join(2), sync(TP0))
        assert group.coordinator.poll(group.timer())

    def test_foreign_protocol_type_is_refused(self, group: GroupHarness) -> None:
        group.find_coordinator()
        response = join(1)
        response.protocol_type = "connect"
        group.prepare(response)
        with pytest.raises(InconsistentGroupProtocolError, match="connect"):
            group.coordinator.poll(group.timer())

    def test_a_wakeup_keeps_the_join(self, group: GroupHarness) -> None:
        group.find_coordinator()
        group.driver.wakeup()
        with pytest.raises(WakeupError):
            group.coordinator.poll(group.timer())
        assert group.member.membership.state is PREPARING_REBALANCE
        group.client.respond(join(1))
        group.prepare(sync(TP0))
        assert group.coordinator.poll(group.timer())

    def test_member_rejoins_after_a_lost_connection(self, group: GroupHarness) -> None:
        group.find_coordinator()
        group.client.prepare_response(None, disconnected=True)
        group.prepare(find_coordinator(group.node), join(1), sync(TP0))
        assert group.coordinator.poll(group.timer())
        assert group.member.membership.state is STABLE

    def test_join_group_has_the_reason_cut_to_255_characters(self, group: GroupHarness) -> None:
        group.join(TP0)
        seen: list[Any] = []
        group.coordinator.request_rejoin("x" * 400)
        group.client.prepare_response(join(2), noting(seen))
        group.prepare(sync(TP0))
        assert group.coordinator.poll(group.timer())
        assert seen[0].reason == "x" * 255


class TestSyncing:
    @pytest.mark.parametrize("error", [REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID])
    def test_failed_sync_makes_the_member_rejoin(self, group: GroupHarness, error: int) -> None:
        seen: list[Any] = []
        group.prepare(find_coordinator(group.node), join(1), sync(error=error))
        group.client.prepare_response(join(2), noting(seen))
        group.prepare(sync(TP0))
        assert group.coordinator.poll(group.timer())
        # An unknown member drops its id; the other errors keep it.
        assert seen[0].member_id == ("" if error == UNKNOWN_MEMBER_ID else MEMBER)

    def test_loading_coordinator_makes_the_member_rejoin(self, group: GroupHarness) -> None:
        """Java's poll() raises this; it is over in a moment."""
        group.prepare(find_coordinator(group.node), join(1), sync(error=LOAD_IN_PROGRESS), join(2), sync(TP0))
        assert group.coordinator.poll(group.timer())
        assert group.member.membership.generation.generation_id == 2

    @pytest.mark.parametrize("error", [NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE])
    def test_member_rejoins_through_the_new_coordinator(self, group: GroupHarness, error: int) -> None:
        group.prepare(find_coordinator(group.node), join(1), sync(error=error))
        group.prepare(find_coordinator(group.node), join(2), sync(TP0))
        assert group.coordinator.poll(group.timer())

    @pytest.mark.parametrize(
        ("error", "raised"),
        [(GROUP_AUTHORIZATION_FAILED, GroupAuthorizationError), (FENCED_INSTANCE_ID, FencedInstanceIdError)],
    )
    def test_fatal_errors(self, group: GroupHarness, error: int, raised: type[Exception]) -> None:
        group.prepare(find_coordinator(group.node), join(1), sync(error=error))
        with pytest.raises(raised):
            group.coordinator.poll(group.timer())

    def test_foreign_protocol_name_is_refused(self, group: GroupHarness) -> None:
        group.prepare(find_coordinator(group.node), join(1), sync(TP0, protocol="roundrobin"))
        with pytest.raises(InconsistentGroupProtocolError, match="roundrobin"):
            group.coordinator.poll(group.timer())

    def test_heartbeat_error_outdates_the_sync_response(self, group: GroupHarness) -> None:
        group.find_coordinator()
        group.coordinator.poll(group.timer(0))
        group.client.respond(join(1))
        group.coordinator.poll(group.timer(0))
        assert group.member.membership.state is COMPLETING_REBALANCE
        group.coordinator.poll(group.timer(0))
        group.clock.advance(3_001)
        group.thread.run_once()
        assert isinstance(group.client.requests[1].request_builder.message, HeartbeatRequest)
        group.client.respond_to_request(group.client.requests[1], heartbeat(UNKNOWN_MEMBER_ID))
        group.thread.run_once()
        assert group.member.membership.state is UNJOINED
        # The SyncGroup response is now outdated.
        group.client.respond(sync(TP0))
        group.prepare(join(2), sync(TP0))
        assert group.coordinator.poll(group.timer())
        assert group.member.membership.generation.generation_id == 2


class TestHeartbeats:
    def test_heartbeat_is_sent_when_due(self, group: GroupHarness) -> None:
        group.join(TP0)
        assert 0 < group.thread.run_once() <= 3_000
        assert not group.client.requests
        group.beat()
        assert group.metric("heartbeat-total") == 1
        assert group.member.membership.state is STABLE

    def test_no_heartbeats_are_sent_before_joining(self, group: GroupHarness) -> None:
        group.find_coordinator()
        group.coordinator.poll(group.timer(0))
        group.clock.advance(50_000)
        group.thread.run_once()
        assert len(group.client.requests) == 1  # JoinGroup

    def test_rebalance_error_requests_a_rejoin(self, group: GroupHarness) -> None:
        group.join(TP0)
        group.beat(REBALANCE_IN_PROGRESS)
        assert group.coordinator.rejoin_needed_or_pending()
        assert group.member.membership.rejoin_reason == "group is already rebalancing"
        assert group.member.membership.state is STABLE  # the member keeps sending heartbeats until it joins
        group.prepare(join(2), sync(TP0))
        assert group.coordinator.poll(group.timer())

    @pytest.mark.parametrize(
        ("error", "generation"),
        [
            (ILLEGAL_GENERATION, Generation(-1, MEMBER, None)),
            (UNKNOWN_MEMBER_ID, NO_GENERATION),
        ],
    )
    def test_fatal_error_ends_membership(self, group: GroupHarness, error: int, generation: Generation) -> None:
        group.join(TP0)
        group.beat(error)
        assert group.member.membership.state is UNJOINED
        assert group.member.membership.generation == generation
        assert group.coordinator.rejoin_needed_or_pending()

    def test_response_to_an_old_generation_is_ignored(self, group: GroupHarness) -> None:
        group.join(TP0)
        group.clock.advance(3_001)
        group.thread.run_once()
        old = group.client.requests[0]
        group.coordinator.request_rejoin("test")
        group.prepare(join(2), sync(TP0))
        assert group.coordinator.poll(group.timer())
        group.client.respond_to_request(old, heartbeat(UNKNOWN_MEMBER_ID))
        group.step()
        assert group.member.membership.state is STABLE
        assert group.member.membership.generation.generation_id == 2

    def test_late_rebalance_error_is_ignored(self, group: GroupHarness) -> None:
        group.join(TP0)
        group.clock.advance(3_001)
        group.thread.run_once()
        old = group.client.requests[0]
        group.coordinator.request_rejoin("test")
        assert not group.coordinator.poll(group.timer(0))
        assert group.member.membership.state is PREPARING_REBALANCE
        group.client.respond_to_request(old, heartbeat(REBALANCE_IN_PROGRESS))
        group.step()
        assert group.member.membership.rejoin_reason == "test"

    def test_fenced_instance_error_is_raised_by_poll(self) -> None:
        group = GroupHarness(group={"group_instance_id": "i"})
        group.subscribe()
        group.join(TP0)
        group.beat(FENCED_INSTANCE_ID)
        with pytest.raises(FencedInstanceIdError, match="'i'"):
            group.coordinator.poll(group.timer())
        assert group.member.membership.state is UNJOINED

    def test_moved_coordinator_is_looked_up_in_the_background(self, group: GroupHarness) -> None:
        group.join(TP0)
        group.beat(NOT_COORDINATOR)
        assert group.coordinator.lookup.node is None
        group.client.respond(find_coordinator(group.node))
        group.thread.run_once()
        assert group.coordinator.lookup.node is not None
        assert group.member.membership.state is STABLE

    def test_a_failed_heartbeat_is_repeated_soon(self, group: GroupHarness) -> None:
        group.join(TP0)
        assert group.beat(LOAD_IN_PROGRESS) <= 120

    def test_silent_coordinator_is_marked_unknown(self, group: GroupHarness) -> None:
        group.join(TP0)
        group.clock.advance(10_001)
        group.thread.run_once()
        assert group.coordinator.lookup.node is None
        assert group.member.membership.state is STABLE

    def test_an_application_that_does_not_poll_leaves(
        self, group: GroupHarness, caplog: pytest.LogCaptureFixture
    ) -> None:
        group.join(TP0)
        for _ in range(19):
            group.beat()
        group.clock.advance(3_001)
        group.client.prepare_response(leave(), is_a(LeaveGroupRequest))
        group.thread.run_once()
        group.thread.run_once()
        assert group.member.membership.state is UNJOINED
        assert group.client.prepared_response_count() == 0
        assert "max.poll.interval.ms" in caplog.text
        assert "max.poll.records" in caplog.text
        assert "max.poll.interval.ms=60000" in (group.member.membership.lost_because or "")

    def test_polls_keep_the_member_in_the_group(self, group: GroupHarness) -> None:
        group.join(TP0)
        for _ in range(30):
            group.beat()
            assert group.coordinator.poll(group.timer(0))
        assert group.member.membership.state is STABLE

    def test_failed_heartbeat_thread_is_replaced(self, group: GroupHarness) -> None:
        group.join(TP0)
        group.thread._failure = KafkaError("broken")
        with pytest.raises(KafkaError, match="broken"):
            group.coordinator.poll(group.timer())
        group.prepare(join(2), sync(TP0))
        assert group.coordinator.poll(group.timer())
        assert len(group.threads) == 2

    def test_heartbeat_thread_that_could_not_start_is_started_by_the_next_poll(
        self, group: GroupHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(_: SteppedThread) -> None:
            raise RuntimeError("can't start new thread")

        group.find_coordinator()
        group.subscribe(TP0.topic)
        with monkeypatch.context() as without_threads:
            without_threads.setattr(SteppedThread, "start", refuse)
            with pytest.raises(RuntimeError, match="can't start"):
                group.coordinator.poll(group.timer())
        group.prepare(join(), sync(TP0))
        assert group.coordinator.poll(group.timer())
        assert len(group.threads) == 2


class TestLeaving:
    def test_a_dynamic_member_leaves(self, group: GroupHarness) -> None:
        group.join(TP0)
        left: list[Any] = []
        group.client.prepare_response(leave(), noting(left))
        group.coordinator.close(group.timer())
        (member,) = left[0].members
        assert (member.member_id, member.reason) == (MEMBER, "the consumer is being closed")
        assert group.member.membership.state is UNJOINED

    @pytest.mark.parametrize(
        ("operation", "leaves"),
        [
            (GroupMembershipOperation.DEFAULT, False),
            (GroupMembershipOperation.LEAVE_GROUP, True),
            (GroupMembershipOperation.REMAIN_IN_GROUP, False),
        ],
    )
    def test_a_static_member_stays_unless_told(self, operation: str, leaves: bool) -> None:
        group = GroupHarness(group={"group_instance_id": "i"})
        group.subscribe()
        group.join(TP0)
        group.prepare(leave())
        group.coordinator.close(group.timer(), operation)
        assert group.client.prepared_response_count() == (0 if leaves else 1)

    def test_a_dynamic_member_can_stay(self, group: GroupHarness) -> None:
        group.join(TP0)
        group.coordinator.close(group.timer(), GroupMembershipOperation.REMAIN_IN_GROUP)
        assert not group.client.requests

    def test_old_leave_versions_have_one_member_id(self, group: GroupHarness) -> None:
        group.join(TP0)
        group.client.set_api_versions(13, 0, 2)
        left: list[Any] = []
        group.client.prepare_response(type(leave())(), noting(left))
        group.coordinator.leave_group(GroupMembershipOperation.DEFAULT, "test")
        assert (left[0].member_id, left[0].members) == (MEMBER, [])

    def test_error_of_leave_response_fails_future(self, group: GroupHarness) -> None:
        group.join(TP0)
        group.prepare(leave(UNKNOWN_MEMBER_ID))
        future = group.coordinator.leave_group(GroupMembershipOperation.DEFAULT, "test")
        assert future is not None
        assert future.failed
        assert group.coordinator.leave_group(GroupMembershipOperation.DEFAULT, "test") is None

    def test_close_ends_when_its_timer_expires(self, group: GroupHarness) -> None:
        group.join(TP0)
        start = group.clock.now_ms()
        group.coordinator.close(group.timer(500))
        assert group.clock.now_ms() - start < 1_000
        assert group.network.pending_request_count() == 1

    @pytest.mark.parametrize("static", [True, False])
    def test_closing_does_not_wait_for_the_others_to_join(self, static: bool) -> None:
        """Closing succeeds while the coordinator holds back JoinGroup and all later responses on that connection.

        Coordinators from Kafka 2.2 on answer JoinGroup of a member that leaves; this one does not, as older ones.
        """
        group = GroupHarness(group={"group_instance_id": "i"} if static else {})
        group.subscribe()
        group.join(TP0)
        group.coordinator.request_rejoin("test")
        assert not group.coordinator.poll(group.timer(0))
        if not static:
            group.client.prepare_response_from(leave(), group.node)
        start = group.clock.now_ms()
        group.coordinator.close(group.timer(10_000))
        assert group.clock.now_ms() - start < (100 if static else 1_100)
        assert group.client.prepared_response_count() == 0
        assert [type(request.request_builder.message) for request in group.client.requests] == [JoinGroupRequest]

    def test_close_does_not_finish_a_pending_join(self) -> None:
        group = GroupHarness(auto_commit_interval_ms=10**9)
        group.subscribe()
        group.join(TP0)
        group.seek(TP0, 5)
        group.coordinator.request_rejoin("test")
        group.prepare(commit({TP0: 0}), join(error=LOAD_IN_PROGRESS))
        assert not group.coordinator.poll(group.timer(50))
        group.clock.advance(1_000)
        group.coordinator.close(group.timer(500))
        sent = [type(request.request_builder.message) for request in group.client.requests]
        assert JoinGroupRequest not in sent
        assert LeaveGroupRequest in sent

    def _rejoining(self) -> GroupHarness:
        """Return a member whose JoinGroup the coordinator holds back, so that it leaves over another connection."""
        group = GroupHarness()
        group.subscribe()
        group.join(TP0)
        group.coordinator.request_rejoin("test")
        assert not group.coordinator.poll(group.timer(0))
        return group

    def test_closing_leaves_once_a_lost_connection_is_back(self) -> None:
        """The connection is lost before LeaveGroup is sent, and then again while it is in flight."""
        group = self._rejoining()
        group.client.backoff(group.node, 50)
        left: list[Any] = []
        group.client.prepare_response_from(leave(), group.node, noting(left), disconnected=True)
        group.client.prepare_response_from(leave(), group.node, noting(left))
        start = group.clock.now_ms()
        group.coordinator.close(group.timer(10_000))
        assert [request.members[0].member_id for request in left] == [MEMBER, MEMBER]
        assert 50 < group.clock.now_ms() - start < 2_000  # with the wait for JoinGroup, which is not answered
        assert not group.coordinator.lookup.unknown, "only the other connection was lost"

    def test_close_leaves_over_the_first_connection_once_free(self) -> None:
        group = self._rejoining()
        (joining,) = group.client.requests

        def note(request: Any) -> bool:
            group.client.respond_to_request(joining, join(2))
            return True

        group.client.prepare_response_from(leave(), group.node, note, disconnected=True)
        left: list[Any] = []
        group.client.prepare_response_from(leave(), group.coordinator_node, noting(left))
        group.coordinator.close(group.timer(10_000))
        assert [request.members[0].member_id for request in left] == [MEMBER]

    def test_close_does_not_wait_for_a_lost_coordinator(self, caplog: pytest.LogCaptureFixture) -> None:
        group = self._rejoining()

        def lose_both(request: Any) -> bool:
            group.client.disconnect(group.coordinator_node.id_string)
            return True

        group.client.prepare_response_from(leave(), group.node, lose_both, disconnected=True)
        start = group.clock.now_ms()
        group.coordinator.close(group.timer(10_000))
        assert group.clock.now_ms() - start < 1_000
        assert not group.client.requests
        assert "Closing before" in caplog.text

    def test_closing_ends_with_the_timer_while_no_connection_is_possible(self) -> None:
        group = self._rejoining()
        group.client.backoff(group.node, 100_000)
        start = group.clock.now_ms()
        group.coordinator.close(group.timer(3_000))
        assert 3_000 <= group.clock.now_ms() - start < 3_500

    def test_expired_member_leaves_over_the_remaining_connection(self) -> None:
        """Unlike on close, the connection stays open, so that LeaveGroup can wait behind SyncGroup there."""
        group = GroupHarness()
        group.subscribe()
        group.find_coordinator()
        group.prepare(join(1))
        assert not group.coordinator.poll(group.timer(50))
        group.client.backoff(group.node, 10**9)
        group.member.leaving.leave(GroupMembershipOperation.DEFAULT, "test")
        group.network.poll_background()
        group.network.poll_background()
        sent = [(type(request.request_builder.message), request.destination) for request in group.client.requests]
        node_id = group.coordinator_node.id_string
        assert sent == [(SyncGroupRequest, node_id), (LeaveGroupRequest, node_id)]

    def test_join_response_after_leaving_is_ignored(self, group: GroupHarness) -> None:
        group.find_coordinator()
        group.coordinator.poll(group.timer(0))
        joined = group.client.requests[0]
        group.coordinator.leave_group(
            GroupMembershipOperation.DEFAULT, "test"
        )  # without a member id there is no LeaveGroup to send
        group.client.respond_to_request(joined, join(1))
        group.prepare(join(2), sync(TP0))
        assert group.coordinator.poll(group.timer())
        assert group.member.membership.generation.generation_id == 2


def test_static_members_need_newer_brokers() -> None:
    group = GroupHarness(group={"group_instance_id": "i"})
    group.subscribe()
    group.find_coordinator()
    group.client.set_api_versions(11, 0, 4)
    group.prepare(join(1))
    with pytest.raises(KafkaError, match=r"group\.instance\.id='i' needs brokers of version 2\.3"):
        group.coordinator.poll(group.timer())
