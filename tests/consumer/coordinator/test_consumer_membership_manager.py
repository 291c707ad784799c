"""Membership by the consumer group protocol (KIP-848), over a mock client."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from typing import Any

import pytest

from pykclient.consumer.coordinator.consumer_rebalance import ConsumerMembershipManager
from pykclient.consumer.coordinator.group_member import Offsets
from pykclient.consumer.coordinator.membership import MemberState
from pykclient.consumer.values import GroupMembershipOperation, SubscriptionPattern
from pykclient.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    GroupAuthorizationError,
    GroupMaxSizeReachedError,
    InvalidRequestError,
    KafkaError,
    RetriableCommitFailedError,
    TopicAuthorizationError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
    UnsupportedVersionError,
    WakeupError,
)
from pykclient.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from pykclient.types import OffsetAndMetadata, TopicPartition
from tests.consumer.coordinator.harness import (
    COORDINATOR_NOT_AVAILABLE,
    FENCED_INSTANCE_ID,
    GROUP_AUTHORIZATION_FAILED,
    GROUP_MAX_SIZE_REACHED,
    LOAD_IN_PROGRESS,
    NONE,
    NOT_COORDINATOR,
    TOPIC,
    TP0,
    TP1,
    UNKNOWN_MEMBER_ID,
    GroupHarness,
    commit,
    committed,
    find_coordinator,
    noting,
)
from tests.consumer.responses import metadata_response, topic_id

INVALID_REQUEST, UNSUPPORTED_VERSION = 42, 35
TOPIC_AUTHORIZATION_FAILED, GROUP_ID_NOT_FOUND = 29, 69
FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID, UNSUPPORTED_ASSIGNOR, STALE_MEMBER_EPOCH = 110, 111, 112, 113
INTERVAL_MS = 5_000
OTHER = TopicPartition("other", 0)


def is_beat(request: Any) -> bool:
    return isinstance(request, ConsumerGroupHeartbeatRequest)


def answer(
    epoch: int, partitions: Collection[TopicPartition] | None = None, *, error: int = NONE
) -> ConsumerGroupHeartbeatResponse:
    """Return a response; ``partitions`` are the new target assignment."""
    response = ConsumerGroupHeartbeatResponse
    assignment = None
    if partitions is not None:
        by_topic: dict[str, list[int]] = {}
        for tp in partitions:
            by_topic.setdefault(tp.topic, []).append(tp.partition)
        assignment = response.Assignment(
            topic_partitions=[
                response.TopicPartitions(topic_id=topic_id(topic), partitions=numbers)
                for topic, numbers in by_topic.items()
            ]
        )
    return response(
        error_code=error,
        error_message="because of the test" if error else None,
        member_epoch=epoch,
        heartbeat_interval_ms=INTERVAL_MS,
        assignment=assignment,
    )


class Member:
    """A member of the consumer protocol, and the part of its coordinator."""

    def __init__(self, *, group: dict[str, Any] | None = None, **settings: Any) -> None:
        self.group = GroupHarness(group={"group_protocol": "consumer", **(group or {})}, **settings)
        self.clock = self.group.clock
        self.client = self.group.client
        self.coordinator = self.group.coordinator
        self.told = self.group.listener.told
        member = self.coordinator.member
        assert isinstance(member, ConsumerMembershipManager)
        self.manager = member
        self.membership = member.membership

    @property
    def state(self) -> str:
        return self.membership.state.name

    def poll(self, steps: int = 2) -> None:
        """Do what ``poll()`` of the application does."""
        for _ in range(steps):
            self.coordinator.poll(self.group.timer(0))
            self.group.step()

    def sent(self) -> list[ConsumerGroupHeartbeatRequest]:
        """Return the heartbeats in flight."""
        requests = [self.client.requests[index] for index in range(len(self.client.requests))]
        bodies = [request.request_builder.build(1) for request in requests]
        return [body for body in bodies if isinstance(body, ConsumerGroupHeartbeatRequest)]

    def beat(self) -> ConsumerGroupHeartbeatRequest:
        (request,) = self.sent()
        return request

    def respond(self, response: ConsumerGroupHeartbeatResponse) -> None:
        self.client.respond(response, is_beat)
        self.group.step()

    def joining(self) -> ConsumerGroupHeartbeatRequest:
        """Subscribe and poll until the first heartbeat is in flight."""
        self.group.subscribe()
        self.group.prepare(find_coordinator(self.group.node))
        self.poll(4)
        return self.beat()

    def join(self, *partitions: TopicPartition, epoch: int = 1) -> None:
        """Join, be assigned ``partitions``, and acknowledge them."""
        self.joining()
        self.respond(answer(epoch, partitions))
        self.poll()
        self.respond(answer(epoch))
        assert self.state == "STABLE"

    def next_beat(self) -> ConsumerGroupHeartbeatRequest:
        """Wait for the interval, and return the heartbeat in flight."""
        self.clock.advance(INTERVAL_MS)
        self.poll(1)
        return self.beat()

    def assign(self, *partitions: TopicPartition, epoch: int = 2) -> None:
        """Answer the next heartbeat with a new target assignment."""
        self.next_beat()
        self.respond(answer(epoch, partitions))

    def owned(self, request: ConsumerGroupHeartbeatRequest) -> dict[Any, list[int]] | None:
        if request.topic_partitions is None:
            return None
        return {topic.topic_id: topic.partitions for topic in request.topic_partitions}


@pytest.fixture
def member() -> Member:
    return Member()


# --- joining -------------------------------------------------------------------------------------------------------


def test_the_first_heartbeat_has_all_fields() -> None:
    member = Member(group={"rack_id": "r1", "group_remote_assignor": "range"})
    request = member.joining()
    assert member.state == "JOINING"
    assert re.fullmatch(r"[\w-]{22}", request.member_id)
    assert request.member_epoch == 0
    assert (request.rack_id, request.server_assignor, request.rebalance_timeout_ms) == ("r1", "range", 60_000)
    assert request.subscribed_topic_names == [TOPIC]
    assert request.topic_partitions == []
    assert request.instance_id is None


def test_assignment_is_reported_and_acknowledged_at_once(member: Member) -> None:
    joined = member.joining()
    member.respond(answer(3, [TP0, TP1]))
    assert member.state == "RECONCILING"
    member.poll(1)
    assert member.told == [("assigned", [TP0, TP1])]
    member.poll(1)
    assert member.state == "STABLE"
    request = member.beat()
    assert request.member_id == joined.member_id
    assert request.member_epoch == 3
    assert member.owned(request) == {topic_id(TOPIC): [0, 1]}
    assert (request.rack_id, request.server_assignor, request.rebalance_timeout_ms) == (None, None, -1)
    assert request.subscribed_topic_names is None


def test_later_heartbeats_have_only_changed_fields(member: Member) -> None:
    member.join(TP0)
    request = member.next_beat()
    assert (request.member_epoch, request.topic_partitions, request.subscribed_topic_names) == (1, None, None)


def test_empty_assignment_is_reported_and_acknowledged(member: Member) -> None:
    member.join()
    assert member.told == [("assigned", [])]


def test_a_changed_subscription_is_sent_at_once(member: Member) -> None:
    member.join(TP0)
    member.group.subscribe(TOPIC, "other")
    member.poll(1)
    assert member.beat().subscribed_topic_names == ["other", TOPIC]


def test_coordinator_sets_the_heartbeat_interval(member: Member) -> None:
    member.join(TP0)
    member.clock.advance(INTERVAL_MS - 100)
    member.poll(1)
    assert member.sent() == []
    member.clock.advance(100)
    member.poll(1)
    assert member.beat().member_epoch == 1


# --- reconciliation ------------------------------------------------------------------------------------------------


def test_partitions_are_revoked_before_others_are_added() -> None:
    member = Member(partitions={TOPIC: 2, "other": 1})
    member.group.subscribe(TOPIC, "other")
    member.join(TP0, TP1)
    member.told.clear()
    member.assign(TP1, OTHER, epoch=4)
    member.poll(1)
    assert member.told == [("revoked", [TP0]), ("assigned", [OTHER])]
    member.poll(1)
    assert member.owned(member.beat()) == {topic_id(TOPIC): [1], topic_id("other"): [0]}
    assert member.beat().member_epoch == 4


def test_heartbeat_lists_partitions_being_added() -> None:
    """The coordinator would give others what a heartbeat does not have, but the member may own it by then."""
    member = Member(partitions={TOPIC: 2, "other": 1})
    member.group.subscribe(TOPIC, "other")
    member.join(TP0)
    member.assign(TP0, TP1, OTHER)
    member.manager.heartbeats.reset()  # the next heartbeat has all fields
    member.clock.advance(INTERVAL_MS)
    member.group.step()
    assert member.state == "RECONCILING"
    assert member.owned(member.beat()) == {topic_id(TOPIC): [0, 1], topic_id("other"): [0]}


def test_partitions_that_stay_keep_their_state(member: Member) -> None:
    member.join(TP0, TP1)
    member.group.seek(TP1, 7)
    member.assign(TP1)
    assert member.group.subscriptions.is_fetchable(TP1)
    member.poll()
    assert member.group.subscriptions.is_fetchable(TP1)
    assert member.group.subscriptions.assigned_partitions() == {TP1}


def test_partitions_are_not_read_while_their_positions_are_committed() -> None:
    member = Member(auto_commit_interval_ms=100_000)
    member.join(TP0, TP1)
    member.group.seek(TP0, 5)
    member.group.seek(TP1, 7)
    member.assign(TP1)
    member.poll()
    assert not member.group.subscriptions.is_fetchable(TP0)
    assert member.group.subscriptions.is_fetchable(TP1), "a partition that stays is read on"
    assert member.told == [("assigned", [TP0, TP1])]
    sent: list[Any] = []
    member.client.respond(commit({TP0: NONE, TP1: NONE}), lambda body: not is_beat(body) and noting(sent)(body))
    member.poll()
    assert member.told[1:] == [("revoked", [TP0]), ("assigned", [])]
    (request,) = sent
    assert request.generation_id_or_member_epoch == 2
    assert request.member_id == member.membership.member_id


def test_a_commit_with_an_old_epoch_is_repeated_before_partitions_are_revoked() -> None:
    member = Member(auto_commit_interval_ms=100_000)
    member.join(TP0, TP1)
    member.group.seek(TP0, 5)
    member.assign(TP1)
    member.poll()
    member.client.respond(commit({TP0: STALE_MEMBER_EPOCH}), lambda body: not is_beat(body))
    member.poll()
    assert member.told == [("assigned", [TP0, TP1])]
    member.clock.advance(200)
    member.poll()
    while member.client.requests and member.state == "RECONCILING":
        member.client.respond(commit({TP0: NONE}), lambda body: not is_beat(body))
        member.poll(1)
    assert member.told[1:] == [("revoked", [TP0]), ("assigned", [])]


def test_topics_without_a_name_wait_for_metadata() -> None:
    member = Member(partitions={TOPIC: 2})
    member.joining()
    member.respond(answer(1, [TP0, OTHER]))
    member.poll()
    assert member.told == [("assigned", [TP0])], "what has a name does not wait"
    assert member.owned(member.beat()) == {topic_id(TOPIC): [0], topic_id("other"): [0]}
    member.respond(answer(1))
    member.poll()
    assert member.state == "RECONCILING"
    member.clock.advance(100)
    member.client.update_metadata(metadata_response({TOPIC: 2, "other": 1}))
    member.poll(1)
    assert member.told[1:] == [("assigned", [OTHER])]


def test_wait_for_topic_names_sends_no_extra_heartbeats() -> None:
    member = Member(partitions={TOPIC: 2})
    member.joining()
    member.respond(answer(1, [TP0, OTHER]))
    member.poll()
    member.respond(answer(1))
    member.poll(10)
    assert member.sent() == []


def test_wait_for_topic_names_does_not_shorten_other_waits() -> None:
    member = Member(partitions={TOPIC: 2})
    member.joining()
    member.respond(answer(1, [TP0, OTHER]))
    member.poll()
    member.client.update_metadata(metadata_response({TOPIC: 2}))
    member.clock.advance(1_000)
    assert member.manager.poll(member.clock.now_ms()).wait_ms > 1_000, "until the application polls"


def test_heartbeat_thread_rests_while_a_late_member_leaves(member: Member) -> None:
    member.join(TP0)
    steps = member.manager.revoke_all()
    next(steps)
    member.clock.advance(60_001)
    member.group.thread.run_once()
    assert member.state == "PREPARE_LEAVING"
    assert member.group.thread.run_once() > 0, "the heartbeat thread rests"
    steps.close()


def test_an_owned_topic_keeps_its_name_when_the_metadata_loses_it(member: Member) -> None:
    member.join(TP0, TP1)
    member.client.update_metadata(metadata_response({}))
    member.assign(TP1)
    member.poll(1)
    assert member.told[1:] == [("revoked", [TP0]), ("assigned", [])]


def test_new_assignment_waits_for_the_running_callback(member: Member) -> None:
    member.join()

    def change() -> None:
        member.group.listener.on_assigned = lambda: None
        member.membership.answered(
            member.membership.next_beat(member.clock.now_ms() + INTERVAL_MS, is_due=True)[0],  # type: ignore[arg-type]
            3,
            INTERVAL_MS,
            {topic_id(TOPIC): frozenset((1,))},
        )

    member.group.listener.on_assigned = change
    member.assign(TP0)
    member.poll(1)
    assert member.told[1:] == [("assigned", [TP0]), ("revoked", [TP0]), ("assigned", [TP1])]
    assert member.owned(member.beat()) == {topic_id(TOPIC): [0, 1]}, "each is acknowledged, with what comes next"
    member.respond(answer(3))
    member.poll(1)
    assert member.owned(member.beat()) == {topic_id(TOPIC): [1]}


@pytest.mark.parametrize("what", ["on_revoked", "on_assigned"])
def test_a_callback_that_fails_does_not_stop_the_rebalance(member: Member, what: str) -> None:
    member.join(TP0)

    def fail() -> None:
        raise ValueError("no")

    setattr(member.group.listener, what, fail)
    member.assign(TP1)
    with pytest.raises(KafkaError, match="no"):
        member.poll()
    member.poll()
    assert member.told[1:] == [("revoked", [TP0]), ("assigned", [TP1])]
    assert member.state == "STABLE"


@pytest.mark.parametrize(("what", "told"), [("on_revoked", "revoked"), ("on_assigned", "assigned")])
def test_interrupted_callback_is_called_again(member: Member, what: str, told: str) -> None:
    member.join(TP0)

    def once() -> None:
        setattr(member.group.listener, what, lambda: None)
        raise WakeupError("test")

    setattr(member.group.listener, what, once)
    member.assign(TP1)
    with pytest.raises(WakeupError):
        member.poll()
    member.poll()
    expected = {"revoked": [TP0], "assigned": [TP1]}
    assert [entry for entry in member.told[1:] if entry[0] == told] == [(told, expected[told])] * 2
    assert member.group.subscriptions.assigned_partitions() == {TP1}
    assert member.state == "STABLE"


def test_member_fenced_during_revocation_loses_its_partitions(member: Member) -> None:
    member.join(TP0, TP1)

    def fence() -> None:
        beat = member.membership.next_beat(member.clock.now_ms() + INTERVAL_MS, is_due=True)[0]
        assert beat is not None
        assert member.membership.fenced(beat, "test")

    member.group.listener.on_revoked = fence
    member.assign(TP1)
    member.poll()
    assert member.told[1:] == [("revoked", [TP0]), ("lost", [TP1])]
    assert member.state == "JOINING"
    assert member.group.subscriptions.assigned_partitions() == set()


# --- fencing and failures --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND])
def test_a_fenced_member_loses_its_partitions_and_joins_again(member: Member, error: int) -> None:
    member.join(TP0)
    member_id = member.next_beat().member_id
    member.respond(answer(0, error=error))
    assert member.state == "FENCED"
    member.poll()
    assert member.told[1:] == [("lost", [TP0])]
    request = member.beat()
    assert (request.member_id, request.member_epoch, request.topic_partitions) == (member_id, 0, [])
    assert request.subscribed_topic_names == [TOPIC]
    member.respond(answer(7, [TP0]))
    member.poll()
    assert member.told[2:] == [("assigned", [TP0])]


def test_a_fenced_member_does_not_wait_for_a_coordinator_to_lose_its_partitions(member: Member) -> None:
    member.join(TP0)
    member.next_beat()
    member.respond(answer(0, error=UNKNOWN_MEMBER_ID))
    member.coordinator.lookup.mark_unknown("test")
    member.poll(1)
    assert member.told[1:] == [("lost", [TP0])]


@pytest.mark.parametrize("error", [NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE])
def test_a_coordinator_that_moved_is_looked_up(member: Member, error: int) -> None:
    member.join(TP0)
    member.next_beat()
    member.group.prepare(find_coordinator(member.group.node))
    member.respond(answer(0, error=error))
    assert member.coordinator.lookup.unknown
    member.clock.advance(1_000)
    member.poll(4)
    request = member.beat()
    assert request.member_epoch == 1
    assert request.subscribed_topic_names == [TOPIC], "the new coordinator may not have got the last heartbeat"
    assert member.owned(request) == {topic_id(TOPIC): [0]}
    assert member.told == [("assigned", [TP0])]


def test_a_coordinator_that_loads_is_asked_again_after_a_backoff(member: Member) -> None:
    member.join(TP0)
    member.next_beat()
    member.respond(answer(0, error=LOAD_IN_PROGRESS))
    member.poll(1)
    assert member.sent() == []
    member.clock.advance(1_200)
    member.poll(1)
    assert member.beat().member_epoch == 1


def test_lost_connection_starts_a_coordinator_lookup(member: Member) -> None:
    member.join(TP0)
    member.next_beat()
    member.client.disconnect(member.group.coordinator_node.id_string)
    member.group.prepare(find_coordinator(member.group.node))
    member.group.step()
    member.clock.advance(2_000)
    member.poll(5)
    assert member.owned(member.beat()) == {topic_id(TOPIC): [0]}


FATAL = [
    (INVALID_REQUEST, InvalidRequestError, "because of the test"),
    (GROUP_AUTHORIZATION_FAILED, GroupAuthorizationError, "READ on group"),
    (GROUP_MAX_SIZE_REACHED, GroupMaxSizeReachedError, "group.consumer.max.size"),
    (UNSUPPORTED_ASSIGNOR, UnsupportedAssignorError, "group.remote.assignor='mine'"),
    (UNRELEASED_INSTANCE_ID, UnreleasedInstanceIdError, "group.instance.id='i'"),
    (FENCED_INSTANCE_ID, FencedInstanceIdError, "taken over"),
    (UNSUPPORTED_VERSION, UnsupportedVersionError, "group.protocol=classic"),
]


@pytest.mark.parametrize(("error", "raised", "text"), FATAL)
def test_fatal_error_is_raised_by_each_poll(error: int, raised: type[KafkaError], text: str) -> None:
    member = Member(group={"group_remote_assignor": "mine", "group_instance_id": "i"})
    member.join(TP0)
    member.next_beat()
    member.respond(answer(0, error=error))
    assert member.state == "FATAL"
    for _ in range(2):
        with pytest.raises(raised, match=re.escape(text)):
            member.poll()
    assert member.told[1:] == [("lost", [TP0])]
    assert member.sent() == []


def test_new_subscription_clears_a_fatal_error(member: Member) -> None:
    member.joining()
    member.respond(answer(0, error=GROUP_AUTHORIZATION_FAILED))
    with pytest.raises(GroupAuthorizationError):
        member.poll()
    member.coordinator.revoke_all()
    member.coordinator.leave_group(GroupMembershipOperation.DEFAULT, "test")
    member.group.subscriptions.unsubscribe()
    assert member.state == "UNSUBSCRIBED"
    member.group.subscribe()
    member.poll()
    assert member.beat().member_epoch == 0


def test_a_missing_acl_of_a_topic_does_not_end_the_membership(member: Member) -> None:
    """The member keeps its partitions and its place, and recovers as soon as the ACL exists."""
    member.join(TP0)
    for _ in range(2):
        member.next_beat()
        member.respond(answer(0, error=TOPIC_AUTHORIZATION_FAILED))
        assert member.state == "STABLE"
        with pytest.raises(TopicAuthorizationError, match="DESCRIBE on topic 'test'"):
            member.poll()
    member.poll()
    request = member.next_beat()
    assert request.member_epoch == 1
    assert request.subscribed_topic_names == [TOPIC]
    member.respond(answer(1))
    member.poll()
    assert member.told == [("assigned", [TP0])]


def test_a_missing_acl_of_a_topic_ends_the_wait_of_a_member_that_joins(member: Member) -> None:
    member.joining()
    member.client.prepare_response(answer(0, error=TOPIC_AUTHORIZATION_FAILED))
    member.respond(answer(0, error=LOAD_IN_PROGRESS))
    started_ms = member.clock.now_ms()
    with pytest.raises(TopicAuthorizationError):
        member.coordinator.poll(member.group.timer(50_000))
    assert member.clock.now_ms() - started_ms < 1_000
    assert member.state == "JOINING"


def test_unsubscribing_forgets_a_missing_acl(member: Member) -> None:
    member.join(TP0)
    member.next_beat()
    member.respond(answer(0, error=TOPIC_AUTHORIZATION_FAILED))
    member.coordinator.revoke_all()
    member.coordinator.leave_group(GroupMembershipOperation.DEFAULT, "test")
    member.group.subscriptions.unsubscribe()
    member.group.subscribe()
    member.poll()
    assert [request.member_epoch for request in member.sent()] == [-1, 0]


@pytest.mark.parametrize("error", [UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND])
def test_unknown_member_leaves_without_a_warning(member: Member, error: int, caplog: pytest.LogCaptureFixture) -> None:
    member.join(TP0)
    left = member.coordinator.leave_group(GroupMembershipOperation.DEFAULT, "test")
    member.respond(answer(-1, error=error))
    assert left.succeeded
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


# --- the poll timer --------------------------------------------------------------------------------------------------


def be_late(member: Member) -> ConsumerGroupHeartbeatRequest:
    """Let max.poll.interval.ms pass, and return the heartbeat of the heartbeat thread."""
    member.clock.advance(60_001)
    member.group.thread.run_once()
    return member.beat()


def test_an_application_that_does_not_poll_leaves(member: Member, caplog: pytest.LogCaptureFixture) -> None:
    member.join(TP0)
    with caplog.at_level(logging.WARNING):
        request = be_late(member)
    assert (request.member_epoch, request.subscribed_topic_names, request.topic_partitions) == (-1, None, None)
    assert "max.poll.interval.ms=60000" in caplog.text
    assert member.state == "STALE"
    member.respond(answer(-1))
    member.group.thread.run_once()
    assert member.sent() == []
    member.poll()
    assert member.told[1:] == [("lost", [TP0])]
    assert member.beat().member_epoch == 0


def test_a_static_member_that_does_not_poll_keeps_its_place() -> None:
    member = Member(group={"group_instance_id": "i"})
    member.join(TP0)
    request = be_late(member)
    assert (request.member_epoch, request.instance_id) == (-2, "i")


def test_a_commit_of_a_late_member_names_the_missing_poll(member: Member) -> None:
    member.join(TP0)
    be_late(member)
    with pytest.raises(CommitFailedError, match=r"poll\(\) was not called for 6\d\.\d s") as raised:
        member.coordinator.commit_sync({TP0: OffsetAndMetadata(1)}, member.group.timer(0))
    assert "Its generation was 1, and is none now" in str(raised.value)


def test_response_after_leaving_is_ignored() -> None:
    member = Member(group={"rebalance_timeout_ms": 3_000})
    member.clock.advance(60_000)
    member.join(TP0)
    member.next_beat()
    member.clock.advance(3_001)
    member.group.thread.run_once()
    assert [request.member_epoch for request in member.sent()] == [1, -1]
    member.respond(answer(9, [TP1]))
    assert member.state == "STALE"


# --- leaving ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("instance_id", "operation", "epoch"),
    [
        (None, GroupMembershipOperation.DEFAULT, -1),
        (None, GroupMembershipOperation.LEAVE_GROUP, -1),
        (None, GroupMembershipOperation.REMAIN_IN_GROUP, None),
        ("i", GroupMembershipOperation.DEFAULT, -2),
        ("i", GroupMembershipOperation.LEAVE_GROUP, -1),
        ("i", GroupMembershipOperation.REMAIN_IN_GROUP, -2),
    ],
)
def test_leaving_heartbeat_has_the_final_epoch(instance_id: str | None, operation: str, epoch: int | None) -> None:
    member = Member(group={"group_instance_id": instance_id})
    member.join(TP0)
    member.coordinator.revoke_all()
    assert member.told[1:] == [("revoked", [TP0])]
    future = member.coordinator.leave_group(operation, "test")
    assert [request.member_epoch for request in member.sent()] == ([] if epoch is None else [epoch])
    assert member.state == "UNSUBSCRIBED"
    if future is None:
        assert epoch is None
        return
    member.respond(answer(epoch or 0))
    assert future.succeeded


def test_leaving_without_a_coordinator_sends_nothing(member: Member) -> None:
    member.join(TP0)
    member.coordinator.lookup.mark_unknown("test")
    member.coordinator.revoke_all()
    assert member.coordinator.leave_group(GroupMembershipOperation.DEFAULT, "test") is None
    member.group.step()
    assert member.state == "UNSUBSCRIBED"
    assert member.sent() == []


def test_fenced_member_loses_its_partitions_when_it_leaves(member: Member) -> None:
    member.join(TP0)
    member.next_beat()
    member.respond(answer(0, error=UNKNOWN_MEMBER_ID))
    member.coordinator.revoke_all()
    assert member.told[1:] == [("lost", [TP0])]
    assert member.coordinator.leave_group(GroupMembershipOperation.DEFAULT, "test") is None
    assert member.state == "UNSUBSCRIBED"


def test_member_fenced_while_leaving_sends_no_leave(member: Member) -> None:
    member.join(TP0)
    member.next_beat()
    member.group.listener.on_revoked = lambda: member.respond(answer(0, error=UNKNOWN_MEMBER_ID))
    member.coordinator.revoke_all()
    assert member.state == "UNSUBSCRIBED"
    assert member.coordinator.leave_group(GroupMembershipOperation.DEFAULT, "test") is None
    assert member.sent() == []


def test_a_member_that_subscribes_again_joins_with_the_same_id(member: Member) -> None:
    first = member.joining().member_id
    member.respond(answer(1, [TP0]))
    member.poll()
    member.coordinator.revoke_all()
    member.coordinator.leave_group(GroupMembershipOperation.DEFAULT, "test")
    member.group.subscriptions.unsubscribe()
    member.client.requests.clear()
    member.group.subscribe()
    member.poll()
    assert (member.beat().member_id, member.beat().member_epoch) == (first, 0)


def test_closing_commits_and_leaves() -> None:
    member = Member(auto_commit_interval_ms=100_000)
    member.join(TP0)
    member.group.seek(TP0, 5)
    member.group.prepare(commit({TP0: NONE}), answer(-1))
    member.coordinator.close(member.group.timer())
    assert member.state == "UNSUBSCRIBED"
    assert member.told[1:] == [("revoked", [TP0])]
    assert not member.client.requests


# --- offsets ---------------------------------------------------------------------------------------------------------


def test_a_synchronous_commit_is_repeated_with_the_new_epoch(member: Member) -> None:
    member.join(TP0)
    epochs: list[int] = []

    def note(body: Any) -> bool:
        epochs.append(body.generation_id_or_member_epoch)
        if len(epochs) == 1:
            beat = member.membership.next_beat(member.clock.now_ms(), is_due=True)[0]
            assert beat is not None
            member.membership.answered(beat, 8, INTERVAL_MS, None)
        return True

    member.client.prepare_response(commit({TP0: STALE_MEMBER_EPOCH}), note)
    member.client.prepare_response(commit({TP0: NONE}), note)
    member.coordinator.commit_sync({TP0: OffsetAndMetadata(3)}, member.group.timer())
    assert epochs == [1, 8]


def test_async_commit_with_an_old_epoch_is_retriable(member: Member) -> None:
    member.join(TP0)
    failures: list[Exception | None] = []

    def note(_: Offsets, error: Exception | None) -> None:
        failures.append(error)

    member.group.prepare(commit({TP0: STALE_MEMBER_EPOCH}))
    member.coordinator.commit_async({TP0: OffsetAndMetadata(3)}, note)
    member.poll()
    (failure,) = failures
    assert isinstance(failure, RetriableCommitFailedError)
    assert "member epoch 1" in str(failure)


def test_a_commit_of_an_unknown_member_fences_it(member: Member) -> None:
    member.join(TP0)
    member.group.prepare(commit({TP0: UNKNOWN_MEMBER_ID}))
    with pytest.raises(CommitFailedError, match="not a member") as raised:
        member.coordinator.commit_sync({TP0: OffsetAndMetadata(3)}, member.group.timer())
    assert member.state == "FENCED"
    text = str(raised.value)
    generation = "rejoin the group. Its generation was 1, and is none now"
    for figure in (generation, " s ago (max.poll.interval.ms=60000)", "now 500"):
        assert figure in text
    assert "consumer.session.timeout.ms" in text
    assert " session.timeout.ms" not in text, "this protocol refuses that setting"


@pytest.mark.parametrize("error", [STALE_MEMBER_EPOCH, UNKNOWN_MEMBER_ID])
def test_committed_offsets_are_looked_up_as_a_member(member: Member, error: int) -> None:
    member.join(TP0)
    sent: list[Any] = []

    def note(body: Any) -> bool:
        sent.append(body.groups[0])
        return True

    member.client.prepare_response(committed({}, error=error), note)
    member.client.prepare_response(committed({TP0: OffsetAndMetadata(5)}), note)
    offsets = member.coordinator.committed([TP0], member.group.timer())
    assert offsets[TP0] is not None
    assert [(group.member_id, group.member_epoch) for group in sent] == [(member.membership.member_id, 1)] * 2


# --- the rest --------------------------------------------------------------------------------------------------------


def test_the_group_metadata_has_the_epoch(member: Member) -> None:
    assert member.coordinator.group_metadata.generation_id == -1
    member.join(TP0, epoch=6)
    metadata = member.coordinator.group_metadata
    assert (metadata.generation_id, metadata.member_id) == (6, member.membership.member_id)


@pytest.mark.parametrize("error", [FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID])
def test_the_group_metadata_of_a_fenced_member_is_its_last(member: Member, error: int) -> None:
    """Without an epoch and a member id, brokers would accept its offsets in a transaction, unchecked."""
    member.join(TP0, epoch=6)
    last = member.coordinator.group_metadata
    member.next_beat()
    member.respond(answer(0, error=error))
    assert member.state == "FENCED"
    assert member.coordinator.group_metadata == last
    member.poll()
    assert member.state == "JOINING"
    assert member.coordinator.group_metadata == last
    member.respond(answer(8, [TP0]))
    assert member.coordinator.group_metadata == last._replace(generation_id=8)


def test_the_group_metadata_of_a_member_that_did_not_poll_is_its_last(member: Member) -> None:
    member.join(TP0, epoch=6)
    last = member.coordinator.group_metadata
    be_late(member)
    assert member.state == "STALE"
    assert member.coordinator.group_metadata == last


def test_the_group_metadata_of_a_member_that_has_left_is_empty(member: Member) -> None:
    member.join(TP0, epoch=6)
    member.coordinator.leave_group(GroupMembershipOperation.LEAVE_GROUP, "test")
    assert (member.coordinator.group_metadata.generation_id, member.coordinator.group_metadata.member_id) == (-1, "")


def test_rejoin_requests_are_ignored_with_a_warning(member: Member, caplog: pytest.LogCaptureFixture) -> None:
    member.join(TP0)
    member.coordinator.request_rejoin("a reason")
    member.poll()
    assert member.sent() == []
    assert "a reason" in caplog.text


def test_metrics_count_rebalances_and_heartbeats(member: Member) -> None:
    assert member.group.metric("last-rebalance-seconds-ago") == -1
    member.join(TP0)
    assert member.group.metric("rebalance-total") == 1
    assert member.group.metric("heartbeat-total") == 2
    assert member.group.metric("last-heartbeat-seconds-ago") == 0
    assert member.group.metric("assigned-partitions") == 1
    member.next_beat()
    member.respond(answer(0, error=UNKNOWN_MEMBER_ID))
    member.poll()
    assert member.group.metric("failed-rebalance-total") == 0, "there was no rebalance"
    member.respond(answer(2, [TP0, TP1]))
    member.clock.advance(INTERVAL_MS)
    member.group.thread.run_once()
    member.respond(answer(0, error=UNKNOWN_MEMBER_ID))
    member.poll()
    assert member.group.metric("failed-rebalance-total") == 1
    assert not [name for name in member.group.metrics.metrics if name.name.startswith(("join-", "sync-"))]


def test_rebalance_is_logged_in_one_line(member: Member, caplog: pytest.LogCaptureFixture) -> None:
    """At info level: the time it took, the epoch, what moved, and why."""
    caplog.set_level("INFO", "pykclient")
    member.join(TP0)
    member.assign(TP1)
    member.poll()
    member.respond(answer(2))
    member.next_beat()
    member.respond(answer(0, error=UNKNOWN_MEMBER_ID))
    member.poll()
    member.respond(answer(4, [TP0]))
    member.poll()
    told = [record.getMessage() for record in caplog.records if "Rebalanced in" in record.getMessage()]
    assert len(told) == 3
    assert f"ms to generation 1 (member {member.membership.member_id}): " in told[0]
    assert f"gained 1 ({TP0}), gave back none, has 1 partitions. Why: this member is new" in told[0]
    assert f"gained 1 ({TP1}), gave back 1 ({TP0}), has 1 partitions. Why: the coordinator changed the" in told[1]
    assert f"gained 1 ({TP0}), gave back none, has 1 partitions. Why: the coordinator had removed it" in told[2]


def test_a_pattern_follows_the_metadata(member: Member) -> None:
    member.group.subscriptions.subscribe_pattern(re.compile("te.*"), member.group.listener)
    member.group.prepare(find_coordinator(member.group.node))
    member.client.update_metadata(metadata_response({TOPIC: 2}))
    member.client.prepare_metadata_update(metadata_response({TOPIC: 2}))
    member.poll(4)
    assert member.beat().subscribed_topic_names == [TOPIC]
    member.respond(answer(1, []))
    member.poll()
    member.respond(answer(1))
    assert member.state == "STABLE"
    member.client.prepare_metadata_update(metadata_response({TOPIC: 2, "ten": 1, "other": 1}))
    member.client.update_metadata(metadata_response({TOPIC: 2, "ten": 1, "other": 1}))
    member.poll()
    assert member.beat().subscribed_topic_names == ["ten", TOPIC]


def test_a_pattern_is_sent_to_the_brokers_when_it_changes(member: Member) -> None:
    subscriptions = member.group.subscriptions
    subscriptions.subscribe_broker_pattern(SubscriptionPattern("t.*"), member.group.listener)
    member.group.prepare(find_coordinator(member.group.node))
    member.poll(4)
    assert (member.beat().subscribed_topic_names, member.beat().subscribed_topic_regex) == ([], "t.*")
    member.respond(answer(1, [TP0]))
    member.poll()
    assert subscriptions.assigned_topic_ids() == {topic_id(TOPIC)}
    assert member.beat().subscribed_topic_regex is None
    member.respond(answer(1))
    subscriptions.subscribe_broker_pattern(SubscriptionPattern("te.*"), member.group.listener)
    member.poll(1)
    assert member.beat().subscribed_topic_regex == "te.*"
    assert subscriptions.is_assigned(TP0)


def test_an_interrupted_call_sends_all_fields_again(member: Member) -> None:
    member.join(TP0)
    member.next_beat()
    member.group.network.reset()
    member.clock.advance(1_000)
    member.poll(4)
    assert member.owned(member.beat()) == {topic_id(TOPIC): [0]}


def test_reported_state_follows_the_membership(member: Member) -> None:
    def reported() -> str:
        state: MemberState = member.coordinator.membership.state
        return state.reported

    assert reported() == "<unjoined>"
    member.joining()
    assert reported() == "<rebalancing>"
    member.respond(answer(1, [TP0]))
    member.poll()
    assert reported() == "<stable>"
