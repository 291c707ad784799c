"""Groups whose members use both protocols, and that change theirs meanwhile (KIP-848), on virtual time."""

from __future__ import annotations

import random
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

import pytest

from pykclient.consumer.coordinator import classic_rebalance
from pykclient.consumer.partition_assignors import Assignment, Subscription
from pykclient.errors import BrokerError, CoordinatorNotAvailableError, for_code
from pykclient.protocol.messages.leave_group import LeaveGroupRequest
from pykclient.testing.group.group_metadata import CommittedOffset, GroupMetadata
from pykclient.testing.group.group_records import CONSUMER_GROUP_RECORDS
from pykclient.testing.group.modern_groups import ConsumerGroup
from pykclient.types import TopicPartition
from tests.testing.group.harness import GROUP, TP
from tests.testing.group.test_consumer_groups import (
    NOT_ENOUGH_REPLICAS,
    REBALANCE_MS,
    TOPIC_ID,
    Coordinator,
    commit,
    of,
)

SESSION_MS = 10_000


def subscription(*owned: int, topic: str = "topic", version: int = 3) -> dict[str, bytes]:
    partitions = [TopicPartition(topic, number) for number in owned]
    data = classic_rebalance.serialize_subscription(Subscription([topic], owned_partitions=partitions), version)
    return {"range": data}


def assignment(numbers: Iterable[int]) -> bytes:
    return classic_rebalance.serialize_assignment(Assignment([TopicPartition("topic", number) for number in numbers]))


class Mixed(Coordinator):
    """A coordinator, and what a member of the classic protocol does there."""

    def classic(self, *numbers: int) -> str:
        """Return the only member of a new classic group, with an assignment."""
        member_id, joined = self.join_twice(protocols=subscription())
        self.settle()
        synced = self.sync(member_id, joined.value.generation_id, {member_id: assignment(numbers)})
        self.settle()
        assert synced.value.error_code == 0
        return member_id

    def rejoin(self, member_id: str, *owned: int, **fields: Any) -> tuple[int, list[int]]:
        """Join and sync; return the generation and the assigned partitions."""
        joined = self.join(member_id, protocols=subscription(*owned), **fields).value
        assert (joined.error_code, joined.leader, joined.protocol_name) == (0, "", "range")
        synced = self.sync(joined.member_id, joined.generation_id, instance_id=fields.get("instance_id")).value
        assert synced.error_code == 0
        given = classic_rebalance.deserialize_assignment(synced.assignment)
        return joined.generation_id, [tp.partition for tp in given.partitions]

    def classic_beat(self, member_id: str, generation_id: int) -> str | None:
        """Send a Heartbeat; return the name of the error."""
        error = for_code(self.heartbeat(member_id, generation_id))
        return None if error is None else error.error_name

    @property
    def is_classic(self) -> bool:
        return isinstance(self.coordinator.groups[GROUP], GroupMetadata)


@pytest.fixture
def mixed() -> Mixed:
    return Mixed()


def test_new_protocol_member_converts_the_group(mixed: Mixed) -> None:
    old = mixed.classic(0, 1, 2, 3)
    mixed.coordinator.commit_offsets(commit(old, 1), 9, {TP: CommittedOffset(5, -1, "", 0)}, lambda _: None)
    entered = mixed.enter("new")
    assert (entered.error, entered.epoch, entered.assigned) == (None, 2, {}), "nothing is free yet"
    assert mixed.members.members[old].current.assigned == {TOPIC_ID: frozenset(range(4))}
    assert mixed.members.offsets.committed[TP].offset == 5
    assert mixed.classic_beat(old, 1) == "REBALANCE_IN_PROGRESS"
    generation, kept = mixed.rejoin(old)
    assert (generation, len(kept)) == (2, 2), "an eager member has given up everything"
    assert mixed.classic_beat(old, 2) is None
    taken = mixed.beat("new", 2, {})
    assert taken.assigned is not None
    assert sorted([*kept, *taken.assigned[TOPIC_ID]]) == [0, 1, 2, 3]
    assert mixed.members.state.name == "Stable"


def test_cooperative_member_revokes_only_moved_partitions(mixed: Mixed) -> None:
    old = mixed.classic(0, 1, 2, 3)
    mixed.enter("new")
    generation, kept = mixed.rejoin(old, 0, 1, 2, 3)
    assert (generation, len(kept)) == (1, 2), "it still has to give up two"
    assert mixed.beat("new", 2, {}).assigned is None
    assert mixed.classic_beat(old, 1) == "REBALANCE_IN_PROGRESS"
    assert mixed.rejoin(old, *kept) == (2, kept)
    assert mixed.classic_beat(old, 2) is None
    assert len((mixed.beat("new", 2, {}).assigned or {})[TOPIC_ID]) == 2


def test_member_keeps_partitions_while_the_broker_does_not_know_their_topic(mixed: Mixed) -> None:
    """A broker that has just started may coordinate a group before it hears of the topics."""
    old = mixed.classic(0, 1, 2, 3)
    mixed.enter("new")
    cache = mixed.broker.metadata_cache
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "contains", lambda topic: False)
        mixed.rejoin(old, 0, 1, 2, 3)
    assert not mixed.beat("new", 2, {}).assigned, "the member still owns all"
    _, kept = mixed.rejoin(old, 0, 1, 2, 3)
    assert mixed.rejoin(old, *kept) == (2, kept)
    assert len((mixed.beat("new", 2, {}).assigned or {})[TOPIC_ID]) == 2


def test_conversion_answers_waiting_requests(mixed: Mixed) -> None:
    old = mixed.classic(0, 1, 2, 3)
    other, _ = mixed.join_twice(protocols=subscription())
    waiting = mixed.join(other, protocols=subscription())
    assert not waiting.answered
    mixed.enter("new")
    assert waiting.value.error_code == 27  # REBALANCE_IN_PROGRESS
    assert mixed.rejoin(other)[0] > 0
    assert mixed.classic_beat(old, 1) == "REBALANCE_IN_PROGRESS"
    mixed.advance(SESSION_MS * 3)
    assert not mixed.is_classic, "no timer of the classic group goes on"


@pytest.mark.parametrize("had_members", [False, True])
def test_pending_member_does_not_block_the_conversion(mixed: Mixed, had_members: bool) -> None:
    """The coordinator has given it an id, and waits for it to join with that."""
    if had_members:
        mixed.classic(0, 1, 2, 3)
    assert mixed.join(protocols=subscription()).value.error_code == 79  # MEMBER_ID_REQUIRED
    if had_members:
        (old,) = mixed.group().members
        mixed.coordinator.leave_group(GROUP, [LeaveGroupRequest.MemberIdentity(member_id=old)])
        assert mixed.group().state.name == "PreparingRebalance"
    assert mixed.enter("new").error is None
    mixed.advance(SESSION_MS * 3)
    assert not mixed.is_classic, "no timer of the classic group goes on"


def test_classic_member_joins_a_consumer_protocol_group(mixed: Mixed) -> None:
    mixed.enter("new")
    refused = mixed.join(protocols=subscription()).value
    assert (refused.error_code, bool(refused.member_id)) == (79, True)  # MEMBER_ID_REQUIRED
    assert mixed.rejoin(refused.member_id) == (2, []), "nothing is free yet"
    assert mixed.classic_beat(refused.member_id, 2) is None
    released = mixed.beat("new", 1, of(0, 1, 2, 3))
    assert released.assigned is not None
    mixed.beat("new", released.epoch, released.assigned)
    assert mixed.classic_beat(refused.member_id, 2) == "REBALANCE_IN_PROGRESS", "its partitions are free now"
    assert len(mixed.rejoin(refused.member_id)[1]) == 2


def test_departure_of_the_last_new_member_converts_the_group_back(mixed: Mixed) -> None:
    old = mixed.classic(0, 1, 2, 3)
    mixed.enter("new")
    mixed.rejoin(old)
    mixed.beat("new", -1)
    assert mixed.is_classic
    assert mixed.group().generation_id == 3
    assert mixed.classic_beat(old, 2) == "ILLEGAL_GENERATION"
    joined = mixed.join(old, protocols=subscription())
    mixed.settle()
    assert (joined.value.generation_id, joined.value.leader) == (4, old)
    mixed.sync(old, 4, {old: assignment(range(4))})
    mixed.settle()
    mixed.next_coordinator()
    assert mixed.is_classic
    assert mixed.group().members[old].assignment == assignment(range(4))


def test_failover_leaves_no_partly_converted_group(mixed: Mixed) -> None:
    """A group whose members are all classic is classic, however much of the log a new coordinator has."""
    old = mixed.classic(0, 1, 2, 3)
    mixed.enter("new")
    mixed.rejoin(old)
    log = mixed.log
    ends = [(len(log.batches), log.log_end_offset)]
    append = log.append

    def counted(records: Any) -> int:
        offset = append(records)
        ends.append((len(log.batches), log.log_end_offset))
        return offset

    log.append = counted  # type: ignore[method-assign]
    mixed.beat("new", -1)
    batches = log.batches
    for count, end_offset in tuple(ends):
        log.batches, log.log_end_offset = batches[:count], end_offset
        mixed.next_coordinator()
        assert mixed.is_classic or "new" in mixed.members.members
    assert mixed.is_classic


def test_expiry_of_the_last_new_member_converts_the_group_back(mixed: Mixed) -> None:
    old = mixed.classic(0, 1, 2, 3)
    mixed.enter("new")
    generation, _ = mixed.rejoin(old)
    for _ in range(10):
        mixed.advance(5_000)
        if mixed.is_classic:
            return
        assert mixed.classic_beat(old, generation) is None
    pytest.fail("its session did not expire")


def test_group_keeps_its_epoch_and_protocol_while_the_log_refuses_changes(mixed: Mixed) -> None:
    """All members expire, and others come. A group that began anew in memory would count from 1 again, unseen."""
    old = mixed.classic(0, 1, 2, 3)
    mixed.enter("new")
    mixed.rejoin(old)
    epoch = mixed.members.group_epoch
    mixed.replicas.error_code = NOT_ENOUGH_REPLICAS
    mixed.advance(2 * REBALANCE_MS)
    with pytest.raises(CoordinatorNotAvailableError):
        mixed.coordinator.leave_group(GROUP, [LeaveGroupRequest.MemberIdentity(member_id=old)])
    assert mixed.join(old, protocols=subscription(topic="other")).value.error_code == 15  # COORDINATOR_NOT_AVAILABLE
    assert mixed.rejoin(old)[0] == epoch, "the join changes nothing"
    assert mixed.join("other", protocols=subscription()).value.error_code == 15
    assert mixed.enter("late").error == "COORDINATOR_NOT_AVAILABLE"
    assert not mixed.is_classic
    assert (mixed.members.group_epoch, set(mixed.members.members)) == (epoch, {old, "new"})
    mixed.replicas.error_code = 0
    mixed.advance(2 * REBALANCE_MS)
    group = mixed.coordinator.groups[GROUP]
    assert group.state.name == "Empty"
    assert group.generation_id > epoch


def test_empty_group_keeps_its_protocol_while_the_log_refuses_the_other(mixed: Mixed) -> None:
    mixed.enter("new")
    mixed.beat("new", -1)
    mixed.replicas.error_code = NOT_ENOUGH_REPLICAS
    assert mixed.join(protocols=subscription()).value.error_code == 15  # COORDINATOR_NOT_AVAILABLE
    assert mixed.members.group_epoch == 2
    mixed.replicas.error_code = 0
    old = mixed.classic(0, 1, 2, 3)
    mixed.coordinator.leave_group(GROUP, [LeaveGroupRequest.MemberIdentity(member_id=old)])
    mixed.settle()
    mixed.replicas.error_code = NOT_ENOUGH_REPLICAS
    assert mixed.enter("new").error == "COORDINATOR_NOT_AVAILABLE"
    assert mixed.is_classic


def test_classic_group_is_not_converted_while_the_log_refuses_it(mixed: Mixed) -> None:
    old = mixed.classic(0, 1, 2, 3)
    mixed.replicas.error_code = NOT_ENOUGH_REPLICAS
    assert mixed.enter("new").error == "COORDINATOR_NOT_AVAILABLE"
    assert mixed.is_classic
    assert mixed.classic_beat(old, 1) is None


def test_classic_member_keeps_its_own_session_timeout(mixed: Mixed) -> None:
    old = mixed.classic(0, 1, 2, 3)
    mixed.enter("new")
    mixed.advance(SESSION_MS - 1)
    assert old in mixed.members.members
    mixed.advance(1)
    assert old not in mixed.members.members
    assert mixed.classic_beat(old, 1) == "UNKNOWN_MEMBER_ID"


@pytest.mark.parametrize("joins", [False, True])
def test_classic_member_that_does_not_rejoin_is_removed(mixed: Mixed, joins: bool) -> None:
    """It must join when a heartbeat says so, and then sync, each within its rebalance timeout."""
    old = mixed.classic(0, 1, 2, 3)
    mixed.enter("new")
    generation = 1
    if joins:
        generation = mixed.join(old, protocols=subscription()).value.generation_id
    for waited_ms in range(0, REBALANCE_MS, 5_000):
        mixed.classic_beat(old, generation)
        mixed.beat("new", 2, {})
        assert old in mixed.members.members, f"removed after {waited_ms} ms"
        mixed.advance(5_000)
    assert mixed.classic_beat(old, generation) == "UNKNOWN_MEMBER_ID"


def test_static_member_may_change_its_protocol(mixed: Mixed) -> None:
    """Its new process takes the place of the old one, and gets its partitions."""
    joined = mixed.join(instance_id="i", protocols=subscription())
    mixed.settle()
    old = joined.value.member_id
    mixed.sync(old, 1, {old: assignment(range(4))}, instance_id="i")
    mixed.settle()
    entered = mixed.enter("new", instance_id="i")
    assert (entered.error, entered.assigned) == (None, of(0, 1, 2, 3))
    assert list(mixed.members.members) == ["new"]
    assert (
        mixed.send(
            "other", 0, instance_id="i", rebalance_timeout_ms=1, subscribed_topic_names=["topic"], topic_partitions={}
        ).value.error_code
        == 111
    )  # UNRELEASED_INSTANCE_ID
    back = mixed.join(instance_id="i", protocols=subscription()).value
    assert back.error_code == 0
    assert mixed.is_classic, "it was the last one"
    mixed.settle()
    synced = mixed.sync(back.member_id, back.generation_id, instance_id="i").value
    assert (synced.error_code, synced.assignment) == (0, assignment(range(4)))


def test_leave_by_instance_id_keeps_the_request_as_it_was_sent(mixed: Mixed) -> None:
    joined = mixed.join(instance_id="i", protocols=subscription())
    mixed.settle()
    mixed.sync(joined.value.member_id, 1, {joined.value.member_id: assignment(range(4))}, instance_id="i")
    mixed.settle()
    mixed.enter("new")
    identity = LeaveGroupRequest.MemberIdentity(group_instance_id="i")
    (left,) = mixed.coordinator.leave_group(GROUP, [identity])
    assert left.error_code == 0
    assert identity.member_id == ""
    assert list(mixed.members.members) == ["new"]


def test_leave_group_request_removes_classic_members_only(mixed: Mixed) -> None:
    old = mixed.classic(0, 1, 2, 3)
    mixed.enter("new")
    identity = LeaveGroupRequest.MemberIdentity
    left = mixed.coordinator.leave_group(GROUP, [identity(member_id=old), identity(member_id="new")])
    assert [member.error_code for member in left] == [0, 25]  # UNKNOWN_MEMBER_ID
    assert list(mixed.members.members) == ["new"]


@pytest.mark.parametrize(
    ("member_id", "generation_id", "error"),
    [
        ("old", 2, None),
        ("old", 1, "ILLEGAL_GENERATION"),
        ("new", 1, "STALE_MEMBER_EPOCH"),
        ("x", 2, "UNKNOWN_MEMBER_ID"),
    ],
)
def test_commits_need_a_valid_epoch(mixed: Mixed, member_id: str, generation_id: int, error: str | None) -> None:
    old = mixed.classic(0, 1, 2, 3)
    mixed.enter("new")
    mixed.rejoin(old)
    request = commit(old if member_id == "old" else member_id, generation_id)
    version = 8 if member_id == "old" else 9
    committed: list[Any] = []
    with pytest.raises(BrokerError) if error else nullcontext() as refused:
        mixed.coordinator.commit_offsets(request, version, {TP: CommittedOffset(5, -1, "", 0)}, committed.append)
    assert (refused and refused.value.error_name, committed) == (error, [] if error else [{TP: 0}])


@pytest.mark.parametrize(
    ("request_of", "error"),
    [
        (lambda mixed, old: mixed.join(protocols={"sticky": subscription()["range"]}).value, 23),
        (lambda mixed, old: mixed.join(protocols={"range": b"?"}).value, 23),
        (lambda mixed, old: mixed.join(protocols=subscription(), protocol_type="connect").value, 23),
        (lambda mixed, old: mixed.join(old, instance_id="i", protocols=subscription()).value, 25),
    ],
)
def test_unfitting_joins_are_refused(mixed: Mixed, request_of: Any, error: int) -> None:
    old = mixed.classic(0, 1, 2, 3)
    mixed.enter("new")
    assert request_of(mixed, old).error_code == error


@pytest.mark.parametrize(
    ("generation_id", "fields", "error"),
    [(1, {}, 22), (2, {"protocol_name": "sticky"}, 23), (2, {"protocol_type": "connect"}, 23)],
)
def test_unfitting_syncs_are_refused(mixed: Mixed, generation_id: int, fields: dict[str, Any], error: int) -> None:
    old = mixed.classic(0, 1, 2, 3)
    mixed.enter("new")
    mixed.rejoin(old)
    assert mixed.sync(old, generation_id, **fields).value.error_code == error


def test_next_coordinator_knows_both_kinds_of_members(mixed: Mixed) -> None:
    old = mixed.classic(0, 1, 2, 3)
    mixed.enter("new")
    before = CONSUMER_GROUP_RECORDS.member_record("g", mixed.members.members[old])
    mixed.next_coordinator()
    assert CONSUMER_GROUP_RECORDS.member_record("g", mixed.members.members[old]) == before
    assert mixed.rejoin(old)[0] == 2
    assert mixed.classic_beat(old, 2) is None


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_policy_can_forbid_upgrades(policy: str) -> None:
    mixed = Mixed(**{"group.consumer.migration.policy": policy})
    mixed.classic(0)
    assert mixed.enter("new").error == "GROUP_ID_NOT_FOUND"
    assert mixed.is_classic


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_policy_can_forbid_downgrades(policy: str) -> None:
    mixed = Mixed(**{"group.consumer.migration.policy": policy})
    mixed.enter("new")
    member_id = mixed.join(protocols=subscription()).value.member_id
    mixed.rejoin(member_id)
    mixed.beat("new", -1)
    assert not mixed.is_classic
    assert mixed.rejoin(member_id)[1] == [0, 1, 2, 3]


def test_group_of_another_protocol_type_is_not_converted(mixed: Mixed) -> None:
    mixed.join_twice(protocol_type="connect")
    mixed.settle()
    assert mixed.enter("new").error == "GROUP_ID_NOT_FOUND"


@pytest.mark.parametrize("seed", range(15))
def test_partitions_have_one_owner_while_members_change_protocol(seed: int) -> None:
    """Members of both protocols come, go and lag behind, and coordinators change. Owners are as members see them."""
    rng = random.Random(seed)
    mixed = Mixed(seed=seed)
    new: dict[str, tuple[int, list[int]]] = {}
    old: dict[str, tuple[int, list[int]]] = {}
    mixed.enter("anchor")
    new["anchor"] = 0, []
    for number in range(120):
        step = rng.random()
        if step < 0.08 and len(new) < 4:
            new[f"n{number}"] = 0, []
        elif step < 0.16 and len(old) < 4:
            old[mixed.join(protocols=subscription()).value.member_id] = -1, []
        elif step < 0.2 and len(new) > 1:
            name = rng.choice([name for name in new if name != "anchor"])
            if new[name][0]:
                mixed.beat(name, -1)
            del new[name]
        elif step < 0.24 and old:
            name = rng.choice(list(old))
            mixed.coordinator.leave_group(GROUP, [LeaveGroupRequest.MemberIdentity(member_id=name)])
            del old[name]
        elif step < 0.28:
            mixed.next_coordinator()
        elif step < 0.6:
            _new_member_goes_on(mixed, new, rng.choice(list(new)))
        elif old:
            _old_member_goes_on(mixed, old, rng.choice(list(old)), is_eager=bool(seed % 2))
        owned = [one for _, mine in (*new.values(), *old.values()) for one in mine]
        assert len(owned) == len(set(owned)), f"two owners after step {number}"
    for _ in range(10):
        for name in list(new):
            _new_member_goes_on(mixed, new, name)
        for name in list(old):
            _old_member_goes_on(mixed, old, name, is_eager=bool(seed % 2))
    assert isinstance(mixed.coordinator.groups[GROUP], ConsumerGroup)
    assert mixed.members.state.name == "Stable"
    assert sorted(one for _, mine in (*new.values(), *old.values()) for one in mine) == [0, 1, 2, 3]


def _new_member_goes_on(mixed: Mixed, members: dict[str, tuple[int, list[int]]], name: str) -> None:
    epoch, owned = members[name]
    answered = mixed.beat(name, epoch, of(*owned)) if epoch else mixed.enter(name)
    assert answered.error is None
    if answered.assigned is not None:
        owned = list(answered.assigned.get(TOPIC_ID, []))
    members[name] = answered.epoch, owned


def _old_member_goes_on(mixed: Mixed, members: dict[str, tuple[int, list[int]]], name: str, *, is_eager: bool) -> None:
    generation, owned = members[name]
    error = mixed.classic_beat(name, generation) if generation >= 0 else "new"
    if error is not None:
        assert error in ("new", "REBALANCE_IN_PROGRESS")
        members[name] = mixed.rejoin(name, *([] if is_eager else owned))
