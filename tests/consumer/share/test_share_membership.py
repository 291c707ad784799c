"""The membership in a share group: each edge of its state table, as events of a share member lead over it."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from pykclient.config.consumer_config import ShareConsumerConfig
from pykclient.consumer.application_driver import UnsentRequest
from pykclient.consumer.consumer_metadata import ConsumerMetadata
from pykclient.consumer.coordinator import consumer_membership
from pykclient.consumer.coordinator.consumer_membership import (
    ACKNOWLEDGING,
    FATAL,
    FENCED,
    JOINING,
    LEAVING,
    PREPARE_LEAVING,
    RECONCILING,
    STALE,
    TRANSITIONS,
    UNSUBSCRIBED,
    ConsumerMembership,
    move,
)
from pykclient.consumer.coordinator.membership import STABLE, GroupRebalanceConfig, MemberState
from pykclient.consumer.share.share_coordinator import (
    ShareCoordinatorMetrics,
    ShareHeartbeatRequestManager,
    ShareMembershipManager,
)
from pykclient.consumer.subscription_state import SubscriptionState
from pykclient.consumer.values import AutoOffsetResetStrategy, GroupMembershipOperation
from pykclient.errors import (
    BrokerError,
    DisconnectError,
    GroupAuthorizationError,
    TopicAuthorizationError,
    UnknownMemberIdError,
)
from pykclient.log_context import LogContext
from pykclient.metrics import Metrics
from pykclient.network.exponential_backoff import ExponentialBackoff
from pykclient.network.failures import group_denied
from pykclient.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from pykclient.types import Node, TopicPartition
from tests.consumer.responses import metadata_response, topic_id
from tests.consumer.unsent import message, respond
from tests.support.mock_clock import MockClock

TOPIC, OTHER = "t", "other"
INTERVAL_MS, POLL_INTERVAL_MS = 5_000, 60_000

Edge = tuple[MemberState, MemberState]


class KnownCoordinator:
    """The part of CoordinatorRequestManager that heartbeats use."""

    def __init__(self) -> None:
        self.node: Node | None = Node(7, "localhost", 9092)
        self.unknown = False

    def check_and_get(self) -> Node | None:
        return self.node

    def mark_unknown(self, why: str, *, is_disconnected: bool = False) -> None:
        self.node, self.unknown = None, True

    def judged(self, request_name: str, error: BrokerError) -> BrokerError:
        return group_denied(None, "g") if isinstance(error, GroupAuthorizationError) else error


class ShareMember:
    """A member of a share group that has subscribed, with heartbeats that tests answer."""

    def __init__(self) -> None:
        self.clock = MockClock()
        log = LogContext()
        config = ShareConsumerConfig({"bootstrap.servers": "localhost:9092", "group.id": "g"})
        self.subscriptions = SubscriptionState(log, AutoOffsetResetStrategy.NONE)
        self.subscriptions.subscribe({TOPIC})
        self.metadata = ConsumerMetadata(config, self.subscriptions, log)
        self.learn(TOPIC)
        group = GroupRebalanceConfig("g", rebalance_timeout_ms=POLL_INTERVAL_MS)
        backoff = ExponentialBackoff(100, 1_000, jitter=0.0)
        self.membership = ConsumerMembership(group, log, self.clock, backoff, random.Random(1))
        metrics = ShareCoordinatorMetrics(Metrics(clock=self.clock), self.membership)
        self.lookup = KnownCoordinator()
        self.heartbeats = ShareHeartbeatRequestManager(
            group,
            log,
            self.membership,
            self.lookup,  # type: ignore[arg-type]
            self.subscriptions,
            metrics.heartbeat,
        )
        self.manager = ShareMembershipManager(log, self.membership, self.metadata, self.subscriptions, metrics)
        self.unsent: UnsentRequest | None = None

    def learn(self, *topics: str) -> None:
        """Receive metadata."""
        self.metadata.update_with_current_request_version(metadata_response(dict.fromkeys(topics, 2)), False, 0)

    @property
    def state(self) -> MemberState:
        return self.membership.state

    @property
    def assigned(self) -> list[TopicPartition]:
        return sorted(self.subscriptions.assigned_partitions())

    def beat(self) -> ShareGroupHeartbeatRequest:
        """Wait until a heartbeat is due, and send it."""
        self.clock.advance(INTERVAL_MS)
        (self.unsent,) = self.heartbeats.poll(self.clock.now_ms()).requests
        request = message(self.unsent)
        assert isinstance(request, ShareGroupHeartbeatRequest)
        return request

    def answer(self, *partitions: int, topic: str = TOPIC, error: int = 0) -> None:
        """Answer the heartbeat in flight, with a new assignment if there are partitions."""
        of = ShareGroupHeartbeatResponse
        response = of(error_code=error, member_epoch=1, heartbeat_interval_ms=INTERVAL_MS)
        if partitions:
            topics = [of.TopicPartitions(topic_id=topic_id(topic), partitions=partitions)]
            response.assignment = of.Assignment(topic_partitions=topics)
        assert self.unsent is not None
        respond(self.unsent, response)

    def leave(self) -> None:
        self.heartbeats.leave(GroupMembershipOperation.DEFAULT, "of the test")


# --- how a member comes into each state, with a heartbeat in flight where it sends some -------------------------------


def joining(member: ShareMember) -> None:
    member.manager.advance()
    member.beat()


def reconciling(member: ShareMember) -> None:
    joining(member)
    member.answer(0)
    member.beat()


def acknowledging(member: ShareMember) -> None:
    reconciling(member)
    member.manager.advance()


def stable(member: ShareMember) -> None:
    acknowledging(member)
    member.answer()
    member.beat()


def fenced(member: ShareMember) -> None:
    stable(member)
    member.answer(error=UnknownMemberIdError.code)


def fatal(member: ShareMember) -> None:
    stable(member)
    member.answer(error=GroupAuthorizationError.code)


def leaving(member: ShareMember) -> None:
    stable(member)
    member.answer()
    member.leave()


def stale(member: ShareMember) -> None:
    """The application does not poll, and the member says that it leaves."""
    stable(member)
    member.answer()
    member.clock.advance(POLL_INTERVAL_MS)
    assert member.beat().member_epoch == -1


def nothing(_: ShareMember) -> None: ...


MEMBERS: dict[MemberState, Callable[[ShareMember], None]] = {
    UNSUBSCRIBED: nothing,
    JOINING: joining,
    RECONCILING: reconciling,
    ACKNOWLEDGING: acknowledging,
    STABLE: stable,
    LEAVING: leaving,
    FENCED: fenced,
    STALE: stale,
    FATAL: fatal,
}


def new_target(member: ShareMember) -> None:
    member.answer(1)


def new_target_and_beat(member: ShareMember) -> None:
    member.answer(1)
    member.beat()


def answer_and_beat(member: ShareMember) -> None:
    member.answer()
    member.beat()


def lost_coordinator(member: ShareMember) -> None:
    member.lookup.mark_unknown("")
    assert not member.heartbeats.poll(member.clock.now_ms()).requests


def late(member: ShareMember) -> None:
    """Be late, and lose the coordinator before the member can say that it leaves."""
    member.clock.advance(POLL_INTERVAL_MS)
    assert member.membership.is_late(member.clock.now_ms(), "of the test")
    lost_coordinator(member)


SENDING = (JOINING, RECONCILING, ACKNOWLEDGING, STABLE)

#: What leads over each edge. A member in PREPARE_LEAVING goes on to LEAVING in the same step.
EVENTS: dict[Edge, tuple[MemberState, Callable[[ShareMember], object]]] = {
    (UNSUBSCRIBED, JOINING): (UNSUBSCRIBED, lambda member: member.manager.advance()),
    (JOINING, RECONCILING): (JOINING, lambda member: member.answer(0)),
    (RECONCILING, ACKNOWLEDGING): (RECONCILING, lambda member: member.manager.advance()),
    (ACKNOWLEDGING, STABLE): (ACKNOWLEDGING, answer_and_beat),
    (ACKNOWLEDGING, RECONCILING): (ACKNOWLEDGING, new_target_and_beat),
    (STABLE, RECONCILING): (STABLE, new_target),
    **{(of, FENCED): (of, lambda member: member.answer(error=UnknownMemberIdError.code)) for of in SENDING},
    **{(of, FATAL): (of, lambda member: member.answer(error=GroupAuthorizationError.code)) for of in SENDING},
    **{(of, PREPARE_LEAVING): (of, ShareMember.leave) for of in SENDING},
    (PREPARE_LEAVING, LEAVING): (STABLE, ShareMember.leave),
    (LEAVING, UNSUBSCRIBED): (LEAVING, lost_coordinator),
    (LEAVING, STALE): (STABLE, late),
    **{(of, JOINING): (of, lambda member: member.manager.advance()) for of in (FENCED, STALE)},
    **{(of, UNSUBSCRIBED): (of, ShareMember.leave) for of in (FENCED, STALE, FATAL)},
}

#: Edges of members that own partitions: they revoke them before they leave, and a target may be what they own already.
NOT_OF_SHARE_MEMBERS = {(PREPARE_LEAVING, UNSUBSCRIBED), (JOINING, STABLE), (RECONCILING, STABLE)}


def test_every_transition_has_an_event() -> None:
    edges = {(state, to) for state, targets in TRANSITIONS.items() for to in targets}
    assert set(EVENTS) == edges - NOT_OF_SHARE_MEMBERS


@pytest.mark.parametrize("edge", EVENTS, ids=lambda edge: f"{edge[0]}-{edge[1]}")
def test_event_causes_its_transition(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    member = ShareMember()
    start, event = EVENTS[edge]
    MEMBERS[start](member)
    assert member.state is start
    taken: list[Edge] = []

    def noted(state: MemberState, to: MemberState) -> MemberState:
        taken.append((state, to))
        return move(state, to)

    monkeypatch.setattr(consumer_membership, "move", noted)
    event(member)
    assert edge in taken
    assert member.state is taken[-1][1]


# --- what share members do on their way -------------------------------------------------------------------------------


def test_member_sends_its_subscription_once() -> None:
    member = ShareMember()
    member.manager.advance()
    request = member.beat()
    assert (request.member_epoch, request.subscribed_topic_names) == (0, [TOPIC])
    member.answer(0, 1)
    assert member.beat().subscribed_topic_names is None
    member.manager.advance()
    assert member.assigned == [TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)]
    member.answer()
    assert member.beat().member_epoch == 1
    member.answer()
    member.subscriptions.subscribe({TOPIC, OTHER})
    assert member.beat().subscribed_topic_names == [OTHER, TOPIC]


def test_unanswered_heartbeat_sends_all_fields_again() -> None:
    member = ShareMember()
    member.manager.advance()
    member.beat()
    member.answer(0)
    member.beat()
    assert member.unsent is not None
    member.unsent.future.raise_error(DisconnectError("lost"))
    assert member.lookup.unknown
    member.lookup.node = Node(7, "localhost", 9092)
    assert member.beat().subscribed_topic_names == [TOPIC]


def test_a_missing_acl_of_a_topic_does_not_end_the_membership() -> None:
    member = ShareMember()
    stable(member)
    member.answer(error=TopicAuthorizationError.code)
    with pytest.raises(TopicAuthorizationError, match="DESCRIBE on topic 't'"):
        member.heartbeats.raise_failure()
    member.heartbeats.raise_failure()
    assert (member.state, member.assigned) == (STABLE, [TopicPartition(TOPIC, 0)])
    assert member.beat().member_epoch == 1


@pytest.mark.parametrize("state", [FENCED, STALE, FATAL])
def test_a_member_outside_of_the_group_has_no_partitions(state: MemberState) -> None:
    member = ShareMember()
    MEMBERS[state](member)
    assert member.assigned == [TopicPartition(TOPIC, 0)], "until the application polls"
    member_id = member.membership.member_id
    if state is FATAL:
        for _ in range(2):
            with pytest.raises(GroupAuthorizationError, match="READ on group 'g'"):
                member.manager.advance()
    else:
        member.manager.advance()
        request = member.beat()
        assert (request.member_id, request.member_epoch) == (member_id, 0)
    assert member.assigned == []


def test_topics_without_a_name_wait_for_metadata() -> None:
    member = ShareMember()
    joining(member)
    member.answer(0, topic=OTHER)
    member.manager.advance()
    assert member.state is RECONCILING
    assert not member.manager.needs_application, "until there is other metadata"
    member.learn(TOPIC, OTHER)
    assert member.manager.needs_application
    member.manager.advance()
    assert member.state is ACKNOWLEDGING
    assert member.assigned == [TopicPartition(OTHER, 0)]


def test_response_to_an_earlier_membership_is_ignored() -> None:
    member = ShareMember()
    stable(member)
    late_answer = member.unsent
    assert late_answer is not None
    member.leave()
    member.beat()
    member.manager.advance()
    respond(late_answer, ShareGroupHeartbeatResponse(error_code=UnknownMemberIdError.code))
    assert member.state is JOINING
