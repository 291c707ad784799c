"""The coordinator of consumer groups (KIP-848), on virtual time."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from pykclient.errors import BrokerError, KafkaStorageError, for_code
from pykclient.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from pykclient.protocol.messages.offset_commit import OffsetCommitRequest
from pykclient.testing.group.group_metadata import CommittedOffset
from pykclient.testing.group.group_records import CONSUMER_GROUP_RECORDS
from pykclient.testing.group.modern_groups import ConsumerGroup
from pykclient.testing.release_profiles import GROUP_VERSION
from tests.testing.group.harness import GROUP, TP, Groups, Reply

Owned = Mapping[UUID, list[int]]
TOPIC_ID = UUID(int=7)
OTHER_ID = UUID(int=8)
SESSION_MS, REBALANCE_MS = 45_000, 60_000
NOT_ENOUGH_REPLICAS = 19


class Coordinator(Groups):
    """A coordinator with a topic of four partitions, and heartbeats to it."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.broker.metadata_cache.set_partitions("topic", 4)

    @property
    def members(self) -> ConsumerGroup:
        group = self.coordinator.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    def send(self, member_id: str, epoch: int, **fields: Any) -> Reply[ConsumerGroupHeartbeatResponse]:
        body = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=member_id, member_epoch=epoch, **fields)
        owned = fields.get("topic_partitions")
        if owned is not None:
            body.topic_partitions = [
                ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=numbers)
                for topic_id, numbers in owned.items()
            ]
        reply: Reply[ConsumerGroupHeartbeatResponse] = Reply()
        try:
            self.coordinator.modern_heartbeat(body, "client", "/host", reply)
        except BrokerError as error:
            reply(ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=str(error)))
        return reply

    def beat(self, member_id: str, epoch: int, owned: Owned | None = None, **fields: Any) -> Member:
        return Member(self.send(member_id, epoch, topic_partitions=owned, **fields).value)

    def enter(self, member_id: str, **fields: Any) -> Member:
        names = {"subscribed_topic_names": ["topic"]} if "subscribed_topic_regex" not in fields else {}
        return self.beat(member_id, 0, {}, **{"rebalance_timeout_ms": REBALANCE_MS, **names, **fields})

    def next_coordinator(self) -> None:
        """Make another broker the coordinator, with the same topics."""
        cache = self.broker.metadata_cache
        self.fail_over()
        self.broker.metadata_cache.topics = cache.topics
        self.broker.metadata_cache.partitions = cache.partitions


class Member:
    """What a heartbeat was answered with."""

    def __init__(self, response: ConsumerGroupHeartbeatResponse) -> None:
        error = for_code(response.error_code)
        self.error = None if error is None else error.error_name
        self.epoch = response.member_epoch
        self.interval_ms = response.heartbeat_interval_ms
        self.assigned: Owned | None = None
        if response.assignment is not None:
            self.assigned = {topic.topic_id: topic.partitions for topic in response.assignment.topic_partitions}


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def of(*numbers: int) -> Owned:
    return {TOPIC_ID: list(numbers)} if numbers else {}


def test_first_member_gets_all_partitions(coordinator: Coordinator) -> None:
    member = coordinator.enter("a")
    assert (member.epoch, member.assigned, member.interval_ms) == (1, of(0, 1, 2, 3), 5_000)
    assert coordinator.members.state.name == "Stable"


def test_assignment_is_sent_once(coordinator: Coordinator) -> None:
    coordinator.enter("a")
    assert coordinator.beat("a", 1).assigned is None
    full = coordinator.beat("a", 1, of(0), rebalance_timeout_ms=REBALANCE_MS, subscribed_topic_names=["topic"])
    assert full.assigned == of(0, 1, 2, 3)


def test_partition_is_revoked_before_it_is_reassigned(coordinator: Coordinator) -> None:
    coordinator.enter("a")
    joined = coordinator.enter("b")
    assert (joined.epoch, joined.assigned) == (2, {})
    told = coordinator.beat("a", 1)
    assert (told.epoch, told.assigned) == (1, of(0, 1))
    assert coordinator.beat("b", 2).assigned is None
    assert coordinator.beat("a", 1, of(0, 1, 2)).epoch == 1, "it still owns one that it must give up"
    assert coordinator.beat("b", 2).assigned is None
    assert coordinator.members.state.name == "Reconciling"
    assert coordinator.beat("a", 1, of(0, 1)).epoch == 2
    given = coordinator.beat("b", 2)
    assert (given.epoch, given.assigned) == (2, of(2, 3))
    assert coordinator.members.state.name == "Stable"


def test_partitions_of_a_leaving_member_are_reassigned(coordinator: Coordinator) -> None:
    coordinator.enter("a")
    coordinator.enter("b")
    coordinator.beat("a", 1)
    coordinator.beat("a", 1, of(0, 1))
    coordinator.beat("b", 2)
    assert coordinator.beat("a", -1).epoch == -1
    given = coordinator.beat("b", 2)
    assert (given.epoch, given.assigned) == (3, of(0, 1, 2, 3))


def test_silent_member_is_removed(coordinator: Coordinator) -> None:
    coordinator.enter("a")
    coordinator.advance(SESSION_MS - 1)
    assert coordinator.beat("a", 1).error is None
    coordinator.advance(SESSION_MS - 1)
    assert "a" in coordinator.members.members
    coordinator.advance(1)
    assert coordinator.beat("a", 1).error == "UNKNOWN_MEMBER_ID"
    assert coordinator.members.state.name == "Empty"


def test_member_that_does_not_revoke_is_removed(coordinator: Coordinator) -> None:
    coordinator.enter("a")
    coordinator.enter("b")
    coordinator.beat("a", 1)
    for _ in range(6):
        coordinator.advance(REBALANCE_MS // 6)
        coordinator.beat("b", 2)
        coordinator.beat("a", 1)
    assert coordinator.beat("a", 1).error == "UNKNOWN_MEMBER_ID"
    (survivor,) = coordinator.members.members.values()
    assert survivor.current.assigned == {TOPIC_ID: frozenset((0, 1, 2, 3))}


@pytest.mark.parametrize(
    ("epoch", "owned", "error"),
    [
        (3, None, "FENCED_MEMBER_EPOCH"),
        (1, None, "FENCED_MEMBER_EPOCH"),
        (1, of(0, 1), None),
        (1, of(0, 3), "FENCED_MEMBER_EPOCH"),
        (2, None, None),
    ],
)
def test_only_the_last_epoch_may_be_repeated(
    coordinator: Coordinator, epoch: int, owned: Owned | None, error: str | None
) -> None:
    coordinator.enter("a")
    coordinator.enter("b")
    coordinator.beat("a", 1)
    coordinator.beat("a", 1, of(0, 1))
    assert coordinator.beat("a", epoch, owned).error == error


def test_rejoining_member_keeps_its_assignment(coordinator: Coordinator) -> None:
    coordinator.enter("a")
    again = coordinator.enter("a")
    assert (again.epoch, again.assigned) == (1, of(0, 1, 2, 3))
    assert len(coordinator.members.members) == 1


def test_returning_static_member_keeps_its_assignment(coordinator: Coordinator) -> None:
    coordinator.enter("a", instance_id="i")
    coordinator.enter("b")
    coordinator.beat("a", 1, instance_id="i")
    coordinator.beat("a", 1, of(0, 1), instance_id="i")
    coordinator.beat("b", 2)
    assert coordinator.enter("c", instance_id="i").error == "UNRELEASED_INSTANCE_ID"
    assert coordinator.beat("a", -2, instance_id="i").epoch == -2
    assert coordinator.beat("b", 2).assigned is None
    back = coordinator.enter("c", instance_id="i")
    assert (back.epoch, back.assigned) == (2, of(0, 1))
    assert coordinator.beat("a", 2, instance_id="i").error == "FENCED_INSTANCE_ID"
    assert coordinator.beat("b", 2).epoch == 2, "the others have not noticed"


def test_absent_static_member_expires(coordinator: Coordinator) -> None:
    coordinator.enter("a", instance_id="i")
    coordinator.beat("a", -2, instance_id="i")
    coordinator.advance(SESSION_MS)
    assert coordinator.members.state.name == "Empty"
    assert coordinator.beat("b", 2, instance_id="i").error == "UNKNOWN_MEMBER_ID"


def test_new_partitions_are_assigned(coordinator: Coordinator) -> None:
    coordinator.enter("a")
    coordinator.broker.metadata_cache.set_partitions("topic", 5)
    grown = coordinator.beat("a", 1)
    assert (grown.epoch, grown.assigned) == (2, of(0, 1, 2, 3, 4))


def test_changes_of_other_topics_have_no_effect(coordinator: Coordinator) -> None:
    coordinator.enter("a")
    coordinator.broker.metadata_cache.set_partitions("other", 5)
    assert coordinator.beat("a", 1).epoch == 1


def test_broker_matches_subscribed_patterns(coordinator: Coordinator) -> None:
    member = coordinator.enter("a", subscribed_topic_regex="t.*|new")
    assert member.assigned == of(0, 1, 2, 3)
    coordinator.broker.metadata_cache.set_partitions("new", 1)
    grown = coordinator.beat("a", 1)
    assert grown.assigned is not None
    assert len(grown.assigned) == 2


def test_changed_subscription_replaces_the_assignment(coordinator: Coordinator) -> None:
    coordinator.enter("a")
    told = coordinator.beat("a", 1, subscribed_topic_names=["other"])
    assert (told.epoch, told.assigned) == (1, {})
    told = coordinator.beat("a", 1, {})
    assert (told.epoch, told.assigned) == (2, {OTHER_ID: [0]})


REFUSED = [
    ({"member_id": ""}, "INVALID_REQUEST"),
    ({"instance_id": ""}, "INVALID_REQUEST"),
    ({"rack_id": " "}, "INVALID_REQUEST"),
    ({"rebalance_timeout_ms": -1}, "INVALID_REQUEST"),
    ({"topic_partitions": None}, "INVALID_REQUEST"),
    ({"topic_partitions": of(1)}, "INVALID_REQUEST"),
    ({"subscribed_topic_names": None}, "INVALID_REQUEST"),
    ({"epoch": -2}, "INVALID_REQUEST"),
    ({"epoch": -3}, "INVALID_REQUEST"),
    ({"server_assignor": "mine"}, "UNSUPPORTED_ASSIGNOR"),
    ({"subscribed_topic_regex": "("}, "INVALID_REGULAR_EXPRESSION"),
    ({"epoch": 5}, "GROUP_ID_NOT_FOUND"),
    ({"epoch": -1}, "GROUP_ID_NOT_FOUND"),
]


@pytest.mark.parametrize(("change", "error"), REFUSED)
def test_invalid_heartbeats_are_refused(coordinator: Coordinator, change: dict[str, Any], error: str) -> None:
    fields: dict[str, Any] = {
        "member_id": "a",
        "epoch": 0,
        "rebalance_timeout_ms": 1,
        "subscribed_topic_names": ["topic"],
        "topic_partitions": {},
    }
    assert Member(coordinator.send(**{**fields, **change}).value).error == error


def test_full_group_refuses_new_members() -> None:
    coordinator = Coordinator(**{"group.consumer.max.size": 1})
    coordinator.enter("a")
    assert coordinator.enter("b").error == "GROUP_MAX_SIZE_REACHED"
    assert coordinator.enter("a").error is None


def test_heartbeat_without_the_feature_is_refused(coordinator: Coordinator) -> None:
    coordinator.broker.features.update(GROUP_VERSION, 0)
    assert coordinator.enter("a").error == "UNSUPPORTED_VERSION"


def test_empty_group_changes_protocol_and_keeps_offsets(coordinator: Coordinator) -> None:
    member_id, reply = coordinator.join_twice()
    coordinator.settle()
    assert reply.answered
    coordinator.leave(member_id)
    coordinator.coordinator.commit_offsets(commit("", -1), 9, {TP: CommittedOffset(5, -1, "", 0)}, lambda _: None)
    coordinator.enter("a")
    assert coordinator.members.offsets.committed[TP].offset == 5
    coordinator.beat("a", -1)
    coordinator.join()
    assert coordinator.group().offsets.committed[TP].offset == 5
    coordinator.next_coordinator()
    assert coordinator.group().offsets.committed[TP].offset == 5


# --- offsets -------------------------------------------------------------------------------------------------------


def commit(member_id: str, epoch: int) -> OffsetCommitRequest:
    return OffsetCommitRequest(group_id=GROUP, member_id=member_id, generation_id_or_member_epoch=epoch)


@pytest.mark.parametrize(
    ("member_id", "epoch", "version", "error"),
    [
        ("a", 1, 9, None),
        ("a", 0, 9, "STALE_MEMBER_EPOCH"),
        ("a", 2, 10, "STALE_MEMBER_EPOCH"),
        ("a", 1, 8, "UNSUPPORTED_VERSION"),
        ("b", 1, 9, "UNKNOWN_MEMBER_ID"),
        ("", -1, 9, "UNKNOWN_MEMBER_ID"),
    ],
)
def test_commits_need_the_member_epoch(
    coordinator: Coordinator, member_id: str, epoch: int, version: int, error: str | None
) -> None:
    coordinator.enter("a")
    found = None
    try:
        coordinator.coordinator.commit_offsets(
            commit(member_id, epoch), version, {TP: CommittedOffset(5, -1, "", 0)}, lambda _: None
        )
    except BrokerError as refused:
        found = refused.error_name
    assert found == error
    assert (TP in coordinator.members.offsets.committed) is (error is None)


@pytest.mark.parametrize(
    ("member_id", "epoch", "error"),
    [(None, -1, None), ("a", 1, None), ("a", 2, "STALE_MEMBER_EPOCH"), ("b", 1, "UNKNOWN_MEMBER_ID")],
)
def test_fetches_check_epochs(coordinator: Coordinator, member_id: str | None, epoch: int, error: str | None) -> None:
    coordinator.enter("a")
    found = None
    try:
        coordinator.coordinator.fetch_offsets(
            GROUP, None, False, lambda *_: None, member_id=member_id, member_epoch=epoch
        )
    except BrokerError as refused:
        found = refused.error_name
    assert found == error


# --- the log ---------------------------------------------------------------------------------------------------------


def test_heartbeat_is_answered_after_its_records_are_replicated(coordinator: Coordinator) -> None:
    coordinator.replicas.holding = True
    joining = coordinator.send("a", 0, topic_partitions={}, rebalance_timeout_ms=1, subscribed_topic_names=["topic"])
    again = coordinator.send("a", 1)
    assert not joining.answered
    assert not again.answered
    coordinator.replicas.release()
    assert joining.value.member_epoch == again.value.member_epoch == 1


def test_failed_write_is_repeated_with_the_next_heartbeat(coordinator: Coordinator) -> None:
    coordinator.enter("a")
    coordinator.replicas.fails_late = True
    coordinator.replicas.error_code = NOT_ENOUGH_REPLICAS
    assert coordinator.enter("b").error == "COORDINATOR_NOT_AVAILABLE"
    coordinator.replicas.error_code = 0
    coordinator.beat("a", 1)
    coordinator.next_coordinator()
    assert coordinator.members.members.keys() == {"a", "b"}
    assert coordinator.members.group_epoch == 2


def test_change_that_the_log_refuses_has_no_effect(coordinator: Coordinator) -> None:
    """Otherwise epochs rise that no other coordinator, and no member, ever sees."""
    coordinator.enter("a", instance_id="i")
    coordinator.enter("b")
    coordinator.beat("a", 1, of(0, 1, 2, 3))
    coordinator.beat("a", 1, of(0, 1))
    coordinator.beat("b", 2, {})
    assert coordinator.members.state.name == "Stable"
    before = state_of(coordinator.members)
    coordinator.replicas.error_code = NOT_ENOUGH_REPLICAS
    assert coordinator.enter("c").error == "COORDINATOR_NOT_AVAILABLE"
    assert coordinator.beat("b", -1).error == "COORDINATOR_NOT_AVAILABLE"
    assert coordinator.beat("a", -2, instance_id="i").error == "COORDINATOR_NOT_AVAILABLE"
    assert coordinator.beat("b", 2, subscribed_topic_names=["other"]).error == "COORDINATOR_NOT_AVAILABLE"
    assert state_of(coordinator.members) == before
    assert coordinator.beat("b", 2).error is None, "a heartbeat that changes nothing needs no log"
    coordinator.broker.metadata_cache.set_partitions("topic", 5)
    assert coordinator.beat("b", 2).error == "COORDINATOR_NOT_AVAILABLE"
    assert state_of(coordinator.members) == before
    coordinator.replicas.error_code = 0
    assert coordinator.beat("b", 2).epoch == 3, "the new partition is noticed again"
    coordinator.next_coordinator()
    assert coordinator.members.members.keys() == {"a", "b"}


def test_change_has_no_effect_while_the_disk_is_offline(coordinator: Coordinator) -> None:
    coordinator.enter("a")
    before = state_of(coordinator.members)
    coordinator.replicas.error_code = KafkaStorageError.code
    assert coordinator.enter("b").error == "NOT_COORDINATOR"
    assert coordinator.beat("a", -1).error == "NOT_COORDINATOR"
    assert state_of(coordinator.members) == before


def test_static_member_is_not_replaced_while_the_log_refuses_it(coordinator: Coordinator) -> None:
    coordinator.enter("a", instance_id="i")
    coordinator.beat("a", -2, instance_id="i")
    before = state_of(coordinator.members)
    coordinator.replicas.error_code = NOT_ENOUGH_REPLICAS
    assert coordinator.enter("b", instance_id="i").error == "COORDINATOR_NOT_AVAILABLE"
    assert state_of(coordinator.members) == before
    coordinator.replicas.error_code = 0
    coordinator.advance(SESSION_MS)
    assert not coordinator.members.members, "its session goes on"


def test_silent_member_is_removed_once_the_log_takes_it(coordinator: Coordinator) -> None:
    coordinator.enter("a")
    coordinator.replicas.error_code = NOT_ENOUGH_REPLICAS
    coordinator.advance(3 * SESSION_MS)
    assert coordinator.members.members.keys() == {"a"}
    assert coordinator.members.group_epoch == 1
    coordinator.replicas.error_code = 0
    coordinator.advance(1_000)
    assert not coordinator.members.members


def test_heartbeat_saves_a_silent_member_that_the_log_kept(coordinator: Coordinator) -> None:
    coordinator.enter("a")
    coordinator.replicas.error_code = NOT_ENOUGH_REPLICAS
    coordinator.advance(SESSION_MS)
    assert coordinator.beat("a", 1).error is None
    coordinator.replicas.error_code = 0
    coordinator.advance(SESSION_MS - 1)
    assert coordinator.members.members.keys() == {"a"}


def test_each_revocation_has_its_own_time_limit(coordinator: Coordinator) -> None:
    coordinator.enter("a")
    coordinator.enter("b")
    coordinator.beat("a", 1)
    coordinator.enter("c")
    coordinator.enter("d")
    coordinator.advance(SESSION_MS - 1)
    kept = coordinator.members.members["a"].current.assigned[TOPIC_ID]
    assert coordinator.beat("a", 1, of(*kept)).epoch == 2
    assert coordinator.members.members["a"].current.pending_revocation, "it must give up more in the next epoch"
    for wait_ms in (REBALANCE_MS // 2, REBALANCE_MS // 2 - 1):
        coordinator.advance(wait_ms)
        coordinator.beat("a", 2)
    assert "a" in coordinator.members.members
    coordinator.advance(1)
    assert "a" not in coordinator.members.members


def test_static_member_that_left_for_a_while_has_nothing_to_revoke(coordinator: Coordinator) -> None:
    limit_ms = SESSION_MS // 3
    coordinator.enter("a", instance_id="i", rebalance_timeout_ms=limit_ms)
    coordinator.enter("b")
    coordinator.beat("a", 1)
    assert coordinator.members.members["a"].current.pending_revocation
    coordinator.beat("a", -2, instance_id="i")
    coordinator.advance(2 * limit_ms)
    assert "a" in coordinator.members.members


def test_member_that_does_not_revoke_is_removed_once_the_log_takes_it(coordinator: Coordinator) -> None:
    coordinator.enter("a")
    coordinator.enter("b")
    coordinator.beat("a", 1)
    coordinator.replicas.error_code = NOT_ENOUGH_REPLICAS
    for _ in range(4):
        coordinator.advance(REBALANCE_MS // 2)
        coordinator.beat("a", 1)
        coordinator.beat("b", 2)
    assert coordinator.members.members.keys() == {"a", "b"}
    coordinator.replicas.error_code = 0
    coordinator.advance(1_000)
    assert coordinator.members.members.keys() == {"b"}


def test_group_is_not_created_while_the_log_refuses_it(coordinator: Coordinator) -> None:
    coordinator.replicas.error_code = NOT_ENOUGH_REPLICAS
    assert coordinator.enter("a").error == "COORDINATOR_NOT_AVAILABLE"
    assert not coordinator.coordinator.groups


def state_of(group: ConsumerGroup) -> Any:
    return (
        group.group_epoch,
        group.assignment_epoch,
        group.metadata_hash,
        group.targets,
        group.regexes,
        group.static_members,
        {
            name: (CONSUMER_GROUP_RECORDS.member_record("g", member), member.current)
            for name, member in group.members.items()
        },
    )


def test_next_coordinator_continues_the_group(coordinator: Coordinator) -> None:
    coordinator.enter("a", rack_id="r", server_assignor="range")
    coordinator.enter("b", instance_id="i")
    coordinator.enter("c", subscribed_topic_regex="t.*")
    coordinator.beat("a", 1)
    before = state_of(coordinator.members)
    coordinator.next_coordinator()
    assert state_of(coordinator.members) == before
    coordinator.advance(SESSION_MS)
    assert coordinator.members.state.name == "Empty", "sessions begin with the new coordinator"


@pytest.mark.parametrize("seed", range(40))
def test_no_partition_has_two_owners_in_random_groups(seed: int) -> None:
    """Members join, report, lag behind, leave and move to other coordinators; finally the group settles."""
    rng = random.Random(seed)
    coordinator = Coordinator(seed=seed)
    members: dict[str, tuple[int, dict[UUID, list[int]]]] = {}
    for number in range(150):
        step = rng.random()
        if step < 0.1 and len(members) < 6:
            name = f"m{number}"
            answered = coordinator.enter(name, server_assignor=rng.choice(("range", "uniform", None)))
            members[name] = answered.epoch, dict(answered.assigned or {})
        elif step < 0.15 and members:
            name = rng.choice(sorted(members))
            coordinator.beat(name, -1)
            del members[name]
        elif step < 0.2:
            coordinator.next_coordinator()
        elif step < 0.25:
            coordinator.broker.metadata_cache.set_partitions("topic", rng.randint(4, 9))
        elif members:
            beat_of(coordinator, members, rng.choice(sorted(members)), is_reporting=rng.random() < 0.8)
        owned = [
            (topic_id, one) for _, mine in members.values() for topic_id, numbers in mine.items() for one in numbers
        ]
        assert len(owned) == len(set(owned)), f"two owners after step {number}"
    for _ in range(8):
        for name in list(members):
            beat_of(coordinator, members, name, is_reporting=True)
    if members:
        assert coordinator.members.state.name == "Stable"
        count = coordinator.broker.metadata_cache.partitions["topic"]
        assert sorted(one for _, mine in members.values() for numbers in mine.values() for one in numbers) == list(
            range(count)
        )


def beat_of(
    coordinator: Coordinator, members: dict[str, tuple[int, dict[UUID, list[int]]]], name: str, *, is_reporting: bool
) -> None:
    """Send a heartbeat of a member, which takes over and gives up what it is told."""
    epoch, owned = members[name]
    answered = coordinator.beat(name, epoch, owned if is_reporting else None)
    assert answered.error is None
    members[name] = answered.epoch, owned if answered.assigned is None else dict(answered.assigned)
