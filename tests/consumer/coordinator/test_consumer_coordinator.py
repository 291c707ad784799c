"""Subscriptions, assignments and rebalances of a group member (after Java's ConsumerCoordinatorTest)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from pykclient.consumer.coordinator import classic_rebalance
from pykclient.consumer.coordinator.membership import STABLE, UNJOINED
from pykclient.consumer.partition_assignors import (
    Assignment,
    ConsumerPartitionAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    Subscription,
)
from pykclient.errors import (
    ConfigError,
    IllegalStateError,
    KafkaError,
    RemoteProtocolError,
    TopicAuthorizationError,
    WakeupError,
)
from pykclient.network.metadata import Cluster
from pykclient.types import ConsumerGroupMetadata, TopicPartition
from tests.consumer.coordinator.harness import (
    ILLEGAL_GENERATION,
    MEMBER,
    REBALANCE_IN_PROGRESS,
    TOPIC,
    TP0,
    TP1,
    UNKNOWN_MEMBER_ID,
    GroupHarness,
    commit,
    find_coordinator,
    join,
    leave,
    noting,
    sync,
)
from tests.consumer.responses import metadata_response

OTHER = TopicPartition("other", 0)


@pytest.fixture
def group() -> GroupHarness:
    h = GroupHarness()
    h.subscribe()
    return h


def assignments_in(request: Any) -> dict[str, list[TopicPartition]]:
    return {
        member.member_id: list(classic_rebalance.deserialize_assignment(member.assignment).partitions)
        for member in request.assignments
    }


def offers_of(group: GroupHarness) -> Sequence[tuple[str, bytes]]:
    return group.driver.run(group.member.protocol.offers())


class TestAssignments:
    def test_follower_takes_its_assignment(self, group: GroupHarness) -> None:
        group.join(TP1)
        assert group.subscriptions.assigned_partitions() == {TP1}
        assert group.listener.told == [("assigned", [TP1])]
        assert group.coordinator.group_metadata == ConsumerGroupMetadata("a-group", 1, MEMBER, None)
        assert group.metric("assigned-partitions") == 1

    def test_leader_divides_partitions_among_members(self, group: GroupHarness) -> None:
        sent: list[Any] = []
        group.prepare(find_coordinator(group.node), join(subscriptions={MEMBER: [TOPIC], "member-2": [TOPIC]}))
        group.client.prepare_response(sync(TP0), noting(sent))
        assert group.coordinator.poll(group.timer())
        assert assignments_in(sent[0]) == {MEMBER: [TP0], "member-2": [TP1]}
        assert group.member.protocol.is_leader

    def test_the_leader_fetches_metadata_of_the_others_topics(self, group: GroupHarness) -> None:
        sent: list[Any] = []
        group.prepare(find_coordinator(group.node), join(subscriptions={MEMBER: [TOPIC], "member-2": ["other"]}))
        group.client.prepare_metadata_update(metadata_response({TOPIC: 2, "other": 1}))
        group.client.prepare_response(sync(TP0, TP1), noting(sent))
        assert group.coordinator.poll(group.timer())
        assert assignments_in(sent[0]) == {MEMBER: [TP0, TP1], "member-2": [OTHER]}

    def test_leader_without_any_broker_waits_for_metadata_before_it_assigns(self, group: GroupHarness) -> None:
        """After a rebootstrap the assignor would see no topic, and all members would get nothing."""
        sent: list[Any] = []
        group.find_coordinator()
        group.coordinator.poll(group.timer(0))
        group.metadata.request_update(False)
        group.client.respond(join(subscriptions={MEMBER: [TOPIC]}))
        group.coordinator.poll(group.timer(0))
        group.metadata.bootstrap([("localhost", 9092)])
        group.metadata.rebootstrap()
        group.coordinator.poll(group.timer(0))
        group.client.update_metadata(metadata_response({TOPIC: 2}))
        group.client.prepare_response(sync(TP0, TP1), noting(sent))
        assert group.coordinator.poll(group.timer())
        assert assignments_in(sent[0]) == {MEMBER: [TP0, TP1]}

    def test_leader_rejoins_when_it_has_assigned_without_metadata(self, group: GroupHarness) -> None:
        """A rebootstrap may come right before the assignor gets the metadata."""
        group.join(TP0, TP1, leader=True)
        group.metadata.bootstrap([("localhost", 9092)])
        group.metadata.rebootstrap()
        given = group.driver.run(group.member.protocol.distribute())
        assert classic_rebalance.deserialize_assignment(given[MEMBER]).partitions == []
        group.client.update_metadata(metadata_response({TOPIC: 2}))
        group.member.protocol.metadata_updated()
        assert group.coordinator.rejoin_needed_or_pending()

    def test_rebalance_is_logged_in_one_line(self, group: GroupHarness, caplog: pytest.LogCaptureFixture) -> None:
        """At info level: the time it took, the generation, what moved, and why."""
        caplog.set_level("INFO", "pykclient")
        group.join(TP0)
        group.coordinator.request_rejoin("a test")
        group.prepare(join(2), sync(TP1))
        assert group.coordinator.poll(group.timer())
        told = [record.getMessage() for record in caplog.records if "Rebalanced in" in record.getMessage()]
        assert len(told) == 2
        assert "to generation 1 (member " in told[0]
        assert f"gained 1 ({TP0}), gave back none, has 1 partitions. Why: " in told[0]
        assert f"gained 1 ({TP1}), gave back 1 ({TP0}), has 1 partitions. Why: a test" in told[1]

    def test_a_static_leader_that_returns_does_not_assign(self) -> None:
        group = GroupHarness(group={"group_instance_id": "i"})
        group.subscribe()
        sent: list[Any] = []
        group.prepare(find_coordinator(group.node), join(subscriptions={MEMBER: [TOPIC]}, skip_assignment=True))
        group.client.prepare_response(sync(TP0), noting(sent))
        assert group.coordinator.poll(group.timer())
        assert sent[0].assignments == []
        # It still watches the metadata, as any leader does.
        group.client.update_metadata(metadata_response({TOPIC: 3}))
        group.member.protocol.metadata_updated()
        assert group.coordinator.rejoin_needed_or_pending()

    def test_subscription_change_while_joining_causes_a_rejoin(self, group: GroupHarness) -> None:
        group.find_coordinator()
        group.coordinator.poll(group.timer(0))
        group.subscriptions.subscribe({"other"}, group.listener)
        group.client.update_metadata(metadata_response({TOPIC: 2, "other": 1}))
        group.client.respond(join(1))
        group.prepare(sync(TP0))
        group.prepare(join(2), sync(OTHER))
        assert group.coordinator.poll(group.timer())
        assert group.subscriptions.assigned_partitions() == {OTHER}
        assert group.member.membership.generation.generation_id == 2

    def test_empty_assignment_is_reported_to_the_listener(self, group: GroupHarness) -> None:
        group.join()
        assert group.subscriptions.assigned_partitions() == set()
        assert group.listener.told[-1] == ("assigned", [])

    def test_an_assignment_without_bytes_is_empty(self, group: GroupHarness) -> None:
        """The coordinator sends no bytes to a member that the leader's assignor left out."""
        response = sync()
        response.assignment = b""
        group.prepare(find_coordinator(group.node), join(), response)
        assert group.coordinator.poll(group.timer())
        assert group.subscriptions.assigned_partitions() == set()
        assert group.listener.told[-1] == ("assigned", [])

    def test_omitted_member_gets_an_explicit_empty_assignment(self) -> None:
        """The leader sends an explicit empty assignment, because Java members cannot parse one without bytes."""

        class OnlyTheFirst(RoundRobinAssignor):
            def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
                return {MEMBER: Assignment([TP0, TP1])}

        group = GroupHarness(assignors=[OnlyTheFirst()])
        group.subscribe()
        group.find_coordinator()
        sent: list[Any] = []
        group.prepare(join(subscriptions={MEMBER: [TOPIC], "another": [TOPIC]}, protocol="roundrobin"))
        group.client.prepare_response(sync(TP0, TP1, protocol="roundrobin"), noting(sent))
        assert group.coordinator.poll(group.timer())
        given = {one.member_id: classic_rebalance.deserialize_assignment(one.assignment) for one in sent[0].assignments}
        assert {member_id: one.partitions for member_id, one in given.items()} == {MEMBER: [TP0, TP1], "another": []}

    def test_unreadable_assignment_raises(self, group: GroupHarness) -> None:
        response = sync()
        response.assignment = b"\x00\x00\x7f\xff\xff\xff"
        group.prepare(find_coordinator(group.node), join(), response)
        with pytest.raises(RemoteProtocolError, match="the leader sent an assignment"):
            group.coordinator.poll(group.timer())

    def test_a_member_that_sends_garbage_does_not_kill_the_leader(self, group: GroupHarness) -> None:
        response = join(subscriptions={MEMBER: [TOPIC]})
        response.members[0].metadata = b"\x00\x01\xff"
        group.prepare(find_coordinator(group.node), response)
        with pytest.raises(RemoteProtocolError):
            group.coordinator.poll(group.timer())
        group.prepare(join(2), sync(TP0))
        assert group.coordinator.poll(group.timer())

    def test_join_fails_if_the_chosen_assignor_was_not_offered(self, group: GroupHarness) -> None:
        group.prepare(find_coordinator(group.node), join(protocol="sticky"), sync(TP0, protocol="sticky"))
        with pytest.raises(IllegalStateError, match="'sticky'"):
            group.coordinator.poll(group.timer())

    def test_member_offers_all_assignors_with_its_state(self) -> None:
        group = GroupHarness(assignors=[RoundRobinAssignor(), RangeAssignor()], group={"rack_id": "r1"})
        group.subscribe("b", TOPIC)
        group.join(TP0)
        offers = dict(offers_of(group))
        assert list(offers) == ["roundrobin", "range"]
        subscription = classic_rebalance.deserialize_subscription(offers["range"])
        assert (subscription.topics, subscription.rack_id) == (["b", TOPIC], "r1")
        assert (subscription.owned_partitions, subscription.generation_id) == ([TP0], 1)


class TestCustomAssignor:
    class OneForAll(ConsumerPartitionAssignor):
        """An assignor that gives one member TP0 and OTHER, to which nobody subscribed."""

        name = "one-for-all"

        def __init__(self) -> None:
            self.told: list[tuple[Assignment, ConsumerGroupMetadata]] = []
            self.failure: Exception | None = None

        def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
            if self.failure is not None:
                raise self.failure
            return {member: Assignment([TP0, OTHER]) for member in sorted(subscriptions)[:1]}

        def subscription_user_data(self, topics: object) -> bytes:
            return b"mine"

        def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:
            self.told.append((assignment, metadata))

    def test_custom_assignor_may_use_unsubscribed_topics(self) -> None:
        assignor = self.OneForAll()
        group = GroupHarness(assignors=[assignor])
        group.subscribe()
        group.client.prepare_metadata_update(metadata_response({TOPIC: 2, "other": 1}))
        group.prepare(find_coordinator(group.node), join(subscriptions={MEMBER: [TOPIC]}, protocol=assignor.name))
        group.prepare(sync(TP0, protocol=assignor.name))
        assert group.coordinator.poll(group.timer())
        assert group.subscriptions.metadata_topics() == {TOPIC, "other"}
        assert assignor.told[0][0].partitions == [TP0]
        assert assignor.told[0][1].generation_id == 1
        (offer,) = offers_of(group)
        assert classic_rebalance.deserialize_subscription(offer[1]).user_data == b"mine"

    def test_assignor_exception_is_raised_by_poll(self) -> None:
        assignor = self.OneForAll()
        assignor.failure = ZeroDivisionError("no members")
        group = GroupHarness(assignors=[assignor])
        group.subscribe()
        group.prepare(find_coordinator(group.node), join(subscriptions={MEMBER: [TOPIC]}, protocol=assignor.name))
        with pytest.raises(ZeroDivisionError):
            group.coordinator.poll(group.timer())
        assert group.coordinator.rejoin_needed_or_pending()

    def test_assignors_must_agree_on_a_protocol(self) -> None:
        class Cooperative(RangeAssignor):
            name = "cooperative"
            supported_protocols = (1,)

        with pytest.raises(ConfigError, match="no rebalance protocol in common"):
            GroupHarness(assignors=[RangeAssignor(), Cooperative()])


class TestCooperative:
    """Assignors that let members keep their partitions during a rebalance (KIP-429)."""

    class Cooperative(RangeAssignor):
        name = "cooperative"
        supported_protocols = (0, 1)

    def member(self) -> GroupHarness:
        group = GroupHarness(assignors=[self.Cooperative()])
        group.subscribe()
        group.prepare(find_coordinator(group.node), join(protocol="cooperative"))
        group.prepare(sync(TP0, TP1, protocol="cooperative"))
        assert group.coordinator.poll(group.timer())
        return group

    def test_kept_partitions_are_not_revoked(self) -> None:
        group = self.member()
        group.seek(TP0, 7)
        group.coordinator.request_rejoin("test")
        group.prepare(join(2, protocol="cooperative"), sync(TP0, protocol="cooperative"))
        group.prepare(join(3, protocol="cooperative"), sync(TP0, protocol="cooperative"))
        assert group.coordinator.poll(group.timer())
        assert group.listener.told == [("assigned", [TP0, TP1]), ("revoked", [TP1]), ("assigned", []), ("assigned", [])]
        assert group.subscriptions.position(TP0) is not None
        assert group.member.membership.generation.generation_id == 3

    def test_cooperative_assignor_must_not_move_owned_partitions(self) -> None:
        group = GroupHarness(assignors=[self.Cooperative()])
        group.subscribe()
        response = join(subscriptions={MEMBER: [TOPIC], "m2": [TOPIC]}, protocol="cooperative")
        owner = Subscription([TOPIC], owned_partitions=[TP0, TP1], generation_id=1)
        response.members[1].metadata = classic_rebalance.serialize_subscription(owner)
        group.prepare(find_coordinator(group.node), response)
        with pytest.raises(IllegalStateError, match="still have an owner: test-1"):
            group.coordinator.poll(group.timer())


class TestRejoining:
    def test_leader_rejoins_when_partitions_are_added(self, group: GroupHarness) -> None:
        group.join(TP0, TP1, leader=True)
        assert not group.coordinator.rejoin_needed_or_pending()
        group.client.update_metadata(metadata_response({TOPIC: 3}))
        group.prepare(join(2, subscriptions={MEMBER: [TOPIC]}), sync(TP0, TP1, TopicPartition(TOPIC, 2)))
        assert group.coordinator.poll(group.timer())
        assert len(group.subscriptions.assigned_partitions()) == 3

    def test_follower_does_not_rejoin_when_partitions_are_added(self, group: GroupHarness) -> None:
        group.join(TP0)
        group.client.update_metadata(metadata_response({TOPIC: 3}))
        assert group.coordinator.poll(group.timer(0))
        assert group.member.membership.generation.generation_id == 1

    def test_former_leader_ignores_metadata_changes(self, group: GroupHarness) -> None:
        group.join(TP0, TP1, leader=True)
        group.client.update_metadata(metadata_response({TOPIC: 3}))
        group.prepare(join(2), sync(TP0))
        assert group.coordinator.poll(group.timer())
        group.client.update_metadata(metadata_response({TOPIC: 4}))
        assert group.coordinator.poll(group.timer(0))
        assert not group.coordinator.rejoin_needed_or_pending()

    def test_unchanged_metadata_causes_no_rejoin(self, group: GroupHarness) -> None:
        group.join(TP0, TP1, leader=True)
        group.client.update_metadata(metadata_response({TOPIC: 2}, epoch=9))
        assert group.coordinator.poll(group.timer(0))
        assert not group.coordinator.rejoin_needed_or_pending()

    def test_rebootstrap_causes_no_rejoin(self, group: GroupHarness) -> None:
        """Rebootstrapping clears the metadata but does not trigger a rebalance."""
        group.join(TP0, TP1, leader=True)
        group.metadata.bootstrap([("localhost", 9092)])
        group.metadata.rebootstrap()
        assert group.coordinator.poll(group.timer(0))
        assert not group.coordinator.rejoin_needed_or_pending()
        group.client.update_metadata(metadata_response({TOPIC: 2}))
        assert group.coordinator.poll(group.timer(0))
        assert not group.coordinator.rejoin_needed_or_pending()

    @pytest.mark.parametrize(("rack", "rejoins"), [("r1", True), (None, False)])
    def test_changed_racks_cause_a_rejoin_of_members_with_racks(self, rack: str | None, rejoins: bool) -> None:
        group = GroupHarness(group={"rack_id": rack})
        group.subscribe()
        group.join(TP0, TP1, leader=True)
        response = metadata_response({TOPIC: 2})
        response.brokers[0].rack = "elsewhere"
        group.client.update_metadata(response)
        group.member.protocol.metadata_updated()
        assert group.coordinator.rejoin_needed_or_pending() is rejoins

    def test_changed_subscription_causes_a_rejoin(self, group: GroupHarness) -> None:
        group.join(TP0)
        group.subscribe("other", TOPIC)
        group.prepare(join(2), sync(TP0, OTHER))
        assert group.coordinator.poll(group.timer())
        assert group.listener.told[-2:] == [("revoked", [TP0]), ("assigned", [OTHER, TP0])]

    def test_manually_assigned_consumers_never_join(self) -> None:
        group = GroupHarness()
        group.subscriptions.assign_from_user([TP0])
        assert group.coordinator.poll(group.timer())
        assert not group.client.requests
        assert not group.coordinator.rejoin_needed_or_pending()


class TestPatterns:
    def test_pattern_subscribes_to_matching_topics(self) -> None:
        group = GroupHarness(partitions={TOPIC: 1, "test2": 1, "unrelated": 1})
        group.subscriptions.subscribe_pattern(re.compile("test.*"), group.listener)
        group.client.update_metadata(metadata_response(group.partitions))
        group.client.prepare_metadata_update(metadata_response(group.partitions))
        group.prepare(find_coordinator(group.node), join(), sync(TP0))
        assert group.coordinator.poll(group.timer())
        assert group.subscriptions.subscription() == {TOPIC, "test2"}

    def test_a_new_topic_makes_the_group_rebalance(self) -> None:
        group = GroupHarness()
        group.subscriptions.subscribe_pattern(re.compile("test.*"), group.listener)
        group.client.prepare_metadata_update(metadata_response({TOPIC: 1}))
        group.join(TP0, leader=True)
        new = TopicPartition("test2", 0)
        group.client.update_metadata(metadata_response({TOPIC: 1, "test2": 1}))
        group.client.prepare_metadata_update(metadata_response({TOPIC: 1, "test2": 1}))
        sent: list[Any] = []
        group.client.prepare_response(join(2, subscriptions={MEMBER: [TOPIC, "test2"]}), noting(sent))
        group.prepare(sync(TP0, new))
        assert group.coordinator.poll(group.timer())
        assert group.subscriptions.assigned_partitions() == {TP0, new}
        assert sent[0].reason in ("cached metadata has changed", "subscription has changed")

    def test_assignment_may_have_topics_new_to_the_member(self) -> None:
        group = GroupHarness()
        group.subscriptions.subscribe_pattern(re.compile("test.*"), group.listener)
        group.client.prepare_metadata_update(metadata_response({TOPIC: 1}))
        new = TopicPartition("test2", 0)
        group.join(TP0, new)
        assert group.subscriptions.subscription() == {TOPIC, "test2"}
        assert not group.coordinator.rejoin_needed_or_pending()

    def test_rebootstrap_keeps_matched_topics(self) -> None:
        group = GroupHarness()
        group.subscriptions.subscribe_pattern(re.compile("test.*"), group.listener)
        group.client.prepare_metadata_update(metadata_response({TOPIC: 1}))
        group.join(TP0)
        group.metadata.bootstrap([("localhost", 9092)])
        group.member.protocol.metadata_updated()
        assert group.subscriptions.subscription() == {TOPIC}
        assert not group.coordinator.rejoin_needed_or_pending()

    def test_a_topic_that_does_not_match_is_not_taken(self) -> None:
        group = GroupHarness()
        group.subscriptions.subscribe_pattern(re.compile("test.*"), group.listener)
        group.client.prepare_metadata_update(metadata_response({TOPIC: 1}))
        group.prepare(find_coordinator(group.node), join(), sync(OTHER))
        group.prepare(join(2), sync(TP0))
        assert group.coordinator.poll(group.timer())
        assert group.subscriptions.assigned_partitions() == {TP0}


class TestListener:
    def test_revoked_before_the_next_join(self, group: GroupHarness) -> None:
        group.join(TP0)
        group.coordinator.request_rejoin("test")
        group.listener.on_revoked = lambda: group.listener.told.append(
            ("still assigned", sorted(group.subscriptions.assigned_partitions()))
        )
        group.prepare(join(2), sync(TP1))
        assert group.coordinator.poll(group.timer())
        assert group.listener.told[1:] == [
            ("revoked", [TP0]),
            ("still assigned", [TP0]),
            ("assigned", [TP1]),
        ]

    @pytest.mark.parametrize("error", [ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID])
    def test_lost_when_the_membership_has_ended(self, group: GroupHarness, error: int) -> None:
        group.join(TP0)
        group.beat(error)
        assert group.subscriptions.assigned_partitions() == {TP0}
        group.prepare(join(2), sync(TP0))
        assert group.coordinator.poll(group.timer())
        assert group.listener.told[1:] == [("lost", [TP0]), ("assigned", [TP0])]

    @pytest.mark.parametrize("error", [ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID])
    def test_rebalance_without_partitions_begins_with_a_call_if_listeners_follow_rebalances(
        self, group: GroupHarness, error: int
    ) -> None:
        """Those of asyncio do, as in aiokafka. Nothing is lost."""
        group.coordinator.listeners.follows_rebalances = True
        group.join()
        group.beat(error)
        group.prepare(join(2), sync(TP0))
        assert group.coordinator.poll(group.timer())
        assert group.listener.told == [("revoked", []), ("assigned", []), ("revoked", []), ("assigned", [TP0])]

    def test_exception_on_revocation_is_raised_by_poll_once(self, group: GroupHarness) -> None:
        group.join(TP0)
        group.coordinator.request_rejoin("test")
        group.listener.failure = ValueError("mine")
        with pytest.raises(KafkaError, match="mine") as raised:
            group.coordinator.poll(group.timer())
        assert isinstance(raised.value.__cause__, ValueError)
        assert group.subscriptions.assigned_partitions() == set()
        group.listener.failure = None
        group.prepare(join(2), sync(TP0))
        assert group.coordinator.poll(group.timer())
        assert [what for what, _ in group.listener.told].count("revoked") == 1

    def test_exception_on_assignment_keeps_the_assignment(self, group: GroupHarness) -> None:
        group.prepare(find_coordinator(group.node), join(), sync(TP0))
        group.listener.failure = ValueError("mine")
        with pytest.raises(KafkaError, match="mine"):
            group.coordinator.poll(group.timer())
        assert group.subscriptions.assigned_partitions() == {TP0}
        group.listener.failure = None
        assert group.coordinator.poll(group.timer())
        assert group.listener.told == [("assigned", [TP0]), ("assigned", [])]

    def test_listener_is_called_again_after_a_wakeup(self, group: GroupHarness) -> None:
        group.prepare(find_coordinator(group.node), join(), sync(TP0))
        group.listener.failure = None

        def once() -> None:
            group.listener.on_assigned = lambda: None
            raise WakeupError("inside")

        group.listener.on_assigned = once
        with pytest.raises(WakeupError):
            group.coordinator.poll(group.timer())
        assert group.coordinator.poll(group.timer())
        assert group.member.membership.state is STABLE

    def test_leaving_revokes_partitions(self, group: GroupHarness) -> None:
        group.join(TP0)
        group.prepare(leave())
        group.coordinator.close(group.timer())
        assert group.listener.told[-1] == ("revoked", [TP0])

    def test_leaving_during_a_rebalance_loses_partitions(self, group: GroupHarness) -> None:
        group.join(TP0)
        group.beat(UNKNOWN_MEMBER_ID)
        group.coordinator.close(group.timer(100))
        assert group.listener.told[-1] == ("lost", [TP0])

    def test_exception_on_leaving_does_not_keep_the_member(self, group: GroupHarness) -> None:
        group.join(TP0)
        group.listener.failure = ValueError("mine")
        group.prepare(leave())
        with pytest.raises(KafkaError, match="mine"):
            group.coordinator.close(group.timer())
        assert group.member.membership.state is UNJOINED
        assert group.client.prepared_response_count() == 0


class TestAutoCommitBeforeRejoining:
    def member(self, **settings: int) -> GroupHarness:
        group = GroupHarness(auto_commit_interval_ms=60_000, group=settings)
        group.subscribe()
        group.join(TP0)
        group.seek(TP0, 42)
        return group

    def test_positions_are_committed_before_the_rejoin(self) -> None:
        group = self.member()
        group.beat(REBALANCE_IN_PROGRESS)
        sent: list[Any] = []
        group.client.prepare_response(commit({TP0: 0}), noting(sent))
        group.prepare(join(2), sync(TP0))
        assert group.coordinator.poll(group.timer())
        assert sent[0].topics[0].partitions[0].committed_offset == 42
        assert sent[0].generation_id_or_member_epoch == 1

    def test_nothing_is_handed_out_meanwhile(self) -> None:
        group = self.member()
        group.coordinator.request_rejoin("test")
        assert not group.coordinator.poll(group.timer(0))
        assert not group.subscriptions.is_fetchable(TP0)
        assert group.listener.told == [("assigned", [TP0])]
        assert not group.coordinator.poll(group.timer(0))
        assert len(group.client.requests) == 1
        group.client.respond(commit({TP0: 0}))
        group.prepare(join(2), sync(TP0))
        assert group.coordinator.poll(group.timer())

    def test_retriable_commit_failure_is_retried(self) -> None:
        group = self.member()
        group.coordinator.request_rejoin("test")
        group.prepare(commit({TP0: 14}), commit({TP0: 0}), join(2), sync(TP0))
        assert group.coordinator.poll(group.timer())

    def test_fatal_commit_failure_does_not_block_the_join(self) -> None:
        group = self.member()
        group.coordinator.request_rejoin("test")
        group.prepare(commit({TP0: 12}), join(2), sync(TP0))
        assert group.coordinator.poll(group.timer())

    def test_unanswered_commit_does_not_block_the_join(self, caplog: pytest.LogCaptureFixture) -> None:
        group = self.member(rebalance_timeout_ms=4_000)
        group.coordinator.request_rejoin("test")
        for _ in range(5):
            group.coordinator.poll(group.timer(0))
            group.clock.advance(1_200)
        assert "Giving up partitions without a commit" in caplog.text

    def test_wakeup_during_the_commit_keeps_it_in_flight(self) -> None:
        group = self.member()
        group.coordinator.request_rejoin("test")
        assert not group.coordinator.poll(group.timer(0))
        group.driver.wakeup()
        with pytest.raises(WakeupError):
            group.coordinator.poll(group.timer())
        assert group.listener.told == [("assigned", [TP0])]
        assert len(group.client.requests) == 1  # the commit stays in flight and is not sent again
        group.client.respond(commit({TP0: 0}))
        group.prepare(join(2), sync(TP0))
        assert group.coordinator.poll(group.timer())
        assert group.listener.told[1:] == [("revoked", [TP0]), ("assigned", [TP0])]
        group.seek(TP0, 42)
        assert group.subscriptions.is_fetchable(TP0)

    def test_error_while_sending_the_commit_is_raised(self, monkeypatch: pytest.MonkeyPatch) -> None:
        group = self.member()
        group.coordinator.request_rejoin("test")
        errors = [TopicAuthorizationError("another topic")]

        def once() -> None:
            if errors and group.client.requests:
                raise errors.pop()

        monkeypatch.setattr(group.metadata, "maybe_throw_any_exception", once)
        with pytest.raises(TopicAuthorizationError):
            group.coordinator.poll(group.timer())
        group.client.respond(commit({TP0: 0}))
        group.prepare(join(2), sync(TP0))
        assert group.coordinator.poll(group.timer())
        assert group.listener.told[1:] == [("revoked", [TP0]), ("assigned", [TP0])]

    def test_wakeup_in_the_listener_does_not_repeat_the_commit(self) -> None:
        group = self.member()
        group.coordinator.request_rejoin("test")
        group.listener.failure = WakeupError("inside")
        group.prepare(commit({TP0: 0}))
        with pytest.raises(WakeupError):
            group.coordinator.poll(group.timer())
        group.listener.failure = None
        group.prepare(join(2), sync(TP0))
        assert group.coordinator.poll(group.timer())
        assert group.subscriptions.is_fetchable(TP0)
        # The commit of the next rebalance has its full timeout again.
        group.clock.advance(group.coordinator.config.rebalance_timeout_ms + 1)
        group.coordinator.request_rejoin("test")
        assert not group.coordinator.poll(group.timer(0))


def test_a_position_is_kept_over_an_eager_rebalance_by_committing_it() -> None:
    group = GroupHarness(auto_commit_interval_ms=60_000)
    group.subscribe()
    group.join(TP0)
    group.seek(TP0, 5)
    group.coordinator.request_rejoin("test")
    group.prepare(commit({TP0: 0}), join(2), sync(TP0))
    assert group.coordinator.poll(group.timer())
    assert group.subscriptions.position(TP0) is None
    assert group.subscriptions.initializing_partitions() == {TP0}
